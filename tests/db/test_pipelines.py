"""Statements that share a round trip: their answers, their errors, and the prepared statements of a
connection.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors

from arkqueue.db import Connection, Database, pipelines
from arkqueue.db.connections import CALL_TIMEOUT, Begun
from arkqueue.db.pipelines import Call, run
from arkqueue.errors import DatabaseUnavailable


@pytest.fixture
def connection(pg_uri: str) -> Iterator[Connection]:
    """A connection as a server has them."""
    with Database.open(pg_uri, size=1) as database, database.statement() as connection:
        yield connection


def names(connection: Connection) -> list[str]:
    """The statements that the server has prepared for this connection."""
    return [row["statement"] for row in connection.execute("select statement from pg_prepared_statements")]


def test_statements_run_in_their_order_and_each_has_its_answer(connection: Connection) -> None:
    made, added, found, none = run(
        connection,
        [
            Call(b"create temporary table n (n int)"),
            Call(b"insert into n select generate_series(1, $1::int)", [3]),
            Call(b"select n, n * $1::int as double from n", [2]),
            Call(b"select from n where n > $1::int", [3]),
        ],
    )
    assert (made.rows(), added.rows(), added.rowcount) == ([], [], 3)
    assert [(row.n, row.double) for row in found.rows()] == [(1, 2), (2, 4), (3, 6)]
    assert (none.rows(), none.rowcount) == ([], 0)


def test_behind_an_error_nothing_is_run_and_the_connection_goes_on(connection: Connection) -> None:
    with pytest.raises(errors.DivisionByZero):
        run(connection, [Call(b"create temporary table before ()"), Call(b"select 1 / 0"), Call(b"select 1 / $1", [0])])
    (answer,) = run(connection, [Call(b"select to_regclass('before') is null as nothing")])
    assert answer.rows()[0].nothing


def test_what_cannot_be_told_to_the_server_is_not_sent(connection: Connection) -> None:
    with pytest.raises(psycopg.ProgrammingError):
        run(connection, [Call(b"create temporary table before ()"), Call(b"select $1", [object()])])
    (answer,) = run(connection, [Call(b"select to_regclass('before') is null as nothing")])
    assert answer.rows()[0].nothing


def test_more_than_a_socket_takes_goes_out_while_answers_come_in(connection: Connection) -> None:
    text = "x" * 2**22
    answers = run(connection, [Call(b"select $1::text as text", [text])] * 5)
    assert all(answer.rows()[0].text == text for answer in answers)


def test_a_statement_is_prepared_when_it_comes_again_and_stays_so_after_a_rollback(connection: Connection) -> None:
    call = Call(b"select $1::int as n", [1])
    run(connection, [call])
    assert call.text.decode() not in names(connection)
    run(connection, [call, call])
    assert names(connection).count(call.text.decode()) == 1
    with pytest.raises(errors.DivisionByZero), connection.transaction():
        run(connection, [Call(b"select 1 / $1", [0])])
    assert run(connection, [call])[0].rows()[0].n == 1
    assert names(connection).count(call.text.decode()) == 1


def test_a_statement_that_cannot_be_prepared_is_tried_again(connection: Connection) -> None:
    call = Call(b"select n from later")
    for _ in range(3):
        with pytest.raises(errors.UndefinedTable):
            run(connection, [call])
    connection.execute("create temporary table later (n int)")
    assert run(connection, [call])[0].rows() == []


def test_a_connection_keeps_the_statements_that_it_used_last(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelines, "MOST_PREPARED", 2)
    calls = [Call(b"select $1::int as %s" % name, [1]) for name in (b"a", b"b", b"c")]
    for call in calls:
        run(connection, [call, call])
    assert sorted(names(connection)) == [call.text.decode() for call in calls[1:]]
    assert [answer.rows()[0][0] for answer in run(connection, calls)] == [1, 1, 1]


@pytest.mark.parametrize("timeout", [CALL_TIMEOUT, 2 * CALL_TIMEOUT])
def test_a_snapshot_begins_where_its_connection_forgets_a_statement(
    pg_uri: str, monkeypatch: pytest.MonkeyPatch, timeout: float
) -> None:
    monkeypatch.setattr(pipelines, "MOST_PREPARED", 2)
    with Database.open(pg_uri, size=1) as database:
        for name in (b"a", b"b", b"c"):
            with database.statement() as connection:
                run(connection, [Call(b"select 1 as %s" % name)] * 2)
        with database.transaction(timeout=timeout, snapshot=True) as connection:
            level = (
                "current_setting('transaction_isolation') as level, current_setting('transaction_read_only') as only"
            )
            (row,) = run(connection, [Call(b"select " + level.encode())])[0].rows()
            assert (row.level, row.only) == ("repeatable read", "on")


def test_through_a_pooler_nothing_is_prepared(pg_uri: str) -> None:
    with Database.open(pg_uri, pooler=True, direct=pg_uri) as database, database.transaction() as connection:
        run(connection, [Call(b"select $1::int", [1])] * 3)
        assert names(connection) == []


def test_a_connection_that_is_lost_meanwhile_is_closed(pg_uri: str, connection: Connection) -> None:
    with psycopg.connect(pg_uri, autocommit=True) as other:
        cut = threading.Timer(
            0, other.execute, ["select pg_terminate_backend(%s, 60000)", [connection.info.backend_pid]]
        )
        cut.start()
        with pytest.raises(psycopg.OperationalError):
            run(connection, [Call(b"select pg_sleep(60)")])
        cut.join()
    assert connection.closed
    with pytest.raises(psycopg.OperationalError):
        run(connection, [Call(b"select 1")])


def test_a_transaction_that_fails_in_its_first_statements_is_rolled_back(pg_uri: str) -> None:
    with Database.open(pg_uri, size=1) as database:
        first = [Call(b"create table before ()"), Call(b"select 1 / $1", [0])]
        with pytest.raises(errors.DivisionByZero):
            database.retrying_after(first, lambda _, begun: pytest.fail(f"they failed: {begun}"))
        with database.statement() as connection:
            (answer,) = run(connection, [Call(b"select to_regclass('before') is null as nothing")])
            assert answer.rows()[0].nothing


def test_a_transaction_has_the_answers_of_its_first_statements_and_runs_the_last_with_its_commit(pg_uri: str) -> None:
    def work(connection: Connection, begun: Begun) -> int:
        begun.last.append(Call(b"insert into kept values (2)"))
        run(connection, [Call(b"insert into kept values (1)")])
        return int(begun.answers[1].rows()[0].n)

    with Database.open(pg_uri, size=1) as database:
        assert database.retrying_after([Call(b"create table kept (n int)"), Call(b"select 3 as n")], work) == 3
        with database.statement() as connection:
            (kept,) = run(connection, [Call(b"select n from kept")])
            assert [row.n for row in kept.rows()] == [1, 2]


def test_a_transaction_whose_last_statements_fail_is_rolled_back(pg_uri: str) -> None:
    with Database.open(pg_uri, size=1) as database:
        with pytest.raises(errors.DivisionByZero):
            database.retrying_after(
                [Call(b"create table kept (n int)")], lambda _, begun: begun.last.append(Call(b"select 1 / $1", [0]))
            )
        with database.statement() as connection:
            (answer,) = run(connection, [Call(b"select to_regclass('kept') is null as nothing")])
            assert answer.rows()[0].nothing


def test_a_transaction_whose_first_statements_take_too_long_is_cut(
    pg_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arkqueue.db.connections.CALL_TIMEOUT", 0.2)
    with Database.open(pg_uri, size=1) as database, pytest.raises(DatabaseUnavailable, match="no answer within 0 s"):
        database.retrying_after([Call(b"select pg_sleep(60)")], lambda _, begun: begun)


def test_a_call_gets_its_answer_once_the_whole_round_trip_has_succeeded(connection: Connection) -> None:
    got: list[list[tuple[int]]] = []
    one = Call(b"select 1", then=lambda answer: got.append(answer.rows()))
    with pytest.raises(errors.DivisionByZero):
        run(connection, [one, Call(b"select 1 / 0")])
    assert got == []
    run(connection, [one, Call(b"select 2")])
    assert got == [[(1,)]]
