"""Quick checks: scans of quiet local archives that open no repository.

A whole scan stores the repository's fingerprint from before the scan: the ledger contains all
commits until then. When the archive's next scan is due, the quick check computes the fingerprint
again. If it is unchanged, nothing was committed since, and the archive is recorded as read,
together with all others of the check. Otherwise a whole scan follows at once. A whole scan also
follows a notice, a failure, and ten minutes after the last whole scan, whatever the files say.
Other changes of the ledger (a rewind) give a notice.

A periodic whole scan of an archive without trouble is recorded together with the next check.

A check never does a reader's work: it reads a few files, in a thread of its own. If a file system
hangs, that thread is left behind, and the archive goes to a reader, which reports that its
repository hangs.

Fingerprints are kept in memory only: a queue manager that starts begins with whole scans. Called by
`readers`.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import DatabaseUnavailable
from arkqueue.queue import archives

log = logging.getLogger("arkqueue")

WHOLE = 590.0
"""The most seconds from one whole scan of an archive to the next one. It is a little less than ten
minutes, because a scan may begin a little later than it is due.
"""
SLOW = 2.0
"""Seconds after which a file system hangs."""
MOST = 500
"""The most archives that one statement records, which locks their rows."""

GOLDEN = 0.618033988749895
"""The golden section: its multiples are spread evenly between the whole numbers."""

Fingerprint = Callable[[], bytes | None]


def next_whole(archive: int, now: float, sweep: float) -> float:
    """The time at which the next whole scan of an archive is due, after one that ends ``now``.

    Each archive has its own times, one in every period: all are scanned at once when a queue
    manager starts, but not together afterwards. A due whole scan begins with the next periodic
    scan, thus within ``sweep`` seconds.
    """
    period = WHOLE - sweep
    if period <= 0:
        return now
    own = archive * GOLDEN % 1 * period
    return now + period - (now - own) % period


@dataclass(frozen=True, slots=True)
class _Known:
    """An archive after a whole scan. ``until``: the time at which the next whole scan is due, by
    `time.monotonic`.
    """

    take: Fingerprint
    last: bytes
    until: float


class QuickChecks:
    """The fingerprints of one queue manager. ``changed``: called when an archive needs a whole scan
    after all.
    """

    def __init__(self, session: Session, sweep: float, changed: Callable[[], None]) -> None:
        self._session, self._sweep, self._changed = session, sweep, changed
        self._known: dict[int, _Known] = {}
        self._read: set[int] = set()
        """Archives whose last whole scan is not recorded yet."""
        self._check: _Check | None = None

    def remember(self, archive: int, take: Fingerprint, last: bytes) -> None:
        """Store a fingerprint, after a whole scan that has found everything that existed when it
        was taken.
        """
        self._known[archive] = _Known(take, last, until=next_whole(archive, time.monotonic(), self._sweep))

    def record_soon(self, archive: int) -> None:
        """Have a complete periodic whole scan recorded with the next check."""
        self._read.add(archive)

    def forget(self, archive: int) -> None:
        """Let the next scan be a whole one."""
        self._known.pop(archive, None)

    def take_over(self, rows: Sequence[Any]) -> list[Any]:
        """Check those of the due archives (rows of `archives.to_read`) that may be quiet. Returns
        the others.

        Only the dispatcher calls this, repeatedly. An archive that is being checked is not among
        the others.
        """
        now = time.monotonic()
        quiet: list[int] = []
        read: list[int] = []
        others: list[Any] = []
        for row in rows:
            known = self._known.get(row.id)
            if row.asked is not None or row.troubled:
                others.append(row)
            elif row.id in self._read:
                read.append(row.id)
            elif known is not None and now < known.until:
                quiet.append(row.id)
            else:
                others.append(row)
        if self._check is not None and self._check.is_alive():
            if now - self._check.since < SLOW:
                return others
            self._check.leave()
            self.forget(self._check.at)
        # An archive that is not due any more was recorded in another way.
        self._read.intersection_update(read)
        self._check = None
        if read or quiet:
            self._check = _Check(self, read, quiet)
            self._check.start()
        return others

    def close(self) -> None:
        if self._check is not None:
            self._check.leave()

    def look(self, archive: int) -> bool:
        """True if an archive is unchanged since its last whole scan. If not, its next scan is a
        whole one.
        """
        known = self._known.get(archive)
        if known is not None and known.take() == known.last:
            return True
        self.forget(archive)
        self._changed()
        return False

    def record(self, done: Sequence[int]) -> None:
        """Record that archives were scanned."""
        archives.read_quietly(self._session, done, self._sweep)
        self._read.difference_update(done)


class _Check(threading.Thread):
    """One check of some archives, which are recorded at its end, with the archives in ``read``.

    ``at``: the archive whose files are being read. ``since``: the time at which that began.
    """

    def __init__(self, checks: QuickChecks, read: Sequence[int], quiet: Sequence[int]) -> None:
        super().__init__(name="check repositories", daemon=True)
        self._checks, self._read, self._ids = checks, list(read), quiet
        self._is_left = False
        self.at, self.since = 0, time.monotonic()

    def leave(self) -> None:
        """Give the check up: its results are not recorded."""
        self._is_left = True

    def run(self) -> None:
        try:
            done = self._read
            for archive in self._ids:
                self.at, self.since = archive, time.monotonic()
                if self._checks.look(archive):
                    done.append(archive)
                if self._is_left:
                    return
                if len(done) >= MOST:
                    self._record(done)
                    done = []
            self._record(done)
        except DatabaseUnavailable as error:
            log.warning("%s: %s", self.name, error)
        except Exception:
            log.exception("%s failed; its archives are checked again", self.name)

    def _record(self, done: Sequence[int]) -> None:
        self.since = math.inf  # the database has limits of its own
        for start in range(0, len(done), MOST):
            self._checks.record(done[start : start + MOST])
