"""Expected start and end of tasks, from the durations of earlier tasks of the same name.

A task that waits for a lock starts after the tasks that have it and after those that stand before it
in line. There is no expectation for these tasks, nor for tasks that wait for them:

- Tasks that wait for a person, or whose archive or lock is paused.
- Ready tasks that no task manager has a free slot for.
- Tasks at a lock, if the end of a holder or of an earlier task in the line is not known.
- Tasks that are not among the first ones of a long line.
- Tasks behind a task that runs for longer than usual.
- Tasks at a lock of the whole installation, if other archives wait for this lock, too.

The wait for a slot of a task that is not ready yet is not included.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any, Final, NamedTuple, Protocol

from arkqueue.db.session import Session
from arkqueue.model import SILENCE, BranchId
from arkqueue.states import State

MOST: Final = 1000
"""The most tasks that one answer considers."""
MOST_AT_A_LOCK: Final = 20
"""The most tasks that have a lock, and the most that stand in its line, that are read."""
MOST_LOCKS: Final = 20
"""The most locks that are read for one answer."""
_OPEN: Final = (State.WAITING, State.READY, State.RUNNING)


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected start and end of a task."""

    start: datetime
    end: datetime


class Task(Protocol):
    """The fields of a task that are needed here; ``views.tasks.TaskView`` has them."""

    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def item(self) -> str: ...
    @property
    def state(self) -> State: ...
    @property
    def gate(self) -> bool: ...
    @property
    def started_at(self) -> datetime | None: ...


class Edge(Protocol):
    """An edge: its target waits for its source, until it is met."""

    @property
    def target(self) -> int: ...
    @property
    def source(self) -> int: ...
    @property
    def met(self) -> bool: ...


class Wait(NamedTuple):
    """An edge of its own: ``target`` waits for ``source`` until it is met."""

    target: int
    source: int
    met: bool = False


Lock = tuple[int, str]
"""A lock, as seen from an archive: the archive's id and the name."""


@dataclass(frozen=True, slots=True)
class Line:
    """The tasks at a lock. ``line``: those that wait for it, in the order in which they get it, and
    ``holders``: those that have it, both by id and at most `MOST_AT_A_LOCK`. ``is_whole``: False if
    more tasks wait.
    """

    capacity: int
    holders: list[int]
    line: list[int]
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the starts of some tasks.

    ``withheld``: the tasks without an expected start: a person has to act first, or no slot is free.
    ``awaited``: the locks that each task waits for, or will wait for. ``lines``: the tasks at these
    locks; a lock without limited capacity is left out. ``unknown``: the locks that nobody knows when
    a task gets.
    ``beside``: further tasks at the locks, and ``usual``: their usual durations by id. ``order``: all
    tasks at the locks, in the order of claims.
    """

    withheld: Collection[int] = ()
    awaited: Mapping[int, Collection[Lock]] = field(default_factory=dict)
    lines: Mapping[Lock, Line] = field(default_factory=dict)
    unknown: Collection[Lock] = ()
    beside: Collection[Task] = ()
    usual: Mapping[int, float] = field(default_factory=dict)
    order: Collection[int] = ()


def expected_of(session: Session, tasks: Collection[int]) -> dict[int, Expected]:
    """The expected start and end of some tasks. Left out are tasks without an expectation, and
    those that wait for more than `MOST` others.
    """
    rows = session.rows("open_before", tasks=sorted(tasks), most=MOST) if tasks else []
    is_open = [row for row in rows if row.state in _OPEN]
    waits = [Wait(row.id, source) for row in is_open for source in row.sources]
    found: dict[int, Expected] = {}
    # No edge leads from one branch to another, but the given tasks may belong to several.
    for branch in {row.branch_id for row in is_open}:
        here = [row for row in is_open if row.branch_id == branch]
        usual = usual_durations(session, branch, {row.name for row in here if not row.gate and not row.item})
        found |= expected(here, waits, usual, datetime.now(UTC), limits_of(session, branch, here))
    return {id: found[id] for id in tasks if id in found}


def limits_of(session: Session, branch: BranchId, tasks: Iterable[Task]) -> Limits:
    """The limits of the starts of some tasks of a branch."""
    here = {task.id: task for task in tasks}
    left = [id for id, task in here.items() if task.state in (State.WAITING, State.READY)]
    archive, paused, slotless, awaited = session.rows_of(
        ("branch_withheld", {"branch": branch}),
        ("behind_paused_locks", {"tasks": left}),
        ("without_slot", {"tasks": left, "silence": SILENCE}),
        ("awaited_locks", {"tasks": left}),
    )
    if archive[0].withheld:
        return Limits(withheld=set(left))
    withheld = {row.id for row in [*paused, *slotless]}
    locks: dict[int, list[Lock]] = defaultdict(list)
    are_global: dict[Lock, bool] = {}
    unknown: set[Lock] = set()
    for row in awaited:
        lock = row.archive_id, row.name
        locks[row.id].append(lock)
        if row.is_known and (lock in are_global or len(are_global) < MOST_LOCKS):
            are_global[lock] = row.is_global
        else:
            unknown.add(lock)
    if not are_global:
        return Limits(withheld, locks, unknown=unknown)
    lines = _lines(session, are_global, unknown)
    at_locks = {id for line in lines.values() for id in [*line.holders, *line.line]}
    rows = session.rows("tasks_at_locks", tasks=sorted(at_locks)) if at_locks else []
    beside = [row for row in rows if row.id not in here]
    ready = [row.id for row in beside if row.state == State.READY]
    if ready:
        withheld |= {row.id for row in session.rows("without_slot", tasks=ready, silence=SILENCE)}
    return Limits(withheld, locks, lines, unknown, beside, _usual_of(session, beside), [row.id for row in rows])


def _lines(session: Session, are_global: Mapping[Lock, bool], unknown: set[Lock]) -> dict[Lock, Line]:
    """The tasks at some locks. Locks without limited capacity are left out. Adds to ``unknown`` the
    locks that too many tasks have, or that other archives wait for, too.
    """
    found = session.rows(
        "lines_of_locks",
        archives=[archive for archive, _ in are_global],
        names=[name for _, name in are_global],
        are_global=[*are_global.values()],
        most=MOST_AT_A_LOCK + 1,
    )
    lines: dict[Lock, Line] = {}
    for row in found:
        if row.is_shared or len(row.holders) > MOST_AT_A_LOCK:
            unknown.add((row.archive_id, row.name))
        else:
            some = row.line[:MOST_AT_A_LOCK]
            lines[row.archive_id, row.name] = Line(row.capacity, row.holders, some, len(some) == len(row.line))
    return lines


def _usual_of(session: Session, tasks: Iterable[Any]) -> dict[int, float]:
    """The usual durations of some tasks at locks, by id, if they are known. A waiting task that stands
    in the lines of several locks is left out, because its other locks may not be known.
    """
    by_branch: dict[BranchId, list[Any]] = defaultdict(list)
    for task in tasks:
        if not task.item and not task.gate and (task.state != State.WAITING or task.locks == 1):
            by_branch[task.branch_id].append(task)
    found: dict[int, float] = {}
    for branch, some in by_branch.items():
        usual = usual_durations(session, branch, {task.name for task in some})
        found |= {task.id: usual[task.name] for task in some if task.name in usual}
    return found


def usual_durations(session: Session, branch: BranchId, names: Collection[str]) -> dict[str, float]:
    """The usual duration of tasks of a branch, in seconds, by name. Tasks that have not completed
    lately are left out.
    """
    rows = session.rows("usual_durations", branch=branch, names=sorted(names)) if names else []
    return {row.name: row.seconds for row in rows}


def expected(
    tasks: Collection[Task],
    edges: Iterable[Edge],
    usual: Mapping[str, float],
    now: datetime,
    limits: Limits,
) -> dict[int, Expected]:
    """The expected start and end of each unsettled task whose duration, and those of all tasks that
    it waits for, are known. ``limits``: from `limits_of`. Pure.
    """
    seconds = {task.id: _seconds(task, usual) for task in tasks} | dict(limits.usual)
    # A withheld task, or one of unknown duration, has no expected end, and neither have the tasks
    # that wait for it.
    known = {
        task.id: task
        for task in [*tasks, *limits.beside]
        if task.state in _OPEN and task.id not in limits.withheld and seconds.get(task.id) is not None
    }
    unmet: dict[int, set[int]] = {id: set() for id in known}
    behind: dict[int, set[int]] = defaultdict(set)
    for edge in edges:
        if not edge.met and edge.target in known:
            unmet[edge.target].add(edge.source)
            behind[edge.source].add(edge.target)
    starts = _Starts(known, seconds, limits, now)
    order = {id: place for place, id in enumerate(limits.order)}
    # The task that has waited for no other task since the earliest time is the next to get its locks.
    following = [(now, order.get(id, len(order)), id) for id in known if not unmet[id]]
    heapq.heapify(following)
    earliest: dict[int, datetime] = dict.fromkeys(known, now)
    found: dict[int, Expected] = {}
    while following:
        _, _, id = heapq.heappop(following)
        one = starts.of(known[id], earliest[id])
        if one is None:
            continue
        found[id] = one
        if known[id].state == State.RUNNING and one.end <= now:
            continue  # it is overdue, and nobody knows when it ends
        for target in behind[id]:
            earliest[target] = max(earliest[target], one.end)
            unmet[target].discard(id)
            if not unmet[target]:
                heapq.heappush(following, (earliest[target], order.get(target, len(order)), target))
    return found


class _Starts:
    """Gives tasks their expected starts, one after another, and to each its locks.

    ``free``: a heap of the times at which the places of each lock become free; empty if this is not
    known of any place. ``vague``: the locks of which one holder may end at any time, so that a place
    which becomes free again is not counted. ``only``: of a lock whose line is not known to its end,
    the tasks with a known place in it.
    """

    def __init__(
        self, known: Mapping[int, Task], seconds: Mapping[int, float | None], limits: Limits, now: datetime
    ) -> None:
        self.known, self.seconds, self.now = known, seconds, now
        self.free: dict[Lock, list[datetime]] = {lock: [] for lock in limits.unknown}
        self.vague: set[Lock] = set()
        self.only: dict[Lock, set[int]] = {}
        self.awaited: dict[int, set[Lock]] = defaultdict(set)
        for id, locks in limits.awaited.items():
            self.awaited[id].update(locks)
        for lock, line in limits.lines.items():
            self._read(lock, line)

    def _read(self, lock: Lock, line: Line) -> None:
        ends = [self._end(id) for id in line.holders]
        are_free = [self.now] * min(max(line.capacity - len(ends), 0), MOST)
        known = sorted(end for end in ends if end is not None)
        if len(known) < len(ends):
            # Any of the holders may be the next to end.
            self.vague.add(lock)
            known = []
        self.free[lock] = [*are_free, *known[-line.capacity :]]
        before = [*takewhile(self.known.__contains__, line.line)]
        if len(before) < len(line.line) or not line.is_whole:
            self.only[lock] = {*before}
        for id in line.line:
            self.awaited[id].add(lock)

    def _end(self, holder: int) -> datetime | None:
        """The expected end of a task that has a lock; None if it is not known, or overdue."""
        task, seconds = self.known.get(holder), self.seconds.get(holder)
        if task is None or seconds is None:
            return None
        end = (task.started_at or self.now) + timedelta(seconds=seconds)
        return end if end > self.now else None

    def of(self, task: Task, earliest: datetime) -> Expected | None:
        """The expected start and end of the next task, which does not start before a time; None if
        this is not known.
        """
        length = timedelta(seconds=self.seconds[task.id] or 0)
        if task.state == State.RUNNING and task.started_at is not None:
            return Expected(task.started_at, max(task.started_at + length, self.now))
        locks = [lock for lock in self.awaited[task.id] if lock in self.free] if task.state == State.WAITING else []
        if any(not self.free[lock] or task.id not in self.only.get(lock, (task.id,)) for lock in locks):
            # It keeps those from the locks that stand after it.
            self.free.update((lock, []) for lock in locks)
            return None
        start = max([earliest, *(self.free[lock][0] for lock in locks)])
        for lock in locks:
            heapq.heappop(self.free[lock])
            if lock not in self.vague:
                heapq.heappush(self.free[lock], start + length)
        return Expected(start, start + length)


def _seconds(task: Task, usual: Mapping[str, float]) -> float | None:
    """The usual duration of a task; None if it is not known."""
    return 0.0 if task.gate else usual.get(task.name) if not task.item else None
