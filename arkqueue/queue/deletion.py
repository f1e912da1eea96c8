"""Deleting runs and items, and taking that back (design 5.27; docs/decisions/0001, point 25).

A deleted run leaves a tombstone: no list, count or report shows it, and whoever has scope `admin` can read its history. Nothing of it starts, and nothing waits for
its failures. ``run.deleted_tasks`` remembers what the deletion canceled or waived, so that ``undelete_run`` takes back exactly that.

A deleted item is the same inside a run that goes on: its tasks say ``deleted``, which whoever shows or counts tasks leaves out, and ``deleted_item.tasks`` remembers what was
canceled or waived. What waited for the item inside its run goes on, as if the list had never had it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import Conflict, NotFound
from arkqueue.model import RunId, TaskKind
from arkqueue.names import item_name, run_name
from arkqueue.queue.control import (
    archive_of_run,
    ask_to_stop,
    judge_again,
    judge_candidates,
    on_run,
    place_of_run,
    refuse_outdated,
    refuse_to_let_go_on,
    reopen,
    task_name_of,
    unjudged,
)
from arkqueue.queue.graph import Graph, change
from arkqueue.queue.guards import Approver, hold_again, refuse_unapproved
from arkqueue.queue.reports import keep, reopen_after_deletion
from arkqueue.states import State


def delete_run(session: Session, run: RunId, by: str, approver: Approver | None = None) -> None:
    """Leave a tombstone in place of a run of which nothing runs: its unsettled tasks are canceled, and nothing waits for its failures any more. A live poll is
    asked to stop, and keeps what it finds before that (design 5.29).

    Its COMMIT goes on, as after a cancellation: later revisions still come after it. So does its REPORT, unless it has a command.
    """

    def work(graph: Graph, row: Any) -> None:
        refuse_unapproved(graph, graph.ids("tasks_of_run", runs=[run]), approver)
        if row.deleted_at is not None:
            raise Conflict(run_name(row), "is deleted already")
        polled = _stop_polls(graph, run_name(row), graph.ids("unsettled_of_run", run=run), by)
        keep(graph, graph.ids("settled_of_run", run=run))
        # A deleted run sends no report.
        tasks = [*graph.ids("cancelable", runs=[run]), *graph.ids("report_to_cancel", run=run)]
        canceled = graph.ids("cancel", tasks=tasks, by=by)
        waived = graph.ids("waive_run", run=run)
        graph.do("delete_run", run=run, by=by, tasks=[*canceled, *waived, *polled])
        graph.follow(canceled, again=[*waived, *graph.ids("skipped_because_of", roots=waived)])
        refuse_to_let_go_on(graph, row.archive_id)

    on_run(session, run, "delete", by, work)


def undelete_run(session: Session, run: RunId, by: str, approver: Approver | None = None) -> None:
    """Take the tombstone of a run away: what its deletion canceled comes back as held, and what it waived counts as failed again.

    What has gone on meanwhile because of the deletion stays as it is.
    """

    def work(graph: Graph) -> None:
        row = place_of_run(graph, run)
        refuse_unapproved(graph, graph.ids("tasks_of_run", runs=[run]), approver)
        if row.deleted_at is None:
            raise Conflict(run_name(row), "is not deleted")
        keep(graph, graph.ids("settled_of_run", run=run))
        graph.do("undelete_run", run=run)
        locked = graph.rows("lock_tasks", tasks=row.deleted_tasks or [])
        back = [task.id for task in locked if task.state == State.CANCELED and task.kind != TaskKind.REPORT]
        reports = [task.id for task in locked if task.state == State.CANCELED and task.kind == TaskKind.REPORT]
        unwaived = graph.ids("unwaive", tasks=[task.id for task in locked])
        reopened, staying = judge_again(graph, [*back, *graph.ids("stale_roots", run=run)])
        graph.ids("retry", tasks=back)
        targets = reopen(graph, [*back, *reopened], reopened)
        (entry,) = graph.ids("remember", by=by, verb="undelete", archive=row.archive_id, run=run, task=None, note="")
        back += reopened
        graph.do("hold_undeleted", tasks=back, run=run, hold=entry)
        hold_again(graph, back, reopened)
        waiting = reopen_after_deletion(graph, run, reports)
        # What settled while the run was deleted was not judged for what comes back now.
        settled = graph.ids("settled_of_run", run=run) if back else []
        graph.follow(
            entering=[*back, *waiting], again=[*back, *staying, *targets, *unjudged(graph, back), *settled, *unwaived]
        )
        refuse_to_let_go_on(graph, row.archive_id)

    change(session, [archive_of_run(session, run)], work)


def delete_item(session: Session, run: RunId, item: str, by: str, approver: Approver | None = None) -> None:
    """Leave a tombstone in place of an item of which nothing runs: its unsettled tasks are canceled, and nothing waits for its failures any more.

    A task that was skipped inside the run because of the item comes back. Such a task stays skipped where it would replace the work of later revisions (design 5.19).
    """

    def work(graph: Graph) -> None:
        row, here, tasks = _item(graph, run, item)
        if graph.rows("tombstone_of_item", run=run, item=item):
            raise Conflict(here, "is deleted already")
        refuse_unapproved(graph, tasks, approver)
        polled = _stop_polls(graph, here, tasks, by)
        keep(graph, tasks)
        canceled = graph.ids("cancel", tasks=sorted({*tasks} - {*polled}), by=by)
        waived = graph.ids("waive_item", tasks=tasks)
        graph.do("delete_item", run=run, item=item, by=by, tasks=[*canceled, *waived, *polled])
        graph.do("remember", by=by, verb="delete", archive=row.archive_id, run=run, task=None, note=here)
        elsewhere = graph.ids("skipped_because_of", roots=waived)
        reopened, again = _let_go_on(graph, run, tasks)
        left = graph.rows("leave_item", tasks=tasks)
        again += [*waived, *elsewhere, *(task.id for task in left if task.is_settled)]
        graph.follow(canceled, entering=[*reopened, *(task.id for task in left if not task.is_settled)], again=again)
        refuse_to_let_go_on(graph, row.archive_id)

    change(session, [archive_of_run(session, run)], work)


def _let_go_on(graph: Graph, run: RunId, tasks: Sequence[int]) -> tuple[list[int], list[int]]:
    """Take back to waiting what was skipped inside a run because of the tasks of a deleted item; returns this, and what is to be judged again with it."""
    behind = graph.ids("skipped_behind", run=run, roots=list(tasks))
    reopened, staying = judge_candidates(graph, tasks, behind)
    if reopened:
        (first,) = graph.rows("lock_tasks", tasks=reopened[:1])
        try:
            refuse_outdated(graph, first, reopened, "")
        except Conflict:
            return [], staying
    targets = reopen(graph, reopened, reopened)
    hold_again(graph, reopened, reopened)
    return reopened, [*reopened, *staying, *targets, *unjudged(graph, reopened)]


def undelete_item(session: Session, run: RunId, item: str, by: str, approver: Approver | None = None) -> None:
    """Take the tombstone of an item away: what its deletion canceled comes back as held, and what it waived counts as failed again.

    A task that has started because of the deletion goes on. One that still waits for all items of the list waits for this one again.
    """

    def work(graph: Graph) -> None:
        row, here, tasks = _item(graph, run, item)
        if not (found := graph.rows("tombstone_of_item", run=run, item=item)):
            raise Conflict(here, "is not deleted")
        refuse_unapproved(graph, tasks, approver)
        keep(graph, tasks)
        graph.do("undelete_item", run=run, item=item)
        locked = graph.rows("lock_tasks", tasks=tasks)
        took = {*found[0].tasks}
        back = [task.id for task in locked if task.id in took and task.state == State.CANCELED]
        unwaived = graph.ids("unwaive", tasks=sorted(took))
        reopened, staying = judge_again(graph, [*back, *graph.ids("stale_roots_of", tasks=tasks)])
        bad = [task.id for task in locked if task.state in _BAD and task.id not in {*back, *reopened}]
        graph.rows("lock_ready_targets", sources=bad)
        targets = graph.ids("unmeet", sources=bad)
        graph.ids("retry", tasks=back)
        targets += reopen(graph, [*back, *reopened], reopened)
        note = {"by": by, "verb": "undelete", "archive": row.archive_id, "run": run, "task": None, "note": here}
        (entry,) = graph.ids("remember", **note)
        of_item = {*tasks}
        back += reopened
        graph.do("hold_undeleted", tasks=[task for task in back if task in of_item], run=run, hold=entry)
        hold_again(graph, back, reopened)
        # What settled while the item was deleted was not judged for what comes back now.
        settled = graph.ids("settled_before", tasks=back)
        graph.follow(entering=back, again=[*back, *staying, *targets, *bad, *settled, *unwaived])
        refuse_to_let_go_on(graph, row.archive_id)

    change(session, [archive_of_run(session, run)], work)


_BAD = frozenset({State.FAILED, State.REJECTED, State.CANCELED, State.SKIPPED})
"""States in which a task keeps others from going on."""


def _item(graph: Graph, run: RunId, item: str) -> tuple[Any, str, list[int]]:
    """The place of a run, the name of an item of it, and the item's tasks; raises where there is no such item, or the run was deleted."""
    row = place_of_run(graph, run)
    tasks = graph.ids("item_of_run", run=run, item=item)
    if row.deleted_at is not None:
        raise Conflict(run_name(row), "was deleted", f"arkqueue undelete {run_name(row)}")
    if not tasks:
        raise NotFound(item_name(row, item), f"{run_name(row)} has no item {item!r}")
    return row, item_name(row, item), tasks


def _stop_polls(graph: Graph, here: str, tasks: Sequence[int], by: str) -> list[int]:
    """Ask the live polls of what is to be deleted to stop; returns their tasks. Raises where a command runs. All are locked before they are judged, so that none of them starts meanwhile."""
    polled: list[int] = []
    for task in graph.rows("lock_tasks", tasks=list(tasks)):
        if task.state == State.RUNNING and task.polls:
            if not task.deleted:
                polled.append(task.id)
        elif task.state == State.RUNNING:
            remedy = f"arkqueue cancel {shlex.quote(here)}, and delete it when that has ended"
            raise Conflict(here, f"cannot be deleted: {task_name_of(graph, task.id)} is running", remedy)
    ask_to_stop(graph, polled, "cancel", by)
    return polled
