"""Sends lists to PostgreSQL. Most parameters of the queue are lists of integers, mostly ids.

psycopg examines each integer of a list and checks whether it needs quotes, which takes four times
as long as this module. It also sends a list with the smallest type that holds its integers, so that
a statement would be prepared and planned once for each type that its lists have ever had. Here all
lists of integers are ``bigint[]``.

Lists of bytes, such as the output of tasks, are sent in PostgreSQL's binary form: as text, each
byte would be two.
"""

from __future__ import annotations

from typing import Any

from psycopg import postgres
from psycopg.abc import Buffer, DumperKey
from psycopg.adapt import Dumper, PyFormat
from psycopg.types.array import BaseListDumper, ListBinaryDumper, ListDumper


class Integers(Dumper):
    """Writes a list of integers."""

    oid = postgres.types["int8"].array_oid

    def dump(self, obj: list[int]) -> Buffer | None:
        return f"{{{','.join(map(str, obj))}}}".encode()


class Lists(ListDumper):
    """Writes lists of integers and of bytes in this way, and all other lists as psycopg does."""

    def get_key(self, obj: list[Any], format: PyFormat) -> DumperKey:
        return (list, Integers) if _are(int, obj) else super().get_key(obj, format)

    def upgrade(self, obj: list[Any], format: PyFormat) -> BaseListDumper:
        if _are(int, obj):
            return Integers(list, self._tx)  # type: ignore[return-value]
        if _are(bytes, obj):
            return ListBinaryDumper(list, self._tx).upgrade(obj, PyFormat.BINARY)
        return super().upgrade(obj, format)


def _are(kind: type, obj: list[Any]) -> bool:
    return set(map(type, obj)) == {kind}
