"""The frozen form of a definition: JSON that is stored with its run, so that the definition is
never read from the repository again (design 5.2).

The form is canonical: keys are sorted and defaults are left out, so equal definitions have equal
texts. A definition that an older version stored is read with the defaults of the present model, so
a default there may be added, but never changed. ``queue`` stores the form, and every reader of a
run's tasks reads it.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from arkqueue.errors import Conflict
from arkqueue.model import TaskDefinition


def to_json(definition: TaskDefinition) -> dict[str, Any]:
    """The frozen form, ready for ``json.dumps``."""
    plain: dict[str, Any] = _definition().dump_python(definition, mode="json", exclude_defaults=True)
    return {key: _sorted(plain[key]) for key in sorted(plain)}


def from_json(frozen: dict[str, Any]) -> TaskDefinition:
    """The definition that ``to_json`` froze."""
    return _definition().validate_json(json.dumps(frozen))


def from_database(body: Any) -> TaskDefinition:
    """The definition of a row of the database. Raises ``Conflict`` if somebody has garbled the row,
    or has deleted it (``body`` is None).
    """
    thing, remedy = "the definition of the task", "arkqueue doctor says what helps"
    if body is None:
        raise Conflict(thing, "is missing in the database", remedy)
    try:
        return from_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"{part}." for part in first["loc"]).rstrip(".")
        fault = f"{place}: {first['msg']}" if place else first["msg"]
        raise Conflict(thing, f"cannot be read ({fault})", remedy) from None


@cache
def _definition() -> TypeAdapter[TaskDefinition]:
    """Made at the first use, because a caller that only looks for faults freezes nothing."""
    return TypeAdapter(TaskDefinition)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value
