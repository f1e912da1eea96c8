"""Reports of runs as people and programs read them (design 5.32; docs/decisions/0018).

A report stores the state of each task. The messages and outputs of the task's attempts are read
from the attempts themselves. So a removal erases them from all reports at once (design 5.27), and
no report holds a copy.

The size of a report is limited, see ``MOST_TASKS`` and the constants after it. It counts what is
left out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal

from arkqueue.db.session import Session
from arkqueue.errors import NotFound
from arkqueue.model import REPORT, RunId, Trigger
from arkqueue.names import PURGED, run_name
from arkqueue.states import UNSETTLED, RunState, State, run_state
from arkqueue.views.naming import task_names
from arkqueue.views.rows import view_of

VERSION: Literal[1] = 1
"""The version of the format of reports (docs/report.schema.json). New fields may be added to it; no
field is removed.
"""
MOST_TASKS = 100_000
"""The most tasks that a report names."""
LONGEST_MESSAGE = 1000
"""The most characters of one message in a report."""
MOST_OF_ONE = 16 << 10
"""The most bytes of the outputs of one task in a report, as JSON."""
MOST_OF_ALL = 8 << 20
"""The most bytes of the outputs of all tasks in a report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportView:
    """One report of a run. ``made_by`` None: the run made it by itself, when it had settled.
    ``since``: the number of the report with which ``changes`` compares; None: there was none.

    ``is_given``: true if the command of REPORT gets it. ``sent_at``: when that command had sent it;
    None: it has not.
    """

    number: int
    made_at: datetime
    made_by: str | None
    state: RunState
    since: int | None
    changes: int
    is_given: bool
    sent_at: datetime | None


@dataclass(slots=True, kw_only=True)
class ReportedTask:
    """The outcome of a task. ``changed``: true if it changed since the report with which this one
    is compared.

    ``waived``: true if tasks that wait for it may go on; ``as_completed``: also inside its run.
    ``root``: the task because of which it was skipped; ``unneeded``: true if the task runs only for
    a failure, and ``root`` completed. The times, ``exit_code``, ``end`` and
    ``message`` are those of its newest attempt, and so are the resources used:
    ``processor_seconds`` (user and system) and ``peak_memory_bytes`` (of the largest process, or of
    the container); null: not known. ``usage_sampled``: true if both were read while the attempt
    ran, so that it used at least as much. ``outputs_left_out``: true if its outputs had no room.
    ``log_removed``, ``outputs_removed``: the sentence shown in place of a removed log or removed
    outputs.
    """

    name: str
    item: str
    state: State
    waived: bool
    as_completed: bool
    changed: bool
    attempts: int
    started_at: datetime | None
    ended_at: datetime | None
    settled_at: datetime | None
    exit_code: int | None
    end: str | None
    processor_seconds: float | None
    peak_memory_bytes: int | None
    usage_sampled: bool | None
    message: str
    outputs: dict[str, Any] | None
    outputs_left_out: bool
    root: str | None
    unneeded: bool
    superseded_by: str | None
    log_removed: str | None
    outputs_removed: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedTask:
    """A task of the earlier report whose item was deleted since."""

    name: str
    item: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedCounts:
    """The number of tasks in each state. ``unsettled``: tasks in no final state. ``waived``: those
    among the failed and rejected ones.
    """

    tasks: int
    completed: int
    failed: int
    rejected: int
    canceled: int
    skipped: int
    unsettled: int
    waived: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(ReportView):
    """A whole report. ``run``: the name of its run. ``tasks``: the tasks, first those that
    changed since the report ``since``, then those that did not complete. ``tasks_left_out``: the
    number of tasks that had no room. ``deleted``: the tasks of the report ``since`` whose items were
    deleted since; ``changes`` counts them, too.
    """

    version: Literal[1]
    run: str
    archive: str
    branch: str
    rev: int
    revision: str
    author: str
    date: datetime
    trigger: Trigger
    by: str
    created_at: datetime
    counts: ReportedCounts
    tasks: list[ReportedTask]
    tasks_left_out: int
    deleted: list[DeletedTask]


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a report, for programs that read one; published as ``docs/report.schema.json``."""
    from pydantic import TypeAdapter
    from pydantic.json_schema import GenerateJsonSchema

    class Untitled(GenerateJsonSchema):
        def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - titles that repeat the name help nobody
            return False

    schema = TypeAdapter(Report).json_schema(mode="serialization", schema_generator=Untitled)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "arkqueue report"}


def as_json(report: Report) -> dict[str, Any]:
    """A report as its JSON Schema describes it."""
    from pydantic import TypeAdapter

    plain: dict[str, Any] = TypeAdapter(Report).dump_python(report, mode="json")
    return plain


def reports(session: Session, run: RunId, shown: Any = None) -> list[ReportView]:
    """The reports of a run, the newest first, also the one that it made by itself and that is not
    stored yet. ``shown``: the run's row of ``show_runs``, if the caller has it.
    """
    own = _own(session, run)
    rows = session.rows("list_reports", run=run)
    written = [view_of(row, ReportView, state=RunState(row.state)) for row in rows]
    return [_unwritten(session, own, shown or _shown(session, run)), *written] if own.is_unwritten else written


def report(session: Session, run: RunId, number: int | None = None) -> Report:
    """One report of a run; without a number, the newest one."""
    with session.snapshot() as moment:
        shown = _shown(moment, run)
        views, own = reports(moment, run, shown), _own(moment, run)
        here = run_name(shown)
        if not views:
            raise _none_yet(shown, here)
        found = next((view for view in views if number in (None, view.number)), None)
        if found is None:
            raise NotFound(f"report {number} of {here}", "does not exist", f"arkqueue report {here} --list")
        return _whole(moment, shown, found, is_written=not (own.is_unwritten and found is views[0]))


def _none_yet(shown: Any, here: str) -> NotFound:
    """Why a run has no report. ``here``: its name."""
    if shown.baseline:
        return NotFound(here, "has no report: its archive's history begins there")
    if shown.deleted_at is not None:
        return NotFound(here, "was deleted before it had a report", f"arkqueue undelete {here}")
    if shown.report_state in UNSETTLED - {State.WAITING}:
        of_report = f"{here}/{REPORT}"
        fault = f"has no report yet, because {of_report} is {shown.report_state}"
        return NotFound(here, fault, f"arkqueue explain {of_report}")
    return NotFound(here, "has no report yet, as it has not settled", f"arkqueue report {here} --update --now")


def _own(session: Session, run: RunId) -> Any:
    if not (rows := session.rows("report_of_run", run=run)):
        raise NotFound(f"run {run}", "does not exist")
    return rows[0]


def _shown(session: Session, run: RunId) -> Any:
    if not (rows := session.rows("show_runs", runs=[run])):
        raise NotFound(f"run {run}", "does not exist")
    return rows[0]


def _unwritten(session: Session, own: Any, shown: Any) -> ReportView:
    since = own.sent if own.has_command else own.newest
    (row,) = session.rows("changes_since", run=own.id, since=since)
    return ReportView(
        number=1 + (own.newest or 0),
        made_at=own.settled_at,
        made_by=None,
        state=run_state(shown._replace(report_state=None)),
        since=since,
        changes=row.changes,
        is_given=own.has_command,
        sent_at=None,
    )


def _whole(session: Session, shown: Any, view: ReportView, *, is_written: bool) -> Report:
    number = view.number if is_written else None
    limits: dict[str, Any] = {
        "most": MOST_TASKS,
        "longest": LONGEST_MESSAGE,
        "most_of_one": MOST_OF_ONE,
        "most_of_all": MOST_OF_ALL,
    }
    at = view.made_at if is_written else None
    rows = session.rows("reported_tasks", run=shown.id, number=number, since=view.since, at=at, **limits)
    names = task_names(session, {id for row in rows for id in (row.root, row.superseded_by)})
    counts = _counts(session.rows("reported_counts", run=shown.id, number=number))
    compared = {"run": shown.id, "since": view.since, "at": view.made_at, "most": MOST_TASKS}
    deleted = session.rows("deleted_since", **compared) if view.since is not None else []
    return view_of(
        view,
        Report,
        version=VERSION,
        run=run_name(shown),
        archive=shown.archive,
        branch=shown.branch,
        rev=shown.number,
        revision=shown.revision,
        author=shown.author,
        date=shown.date,
        trigger=Trigger(shown.trigger),
        by=shown.by,
        created_at=shown.created_at,
        counts=counts,
        tasks=[
            view_of(
                row,
                ReportedTask,
                state=State(row.state),
                root=_name(row.root, names),
                superseded_by=_name(row.superseded_by, names),
            )
            for row in rows
        ],
        tasks_left_out=counts.tasks - len(rows),
        deleted=[DeletedTask(name=row.name, item=row.item) for row in deleted],
    )


def _name(task: int | None, names: dict[int, str]) -> str | None:
    return None if task is None else names.get(task, PURGED)


def _counts(rows: list[Any]) -> ReportedCounts:
    words = [field.name for field in fields(ReportedCounts)]
    numbers: Counter[str] = Counter()
    for row in rows:
        numbers[row.state if row.state in words else "unsettled"] += row.n
        numbers["tasks"] += row.n
        numbers["waived"] += row.waived
    return ReportedCounts(**{word: numbers[word] for word in words})
