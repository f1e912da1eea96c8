"""The schema: it is made once even by several processes, is migrated, and is refused if it is not
arkqueue's. A migrated schema equals a new one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from arkqueue.db.migrations import check, migrate
from arkqueue.db.session import Session
from arkqueue.errors import ArkqueueError
from tests.builders import an_archive

# What makes two schemas the same: everything that has a definition,
# but not the order of columns, which additions cannot keep.
CATALOG = b"""
select 'column', table_name, column_name, concat_ws(' ', udt_name, is_nullable, column_default, is_identity)
    from information_schema.columns where table_schema = 'public'
union all select 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid)
    from pg_constraint where connamespace = 'public'::regnamespace
union all select 'index', tablename, indexname, indexdef from pg_indexes where schemaname = 'public'
union all select 'function', proname, '', pg_get_functiondef(oid) from pg_proc where pronamespace = 'public'::regnamespace
union all select 'trigger', tgrelid::regclass::text, tgname, pg_get_triggerdef(oid) from pg_trigger where not tgisinternal
union all select 'view', viewname, '', definition from pg_views where schemaname = 'public'
union all select 'enum', enumtypid::regtype::text, enumlabel, '' from pg_enum
union all select 'sequence', sequencename, '', data_type::text from pg_sequences where schemaname = 'public'
union all select 'storage', relname, relkind::text, array_to_string(reloptions, ',')
    from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p', 'i')
"""


def catalog(connection: psycopg.Connection[Any]) -> set[tuple[Any, ...]]:
    return set(connection.execute(CATALOG).fetchall())


@contextmanager
def connected(uri: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(uri, autocommit=True) as connection:
        yield connection


def a_folder(path: Path, schema: str, **migrations: str) -> Path:
    (path / "migrations").mkdir(parents=True)
    (path / "schema.sql").write_text(schema)
    for name, text in migrations.items():
        (path / "migrations" / f"{name.removeprefix('m').replace('_', '-')}.sql").write_text(text)
    return path


@pytest.fixture
def released(tmp_path: Path) -> Path:
    return a_folder(tmp_path / "released", "create table thing (id bigint primary key);")


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    return a_folder(
        tmp_path / "newer",
        "create table thing (id bigint primary key, what text not null default '100%');",
        m0001_first_release="create table thing (id bigint primary key);",
        m0002_what="alter table thing add column what text not null default '100%';",
    )


def test_an_empty_database_gets_the_schema_once(empty_uri: str, released: Path) -> None:
    with connected(empty_uri) as connection:
        with pytest.raises(ArkqueueError, match=r"has no tables yet. Run arkqueue migrate"):
            check(connection, released)
        assert migrate(connection, released) == ["schema.sql"]
        assert migrate(connection, released) == []
        check(connection, released)


def test_a_database_of_another_unreleased_version_is_refused(empty_uri: str, released: Path) -> None:
    schema = released / "schema.sql"
    with connected(empty_uri) as connection:
        migrate(connection, released)
        schema.write_text("-- a comment\n\n" + schema.read_text())
        assert migrate(connection, released) == []
        schema.write_text(schema.read_text() + "create table another (id bigint primary key);")
        for look in (migrate, check):
            with pytest.raises(ArkqueueError, match="another unreleased version of arkqueue"):
                look(connection, released)
        connection.execute("update schema_version set name = 'schema.sql'")
        check(connection, released)  # of before that was written down


def test_an_older_database_gets_what_it_lacks(empty_uri: str, released: Path, newer: Path) -> None:
    with connected(empty_uri) as connection:
        migrate(connection, released)
        connection.execute("insert into thing values (1)")
        with pytest.raises(ArkqueueError, match="has version 1, this arkqueue needs 2"):
            check(connection, newer)
        assert migrate(connection, newer) == ["0002-what.sql"]
        check(connection, newer)
        assert connection.execute("select * from thing").fetchall() == [(1, "100%")]


def test_an_older_database_of_an_unreleased_version_is_refused(empty_uri: str, released: Path, newer: Path) -> None:
    (released / "schema.sql").write_text("create table thing (id bigint primary key, which text);")
    with connected(empty_uri) as connection:
        migrate(connection, released)
        with pytest.raises(ArkqueueError, match="another unreleased version of arkqueue"):
            migrate(connection, newer)
        check(connection, released)


def test_a_newer_database_is_refused(empty_uri: str, released: Path, newer: Path) -> None:
    with connected(empty_uri) as connection:
        migrate(connection, newer)
        for refuse in (migrate, check):
            with pytest.raises(
                ArkqueueError, match=r"has version 2, newer than this arkqueue's 1\..*pip install --upgrade"
            ):
                refuse(connection, released)


def test_a_faulty_migration_changes_nothing(empty_uri: str, released: Path, newer: Path) -> None:
    (newer / "migrations" / "0003-faulty.sql").write_text("create table more (); select from nowhere;")
    with connected(empty_uri) as connection:
        migrate(connection, released)
        before = catalog(connection)
        with pytest.raises(psycopg.errors.UndefinedTable):
            migrate(connection, newer)
        assert catalog(connection) == before
        check(connection, released)


def test_many_that_migrate_at_once_do_it_once(empty_uri: str, released: Path) -> None:
    applied: list[list[str]] = []
    together = threading.Barrier(6)

    def work() -> None:
        with connected(empty_uri) as connection:
            together.wait(30)
            applied.append(migrate(connection, released))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(applied) == [[], [], [], [], [], ["schema.sql"]]


def test_a_migration_does_not_wait_for_ever_for_a_table_in_use(
    empty_uri: str, released: Path, newer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arkqueue.db.migrations.LOCK_TIMEOUT", "20ms")
    with connected(empty_uri) as connection, connected(empty_uri) as user:
        migrate(connection, released)
        with user.transaction():
            user.execute("select from thing")
            with pytest.raises(ArkqueueError, match="its tables were in use for more than 20ms"):
                migrate(connection, newer)
        assert migrate(connection, newer) == ["0002-what.sql"]


def test_somebody_who_may_not_make_tables_is_told(empty_uri: str, released: Path) -> None:
    with connected(empty_uri) as connection:
        connection.execute("set default_transaction_read_only = on")
        with pytest.raises(ArkqueueError, match="cannot be made or changed: cannot execute CREATE TABLE"):
            migrate(connection, released)


def test_an_old_server_is_refused(empty_uri: str, released: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arkqueue.db.migrations.OLDEST_SERVER", 99)
    with connected(empty_uri) as connection:
        for refuse in (migrate, check):
            with pytest.raises(ArkqueueError, match="arkqueue needs 99 or newer"):
                refuse(connection, released)


def test_a_database_that_cannot_hold_every_script_is_refused(empty_uri: str) -> None:
    name = "ascii_" + conninfo_to_dict(empty_uri)["dbname"]  # type: ignore[operator]
    with connected(empty_uri) as admin:
        admin.execute(f"create database {name} encoding 'SQL_ASCII' locale 'C' template template0".encode())
    try:
        with (
            connected(make_conninfo(empty_uri, dbname=name)) as connection,
            pytest.raises(ArkqueueError, match=r"its encoding is SQL_ASCII.*--encoding UTF8"),
        ):
            migrate(connection)
    finally:
        with connected(empty_uri) as admin:
            admin.execute(f"drop database {name}".encode())


@pytest.mark.parametrize("name", ["0003_what.sql", "0004-gap.sql", "0002-twice.sql"])
def test_a_misnumbered_migration_is_our_mistake(empty_uri: str, newer: Path, name: str) -> None:
    (newer / "migrations" / name).write_text("select 1")
    with connected(empty_uri) as connection, pytest.raises(ValueError, match="number"):
        migrate(connection, newer)


def both_ways(empty: Callable[[], str], folder: Path) -> list[set[tuple[Any, ...]]]:
    """The catalog of a fresh database, and of one that went through every version."""
    with connected(empty()) as fresh, connected(empty()) as migrated:
        migrate(fresh, folder)
        changes = sorted((folder / "migrations").glob("*.sql")) or [folder / "schema.sql"]
        for change in changes:
            migrated.execute(change.read_text().encode())
        return [{row for row in catalog(c) if "schema_version" not in str(row)} for c in (fresh, migrated)]


def test_the_schema_is_what_its_migrations_make_of_the_first_release(empty_database: Callable[[], str]) -> None:
    fresh, migrated = both_ways(empty_database, Path(str(files("arkqueue") / "sql")))
    assert fresh == migrated
    assert fresh


def test_kinds_are_made_of_the_names_that_said_them(empty_uri: str) -> None:
    folder = Path(str(files("arkqueue") / "sql" / "migrations"))
    with connected(empty_uri) as connection:
        connection.execute((folder / "0001-first-release.sql").read_bytes())
        connection.execute(
            "insert into task (run_id, archive_id, branch_id, number, run, unmet, position, state, gate, name)"
            " select 1, 1, 1, 1, 1, 0, 0, 'waiting', gate, name from (values ('COMMIT', true), ('REPORT', true),"
            " ('PREV:*', true), ('PREV:*:settled', true), ('passes', true), ('runs', false)) t(name, gate)"
        )
        connection.execute((folder / "0002-kinds.sql").read_bytes())
        rows = connection.execute("select name, kind, program from task").fetchall()
    assert {name: (kind, program) for name, kind, program in rows} == {
        "COMMIT": ("commit", False),
        "REPORT": ("report", False),
        "PREV:*": ("gate", False),
        "PREV:*:settled": ("gate", False),
        "passes": ("ordinary", False),
        "runs": ("ordinary", True),
    }


def test_what_never_began_blocks_as_if_it_had_been_judged_when_it_was_canceled(session: Session) -> None:
    """The migration judges all tasks at once; the queue judges them one by one."""
    archive = an_archive(session)
    for _ in range(4):
        archive.commit(
            {"a": "depends: [PREV]", "b": "depends: [a, PREV]", "c": "depends: [{task: 'PREV:a', when: settled}]"}
        )
    archive.fail("a@2")
    for key in ("a@4", "a@3", "b@5", "c@4", "c@3"):
        archive.cancel(key)
    blocks = "select name, number, blocks from task where state in ('canceled', 'skipped') order by id"
    judged = archive.sql(blocks)
    assert {row["blocks"] for row in judged} == {0, 1, 2}
    archive.sql("update task set blocks = 0")
    text = (files("arkqueue") / "sql" / "migrations" / "0007-blocking.sql").read_text()
    archive.sql(text[text.index("with recursive") :])
    assert archive.sql(blocks) == judged


def test_that_comparison_sees_a_difference(empty_database: Callable[[], str], newer: Path) -> None:
    fresh, migrated = both_ways(empty_database, newer)
    assert fresh == migrated
    (newer / "schema.sql").write_text("create table thing (id bigint primary key, what text not null);")
    fresh, migrated = both_ways(empty_database, newer)
    assert fresh != migrated
