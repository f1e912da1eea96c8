"""The obstacles of a proposed run's tasks, in the words of ``explain``: a pause, a paused lock, a label that nobody has.

Called by the preview of `trigger`, on the command line and on the pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from arkqueue.db.session import Session
from arkqueue.lock_names import MARK, is_global
from arkqueue.model import INSTALLATION, ArchiveId
from arkqueue.views.archives import archive as show_archive
from arkqueue.views.installation import task_managers
from arkqueue.views.reasons import Reason, Why, archive_paused, lacking, lock_paused


class Prospect(Protocol):
    """A task that a run would have."""

    @property
    def name(self) -> str: ...
    @property
    def locks(self) -> list[str]: ...
    @property
    def runs_on(self) -> list[str]: ...


def obstacles(session: Session, archive: ArchiveId, tasks: Sequence[Prospect]) -> list[Reason]:
    """The obstacles that would keep some tasks from starting now, besides their dependencies; the items of a list are named once.

    A lock whose name has a field (``${{ … }}``) is known only when its task asks for it.
    """
    by_name = {task.name: task for task in tasks}
    view = show_archive(session, archive)
    found = []
    if view.paused is not None and by_name:
        found.append(archive_paused(view.name, view.paused))
    names = sorted({lock for task in by_name.values() for lock in task.locks if MARK not in lock})
    paused = {
        row.name: row
        for row in (session.rows("paused_locks", names=names, archive=archive) if names else ())
        if (row.scope == INSTALLATION) == is_global(row.name)
    }
    labeled = any(task.runs_on for task in by_name.values())
    alive = [manager for manager in task_managers(session) if manager.alive] if labeled else []
    for task in by_name.values():
        for lock in task.locks:
            if lock in paused:
                called = lock if is_global(lock) else f"{view.name}/{lock}"
                found.append(lock_paused(task.name, paused[lock], called))
        if task.runs_on and not any({*task.runs_on} <= {*manager.labels} for manager in alive):
            text = f"{task.name} cannot start: {lacking(task.runs_on, alive)} (`runs_on`)."
            start = " ".join(["arkqueue worker", *(f"--label {label}" for label in task.runs_on)])
            found.append(Reason(kind=Why.NO_LABEL, text=text, commands=[start]))
    return found
