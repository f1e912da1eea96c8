"""Finds all lines of a log with some words: their number, and the next one. Called by the pages;
never writes.

A search reads a log once, from its beginning. The server keeps the hits of its newest searches, so
that the next and the previous hit need no further reading. In a growing log, a later step begins
where the last one ended. A step takes a limited time, so a very long log is counted in several
steps.
"""

from __future__ import annotations

import threading
import time
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from arkqueue.db.session import Session
from arkqueue.logs.lines import Search, chunks_from
from arkqueue.model import AttemptId

LONGEST_LOOK = 3.0
"""The most seconds of one search step."""
MOST_HITS = 200_000
"""The most lines that are kept of one search."""
MOST_SEARCHES = 16
"""The most searches that are kept."""


@dataclass(frozen=True, slots=True)
class Hits:
    """The lines with some words, as far as they are known. ``before``: the number of hits before
    the requested line. ``next`` and ``previous``: the nearest hits, from this line on and before
    it.

    ``count``: the number of hits up to line ``to``. ``is_all``: the whole log was read, so None for
    ``next`` or ``previous`` means that no such line exists.
    """

    count: int
    before: int
    next: int | None
    previous: int | None
    to: int
    is_all: bool


class Searches:
    """The newest searches of a server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._kept: OrderedDict[tuple[AttemptId, str], _Look] = OrderedDict()

    def hits(self, session: Session, attempt: AttemptId, words: str, line: int) -> Hits:
        """Continue a search for up to `LONGEST_LOOK` seconds. Returns the known hits, and the hits
        nearest to a line.
        """
        key = attempt, words.lower()
        with self._lock:
            look = self._kept.pop(key, None) or _Look(words)
            self._kept[key] = look
            if len(self._kept) > MOST_SEARCHES:
                self._kept.popitem(last=False)
        return look.hits(session, attempt, line, self._clock)


class _Look:
    """The hits of one text in one log."""

    def __init__(self, words: str) -> None:
        self._search, self._position, self._found = Search(words, 0), 0, array("Q")
        self._lock = threading.Lock()

    def hits(self, session: Session, attempt: AttemptId, line: int, clock: Callable[[], float]) -> Hits:
        with self._lock:
            is_all = self._read_on(session, attempt, clock)
            found, open_line = self._found, self._search.end() if is_all else []
            lines = found + array("Q", open_line) if open_line else found
            at = bisect_left(lines, line)
            return Hits(
                count=len(lines),
                before=at,
                next=lines[at] if at < len(lines) else None,
                previous=lines[at - 1] if at else None,
                to=self._search.ended,
                is_all=is_all,
            )

    def _read_on(self, session: Session, attempt: AttemptId, clock: Callable[[], float]) -> bool:
        """Continue reading. Returns whether the end of the log was reached, with all of its hits."""
        end = clock() + LONGEST_LOOK
        for chunk in chunks_from(session, attempt, self._position):
            if len(self._found) >= MOST_HITS:
                return False
            self._found.extend(self._search.add(chunk))
            self._position = chunk.end
            if clock() > end:
                return False
        return True
