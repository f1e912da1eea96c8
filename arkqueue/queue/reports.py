"""Reports of runs: the outcomes of all tasks of a run at one moment, stored for ever (design 5.4,
5.32; docs/decisions/0018).

A run makes its first report by itself when its REPORT passes, or begins to run its command. Nothing
is written at that moment, so that the end of a task takes no longer. The report can be computed
from the tasks as long as none of them changes. A verb that is about to change settled tasks first
calls `keep` in its transaction, and `keep` writes the report. So a crash loses no report, and a run
that does not change after its end never has a row.

``update_report`` makes a further report, when a person asks for it. If REPORT has a command, the
command runs again. It gets its report by `give` before it begins, and `close` notes that the report
was sent.

Locks: the archive, then the row of REPORT, which a claim locks without the archive's lock.
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
from arkqueue.queue.changes import change
from arkqueue.queue.graph import Graph
from arkqueue.queue.guards import Approver, refuse_unapproved
from arkqueue.queue.refusals import refuse_stopped
from arkqueue.states import UNSETTLED, State, run_state

Ask = Callable[..., list[Any]]
"""Runs a named block in the transaction that holds the locks."""


@dataclass(frozen=True, slots=True)
class Made:
    """A report that was written. ``changes``: the number of tasks that changed since the report
    with which it is compared. ``is_given``: True if REPORT's command gets it.
    """

    number: int
    changes: int
    is_given: bool = False


def keep(graph: Graph, tasks: Collection[int]) -> None:
    """Write the reports that the runs of some tasks made by themselves, before these tasks change."""
    if tasks:
        _write_unwritten(graph.rows, tasks)


def keep_ahead(session: Session, run: RunId) -> None:
    """Like `keep`, for a large run, before its archive is locked, because writing the report of many
    tasks takes long. Whoever changes one of these tasks calls `keep` first, and waits there for the lock of REPORT's row.
    """

    def work(connection: Connection) -> None:
        ask = partial(rows, connection)
        (row,) = ask("report_of_run", run=run)
        if row.report is not None:
            _write_unwritten(ask, [row.report])

    session.retrying(work)


def _write_unwritten(ask: Ask, tasks: Collection[int]) -> None:
    ask("lock_reports", tasks=list(tasks))
    for run in ask("unwritten_reports", tasks=list(tasks)):
        _write(ask, run.id, None)


def update_report(
    session: Session, run: RunId, by: str, *, now: bool = False, approver: Approver | None = None
) -> Made:
    """Make a report of a run in its present state, with the changes since the last report that was
    sent; without a command, since the last report.

    ``now``: make it even if tasks have not settled. The command of REPORT runs if there are
    changes.
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
        (unsettled,) = graph.rows("count_unsettled", run=run)
        if unsettled.n and not now:
            count = f"{unsettled.n} of its tasks {'is' if unsettled.n == 1 else 'are'} not settled"
            raise Conflict(
                here, count, f"Wait for its end, or report its present state: arkqueue report {here} --update --now"
            )
        if row.has_command or row.state == State.HELD:
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
        remedy = (
            f"arkqueue logs {here}/{REPORT} -f" if row.state == State.RUNNING else f"arkqueue explain {here}/{REPORT}"
        )
        raise Conflict(here, f"another report runs: {here}/{REPORT} is {row.state}", remedy)


def give(session: Session, report: TaskId) -> tuple[RunId, int | None]:
    """The run and the number of the report that the running command of a REPORT gets. From now on
    this report does not change. The number is None if the attempt is over; any report will do then.
    """

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
    """Note which reports were sent, when the commands of REPORTs have ended. Returns the REPORTs
    that wait again because their runs have not made a report by themselves yet.
    """
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
    """Let a REPORT that was canceled with its deleted run wait again, unless the run had made its
    report. Returns it if so.
    """
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
    """Write a report of a run. ``by`` None: the report that the run made by itself."""
    (row,) = ask("report_of_run", run=run)
    (shown,) = ask("show_runs", runs=[run])
    since = row.sent if row.has_command else row.newest
    # A report does not contain the state of REPORT itself.
    state = run_state(shown._replace(report_state=None))
    told = {"at": row.settled_at, "by": by, "state": state, "since": since, "has_command": row.has_command}
    (written,) = ask("write_report", run=run, **told)
    return Made(written.number, written.changes, written.is_given)
