"""A queue on a fresh database, without wake-ups: these tests take every step themselves."""

from __future__ import annotations

import pytest

from arkqueue.db import Database
from arkqueue.queue import Queue


@pytest.fixture
def queue(database: Database) -> Queue:
    return Queue(database)
