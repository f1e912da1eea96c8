"""Runs the checks of `arkqueue doctor` on the database after each test, so that a broken invariant
fails the test that broke it.

A test that breaks an invariant on purpose has the mark ``garbles``.
"""

from __future__ import annotations

import pytest

from arkqueue.db import Connection
from arkqueue.db.session import answers
from arkqueue.views.doctor import CHECKS


def assert_sound(connection: Connection) -> None:
    """Runs all checks in one round trip. Does nothing in a database without planned runs."""
    if not connection.execute("select from run limit 1").fetchall():
        return
    found = answers(connection, *((check.block, {"archive": None, "most": 10}) for check in CHECKS))
    told = zip(CHECKS, found, strict=True)
    broken = [f"{check.name}: {what}: {row}" for check, rows in told for row, what in check.broken(rows)]
    if broken:
        pytest.fail("arkqueue doctor finds what no test may leave behind:\n" + "\n".join(broken), pytrace=False)
