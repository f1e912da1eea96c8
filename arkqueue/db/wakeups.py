"""Wake-ups: notifying waiting loops, in this process and in all others, that there may be something to
do (design 6).

A wake-up only shortens a wait. It may come without a reason, and it may be lost: everybody who waits
also polls. So this module never raises to a caller, and no wake-up is part of a transaction.
Wake-ups are sent after the commit, because the server lets transactions that carry a NOTIFY commit
only one at a time.

    wakeups.wake("ready")  ──────────────────────────────→ the bells of this process, at once
                           ─→ sender ─NOTIFY, at most one each 5 ms→ PostgreSQL ─→ listener of every process ─→ its bells

A process that is alone sends nothing: nobody else would hear the NOTIFY, and sending it would take
processor time from the work itself. Pings show who else listens. Each process pings when it begins
to listen. In silence, processes ping in turns, because the one that pinged last waits longer. A
process that has heard no other one for ``COMPANY`` seconds takes itself to be alone. If this is wrong
for a moment, the others poll.

Changes of archives are announced only while a process watches them: ``watch`` asks all processes to
announce them for a minute. A process that learns of this announces its latest changes, too, because
the process that watches may have read before them.

The listener does not trust silence. If nothing came for ``PING`` seconds, it makes the sender notify
it. If this ping does not arrive either, or the connection breaks, it connects again and wakes every
waiter, because a wake-up may have been missed.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Protocol

import psycopg

from arkqueue.db.connections import Connection, Database
from arkqueue.db.watchdog import cut
from arkqueue.errors import DatabaseUnavailable
from arkqueue.runtime.wakeup import Bell

CHANNEL = "arkqueue"
INTERVAL, LONGEST_INTERVAL = 0.005, 0.02
"""The seconds between two NOTIFYs of a process, each of which is a commit of its own. The first
after a silence is sent at once. While there is always another to send, the interval doubles up to
the second figure.
"""
PING = 5.0
"""The seconds of silence after which the listener tests its connection."""
ANSWER = 5.0
"""The seconds that the listener waits for the answer."""
COMPANY = 30.0
"""The seconds for which a process counts as present after it was last heard. In silence, each
process is heard three times in this period.
"""
CALL_TIMEOUT = 5.0
PAUSE, LONGEST_PAUSE = 0.03, 1.0
"""The seconds until a lost connection is made again: the first delay, which doubles each time up to
the second.
"""
MOST_PENDING = 1000
"""The most topics that wait while the database is away. More than these become one wake-up for all.
"""

WATCHED = 60.0
"""The seconds for which every process announces changed archives after a process asked for it."""
LATELY = 20.0
"""The seconds before a process learns that it is watched whose changes it announces then."""
ARCHIVE = "archive "
"""The beginning of the topic of a changed archive; its id follows."""

_PING = "!ping"
_WATCH = "!watch"
_ALL = "!all"

_NOTIFY = b"""
with quickly as materialized (select set_config('synchronous_commit', 'off', true))
select pg_notify(%(channel)s, topic) from quickly, unnest(%(topics)s::text[]) as topic
"""
"""The statement that sends a NOTIFY. Its commit does not wait for the disk: the change behind it is
committed already, and after a crash everybody polls.
"""
_LISTEN = f"listen {CHANNEL}".encode()


class Hearer(Protocol):
    """A receiver of the rung topics. It is called in the thread that rings, so it must not wait for
    anything.
    """

    def hear(self, topics: Collection[str] | None) -> None:
        """Called for these topics. None: any wake-up may have been missed."""


class Wakeups:
    """The sender and the listener of one process; ``close`` ends both."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._bells: weakref.WeakSet[Bell] = weakref.WeakSet()
        self._hearers: weakref.WeakSet[Hearer] = weakref.WeakSet()
        self._watched_until = float("-inf")
        self._unannounced: dict[int, float] = {}
        """The archives that changed while nobody watched, and when."""
        self._company_until = float("inf")
        self._has_pinged_last = False
        """True if the last ping that was heard is this process's own."""
        self._pending: set[str] = set()
        self._lock = threading.Lock()
        self._to_send = threading.Event()
        self._closed = threading.Event()
        self._sender_pid = 0
        self._connections: dict[str, Connection] = {}
        self.listening = threading.Event()
        """Set while wake-ups of other processes arrive."""
        self.losses = 0
        """The number of times that they stopped arriving. The database may have been away then."""
        self._threads = [
            threading.Thread(target=self._send, name="wakeups-sender", daemon=True),
            threading.Thread(target=self._listen, name="wakeups-listener", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def bell(self, *topics: str) -> Bell:
        """A bell that rings for these topics, as long as the caller keeps it."""
        bell = Bell(topics)
        with self._lock:
            self._bells.add(bell)
        return bell

    def tell(self, hearer: Hearer) -> None:
        """Call a hearer for all rung topics, as long as the caller keeps the hearer."""
        with self._lock:
            self._hearers.add(hearer)

    def watch(self) -> None:
        """Ask all processes to announce changed archives for `WATCHED` seconds."""
        self._announce()
        self._post((_WATCH,))

    @property
    def is_watched(self) -> bool:
        """Whether a process watches which archives change."""
        return time.monotonic() < self._watched_until

    def changed(self, archives: Iterable[int]) -> None:
        """Announce that some archives have changed, if a process watches them. Called after the
        commit.
        """
        with self._lock:
            is_watched = self.is_watched
            if not is_watched:
                self._unannounced |= dict.fromkeys(archives, time.monotonic())
        if is_watched:
            self._report_changed(archives)

    def wake(self, *topics: str) -> None:
        """Ring for some topics, at once in this process and soon in the others. Never waits and
        never raises. Called after the commit.
        """
        self._ring(topics)
        if self.has_company:
            self._post(topics)

    @property
    def has_company(self) -> bool:
        """Whether another process may be listening."""
        return time.monotonic() < self._company_until

    def close(self) -> None:
        """End both threads. Wake-ups that could not be sent within a moment are lost; the other
        processes poll. A process that ends soon after it began may not know yet that another one
        watches, so it announces the archives that it has just changed.
        """
        self._announce()
        self._closed.set()
        self._to_send.set()
        with self._lock:
            listener = self._connections.get("listener")
            if listener and not listener.closed:
                with suppress(psycopg.Error, OSError):
                    cut(listener.fileno())
        for thread in self._threads:
            thread.join()

    def _announce(self) -> None:
        """Announce changed archives from now on, and the latest ones that nobody watched."""
        now = time.monotonic()
        with self._lock:
            self._watched_until = now + WATCHED
            late = [archive for archive, at in self._unannounced.items() if now - at < LATELY]
            self._unannounced.clear()
        if late:
            self._report_changed(late)

    def _report_changed(self, archives: Iterable[int]) -> None:
        self.wake(*(f"{ARCHIVE}{archive}" for archive in archives))

    def _ring(self, topics: tuple[str, ...] | None) -> None:
        """Ring the bells of these topics, or all of them."""
        with self._lock:
            bells = [bell for bell in self._bells if topics is None or not set(topics).isdisjoint(bell.topics)]
            hearers = list(self._hearers)
        for bell in bells:
            bell.ring()
        for hearer in hearers:
            hearer.hear(topics)

    def _post(self, topics: tuple[str, ...]) -> None:
        with self._lock:
            self._pending.update(topics)
            if len(self._pending) > MOST_PENDING:
                self._pending = {_ALL}
        self._to_send.set()

    # The sender's thread

    def _send(self) -> None:
        pause = PAUSE
        while not self._closed.is_set():
            try:
                with self._connected("sender") as connection:
                    self._sender_pid = connection.info.backend_pid
                    interval = INTERVAL
                    while self._send_next(connection):
                        pause = PAUSE
                        self._closed.wait(interval)
                        interval = min(LONGEST_INTERVAL, 2 * interval) if self._to_send.is_set() else INTERVAL
            except (DatabaseUnavailable, psycopg.Error, OSError):
                self._closed.wait(pause)
                pause = min(LONGEST_PAUSE, 2 * pause)

    def _send_next(self, connection: Connection) -> bool:
        """Wait for pending topics and send them. Returns False if the process is leaving."""
        self._to_send.wait()
        self._to_send.clear()
        with self._lock:
            topics, self._pending = self._pending, set()
        try:
            if topics:
                with self._database.watchdog.guard(connection, CALL_TIMEOUT):
                    connection.execute(_NOTIFY, {"channel": CHANNEL, "topics": sorted(topics)})
        except BaseException:
            self._post(tuple(topics))
            raise
        return not self._closed.is_set()

    # The listener's thread

    def _listen(self) -> None:
        pause = PAUSE
        while not self._closed.is_set():
            try:
                with self._connected("listener") as connection:
                    with self._database.watchdog.guard(connection, CALL_TIMEOUT):
                        connection.execute(_LISTEN)
                    self._company_until = time.monotonic() + COMPANY
                    self._post((_PING,))
                    self._ring(None)
                    self.listening.set()
                    pause = PAUSE
                    while self._hear(connection):
                        pass
            except (DatabaseUnavailable, psycopg.Error, OSError):
                pass
            if self.listening.is_set():
                self.listening.clear()
                self.losses += 1
            self._closed.wait(pause)
            pause = min(LONGEST_PAUSE, 2 * pause)

    def _hear(self, connection: Connection) -> bool:
        """Ring for arriving wake-ups, until none has come for a while. Returns whether the
        connection still carries a ping then.
        """
        while self._pass_on(connection, 1.5 * PING if self._has_pinged_last else PING):
            pass
        self._post((_PING,))
        return self._pass_on(connection, ANSWER)

    def _pass_on(self, connection: Connection, patience: float) -> bool:
        """Wait for the next wake-ups and ring for them. Returns whether any came within
        ``patience`` seconds.
        """
        heard = False
        for notice in connection.notifies(timeout=patience, stop_after=1):
            heard = True
            if notice.pid != self._sender_pid:
                self._company_until, self._has_pinged_last = time.monotonic() + COMPANY, False
            elif notice.payload == _PING:
                self._has_pinged_last = True
            if notice.payload == _ALL:
                self._ring(None)
            elif notice.payload == _WATCH:
                self._announce()
            elif notice.pid != self._sender_pid:  # this process's own wake-ups have already rung
                self._ring((notice.payload,))
        return heard and not self._closed.is_set()

    # Both

    def _connected(self, who: str) -> Connection:
        """A new connection, which ``close`` can cut. It is closed at the end of the block."""
        connection = self._database.connect()
        with self._lock:
            self._connections[who] = connection
            if self._closed.is_set():
                connection.close()
        return connection
