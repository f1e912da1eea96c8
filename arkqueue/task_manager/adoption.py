"""Adopts containers that an earlier task manager of this host left, and removes containers without
a live attempt (design 6, 9).

A container goes on without its task manager, and its attempt stays reserved for this host for
``adopt_within`` after its lease. One iteration:

    1. ask the engine for our containers, by label    first, so that a container that is made
                                                      meanwhile is not taken for a stray one
    2. ask the database for the live attempts of
       this host
    3. adopt attempts that are live, have a           their output continues where the log ends,
       container, and that this task manager          and their exit code counts; nothing runs
       does not have yet                              twice
    4. end such attempts without a container
    5. remove containers without a live attempt       another process got the attempt meanwhile, or
                                                      its end is recorded already

The first iteration is over before any task is claimed, or after ``FIRST`` seconds, so that adopted
attempts take their slots first. While the engine is away, the iteration is repeated, and other
tasks go on. If the reservation ends before the engine is back, queue managers lapse the attempt,
and the iteration that finds its container removes it. After that, there is an iteration with each
``sweep``. It asks for nothing if this home folder never used containers.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence

from arkqueue.config import Configuration
from arkqueue.errors import DatabaseUnavailable, ExecutorError
from arkqueue.executor import TASK_LABEL
from arkqueue.gateway import Gateway
from arkqueue.logs.write import Logs
from arkqueue.model import Adopted, AttemptId, End, Outcome
from arkqueue.task_manager.attempt import Attempt
from arkqueue.task_manager.executors import Executors
from arkqueue.task_manager.leases import asked_for, boottime
from arkqueue.task_manager.sources import Sources

log = logging.getLogger("arkqueue")

AGAIN = 2.0
"""Seconds until a failed iteration is repeated."""
FIRST = 10.0
"""Seconds that the first iteration gets before other work begins."""

Take = Callable[[Attempt, float], None]
"""Follows an adopted attempt to its end. The second argument is the clock before the adoption."""


class Adoption:
    """Adopts the containers of one task manager, in a thread between ``start`` and ``close``."""

    def __init__(
        self,
        gateway: Gateway,
        configuration: Configuration,
        executors: Executors,
        logs: Logs,
        sources: Sources,
        held: Callable[[], Collection[Attempt]],
        take: Take,
        answers: Callable[[], None],
    ) -> None:
        """``answers``: called each time the engine has answered."""
        self._gateway, self._configuration = gateway, configuration
        self._executors, self._logs, self._sources, self._held, self._take = executors, logs, sources, held, take
        self._answers = answers
        self.is_swept = False
        """True once an iteration is complete: then no container of an attempt that is over is left."""
        self._tried = threading.Event()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keeping, name="containers", daemon=True)

    def start(self) -> None:
        """Wait until the first iteration is over, or takes too long."""
        self._thread.start()
        self._tried.wait(FIRST)

    def close(self) -> None:
        """Stop adopting. Does not wait for an engine that hangs."""
        self._closing.set()
        with self._lock:
            pass
        if self._thread.ident is not None:  # it never started if the database was away all the time
            self._thread.join(AGAIN)

    def _keeping(self) -> None:
        is_away = False
        while not self._closing.is_set():
            pause = AGAIN
            try:
                self.turn()
                if is_away:
                    log.warning("the container engine answers again")
                is_away = False
                pause = self._configuration.sweep
            except DatabaseUnavailable:
                pass  # the claiming thread reports it
            except ExecutorError as error:
                if not is_away:
                    log.warning("containers of earlier attempts cannot be adopted or removed: %s", error)
                is_away = True
            except Exception:
                log.exception("containers of earlier attempts could not be adopted or removed; it is tried again")
            self._tried.set()
            self._closing.wait(pause)

    def turn(self) -> None:
        """Adopt live containers, and end and remove the others."""
        if not self._executors.used_docker:
            self.is_swept = True
            return
        if not self.is_swept:
            self._executors.docker.sweep()
        found = self._found()
        self._answers()
        live = self._gateway.live()
        held = {attempt.id for attempt in self._held()}
        # Also attempts that the database has given to this
        # process, if the answer to their adoption was lost.
        left = {one.attempt: one.process for one in live if one.outlives and one.attempt not in held}
        self._adopt({id: process for id, process in left.items() if id in found})
        self._expire([id for id in left if id not in found], left)
        if strays := found.keys() - {one.attempt for one in live} - held:
            self._remove(strays)
        self.is_swept = True

    def _found(self) -> dict[AttemptId, str]:
        """The attempts that have containers, with the names of their tasks."""
        return {one.attempt: one.labels.get(TASK_LABEL, "a task") for one in self._executors.docker.found()}

    def _remove(self, strays: Collection[AttemptId]) -> None:
        found = self._found()  # containers that ended meanwhile were removed before their ends were recorded
        for stray in sorted(found.keys() & strays):
            log.warning("a container of %s is removed: its attempt is over, or another host has it", found[stray])
            self._executors.docker.remove(stray)

    def _adopt(self, left: dict[AttemptId, str]) -> None:
        if not left:
            return
        configuration = self._configuration
        with self._lock:
            if self._closing.is_set():
                return
            since = boottime()
            for one in self._gateway.adopt(left, configuration.adopt_within, configuration.lease):
                # If the engine or the database goes away
                # meanwhile, the next iteration adopts the rest.
                self._take(self._attempt(one), since)

    def _attempt(self, adopted: Adopted) -> Attempt:
        """Make an attempt of a container. The log continues with the output after its present end."""
        id = adopted.claim.attempt
        attempt = Attempt(adopted.claim, self._logs.adopt(id, adopted.log_bytes, adopted.stored, adopted.log_lines))
        attempt.age, attempt.outlives = adopted.age, True
        attempt.grace = self._sources.definition(adopted.claim.definition).grace
        attempt.resume(self._executors.docker.adopt(id, attempt.log, adopted.stored))
        if adopted.stop is not None:
            attempt.stop(asked_for(adopted.stop))
        log.warning("%s, which an earlier task manager of this host ran, is adopted with its container", attempt)
        return attempt

    def _expire(self, gone: Sequence[AttemptId], left: dict[AttemptId, str]) -> None:
        for name in self._gateway.expire(gone):
            log.warning("%s, which an earlier task manager of this host ran, was lost with its container", name)
        own = [id for id in gone if left[id] == self._gateway.process]
        self._gateway.finish([Outcome(id, End.LOST, message="its container is gone") for id in own])
