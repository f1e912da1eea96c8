"""After each test, `arkqueue doctor` looks at its database: a broken invariant fails whatever test leaves it behind.

A test that breaks one on purpose says so with the mark ``garbles``.
"""

from __future__ import annotations

import pytest

from arkqueue.db import Connection
from arkqueue.db.session import answers
from arkqueue.views.doctor import CHECKS


def assert_sound(connection: Connection) -> None:
    """All checks in one round trip; nothing where no run was ever planned."""
    if not connection.execute("select from run limit 1").fetchall():
        return
    found = answers(connection, *((check.block, {"archive": None, "most": 10}) for check in CHECKS))
    broken = [f"{check.name}: {row}" for check, rows in zip(CHECKS, found, strict=True) for row in rows]
    if broken:
        pytest.fail("arkqueue doctor finds what no test may leave behind:\n" + "\n".join(broken), pytrace=False)
