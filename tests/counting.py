"""Measures work without a clock: counts the calls of functions, written in Python or in C, and the
rows that PostgreSQL returns.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from arkqueue.db.pipelines import Answer


class Calls:
    """The number of calls so far."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, _frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            self.count += 1


@contextmanager
def counted_calls() -> Iterator[Calls]:
    """Counts the calls of this thread inside the ``with`` block."""
    calls = Calls()
    before = sys.getprofile()
    sys.setprofile(calls.note)
    try:
        yield calls
    finally:
        sys.setprofile(before)


@contextmanager
def counted_calls_of_new_threads() -> Iterator[Calls]:
    """Counts the calls of threads that start inside the ``with`` block. The calls of this thread,
    which may poll, do not count.
    """
    calls = Calls()
    threading.setprofile(calls.note)
    try:
        yield calls
    finally:
        threading.setprofile(None)


@contextmanager
def counted_rows() -> Iterator[list[int]]:
    """Collects the number of rows of each statement inside the ``with`` block."""
    counts: list[int] = []
    rows = Answer.rows

    def counted(answer: Answer) -> list[Any]:
        found = rows(answer)
        counts.append(len(found))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Answer, "rows", counted)
        yield counts
