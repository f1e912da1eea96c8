"""The frames of messages between the server and a reader process, and the plain values in them. Each
value is checked when it is taken; one that is not valid is `Malformed`.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

LONGEST = 256 * 2**20
"""The most bytes of a frame. The paths of a million files take a quarter of that, the items of the
longest list at most three quarters.
"""
LENGTH = struct.Struct(">I")
"""The header of each frame: its number of bytes."""
ENCODER = json.JSONEncoder(separators=(",", ":"))


class Malformed(Exception):
    """An answer that no correct reader gives."""


def frame(message: Mapping[str, Any]) -> bytes:
    """The bytes of a message with its header. Raises `Malformed` if it is too long."""
    body = ENCODER.encode(message).encode()
    if len(body) > LONGEST:
        raise Malformed(f"an answer of {len(body):,} bytes, more than {LONGEST:,}")
    return LENGTH.pack(len(body)) + body


def length(head: bytes | bytearray) -> int:
    """The length of the next frame, from its header. Raises `Malformed` if it is too long."""
    (announced,) = LENGTH.unpack(head)
    if announced > LONGEST:
        raise Malformed(f"an answer of {announced:,} bytes, more than {LONGEST:,}")
    return int(announced)


def message(body: bytes | bytearray) -> dict[str, Any]:
    """The content of a frame."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"an answer that is not JSON ({error})") from None
    return mapping(found)


def receive(connection: socket.socket) -> dict[str, Any] | None:
    """The next message, for the reader, which waits without a limit; None when the server has
    ended.
    """
    head = _exactly(connection, LENGTH.size)
    if head is None:
        return None
    body = _exactly(connection, length(head))
    return None if body is None else message(body)


def _exactly(connection: socket.socket, size: int) -> bytearray | None:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = connection.recv_into(view)
        if not count:
            return None
        view = view[count:]
    return data


# --- Plain values -------------------------------------------------------------------------------------------------------


def mapping(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Malformed(f"{type(value).__name__} in place of an object")
    return value


def array(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise Malformed(f"{type(value).__name__} in place of a list")
    return value


def text(value: object) -> str:
    if not isinstance(value, str):
        raise Malformed(f"{type(value).__name__} in place of a text")
    return value


def number(value: object) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise Malformed("something in place of a whole number")
    return value


def truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise Malformed(f"{type(value).__name__} in place of true or false")
    return value


def nothing(value: object) -> None:
    if value is not None:
        raise Malformed("an answer where none is expected")


def texts(value: object) -> tuple[str, ...]:
    found = array(value)
    if not all(isinstance(one, str) for one in found):
        raise Malformed("a list with something other than texts")
    return tuple(found)


def names(value: object) -> dict[str, str]:
    """Texts by name: heads of branches, keys of revisions."""
    found = mapping(value)
    if not all(isinstance(one, str) for one in found.values()):
        raise Malformed("a mapping with something other than texts")
    return found


def optional(take: Callable[[Any], T]) -> Callable[[Any], T | None]:
    return lambda value: None if value is None else take(value)
