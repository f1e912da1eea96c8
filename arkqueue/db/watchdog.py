"""Cuts the connections of overdue calls (design 6). `connections` and `wakeups` call it."""

from __future__ import annotations

import os
import socket
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg


class Guard:
    """One call under the watchdog. ``cut``: the call was overdue, and its connection was cut."""

    __slots__ = ("cut", "deadline", "descriptor")

    def __init__(self, descriptor: int, deadline: float) -> None:
        self.descriptor, self.deadline, self.cut = descriptor, deadline, False


class Watchdog:
    """Cuts the connections of overdue calls: nothing else wakes a client whose server is silent.

    The watchdog keeps a second descriptor of each connection while the connection object lives. libpq
    may close the first one at any moment. Its number could then stand for another file, which would be
    cut. The second descriptor is made only once: a system call in each call of the database would be
    one more point at which threads switch.
    """

    def __init__(self) -> None:
        self._guards: set[Guard] = set()
        self._descriptors: weakref.WeakKeyDictionary[psycopg.Connection[Any], int] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="database-watchdog", daemon=True)
        self._thread.start()

    @contextmanager
    def guard(self, connection: psycopg.Connection[Any], seconds: float) -> Iterator[Guard]:
        with self._lock:
            guard = Guard(self._descriptor(connection), time.monotonic() + seconds)
            self._guards.add(guard)
        try:
            yield guard
        finally:
            with self._lock:
                self._guards.discard(guard)

    def _descriptor(self, connection: psycopg.Connection[Any]) -> int:
        descriptor = self._descriptors.get(connection)
        if descriptor is None:
            descriptor = self._descriptors[connection] = os.dup(connection.fileno())
            weakref.finalize(connection, os.close, descriptor)
        return descriptor

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(1.0):
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        """Cut the connections of all calls whose deadline is past."""
        with self._lock:
            for guard in self._guards:
                if guard.deadline < now:
                    guard.cut = True
                    cut(guard.descriptor)


def cut(descriptor: int) -> None:
    """Shut down a socket while another thread waits for it."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as end:
        end.shutdown(socket.SHUT_RDWR)
