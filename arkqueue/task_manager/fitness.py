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
"""Seconds of the first pause; each further one is twice as long."""
LONGEST = 60.0
"""Seconds of the longest one, and between two warnings where faults come and go."""
ENGINE_SILENCE = 120.0
"""Seconds for which an engine that hangs may hold one slot, and not another one: as long as one call of its may take."""

Take = Callable[[int, Collection[Pool]], list[Claim]]
"""Claims up to so many tasks of some pools."""
ALL, PROCESSES, CONTAINERS = tuple(Pool), (Pool.PROCESS,), (Pool.CONTAINER,)


class Fitness:
    """Of one task manager; any thread may call it; ``claim``, one at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._host = Brake("tasks", clock)
        self._containers = Brake("containers", clock, ENGINE_SILENCE)

    @property
    def faults(self) -> tuple[str | None, str | None]:
        """Why this host can start no tasks, and no containers; None where it can, as far as is known."""
        return self._host.fault, self._containers.fault

    @property
    def is_fit(self) -> bool:
        """Whether this host can start whatever there is, as far as is known."""
        return self.faults == (None, None)

    def claim(self, free: int, take: Take) -> tuple[list[Claim], bool]:
        """Claim for the free slots what this host can start; and whether there may be more of it."""
        share = self._host.share(free)
        if share <= 0:
            return [], False
        if self._containers.fault is None:
            found = take(share, ALL)
        elif self._host.fault is not None:  # on trial: a container that does not start would tell nothing of the host
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
        """An attempt could not start, and is handed back."""
        (self._host if isinstance(fault, HostFault) else self._containers).faulted(attempt, fault)

    def started(self, attempt: Attempt) -> bool:
        """An attempt has begun; whether that ends a pause."""
        is_host_fit, are_containers = self._host.started(attempt), self._containers.started(attempt)
        return is_host_fit or are_containers

    def over(self, attempt: Attempt) -> bool:
        """An attempt is over, whatever became of it; whether it was a trial that told nothing, so that the next one may follow at once."""
        of_host, of_containers = self._host.over(attempt), self._containers.over(attempt)
        return of_host or of_containers

    def engine_answers(self) -> bool:
        """The engine answers; whether that ends a pause: one that was away needs no trial."""
        return self._containers.answered()


class Brake:
    """Of tasks of one kind; ``kind`` is their name in the log. ``silence``: seconds for which a trial that neither starts nor fails is the only one, at least."""

    def __init__(self, kind: str, clock: Callable[[], float], silence: float = 0.0) -> None:
        self._kind, self._clock, self._silence = kind, clock, silence
        self._lock = threading.Lock()
        self.fault: str | None = None
        """Why it is on; None: what is claimed starts, as far as is known."""
        self._pause = 0.0
        self._until = 0.0
        self._is_away = False
        self._trials: set[AttemptId] = set()
        """What was claimed since the fault, or since the last trial that failed."""
        self._said_at = float("-inf")
        self._is_said = False

    def share(self, free: int) -> int:
        """How many of the free slots to claim for now."""
        if self.fault is None:
            return free
        return min(free, 1) if self._clock() >= self._until else 0

    def claimed(self, claims: Sequence[Claim]) -> None:
        """The next trial comes a pause later, should this one neither start nor fail."""
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
        """An attempt has begun; whether that ends a pause."""
        if self.fault is None:
            return False
        with self._lock:
            if attempt.id not in self._trials:
                return False
        self._release("%s start on this host again")
        return True

    def over(self, attempt: Attempt) -> bool:
        """Whether it was a trial that neither started nor failed."""
        with self._lock:
            if self.fault is None or attempt.id not in self._trials:
                return False
            self._trials.remove(attempt.id)
            self._until = self._clock()
        return True

    def answered(self) -> bool:
        """What was away is back; whether that ends a pause."""
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
