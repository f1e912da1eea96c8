"""Locks (design 5.25): who has them, and who waits in which order."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from arkqueue.db.session import Session
from arkqueue.model import INSTALLATION, ArchiveId
from arkqueue.states import State
from arkqueue.views.naming import task_names

MOST_TASKS = 100
"""Tasks of one lock that are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockTask:
    """A task that stands at a lock: it occupies the lock (running), has been granted it (ready), or waits for it."""

    full_name: str
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class LockView:
    """A lock. ``name``: what it is called in commands, ``ARCHIVE/NAME`` or ``global/NAME``; ``capacity`` null: unlimited.

    ``holders``: the tasks that occupy it or have been granted it; ``waiting``: those that ask for it, the next first; 100 of both at most, of the archives that
    were asked for. ``elsewhere``: how many tasks of other archives have a lock of the installation.
    """

    name: str
    capacity: int | None
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    holders: list[LockTask]
    waiting: list[LockTask]
    elsewhere: int


def locks(
    session: Session,
    archives: Sequence[ArchiveId] | None,
    name: str | None = None,
    scope: ArchiveId | None = None,
) -> list[LockView]:
    """The locks of some archives and those of the installation that they use (None: every one); of one name and scope where these are given."""
    found = []
    told: dict[str, Any] = {"archives": None if archives is None else list(archives), "name": name, "scope": scope}
    for row in session.rows("show_locks", **told):
        standing = session.rows("lock_tasks_of", scope=row.scope, name=row.name, most=MOST_TASKS)
        shown = [task for task in standing if archives is None or task.archive_id in archives]
        names = task_names(session, [task.id for task in shown])
        tasks = [LockTask(full_name=names[task.id], state=State(task.state)) for task in shown if task.id in names]
        found.append(
            LockView(
                name=row.name if row.scope == INSTALLATION else f"{row.archive}/{row.name}", capacity=row.capacity, paused_at=row.paused_at,
                paused_by=row.paused_by, pause_reason=row.pause_reason,
                holders=[task for task in tasks if task.state is not State.WAITING],
                waiting=[task for task in tasks if task.state is State.WAITING],
                elsewhere=sum(task.state != "waiting" and task not in shown for task in standing),
            )
        )  # fmt: skip
    return found


def command(verb: str, name: str) -> str:
    """A command that a person can copy, whatever committers call their locks. ``verb`` has the place of the name."""
    return f"arkqueue {verb} {shlex.quote(name)}"
