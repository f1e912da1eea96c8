"""The connection pool: every call ends, callers notice a lost connection only if they must, and an
outage passes without a restart.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg import errors
from psycopg.conninfo import make_conninfo

from arkqueue.db import connections as module
from arkqueue.db.connections import Connection, Database, Refused
from arkqueue.db.watchdog import Watchdog
from arkqueue.errors import ArkqueueError, Busy, DatabaseUnavailable


@pytest.fixture
def database(pg_uri: str) -> Iterator[Database]:
    """A pool that has not been used before: these tests count its connections, break them, and set things in them."""
    with Database.open(pg_uri, application_name="arkqueue test") as database:
        yield database


@pytest.fixture
def table(database: Database) -> None:
    with database.transaction() as connection:
        connection.execute("create table counter (id int primary key, n int not null)")
        connection.execute("insert into counter values (1, 0), (2, 0)")


def count(database: Database) -> int:
    with database.transaction() as connection:
        row = connection.execute("select n from counter where id = 1").fetchone()
    assert row
    return int(row["n"])


def add(connection: Connection, n: int = 1) -> None:
    connection.execute("update counter set n = n + %s where id = 1", [n])


def end_other_sessions(second_connection: Callable[[], Connection]) -> int:
    """As a restart of the server does to the pool, but for one database."""
    ended = second_connection().execute(
        "select pg_terminate_backend(pid, 60000) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid()"
    )
    return ended.rowcount


def use_and_break_three(database: Database, second_connection: Callable[[], Connection]) -> int:
    """How many of the pool's connections were ended right after their use."""
    with database.statement(), database.statement(), database.statement():
        pass
    return end_other_sessions(second_connection)


@pytest.mark.usefixtures("table")
def test_a_transaction_is_committed_at_its_end_and_rolled_back_by_an_exception(database: Database) -> None:
    with database.transaction() as connection:
        add(connection)

    def work() -> None:
        with database.transaction() as connection:
            add(connection)
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert count(database) == 1


@pytest.mark.usefixtures("table")
def test_each_statement_alone_is_committed_at_once(
    database: Database, second_connection: Callable[[], Connection]
) -> None:
    with database.statement() as connection:
        add(connection)
        assert second_connection().execute("select n from counter where id = 1").fetchone() == {"n": 1}


def test_transactions_are_read_committed_and_limited_whatever_the_server_says(database: Database) -> None:
    with database.statement() as connection:
        connection.execute("set default_transaction_isolation = 'serializable'")
        with connection.transaction():
            shown = {
                name: connection.execute(f"select current_setting('{name}') as value".encode()).fetchone()["value"]
                for name in ("transaction_isolation", "statement_timeout", "lock_timeout")
            }
        connection.execute("reset default_transaction_isolation")
    assert shown == {"transaction_isolation": "read committed", "statement_timeout": "15s", "lock_timeout": "10s"}


@pytest.mark.usefixtures("table")
def test_connections_that_broke_in_the_pool_are_not_noticed(
    database: Database, second_connection: Callable[[], Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FRESH", 0.0)
    assert use_and_break_three(database, second_connection) >= 3
    for _ in range(4):
        assert count(database) == 0


@pytest.mark.usefixtures("table")
def test_connections_that_broke_right_after_their_use_cost_one_call(
    database: Database, second_connection: Callable[[], Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FRESH", math.inf)
    assert use_and_break_three(database, second_connection) >= 3
    with pytest.raises(DatabaseUnavailable):
        count(database)
    for _ in range(4):
        assert count(database) == 0


def test_the_connection_that_was_used_last_is_used_next(database: Database) -> None:
    with database.statement() as first, database.statement() as second, database.statement():
        pass
    for _ in range(3):
        with database.statement() as again:
            assert again is first
    with database.statement() as again, database.statement() as other:
        assert (again, other) == (first, second)
    # When the pool closes what is idle is its own affair: it is asked to look now, minutes early.
    pool = database._pool
    pool._shrink_pool()  # what happened since it was last asked counts, so that this only resets it
    with database.statement() as again:
        pass
    # The pool closes one idle connection at a time.
    while pool._nconns == 3:
        pool._shrink_pool()
    assert not again.closed
    assert not first.closed


@pytest.mark.usefixtures("table")
def test_a_lock_that_stays_taken_is_told_as_such(
    database: Database, second_connection: Callable[[], Connection]
) -> None:
    other, tries = second_connection(), []

    def adds_impatiently(connection: Connection) -> None:
        tries.append(1)
        connection.execute("set local lock_timeout = 1")
        add(connection)

    with other.transaction():
        add(other)
        with pytest.raises(Busy, match=r"lock timeout.*a transaction that was forgotten"):
            database.retrying(adds_impatiently)
    assert tries == [1], "who waits for a lock twice waits twice as long"


def test_a_statement_that_took_too_long_is_not_run_again(database: Database) -> None:
    tries = []

    def sleeps(connection: Connection) -> None:
        tries.append(1)
        connection.execute("set local statement_timeout = 1; select pg_sleep(600)")

    with pytest.raises(DatabaseUnavailable, match="statement timeout"):
        database.retrying(sleeps)
    assert tries == [1]


def test_connections_of_a_share_are_taken_by_nobody_else(pg_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECKOUT_TIMEOUT", 0.2)
    with Database.open(pg_uri, size=1) as database:
        first, second = database.share(2), database.share(1)
        for holder, others, size in [(first, [database, second], 2), (database, [first, second], 1)]:
            with ExitStack() as held:
                for _ in range(size):
                    held.enter_context(holder.statement())
                with pytest.raises(Busy, match=f"all {size} connections are busy"), holder.statement():
                    pass
                for other in others:
                    other.retrying(lambda connection: connection.execute("select 1"))
            with holder.statement():
                pass  # what was given back can be taken again


def test_the_watchdog_keeps_one_descriptor_for_each_connection_that_lives(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, closed = [], []

    def close(descriptor: int) -> None:
        closed.append(descriptor)
        os.close(descriptor)

    watchdog = Watchdog()
    monkeypatch.setattr("arkqueue.db.watchdog.os", SimpleNamespace(dup=os.dup, close=close))
    try:
        with database.connect() as connection:
            for _ in range(3):
                with watchdog.guard(connection, 60) as guard:
                    made.append(guard.descriptor)
            assert closed == []
        del connection
        assert len(made) == 3
        assert [*set(made)] == closed
    finally:
        watchdog.close()


@pytest.mark.usefixtures("table")
def test_a_connection_lost_in_a_transaction_is_an_unavailable_database_and_the_next_one_works(
    database: Database, second_connection: Callable[[], Connection]
) -> None:
    def work() -> None:
        with database.transaction() as connection:
            add(connection)
            end_other_sessions(second_connection)
            add(connection)

    with pytest.raises(DatabaseUnavailable):
        work()
    assert count(database) == 0


@pytest.mark.usefixtures("table")
def test_retrying_runs_a_transaction_again_when_its_connection_is_lost_but_only_once(
    database: Database, second_connection: Callable[[], Connection]
) -> None:
    losses = [1]
    runs = []

    def work(connection: Connection) -> str:
        runs.append(connection.info.backend_pid)
        add(connection)
        if losses:
            losses.pop()
            end_other_sessions(second_connection)
        add(connection)
        return "done"

    assert database.retrying(work) == "done"
    assert len(set(runs)) == 2
    assert count(database) == 2
    losses[:] = [1, 1]
    with pytest.raises(DatabaseUnavailable):
        database.retrying(work)
    assert count(database) == 2


@pytest.mark.usefixtures("table")
def test_a_connection_lost_in_the_commit_is_not_tried_again(
    database: Database, second_connection: Callable[[], Connection]
) -> None:
    runs = []

    def work(connection: Connection) -> None:
        runs.append(1)
        add(connection)
        end_other_sessions(second_connection)

    with pytest.raises(DatabaseUnavailable):
        database.retrying(work)
    assert runs == [1]


@pytest.mark.usefixtures("table")
def test_a_deadlock_is_run_again_until_it_succeeds(database: Database) -> None:
    both = threading.Barrier(2)
    runs: list[int] = []

    def work(connection: Connection, first: int, second: int) -> None:
        runs.append(first)
        connection.execute("update counter set n = n + 1 where id = %s", [first])
        if len(runs) <= 2:
            both.wait(60)
        connection.execute("update counter set n = n + 1 where id = %s", [second])

    threads = [threading.Thread(target=database.retrying, args=(work, *order)) for order in ((1, 2), (2, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(runs) >= 3, "there was no deadlock"
    assert count(database) == 2


def test_serialization_failures_without_end_are_given_up(database: Database) -> None:
    def work(connection: Connection) -> None:
        connection.execute("do $$ begin raise sqlstate '40001' using message = 'again'; end $$")

    with pytest.raises(DatabaseUnavailable, match="collisions in a row: again"):
        database.retrying(work)


def test_a_faulty_statement_is_no_outage(database: Database) -> None:
    with pytest.raises(errors.UndefinedTable):
        database.retrying(lambda connection: connection.execute("select from nowhere"))


def test_a_statement_without_end_is_ended_by_the_server(pg_uri: str) -> None:
    # What the connection string says has the last word.
    with (
        Database.open(pg_uri + " options='-c statement_timeout=50'") as database,
        pytest.raises(DatabaseUnavailable, match="statement timeout"),
        database.transaction() as connection,
    ):
        connection.execute("select pg_sleep(600)")


def test_a_silent_server_cannot_hold_a_call(own_postgres: Callable[[], Any]) -> None:
    server = own_postgres()
    with Database.open(server.uri) as database:
        frozen, overdue = threading.Event(), threading.Event()

        def call(connection: Connection) -> None:
            server.freeze()
            frozen.set()
            connection.execute("select 1")

        def wait() -> None:
            with pytest.raises(DatabaseUnavailable, match="no answer within"), database.transaction() as connection:
                call(connection)
            overdue.set()

        thread = threading.Thread(target=wait)
        thread.start()
        frozen.wait()
        assert not overdue.is_set()
        while thread.is_alive():
            # The watchdog looks at the clock that it is
            # told, so that nobody has to wait for it here.
            database.watchdog.look(time.monotonic() + 31)
            thread.join(0.01)
        assert overdue.is_set()
        server.thaw()
        with database.transaction() as connection:
            assert connection.execute("select 1 as one").fetchone() == {"one": 1}


def ask_until_it_fails(database: Database) -> None:
    while True:  # a killed server's other processes may answer for a moment
        database.retrying(add, 0)


def test_after_an_outage_everything_works_without_a_restart(own_postgres: Callable[[], Any]) -> None:
    server = own_postgres()
    with Database.open(server.uri) as database:
        with database.transaction() as connection:
            connection.execute("create table counter (id int, n int)")
            connection.execute("insert into counter values (1, 0)")
        server.kill()
        for _ in range(2):
            with pytest.raises(DatabaseUnavailable, match="the database 'arkqueue' at"):
                ask_until_it_fails(database)
        server.start()
        database.retrying(add)
        assert count(database) == 1


def test_an_unreachable_server_is_no_fault_at_the_opening(home: Any) -> None:
    with Database.open(f"host={home} dbname=nothing") as database:
        with pytest.raises(DatabaseUnavailable, match=r"the database 'nothing' at .*No such file"):
            database.connect()
        with pytest.raises(DatabaseUnavailable, match="No such file"), database.transaction():
            pass


def test_a_server_that_lets_nobody_in_is_told_from_one_that_is_away(pg_uri: str) -> None:
    for wrong, said in (
        ({"password": "wrong"}, "Correct the connection string"),
        ({"user": "nobody"}, "Correct the connection string"),
        ({"dbname": "nowhere"}, 'database "nowhere" does not exist'),
    ):
        with Database.open(make_conninfo(pg_uri, **wrong)) as database:
            with pytest.raises(Refused, match="Correct the connection string"):
                database.connect()
            with pytest.raises(Refused, match=said), database.transaction():
                pass
    with Database.open(make_conninfo(pg_uri, host="127.0.0.1", hostaddr="127.0.0.1", port="1")) as database:
        with pytest.raises(DatabaseUnavailable, match="See that PostgreSQL runs") as raised:
            database.connect()
        assert not isinstance(raised.value, Refused)


def test_a_faulty_connection_string_is_refused_without_showing_it() -> None:
    with pytest.raises(ArkqueueError, match="the connection string of the database: is faulty"):
        Database.open("postgres//secret@nowhere")


def test_behind_a_pooler_timeouts_go_with_each_call_and_nothing_is_kept_in_the_session(pg_uri: str) -> None:
    with Database.open(pg_uri, pooler=True, direct=pg_uri) as database:
        for call in (database.transaction, database.statement):
            with call() as connection:
                assert connection.prepare_threshold is None
                assert connection.execute("show lock_timeout").fetchone() == {"lock_timeout": "10s"}
                assert connection.execute("show statement_timeout").fetchone() == {"statement_timeout": "15s"}
            assert connection.execute("show statement_timeout").fetchone() == {"statement_timeout": "0"}
        with database.connect() as direct:
            assert direct.execute("show statement_timeout").fetchone() == {"statement_timeout": "15s"}


def test_a_longer_transaction_may_be_asked_for(database: Database) -> None:
    with database.transaction(timeout=600) as connection:
        assert connection.execute("show statement_timeout").fetchone() == {"statement_timeout": "10min"}
