"""Turns a list of `foreach` into its items: each with its key, and as the JSON that its task gets
(design 5.30). Pure.

A committer writes the lists. The reader of the file has limited the depth of a list and the size of
its aliases. This module limits the number of items, their keys and their sizes. Called by
``tasks``.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Final

from arkqueue.model import LONGEST_ITEM, LONGEST_KEY, LONGEST_LIST, Item
from arkqueue.workflow.nodes import MAX_FAULTS, Node, Scalar
from arkqueue.workflow.values import shown

USUAL_KEYS: Final = ("key", "id", "name")
"""The fields that may identify an item if ``key`` names none: the first one that the item has
counts.
"""

Report = Callable[[Node, str], None]
"""Reports a fault with its position."""


def items_of(nodes: Iterable[Node], key: str | None, most: int, report: Report) -> tuple[Item, ...]:
    """The valid items of a list. ``key``: the field that identifies an item. ``most``: the largest
    number of items.
    """
    found: list[Item] = []
    lines: dict[str, int] = {}
    meanings: dict[str, int] = {}
    faults = size = 0
    for n, one in enumerate(nodes):
        if faults > MAX_FAULTS:
            break
        if n == most:
            report(one, f"foreach: the list has more than {most:,} items; give fewer, or raise items_limit")
            return ()
        try:
            item, meaning = _item(one, key)
            if line := lines.get(item.key):
                raise _Faulty(one, f"foreach: the key {shown(item.key)} is also that of the item in line {line}; give each item its own")  # fmt: skip
            if meaning and (line := meanings.get(meaning)):
                raise _Faulty(one, f"foreach: the key {shown(item.key)} means {meaning}, like that of the item in line {line}; quote both, or give each item its own")  # fmt: skip
        except _Faulty as why:
            faults += 1
            report(why.node, why.message)
        else:
            size += len(item.body if item.body.isascii() else item.body.encode())
            if size > LONGEST_LIST:
                report(one, f"foreach: up to here the items have more than {LONGEST_LIST >> 20} MiB; make them smaller")
                return ()
            found.append(item)
            lines[item.key] = meanings[meaning] = one.line
    return tuple(found)


def digest_of(items: tuple[Item, ...]) -> str:
    """The digest of a list; two lists have the same digest only if they are equal."""
    # Item by item: the JSON of a long list would be large.
    digest = hashlib.sha256(b"[")
    for n, item in enumerate(items):
        digest.update(f"{', ' if n else ''}{json.dumps(item)}".encode())
    digest.update(b"]")
    return digest.hexdigest()


EMPTY: Final = digest_of(())
"""The digest of a list without items."""


class _Faulty(Exception):
    def __init__(self, node: Node, message: str) -> None:
        self.node, self.message = node, message


def _item(node: Node, key: str | None) -> tuple[Item, str]:
    """An item, and the value of its key if that can be written in several ways: ``007`` and ``0o7``
    are 7 in the item. Empty: its task reads the key as it was written.
    """
    place = _key(node, key)
    text = place.text
    if not 1 <= len(text) <= LONGEST_KEY:
        has = f"{len(text):,} characters" if text else "no characters"
        raise _Faulty(place, f"foreach: the key of an item has {has}; give it 1 to {LONGEST_KEY}")
    if not text.isprintable() or text != text.strip() or text in (".", ".."):
        fault = (
            "is not a valid key for an item: write visible characters, without spaces at its ends, and not '.' or '..'"
        )
        raise _Faulty(place, f"foreach: {shown(text)} {fault}")
    body = _json(node)
    if (size := len(body.encode())) > LONGEST_ITEM:
        raise _Faulty(
            node,
            f"foreach: the item {shown(text)} has {size:,} bytes as JSON, more than {LONGEST_ITEM:,}; put what it needs into a file",
        )
    return Item(text, body), "" if isinstance(place.value, str | float) else json.dumps(place.value)


def _key(node: Node, key: str | None) -> Node:
    """The node of an item's key, a scalar."""
    if isinstance(node.value, list):
        raise _Faulty(node, "foreach: an item is a list; write a text, a number, or a mapping")
    if node.value is None:
        raise _Faulty(node, "foreach: an item has no value; give one, or remove it")
    if not isinstance(node.value, dict):
        return node
    wanted = (key,) if key is not None else USUAL_KEYS
    entry = next((node.value[word] for word in wanted if word in node.value), None)
    if entry is None:
        named = shown(key) if key is not None else "'key', 'id' or 'name'"
        raise _Faulty(
            node,
            f"foreach: an item has no field {named}, which would identify it; add it, or name another one with 'key: FIELD'",
        )
    if isinstance(entry.value.value, list | dict) or entry.value.value is None:
        raise _Faulty(
            entry.value, f"foreach: the field {shown(entry.key.text)} identifies its item; give it a text or a number"
        )
    return entry.value


def _json(node: Node) -> str:
    """The value of a node as JSON. Numbers keep all of their digits, as keys do."""
    value = node.value
    if isinstance(value, list):
        return f"[{','.join(map(_json, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{_scalar(word)}:{_json(entry.value)}' for word, entry in value.items())}}}"
    if not isinstance(value, float):
        return _scalar(value)
    if not math.isfinite(value):
        raise _Faulty(node, f"foreach: {shown(node.text)} is not a number in JSON; quote it, or write a smaller one")
    try:
        return str(Decimal(node.text))
    except InvalidOperation:
        fault = f"foreach: the exponent of {shown(node.text)} is too long; quote the number, or write a shorter one"
        raise _Faulty(node, fault) from None


def _scalar(value: Scalar) -> str:
    return json.dumps(value, ensure_ascii=False)


def fields_of(items: tuple[Item, ...]) -> Iterator[set[str]]:
    """The fields of each item; a scalar has none."""
    for item in items:
        value = json.loads(item.body)
        yield set(value) if isinstance(value, dict) else set()
