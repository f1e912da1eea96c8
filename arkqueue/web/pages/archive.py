"""The page of an archive or a branch: revisions are rows, tasks are columns, in the order of the newest workflow files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request

from arkqueue.errors import NotFound
from arkqueue.model import ArchiveId, BranchId, TaskKind, Trigger
from arkqueue.names import COMMIT_RUN, branch_name
from arkqueue.states import ATTENTION, SETTLED, RunState, State
from arkqueue.views import archives as views
from arkqueue.views.attention import completed_places, unhandled_failures
from arkqueue.views.backfills import backfills
from arkqueue.views.find import find_branch
from arkqueue.views.runs import ListedRun, RunPage, matching_runs, runs
from arkqueue.views.search import query_of
from arkqueue.views.tasks import TaskView
from arkqueue.web.pages.answer import Shown, asked, took
from arkqueue.web.pages.visitor import Visitor

ROWS: Final = 50
RUN_STATES: Final = tuple(state for state in RunState if state is not RunState.DELETED)
MOST_BACKFILLS: Final = 3
MOST_TOLD: Final = 5
"""Failures that the sentence above the grid names."""


@dataclass(frozen=True, slots=True)
class Column:
    """A task's name. ``highest``: the task at the highest revision of the rows; ``completed``: at which highest revision it ever completed. ``gone``: the newest run does not have it."""

    name: str
    highest: TaskView | None
    completed: int | None
    gone: bool


@dataclass(frozen=True, slots=True)
class Cell:
    """A task of a row. ``words``: beside its shape, as few as will do. ``retry``: a retry helps."""

    task: TaskView
    words: str
    retry: bool


@dataclass(frozen=True, slots=True)
class Row:
    """A run. ``cells`` has one for each column; None: the run has no such task."""

    run: ListedRun
    cells: list[Cell | None]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which runs a page shows, as its address says. ``state``: of a run or, where a task is named, of that task."""

    state: str
    author: str
    task: str
    message: str

    @property
    def address(self) -> str:
        """What follows the question mark of an address; empty: every run is shown."""
        return urlencode({name: value for name, value in asdict(self).items() if value})


def filter_of(request: Request) -> Filter:
    """The filter that an address asks for; what is no state is left aside."""
    given = {name: asked(request, name) for name in Filter.__dataclass_fields__}
    if given["state"] not in [str(state) for state in (State if given["task"] else RUN_STATES)]:
        given["state"] = ""
    return Filter(**given)


def archive(visitor: Visitor, request: Request, name: str, named: str | None) -> Shown:
    """The newest runs of a branch, or those of a `Filter`; ``?before=`` a run's id shows those before it."""
    caller = visitor.caller
    id = caller.archive(name)
    view = views.archive(caller.session, id)
    try:
        branch = find_branch(caller.session, id, named, name)
    except NotFound:
        if named is not None or any(b.rev is not None for b in view.branches):
            raise
        return Shown("archive.html", _nothing_yet(view))
    wanted, before = filter_of(request), request.query_params.get("before", "")
    page = _runs(visitor, id, branch, wanted, int(before) if before.isdecimal() and len(before) < 19 else None)
    shown = page.runs
    columns = _columns(shown, completed_places(caller.session, branch))
    main = next((b.name for b in view.branches if b.main), "")
    failures = [t for t in unhandled_failures(caller.session, [ArchiveId(id)], 100) if t.branch == (named or main)]
    return Shown(
        "archive.html",
        {
            "archive": view,
            "address": branch_name(name, named),
            "branch": named or main,
            "branches": [b for b in view.branches if not b.deleted],
            "rows": [_row(run, columns) for run in shown],
            "columns": columns,
            "next": page.next,
            "filter": wanted,
            "filter_address": wanted.address,
            "states": [str(one) for one in (State if wanted.task else RUN_STATES)],
            "newest": next((run for run in shown if run.trigger is Trigger.COMMIT), None),
            "complete": next(
                (
                    run
                    for run in shown
                    if run.state is RunState.COMPLETED and run.run == COMMIT_RUN and not run.baseline
                ),
                None,
            ),
            "failures": failures[:MOST_TOLD],
            "failed": len(failures),
            "backfills": backfills(caller.session, id, MOST_BACKFILLS),
        },
    )


def _nothing_yet(view: views.ArchiveView) -> dict[str, object]:
    nothing: dict[str, object] = {
        "archive": view,
        "address": view.name,
        "branch": "",
        "branches": [],
        "rows": [],
        "columns": [],
        "next": None,
        "backfills": [],
    }
    nothing |= {"filter": Filter("", "", "", ""), "filter_address": "", "states": []}
    return nothing | {"newest": None, "complete": None, "failures": [], "failed": 0}


def _runs(visitor: Visitor, archive: ArchiveId, branch: BranchId, wanted: Filter, before: int | None) -> RunPage:
    session, states = visitor.caller.session, [RunState(wanted.state)] if wanted.state and not wanted.task else []
    if not (wanted.author or wanted.task or wanted.message):
        return runs(
            session, archives=[archive], branch=branch, states=states, before=before, limit=ROWS, tasks=True, backfills=False
        )  # fmt: skip
    words, author = query_of(f"{wanted.message} {wanted.author}"), query_of(wanted.author)
    return matching_runs(
        session, branch, words=words, author=author, task=wanted.task or None, states=states, before=before, limit=ROWS,
        task_state=State(wanted.state) if wanted.state and wanted.task else None,
    )  # fmt: skip


def _columns(shown: Sequence[ListedRun], completed: dict[str, int]) -> list[Column]:
    """The tasks of the newest commit run in its order, then those that only earlier runs have."""
    newest = next((run for run in shown if run.trigger is Trigger.COMMIT and run.tasks and not run.faults), None)
    present = [task.name for task in _ordinary(newest)] if newest else []
    earlier = [task.name for run in shown for task in _ordinary(run)]
    highest: dict[str, TaskView] = {}
    for run in sorted(shown, key=lambda run: (run.rev, run.run)):
        highest |= {name: _worst(tasks) for name, tasks in _by_name(run).items()}
    names = dict.fromkeys([*present, *earlier])
    return [Column(name, highest.get(name), completed.get(name), name not in present) for name in names]


def _ordinary(run: ListedRun) -> list[TaskView]:
    return [task for task in run.tasks or () if task.kind is TaskKind.ORDINARY]


def _row(run: ListedRun, columns: Sequence[Column]) -> Row:
    tasks = _by_name(run)
    return Row(run, [_cell_of(tasks[c.name]) if c.name in tasks else None for c in columns])


def _by_name(run: ListedRun) -> dict[str, list[TaskView]]:
    """The tasks of a run by their names: one for each item of a list."""
    found: dict[str, list[TaskView]] = {}
    for task in _ordinary(run):
        found.setdefault(task.name, []).append(task)
    return found


def _worst(tasks: Sequence[TaskView]) -> TaskView:
    """Which of the items of a list stands for all: the first that needs somebody, else one that is under way, else one that did not complete."""
    return min(tasks, key=lambda task: (task.waived, ATTENTION.index(task.state)))


def _cell_of(tasks: Sequence[TaskView]) -> Cell:
    """One task, or the items of a list by their number."""
    if not tasks[0].item:
        return _cell(tasks[0])
    completed = sum(task.state is State.COMPLETED for task in tasks)
    bad = sum(task.state in (State.FAILED, State.REJECTED) and not task.waived for task in tasks)
    return Cell(_worst(tasks), f"{completed}/{len(tasks)}" + (f", {bad} failed" if bad else ""), retry=False)


def _cell(task: TaskView) -> Cell:
    is_bad = task.state in (State.FAILED, State.REJECTED) and not task.waived
    return Cell(task, words_of(task), is_bad and task.state is State.FAILED)


def words_of(task: TaskView) -> str:
    """A few words beside the shape of a task's state."""
    match task.state:
        case State.RUNNING if task.stop:
            return "stopping"
        case State.COMPLETED | State.RUNNING:
            return took(task.started_at, task.ended_at if task.state in SETTLED else None)
        case State.FAILED if task.exit_code is not None:
            return f"exit {task.exit_code}" + (", waived" if task.waived else "")
        case State.CANCELED if task.superseded_by:
            return f"by {_short(task.superseded_by, task)}"
        case State.WAITING:
            wait, space, rest = task.why.removeprefix("for ").partition(" ")
            return f"for {_short(wait, task)}{space}{rest}" if task.why.startswith("for ") else task.why
        case State.SKIPPED:
            return f"with {_short(task.root, task)}" if task.root else "by hand"
    return str(task.state)


def _short(name: str, near: TaskView) -> str:
    """A task's name as a cell of another one needs it: without the archive, and without the run or the task where these are the other's own."""
    place, _, task = name.partition("@")[2].partition("/")
    if not task or name.partition("@")[0] != near.full_name.partition("@")[0]:
        return name
    own = near.full_name.partition("@")[2].partition("/")[0]
    return task if place == own else place if task == near.name else f"{place}/{task}"
