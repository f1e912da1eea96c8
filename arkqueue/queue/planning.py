"""Plans a large run in portions (design 5.30): a run whose lists have so many items that one
transaction would take long.

    begin    with the revision, or for a trigger: stores the run without its items, and a row of
             ``planning`` (`ledger`, `triggering`)
    portion  stores the tasks of some hundred items, with their edges; as often as needed
    stored   follows up changes of tasks that settled meanwhile; from here on, later runs of the
             branch are planned
    let in   once COMMIT has settled: tasks that need no other task of the run enter, 2,000 at a
             time, and all others behind COMMIT follow; then the row of ``planning`` is deleted

Each step is a transaction of its own under the archive's lock, and continues where the last step
ended. So it does not matter which process plans, how many do at once, or when one of them is
killed. Until all portions are stored, no task of the run starts, and no later run of the branch is
planned, so the nearest earlier occurrence of a key does not change. If an edge leads from a task
that changes meanwhile, either the portion that stores the edge sees the change, or the change meets
the stored edge.

Called by the queue manager: by the reader of the archive, which waits for the end before it appends
further revisions, and by a loop for all other runs.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from arkqueue.archive_settings import read_settings
from arkqueue.db.session import Session
from arkqueue.errors import DatabaseUnavailable
from arkqueue.model import Key, TaskId, Trigger, Workflow
from arkqueue.names import name_of
from arkqueue.plan import Draft, next_portion, part_of, plan
from arkqueue.plan.edges import EVERYTHING
from arkqueue.plan.ledger import Place
from arkqueue.queue import ending
from arkqueue.queue.changes import BRIEF, TOO_LONG, change, change_in_turn
from arkqueue.queue.content import Content, bound, items_of_list, workflow_of
from arkqueue.queue.graph import Graph
from arkqueue.queue.storage import occurrence, read, write
from arkqueue.queue.triggering import Part, planned_before
from arkqueue.states import State

log = logging.getLogger("arkqueue")

AT_ONCE: Final = 2_000
"""The most tasks that one transaction lets in."""
CANCELING: Final = 150
"""The most tasks that one transaction lets in if some of them have `cancels`: each cancellation
skips the dependents of its victim, and judges the gates of the victim's list again.
"""
IDLE: Final = 5.0
"""Seconds without a portion after which the loop plans the run of a commit itself: the reader of
the archive has ended.
"""
PAUSE_AFTER_ERROR: Final = 10.0
"""Seconds until the loop tries again to plan a run after an error."""


def finish(session: Session, branch: int, is_wanted: Callable[[], bool]) -> bool:
    """Plan the large run of a branch to its end, or until the run waits for its COMMIT; does
    nothing without a large run. Returns False if it is not wanted any more, or the archive is
    stopped. ``is_wanted`` is called after each portion.
    """
    for row in session.rows("planning_of_branch", branch=branch):
        run, workflow = row.run, None
        while found := session.rows("planning", run=run):
            if found[0].stopped or not is_wanted():
                return False
            if found[0].to_let_in is not None and not found[0].has_commit_settled:
                break  # the loop continues when COMMIT has settled
            if workflow is None:
                workflow = Workflow() if row.is_stored else _workflow(session, found[0])
            change(session, [found[0].archive_id], partial(step, run=run, workflow=workflow))
    return True


class Planner:
    """Plans the runs that no reader plans: runs that a person, a schedule or a backfill made, and
    runs that a killed queue manager left unfinished.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._workflows: dict[int, Workflow] = {}
        """The workflows of the runs that are being planned. Their lists are read once."""

    def turn(self, patience: float = BRIEF) -> float | None:
        """Store one portion of each run. Returns the seconds until there is more to do; None if
        there is nothing. A run that fails, or whose archive is busy, does not hold up the others.
        """
        found = self._session.rows("plannings")
        self._workflows = {run: one for run, one in self._workflows.items() if run in {row.run for row in found}}
        pauses: list[float] = []
        for row in found:
            if row.is_of_commit and row.idle < IDLE and row.run not in self._workflows:
                pauses.append(IDLE)
                continue
            try:
                self._step(row, patience)
            except DatabaseUnavailable as error:
                if not isinstance(error, TOO_LONG):
                    raise
                log.warning("run %s: planning continues later: %s", row.run, error)
                pauses.append(BRIEF)
            except Exception:
                log.exception("run %s: planning failed, and is repeated later", row.run)
                pauses.append(PAUSE_AFTER_ERROR)
            else:
                pauses.append(0.0)
        return min(pauses, default=None)

    def _step(self, row: Any, patience: float) -> None:
        if row.run not in self._workflows:
            if not (found := self._session.rows("planning", run=row.run)):
                return
            self._workflows[row.run] = Workflow() if row.is_stored else _workflow(self._session, found[0])
        work = partial(step, run=row.run, workflow=self._workflows[row.run])
        change_in_turn(self._session, work, archives=[row.archive], patience=patience)


def _workflow(session: Session, row: Any) -> Workflow:
    here = str(name_of(row.archive, row.number, branch=row.branch, main=row.main))
    workflow = workflow_of(session, row.tasks, here, row.files_id)
    workflow = bound(workflow, row.store) if row.store else workflow
    handed = {name: items_of_list(session, digest) for name, digest in row.lists.items()}
    return workflow.with_lists(handed)


def step(graph: Graph, run: int, workflow: Workflow) -> None:
    """Store the next portion of a run, or the next step after the portions. Does nothing if another
    process has ended the planning.
    """
    for row in graph.rows("planning", run=run):
        if row.next < row.items:
            _store(graph, row, workflow)
        elif row.to_let_in is None:
            _follow(graph, row)
        else:
            _let_in(graph, row)


def _store(graph: Graph, row: Any, workflow: Workflow) -> None:
    portion = next_portion(workflow, row.names, row.next)
    trigger = Trigger(row.trigger)
    part = part_of(workflow, row.names, portion)
    reading = read(graph, row.branch_id, [part], row.number, row.run, some=trigger is not Trigger.COMMIT)
    known = reading.known
    planned = plan(
        workflow,
        trigger=trigger,
        branch=row.branch,
        changed=(),
        past=known.past,
        purged=known.purged,
        names=row.names,
        without=row.without,
        portion=portion,
    )
    if row.backfill_id is not None:
        fill = Part(row.backfill_id, row.revision_id, is_first=False, again="")
        before = planned_before(graph, fill, row.branch_id, planned)
        planned, known.others = fill.ordered(planned, before), list(before.values())
    own = {node.key for node in planned.nodes}
    keys = {key for edge in planned.edges for key in edge[:2] if isinstance(key, Key)} - own
    place = {"branch": row.branch_id, "number": row.number, "run": row.run}
    named = {"names": [key.name for key in keys], "items": [key.item for key in keys]}
    stored = graph.rows("stored_of_run", **place, **named)
    known.others = [*known.others, *map(occurrence, stored)]
    draft = Draft(row.branch_id, row.branch, known, reading.ids)
    draft.add_portion(
        planned,
        Place(row.run_id, row.revision_id, row.number, row.run, trigger, row.report_id),
        {Key(task.name, task.item): TaskId(task.id) for task in stored},
        row.hold,
        read_settings(row.settings, row.archive).require_approval,
        row.behind,
    )
    write(graph, row.archive_id, [draft], Content(graph.kept, [replace(workflow, lists={})]))
    graph.do("plan_on", run=row.run_id, next=portion.last)


def _follow(graph: Graph, row: Any) -> None:
    """Follow up what settled while the run was being stored; all portions are stored now."""
    graph.do("begin_to_let_in", run=row.run_id, everything=EVERYTHING)
    if row.gone:
        ending.begin(graph, row.archive_id, [row.run_id], "the end of its branch, which came while it was planned")
    # For a commit, exclusive edges are stored when later revisions are planned. Submissions hold up
    # no later revision (design 5.14).
    closes = row.trigger not in (Trigger.COMMIT, Trigger.SUBMISSION)
    if closes and (exclusives := graph.ids("exclusives_of_run", run=row.run_id)):
        for gate in graph.ids("next_gate", branch=row.branch_id, number=row.number):
            graph.do("add_exclusive_edges", gate=gate, sources=exclusives)
    graph.to_wake |= {"look", "schedule", "backfill"}
    graph.follow(again=graph.ids("settled_beside_planning", run=row.run_id))


def _let_in(graph: Graph, row: Any) -> None:
    """Let the next tasks of a run in, once its COMMIT has settled: all their other waiting reasons
    are over, and their edges from COMMIT are met.

    First come the tasks that may start, then all others behind COMMIT.
    """
    if not row.has_commit_settled:
        return
    has_passed = row.commit_state == State.COMPLETED
    first = row.to_let_in[:AT_ONCE]
    if graph.rows("some_cancel", tasks=first):
        first = first[:CANCELING]
    tasks = first
    if not first and has_passed:
        tasks = graph.ids("behind_commit", commit=row.commit_id, most=AT_ONCE)
    if not tasks:
        graph.do("end_planning", run=row.run_id)
        return
    counts = Counter(first)
    if has_passed:
        counts.update(graph.ids("meet_commit", commit=row.commit_id, tasks=tasks))
    graph.do("let_in_next", run=row.run_id, count=len(first))
    rows = graph.rows("let_in", tasks=list(counts), counts=list(counts.values()))
    graph.follow(
        entering=[row.id for row in rows if not row.is_judged], again=[row.id for row in rows if row.is_judged]
    )
