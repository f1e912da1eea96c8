"""The formats of values in the configuration, and the messages about invalid values. Called by
`settings`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from arkqueue.errors import NO_FIELD
from arkqueue.model import LEAST_MEMORY, LONGEST_DURATION, MOST_PIDS

MOST_SLOTS = 10_000


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZES = {"b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}

PLAIN_WORDS = {
    "missing": "is missing",
    "extra_forbidden": NO_FIELD,
    "string_type": "must be a text; put it in quotes",
    "path_type": "must be a path; put it in quotes",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "finite_number": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "enum": "must be {expected}",
    "literal_error": "must be {expected}",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be {ge} or more",
    "less_than_equal": "must be {le} or less",
    "too_short": "is empty; give at least one",
    "too_long": "has {actual_length} entries, more than {max_length}",
    "string_too_short": "is empty",
    "string_too_long": "has more than {max_length} characters",
    "list_type": "must be a list",
    "tuple_type": "must be a list, in brackets",
    "model_type": "must be a table",
}
"""Plain words in place of pydantic's own messages."""


def duration(value: Any) -> Any:
    """Seconds from ``90s``, ``30m``, ``2h`` or ``1h30m``."""
    if isinstance(value, str):
        parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", value.strip())
        if parts and "".join(number + unit for number, unit in parts) == value.strip():
            seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
            if seconds <= LONGEST_DURATION:
                return seconds
            raise PydanticCustomError("duration", "is more than a year; give at most 366d")
    raise PydanticCustomError("duration", "is not a valid duration; write it like 90s, 30m or 2h")


def within(least: str, most: str) -> AfterValidator:
    """Limits of a duration, written like durations."""
    low, high = duration(least), duration(most)

    def checked(seconds: float) -> float:
        if not low <= seconds <= high:
            raise PydanticCustomError("duration", "must be from {least} to {most}", {"least": least, "most": most})
        return seconds

    return AfterValidator(checked)


def size(value: Any) -> Any:
    """Bytes from ``64KiB``, ``15MiB`` or ``1GiB``."""
    if isinstance(value, str) and (match := re.fullmatch(r"(\d+)\s*([kmg]ib|b)", value.strip(), re.IGNORECASE)):
        return int(match[1]) * _SIZES[match[2].lower()]
    raise PydanticCustomError("size", "is not a valid size; write it like 64KiB, 15MiB or 1GiB")


def size_or_nothing(value: Any) -> Any:
    return 0 if value in (0, "0") and not isinstance(value, bool) else size(value)


def limit_or_none(value: Any) -> Any:
    """A number, or the word ``none``."""
    return None if value == "none" else number(value)


def memory(value: Any) -> Any:
    found = size(value)
    if found < LEAST_MEMORY:
        raise PydanticCustomError("memory", "is too little for any container; give at least 6MiB")
    return found


def number(value: Any) -> Any:
    if isinstance(value, bool):  # for Python, these are 0 and 1
        raise PydanticCustomError("number", "must be a number")
    return value


Duration = Annotated[float, BeforeValidator(duration), Field(gt=0)]
Size = Annotated[int, BeforeValidator(size), Field(gt=0)]
SizeOrNothing = Annotated[int, BeforeValidator(size_or_nothing)]
Cpu = Annotated[float, BeforeValidator(number), Field(ge=0.01, le=1024, allow_inf_nan=False)]
Memory = Annotated[int, BeforeValidator(memory)]
Pids = Annotated[int, BeforeValidator(number), Field(ge=1, le=MOST_PIDS)]
LimitOrNone = Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(limit_or_none)]
Items = Annotated[int, BeforeValidator(number), Field(ge=1, le=1_000_000)]
Slots = Annotated[int, BeforeValidator(number), Field(ge=1, le=MOST_SLOTS)]


def is_address(value: str) -> bool:
    """Whether a text is a host and a port, like ``127.0.0.1:8417`` or ``[::1]:8417``."""
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\s\[\]]+):(\d{1,5})", value)
    return match is not None and int(match[2]) <= 65535


class Strict(BaseModel):
    """A table of the configuration: frozen, and it takes no key that it does not know."""

    # Built at the first use: the model of the configuration contains those of its tables.
    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=False, defer_build=True
    )
