"""Schedules follow the head of their branch and fire once for each time (design 5.17).

A schedule is a set of tasks that share a cron expression and a time zone. Only the database's clock
counts. The transaction that makes the run also moves the next time on, by compare-and-set, and
stores the fire under a unique key. Times that passed while no queue manager ran become one fire.

A fire that cannot start is stored as a failed run with the reason. A fire makes no run if the last
run has not begun, or if it would fail for the same reason: it is counted on the last run. If a
dependency has another source by now, a new run supersedes the one that has not begun.
"""

from __future__ import annotations

import logging
import random
from collections import defaultdict
from typing import Any

from arkqueue.cron import next_time
from arkqueue.db.session import Session
from arkqueue.errors import ArkqueueError, DatabaseUnavailable
from arkqueue.model import Trigger, Workflow
from arkqueue.plan import matches_branch
from arkqueue.queue.changes import BRIEF, TOO_LONG, change_in_turn
from arkqueue.queue.graph import Graph
from arkqueue.queue.triggering import Proposal, propose, store, store_failed

log = logging.getLogger("arkqueue")

PAUSE_AFTER_ERROR = 10.0
"""Seconds until a fire that failed is repeated."""


def refresh(graph: Graph, branch: int, name: str, main: bool, workflow: Workflow) -> None:
    """Set a branch's schedules to those of its head. Faulty workflow files change nothing: the
    earlier schedules stay.
    """
    if workflow.faults:
        return
    wanted: dict[tuple[str, str], list[str]] = defaultdict(list)
    for task in workflow.tasks:
        here = matches_branch(task.branches, name) if task.branches else main
        if task.schedule and Trigger.SCHEDULE in task.on and here:
            wanted[task.schedule, task.timezone].append(task.name)
    sets = {(cron, zone, tuple(sorted(names))) for (cron, zone), names in wanted.items()}
    present = {(row.cron, row.zone, tuple(row.tasks)): row.id for row in graph.rows("schedules_of", branch=branch)}
    if old := [id for key, id in present.items() if key not in sets]:
        graph.do("drop_schedules", ids=old)
    now = graph.rows("clock")[0].now
    for cron, zone, names in sorted(sets - present.keys()):
        if next_at := next_time(cron, zone, now):
            graph.do("add_schedule", branch=branch, cron=cron, zone=zone, tasks=list(names), next_at=next_at)
            graph.to_wake.add("schedule")


def fire(session: Session, patience: float = BRIEF) -> float | None:
    """Make the runs of the schedules that are due. Returns the seconds until the next one; None if
    there is none.

    A schedule that fails, or whose archive is busy, does not hold up the others.
    """
    failed: list[Any] = []
    busy: list[Any] = []

    def try_to_fire(due: Any, patience: float) -> None:
        try:
            _, left = change_in_turn(
                session, lambda graph: _fire(graph, due), archives=[due.archive_id], patience=patience
            )
            busy.extend([due] if left else [])
        except DatabaseUnavailable as error:
            if not isinstance(error, TOO_LONG):
                raise
            log.warning("schedule %s of branch %s: the fire is repeated later: %s", due.cron, due.branch_id, error)
            failed.append(due)
        except ArkqueueError as error:
            log.warning("branch %s: the fire failed, and is repeated later: %s", due.branch_id, error)
            failed.append(due)
        except Exception:
            log.exception("schedule %s of branch %s: the fire failed, and is repeated later", due.cron, due.branch_id)
            failed.append(due)

    for due in session.rows("due_schedules"):
        try_to_fire(due, 0.0)
    if busy:  # wait a little for one of them; the others come with the next iteration
        try_to_fire(random.choice(busy), patience)
    seconds: float | None = session.rows("next_schedule")[0][0]
    return PAUSE_AFTER_ERROR if failed else seconds


def _fire(graph: Graph, due: Any) -> None:
    if graph.rows("why_stopped", archive=due.archive_id):
        return  # stopped since the schedule was found due
    now = graph.rows("clock")[0].now
    following = next_time(due.cron, due.zone, max(now, due.next_at))
    if not graph.rows("advance_schedule", id=due.id, next_at=following or due.next_at, fired=due.next_at):
        return  # another queue manager was quicker, or the head does not define the schedule any more
    if following is None:
        graph.do("drop_schedules", ids=[due.id])
    key = {"branch": due.branch_id, "cron": due.cron, "zone": due.zone, "tasks": due.tasks, "fire_at": due.next_at}
    if not graph.rows("fired", **key):
        return  # the clock was set back, and this time has fired already
    # Read under the lock: the head may have moved since the schedule was found due.
    (branch,) = graph.rows("head", branch=due.branch_id)
    by = f"schedule {due.cron}"
    last = _last_run(graph, due.run_id)
    try:
        proposal = propose(graph, branch.head_id, Trigger.SCHEDULE, names=due.tasks)
    except DatabaseUnavailable:
        raise
    except ArkqueueError as error:
        reason = f"{error.fault}. {error.remedy}".rstrip(". ")
        is_same = last is not None and (last.reason == reason or not (last.has_ended or last.has_begun))
        run = last.id if is_same else store_failed(graph, branch.head_id, Trigger.SCHEDULE, reason, by)
    else:
        is_same = last is not None and _stands_for(last, proposal)
        # A run that supersedes a held one is held, too: holds are sticky.
        run = last.id if is_same else store(graph, proposal, by, last and last.hold)
        if last is not None and not is_same and not (last.has_ended or last.has_begun):
            graph.follow(graph.ids("supersede_run", run=last.id, by=run))
    graph.do("fired_run", run=run, **key)
    if is_same:
        graph.do("leave_out", run=run, fire_at=due.next_at)
    else:
        graph.do("set_last_run", run=run, id=due.id)


def _last_run(graph: Graph, run: int | None) -> Any:
    """The present state of the last run of a schedule; None if there is none. Its unstarted tasks
    are locked, so that no claim starts them meanwhile.
    """
    if run is None:
        return None
    graph.rows("lock_tasks", tasks=graph.ids("cancelable", runs=[run]))
    return next(iter(graph.rows("last_run_of_schedule", run=run)), None)


def _stands_for(last: Any, proposal: Proposal) -> bool:
    """True if the last run stands for a proposed one: it has not begun, and its dependencies, or
    the cause of its failure, are still the same tasks.
    """
    if last.has_begun or last.reason is not None or set(last.products) != proposal.products:
        return False
    return not last.has_ended or proposal.cannot_start
