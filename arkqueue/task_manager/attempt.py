"""One attempt on its way: prepare → run → judge; its task manager claims before, and records and cleans up after.

``perform`` never raises: whatever goes wrong with one attempt is that attempt's outcome, said in its log, and nothing else's. An attempt may be
asked to stop at any moment and from any thread; if its program has not begun, it never will.

What a stop means is decided by what the executor saw: a program that had ended before the signal keeps its own outcome (design 5.10).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from arkqueue.archive import Archive
from arkqueue.errors import ArkqueueError, DatabaseUnavailable, Forbidden
from arkqueue.executor import Ended, Executor, Program, Running, argv_for
from arkqueue.logs import LogWriter
from arkqueue.model import ArchiveKind, AttemptId, Checkout, End, Origin, Outcome, TaskDefinition
from arkqueue.names import name_of
from arkqueue.queue.claim import Claim
from arkqueue.task_manager.environment import environment
from arkqueue.task_manager.sources import Registration, Sources
from arkqueue.workspace import Fill, Workspace, Workspaces

log = logging.getLogger("arkqueue")

AUTHORS = {ArchiveKind.GIT: "arkqueue <arkqueue@localhost>", ArchiveKind.SUBVERSION: "arkqueue"}
"""Who commits for a task where the archive's settings name nobody."""

LONGEST = 1e9
"""Seconds; no thread can wait much longer."""


class Why(StrEnum):
    """Why an attempt was asked to stop, in the words of its log."""

    CANCEL = "it was canceled"
    RESTART = "it is restarted"
    TIMEOUT = "its time was up"
    SHUTDOWN = "its task manager is shutting down; it will be run again"
    SILENCE = "its task manager could not reach the database in time to keep it; it will be run again"
    LOST = "it no longer belongs to this task manager"


class Attempt:
    """One claimed task, passed along from its claim to its end."""

    def __init__(self, claim: Claim, log: LogWriter) -> None:
        self.claim, self.log = claim, log
        self.grace = 0.0  # until its definition is known, it has nothing to end
        self.inputs: dict[str, Any] | None = None
        """What it gets as INPUTS; None: still to be asked for."""
        self._lock = threading.Lock()
        self._running: Running | None = None
        self._why: Why | None = None

    @property
    def id(self) -> AttemptId:
        return self.claim.attempt

    @property
    def why(self) -> Why | None:
        """Why it was asked to stop, if it was; the first reason stays."""
        return self._why

    def stop(self, why: Why, grace: float | None = None) -> None:
        """End it, with its own grace or a shorter one; returns at once."""
        with self._lock:
            self._why = self._why or why
            running = self._running
        if running is not None:
            running.stop(self.grace if grace is None else min(grace, self.grace))

    def begin(self, start: Callable[[], Running]) -> Running | None:
        """Start its program, unless it was asked to stop before."""
        if self._why is not None:
            return None
        running = start()
        with self._lock:
            self._running = running
            why = self._why
        if why is not None:
            running.stop(self.grace)
        return running

    def end(self) -> None:
        """End what it may have started, at once; returns when nothing of it is left."""
        self.stop(Why.SHUTDOWN, 0)
        if self._running is not None:
            self._running.wait()


@dataclass(frozen=True, slots=True)
class Means:
    """What every attempt of a task manager needs. ``started`` notes that a program has begun."""

    sources: Sources
    workspaces: Workspaces
    executor: Executor
    output_limit: int
    started: Callable[[Attempt], None]


def perform(attempt: Attempt, means: Means) -> Outcome:
    """Prepare and run an attempt; its workspace is left to be removed."""
    try:
        definition = means.sources.definition(attempt.claim.definition)
        attempt.grace = definition.grace
        workspace, program = _prepare(attempt, definition, means)
        ended = _run(attempt, definition, program, means)
        outcome = _judge(attempt, definition, ended)
        return _with_outputs(attempt, outcome, workspace, means) if ended else outcome
    except DatabaseUnavailable:
        # Nothing has begun: whoever claims it next may have more luck.
        return _told(attempt, Outcome(attempt.id, End.STOPPED, message=Why.SILENCE))
    except ArkqueueError as error:
        return _told(attempt, Outcome(attempt.id, End.NOT_STARTED, message=str(error)))
    except Exception as error:
        log.exception("attempt %d of %s failed inside arkqueue", attempt.id, attempt.claim.name)
        message = f"arkqueue itself failed ({type(error).__name__}); the server's log says more"
        attempt.end()
        return _told(attempt, Outcome(attempt.id, End.NOT_STARTED, message=message))


def _prepare(attempt: Attempt, definition: TaskDefinition, means: Means) -> tuple[Workspace, Program]:
    archive = means.sources.registration(attempt.claim.archive)
    if not archive.settings.process:
        # It may have been allowed just now, by the person who retries this.
        archive = means.sources.registration(attempt.claim.archive, afresh=True)
    if not archive.settings.process:
        raise Forbidden(
            f"archive {archive.name}",
            "its tasks may not run as processes on a task manager's host, and this task names no image",
            f"Allow it: arkqueue archive set {archive.name} --executor process",
        )
    user = archive.settings.process_user
    task = attempt.claim.task
    inputs = means.sources.inputs([task]).get(task, {}) if attempt.inputs is None else attempt.inputs
    workspace = means.workspaces.prepare(
        attempt.id,
        fill=_fill(attempt.claim, definition, archive, means.sources),
        script=definition.script,
        inputs=inputs,
        user=user,
    )
    return workspace, Program(
        attempt.id,
        argv_for(definition, str(workspace.script)),
        environment(attempt.claim, definition, archive.name, workspace, user),
        workspace.tree,
        user,
        shell=definition.script is not None,
    )


def _fill(claim: Claim, definition: TaskDefinition, archive: Registration, sources: Sources) -> Fill | None:
    """How the workspace gets its files."""
    match definition.checkout:
        case Checkout.NONE:
            return None
        case Checkout.WORKING_COPY:
            return lambda tree: _working_copy(
                claim, archive, sources.open(archive, archive.settings.task_url or archive.url), tree
            )
        case Checkout.TREE | Checkout.PATHS:
            paths = definition.checkout_paths if definition.checkout is Checkout.PATHS else ()
            return lambda tree: sources.open(archive, archive.url).export(claim.revision, tree, paths)


def _working_copy(claim: Claim, archive: Registration, opened: Archive, tree: Path) -> Path | None:
    task = name_of(
        archive.name, claim.number, claim.run, claim.name, branch=claim.branch, main=claim.main, item=claim.item
    )
    return opened.working_copy(
        claim.revision,
        claim.branch,
        tree,
        author=archive.settings.author or AUTHORS[archive.kind],
        origin=Origin(str(task), claim.generation + 1),
    )


def _run(attempt: Attempt, definition: TaskDefinition, program: Program, means: Means) -> Ended | None:
    """Run it to its end; None where it was asked to stop before it began."""
    until = time.monotonic() + min(definition.timeout, LONGEST)
    running = attempt.begin(lambda: means.executor.start(program, attempt.log))
    if running is None:
        return None
    means.started(attempt)
    ended = running.wait(max(0.0, until - time.monotonic()))
    while ended is None:
        attempt.stop(Why.TIMEOUT)
        ended = running.wait()
    return ended


def _judge(attempt: Attempt, definition: TaskDefinition, ended: Ended | None) -> Outcome:
    why = attempt.why or Why.SHUTDOWN
    if ended is None:
        return _told(attempt, Outcome(attempt.id, End.STOPPED, message=f"not started: {why}"))
    if ended.message:
        attempt.log.note(ended.message)
    if not ended.stopped:
        return Outcome(attempt.id, End.EXITED, ended.exit_code, ended.message)
    if why is Why.TIMEOUT:
        message = f"stopped after its timeout of {definition.timeout:g} s"
        return _told(attempt, Outcome(attempt.id, End.TIMED_OUT, ended.exit_code, message))
    return _told(attempt, Outcome(attempt.id, End.STOPPED, ended.exit_code, f"stopped: {why}"))


def _with_outputs(attempt: Attempt, outcome: Outcome, workspace: Workspace, means: Means) -> Outcome:
    """The outcome with what the task wrote to OUTPUT, kept even on failure."""
    found = means.workspaces.read_outputs(workspace.attempt, means.output_limit)
    message = outcome.message
    if found.fault:
        attempt.log.note(found.fault)
        message = f"{message}; {found.fault}" if message else found.fault
    return Outcome(outcome.attempt, outcome.end, outcome.exit_code, message, found.values or None)


def _told(attempt: Attempt, outcome: Outcome) -> Outcome:
    """Say in its log what became of an attempt."""
    attempt.log.note(("not started: " if outcome.end is End.NOT_STARTED else "") + outcome.message)
    return outcome
