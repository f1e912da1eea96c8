"""Positioned nodes: the keys and values of a workflow file, each with its line and column; and the
limits on them.

This module knows neither YAML nor JSON nor tasks. The two readers make the nodes through
``Builder``; ``tasks`` reads them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias

from arkqueue.model import Fault

MAX_DEPTH: Final = 50
TOO_DEEP: Final = f"lists and mappings are nested more than {MAX_DEPTH} deep; make them flatter"
MAX_FAULTS: Final = 1000
"""The most faults of a revision that are reported; then the check stops."""
NO_LIST: Final = "the file holds no list; write a list, or {items: […]}; an empty one is []"
LARGE_ITEM: Final = "an item of the list is too large; put what it needs into a file of its own"
MAX_WEIGHT: Final = 8 * 1024 * 1024
"""The largest weight of a workflow file with its aliases and defaults expanded. A full file without
either stays below this limit.
"""
MOST_EXPANDED: Final = 8
"""The largest weight of a file without aliases, as a multiple of its length: each scalar weighs
eight besides its characters.
"""

Scalar: TypeAlias = str | int | float | bool | None
MOST_DIGITS: Final = 309
"""The most digits of a whole number, which may be an identifier and keeps all of its digits. Most
readers of JSON take a longer number as infinite.
"""

# Characters that PostgreSQL cannot store in a text; escapes produce them ("\\0", and JSON's lone
# surrogates).
_FORBIDDEN = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Node:
    """A value with its line and column, from 1. ``text``: a scalar as it was written. ``weight``,
    ``height``: for limits.
    """

    value: Scalar | list[Node] | dict[str, Entry]
    line: int
    column: int
    text: str = ""
    weight: int = 0
    height: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """One ``key: value`` of a mapping. The key is a node, because faults name its position."""

    key: Node
    value: Node


class Unreadable(Exception):
    """The file cannot be read further; the fault has the position and the reason. Never leaves
    ``read``.
    """

    def __init__(self, line: int, column: int, message: str, word: str = "", suggestion: str = "") -> None:
        self.line, self.column, self.message, self.word, self.suggestion = line, column, message, word, suggestion
        super().__init__(message)


class Lines:
    """The positions of the characters of a text, as an editor counts them. The additional line
    breaks of YAML 1.1, which libyaml recognizes, do not count.

    It counts from the last requested position, because readers go from the beginning to the end. So
    it takes no memory, however many lines there are.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._at, self._line, self._start = 0, 1, 0
        """The last position, its line, and the position where this line begins."""

    def place(self, index: int) -> tuple[int, int]:
        """Line and column, from 1."""
        if index < self._at:
            self._at, self._line, self._start = 0, 1, 0
        text, at = self._text, self._at
        breaks = text.count("\n", at, index)
        if text.find("\r", at, index) >= 0:
            # A carriage return before a newline belongs to the same line break.
            breaks += text.count("\r", at, index) - text.count("\r\n", at, index + 1)
        if breaks:
            self._line += breaks
            last = text.rfind("\r", at, index)
            while last >= 0 and text.startswith("\n", last + 1):
                last = text.rfind("\r", at, last)
            self._start = max(last, text.rfind("\n", at, index)) + 1
        self._at = index
        return self._line, index - self._start + 1


class Builder:
    """Makes nodes for both readers, and checks limits and duplicate keys."""

    def __init__(self, path: str, most: int = MAX_WEIGHT) -> None:
        """``most``: the largest weight of the file with its aliases expanded."""
        self.path, self._most = path, most
        self.faults: list[Fault] = []
        self.made = 0
        """The number of values in the file: scalars, lists and mappings, without aliases."""
        self._left: int | None = None
        """The weight that the present item of a list may still add, without aliases."""

    def begin_item(self) -> None:
        """Apply the limits of one item of a list to the following nodes."""
        self._left = MAX_WEIGHT

    def _weigh(self, weight: int, line: int, column: int) -> None:
        if self._left is not None:
            self._left -= weight
            if self._left < 0:
                raise Unreadable(line, column, LARGE_ITEM)

    def fault(self, line: int, column: int, message: str, word: str = "") -> None:
        if len(self.faults) <= MAX_FAULTS:  # one more than are reported, so that readers stop
            self.faults.append(Fault(self.path, line, column, message, word))

    def scalar(self, value: Scalar, text: str, line: int, column: int) -> Node:
        if found := _FORBIDDEN.search(text):
            code = f"U+{ord(found.group()):04X}"
            self.fault(line, column, f"the text holds the character {code}, which cannot be stored; remove it", code)
            # The fault ends the file. But other messages about this value must be printable.
            text = _FORBIDDEN.sub("\ufffd", text)
            value = text if isinstance(value, str) else value
        self.made += 1
        self._weigh(8 + len(text), line, column)
        return Node(value, line, column, text, weight=8 + len(text))

    def sequence(self, items: list[Node], line: int, column: int) -> Node:
        weight = 8 + sum(item.weight for item in items)
        return self._within(Node(items, line, column, "", weight, _height(items)))

    def mapping(self, pairs: list[tuple[Node, Node]], line: int, column: int) -> Node:
        entries: dict[str, Entry] = {}
        for key, value in pairs:
            first = entries.get(key.text)
            if first is not None:
                self.twice(key, first.key)
                continue
            entries[key.text] = Entry(key, value)
        weight = 8 + sum(key.weight + value.weight for key, value in pairs)
        return self._within(Node(entries, line, column, "", weight, _height([value for _, value in pairs])))

    def twice(self, key: Node, first: Node) -> None:
        """Report a key that the mapping already has."""
        self.fault(
            key.line, key.column, f"{key.text!r} is given twice, first in line {first.line}; remove one", key.text
        )

    def _within(self, node: Node) -> Node:
        """Check the limits at each collection, so that an expansion without end is found while it
        still has few nodes in memory.
        """
        self.made += 1
        self._weigh(8, node.line, node.column)
        if node.height > MAX_DEPTH:
            self.too_deep(node.line, node.column)
        if node.weight > self._most:
            said = f"the aliases in here expand to more than {self._most >> 20} MiB; write less, or fewer aliases"
            raise Unreadable(node.line, node.column, said)
        return node

    def too_deep(self, line: int, column: int) -> NoReturn:
        raise Unreadable(line, column, TOO_DEEP)


def _height(children: list[Node]) -> int:
    return 1 + max((child.height for child in children), default=0)
