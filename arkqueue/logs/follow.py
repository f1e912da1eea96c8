"""Follows logs as they grow: one watcher for all followers of a process.

If each follower polled by itself, each open log would cost a few dozen statements a second, even if
nothing is written. The watcher queries all logs with one statement, when it is woken, and otherwise
each `POLL` seconds, because a wake-up may be lost.

    queue.logs.append, finish ── the attempt is followed: wake "log" ──→ watcher ── one statement: how far do these logs go? ──→ followers of those that grew

A writer of a log wakes nobody unless the log is followed. The watcher announces this (``announce``)
at the beginning, and again before the announcement expires. The order matters: announce first, then
query. The query finds all bytes that were written before the announcement; all bytes that are
written after it wake the watcher.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from arkqueue.db.session import Session
from arkqueue.errors import DatabaseUnavailable
from arkqueue.model import AttemptId
from arkqueue.runtime.wakeup import Bell

log = logging.getLogger("arkqueue")

POLL = 1.0
"""The seconds between two queries while nobody wakes the watcher."""
OFTEN = 0.04
"""The seconds between two queries while no wake-up can arrive, or while a log was not announced."""
PACE = 0.02
"""The shortest time between two queries in seconds, however often the watcher is woken. Together
with the writer's ``INTERVAL``, a line is seen within 0.1 s.
"""
ANNOUNCED = 60.0
"""The seconds for which an announcement holds. It is repeated after half of them."""
AWAY = 0.5
"""The seconds until the next query while the database is away."""

Announce = Callable[[Session, Collection[AttemptId], float], set[AttemptId]]
"""Requests wake-ups, for some seconds, when some logs grow or end (``queue.logs.follow``). Returns
the logs for which that succeeded.
"""
Changed = Callable[[], None]


@dataclass(slots=True, eq=False)
class Followed:
    """A log that somebody follows; the watcher writes ``size`` and ``ended``."""

    size: int = -1
    """The size of the log; -1 until the watcher's first query."""
    ended: bool = False
    announced: float = float("-inf")
    """The time of the last announcement, by the monotonic clock."""
    followers: list[Changed] = field(default_factory=list)

    def has_more(self, offset: int) -> bool:
        """Whether a read from ``offset`` on may return more than the last one."""
        return self.size > offset or self.ended


class Watcher:
    """Notifies all followers of a process when their logs have grown. Its thread lives as long as
    there are followers.
    """

    def __init__(self, session: Session, announce: Announce) -> None:
        self._session, self._announce = session, announce
        self._bell = session.wakeups.bell("log") if session.wakeups else Bell(("log",))
        self._lock = threading.Lock()
        self._followed: dict[AttemptId, Followed] = {}
        self._thread: threading.Thread | None = None

    @contextmanager
    def following(self, attempt: AttemptId, changed: Changed) -> Iterator[Followed]:
        """Follow a log inside the block. Another thread calls ``changed`` each time that the log
        has grown or its attempt has ended.
        """
        with self._lock:
            followed = self._followed.setdefault(attempt, Followed())
            followed.followers.append(changed)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="log watcher", daemon=True)
                self._thread.start()
        self._bell.ring()
        try:
            yield followed
        finally:
            with self._lock:
                followed.followers.remove(changed)
                if not followed.followers:
                    del self._followed[attempt]
                is_over = not self._followed
            if is_over:
                self._bell.ring()  # so that its thread ends

    def call_all(self) -> None:
        """Wake every follower for a reason that is not in its log."""
        self._call(self._all().values())

    def _watch(self) -> None:
        while True:
            with self._lock:
                if not self._followed:
                    self._thread = None
                    return
            pause = self._ask()
            time.sleep(PACE)
            self._bell.wait(pause)

    def _ask(self) -> float:
        """Query the sizes of all followed logs. Returns the seconds until the next query."""
        followed = self._all()
        try:
            announced = self._announce_all(followed)
            rows = self._session.rows("log_sizes", attempts=list(followed))
        except DatabaseUnavailable:
            return AWAY  # a follower checks its token then, too, and learns of the failure
        except Exception:
            log.exception("followed logs could not be looked at; it is tried again")
            return AWAY
        changed = []
        for row in rows:
            one = followed[row.id]
            if (one.size, one.ended) != (row.log_bytes, row.ended):
                one.size, one.ended = row.log_bytes, row.ended
                changed.append(one)
        self._call(changed)
        wakeups = self._session.wakeups
        return POLL if announced and wakeups and wakeups.listening.is_set() else OFTEN

    def _announce_all(self, followed: dict[AttemptId, Followed]) -> bool:
        """Announce that logs are followed, if the announcement is due. Returns False if some
        announcements are still due.
        """
        now = time.monotonic()
        due = {id for id, one in followed.items() if not one.ended and one.announced + ANNOUNCED / 2 < now}
        done = self._announce(self._session, due, ANNOUNCED) if due else set()
        for id in done:
            followed[id].announced = now
        return due == done

    def _all(self) -> dict[AttemptId, Followed]:
        with self._lock:
            return dict(self._followed)

    def _call(self, logs: Collection[Followed]) -> None:
        with self._lock:
            calls = [changed for one in logs for changed in one.followers]
        for changed in calls:
            changed()
