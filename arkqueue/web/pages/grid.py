"""The grid of an archive's page: a run is a row, a task is a column. The page already has
everything that a focused cell shows: its edges, and a sentence on what the task does or waits for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from itertools import groupby
from pathlib import PurePosixPath
from typing import Any, Final

from arkqueue.db.session import Session
from arkqueue.durations import age_of, in_clock, took
from arkqueue.failures import bad_in_words
from arkqueue.model import ArchiveId, BranchId, Trigger
from arkqueue.states import SETTLED, RunState, State
from arkqueue.views.attention import REPAIRED, Defined, NoteView, completed_places, last_lines, notes_of
from arkqueue.views.cells import Cells, CellView, cells_of, highest_tasks, urgency
from arkqueue.views.expected import Expected, Wait, expected, limits_of, usual_durations
from arkqueue.views.remedies import MOST_LATE, WAIVE, Remedy, remedies, waivers
from arkqueue.views.runs import ListedRun
from arkqueue.views.tasks import Behind, TaskView
from arkqueue.views.waits import alone
from arkqueue.workflow import EMPTY

MOST_CELLS: Final = 900
"""The most cells of a page. With many columns, the page has fewer rows."""
MOST_LINES: Final = 100
"""The most failures of a page whose last line of output is shown."""
GONE: Final = "gone"
"""The group of the columns that no workflow file has any more."""
_BAD: Final = (State.FAILED, State.REJECTED)
_MAY_START: Final = (State.WAITING, State.READY)
_AS_VERBS: Final = {
    **{state: f"is {state}" for state in State},
    **{state: str(state) for state in (State.FAILED, State.COMPLETED)},
    **{state: f"was {state}" for state in (State.CANCELED, State.SKIPPED)},
    State.REJECTED: "rejected its input",
}
_WAYS: Final = {
    Trigger.COMMIT: "for commits",
    Trigger.MANUAL: "by hand",
    Trigger.SCHEDULE: "by its schedule",
    Trigger.SUBMISSION: "for submissions",
}
MOST_ASKED: Final = 100
"""The most tasks of a page that wait for no other task and whose reason is shown."""
MOST_NAMED: Final = 4
"""The most tasks that a sentence names."""


class Absence(StrEnum):
    """Why a commit run has no task of a name."""

    FILTERED = "filtered"
    """Its paths or branches left it out."""
    UNDEFINED = "undefined"
    """The workflow files of the revision have no such task."""


@dataclass(slots=True)  # not frozen, as TaskView
class Column:
    """A task's name. ``highest``: the task at the highest revision of the branch, whatever the page
    shows. ``completed``: the highest revision at which it has ever completed. ``gone``: the newest workflow files do not have
    it. ``triggers``: the triggers of its runs by these files. ``never``: the reason why commit runs
    do not have it; empty: they may. ``is_new``: no run of the branch has had it.
    """

    name: str
    highest: TaskView | None
    completed: int | None
    gone: bool
    triggers: list[str]
    never: str
    is_new: bool


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring columns whose tasks are in one workflow file. ``name``: the file's name without
    its suffix, or ``gone`` for tasks that no file has any more.
    """

    name: str
    width: int


@dataclass(slots=True)  # not frozen, as TaskView
class Cell:
    """A task of a row, or the items of a list. ``words``: a few words beside its shape. ``remedy``:
    what helps, if it has failed; of a list, what helps its failed items. ``says``: one sentence on it.

    ``edges``: the ids of the tasks that it waited for (``d12``) and that it superseded (``x12``),
    as far as these have cells. ``needs``: it is a failure that `j` finds. ``note``: a
    person's note on it. ``progress``: the part of its usual time that a running task has taken,
    from 0 to 1. ``usual``: the seconds that such a task usually takes, if it runs. ``expected``: the
    start and the end that ``says`` gives for a task that waits.
    """

    task: TaskView
    words: str
    remedy: Remedy | None
    says: str
    edges: str
    needs: bool
    note: NoteView | None
    progress: float | None
    usual: float | None = None
    expected: Expected | None = None

    @property
    def has_button(self) -> bool:
        """True if a button beside it helps. Rejected items of a list have none: their list is on the
        page of the run.
        """
        return self.remedy is not None and self.remedy.verb not in ("", WAIVE if self.task.item else "")


@dataclass(frozen=True, slots=True)
class Row:
    """A run. ``cells``: one for each column; None: the run has no such task. ``absent``: for each
    column, why a commit run has no such task, if this is known. ``gone``: its tasks that no column
    shows, and the worst of them. ``gone_needs``: one of them is a failure that nobody has handled.
    ``ends``: when it may be done, if this is known of all of its
    remaining tasks.
    """

    run: ListedRun
    cells: list[Cell | None]
    absent: list[Absence | None]
    gone: int
    worst: TaskView | None
    gone_needs: bool
    ends: datetime | None

    @property
    def waits_for_release(self) -> bool:
        """True if the run is held, and a release would let one of its tasks start. A held task that
        waits for other tasks, too, starts only after them.
        """
        held = [cell.task for cell in self.cells if cell and cell.task.state is State.HELD]
        are_all = len(held) == self.run.counts.held > 0
        return self.run.state is RunState.HELD and not (are_all and all(task.awaits for task in held))


@dataclass(frozen=True, slots=True)
class Grid:
    """The rows and columns of a page. ``gone``: names that only older runs have and that no column
    shows. ``names``: all names that could be columns.
    """

    columns: list[Column]
    groups: list[Group]
    rows: list[Row]
    gone: list[str]
    names: list[str]


@dataclass(slots=True)
class _Known:
    """The facts for the sentences. ``cells``: the cells of each run by their names. ``tasks``: the
    tasks for which the cells stand, by their ids. ``sources``: the dependencies of each task, and
    whether they are met. ``alone``: the reasons of tasks that wait for no other task. ``columns``:
    the names of the columns. ``behind``: as in `Cells`. ``remedies``: those of the failed tasks.
    ``blocking``: as for `grid_of`.
    """

    cells: dict[int, dict[str, CellView]]
    tasks: dict[int, CellView]
    behind: Behind = field(default_factory=dict)
    sources: dict[int, list[tuple[CellView, bool]]] = field(default_factory=lambda: defaultdict(list))
    superseded: dict[str, list[TaskView]] = field(default_factory=lambda: defaultdict(list))
    notes: Mapping[int, NoteView] = field(default_factory=dict)
    lines: Mapping[int, str] = field(default_factory=dict)
    expected: Mapping[int, Expected] = field(default_factory=dict)
    usual: Mapping[str, float] = field(default_factory=dict)
    alone: Mapping[int, str] = field(default_factory=dict)
    remedies: Mapping[int, Remedy] = field(default_factory=dict)
    blocking: Collection[int] = ()
    columns: Set[str] = frozenset()


def grid_of(
    session: Session,
    branch: BranchId,
    shown: Sequence[ListedRun],
    definition: Sequence[Defined],
    *,
    is_newest: bool,
    needs: Mapping[tuple[int, str], int],
    blocking: Collection[int] = (),
    chosen: Sequence[str] = (),
    all_names: bool = False,
    seen: Sequence[ArchiveId] | None = (),
) -> Grid:
    """The grid of some runs. ``definition``: the newest one of their branch. ``is_newest``: they are the newest of their branch. ``needs``: the first failure that nobody has handled, by the id of
    its run and its name. ``blocking``: the repaired failures for which tasks wait (`Blocking`). ``chosen``: the names of its columns. ``all_names``: True to show also the columns that are gone, if none is
    chosen. ``seen``: as in `Around`.
    """
    defined = {task.name: task for task in definition}
    found = cells_of(session, shown, MOST_CELLS, [*chosen], len(chosen or defined), needs)
    if chosen and not any(found.runs.values()) and not any(name in defined for name in chosen):
        found, chosen = cells_of(session, shown, MOST_CELLS, width=len(defined), unhandled=needs), ()
    shown = [run for run in shown if run.id in found.runs]
    known = _known(session, branch, found, blocking, seen)
    names = list(dict.fromkeys([*defined, *found.names]))
    wanted = [name for name in chosen if name in names] or [name for name in names if all_names or name in defined]
    known.columns = frozenset(wanted)
    completed = completed_places(session, branch)
    highest = _highest_of(shown, known) if is_newest else {}
    sought = [name for name in wanted if name not in highest]
    if sought:
        highest |= highest_tasks(session, branch, sought, {id: cell.task for id, cell in known.tasks.items()})
    without_task = [name for name in wanted if name not in highest and name not in completed]
    absent, new = _absent(session, branch, shown, known, wanted, without_task)
    return Grid(
        [
            _column(name, highest.get(name), completed.get(name), defined.get(name), is_new=name in new)
            for name in wanted
        ],
        _groups(defined, wanted),
        [_row(run, wanted, known, needs, absent) for run in shown],
        [name for name in names if name not in known.columns and not chosen],
        names,
    )


def row_of(session: Session, branch: BranchId, run: ListedRun, seen: Sequence[ArchiveId] | None) -> Row:
    """The row of one run with all of its tasks, for a sentence on the run. ``seen``: as in `Around`."""
    found = cells_of(session, [run], MOST_CELLS)
    known = _known(session, branch, found, (), seen)
    names = list(known.cells[run.id])
    known.columns = frozenset(names)
    return _row(run, names, known, (), {})


def _highest_of(shown: Sequence[ListedRun], known: _Known) -> dict[str, TaskView]:
    """The highest tasks that the newest runs of a branch have for certain, by name: no earlier run
    is at a higher revision than the oldest commit run among them.
    """
    certain = min((run.rev for run in shown if run.trigger is Trigger.COMMIT), default=None)
    highest: dict[str, TaskView] = {}
    if certain is not None:
        for run in sorted(shown, key=lambda run: (run.rev, run.run)):
            highest |= {name: cell.task for name, cell in known.cells[run.id].items() if run.rev >= certain}
    return highest


def _absent(
    session: Session,
    branch: BranchId,
    shown: Sequence[ListedRun],
    known: _Known,
    wanted: Sequence[str],
    candidates: Sequence[str],
) -> tuple[dict[tuple[int, str], Absence], Set[str]]:
    """Why commit runs have no task of some columns, by run and name. And, of the names of columns
    without a task, those that no run has had.
    """
    missing = {
        run.id: lacking
        for run in shown
        if run.trigger is Trigger.COMMIT
        and not (run.faults or run.baseline)
        and (lacking := [name for name in wanted if name not in known.cells[run.id]])
    }
    if not missing and not candidates:
        return {}, frozenset()
    names = sorted({name for lacking in missing.values() for name in lacking})
    asked: dict[str, Any] = {
        "runs": [*missing],
        "names": names,
        "branch": branch,
        "candidates": list(candidates),
        "empty": EMPTY,
    }
    found: dict[tuple[int, str], Absence] = {}
    new: Set[str] = frozenset()
    for row in session.rows("absent_tasks", **asked):
        if row.runs is None:
            new = frozenset(row.defined)
            continue
        defined, filtered = set(row.defined), set(row.filtered)
        for run in row.runs:
            for name in missing[run]:
                if name not in defined:
                    found[run, name] = Absence.UNDEFINED
                elif name in filtered:
                    found[run, name] = Absence.FILTERED
    return found, new


def _column(
    name: str, highest: TaskView | None, completed: int | None, defined: Defined | None, *, is_new: bool
) -> Column:
    triggers, never = defined.triggers if defined else [], ""
    if defined and Trigger.COMMIT not in triggers:
        ways = [_WAYS[Trigger(one)] for one in triggers if one != Trigger.MANUAL or len(triggers) == 1]
        never = f"no commit runs it: it runs {' or '.join(ways)}" if ways else "no commit runs it"
    return Column(name, highest, completed, defined is None, triggers, never, is_new)


def _groups(defined: Mapping[str, Defined], wanted: Sequence[str]) -> list[Group]:
    """The workflow files of the columns, if there are several."""
    paths = [defined[name].path if name in defined else GONE for name in wanted]
    if len(set(paths)) < 2:
        return []
    return [Group(PurePosixPath(path).stem, len(list(group))) for path, group in groupby(paths)]


def _known(
    session: Session, branch: BranchId, found: Cells, blocking: Collection[int], seen: Sequence[ArchiveId] | None
) -> _Known:
    cells = {run: {cell.task.name: cell for cell in some} for run, some in found.runs.items()}
    every = [cell.task for of in cells.values() for cell in of.values()]
    of_tasks = {cell.task.id: cell for of in cells.values() for cell in of.values()}
    known = _Known(cells, of_tasks, found.behind, blocking=blocking)
    failed = [task for task in every if task.state in _BAD]
    known.notes = notes_of(session, [task.id for task in failed])
    known.remedies = remedies(session, failed, MOST_LATE) | waivers(blocking)
    known.lines = last_lines(session, failed[:MOST_LINES])
    for task in every:
        if task.superseded_by:
            known.superseded[task.superseded_by].append(task)
    joined = []
    edges = [(target, source, met) for target, source, met, is_depends in found.edges if is_depends]
    stands_for = known.tasks | _of_lists(session, {source for _, source, _ in edges} - known.tasks.keys(), cells)
    for target, id, met in edges:
        source = stands_for.get(id)
        if source is None:
            # Nobody knows here when a task that is not on the page ends.
            joined += [] if met else [Wait(target, id)]
        elif source.task.id != target:
            known.sources[target].append((source, met))
            if not met:
                joined.append(Wait(target, source.task.id))
    known.alone = alone(session, _asked(every), seen)
    is_open = [task for task in every if task.state not in SETTLED]
    known.usual = usual_durations(session, branch, {task.name for task in is_open if not task.item})
    if known.usual or any(task.gate for task in is_open):  # else no time can be expected
        limits = limits_of(session, branch, every)
        known.expected = expected(every, joined, known.usual, datetime.now(UTC), limits)
    return known


def _of_lists(
    session: Session, ids: Collection[int], cells: Mapping[int, Mapping[str, CellView]]
) -> dict[int, CellView]:
    """The cells of lists by the ids of their items and gates: ``tile:completed`` is the gate of the
    list ``tile``.
    """
    has_lists = any(cell.task.item for of in cells.values() for cell in of.values())
    rows = session.rows("names_among", tasks=list(ids), runs=list(cells)) if ids and has_lists else []
    found = {row.id: cells[row.run_id].get(row.name.partition(":")[0]) for row in rows}
    return {id: cell for id, cell in found.items() if cell is not None}


def _asked(every: Sequence[TaskView]) -> list[int]:
    """The tasks that wait for no other task, up to the number that can be explained; for each name,
    those of the newest runs first.
    """
    places: dict[str, int] = defaultdict(int)
    found: list[tuple[int, int, int]] = []
    for task in every:
        if task.state in (State.READY, State.DEFERRED) or (task.state is State.WAITING and not task.why):
            found.append((places[task.name], len(found), task.id))
            places[task.name] += 1
    return [id for _, _, id in sorted(found)[:MOST_ASKED]]


def _row(
    run: ListedRun,
    wanted: Sequence[str],
    known: _Known,
    needs: Collection[tuple[int, str]],
    absent: Mapping[tuple[int, str], Absence],
) -> Row:
    cells = known.cells[run.id]
    gone = [cell for name, cell in cells.items() if name not in known.columns]
    worst = min(gone, key=lambda cell: urgency(cell.task), default=None)
    shown = [_cell(cells[name], known, needs) if name in cells else None for name in wanted]
    left = [known.expected.get(cell.task.id) for cell in cells.values() if cell.task.state not in SETTLED]
    ends = [one.end for one in left if one is not None]
    end = max(ends) if ends and len(ends) == len(left) else None
    why = [absent.get((run.id, name)) for name in wanted]
    gone_needs = any((run.id, cell.task.name) in needs for cell in gone)
    return Row(run, shown, why, sum(cell.items for cell in gone), worst.task if worst else None, gone_needs, end)


def _cell(cell: CellView, known: _Known, needs: Collection[tuple[int, str]]) -> Cell:
    """The cell of a task, or of the items of a list."""
    task = cell.task
    joined = [f"d{source.task.id}" for source, _ in known.sources.get(task.id, ())]
    joined += [f"x{one.id}" for one in known.superseded.get(task.full_name, ())]
    edges, note = " ".join(sorted(set(joined))) if len(joined) > 1 else "".join(joined), known.notes.get(task.id)
    is_bad = task.state in _BAD and not task.waived
    is_needed = is_bad and (task.run_id, task.name) in needs
    remedy = known.remedies.get(task.id)
    if task.item:
        words = f"{cell.completed:,}/{cell.items:,}" + _failed(cell)
        says = f"{cell.items:,} items, {words}. {says_of(task, known)}"
        return Cell(task, words, remedy, says, edges, is_needed, note, None)
    usual, progress = known.usual.get(task.name), None
    if usual and task.state is State.RUNNING and task.started_at is not None and not task.stop:
        progress = min((datetime.now(UTC) - task.started_at).total_seconds() / usual, 1)
    words = words_of(task) or _beginning(known.alone.get(task.id, ""))
    when = known.expected.get(task.id) if task.state in _MAY_START else None
    return Cell(
        task,
        words,
        remedy,
        says_of(task, known),
        edges,
        is_needed,
        note,
        progress,
        None if progress is None else usual,
        when,
    )


def _beginning(reason: str) -> str:
    """The first words of a reason of ``explain``, such as the lock that a task waits for. The title of
    the cell has the whole reason.
    """
    return reason.removeprefix("waits ").partition(",")[0].partition(" (")[0]


def _failed(cell: CellView) -> str:
    """The failures of a list, after its numbers."""
    rejected = cell.rejected + cell.waived_rejected
    words = bad_in_words(cell.bad + cell.waived - rejected, rejected, cell.waived, cell.waived_rejected)
    return "".join(f", {part}" for part in (*words.unwaived, *words.waived))


def says_of(task: TaskView, known: _Known) -> str:
    """One sentence on what a task does or waits for."""
    name, words = task.full_name, f"is {task.state}{' ' + task.why if task.why else ''}"
    if task.why.startswith(str(task.state)):
        words = f"is {task.why}"
    usual = known.usual.get(task.name) if not task.item else None
    match task.state:
        case State.RUNNING if not task.stop:
            where = f" on {task.host}" if task.host else ""
            words = f"runs{where} for {took(task.started_at)}" if task.started_at else f"is being prepared{where}"
            words += _usually(task.started_at, usual) if usual and task.started_at else ""
        case State.WAITING | State.READY | State.DEFERRED if task.id in known.alone:
            words = known.alone[task.id]
        case State.DEFERRED:
            words = f"is deferred: {task.why}" if task.why else "is deferred"
        case State.WAITING:
            words = _wait(task, known)
        case State.COMPLETED:
            words = f"completed in {took(task.started_at, task.ended_at)}" if task.started_at else "completed"
            words += f": {task.message}" if task.message else ""
        case State.CANCELED if task.superseded_by:
            words = f"was {task.why}"
        case State.FAILED | State.REJECTED:
            after = f" after {took(task.started_at, task.ended_at)}" if task.started_at and task.ended_at else ""
            words = f"{'failed' if task.state is State.FAILED else 'rejected its input'}{after}: {task.why}"
            words += f": {known.lines[task.id]}" if task.id in known.lines else ""
    if task.state in _MAY_START and (when := known.expected.get(task.id)):
        # A task that waits for a lock does not start "in a moment", however soon the lock is free.
        start = _from_now(when.start, is_exact=task.id in known.alone)
        words += f"; it may start in {start} and end in {_from_now(when.end)}"
    sentence = f"{name} {words}."
    if task.id in known.blocking:
        sentence += f" It was {REPAIRED}, but other tasks wait for it."
    if gone := known.superseded.get(name):
        sentence += f" It superseded {_listed([one.full_name for one in gone])}."
    if note := known.notes.get(task.id):
        said = (
            f"Noted by {note.by} {age_of(note.at, 'ago')}: {note.text}"
            if note.by
            else f"Noted {age_of(note.at, 'ago')}."
        )
        sentence += f" {said}"
    return sentence


def _usually(began: datetime, usual: float) -> str:
    """The usual duration of a running task, in words."""
    seconds = (datetime.now(UTC) - began).total_seconds()
    return f" of about {_long(usual)}" if seconds <= usual else f", longer than usual: about {_long(max(usual, 1))}"


def _wait(task: TaskView, known: _Known) -> str:
    """The sources of a waiting task; if none is on the page, the reason. In place of a skipped
    source, the task behind it.
    """
    sources = [source for source, met in known.sources.get(task.id, ()) if not met]
    if not sources:
        return f"waits {task.why}" if task.why.startswith("for ") else task.why or "waits"
    names: dict[str, str] = {}
    for source in sources:
        of = known.behind.get((task.id, source.task.id))
        if of is None:
            names[source.task.full_name] = _named(source)
        else:
            names.setdefault(of.name, f"{of.name}, which {_AS_VERBS[of.state]} (through {source.task.full_name})")
    return f"waits for {_listed([*names.values()])}"


def _named(cell: CellView) -> str:
    """A task with its state, or a list with its progress."""
    task = cell.task
    if task.item:
        return f"{task.full_name.rpartition('/')[0]}, of which {cell.completed:,} of {cell.items:,} completed"
    return f"{task.full_name}, which {_AS_VERBS[task.state]}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return "; ".join(names[:MOST_NAMED]) + more


def _long(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else in_clock(seconds)


def _from_now(at: datetime, *, is_exact: bool = False) -> str:
    seconds = (at - datetime.now(UTC)).total_seconds()
    if seconds < 10 and not is_exact:
        return "a moment"
    return f"about {_long(max(seconds, 1))}" if seconds < 3600 else f"about {seconds / 3600:.0f} h"


def words_of(task: TaskView) -> str:
    """A few words beside the shape of a task's state."""
    match task.state:
        case State.RUNNING if task.stop:
            return "stopping"
        case State.COMPLETED | State.RUNNING:
            return took(task.started_at, task.ended_at if task.state in SETTLED else None)
        case State.FAILED | State.REJECTED:
            how = str(task.state)
            if task.state is State.FAILED and task.exit_code is not None:
                # The exit code of a task that was stopped says only how it was stopped.
                how = "timed out" if task.why.startswith("timed out") else f"exit {task.exit_code}"
            return how + (", waived" if task.waived else "")
        case State.CANCELED if task.superseded_by:
            return f"by {_short(task.superseded_by, task)}"
        case State.WAITING:
            wait, space, rest = task.why.removeprefix("for ").partition(" ")
            return f"for {_short(wait, task)}{space}{rest}" if task.why.startswith("for ") else task.why
        case State.SKIPPED if task.unneeded:
            return "not needed"
        case State.SKIPPED:
            return f"with {_short(task.root, task)}" if task.root else "by hand"
    return str(task.state)


def _short(name: str, near: TaskView) -> str:
    """A task's name in the cell of another task: without the archive, and without the run or the
    task name if both tasks share it.
    """
    run, _, task = name.partition("/")
    own = near.full_name.partition("/")[0]
    if not task or run == own:
        return task or name
    branch, _, place = run.partition("@")
    if branch != own.partition("@")[0]:
        return name
    return place if task == near.name else f"{place}/{task}"
