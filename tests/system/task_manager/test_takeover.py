"""A task manager dies without a word; the next one of the same home takes over at once."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders import AnArchive
from tests.system.task_manager.conftest import Bells, Drivers, Managers, attempts, is_gone, settled
from tests.system.task_manager.test_running import command
from tests.waiting import PATIENCE, eventually

MakeBells = Callable[[str], Bells]


def test_killed_task_manager_leaves_no_process_and_its_tasks_are_run_again(
    archive: AnArchive, drivers: Drivers, managers: Managers, bells: MakeBells, home_folder: Path
) -> None:
    begun = bells("begun")
    # The grandchild ignores the signal and has left its session.
    stubborn = f"setsid sh -c 'trap : TERM; echo $$ > {begun.path}; while :; do sleep 1000; done' & wait"
    archive.commit({"task": command(f"test $ARKQUEUE_ATTEMPT = 2 && echo again > {begun.path} || {{ {stubborn}; }}")})
    driver = drivers()
    pid = int(begun.hear())
    driver.kill()
    driver.wait()
    managers()
    assert is_gone(pid), "a task manager that has its home knows that nothing is left"
    assert begun.hear() == "again"
    settled(archive, "task@2", "completed")
    first, second = attempts(archive, "task@2")
    assert (first["end"], first["message"]) == ("lost", "its task manager died")
    assert first["host"] == second["host"]
    assert first["ended_at"] < first["lease_until"], "it was not waited for"
    assert eventually(lambda: list((home_folder / "work").iterdir()) == [])


def test_task_that_kills_its_task_manager_is_given_up(archive: AnArchive, drivers: Drivers, bells: MakeBells) -> None:
    victim = bells("victim")
    archive.commit({"bomb": command(f"read pid < {victim.path}; kill -9 $pid; sleep 1000")})
    for _ in range(4):
        driver = drivers()
        victim.ring(str(driver.pid))
        assert driver.wait(PATIENCE) == -signal.SIGKILL
    drivers()
    settled(archive, "bomb@2", "failed")
    assert [a["end"] for a in attempts(archive, "bomb@2")] == ["lost"] * 4


def test_frozen_task_manager_that_wakes_up_late_changes_nothing(
    archive: AnArchive, drivers: Drivers, bells: MakeBells
) -> None:
    """Its attempt was given to another meanwhile: its report is refused, and its task is ended."""
    begun, go = bells("begun"), bells("go")
    archive.commit({"task": command(f"echo $$ > {begun.path}; read line < {go.path}; echo late")})
    driver = drivers()
    pid = int(begun.hear())
    os.kill(driver.pid, signal.SIGSTOP)
    archive.sql("update attempt set process = 'another'")
    go.ring()
    os.kill(driver.pid, signal.SIGCONT)
    eventually(lambda: is_gone(pid))
    archive.commit({"next": command("true")})
    settled(archive, "next@3", "completed")
    (attempt,) = attempts(archive, "task@2")
    assert attempt["ended_at"] is None
    assert archive.sql("select * from log_chunk where attempt_id = %s", attempt["id"]) == []


def test_frozen_task_manager_leaves_nothing_running_past_its_lease(
    archive: AnArchive, drivers: Drivers, bells: MakeBells
) -> None:
    """Its guards end what it cannot keep; when it goes on, it hands that back."""
    begun = bells("begun")
    archive.commit({"task": command(f"test $ARKQUEUE_ATTEMPT = 2 || {{ echo $$ > {begun.path}; sleep 1000; }}")})
    driver = drivers(lease="9s", renew="1s")
    pid = int(begun.hear())
    os.kill(driver.pid, signal.SIGSTOP)
    eventually(lambda: is_gone(pid))
    assert archive.state("task@2") == "running"
    os.kill(driver.pid, signal.SIGCONT)
    settled(archive, "task@2", "completed")
    first, second = attempts(archive, "task@2")
    assert (first["end"], second["end"]) == ("stopped", "exited")
    assert first["message"] == "stopped: its task manager could not renew its lease in time; it will be run again"


@pytest.mark.full
def test_time_that_was_up_while_a_task_manager_was_frozen_is_not_the_tasks_failure(
    archive: AnArchive, drivers: Drivers, bells: MakeBells
) -> None:
    """Its guard had ended it before."""
    begun = bells("begun")
    text = command(f"test $ARKQUEUE_ATTEMPT = 2 || {{ echo $$ > {begun.path}; sleep 1000; }}")
    archive.commit({"task": text + "timeout: 6s\n"})
    driver = drivers(lease="9s", renew="1s")
    pid = int(begun.hear())
    os.kill(driver.pid, signal.SIGSTOP)
    eventually(lambda: is_gone(pid))
    eventually(lambda: archive.sql("select id from attempt where claimed_at < clock_timestamp() - interval '7s'"))
    os.kill(driver.pid, signal.SIGCONT)
    settled(archive, "task@2", "completed")
    assert [one["end"] for one in attempts(archive, "task@2")] == ["stopped", "exited"]


def test_everything_of_a_task_manager_is_killed_at_once(
    archive: AnArchive, drivers: Drivers, managers: Managers, bells: MakeBells, caplog: pytest.LogCaptureFixture
) -> None:
    """What no guard can end any more is ended by the next task manager, before it is run again."""
    begun, pids = bells("begun"), bells("pids")
    sleep = f"/bin/sh -c 'echo $$ > {pids.path}; exec sleep 1000' &"
    by_environment, by_folder = f"(cd /; setsid {sleep});", f"env -i PATH=$PATH setsid {sleep}"
    second = f"for pid in $(head -n 3 {pids.path}); do ! grep -q . /proc/$pid/cmdline || exit 1; done; echo again > {begun.path}; exit"
    archive.commit(
        {
            "task": command(
                f"test $ARKQUEUE_ATTEMPT = 1 || {{ {second}; }}; {by_environment} {by_folder}"
                f" echo $$ > {pids.path}; while :; do sleep 0.01; done"
            )
        }
    )
    driver = drivers()
    left = [int(pids.hear()) for _ in range(3)]
    kill_with_guards(driver)
    try:
        assert all(map(runs, left)), "the test shows something only where they are left"
        for pid in left:
            pids.ring(str(pid))
        managers()
        assert begun.hear() == "again"
        assert not any(map(runs, left))
    finally:
        for pid in filter(runs, left):
            os.kill(pid, signal.SIGKILL)
    settled(archive, "task@2", "completed")
    assert [a["end"] for a in attempts(archive, "task@2")] == ["lost", "exited"]
    assert "still ran without their guards, and were ended: " in caplog.text


def kill_with_guards(driver: subprocess.Popen[bytes]) -> None:
    """Kill a task manager, its guard server and its guards, none of which gets to do anything about it."""
    (server,) = (pid for pid in children(driver.pid) if b"guard.py" in Path(f"/proc/{pid}/cmdline").read_bytes())
    killed = [driver.pid, server, *children(server)]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in killed:
            os.kill(pid, number)
    driver.wait()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def runs(pid: int) -> bool:
    """Whether it is there, and not only until its parent asks for its exit code, which not every init does."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except OSError:
        return False
