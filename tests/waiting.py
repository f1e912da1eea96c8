"""How a test waits for what sends no event: it looks again and again. No test depends on how long that takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import psycopg

from arkqueue.errors import DatabaseUnavailable

T = TypeVar("T")
PATIENCE = 120.0
"""Seconds after which what is waited for will never come."""


def eventually(check: Callable[[], T], told: Callable[[], object] = str, patience: float = PATIENCE) -> T:
    """Wait until ``check`` answers with something true; the answer. A database that is away has none yet.

    ``told``: what is said where it never comes.
    """
    until = time.monotonic() + patience
    while True:
        try:
            if found := check():
                return found
        except (psycopg.OperationalError, DatabaseUnavailable):
            pass
        assert time.monotonic() < until, f"it never came: {told()}"
        time.sleep(0.01)
