"""Prepares and runs one attempt, and judges its end. The task manager claims it before, and records
its end and cleans up afterwards.

``perform`` never raises: an error in an attempt becomes the outcome of this attempt alone, and is
noted in its log. Any thread may ask an attempt to stop at any time; if its program has not begun, it
never begins. The program of an adopted attempt is already running in its container.

If a program had ended before it got the signal to stop, it keeps its own outcome (design 5.10); the
executor knows that. A task manager that shuts down leaves containers running. Such an attempt has
no outcome here: the next task manager of this host records one.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from arkqueue.errors import (
    ArchiveMismatch,
    ArchiveUnreachable,
    ArkqueueError,
    DatabaseUnavailable,
    Elsewhere,
    EngineFault,
    HostFault,
    NotPermitted,
    Withheld,
)
from arkqueue.executor import Ended, Running
from arkqueue.logs.write import LogWriter
from arkqueue.model import AttemptId, AttemptKind, Claim, End, Outcome, TaskDefinition
from arkqueue.repository.reader.client import processes
from arkqueue.repository.reader.entries import named
from arkqueue.task_manager.preparation import Preparation, Prepared
from arkqueue.task_manager.task_files import full_name

log = logging.getLogger("arkqueue")

UNSTARTED = {ArchiveUnreachable: End.UNREACHABLE, Withheld: End.WITHHELD, NotPermitted: End.NOT_PERMITTED}
"""The ends of attempts that an error kept from their start. For other errors: `End.NOT_STARTED`."""
LONGEST = 1e9
"""The most seconds that a thread waits for a program; threads cannot wait much longer."""


class Why(StrEnum):
    """The reason of a stop request, in the words of the attempt's log."""

    CANCEL = "it was canceled"
    RESTART = "it is restarted"
    TIMEOUT = "its time was up"
    SHUTDOWN = "its task manager is shutting down; it will be run again"
    SILENCE = "its task manager could not renew its lease in time; it will be run again"
    LOST = "it no longer belongs to this task manager"


@runtime_checkable
class Outliving(Protocol):
    """A program in a container, which can go on without its task manager."""

    def leave(self) -> None:
        """Leave the container running; ``wait`` then returns an end that says so."""


@runtime_checkable
class Guarded(Protocol):
    """A program that its guard ends when the task manager stands still."""

    def keep(self, begin: float, end: float) -> None:
        """Set the time at which the guard begins to end the program, and the time at which the
        program must be gone (CLOCK_BOOTTIME, seconds). A later call moves both.
        """


class Attempt:
    """One claimed task, passed along from its claim to its end."""

    def __init__(self, claim: Claim, log: LogWriter) -> None:
        self.claim, self.log = claim, log
        self.grace = 0.0  # until its definition is known, there is no program to end
        self.age = 0.0
        """Seconds that the attempt ran under an earlier task manager."""
        self.outlives = False
        """True if the database knows that the attempt may outlive this task manager. Then it stays
        reserved for this host after its lease.
        """
        self.has_ended = False
        """True if the only remaining work is to record its end, or to leave its container running."""
        self.inputs: dict[str, Any] | None = None
        """The content of INPUTS; None until it is asked for."""
        self._lock = threading.Lock()
        self._running: Running | None = None
        self._why: Why | None = None
        self.prepared_by: int | None = None
        """The thread that prepares it, until it begins."""

    def __str__(self) -> str:
        kind = " (poll)" if self.claim.kind is AttemptKind.POLL else ""
        return f"attempt {self.claim.attempt_number}{kind} of {full_name(self.claim)}"

    @property
    def id(self) -> AttemptId:
        return self.claim.attempt

    @property
    def is_running(self) -> bool:
        return self._running is not None

    @property
    def running(self) -> Running:
        """The running program."""
        assert self._running is not None
        return self._running

    @property
    def why(self) -> Why | None:
        """The reason of the first stop request; None without one."""
        return self._why

    def stop(self, why: Why, grace: float | None = None) -> None:
        """Ask the program to end, with its own grace or a shorter one. Returns at once."""
        with self._lock:
            self._why = self._why or why
            running = self._running
        if running is not None:
            running.stop(self.grace if grace is None else min(grace, self.grace))

    def keep(self, begin: float, end: float) -> None:
        """Tell the guard of its program when to begin to end it, and when it must be gone, if this
        task manager stands still (CLOCK_BOOTTIME, seconds).
        """
        running = self._running
        if isinstance(running, Guarded):
            running.keep(begin, end)

    def hang_up(self) -> None:
        """If it was asked to stop while it is being prepared: stop waiting for its repository.
        Returns at once. Has to be called repeatedly.
        """
        if self._why is not None and (thread := self.prepared_by) is not None:
            processes.give_up(thread)

    def leave(self) -> None:
        """Let its container go on when the task manager shuts down, and stop any other program. An
        attempt that was asked to stop before is not affected.
        """
        with self._lock:
            if self._why is not None:
                return
            self._why = Why.SHUTDOWN
            running = self._running
        if running is not None:
            self._end_for_shutdown(running)

    def _end_for_shutdown(self, running: Running) -> None:
        if isinstance(running, Outliving):
            running.leave()
        else:
            running.stop(self.grace)

    def begin(self, start: Callable[[], Running]) -> Running | None:
        """Start its program, unless it was asked to stop before."""
        if self._why is not None:
            return None
        running = start()
        self.resume(running)
        return running

    def resume(self, running: Running) -> None:
        """Note its running program, which ``begin`` or an earlier task manager has started."""
        with self._lock:
            self._running = running
            why = self._why
        if why is Why.SHUTDOWN:
            self._end_for_shutdown(running)
        elif why is not None:
            running.stop(self.grace)

    def end(self) -> None:
        """End its program at once, if it has one. Returns when the program has ended."""
        self.stop(Why.SHUTDOWN, 0)
        if self._running is not None:
            self._running.wait()


@dataclass(frozen=True, slots=True)
class Means:
    """The parts of a task manager that its attempts use. ``started`` notes that a program has
    begun, ``faulted`` that this host could not start one, ``doubted`` that the repository is not
    the one of the ledger any more. ``kept``: `Leases.kept`.

    ``reserve`` records that a container of an image is about to begin. It returns False if the
    attempt does not belong to this task manager any more, and raises DatabaseUnavailable.
    """

    preparation: Preparation
    output_limit: int
    reserve: Callable[[Attempt, str], bool]
    started: Callable[[Attempt], None]
    faulted: Callable[[Attempt, HostFault | EngineFault], None]
    kept: Callable[[Attempt], tuple[float, float]]
    doubted: Callable[[Attempt], None]


def perform(attempt: Attempt, means: Means) -> Outcome | None:
    """Prepare and run an attempt, or follow an adopted one. The caller removes its workspace. None:
    its container goes on without this task manager.
    """
    executors = means.preparation.executors
    try:
        definition = means.preparation.files.sources.definition(attempt.claim.definition)
        if attempt.claim.kind is AttemptKind.POLL:
            definition = definition.as_poll
        attempt.grace = definition.grace
        ended: Ended | None
        if attempt.is_running:
            ended = _followed(attempt, definition, time.monotonic() - attempt.age)
        else:
            ended = _run(attempt, definition, _prepared(attempt, definition, means.preparation), means)
        if ended is not None and ended.left:
            return None
        outcome = _judge(attempt, definition, ended)
        if ended is not None and ended.usage is not None:
            outcome = replace(outcome, usage=ended.usage)
        return _with_outputs(attempt, outcome, means) if ended else outcome
    except DatabaseUnavailable:
        # Its program has not begun, so another task manager may run it.
        attempt.end()
        return _told(attempt, Outcome(attempt.id, End.STOPPED, message=Why.SILENCE))
    except ArkqueueError as error:
        if attempt.why is not None:
            return _told(attempt, Outcome(attempt.id, End.STOPPED, message=f"not started: {attempt.why}"))
        if isinstance(error, HostFault) or (isinstance(error, EngineFault) and executors.may_pass(error)):
            means.faulted(attempt, error)
            return _told(attempt, Outcome(attempt.id, End.STOPPED, message=f"not started, and handed back: {error}"))
        if isinstance(error, Elsewhere):
            return _told(attempt, Outcome(attempt.id, End.STOPPED, message=f"not started, and handed back: {error}"))
        message = str(error)
        if isinstance(error, ArchiveMismatch):
            message = named(error, attempt.claim.archive.name)
            means.doubted(attempt)
        # Also in the server's log: people may not read the task's log for hours, and the cause is
        # often on this host.
        log.warning("%s was not started: %s", attempt, " ".join(message.split()))
        end = next((end for kind, end in UNSTARTED.items() if isinstance(error, kind)), End.NOT_STARTED)
        return _told(attempt, Outcome(attempt.id, end, message=message))
    except Exception as error:
        log.exception("%s failed inside arkqueue", attempt)
        message = f"arkqueue itself failed ({type(error).__name__}); the server's log says more"
        attempt.end()
        return _told(attempt, Outcome(attempt.id, End.NOT_STARTED, message=message))


def _prepared(attempt: Attempt, definition: TaskDefinition, preparation: Preparation) -> Prepared:
    claim, inputs = attempt.claim, attempt.inputs
    if inputs is None:
        inputs = preparation.files.sources.inputs([claim]).get(claim.task, {})
    attempt.prepared_by = threading.get_ident()
    try:
        return preparation.prepare(claim, definition, inputs, attempt.log, lambda: attempt.why is None)
    finally:
        attempt.prepared_by = None


def _run(attempt: Attempt, definition: TaskDefinition, prepared: Prepared, means: Means) -> Ended | None:
    """Run an attempt to its end. None: it was asked to stop before its program began."""
    begun = time.monotonic()
    executors = means.preparation.executors
    if prepared.image is not None and attempt.why is None:
        executors.note_container()
        # From now on the attempt waits for this host if this task manager is gone. So the
        # reservation comes before the container.
        attempt.outlives = means.reserve(attempt, prepared.image)
        if not attempt.outlives:
            attempt.stop(Why.LOST)
    program = replace(prepared.program, keep=means.kept(attempt))
    running = attempt.begin(lambda: executors.start(program, prepared.image, attempt.log, lambda: attempt.why is None))
    if running is None:
        return None
    means.started(attempt)
    return _followed(attempt, definition, begun)


def _followed(attempt: Attempt, definition: TaskDefinition, begun: float) -> Ended:
    """Wait for the end of a program that began at ``begun``. Stops it after its timeout."""
    rest = begun + min(definition.timeout, LONGEST) - time.monotonic()
    ended = attempt.running.wait(max(0.0, rest))
    while ended is None:
        attempt.stop(Why.TIMEOUT)
        ended = attempt.running.wait()
    return ended


def _judge(attempt: Attempt, definition: TaskDefinition, ended: Ended | None) -> Outcome:
    why = attempt.why
    if why is None or (ended is not None and ended.abandoned):
        why = Why.SILENCE
    if ended is None:
        return _told(attempt, Outcome(attempt.id, End.STOPPED, message=f"not started: {why}"))
    message = "; ".join(filter(None, (_killed(ended), ended.message)))
    if message:
        attempt.log.note(message)
    if ended.lost:
        return Outcome(attempt.id, End.LOST, ended.exit_code, message)
    if not ended.stopped:
        return Outcome(attempt.id, End.EXITED, ended.exit_code, message)
    if why is Why.TIMEOUT:
        message = f"stopped after its timeout of {definition.timeout:g} s"
        return _told(attempt, Outcome(attempt.id, End.TIMED_OUT, ended.exit_code, message))
    return _told(attempt, Outcome(attempt.id, End.STOPPED, ended.exit_code, f"stopped: {why}"))


def _killed(ended: Ended) -> str:
    """A text about the signal that an exit code stands for; empty if there was none, or arkqueue
    sent it.
    """
    if not ended.stopped and ended.exit_code is not None:
        with suppress(ValueError):
            return f"killed by signal {ended.exit_code - 128} ({signal.Signals(ended.exit_code - 128).name})"
    return ""


def _with_outputs(attempt: Attempt, outcome: Outcome, means: Means) -> Outcome:
    """The outcome with the outputs that the task wrote to OUTPUT. They are kept even if it failed."""
    found = means.preparation.files.workspaces.read_outputs(attempt.id, means.output_limit)
    message = outcome.message
    if found.fault:
        attempt.log.note(found.fault)
        message = f"{message}; {found.fault}" if message else found.fault
    return replace(outcome, message=message, outputs=found.values or None)


def _told(attempt: Attempt, outcome: Outcome) -> Outcome:
    """Note in the log of an attempt how it ended. Returns the outcome."""
    is_begun = outcome.end not in (End.NOT_STARTED, *UNSTARTED.values())
    attempt.log.note(("" if is_begun else "not started: ") + outcome.message)
    return outcome
