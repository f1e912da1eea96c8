"""Runs as people see them. A run's state is computed here, and stored nowhere (design 4).

A list is read in two steps: the ids of the page, then these runs with their tasks counted, so that
its cost does not grow with history. A filter by state works on pages too: runs are computed newest
first until the page is full, or until `MOST_LOOKED_AT` runs were computed. The cursor then says
where to continue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import NotFound
from arkqueue.model import ArchiveId, BranchId, Fault, RunId, TaskKind, Trigger
from arkqueue.names import backfill_name, run_name, submission_name
from arkqueue.states import OPEN, RunState, State, run_state
from arkqueue.usage import usage_of_run_in_words
from arkqueue.views.audit import MOST_DEEDS, DeedView, deeds
from arkqueue.views.expected import Expected, expected_of
from arkqueue.views.graph import EdgeView, edges_of
from arkqueue.views.items import ListView
from arkqueue.views.lists import Listed, listed, tasks_of
from arkqueue.views.naming import names_within
from arkqueue.views.reports import ReportView, reports
from arkqueue.views.rows import faults_of, view_of
from arkqueue.views.tasks import TaskView, views_of

MOST_LOOKED_AT = 1000
"""The most runs whose state is computed for one page of a list that is filtered by state."""

NEAREST = 40
"""For each run of a page, the number of newest runs in which a task's name or words are searched
first, before all tasks of that name, or all revisions with these words.
"""

MOST_SUMMED = 10_000
"""The most tasks of a run whose resources are summed."""

MOST_OTHERS = 20
"""The most runs of the same revision that are shown with a run."""


@dataclass(slots=True, kw_only=True)  # not frozen, as TaskView
class Counts:
    """The number of tasks of a run in each state, without COMMIT, REPORT and gates of ``PREV:*``.
    ``superseded`` ones are also counted as canceled.
    """

    tasks: int
    running: int
    held: int
    completed: int
    failed: int
    rejected: int
    canceled: int
    skipped: int
    superseded: int


@dataclass(slots=True, kw_only=True)  # not frozen, as TaskView
class RunView:
    """One run. ``rev`` and ``revision``: the ledger's number and id. ``report``: the state of its
    REPORT; None for a baseline. ``dropped``: True if a rewrite removed its revision.
    ``changed_since_report``: True if tasks changed after its last report (design 5.32).
    ``failing``: True if the run goes on, and one of its tasks failed or was rejected, and is not
    waived.

    ``backfill``: the name of the backfill that it is part of; ``definitions``: the number of the
    revision from which such a run has its workflow files. ``left_out``: the number of later fires
    of its schedule that made no run, because this one stands for them (design 5.17).
    ``submission``: its name by the sender's id of its submission; None: there is no such id.
    ``planned``: for a large run that is still being planned (design 5.30), the number of items
    whose tasks are stored, out of ``planned_items``; None: it is planned.
    """

    id: int
    full_name: str
    archive: str
    branch: str
    rev: int
    revision: str
    run: int
    trigger: Trigger
    by: str
    state: RunState
    failing: bool
    counts: Counts
    report: State | None
    faults: list[Fault]
    author: str
    date: datetime
    message: str
    origin: str | None
    generation: int
    baseline: bool
    dropped: bool
    created_at: datetime
    settled_at: datetime | None
    canceled_by: str | None
    deleted_by: str | None
    left_out: int
    left_out_since: datetime | None
    changed_since_report: bool
    backfill: str | None
    definitions: int | None
    submission: str | None
    planned: int | None
    planned_items: int | None


@dataclass(slots=True)  # not frozen, as TaskView
class RunInShort:
    """One run among hundreds. ``faulty``: True if its workflow files have faults. ``running``,
    ``held``: the numbers of such tasks. ``running_names``: the names of its running tasks. The other
    fields are those of `RunView`.
    """

    id: int
    full_name: str
    trigger: Trigger
    state: RunState
    failing: bool
    faulty: bool
    running: int
    running_names: list[str]
    held: int
    baseline: bool
    created_at: datetime
    changed_since_report: bool


@dataclass(slots=True, kw_only=True)  # not frozen, as TaskView
class ListedRun(RunView):
    """A run of a list. ``tasks`` None: not asked for. Of a long list, ``tasks`` has the first item
    in each state, and ``lists`` the numbers.
    """

    tasks: list[TaskView] | None
    lists: list[ListView]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunUsage:
    """The resources that the attempts of a run used. ``attempts``: the number of attempts whose
    figures are known. ``processor_seconds``: their sum. ``peak_memory_bytes``: the largest of one
    attempt.

    ``is_all``: False if an attempt goes on, was a container or left no figures; the run then used
    at least as much.
    """

    attempts: int
    processor_seconds: float
    peak_memory_bytes: int | None
    is_all: bool

    @property
    def in_words(self) -> str:
        return usage_of_run_in_words(self.attempts, self.processor_seconds, self.peak_memory_bytes, is_all=self.is_all)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchView:
    """The scratch folders of a run in one place. ``hostname`` None: the place of a task manager
    that is not known any more. ``store``: the id of that host, or of a folder that several hosts
    share.

    ``is_removed``: True if they were removed. ``bytes``: as last measured; None: not yet. ``kept``:
    the number of folders that are kept for a retry although no task of their run or item is under
    way; a deletion or purge removes them.
    """

    hostname: str | None
    store: str
    is_removed: bool
    folders: int
    bytes: int | None
    kept: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentsView:
    """The attachments of a run, by the id of their ``upload``. ``hostname``, ``store``,
    ``is_removed``: as in `ScratchView`.
    """

    upload: int
    files: int
    size: int
    hostname: str | None
    store: str
    is_removed: bool


@dataclass(slots=True, kw_only=True)  # not frozen, as TaskView
class RunDetail(RunView):
    """A run with its tasks, the edges that its graph shows, the audit log entries on it and its
    tasks, its reports, its scratch folders, its attachments (None: it has none), and the newest
    other runs of its revision.

    ``expected``: the expected start and end of its tasks, by name, if known. ``ends``: the expected
    end of all tasks that are left.

    ``deeds``: the newest 50 audit log entries. ``earlier_deeds``: true if there are earlier ones.

    Of a list with more than 100 items, ``tasks`` has the first item in each state, and ``lists``
    the numbers. ``/runs/{id}/items`` has all. ``used``: the resources of all its attempts; None:
    not known, as for a run of more than 10,000 tasks.
    """

    tasks: list[TaskView]
    lists: list[ListView]
    edges: list[EdgeView]
    deeds: list[DeedView]
    earlier_deeds: bool
    reports: list[ReportView]
    scratch: list[ScratchView]
    attachments: AttachmentsView | None
    others: list[RunView]
    expected: dict[str, Expected]
    ends: datetime | None
    used: RunUsage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """A page of runs, newest first. ``next``: the cursor of the following page; None at the end. A
    page may be short and still have a next one.
    """

    runs: list[ListedRun]
    next: int | None


def runs(
    session: Session,
    *,
    archives: Sequence[ArchiveId] | None = None,
    branch: BranchId | None = None,
    rev: int | None = None,
    states: Sequence[RunState] = (),
    trigger: Trigger | None = None,
    since: datetime | None = None,
    before: int | None = None,
    limit: int = 50,
    tasks: bool = False,
    backfills: bool | None = None,
) -> RunPage:
    """A page of runs, newest first; deleted runs only if ``states`` has that state. ``backfills``:
    True: only runs of backfills, False: none of them, None: all. ``before``: the cursor from the
    page before. ``tasks``: True to include their tasks.
    """
    block = "page_of_runs" if archives is None else "page_of_runs_of_archives"
    if states and OPEN.issuperset(states):
        block = "page_of_open_runs"
    elif trigger is not None:
        block += "_with_trigger"
    filters: dict[str, Any] = {"branch": branch, "number": rev, "trigger": trigger and str(trigger), "since": since}
    filters["backfills"] = backfills
    # Deleted runs are shown only if they are asked for.
    filters["deleted"] = [state is RunState.DELETED for state in states] or [False]
    if block not in ("page_of_runs", "page_of_runs_with_trigger"):
        filters["archives"] = None if archives is None else list(archives)
    return _paged(session, block, filters, states, before, limit, tasks)


def matching_runs(
    session: Session,
    branch: BranchId,
    *,
    words: str | None = None,
    message: str | None = None,
    author: str | None = None,
    task: str | None = None,
    task_state: State | None = None,
    states: Sequence[RunState] = (),
    before: int | None = None,
    limit: int = 50,
) -> RunPage:
    """A page of the runs of a branch, newest first. ``words``: a query (`search.query_of`) for
    messages and authors; ``message``, ``author``: for one of them only. ``task``: runs that have
    this task, in ``task_state`` if given. One of ``words`` and ``task`` is given.
    """
    filters: dict[str, Any] = {"branch": branch, "words": words, "message": message, "author": author}
    block = "page_of_matching_runs"
    if task is not None:
        block = "page_of_runs_with_task"
        filters |= {"task": task, "state": task_state and str(task_state)}
    return _paged(session, block, filters, states, before, limit, tasks=False)


def _paged(
    session: Session,
    block: str,
    filters: dict[str, Any],
    states: Sequence[RunState],
    before: int | None,
    limit: int,
    tasks: bool,
) -> RunPage:
    found: list[RunView] = []
    looked_at = 0
    while True:
        # A state that is rare among the first runs is sought with few statements.
        size = limit + 1 if not states else min(max(2 * limit, 100, looked_at), max(MOST_LOOKED_AT - looked_at, 1))
        ids = [row.id for row in session.rows(block, before=before, limit=size, nearest=NEAREST * size, **filters)]
        for view in views_of_runs(session, ids):
            if len(found) == limit:
                return _page(session, found, before, tasks)
            before = view.id
            if not states or view.state in states:
                found.append(view)
        looked_at += len(ids)
        if len(ids) < size:
            return _page(session, found, None, tasks)
        if looked_at >= MOST_LOOKED_AT:
            return _page(session, found, before, tasks)


def _page(session: Session, found: Sequence[RunView], following: int | None, tasks: bool) -> RunPage:
    of, lists = tasks_of(session, found) if tasks else ({}, {})
    return RunPage(
        runs=[
            view_of(view, ListedRun, tasks=of.get(view.id, []) if tasks else None, lists=lists.get(view.id, []))
            for view in found
        ],
        next=following,
    )


def unhandled_runs(
    session: Session,
    archive: ArchiveId,
    branch: BranchId,
    *,
    words: str | None,
    message: str | None,
    author: str | None,
    task: str | None,
    faulty: int | None,
    before: int | None,
    limit: int,
) -> RunPage:
    """A page of the runs of a branch with failures that nobody has handled, newest first. ``words``,
    ``message``, ``author``: as in `matching_runs`; ``task``: the name of the tasks that failed.
    ``faulty``: the id of the run at the head whose workflow files have faults; None: there is none.
    """
    filters: dict[str, Any] = {"archives": [archive], "branch": branch, "words": words, "message": message}
    filters |= {"author": author, "task": task, "faulty": faulty}
    return _paged(session, "page_of_unhandled_runs", filters, (), before, limit, tasks=False)


def run(session: Session, run: RunId, item: str | None = None, shown: Listed | None = None) -> RunDetail:
    """One run with its tasks and edges, or with those of one item only. ``shown``: the run's tasks
    from `listed`, if the caller has them.
    """
    rows = session.rows("show_runs", runs=[run])
    if not rows:
        raise NotFound(f"run {run}", "does not exist")
    view = _view(rows[0])
    if shown is None:
        shown = listed(session, [run], item)
    elif item is not None:
        shown = Listed([row for row in shown.rows if row.item == item])
    tasks = shown.rows
    names = names_within(tasks, [view])
    left = [row.id for row in tasks if row.settled_at is None and row.kind == TaskKind.ORDINARY]
    times, done = expected_of(session, left), deeds(session, runs=[run])
    beside = session.rows("runs_of_revision", branch=rows[0].branch_id, number=rows[0].number)
    return view_of(
        view,
        RunDetail,
        tasks=views_of(session, tasks, [view], names),
        lists=shown.lists.get(run, []),
        edges=edges_of(session, run, tasks, names, item, are_all=not shown.lists and item != ""),
        deeds=done[-MOST_DEEDS:],
        earlier_deeds=len(done) > MOST_DEEDS,
        expected={names[id]: one for id, one in times.items()},
        ends=max(one.end for one in times.values())
        if times and len(times) == len(left) and item is None and not shown.lists
        else None,
        used=_used(session, run, item or None)
        if view.counts.tasks <= MOST_SUMMED and (rows[0].begun or rows[0].has_report_begun)
        else None,
        reports=reports(session, run, rows[0]),
        attachments=next((view_of(row, AttachmentsView) for row in session.rows("attachments_of_run", run=run)), None),
        scratch=_scratch(session, run, item),
        others=views_of_runs(
            session, [row.id for row in beside if row.id != run and row.deleted_at is None][:MOST_OTHERS]
        ),
    )


def _used(session: Session, run: RunId, item: str | None) -> RunUsage | None:
    """The resources that the attempts of a run, or of one of its items, used; None if none are
    known.
    """
    rows = session.rows("used_by_run", run=run, item=item)
    return next((view_of(row, RunUsage) for row in rows if row.attempts), None)


def views_of_runs(session: Session, ids: Sequence[int]) -> list[RunView]:
    """Runs by their ids, the newest first."""
    return [_view(row) for row in session.rows("show_runs", runs=list(ids))] if ids else []


def runs_in_short(session: Session, ids: Sequence[int]) -> dict[str, list[RunInShort]]:
    """Many runs by their ids: for each archive, by its name, the newest first."""
    found: dict[str, list[RunInShort]] = defaultdict(list)
    for row in session.rows("runs_in_short", runs=list(ids)) if ids else ():
        state = run_state(row)
        found[row.archive].append(
            RunInShort(
                row.id,
                run_name(row),
                Trigger(row.trigger),
                state,
                state in OPEN and bool(row.bad),
                row.faults,
                row.running,
                sorted({*(row.running_names or [])}),
                row.held,
                row.baseline,
                row.created_at,
                row.changed_since_report,
            )
        )
    return found


def _scratch(session: Session, run: RunId, item: str | None) -> list[ScratchView]:
    """The scratch folders of a run, or of the run and one item, by their places."""
    kept: dict[str, int] = defaultdict(int)
    if rows := session.rows("scratch_of_run", run=run, item=item):
        for there in session.rows("kept_scratch", run=run, item=item):
            kept[there.store] += there.folders
    return [view_of(row, ScratchView, kept=0 if row.is_removed else kept[row.store]) for row in rows]


def _view(row: Any) -> RunView:
    state = run_state(row)
    return view_of(
        row,
        RunView,
        full_name=run_name(row),
        rev=row.number,
        trigger=Trigger(row.trigger),
        state=state,
        failing=state in OPEN and bool(row.bad),
        counts=view_of(row, Counts),
        report=row.report_state and State(row.report_state),
        faults=faults_of(row.faults),
        dropped=row.dropped_at is not None,
        settled_at=None if row.unsettled else row.settled_at,
        backfill=row.backfill_number and backfill_name(row.archive, row.backfill_number),
        definitions=row.definitions_number,
        submission=None if row.sender_id is None else submission_name(row.archive, row.sender_id),
    )
