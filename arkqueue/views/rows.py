"""Makes views from rows: most fields of a view are the row's columns with the same names. Called by
every view.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from arkqueue.model import Fault

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

V = TypeVar("V", bound="DataclassInstance")


def view_of(row: Any, view: type[V], **given: Any) -> V:
    """A view of a row, field by field. ``given``: the fields that are not in the row, or differ
    from it.
    """
    names, values = _taken(view, tuple(given))
    given.update(zip(names, values(row), strict=True))
    return view(**given)


_OF_FAULT = {"path": str, "line": int, "column": int, "message": str, "word": str, "suggestion": str}
"""The fields of a stored fault."""


def faults_of(stored: Any) -> list[Fault]:
    """The stored faults of workflow files. If something else than arkqueue wrote them and they
    cannot be read, that is the only fault: they must not hide other runs.
    """
    if not isinstance(stored, list) or not all(map(_is_fault, stored)):
        return [Fault("_workflows", 0, 0, "the stored faults cannot be read: arkqueue doctor names the row")]
    return [Fault(**fault) for fault in stored]


def _is_fault(stored: Any) -> bool:
    if not isinstance(stored, dict) or not stored.keys() <= _OF_FAULT.keys():
        return False
    needed = {"path", "line", "column", "message"} <= stored.keys()
    return needed and all(isinstance(value, _OF_FAULT[name]) for name, value in stored.items())


@cache
def _taken(view: type[V], given: tuple[str, ...]) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """The fields that a view takes from its row, and a function that gets all of them at once,
    because long lists are slow otherwise.
    """
    names = tuple(field.name for field in fields(view) if field.name not in given)
    if len(names) > 1:
        return names, attrgetter(*names)
    return names, lambda row: tuple(getattr(row, name) for name in names)
