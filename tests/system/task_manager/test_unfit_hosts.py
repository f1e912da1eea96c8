"""A host that cannot start anything for the moment hands its claims back, and leaves the tasks to
hosts that can run them.
"""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from arkqueue.db.session import Session
from arkqueue.model import Stream
from arkqueue.task_manager import fitness
from arkqueue.views.explain import explain_name
from tests.builders import AnArchive
from tests.requirements import a_mount
from tests.system.task_manager.conftest import Managers, attempts, ended, log_of, settled
from tests.waiting import eventually

TASK = "checkout: none\ncommand: 'true'\n"
BEGUN = "this host cannot start tasks"
OVER = "tasks start on this host again"


class Disk:
    """A disk of 1 MiB for the workspaces of a home folder, which can be of no use for a while."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def remount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.folder)], check=True)

    def fill(self) -> None:
        with open(self.folder / "full", "wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"x" * 4096)


@pytest.fixture
def disk(home_folder: Path) -> Iterator[Disk]:
    work = home_folder / "work"
    work.mkdir(mode=0o711, parents=True)
    with a_mount("-t", "tmpfs", "-o", "size=1m", "arkqueue-test", work):
        yield Disk(work)


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitness, "FIRST", 0.02)
    monkeypatch.setattr(fitness, "LONGEST", 0.1)


@pytest.mark.usefixtures("no_pause")
def test_tasks_run_once_there_is_room_again_and_no_retry_is_used_up(
    archive: AnArchive,
    session: Session,
    managers: Managers,
    disk: Disk,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = "Read-only file system"
    monkeypatch.setattr(fitness, "LONGEST", 60.0)  # so that one warning is the only one
    disk.remount("ro")
    managers()
    archive.commit({"one": TASK, "two": TASK + "on_lost: fail\n"})
    for name in ("one@2", "two@2"):
        attempt = ended(archive, name)
        assert (attempt["end"], attempt["started_at"]) == ("stopped", None)
        assert attempt["message"].startswith("not started, and handed back: workspace of attempt")
        assert said in attempt["message"]
    ended(archive, "one@2", 3)
    eventually(lambda: archive.state("one@2") == "ready")
    assert said in explain_name(session, "papers@2/one").text
    assert said in log_of(archive, "one@2", Stream.NOTE)

    disk.remount("rw")

    for name in ("one@2", "two@2"):
        settled(archive, name, "completed")
        (task,) = archive.sql("select failures, deferrals, losses from task where id = %s", archive.task(name))
        assert set(task.values()) == {0}
        assert [one["end"] for one in attempts(archive, name)][-2:] == ["stopped", "exited"]
    eventually(lambda: OVER in caplog.text)
    assert [caplog.text.count(words) for words in (BEGUN, OVER)] == [1, 1]


@pytest.mark.usefixtures("no_pause")
def test_healthy_task_manager_runs_what_another_cannot_start(
    archive: AnArchive, managers: Managers, disk: Disk, tmp_path: Path
) -> None:
    disk.fill()
    ill = managers()
    archive.commit({f"t{n}": TASK for n in range(20)})
    ended(archive, "t0@2")
    assert archive.states().get("t0@2") != "failed"

    well = managers(home=tmp_path / "other")

    for n in range(20):
        settled(archive, f"t{n}@2", "completed")
        assert [one["host"] for one in attempts(archive, f"t{n}@2") if one["end"] == "exited"] == [well.host]
        assert {one["end"] for one in attempts(archive, f"t{n}@2") if one["host"] == ill.host} <= {"stopped"}


def test_pause_bounds_what_is_claimed_and_holds_up_no_stop(archive: AnArchive, managers: Managers, disk: Disk) -> None:
    disk.fill()
    manager = managers(slots=2)
    archive.commit({f"t{n}": TASK for n in range(20)})
    eventually(lambda: archive.sql("select count(*) as n from attempt where ended_at is not null")[0]["n"] >= 2)
    since = time.monotonic()
    manager.stop()
    took = time.monotonic() - since
    (found,) = archive.sql("select count(*) as n from attempt")
    assert found["n"] <= 4  # two at once, and what was tried one by one until the stop
    assert took < 10
    assert set(archive.states().values()) <= {"ready", "completed", "waiting"}


@pytest.mark.usefixtures("no_pause")
def test_no_descriptors_are_the_fault_of_the_host_too(
    archive: AnArchive, managers: Managers, monkeypatch: pytest.MonkeyPatch
) -> None:
    managers()
    with monkeypatch.context() as patched:
        # Without descriptors, the test itself could not go on.
        patched.setattr("arkqueue.executor.process.executor._pipe", _no_pipe)
        archive.commit({"one": TASK})
        assert "no descriptors are left" in ended(archive, "one@2", 2)["message"]
    settled(archive, "one@2", "completed")


def _no_pipe(*_: object) -> tuple[int, int]:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_fault_of_the_task_itself_is_its_failure_and_no_pause(
    archive: AnArchive, managers: Managers, caplog: pytest.LogCaptureFixture
) -> None:
    managers()
    archive.commit({"wrong": "checkout: none\ncommand: [no-such-thing]\n", "right": TASK})
    settled(archive, "wrong@2", "failed")
    settled(archive, "right@2", "completed")
    assert attempts(archive, "wrong@2")[-1]["end"] == "not-started"
    assert BEGUN not in caplog.text
