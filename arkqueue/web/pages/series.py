"""Consecutive runs that persons or schedules started, as one line of the grid, which can be opened.

A run that is not over, has faults, or has an unhandled failure keeps a row of its own, and so does
the newest run. The address names the open lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final
from urllib.parse import urlencode

from arkqueue.model import Trigger
from arkqueue.states import ATTENTION, OPEN, RunState
from arkqueue.views.cells import urgency
from arkqueue.views.runs import ListedRun, RunView
from arkqueue.views.tasks import TaskView
from arkqueue.web.pages.grid import Cell, Row

FEWEST: Final = 2
"""The fewest runs that one line stands for; fewer would save no line."""
_WAYS: Final = {Trigger.MANUAL: "by hand", Trigger.SCHEDULE: "by schedule"}


@dataclass(frozen=True, slots=True)
class SeriesCell:
    """The tasks of one column in the runs of a series. ``task``: the task that most needs a person.
    ``words``: the number of tasks in its state. ``says``: the number of tasks in each state.
    """

    task: TaskView
    words: str
    says: str


@dataclass(frozen=True, slots=True)
class Series:
    """The runs of one line, the newest first. ``name``: their revisions and their triggers.
    ``says``: the number of runs in each state.

    ``cells``: one for each column; None: no run has such a task. ``gone``: their tasks that no
    column shows, and the worst of them. ``address``: the page on which the line is open, or closed
    again.
    """

    runs: list[ListedRun]
    name: str
    says: str
    cells: list[SeriesCell | None]
    gone: int
    worst: TaskView | None
    is_open: bool
    address: str

    @property
    def id(self) -> int:
        """The id of the oldest run, which stays when later runs join the series."""
        return self.runs[-1].id


@dataclass(frozen=True, slots=True)
class Line:
    """A series, the rows that it shows, or both. A line without a series is one row."""

    series: Series | None
    rows: list[Row]


def runs_in_lines(runs: Sequence[RunView], needing: Collection[int]) -> list[list[RunView]]:
    """The runs of each line. ``needing``: the runs that keep a row of their own, because they have
    failures that nobody has handled.
    """
    lines: list[list[RunView]] = []
    for joins, group in groupby(runs, lambda run: _joins(run, needing)):
        some = list(group)
        lines += [some] if joins and len(some) >= FEWEST else [[run] for run in some]
    return lines


def _joins(run: RunView, needing: Collection[int]) -> bool:
    is_quiet = run.state not in OPEN and not run.faults and not run.baseline
    return run.trigger in _WAYS and is_quiet and run.id not in needing


def lines_of(
    rows: Sequence[Row], needing: Collection[int], opened: Collection[int], asked: Sequence[tuple[str, str]]
) -> list[Line]:
    """The lines of a grid. ``needing``: as for `runs_in_lines`. ``opened``: runs whose series are
    open. ``asked``: the parameters of the page's address.
    """
    left = iter(rows)
    return [
        _line([next(left) for _ in runs], opened, asked)
        for runs in runs_in_lines([row.run for row in rows], needing)
    ]  # fmt: skip


def _line(rows: list[Row], opened: Collection[int], asked: Sequence[tuple[str, str]]) -> Line:
    if len(rows) < FEWEST:
        return Line(None, rows)
    runs = [row.run for row in rows]
    own = {run.id for run in runs}
    is_open = not own.isdisjoint(opened)
    others = [str(id) for id in sorted(opened) if id not in own] + ([] if is_open else [str(runs[-1].id)])
    address = urlencode([one for one in asked if one[0] != "open"] + [("open", id) for id in others])
    gone = [row for row in rows if row.worst is not None]
    series = Series(
        runs,
        _name(runs),
        _counted(Counter(str(run.state) for run in runs), [str(state) for state in RunState]),
        [_cell(cells, len(rows)) for cells in zip(*(row.cells for row in rows), strict=True)],
        sum(row.gone for row in rows),
        min((row.worst for row in gone if row.worst is not None), key=urgency, default=None),
        is_open,
        f"?{address}#s{runs[-1].id}",
    )
    return Line(series, rows if is_open else [])


def _name(runs: Sequence[RunView]) -> str:
    first, last = min(run.rev for run in runs), max(run.rev for run in runs)
    ways = " and ".join(words for trigger, words in _WAYS.items() if any(run.trigger is trigger for run in runs))
    return f"{first if first == last else f'{first}–{last}'} {ways}"


def _cell(cells: Sequence[Cell | None], runs: int) -> SeriesCell | None:
    tasks = [cell.task for cell in cells if cell is not None]
    if not tasks:
        return None
    worst = min(tasks, key=urgency)
    alike = sum(task.state is worst.state for task in tasks)
    counts = _counted(Counter(str(task.state) for task in tasks), [str(state) for state in ATTENTION])
    words = f"{alike:,}" if alike == len(tasks) else f"{alike:,} of {len(tasks):,}"
    return SeriesCell(worst, words, f"{worst.name} in {runs:,} runs: {counts}. {worst.full_name} is {worst.state}.")


def _counted(states: Mapping[str, int], order: Sequence[str]) -> str:
    return ", ".join(f"{states[state]:,} {state}" for state in order if state in states)


def stand_ins(lines: Sequence[Line], rows: Sequence[Row]) -> dict[int, int]:
    """For each task that no row shows, by id, the task of the cell that stands for it: the edges of
    other cells end there.
    """
    closed = [line.series for line in lines if line.series is not None and not line.series.is_open]
    hidden = {run.id: series.cells for series in closed for run in series.runs}
    pairs = [pair for row in rows if row.run.id in hidden for pair in zip(row.cells, hidden[row.run.id], strict=True)]
    return {cell.task.id: stands.task.id for cell, stands in pairs if cell is not None and stands is not None}
