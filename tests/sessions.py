"""The session that tests act by, and an archive in its database.

It has no wake-ups: these tests take every step themselves. Where managers run, ``tests/system/waking.py`` has another one.

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
