"""From a row to what people see of it: most of a view's fields are the row's columns of the same names. Called by every view."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

V = TypeVar("V", bound="DataclassInstance")


def view_of(row: Any, view: type[V], **given: Any) -> V:
    """A view of a row, field by field; ``given``: what a column of the same name does not say, or says otherwise."""
    names = (field.name for field in fields(view) if field.name not in given)
    return view(**{name: getattr(row, name) for name in names}, **given)
