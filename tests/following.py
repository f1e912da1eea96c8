"""A follower of a log as a plain iterator. It reads only when the watcher reports new output, and
never polls.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from arkqueue.db.session import Session
from arkqueue.logs import Chunk, Watcher, read
from arkqueue.model import AttemptId
from tests.waiting import PATIENCE


def follow(watcher: Watcher, session: Session, attempt: AttemptId, offset: int = 0) -> Iterator[Chunk]:
    """The chunks of a log from ``offset`` on, as they arrive, until the attempt has ended."""
    changed = threading.Event()
    with watcher.following(attempt, changed.set) as followed:
        while True:
            assert changed.wait(PATIENCE), "the follower was never told"
            changed.clear()
            while followed.has_more(offset):
                page = read(session, attempt, offset)
                yield from page.chunks
                if page.chunks:
                    offset = page.chunks[-1].end
                elif page.ended:
                    return
