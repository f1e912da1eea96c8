"""One scan of an archive's repository: appends the revisions that the ledger lacks (design 2).

The steps: find the heads of the branches; have the new revisions held if there are more than
`import_limit`; for each branch, append and plan the revisions that the ledger lacks, oldest first,
with their workflow files, in one transaction by compare-and-set; repeat until the head is reached.
"""

from __future__ import annotations

import logging
import random
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db import Overdue
from arkqueue.db.session import Session
from arkqueue.errors import ArchiveUnreachable, TooLarge
from arkqueue.model import ArchiveId, BranchId, Revision
from arkqueue.plan import MOST_ROWS, Entry, portions
from arkqueue.queue import archives, ledger, planning
from arkqueue.repository import Advance, Fork, Known, NewBranch
from arkqueue.repository.reader.entries import EntryReader, last_compared

log = logging.getLogger("arkqueue")

CHUNK = 100
"""The most revisions that are requested from the repository at once."""


@dataclass(frozen=True, slots=True)
class _Branch:
    """A branch of the repository: its row in the ledger (None: it is not tracked yet), and its
    head. ``fork``: where it leaves the others, if it is new. ``is_older``: True for a new main
    branch that does not continue the ledger, and so is older than its tracking.
    """

    name: str
    known: Any
    head: str
    becomes_main: bool
    fork: Fork | None = None
    is_older: bool = False

    @property
    def is_new(self) -> bool:
        """True if the ledger has no revision of it, or it was deleted. The process that began to
        track it may have been killed before it appended a revision.
        """
        return self.known is None or self.known.deleted or self.known.head_id is None

    @property
    def before(self) -> Known | None:
        """The last revision of its ledger."""
        return last_compared(self.known) if self.known is not None and self.known.head_id is not None else None

    @property
    def revisions(self) -> int | None:
        """The number of its new revisions; None if the repository has to be asked."""
        if self.fork is None:
            return None
        if self.before is not None and self.before.id == self.head:
            return 0
        return 1 if self.is_older else max(1, self.fork.own)

    @property
    def until(self) -> str | None:
        """The last revision of its import."""
        return self.known.import_until if self.known is not None else None


def up_to(revisions: Sequence[Revision], until: str | None) -> Sequence[Revision]:
    """The revisions up to the one with an id, if it is among them; otherwise all."""
    place = next((place for place, revision in enumerate(revisions, 1) if revision.id == until), len(revisions))
    return revisions[:place]


@dataclass(frozen=True, slots=True)
class Scan:
    """A scan of one archive.

    ``entries``: the archive's open repository. ``import_limit``: the most new revisions that are
    no import; None: any number. ``goes_on``: is called at each progress; False: the scan is to end
    between two transactions. ``most_checked``: the most heads whose commits are read as well, after
    all else, so that a damaged one shows before somebody needs its files.
    """

    session: Session
    entries: EntryReader
    archive: ArchiveId
    name: str
    settings: ArchiveSettings
    import_limit: int | None
    goes_on: Callable[[], bool]
    most_checked: int = 0

    def catch_up(self, known: Mapping[str, Any]) -> bool:
        """Bring the ledger's branches, which are ``known``, to the repository's heads. Returns
        False if another queue manager has moved one, and the scan has to begin again.
        """
        archive = self.entries.archive
        former = next((branch for branch in known.values() if branch.main), None)
        former_name = former and former.name
        last = {
            branch.name: last_compared(branch)
            for branch in known.values()
            if branch.head_id is not None and not branch.deleted
        }
        heads = archive.heads(self.settings.branches, former_name, last)
        main = archive.main_branch(former_name)
        if not (heads or self.settings.branches) and former_name and archive.heads([former_name]):
            # HEAD names a branch that does not exist yet, or has a typing error. That does not mean
            # that the former main branch was deleted.
            fault = f"HEAD names the branch {main}, which does not exist, while {former_name} does"
            remedy = f"Push {main}, or correct HEAD: git symbolic-ref HEAD {shlex.quote(f'refs/heads/{former_name}')}"
            raise ArchiveUnreachable("its repository", fault, remedy)
        left = [branch for branch in known.values() if branch.name in heads and not branch.deleted]
        gone = [b for b in known.values() if b.name not in heads and not b.deleted and b.head_id is not None]
        if former in gone and not (heads and self.settings.branches):
            left.append(former)  # another repository, or an empty one, may have replaced the right one
        for branch in gone:
            archive.check_gone(branch.name)  # its unstarted tasks will be canceled
        # The repository need not keep the commits of other deleted branches.
        archive.check_known(*(last[branch.name] for branch in left if branch.name in last))
        behind = self._behind(heads, known, main, former_name)
        first = self._first_advances(behind)
        if first is None:
            self._begin_import(behind)
            return False
        for one in behind:
            if not self._follow(one, first.pop(one.name, None)):
                return False
        for branch in gone:
            log.warning(
                "%s: branch %s is deleted, or tracked no more: what has not started there is canceled",
                self.name,
                branch.name,
            )
            archives.untrack(self.session, self.archive, BranchId(branch.id), head=branch.head_id)
        if self.most_checked:
            checked = list(heads.items())
            if len(checked) > self.most_checked:
                checked = random.sample(checked, self.most_checked)
            archive.check_heads(dict(checked))
        return True

    def _behind(
        self, heads: Mapping[str, str], known: Mapping[str, Any], main: str, former: str | None
    ) -> list[_Branch]:
        """The branches whose ledgers have to follow their heads: the main branch first, and those
        without a ledger last. ``main``, ``former``: the present and the former main branch.
        """
        found = []
        for name, head in heads.items():
            row, becomes_main = known.get(name), name == main != former
            # Most branches are as the ledger has them, so this loop is short.
            is_as_known = row is not None and row.revision == head and row.import_until is None
            if row is None or not is_as_known or row.deleted or row.planning or becomes_main:
                found.append(_Branch(name, row, head, becomes_main))
        found.sort(key=lambda branch: (branch.name != main, branch.before is None))
        new = [branch for branch in found if branch.is_new]
        if not new:
            return found
        # The new commits of a branch are those that are not on other branches. Branches that are or
        # were deleted count with their last revisions. A branch that a rewind retired
        # (``rewound~1``) has another history.
        at = {**heads, **{branch.name: branch.before and branch.before.id for branch in new}}
        last = {at.get(name, row.revision) for name, row in known.items() if "~" not in name}
        others = {id for id in last if id is not None}
        forks = self.entries.archive.forks([NewBranch(branch.name, branch.head) for branch in new], others)
        return [self._with_fork(branch, forks.get(branch.name), others) for branch in found]

    def _with_fork(self, branch: _Branch, fork: Fork | None, others: Collection[str]) -> _Branch:
        """A branch with its fork, if it is new. ``others``: as in `Archive.forks`."""
        if fork is None:
            return branch
        continues = not others or (fork.at if fork.own else None) in others
        is_older = branch.before is None and not self.settings.branches and not continues
        return replace(branch, fork=fork, is_older=is_older)

    def _first_advances(self, branches: Iterable[_Branch]) -> dict[str, Advance] | None:
        """The first advance of each branch, or of some. None: the branches have more new revisions
        than `import_limit` (design 5.22). Revisions of an import do not count.
        """
        limit, first, found = self.import_limit, dict[str, Advance](), 0
        if limit is None:
            return first
        for branch in branches:
            if branch.until is not None:
                continue
            if branch.revisions is not None:
                found += branch.revisions
                if found > limit:
                    return None
                continue
            advance = self._advance(branch, branch.before)
            if len(first) < CHUNK:  # so that the advances of thousands of branches take no memory
                first[branch.name] = advance
            found += len(advance.revisions)
            while found <= limit and not advance.complete and self.goes_on():
                advance = self.entries.archive.advance(branch.name, advance.revisions[-1], branch.head, limit=CHUNK)
                found += len(advance.revisions)
            if found > limit:
                return None
        return first

    def _begin_import(self, branches: Iterable[_Branch]) -> None:
        """Have the new revisions of all branches held. The scan begins again after this."""
        limit, held = self.import_limit or 0, []
        for branch in branches:
            revisions = branch.revisions
            if branch.until is None and (
                self._advance(branch, branch.before).revisions if revisions is None else revisions
            ):
                tracked = self._tracked(branch)
                if tracked is None:
                    return
                held.append(replace(tracked, until=branch.head))
            self.goes_on()
        if ledger.begin_import(self.session, held, limit):
            log.warning("%s: more than %d new revisions: they are held until a person releases them", self.name, limit)

    def _follow(self, behind: _Branch, first: Advance | None) -> bool:
        """Bring the ledger of one branch to its head. Returns False if another queue manager moved
        it meanwhile. ``first``: its first advance, if that is known.
        """
        known, before, until = behind.known, behind.before, behind.until
        if known is not None and known.planning and not planning.finish(self.session, known.id, self.goes_on):
            return False
        branch = self._tracked(behind)
        if branch is None:
            return False
        while self.goes_on():
            advance = first or self._advance(behind, before)
            if not advance.revisions and not advance.dropped and advance.baseline is None:
                if until is not None:
                    ledger.end_import(self.session, branch)
                return True
            revisions = up_to(advance.revisions, until)
            appended = self._append_all(branch, advance, before, revisions)
            if appended is None:
                return False
            branch = appended
            if until is not None and revisions and revisions[-1].id == until:
                return bool(until == behind.head)  # revisions behind an import are judged again
            if advance.complete:
                if until is not None:
                    ledger.end_import(self.session, branch)
                return True
            before, first = advance.revisions[-1], None
            behind = replace(behind, fork=None, is_older=False)
        return False

    def _tracked(self, behind: _Branch) -> ledger.Branch | None:
        """The branch in the ledger, which is tracked from now on if it was not. None: another queue
        manager moved it meanwhile.
        """
        known = behind.known
        if known is None or known.deleted or behind.becomes_main:
            branch = archives.track(self.session, self.archive, behind.name, main=behind.becomes_main)
            if branch.head != (known.head_id if known else None):
                return None
        else:
            branch = ledger.Branch(known.id, self.archive, behind.name, known.main, known.head_id)
        return replace(branch, until=behind.until)

    def _advance(self, branch: _Branch, before: Known | None) -> Advance:
        """The next revisions of a branch from ``before`` to its head."""
        archive = self.entries.archive
        if branch.is_older:  # its baseline is its head
            revision = archive.baseline(branch.name, branch.head)
            return Advance(revisions=(revision,) if revision else ())
        return archive.advance(branch.name, before, branch.head, limit=CHUNK, fork=branch.fork)

    def _append_all(
        self, branch: ledger.Branch, advance: Advance, before: Known | None, revisions: Sequence[Revision]
    ) -> ledger.Branch | None:
        """Append some revisions of an advance. Returns the branch with its new head. None: another
        queue manager moved it meanwhile, or the scan is to end.
        """
        baseline = self.entries.entry(None, advance.baseline) if advance.baseline else None
        start = advance.baseline or before
        news: ledger.News = {"baseline": baseline, "dropped": advance.dropped, "author": self.settings.author}
        found = self.entries.entries(
            start.id if start else None, revisions, parents=bool(self.settings.workflow_authors)
        )
        for entries in portions(found):
            appended = self._append(branch, entries, news)
            if appended is None:
                return None
            branch, news = replace(branch, head=appended), {"author": self.settings.author}
            if not self.goes_on():
                return None
        return branch

    def _append(self, branch: ledger.Branch, entries: Sequence[Entry], news: ledger.News) -> int | None:
        try:
            appended = ledger.append(self.session, branch, entries, **news)
            if appended is not None and entries and entries[-1].workflow.lists and entries[-1].is_large:
                planning.finish(self.session, branch.id, self.goes_on)
            return appended
        except Overdue as error:
            if len(entries) == 1 and entries[0].rows > MOST_ROWS:
                thing = f"{self.name}@{entries[0].revision.id}"
                fault = f"its {len(entries[0].workflow.tasks)} tasks are more than the database stores in time ({error.fault})"
                remedy = f"Use a faster database server, or have none of its tasks run: arkqueue archive rewind {thing.replace('@', ' ')}"
                raise TooLarge(thing, fault, remedy) from error
            raise
