"""Threads that wait for a repository's server, and how to end that from outside.

Nothing can interrupt a call of libsvn, and what comes from ``svn://`` it awaits without an end: a firewall that forgot a connection, or a server without power, would keep
the thread for ever. But a connection can be closed by anybody who has its descriptor; the call then fails as if the server had done it. Which of
this process's connections it is, libsvn does not tell: it is one to that port on which nothing has come for a while.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from arkqueue.repository.git.program import end_git_of
from arkqueue.repository.location import Location

LIMIT = 600.0
"""Seconds for which a server may say nothing; libsvn has the same limit for http, and arkqueue for a call of git."""
UNWANTED = 5.0
"""The same, where nobody wants the answer any more."""

_PORTS = {"svn": 3690, "http": 80, "https": 443}
_LAST_DATA_RECEIVED = struct.Struct("=52xI")
"""``tcpi_last_data_recv`` of ``struct tcp_info`` (milliseconds)."""
_waiting: dict[int, int] = {}
"""The threads within a call of libsvn, and the ports of their servers."""


@contextmanager
def waiting(location: Location) -> Iterator[None]:
    """This thread may wait for a repository's server meanwhile."""
    parts = urlsplit(location.url)
    port = parts.port or _PORTS.get(parts.scheme)
    if port is None:  # on this host, or through a program
        yield
        return
    thread = threading.get_ident()
    _waiting[thread] = port
    try:
        yield
    finally:
        _waiting.pop(thread, None)


def hang_up(thread: int, *, is_wanted: bool) -> None:
    """Let a thread wait no longer for a server that says nothing. Never waits itself; may be repeated."""
    if not is_wanted:
        end_git_of(thread)
    port = _waiting.get(thread)
    if port is None:
        return
    silence = LIMIT if is_wanted else UNWANTED
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                with socket.socket(fileno=os.dup(int(name))) as connection:
                    if _is_to(connection, port) and _silence(connection) >= silence:
                        connection.shutdown(socket.SHUT_RDWR)


def _is_to(connection: socket.socket, port: int) -> bool:
    return connection.family in (socket.AF_INET, socket.AF_INET6) and connection.getpeername()[1] == port


def _silence(connection: socket.socket) -> float:
    """Seconds since anything came."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_DATA_RECEIVED.size)
    milliseconds: int = _LAST_DATA_RECEIVED.unpack(info)[0]
    return milliseconds / 1000
