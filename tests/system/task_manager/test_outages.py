"""The database goes away in the middle of everything: nothing is lost, and nothing runs twice."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from arkqueue.db import Database
from arkqueue.errors import DatabaseUnavailable
from arkqueue.queue import claim
from arkqueue.task_manager.leases import boottime
from tests.builders import AnArchive
from tests.postgres import OwnPostgres
from tests.system.task_manager.conftest import Bells, Managers, attempts, is_gone, log_of
from tests.system.task_manager.test_running import command
from tests.waiting import eventually

MakeBells = Callable[[str], Bells]


@pytest.fixture
def database(server: OwnPostgres) -> Iterator[Database]:
    with Database.open(server.uri, application_name="arkqueue test") as database:
        yield database


def becomes(archive: AnArchive, key: str, state: str) -> None:
    """Wait until a task has a state, however often the database does not answer."""
    eventually(lambda: archive.state(key) == state)


@pytest.mark.parametrize("outage", ["kill", "freeze"])
def test_every_task_of_a_burst_runs_once_through_an_outage(
    archive: AnArchive, server: OwnPostgres, managers: Managers, bells: MakeBells, tmp_path: Path, outage: str
) -> None:
    ran, begun = tmp_path / "ran", bells("begun")
    managers()
    text = command(f"echo $ARKQUEUE_TASK >> {ran}; echo > {begun.path}; echo said")
    names = [f"t{number}" for number in range(40)]
    archive.commit(dict.fromkeys(names, text))
    for _ in range(5):
        begun.hear()
    if outage == "freeze":
        server.freeze()
        server.thaw()
    else:
        os.kill(server.postmaster(), signal.SIGSTOP)  # so that it begins no further process meanwhile
        processes = server.processes()
        server.kill()
        # Its other processes end by themselves; while one is left, no server can start.
        eventually(lambda: all(is_gone(pid) for pid in processes))
        server.start()
    for name in names:
        becomes(archive, f"{name}@2", "completed")
        assert log_of(archive, f"{name}@2") == "said\n"
    assert Counter(ran.read_text().split()) == dict.fromkeys(names, 1)


def test_task_that_ends_while_the_database_is_away_keeps_its_outcome_and_log(
    archive: AnArchive, server: OwnPostgres, managers: Managers, bells: MakeBells, caplog: pytest.LogCaptureFixture
) -> None:
    begun, go = bells("begun"), bells("go")
    # Time passes for the leases: no test waits for 80 seconds.
    leases = managers()._leases
    archive.commit({"task": command(f"echo before; echo $$ > {begun.path}; read line < {go.path}; echo $line")})
    pid = int(begun.hear())
    server.stop()
    go.ring("meanwhile")
    eventually(lambda: is_gone(pid))
    eventually(lambda: all(attempt.has_ended for attempt in leases.held()))
    leases.clock = lambda: boottime() + 80  # of 90
    leases.look()
    leases.clock = boottime
    assert "is stopped" not in caplog.text
    server.start()
    becomes(archive, "task@2", "completed")
    assert len(attempts(archive, "task@2")) == 1
    assert log_of(archive, "task@2") == "before\nmeanwhile\n"


def test_task_is_ended_before_its_lease_is_over_and_handed_back_later(
    archive: AnArchive, server: OwnPostgres, managers: Managers, bells: MakeBells
) -> None:
    begun = bells("begun")
    leases = managers()._leases
    archive.commit({"task": command(f"echo $$ > {begun.path}; test $ARKQUEUE_ATTEMPT = 2 || sleep 1000", grace="1s")})
    pid = int(begun.hear())
    server.freeze()
    leases.clock = lambda: boottime() + 80  # of 90; so no slow host can use up the lease before
    eventually(lambda: is_gone(pid))
    leases.clock = boottime
    server.thaw()
    begun.hear()
    becomes(archive, "task@2", "completed")
    first, _ = attempts(archive, "task@2")
    assert first["end"] == "stopped"
    assert "could not renew its lease" in first["message"]


def test_log_tells_an_outage_once_and_its_end(
    archive: AnArchive,
    server: OwnPostgres,
    managers: Managers,
    bells: MakeBells,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, go = bells("begun"), bells("go")
    failed, renew = [], claim.renew

    def counted(*arguments: Any) -> Any:
        try:
            return renew(*arguments)
        except DatabaseUnavailable as error:
            failed.append(error)
            raise

    monkeypatch.setattr(claim, "renew", counted)
    managers(renew="200ms")
    archive.commit({"task": command(f"echo > {begun.path}; read line < {go.path}")})
    begun.hear()
    server.stop()
    eventually(lambda: len(failed) > 2)
    server.start()
    eventually(lambda: "leases are renewed again" in caplog.text)
    assert caplog.text.count("leases could not be renewed") == 1
    go.ring()
    becomes(archive, "task@2", "completed")


@pytest.mark.full
def test_task_manager_that_never_got_to_work_leaves_its_home_to_the_next(
    archive: AnArchive, server: OwnPostgres, managers: Managers
) -> None:
    archive.commit({"task": command("echo hello")})
    server.stop()
    managers().stop()
    managers()
    server.start()
    becomes(archive, "task@2", "completed")


@pytest.mark.full
def test_stop_gives_up_when_the_database_stays_away(
    archive: AnArchive, server: OwnPostgres, managers: Managers, bells: MakeBells
) -> None:
    begun = bells("begun")
    manager = managers(lease="1s", renew="200ms")
    archive.commit({"task": command(f"echo $$ > {begun.path}; sleep 1000")})
    pid = int(begun.hear())
    server.stop()
    manager.stop()
    assert is_gone(pid)
