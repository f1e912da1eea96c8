"""Files of the archive that hold lists for ``foreach`` (design 5.30): their bytes to nodes with places, or faults. Pure.

`.json` and `.yaml` are read like workflow files, with the same limits; `.csv` has a header, `.txt` one item in each line. Called by ``tasks``.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from typing import Final

from arkqueue.model import Fault, SourceFile
from arkqueue.workflow.nodes import Entry, Node, Unreadable
from arkqueue.workflow.source import MAX_BYTES, read, text_of
from arkqueue.workflow.values import shown

MOST_FILES: Final = 20
"""List files of one revision."""

ReadFile = Callable[[str], SourceFile]
"""Reads a file of the archive, by its path from the root on."""


class ListFiles:
    """The list files that the workflow files of a revision name, each read once."""

    def __init__(self, read_file: ReadFile | None) -> None:
        """``read_file`` None: nobody can read them here, and they are not judged."""
        self._read_file = read_file
        self._read: dict[str, tuple[Node | None, str]] = {}

    @property
    def named(self) -> tuple[str, ...]:
        return tuple(self._read)

    def nodes(self, path: str, faults: list[Fault]) -> tuple[Node | None, str]:
        """The list in a file, whose faults are added to ``faults``; or why there is none, where whoever names the file is to be told."""
        if path not in self._read:
            self._read[path] = self._nodes(path, faults)
        return self._read[path]

    def _nodes(self, path: str, faults: list[Fault]) -> tuple[Node | None, str]:
        if self._read_file is None:
            return None, ""
        if len(self._read) >= MOST_FILES:
            return None, f"there are more than {MOST_FILES} list files; put lists into fewer"
        file = self._read_file(path)
        if file.fault:
            return None, file.fault
        if len(file.text) > MAX_BYTES:
            return None, "the file is larger than 1 MiB; make the list smaller"
        try:
            return _list_in(file, faults), ""
        except Unreadable as why:
            faults.append(Fault(path, why.line, why.column, why.message, why.word, why.suggestion))
            return None, ""


def _list_in(file: SourceFile, faults: list[Fault]) -> Node | None:
    path = file.path.lower()
    if path.endswith(".csv"):
        return _rows(text_of(file.text, "a list"))
    if path.endswith(".txt"):
        lines = text_of(file.text, "a list").replace("\r\n", "\n").split("\n")
        return Node([Node(line, n, 1, line) for n, line in enumerate(lines, 1) if line], 1, 1)
    source = read(file)
    faults += source.faults
    root = source.root
    if root is not None and isinstance(root.value, dict) and "items" in root.value:
        root = root.value["items"].value
    if root is not None and isinstance(root.value, list):
        return root
    if source.readable:
        raise Unreadable(1, 1, "the file holds no list; write a list, or {items: […]}; an empty one is []")
    return None


def _rows(text: str) -> Node:
    """The rows of a CSV file as mappings by its header."""
    reader = csv.reader(text.splitlines(keepends=True), strict=True)
    header: list[Node] = []
    rows = []
    line = 1
    try:
        for cells in reader:
            if not header:
                header = _header(cells)
            elif cells:
                if len(cells) != len(header):
                    raise Unreadable(
                        line, 1, f"the row has {len(cells)} fields, and the header {len(header)}; give each row as many"
                    )
                pairs = {
                    key.text: Entry(key, Node(cell, line, 1, cell)) for key, cell in zip(header, cells, strict=True)
                }
                rows.append(Node(pairs, line, 1))
            line = reader.line_num + 1
    except csv.Error as why:
        raise Unreadable(line, 1, f"the file is not CSV: {why}") from None
    if not header:
        raise Unreadable(1, 1, "the file has no header; write the names of the fields into its first line")
    return Node(rows, 1, 1)


def _header(cells: list[str]) -> list[Node]:
    for cell in cells:
        if not cell or cells.count(cell) > 1:
            raise Unreadable(
                1, 1, f"the header has the field {shown(cell)} twice, or one without a name; name each field once", cell
            )
    if not cells:
        raise Unreadable(1, 1, "the first line is empty; write the names of the fields into it")
    return [Node(cell, 1, 1, cell) for cell in cells]
