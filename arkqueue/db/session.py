"""The access to shared state: named statements, transactions and wake-ups in one object. Every verb
of the queue takes this object first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Self, TypeVar, cast

from psycopg.errors import DeadlockDetected, LockNotAvailable

from arkqueue import states
from arkqueue.db import Connection, Database, Wakeups
from arkqueue.db.connections import CALL_TIMEOUT, Begun
from arkqueue.db.pipelines import Answer, Call, run
from arkqueue.db.statements import load
from arkqueue.errors import Busy
from arkqueue.runtime.admission import Admission

SQL = load(states.expand)
"""The named blocks of ``arkqueue/sql``, their guards made from the table of moves in ``states``."""

T = TypeVar("T")
Block = tuple[str, dict[str, Any]]
"""The name of a block, and its parameters."""

MOST_KEPT = 10_000


@dataclass(slots=True)
class Kept:
    """A cache of stored facts that never change: contents by their digests, names of branches."""

    since: datetime | None = None
    """The start of the database server for which the cache is valid."""
    ids: dict[bytes, int] = field(default_factory=dict)
    parsed: dict[int, tuple[object, int]] = field(default_factory=dict)
    """The ids of parsed objects, by identity, so that a parsed workflow is digested once. The
    object is kept beside its id, because Python reuses the identity of a dead object.
    """
    names: set[tuple[int, str, bool]] = field(default_factory=set)

    def of(self, since: datetime) -> Self:
        """The cache for this start of the server; empty if the server was restarted."""
        if self.since != since:
            self.since, self.ids, self.parsed, self.names = since, {}, {}, set()
        return self

    def keep(
        self, ids: dict[bytes, int], parsed: dict[int, tuple[object, int]], names: set[tuple[int, str, bool]]
    ) -> None:
        """Add what a committed transaction stored."""
        if len(self.ids) + len(self.names) > MOST_KEPT:
            self.ids, self.names = {}, set()
        if len(self.parsed) > MOST_KEPT:
            self.parsed = {}
        # Not in place, because other threads read at the same time.
        self.ids, self.parsed, self.names = self.ids | ids, self.parsed | parsed, self.names | names


@dataclass(frozen=True, slots=True)
class Session:
    """The database for the verbs of the queue, and the wake-ups to send after a commit (None: no
    wake-ups, everybody polls).
    """

    database: Database
    wakeups: Wakeups | None = None
    kept: Kept = field(default_factory=Kept)
    admission: Admission | None = None
    """Limits how many of this session's callers wait for one archive (None: no limit, because they
    are few).
    """

    def share(self, connections: int, admission: Admission | None = None) -> Session:
        """Like this session, with some connections that nobody else can take."""
        return replace(self, database=self.database.share(connections), admission=admission)

    @contextmanager
    def admitted(self, archives: Iterable[int]) -> Iterator[None]:
        """Change some archives inside the block. Raises Busy if too many of this session's callers
        wait to change them.
        """
        with ExitStack() as stack:
            if self.admission is not None:
                for archive in sorted(set(archives)):
                    stack.enter_context(self.admission.admit(archive, "the archive"))
            yield

    def rows(self, block: str, /, *, binary: bool = False, **parameters: Any) -> list[Any]:
        """The rows of one named block, run as a transaction of its own."""
        if isinstance(self.database, _Held):
            return self.database.rows(block, parameters, binary=binary)
        with self.database.statement() as connection:
            return rows(connection, block, binary=binary, **parameters)

    def rows_of(self, *blocks: Block) -> list[list[Any]]:
        """The rows of each of some named blocks, run in this order as one transaction, in one round
        trip.
        """
        with self.database.statement() as connection:
            return answers(connection, *blocks)

    @contextmanager
    def snapshot(self, *, timeout: float = CALL_TIMEOUT) -> Iterator[Session]:
        """A session for `rows` only. All its reads show the database at one moment, whatever is
        committed in the meantime, so a question that is asked twice is sent once. ``timeout``: the
        seconds for all of it.
        """
        with self.database.transaction(timeout=timeout, snapshot=True) as connection:
            yield replace(self, database=cast(Database, _Held(connection)))

    @contextmanager
    def rehearsal(self, archive: int) -> Iterator[Session]:
        """A session whose changes of an archive are undone at the end. Nobody else sees them. They
        return and refuse exactly what real changes would.

        Each change sees those before it, because all are one transaction, which keeps its locks
        until the end. So a caller that changes much stops at `until`. The session is admitted to
        the archive like a verb, and gives up if others have locked something that it needs
        (``_Rehearsal``).
        """
        with self.admitted([archive]):
            rehearsal = _Rehearsal(self.database)
            try:
                yield replace(self, database=cast(Database, rehearsal), wakeups=None, kept=Kept(), admission=None)
            finally:
                rehearsal.undo()

    @property
    def until(self) -> float:
        """The time, by the monotonic clock, after which a rehearsal begins no further change. Other
        sessions have no such time.
        """
        return self.database.until if isinstance(self.database, _Rehearsal) else math.inf

    @property
    def is_rehearsal(self) -> bool:
        """Whether the session's changes are undone at the end."""
        return isinstance(self.database, _Rehearsal)

    @property
    def is_over(self) -> bool:
        """Whether this is a rehearsal that begins no further change."""
        return time.monotonic() > self.until

    def do(self, block: str, /, **parameters: Any) -> int:
        """Run one named block as a transaction of its own. Returns the number of rows that it
        changed or returned.
        """
        with self.database.statement() as connection:
            return execute(connection, block, parameters).rowcount

    def retrying(self, work: Callable[[Connection], T]) -> T:
        """Run ``work`` in one transaction, again after a deadlock or a lost connection."""
        return self.database.retrying(work)

    def retrying_after(
        self, blocks: Sequence[Block], work: Callable[[Connection, list[list[Any]], list[Call]], T]
    ) -> T:
        """Like `retrying`, for a transaction that begins with some blocks, which share a round trip
        with its beginning.

        ``work(connection, rows, last)`` gets the rows of each of these blocks. The calls that it
        adds to ``last`` share a round trip with the commit.
        """
        return self.database.retrying_after(
            [call(*block) for block in blocks],
            lambda connection, begun: work(connection, [answer.rows() for answer in begun.answers], begun.last),
        )

    def wake(self, *topics: str) -> None:
        """Wake the listeners of some topics (``ready``, ``stop``, ``look``, …). Never called inside
        a transaction.
        """
        if self.wakeups is not None:
            self.wakeups.wake(*topics)

    @property
    def is_watched(self) -> bool:
        """Whether somebody, in any process, watches which archives change."""
        return self.wakeups is not None and self.wakeups.is_watched

    def changed(self, archives: Iterable[int]) -> None:
        """Notify those who watch some archives that these have changed. Called after the commit. If
        nobody watches, nothing is sent.
        """
        if self.wakeups is not None:
            self.wakeups.changed(archives)


@dataclass(frozen=True, slots=True)
class _Held:
    """The part of a database that `Session.rows` needs: one connection, inside a transaction that only
    reads, and the rows that it has read.
    """

    connection: Connection
    read: dict[tuple[str, str, bool], list[Any]] = field(default_factory=dict)

    @contextmanager
    def statement(self) -> Iterator[Connection]:
        yield self.connection

    def rows(self, block: str, parameters: Mapping[str, Any], *, binary: bool) -> list[Any]:
        """The rows of one named block; a new list at each call."""
        key = block, repr(parameters), binary
        if key not in self.read:
            self.read[key] = rows(self.connection, block, binary=binary, **parameters)
        return [*self.read[key]]


LONGEST_REHEARSAL = 2.0
"""The seconds after which a rehearsal begins no further change, so that others get the rows that it
has locked.
"""
LITTLE_PATIENCE = 1.0
"""The seconds for which a rehearsal waits for rows that others have locked."""


class _Undone(Exception):
    """Ends the transaction of a rehearsal."""


class _Rehearsal:
    """The part of a database that `Session` needs: one transaction that is never committed."""

    def __init__(self, database: Database) -> None:
        self._stack = ExitStack()
        self._connection = self._stack.enter_context(database.transaction())
        self._connection.execute(f"set local lock_timeout = {round(LITTLE_PATIENCE * 1000)}".encode())
        self.until = time.monotonic() + LONGEST_REHEARSAL

    def undo(self) -> None:
        with suppress(_Undone), self._stack.pop_all():
            raise _Undone

    @contextmanager
    def statement(self) -> Iterator[Connection]:
        yield self._connection

    def retrying(self, work: Callable[[Connection], T]) -> T:
        return self.retrying_after([], lambda connection, _: work(connection))

    def retrying_after(self, first: Sequence[Call], work: Callable[[Connection, Begun], T]) -> T:
        try:
            with self._connection.transaction():
                begun = Begun(run(self._connection, first) if first else [])
                result = work(self._connection, begun)
                if begun.last:
                    run(self._connection, begun.last)
                return result
        except (LockNotAvailable, DeadlockDetected) as error:
            raise Busy("what is to be tried", "is being changed by others", "Try again in a moment.") from error


def execute(connection: Connection, block: str, parameters: Mapping[str, Any], *, binary: bool = False) -> Answer:
    """Run a named block; the columns of its rows are attributes."""
    (answer,) = run(connection, [call(block, parameters, binary=binary)])
    return answer


def rows(connection: Connection, block: str, /, *, binary: bool = False, **parameters: Any) -> list[Any]:
    """The rows of a named block, with columns as attributes. ``binary``: in PostgreSQL's binary
    form, which is faster for long bytes. Values of enumerated types (``task_state``, ``edge_kind``)
    are bytes then, too.
    """
    return execute(connection, block, parameters, binary=binary).rows()


def answers(connection: Connection, *blocks: Block) -> list[list[Any]]:
    """The rows of several named blocks, which run in this order in one round trip; empty for a
    block that returns none.
    """
    return [answer.rows() for answer in run(connection, [call(*block) for block in blocks])]


def call(block: str, parameters: Mapping[str, Any], *, binary: bool = False) -> Call:
    """The call of a named block."""
    return SQL.statements[block].call(parameters, binary=binary)
