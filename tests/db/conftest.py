"""An attempt of a task, for tests of logs."""

from __future__ import annotations

import pytest

from arkqueue.model import AttemptId
from tests.builders import AnArchive


@pytest.fixture
def attempt(archive: AnArchive) -> AttemptId:
    archive.commit({"index": ""})
    return archive.attempt("index@2")
