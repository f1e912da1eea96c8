"""Reads a stored log, by position. A log that was removed for good (design 5.27) is replaced by a
note: who removed it, when and why.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import NotFound
from arkqueue.model import AttemptId, Stream


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some bytes of one stream. ``cut``: the number of missing bytes right before them, because the
    log was too long. ``ended``: the line ends of the task's output before them, after such a gap;
    None: not counted.
    """

    position: int
    stream: Stream
    at: datetime
    data: bytes
    cut: int = 0
    ended: int | None = None

    @property
    def end(self) -> int:
        """The position of the next chunk."""
        return self.position + len(self.data)


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a log. ``size``: the number of all bytes of the log so far, including the cut ones.
    ``ended``: the attempt has ended, so the log will not grow any more.
    """

    chunks: tuple[Chunk, ...]
    size: int
    ended: bool


def read(session: Session, attempt: AttemptId, offset: int = 0, limit: int = 1 << 20) -> Page:
    """About ``limit`` bytes of a log (at least one chunk, if there is one) from position ``offset``
    on. Raises NotFound.
    """
    rows = session.rows("read_log", binary=True, attempt=attempt, offset=offset, limit=limit)
    if not rows:
        raise NotFound(f"attempt {attempt}", "does not exist")
    if rows[0].removed_at is not None:
        return _removed(rows[0], offset)
    chunks = []
    end = offset
    for row in rows:
        if row.position is None:
            continue
        skipped = max(0, offset - row.position)
        chunk = Chunk(row.position + skipped, Stream(row.stream), row.at, bytes(row.data)[skipped:])
        cut = chunk.position - end
        chunks.append(replace(chunk, cut=cut, ended=row.ended_before if cut else None))
        end = chunk.end
    return Page(tuple(chunks), rows[0].log_bytes, rows[0].ended)


def _removed(row: Any, offset: int) -> Page:
    """The note in place of a removed log, for reads from the beginning or within the former log.

    The note is returned as a whole, because no other byte is left. It ends where the log ended, or
    later if the log was shorter, so that a reader who continues from the end does not get it twice.
    """
    note = row.removed.encode() + b"\n"
    if offset >= max(row.log_bytes, len(note)):
        return Page((), offset, row.ended)
    end = max(row.log_bytes, offset + len(note))
    return Page((Chunk(end - len(note), Stream.NOTE, row.removed_at, note),), end, row.ended)
