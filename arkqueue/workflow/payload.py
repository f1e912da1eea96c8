"""Turns the bytes of a submission (design 5.31) into a document and the items of its list, or into
faults with their positions. Pure.

Everybody who may submit can send a payload, so it is checked in a reader process, like the workflow
files of a committer. A list in it is read like one in a file of the archive (`list_files`). In JSON
and YAML, the list is the document, or its field ``items``; in CSV, it is the rows, by the header;
otherwise each line is an item.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from arkqueue.model import MOST_ITEMS, Fault, Foreach, Item, PayloadKind, SourceFile
from arkqueue.workflow.document import document
from arkqueue.workflow.list_files import ListFiles, nodes_in
from arkqueue.workflow.nodes import MAX_FAULTS, Builder, Node, Unreadable
from arkqueue.workflow.references import position_in
from arkqueue.workflow.schemas import misfits
from arkqueue.workflow.source import MAX_BYTES, read, text_of

FILE: Final = {PayloadKind.JSON: "json", PayloadKind.YAML: "yaml", PayloadKind.CSV: "csv", PayloadKind.LINES: "txt"}
"""The suffix of a file with a payload of each kind."""
WHERE: Final = "payload"
"""The word that faults of a payload have instead of a path."""
SCHEMA: Final = "schema"
"""The word that faults of its schema have instead of a path."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A payload's items, by `Foreach.items`, or its faults (all of them, up to ``MAX_FAULTS``)."""

    lists: dict[str, tuple[Item, ...]] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()


def judge(
    data: bytes, kind: PayloadKind, keys: Sequence[str | None], most_items: int = MOST_ITEMS, schema: Any = None
) -> Judged:
    """Check a payload. ``keys``: the fields that identify an item, one for each task over its
    items; empty: no task needs a list. ``most_items``: the most items of its list. ``schema``: the
    schema that it must match (None: any payload is valid).
    """
    faults: list[Fault] = []
    lists, is_readable = {}, True
    path = f"{WHERE}.{FILE[kind]}"
    if schema is not None or not keys:
        try:
            value = document(data, kind, "the payload")
            if schema is not None:
                found = list(misfits(value, schema))
                root = _root(SourceFile(path, data), kind) if found else None
                faults += (
                    Fault(SCHEMA if one.is_of_schema else path, *position_in(root, one.place), one.message)
                    for one in found
                )
        except Unreadable as why:
            is_readable = False
            faults.append(Fault(path, why.line, why.column, why.message, why.word))
    for key in dict.fromkeys(keys) if is_readable else ():
        items, fault = ListFiles(lambda _: SourceFile(path, data), most_items).items(path, key, faults)
        if fault:
            faults.append(Fault(path, 0, 0, fault))
        lists[Foreach.of_submission(key).items] = items
    if faults:
        in_order = sorted(set(faults), key=lambda fault: (not fault.line, fault))
        told = [replace(fault, path=WHERE) if fault.path == path else fault for fault in in_order[:MAX_FAULTS]]
        return Judged(faults=tuple(told))
    return Judged(lists)


def _root(file: SourceFile, kind: PayloadKind) -> Node | None:
    """The nodes of a payload, for the positions of its faults. None: the payload is long, and its
    nodes would take too much memory and time.
    """
    if len(file.text) > MAX_BYTES:
        return None
    if kind in (PayloadKind.JSON, PayloadKind.YAML):
        return read(file).root
    try:
        return Node([*nodes_in(file.path, text_of(file.text, "the payload"), Builder(file.path))], 1, 1)
    except Unreadable:
        return None
