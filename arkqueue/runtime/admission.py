"""Admission: how many callers may act on each thing at once, and how many may wait for that.

Verbs on one archive take turns anyway, as each locks the archive's row. Without a limit each of them waits with a thread and a database connection in its
hands, and one archive whose row stays locked takes all that the process has. So they wait here, without a connection, and whoever finds too many
before him is told so at once.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from arkqueue.errors import Busy

PATIENCE = 10.0
"""Seconds for which a caller waits to be admitted."""


class Admission:
    """One caller at a time for each thing; ``acting`` for all things together. ``waiting``: how many may wait for one thing; ``most_waiting``: for all of them."""

    def __init__(self, acting: int, waiting: int, most_waiting: int) -> None:
        self._most_acting, self._most_waiting_here, self._most_waiting = acting, waiting, most_waiting
        self._changed = threading.Condition()
        self._acting: set[int] = set()
        self._waiting = Counter[int]()

    @contextmanager
    def admit(self, key: int, thing: str) -> Iterator[None]:
        """Act on a thing inside the block. Raises Busy where too many wait already, or where nobody is done in time."""
        self._enter(key, thing)
        try:
            yield
        finally:
            with self._changed:
                self._acting.discard(key)
                self._changed.notify_all()

    def _enter(self, key: int, thing: str) -> None:
        with self._changed:
            if self._waiting[key] or not self._is_free(key):
                self._wait(key, thing)
            self._acting.add(key)

    def _wait(self, key: int, thing: str) -> None:
        if self._waiting[key] >= self._most_waiting_here or self._waiting.total() >= self._most_waiting:
            fault = f"is being changed, and {self._waiting[key] or 'too many'} others wait for that already"
            raise Busy(thing, fault, "Try again in a moment.")
        self._waiting[key] += 1
        try:
            if not self._changed.wait_for(lambda: self._is_free(key), PATIENCE):
                raise Busy(thing, f"is being changed, and that has not ended within {PATIENCE:g} s", "Try again later.")
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key]

    def _is_free(self, key: int) -> bool:
        return key not in self._acting and len(self._acting) < self._most_acting
