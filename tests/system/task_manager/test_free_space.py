"""A disk with less room than `min_free`: the task manager claims nothing, reports the reason, and
continues by itself when there is room.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.task_manager.free_space import FreeSpace
from arkqueue.views.explain import explain_name
from arkqueue.views.installation import measure, task_managers
from arkqueue.web import create_app, run_api
from tests.builders import AnArchive
from tests.requirements import a_mount
from tests.system.task_manager.conftest import Bells, Managers, attempts, settled
from tests.waiting import eventually

LOW = "1 task manager claims no tasks, because a disk there has less free space than min_free"
TASK = "checkout: none\ncommand: 'true'\n"


@pytest.fixture(params=["home", "work"])
def disk(request: pytest.FixtureRequest, home_folder: Path) -> Iterator[Path]:
    """A disk of 4 MiB for the whole home folder, or for the workspaces alone."""
    folder = home_folder if request.param == "home" else home_folder / "work"
    folder.mkdir(mode=0o711, parents=True)
    with a_mount("-t", "tmpfs", "-o", "size=4m", "arkqueue-test", folder):
        yield folder


def fill(disk: Path) -> None:
    (disk / "full").write_bytes(bytes(3 << 20))


def claims_nothing(session: Session) -> bool:
    return bool(measure(session).task_managers_low_on_disk)


@pytest.fixture
def faults(session: Session, tmp_path: Path) -> Iterator[Callable[[], list[str]]]:
    """The faults in the answer of ``/healthz``."""
    server = run_api(create_app(session, Configuration(home=tmp_path / "server")), "127.0.0.1", 0)
    yield lambda: httpx.get(f"{server.url}/healthz", trust_env=False, verify=False).json()["faults"]
    server.close()


def test_nothing_is_claimed_until_there_is_room_again(
    archive: AnArchive,
    session: Session,
    disk: Path,
    managers: Managers,
    bells: Any,
    faults: Callable[[], list[str]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    bell: Bells = bells("bell")
    manager = managers(min_free="2MiB", slots=2)
    archive.commit({"long": f"checkout: none\ncommand: read line < {bell.path}\n"})
    eventually(lambda: archive.state("long@2") == "running")

    fill(disk)
    eventually(lambda: claims_nothing(session))
    archive.commit({"short": TASK})
    bell.ring()  # the end of what runs is recorded, and is no reason to claim
    settled(archive, "long@2", "completed")

    assert any(fault.startswith(LOW) for fault in faults())
    (said,) = (one.low_disk for one in task_managers(session))
    assert said is not None
    assert said.startswith(f"the disk of {disk} has ")
    assert said.endswith(" free, less than min_free (2 MiB)")
    told = explain_name(session, "papers@3/short").text
    assert f"no host can start it for now. {manager.process.split('-')[0]}" in told
    assert told.endswith(f": it claims no task until its disk has more free space: {said}.")
    assert "it tries one task from time to time" not in told
    assert attempts(archive, "short@3") == []

    (disk / "full").unlink()
    settled(archive, "short@3", "completed")
    eventually(lambda: not claims_nothing(session))
    assert not any(fault.startswith(LOW) for fault in faults())
    assert len(attempts(archive, "short@3")) == 1
    assert [caplog.text.count(words) for words in ("nothing is claimed until", "every disk has room again")] == [1, 1]


def test_task_manager_with_room_takes_what_another_leaves(
    archive: AnArchive, session: Session, managers: Managers, tmp_path: Path
) -> None:
    """More than any disk has free is a mark that nobody meets."""
    managers(min_free=f"{1 << 30}GiB")
    eventually(lambda: claims_nothing(session))
    archive.commit({f"t{n}": TASK for n in range(5)})
    well = managers(home=tmp_path / "other")
    for n in range(5):
        settled(archive, f"t{n}@2", "completed")
        assert {one["host"] for one in attempts(archive, f"t{n}@2")} == {well.host}


def test_trees_that_are_only_kept_make_room(tmp_path: Path) -> None:
    bases = tmp_path / "bases"
    bases.mkdir()
    with a_mount("-t", "tmpfs", "-o", "size=4m", "arkqueue-test", bases):
        for name in ("oldest", "newest"):
            (bases / name).write_bytes(bytes(3 << 19))
        given_up: list[str] = []

        def give_up() -> bool:
            given_up.append("oldest" if not given_up else "newest")
            (bases / given_up[-1]).unlink()
            return True

        space = FreeSpace([tmp_path], bases, 2 << 20, give_up)
        assert space.look() == f"the disk of {bases} has 1 MiB free, less than min_free (2 MiB)"
        assert space.look() is None
        assert given_up == ["oldest"]


def test_trees_on_another_disk_are_kept(tmp_path: Path) -> None:
    bases, work = tmp_path / "bases", tmp_path / "work"
    bases.mkdir()
    work.mkdir()
    with a_mount("-t", "tmpfs", "-o", "size=1m", "arkqueue-test", work):
        space = FreeSpace([work], bases, min(2 << 20, shutil.disk_usage(bases).free), lambda: pytest.fail("it is kept"))
        assert space.look() == f"the disk of {work} has 1 MiB free, less than min_free (2 MiB)"
        subprocess.run(["umount", work], check=True)
        (bases / "one").touch()
        assert space.is_short() is (shutil.disk_usage(work).free < 2 << 20)


def test_disk_that_cannot_be_looked_at_is_no_reason(tmp_path: Path) -> None:
    assert FreeSpace([tmp_path / "none"], tmp_path / "none", 1 << 62, lambda: False).look() is None
    assert FreeSpace([tmp_path], tmp_path, 0, lambda: False).look() is None
