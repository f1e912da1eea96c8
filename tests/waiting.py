"""Polls for conditions that send no event. No test depends on how long a condition takes.

Each poll costs CPU time, so the polls become rarer with time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import psycopg

from arkqueue.errors import DatabaseUnavailable

T = TypeVar("T")
PATIENCE = 120.0
"""The seconds after which a condition is given up."""
PAUSES = 0.01, 0.1
"""The shortest and the longest time between two polls, in seconds."""


SELDOM = 10
"""The number of polls that an expensive check may skip while its mark stays the same."""


def when_changed(look: Callable[[], T], mark: Callable[[], object]) -> Callable[[], T | None]:
    """Makes an expensive check for ``eventually``. It runs ``look`` when the cheap ``mark`` has
    changed, or after `SELDOM` skipped polls.
    """
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
    """Waits until ``check`` returns a true value, and returns that value. An unreachable database
    counts as not yet true.

    ``told``: the text of the failure if the condition never comes.
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
