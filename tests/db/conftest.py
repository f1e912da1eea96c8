"""An attempt of a task, for tests of logs, and an archive with a receiver, for tests of notifications."""

from __future__ import annotations

import pytest

from arkqueue.model import AttemptId
from tests.builders import AnArchive
from tests.db.outbox import ALL, set_receivers


@pytest.fixture
def attempt(archive: AnArchive) -> AttemptId:
    archive.commit({"index": ""})
    return archive.attempt("index@2")


@pytest.fixture
def told(archive: AnArchive) -> AnArchive:
    """An archive with one receiver, which wants to know everything."""
    set_receivers(archive, ci=ALL)
    return archive
