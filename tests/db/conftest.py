"""A queue on a fresh database, without wake-ups: these tests take every step themselves."""

from __future__ import annotations

import pytest

from arkqueue.db import Database
from arkqueue.db.session import Session


@pytest.fixture
def session(database: Database) -> Session:
    return Session(database)
