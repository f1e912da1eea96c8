"""The named blocks of ``arkqueue/sql/*.sql``, loaded once, when the modules that run them are
imported (design 10).

    -- name: claim
    -- One sentence what it does.
    update task set state = {to claim} where {from claim} ... limit %(limit)s;

``{from EVENT}`` and ``{to EVENT}`` become the guard and the target of that event in the table of
``states``. ``{from EVENT t}`` guards the column of ``t``. All other braces stay as they are.
Parameters are written as in psycopg: ``%(limit)s``; a literal percent sign is ``%%``. The text
before a file's first block introduces the file. A text that several blocks share stands once, before
them, as ``-- part: NAME`` with its own description. ``{part NAME}`` inserts it, also in the files that
follow in the order of their names.

A block without a description, a duplicate name and an unknown name are programming errors: they
raise plain exceptions, at import or in the tests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from arkqueue.db.pipelines import Call

Expand = Callable[[str, str], str]
"""(``from`` or ``to``, the event's name) → SQL; ``states.expand``."""

_NAME = re.compile(r"--\s*(name|part):\s*(\S+)\s*")
_PART = re.compile(r"\{part ([a-z_]+)\}")
_MOVE = re.compile(r"\{(from|to) ([a-z_]+)(?: ([a-z_]+))?\}")
_PARAMETER = re.compile(r"%\((\w+)\)s|%%")


@dataclass(frozen=True, slots=True)
class Statement:
    """A block as PostgreSQL reads it, with numbered parameters. ``names``: the names of the
    parameters, from ``$1`` on.

    For a text of more than 4,096 bytes, psycopg would number the parameters again at each call,
    which takes 40 to 70 µs.
    """

    text: bytes
    names: tuple[str, ...]

    @classmethod
    def of(cls, sql: str) -> Statement:
        """``sql``: the text of the block in its file."""
        numbers: dict[str, int] = {}

        def number(match: re.Match[str]) -> str:
            return f"${numbers.setdefault(match[1], len(numbers) + 1)}" if match[1] else "%"

        return cls(_PARAMETER.sub(number, sql).encode(), tuple(numbers))

    def call(self, parameters: Mapping[str, Any], *, binary: bool = False) -> Call:
        """A call of the statement with parameters given by name. ``binary``: its rows come in
        PostgreSQL's binary form.
        """
        return Call(self.text, [parameters[name] for name in self.names], binary)


class Statements(Mapping[str, bytes]):
    """The texts of blocks by name, as ``SQL["claim"]`` or ``SQL.claim``. ``describe`` returns the
    description of a block, and ``statements`` has the objects to run.
    """

    def __init__(self, blocks: dict[str, tuple[str, bytes]]) -> None:
        self._blocks = blocks
        self.statements = {name: Statement.of(sql.decode()) for name, (_, sql) in blocks.items()}

    def __getitem__(self, name: str) -> bytes:
        return self._blocks[name][1]

    def __getattr__(self, name: str) -> bytes:
        try:
            return self.__dict__["_blocks"][name][1]  # type: ignore[no-any-return]
        except KeyError:
            raise AttributeError(f"no block of arkqueue/sql is named {name!r}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._blocks)

    def __len__(self) -> int:
        return len(self._blocks)

    def describe(self, name: str) -> str:
        return self._blocks[name][0]


def load(expand: Expand, folder: Traversable | None = None) -> Statements:
    """All blocks of the folder (by default ``arkqueue/sql``). ``schema.sql`` has no blocks and is
    left out.
    """
    blocks: dict[str, tuple[str, bytes]] = {}
    parts: dict[str, str] = {}
    for file in sorted((folder or files("arkqueue") / "sql").iterdir(), key=lambda file: file.name):
        if not file.name.endswith(".sql") or file.name == "schema.sql":
            continue
        for name, sentence, sql in _blocks(file.name, file.read_text("utf-8"), parts):
            if name in blocks:
                raise ValueError(f"{file.name}: the block {name!r} exists already")
            blocks[name] = sentence, _with_moves(sql, expand).encode()
    return Statements(blocks)


def _blocks(file: str, text: str, parts: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """(name, sentence, SQL) of each block of one file. ``parts``: those of the files before it, by
    name; its own are added.
    """
    found: list[tuple[bool, str, list[str]]] = []
    for line in text.splitlines():
        if match := _NAME.fullmatch(line.strip()):
            found.append((match[1] == "part", match[2], []))
        elif found:
            found[-1][2].append(line)
        elif line.strip() and not line.startswith("--"):
            raise ValueError(f"{file}: SQL before the first block")
    for is_part, name, lines in found:
        start = next((n for n, line in enumerate(lines) if not line.startswith("--")), len(lines))
        sentence = " ".join(line.removeprefix("--").strip() for line in lines[:start])
        sql = "\n".join(lines[start:]).strip().removesuffix(";")
        if not sentence or not sql:
            raise ValueError(f"{file}: the block {name!r} needs a sentence that says what it does, then its SQL")
        if missing := set(_PART.findall(sql)) - set(parts):
            raise ValueError(
                f"{file}: the block {name!r} takes in {', '.join(sorted(missing))}, which no part before it is called"
            )
        sql = _PART.sub(lambda match: parts[match[1]], sql)
        if is_part and name in parts:
            raise ValueError(f"{file}: the part {name!r} exists already")
        if is_part:
            parts[name] = sql
        else:
            yield name, sentence, sql


def _with_moves(sql: str, expand: Expand) -> str:
    def replace(match: re.Match[str]) -> str:
        word, event, table = match.groups()
        return (f"{table}." if table else "") + expand(word, event)

    return _MOVE.sub(replace, sql)
