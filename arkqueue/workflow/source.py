"""The bytes of one workflow file, read into positioned nodes, or faults.

A committer wrote these bytes, so everything hostile ends here as a fault with a place: not UTF-8,
not YAML, not JSON, too big, too deep, aliases that expand without end, duplicate keys. Nothing here
knows what a task is, and nothing here raises. Called by ``arkqueue.workflow.parse`` alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from arkqueue.model import Fault, SourceFile
from arkqueue.workflow.json_source import compose_json
from arkqueue.workflow.nodes import Builder, Lines, Node, Unreadable
from arkqueue.workflow.yaml_source import compose_yaml

MAX_BYTES: Final = 1024 * 1024

# Characters that YAML does not allow unescaped. A byte order mark is allowed only at the beginning.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Source:
    """A file after reading. ``root`` None: it is empty, or, where ``readable`` is false, its faults say why not. ``values``: how many values it holds."""

    path: str
    root: Node | None = None
    faults: list[Fault] = field(default_factory=list)
    readable: bool = True
    values: int = 0


def read(file: SourceFile) -> Source:
    """The nodes of a file, or its faults; ``.json`` is read strictly as JSON, everything else as YAML 1.2."""
    compose = compose_json if file.path.lower().endswith(".json") else compose_yaml
    builder = Builder(file.path)
    try:
        if file.fault:
            raise Unreadable(0, 0, file.fault)
        if len(file.text) > MAX_BYTES:
            # Not by how much: the reader stopped there.
            raise Unreadable(0, 0, "the file is larger than 1 MiB; split it, or move scripts into files")
        root = compose(text_of(file.text, "a workflow file"), builder)
    except Unreadable as why:
        fault = Fault(file.path, why.line, why.column, why.message, why.word, why.suggestion)
        return Source(file.path, None, [*builder.faults, fault], readable=False, values=builder.made)
    if root is not None and root.value is None:
        root = None
    return Source(file.path, root, builder.faults, values=builder.made)


def text_of(data: bytes, what: str) -> str:
    """The text of a file; raises ``Unreadable`` where it is none. ``what``: what the file is, for people."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as why:
        line, column = Lines(before := data[: why.start].decode("utf-8")).place(len(before))
        byte = data[why.start]
        raise Unreadable(
            line, column, f"the file is not UTF-8: byte {why.start} is 0x{byte:02x}; save it as UTF-8"
        ) from None
    text = text.removeprefix("\ufeff")
    if found := _FORBIDDEN.search(text):
        line, column = Lines(text).place(found.start())
        code = f"U+{ord(found.group()):04X}"
        raise Unreadable(line, column, f"the character {code} is not allowed in {what}; remove it", code)
    return text
