"""The cells of an archive's page: the tasks of runs, with one cell for each name, however long the
list of this name is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from arkqueue.db.session import Session
from arkqueue.model import BranchId
from arkqueue.states import ATTENTION, SETTLED, State
from arkqueue.views.naming import Run, names_within
from arkqueue.views.tasks import Behind, TaskView, tasks_by_id, views_and_behind

MOST_LISTS = 5
"""The most runs with a list among which the highest one is sought that has an item."""


@dataclass(slots=True)  # not frozen, as TaskView
class CellView:
    """The tasks of a run that have one name: one, or one for each item of a list. ``task``: the one
    that is shown for all, the most urgent one. ``bad``: the number of failed and rejected ones that
    nobody waived; ``rejected``: how many of these were rejected. ``waived``: the number of waived
    failures; ``waived_rejected``: how many of these were rejected.
    """

    task: TaskView
    items: int
    completed: int
    bad: int
    rejected: int
    waived: int
    waived_rejected: int


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of some runs, the newest run first. ``runs``: by the runs' ids, without runs for
    which there was no room. ``names``: those of all tasks of the runs, in the order of the files.

    ``edges``: the edges into the tasks of the cells, without ``cancels``: ``target``, ``source``,
    ``met``, and whether its kind ``is_depends``. ``behind``: the obstacles behind skipped
    sources, by target and source.
    """

    runs: dict[int, list[CellView]]
    names: list[str]
    edges: list[Any]
    behind: Behind


def cells_of(
    session: Session,
    runs: Sequence[Run],
    most: int | None = None,
    chosen: Collection[str] = (),
    width: int = 1,
    unhandled: Mapping[tuple[int, str], int] = MappingProxyType({}),
) -> Cells:
    """The ordinary tasks of runs, the newest run first. A list is one cell, and one of its items is
    read, however long it is.

    ``most``: the most cells; one run is always read. ``chosen``: only tasks with these names.
    ``width``: the approximate number of cells of a run, so that few runs are read for nothing.
    ``unhandled``: the first unhandled failure of a run and name, by its id: it stands for its list, if
    it is still a failure.
    """
    runs = sorted(runs, key=lambda run: run.id, reverse=True)
    step = len(runs) if most is None else most // max(width, 1) + 1
    some: dict[int, Any] = {}
    names: dict[str, None] = {}
    kept: list[Run] = []
    while len(kept) < len(runs) and (most is None or len(some) < most):
        part = runs[len(kept) : len(kept) + step]
        counted = session.rows("count_cells", runs=[run.id for run in part], attention=list(map(str, ATTENTION)))
        of_runs: dict[int, list[Any]] = defaultdict(list)
        for row in counted:
            names[row.name] = None
            if not chosen or row.name in chosen:
                of_runs[row.run_id].append(row)
        for run in part:
            if most is not None and len(some) >= most:
                break
            kept.append(run)
            some |= {row.id: row for row in of_runs[run.id]}
    found: dict[int, list[CellView]] = {run.id: [] for run in kept}
    firsts = {
        row.id: unhandled[of] for row in some.values() if row.bad > 1 and (of := (row.run_id, row.name)) in unhandled
    }
    asked = {"runs": list(found), "item": None, "tasks": list({*some, *firsts.values()})}
    rows, edges = session.rows_of(("list_tasks", asked), ("edges_into", asked)) if some else ([], [])
    views, behind = views_and_behind(session, rows, {run.id: run for run in kept}, names_within(rows, kept), edges)
    by_id = {view.id: view for view in views}
    for view in views:
        if row := some.get(view.id):
            first = by_id.get(firsts.get(view.id, view.id))
            shown = first if first is not None and urgency(first)[0] == 0 else view
            cell = CellView(shown, row.items, row.completed, row.bad, row.rejected, row.waived, row.waived_rejected)
            found[view.run_id].append(cell)
    if firsts:
        targets = {cell.task.id for cells in found.values() for cell in cells}
        edges = [edge for edge in edges if edge.target in targets]
    return Cells(found, list(names), edges, behind)


def highest_tasks(
    session: Session, branch: BranchId, names: Collection[str], known: Mapping[int, TaskView]
) -> dict[str, TaskView]:
    """The task at the highest revision of a branch, by name; for a list, its most urgent item.
    ``known``: tasks that need not be read again, by id.
    """
    attention = list(map(str, ATTENTION))
    rows = session.rows("highest_tasks", branch=branch, names=list(names), attention=attention, most=MOST_LISTS)
    read = {task.id: task for task in tasks_by_id(session, [row.id for row in rows if row.id not in known])}
    return {row.name: known.get(row.id) or read[row.id] for row in rows}


def urgency(task: TaskView) -> tuple[int, int]:
    """The place of a task among those for which one state is shown, as the part ``urgency`` of the
    statements has it.
    """
    is_bad = task.state in (State.FAILED, State.REJECTED)
    rank = 2 if is_bad and task.waived else 0 if is_bad else 3 if task.state in SETTLED else 1
    return rank, ATTENTION.index(task.state)
