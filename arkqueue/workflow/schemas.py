"""The JSON Schema for payloads of submissions (design 5.31): read from a file of the archive, and
compared with documents. Pure.

A committer writes the schema. It must not refer to anything outside its file, and nothing is ever
fetched. Matching one of its patterns may take for ever; then the deadline of the reader process
ends it. Schemas and payloads are checked in such a process.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from arkqueue.model import Fault, Schema, SourceFile
from arkqueue.workflow.document import document, kind_of
from arkqueue.workflow.list_files import ReadFile
from arkqueue.workflow.nodes import MAX_FAULTS, Unreadable
from arkqueue.workflow.references import faults_of_references, position
from arkqueue.workflow.values import shown

if TYPE_CHECKING:
    from jsonschema import ValidationError

LONGEST_SCHEMA: Final = 2**20
"""The most bytes of a schema."""
MOST_MISFITS: Final = MAX_FAULTS - 1
"""The most faults of a payload that are reported; one more fault says that there are more."""
LONGEST_MISFIT: Final = 300
"""The most characters of a fault, which may repeat a part of the payload."""
LONGEST_VALUE: Final = 60
"""The most characters of the payload's value that a fault repeats."""
MOST_ALTERNATIVES: Final = 3
"""The most alternatives for which a fault says what they lack."""
TOO_DEEP: Final = "the schema is nested too deeply"
ENDLESS: Final = "the schema refers to itself without an end, or is nested too deeply"
"""The fault of a schema that is too deep. Documents cannot be: they are nested at most `MAX_DEPTH` deep."""


_Place: TypeAlias = tuple[str | int, ...]
"""The path to a part of a document. The path of a fault inside an alternative is below that of the
alternatives.
"""


class SchemaFile:
    """The schema that the workflow files of a revision name. They may name only one."""

    def __init__(self, read_file: ReadFile | None) -> None:
        """``read_file`` None: the schema cannot be read here, and is not checked."""
        self._read_file = read_file
        self._named: dict[str, str] = {}
        """The path of the file, and the workflow file that names it."""
        self.found: Schema | None = None

    @property
    def named(self) -> tuple[str, ...]:
        return tuple(self._named)

    def read(self, path: str, where: str, faults: list[Fault]) -> str:
        """Read the schema in a file, and add its faults to ``faults``. Returns the fault of the
        place ``where`` that names the file; empty if there is none.
        """
        if self._named:
            first = next(iter(self._named.values()))
            return f"there is already a schema for submissions, named at {first}; remove one"
        self._named[path] = where
        if self._read_file is None:
            return ""
        file = self._read_file(path)
        if file.fault:
            return file.fault
        try:
            schema = schema_of(file)
            broken = faults_of_references(file, schema.content)
        except Unreadable as why:
            faults.append(Fault(path, why.line, why.column, why.message, why.word))
            return ""
        except BaseException as why:
            faults.append(
                Fault(path, 0, 0, TOO_DEEP if _is_too_deep(why) else f"is not a JSON Schema: {_failure(why)}")
            )
            return ""
        faults += broken
        self.found = None if broken else schema
        return ""


def schema_of(file: SourceFile) -> Schema:
    """The schema in a file; its references are not checked. Raises ``Unreadable``."""
    from jsonschema import exceptions, validators

    if len(file.text) > LONGEST_SCHEMA:
        raise Unreadable(0, 0, "the schema is larger than 1 MiB; make it smaller")
    kind = kind_of(file.path)
    schema = document(file.text, kind, "the schema") if kind is not None else None
    if not isinstance(schema, dict | bool):
        raise Unreadable(1, 1, "the file holds no JSON Schema; write a mapping")
    dialect = schema.get("$schema") if isinstance(schema, dict) else None
    if dialect is not None and not isinstance(dialect, str):
        raise Unreadable(*position(file, ["$schema"]), "$schema: write the URI of a dialect, or remove it")
    kind_of_schema = validators.validator_for(schema, default=None)
    if dialect is not None and kind_of_schema is None:
        raise Unreadable(0, 0, f"$schema: {shown(str(dialect))} is not a known dialect of JSON Schema; remove it")
    try:
        (kind_of_schema or validators.Draft202012Validator).check_schema(schema)
    except exceptions.SchemaError as why:
        place = position(file, why.absolute_path)
        raise Unreadable(*place, f"is not a JSON Schema: {_told(why.json_path, why.message)}") from None
    try:
        json.dumps(schema, allow_nan=False)
    except ValueError:
        raise Unreadable(0, 0, "a number of the schema is none in JSON; write another") from None
    return Schema(file.path, schema)


@dataclass(frozen=True, slots=True)
class Misfit:
    """A fault of a document. ``place``: the path to the part with the fault; None: the fault belongs to
    no part. ``is_of_schema``: the schema has the fault, so no document could be valid.
    """

    place: _Place | None
    message: str
    is_of_schema: bool = False


def misfits(value: Any, schema: Any) -> Iterator[Misfit]:
    """The faults of a document against a schema, up to one more than are reported. The messages begin
    with the path, from ``$`` on.
    """
    from jsonschema import exceptions
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import specification_with

    from arkqueue.workflow.keywords import validator_for

    kind = validator_for(schema)
    if isinstance(schema, dict):
        # For a reference to the whole schema, its dialect would bring back the library's own
        # keywords.
        schema = {word: value for word, value in schema.items() if word != "$schema"}
    try:
        root = specification_with(kind.META_SCHEMA["$schema"]).create_resource(schema)
        # Without a registry of its own, the library would fetch referenced documents. A registry that
        # does not know all identifiers searches the whole schema for each reference.
        validator = kind(schema, registry=Registry().with_resource(root.id() or "", root).crawl())
        found = (said for error in validator.iter_errors(value) for said in _faults_of(error))
        for count, (place, said) in enumerate(found, 1):
            if count > MOST_MISFITS:
                yield Misfit(None, f"there are more than {MOST_MISFITS} faults; correct the ones above first")
                return
            yield Misfit(place, _told(_path(place), said))
    except Unresolvable as why:
        yield Misfit(None, f"the schema refers to {shown(str(why.ref))}, which is not in it", is_of_schema=True)
    except exceptions.UnknownType as why:
        yield Misfit(None, f"the schema has the type {shown(str(why.type))}, which there is not", is_of_schema=True)
    except BaseException as why:
        fault = ENDLESS if _is_too_deep(why) else f"the schema cannot be applied: {_failure(why)}"
        yield Misfit(None, fault, is_of_schema=True)


def _failure(error: BaseException) -> str:
    """The error of the library on a schema that it takes for one, but cannot read: not everything
    that it reads is checked by its metaschemas. Other errors are raised again.
    """
    if isinstance(error, MemoryError) or not isinstance(error, Exception):
        raise error
    return f"{type(error).__name__}: {shown(str(error))}"


def _is_too_deep(error: BaseException) -> bool:
    """Whether validation ended because Python's stack is full. If the library calls its maps at that
    moment, which are written in Rust, they raise a ``PanicException`` instead, which is no
    ``Exception`` and which no module exports.
    """
    is_panic = type(error).__name__ == "PanicException" and "RecursionError" in str(error)
    return is_panic or isinstance(error, RecursionError)


def _faults_of(error: ValidationError) -> Iterator[tuple[_Place, str]]:
    """The faults that an error of the library stands for, each with its position in the payload.

    If a value matches none of several alternatives (`anyOf`, `oneOf`), the faults are those of the
    alternative that its sender meant: the only one whose types, constants and enumerations match.
    If there is no such alternative, or more than one, there is one fault that says what each
    alternative lacks.
    """
    place = tuple(error.absolute_path)
    if error.validator not in ("anyOf", "oneOf"):
        yield place, _shortened(error)
        return
    alternatives: Any = error.validator_value
    if not error.context:
        yield place, f"fits several of {len(alternatives)} alternatives, and may fit one of them only"
        return
    lacking: dict[int, list[ValidationError]] = defaultdict(list)
    for one in error.context:
        lacking[int(one.relative_schema_path[0])].append(one)
    meant = [faults for faults in lacking.values() if not any(map(_is_of_another_kind, faults))]
    if len(meant) == 1 or len(lacking) == 1:
        for one in meant[0] if meant else next(iter(lacking.values())):
            yield from _faults_of(one)
        return
    lacks = (_lacks(place, n, alternatives[n], faults) for n, faults in lacking.items())
    more = f"; and {len(lacking) - MOST_ALTERNATIVES} more" if len(lacking) > MOST_ALTERNATIVES else ""
    yield place, f"fits none of {len(alternatives)} alternatives. {'; '.join(islice(lacks, MOST_ALTERNATIVES))}{more}"


def _is_of_another_kind(error: ValidationError) -> bool:
    """Whether a fault shows that the sender did not mean this alternative: the value itself, or a
    field of it, has another type, constant or choice.
    """
    return (error.validator in ("const", "enum") and len(error.relative_path) <= 1) or (
        error.validator == "type" and not error.relative_path
    )


def _lacks(place: _Place, number: int, alternative: Any, faults: Sequence[ValidationError]) -> str:
    """The first fault against one alternative, and the number of further faults."""
    title = alternative.get("title") if isinstance(alternative, dict) else None
    name = f"{number + 1} ({title})" if isinstance(title, str) else str(number + 1)
    where, said = next(_faults_of(faults[0]))
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{name}: {said if where == place else f'{_path(where)}: {said}'}{more}"


def _path(place: _Place) -> str:
    """A path as in ``$[0].size``."""
    from jsonschema import ValidationError

    return str(ValidationError("", path=place).json_path)


def _shortened(error: ValidationError) -> str:
    """The message of an error, with a long value shortened. The library's message begins with the
    value; the fault follows.
    """
    value = repr(error.instance)
    if len(value) <= LONGEST_VALUE or not error.message.startswith(value):
        return str(error.message)
    return f"{value[: LONGEST_VALUE - 1]}…{error.message[len(value) :]}"


def _told(path: str, message: str) -> str:
    text = f"{path}: {message}"
    return text if len(text) <= LONGEST_MISFIT else text[: LONGEST_MISFIT - 1] + "…"
