"""The recorder: reports to the database when attempts began and how they ended, as soon as it can
and for as long as it takes.

It has threads of its own, so that a slot is free before the end is recorded. Each thread has its
share of the archives, because two transactions that end tasks of one archive would wait for each
other. Ends of an archive that another transaction has locked stay in memory; ends of other archives
are recorded meanwhile. Ends that come while a thread writes go together into its next transaction,
which may also claim (``finish_and_claim``). The start of a program that ends within ``SHORT`` is
reported with its end. For each attempt, first all of the log is written and then the end, so a log
is complete before its task's state changes.

An outcome stays in memory until the database has taken or refused it; while the database is away,
it is tried again and again. If it is unknown whether a transaction was stored, the transaction is
simply repeated: the fence answers "already recorded" (design 6).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from arkqueue.errors import DatabaseUnavailable
from arkqueue.gateway import Gateway
from arkqueue.logs.write import Logs
from arkqueue.model import ArchiveId, AttemptId, Outcome, Receipt
from arkqueue.task_manager.attempt import Attempt

log = logging.getLogger("arkqueue")

LANES = 2
"""Threads that record."""
FEW_ENDS = 8
"""The most ends that a transaction records if it also claims. More ends are recorded without a claim,
while the claiming thread claims: with a hundred slots, that drains many archives a tenth faster.
"""
PATIENCE = 0.05
"""Seconds that a transaction waits for a busy archive. Ends in other archives wait meanwhile."""
PAUSES = (0.05, 0.2, 0.5, 1.0)
"""Seconds between tries while the database is away. The last number repeats."""

PACE = 0.01
"""Seconds between the beginnings of two transactions. Ends that come meanwhile are written together."""
SHORT = 0.05
"""Seconds after which a beginning is recorded, unless the end has come meanwhile."""

GIVEN_UP = "the ends of %d attempts could not be recorded: they will be run again"

Ending = tuple[Attempt, Outcome]
Finish = Callable[[Sequence[Outcome], float], dict[AttemptId, Receipt]]
"""Records ends, as ``Gateway.finish`` does."""


class Recorder:
    """Records the ends of one task manager's attempts. ``settled``: called for each attempt whose
    end the database has recorded or refused.

    ``finish_and_claim``: like ``finish``, for ends that are reported for the first time; it may
    claim in the same transaction.
    """

    def __init__(
        self, gateway: Gateway, logs: Logs, settled: Callable[[Attempt], None], finish_and_claim: Finish
    ) -> None:
        self._lanes = [_Lane(gateway, logs, settled, finish_and_claim) for _ in range(LANES)]

    def start(self) -> None:
        for lane in self._lanes:
            lane.start()

    def started(self, attempt: Attempt) -> None:
        """Note that the program of an attempt has begun."""
        self.lane(attempt.claim.archive.id).started(attempt)

    def ended(self, attempt: Attempt, outcome: Outcome) -> None:
        self.lane(attempt.claim.archive.id).ended(attempt, outcome)

    def close(self, patience: float) -> None:
        """Record the remaining ends. Gives up after ``patience`` seconds: then the leases are over,
        and other task managers run the tasks again.
        """
        until = time.monotonic() + patience
        for lane in self._lanes:
            lane.ask_to_close()
        for lane in self._lanes:
            lane.close(max(0.0, until - time.monotonic()))

    def lane(self, archive: int) -> _Lane:
        return self._lanes[archive % LANES]


class _Lane:
    """The recording thread of some archives."""

    def __init__(
        self, gateway: Gateway, logs: Logs, settled: Callable[[Attempt], None], finish_and_claim: Finish
    ) -> None:
        self._gateway, self._logs, self._settled = gateway, logs, settled
        self._finish_and_claim = finish_and_claim
        self._changed = threading.Condition()
        self._started: dict[AttemptId, float] = {}
        """The times at which running programs began, oldest first, until that is recorded."""
        self._began: dict[AttemptId, float] = {}
        """The same, until the end is recorded, which repeats the beginning."""
        self._ended: list[Ending] = []
        self._closing = False
        self._is_away = False
        """True if the database was away in the present iteration."""
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def started(self, attempt: Attempt) -> None:
        with self._changed:
            self._started[attempt.id] = self._began[attempt.id] = time.monotonic()
            if len(self._started) == 1:
                self._changed.notify()

    def ended(self, attempt: Attempt, outcome: Outcome) -> None:
        with self._changed:
            self._started.pop(attempt.id, None)
            self._ended.append((attempt, outcome))
            self._changed.notify()

    def ask_to_close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()

    def close(self, patience: float) -> None:
        self._thread.join(patience)
        self._given_up.set()
        self._thread.join()

    def _run(self) -> None:
        tries = 0
        left: list[Ending] = []
        """The ends that the last iteration could not record."""
        while True:
            self._is_away = False
            with self._changed:
                while not (self._ended or self._closing or (rest := self._rest()) == 0):
                    self._changed.wait(rest)
                is_last = self._closing and not self._ended
                # The last iteration records all beginnings: these programs go on in containers.
                old = time.monotonic() - (0.0 if is_last else SHORT)
                started = {id: at for id, at in self._started.items() if at <= old}
                for id in started:
                    del self._started[id]
                ended, self._ended = self._ended, []
            began = time.monotonic()
            started = self._noted(started)
            if is_last:
                return
            # The second try records all ends together, too. Further tries go archive by archive, so
            # that an archive that cannot be written does not hold up the others.
            may_claim = not left and len(ended) <= FEW_ENDS
            finish = self._finish_and_claim if may_claim else self._gateway.finish
            groups = [ended] if tries < 2 else _by_archive(ended)
            left = [again for group in groups for again in self._tried(group, finish)]
            with self._changed:
                self._started, self._ended = started | self._started, left + self._ended
            if not self._is_away:
                tries = 0
                if self._given_up.wait(began + PACE - time.monotonic()) and left:
                    log.error(GIVEN_UP, len(left))
                    return
                continue
            if tries == len(PAUSES):
                log.warning("the ends of %d attempts are kept until the database takes them", len(left))
            if self._given_up.wait(PAUSES[min(tries, len(PAUSES) - 1)]):
                log.error(GIVEN_UP, len(left))
                return
            tries += 1

    def _rest(self) -> float | None:
        """Seconds until the oldest beginning must be recorded; None if there is none."""
        oldest = next(iter(self._started.values()), None)
        return None if oldest is None else max(0.0, oldest + SHORT - time.monotonic())

    def _noted(self, started: dict[AttemptId, float]) -> dict[AttemptId, float]:
        """Record that programs have begun. Returns those to try again."""
        try:
            if started:
                now = time.monotonic()
                self._gateway.started({id: now - at for id, at in started.items()})
        except DatabaseUnavailable:
            self._is_away = True
            return started
        except Exception:
            log.exception("the start of attempts could not be recorded")
        return {}

    def _tried(self, ended: list[Ending], finish: Finish) -> list[Ending]:
        """Record some ends together. Returns those to try again. The fence refuses attempts that no
        longer belong to this task manager.
        """
        if not ended:
            return []
        try:
            self._logs.flush([attempt.log for attempt, _ in ended])
            receipts = finish([self._said(attempt, outcome) for attempt, outcome in ended], PATIENCE)
        except DatabaseUnavailable:
            self._is_away = True
            return ended
        except Exception:
            if len(ended) == 1:
                return self._recorded_plainly(*ended[0])
            log.exception("%d ends could not be recorded together; each is recorded by itself", len(ended))
            return [again for ending in ended for again in self._tried([ending], self._gateway.finish)]
        busy = [ending for ending in ended if receipts[ending[0].id] is Receipt.BUSY]
        for attempt, _ in ended:
            if receipts[attempt.id] is Receipt.BUSY:
                continue
            if receipts[attempt.id] is Receipt.NOT_YOURS:
                log.warning("%s ended here, but no longer belonged to this task manager", attempt)
            self._settle(attempt)
        return busy

    def _said(self, attempt: Attempt, outcome: Outcome) -> Outcome:
        """An outcome with its archive, and the seconds since its program began."""
        began = self._began.get(attempt.id)
        ran = outcome.ran if began is None else time.monotonic() - began
        return replace(outcome, ran=ran, archive=ArchiveId(attempt.claim.archive.id))

    def _settle(self, attempt: Attempt) -> None:
        self._began.pop(attempt.id, None)
        self._logs.forget(attempt.log)
        self._settled(attempt)

    def _recorded_plainly(self, attempt: Attempt, outcome: Outcome) -> list[Ending]:
        """Record an end without the task's own texts, because the database refuses them."""
        log.exception("the end of %s could not be recorded as it is", attempt)
        message = "arkqueue could not record its message and outputs; the server's log says more"
        plain = Outcome(outcome.attempt, outcome.end, outcome.exit_code, message)
        if outcome == plain:
            self._settle(attempt)  # its lease is not renewed any more, so that a queue manager ends it
            return []
        return self._tried([(attempt, plain)], self._gateway.finish)


def _by_archive(ended: Sequence[Ending]) -> list[list[Ending]]:
    found: dict[int, list[Ending]] = {}
    for ending in ended:
        found.setdefault(ending[0].claim.archive.id, []).append(ending)
    return list(found.values())
