"""Limits the callers that act on a thing at once, and those that wait for it.

Verbs on one archive run one after the other anyway, because each locks the archive's row. Without a
limit, each waiting verb would hold a thread and a database connection, so an archive whose row stays
locked would use up all connections of the process. So callers wait here, without a connection. If
too many are waiting, a further caller gets an error at once.
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
    """Admits one caller at a time for each thing, and ``acting`` callers in all. ``waiting``: the most
    that wait for one thing. ``most_waiting``: the most that wait in all.
    """

    def __init__(self, acting: int, waiting: int, most_waiting: int) -> None:
        self._most_acting, self._most_waiting_here, self._most_waiting = acting, waiting, most_waiting
        self._changed = threading.Condition()
        self._acting: set[int] = set()
        self._waiting = Counter[int]()

    @contextmanager
    def admit(self, key: int, thing: str) -> Iterator[None]:
        """Act on a thing inside the ``with`` block. Raises Busy if too many callers are waiting, or if
        the caller is not admitted in time.
        """
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
