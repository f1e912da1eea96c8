"""Backfills as people see them: their progress, and the runs that need attention (design 8)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from arkqueue.db.session import Session
from arkqueue.errors import NotFound
from arkqueue.failures import BadInWords, bad_in_words
from arkqueue.model import CANCELED_BY, ArchiveId
from arkqueue.names import backfill_name, name_of
from arkqueue.views.archives import remedy
from arkqueue.views.rows import view_of
from arkqueue.views.runs import Counts, RunView, views_of_runs

MOST_RUNS = 20
"""The most failed runs, and the most open ones, that are shown with a backfill."""
MOST_LISTED = 100
"""The most backfills of a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillView:
    """A backfill. ``definitions``: the revision from which its runs have their workflow files.
    ``revisions``: the number of its revisions; ``planned``: the number of those whose run is
    planned. A revision that a rewrite dropped counts if its run had been planned.

    ``counts``: the tasks of all its runs. ``waived``: the number of waived ones among the failed and
    rejected tasks; ``waived_rejected``: how many of these were rejected. ``fault``: the reason why planning ended early.
    ``is_held``: True if it was held as a whole and not released since. ``waits``: the reason why
    planning cannot go on now, and the remedy; ``waits_since``: the time since when, if known.
    """

    id: int
    full_name: str
    archive: str
    branch: str
    definitions: str
    tasks: list[str]
    without: list[str]
    first: int
    last: int
    revisions: int
    planned: int
    is_planned: bool
    is_held: bool
    priority: int | None
    fault: str | None
    waits: str | None
    waits_since: datetime | None
    by: str
    made_at: datetime
    counts: Counts
    waived: int
    waived_rejected: int

    @property
    def bad(self) -> BadInWords:
        """Its failed and rejected tasks, in words."""
        return bad_in_words(self.counts.failed, self.counts.rejected, self.waived, self.waived_rejected)

    @property
    def waiting(self) -> int:
        """The number of its tasks that wait for something other than a release."""
        done = (
            self.counts.completed,
            self.counts.failed,
            self.counts.rejected,
            self.counts.canceled,
            self.counts.skipped,
        )
        return self.counts.tasks - sum(done) - self.counts.running - self.counts.held


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillDetail(BackfillView):
    """A backfill with the oldest of its failed runs, and the oldest of those in which tasks run or
    can run.
    """

    failed: list[RunView]
    open: list[RunView]


V = TypeVar("V", bound=BackfillView)


def in_public(view: V) -> V:
    """A backfill for a visitor who has not signed in: without the faults of its repository, which
    may name paths and servers, and without the person who canceled it.
    """
    fault = "canceled" if view.fault and view.fault.startswith(CANCELED_BY) else view.fault
    return replace(view, fault=fault, waits=None if view.waits is None else "its archive cannot be read for now")


def backfills(session: Session, archive: ArchiveId, most: int = MOST_LISTED) -> list[BackfillView]:
    """The newest backfills of an archive."""
    found = session.rows("backfills_of", archive=archive, number=None, most=most)
    return [_view(session, row.id) for row in found]


def find_backfill(session: Session, archive: ArchiveId, shown: str, number: int) -> int:
    """The id of a backfill by its number. ``shown``: the archive's name in messages."""
    if found := session.rows("backfills_of", archive=archive, number=number, most=1):
        return int(found[0].id)
    newest = session.rows("backfills_of", archive=archive, number=None, most=1)
    has = f"The newest is {_view(session, newest[0].id).full_name}." if newest else "The archive has none."
    raise NotFound(backfill_name(shown, number), "does not exist", has)


def backfill(session: Session, id: int) -> BackfillDetail:
    """A backfill with the runs that need attention."""
    rows = session.rows("telling_runs_of_backfill", backfill=id, most=MOST_RUNS)
    views = {run.id: run for run in views_of_runs(session, [row.id for row in rows])}
    failed, open = ([views[row.id] for row in rows if row.is_bad == is_bad] for is_bad in (True, False))
    return view_of(_view(session, id), BackfillDetail, failed=failed, open=open)


def runs_of_backfill(session: Session, id: int, after: int | None, most: int) -> tuple[list[RunView], int | None]:
    """Some runs of a backfill, in the order of their revisions: those after the run with the id
    ``after`` (None: from the first one on). And the id of the last of them, if there are more.
    """
    ids = [row.id for row in session.rows("runs_of_backfill", backfill=id, after=after, most=most + 1)]
    shown = sorted(views_of_runs(session, ids[:most]), key=lambda run: run.id)
    return shown, ids[most - 1] if len(ids) > most else None


def _view(session: Session, id: int) -> BackfillView:
    (row,) = session.rows("backfill", backfill=id)
    (counted,) = session.rows("show_backfill", backfill=id)
    return view_of(
        row,
        BackfillView,
        full_name=backfill_name(row.archive, row.number),
        definitions=str(name_of(row.archive, row.definitions_number, branch=row.branch, main=row.main)),
        revisions=counted.revisions,
        planned=counted.planned,
        is_planned=row.next is None,
        is_held=row.hold_id is not None,
        waits=_why_it_waits(row),
        counts=view_of(counted, Counts),
        waived=counted.waived,
        waived_rejected=counted.waived_rejected,
    )


def _why_it_waits(row: Any) -> str | None:
    if row.next is None or row.stopped is None:
        return row.waits and f"its lists cannot be read: {row.waits}"
    return f"its archive is stopped: {row.stopped} To go on: {remedy(row.archive, row.stopped, None)}"
