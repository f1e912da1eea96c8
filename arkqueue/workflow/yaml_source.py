"""Turns YAML 1.2 (core schema) into positioned nodes, from the events of libyaml.

PyYAML's own loaders read YAML 1.1, where ``on``, ``no`` and ``10:30`` are not texts, and they
recurse without limit. Its event stream has neither flaw. This module composes the nodes, anchors
and aliases, and the core schema's null, true, false and numbers. Called only by ``source.read``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from arkqueue.workflow.nodes import (
    MAX_DEPTH,
    MAX_FAULTS,
    MAX_WEIGHT,
    MOST_DIGITS,
    NO_LIST,
    TOO_DEEP,
    Builder,
    Lines,
    Node,
    Scalar,
    Unreadable,
)

_INT = re.compile(rf"[-+]?[0-9]{{1,{MOST_DIGITS}}}|0o[0-7]{{1,20}}|0x[0-9a-fA-F]{{1,16}}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: Final[dict[str, Scalar]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_STARRED = re.compile(r"[^,\]}#\r\n]{1,80}")
_BASES: Final = {"0o": 8, "0x": 16}
_TAG: Final = "tag:yaml.org,2002:"

# libyaml's messages, and arkqueue's. The first entry that a message of libyaml contains counts.
_IN_PLAIN_WORDS: Final = (
    ("mapping values are not allowed", "a ': ' stands where no key can be; check the indentation, or quote the text"),
    (
        "could not find expected ':'",
        "this is neither 'key: value' nor '- entry'; add the ': ', or check the indentation",
    ),
    (
        "did not find expected '-' indicator",
        "this stands beside a list, but does not begin with '- '; check the indentation",
    ),
    ("did not find expected key", "this is not indented like the keys around it; check the indentation"),
    ("did not find expected ',' or ']'", "the list that begins with '[' is not closed; add ',' or ']'"),
    ("did not find expected ',' or '}'", "the mapping that begins with '{' is not closed; add ',' or '}'"),
    ("found unexpected end of stream", "the quote is not closed; add the closing quote"),
    ("found unexpected document indicator", "the quote is not closed; add the closing quote"),
    ("block sequence entries are not allowed", "a '- ' stands where no list can be; put it on a line of its own"),
    ("found unexpected ':'", "a ':' stands alone; remove it, or quote the text"),
    ("unknown escape character", "a backslash in double quotes begins an escape YAML does not know; use single quotes"),
    ("found undefined tag handle", "'!' begins a tag in YAML; quote the text"),
    ("did not find expected node content", "a value is missing here"),
)


def compose_yaml(text: str, builder: Builder) -> Node | None:
    """The root of the only document; None if the file is empty. Raises Unreadable if reading cannot
    continue.
    """
    return _Composer(text, builder).document()


def items_of_yaml(text: str, builder: Builder) -> Iterator[Node]:
    """The items of a file's list, or of the list in its ``items``, one after the other, so that at
    most one of them is in memory. Raises Unreadable.
    """
    return _Composer(text, builder).items()


class _Composer:
    def __init__(self, text: str, builder: Builder) -> None:
        self._text = text
        self._lines = Lines(text)
        self._builder = builder
        # Any: libyaml's events always have marks and alias names, which PyYAML's type stubs do not
        # declare.
        self._events: Iterator[Any] = iter(yaml.parse(text, Loader=yaml.CSafeLoader))
        self._anchors: dict[str, Node] = {}
        self._kept: int | None = None
        """The weight of a long list that may still be kept, because aliases may name it."""

    def document(self) -> Node | None:
        try:
            return self._document()
        except yaml.MarkedYAMLError as why:
            raise self._explained(why) from None
        except yaml.reader.ReaderError as why:
            line, column = self._lines.place(why.position)
            raise Unreadable(line, column, f"the file is not YAML: {why.reason}; remove the character") from None

    def items(self) -> Iterator[Node]:
        self._kept = MAX_WEIGHT
        try:
            yield from self._items()
        except yaml.MarkedYAMLError as why:
            raise self._explained(why) from None
        except yaml.reader.ReaderError as why:
            line, column = self._lines.place(why.position)
            raise Unreadable(line, column, f"the file is not YAML: {why.reason}; remove the character") from None

    def _items(self) -> Iterator[Node]:
        next(self._events)  # the start of the stream
        if isinstance(next(self._events), yaml.StreamEndEvent):
            raise Unreadable(1, 1, NO_LIST)
        event = next(self._events)
        if isinstance(event, yaml.SequenceStartEvent):
            yield from self._entries(event, 2)
        elif isinstance(event, yaml.MappingStartEvent):
            yield from self._entries_of_mapping()
        else:
            raise Unreadable(1, 1, NO_LIST)
        if len(self._builder.faults) <= MAX_FAULTS:
            self._end()

    def _entries_of_mapping(self) -> Iterator[Node]:
        keys: dict[str, Node] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            self._builder.begin_item()
            key, event = self._node(event, 2), next(self._events)
            if key.text in keys and self._is_key(key):
                self._builder.twice(key, keys[key.text])
                self._skip(event)
            elif key.text != "items":
                self._skip(event)
            elif isinstance(event, yaml.SequenceStartEvent):
                yield from self._entries(event, 3)
            else:
                value = self._node(event, 2)
                if not isinstance(value.value, list):
                    raise Unreadable(1, 1, NO_LIST)
                yield from value.value
            if self._is_key(key):
                keys.setdefault(key.text, key)
            if len(self._builder.faults) > MAX_FAULTS:
                return
        if "items" not in keys:
            raise Unreadable(1, 1, NO_LIST)

    def _skip(self, event: Any) -> None:
        """Pass over a value beside the list, however large. Only parts with an anchor are kept,
        because items may name them.
        """
        depth = 0
        while True:
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
                self._builder.begin_item()
                self._node(event, 2)
            elif isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if not depth:
                return
            event = next(self._events)

    def _entries(self, opened: Any, depth: int) -> Iterator[Node]:
        self._check_tag(opened.tag, "seq", *self._lines.place(opened.start_mark.index))
        while len(self._builder.faults) <= MAX_FAULTS and not isinstance(
            event := next(self._events), yaml.SequenceEndEvent
        ):
            self._builder.begin_item()
            yield self._node(event, depth)

    def _document(self) -> Node | None:
        next(self._events)  # the start of the stream
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        root = self._node(next(self._events), 1)
        self._end()
        return root

    def _end(self) -> None:
        next(self._events)  # the end of the document
        after: Any = next(self._events)
        if isinstance(after, yaml.DocumentStartEvent):
            mark: Any = after.start_mark
            message = "a second document begins here, and a file is one; remove the '---'"
            self._builder.fault(*self._lines.place(mark.index), message, "---")

    def _node(self, event: Any, depth: int) -> Node:
        index = event.start_mark.index
        line, column = self._lines.place(index)
        anchor: Any = event.anchor
        if isinstance(event, yaml.AliasEvent):
            return self._alias(anchor, index, depth)
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event, line, column)
        elif depth > MAX_DEPTH:
            self._builder.too_deep(line, column)
        elif isinstance(event, yaml.SequenceStartEvent):
            self._check_tag(event.tag, "seq", line, column)
            items = []
            while not isinstance(event_in := next(self._events), yaml.SequenceEndEvent):
                items.append(self._node(event_in, depth + 1))
            node = self._builder.sequence(items, line, column)
        else:
            self._check_tag(event.tag, "map", line, column)
            pairs = []
            while not isinstance(event_in := next(self._events), yaml.MappingEndEvent):
                key, value = self._node(event_in, depth + 1), self._node(next(self._events), depth + 1)
                if self._is_key(key):
                    pairs.append((key, value))
            node = self._builder.mapping(pairs, line, column)
        if anchor is not None:
            self._keep(anchor, node)
        return node

    def _keep(self, anchor: str, node: Node) -> None:
        if self._kept is not None:
            self._kept -= node.weight
            if self._kept < 0:
                message = f"what anchors like '&{anchor}' name amounts to more than 8 MiB; write less, or fewer of them"
                raise Unreadable(node.line, node.column, message, anchor)
        self._anchors[anchor] = node

    def _alias(self, name: str, index: int, depth: int) -> Node:
        node = self._anchors.get(name)
        if node is None:
            raise self._unquoted_star(index)
        if depth + node.height - 1 > MAX_DEPTH:
            self._builder.too_deep(*self._lines.place(index))
        return node

    def _is_key(self, node: Node) -> bool:
        """Whether a node can be the key of a mapping. If not, it is reported and left out."""
        message = ""
        if isinstance(node.value, list | dict):
            message = "a key is a list or a mapping; a key must be one word"
        elif node.text == "<<":
            message = "'<<' is not part of YAML 1.2; put what tasks have in common under 'defaults:'"
        if message:
            self._builder.fault(node.line, node.column, message, node.text)
        return not message

    def _scalar(self, event: Any, line: int, column: int) -> Node:
        text: str = event.value
        value: Scalar = text
        if event.implicit[0] and event.tag is None:
            value = _core(text)
        elif event.tag not in (None, "!", _TAG + "str"):
            value = _core(text)
            self._check_tag(event.tag, _kind(value), line, column)
        return self._builder.scalar(value, text, line, column)

    def _check_tag(self, tag: str | None, kind: str, line: int, column: int) -> None:
        if tag is not None and tag not in ("!", _TAG + kind):
            word = tag.replace(_TAG, "!!")
            message = f"the tag {word} does not fit what it stands before; remove it, or quote the text"
            self._builder.fault(line, column, message, word)

    def _explained(self, why: yaml.MarkedYAMLError) -> Unreadable:
        mark = why.problem_mark or why.context_mark
        begin = why.context_mark or mark
        if mark is None or begin is None:
            return Unreadable(0, 0, f"the file is not YAML: {why.problem}")
        problem, context = why.problem or "", why.context or ""
        if context == "while scanning an alias":
            return self._unquoted_star(begin.index)
        if context in ("while scanning a tag", "while parsing a tag"):
            return Unreadable(
                *self._lines.place(begin.index), "an unquoted '!' begins a tag in YAML; quote the text", "!"
            )
        if (
            "maximum nesting depth" in problem
        ):  # libyaml reads a thousand characters ahead, and has a limit of its own from 0.2.6 on
            line, column = self._lines.place(self._too_deep_from(mark.index))
            return Unreadable(line, column, TOO_DEEP)
        line, column = self._lines.place(mark.index)
        if problem == "found character that cannot start any token":
            character = self._text[mark.index : mark.index + 1]
            if character == "\t":
                return Unreadable(line, column, "a tab is used for indentation, which YAML forbids; use spaces", "\t")
            return Unreadable(line, column, f"a text cannot begin with {character!r} in YAML; quote it", character)
        plain = next((ours for theirs, ours in _IN_PLAIN_WORDS if theirs in problem), None)
        if plain is None:
            return Unreadable(line, column, f"the file is not YAML: {context} {problem}".replace("  ", " "))
        # If a bracket or quote is never closed, or a line is not "key: value", the fault is
        # reported at its beginning.
        if "closed" in plain or "neither" in plain:
            line, column = self._lines.place(begin.index)
        return Unreadable(line, column, f"the file is not YAML: {plain}")

    def _too_deep_from(self, end: int) -> int:
        """The approximate position where the first list or mapping in brackets begins that is too
        deep. It is not exact, because brackets in texts count, too.
        """
        opened: list[int] = []
        for index, character in enumerate(self._text[: end + 1]):
            if character in "[{":
                opened.append(index)
            elif character in "]}" and opened:
                opened.pop()
        return opened[MAX_DEPTH] if len(opened) > MAX_DEPTH else end

    def _unquoted_star(self, index: int) -> Unreadable:
        found = _STARRED.match(self._text, index)
        word = found.group().strip() if found else "*"
        message = f"an unquoted '*' begins an alias in YAML; quote it: \"{word}\""
        return Unreadable(*self._lines.place(index), message, word)


def _core(text: str) -> Scalar:
    """The value of a plain scalar in YAML 1.2's core schema. Numbers of extreme length stay texts."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        base = _BASES.get(text[:2])
        return int(text[2:], base) if base else int(text)
    if _FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def _kind(value: Scalar) -> str:
    return {bool: "bool", int: "int", float: "float", str: "str"}.get(type(value), "null")
