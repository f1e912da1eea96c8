"""Makes views from rows: most fields of a view are the row's columns with the same names. Called by
every view.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

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


@cache
def _taken(view: type[V], given: tuple[str, ...]) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """The fields that a view takes from its row, and a function that gets all of them at once,
    because long lists are slow otherwise.
    """
    names = tuple(field.name for field in fields(view) if field.name not in given)
    if len(names) > 1:
        return names, attrgetter(*names)
    return names, lambda row: tuple(getattr(row, name) for name in names)
