"""What a page shows first: what needs a person, how the last runs went, and where each task of a branch completed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, BranchId
from arkqueue.views.runs import RunView, views_of_runs
from arkqueue.views.tasks import TaskView, tasks_by_id


def recent_runs(session: Session, archives: Sequence[ArchiveId], most: int) -> dict[str, list[RunView]]:
    """The newest runs of each archive by its name, the newest first."""
    found: dict[str, list[RunView]] = defaultdict(list)
    ids = [row.id for row in session.rows("recent_runs", archives=list(archives), most=most)] if archives else []
    for view in views_of_runs(session, ids):
        found[view.archive].append(view)
    return found


def unhandled_failures(session: Session, archives: Sequence[ArchiveId] | None, most: int) -> list[TaskView]:
    """Failed and rejected tasks, the newest first, but for those that somebody waived or a later revision has made good. ``archives`` None: of all."""
    return _tasks(session, "unhandled_failures", archives, most)


def held_tasks(session: Session, archives: Sequence[ArchiveId] | None, most: int) -> list[TaskView]:
    """Tasks that wait for a person's release alone, the newest first. ``archives`` None: of all."""
    return _tasks(session, "held_tasks", archives, most)


def completed_places(session: Session, branch: BranchId) -> dict[str, int]:
    """The highest revision at which each task of a branch has completed, by the task's name."""
    return {row.name: row.number for row in session.rows("completed_places", branch=branch)}


def _tasks(session: Session, block: str, archives: Sequence[ArchiveId] | None, most: int) -> list[TaskView]:
    rows = session.rows(block, archives=None if archives is None else list(archives), most=most)
    return tasks_by_id(session, [row.id for row in rows])
