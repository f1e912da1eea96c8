"""A repository is scanned before a run is made of what was just committed (design 5.31): by hand, or for a submission.

The queue manager does it, as ever. It is waited for for a short time, by a few at once; then what is known counts, and the answer says so.
"""

from __future__ import annotations

import threading
import time

from arkqueue.db.session import Session
from arkqueue.model import SILENCE, ArchiveId
from arkqueue.queue import archives

PATIENCE = 5.0
"""Seconds."""
MOST_AT_ONCE = 8
"""So many wait for a scan at once; others go on with what is known."""
FIRST_LOOK, LONGEST_LOOK = 0.005, 0.05
"""Seconds between two looks whether it is done: they become longer."""
KNOWN = "What is known of it counts."

_waiting = threading.BoundedSemaphore(MOST_AT_ONCE)


def scan(session: Session, archive: ArchiveId) -> str:
    """Have an archive's repository scanned; returns why what was committed last may be missing, in a sentence for a person. Empty: it is not."""
    (row,) = session.rows("scan_of_archive", archive=archive)
    if row.stopped is not None:
        return ""  # whatever is to be made of it is refused, with the reason
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
