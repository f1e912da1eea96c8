"""The connections to PostgreSQL: a pool in which every call has a time limit (design 6).

Writers (``queue``) and readers (``views``) work inside ``Database.transaction``, or better
``Database.retrying``. This module does not know the tables.

Faults, and their consequences:

- A connection broke while it was idle in the pool: it is checked and replaced before the caller gets
  it, who notices nothing. A connection that was used less than ``FRESH`` ago is not checked; its
  fault appears during the call.
- It broke during a transaction: nothing of the transaction is stored. ``retrying`` runs it once
  more. After that, and in ``transaction``: DatabaseUnavailable.
- It broke during the commit: the transaction may be stored or not, so nothing is repeated here:
  DatabaseUnavailable. The caller finds out what is stored.
- The server is silent, without an error (stopped, overloaded, or behind a network that drops
  packets): ``statement_timeout`` ends what the server still runs, and the watchdog cuts the
  connection of an overdue call. The error is Overdue. Nothing is repeated here, because the next try
  would take as long.
- The server is away: DatabaseUnavailable within seconds (``CHECKOUT_TIMEOUT``, ``CONNECT_TIMEOUT``).
  Each new call tries again, so loops continue by themselves.
- Deadlocks (40P01) and serialization failures (40001): ``retrying`` runs the transaction again.
- Others hold a lock for longer than ``LOCK_TIMEOUT``, or all connections of a share: Busy. Nothing
  is repeated here.

Each role has a *share* of the pool: a number of connections that nobody else can take
(``Database.share``). Many requests at once, or archives that somebody keeps locked, can use up one
share, but no other, so leases are still renewed.
"""

from __future__ import annotations

import copy
import logging
import math
import random
import re
import select
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import DictRow, dict_row
from psycopg_pool import ConnectionPool, PoolTimeout

from arkqueue.db.lists import Lists
from arkqueue.db.pipelines import Answer, Call, keep_prepared, run
from arkqueue.db.watchdog import Watchdog
from arkqueue.errors import ArkqueueError, Busy, DatabaseUnavailable

Connection = psycopg.Connection[DictRow]
"""A connection of this module; its rows are dicts."""

CONNECT_TIMEOUT = 5
"""The seconds that making a connection may take; all times below are in seconds, too."""
CHECKOUT_TIMEOUT = 5.0
PATIENCE = 0.5
"""How long the pool may take before this module checks whether the server is there at all."""
STATEMENT_TIMEOUT = 15.0
LOCK_TIMEOUT = 10.0
IDLE_TIMEOUT = 30.0
"""How long a transaction may be idle before the server ends it."""
CALL_TIMEOUT = 30.0
"""How long a whole transaction may take before the watchdog cuts its connection."""
FRESH = 0.1
"""How long a returned connection counts as good without a check."""
MOST_RETRIES = 10
AWAY = "See that PostgreSQL runs and can be reached."
LOCKED = "See pg_stat_activity for a transaction that was forgotten, and holds a lock."
"""The remedy."""

P = ParamSpec("P")
R = TypeVar("R")

_BEGIN = Call(b"BEGIN ISOLATION LEVEL READ COMMITTED")
_BEGIN_SNAPSHOT = Call(b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
"""Overrides the defaults of the server and of the role: locking first and acting then needs a fresh
snapshot for each statement.
"""
_COMMIT = Call(b"COMMIT")

# DatabaseUnavailable reports a server that is away, in arkqueue's own words, so psycopg and its
# pool stay silent.
logging.getLogger("psycopg").setLevel(logging.CRITICAL)


class Database:
    """The pool of one process, or a share of it. ``open`` makes it from a connection string, and
    ``close`` ends it together with its shares.

    ``pooler=True`` is for a connection string that leads through pgbouncer in transaction mode.
    Then nothing is kept in the session, neither prepared statements nor timeouts. ``direct`` is the
    connection string for uses that need a session of their own: LISTEN and migrations.
    """

    def __init__(self, conninfo: str, *, application_name: str, pooler: bool, direct: str | None, size: int) -> None:
        self._pooler = pooler
        self._direct = _complete(direct or conninfo, application_name, pooler=pooler and direct is None)
        self._settings = _complete(conninfo, application_name, pooler=pooler)
        self.name = _describe(self._settings)
        self.watchdog = Watchdog()
        self._used: weakref.WeakKeyDictionary[psycopg.Connection[Any], float] = weakref.WeakKeyDictionary()
        """The times at which connections were returned after successful calls."""
        self._size, self._free = size, threading.Semaphore(size)
        """The number of connections of this share, and a semaphore for the free ones."""
        self._pool = Pool(
            "",
            kwargs={**self._settings, **self._session(pooler)},
            min_size=1,
            max_size=size,
            timeout=CHECKOUT_TIMEOUT,
            configure=_configure if pooler else _configure_session,
            # Short, so that the pool never backs off for longer than a caller waits.
            reconnect_timeout=CHECKOUT_TIMEOUT / 2,
            name=application_name,
            num_workers=2,
            open=False,
        )

    @classmethod
    def open(
        cls,
        conninfo: str,
        *,
        application_name: str = "arkqueue",
        pooler: bool = False,
        direct: str | None = None,
        size: int = 10,
    ) -> Database:
        """Open the pool. Raises ArkqueueError for a faulty connection string, but not if the server
        is away.
        """
        database = cls(conninfo, application_name=application_name, pooler=pooler, direct=direct, size=size)
        database._pool.open(wait=False)
        return database

    def share(self, size: int) -> Self:
        """A share of the same database: ``size`` further connections, which only the callers of the
        share can take.
        """
        share = copy.copy(self)
        share._size, share._free = size, threading.Semaphore(size)
        self._pool.resize(self._pool.min_size, self._pool.max_size + size)
        return share

    def close(self) -> None:
        self._pool.close(timeout=CHECKOUT_TIMEOUT)
        self.watchdog.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def transaction(self, *, timeout: float = CALL_TIMEOUT, snapshot: bool = False) -> Iterator[Connection]:
        """One READ COMMITTED transaction: committed at the end of the block, rolled back by an
        exception.

        ``timeout``: the seconds for all of it; a longer time than usual also raises the server's
        ``statement_timeout``. ``snapshot``: the transaction only reads, and shows the database at
        one moment.
        """
        begin = _BEGIN_SNAPSHOT if snapshot else _BEGIN
        with self._checkout(timeout) as connection, self._transaction(connection, timeout, begin=begin):
            yield connection

    @contextmanager
    def statement(self, *, timeout: float = CALL_TIMEOUT) -> Iterator[Connection]:
        """A connection for one statement, which is a transaction of its own and takes one round
        trip. Through a pooler it takes three, because the server's timeouts are sent with it.
        """
        with (
            self._checkout(timeout) as connection,
            self._transaction(connection, timeout) if self._pooler else nullcontext(),
        ):
            yield connection

    def retrying(
        self, function: Callable[Concatenate[Connection, P], R], /, *arguments: P.args, **options: P.kwargs
    ) -> R:
        """Run ``function(connection, …)`` in a transaction; again after a deadlock, and once after
        a lost connection.

        The whole function is repeated, so it must not change anything but the database.
        """
        return self.retrying_after([], lambda connection, _: function(connection, *arguments, **options))

    def retrying_after(self, first: Sequence[Call], function: Callable[[Connection, Begun], R]) -> R:
        """Like `retrying`, for a transaction that begins with the statements ``first``, which share
        a round trip with its beginning.
        """
        collisions = losses = 0
        while True:
            finished = False
            try:
                with (
                    self._checkout(CALL_TIMEOUT) as connection,
                    self._transaction(connection, CALL_TIMEOUT, first) as begun,
                ):
                    result = function(connection, begun)
                    finished = True
                return result
            except (errors.DeadlockDetected, errors.SerializationFailure) as error:
                collisions += 1
                if collisions > MOST_RETRIES:
                    raise self._unavailable(
                        f"{collisions} collisions in a row: {error.diag.message_primary}"
                    ) from error
                time.sleep(random.uniform(0, 0.005 * 2 ** min(collisions, 6)))
            except Lost:
                losses += 1
                # Once the commit has been sent, only the caller can know whether a repetition does
                # harm.
                if finished or losses > 1:
                    raise

    def connect(self) -> Connection:
        """A connection in autocommit that bypasses the pool and any pooler. The caller closes it."""
        try:
            connection: Connection = psycopg.connect(**{**self._direct, **self._session(False)})
        except psycopg.OperationalError as error:
            raise self._unavailable(_first_line(error)) from error
        _configure(connection)
        return connection

    @contextmanager
    def _transaction(
        self, connection: Connection, timeout: float, first: Sequence[Call] = (), begin: Call = _BEGIN
    ) -> Iterator[Begun]:
        """A transaction. ``first`` shares a round trip with its beginning. ``begin`` sets the
        isolation level: the same round trip may discard a prepared statement, and after that no
        statement can set it.
        """
        limits: list[Call] = []
        if self._pooler or timeout > CALL_TIMEOUT:
            values = _limits(STATEMENT_TIMEOUT if timeout <= CALL_TIMEOUT else timeout)
            limits = [Call(f"set local {name} = {value}".encode()) for name, value in values.items()]
        try:
            answers = run(connection, [begin, *limits, *first])
            begun = Begun(answers[1 + len(limits) :])
            yield begun
            run(connection, [*begun.last, _COMMIT])
        except BaseException:
            with suppress(psycopg.Error):  # the cause of the rollback matters, not this error
                connection.rollback()
            raise

    @contextmanager
    def _checkout(self, timeout: float) -> Iterator[Connection]:
        connection = self._take()
        try:
            with self.watchdog.guard(connection, timeout) as guard:
                try:
                    yield connection
                except psycopg.Error as error:
                    if guard.cut:
                        raise self._lost(f"no answer within {timeout:.0f} s", Overdue) from error
                    if isinstance(error, errors.LockNotAvailable):
                        raise Busy(
                            "a lock", "is held by others, and was not free in time (lock timeout)", LOCKED
                        ) from error
                    if isinstance(error, errors.QueryCanceled):
                        raise Overdue(self.name, _first_line(error), AWAY) from error
                    if isinstance(error, _COLLISIONS) or not (connection.closed or _is_outage(error)):
                        raise
                    raise self._lost(_first_line(error)) from error
            if not guard.cut:
                self._used[connection] = time.monotonic()
        finally:
            self._pool.putconn(connection)
            self._free.release()

    def _take(self) -> Connection:
        """A connection of this share. The caller returns it, together with its place in the share."""
        deadline = time.monotonic() + CHECKOUT_TIMEOUT
        patience = min(PATIENCE, CHECKOUT_TIMEOUT)
        while not self._free.acquire(timeout=patience):
            patience = self._more_patience(deadline)
        try:
            return self._pooled(deadline)
        except BaseException:
            self._free.release()
            raise

    def _more_patience(self, deadline: float) -> float:
        """The remaining seconds to wait for a connection. Neither the share nor the pool can
        distinguish busy connections from an absent server, so this method checks: nobody waits for
        an absent server.
        """
        if fault := self._try():
            raise self._unavailable(fault)
        rest = deadline - time.monotonic()
        if rest <= 0:
            raise Busy("the database's connections", f"all {self._size} connections are busy", "Try again in a moment.")
        return rest

    def _pooled(self, deadline: float) -> Connection:
        patience = min(PATIENCE, CHECKOUT_TIMEOUT)
        while True:
            try:
                connection = self._pool.getconn(timeout=patience)
            except PoolTimeout:
                patience = self._more_patience(deadline)
                continue
            # The pool's own check would wait a second after each broken connection, and after a
            # restart of the server all connections are broken.
            if time.monotonic() - self._used.pop(connection, -math.inf) < FRESH or _is_quiet(connection):
                return connection
            connection.close()
            self._pool.putconn(connection)

    def _try(self) -> str:
        """The reason why no connection can be made now; empty if one can be made."""
        try:
            psycopg.connect(**{**self._settings, **self._session(self._pooler)}).close()
        except psycopg.Error as error:
            return _first_line(error)
        return ""

    def _session(self, pooler: bool) -> dict[str, Any]:
        session: dict[str, Any] = {"autocommit": True, "row_factory": dict_row, "prepare_threshold": 1}
        return session | {"prepare_threshold": None} if pooler else session

    def _unavailable(self, fault: str) -> DatabaseUnavailable:
        if _REFUSAL.search(fault):
            return Refused(self.name, fault, "Correct the connection string's user, password or database name.")
        return DatabaseUnavailable(self.name, fault, AWAY)

    def _lost(self, fault: str, kind: type[DatabaseUnavailable] | None = None) -> DatabaseUnavailable:
        self._used.clear()  # a server that has cut one connection has seldom kept the others
        return (kind or Lost)(self.name, fault, AWAY)


@dataclass(slots=True)
class Begun:
    """A transaction that has begun. ``answers``: the results of its first statements. ``last``:
    statements that share a round trip with its commit; nobody waits for their results
    (``Call.then`` gets them).
    """

    answers: Sequence[Answer]
    last: list[Call] = field(default_factory=list)


class Pool(ConnectionPool[Connection]):
    """Hands out the connection that was returned last: its PostgreSQL process has plans,
    catalogs and pages in its caches.

    psycopg's own pool rotates its connections, so each step of a commit would meet another, cold
    process (docs/performance.md).
    """

    def _get_ready_connection(self, timeout: float | None) -> Connection | None:
        # The last connection becomes the first, which the pool takes next. When the pool shrinks,
        # the first one is then the one that was unused for longest.
        self._pool.rotate(1)
        return super()._get_ready_connection(timeout)


class Lost(DatabaseUnavailable):
    """The connection was lost while it was in use."""


class Overdue(DatabaseUnavailable):
    """A statement or a transaction took longer than its timeout; the next try would take as long."""


class Refused(DatabaseUnavailable):
    """The server answers, but refuses the user, password or database: a retry helps only after
    somebody has corrected this.
    """


def _complete(conninfo: str, application_name: str, *, pooler: bool) -> dict[str, Any]:
    """The connection string with this module's timeouts, unless it sets others."""
    try:
        given = conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError as error:
        raise ArkqueueError(
            "the connection string of the database",
            f"is faulty: {str(error).strip()}",
            "It looks like postgresql://user@host/database, or like: host=… dbname=… user=…",
        ) from error
    settings: dict[str, Any] = {
        "connect_timeout": CONNECT_TIMEOUT,
        "application_name": application_name,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 15_000,
        **given,
    }
    if not pooler:  # pgbouncer refuses such options; through it, each transaction sets them
        options = " ".join(f"-c {name}={value}" for name, value in _limits(STATEMENT_TIMEOUT).items())
        settings["options"] = f"{options} {given.get('options') or ''}".strip()
    return settings


def _limits(statement_timeout: float) -> dict[str, int]:
    """The server's timeouts, in milliseconds."""
    return {
        "statement_timeout": round(statement_timeout * 1000),
        "lock_timeout": round(LOCK_TIMEOUT * 1000),
        "idle_in_transaction_session_timeout": round(IDLE_TIMEOUT * 1000),
    }


def _configure(connection: Connection) -> None:
    connection.adapters.register_dumper(list, Lists)
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED


def _configure_session(connection: Connection) -> None:
    """Prepare a connection that does not lead through a pooler."""
    _configure(connection)
    keep_prepared(connection)


def _describe(settings: dict[str, Any]) -> str:
    """The name of the database for messages, without its password."""
    return f"the database {settings.get('dbname') or ''!r} at {settings.get('host') or 'the default socket'}"


def _is_quiet(connection: Connection) -> bool:
    """Whether an idle connection is healthy: the only message that the server sends without a
    request is that it closes the connection.
    """
    try:
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        return not poll.poll(0)
    except (psycopg.Error, OSError):
        return False


_COLLISIONS = (errors.DeadlockDetected, errors.SerializationFailure)

# The error of a refused connection has no SQLSTATE (it would be 28xxx or 3D000), only the server's
# message.
_REFUSAL = re.compile(
    r"authentication failed|no password supplied|(role|database) .* does not exist"
    r"|no pg_hba\.conf entry|not permitted to log in|permission denied for database"
)

_OUTAGES = {
    "53": "out of disk, memory or connections",
    "57": "shutting down, starting up, or a statement that took too long",
    "58": "a fault of the server's system",
    "08": "a fault of the connection",
}


def _is_outage(error: psycopg.Error) -> bool:
    """Whether the database, not the statement, is at fault: the same call may succeed later."""
    if isinstance(error, errors.IdleInTransactionSessionTimeout | errors.ReadOnlySqlTransaction):
        return True
    if error.sqlstate:
        return error.sqlstate[:2] in _OUTAGES
    return isinstance(error, psycopg.OperationalError)


def _first_line(error: psycopg.Error) -> str:
    return error.diag.message_primary or next(iter(str(error).strip().splitlines()), type(error).__name__)
