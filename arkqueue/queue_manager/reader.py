"""Reads one archive's repository and appends the revisions that its ledger lacks (design 2).

The steps of a scan: check that the repository is still the registered one; find the heads of its
branches; have the new revisions held if there are more than `import_limit`; for each branch,
append and plan the revisions that the ledger lacks, oldest first, with their workflow files, in one
transaction by compare-and-set; repeat until the head is reached.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from arkqueue.archive_settings import ArchiveSettings, read_settings
from arkqueue.config import Configuration
from arkqueue.db import Overdue
from arkqueue.db.session import Session
from arkqueue.errors import ArchiveMismatch, ArchiveUnreachable, ArkqueueError, DatabaseUnavailable, TooLarge
from arkqueue.model import ArchiveId, ArchiveKind, BranchId, Revision
from arkqueue.plan import MOST_ROWS, Entry, portions
from arkqueue.queue import archives, ledger, planning
from arkqueue.queue_manager.quick_checks import QuickChecks
from arkqueue.repository import Advance, fingerprint_of
from arkqueue.repository.opening import location_of, open_location
from arkqueue.repository.origin import AUTHORS
from arkqueue.repository.reader.entries import EntryReader, last_known, named

log = logging.getLogger("arkqueue")

CHUNK = 100
"""The most revisions that are requested from the repository at once."""
SLOW = 2.0
"""Seconds after which a scan counts as slow, and does not keep another one from beginning."""
PACE = 0.05
"""Seconds from the beginning of a scan to the beginning of the next one of the archive. So the
first commit of a burst is planned at once, and the commits behind it together.
"""
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


@dataclass(frozen=True, slots=True)
class _Branch:
    """A branch of the repository: its row in the ledger (None: it is not tracked yet), and its
    head. ``siblings``: the heads of the other branches, if it is new; they show which of its
    commits are its own.
    """

    name: str
    known: Any
    head: str
    becomes_main: bool
    siblings: Mapping[str, str] | None = None

    @property
    def is_new(self) -> bool:
        """True if the ledger has no revision of it, or it was deleted. The process that began to
        track it may have been killed before it appended a revision.
        """
        return self.known is None or self.known.deleted or self.known.head_id is None

    @property
    def is_behind(self) -> bool:
        known = self.known
        is_planned = known is not None and not known.planning and known.revision == self.head
        return not is_planned or known.deleted or self.becomes_main or self.until is not None

    @property
    def before(self) -> Revision | None:
        """The last revision of its ledger."""
        return last_known(self.known) if self.known is not None and self.known.head_id is not None else None

    @property
    def until(self) -> str | None:
        """The last revision of its import."""
        return self.known.import_until if self.known is not None else None


def up_to(revisions: Sequence[Revision], until: str | None) -> Sequence[Revision]:
    """The revisions up to the one with an id, if it is among them; otherwise all."""
    place = next((place for place, revision in enumerate(revisions, 1) if revision.id == until), len(revisions))
    return revisions[:place]


class Reader(threading.Thread):
    """Scans one archive's repository when it is told to. Ends after that, or if no other notice
    came for a while.
    """

    def __init__(
        self, session: Session, configuration: Configuration, row: Any, freed: Callable[[], bool], checks: QuickChecks
    ) -> None:
        super().__init__(name=f"read {row.name}", daemon=True)
        self._session, self._configuration, self._freed, self._checks = session, configuration, freed, checks
        self._id, self._archive = ArchiveId(row.id), row.name
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
            # The fingerprint comes first: any commit from here on changes it.
            self._fingerprint = self._take_fingerprint() if self._take_fingerprint else None
            # The ledger is read before the repository: the repository must have all known
            # revisions, while the ledger may lack some of the repository's.
            if self._catch_up(settings, {branch.name: branch for branch in branches}):
                return self._expected(row)
        return None

    def _catch_up(self, settings: ArchiveSettings, known: dict[str, Any]) -> bool:
        """Bring the ledger's branches, which are ``known``, to the repository's heads. Returns
        False if another queue manager has moved one, and the scan has to begin again.
        """
        assert self._entries is not None
        archive = self._entries.archive
        former = next((branch for branch in known.values() if branch.main), None)
        former_name = former and former.name
        last = {
            branch.name: last_known(branch)
            for branch in known.values()
            if branch.head_id is not None and not branch.deleted
        }
        heads = archive.heads(settings.branches, former_name, last)
        main = archive.main_branch(former_name)
        if not (heads or settings.branches) and former_name and archive.heads([former_name]):
            # HEAD names a branch that does not exist yet, or has a typing error. That does not mean
            # that the former main branch was deleted.
            fault = f"HEAD names the branch {main}, which does not exist, while {former_name} does"
            remedy = f"Push {main}, or correct HEAD: git symbolic-ref HEAD refs/heads/{former_name}"
            raise ArchiveUnreachable("its repository", fault, remedy)
        left = [branch for branch in known.values() if branch.name in heads and not branch.deleted]
        gone = [b for b in known.values() if b.name not in heads and not b.deleted and b.head_id is not None]
        if former in gone and not (heads and settings.branches):
            left.append(former)  # another repository, or an empty one, may have replaced the right one
        for branch in gone:
            archive.check_gone(branch.name)  # its unstarted tasks will be canceled
        # The repository need not keep the commits of other deleted branches.
        archive.check_known(*(last[branch.name] for branch in left if branch.name in last))
        behind = partial(self._behind, heads, known, main, former_name)
        first = self._first_advances(behind(), settings)
        if first is None:
            self._begin_import(behind(), settings)
            return False
        for branch in behind():
            if not self._follow(branch, first.pop(branch.name, None), settings):
                return False
        for branch in gone:
            log.warning(
                "%s: branch %s is deleted, or tracked no more: what has not started there is canceled",
                self.name,
                branch.name,
            )
            archives.untrack(self._session, self._id, BranchId(branch.id), head=branch.head_id)
        return True

    def _behind(
        self, heads: Mapping[str, str], known: Mapping[str, Any], main: str, former: str | None
    ) -> Iterator[_Branch]:
        """The branches whose ledgers have to follow their heads. ``main``, ``former``: the present
        and the former main branch.
        """
        # The new commits of a branch are those that are not on other branches. So the main branch
        # comes first, and deleted branches count with their last heads. Only branches of the ledger
        # count: two new branches would hide their common commits from each other. A branch that a
        # rewind retired (``rewound~1``) has another history.
        ledger = {name: heads.get(name, branch.revision) for name, branch in known.items() if "~" not in name}
        for name in sorted(heads, key=lambda name: name != main):
            branch = _Branch(name, known.get(name), heads[name], becomes_main=name == main != former)
            if branch.is_new:
                # An archive that began empty has no siblings.
                siblings = {other: id for other, id in ledger.items() if other != name and id is not None}
                branch = replace(branch, siblings=siblings)
            if branch.is_behind:
                yield branch
            ledger[name] = heads[name]

    def _first_advances(self, branches: Iterable[_Branch], settings: ArchiveSettings) -> dict[str, Advance] | None:
        """The first advance of each branch, or of some. None: the branches have more new revisions
        than `import_limit` (design 5.22). Revisions of an import do not count.
        """
        assert self._entries is not None
        limit, first, found = self._configuration.import_limit, dict[str, Advance](), 0
        if limit is None:
            return first
        for branch in branches:
            if branch.until is not None:
                continue
            advance = self._advance(branch, branch.before, settings)
            if len(first) < CHUNK:
                first[branch.name] = advance
            found += len(advance.revisions)
            while found <= limit and not advance.complete and not self._closing:
                advance = self._entries.archive.advance(branch.name, advance.revisions[-1], branch.head, limit=CHUNK)
                found += len(advance.revisions)
                self._heard = time.monotonic()
            if found > limit:
                return None
        return first

    def _begin_import(self, branches: Iterable[_Branch], settings: ArchiveSettings) -> None:
        """Have the new revisions of all branches held. The scan begins again after this."""
        limit, held = self._configuration.import_limit or 0, []
        for branch in branches:
            if branch.until is None and self._advance(branch, branch.before, settings).revisions:
                tracked = self._tracked(branch)
                if tracked is None:
                    return
                held.append(replace(tracked, until=branch.head))
            self._heard = time.monotonic()
        if ledger.begin_import(self._session, held, limit):
            log.warning("%s: more than %d new revisions: they are held until a person releases them", self.name, limit)

    def _follow(self, behind: _Branch, first: Advance | None, settings: ArchiveSettings) -> bool:
        """Bring the ledger of one branch to its head. Returns False if another queue manager moved
        it meanwhile. ``first``: its first advance, if that is known.
        """
        known, before, until = behind.known, behind.before, behind.until
        if known is not None and known.planning and not planning.finish(self._session, known.id, self._goes_on):
            return False
        branch = self._tracked(behind)
        if branch is None:
            return False
        while not self._closing:
            advance = first or self._advance(behind, before, settings)
            if not advance.revisions and not advance.dropped and advance.baseline is None:
                if until is not None:
                    ledger.end_import(self._session, branch)
                return True
            revisions = up_to(advance.revisions, until)
            appended = self._append_all(branch, advance, before, revisions, settings.author)
            if appended is None:
                return False
            branch = appended
            if until is not None and revisions and revisions[-1].id == until:
                return bool(until == behind.head)  # revisions behind an import are judged again
            if advance.complete:
                if until is not None:
                    ledger.end_import(self._session, branch)
                return True
            before, first = advance.revisions[-1], None
            behind = replace(behind, siblings=None)
        return False

    def _tracked(self, behind: _Branch) -> ledger.Branch | None:
        """The branch in the ledger, which is tracked from now on if it was not. None: another queue
        manager moved it meanwhile.
        """
        known = behind.known
        if known is None or known.deleted or behind.becomes_main:
            branch = archives.track(self._session, self._id, behind.name, main=behind.becomes_main)
            if branch.head != (known.head_id if known else None):
                return None
        else:
            branch = ledger.Branch(known.id, self._id, behind.name, known.main, known.head_id)
        return replace(branch, until=behind.until)

    def _advance(self, branch: _Branch, before: Revision | None, settings: ArchiveSettings) -> Advance:
        """The next revisions of a branch from ``before`` to its head."""
        assert self._entries is not None
        siblings = branch.siblings
        advance = self._entries.archive.advance(branch.name, before, branch.head, limit=CHUNK, siblings=siblings)
        begins = advance.baseline and advance.baseline.id
        if before is None and siblings and not settings.branches and begins not in siblings.values():
            # A new main branch that does not continue the ledger is older than its tracking. Its
            # baseline is its head.
            revision = self._entries.archive.baseline(branch.name, branch.head)
            return Advance(revisions=(revision,) if revision else ())
        return advance

    def _append_all(
        self,
        branch: ledger.Branch,
        advance: Advance,
        before: Revision | None,
        revisions: Sequence[Revision],
        author: str | None,
    ) -> ledger.Branch | None:
        """Append some revisions of an advance. Returns the branch with its new head. None: another
        queue manager moved it meanwhile, or this reader closes.
        """
        assert self._entries is not None
        baseline = self._entries.entry(None, advance.baseline) if advance.baseline else None
        start = advance.baseline or before
        news: ledger.News = {"baseline": baseline, "dropped": advance.dropped, "author": author}
        for entries in portions(self._entries.entries(start.id if start else None, revisions)):
            appended = self._append(branch, entries, news)
            if appended is None:
                return None
            self._heard = time.monotonic()
            branch, news = replace(branch, head=appended), {"author": author}
            if self._closing:
                return None
        return branch

    def _goes_on(self) -> bool:
        self._heard = time.monotonic()
        return not self._closing

    def _append(self, branch: ledger.Branch, entries: Sequence[Entry], news: ledger.News) -> int | None:
        try:
            appended = ledger.append(self._session, branch, entries, **news)
            if appended is not None and entries and entries[-1].workflow.lists and entries[-1].is_large:
                planning.finish(self._session, branch.id, self._goes_on)
            return appended
        except Overdue as error:
            if len(entries) == 1 and entries[0].rows > MOST_ROWS:
                thing = f"{self._archive}@{entries[0].revision.id}"
                fault = f"its {len(entries[0].workflow.tasks)} tasks are more than the database stores in time ({error.fault})"
                remedy = f"Use a faster database server, or have none of its tasks run: arkqueue archive rewind {thing.replace('@', ' ')}"
                raise TooLarge(thing, fault, remedy) from error
            raise

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
