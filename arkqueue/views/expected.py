"""Expected start and end of tasks, from the durations of earlier tasks of the same name. Waiting
for a slot or a lock is not included. There is no expectation for tasks that wait for a person, or
whose archive or lock is paused, and for tasks that wait for these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from graphlib import TopologicalSorter
from typing import Final, NamedTuple, Protocol

from arkqueue.db.session import Session
from arkqueue.model import BranchId
from arkqueue.states import State

MOST: Final = 1000
"""The most tasks that one answer considers."""


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


def expected_of(session: Session, tasks: Collection[int]) -> dict[int, Expected]:
    """The expected start and end of some tasks. Left out are tasks without an expectation, and
    those that wait for more than `MOST` others.
    """
    rows = session.rows("open_before", tasks=sorted(tasks), most=MOST) if tasks else []
    is_open = [row for row in rows if row.state in (State.WAITING, State.READY, State.RUNNING)]
    waits = [Wait(row.id, source) for row in is_open for source in row.sources]
    found: dict[int, Expected] = {}
    # No edge leads from one branch to another, but the given tasks may belong to several.
    for branch in {row.branch_id for row in is_open}:
        here = [row for row in is_open if row.branch_id == branch]
        usual = usual_durations(session, branch, {row.name for row in here if not row.gate and not row.item})
        found |= expected(here, waits, usual, datetime.now(UTC), withheld=withheld(session, branch, here))
    return {id: found[id] for id in tasks if id in found}


def withheld(session: Session, branch: BranchId, tasks: Iterable[Task]) -> set[int]:
    """The tasks, among some of a branch, that start only after a person has acted: their archive is
    paused or stopped, or they name a paused lock.
    """
    left = [task.id for task in tasks if task.state in (State.WAITING, State.READY)]
    archive, behind = session.rows_of(("branch_withheld", {"branch": branch}), ("behind_paused_locks", {"tasks": left}))
    return set(left) if archive[0].withheld else {row.id for row in behind}


def usual_durations(session: Session, branch: BranchId, names: Collection[str]) -> dict[str, float]:
    """The usual duration of tasks of a branch, in seconds, by name. Tasks that have not completed
    lately are left out.
    """
    rows = session.rows("usual_durations", branch=branch, names=sorted(names)) if names else []
    return {row.name: row.seconds for row in rows}


def expected(
    tasks: Iterable[Task],
    edges: Iterable[Edge],
    usual: Mapping[str, float],
    now: datetime,
    *,
    withheld: Collection[int],
) -> dict[int, Expected]:
    """The expected start and end of each unsettled task whose duration, and those of all tasks that
    it waits for, are known. ``withheld``: as in the function of this name. Pure.
    """
    states = (State.WAITING, State.READY, State.RUNNING)
    # A withheld task, or one of unknown duration, has no expected end, and neither have the tasks
    # that wait for it.
    waiting = {
        task.id: task
        for task in tasks
        if task.state in states and task.id not in withheld and _seconds(task, usual) is not None
    }
    sources: dict[int, list[int]] = {id: [] for id in waiting}
    for edge in edges:
        if not edge.met and edge.target in waiting:
            sources[edge.target].append(edge.source)
    found: dict[int, Expected | None] = {}
    for id in TopologicalSorter(sources).static_order():
        if id in waiting:
            found[id] = _of(waiting[id], [found.get(source) for source in sources[id]], usual, now)
    return {id: one for id, one in found.items() if one is not None}


def _of(task: Task, before: list[Expected | None], usual: Mapping[str, float], now: datetime) -> Expected | None:
    seconds = _seconds(task, usual)
    if seconds is None or None in before:
        return None
    if task.state == State.RUNNING and task.started_at is not None:
        return Expected(task.started_at, max(task.started_at + timedelta(seconds=seconds), now))
    start = max([now, *(one.end for one in before if one is not None)])
    return Expected(start, start + timedelta(seconds=seconds))


def _seconds(task: Task, usual: Mapping[str, float]) -> float | None:
    """The usual duration of a task; None if it is not known."""
    return 0.0 if task.gate else usual.get(task.name) if not task.item else None
