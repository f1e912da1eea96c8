"""Ports of the loopback interface that stay reserved for a test, however many tests run in
parallel.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def a_port() -> Iterator[int]:
    """A port that the system gives to nobody else. A test that knows the number can listen there,
    also repeatedly. While nothing listens, the port refuses connections.
    """
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        port: int = kept.getsockname()[1]
        yield port
