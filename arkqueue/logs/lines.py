"""The lines of a stored log: their number, their places, and a search for words. Numbers begin with
1.

A line is numbered when it ends: line n ends with the n-th line end of the task's output, in
whichever stream. Lines that arkqueue itself writes into a log have no numbers. If a log was too
long to keep, the lines behind the missing part keep their numbers. (Versions that did not count the
missing lines numbered the kept ones only.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from arkqueue.db.session import Session
from arkqueue.logs.read import Chunk, read
from arkqueue.model import AttemptId, Stream

MOST_SEARCHED = 64 << 20
"""The most bytes that one search reads; its answer says where it stopped."""
STEP = 4 << 20
"""The bytes that a search holds in memory."""
OVERLAP = 256 << 10
"""The bytes before the start of a search in the middle of a log that are read again: if two streams
alternate, a line may have begun long before the last ended one.
"""
_CODE = re.compile(rb"\x1b\[[0-9;:]*m")
_HALF_CODE = re.compile(rb"\x1b(?:\[[0-9;:]{0,40})?\Z")


@dataclass(frozen=True, slots=True)
class Gap:
    """The part of a log that was left out, because the log was too long: ``lines`` whole lines after
    line ``after``, which is 0 if the beginning is missing. ``bytes``: those of all missing parts.
    """

    after: int
    lines: int
    bytes: int

    def earlier(self, line: int, rows: int) -> int:
        """The number of the line that is shown ``rows`` rows before a line, at least 1."""
        return line - rows if line <= self.after or line - rows > self.after + self.lines else line - rows - self.lines


@dataclass(frozen=True, slots=True)
class Place:
    """The position from which a log is read, and the number of lines that end before it. ``total``:
    the lines of the whole log, including an open one at its end. ``gap``: the first missing
    part, if there is one.
    """

    position: int
    before: int
    total: int
    gap: Gap | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """The result of a search. ``line``: the first line with the words; None: there is none. ``to``:
    the end of the searched part, if this is not the whole log.
    """

    line: int | None
    to: int | None = None


def place_of_line(session: Session, attempt: AttemptId, line: int) -> Place:
    """The position from which a whole line is read: in the chunk where the line before ends, or the
    beginning.
    """
    return _place(session, attempt, line=line, offset=None)


def place_of_offset(session: Session, attempt: AttemptId, offset: int) -> Place:
    """The chunk at a position; a line may have begun before it."""
    return _place(session, attempt, line=None, offset=offset)


def _place(session: Session, attempt: AttemptId, *, line: int | None, offset: int | None) -> Place:
    (row,) = session.rows("place_in_log", attempt=attempt, line=line, offset=offset)
    gap = None if row.gap_after is None else Gap(row.gap_after, max(row.gap_until - row.gap_after, 0), row.missing)
    return Place(row.position or 0, row.before or 0, row.lines, gap)


def search_on(session: Session, attempt: AttemptId, words: str, line: int) -> Hit:
    """The first line from ``line`` on that has some words. Small letters and capitals of ASCII are
    equal.
    """
    place = place_of_line(session, attempt, line)
    if place.position:
        place = place_of_offset(session, attempt, max(0, place.position - OVERLAP))
    search, looked_at = Search(words, place.before), 0
    for chunk in chunks_from(session, attempt, place.position):
        for found in search.add(chunk):
            if found >= line:
                return Hit(found)
        looked_at += len(chunk.data)
        if looked_at >= MOST_SEARCHED:
            return Hit(None, search.ended + 1)
    return Hit(next((found for found in search.end() if found >= line), None))


def search_back(session: Session, attempt: AttemptId, words: str, line: int) -> Hit:
    """The last line before ``line`` that has some words."""
    begin, stop, looked_at = place_of_line(session, attempt, line).position, None, 0
    while True:
        place = place_of_offset(session, attempt, max(0, begin - OVERLAP))
        search, found = Search(words, place.before), None
        for chunk in chunks_from(session, attempt, place.position):
            if (stop is not None and chunk.position >= stop) or search.ended >= line:
                break
            found = next((one for one in reversed(search.add(chunk)) if one < line), found)
            looked_at += len(chunk.data)
        else:
            found = next((one for one in reversed(search.end()) if one < line), found)
        if found is not None:
            return Hit(found)
        earlier = place_of_offset(session, attempt, max(0, begin - STEP)).position
        if place.position == 0 or earlier >= begin:
            return Hit(None)
        if looked_at >= MOST_SEARCHED:
            return Hit(None, place.before + 1)
        begin, stop = earlier, begin


def chunks_from(session: Session, attempt: AttemptId, position: int) -> Iterator[Chunk]:
    while chunks := read(session, attempt, position, STEP).chunks:
        yield from chunks
        position = chunks[-1].end


@dataclass(slots=True)
class Search:
    """Searches chunk by chunk for words. ``ended``: the number of lines that have ended so far.
    ``begun``: the open line of each stream.
    """

    words: str
    ended: int
    begun: dict[Stream, bytes] = field(default_factory=dict)
    hits: set[Stream] = field(default_factory=set)
    """Streams whose open line has the words."""
    codes: dict[Stream, bytes] = field(default_factory=dict)
    """The beginning of a colour code, for each stream whose last chunk ended in one."""

    def add(self, chunk: Chunk) -> list[int]:
        """The numbers of the lines that end in this chunk and have the words, in their order."""
        if chunk.cut:
            # The words are not divided by a missing part. A line that began before it has its end
            # behind it.
            self.begun.clear()
            self.codes.clear()
            self.ended = self.ended if chunk.ended is None else chunk.ended
        if chunk.stream is Stream.NOTE:
            return []
        needle, data = self.words.encode().lower(), self._plain(chunk).lower()
        found: list[int] = []
        end = data.find(b"\n")
        kept = self.begun.get(chunk.stream, b"")
        if end < 0:
            # An open line may have no end, so only the part is kept that may be the beginning of
            # the words.
            if needle in kept + data:
                self.hits.add(chunk.stream)
            self.begun[chunk.stream] = (kept + data)[-len(needle) :]
            return []
        if chunk.stream in self.hits or needle in kept + data[:end]:
            found.append(self.ended + 1)
        self.hits.discard(chunk.stream)
        last = data.rfind(b"\n")
        at, number, counted = data.find(needle, end, last), self.ended + 1, end + 1
        while at >= 0:
            number += data.count(b"\n", counted, at)
            found.append(number + 1)
            counted = data.find(b"\n", at)
            at = data.find(needle, counted, last)
        self.ended += data.count(b"\n")
        self.begun[chunk.stream] = data[last + 1 :][-len(needle) :]
        if needle in data[last + 1 :]:
            self.hits.add(chunk.stream)
        return found

    def _plain(self, chunk: Chunk) -> bytes:
        """The bytes of a chunk without color codes, which a page does not show as text. The
        beginning of a code at the end of the chunk waits for the next chunk.
        """
        data = self.codes.pop(chunk.stream, b"") + chunk.data
        if b"\x1b" not in data:
            return data
        if half := _HALF_CODE.search(data):
            self.codes[chunk.stream], data = half[0], data[: half.start()]
        return _CODE.sub(b"", data)

    def end(self) -> list[int]:
        """The last line, if it has no line end and contains the words."""
        return [self.ended + 1] if self.hits else []
