"""How a test asks how much work something is, without a clock: it counts the calls of functions, Python's and those written in C."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Calls:
    """The calls that were counted so far."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, _frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            self.count += 1


@contextmanager
def counted_calls() -> Iterator[Calls]:
    """Counts the calls in this thread inside the ``with`` block."""
    calls = Calls()
    before = sys.getprofile()
    sys.setprofile(calls.note)
    try:
        yield calls
    finally:
        sys.setprofile(before)


@contextmanager
def counted_calls_of_new_threads() -> Iterator[Calls]:
    """Counts the calls of threads that begin inside the ``with`` block, and not those of this thread, which may poll."""
    calls = Calls()
    threading.setprofile(calls.note)
    try:
        yield calls
    finally:
        threading.setprofile(None)
