"""Scans a repository before a manual run or the run of a submission is made, so that the newest
commits count (design 5.31).

The queue manager scans as usual. Only a few callers wait for it, and only for a short time. After
that, the known revisions count, and the answer says so.
"""

from __future__ import annotations

import threading
import time

from arkqueue.db.session import Session
from arkqueue.model import SILENCE, ArchiveId
from arkqueue.queue import archives

PATIENCE = 5.0
"""The most seconds that a caller waits."""
MOST_AT_ONCE = 8
"""The most callers that wait for a scan at once. Others continue with the known revisions."""
FIRST_LOOK, LONGEST_LOOK = 0.005, 0.05
"""The seconds between two checks whether the scan is done; they increase."""
KNOWN = "What is known of it counts."

_waiting = threading.BoundedSemaphore(MOST_AT_ONCE)


def scan(session: Session, archive: ArchiveId) -> str:
    """Request a scan of an archive's repository, and wait for it. Returns a sentence for a person
    that says why the newest commits may be missing; empty if they are not.
    """
    (row,) = session.rows("scan_of_archive", archive=archive)
    if row.stopped is not None:
        return ""  # the caller's request is refused, with the reason
    archives.sync(session, archive)
    if session.rows("silent_since", silence=SILENCE):
        return f"{row.name}: no queue manager is running, so its repository was not scanned. {KNOWN}"
    if not _waiting.acquire(blocking=False):
        return f"{row.name}: too many wait for scans, so that of its repository was not waited for. {KNOWN}"
    try:
        return _wait(session, archive, time.monotonic() + PATIENCE)
    finally:
        _waiting.release()


def _wait(session: Session, archive: ArchiveId, until: float) -> str:
    (row,) = session.rows("scan_of_archive", archive=archive)
    asked, pause = row.asked, FIRST_LOOK
    while row.asked is not None and row.looked < asked and row.stopped is None:
        if row.trouble is not None and row.is_tried:
            return f"{row.name}: its repository cannot be read. {KNOWN}"
        if time.monotonic() > until:
            return f"{row.name}: its repository was not scanned within {PATIENCE:g} s. {KNOWN}"
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_LOOK)
        (row,) = session.rows("scan_of_archive", archive=archive)
    return ""
