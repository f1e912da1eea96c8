"""What a submission hands in (design 5.31): its bytes to a document, and to the items of its list, or faults with their places. Pure.

A payload comes from whoever may submit, so it is judged in a reader process, like the workflow files of a committer. A list in it is read like one in a file of the archive
(`list_files`): of JSON and YAML the document, or its field ``items``; of CSV the rows, by the header; of lines each one.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from arkqueue.model import MOST_ITEMS, Fault, Foreach, Item, PayloadKind, SourceFile
from arkqueue.workflow.list_files import ListFiles
from arkqueue.workflow.nodes import MAX_FAULTS, Builder, Lines, Unreadable
from arkqueue.workflow.source import text_of
from arkqueue.workflow.values import shown
from arkqueue.workflow.yaml_source import compose_yaml

FILE: Final = {PayloadKind.JSON: "json", PayloadKind.YAML: "yaml", PayloadKind.CSV: "csv", PayloadKind.LINES: "txt"}
"""How the name of a file ends that holds a payload of each kind."""
WHERE: Final = "payload"
"""In the place of a path, in faults."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A payload's items, by `Foreach.items`, or its faults (all of them, as far as ``MAX_FAULTS``)."""

    lists: dict[str, tuple[Item, ...]] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()


def judge(data: bytes, kind: PayloadKind, keys: Sequence[str | None], most_items: int = MOST_ITEMS) -> Judged:
    """Judge a payload. ``keys``: the fields that identify an item, of each of the tasks that have a task for each item; none: nobody asks for a list. ``most_items``: of its list."""
    faults: list[Fault] = []
    lists = {}
    path = f"{WHERE}.{FILE[kind]}"
    if not keys:
        try:
            _read(text_of(data, "a payload"), kind, faults)
        except Unreadable as why:
            faults.append(Fault(path, why.line, why.column, why.message, why.word))
    for key in dict.fromkeys(keys):
        items, fault = ListFiles(lambda _: SourceFile(path, data), most_items).items(path, key, faults)
        if fault:
            faults.append(Fault(path, 0, 0, fault))
        lists[Foreach.of_submission(key).items] = items
    if faults:
        told = [Fault(WHERE, *_rest(fault)) for fault in sorted(set(faults))[:MAX_FAULTS]]
        return Judged(faults=tuple(told))
    return Judged(lists)


def _read(text: str, kind: PayloadKind, faults: list[Fault]) -> None:
    """Look whether a payload is what it says that it is; raises ``Unreadable`` where reading cannot go on."""
    if kind is PayloadKind.JSON:
        _json(text)
    elif kind is PayloadKind.YAML:
        builder = Builder(WHERE)
        compose_yaml(text, builder)
        faults += builder.faults
    elif kind is PayloadKind.CSV:
        _rows(text)


def _rows(text: str) -> None:
    reader = csv.reader(text.splitlines(keepends=True), strict=True)
    try:
        header = next(reader, [])
        for row in reader:
            if row and len(row) != len(header):
                raise Unreadable(reader.line_num, 1, f"the row has {len(row)} fields, and the header {len(header)}")
    except csv.Error as why:
        raise Unreadable(reader.line_num, 1, f"the payload is not CSV: {why}") from None


def _json(text: str) -> Any:
    if not text.strip():
        raise Unreadable(1, 1, "the payload is empty; an empty list is []")
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_object)
    except json.JSONDecodeError as why:
        raise Unreadable(
            *Lines(text).place(why.pos), f"the payload is not JSON: {why.msg[0].lower()}{why.msg[1:]}"
        ) from None
    except ValueError:  # which Python has for whole numbers of more than 4,300 digits
        raise Unreadable(1, 1, "a number of the payload has too many digits; write it as a text") from None
    except RecursionError:
        raise Unreadable(1, 1, "the payload is nested too deeply; make it flatter") from None


def _no_constant(word: str) -> NoReturn:
    raise Unreadable(0, 0, f"the payload is not JSON: {word} is not a number in JSON", word)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Unreadable(0, 0, f"an object has the field {shown(twice)} twice; remove one", twice)
    return found


def _rest(fault: Fault) -> tuple[int, int, str, str, str]:
    return fault.line, fault.column, fault.message, fault.word, fault.suggestion
