"""Single values of the format: names, references, times, patterns and the like, with the words in
which each is refused.

Nothing here knows which field has which value; ``format`` and ``containers`` combine them. A
number, true or false arrives as a node that knows how it was written, so a field that takes a text
gets ``1.10`` as it was written.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable
from datetime import datetime
from functools import cache, lru_cache
from typing import Annotated, Any, Final, NoReturn, TypeVar
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Strict,
    WithJsonSchema,
    field_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from arkqueue import lock_names
from arkqueue.model import (
    COMMIT,
    LABEL,
    LONGEST_DURATION,
    LONGEST_GLOB,
    LONGEST_LOCK,
    LONGEST_TASK_NAME,
    MOST_GLOBS,
    PREV,
    REPORT,
)
from arkqueue.priorities import GREATEST_PRIORITY, LEAST_PRIORITY
from arkqueue.workflow.nodes import Node
from arkqueue.workflow.spelling import nearest

_NAME: Final = rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST_TASK_NAME - 1}}}"
_ANOTHER_NAME: Final = rf"(?!(?:PREV|COMMIT|REPORT)$){_NAME}"
LONGEST_SHELL: Final = 1000
"""The most characters of a shell with its options."""
_DURATION: Final = r"([0-9]+(\.[0-9]+)?d)?([0-9]+(\.[0-9]+)?h)?([0-9]+(\.[0-9]+)?m)?([0-9]+(\.[0-9]+)?s)?"
_VARIABLE: Final = r"(?!ARKQUEUE(_|$))[A-Za-z_][A-Za-z0-9_]*"
_UNITS: Final = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}

T = TypeVar("T")


def wrong(message: str, word: str = "", suggestion: str = "") -> NoReturn:
    """A fault in arkqueue's own words. The value goes into the context, because braces in it would
    have a meaning in the message.
    """
    raise PydanticCustomError("fault", "{message}", {"message": message, "word": word, "suggestion": suggestion})


# --- Scalars -------------------------------------------------------------------------------------


def as_written(value: object, what: str = "a text", instead: str = "'' for an empty text") -> str:
    if isinstance(value, Node):
        return value.text
    if value is None:
        wrong(f"has no value; write {instead}")
    return value if isinstance(value, str) else wrong(f"must be {what}")


def as_meant(value: object) -> object:
    return value.value if isinstance(value, Node) else value


class Written:
    """Makes a ``str`` a text of the format: numbers, true and false are taken as written, and
    ``check`` refuses other texts.

    ``words``: what the value must be, and what to write if it has no value.
    """

    def __init__(self, check: Callable[[str], str] = str, words: tuple[str, ...] = (), **schema: Any) -> None:
        self._check, self._words = check, words
        self._schema = {"type": ["string", "number", "boolean"], **schema}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(lambda value: self._check(as_written(value, *self._words)))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return dict(self._schema)


def _name(value: str) -> str:
    if value == PREV:
        wrong(f"no task can be named {PREV}: it stands for the previous revision", value)
    if not re.fullmatch(_NAME, value):
        wrong(
            f"{shown(value)} is not a valid name for a task: use letters, digits, '.', '_' and '-' (at most 100), "
            "beginning with a letter or a digit",
            value,
            re.sub(r"[^A-Za-z0-9._-]+", "-", value).strip("-._") if len(value) <= 100 else "",
        )
    return value


def _label(value: str) -> str:
    if not re.fullmatch(LABEL, value):
        wrong(
            f"{shown(value)} is not a valid label of a task manager: use letters, digits, '.', '_' and '-' (at most 40), "
            "beginning with a letter or a digit",
            value,
        )
    return value


def _lock(value: str) -> str:
    if fault := lock_names.fault_of(value):
        wrong(f"{shown(value)}{'' if fault.startswith('is ') else ':'} {fault}", value)
    try:
        lock_names.paths(value)
    except lock_names.NotAName as why:
        wrong(f"{shown(value)}: {why}", value)
    return value


def _reference(value: str) -> str:
    prefix, colon, name = value.partition(":")
    if value == PREV or (prefix == PREV and name == "*") or (not colon and re.fullmatch(_NAME, value)):
        return value
    if value == "*":
        wrong("'*' alone names no task; every task of the previous revision is 'PREV:*'", value, "PREV:*")
    if prefix == PREV and name != PREV and re.fullmatch(_NAME, name):
        return value
    if colon and prefix != PREV and prefix.strip().upper() == PREV:
        wrong(f"{shown(value)} names no task: {PREV} is written in capitals", value, f"{PREV}:{name.strip()}")
    wrong(f"{shown(value)} names no task: write a task's name, PREV, PREV:name or PREV:*", value)


def _victim(value: str) -> str:
    name = _reference(value).removeprefix(f"{PREV}:")
    if name == "*":
        wrong("'PREV:*' cannot be canceled as one; name the tasks", value)
    if name in (COMMIT, REPORT):
        wrong(f"{name} belongs to the run itself and cannot be named in 'cancels'; name other tasks", value)
    return value


def _duration(value: object) -> float:
    if isinstance(value, Node) and not isinstance(value.value, bool):
        wrong(f"{value.text} has no unit; write {value.text}s, {value.text}m or {value.text}h", value.text)
    text = as_written(value)
    if len(text) > 40 or not text or not re.fullmatch(_DURATION, text):
        wrong(f"{shown(text)} is not a time; write it like 90s, 30m, 2h or 1h30m", text)
    seconds = sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([0-9.]+)([dhms])", text))
    return seconds if seconds <= LONGEST_DURATION else wrong(f"{text} is more than a year; give at most 366d", text)


def positive(value: float) -> float:
    return value if value > 0 else wrong("the time must be more than zero")


def _program(value: str) -> str:
    return value if value.strip() else wrong("is empty; write what to run, or leave the field out")


def _shell(value: str) -> str:
    if len(_program(value)) > LONGEST_SHELL:
        wrong(f"has {len(value):,} characters, more than {LONGEST_SHELL:,}; put options into the script", value)
    try:
        shlex.split(value)
    except ValueError:
        wrong(f"{shown(value)} has a quote that is not closed, or ends with a backslash; correct it", value)
    return value


def _pattern(value: str) -> str:
    if not value.removeprefix("!").strip():
        wrong("a pattern is empty; write a path or a name, with * and ** where it may vary")
    return value


def _path(value: str) -> str:
    path = _pattern(value).removeprefix("!")
    if path.startswith("/"):
        near = value.replace(path, path.lstrip("/"))
        wrong(f"{shown(value)} begins with '/'; paths begin at the archive's root without it", value, near)
    if ".." in path.split("/"):
        wrong(f"{shown(value)} leads out of the archive; remove the '..'", value)
    return value


def patterns(values: list[str]) -> list[str]:
    if len(values) > MOST_GLOBS:
        wrong(f"has {len(values)} patterns, more than {MOST_GLOBS}; use * and ** to write fewer", values[MOST_GLOBS])
    for value in values:
        if len(value) > LONGEST_GLOB:
            wrong(
                f"{shown(value)} has {len(value)} characters, more than {LONGEST_GLOB}; write a shorter pattern", value
            )
    if values and all(value.startswith("!") for value in values):
        wrong("'!' takes back from the patterns before it, and there are none; begin with '**'", values[0])
    return values


def _cron(value: str) -> str:
    try:
        if len(value) > 200 or len(value.split()) != 5:
            raise CronSimError("it needs five fields: minute, hour, day of the month, month, day of the week")
        CronSim(value, datetime(2000, 1, 1))
    except (CronSimError, ValueError, AssertionError) as why:
        reason = str(why) if isinstance(why, CronSimError) else "a field is out of range"
        wrong(f"{shown(value)} is not a cron expression: {reason[0].lower()}{reason[1:]}", value)
    if not _has_a_day(" ".join(value.split()[2:])):
        wrong(f"{shown(value)} never fires: no day is all that it asks for", value)
    return value


@lru_cache(1000)
def _has_a_day(days: str) -> bool:
    """Whether the day of the month, the month and the day of the week ever coincide. If one of the
    days begins with ``*``, both must match.
    """
    return next(CronSim(f"0 0 {days}", datetime(2000, 1, 1)), None) is not None


def _timezone(value: str) -> str:
    try:
        if value != "UTC":
            ZoneInfo(value)
    except (KeyError, ValueError, OSError):
        wrong(f"{shown(value)} is not a known time zone; write one like Europe/Berlin", value)
    return value


@cache
def timezones() -> tuple[str, ...]:
    """All known time zones, for suggestions."""
    return tuple(sorted(available_timezones()))


def _variable(value: str) -> str:
    if value == "ARKQUEUE" or value.startswith("ARKQUEUE_"):
        wrong(f"{shown(value)}: names that begin with ARKQUEUE are set by arkqueue; choose another", value)
    if not re.fullmatch(_VARIABLE, value):
        wrong(
            f"{shown(value)} is not a valid name for a variable: use letters, digits and '_', not beginning with a digit",
            value,
        )
    return value


def shown(value: str) -> str:
    """A value in a message: quoted and shortened."""
    return repr(value if len(value) <= 60 else value[:57] + "…")


Text = Annotated[str, Written()]
Program = Annotated[str, Written(_program, minLength=1)]
Shell = Annotated[str, Written(_shell, minLength=1, maxLength=LONGEST_SHELL)]
Path = Annotated[str, Written(_path, minLength=1)]
Pattern = Annotated[str, Written(_pattern, minLength=1)]
Cron = Annotated[str, Written(_cron)]
Zone = Annotated[str, Written(_timezone)]
Name = Annotated[str, Written(_name, pattern=f"^(?!PREV$){_NAME}$")]
Label = Annotated[str, Written(_label, ("a label or a list of labels", "a label"), pattern=f"^{LABEL}$")]
Lock = Annotated[str, Written(_lock, minLength=1, maxLength=LONGEST_LOCK)]
Flag = Annotated[bool, Strict(), BeforeValidator(as_meant)]
Count = Annotated[int, Strict(), Field(ge=0, le=100), BeforeValidator(as_meant)]
Priority = Annotated[int, Strict(), Field(ge=LEAST_PRIORITY, le=GREATEST_PRIORITY), BeforeValidator(as_meant)]
Duration = Annotated[
    float, BeforeValidator(_duration), WithJsonSchema({"type": "string", "pattern": f"^(?=.){_DURATION}$"})
]


def _factor(value: object) -> float:
    number = as_meant(value)
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        wrong("must be a number, 1 or more")
    return float(number) if 1 <= number <= 100 else wrong("must be between 1 and 100")


Factor = Annotated[float, BeforeValidator(_factor), WithJsonSchema({"type": "number", "minimum": 1, "maximum": 100})]


# --- Lists and alternatives ----------------------------------------------------------------------


class _OneOrMore:
    """A list. A single entry may be written without brackets, also according to the schema."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(
            lambda value: value if isinstance(value, list) else [value], handler(source)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        listed = handler(schema)
        return {"anyOf": [listed["items"], listed]}


def _kind(value: object) -> str | None:
    if isinstance(value, dict | BaseModel):
        return "<mapping>"
    return "<list>" if isinstance(value, list) else "<scalar>"


LIST_FILES: Final = (".json", ".yaml", ".yml", ".csv", ".txt")
"""The suffixes of files that hold lists."""


SCHEMA_FILES: Final = (".json", ".yaml", ".yml")
"""The suffixes of files that hold a JSON Schema."""


def list_file(value: str) -> str:
    """The path of a file of the archive that holds a list, from its root on."""
    return _file(value, LIST_FILES, "lists/volumes.csv")


def schema_file(value: str) -> str:
    """The path of a file of the archive that holds a JSON Schema, from its root on."""
    return _file(value, SCHEMA_FILES, "schemas/batch.json")


def _file(value: str, endings: tuple[str, ...], example: str) -> str:
    parts = value.split("/")
    if not value.isprintable() or len(value) > LONGEST_GLOB or not {"", ".", ".."}.isdisjoint(parts):
        wrong(f"must be the path of a file of the archive, from its root on, as {example}")
    if not value.lower().endswith(endings):
        wrong(f"must be a file whose name ends with {', '.join(endings)}")
    return value


A_LIST: Final = "must be a list, as [a, b], {file: PATH}, or submission"


def of_submission(value: object) -> str:
    """The word ``submission``, which stands for a list."""
    if value == "submission":
        return "submission"
    word = value if isinstance(value, str) else ""
    return wrong(A_LIST, word, nearest(word, ["submission"]))


def either(expected: str) -> Discriminator:
    """Chooses the alternative by the kind of the written value, so that a fault concerns only this
    alternative.
    """
    return Discriminator(_kind, "fault", expected)


OneOrMore = Annotated[list[T], _OneOrMore()]


class StrictModel(BaseModel):
    """A mapping of the format, without unknown fields and without fields that have no value."""

    # Built at the first use: the model of a task contains the inner schemas, and a checker that
    # starts at each push needs no other.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    @field_validator("*", mode="before")
    @classmethod
    def _has_a_value(cls, value: object) -> object:
        return wrong("has no value; give one, or remove the field") if value is None else value


# --- The words of edges and variables -------------------------------------------------------------

_REFERENCE: Final = rf"^(PREV(:(\*|(?!PREV$){_NAME}))?|{_NAME})$"
Reference = Annotated[str, Written(_reference, type="string", pattern=_REFERENCE)]
Victim = Annotated[str, Written(_victim, type="string", pattern=rf"^(PREV(:{_ANOTHER_NAME})?|{_ANOTHER_NAME})$")]
Variable = Annotated[str, AfterValidator(_variable), WithJsonSchema({"type": "string", "pattern": f"^{_VARIABLE}$"})]
