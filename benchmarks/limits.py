"""What PostgreSQL alone takes for what a row needs of it: no queue that keeps its promises there can be quicker. Called by rows 1, 3 and 4.

A notice, a plan, a claim and an end are each a transaction of their own, whose commit is waited for before the next step, as the step's answer says that it is stored.
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
    """A database in which nothing is done but what is asked for here."""

    connection: psycopg.Connection[Any]

    def commits(self, count: int) -> float:
        """Seconds for so many transactions, one after the other, each of which changes one row."""
        began = time.perf_counter()
        for _ in range(count):
            self.connection.execute("update bare set n = n + 1")
        return time.perf_counter() - began

    def commits_after_a_rest(self, count: int) -> float:
        """The same in milliseconds, after as long a rest as a server has before a notice."""
        time.sleep(REST)
        return self.commits(count) * 1000


@contextmanager
def a_bare_database(bench: Bench) -> Iterator[Bare]:
    with bench.database(tables=False) as uri, bench.admin(uri) as connection:
        connection.execute("create table bare as select 0 as n")
        yield Bare(connection)


class Rows:
    """The tasks and edges of the newest run of an archive, which can be written again, as of further runs behind it."""

    APART = 10**9
    """Between the ids of one writing and the next."""

    def __init__(self, connection: psycopg.Connection[Any], archive: int) -> None:
        self._connection, self._written = connection, 0
        connection.execute(
            "create temp table old as select * from task where run_id = (select max(id) from run where archive_id = %s)",
            [archive],
        )
        connection.execute("create temp table old_edge as select * from edge where target in (select id from old)")

    def write(self) -> float:
        """Milliseconds for one transaction of two statements, into the same tables with the same indices, after a rest."""
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
