"""The access to shared state: named statements, transactions and wake-ups in one object that every
verb of the queue takes first.
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
    """Facts that are stored and never change, so that this process need not ask again: contents by
    their digests, names of branches.
    """

    since: datetime | None = None
    """The start of the server since which this is known."""
    ids: dict[bytes, int] = field(default_factory=dict)
    parsed: dict[int, tuple[object, int]] = field(default_factory=dict)
    """The ids of parsed objects, by identity: a workflow that was parsed once is digested once. Each object is kept beside its id, as Python gives the identity of a dead object to another one."""
    names: set[tuple[int, str, bool]] = field(default_factory=set)

    def of(self, since: datetime) -> Self:
        """The facts that are known since this start of the server; empty if it was restarted."""
        if self.since != since:
            self.since, self.ids, self.parsed, self.names = since, {}, {}, set()
        return self

    def keep(
        self, ids: dict[bytes, int], parsed: dict[int, tuple[object, int]], names: set[tuple[int, str, bool]]
    ) -> None:
        """Remember what a committed transaction stored."""
        if len(self.ids) + len(self.names) > MOST_KEPT:
            self.ids, self.names = {}, set()
        if len(self.parsed) > MOST_KEPT:
            self.parsed = {}
        # Not in place: other threads read meanwhile.
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
    """Limits how many of this session's callers wait for one archive (None: they are few)."""

    def share(self, connections: int, admission: Admission | None = None) -> Session:
        """Like this session, through some connections that nobody else can take."""
        return replace(self, database=self.database.share(connections), admission=admission)

    @contextmanager
    def admitted(self, archives: Iterable[int]) -> Iterator[None]:
        """Change some archives inside the block; raises Busy where too many of this session's callers wait for that."""
        with ExitStack() as stack:
            if self.admission is not None:
                for archive in sorted(set(archives)):
                    stack.enter_context(self.admission.admit(archive, "the archive"))
            yield

    def rows(self, block: str, /, *, binary: bool = False, **parameters: Any) -> list[Any]:
        """The rows of one named block, run as a transaction of its own."""
        with self.database.statement() as connection:
            return rows(connection, block, binary=binary, **parameters)

    def rows_of(self, *blocks: Block) -> list[list[Any]]:
        """The rows of each of some named blocks that only read, in one round trip."""
        with self.database.statement() as connection:
            return answers(connection, *blocks)

    @contextmanager
    def snapshot(self, *, timeout: float = CALL_TIMEOUT) -> Iterator[Session]:
        """A session for `rows` alone. All of them show the database as it is now, whatever is committed meanwhile. ``timeout``: seconds for all of it."""
        with self.database.transaction(timeout=timeout, snapshot=True) as connection:
            yield replace(self, database=cast(Database, _Held(connection)))

    @contextmanager
    def rehearsal(self, archive: int) -> Iterator[Session]:
        """A session all of whose changes of an archive are undone at the end, and seen by nobody else: what they return, and refuse, is what the same changes would.

        Each of them sees those before it, as they are one transaction, which keeps its locks meanwhile. So whoever changes much stops at `until`. The session is
        admitted to the archive as a verb is, and gives way where others have locked something (``_Rehearsal``).
        """
        with self.admitted([archive]):
            rehearsal = _Rehearsal(self.database)
            try:
                yield replace(self, database=cast(Database, rehearsal), wakeups=None, kept=Kept(), admission=None)
            finally:
                rehearsal.undo()

    @property
    def until(self) -> float:
        """The time, by the monotonic clock, after which a rehearsal begins nothing more. A session
        that is not rolled back has no such time.
        """
        return self.database.until if isinstance(self.database, _Rehearsal) else math.inf

    @property
    def is_rehearsal(self) -> bool:
        """Whether what it changes is undone."""
        return isinstance(self.database, _Rehearsal)

    @property
    def is_over(self) -> bool:
        """Whether a rehearsal begins nothing more."""
        return time.monotonic() > self.until

    def do(self, block: str, /, **parameters: Any) -> int:
        """Run one named block as a transaction of its own; returns how many rows it touched."""
        with self.database.statement() as connection:
            return execute(connection, block, parameters).rowcount

    def retrying(self, work: Callable[[Connection], T]) -> T:
        """Run ``work`` in one transaction, again after a deadlock or a lost connection."""
        return self.database.retrying(work)

    def retrying_after(
        self, blocks: Sequence[Block], work: Callable[[Connection, list[list[Any]], list[Call]], T]
    ) -> T:
        """Like `retrying`, for a transaction that begins with some blocks, in one round trip with its beginning.

        ``work(connection, rows, last)`` gets the rows of each of these blocks. What it adds to ``last`` is run at the end, in one round trip with the commit.
        """
        return self.database.retrying_after(
            [call(*block) for block in blocks],
            lambda connection, begun: work(connection, [answer.rows() for answer in begun.answers], begun.last),
        )

    def wake(self, *topics: str) -> None:
        """Wake those who wait for ``ready``, ``stop`` or ``look``; never inside a transaction."""
        if self.wakeups is not None:
            self.wakeups.wake(*topics)

    @property
    def is_watched(self) -> bool:
        """Whether somebody, in any process, wants to know which archives change."""
        return self.wakeups is not None and self.wakeups.is_watched

    def changed(self, archives: Iterable[int]) -> None:
        """Tell those who look at some archives that they have changed; call it after the commit. Where nobody looks, nothing is sent."""
        if self.wakeups is not None:
            self.wakeups.changed(archives)


@dataclass(frozen=True, slots=True)
class _Held:
    """The part of a database that `Session.rows` needs: one connection, inside a transaction."""

    connection: Connection

    @contextmanager
    def statement(self) -> Iterator[Connection]:
        yield self.connection


LONGEST_REHEARSAL = 2.0
"""Seconds after which a rehearsal begins no further change, so that others get what it has locked."""
LITTLE_PATIENCE = 1.0
"""Seconds for which a rehearsal waits for what others have locked."""


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
    """The rows of a named block, their columns as attributes. ``binary``: as PostgreSQL has them, which is quicker for long bytes; what has an enumerated type (``task_state``, ``edge_kind``) is then bytes, too."""
    return execute(connection, block, parameters, binary=binary).rows()


def answers(connection: Connection, *blocks: Block) -> list[list[Any]]:
    """The rows of several named blocks, which are run in this order with one round trip; no rows where a block returns none."""
    return [answer.rows() for answer in run(connection, [call(*block) for block in blocks])]


def call(block: str, parameters: Mapping[str, Any], *, binary: bool = False) -> Call:
    """A named block, to be run."""
    return SQL.statements[block].call(parameters, binary=binary)
