"""The leases of a task manager: renewing them, obeying requests to stop, and acting when the
database does not answer.

One statement renews the lease of all attempts. Its answer names the attempts that still belong to
this task manager, and those that were asked to stop. An attempt that the answer does not name was
given to another process: it is stopped, and the fence refuses its report and its log.

Another process may take an attempt when its lease is over by the database's clock. So the attempt
has to be gone by then. This module measures with CLOCK_BOOTTIME, which goes on while the machine
sleeps, and notes the time before it sends a renewal. So a lease ends earlier by this clock than by
the database's. An attempt that could not be renewed for lease − grace − margin is asked to stop,
and has ``grace`` for that. A container stays reserved for its host for ``adopt_within`` after its
lease, and goes on for that much longer. The thread that watches the leases never waits for the database. Because this
whole process may stand still (SIGSTOP, Ctrl-Z, a debugger), the guards of processes are told when
to stop their attempts by themselves, a little later.

Correctness does not depend on the order of the two clocks: the fence refuses the report of an
attempt that another process has got meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from arkqueue.config import Configuration
from arkqueue.errors import DatabaseUnavailable
from arkqueue.gateway import Gateway
from arkqueue.model import AttemptId
from arkqueue.task_manager.attempt import Attempt, Why

log = logging.getLogger("arkqueue")

MARGIN = 10.0
"""Seconds before the end of its lease by which an attempt must be gone."""
LOOK = 1.0
"""Seconds between two checks of the clock."""
AGAIN = 1.0
"""Seconds until a failed renewal is repeated."""


def boottime() -> float:
    """Seconds since the machine started, its sleep included."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Leases:
    """The attempts of one task manager, from their claim until the database knows their end."""

    def __init__(self, gateway: Gateway, configuration: Configuration, clock: Callable[[], float] = boottime) -> None:
        self._gateway = gateway
        self.clock = clock
        """Tests set it."""
        self._lease, self._renew = configuration.lease, configuration.renew
        self._adopt_within = configuration.adopt_within
        self._margin = min(MARGIN, self._lease / 9)
        self._look = min(LOOK, self._lease / 20)
        self._lock = threading.Lock()
        self._held: dict[AttemptId, Attempt] = {}
        self._renewed: dict[AttemptId, float] = {}
        self._asked: dict[AttemptId, str] = {}
        """Stop requests for attempts of the claim that is under way."""
        self._bell = gateway.bell("stop")
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for name, target in [("renew", self._renewing), ("stops", self._listening), ("watch", self._watching)]
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._closing.set()
        self._bell.ring()
        for thread in self._threads:
            thread.join()

    def hold(self, attempts: Sequence[Attempt], since: float) -> None:
        """Add claimed attempts. ``since``: the clock before the claim was sent."""
        with self._lock:
            for attempt in attempts:
                self._held[attempt.id] = attempt
                self._renewed[attempt.id] = since
            asked = [(a, self._asked.pop(a.id)) for a in attempts if a.id in self._asked]
        for attempt, request in asked:
            attempt.stop(asked_for(request))

    def kept(self, attempt: Attempt) -> tuple[float, float]:
        """The time at which the guard of an attempt begins to end it if this process stands still,
        and the time at which the attempt must be gone (CLOCK_BOOTTIME, seconds).
        """
        with self._lock:
            renewed = self._renewed.get(attempt.id, self.clock())
        end = renewed + self._kept(attempt) - self._margin
        # If this process does not stand still, it stops the attempt before the guard does.
        return min(renewed + self.patience(attempt) + 2 * self._look, end), end

    def let_go(self, attempt: Attempt) -> None:
        """Remove an attempt whose end is recorded."""
        with self._lock:
            self._held.pop(attempt.id, None)
            self._renewed.pop(attempt.id, None)

    def held(self) -> list[Attempt]:
        with self._lock:
            return list(self._held.values())

    # Renewing

    def _renewing(self) -> None:
        pause, away = self._renew, False
        while not self._closing.wait(pause):
            try:
                self.renew()
                pause = self._renew
                if away:
                    log.warning("leases are renewed again")
                away = False
            except DatabaseUnavailable as error:
                if not away:
                    log.warning("leases could not be renewed: %s", error)
                pause, away = min(AGAIN, self._renew), True
            except Exception:
                log.exception("leases could not be renewed")
                pause = min(AGAIN, self._renew)

    def renew(self) -> None:
        """Renew all leases in one statement. Obeys stop requests in the answer; attempts that the answer lacks are lost."""
        since = self.clock()
        attempts = {attempt.id: attempt for attempt in self.held()}
        if not attempts:
            return
        renewed = self._gateway.renew(list(attempts), self._lease)
        ours = renewed.asked
        with self._lock:
            self._renewed |= {id: since for id in ours if id in self._held and id not in renewed.kept}
            self._asked.clear()
        for id, attempt in attempts.items():
            if id not in ours:
                attempt.stop(Why.LOST)  # nothing happens if it has just ended
            else:
                attempt.keep(*self.kept(attempt))
                if request := ours[id]:
                    attempt.stop(asked_for(request))

    # Requests to stop

    def _listening(self) -> None:
        while not self._closing.is_set():
            if self._bell.wait(LOOK):
                try:
                    self.obey()
                except DatabaseUnavailable:
                    pass  # the answer to the next renewal has these requests, too
                except Exception:
                    log.exception("requests to stop could not be read")

    def obey(self) -> None:
        """Ask for stop requests, and pass them on."""
        for id, request in self._gateway.stops().items():
            with self._lock:
                attempt = self._held.get(id)
                if attempt is None:
                    self._asked[id] = request
            if attempt is not None:
                attempt.stop(asked_for(request))

    # Silence

    def _watching(self) -> None:
        while not self._closing.wait(self._look):
            self.look()

    def look(self) -> None:
        """Stop attempts whose leases were not renewed in time, and bound every wait for a repository."""
        for attempt in self.held():
            attempt.hang_up()
        now = self.clock()
        with self._lock:
            overdue = [
                (attempt, self._renewed[id] + self._kept(attempt) - self._margin - now)
                for id, attempt in self._held.items()
                if not attempt.has_ended and now >= self._renewed[id] + self.patience(attempt)
            ]
        for attempt, rest in overdue:
            if attempt.why is None:
                log.warning("%s is stopped: its lease could not be renewed", attempt)
            # Also if it is being stopped already: its grace
            # may be longer than the rest of its lease.
            attempt.stop(Why.SILENCE, max(0.0, rest))

    def patience(self, attempt: Attempt) -> float:
        """Seconds for which an attempt goes on without a renewal. If the grace is long, the grace
        is shortened, and not this time.
        """
        kept = self._kept(attempt)
        return max(kept - self._margin - attempt.grace, kept - self._lease * 2 / 3)

    def _kept(self, attempt: Attempt) -> float:
        """Seconds after a renewal in which no other task manager gets the attempt."""
        return self._lease + (self._adopt_within if attempt.outlives else 0.0)


def asked_for(request: str) -> Why:
    """The stop reason that the database gives."""
    return Why.CANCEL if request == "cancel" else Why.RESTART
