"""Items of lists that were deleted, for those who may read the history of what was deleted (design 5.27)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from arkqueue.db.session import Session
from arkqueue.model import RunId
from arkqueue.names import item_name
from arkqueue.views.naming import task_names
from arkqueue.views.rows import view_of


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
