"""The database goes away: what was committed meanwhile is found as soon as it is back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from arkqueue.db import Database, Wakeups
from arkqueue.db.migrations import migrate
from arkqueue.errors import DatabaseUnavailable
from arkqueue.queue import Queue
from tests.conftest import OwnPostgres
from tests.repositories import a_subversion_repository
from tests.system.queue_manager.conftest import PATIENCE, Watched


@pytest.fixture
def server(own_postgres: Callable[[], OwnPostgres]) -> OwnPostgres:
    return own_postgres()


@pytest.fixture
def queue(server: OwnPostgres) -> Iterator[Queue]:
    with ExitStack() as opened:
        database = opened.enter_context(Database.open(server.uri, application_name="arkqueue test"))
        with database.connect() as connection:
            migrate(connection)
        wakeups = Wakeups(database)
        opened.callback(wakeups.close)
        yield Queue(database, wakeups)


@pytest.mark.usefixtures("manager")
def test_a_commit_of_an_outage_is_found_when_the_database_is_back(
    watch: Callable[..., Watched], server: OwnPostgres, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its hook told nobody, and the next sweep is an hour away."""
    repository = a_subversion_repository(tmp_path)
    papers = watch(repository.path)
    papers.wait_for(lambda: papers.row()["read_at"])
    papers.sql("update archive set next_read_at = now() + interval '1 hour' returning id")
    server.stop()
    eventually(lambda: "read repositories: " in caplog.text)
    repository.commit({"readme": "1"})
    server.start()
    eventually(lambda: ledger(papers) == [(0, "0"), (1, "1")])


def ledger(papers: Watched) -> list[tuple[int, str]]:
    try:
        return papers.ledger()
    except DatabaseUnavailable:
        return []


def eventually(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)
