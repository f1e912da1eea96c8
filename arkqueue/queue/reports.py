"""Reports of runs: what a run has come to, told at one moment and kept (design 5.4, 5.32; docs/decisions/0018).

A run makes its first report by itself, when its REPORT passes, or begins to run its command. Nothing is written then, so that no end of a task costs more for it: as long as nothing of the run
changes, the report is what its tasks say. A verb that is about to change settled tasks calls `keep` first, in its transaction, and `keep` writes the report as it was. So a
crash loses no report, and a run that nobody touches after its end never has a row.

``update_report`` makes a further one, when a person asks for it. Where REPORT has a command, it runs again for that. A command gets its report by `give`, before it begins, and
`close` notes that it was sent.

Locks: the archive, then the row of REPORT, which a claim takes beside the archive's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from arkqueue.db import Connection
from arkqueue.db.session import Session, rows
from arkqueue.errors import Conflict, NotFound
from arkqueue.model import REPORT, RunId, TaskId
from arkqueue.names import run_name
from arkqueue.queue.graph import Graph, change
from arkqueue.queue.guards import Approver, refuse_unapproved
from arkqueue.queue.refusals import refuse_stopped
from arkqueue.states import UNSETTLED, State, run_state

Ask = Callable[..., list[Any]]
"""Runs a named block in the transaction that holds the locks."""


@dataclass(frozen=True, slots=True)
class Made:
    """A report that was written. ``changes``: how many tasks have changed since the report that it is told against; ``is_given``: the command of REPORT gets it."""

    number: int
    changes: int
    is_given: bool = False


def keep(graph: Graph, tasks: Collection[int]) -> None:
    """Write the reports that the runs of some tasks made by themselves, before these tasks change."""
    if not tasks:
        return
    graph.rows("lock_reports", tasks=list(tasks))
    for run in graph.ids("unwritten_reports", tasks=list(tasks)):
        _write(graph.rows, run, None)


def update_report(
    session: Session, run: RunId, by: str, *, now: bool = False, approver: Approver | None = None
) -> Made:
    """Make a report of a run as it is now, with what has changed since the last one that was sent, or without a command since the last one.

    ``now``: also while some of its tasks have not settled. The command of REPORT is run if there are changes.
    """

    def work(graph: Graph) -> Made:
        (place,) = _place(graph, run)
        here = run_name(place)
        (row,) = graph.rows("report_of_run", run=run)
        if place.deleted_at is not None:
            raise Conflict(here, "was deleted", f"arkqueue undelete {here}")
        if row.report is None:
            raise Conflict(here, "has no report: its archive's history begins there")
        keep(graph, [row.report])
        (row,) = graph.rows("report_of_run", run=run)
        if row.unsettled and not now:
            count = f"{row.unsettled} of its tasks {'is' if row.unsettled == 1 else 'are'} not settled"
            raise Conflict(
                here, count, f"Wait for its end, or report what is there: arkqueue report {here} --update --now"
            )
        if row.has_command:
            refuse_unapproved(graph, [row.report], approver)
            _refuse_beside_another(here, row)
        made = _write(graph.rows, run, by)
        if made.is_given:
            refuse_stopped(graph, row.archive_id)
            graph.do("set_updating", run=run, number=made.number)
            graph.do("update_reports", tasks=[row.report], waits=False)
            graph.do("hold_reports", tasks=[row.report])
            graph.follow(entering=[row.report])
        note = f"report {made.number}"
        graph.do("remember", by=by, verb="report", archive=row.archive_id, run=run, task=None, note=note)
        return made

    (found,) = _place(session, run)
    return change(session, [found.archive_id], work)


def _refuse_beside_another(here: str, row: Any) -> None:
    if row.state == State.HELD:
        raise Conflict(f"{here}/{REPORT}", "is held", f"arkqueue release {here}/{REPORT}")
    if row.state in UNSETTLED and not (row.state == State.WAITING and row.unmet):
        raise Conflict(
            here, f"another report runs: {here}/{REPORT} is {row.state}", f"arkqueue logs {here}/{REPORT} -f"
        )


def give(session: Session, report: TaskId) -> tuple[RunId, int | None]:
    """The run and the number of the report that the running command of a REPORT gets (None: the attempt is over, and any will do). From now on nothing of that report changes."""

    def work(connection: Connection) -> tuple[RunId, int | None]:
        ask = partial(rows, connection)
        ask("lock_reports", tasks=[report])
        ((run,),) = ask("runs_of_reports", tasks=[report])
        (row,) = ask("report_of_run", run=run)
        if row.is_unwritten:
            return RunId(run), _write(ask, run, None).number
        return RunId(run), row.updating or row.own

    return session.retrying(work)


def close(graph: Graph, reports: Sequence[int]) -> list[int]:
    """Note which reports were sent by REPORTs whose commands have just ended. Returns those that wait again, as their runs have not made a report by themselves yet."""
    back = []
    for run in graph.ids("runs_of_reports", tasks=list(reports)):
        (row,) = graph.rows("report_of_run", run=run)
        (updating,) = graph.ids("updating", run=run)
        if updating is None and row.is_unwritten:
            _write(graph.rows, run, None)
            (row,) = graph.rows("report_of_run", run=run)
        if row.state == State.COMPLETED:
            graph.do("sent", run=run, number=updating or row.own)
        graph.do("set_updating", run=run, number=None)
        if updating is not None and row.own is None and row.state != State.CANCELED:
            back.append(row.report)
    graph.do("update_reports", tasks=back, waits=True)
    return back


def reopen_after_deletion(graph: Graph, run: int, reports: Sequence[int]) -> list[int]:
    """Let a REPORT that was canceled with its deleted run wait again, unless the run had made its report; returns it."""
    (row,) = graph.rows("report_of_run", run=run)
    if not reports or row.own is not None:
        return []
    graph.do("set_updating", run=run, number=None)
    graph.do("update_reports", tasks=list(reports), waits=True)
    graph.do("hold_reports", tasks=list(reports))
    return list(reports)


def _place(source: Session | Graph, run: int) -> list[Any]:
    if not (found := source.rows("place_of_run", run=run)):
        raise NotFound(f"run {run}", "does not exist")
    return found


def _write(ask: Ask, run: int, by: str | None) -> Made:
    """Write a report of a run. ``by`` None: the one that it made by itself."""
    (row,) = ask("report_of_run", run=run)
    (shown,) = ask("show_runs", runs=[run])
    since = row.sent if row.has_command else row.newest
    # REPORT's own state is no part of what it reports.
    state = run_state(shown._replace(report_state=None))
    told = {"at": row.settled_at, "by": by, "state": state, "since": since, "has_command": row.has_command}
    (written,) = ask("write_report", run=run, **told)
    return Made(written.number, written.changes, written.is_given)
