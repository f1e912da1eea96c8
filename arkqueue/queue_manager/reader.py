"""Reads one archive's repository and appends the revisions that its ledger lacks (design 2).

A scan begins with the check that the repository is still the registered one; `scan` does the rest.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from arkqueue.archive_settings import read_settings
from arkqueue.config import Configuration
from arkqueue.db import Overdue
from arkqueue.db.session import Session
from arkqueue.errors import ArchiveMismatch, ArkqueueError, DatabaseUnavailable
from arkqueue.model import ArchiveId, ArchiveKind
from arkqueue.queue import archives
from arkqueue.queue_manager.quick_checks import QuickChecks
from arkqueue.queue_manager.scan import Scan
from arkqueue.repository import fingerprint_of
from arkqueue.repository.opening import location_of, open_location
from arkqueue.repository.origin import AUTHORS
from arkqueue.repository.reader.entries import EntryReader, named

log = logging.getLogger("arkqueue")

SLOW = 2.0
"""Seconds after which a scan counts as slow, and does not keep another one from beginning."""
PACE = 0.05
"""Seconds from the beginning of a scan to the beginning of the next one of the archive. So the
first commit of a burst is planned at once, and the commits behind it together.
"""
CHECKED = 100
"""The most heads whose commits a periodic scan reads, chosen by chance. 1,000 would take 12 ms."""
SILENT = 60.0
"""Seconds without an answer after which the archive shows that its repository hangs. The reader
still waits, until the deadline of its reader process.
"""
LINGER = 20.0
"""Seconds for which a reader keeps its connection after a notice."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""The shortest and the longest pause, in seconds, between two tries to read a repository that
fails.
"""
LONGEST_EXPECTATION = 600.0
"""Seconds for which a revision is expected that a notice named and the repository does not have."""


class Reader(threading.Thread):
    """Scans one archive's repository when it is told to. Ends after that, or if no other notice
    came for a while.
    """

    def __init__(
        self, session: Session, configuration: Configuration, row: Any, freed: Callable[[], bool], checks: QuickChecks
    ) -> None:
        super().__init__(name=f"read {row.name}", daemon=True)
        self._session, self._configuration, self._freed, self._checks = session, configuration, freed, checks
        self._id = ArchiveId(row.id)
        self._entries: EntryReader | None = None
        self._where = ("", "")
        """The URL and UUID that ``_entries`` was opened for; a rewind may change them."""
        self._take_fingerprint: Callable[[], bytes | None] | None = None
        """Takes the fingerprint of the repository at that URL, if it is on this host."""
        self._fingerprint: bytes | None = None
        """The repository's fingerprint right before the scan; None if it has none, or was not read
        to its end.
        """
        self._condition = threading.Condition()
        self._next: Any = row
        self._present: Any = None
        self._since = self._heard = time.monotonic()
        """The start of the scan, and the time of its last progress."""
        self._rests_until = 0.0
        self._told: Any = None
        """The scan whose hang is shown on the archive."""
        self._trouble: str | None = None
        """The trouble that the log has reported last, until the archive can be read again."""
        self._closing = False
        self.ended = False

    @property
    def is_reading(self) -> bool:
        """True while a scan has been under way for only a short time."""
        return not self.lingers and not self.ended and time.monotonic() - self._since < SLOW

    @property
    def lingers(self) -> bool:
        return self._next is None and self._present is None and not self.ended

    def is_at(self, row: Any) -> bool:
        """True if a scan for this notice or periodic scan is under way or about to begin."""
        with self._condition:
            at = self._next or self._present
            return at is not None and (row.asked is None or at.asked == row.asked)

    def look(self, row: Any) -> bool:
        """Ask for a scan, after the one that is under way. Returns False if this reader has ended."""
        with self._condition:
            if self.ended or self._closing:
                return False
            self._next = row
            self._condition.notify()
            return True

    def see_to_silence(self) -> None:
        """Show on the archive that its repository hangs (design 2). The end of the scan clears
        that, or reports more.

        Only the dispatcher calls this.
        """
        row = self._present
        if row is None or row is self._told or time.monotonic() - self._heard < SILENT:
            return
        fault = f"{row.name}: its repository has not answered for {SILENT:.0f} s; the reader still waits for it. Check its server and the network"
        # The dispatcher waits for no archive. If it is busy, the next iteration tries again.
        if archives.say_trouble(self._session, self._id, fault, FIRST_PAUSE, LONGEST_PAUSE):
            log.warning("%s", fault)
            self._told, self._trouble = row, fault

    def close(self) -> None:
        """Let the reader end as soon as it is between two transactions."""
        with self._condition:
            self._closing = True
            self._condition.notify()

    def run(self) -> None:
        lingers = False
        while (row := self._wait(LINGER if lingers else 0.0)) is not None:
            try:
                self._look(row)
            except DatabaseUnavailable as error:
                log.warning("%s: %s", self.name, error)
            except Exception:
                # Its archive is still due: the dispatcher's next iteration starts another scan.
                log.exception("%s: the result of a scan could not be stored", self.name)
            with self._condition:
                self._present = None
            lingers = self._freed() and row.asked is not None and self._entries is not None

    def _wait(self, seconds: float) -> Any:
        """The next request; None at the end. ``look`` uses the same lock, so a request is either
        taken here or handed to another reader.
        """
        with self._condition:
            if seconds:
                self._condition.wait_for(lambda: self._next is not None or self._closing, seconds)
            self._condition.wait_for(lambda: self._next is None or self._closing, self._rests_until - time.monotonic())
            self._present, self._next = self._next, None
            self._since = self._heard = time.monotonic()
            self._rests_until = self._since + PACE
            self.ended = self._present is None or self._closing
            return None if self.ended else self._present

    def _look(self, row: Any) -> None:
        """Scan the repository once, and record the result for the archive."""
        try:
            again = self._read(row)
        except DatabaseUnavailable as error:
            if not isinstance(error, Overdue):
                raise
            # The database answers, and the next try would take as long.
            self._fail(row, f"{row.name}: cannot be stored: {error}")
        except ArchiveMismatch as error:
            # The repository's reader reports the fault; the archive's name for the remedy is known
            # here.
            why = named(error, row.name)
            archives.stop(self._session, self._id, why)
            log.warning("%s is stopped: %s", row.name, why)
            self._entries = None
        except ArkqueueError as error:
            self._fail(row, str(error))
        except Exception as error:
            # A revision that cannot be read or stored affects its own archive only, and a person
            # has to know.
            log.exception("%s: a scan failed, and is repeated", self.name)
            self._fail(row, f"{row.name}: cannot be read or stored: {type(error).__name__}: {error}")
        else:
            if self._closing:
                return  # the scan may be incomplete, and stays due
            if self._trouble is not None:
                log.warning("%s is read again", row.name)
            self._trouble = None
            if again is None:
                if self._remember_fingerprint() and row.asked is None and not row.troubled:
                    self._checks.record_soon(self._id)
                else:
                    archives.read_done(self._session, self._id, row.asked, self._configuration.sweep)
            else:
                archives.expect(self._session, self._id, row.asked, again)

    def _remember_fingerprint(self) -> bool:
        """Let quick checks detect changes from now on, if this repository has a fingerprint.
        Returns whether it has.
        """
        if self._fingerprint is None or self._take_fingerprint is None:
            return False
        self._checks.remember(self._id, self._take_fingerprint, self._fingerprint)
        return True

    def _fail(self, row: Any, trouble: str) -> None:
        if self._closing:
            return  # the failure may come from closing; the scan stays due
        archives.read_failed(self._session, self._id, trouble, FIRST_PAUSE, LONGEST_PAUSE)
        if trouble != self._trouble:  # once, and not at each try
            log.warning("%s cannot be read: %s", row.name, trouble)
        self._entries, self._trouble = None, trouble

    def _read(self, row: Any) -> float | None:
        """Append the revisions that the ledger lacks. Returns the seconds until a named but missing
        revision is looked for again; None if there is none.
        """
        while not self._closing:
            self._fingerprint = None
            registered, branches = archives.with_branches(self._session, self._id)
            self._trouble = registered.trouble
            if registered.removed_at is not None or registered.stopped is not None:
                return None
            where = registered.url, registered.uuid
            if self._entries is None or self._where != where:
                location = location_of(
                    self._configuration, registered.url, ArchiveKind(registered.kind), registered.uuid
                )
                self._entries = EntryReader(open_location(self._configuration, location))
                self._take_fingerprint, self._where = fingerprint_of(location), where
            settings = read_settings(registered.settings, row.name)
            if settings.author is None and registered.kind == ArchiveKind.GIT:
                # The default author, a name that no real committer has. For Subversion there is
                # none: commits by people's own programs may come from that account.
                settings = replace(settings, author=AUTHORS[ArchiveKind.GIT])
            # The ledger is read before the repository: the repository must have all known
            # revisions, while the ledger may lack some of the repository's.
            scan = Scan(
                self._session,
                self._entries,
                self._id,
                row.name,
                settings,
                self._configuration.import_limit,
                self._goes_on,
                # All of them until the trouble is over, which may be a damaged one.
                most_checked=sys.maxsize if row.troubled else CHECKED if row.asked is None else 0,
            )
            if scan.catch_up({branch.name: branch for branch in branches}):
                self._fingerprint = self._entries.archive.fingerprint
                return self._expected(row)
        return None

    def _goes_on(self) -> bool:
        self._heard = time.monotonic()
        return not self._closing

    def _expected(self, row: Any) -> float | None:
        """Seconds until a revision that a notice named is looked for again; None if the repository
        has it, or it is not expected any more.
        """
        if row.revision is None or row.asked is None:
            return None
        assert self._entries is not None
        if self._entries.archive.has(row.revision):
            return None
        return None if row.waited > LONGEST_EXPECTATION else min(max(row.waited, FIRST_PAUSE), LONGEST_PAUSE)
