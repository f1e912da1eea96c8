"""The session with which tests call the queue, and an archive in its database.

The session has no wake-ups, because these tests take every step themselves. Tests with running
managers use ``tests/system/waking.py``.

A plugin of ``conftest.py``.
"""

from __future__ import annotations

import pytest

from arkqueue.db import Database
from arkqueue.db.session import Session
from tests.builders import AnArchive, an_archive


@pytest.fixture
def session(database: Database) -> Session:
    return Session(database)


@pytest.fixture
def archive(session: Session) -> AnArchive:
    """An archive with a baseline."""
    return an_archive(session)
