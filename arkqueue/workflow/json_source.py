"""JSON to positioned nodes. The standard library's parser says whether it is JSON; the tokens say where things stand.

YAML's parser would not do: JSON's surrogate pairs (every emoji that ``json.dumps`` writes) are not YAML, and YAML's freedoms are
not JSON. Called by ``source.read`` alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NoReturn

from arkqueue.workflow.nodes import MAX_DEPTH, Builder, Lines, Node, Scalar, Unreadable

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[-+.0-9A-Za-z]+|[][{}]')
_LITERALS: dict[str, Scalar] = {"null": None, "true": True, "false": False}


def compose_json(text: str, builder: Builder) -> Node | None:
    """The root of the file, None for an empty one. Raises Unreadable where it is not JSON."""
    if not text.strip():
        return None
    try:
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_no_constant)
    except json.JSONDecodeError as why:
        raise Unreadable(
            *Lines(text).place(why.pos), f"the file is not JSON: {why.msg[0].lower()}{why.msg[1:]}"
        ) from None
    except _Constant as why:
        place = next(token.start() for token in _TOKEN.finditer(text) if token.group() == why.word)
        message = f"the file is not JSON: {why.word} is not a number in JSON"
        raise Unreadable(*Lines(text).place(place), message, why.word) from None
    except RecursionError:
        # All before the place is JSON, so the walk ends there, whatever comes after it.
        pass
    return _Composer(text, builder).root()


class _Constant(Exception):
    def __init__(self, word: str) -> None:
        self.word = word


def _no_constant(word: str) -> NoReturn:
    raise _Constant(word)


class _Composer:
    """Walks the tokens of a text that is known to be JSON up to where it is too deep, so that commas and colons need not be looked at."""

    def __init__(self, text: str, builder: Builder) -> None:
        self._builder = builder
        self._tokens: Iterator[re.Match[str]] = _TOKEN.finditer(text)
        self._lines = Lines(text)

    def root(self) -> Node:
        return self._node(next(self._tokens), 1)

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
    if word.lstrip("-").isdigit() and len(word) < 19:
        return int(word)
    return float(word)
