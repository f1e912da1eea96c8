"""From a row to what people see of it: most of a view's fields are the row's columns of the same names. Called by every view."""

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
    """A view of a row, field by field; ``given``: what a column of the same name does not say, or says otherwise."""
    names, values = _taken(view, tuple(given))
    given.update(zip(names, values(row), strict=True))
    return view(**given)


@cache
def _taken(view: type[V], given: tuple[str, ...]) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """The fields that a view takes from its row, and what gets them all at once: long lists are mostly this."""
    names = tuple(field.name for field in fields(view) if field.name not in given)
    if len(names) > 1:
        return names, attrgetter(*names)
    return names, lambda row: tuple(getattr(row, name) for name in names)
