"""Ports of the loopback interface that a test can count on, however many tests run beside it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def a_port() -> Iterator[int]:
    """A port that nobody is given by chance: who names it can listen there, again and again; meanwhile connections are refused."""
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        port: int = kept.getsockname()[1]
        yield port
