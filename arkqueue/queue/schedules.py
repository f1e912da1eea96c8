"""Schedules follow the head of their branch and fire once for each time (design 5.17).

A schedule is a set of tasks that share a cron expression and a zone. The database's clock alone counts; the next time is moved on by compare-and-set in the
transaction that makes the run, and each fire is remembered under a unique key. Times that passed while everything was down collapse into one fire.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim

from arkqueue.errors import ArkqueueError
from arkqueue.model import Trigger, Workflow
from arkqueue.plan import matches_branch
from arkqueue.queue.door import Queue
from arkqueue.queue.graph import Graph, change


def next_time(cron: str, zone: str, after: datetime) -> datetime:
    """The first time after ``after`` (aware) at which a cron expression fires in its zone."""
    return next(CronSim(cron, after.astimezone(ZoneInfo(zone))))


def refresh(graph: Graph, branch: int, name: str, main: bool, workflow: Workflow) -> None:
    """Make a branch's schedules those of its head. Faulty workflow files change nothing: the schedules before them go on."""
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
        graph.do(
            "add_schedule", branch=branch, cron=cron, zone=zone, tasks=list(names), next_at=next_time(cron, zone, now)
        )


def fire(queue: Queue) -> float | None:
    """Make the runs of the schedules that are due; returns the seconds until the next one (None: there is none)."""
    from arkqueue.queue.planning import trigger

    for due in queue.rows("due_schedules"):

        def work(graph: Graph, due=due) -> None:  # type: ignore[no-untyped-def]
            now = graph.rows("clock")[0].now
            following = next_time(due.cron, due.zone, max(now, due.next_at))
            key = {
                "branch": due.branch_id,
                "cron": due.cron,
                "zone": due.zone,
                "tasks": due.tasks,
                "fire_at": due.next_at,
            }
            if not graph.rows("advance_schedule", id=due.id, next_at=following, fired=due.next_at):
                return
            try:
                with graph.conn.transaction():
                    run = trigger(
                        queue,
                        due.head_id,
                        cause=Trigger.SCHEDULE,
                        names=due.tasks,
                        by=f"schedule {due.cron}",
                        graph=graph,
                    )
                    graph.do("fired", run=run, **key)
            except ArkqueueError as error:
                graph.do("schedule_trouble", id=due.id, trouble=str(error))
                graph.do("fired", run=None, **key)

        change(queue, [due.archive_id], work)
    seconds: float | None = queue.rows("next_schedule")[0][0]
    return seconds
