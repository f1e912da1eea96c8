"""Locks (design 5.25): who has them, and who waits in which order."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from arkqueue.db.session import Session
from arkqueue.model import INSTALLATION, ArchiveId, RunId
from arkqueue.states import State
from arkqueue.views.naming import task_names

MOST_TASKS = 100
"""Tasks that have one lock, and tasks that wait for it, that are told."""
MOST_IN_GRAPH = 10
"""The same in a graph."""
MOST_LOCKS = 100
"""Locks that are told of a graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockTask:
    """A task that stands at a lock: it occupies the lock (running), has been granted it (ready), or waits for it."""

    full_name: str
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class LockView:
    """A lock. ``name``: what it is called in commands, ``ARCHIVE/NAME`` or ``global/NAME``; ``capacity`` null: unlimited.

    ``holders``: the tasks that occupy it or have been granted it; ``waiting``: those that ask for it, the next first; 100 of each at most (in a graph 10), of
    the archives that were asked for. ``elsewhere``: how many tasks of other archives have a lock of the installation. ``more``: more tasks have it or wait
    for it than are told.
    """

    name: str
    capacity: int | None
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    holders: list[LockTask]
    waiting: list[LockTask]
    elsewhere: int
    more: bool


def locks(
    session: Session,
    archives: Sequence[ArchiveId] | None,
    name: str | None = None,
    scope: ArchiveId | None = None,
) -> list[LockView]:
    """The locks of some archives and those of the installation that they use (None: every one); of one name and scope where these are given."""
    told: dict[str, Any] = {"archives": None if archives is None else list(archives), "name": name, "scope": scope}
    return [_view(session, row, archives, MOST_TASKS) for row in session.rows("show_locks", **told)]


def locks_of_runs(
    session: Session, runs: Sequence[RunId], archives: Sequence[ArchiveId] | None
) -> tuple[list[LockView], bool]:
    """The locks that tasks of some runs have or wait for, those that one waits for first, and whether there are more; with tasks of some archives (None: all)."""
    rows = session.rows("locks_of_runs", runs=list(runs), most=MOST_LOCKS + 1)
    return [_view(session, row, archives, MOST_IN_GRAPH) for row in rows[:MOST_LOCKS]], len(rows) > MOST_LOCKS


def _view(session: Session, row: Any, archives: Sequence[ArchiveId] | None, most: int) -> LockView:
    standing = session.rows("lock_tasks_of", scope=row.scope, name=row.name, most=most + 1)
    having = [task for task in standing if task.state != State.WAITING]
    waiting = [task for task in standing if task.state == State.WAITING]
    shown = [one for one in (*having[:most], *waiting[:most]) if archives is None or one.archive_id in archives]
    names = task_names(session, [task.id for task in shown])
    tasks = [LockTask(full_name=names[task.id], state=State(task.state)) for task in shown if task.id in names]
    return LockView(
        name=row.name if row.scope == INSTALLATION else f"{row.archive}/{row.name}", capacity=row.capacity, paused_at=row.paused_at,
        paused_by=row.paused_by, pause_reason=row.pause_reason,
        holders=[task for task in tasks if task.state is not State.WAITING],
        waiting=[task for task in tasks if task.state is State.WAITING],
        elsewhere=sum(archives is not None and task.archive_id not in archives for task in having),
        more=max(len(having), len(waiting)) > most,
    )  # fmt: skip


def command(verb: str, name: str) -> str:
    """A command that a person can copy, whatever committers call their locks. ``verb`` has the place of the name."""
    return f"arkqueue {verb} {shlex.quote(name)}"
