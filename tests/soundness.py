"""Runs the checks of `arkqueue doctor` on the databases of each test after the test, so that a broken
invariant fails the test that broke it.

A test that breaks an invariant on purpose, or leaves the tables of another version, has the mark
``garbles``.
"""

from __future__ import annotations

from functools import partial

import psycopg
import pytest

from arkqueue.db import Connection
from arkqueue.db.embedded.server import Embedded
from arkqueue.db.session import answers, rows
from arkqueue.views.doctor import CHECKS


def assert_sound(connection: Connection) -> None:
    """Runs all checks in one round trip. Does nothing in a database without planned runs."""
    if not connection.execute("select from run limit 1").fetchall():
        return
    read = partial(rows, connection)
    found = answers(connection, *((check.block, check.parameters(read, None, 10)) for check in CHECKS))
    told = zip(CHECKS, found, strict=True)
    broken = [f"{check.name}: {what}: {row}" for check, those in told for row, what in check.broken(those)]
    if broken:
        pytest.fail("arkqueue doctor finds what no test may leave behind:\n" + "\n".join(broken), pytrace=False)


def assert_sound_at(uri: str) -> None:
    """Runs all checks on the database with a connection string. Does nothing in a database without
    arkqueue's tables.
    """
    with psycopg.connect(uri, autocommit=True, row_factory=psycopg.rows.dict_row, connect_timeout=10) as connection:
        if connection.execute("select from pg_class where oid = to_regclass('public.run')").fetchall():
            assert_sound(connection)


def destroy_sound(server: Embedded) -> None:
    """Removes an embedded server after all checks on its database. Does nothing if the home folder
    has none. A server that does not run is started for the checks.
    """
    try:
        if (server.home / "postgres" / "data" / "PG_VERSION").exists():
            if server.pid is None:
                server.start()
            assert_sound_at(server.uri)
    finally:
        server.destroy()
