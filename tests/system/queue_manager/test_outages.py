"""The database goes away: what was committed meanwhile is found as soon as it is back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.queue import archives
from arkqueue.queue_manager.readers import Readers
from tests.postgres import OwnPostgres
from tests.repositories import a_subversion_repository
from tests.system.queue_manager.conftest import Watched
from tests.system.task_manager.test_outages import database
from tests.waiting import eventually

__all__ = ["database"]


def test_an_outage_that_no_turn_met_is_followed_by_a_sweep(
    session: Session, configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What hooks told meanwhile was not kept; the listener alone has seen it."""
    sweeps: list[Any] = []
    monkeypatch.setattr(archives, "sweep_all", lambda _, left: sweeps.append(left) or [])
    assert session.wakeups is not None
    session.wakeups.listening.wait()
    readers = Readers(session, configuration, idle=lambda: None)
    readers.turn()
    readers.turn()
    assert len(sweeps) == 1, "the first turn is one"
    with session.database.transaction() as connection:
        connection.execute(
            b"select pg_terminate_backend(pid) from pg_stat_activity where query = 'listen arkqueue' and datname = current_database()"
        )
    eventually(lambda: session.wakeups.losses)  # type: ignore[union-attr]
    readers.turn()
    readers.turn()
    assert len(sweeps) == 2


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
    eventually(lambda: papers.ledger() == [(0, "0"), (1, "1")])
