"""Reads a log that is stored, by position."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from arkqueue.db.session import Session
from arkqueue.errors import NotFound
from arkqueue.model import AttemptId, Stream


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some bytes of one stream. ``cut``: how many bytes are missing right before them, because the log was too long."""

    position: int
    stream: Stream
    at: datetime
    data: bytes
    cut: int = 0

    @property
    def end(self) -> int:
        """The position to go on from."""
        return self.position + len(self.data)


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a log. ``size``: all bytes of the log so far, the cut ones included. ``ended``: the attempt has ended, so that no more will come."""

    chunks: tuple[Chunk, ...]
    size: int
    ended: bool


def read(session: Session, attempt: AttemptId, offset: int = 0, limit: int = 1 << 20) -> Page:
    """About ``limit`` bytes (at least one chunk, where there is one) of a log from position ``offset`` on; raises NotFound."""
    rows = session.rows("read_log", binary=True, attempt=attempt, offset=offset, limit=limit)
    if not rows:
        raise NotFound(f"attempt {attempt}", "there is none")
    chunks = []
    end = offset
    for row in rows:
        if row.position is None:
            continue
        skipped = max(0, offset - row.position)
        chunk = Chunk(row.position + skipped, Stream(row.stream), row.at, bytes(row.data)[skipped:])
        chunks.append(replace(chunk, cut=chunk.position - end))
        end = chunk.end
    return Page(tuple(chunks), rows[0].log_bytes, rows[0].ended)
