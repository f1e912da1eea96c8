"""Finds, locks and names the task or run on which a verb acts, inside the verb's transaction, and
refuses tasks and runs on which nobody may act.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import Conflict, NotFound
from arkqueue.model import TaskKind
from arkqueue.names import run_name, task_name, undelete_command
from arkqueue.plan.edges import EVERYTHING
from arkqueue.queue.changes import change
from arkqueue.queue.graph import Graph


def task_name_of(graph: Graph | Session, task: int) -> str:
    """The full name of a task."""
    return task_name(graph.rows("place_of_task", task=task)[0])


def on_task(
    session: Session, task: int, verb: str, by: str, work: Callable[[Graph, Any], None], note: str = ""
) -> None:
    found = session.rows("place_of_task", task=task)
    if not found:
        raise NotFound(f"task {task}", "does not exist")

    def on_graph(graph: Graph) -> None:
        row = locked_task(graph, task)
        work(graph, row)
        graph.do("remember", by=by, verb=verb, archive=row.archive_id, run=row.run_id, task=task, note=note)

    change(session, [found[0].archive_id], on_graph)


def locked_task(graph: Graph, task: int) -> Any:
    """The locked row of a task. Raises if its run or item was deleted, or its run was purged
    meanwhile.
    """
    if not (locked := graph.rows("lock_tasks", tasks=[task])):
        raise NotFound(f"task {task}", "its run was purged")
    (place,) = graph.rows("place_of_task", task=task) or [None]
    if place is None:  # the purge goes on
        raise NotFound(f"task {task}", "its run was purged")
    if place.run_deleted_at is not None or place.deleted:
        fault = f"belongs to {'a run' if place.run_deleted_at is not None else 'an item'} that was deleted"
        raise Conflict(task_name(place), fault, undelete_command(place))
    if graph.uses_lists:
        place_of_run(graph, locked[0].run_id)
    return locked[0]


def place_of_run(graph: Graph, run: int) -> Any:
    """The row of a run, inside the transaction that acts on it. Raises if the run was purged
    meanwhile, or is still being planned.
    """
    if not (found := graph.rows("place_of_run", run=run)):
        raise NotFound(f"run {run}", "was purged")
    refuse_while_planned(found[0])
    return found[0]


def refuse_while_planned(row: Any) -> None:
    """Raise ``Conflict`` if a run is still being planned: none of its tasks has started, and not
    all of them are stored. ``row``: from ``place_of_run``.
    """
    if row.planned is not None:
        fault = (
            f"is still being planned ({row.planned:,} of {row.planned_items:,} items), and nothing of it has started"
        )
        raise Conflict(run_name(row), fault, "Try again when it is planned.")


def refuse_deleted(row: Any) -> None:
    """Raise ``Conflict`` if a run was deleted. ``row``: from ``place_of_run``."""
    if row.deleted_at is not None:
        raise Conflict(run_name(row), "was deleted", f"arkqueue undelete {shlex.quote(run_name(row))}")


def archive_of_run(session: Session, run: int) -> int:
    """The archive of a run; raises ``NotFound`` if the run does not exist."""
    found = session.rows("place_of_run", run=run)
    if not found:
        raise NotFound(f"run {run}", "does not exist")
    return int(found[0].archive_id)


def on_run(session: Session, run: int, verb: str, by: str, work: Callable[[Graph, Any], None], note: str = "") -> int:
    """Act on a run in a transaction of its own, with an audit log entry. Returns the run's archive."""
    archive = archive_of_run(session, run)

    def on_graph(graph: Graph) -> None:
        row = place_of_run(graph, run)
        work(graph, row)
        graph.do("remember", by=by, verb=verb, archive=row.archive_id, run=run, task=None, note=note)

    change(session, [archive], on_graph)
    return archive


def refuse_implicit(graph: Graph, row: Any, what: str) -> None:
    """Raise ``Conflict`` if a task is in no workflow file: COMMIT, REPORT or a gate."""
    if row.kind == TaskKind.ORDINARY:
        return
    run = run_name(graph.rows("place_of_task", task=row.id)[0])
    if row.kind == TaskKind.GATE:
        name, is_list = row.name.partition(":")[0], not row.name.startswith(EVERYTHING)
        whose = f"is the gate of the list {name}" if is_list else "is a gate"
        remedy = f"run its list again: arkqueue retry {shlex.quote(run)} --from {name}" if is_list else ""
        raise Conflict(row.name, f"{whose}: it passes by itself and cannot be {what}", remedy)
    remedy = _OF_REPORT.get(what, "") if row.kind == TaskKind.REPORT else ""
    raise Conflict(row.name, f"exists in every run and cannot be {what}", remedy.replace("RUN", shlex.quote(run)))


_SEND = "send a further report: arkqueue report RUN --update"
_STOP = "to stop it, delete its run: arkqueue delete RUN; in later revisions, a 'deadline' ends a REPORT that stays deferred"
_OF_REPORT = {"retried": _SEND, "restarted": _SEND, "canceled": _STOP, "skipped": _STOP}
"""The remedies for verbs that are refused on `REPORT`."""
