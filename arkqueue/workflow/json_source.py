"""Turns JSON into positioned nodes. The standard library's parser decides whether a text is JSON;
the tokens give the positions.

YAML's parser cannot be used: JSON's surrogate pairs, as ``json.dumps`` writes for every emoji, are
not valid YAML, and YAML accepts texts that are not valid JSON. Called only by ``source.read``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NoReturn

from arkqueue.workflow.nodes import (
    LARGE_ITEM,
    MAX_DEPTH,
    MAX_FAULTS,
    MOST_DIGITS,
    NO_LIST,
    Builder,
    Lines,
    Node,
    Scalar,
    Unreadable,
)

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[-+.0-9A-Za-z]+|[][{}]')
_SPACE = re.compile(r"[ \t\r\n]*")
_WINDOWS = (2**14, 2**20)
"""The numbers of characters in which an item of a list has to end; most items end in the first
window.
"""
_CLOSED_BY = {"[": "]", "{": "}"}
_LITERALS: dict[str, Scalar] = {"null": None, "true": True, "false": False}


def compose_json(text: str, builder: Builder) -> Node | None:
    """The root of the file; None if it is empty. Raises Unreadable if it is not valid JSON."""
    if not text.strip():
        return None
    try:
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_no_constant)
    except json.JSONDecodeError as why:
        raise Unreadable(
            *Lines(text).place(why.pos), f"the file is not JSON: {why.msg[0].lower()}{why.msg[1:]}"
        ) from None
    except _Constant as why:
        place = _place(why.word, text)
        message = f"the file is not JSON: {why.word} is not a number in JSON"
        raise Unreadable(*Lines(text).place(place), message, why.word) from None
    except RecursionError:
        # The text before this position is valid JSON, so the walk ends there.
        pass
    return _Composer(text, builder, Lines(text)).node()


def items_of_json(text: str, builder: Builder) -> Iterator[Node]:
    """The items of a file's list, or of the list in its ``items``, one after the other, so that at
    most one of them is in memory. Raises Unreadable.
    """
    return _Items(text, builder).items()


class _Items:
    def __init__(self, text: str, builder: Builder) -> None:
        self._text, self._builder, self._lines = text, builder, Lines(text)
        self._at = 0

    def items(self) -> Iterator[Node]:
        if self._next() == "[":
            yield from self._list(2)
        elif self._next() == "{":
            yield from self._mapping()
        else:
            if self._next():
                self._value(1)
            raise Unreadable(1, 1, NO_LIST)
        if len(self._builder.faults) <= MAX_FAULTS and self._next():
            raise self._fault(self._at, "extra data")

    def _mapping(self) -> Iterator[Node]:
        keys: dict[str, Node] = {}
        self._at += 1
        is_open = self._next() != "}"
        self._at += not is_open
        while is_open:
            key = self._key()
            if key.text in keys:
                self._builder.twice(key, keys[key.text])
                self._skip()
            elif key.text != "items":
                self._skip()
            elif self._next() == "[":
                yield from self._list(3)
            else:
                raise Unreadable(1, 1, NO_LIST)
            keys.setdefault(key.text, key)
            if len(self._builder.faults) > MAX_FAULTS:
                return
            is_open = self._expect(",}") == ","
        if "items" not in keys:
            raise Unreadable(1, 1, NO_LIST)

    def _list(self, depth: int) -> Iterator[Node]:
        self._at += 1
        if self._next() == "]":
            self._at += 1
            return
        while len(self._builder.faults) <= MAX_FAULTS:
            yield self._value(depth)
            if self._expect(",]") == "]":
                return

    def _key(self) -> Node:
        if self._next() != '"':
            raise self._fault(self._at, "expecting property name enclosed in double quotes")
        key = self._value(2)
        self._expect(":")
        return key

    def _skip(self) -> None:
        """Pass over a value beside the list, however large. Only a small part of it is in memory."""
        opened: list[str] = []
        while True:
            if not self._has_skipped() and self._opens(opened):
                continue
            while opened and self._expect(f",{opened[-1]}") != ",":
                opened.pop()
            if not opened:
                return
            if opened[-1] == "}":
                self._key()

    def _has_skipped(self) -> bool:
        """Pass over the next value, if it is a scalar or a small collection."""
        if self._next() not in _CLOSED_BY:
            self._skip_scalar()
            return True
        try:
            self._at += _DECODER.raw_decode(self._text[self._at : self._at + _WINDOWS[0]])[1]
        except (json.JSONDecodeError, _Constant, RecursionError):
            return False  # it is larger, or one of its parts has a fault
        return True

    def _skip_scalar(self) -> None:
        try:
            self._at = _DECODER.raw_decode(self._text, self._at)[1]
        except json.JSONDecodeError as why:
            raise self._fault(why.pos, f"{why.msg[0].lower()}{why.msg[1:]}") from None
        except _Constant as why:
            raise self._fault(self._at, f"{why.word} is not a number in JSON", why.word) from None

    def _opens(self, opened: list[str]) -> bool:
        """Begin a large collection. Returns False if it is empty."""
        closing = _CLOSED_BY[self._text[self._at]]
        if len(opened) >= MAX_DEPTH:
            self._builder.too_deep(*self._lines.place(self._at))
        self._at += 1
        if self._next() == closing:
            self._at += 1
            return False
        opened.append(closing)
        if closing == "}":
            self._key()
        return True

    def _next(self) -> str:
        """The next character other than a space; empty at the end."""
        self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
        return self._text[self._at : self._at + 1]

    def _expect(self, characters: str) -> str:
        if not (found := self._next()) or found not in characters:
            raise self._fault(self._at, f"expecting {characters[0]!r} delimiter")
        self._at += 1
        return found

    def _fault(self, at: int, message: str, word: str = "") -> Unreadable:
        return Unreadable(*self._lines.place(at), f"the file is not JSON: {message}", word)

    def _value(self, depth: int) -> Node:
        """The next value. Only a part of the text is parsed, so that no value becomes larger than
        an item may be.
        """
        self._next()
        start = self._at
        for size in _WINDOWS:
            part = self._text[start : start + size]
            is_whole = start + size >= len(self._text)
            try:
                end = _DECODER.raw_decode(part)[1]
            except json.JSONDecodeError as why:
                if size == _WINDOWS[-1] or is_whole:
                    if not is_whole and (why.pos + 16 >= size or why.msg.startswith("Unterminated")):
                        break
                    raise self._fault(start + why.pos, f"{why.msg[0].lower()}{why.msg[1:]}") from None
            except _Constant as why:
                raise self._fault(
                    start + _place(why.word, part), f"{why.word} is not a number in JSON", why.word
                ) from None
            except RecursionError:
                end = size  # the composer finds the position
                self._at = start + end
                return _Composer(self._text, self._builder, self._lines, start, start + end).node(depth)
            else:
                if end < size or is_whole:
                    self._at = start + end
                    return _Composer(self._text, self._builder, self._lines, start, start + end).node(depth)
        raise Unreadable(*self._lines.place(start), LARGE_ITEM)


def _place(constant: str, text: str) -> int:
    """The position of the first constant in a text that is valid JSON up to there. More characters may
    follow the constant at once, as in ``NaNx``.
    """
    return next(token.start() for token in _TOKEN.finditer(text) if token.group().startswith(constant))


class _Constant(Exception):
    def __init__(self, word: str) -> None:
        self.word = word


def _no_constant(word: str) -> NoReturn:
    raise _Constant(word)


_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_no_constant)


class _Composer:
    """Walks the tokens of a valid JSON text, up to where it is too deep. Because the text is valid,
    commas and colons are skipped.
    """

    def __init__(self, text: str, builder: Builder, lines: Lines, start: int = 0, end: int | None = None) -> None:
        """``start``, ``end``: the part of the text to walk."""
        self._builder = builder
        self._tokens: Iterator[re.Match[str]] = _TOKEN.finditer(text, start, len(text) if end is None else end)
        self._lines = lines

    def node(self, depth: int = 1) -> Node:
        return self._node(next(self._tokens), depth)

    def _node(self, token: re.Match[str], depth: int) -> Node:
        line, column = self._lines.place(token.start())
        word = token.group()
        if word in "[{" and depth > MAX_DEPTH:
            self._builder.too_deep(line, column)
        if word == "[":
            items = []
            while (token := next(self._tokens)).group() != "]":
                items.append(self._node(token, depth + 1))
            return self._builder.sequence(items, line, column)
        if word == "{":
            pairs = []
            while (token := next(self._tokens)).group() != "}":
                pairs.append((self._node(token, depth + 1), self._node(next(self._tokens), depth + 1)))
            return self._builder.mapping(pairs, line, column)
        if word.startswith('"'):
            text = json.loads(word)
            return self._builder.scalar(text, text, line, column)
        return self._builder.scalar(_literal(word), word, line, column)


def _literal(word: str) -> Scalar:
    if word in _LITERALS:
        return _LITERALS[word]
    if (digits := word.lstrip("-")).isdigit() and len(digits) <= MOST_DIGITS:
        return int(word)
    return float(word)
