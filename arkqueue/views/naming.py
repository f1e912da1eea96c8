"""The names that people read and type, from rows that say where a run or a task belongs. Called by
every view.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from arkqueue.db.session import Session
from arkqueue.model import AttemptKind, TaskKind
from arkqueue.names import gate_in_words, run_name, task_in_run


class Place(Protocol):
    """The place of a task, from its own row or its run's view."""

    @property
    def archive(self) -> str: ...
    @property
    def branch(self) -> str: ...
    @property
    def revision(self) -> str: ...


class Run(Place, Protocol):
    """The view of a run."""

    @property
    def id(self) -> int: ...
    @property
    def full_name(self) -> str: ...


def task_name(row: Any) -> str:
    """The name of a task. ``row``: also has name and item."""
    return run_name(row) + _in_run(row)


def names_of(rows: Iterable[Any]) -> dict[int, str]:
    """The names of tasks by their ids. The name of a run is made once for all its tasks."""
    runs: dict[int, str] = {}
    names = {}
    for row in rows:
        run = runs.get(row.run_id) or runs.setdefault(row.run_id, run_name(row))
        names[row.id] = run + _in_run(row)
    return names


def names_within(rows: Iterable[Any], runs: Iterable[Run]) -> dict[int, str]:
    """Like `names_of`, for tasks whose runs the caller has."""
    names = {run.id: run.full_name for run in runs}
    return {row.id: names[row.run_id] + _in_run(row) for row in rows}


def task_names(session: Session, tasks: Iterable[int | None]) -> dict[int, str]:
    """The names of tasks by their ids; None among the ids is ignored."""
    return names_of(places_of(session, tasks))


def places_of(session: Session, tasks: Iterable[int | None]) -> list[Any]:
    """The rows of ``task_places``; None among the ids is ignored."""
    wanted = sorted({task for task in tasks if task is not None})
    return session.rows("task_places", tasks=wanted) if wanted else []


def attempt_names(session: Session, attempts: Sequence[int]) -> list[str]:
    """The names of attempts, for people."""
    found = session.rows("tasks_of_attempts", attempts=attempts) if attempts else []
    names = task_names(session, [row.task_id for row in found])
    kinds = {AttemptKind.RUN: "", AttemptKind.POLL: " (poll)"}
    return [f"attempt {row.number}{kinds[AttemptKind(row.kind)]} of {names[row.task_id]}" for row in found]


def _in_run(row: Any) -> str:
    # A gate's name is shown unquoted: a colon behind the slash is not ambiguous.
    return f"/{gate_in_words(row.name)}" if row.kind == TaskKind.GATE else task_in_run(row.name, row.item)
