"""Quick checks: scans of quiet local archives that open no repository.

A whole scan remembers the repository's fingerprint from before the scan: the ledger contains all
commits until then. When the archive's next scan is due, the quick check computes the fingerprint
again. If the fingerprint is unchanged, nothing was committed since, and the archive is recorded as
read, together with all others of the check. Otherwise a whole scan follows at once. A whole scan
also follows a notice, a failure, and ten minutes after the last whole scan, whatever the files say.
Other changes of the ledger (a rewind) give a notice.

A whole scan that nobody asked for, of an archive without trouble, is recorded together with the
next check.

A check never does a reader's work: it asks for a few files, in a thread of its own. If a file
system hangs, that thread is left behind, and the archive goes to a reader, which reports that its
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
"""Seconds from one whole scan of an archive to the next, at most. A scan may begin a little later than it is due: ten minutes hold all the same."""
SLOW = 2.0
"""Seconds after which a file system hangs."""
MOST = 500
"""Archives that are recorded by one statement, which locks their rows for its time."""

GOLDEN = 0.618033988749895
"""The golden section: its multiples are spread evenly between the whole numbers."""

Fingerprint = Callable[[], bytes | None]


def next_whole(archive: int, now: float, sweep: float) -> float:
    """When the next whole scan of an archive is due after one that ends ``now``.

    Each archive has times of its own, one in every period: all are scanned at once when a queue manager starts, and no
    longer together afterwards. A due whole scan begins with the next periodic scan, thus within ``sweep`` seconds.
    """
    period = WHOLE - sweep
    if period <= 0:
        return now
    own = archive * GOLDEN % 1 * period
    return now + period - (now - own) % period


@dataclass(frozen=True, slots=True)
class _Known:
    """An archive after a whole scan. ``until``: when the next whole scan is due, by the clock of `time.monotonic`."""

    take: Fingerprint
    last: bytes
    until: float


class QuickChecks:
    """The fingerprints of one queue manager. ``changed`` is called when an archive needs a whole scan after all."""

    def __init__(self, session: Session, sweep: float, changed: Callable[[], None]) -> None:
        self._session, self._sweep, self._changed = session, sweep, changed
        self._known: dict[int, _Known] = {}
        self._read: set[int] = set()
        """Archives that had a whole scan which is not recorded yet."""
        self._check: _Check | None = None

    def remember(self, archive: int, take: Fingerprint, last: bytes) -> None:
        """A whole scan has found everything that was there when the fingerprint was taken."""
        self._known[archive] = _Known(take, last, until=next_whole(archive, time.monotonic(), self._sweep))

    def record_soon(self, archive: int) -> None:
        """A whole scan that nobody asked for has been taken to its end."""
        self._read.add(archive)

    def forget(self, archive: int) -> None:
        """The next scan is a whole one."""
        self._known.pop(archive, None)

    def take_over(self, rows: Sequence[Any]) -> list[Any]:
        """Check those of the due archives (rows of `archives.to_read`) that may be quiet; the others are the answer.

        Called by the dispatcher alone, again and again: an archive under check is in neither.
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
        # One that is no longer due has been recorded otherwise.
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
        """Whether an archive is as it was at its last whole scan; if not, the next scan is a whole one."""
        known = self._known.get(archive)
        if known is not None and known.take() == known.last:
            return True
        self.forget(archive)
        self._changed()
        return False

    def record(self, done: Sequence[int]) -> None:
        """Archives had their scan."""
        archives.read_quietly(self._session, done, self._sweep)
        self._read.difference_update(done)


class _Check(threading.Thread):
    """One check of some archives, recorded at its end, as are those that were ``read`` before.

    ``at`` is the archive whose files are being read, ``since`` when that began.
    """

    def __init__(self, checks: QuickChecks, read: Sequence[int], quiet: Sequence[int]) -> None:
        super().__init__(name="check repositories", daemon=True)
        self._checks, self._read, self._ids = checks, list(read), quiet
        self._is_left = False
        self.at, self.since = 0, time.monotonic()

    def leave(self) -> None:
        """Nobody waits for it any more: what it finds is not recorded."""
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
            log.exception("%s: its archives are checked again", self.name)

    def _record(self, done: Sequence[int]) -> None:
        self.since = math.inf  # the database has limits of its own
        for start in range(0, len(done), MOST):
            self._checks.record(done[start : start + MOST])
