"""The brakes of a task manager: they stop it from claiming tasks that this host cannot start for
the moment.

A disk may be full or read-only, the host may allow no further process, or the container engine may
be away.

A task that is claimed then is handed back within milliseconds, and is ready again. If the same task
manager claimed it again, it would keep the tasks of the whole installation from the task managers
that can run them. So the brake pauses claims, then claims one task on trial, and pauses for longer
if that task fails too, until one starts. Meanwhile other task managers can take what was handed
back. There are two brakes: one for all tasks of the host, and one for its containers only, beside
which processes go on.

A task that was claimed before the fault showed says nothing about the fault: its failure does not
make the pause longer, and its start does not end the pause.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence

from arkqueue.errors import EngineFault, HostFault
from arkqueue.model import AttemptId, Claim, Pool
from arkqueue.task_manager.attempt import Attempt

log = logging.getLogger("arkqueue")

FIRST = 1.0
"""Seconds of the first pause; each further pause is twice as long."""
LONGEST = 60.0
"""Seconds of the longest pause, and at least between two warnings if faults come and go."""
ENGINE_SILENCE = 120.0
"""Seconds for which an engine that hangs may occupy one slot, before a second one is tried: the
longest time of one call.
"""

Take = Callable[[int, Collection[Pool]], list[Claim]]
"""Claims at most a number of tasks of some pools."""
ALL, PROCESSES, CONTAINERS = tuple(Pool), (Pool.PROCESS,), (Pool.CONTAINER,)


class Fitness:
    """The brakes of one task manager. Any thread may call it, but ``claim`` only one at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._host = Brake("tasks", clock)
        self._containers = Brake("containers", clock, ENGINE_SILENCE)

    @property
    def faults(self) -> tuple[str | None, str | None]:
        """The faults because of which this host can start no tasks, and no containers; None: no
        fault is known.
        """
        return self._host.fault, self._containers.fault

    @property
    def is_fit(self) -> bool:
        """True if no fault is known."""
        return self.faults == (None, None)

    def claim(self, free: int, take: Take) -> tuple[list[Claim], bool]:
        """Claim tasks that this host can start for the free slots. Also returns whether there may be
        more such tasks.
        """
        share = self._host.share(free)
        if share <= 0:
            return [], False
        if self._containers.fault is None:
            found = take(share, ALL)
        elif self._host.fault is not None:  # a container that fails to start would show nothing about the host
            found = take(share, PROCESSES) or self._one_container(take)
        else:
            found = self._one_container(take)
            if share > len(found):
                found = found + take(share - len(found), PROCESSES)
        self._host.claimed(found)
        return found, len(found) == share

    def _one_container(self, take: Take) -> list[Claim]:
        found = take(1, CONTAINERS) if self._containers.share(1) else []
        self._containers.claimed(found)
        return found

    def faulted(self, attempt: Attempt, fault: HostFault | EngineFault) -> None:
        """Note that an attempt could not start, and is handed back."""
        (self._host if isinstance(fault, HostFault) else self._containers).faulted(attempt, fault)

    def started(self, attempt: Attempt) -> bool:
        """Note that an attempt has begun. Returns whether that ends a pause."""
        is_host_fit, are_containers = self._host.started(attempt), self._containers.started(attempt)
        return is_host_fit or are_containers

    def over(self, attempt: Attempt) -> bool:
        """Note that an attempt is over, by whatever end. Returns whether it was a trial without a
        result, so that the next one may follow at once.
        """
        of_host, of_containers = self._host.over(attempt), self._containers.over(attempt)
        return of_host or of_containers

    def engine_answers(self) -> bool:
        """Note that the engine answers. Returns whether that ends a pause: after an engine was away,
        no trial is needed.
        """
        return self._containers.answered()


class Brake:
    """The brake for tasks of one kind. ``kind``: their name in the log. ``silence``: the fewest
    seconds after which another trial follows one that neither starts nor fails.
    """

    def __init__(self, kind: str, clock: Callable[[], float], silence: float = 0.0) -> None:
        self._kind, self._clock, self._silence = kind, clock, silence
        self._lock = threading.Lock()
        self.fault: str | None = None
        """The fault because of which the brake is on; None: it is off."""
        self._pause = 0.0
        self._until = 0.0
        self._is_away = False
        self._trials: set[AttemptId] = set()
        """The attempts that were claimed since the fault, or since the last trial that failed."""
        self._said_at = float("-inf")
        self._is_said = False

    def share(self, free: int) -> int:
        """The number of free slots for which to claim now."""
        if self.fault is None:
            return free
        return min(free, 1) if self._clock() >= self._until else 0

    def claimed(self, claims: Sequence[Claim]) -> None:
        """Note claims. If the brake is on, they are trials. If a trial neither starts nor fails, the
        next one follows after a pause.
        """
        if self.fault is None or not claims:
            return
        with self._lock:
            self._until = self._clock() + max(self._pause, self._silence)
            self._trials.update(claim.attempt for claim in claims)

    def faulted(self, attempt: Attempt, fault: HostFault | EngineFault) -> None:
        with self._lock:
            if self.fault is None:
                self._pause = FIRST
            elif attempt.id in self._trials:
                self._pause = min(2 * self._pause, LONGEST)
            else:
                return
            now, words = self._clock(), " ".join(str(fault).split())
            self.fault, self._until = words, now + self._pause
            self._is_away = isinstance(fault, EngineFault) and fault.is_away
            self._trials.clear()
            if self._is_said or now < self._said_at + LONGEST:
                return
            self._is_said, self._said_at = True, now
        log.warning(
            "this host cannot start %s, hands back what it claimed, and claims one at times until one starts: %s",
            self._kind,
            words,
        )

    def started(self, attempt: Attempt) -> bool:
        """Note that an attempt has begun. Returns whether that ends a pause."""
        if self.fault is None:
            return False
        with self._lock:
            if attempt.id not in self._trials:
                return False
        self._release("%s start on this host again")
        return True

    def over(self, attempt: Attempt) -> bool:
        """Note that an attempt is over. Returns whether it was a trial that neither started nor
        failed.
        """
        with self._lock:
            if self.fault is None or attempt.id not in self._trials:
                return False
            self._trials.remove(attempt.id)
            self._until = self._clock()
        return True

    def answered(self) -> bool:
        """Note that the engine answers. Returns whether that ends a pause."""
        if self.fault is None or not self._is_away:
            return False
        self._release("%s can start on this host again")
        return True

    def _release(self, words: str) -> None:
        with self._lock:
            self.fault = None
            self._trials.clear()
            was_said, self._is_said = self._is_said, False
        if was_said:
            log.warning(words, self._kind)
