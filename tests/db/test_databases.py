"""The databases that the tests of one worker use in turn. No test can tell its database from a new
one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from arkqueue.db import Database
from arkqueue.db.embedded.server import Embedded
from arkqueue.db.session import Session
from arkqueue.errors import DatabaseUnavailable
from arkqueue.views.doctor import CHECKS
from tests.builders import an_archive
from tests.postgres import Databases, a_database
from tests.soundness import assert_sound, destroy_sound


@pytest.fixture
def databases(postgres: Embedded, template: str) -> Iterator[Databases]:
    databases = Databases(postgres, template)
    yield databases
    databases.close()


def what_is_in(uri: str) -> dict[str, Any]:
    """The rows of every table, and where every sequence is."""
    with psycopg.connect(uri) as connection:
        tables = connection.execute(
            "select relname, relkind::text from pg_class where relkind in ('r', 'S') and relnamespace = 'public'::regnamespace"
        ).fetchall()
        what = {"r": sql.SQL("jsonb_agg(t)"), "S": sql.SQL("jsonb_agg(array[last_value::text, is_called::text])")}
        return {
            name: connection.execute(sql.SQL("select {} from {} t").format(what[kind], sql.Identifier(name))).fetchone()
            for name, kind in tables
        }


def test_a_database_that_was_used_is_as_a_new_one(postgres: Embedded, template: str, databases: Databases) -> None:
    with a_database(postgres, template) as uri:
        new = what_is_in(uri)
    with databases.one() as used:
        archive = an_archive(Session(used.pool))
        archive.commit({"a": "", "b": "depends: [a]"})
        archive.run("a@2")
        archive.sql("update heartbeat set beat_at = 'epoch'")
        assert what_is_in(used.uri) != new
    with databases.one() as again:
        assert again is used
        assert what_is_in(again.uri) == new


def test_what_is_checked_after_each_test_is_planned_once(databases: Databases) -> None:
    with databases.one() as kept:
        an_archive(Session(kept.pool)).commit({"a": ""})
        assert_sound(kept.own)
        assert_sound(kept.own)
        (row,) = kept.own.execute("select count(distinct statement) as n from pg_prepared_statements").fetchall()
        assert row["n"] > len(CHECKS)


GARBLE = b"update task set unmet = 7 where name = 'a'"
SEEN = "doctor finds what no test may leave behind:\nunmet: it counts 7 unmet edges, and has 0"


@pytest.mark.parametrize(
    "change",
    [b"select", b"create table another ()", b"insert into definition (digest, body) select sha256(n::text::bytea), '{}' from generate_series(1, 20000) n"],
    ids=["emptied", "another schema", "many rows"],
)  # fmt: skip
def test_a_test_that_leaves_a_broken_invariant_fails(databases: Databases, change: bytes) -> None:
    with pytest.raises(pytest.fail.Exception, match=SEEN), databases.one() as kept:
        garble(kept.uri, change)


def test_a_test_that_leaves_a_broken_invariant_in_a_further_database_fails(postgres: Embedded, template: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=SEEN), a_database(postgres, template) as uri:
        garble(uri)


def test_a_test_that_leaves_a_broken_invariant_in_an_embedded_database_fails(used_home: Path) -> None:
    server = Embedded.open(used_home, durable=False)
    garble(server.uri)
    server.close()
    with pytest.raises(pytest.fail.Exception, match=SEEN):
        destroy_sound(Embedded(used_home, durable=False))
    assert not (used_home / "postgres" / "data").exists()


def garble(uri: str, change: bytes = b"select") -> None:
    with Database.open(uri, application_name="arkqueue test") as database:
        an_archive(Session(database)).commit({"a": ""})
        with database.connect() as connection:
            connection.execute(change)
            connection.execute(GARBLE)


def test_what_a_test_left_open_ends_with_it(databases: Databases) -> None:
    with databases.one() as kept:
        left = psycopg.connect(kept.uri)
        left.execute("update heartbeat set beat_at = 'epoch'")
    with pytest.raises(psycopg.OperationalError):
        left.execute("select 1")
    left.close()


@pytest.mark.parametrize(
    "change",
    [
        "drop index attempt_live",
        "insert into definition (digest, body) select sha256(n::text::bytea), '{}' from generate_series(1, 20000) n",
    ],
    ids=["another schema", "many rows"],
)
def test_a_database_that_is_not_quickly_emptied_is_used_by_nobody_else(databases: Databases, change: str) -> None:
    with databases.one() as changed, psycopg.connect(changed.uri, autocommit=True) as connection:
        connection.execute(change.encode())
    with databases.one() as other:
        assert other is not changed


def test_a_pool_whose_connections_a_test_has_ended_or_kept_works_for_the_next(databases: Databases) -> None:
    with databases.one() as kept, kept.pool.statement() as one, kept.pool.statement() as two:
        pid = one.info.backend_pid
        two.execute("select pg_terminate_backend(%s, 60000)", [pid])
        left = kept.pool.transaction()
        left.__enter__().execute("update heartbeat set beat_at = 'epoch'")
    for _ in range(3):
        with databases.one() as again, again.pool.statement() as one, again.pool.statement() as two:
            assert again is kept
            assert one.execute("select from heartbeat where beat_at = 'epoch'").fetchall() == []
            two.execute("select")
    with pytest.raises(DatabaseUnavailable):
        left.__exit__(None, None, None)
