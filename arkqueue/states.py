"""The states of a task, and the events that move it from one to another (design 4). Pure.

A task waits until its last ``depends`` edge is met. Then it *enters*: its ``cancels`` fire, and when
the tasks that they stop are gone, it becomes ready (a task with a program) or completed (a gate). A
retry, a deferral that is over, and a lost or restarted attempt all lead back to ``waiting``. So
cancellations fire each time a task becomes ready. A new task that waits for nothing and cancels
nothing is stored as ready at once. A held task does not enter until a person releases it, even if
its edges are met. A settled task runs again if a person asks for it, and so do the tasks that depend
on it. REPORT runs again if a person asks for another report.

``MOVES`` is the only definition of these moves. The guards in ``sql/*.sql`` (``{from EVENT}``, ``{to
EVENT}``), the diagram in the documentation and the tests of every (state, event) are made from it.
An attempt has no state, only an end. ``verdicts`` decides which event an end is for its task.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class State(StrEnum):
    WAITING = "waiting"
    HELD = "held"
    READY = "ready"
    RUNNING = "running"
    DEFERRED = "deferred"
    COMPLETED = "completed"
    FAILED = "failed"
    REJECTED = "rejected"
    CANCELED = "canceled"
    SKIPPED = "skipped"


SETTLED = frozenset({State.COMPLETED, State.FAILED, State.REJECTED, State.CANCELED, State.SKIPPED})
"""The final states."""

UNSETTLED = frozenset(State) - SETTLED

ATTENTION = (
    State.FAILED, State.REJECTED, State.HELD, State.RUNNING, State.READY, State.DEFERRED, State.WAITING, State.CANCELED, State.SKIPPED, State.COMPLETED,
)  # fmt: skip
"""The order in which one state is chosen for many tasks: the first of these that any of them has."""


class Event(StrEnum):
    PASS = "pass"
    ENABLE = "enable"
    HOLD = "hold"
    RELEASE = "release"
    UNMEET = "unmeet"
    GIVE_BACK = "give_back"
    FAULT = "fault"
    CLAIM = "claim"
    HAND_BACK = "hand_back"
    COMPLETE = "complete"
    FAIL = "fail"
    REJECT = "reject"
    DEFER = "defer"
    DUE = "due"
    STOP = "stop"
    RESTART = "restart"
    RERUN = "rerun"
    CANCEL = "cancel"
    SKIP = "skip"
    RETRY = "retry"
    REOPEN = "reopen"
    REDO = "redo"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class Move:
    sources: frozenset[State]
    target: State
    meaning: str


def _move(sources: str, target: str, meaning: str) -> Move:
    return Move(frozenset(State(s) for s in sources.split()), State(target), meaning)


MOVES: dict[Event, Move] = {
    Event.PASS: _move("waiting", "completed", "a gate whose edges are all met"),
    Event.ENABLE: _move(
        "waiting", "ready", "all edges are met, the tasks that it cancels are gone, and its locks have room"
    ),
    Event.HOLD: _move("waiting ready", "held", "a person, or its workflow file, wants it released before it starts"),
    Event.RELEASE: _move("held", "waiting", "a person released it"),
    Event.UNMEET: _move("ready", "waiting", "a dependency was retried before it started (design 5.8)"),
    Event.GIVE_BACK: _move("ready", "waiting", "it gives back the locks that it was granted (design 5.25)"),
    Event.FAULT: _move(
        "waiting", "failed", "the fields in a lock's name give no valid name when it asks for its locks"
    ),
    Event.CLAIM: _move("ready", "running", "a task manager took it: an attempt begins"),
    Event.HAND_BACK: _move("running", "waiting", "its task manager shut down, or its host could not begin it"),
    Event.COMPLETE: _move("running", "completed", "exit code 0"),
    Event.FAIL: _move(
        "running", "failed", "it failed and its retries are used up, or its task managers died too often"
    ),
    Event.REJECT: _move("running", "rejected", "exit code 65"),
    Event.DEFER: _move(
        "running",
        "deferred",
        "exit code 75, a repository that cannot be read, a failure that is retried, or a lost poll",
    ),
    Event.DUE: _move("deferred", "waiting", "its delay is over, or a person wants it now"),
    Event.STOP: _move("running", "canceled", "it was asked to stop and is proved gone"),
    Event.RESTART: _move("running", "waiting", "a person asked for another attempt and this one is gone"),
    Event.RERUN: _move("running", "waiting", "its task manager died"),
    Event.CANCEL: _move("waiting held ready deferred", "canceled", "by a person, or superseded, before it ran"),
    Event.SKIP: _move(
        "waiting held ready deferred", "skipped", "a product that it needs will never exist, or a person decided so"
    ),
    Event.RETRY: _move("failed canceled skipped", "waiting", "a person wants it run again"),
    Event.REOPEN: _move("skipped", "waiting", "the task because of which it was skipped is retried"),
    Event.REDO: _move(
        "completed failed rejected canceled skipped deferred",
        "waiting",
        "a person wants it, or a task that it depends on, to run again (`retry --from`)",
    ),
    Event.UPDATE: _move(
        "completed failed rejected canceled",
        "waiting",
        "only of REPORT: a person wants another report, or a report that was made before the run had settled is sent",
    ),
}


class IllegalMove(ValueError):
    """The event is not possible in the task's state."""


def move(state: State, event: Event) -> State:
    """The state after the event. Raises ``IllegalMove`` if the table has no such move."""
    if state not in MOVES[event].sources:
        raise IllegalMove(f"{event} is not possible for a task that is {state}")
    return MOVES[event].target


def expand(word: str, event: str) -> str:
    """The SQL text for ``{from EVENT}`` or ``{to EVENT}`` in an SQL block."""
    chosen = MOVES[Event(event)]
    if word == "to":
        return f"'{chosen.target}'::task_state"
    return "state in (" + ", ".join(f"'{s}'" for s in State if s in chosen.sources) + ")"


class RunState(StrEnum):
    """In the order in which they apply (design 4). ``docs/glossary.md`` says what each means."""

    DELETED = "deleted"
    PLANNING = "planning"
    FAILED = "failed"
    HELD = "held"
    PENDING = "pending"
    PROCESSING = "processing"
    REPORTING = "reporting"
    CANCELED = "canceled"
    SUPERSEDED = "superseded"
    COMPLETED = "completed"


OPEN = frozenset({RunState.PLANNING, RunState.HELD, RunState.PENDING, RunState.PROCESSING, RunState.REPORTING})
"""States that only a run with unsettled tasks can have."""


def run_state(row: Any) -> RunState:
    """The state of a run from its counted tasks; the first that applies wins (design 4)."""
    if row.deleted_at is not None:
        return RunState.DELETED
    if row.planned is not None:
        return RunState.PLANNING
    if row.faults or (not row.unsettled and row.bad):
        return RunState.FAILED
    if row.unsettled:
        if row.begun:
            return RunState.PROCESSING
        return RunState.HELD if row.held else RunState.PENDING
    if row.report_state == State.HELD:
        return RunState.HELD
    if row.report_state not in (None, *SETTLED):
        return RunState.REPORTING
    if row.canceled_otherwise:
        return RunState.CANCELED
    return RunState.SUPERSEDED if row.superseded_by_later else RunState.COMPLETED
