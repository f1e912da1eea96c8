"""From a row to what people see of it: most of a view's fields are the row's columns of the same names. Called by every view."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

V = TypeVar("V", bound="DataclassInstance")


def view_of(row: Any, view: type[V], **given: Any) -> V:
    """A view of a row, field by field; ``given``: what a column of the same name does not say, or says otherwise."""
    return view(**{name: given[name] if name in given else getattr(row, name) for name in _names(view)})


@cache
def _names(view: type[V]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(view))
