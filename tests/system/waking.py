"""A session whose verbs wake the managers and servers that run beside a test. A ``conftest.py``
imports this module.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from arkqueue.db import Database, Wakeups
from arkqueue.db.session import Session


@pytest.fixture(name="session")
def waking_session(database: Database) -> Iterator[Session]:
    wakeups = Wakeups(database)
    yield Session(database, wakeups)
    wakeups.close()
