"""Follows a log as it grows."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from arkqueue.db.session import Session
from arkqueue.logs.read import Chunk, read
from arkqueue.model import AttemptId

POLL = 0.04
"""Seconds between two looks of a follower."""


def follow(
    session: Session, attempt: AttemptId, offset: int = 0, *, leaving: threading.Event | None = None
) -> Iterator[Chunk]:
    """A log from position ``offset`` on, as it grows; ends when the attempt has ended and all of it was given, or at ``leaving``."""
    leaving = leaving or threading.Event()
    while not leaving.is_set():
        page = read(session, attempt, offset)
        yield from page.chunks
        if page.chunks:
            offset = page.chunks[-1].end
        elif page.ended:
            return
        else:
            leaving.wait(POLL)
