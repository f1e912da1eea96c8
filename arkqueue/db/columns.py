"""Columns for ``unnest``: rows turned into one array for each field, as text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple


def columns(kind: type[NamedTuple], rows: Sequence[Any], **of: Callable[[Any], Any]) -> dict[str, Any]:
    """Rows turned into columns by the fields of their kind, as ``unnest`` takes them. ``of``:
    functions whose results replace the values of some columns.
    """
    by_name: dict[str, Sequence[Any]] = dict(zip(kind._fields, zip(*rows, strict=True), strict=True))
    by_name |= {name: [None if one is None else put(one) for one in by_name[name]] for name, put in of.items()}
    return {name: array(column) for name, column in by_name.items()}


def array(column: Sequence[Any]) -> Any:
    """A column as the text of an array. psycopg would adapt the thousands of values of a list one
    by one.
    """
    one = next((value for value in column if value is not None), None)
    if isinstance(one, str):
        return array_of_texts(column)
    if isinstance(one, datetime):
        return list(column)
    return "{" + json.dumps(column)[1:-1] + "}"


def array_of_texts(column: Sequence[str | None]) -> str:
    if None not in column:
        plain = '{"' + '","'.join(column) + '"}'  # type: ignore[arg-type]
        if plain.count('"') == 2 * len(column) and "\\" not in plain and "\0" not in plain:
            return plain
    return "{" + ",".join(_quoted(column)) + "}"


def _quoted(column: Sequence[str | None]) -> Iterator[str]:
    quoted: dict[str | None, str] = {None: "NULL"}  # most columns repeat a few words
    for text in column:
        if text not in quoted:
            assert text is not None
            # PostgreSQL's text holds no NUL.
            escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\0", "\ufffd")
            quoted[text] = f'"{escaped}"'
        yield quoted[text]
