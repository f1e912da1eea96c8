"""Wake-ups: telling those who wait, in this process and in all others, that there may be something to do (design 6).

A wake-up only shortens a wait. It may come for nothing, and it may be lost; everybody who waits also looks by himself from time to
time. So nothing here ever raises to a caller, and no wake-up is part of a transaction: they are sent after the commit, because the server
lets transactions that carry a NOTIFY commit one at a time only.

    wakeups.wake("ready")  ──────────────────────────────→ the bells of this process, at once
                           ─→ sender ─NOTIFY, at most one each 5 ms→ PostgreSQL ─→ listener of every process ─→ its bells

A process that is the only one sends nothing: a NOTIFY that nobody else hears would take the processor and the interpreter from the work that it is about.
Who else listens is known from the pings. Each process pings when it begins to listen; in silence, processes ping in turns, since the one that pinged last waits
longer. A process that has heard no other for ``COMPANY`` seconds is taken to be alone. Where that is wrong for a moment, the others look by themselves.

Changes of archives are announced only while somebody watches them: ``watch`` asks all processes to announce them, for a minute.

The listener never trusts silence: if nothing came for ``PING`` seconds, it lets the sender notify it. If that does not arrive either, or its
connection breaks, it connects anew and wakes every waiter, because a wake-up may have been missed.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Protocol

import psycopg

from arkqueue.db.connections import Connection, Database, cut
from arkqueue.errors import DatabaseUnavailable
from arkqueue.runtime.wakeup import Bell

CHANNEL = "arkqueue"
INTERVAL, LONGEST_INTERVAL = 0.005, 0.02
"""Seconds between two NOTIFYs of a process: each is a commit of its own. The first after a silence goes at once; while there is always another to send,
the interval doubles up to the second figure."""
PING = 5.0
"""Seconds of silence after which the listener tests its connection."""
ANSWER = 5.0
"""Seconds that it waits for the answer."""
COMPANY = 30.0
"""Seconds for which a process that was heard is taken to be there; in silence, each is heard three times in these."""
CALL_TIMEOUT = 5.0
PAUSE, LONGEST_PAUSE = 0.03, 1.0
"""Seconds until a connection that was lost is made anew: so many at first, then twice as many each time."""
MOST_PENDING = 1000
"""Topics waiting for the database to come back; more than these become one wake-up for all."""

WATCHED = 60.0
"""Seconds for which every process tells which archives change, after one process asked for it."""
ARCHIVE = "archive "
"""How the topic of a changed archive begins, before its id."""

_PING = "!ping"
_WATCH = "!watch"
_ALL = "!all"

_NOTIFY = b"""
with quickly as materialized (select set_config('synchronous_commit', 'off', true))
select pg_notify(%(channel)s, topic) from quickly, unnest(%(topics)s::text[]) as topic
"""
"""Its commit does not wait for the disk: what it is about is committed already, and whoever would hear it after a crash looks by himself."""
_LISTEN = f"listen {CHANNEL}".encode()


class Hearer(Protocol):
    """Somebody who wants to know what is rung for, in the thread that rings: no hearer may wait for anything."""

    def hear(self, topics: Collection[str] | None) -> None:
        """Called for these topics. None: anything may have been missed."""


class Wakeups:
    """The sender and the listener of one process; ``close`` ends both."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._bells: weakref.WeakSet[Bell] = weakref.WeakSet()
        self._hearers: weakref.WeakSet[Hearer] = weakref.WeakSet()
        self._watched_until = float("-inf")
        self._company_until = float("inf")
        self._has_pinged_last = False
        """The last ping that was heard is our own."""
        self._pending: set[str] = set()
        self._lock = threading.Lock()
        self._to_send = threading.Event()
        self._closed = threading.Event()
        self._sender_pid = 0
        self._connections: dict[str, Connection] = {}
        self.listening = threading.Event()
        """Set while other processes' wake-ups arrive."""
        self.losses = 0
        """How often they ceased to; the database may have been away then."""
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
        """Have somebody hear what is rung for, as long as the caller keeps him."""
        with self._lock:
            self._hearers.add(hearer)

    def watch(self) -> None:
        """Have all processes tell which archives change, for `WATCHED` seconds."""
        self._watched_until = time.monotonic() + WATCHED
        self._post((_WATCH,))

    @property
    def is_watched(self) -> bool:
        """Whether somebody wants to know which archives change."""
        return time.monotonic() < self._watched_until

    def changed(self, archives: Iterable[int]) -> None:
        """Tell those who look at some archives that they have changed; where nobody looks, nothing is sent. Call it after the commit."""
        if self.is_watched:
            self.wake(*(f"{ARCHIVE}{archive}" for archive in archives))

    def wake(self, *topics: str) -> None:
        """Ring for the topics, here at once and elsewhere soon. Never waits, never raises; call it after the commit."""
        self._ring(topics)
        if self.has_company:
            self._post(topics)

    @property
    def has_company(self) -> bool:
        """Whether another process may be listening."""
        return time.monotonic() < self._company_until

    def close(self) -> None:
        """End both threads; what could not be sent within a moment is left to everybody's own looking."""
        self._closed.set()
        self._to_send.set()
        with self._lock:
            listener = self._connections.get("listener")
            if listener and not listener.closed:
                with suppress(psycopg.Error, OSError):
                    cut(listener.fileno())
        for thread in self._threads:
            thread.join()

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

    # -- the sender's thread -----------------------------------------------------------------------------------------

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
        """Send what is pending once there is something; False when the process is leaving."""
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

    # -- the listener's thread ---------------------------------------------------------------------------------------

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
        """Ring for what arrives, until nothing came for a while; whether the connection still carries a ping then."""
        while self._pass_on(connection, 1.5 * PING if self._has_pinged_last else PING):
            pass
        self._post((_PING,))
        return self._pass_on(connection, ANSWER)

    def _pass_on(self, connection: Connection, patience: float) -> bool:
        """Wait for the next wake-ups and ring for them; whether any came within ``patience`` seconds."""
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
                self._watched_until = time.monotonic() + WATCHED
            elif notice.pid != self._sender_pid:  # our own have rung already
                self._ring((notice.payload,))
        return heard and not self._closed.is_set()

    # -- both --------------------------------------------------------------------------------------------------------

    def _connected(self, who: str) -> Connection:
        """A new connection, known to ``close``; it closes with its block."""
        connection = self._database.connect()
        with self._lock:
            self._connections[who] = connection
            if self._closed.is_set():
                connection.close()
        return connection
