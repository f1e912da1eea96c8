"""The event that the end of an attempt is for its task (design 3, exit codes). Pure. ``states`` has
the events, and the moves that they make.
"""

from __future__ import annotations

from dataclasses import dataclass

from arkqueue.model import End, Retries
from arkqueue.states import Event

EX_DATAERR = 65
EX_TEMPFAIL = 75
DEFER_DELAY = 60.0
"""Seconds until the next attempt of a task that ended with exit code 75, could not read its
repository or was withheld. Each further time, the seconds double.
"""
LONGEST_DEFERRAL = 3600.0
"""The most seconds until the next attempt of a task that ended with exit code 75, unless its output
`arkqueue.retry_after` asks for another time.
"""
LONGEST_AWAY = 600.0
"""The most seconds until the next attempt of a task that could not read its repository or was
withheld. A task that did not ask to wait runs soon after the fault is over.
"""
LONGEST_DELAY = 6 * 3600.0
"""The most seconds until the next attempt of a task that failed."""
MOST_LOSSES = 3
"""The most times that a task is run again because its task manager died (design 3, ``on_lost``)."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The facts about a running task that decide what the end of its attempt means.

    ``stop``: the request to stop that its attempt got: ``"cancel"``, ``"restart"`` or None.
    ``failures``, ``deferrals``: the numbers of earlier ones since the last retry by a person.
    ``losses``: the number of attempts that died with their task manager. ``retry_after``: the
    seconds that the attempt itself asks for, if any. ``time_left``: the seconds until its
    ``deadline``, which begins with the first deferral; None: it has none. ``poll_every``: the
    seconds between its polls; None: it has none. ``polls``: True if the attempt was a poll.
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
    """The event that the end of an attempt is for its task. ``delay``: seconds until the task is due,
    for DEFER only.
    """

    event: Event
    delay: float = 0.0


COMPLETION = Verdict(Event.COMPLETE)


def completes(end: End, exit_code: int | None) -> bool:
    """Whether the end of an attempt completes its task, whatever the circumstances: its verdict is
    `COMPLETION`.
    """
    return end is End.EXITED and exit_code == 0


def verdict(end: End, exit_code: int | None, task: Circumstances) -> Verdict:
    """The event that the end of an attempt is for its task (design 3, exit codes; 5.10, 5.19; 6,
    ``on_lost``).

    An attempt that had ended before the signal keeps its outcome if the outcome is final. If the
    task would be tried again, the request to cancel it is obeyed.
    """
    if end is End.STOPPED:
        return Verdict({"cancel": Event.STOP, "restart": Event.RESTART}.get(task.stop or "", Event.HAND_BACK))
    if end is End.LOST:
        if task.stop == "cancel":
            return Verdict(Event.STOP)
        if task.polls:  # never the command again: it may have effects that must not be repeated
            return _again(task, task.poll_every or DEFER_DELAY)
        if task.on_lost == "fail" or task.losses >= MOST_LOSSES:
            return Verdict(Event.FAIL)
        return Verdict(Event.RERUN)
    if completes(end, exit_code):
        return COMPLETION
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
    """The verdict on exit code 75. The last attempt is due at the deadline. If it ends with 75, too,
    the task fails (design 5.28).
    """
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
