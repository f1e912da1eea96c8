"""The grid of an archive's page: a run is a row, a task is a column. All that focus on a cell shows stands in the page: its edges, and one sentence on what it does or waits for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import PurePosixPath
from typing import Final

from arkqueue.db.session import Session
from arkqueue.model import BranchId, RunId, TaskKind, Trigger
from arkqueue.states import ATTENTION, SETTLED, State
from arkqueue.views.attention import NoteView, completed_places, last_lines, notes_of
from arkqueue.views.expected import Expected, expected, usual_durations
from arkqueue.views.graph import edges_between, files_of
from arkqueue.views.runs import ListedRun
from arkqueue.views.tasks import TaskView
from arkqueue.web.pages.answer import age_of, took

MOST_JOINED: Final = 4000
"""Tasks of a page whose edges are read; of more nobody could follow them."""
MOST_LINES: Final = 100
"""Failures of a page of which the last line is told."""
MOST_NAMED: Final = 4
"""Tasks that a sentence names."""


@dataclass(frozen=True, slots=True)
class Column:
    """A task's name. ``highest``: the task at the highest revision of the rows; ``completed``: at which highest revision it ever completed. ``gone``: the newest run does not have it."""

    name: str
    highest: TaskView | None
    completed: int | None
    gone: bool


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring columns whose tasks stand in one workflow file; ``name``: that of the file without its ending."""

    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Cell:
    """A task of a row, or the items of a list. ``words``: beside its shape, as few as will do. ``retry``: a retry helps. ``says``: one sentence on it.

    ``edges``: the ids of the tasks that it waited for (``d12``), and of those that it superseded (``x12``), of those that have cells. ``needs``: it is a failure that nobody has handled. ``note``: what a person said of it.
    """

    task: TaskView
    words: str
    retry: bool
    says: str
    edges: str
    needs: bool
    note: NoteView | None


@dataclass(frozen=True, slots=True)
class Row:
    """A run. ``cells`` has one for each column; None: the run has no such task. ``gone``: its tasks that no column shows, and the worst of them."""

    run: ListedRun
    cells: list[Cell | None]
    gone: int
    worst: TaskView | None


@dataclass(frozen=True, slots=True)
class Grid:
    """The rows and columns of a page. ``gone``: names that only older runs have and no column shows. ``names``: all that could be columns."""

    columns: list[Column]
    groups: list[Group]
    rows: list[Row]
    gone: list[str]
    names: list[str]


@dataclass(slots=True)
class _Known:
    """What the sentences are made of, by the ids of tasks. ``cell``: the task that stands for one in its cell."""

    tasks: dict[int, TaskView]
    cell: dict[int, int]
    sources: dict[int, list[tuple[int, bool]]] = field(default_factory=lambda: defaultdict(list))
    superseded: dict[str, list[TaskView]] = field(default_factory=lambda: defaultdict(list))
    notes: Mapping[int, NoteView] = field(default_factory=dict)
    lines: Mapping[int, str] = field(default_factory=dict)
    expected: Mapping[int, Expected] = field(default_factory=dict)
    usual: Mapping[str, float] = field(default_factory=dict)


def grid_of(
    session: Session,
    branch: BranchId,
    shown: Sequence[ListedRun],
    *,
    failures: Collection[int],
    chosen: Sequence[str] = (),
    all_names: bool = False,
) -> Grid:
    """The grid of some runs. ``failures``: tasks that nobody has handled. ``chosen``: the names of its columns; ``all_names``: also those that are gone."""
    newest = next((run for run in shown if run.trigger is Trigger.COMMIT and run.tasks and not run.faults), None)
    present = list(_by_name(newest)) if newest else []
    names = list(dict.fromkeys([*present, *(name for run in shown for name in _by_name(run))]))
    wanted = [name for name in chosen if name in names] or [name for name in names if all_names or name in present]
    completed = completed_places(session, branch)
    highest: dict[str, TaskView] = {}
    for run in sorted(shown, key=lambda run: (run.rev, run.run)):
        highest |= {name: _worst(tasks) for name, tasks in _by_name(run).items()}
    columns = [Column(name, highest.get(name), completed.get(name), name not in present) for name in wanted]
    known = _known(session, branch, shown)
    return Grid(
        columns,
        _groups(session, newest, wanted),
        [_row(run, wanted, known, failures) for run in shown],
        [name for name in names if name not in wanted and not chosen],
        names,
    )


def _groups(session: Session, newest: ListedRun | None, wanted: Sequence[str]) -> list[Group]:
    """The workflow files of the columns, where there are several."""
    tasks = {name: tasks[0].id for name, tasks in _by_name(newest).items()} if newest else {}
    files = files_of(session, list(tasks.values()))
    paths = [files.get(tasks.get(name, 0), "") for name in wanted]
    if len(set(paths)) < 2:
        return []
    return [Group(PurePosixPath(path).stem, len(list(group))) for path, group in groupby(paths)]


def _known(session: Session, branch: BranchId, shown: Sequence[ListedRun]) -> _Known:
    every = [task for run in shown for task in run.tasks or ()]
    cell: dict[int, int] = {}
    for run in shown:
        for tasks in _by_name(run).values():
            cell |= dict.fromkeys((task.id for task in tasks), _worst(tasks).id)
    known = _Known({task.id: task for task in every}, cell)
    failed = [task.id for task in every if task.state in (State.FAILED, State.REJECTED)]
    known.notes = notes_of(session, failed)
    known.lines = last_lines(session, [known.tasks[id] for id in failed[:MOST_LINES]])
    for task in every:
        if task.superseded_by:
            known.superseded[task.superseded_by].append(task)
    edges = edges_between(session, [RunId(run.id) for run in shown]) if len(every) <= MOST_JOINED else []
    for edge in edges:
        known.sources[edge.target].append((edge.source, edge.met))
    is_open = [task for task in every if task.state not in SETTLED]
    known.usual = usual_durations(session, branch, {task.name for task in is_open if not task.item})
    known.expected = expected(every, edges, known.usual, datetime.now(UTC))
    return known


def _by_name(run: ListedRun) -> dict[str, list[TaskView]]:
    """The tasks of a run by their names: one for each item of a list."""
    found: dict[str, list[TaskView]] = {}
    for task in run.tasks or ():
        if task.kind is TaskKind.ORDINARY:
            found.setdefault(task.name, []).append(task)
    return found


def _worst(tasks: Sequence[TaskView]) -> TaskView:
    """Which of the items of a list stands for all: the first that needs somebody, else one that is under way, else one that did not complete."""
    return min(tasks, key=lambda task: (task.waived, ATTENTION.index(task.state)))


def _row(run: ListedRun, wanted: Sequence[str], known: _Known, failures: Collection[int]) -> Row:
    tasks = _by_name(run)
    gone = [task for name, some in tasks.items() if name not in wanted for task in some]
    cells = [_cell_of(tasks[name], known, failures) if name in tasks else None for name in wanted]
    return Row(run, cells, len(gone), _worst(gone) if gone else None)


def _cell_of(tasks: Sequence[TaskView], known: _Known, failures: Collection[int]) -> Cell:
    """One task, or the items of a list by their number."""
    worst = _worst(tasks)
    ids = {task.id for task in tasks}
    joined = {f"d{known.cell[source]}" for id in ids for source, _ in known.sources[id] if source in known.cell}
    joined |= {f"x{known.cell[task.id]}" for one in tasks for task in known.superseded[one.full_name] if task.id in known.cell}  # fmt: skip
    edges = " ".join(sorted(joined - {f"d{worst.id}"}))
    note = known.notes.get(worst.id)
    is_bad = worst.state in (State.FAILED, State.REJECTED) and not worst.waived
    needs = is_bad and bool(ids & set(failures))
    if tasks[0].item:
        completed = sum(task.state is State.COMPLETED for task in tasks)
        bad = sum(task.state in (State.FAILED, State.REJECTED) and not task.waived for task in tasks)
        words = f"{completed:,}/{len(tasks):,}" + (f", {bad:,} failed" if bad else "")
        says = f"{len(tasks):,} items, {words}. {says_of(worst, known)}"
        return Cell(worst, words, False, says, edges, needs, note)
    retry = is_bad and worst.state is State.FAILED
    return Cell(worst, words_of(worst), retry, says_of(worst, known), edges, needs, note)


def says_of(task: TaskView, known: _Known) -> str:
    """One sentence on what a task does or waits for."""
    name, words = task.full_name, f"is {task.state}{' ' + task.why if task.why else ''}"
    usual = known.usual.get(task.name) if not task.item else None
    match task.state:
        case State.RUNNING if not task.stop:
            where = f" on {task.host}" if task.host else ""
            words = f"runs{where} for {took(task.started_at)}" if task.started_at else f"is being prepared{where}"
            words += f" of about {_long(usual)}" if usual and task.started_at else ""
        case State.WAITING:
            words = _wait(task, known)
        case State.COMPLETED:
            words = f"completed in {took(task.started_at, task.ended_at)}" if task.started_at else "completed"
            words += f": {task.message}" if task.message else ""
        case State.FAILED | State.REJECTED:
            words = f"{'failed' if task.state is State.FAILED else 'rejected its input'}: {task.why}"
            words += f": {known.lines[task.id]}" if task.id in known.lines else ""
    if task.state in (State.WAITING, State.READY) and (when := known.expected.get(task.id)):
        words += f"; it may start in {_from_now(when.start)} and end in {_from_now(when.end)}"
    sentence = f"{name} {words}."
    if gone := known.superseded[name]:
        sentence += f" It superseded {_listed([one.full_name for one in gone])}."
    if note := known.notes.get(task.id):
        sentence += f" Noted by {note.by} {age_of(note.at, 'ago')}: {note.text}"
    return sentence


def _wait(task: TaskView, known: _Known) -> str:
    """What a waiting task waits for; where that is not on the page, the first of it."""
    sources = [known.tasks[id] for id, met in known.sources[task.id] if not met and id in known.tasks]
    sources = [one for one in sources if one.kind is TaskKind.ORDINARY]
    if not sources:
        return f"waits {task.why}" if task.why.startswith("for ") else task.why or "waits"
    return f"waits for {_listed([f'{one.full_name}, which is {one.state}' for one in sources])}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return "; ".join(names[:MOST_NAMED]) + more


def _long(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _from_now(at: datetime) -> str:
    seconds = (at - datetime.now(UTC)).total_seconds()
    return (
        "a moment" if seconds < 10 else f"about {_long(seconds)}" if seconds < 3600 else f"about {seconds / 3600:.0f} h"
    )


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
