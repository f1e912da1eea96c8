"""Deleting runs, and taking that back (design 5.27; docs/decisions/0001, point 25).

A deleted run leaves a tombstone: no list, count or report shows it, and whoever has scope `admin` can read its history. Nothing of it starts, and nothing waits for
its failures. ``run.deleted_tasks`` remembers what the deletion canceled or waived, so that ``undelete_run`` takes back exactly that.
"""

from __future__ import annotations

from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import Conflict, NotFound
from arkqueue.model import RunId, TaskKind
from arkqueue.names import run_name
from arkqueue.queue.control import (
    ask_to_stop,
    judge_again,
    on_run,
    place_of_run,
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
        polled: list[int] = []
        # Locked before they are judged, so that none of them starts meanwhile.
        for task in graph.rows("lock_tasks", tasks=graph.ids("unsettled_of_run", run=run)):
            if task.state == State.RUNNING and task.polls:
                polled.append(task.id)
            elif task.state == State.RUNNING:
                remedy = f"arkqueue cancel {run_name(row)}, and delete it when that has ended"
                raise Conflict(run_name(row), f"cannot be deleted: {task_name_of(graph, task.id)} is running", remedy)
        ask_to_stop(graph, polled, "cancel", by)
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

    found = session.rows("place_of_run", run=run)
    if not found:
        raise NotFound(f"run {run}", "there is none")
    change(session, [found[0].archive_id], work)
