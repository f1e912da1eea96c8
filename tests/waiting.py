"""How a test waits for what sends no event: it looks again and again. No test depends on how long that takes.

Each look costs CPU time: what has not come at once is looked for less often.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import psycopg

from arkqueue.errors import DatabaseUnavailable

T = TypeVar("T")
PATIENCE = 120.0
"""Seconds after which what is waited for will never come."""
PAUSES = 0.01, 0.1
"""The shortest and the longest time between two looks, in seconds."""


SELDOM = 10
"""Each so-many-th time, a look that costs much is taken although its mark is the same."""


def when_changed(look: Callable[[], T], mark: Callable[[], object]) -> Callable[[], T | None]:
    """A look that costs much, for ``eventually``: it is taken again when a mark, which costs little, has become another one, or seldom."""
    last: object = None
    left_out = SELDOM

    def look_again() -> T | None:
        nonlocal last, left_out
        now = mark()
        if now == last and left_out < SELDOM:
            left_out += 1
            return None
        last, left_out = now, 0
        return look()

    return look_again


def eventually(check: Callable[[], T], told: Callable[[], object] = str, patience: float = PATIENCE) -> T:
    """Wait until ``check`` answers with something true; the answer. A database that is away has none yet.

    ``told``: what is said where it never comes.
    """
    begin = time.monotonic()
    shortest, longest = PAUSES
    while True:
        try:
            if found := check():
                return found
        except (psycopg.OperationalError, DatabaseUnavailable):
            pass
        waited = time.monotonic() - begin
        assert waited < patience, f"it never came: {told()}"
        time.sleep(min(max(waited / 10, shortest), longest))
