"""Runs the checks of `arkqueue doctor` on the database after each test, so that a broken invariant
fails the test that broke it.

A test that breaks an invariant on purpose has the mark ``garbles``.
"""

from __future__ import annotations

from functools import partial

import pytest

from arkqueue.db import Connection
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
