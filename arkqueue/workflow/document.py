"""Reads a file of JSON, YAML, CSV or lines into values as in JSON. Raises ``Unreadable`` if that is
not possible. Pure.

This module is for payloads of submissions and their schemas. Workflow files and lists are read with
the positions of all their parts (`source`, `list_files`).
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from dataclasses import replace
from sys import intern
from typing import Any, Final, NoReturn

from arkqueue.model import PayloadKind
from arkqueue.workflow.nodes import MAX_WEIGHT, MOST_EXPANDED, Builder, Lines, Node, Unreadable
from arkqueue.workflow.source import text_of
from arkqueue.workflow.values import shown
from arkqueue.workflow.yaml_source import compose_yaml

_KINDS: Final = {"json": PayloadKind.JSON, "yaml": PayloadKind.YAML, "yml": PayloadKind.YAML}


def kind_of(path: str) -> PayloadKind | None:
    """The kind of a file with one document, by its suffix. None: the suffix is another one."""
    return _KINDS.get(path.rpartition(".")[2].lower())


def document(data: bytes, kind: PayloadKind, what: str) -> Any:
    """The document in a file: for CSV a list of mappings, for lines a list of texts. ``what``: the
    name of the file in messages.
    """
    text = text_of(data, what)
    match kind:
        case PayloadKind.JSON:
            return _json(text, what)
        case PayloadKind.YAML:
            return _yaml(text, what)
        case PayloadKind.CSV:
            return _rows(text, what)
        case PayloadKind.LINES:
            return [line for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n") if line]


def _json(text: str, what: str) -> Any:
    def refuse_constant(word: str) -> NoReturn:
        raise Unreadable(0, 0, f"{what} is not JSON: {word} is not a number in JSON", word)

    if not text.strip():
        raise Unreadable(1, 1, f"{what} is empty; an empty list is []")
    try:
        return json.loads(text, parse_constant=refuse_constant, object_pairs_hook=_object)
    except json.JSONDecodeError as why:
        said = f"{what} is not JSON: {why.msg[0].lower()}{why.msg[1:]}"
        raise Unreadable(*Lines(text).place(why.pos), said) from None
    except ValueError:  # for Python, a whole number of more than 4,300 digits is an error
        raise Unreadable(0, 0, f"a number of {what} has too many digits; write it as a text") from None
    except RecursionError:
        raise Unreadable(0, 0, f"{what} is nested too deeply; make it flatter") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        ((twice, _),) = Counter([name for name, _ in pairs]).most_common(1)
        raise Unreadable(0, 0, f"an object has the field {shown(twice)} twice; remove one", twice)
    return found


def _yaml(text: str, what: str) -> Any:
    builder = _Plain(what, max(MAX_WEIGHT, MOST_EXPANDED * len(text)))
    root = compose_yaml(text, builder)
    for fault in builder.faults:
        raise Unreadable(fault.line, fault.column, fault.message, fault.word)
    return None if root is None else root.value


class _Plain(Builder):
    """Builds the document itself: its nodes have plain values instead of further nodes, which would
    take five times as much memory.
    """

    def sequence(self, items: list[Node], line: int, column: int) -> Node:
        made = super().sequence(items, line, column)
        values: Any = [item.value for item in items]
        return replace(made, value=values)

    def mapping(self, pairs: list[tuple[Node, Node]], line: int, column: int) -> Node:
        made = super().mapping(pairs, line, column)
        assert isinstance(made.value, dict)
        # Many items have the same few keys, so each key is in memory only once.
        values: Any = {intern(word): entry.value.value for word, entry in made.value.items()}
        return replace(made, value=values)


def _rows(text: str, what: str) -> list[dict[str, str]]:
    reader = csv.reader(
        io.StringIO(text, newline=""), strict=True
    )  # str.splitlines ends lines in the middle of a field
    rows = []
    try:
        header = next(reader, [])
        for row in reader:
            if row and len(row) != len(header):
                raise Unreadable(
                    reader.line_num,
                    1,
                    f"the row has {len(row)} field{'s' * (len(row) != 1)}, and the header {len(header)}",
                )
            if row:
                rows.append(dict(zip(header, row, strict=True)))
    except csv.Error as why:
        raise Unreadable(reader.line_num, 1, f"{what} is not CSV: {why}") from None
    return rows
