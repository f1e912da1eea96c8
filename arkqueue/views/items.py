"""The items of lists: the number of tasks of each list of a run in each state, pages of these
tasks, and the deleted items (design 5.27, 5.30).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from arkqueue.db.session import Session
from arkqueue.model import RunId
from arkqueue.names import item_name
from arkqueue.states import ATTENTION, State
from arkqueue.views.naming import task_names
from arkqueue.views.rows import view_of
from arkqueue.views.tasks import TaskView, tasks_by_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ListView:
    """The number of tasks of a list in each state, the states that need a person first. ``name``:
    the task that has the list. ``waived``: the number of waived ones among the failed and rejected
    tasks; ``waived_rejected``: how many of these were rejected.
    """

    name: str
    tasks: int
    counts: dict[State, int]
    waived: int = 0
    waived_rejected: int = 0

    @property
    def unwaived(self) -> int:
        """The number of failed and rejected tasks that nobody has waived."""
        return self.unwaived_in(State.FAILED) + self.unwaived_in(State.REJECTED)

    def waived_in(self, state: State) -> int:
        """The number of waived tasks in a state."""
        if state is State.REJECTED:
            return self.waived_rejected
        return self.waived - self.waived_rejected if state is State.FAILED else 0

    def unwaived_in(self, state: State) -> int:
        """The number of tasks in a state that nobody has waived."""
        return self.counts.get(state, 0) - self.waived_in(state)

    def in_words(self, state: State) -> str:
        """The number of tasks in a state, in words."""
        number, waived = self.counts.get(state, 0), self.waived_in(state)
        words = f"{number:,} {state}"
        return f"{words}, {'' if waived == number else f'{waived:,} '}waived" if waived else words


def list_view(name: str, counts: Mapping[State, int], waived: int = 0, waived_rejected: int = 0) -> ListView:
    """A list, from its numbers."""
    in_order = {state: counts[state] for state in ATTENTION if state in counts}
    return ListView(
        name=name, tasks=sum(counts.values()), counts=in_order, waived=waived, waived_rejected=waived_rejected
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemPage:
    """A page of the items of a run. ``next``: the cursor of the following page; None at the end."""

    tasks: list[TaskView]
    next: int | None


def page_of_items(
    session: Session, run: RunId, name: str | None, states: Sequence[State], after: int | None, most: int
) -> ItemPage:
    """A page of the tasks of items of a run, in the order of its files and lists. ``name``: the
    task that has the list; None: all lists. ``states``: only tasks in one of these; none: any.
    ``after``: the id of the last task of the page before.
    """
    asked: dict[str, Any] = {"name": name, "states": [str(state) for state in states] or None, "after": after or None}
    ids = [row.id for row in session.rows("page_of_items", run=run, limit=most + 1, **asked)]
    return ItemPage(tasks=tasks_by_id(session, ids[:most]), next=ids[most - 1] if len(ids) > most else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedItem:
    """The tombstone of an item. ``tasks``: the full names of its tasks, by which they can be shown."""

    full_name: str
    item: str
    deleted_at: datetime
    deleted_by: str
    tasks: list[str]


def deleted_items(session: Session, run: RunId, most: int | None = None) -> list[DeletedItem]:
    """The deleted items of a run, the newest tombstone first; at most ``most``, if given."""
    found = session.rows("deleted_items", run=run, most=most)
    names = task_names(session, [task for row in found for task in row.tasks])
    return [
        view_of(row, DeletedItem, full_name=item_name(row, row.item), tasks=[names[task] for task in row.tasks])
        for row in found
    ]
