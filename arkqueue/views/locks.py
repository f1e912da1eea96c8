"""Locks (design 5.25): the tasks that have them, and the tasks that wait, in order."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from arkqueue.db.session import Session
from arkqueue.model import INSTALLATION, MOST_COUNTED, SILENCE, ArchiveId, RunId
from arkqueue.states import State
from arkqueue.views.naming import task_names

MOST_TASKS = 100
"""The most tasks that are listed as having one lock, and as waiting for it."""
MOST_IN_GRAPH = 10
"""The most such tasks of one lock in a graph."""
MOST_LOCKS = 100
"""The most locks that are listed with a graph."""
LOOKED_AT = 1000
"""The most waiting tasks of one lock that are looked at. Behind so many tasks that do not stand in
line, no task is found.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockTask:
    """A task at a lock: it occupies the lock (running), was granted it (ready), or waits for it.

    ``place``: the place of a waiting task among those listed that stand in line; None: it has the
    lock, or does not stand in line. ``obstacle``: the reason why a waiting task would not get the
    lock at its turn, as a clause; empty: no reason is known.
    """

    full_name: str
    state: State
    place: int | None = None
    obstacle: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockView:
    """A lock. ``name``: its name in commands, ``ARCHIVE/NAME`` or ``global/NAME``. ``capacity``
    null: unlimited.

    ``holders``: the tasks that occupy it or were granted it. ``waiting``: the tasks that ask for
    it: those in line in their order, then those that do not stand in line. Both have at most 100
    tasks (10 in a graph), of the archives that were asked for.

    ``next``: the listed task that gets the lock when the lock has room for one task more. None: no
    task can have it then, or ``next_elsewhere`` is true: that task is of another archive.

    ``elsewhere``, ``waiting_elsewhere``: the numbers of tasks of other archives that have a lock of
    the installation, and that wait for it, at most 10,000 each. ``more``: True if more tasks of the
    archives that were asked for have it or wait for it than are listed.
    """

    name: str
    capacity: int | None
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    holders: list[LockTask]
    waiting: list[LockTask]
    next: str | None
    next_elsewhere: bool
    elsewhere: int
    waiting_elsewhere: int
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
    return _views(session, session.rows("show_locks", **told), archives, MOST_TASKS)


def locks_of_runs(
    session: Session, runs: Sequence[RunId], archives: Sequence[ArchiveId] | None
) -> tuple[list[LockView], bool]:
    """The locks that tasks of some runs have or wait for, those with waiting tasks first, and
    whether there are more. The tasks at a lock are of some archives; None: all.
    """
    rows = session.rows("locks_of_runs", runs=list(runs), most=MOST_LOCKS + 1)
    return _views(session, rows[:MOST_LOCKS], archives, MOST_IN_GRAPH), len(rows) > MOST_LOCKS


@dataclass(slots=True)
class _Lines:
    """The tasks at one lock, as the database knows them. ``candidates``: those of which the first
    one that can go is the next, in their order. ``blocked``: the locks without room for a
    candidate, by its id.
    """

    lock: Any
    having: list[Any]
    standing: list[Any]
    first: list[Any]
    outside: list[Any]
    counts: Any
    blocked: dict[int, list[Any]] = field(default_factory=lambda: defaultdict(list))

    @property
    def candidates(self) -> list[Any]:
        """Inside an archive, the lock goes to the first tasks in line, as many as it has room for
        when one of its holders has ended. A lock of the installation goes to the first task of an
        archive, and the archives take turns.
        """
        if self.lock.capacity is None:
            return [*self.standing, *self.first]
        if self.lock.scope != INSTALLATION:
            return self.standing[: max(self.lock.capacity + 1 - max(self.counts.having, 1), 1)]
        of_archives = {task.archive_id: task for task in reversed([*self.standing, *self.first])}
        return sorted(of_archives.values(), key=lambda task: (task.had_turn, task.archive_id))

    @property
    def next(self) -> Any | None:
        return next((task for task in self.candidates if task.id not in self.blocked), None)


def _views(session: Session, locks: Sequence[Any], archives: Sequence[ArchiveId] | None, most: int) -> list[LockView]:
    """The views of some locks, read in a few round trips. ``most``: the most tasks of each kind."""
    lines = _read(session, locks, archives, most)
    shown = [task for one in lines for tasks in (one.having, one.standing, one.outside) for task in tasks]
    names = task_names(session, [task.id for task in shown])
    return [_view(one, names) for one in lines]


def _read(session: Session, locks: Sequence[Any], archives: Sequence[ArchiveId] | None, most: int) -> list[_Lines]:
    if not locks:
        return []
    told: dict[str, Any] = {"looked_at": LOOKED_AT, "silence": SILENCE}
    told["archives"] = None if archives is None else list(archives)
    at = [{"scope": lock.scope, "name": lock.name} for lock in locks]
    tasks = session.rows_of(*(("lock_tasks_of", {**told, **one, "most": most}) for one in at))
    counts = session.rows_of(*(("lock_counts", {**told, **one, "counted": MOST_COUNTED}) for one in at))
    lines = []
    for lock, found, (count,) in zip(locks, tasks, counts, strict=True):
        kinds: dict[str, list[Any]] = defaultdict(list)
        for task in found:
            kinds[task.kind].append(task)
        lines.append(_Lines(lock, kinds["having"], kinds["standing"], kinds["first"], kinds["outside"], count))
    asking = [one for one in lines if one.candidates]
    if asking:
        blocks = [without_room(one.lock, [task.id for task in one.candidates]) for one in asking]
        for one, full in zip(asking, session.rows_of(*blocks), strict=True):
            for lock in full:
                one.blocked[lock.id].append(lock)
    return lines


def without_room(lock: Any, tasks: Sequence[int]) -> tuple[str, dict[str, Any]]:
    """The block that finds the other locks that have no room for some tasks in the line of a lock,
    with its parameters. ``lock``: has its scope and its name in workflow files.
    """
    asked = {"scope": lock.scope, "name": lock.name, "tasks": list(tasks), "looked_at": LOOKED_AT, "silence": SILENCE}
    return "locks_without_room", asked | {"may_take": True, "as_free": lock.name, "less": None}


def _view(lines: _Lines, names: Mapping[int, str]) -> LockView:
    lock, counts, following = lines.lock, lines.counts, lines.next
    standing = [
        LockTask(
            full_name=names[task.id],
            state=State.WAITING,
            place=place,
            obstacle=also_waits(lines.blocked.get(task.id, ()), "it waits"),
        )
        for place, task in enumerate((task for task in lines.standing if task.id in names), 1)
    ]
    outside = [
        LockTask(full_name=names[task.id], state=State.WAITING, obstacle=_outside(lock, task))
        for task in lines.outside
        if task.id in names
    ]
    having = [LockTask(full_name=names[task.id], state=State(task.state)) for task in lines.having if task.id in names]
    return LockView(
        name=full_name(lock), capacity=lock.capacity, paused_at=lock.paused_at, paused_by=lock.paused_by, pause_reason=lock.pause_reason,
        holders=having, waiting=[*standing, *outside],
        next=names.get(following.id) if following else None,
        next_elsewhere=following is not None and following in lines.first,
        elsewhere=counts.elsewhere, waiting_elsewhere=counts.waiting_elsewhere,
        more=counts.having > len(lines.having) or counts.waiting > len(standing) + len(outside),
    )  # fmt: skip


def _outside(lock: Any, task: Any) -> str:
    """The reason why a waiting task does not stand in the line of a lock."""
    if task.is_stopped:
        return "its archive is stopped"
    if task.is_paused:
        return "its archive is paused"
    if lock.paused_at is not None:
        return "the lock is paused"
    if task.paused:
        return f"the lock {task.paused[0]} is paused"
    return "no task manager that claims tasks can run it"


def also_waits(locks: Sequence[Any], waits: str) -> str:
    """The clause that a task in line cannot go because other locks have no room for it; empty if all
    have. ``locks``: the rows of the block of `without_room`; ``waits``: the beginning of the clause.
    """
    names = [full_name(lock) for lock in locks]
    return f"{waits} for the lock{'' if len(names) == 1 else 's'} {' and '.join(names)}, too" if names else ""


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
