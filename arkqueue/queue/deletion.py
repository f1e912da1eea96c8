"""Deletes runs and items, and undeletes them (design 5.27; docs/decisions/0001, point 25).

A deleted run leaves a tombstone: no list, count or report shows it, and a token with scope `admin`
can read its history. None of its tasks starts, and nothing waits for its failures.
``run.deleted_tasks`` stores which tasks the deletion canceled or waived, so that ``undelete_run``
restores exactly these.

A deleted item is a tombstone inside a run that goes on. Its tasks are marked ``deleted``, and every
list and count leaves them out; ``deleted_item.tasks`` stores which of them were canceled or waived.
Tasks that waited for the item inside its run go on, as if the list had never had the item.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import Conflict, NotFound
from arkqueue.model import REPORT, RunId, TaskKind
from arkqueue.names import item_name, run_name
from arkqueue.queue.changes import change
from arkqueue.queue.control import ask_to_stop, in_portions
from arkqueue.queue.done import MOST_TASKS, Done
from arkqueue.queue.graph import Graph
from arkqueue.queue.guards import Approver, hold_again, refuse_unapproved
from arkqueue.queue.places import archive_of_run, on_run, place_of_run, refuse_deleted, task_name_of
from arkqueue.queue.reopening import (
    judge_again,
    judge_candidates,
    refuse_outdated,
    refuse_to_let_go_on,
    reopen,
    stand_alone,
    unjudged,
)
from arkqueue.queue.reports import keep, keep_ahead, reopen_after_deletion
from arkqueue.queue.steps import last_first, set_aside
from arkqueue.states import State


def delete_run(session: Session, run: RunId, by: str, approver: Approver | None = None) -> None:
    """Leave a tombstone in place of a run without running tasks: its unsettled tasks are canceled,
    and nothing waits for its failures any more. A live poll is asked to stop; its result before
    that is kept (design 5.29).

    The run's COMMIT goes on, as after a cancellation: later revisions still come after it. So does
    its REPORT, unless the REPORT has a command.
    """

    def work(graph: Graph, row: Any) -> None:
        guarded = [*graph.ids("tasks_of_run", runs=[run]), *graph.ids("report_to_cancel", run=run)]
        refuse_unapproved(graph, guarded, approver)
        if row.deleted_at is not None:
            raise Conflict(run_name(row), "is deleted already")
        polled = _stop_polls(graph, run_name(row), graph.ids("unsettled_of_run", run=run), by)
        keep(graph, graph.ids("settled_of_run", run=run))
        # A deleted run sends no report.
        tasks = [*graph.ids("cancelable", runs=[run]), *graph.ids("report_to_cancel", run=run)]
        canceled = graph.ids("cancel", tasks=tasks, by=by)
        waived = graph.ids("waive_run", run=run)
        graph.do("delete_run", run=run, by=by, tasks=[*canceled, *waived, *polled])
        again = [*waived, *graph.ids("skipped_because_of", roots=waived), *_roots_by_deletion(graph, run)]
        graph.follow(canceled, again=again)
        refuse_to_let_go_on(graph, row.archive_id)

    if _guarded_in_steps(session, run, approver):
        _delete_in_steps(session, run, by)
    else:
        on_run(session, run, "delete", by, work)


def _guarded_in_steps(session: Session, run: RunId, approver: Approver | None) -> bool:
    """True if a run is so large that it is deleted and undeleted in steps. Raises if one of its tasks is guarded."""
    tasks = [row.id for row in session.rows("tasks_of_run", runs=[run])]
    if is_large := len(tasks) > MOST_TASKS:
        refuse_unapproved(session, [*tasks, *(row.id for row in session.rows("report_to_cancel", run=run))], approver)
    return is_large


def _delete_in_steps(session: Session, run: RunId, by: str) -> None:
    """Cancel and waive the tasks of a large run in several transactions (`steps`), then leave its
    tombstone. Until then the run exists, its tasks are held or canceled, and ``deleted_tasks`` has
    all tasks that the deletion may cancel or waive.

    Refused if a task of the run runs. A task that starts while the others are being held is asked
    to stop, and has to end before the tombstone is left.
    """

    def begin(graph: Graph) -> int:
        row = place_of_run(graph, run)
        if row.deleted_at is not None:
            raise Conflict(run_name(row), "is deleted already")
        polled = _stop_polls(graph, run_name(row), graph.ids("running_of_run", run=run), by)
        note = "in steps; tasks that it has not reached are held, and a repeated delete continues"
        (entry,) = graph.ids("remember", by=by, verb="delete", archive=row.archive_id, run=run, task=None, note=note)
        keep(graph, [row.report_id])
        reports = graph.ids("cancel", tasks=graph.ids("report_to_cancel", run=run), by=by)
        # All tasks that may be canceled or waived, stored once: each step would otherwise write the
        # whole list again. Undelete leaves alone those that ended otherwise.
        left = [*graph.ids("cancelable", runs=[run]), *graph.ids("bad_of_run", run=run)]
        graph.do("delete_further", run=run, tasks=[*polled, *reports, *left])
        return entry

    def stop(graph: Graph, running: Sequence[int]) -> None:
        if running:
            ask_to_stop(graph, running, "cancel", by)
            graph.do("delete_further", run=run, tasks=list(running))

    def act(graph: Graph, tasks: Sequence[int]) -> Done:
        (row,) = graph.rows("place_of_run", run=run) or [None]
        if row is None or row.deleted_at is not None:
            return Done(left=len(tasks))
        keep(graph, [row.report_id])
        stop(graph, [task.id for task in graph.rows("lock_tasks", tasks=list(tasks)) if task.state == State.RUNNING])
        canceled = graph.ids("cancel", tasks=list(tasks), by=by)
        waived = graph.ids("waive_item", tasks=list(tasks))
        graph.do("forget_set_aside", tasks=canceled)
        graph.follow(canceled, again=[*waived, *graph.ids("skipped_because_of", roots=waived)])
        refuse_to_let_go_on(graph, row.archive_id)
        return Done([*canceled, *waived])

    def end(graph: Graph) -> None:
        row = place_of_run(graph, run)
        if row.deleted_at is not None:
            return  # another command has deleted it meanwhile
        for task in graph.rows("lock_tasks", tasks=graph.ids("running_of_run", run=run)):
            if not task.polls:
                fault = f"cannot be deleted yet: {task_name_of(graph, task.id)} started meanwhile, and is being stopped"
                raise Conflict(run_name(row), fault, f"Repeat when it has ended: arkqueue delete {run_name(row)}")
        late = [*graph.ids("cancelable", runs=[run]), *graph.ids("bad_of_run", run=run)]
        act(graph, late)
        graph.do("delete_run", run=run, by=by, tasks=late)
        graph.follow(again=_roots_by_deletion(graph, run))
        refuse_to_let_go_on(graph, row.archive_id)

    archive = archive_of_run(session, run)
    keep_ahead(session, run)
    entry = change(session, [archive], begin)
    set_aside(session, archive, [run], entry, stop)
    tasks = [row.id for block in ("cancelable", "bad_of_run") for row in session.rows(block, run=run, runs=[run])]
    done = Done()
    in_portions(session, archive, done, last_first(session, run, tasks), act)
    if not session.is_over:
        keep_ahead(session, run)
        change(session, [archive], end)


def undelete_run(session: Session, run: RunId, by: str, approver: Approver | None = None) -> None:
    """Remove the tombstone of a run: the tasks that its deletion canceled come back as held, and
    the failures that it waived count again.

    Work that went on meanwhile because of the deletion stays as it is. A large run takes several
    transactions: first its tombstone is removed, then its tasks come back, each after its
    dependencies. After a crash, the same command, given again, continues.
    """
    is_large = _guarded_in_steps(session, run, approver)
    took: list[int] = []

    def begin(graph: Graph) -> int:
        row = place_of_run(graph, run)
        if not is_large:
            refuse_unapproved(graph, graph.ids("tasks_of_run", runs=[run]), approver)
        (deletion,) = graph.rows("tasks_of_deletion", run=run)
        if row.deleted_at is None and deletion.tasks is None:
            raise Conflict(run_name(row), "is not deleted")
        keep(graph, [row.report_id])
        roots = _roots_by_deletion(graph, run)
        graph.do("begin_to_undelete", run=run)
        note = "in steps; a repeated undelete continues" if is_large else ""
        (entry,) = graph.ids("remember", by=by, verb="undelete", archive=row.archive_id, run=run, task=None, note=note)
        took[:] = sorted({*(deletion.tasks or ())})
        reopened, staying = judge_again(graph, [*graph.ids("stale_roots", run=run), *roots])
        targets = reopen(graph, reopened, reopened)
        _come_back(graph, run, entry, reopened, reopened, [*staying, *targets, *roots])
        if not is_large:
            act(graph, took, entry)
            end(graph)
        return entry

    def act(graph: Graph, tasks: Sequence[int], entry: int) -> Done:
        (row,) = graph.rows("place_of_run", run=run) or [None]
        if row is None or row.deleted_at is not None:
            return Done(left=len(tasks))
        locked = graph.rows("lock_tasks", tasks=list(tasks))
        back = [task.id for task in locked if task.state == State.CANCELED and task.kind != TaskKind.REPORT]
        unwaived = graph.ids("unwaive", tasks=[task.id for task in locked])
        reopened, staying = judge_again(graph, back)
        graph.ids("retry_and_hold", tasks=back, hold=entry)
        targets = reopen(graph, [*back, *reopened], reopened)
        _come_back(graph, run, entry, [*back, *reopened], reopened, [*staying, *targets, *unwaived])
        return Done(back)

    def end(graph: Graph) -> None:
        row = place_of_run(graph, run)
        if row.deleted_at is None:
            locked = graph.rows("lock_tasks", tasks=[task for task in [row.report_id] if task in {*took}])
            reports = [task.id for task in locked if task.state == State.CANCELED]
            graph.do("undelete_run", run=run)
            graph.follow(entering=reopen_after_deletion(graph, run, reports))

    archive = archive_of_run(session, run)
    if is_large:
        keep_ahead(session, run)
    entry = change(session, [archive], begin)
    if is_large:
        done = Done()
        # Each gate of a long list comes back in a transaction of its own.
        alone = {row.id for row in session.rows("roots_of_gates", run=run)}
        order = last_first(session, run, took)[::-1]
        in_portions(session, archive, done, order, partial(act, entry=entry), alone)
        if not done.left:
            change(session, [archive], end)


def _come_back(
    graph: Graph, run: RunId, entry: int, back: Sequence[int], reopened: Sequence[int], again: Sequence[int]
) -> None:
    """Hold the tasks that come back with a run, and follow up. Tasks that settled while the run was
    deleted were not judged for it. ``reopened``: tasks that had been skipped because of other tasks
    of the run.
    """
    graph.do("hold_undeleted", tasks=list(back), run=run, hold=entry)
    hold_again(graph, back, reopened)
    settled = graph.ids("settled_before", tasks=list(back)) if back else []
    graph.follow(entering=back, again=[*back, *again, *unjudged(graph, back), *settled])
    for archive in graph.archives:
        refuse_to_let_go_on(graph, archive)


def delete_item(session: Session, run: RunId, item: str, by: str, approver: Approver | None = None) -> None:
    """Leave a tombstone in place of an item without running tasks: its unsettled tasks are
    canceled, and nothing waits for its failures any more.

    A task that was skipped inside the run because of the item comes back, unless it would replace
    the work of later revisions (design 5.19).
    """
    change(session, [archive_of_run(session, run)], lambda graph: delete_items(graph, run, [item], by, approver))


def delete_items(graph: Graph, run: RunId, items: Sequence[str], by: str, approver: Approver | None) -> None:
    """Leave tombstones in place of items, like `delete_item`. Raises if one of them is refused; also
    if one of several would bring a task back that `delete_item` leaves skipped.
    """
    row, here, found = _items(graph, run, items)
    if any(task.deleted for task in found):
        raise Conflict(here, "is deleted already")
    tasks = [task.id for task in found]
    refuse_unapproved(graph, tasks, approver)
    polled = _stop_polls(graph, here, tasks, by)
    keep(graph, tasks)
    canceled = graph.ids("cancel", tasks=sorted({*tasks} - {*polled}), by=by)
    waived = graph.ids("waive_item", tasks=tasks)
    graph.do("delete_items", run=run, items=items, by=by, tasks=[*canceled, *waived, *polled])
    notes = [item_name(row, item) for item in items]
    graph.do("remember_each", by=by, verb="delete", archive=row.archive_id, run=run, notes=notes)
    elsewhere = graph.ids("skipped_because_of", roots=waived)
    reopened, again = _let_go_on(graph, run, tasks, must=len(items) > 1)
    alone = [*stand_alone(graph, tasks), *_roots_by_deletion(graph, run, items)]
    left = graph.rows("leave_item", tasks=tasks)
    again += [*waived, *elsewhere, *alone, *(task.id for task in left if task.is_settled)]
    graph.follow(canceled, entering=[*reopened, *(task.id for task in left if not task.is_settled)], again=again)
    refuse_to_let_go_on(graph, row.archive_id)


def _let_go_on(graph: Graph, run: RunId, tasks: Sequence[int], *, must: bool) -> tuple[list[int], list[int]]:
    """Set tasks of a run back to waiting that were skipped because of the tasks of deleted items.
    Returns these tasks, and the tasks to evaluate again with them. ``must``: raise ``Conflict`` if
    one of them would replace the work of later revisions, instead of leaving them skipped.
    """
    behind = graph.ids("skipped_behind", run=run, roots=list(tasks))
    reopened, staying = judge_candidates(graph, tasks, behind)
    if reopened:
        (first,) = graph.rows("lock_tasks", tasks=reopened[:1])
        try:
            refuse_outdated(graph, first, reopened, "")
        except Conflict:
            if must:
                raise
            return [], staying
    targets = reopen(graph, reopened, reopened)
    hold_again(graph, reopened, reopened)
    return reopened, [*reopened, *staying, *targets, *unjudged(graph, reopened)]


def undelete_item(session: Session, run: RunId, item: str, by: str, approver: Approver | None = None) -> None:
    """Remove the tombstone of an item: the tasks that its deletion canceled come back as held, and
    the failures that it waived count again.

    A task that has started because of the deletion goes on. A task that still waits for all items
    of the list waits for this item again.
    """

    def work(graph: Graph) -> None:
        row, here, rows = _items(graph, run, [item])
        tasks = [task.id for task in rows]
        if not (found := graph.rows("tombstone_of_item", run=run, item=item)):
            raise Conflict(here, "is not deleted")
        refuse_unapproved(graph, tasks, approver)
        keep(graph, tasks)
        roots = _roots_by_deletion(graph, run, [item])
        graph.do("undelete_item", run=run, item=item)
        locked = graph.rows("lock_tasks", tasks=tasks)
        took = {*found[0].tasks}
        back = [task.id for task in locked if task.id in took and task.state == State.CANCELED]
        unwaived = graph.ids("unwaive", tasks=sorted(took))
        reopened, staying = judge_again(graph, [*back, *graph.ids("stale_roots_of", tasks=tasks), *roots])
        bad = [task.id for task in locked if task.state in _BAD and task.id not in {*back, *reopened}]
        graph.rows("lock_ready_targets", sources=bad)
        targets = graph.ids("unmeet", sources=bad)
        graph.ids("retry", tasks=back, counts=False)
        targets += reopen(graph, [*back, *reopened], reopened)
        note = {"by": by, "verb": "undelete", "archive": row.archive_id, "run": run, "task": None, "note": here}
        (entry,) = graph.ids("remember", **note)
        of_item = {*tasks}
        back += reopened
        graph.do("hold_undeleted", tasks=[task for task in back if task in of_item], run=run, hold=entry)
        hold_again(graph, back, reopened)
        # Tasks that settled while the item was deleted have
        # not met or skipped the tasks that come back now.
        settled = graph.ids("settled_before", tasks=back)
        graph.follow(entering=back, again=[*back, *staying, *targets, *bad, *settled, *unwaived])
        refuse_to_let_go_on(graph, row.archive_id)

    change(session, [archive_of_run(session, run)], work)


_BAD = frozenset({State.FAILED, State.REJECTED, State.CANCELED, State.SKIPPED})
"""States of a task that does not meet the edges of its dependents inside its run."""


def _roots_by_deletion(graph: Graph, run: RunId, items: Sequence[str] | None = None) -> list[int]:
    """The skipped tasks of a deleted run, or of deleted items, whose product is lost by the deletion
    (design 5.18): without it, they would have come back with the task because of which they were
    skipped.
    """
    return graph.ids("roots_by_deletion", run=run, items=items)


def _items(graph: Graph, run: RunId, items: Sequence[str]) -> tuple[Any, str, list[Any]]:
    """The place of a run, the name of the first of some items of the run, and the items' tasks.
    Raises if an item does not exist, or the run was deleted.
    """
    row = place_of_run(graph, run)
    tasks = graph.rows("items_of_run", run=run, items=list(items))
    refuse_deleted(row)
    for item in {*items} - {task.item for task in tasks}:
        raise NotFound(item_name(row, item), f"{run_name(row)} has no item {item!r}")
    return row, item_name(row, items[0]), tasks


def _stop_polls(graph: Graph, here: str, tasks: Sequence[int], by: str) -> list[int]:
    """Ask the live polls among the tasks of a run or item to stop, and return these tasks. Raises
    if a command runs. All tasks are locked before they are judged, so none starts meanwhile.
    """
    polled: list[int] = []
    for task in graph.rows("lock_tasks", tasks=list(tasks)):
        if task.state == State.RUNNING and task.polls:
            if not task.deleted:
                polled.append(task.id)
        elif task.state == State.RUNNING:
            remedy = f"arkqueue cancel {shlex.quote(here)}, and delete it when the task has ended"
            if task.kind == TaskKind.REPORT:  # nothing cancels it
                remedy = f"Wait for its end: arkqueue logs {here}/{REPORT} -f"
            raise Conflict(here, f"cannot be deleted: {task_name_of(graph, task.id)} is running", remedy)
    ask_to_stop(graph, polled, "cancel", by)
    return polled
