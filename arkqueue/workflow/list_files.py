"""Reads files of the archive with lists for ``foreach`` (design 5.30): their bytes become items, or
faults with their positions. Pure.

`.json` and `.yaml` files contain a list, or a mapping with one; a `.csv` file has a header; a
`.txt` file has one item in each line. A file may be 64 MiB long. Its items are made one after the
other, so that at most one of them is in memory as nodes. Called by ``tasks``.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from arkqueue.model import LONGEST_LIST, Fault, Item, SourceFile
from arkqueue.workflow.json_source import items_of_json
from arkqueue.workflow.lists import items_of
from arkqueue.workflow.nodes import LARGE_ITEM, MAX_FAULTS, Builder, Entry, Lines, Node, Unreadable
from arkqueue.workflow.source import text_of
from arkqueue.workflow.values import shown
from arkqueue.workflow.yaml_source import items_of_yaml

MOST_FILES: Final = 20
"""The most list files of one revision. A file counts once for each field that identifies its items
for some task.
"""
LONGEST_ROW: Final = 2**20
"""The most characters of a row."""
_WORDS = re.compile("[^\r\n]+")
_LINE = re.compile("[^\r\n]*(?:\r\n|\r|\n|$)")

ReadFile = Callable[[str], SourceFile]
"""Reads a file of the archive, by its path from the root on."""


class ListFiles:
    """The list files that the workflow files of a revision name. Each is read once for each field
    that identifies its items.
    """

    def __init__(self, read_file: ReadFile | None, most_items: int) -> None:
        """``read_file`` None: the files cannot be read here, and are not checked. ``most_items``:
        the most items of a list.
        """
        self._read_file, self.most_items = read_file, most_items
        self._read: dict[tuple[str, str | None], tuple[tuple[Item, ...], str]] = {}
        self._bytes = 0
        """The size of the files that were read."""

    @property
    def named(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(path for path, _ in self._read))

    def items(self, path: str, key: str | None, faults: list[Fault]) -> tuple[tuple[Item, ...], str]:
        """The items in a file; its faults are added to ``faults``. If a fault belongs to the place
        that names the file, its text is returned instead.
        """
        if (path, key) not in self._read:
            self._read[path, key] = self._items(path, key, faults)
        return self._read[path, key]

    def _items(self, path: str, key: str | None, faults: list[Fault]) -> tuple[tuple[Item, ...], str]:
        if self._read_file is None:
            return (), ""
        if len(self._read) >= MOST_FILES:
            return (), f"there are more than {MOST_FILES} list files; put lists into fewer"
        file = self._read_file(path)
        if file.fault:
            return (), file.fault
        self._bytes += len(file.text)
        if self._bytes > LONGEST_LIST:
            whose = "the file is" if len(file.text) > LONGEST_LIST else "the list files of this revision together are"
            return (), f"{whose} larger than {LONGEST_LIST >> 20} MiB; make the list smaller"
        builder = Builder(path)
        try:
            text = text_of(file.text, "a list")
            del file  # the bytes are not needed any more, and may be many
            nodes = nodes_in(path.lower(), text, builder)
            tell = lambda at, fault: faults.append(Fault(path, at.line, at.column, fault, at.text))  # noqa: E731
            return items_of(nodes, key, self.most_items, tell), ""
        except Unreadable as why:
            faults.append(Fault(path, why.line, why.column, why.message, why.word, why.suggestion))
            return (), ""
        finally:
            faults += builder.faults[: MAX_FAULTS + 1]


def read_lists(
    wanted: Sequence[tuple[str, str | None]], read_file: ReadFile, most_items: int
) -> tuple[list[tuple[Item, ...]], list[Fault]]:
    """The valid items in some files, each given with the field that identifies its items; and the
    faults.
    """
    files = ListFiles(read_file, most_items)
    faults: list[Fault] = []
    found = []
    for path, key in wanted:
        items, why = files.items(path, key, faults)
        faults += [Fault(path, 0, 0, why)] if why else []
        found.append(items)
    return found, faults[: MAX_FAULTS + 1]


def nodes_in(path: str, text: str, builder: Builder) -> Iterator[Node]:
    """The items in the text of a file, whose path is in lower case. Raises ``Unreadable``."""
    if path.endswith(".csv"):
        return _rows(text)
    if path.endswith(".txt"):
        lines = Lines(text)
        return (Node(found.group(), *lines.place(found.start()), found.group()) for found in _WORDS.finditer(text))
    return items_of_json(text, builder) if path.endswith(".json") else items_of_yaml(text, builder)


class _Lines:
    """The lines of a CSV file, for its reader. The reader takes several lines for a row whose cells
    contain line breaks.
    """

    def __init__(self, text: str) -> None:
        self._lines = _LINE.finditer(text)
        self.number = self._row = 0
        """The number of lines that were read, and the number of characters since the last row."""

    def begin_row(self) -> None:
        self._row = 0

    def __iter__(self) -> Iterator[str]:
        for found in self._lines:
            if line := found.group():
                self.number += 1
                self._row += len(line)
                if self._row > LONGEST_ROW:
                    raise Unreadable(self.number, 1, LARGE_ITEM)
                yield line


def _rows(text: str) -> Iterator[Node]:
    """The rows of a CSV file as mappings by its header."""
    lines = _Lines(text)
    reader = csv.reader(iter(lines), strict=True)
    header: list[Node] = []
    line = 1
    try:
        for cells in reader:
            if not header:
                header = _header(cells)
            elif cells:
                if len(cells) != len(header):
                    raise Unreadable(
                        line,
                        1,
                        f"the row has {len(cells)} field{'s' * (len(cells) != 1)}, and the header {len(header)}; give each row as many",
                    )
                pairs = {
                    key.text: Entry(key, Node(cell, line, 1, cell)) for key, cell in zip(header, cells, strict=True)
                }
                yield Node(pairs, line, 1)
            line = lines.number + 1
            lines.begin_row()
    except csv.Error as why:
        raise Unreadable(line, 1, f"the file is not CSV: {why}") from None
    if not header:
        raise Unreadable(1, 1, "the file has no header; write the names of the fields into its first line")


def _header(cells: list[str]) -> list[Node]:
    seen = {""}
    for cell in cells:
        if cell in seen:
            raise Unreadable(
                1, 1, f"the header has the field {shown(cell)} twice, or one without a name; name each field once", cell
            )
        seen.add(cell)
    if not cells:
        raise Unreadable(1, 1, "the first line is empty; write the names of the fields into it")
    return [Node(cell, 1, 1, cell) for cell in cells]
