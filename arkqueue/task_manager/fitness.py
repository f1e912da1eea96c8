"""Whether this host can start tasks at all: its disk may be full or read-only, or it may give no further process.

What it claims then is handed back within milliseconds, and claimed again: by this task manager it must not be, as it would keep the tasks of the whole
installation from those that can run them. So it pauses, claims one task on trial, and pauses for longer when that fails, too, until one starts. What was
handed back is ready all the while: others take it at once.

What was claimed before the fault showed says nothing about it: neither does its failing make the pause longer, nor its beginning end it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from arkqueue.errors import HostFault
from arkqueue.model import AttemptId
from arkqueue.queue.claim import Claim
from arkqueue.task_manager.attempt import Attempt

log = logging.getLogger("arkqueue")

FIRST = 1.0
"""Seconds of the first pause; each further one is twice as long."""
LONGEST = 60.0
"""Seconds of the longest one, and between two warnings where faults come and go."""


class Fitness:
    """Of one task manager; any thread may call it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pause = 0.0
        """Seconds; 0: what is claimed starts, as far as is known."""
        self._until = 0.0
        self._trial: AttemptId | None = None
        """The first attempt that was claimed since the fault; ids rise."""
        self._said_at = float("-inf")
        self._is_said = False

    def share(self, free: int) -> int:
        """How many of the free slots to claim for now."""
        if not self._pause:
            return free
        return min(free, 1) if self._clock() >= self._until else 0

    def claimed(self, claims: Sequence[Claim]) -> None:
        """The next trial comes a pause later, should this one neither start nor fail."""
        if not self._pause:
            return
        with self._lock:
            self._until = self._clock() + self._pause
            if self._trial is None:
                self._trial = min(claim.attempt for claim in claims)

    def faulted(self, attempt: Attempt, fault: HostFault) -> None:
        """An attempt could not start, and is handed back."""
        with self._lock:
            if not self._pause:
                self._pause = FIRST
            elif self._is_on_trial(attempt):
                self._pause = min(2 * self._pause, LONGEST)
            else:
                return
            now = self._clock()
            self._until, self._trial = now + self._pause, None
            if self._is_said or now < self._said_at + LONGEST:
                return
            self._is_said, self._said_at = True, now
        said = " ".join(str(fault).split())
        log.warning(
            "this host cannot start tasks, hands back what it claimed, and claims one at times until one starts: %s",
            said,
        )

    def started(self, attempt: Attempt) -> bool:
        """An attempt has begun; whether that ends a pause."""
        if not self._pause:
            return False
        with self._lock:
            if not self._is_on_trial(attempt):
                return False
            self._pause, self._trial = 0.0, None
            was_said, self._is_said = self._is_said, False
        if was_said:
            log.warning("tasks start on this host again")
        return True

    def _is_on_trial(self, attempt: Attempt) -> bool:
        return self._trial is not None and attempt.id >= self._trial
