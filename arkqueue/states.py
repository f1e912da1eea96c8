"""The life of a task: which event may move a task from which state to which (design 4). Pure.

A task waits until its last ``depends`` edge is met; then it *enters*: its ``cancels`` fire, and when what they stop is gone
it becomes ready (a task with a program) or completed (a gate). Every way back to work leads through ``waiting`` again: a retry, a
deferred task that is due, a lost or restarted attempt. So cancellations fire each time that a task
becomes ready. A new task that waits for nothing and cancels nothing is stored as ready at once.
A held task does not enter, whatever becomes of its edges, until a person releases it.
What has ended comes back when a person wants it again, with all that depends on it. REPORT comes back when a person wants another report.

``MOVES`` is the only place that says so. The guards in ``sql/*.sql`` (``{from EVENT}``, ``{to EVENT}``), the diagram in the
documentation and the tests of every (state, event) are made from it. An attempt has no state of its own, only an end; what an end
means for its task is decided by ``verdict``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from arkqueue.model import End, Retries


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
"""Where one state stands for many tasks, the first of these that one of them has."""


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
    """The state after the event; ``IllegalMove`` where the table has none."""
    if state not in MOVES[event].sources:
        raise IllegalMove(f"{event} is not possible for a task that is {state}")
    return MOVES[event].target


def expand(word: str, event: str) -> str:
    """What ``{from EVENT}`` and ``{to EVENT}`` of an SQL block stand for."""
    chosen = MOVES[Event(event)]
    if word == "to":
        return f"'{chosen.target}'::task_state"
    return "state in (" + ", ".join(f"'{s}'" for s in State if s in chosen.sources) + ")"


EX_DATAERR = 65
EX_TEMPFAIL = 75
DEFER_DELAY = 60.0
"""Seconds until a task that ended with 75, could not read its repository or was withheld is tried again. Each further time doubles them."""
LONGEST_DEFERRAL = 3600.0
"""Seconds between two tries of a task that ended with 75, at most, unless its output `arkqueue.retry_after` says another time."""
LONGEST_AWAY = 600.0
"""Seconds between two tries of a task that could not read its repository or was withheld, at most. Such a task did not ask to wait: it runs soon after the fault is over."""
LONGEST_DELAY = 6 * 3600.0
"""Seconds between two tries of a task that failed, at most."""
MOST_LOSSES = 3
"""How often a task is run again because its task manager died (design 3, ``on_lost``)."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the database knows of a running task when its attempt ends.

    ``stop`` is what its attempt was asked for: ``"cancel"``, ``"restart"`` or None. ``failures`` and ``deferrals`` count earlier ones since the
    last retry by a person, ``losses`` the attempts that died with their task manager. ``retry_after``: the seconds that the attempt itself asks
    for, if any. ``time_left``: the seconds until its ``deadline``, which begins with the first deferral; None: it has none. ``poll_every``: the
    seconds between its polls; None: it has none. ``polls``: the attempt was one of them.
    """

    stop: str | None
    failures: int
    deferrals: int
    losses: int
    retries: Retries
    on_lost: str
    retry_after: float | None = None
    time_left: float | None = None
    poll_every: float | None = None
    polls: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of the task. ``delay``: seconds until it is due, for DEFER only."""

    event: Event
    delay: float = 0.0


def verdict(end: End, exit_code: int | None, task: Circumstances) -> Verdict:
    """What the end of an attempt means for its task (design 3, exit codes; 5.10, 5.19; 6, ``on_lost``).

    An attempt that had ended before the signal keeps its outcome, where that outcome is final; where it would be tried again, the request to
    cancel it stands.
    """
    if end is End.STOPPED:
        return Verdict({"cancel": Event.STOP, "restart": Event.RESTART}.get(task.stop or "", Event.HAND_BACK))
    if end is End.LOST:
        if task.stop == "cancel":
            return Verdict(Event.STOP)
        if task.polls:  # never the command: nobody can know what that would do once more
            return _again(task, task.poll_every or DEFER_DELAY)
        if task.on_lost == "fail" or task.losses >= MOST_LOSSES:
            return Verdict(Event.FAIL)
        return Verdict(Event.RERUN)
    if end is End.EXITED and exit_code == 0:
        return Verdict(Event.COMPLETE)
    if end is End.EXITED and exit_code == EX_DATAERR:
        return Verdict(Event.REJECT)
    if end in (End.UNREACHABLE, End.WITHHELD):
        return _again(task, _doubled(task.deferrals, LONGEST_AWAY))
    if end is End.EXITED and exit_code == EX_TEMPFAIL:
        return _defer(task)
    if task.failures < task.retries.max:
        delay = task.retries.delay * task.retries.factor ** min(task.failures, 64)
        return _again(task, min(delay, LONGEST_DELAY))
    return Verdict(Event.FAIL)


def _defer(task: Circumstances) -> Verdict:
    """The last try is due at the deadline. One that ends with 75 then, or later, fails the task (design 5.28)."""
    delay = task.retry_after or task.poll_every or _doubled(task.deferrals, LONGEST_DEFERRAL)
    if task.time_left is None:
        return _again(task, delay)
    if task.time_left <= 0 and task.stop != "cancel":
        return Verdict(Event.FAIL)
    return _again(task, min(delay, task.time_left))


def _doubled(before: int, longest: float) -> float:
    return min(DEFER_DELAY * 2.0 ** min(before, 64), longest)


def _again(task: Circumstances, delay: float) -> Verdict:
    return Verdict(Event.STOP) if task.stop == "cancel" else Verdict(Event.DEFER, delay)


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
    if row.report_state not in (None, *SETTLED):
        return RunState.REPORTING
    if row.canceled_otherwise:
        return RunState.CANCELED
    return RunState.SUPERSEDED if row.superseded_by_later else RunState.COMPLETED
