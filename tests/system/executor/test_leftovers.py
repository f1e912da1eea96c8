"""The detection of leftover processes, with real ones. The tests that kill guards show that
leftovers are ended.
"""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from arkqueue.executor.process import leftovers
from arkqueue.executor.process.leftovers import end_leftovers
from arkqueue.model import AttemptId
from tests.waiting import eventually

Sleepers = Callable[..., subprocess.Popen[bytes]]
FIVE = [AttemptId(5)]


@pytest.fixture
def sleepers() -> Iterator[Sleepers]:
    """Starts processes that sleep, in the root folder and with an empty environment."""
    started: list[subprocess.Popen[bytes]] = []

    def start(cwd: Path | str = "/", **env: object) -> subprocess.Popen[bytes]:
        variables = {name: str(value) for name, value in env.items()}
        started.append(subprocess.Popen(["/bin/sleep", "1000"], cwd=cwd, env=variables, start_new_session=True))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.wait()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "home/work/5/tree").mkdir(parents=True)
    return tmp_path / "home/work"


@pytest.mark.parametrize("variable", ["ARKQUEUE_OUTPUT", "ARKQUEUE_INPUTS", "TMPDIR"])
def test_what_names_a_file_of_the_attempt_is_ended(work: Path, sleepers: Sleepers, variable: str) -> None:
    left = sleepers(**{variable: work / "5/files/it"})
    found = end_leftovers(work, FIVE)
    assert (found.ended, found.remaining) == ([f"sleep ({left.pid})"], [])
    assert left.poll() == -9, "it is gone when the call returns"


def test_what_is_in_the_attempts_folder_is_ended_also_when_that_is_removed(work: Path, sleepers: Sleepers) -> None:
    left = sleepers(cwd=work / "5/tree")
    (work / "5/tree").rmdir()
    end_leftovers(work, FIVE)
    assert left.poll() == -9


def test_the_home_may_be_reached_by_another_way(work: Path, tmp_path: Path, sleepers: Sleepers) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/3").symlink_to(work.parent)
    named = tmp_path / "work/3/work/5/files/output"
    (work / "5/files").symlink_to("/nowhere")  # what the task makes of its own folders changes nothing
    left = sleepers(ARKQUEUE_OUTPUT=named)
    end_leftovers(tmp_path / "work/3/work", FIVE)
    assert left.poll() == -9


def test_what_is_not_the_attempts_is_left_alone(work: Path, tmp_path: Path, sleepers: Sleepers) -> None:
    (tmp_path / "other/work/5").mkdir(parents=True)
    others = [
        sleepers(ARKQUEUE_OUTPUT=tmp_path / "other/work/5/files/output"),
        sleepers(ARKQUEUE_OUTPUT=work / "55/files/output"),
        sleepers(ARKQUEUE_OUTPUT="/arkqueue/output"),  # in a container
        sleepers(ARKQUEUE_OUTPUT=work / ("9" * 5000) / "files/output"),
        sleepers(OLDPWD=work / "5/tree", HOME=work / "5"),
        sleepers(cwd=work),
        sleepers(cwd=tmp_path / "other/work/5"),
    ]
    assert end_leftovers(work, FIVE) == leftovers.Leftovers()
    assert [one.poll() for one in others] == [None] * len(others)


def test_the_shell_of_a_person_who_looks_around_is_left_alone(work: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(work / "5/tree")
        os.execve("/bin/sleep", ["sleep", "1000"], {})
    try:
        eventually(lambda: b"1000" in Path(f"/proc/{pid}/cmdline").read_bytes())
        assert end_leftovers(work, FIVE) == leftovers.Leftovers()
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(terminal)


def test_what_has_become_another_process_meanwhile_is_left_alone(
    work: Path, sleepers: Sleepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = sleepers()
    seen = iter([[other.pid], *[[]] * leftovers.CLEAN])
    # A process that is seen only once is what the race is about.
    monkeypatch.setattr(leftovers._Look, "processes", lambda _: next(seen))
    end_leftovers(work, FIVE)
    assert other.poll() is None


def test_what_cannot_be_ended_is_told(work: Path, sleepers: Sleepers, monkeypatch: pytest.MonkeyPatch) -> None:
    left = sleepers(ARKQUEUE_OUTPUT=work / "5/files/output")
    monkeypatch.setattr(leftovers, "PATIENCE", 0.05)
    # No process survives a SIGKILL on demand.
    monkeypatch.setattr(leftovers, "_kill", lambda *_: None)
    found = end_leftovers(work, FIVE)
    assert (found.ended, found.remaining) == ([], [f"sleep ({left.pid})"])


def test_a_kernel_without_handles_of_processes(work: Path, sleepers: Sleepers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    left = sleepers(ARKQUEUE_OUTPUT=work / "5/files/output")
    assert end_leftovers(work, FIVE).remaining == []
    assert left.wait() == -9
