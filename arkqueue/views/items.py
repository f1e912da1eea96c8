"""Items of lists: how many tasks of each list of a run are in which state, some of these tasks at a time, and which items were deleted (design 5.27, 5.30)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from arkqueue.db.session import Session
from arkqueue.model import RunId
from arkqueue.names import item_name
from arkqueue.states import ATTENTION, State
from arkqueue.views.naming import task_names
from arkqueue.views.rows import view_of
from arkqueue.views.tasks import TaskView, tasks_by_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ListView:
    """How many tasks of a list are in which state, the states that need somebody first. ``name``: of the task that has the list."""

    name: str
    tasks: int
    counts: dict[State, int]


def lists_of(session: Session, run: RunId) -> list[ListView]:
    """The lists of a run, in the order of its files."""
    counts: dict[str, dict[State, int]] = {}
    for row in session.rows("lists_of_run", run=run):
        counts.setdefault(row.name, {})[State(row.state)] = row.n
    return [
        ListView(name=name, tasks=sum(of.values()), counts={state: of[state] for state in ATTENTION if state in of})
        for name, of in counts.items()
    ]


def page_of_items(
    session: Session, run: RunId, name: str, state: State | None, after: int, most: int
) -> tuple[list[TaskView], int | None]:
    """Some tasks of a list, in one state or in any, after the one of an id; and the id after which the next ones are, None: there are no more."""
    found = session.rows("page_of_items", run=run, name=name, state=state, after=after, limit=most + 1)
    ids = [row.id for row in found]
    return tasks_by_id(session, ids[:most]), ids[most - 1] if len(ids) > most else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedItem:
    """The tombstone of an item. ``tasks``: their names in full, by which they can be shown."""

    full_name: str
    item: str
    deleted_at: datetime
    deleted_by: str
    tasks: list[str]


def deleted_items(session: Session, run: RunId) -> list[DeletedItem]:
    """The deleted items of a run, the newest tombstone first."""
    found = session.rows("deleted_items", run=run)
    names = task_names(session, [task for row in found for task in row.tasks])
    return [
        view_of(row, DeletedItem, full_name=item_name(row, row.item), tasks=[names[task] for task in row.tasks])
        for row in found
    ]
