"""Containers that no attempt in our hands runs in: those that an earlier task manager of this host left, and those that nobody owns (design 6, 9).

A container goes on without its task manager, and its attempt stays reserved for this host for ``adopt_within`` after its lease. One turn here:

    what the engine has of ours (by label)                    first, so that what is made meanwhile is not taken for a stray
    the live attempts of this host                            as the database knows them
    adopted: live, found, and in nobody's hands               its output goes on where the log ends, its exit code is taken, nothing runs twice
    ended:   live, in nobody's hands, and without a container
    removed: found, and not live: it was given to another meanwhile, or its end is recorded already

The first turn is over before anything is claimed, so that adopted attempts take their slots first. While the engine is away turns are tried again and
other tasks go on; should the reservation be over before it is back, queue managers lapse the attempt, and the turn that finds its container removes it.
Then a turn comes with each sweep. It asks for nothing where this home never used containers.
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
"""Keeps an adopted attempt and has it followed to its end; with the clock before it was adopted."""


class Adoption:
    """The keeper of a task manager's containers, with a thread of its own between ``start`` and ``close``."""

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
        """``answers`` is told each time that the engine has answered."""
        self._gateway, self._configuration = gateway, configuration
        self._executors, self._logs, self._sources, self._held, self._take = executors, logs, sources, held, take
        self._answers = answers
        self.is_swept = False
        """Whether the engine has answered once, so that no container of an attempt of the past is left."""
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
        if self._thread.ident is not None:  # the database may have been away all the time
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
                pass  # the claiming thread says so
            except ExecutorError as error:
                if not is_away:
                    log.warning("containers of earlier attempts cannot be looked after: %s", error)
                is_away = True
            except Exception:
                log.exception("containers of earlier attempts could not be looked after; it is tried again")
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
        # Also attempts that the database has given to this process, if the answer to their adoption was lost.
        left = {one.attempt: one.process for one in live if one.outlives and one.attempt not in held}
        self._adopt({id: process for id, process in left.items() if id in found})
        self._expire([id for id in left if id not in found], left)
        if strays := found.keys() - {one.attempt for one in live} - held:
            self._remove(strays)
        self.is_swept = True

    def _found(self) -> dict[AttemptId, str]:
        """The attempts of which there are containers, with the names of their tasks."""
        return {one.attempt: one.labels.get(TASK_LABEL, "a task") for one in self._executors.docker.found()}

    def _remove(self, strays: Collection[AttemptId]) -> None:
        found = self._found()  # what ended meanwhile was removed before its end was recorded
        for stray in sorted(found.keys() & strays):
            log.warning("a container of %s, which is nobody's any more, is removed", found[stray])
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
                # If the engine or the database goes away meanwhile, the next iteration adopts the rest.
                self._take(self._attempt(one), since)

    def _attempt(self, adopted: Adopted) -> Attempt:
        """Make an attempt of a container. The log continues with the output after its present end."""
        id = adopted.claim.attempt
        attempt = Attempt(adopted.claim, self._logs.adopt(id, adopted.log_bytes, adopted.stored))
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
