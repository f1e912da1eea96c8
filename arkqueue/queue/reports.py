"""Reports of runs: what a run has come to, told at one moment and kept (design 5.4, 5.32; docs/decisions/0018).

A run makes its first report by itself, when its REPORT passes. Nothing is written then, so that no end of a task costs more for it: as long as nothing of the run
changes, the report is what its tasks say. A verb that is about to change settled tasks calls `keep` first, in its transaction, and `keep` writes the report as it was. So a
crash loses no report, and a run that nobody touches after its end never has a row.

``update_report`` makes a further one, when a person asks for it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import Conflict, NotFound
from arkqueue.model import RunId
from arkqueue.names import run_name
from arkqueue.queue.graph import Graph, change
from arkqueue.states import run_state


@dataclass(frozen=True, slots=True)
class Made:
    """A report that was written. ``changes``: how many tasks have changed since the report before it."""

    number: int
    changes: int


def keep(graph: Graph, tasks: Collection[int]) -> None:
    """Write the reports that the runs of some tasks made by themselves, before these tasks change."""
    for run in graph.ids("unwritten_reports", tasks=list(tasks)) if tasks else ():
        (row,) = graph.rows("report_of_run", run=run)
        _write(graph, row, None)


def update_report(session: Session, run: RunId, by: str, *, now: bool = False) -> Made:
    """Make a report of a run as it is now, with what has changed since the last one. ``now``: also while some of its tasks have not settled."""

    def work(graph: Graph) -> Made:
        (place,) = _place(graph, run)
        here = run_name(place)
        (row,) = graph.rows("report_of_run", run=run)
        if place.deleted_at is not None:
            raise Conflict(here, "was deleted", f"arkqueue undelete {here}")
        if row.report is None:
            raise Conflict(here, "has no report: its archive's history begins there")
        if row.unsettled and not now:
            count = f"{row.unsettled} of its tasks {'is' if row.unsettled == 1 else 'are'} not settled"
            raise Conflict(
                here, count, f"Wait for its end, or report what is there: arkqueue report {here} --update --now"
            )
        if row.is_unwritten:
            _write(graph, row, None)
            (row,) = graph.rows("report_of_run", run=run)
        made = _write(graph, row, by)
        graph.do(
            "remember", by=by, verb="report", archive=row.archive_id, run=run, task=None, note=f"report {made.number}"
        )
        return made

    (found,) = _place(session, run)
    return change(session, [found.archive_id], work)


def _place(source: Session | Graph, run: int) -> list[Any]:
    if not (found := source.rows("place_of_run", run=run)):
        raise NotFound(f"run {run}", "there is none")
    return found


def _write(graph: Graph, row: Any, by: str | None) -> Made:
    """Write a report of a run. ``row``: of ``report_of_run``."""
    (shown,) = graph.rows("show_runs", runs=[row.id])
    told = {"at": row.settled_at, "by": by, "state": run_state(shown), "since": row.newest}
    (written,) = graph.rows("write_report", run=row.id, **told)
    return Made(written.number, written.changes)
