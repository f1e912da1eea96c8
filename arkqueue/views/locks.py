"""Locks (design 5.25): the tasks that have them, and the tasks that wait, in order."""

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
"""The most tasks that are listed as having one lock, and as waiting for it."""
MOST_IN_GRAPH = 10
"""The most such tasks of one lock in a graph."""
MOST_LOCKS = 100
"""The most locks that are listed with a graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockTask:
    """A task at a lock: it occupies the lock (running), was granted it (ready), or waits for it."""

    full_name: str
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class LockView:
    """A lock. ``name``: its name in commands, ``ARCHIVE/NAME`` or ``global/NAME``. ``capacity``
    null: unlimited.

    ``holders``: the tasks that occupy it or were granted it. ``waiting``: the tasks that ask for
    it, the next one first. Both have at most 100 tasks (10 in a graph), of the archives that were
    asked for. ``elsewhere``: the number of tasks of other archives that have a lock of the
    installation. ``more``: True if more tasks have it or wait for it than are listed.
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
    """The locks of some archives, and the locks of the installation that they use (None: all); with
    ``name`` and ``scope``, only that lock.
    """
    told: dict[str, Any] = {"archives": None if archives is None else list(archives), "name": name, "scope": scope}
    return [_view(session, row, archives, MOST_TASKS) for row in session.rows("show_locks", **told)]


def locks_of_runs(
    session: Session, runs: Sequence[RunId], archives: Sequence[ArchiveId] | None
) -> tuple[list[LockView], bool]:
    """The locks that tasks of some runs have or wait for, those with waiting tasks first, and
    whether there are more. The tasks at a lock are of some archives; None: all.
    """
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
        name=full_name(row), capacity=row.capacity, paused_at=row.paused_at,
        paused_by=row.paused_by, pause_reason=row.pause_reason,
        holders=[task for task in tasks if task.state is not State.WAITING],
        waiting=[task for task in tasks if task.state is State.WAITING],
        elsewhere=sum(archives is not None and task.archive_id not in archives for task in having),
        more=max(len(having), len(waiting)) > most,
    )  # fmt: skip


def full_name(row: Any) -> str:
    """The name of a lock in commands. ``row``: has its scope, the name of that archive, and its
    name in workflow files.
    """
    return str(row.name) if row.scope == INSTALLATION else f"{row.archive}/{row.name}"


def command(verb: str, name: str) -> str:
    """A command that a person can copy, whatever characters a lock's name has. ``verb``: has the
    place of the name.
    """
    return f"arkqueue {verb} {shlex.quote(name)}"
