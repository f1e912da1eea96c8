"""A definition as the JSON that is stored with its run and never read from the repository again (design 5.2).

Canonical: sorted keys, defaults left out, so equal definitions have equal text. A definition that an older version stored is read with the
defaults that stand in the model, so a default there must never be changed, only added. Called by ``queue`` (store) and by
whoever reads a run's tasks.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from arkqueue.model import TaskDefinition


def to_json(definition: TaskDefinition) -> dict[str, Any]:
    """The frozen form, ready for ``json.dumps``."""
    plain: dict[str, Any] = _definition().dump_python(definition, mode="json", exclude_defaults=True)
    return {key: _sorted(plain[key]) for key in sorted(plain)}


def from_json(frozen: dict[str, Any]) -> TaskDefinition:
    """The definition that ``to_json`` froze."""
    return _definition().validate_json(json.dumps(frozen))


@cache
def _definition() -> TypeAdapter[TaskDefinition]:
    """Made at the first use: a caller that only looks for faults freezes nothing."""
    return TypeAdapter(TaskDefinition)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value
