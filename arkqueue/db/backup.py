"""Backups: the whole database in one file, written and read by PostgreSQL's own programs
(`pg_dump`, `pg_restore`).

A backup is one snapshot, so roles may run at the same time. The programs have the version of the
server, and come from the wheel of the embedded server or from the PATH. Called by
``arkqueue backup`` and ``arkqueue restore``, and before a migration of the embedded server.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from arkqueue.db import migrations
from arkqueue.db.embedded.programs import programs_of_wheel
from arkqueue.errors import ArkqueueError

CONNECT_TIMEOUT = 10
KEPT = 3
"""The number of kept backups from before migrations."""
ROLES = "arkqueue %"
"""The pattern for the application names of all roles' connections."""


def back_up(uri: str, file: Path) -> int:
    """Write the database to a new file that only its owner may read. Returns the number of its
    bytes. Raises ArkqueueError if this fails; there is no file then.
    """
    if file.exists():
        raise ArkqueueError(f"the backup {file}", "exists already", "Name a new file.")
    new = file.with_name(f"{file.name}.new")
    try:
        with psycopg.connect(uri, connect_timeout=CONNECT_TIMEOUT) as connection:
            program = _program("pg_dump", connection.info.server_version // 10000)
            if not migrations.version_of(connection):
                fault, remedy = "has no tables of arkqueue", "Name another with --home or --database."
                raise ArkqueueError(f"the database {connection.info.dbname}", fault, remedy)
        new.unlink(missing_ok=True)
        os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        # Not through the standard output of pg_dump: it ends such a file with bytes that pg_restore
        # does not read, so a file without its end could not be detected.
        done = _run(program, uri, "--format=custom", f"--file={new}")
        if done.returncode:
            raise _failed(f"the backup {file}", "was not written", done.stderr)
        new.rename(file)
    except psycopg.Error as error:
        raise ArkqueueError(
            "the database", _of_one_line(str(error)), "Start it, or name it with --database."
        ) from error
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)
    return file.stat().st_size


def before_migration(uri: str, folder: Path) -> Path | None:
    """Back up a database that this arkqueue is about to migrate, so that the earlier version can
    continue with the backup. Returns None if there is nothing to migrate.

    Only the newest backups in the folder are kept.
    """
    with psycopg.connect(uri, connect_timeout=CONNECT_TIMEOUT) as connection:
        version = migrations.version_of(connection)
    if not 0 < version < migrations.newest():
        return None
    folder.mkdir(mode=0o700, exist_ok=True)
    file = folder / f"{datetime.now(UTC):%Y-%m-%dT%H%M%S}Z-schema-{version}.dump"
    back_up(uri, file)
    for old in sorted(folder.glob("*-schema-*.dump"))[:-KEPT]:
        old.unlink()
    return file


def restore(uri: str, file: Path) -> None:
    """Restore a backup, completely or not at all, into a database without arkqueue's tables, and
    migrate it to this version. Raises ArkqueueError if this fails.
    """
    with psycopg.connect(uri, connect_timeout=CONNECT_TIMEOUT, autocommit=True) as connection:
        program = _program("pg_restore", connection.info.server_version // 10000)
        version = _version_in(program, file)
        if version > migrations.newest():
            fault = f"was made by a newer arkqueue (its schema has version {version}, this one's {migrations.newest()})"
            raise ArkqueueError(f"the backup {file}", fault, "Install that version, or a newer one.")
        _require_empty(connection)
        options = ("--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges")
        done = _run(program, uri, *options, str(file))
        if done.returncode:
            raise _failed(f"the backup {file}", "was not restored, and the database is as it was", done.stderr)
        migrations.migrate(connection)


def _require_empty(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    name = f"the database {connection.info.dbname}"
    ask = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and application_name like %s"
    (used,) = connection.execute(ask, [ROLES]).fetchone() or (0,)
    if used:
        raise ArkqueueError(name, "is used by an arkqueue that runs", "Stop every role that uses it first.")
    if connection.execute("select from pg_class where oid = to_regclass('schema_version')").rowcount:
        remedy = (
            "Restore into an empty database: name one with --database; or, for the embedded server,"
            " move the folder postgres of the home folder away."
        )
        raise ArkqueueError(name, "has arkqueue's tables already", remedy)


def _version_in(program: Path, file: Path) -> int:
    """The version of the schema in a backup."""
    if not file.is_file():
        raise ArkqueueError(f"the backup {file}", "is no file", "Name one that `arkqueue backup` has written.")
    words = ["--data-only", "--table=schema_version", "--file=-", str(file)]
    done = subprocess.run([program, *words], capture_output=True, check=False, env=_environment(), stdin=subprocess.DEVNULL)  # fmt: skip
    found = [int(number) for number in re.findall(rb"^(\d+)\t", done.stdout, re.MULTILINE)]
    if done.returncode or not found:
        said = _last_line(done.stderr)
        fault = f"is no backup of arkqueue{f': {said}' if said else ''}"
        raise ArkqueueError(f"the backup {file}", fault, "Name a file that `arkqueue backup` has written.")
    return max(found)


def _run(program: Path, uri: str, *options: str) -> subprocess.CompletedProcess[bytes]:
    """Run one of the programs on a database. A password is passed in the environment, because
    everybody on the machine can see arguments.
    """
    parameters = {name: str(value) for name, value in conninfo_to_dict(uri).items()}
    password = {"PGPASSWORD": parameters.pop("password")} if "password" in parameters else {}
    return subprocess.run(
        [program, f"--dbname={make_conninfo('', **parameters)}", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=_environment() | password,
        check=False,
    )


def _environment() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C"}


def _program(name: str, server: int) -> Path:
    """A program of PostgreSQL with a server's major version: an older server does not accept what a
    newer ``pg_restore`` sends, and an older ``pg_restore`` does not read what a newer ``pg_dump``
    wrote.
    """
    installed = programs_of_wheel(name)
    if on_path := shutil.which(name):
        said = subprocess.run([on_path, "--version"], capture_output=True, text=True, check=False).stdout
        if number := re.search(r" (\d+)", said):
            installed.setdefault(int(number[1]), Path(on_path))
    if server not in installed:
        have = ", ".join(map(str, sorted(installed))) or "none"
        fault = f"is not installed in the version of the server, {server} (installed: {have})"
        raise ArkqueueError(
            name, fault, f"Install the client programs of PostgreSQL {server}, so that {name} is found."
        )
    return installed[server]


def _failed(thing: str, fault: str, said: bytes) -> ArkqueueError:
    line = _last_line(said)
    remedy = (
        "Make room there, or name a file on another disk."
        if "No space left" in line
        else "Correct that, and try again."
    )
    return ArkqueueError(thing, f"{fault}: {line}" if line else fault, remedy)


def _last_line(said: bytes) -> str:
    """The message of a failed program, without the program's name: its first line that is an error,
    or else its last line.
    """
    lines = [line for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line]
    return _of_one_line((errors or lines or [""])[0].split("error: ")[-1])


def _of_one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
