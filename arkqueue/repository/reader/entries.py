"""Makes entries for the ledger from revisions of a repository, with their workflow files and tree
differences.

Stands between ``repository`` (which knows no ledger) and ``queue`` (which reads no repository).
Called by the queue manager's readers and by registration.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from arkqueue.errors import ArchiveMismatch
from arkqueue.model import Fault, Origin, Revision, Workflow
from arkqueue.plan import Entry
from arkqueue.repository import Archive, LastKnown
from arkqueue.repository.limits import TooManyPaths

MOST_KEPT = 100
MOST_TASKS = 20_000
"""The most tasks in the parsed workflow folders that each reader caches. Revisions mostly repeat
the folders of earlier ones.
"""
MOST_COMPARED = 50_000_000
"""The most pairs of a changed path and a pattern of ``paths`` that may be compared for a revision,
which takes two minutes. Without this limit, a commit of a few megabytes would take months.
"""


class EntryReader:
    """Reads ledger entries from one open archive; caches parsed workflow folders by content."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self._parsed: OrderedDict[str, Workflow] = OrderedDict()

    def entries(self, previous: str | None, revisions: Sequence[Revision], *, parents: bool = False) -> Iterator[Entry]:
        """One entry for each revision, oldest first, read when the caller takes it. ``previous``:
        the id of the ledger's revision before the first. ``parents``: True to read the workflow files
        of parents that are other revisions than these.
        """
        for revision in revisions:
            entry = self.entry(previous, revision)
            if parents and revision.parent not in ("", previous) and self.archive.has(revision.parent):
                entry = replace(entry, parent=self.workflow(revision.parent))
            yield entry
            previous = revision.id

    def entry(self, previous: str | None, revision: Revision) -> Entry:
        if revision.oversized:
            return Entry(revision, _faulty(revision, revision.oversized))
        parsed = self.workflow(revision.id)
        # The tree difference is read only if a filter needs it: it can be as long as the archive is
        # large.
        if not (filters := {task.paths for task in parsed.tasks if task.paths}):
            return Entry(revision, parsed)
        try:
            changed = self.archive.changed_paths(previous, revision.id)
        except TooManyPaths as error:
            fault = f"{error} for the `paths` of its tasks; change fewer at once, or take `paths` out"
            return Entry(revision, _faulty(revision, fault))
        patterns = sum(map(len, filters))
        if len(changed) * patterns > MOST_COMPARED:
            fault = (
                f"{len(changed):,} changed paths and {patterns:,} patterns of `paths` are more than can be compared "
                f"({MOST_COMPARED:,} pairs); change fewer paths at once, or write fewer patterns"
            )
            return Entry(revision, _faulty(revision, fault))
        return Entry(revision, parsed, changed)

    def workflow(self, revision: str) -> Workflow:
        """The parsed workflow files of a revision."""
        key = self.archive.workflows_key(revision)
        if key not in self._parsed:
            parsed = self.archive.workflow(revision) if key else Workflow()
            if parsed.list_files:
                return parsed  # not cached: the next revision may have other lists
            self._parsed[key] = parsed
            while len(self._parsed) > MOST_KEPT or (len(self._parsed) > 1 and self._tasks_kept() > MOST_TASKS):
                self._parsed.popitem(last=False)
        self._parsed.move_to_end(key)
        return self._parsed[key]

    def _tasks_kept(self) -> int:
        return sum(len(parsed.tasks) for parsed in self._parsed.values())


def _faulty(revision: Revision, fault: str) -> Workflow:
    return Workflow(faults=(Fault(f"revision {revision.id}", 0, 0, fault),))


def last_known(branch: Any) -> Revision:
    """The last revision of a branch's ledger, from its row, as the repository reported it."""
    origin = Origin(branch.origin, branch.generation) if branch.origin else None
    return Revision(branch.revision, branch.number, branch.author, branch.date, branch.message, origin)


def last_compared(branch: Any) -> LastKnown:
    """The last revision of a branch's ledger, from its row, as far as an archive compares it."""
    return LastKnown(branch.revision, branch.number, branch.author, branch.date)


def named(mismatch: ArchiveMismatch, archive: str) -> str:
    """The stop reason of an archive. The reader reports the fault; the caller knows the archive's
    name, which the commands need.
    """
    text = str(mismatch)
    for verb in ("rewind", "sync", "accept"):
        text = text.replace(f"{verb} NAME", f"{verb} {archive}")
    return text
