"""The time that PostgreSQL alone needs for a row's transactions: a lower limit for every queue that
keeps its promises there. Called by rows 1, 3 and 4.

A notice, a plan, a claim and an end are separate transactions. Each step waits for the commit of
the transaction before, because the step's answer promises that it is stored.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from benchmarks.bench import Bench
from benchmarks.servers import REST


@dataclass(frozen=True, slots=True)
class Bare:
    """A database that executes nothing but the statements of this module."""

    connection: psycopg.Connection[Any]

    def commits(self, count: int) -> float:
        """Seconds for ``count`` transactions in sequence, each of which changes one row."""
        began = time.perf_counter()
        for _ in range(count):
            self.connection.execute("update bare set n = n + 1")
        return time.perf_counter() - began

    def commits_after_a_rest(self, count: int) -> float:
        """Milliseconds for such transactions after a rest as long as a server's rest before a
        notice.
        """
        time.sleep(REST)
        return self.commits(count) * 1000


@contextmanager
def a_bare_database(bench: Bench) -> Iterator[Bare]:
    with bench.database(tables=False) as uri, bench.admin(uri) as connection:
        connection.execute("create table bare as select 0 as n")
        yield Bare(connection)


class Rows:
    """The tasks and edges of the newest run of an archive, which can be written again, as if for
    further runs.
    """

    APART = 10**9
    """The distance between the ids of two writings."""

    def __init__(self, connection: psycopg.Connection[Any], archive: int) -> None:
        self._connection, self._written = connection, 0
        connection.execute(
            "create temp table old as select * from task where run_id = (select max(id) from run where archive_id = %s)",
            [archive],
        )
        connection.execute("create temp table old_edge as select * from edge where target in (select id from old)")

    def write(self) -> float:
        """Milliseconds for one transaction of two statements on the same tables and indices, after
        a rest.
        """
        self._written += self.APART
        for statement in (
            "create temp table new as select * from old",
            "update new set id = id + %(apart)s, run_id = run_id + %(apart)s, number = number + %(apart)s",
            "create temp table new_edge as select * from old_edge",
            "update new_edge set target = target + %(apart)s,"
            " source = case when source in (select id from old) then source + %(apart)s else source end",
        ):
            self._connection.execute(statement, {"apart": self._written})
        time.sleep(REST)
        began = time.perf_counter()
        with self._connection.transaction():
            self._connection.execute("insert into task select * from new")
            self._connection.execute("insert into edge select * from new_edge")
        took = time.perf_counter() - began
        self._connection.execute("drop table new, new_edge")
        return took * 1000
