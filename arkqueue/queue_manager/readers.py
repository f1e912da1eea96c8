"""Repositories are read by threads of their own, outside any lock, at most one for each archive (design 2).

The dispatcher (``Readers.turn``) asks the database which archives a notice names or whose sweep is due, and hands each to its reader's thread. A
repository that hangs holds up its own reader only. A reader that has nothing to do for a while ends, and its connection with it.

A look, step by step: is it still the repository that was registered; where are its branches; for each one, the revisions that the ledger lacks,
oldest first, with their workflow files, appended and planned in one transaction by compare-and-set; until the head is reached.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import Any

from arkqueue.archive.registered import open_registered
from arkqueue.config import Configuration
from arkqueue.errors import ArchiveMismatch, ArkqueueError, DatabaseUnavailable, NotFound
from arkqueue.model import ArchiveId, ArchiveKind, ArchiveSettings, BranchId, Origin, Revision
from arkqueue.queue import Queue, archives, planning
from arkqueue.reading import EntryReader

log = logging.getLogger("arkqueue")

CHUNK = 100
"""Revisions that are appended by one transaction."""
LINGER = 20.0
"""Seconds that a reader keeps its connection after a notice."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two attempts to read a repository that fails."""
LONGEST_EXPECTATION = 600.0
"""Seconds that a revision is expected which a notice named and the repository does not have."""


class Readers:
    """The readers of one queue manager."""

    def __init__(self, queue: Queue, configuration: Configuration) -> None:
        self._queue, self._configuration = queue, configuration
        self._readers: dict[int, Reader] = {}
        self._lock = threading.Lock()
        self._closing = False
        self._has_swept = False

    def turn(self) -> None:
        """Hand every archive that is to be looked at to its reader; the first turn is a sweep of all."""
        if not self._has_swept:
            archives.sweep_all(self._queue)
            self._has_swept = True
        for row in archives.to_read(self._queue):
            with self._lock:
                if self._closing:
                    return
                reader = self._readers.get(row.id)
                if reader is None or not reader.look(row):
                    reader = Reader(self._queue, self._configuration, row)
                    self._readers[row.id] = reader
                    reader.start()

    def close(self) -> None:
        with self._lock:
            self._closing = True
            readers = list(self._readers.values())
        for reader in readers:
            reader.close()
        for reader in readers:
            reader.join(timeout=5.0)


class Reader(threading.Thread):
    """Looks at one archive's repository each time it is told to; ends when it has not been told for a while."""

    def __init__(self, queue: Queue, configuration: Configuration, row: Any) -> None:
        super().__init__(name=f"read {row.name}", daemon=True)
        self._queue, self._configuration = queue, configuration
        self._id = ArchiveId(row.id)
        self._entries: EntryReader | None = None
        self._row: Any = row
        self._failures = 0
        self._condition = threading.Condition()
        self._ended = False
        self._busy = True

    def look(self, row: Any) -> bool:
        """Ask for a look; False where this reader has ended. While one is under way, the next dispatch asks again."""
        with self._condition:
            if self._ended:
                return False
            if not self._busy:
                self._row = row
                self._condition.notify()
            return True

    def close(self) -> None:
        with self._condition:
            self._ended = True
            self._condition.notify()

    def run(self) -> None:
        while (row := self._next()) is not None:
            try:
                self._look(row)
            except DatabaseUnavailable as error:
                log.warning("%s: %s", self.name, error)
            except Exception:
                log.exception("%s: a look failed and is taken again", self.name)
                self._entries = None

    def _next(self) -> Any:
        with self._condition:
            self._busy = self._row is not None
            if self._row is None and not self._ended:
                self._condition.wait(LINGER)
            row, self._row = self._row, None
            self._busy = row is not None
            self._ended = self._ended or row is None
            return None if self._ended else row

    def _look(self, row: Any) -> None:
        """One look at the repository, and what its answer means for the archive."""
        try:
            again = self._read(row)
        except ArchiveMismatch as error:
            # The repository's reader knows the fault; which archive is to be rewound is known here.
            archives.stop(self._queue, self._id, str(error).replace("rewind NAME", f"rewind {row.name}"))
            self._entries = None
        except DatabaseUnavailable:
            raise
        except ArkqueueError as error:
            pause = min(FIRST_PAUSE * 2**self._failures, LONGEST_PAUSE)
            self._failures = min(self._failures + 1, 30)
            archives.read_failed(self._queue, self._id, str(error), pause)
            self._entries = None
        else:
            self._failures = 0
            if again is None:
                archives.read_done(self._queue, self._id, row.asked, self._configuration.sweep)
            else:
                archives.expect(self._queue, self._id, row.asked, again)

    def _read(self, row: Any) -> float | None:
        """Append what the ledger lacks. The answer: seconds until a revision that was named and is not there is looked for again."""
        registered = archives.one(self._queue, self._id)
        if registered.removed_at is not None or registered.stopped is not None:
            return None
        settings = ArchiveSettings(**registered.settings)
        if self._entries is None:
            opened = open_registered(self._configuration, registered.url, ArchiveKind(registered.kind), registered.uuid)
            self._entries = EntryReader(opened)
        while not self._catch_up(settings):
            pass
        return self._expected(row)

    def _catch_up(self, settings: ArchiveSettings) -> bool:
        """Bring the ledger to the repository's heads; False where another queue manager was at it, and all is to be looked at again."""
        assert self._entries is not None
        archive = self._entries.archive
        # The ledger before the repository: what is known must be there, while what is there need not be known.
        known = {branch.name: branch for branch in archives.branches(self._queue, self._id)}
        heads = archive.heads(settings.branches)
        for branch in known.values():
            if branch.head_id is not None and branch.name in heads:
                archive.check_known(_revision(branch))
        # The main branch first: what is new elsewhere is told by what is not on it.
        for name in sorted(heads, key=lambda name: not (name in known and known[name].main)):
            # Only branches that are in the ledger: two new ones would hide their common commits from each other.
            siblings = {other: head for other, head in heads.items() if other != name and other in known}
            if not self._follow(name, known.get(name), heads[name], siblings, settings):
                return False
            if name not in known:
                return False
        for name, branch in known.items():
            if name not in heads and not branch.deleted and branch.head_id is not None:
                archives.untrack(self._queue, self._id, BranchId(branch.id))
        return True

    def _follow(self, name: str, known: Any, head: str, siblings: dict[str, str], settings: ArchiveSettings) -> bool:
        """Bring the ledger of one branch to its head; False where another queue manager moved it meanwhile."""
        assert self._entries is not None
        if known is not None and known.revision == head and not known.deleted:
            return True
        if known is None or known.deleted:
            branch = archives.track(self._queue, self._id, name)
            if branch.head != (known.head_id if known else None):
                return False
        else:
            branch = planning.Branch(known.id, self._id, name, known.main, known.head_id)
        before = _revision(known) if known is not None and known.head_id is not None else None
        # A tracked branch without a revision is an archive that began empty: all of its commits are new.
        siblings = siblings if known is None else {}
        while True:
            advance = self._entries.archive.advance(name, before, head, limit=CHUNK, siblings=siblings)
            if not advance.revisions and not advance.dropped and advance.baseline is None:
                return True
            baseline = self._entries.entry(None, advance.baseline) if advance.baseline else None
            start = advance.baseline or before
            entries = self._entries.entries(start.id if start else None, advance.revisions)
            appended = planning.append(
                self._queue, branch, entries, baseline=baseline, dropped=advance.dropped, author=settings.author
            )
            if appended is None:
                return False
            if advance.complete:
                return True
            branch, before = replace(branch, head=appended), advance.revisions[-1]

    def _expected(self, row: Any) -> float | None:
        """Whether a notice named a revision that the repository does not have yet; then when to look for it."""
        if row.revision is None or row.asked is None:
            return None
        assert self._entries is not None
        try:
            self._entries.archive.baseline(self._entries.archive.main_branch(), row.revision)
        except NotFound:
            waited = row.waited
            return None if waited > LONGEST_EXPECTATION else min(max(waited, FIRST_PAUSE), LONGEST_PAUSE)
        return None


def _revision(branch: Any) -> Revision:
    """The ledger's last revision of a branch, as the repository told it."""
    origin = Origin(branch.origin, branch.generation) if branch.origin else None
    return Revision(branch.revision, branch.number, branch.author, branch.date, branch.message, origin)
