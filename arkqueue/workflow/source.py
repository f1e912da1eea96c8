"""Reads the bytes of one workflow file into positioned nodes, or faults.

A committer wrote these bytes, so all hostile input ends here as a fault with a position: not UTF-8,
not YAML, not JSON, too big, too deep, aliases that expand without end, duplicate keys. This module
does not know tasks, and never raises. Called only by ``arkqueue.workflow.parsing``.
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
    """A file after reading. ``root`` None: the file is empty, or (not ``readable``) has faults.
    ``values``: the number of its values.
    """

    path: str
    root: Node | None = None
    faults: list[Fault] = field(default_factory=list)
    readable: bool = True
    values: int = 0


def read(file: SourceFile) -> Source:
    """The nodes of a file, or its faults. A ``.json`` file is read strictly as JSON, any other file
    as YAML 1.2.
    """
    compose = compose_json if file.path.lower().endswith(".json") else compose_yaml
    builder = Builder(file.path)
    try:
        if file.fault:
            raise Unreadable(0, 0, file.fault)
        if len(file.text) > MAX_BYTES:
            # The fault does not say by how much: the reader stopped at the limit.
            raise Unreadable(0, 0, "the file is larger than 1 MiB; split it, or move scripts into files")
        root = compose(text_of(file.text, "a workflow file"), builder)
    except Unreadable as why:
        fault = Fault(file.path, why.line, why.column, why.message, why.word, why.suggestion)
        return Source(file.path, None, [*builder.faults, fault], readable=False, values=builder.made)
    if root is not None and root.value is None:
        root = None
    return Source(file.path, root, builder.faults, values=builder.made)


def text_of(data: bytes, what: str) -> str:
    """The text of a file. Raises ``Unreadable`` if it is not UTF-8. ``what``: the name of the file
    in messages.
    """
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
