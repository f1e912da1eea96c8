"""How a test waits for what sends no event: it looks again and again. No test depends on how long that takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE = 120.0
"""Seconds after which what is waited for will never come."""


def eventually(check: Callable[[], T], told: Callable[[], object] = lambda: "") -> T:
    """Wait until ``check`` answers with something true; the answer. ``told``: what is said where it never does."""
    until = time.monotonic() + PATIENCE
    while not (found := check()):
        assert time.monotonic() < until, f"it never came: {told()}"
        time.sleep(0.01)
    return found
