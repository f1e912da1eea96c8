"""When tasks are expected to start and to end, from how long those of their names took before. Who waits for a slot or a lock waits longer than is said here; of what waits for a person, also by a pause of its archive, nothing is said."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from graphlib import TopologicalSorter
from typing import Final, Protocol

from arkqueue.db.session import Session
from arkqueue.model import BranchId
from arkqueue.states import State

MOST: Final = 1000
"""Tasks that are looked at for an answer."""


@dataclass(frozen=True, slots=True)
class Expected:
    """When a task is expected to start and to end."""

    start: datetime
    end: datetime


class Task(Protocol):
    """What is asked of a task: ``views.tasks.TaskView`` has it."""

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


@dataclass(frozen=True, slots=True)
class Wait:
    """An edge of its own: ``target`` waits for ``source`` until it is met."""

    target: int
    source: int
    met: bool = False


def expected_of(session: Session, tasks: Collection[int]) -> dict[int, Expected]:
    """When some tasks are expected to start and to end, where that is known; of what waits for more than `MOST` others it is not."""
    rows = session.rows("open_before", tasks=sorted(tasks), most=MOST + 1) if tasks else []
    if len(rows) > MOST:
        return {}
    is_open = [row for row in rows if row.state in (State.WAITING, State.READY, State.RUNNING)]
    waits = [Wait(row.id, source) for row in is_open for source in row.sources]
    found: dict[int, Expected] = {}
    # Edges lead from branch to branch nowhere; tasks that are asked for may be of several.
    for branch in {row.branch_id for row in is_open}:
        here = [row for row in is_open if row.branch_id == branch]
        usual = usual_durations(session, branch, {row.name for row in here if not row.gate and not row.item})
        found |= expected(here, waits, usual, datetime.now(UTC), may_start=may_start(session, branch))
    return {id: found[id] for id in tasks if id in found}


def may_start(session: Session, branch: BranchId) -> bool:
    """Whether tasks of a branch may start: its archive is neither paused nor stopped."""
    return not session.rows("branch_withheld", branch=branch)[0].withheld


def usual_durations(session: Session, branch: BranchId, names: Collection[str]) -> dict[str, float]:
    """How long tasks of a branch usually take, in seconds, by their names; without those that have not completed lately."""
    rows = session.rows("usual_durations", branch=branch, names=sorted(names)) if names else []
    return {row.name: row.seconds for row in rows}


def expected(
    tasks: Iterable[Task], edges: Iterable[Edge], usual: Mapping[str, float], now: datetime, *, may_start: bool
) -> dict[int, Expected]:
    """For each task that is not settled and whose duration is known, when it is expected to start and to end; so are all that it waits for. ``may_start``: else only what runs has an end. Pure."""
    states = (State.WAITING, State.READY, State.RUNNING) if may_start else (State.RUNNING,)
    # What takes nobody knows how long has no end, and neither has what waits for it.
    waiting = {task.id: task for task in tasks if task.state in states and _seconds(task, usual) is not None}
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
    """How long a task takes usually; None: nobody knows."""
    return 0.0 if task.gate else usual.get(task.name) if not task.item else None
