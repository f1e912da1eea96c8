"""The queue manager's loops, one for each duty."""

from __future__ import annotations

from arkqueue.archives import retention
from arkqueue.archives.backfills import ListReader
from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.notifications import sender
from arkqueue.queue import backfill, claim, depth, ending, finish, locks, pauses, planning, schedules, superseding
from arkqueue.queue_manager.readers import Readers
from arkqueue.repository.reader.client import processes
from arkqueue.runtime.loop import Loop

CONNECTIONS = 8
"""Database connections: one for each loop."""
PACE = 0.02
"""Seconds between two queries for archives to scan. One query is enough for all notices that came
meanwhile.
"""


class QueueManager:
    """Runs the loops between ``start`` and ``close``."""

    def __init__(self, session: Session, configuration: Configuration) -> None:
        assert session.wakeups is not None, "a queue manager waits to be woken"
        self._session, self._configuration = session.share(CONNECTIONS), configuration
        bell = session.wakeups.bell
        look = bell("look")
        self._readers = Readers(self._session, configuration, idle=look.ring)
        self._retention = retention.Retention(self._session)
        self._planner = planning.Planner(self._session)
        self._ender = ending.Ender(self._session)
        self._superseder = superseding.Superseder(self._session)
        self._read_lists = ListReader(configuration)
        notify = bell("notify")
        self._sender = sender.Sender(session.share(sender.CONNECTIONS), configuration, again=notify.ring)
        poll = configuration.poll
        self._labels: list[list[str]] | None = None
        """The labels of the task managers for which all lines of locks were judged."""
        self._loops = [
            Loop("read repositories", self._readers.turn, look, poll, pace=PACE),
            Loop("fire schedules", self._fire_schedules, bell("schedule"), poll),
            Loop("plan large runs", self._planner.turn, bell("planning"), poll),
            Loop("cancel tasks of gone runs", self._ender.turn, bell("ending"), poll),
            Loop("cancel superseded tasks", self._superseder.turn, bell("superseding"), poll),
            Loop("plan backfills", self._plan_backfills, bell("backfill"), poll),
            Loop("take up deferred tasks", self._take_up_deferred, bell("deferred"), poll),
            Loop("withdraw archives without ready tasks", self._withdraw, bell("withdraw"), poll),
            Loop("purge by age", self._retention.turn, bell("retention"), retention.EVERY),
            Loop("send notifications", self._sender.turn, notify, poll),
            Loop("count the queue", self._count, bell("depth"), depth.EVERY),
            Loop("repeat pauses of all", self._repeat_pauses, bell("pauses"), 5 * poll),
            Loop("grant locks", self._grant_locks, bell("locks"), 5 * poll),
            # Often enough that its own pauses never count as gaps of the database, after which no
            # lease lapses for a while.
            Loop("lapse leases", self._lapse_leases, bell("lapse"), min(configuration.lease / 9, 5.0)),
        ]

    def start(self) -> None:
        processes.warm()
        for loop in self._loops:
            loop.start()

    def close(self) -> None:
        """Stop the loops. A reader whose repository hangs is left behind as a daemon thread."""
        for loop in self._loops:
            loop.ask_to_close()
        for loop in self._loops:
            loop.close()
        self._sender.close()
        self._readers.close()

    def _fire_schedules(self) -> float | None:
        return schedules.fire(self._session)

    def _plan_backfills(self) -> float | None:
        return backfill.plan(self._session, self._read_lists)

    def _take_up_deferred(self) -> float | None:
        return finish.wake_deferred(self._session)

    def _withdraw(self) -> None:
        claim.withdraw(self._session)

    def _count(self) -> None:
        depth.count(self._session)

    def _repeat_pauses(self) -> None:
        pauses.follow_all(self._session)

    def _grant_locks(self) -> float | None:
        """Judge the lines of locks again when other task managers live than before: they may run
        other tasks.
        """
        labels = locks.labels_that_live(self._session)
        if labels != self._labels:
            locks.forget_turns(self._session)
            self._labels = None if locks.judge_all(self._session) else labels
        return 0.1 if locks.pass_on(self._session) else None

    def _lapse_leases(self) -> float | None:
        """End one batch of lapsed attempts. If there were any, ask for the next iteration at once."""
        lease = self._configuration.lease
        return 0.0 if finish.lapse(self._session, lease=lease, gap=lease / 3) else None
