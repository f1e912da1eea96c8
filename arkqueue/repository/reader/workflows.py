"""Workflow files, lists and payloads as parts of messages. The reader parses the long ones, and the
server parses short ones itself.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from arkqueue.model import Fault, Item, PayloadKind, Schema, SourceFile, Workflow
from arkqueue.repository.reader.frames import ENCODER, Malformed, array, mapping, number, text, texts

SHORT = 2**14
"""The most bytes of workflow files that the server parses itself, within some milliseconds. The
parser takes 11 MB of memory, once.
"""
LONGEST_ITEMS = 96 * 2**20
"""The most bytes of the items of a payload on the socket, where a character outside ASCII takes
six.
"""


def put_file(file: SourceFile) -> list[str]:
    return [file.path, base64.b64encode(file.text).decode(), file.fault]


def take_files(value: object) -> tuple[SourceFile, ...]:
    return tuple(map(take_file, array(value)))


def take_file(value: object) -> SourceFile:
    parts = texts(value)
    if len(parts) != 3:
        raise Malformed("an invalid file")
    try:
        return SourceFile(parts[0], base64.b64decode(parts[1], validate=True), parts[2])
    except (binascii.Error, ValueError):
        raise Malformed("a file whose text is invalid") from None


def put_workflow(
    files: Sequence[SourceFile], read_file: Callable[[str], SourceFile], most_items: int
) -> dict[str, Any]:
    """Workflow files: short ones as texts; longer ones, and those that may name a list or a schema,
    parsed. `workflow` limits what a committer can put into them.
    """
    if sum(len(file.text) for file in files) <= SHORT and not any(
        word in file.text for word in (b"foreach", b"schema") for file in files
    ):
        return {"files": [put_file(file) for file in files]}
    from arkqueue.workflow import to_json
    from arkqueue.workflow.parsing import parse

    parsed = parse(files, read_file, most_items)
    return {
        "tasks": [to_json(task) for task in parsed.tasks],
        "faults": [astuple(fault) for fault in parsed.faults],
        "list_files": list(parsed.list_files),
        "lists": {digest: list(items) for digest, items in parsed.lists.items()},
        "schema": parsed.schema and astuple(parsed.schema),
    }


def take_workflow(value: object) -> Workflow:
    from arkqueue.workflow import from_json
    from arkqueue.workflow.parsing import parse

    found = mapping(value)
    if "files" in found:
        files = take_files(found["files"])
        if sum(len(file.text) for file in files) > SHORT:
            raise Malformed("workflow files that are too long for the server to parse")
        return parse(files, _unread)
    try:
        tasks = tuple(from_json(mapping(task)) for task in array(found.get("tasks")))
        lists = {digest: take_items(items) for digest, items in mapping(found.get("lists")).items()}
    except ValueError as error:
        raise Malformed(f"an invalid task ({str(error)[:200]})") from None
    named = {task.foreach.items for task in tasks if task.foreach and not task.foreach.is_of_submission}
    if not named <= lists.keys():
        raise Malformed("a task whose list is not there")
    schema = None
    if found.get("schema") is not None:
        parts = array(found["schema"])
        if len(parts) != 2:
            raise Malformed("an invalid schema")
        schema = Schema(text(parts[0]), parts[1])
    faults = tuple(map(_fault, array(found.get("faults"))))
    return Workflow(tasks, faults, lists, texts(found.get("list_files")), schema)


def put_lists(
    wanted: Sequence[tuple[str, str | None]], read_file: Callable[[str], SourceFile], most_items: int
) -> dict[str, Any]:
    """Lists of a revision, and their faults."""
    from arkqueue.workflow.list_files import read_lists

    found, faults = read_lists(wanted, read_file, most_items)
    return {"lists": [list(items) for items in found], "faults": [astuple(fault) for fault in faults]}


def take_lists(count: int) -> Callable[[object], tuple[list[tuple[Item, ...]], list[Fault]]]:
    """A function that takes ``count`` lists."""

    def take(value: object) -> tuple[list[tuple[Item, ...]], list[Fault]]:
        found = mapping(value)
        lists = [take_items(items) for items in array(found.get("lists"))]
        if len(lists) != count:
            raise Malformed("lists that were not asked for")
        return lists, list(map(_fault, array(found.get("faults"))))

    return take


def _unread(path: str) -> SourceFile:
    """Stands for a list that a short file names in a form that only a parser finds."""
    return SourceFile(
        path, fault="it cannot be read, because the word foreach is written with escapes; write it plainly"
    )


def take_items(value: object) -> tuple[Item, ...]:
    pairs = [array(pair) for pair in array(value)]
    if any(len(pair) != 2 for pair in pairs):
        raise Malformed("an invalid item")
    return tuple(Item(text(key), text(body)) for key, body in pairs)


def judge_payload(given: Mapping[str, Any]) -> dict[str, Any]:
    """The parsed payload of the file that ``given`` names."""
    from arkqueue.workflow.payload import judge

    judged = judge(
        Path(given["path"]).read_bytes(),
        PayloadKind(given["kind"]),
        given["keys"],
        given["most_items"],
        given["schema"],
    )
    if sum(len(ENCODER.encode(item.body)) for items in judged.lists.values() for item in items) > LONGEST_ITEMS:
        fault = f"its items are longer than {LONGEST_ITEMS >> 20} MiB together; hand it in as several"
        return {"lists": {}, "faults": [astuple(Fault("payload", 0, 0, fault))]}
    return {
        "lists": {digest: list(items) for digest, items in judged.lists.items()},
        "faults": [astuple(fault) for fault in judged.faults],
    }


def take_judged(value: object) -> tuple[dict[str, tuple[Item, ...]], tuple[Fault, ...]]:
    """The lists and the faults of a payload."""
    found = mapping(value)
    lists = {digest: take_items(items) for digest, items in mapping(found.get("lists")).items()}
    return lists, tuple(map(_fault, array(found.get("faults"))))


def _fault(value: object) -> Fault:
    parts = array(value)
    if len(parts) != 6:
        raise Malformed("an invalid fault")
    path, line, column, *words = parts
    return Fault(text(path), number(line), number(column), *map(text, words))
