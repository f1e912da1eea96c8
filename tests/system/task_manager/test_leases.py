"""Leases, requests to stop, shutting down: who owns an attempt, and how a task manager lets go of
it.
"""

from __future__ import annotations

import errno
import os
import pwd
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from arkqueue.db.connections import Connection
from arkqueue.db.session import Session
from arkqueue.errors import Busy, ConfigurationError, Conflict, DatabaseUnavailable
from arkqueue.gateway.sql import SqlGateway
from arkqueue.logs import LogWriter
from arkqueue.model import Claim, Renewed
from arkqueue.queue import claim, finish
from arkqueue.runtime.home import HomeLock, host_id
from arkqueue.task_manager.attempt import Attempt
from arkqueue.task_manager.leases import boottime
from tests.builders import AnArchive
from tests.system.task_manager.conftest import Bells, Managers, attempts, ended, is_gone, log_of, settled
from tests.system.task_manager.test_running import NONE, command
from tests.waiting import PATIENCE, eventually

MakeBells = Callable[[str], Bells]
OFTEN = {"renew": "200ms"}


def is_idle(home: Path) -> bool:
    return list((home / "work").iterdir()) == []


def test_renewals_keep_a_task_for_longer_than_its_lease(
    archive: AnArchive, session: Session, managers: Managers, bells: MakeBells
) -> None:
    """Time passes on both clocks, the database's and ours, by a third of a lease at once: so no slow host can use up the rest."""
    go = bells("go")
    manager = managers(**OFTEN)
    archive.commit({"task": command(f"read line < {go.path}")})
    (first,) = eventually(lambda: attempts(archive, "task@2"))
    for passed in range(30, 181, 30):
        # Time passes for the leases, and what they hold is not shown outside.
        manager._leases.clock = lambda passed=passed: boottime() + passed  # type: ignore[misc]
        (row,) = archive.sql("update attempt set lease_until = lease_until - interval '30s' returning lease_until")
        eventually(lambda row=row: attempts(archive, "task@2")[0]["lease_until"] > row["lease_until"])
        assert finish.lapse(session, lease=0, gap=3600) == []
    assert attempts(archive, "task@2")[0]["lease_until"] > first["lease_until"]
    go.ring()
    settled(archive, "task@2", "completed")
    assert len(attempts(archive, "task@2")) == 1


def test_lease_that_was_not_renewed_just_now_is_not_taken_for_renewed(
    archive: AnArchive, managers: Managers, bells: MakeBells, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, renewals = SqlGateway.renew, threading.Semaphore(0)

    def renew(*arguments: Any) -> Renewed:
        asked = real(*arguments).asked
        renewals.release()
        return Renewed(asked, frozenset(asked))

    monkeypatch.setattr(SqlGateway, "renew", renew)
    go = bells("go")
    archive.commit({"task": command(f"read line < {go.path}")})
    leases = managers(**OFTEN)._leases  # nobody else can say until when the lease is taken to last
    (attempt,) = eventually(leases.held)
    eventually(lambda: attempt.is_running)  # from then on its grace is known, which counts
    claimed = leases.kept(attempt)
    for _ in range(3):
        assert renewals.acquire(timeout=PATIENCE)
    assert leases.kept(attempt) == claimed
    go.ring()
    settled(archive, "task@2", "completed")


def test_tasks_are_claimed_renewed_and_recorded_while_others_hold_every_connection(
    archive: AnArchive,
    session: Session,
    managers: Managers,
    bells: MakeBells,
    second_connection: Callable[[], Connection],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, go = bells("begun"), bells("go")
    managers(**OFTEN)
    archive.commit({"a": command(f"echo > {begun.path}; read line < {go.path}"), "b": command("true") + "depends: [a]"})
    begun.hear()
    watching = second_connection()

    def attempt_of(name: str) -> dict[str, Any]:
        query = "select a.* from attempt a join task t on t.id = a.task_id where t.name = %s"
        return watching.execute(query, [name]).fetchone() or {}

    with ExitStack() as held:
        with monkeypatch.context() as impatient, suppress(Busy):
            impatient.setattr("arkqueue.db.connections.CHECKOUT_TIMEOUT", 0.1)
            while True:
                held.enter_context(session.database.statement())
        before = attempt_of("a")
        eventually(lambda: attempt_of("a")["lease_until"] > before["lease_until"])
        go.ring()
        eventually(lambda: attempt_of("b").get("ended_at"))
    assert archive.states() == {"a@2": "completed", "b@2": "completed"}


def test_attempt_that_was_taken_away_is_ended_and_reports_nothing(
    archive: AnArchive, managers: Managers, bells: MakeBells, home_folder: Path
) -> None:
    begun = bells("begun")
    manager = managers(**OFTEN)
    archive.commit({"task": command(f"trap 'echo late; exit 0' TERM; echo $$ > {begun.path}; sleep 1000 & wait")})
    pid = int(begun.hear())
    archive.sql("update attempt set process = 'another', lease_until = now() + interval '1 day'")
    eventually(lambda: is_gone(pid))
    eventually(lambda: is_idle(home_folder))
    eventually(lambda: manager._leases.held() == [])  # its report was made, and refused
    assert archive.state("task@2") == "running"
    assert attempts(archive, "task@2")[0]["ended_at"] is None
    assert log_of(archive, "task@2") == ""


def test_request_between_claim_and_start_is_obeyed(managers: Managers) -> None:
    """The request is read before the claiming thread has said what it claimed."""
    manager = managers()
    claimed = Claim(
        task=1, attempt=77, attempt_number=1, name="t", item="", definition=1, archive=None, branch="", main=True,
        number=2, run=1, trigger="commit", revision="2", author="ada", date="2026-01-01T00:00:00+00:00", message="", previous=None, generation=0, base=None,
    )  # type: ignore[arg-type]  # fmt: skip
    # An attempt that no claim brought.
    attempt = Attempt(claimed, LogWriter(manager._logs, claimed.attempt))
    # The request is there before the attempt is.
    manager._leases._asked[attempt.id] = "cancel"
    manager._leases.hold([attempt], 0.0)
    assert attempt.begin(lambda: pytest.fail("it was started")) is None
    manager._leases.let_go(attempt)


def test_stop_hands_running_and_waiting_attempts_back(
    archive: AnArchive, managers: Managers, bells: MakeBells, home_folder: Path
) -> None:
    begun = bells("begun")
    manager = managers(slots=2)
    text = command(f"echo $$ > {begun.path}; test $ARKQUEUE_ATTEMPT = 2 || sleep 1000")
    archive.commit({"a": text, "b": text, "c": text})
    pids = [int(begun.hear()), int(begun.hear())]
    manager.stop()
    assert all(is_gone(pid) for pid in pids)
    assert is_idle(home_folder)
    assert list(archive.states().values()) == ["ready"] * 3
    assert [a["end"] for a in archive.sql("select * from attempt")] == ["stopped"] * 2
    (row,) = archive.sql("select losses, failures from task where name = 'a'")
    assert row == {"losses": 0, "failures": 0}
    (row,) = archive.sql("select stopped_at from task_manager")
    assert row["stopped_at"] is not None

    managers()
    for key in ("a@2", "b@2"):
        settled(archive, key, "completed")


def test_task_manager_that_drains_goes_on_being_heard(archive: AnArchive, managers: Managers, bells: MakeBells) -> None:
    """Or what it still runs could be assumed to be gone."""
    begun, go = bells("begun"), bells("go")
    manager = managers(**OFTEN)
    archive.commit({"a": command(f"echo > {begun.path}; read line < {go.path}")})
    begun.hear()
    stopping = threading.Thread(target=manager.stop, kwargs={"drain": True})
    stopping.start()
    # That claiming has ended shows in nothing else.
    eventually(lambda: not manager._claimer.is_alive())
    (before,) = archive.sql("select clock_timestamp() as now")
    eventually(lambda: archive.sql("select process from task_manager where seen_at > %s", before["now"]))
    go.ring()
    stopping.join()
    assert archive.state("a@2") == "completed"


def test_drain_lets_running_tasks_finish_and_claims_no_others(
    archive: AnArchive, managers: Managers, bells: MakeBells
) -> None:
    begun, go = bells("begun"), bells("go")
    manager = managers(slots=1)
    text = command(f"echo > {begun.path}; read line < {go.path}")
    archive.commit({"a": text, "b": text})
    begun.hear()
    stopping = threading.Thread(target=manager.stop, kwargs={"drain": True})
    stopping.start()
    eventually(lambda: not manager._claimer.is_alive())
    go.ring()
    stopping.join()
    assert sorted(archive.states().values()) == ["completed", "ready"]


def test_impatient_stop_ends_what_a_drain_waits_for(archive: AnArchive, managers: Managers, bells: MakeBells) -> None:
    begun = bells("begun")
    manager = managers()
    archive.commit({"a": command(f"echo > {begun.path}; sleep 1000")})
    begun.hear()
    draining = threading.Thread(target=manager.stop, kwargs={"drain": True})
    draining.start()
    # Draining can be seen nowhere else before a task has ended.
    eventually(manager._closing.is_set)
    manager.stop()
    draining.join()
    assert archive.state("a@2") == "ready"


def test_home_folder_has_one_task_manager(managers: Managers) -> None:
    first = managers()
    with pytest.raises(Conflict, match="has a task manager that runs"):
        managers()
    first.stop()
    second = managers()
    assert second.host == first.host
    assert second.process != first.process


def test_host_id_is_made_once_even_by_many_at_once(tmp_path: Path) -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(host_id(tmp_path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["host-id"]


def test_home_of_another_user_is_told_with_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    for name in ("host-id", "task-manager.lock"):
        (tmp_path / name).write_text("")
    me = pwd.getpwuid(os.geteuid()).pw_name
    said = f"cannot be used by {me}: Permission denied; it belongs to {me}. Run this as the user"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", refuse)
        with pytest.raises(ConfigurationError, match=f"{tmp_path}/host-id: {said}"):
            host_id(tmp_path)
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ConfigurationError, match=f"{tmp_path}/task-manager.lock: {said}"):
        HomeLock(tmp_path)


def test_end_that_cannot_be_recorded_as_it_is_harms_no_other(
    archive: AnArchive, managers: Managers, bells: MakeBells, second_connection: Callable[[], Connection]
) -> None:
    """The database refuses one outcome of a batch: the others are recorded, and that one without its outputs."""
    archive.sql("alter table attempt add check (outputs is null or not outputs ? 'poison')")
    begun, first, go = bells("begun"), bells("first"), bells("go")
    manager = managers(slots=5)
    names = [f"t{number}" for number in range(3)]
    waits = f"echo > {begun.path}; read line < {go.path}; echo $ARKQUEUE_TASK=1 > $ARKQUEUE_OUTPUT"
    archive.commit(
        {
            "first": command(f"echo > {begun.path}; read line < {first.path}"),
            **dict.fromkeys([*names, "poison"], command(waits)),
        }
    )
    for _ in range(5):
        begun.hear()
    # While someone else has the archive's row, the
    # recorder keeps all ends, and they become one batch.
    other = second_connection()
    other.execute("begin")
    other.execute("select from archive for update")
    first.ring()
    # Slots that are taken are not shown outside.
    eventually(lambda: manager._busy == 4)
    for _ in range(4):
        go.ring()
    eventually(lambda: manager._busy == 0)
    other.execute("rollback")
    for name in [*names, "poison"]:
        settled(archive, f"{name}@2", "completed")
    assert [ended(archive, f"{name}@2")["outputs"] for name in names] == [{name: "1"} for name in names]
    poisoned = ended(archive, "poison@2")
    assert poisoned["outputs"] is None
    assert "could not record" in poisoned["message"]


@pytest.fixture
def loses_a_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection breaks after the first claim was stored."""
    real, lost = claim.claim, []

    def claim_and_lose(*arguments: Any) -> list[Claim]:
        claimed = real(*arguments)
        if claimed and not lost:
            lost.extend(claimed)
            raise DatabaseUnavailable("the database", "the answer was lost")
        return claimed

    monkeypatch.setattr(claim, "claim", claim_and_lose)


@pytest.mark.usefixtures("loses_a_claim")
def test_claim_whose_answer_was_lost_is_handed_back(archive: AnArchive, managers: Managers) -> None:
    """The task manager finds out what it was given."""
    archive.commit({"task": NONE})
    managers()
    settled(archive, "task@2", "completed")
    assert [a["end"] for a in attempts(archive, "task@2")] == ["stopped", "exited"]


@pytest.mark.usefixtures("loses_a_claim")
def test_lost_claim_of_a_busy_archive_is_handed_back_when_that_is_free(
    archive: AnArchive,
    managers: Managers,
    second_connection: Callable[[], Connection],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried, hand_back = threading.Event(), SqlGateway.hand_back

    def hand_back_and_say(*arguments: Any) -> bool:
        is_done = hand_back(*arguments)
        tried.set()
        return is_done

    monkeypatch.setattr(SqlGateway, "hand_back", hand_back_and_say)
    archive.commit({"task": NONE})
    other = second_connection()
    other.execute("begin")
    other.execute("select from archive for update")
    managers()
    assert tried.wait(PATIENCE)
    other.execute("rollback")
    settled(archive, "task@2", "completed")
    assert [a["end"] for a in attempts(archive, "task@2")] == ["stopped", "exited"]
