"""`backup` and `restore`, and the backup before a migration."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from arkqueue.db import Database
from arkqueue.db.embedded.server import Embedded
from arkqueue.db.session import Session
from tests.builders import an_archive, the_archive
from tests.program import Done, run_cli
from tests.soundness import assert_sound

VERSION_21 = Path(__file__).parent.parent.parent / "db" / "version_21.sql"


@pytest.fixture
def arkqueue(tmp_path: Path) -> Any:
    """The command line with a home folder of its own."""

    def call(*words: str | Path) -> Done:
        return run_cli("--home", str(tmp_path / "home"), *map(str, words))

    return call


@contextmanager
def connected(uri: str) -> Iterator[psycopg.Connection[Any]]:
    with closing(psycopg.connect(uri, autocommit=True, row_factory=psycopg.rows.dict_row)) as connection:
        yield connection


def test_what_is_backed_up_is_restored_and_goes_on(
    arkqueue: Any, session: Session, pg_uri: str, empty_uri: str, tmp_path: Path
) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]"})
    archive.run("a@2")
    file = tmp_path / "queue.dump"
    done = arkqueue("backup", file, "--database", pg_uri)
    assert (done.code, done.err) == (0, "")
    assert re.fullmatch(rf"{file}: 0\.\d MB\n", done.out)
    assert file.stat().st_mode & 0o777 == 0o600
    archive.fail("b@2")  # after the backup
    done = arkqueue("restore", file, "--database", empty_uri)
    assert (done.code, done.err) == (0, "")
    with Database.open(empty_uri, application_name="test") as database:
        restored = the_archive(Session(database), "papers")
        assert restored.states() == {"a@2": "completed", "b@2": "ready"}
        restored.run("b@2")
        restored.commit({"a": ""})
    with connected(empty_uri) as connection:
        assert_sound(connection)


def test_a_file_that_exists_is_not_written_over(arkqueue: Any, pg_uri: str, tmp_path: Path) -> None:
    file = tmp_path / "queue.dump"
    file.write_text("mine")
    done = arkqueue("backup", file, "--database", pg_uri)
    assert (done.code, done.err) == (1, f"arkqueue: the backup {file}: exists already. Name a new file.\n")
    assert file.read_text() == "mine"


def test_a_backup_that_fails_leaves_no_file(arkqueue: Any, pg_uri: str, tmp_path: Path) -> None:
    with connected(pg_uri) as connection:
        connection.execute("create role cannot_read")
        connection.execute("grant select on schema_version to cannot_read")
        done = arkqueue(
            "backup", tmp_path / "queue.dump", "--database", make_conninfo(pg_uri, options="-c role=cannot_read")
        )
        connection.execute("drop owned by cannot_read")
        connection.execute("drop role cannot_read")
    assert done.code == 1
    assert re.search(r"was not written: .*permission denied for table \w+\. Correct that, and try again\.$", done.err)
    assert list(tmp_path.glob("queue*")) == []


def test_programs_of_the_servers_version_are_given_a_password_that_nobody_else_sees(
    arkqueue: Any, pg_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody on a machine sees the arguments of its programs."""
    parameters = conninfo_to_dict(pg_uri)
    password = Path(str(parameters.pop("passfile"))).read_text().strip().rpartition(":")[2]
    programs = tmp_path / "programs"
    programs.mkdir()
    seen = tmp_path / "seen"
    (programs / "pg_dump").write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo "pg_dump (PostgreSQL) $VERSION" || echo "$@" >{seen}\n'
    )
    (programs / "pg_dump").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setattr("arkqueue.db.backup.programs_of_wheel", lambda _: {})
    monkeypatch.setenv("VERSION", "9.6")
    words = "backup", tmp_path / "queue.dump", "--database", make_conninfo(**parameters, password=password)
    done = arkqueue(*words)
    assert done.code == 1
    assert re.search(
        r"pg_dump: is not installed in the version of the server, \d+ \(installed: 9\)\. Install", done.err
    )
    with connected(pg_uri) as connection:
        monkeypatch.setenv("VERSION", str(connection.info.server_version // 10000))
    assert arkqueue(*words).code == 0
    assert "--format=custom" in seen.read_text()
    assert password not in seen.read_text()


def test_what_is_no_backup_is_not_restored(arkqueue: Any, empty_uri: str, tmp_path: Path) -> None:
    file = tmp_path / "queue.dump"
    for content in (b"", b"no backup", b"PGDMP"):
        file.write_bytes(content)
        done = arkqueue("restore", file, "--database", empty_uri)
        assert done.code == 1, content
        assert f"the backup {file}: is no backup of arkqueue" in done.err
        assert "Name a file that `arkqueue backup` has written" in done.err
    assert arkqueue("restore", tmp_path, "--database", empty_uri).code == 2
    assert "is no file" in arkqueue("restore", tmp_path / "none", "--database", empty_uri).err


def test_a_backup_that_was_cut_off_restores_nothing(
    arkqueue: Any, session: Session, pg_uri: str, empty_uri: str, tmp_path: Path
) -> None:
    an_archive(session).commit({"a": ""})
    file = tmp_path / "queue.dump"
    assert arkqueue("backup", file, "--database", pg_uri).code == 0
    data = file.read_bytes()
    for lost in (1, len(data) // 10, len(data) // 2):
        file.write_bytes(data[:-lost])
        done = arkqueue("restore", file, "--database", empty_uri)
        assert done.code == 1, lost
        assert re.search("is no backup of arkqueue: |was not restored, and the database is as it was: ", done.err)
        with connected(empty_uri) as connection:
            tables = connection.execute("select from pg_class where relnamespace = 'public'::regnamespace")
            assert tables.rowcount == 0, lost


def test_a_backup_of_a_newer_arkqueue_is_refused(arkqueue: Any, pg_uri: str, empty_uri: str, tmp_path: Path) -> None:
    file = tmp_path / "queue.dump"
    with connected(pg_uri) as connection:
        connection.execute("insert into schema_version (version, name) values (9999, 'from the future')")
        assert arkqueue("backup", file, "--database", pg_uri).code == 0
        connection.execute("delete from schema_version where version = 9999")
    done = arkqueue("restore", file, "--database", empty_uri)
    assert done.code == 1
    assert "was made by a newer arkqueue (its schema has version 9999" in done.err


def test_nothing_is_restored_over_a_database_in_use_or_with_tables(
    arkqueue: Any, pg_uri: str, empty_uri: str, tmp_path: Path
) -> None:
    file = tmp_path / "queue.dump"
    assert arkqueue("backup", file, "--database", pg_uri).code == 0
    with connected(make_conninfo(empty_uri, application_name="arkqueue manager")):
        done = arkqueue("restore", file, "--database", empty_uri)
        assert (done.code, "is used by an arkqueue that runs. Stop every role" in done.err) == (1, True)
    assert arkqueue("restore", file, "--database", empty_uri).code == 0
    done = arkqueue("restore", file, "--database", empty_uri)
    assert done.code == 1
    assert "has arkqueue's tables already. Restore into an empty database" in done.err


def test_a_database_without_tables_and_a_home_without_a_database_are_not_backed_up(
    arkqueue: Any, empty_uri: str, tmp_path: Path
) -> None:
    done = arkqueue("backup", tmp_path / "queue.dump", "--database", empty_uri)
    assert (done.code, "has no tables of arkqueue" in done.err) == (1, True)
    done = arkqueue("backup", tmp_path / "queue.dump")
    assert (done.code, "has no database. Name another with --home" in done.err) == (1, True)
    assert not (tmp_path / "home" / "postgres").exists()


def test_the_embedded_database_is_backed_up_before_it_is_migrated(
    home: Path, empty_uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    """So that whoever has to go back to the version before loses nothing that this one had before it."""
    server = Embedded.open(home, durable=False)
    with connected(server.uri) as connection:
        connection.execute(VERSION_21.read_text())
    for number in range(3):
        (home / "backups").mkdir(exist_ok=True)
        (home / "backups" / f"2025-01-0{number + 1}T000000Z-schema-{number + 1}.dump").touch()
    with caplog.at_level(logging.INFO):
        assert run_cli("--home", str(home), "migrate").code == 0
    *old, file = sorted((home / "backups").iterdir())
    assert [one.name[:10] for one in old] == ["2025-01-02", "2025-01-03"]
    assert file.name.endswith("Z-schema-21.dump")
    assert f"it was backed up before, in {file}" in caplog.text
    assert run_cli("--home", str(home), "migrate").code == 0
    assert len(list((home / "backups").iterdir())) == 3, "nothing was migrated the second time"
    assert run_cli("restore", str(file), "--database", empty_uri).code == 0
    with connected(server.uri) as ours, connected(empty_uri) as theirs:
        question = "select applied_at from schema_version where version = 22"
        assert ours.execute(question).fetchone() != theirs.execute(question).fetchone(), "it was of the version before"
        question = "select id, state from task order by id"
        assert ours.execute(question).fetchall() == theirs.execute(question).fetchall()
    server.close()


def test_where_no_backup_can_be_made_nothing_is_migrated_unless_a_person_says_so(home: Path) -> None:
    server = Embedded.open(home, durable=False)
    with connected(server.uri) as connection:
        connection.execute(VERSION_21.read_text())
        (home / "backups").write_text("in its place")
        done = run_cli("--home", str(home), "migrate")
        assert done.code == 1
        assert "backups" in done.err
        assert connection.execute("select max(version) as v from schema_version").fetchone() == {"v": 21}
        assert run_cli("--home", str(home), "migrate", "--no-backup").code == 0
    server.close()
