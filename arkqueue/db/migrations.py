"""The tables and their versions: an empty database gets ``sql/schema.sql``, and an older one the
numbered files that it lacks.

``sql/schema.sql`` is the newest schema. ``sql/migrations/0001-first-release.sql`` is the schema of
version 1 and never changes. Each later change of the schema is a file
``sql/migrations/NNNN-what.sql``, and the same change in ``schema.sql``. A test builds the schema in
both ways and compares the results. A migration adds before it removes, and is small enough for
``lock_timeout``. The files are plain SQL without parameters. ``schema_version`` has one row for
each version that the database has had.

Called by ``arkqueue migrate`` and by every role that starts. It takes no advisory lock, because a
connection pooler would break such a lock. The migrating process locks the table ``schema_version``.
Other processes wait for this lock, and then find the work done.
"""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import psycopg
from psycopg import errors

from arkqueue.errors import ArkqueueError

OLDEST_SERVER = 14
LOCK_TIMEOUT = "30s"
"""The longest wait for a lock on a table. A longer wait means that a transaction hangs."""

_FILE = re.compile(r"(\d{4})-[a-z0-9-]+\.sql")

_MAKE_TABLE = b"""
create table if not exists schema_version (
    version bigint primary key,
    name text not null,
    applied_at timestamptz not null default now()
)"""


def migrate(connection: psycopg.Connection[Any], folder: Traversable | None = None) -> list[str]:
    """Migrate the database to this arkqueue's schema. Returns the applied versions. Several
    processes may call this at once.

    The connection must not be inside a transaction. All versions are applied in one transaction:
    either all of them or none.
    """
    _require_server(connection)
    changes = _changes(folder)
    try:
        _make_table(connection)
        with connection.transaction():
            connection.execute(f"set local lock_timeout = '{LOCK_TIMEOUT}'".encode())
            connection.execute(b"set local statement_timeout = 0")
            connection.execute(b"lock table schema_version in exclusive mode")
            present = _version(connection)
            if present > _newest(changes):
                raise _too_new(connection, present, _newest(changes))
            if present == 0:
                schema = _sql(folder) / "schema.sql"
                steps = [(_newest(changes), _schema_name(schema), schema.read_text("utf-8"))]
            else:
                _check_made_by_us(connection, present, folder)
                steps = [
                    (version, file.name, file.read_text("utf-8"))
                    for version, file in sorted(changes.items())
                    if version > present
                ]
            for version, name, text in steps:
                connection.execute(text.encode())
                row = {"version": version, "name": name}
                connection.execute("insert into schema_version (version, name) values (%(version)s, %(name)s)", row)
            return [name.split()[0] for _, name, _ in steps]
    except errors.LockNotAvailable as error:
        raise ArkqueueError(
            _thing(connection),
            f"its tables were in use for more than {LOCK_TIMEOUT}",
            "Stop the other arkqueue processes, or end the transaction that holds them (pg_stat_activity), and try again.",
        ) from error
    except (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction) as error:
        raise ArkqueueError(
            _thing(connection),
            f"its tables cannot be made or changed: {error.diag.message_primary}",
            "Connect to the primary server as the owner of the database and its schema.",
        ) from error


def newest() -> int:
    """The version of this arkqueue's schema."""
    return _newest(_changes(None))


def version_of(connection: psycopg.Connection[Any]) -> int:
    """The version of the database's schema. 0: it has no tables."""
    if not connection.execute("select from pg_class where oid = to_regclass('schema_version')").rowcount:
        return 0
    return _version(connection)


def check(connection: psycopg.Connection[Any], folder: Traversable | None = None) -> None:
    """Raise ArkqueueError unless the database has exactly this arkqueue's schema."""
    _require_server(connection)
    newest = _newest(_changes(folder))
    with connection.transaction():
        try:
            with connection.transaction():
                present = _version(connection)
        except errors.UndefinedTable:
            present = 0
        if present > newest:
            raise _too_new(connection, present, newest)
    if present < newest:
        fault = f"its schema has version {present}, this arkqueue needs {newest}" if present else "it has no tables yet"
        raise ArkqueueError(_thing(connection), fault, "Run arkqueue migrate.")
    with connection.transaction():
        _check_made_by_us(connection, present, folder)


def _make_table(connection: psycopg.Connection[Any]) -> None:
    # "if not exists" may still fail if two processes run it at once: the slower one may get the
    # error that the table exists.
    for _ in range(3):
        try:
            with connection.transaction():
                if connection.execute("select from pg_class where oid = to_regclass('schema_version')").rowcount:
                    # So that a user who may not create tables can still learn that there is nothing
                    # to do.
                    return
                connection.execute(_MAKE_TABLE)
            return
        except (errors.UniqueViolation, errors.DuplicateTable, errors.DuplicateObject):
            continue


def _require_server(connection: psycopg.Connection[Any]) -> None:
    version = connection.info.server_version // 10000
    if version < OLDEST_SERVER:
        raise ArkqueueError(
            _thing(connection),
            f"its server is PostgreSQL {version}, arkqueue needs {OLDEST_SERVER} or newer",
            "Upgrade the server, or leave out the connection string to use the embedded one.",
        )
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise ArkqueueError(
            _thing(connection),
            f"its encoding is {encoding}, and commits are written in every script there is",
            "Make another: createdb --encoding UTF8 --template template0.",
        )


def _version(connection: psycopg.Connection[Any]) -> int:
    cursor = psycopg.Cursor(connection, row_factory=psycopg.rows.scalar_row)
    return int(cursor.execute("select coalesce(max(version), 0) from schema_version").fetchone() or 0)


def _schema_name(schema: Traversable) -> str:
    """The recorded name of a database that ``schema.sql`` made. The name contains a digest of its
    statements, because the file changes between releases while its version does not.
    """
    statements = re.sub(r"(--.*|\s)+", " ", schema.read_text("utf-8")).strip()
    return f"schema.sql {hashlib.sha256(statements.encode()).hexdigest()[:16]}"


def _check_made_by_us(connection: psycopg.Connection[Any], version: int, folder: Traversable | None) -> None:
    """Raise ArkqueueError if an unreleased arkqueue made the tables, which no migration updates.

    Only the schemas of the first and of the newest version are stored, so tables of other versions
    are not checked.
    """
    changes = _changes(folder)
    if version == _newest(changes):
        schema = _sql(folder) / "schema.sql"
    elif version == 1:
        schema = changes[1]
    else:
        return
    cursor = psycopg.Cursor(connection, row_factory=psycopg.rows.scalar_row)
    made_by = str(cursor.execute("select name from schema_version where version = %(v)s", {"v": version}).fetchone())
    if made_by.startswith("schema.sql ") and made_by != _schema_name(schema):
        raise ArkqueueError(
            _thing(connection),
            "its tables were made by another unreleased version of arkqueue, and do not fit this one's",
            "Go on with that version, or begin with an empty database.",
        )


def _sql(folder: Traversable | None) -> Traversable:
    return folder or files("arkqueue") / "sql"


def _changes(folder: Traversable | None) -> dict[int, Traversable]:
    """The numbered files by version."""
    place = _sql(folder) / "migrations"
    found: dict[int, Traversable] = {}
    for file in place.iterdir() if place.is_dir() else ():
        if not file.name.endswith(".sql"):
            continue
        match = _FILE.fullmatch(file.name)
        if not match or int(match[1]) in found:
            raise ValueError(f"{file.name}: migrations are named NNNN-what.sql, each number once")
        found[int(match[1])] = file
    if sorted(found) != list(range(1, len(found) + 1)):
        raise ValueError("the numbers of sql/migrations must run from 0001 without a gap")
    return found


def _newest(changes: dict[int, Traversable]) -> int:
    return max(changes, default=1)


def _thing(connection: psycopg.Connection[Any]) -> str:
    return f"the database {connection.info.dbname!r}"


def _too_new(connection: psycopg.Connection[Any], present: int, newest: int) -> ArkqueueError:
    return ArkqueueError(
        _thing(connection),
        f"its schema has version {present}, newer than this arkqueue's {newest}",
        "Stop this arkqueue, run pip install --upgrade arkqueue, and start it again.",
    )
