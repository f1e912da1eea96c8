"""The names that people read and type, for rows that say where a run or a task is. Called by every view."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from arkqueue.names import name_of
from arkqueue.plan import EVERYTHING
from arkqueue.queue.door import Queue


def run_name(row: Any) -> str:
    """The name of a run; the row has archive, branch, main, number, run and runs (the revision's last run)."""
    return _name(row, None, "")


def task_name(row: Any) -> str:
    """The name of a task; the row also has name and item."""
    if row.name.startswith(EVERYTHING):  # shown as it is written; a colon after the slash misleads nobody
        return f"{run_name(row)}/{row.name}"
    return _name(row, row.name, row.item)


def task_names(queue: Queue, tasks: Iterable[int | None]) -> dict[int, str]:
    """The names of tasks by their ids; None is left out."""
    wanted = sorted({task for task in tasks if task is not None})
    return {row.id: task_name(row) for row in queue.rows("task_places", tasks=wanted)} if wanted else {}


def _name(row: Any, task: str | None, item: str) -> str:
    return str(
        name_of(row.archive, row.number, row.run, task, branch=row.branch, main=row.main, item=item, runs=row.runs)
    )
