"""Tasks in containers: what they get, how they end, and that nothing of them is left. A real
engine, a real queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from arkqueue.model import Stream
from tests.builders import AnArchive
from tests.requirements import a_mount
from tests.system.task_manager.boxes import FOREVER, Boxes, boxes, mounts_below
from tests.system.task_manager.conftest import Managers, attempts, log_of, settled
from tests.waiting import eventually

__all__ = ["boxes"]


@pytest.fixture
def manager(boxes: Boxes, managers: Managers, home_folder: Path) -> None:
    home_folder.mkdir()
    managers(**boxes.settings)


def nothing_is_left(boxes: Boxes, home: Path) -> bool:
    return (boxes.containers(), boxes.volumes(), mounts_below(home), list((home / "work").iterdir())) == (
        [],
        [],
        [],
        [],
    )


# --- What it gets ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("manager")
def test_task_with_an_image_runs_in_a_container(archive: AnArchive, boxes: Boxes, home_folder: Path) -> None:
    archive.commit({"task": boxes.task("cat /etc/passwd; echo oops >&2; pwd; echo answer=42 > $ARKQUEUE_OUTPUT")})
    settled(archive, "task@2", "completed")
    assert "builder:x:1000:100" in log_of(archive, "task@2", Stream.STDOUT)
    assert log_of(archive, "task@2", Stream.STDOUT).endswith("/workspace\n")
    assert log_of(archive, "task@2", Stream.STDERR) == "oops\n"
    (attempt,) = attempts(archive, "task@2")
    assert (attempt["exit_code"], attempt["outputs"]) == (0, {"answer": "42"})
    assert attempt["image"] == boxes.engine.inspect_image(boxes.image)["Id"]
    assert eventually(lambda: nothing_is_left(boxes, home_folder))


@pytest.mark.usefixtures("manager")
def test_container_has_the_variables_of_the_design_and_its_images_own(archive: AnArchive, boxes: Boxes) -> None:
    archive.commit({"show": boxes.task("env; id -u", env={"GREETING": "hello"})})
    settled(archive, "show@2", "completed")
    lines = log_of(archive, "show@2").splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    expected = {
        "CI": "true", "ARKQUEUE": "1", "ARKQUEUE_ARCHIVE": "papers", "ARKQUEUE_REVISION": "2", "ARKQUEUE_TASK": "show",
        "ARKQUEUE_AUTHOR": "ann", "ARKQUEUE_MESSAGE": "/arkqueue/message", "ARKQUEUE_INPUTS": "/arkqueue/inputs.json", "ARKQUEUE_OUTPUT": "/arkqueue/output", "GREETING": "hello",
        "PWD": "/workspace",
    }  # fmt: skip
    assert {name: found.get(name) for name in expected} == expected
    assert not {"USER", "LANG", "TMPDIR", "LOGNAME"} & set(found)
    assert lines[-1] == "0"


@pytest.mark.usefixtures("manager")
def test_script_and_inputs_are_there(archive: AnArchive, boxes: Boxes) -> None:
    giver = boxes.task("echo pages=12 > $ARKQUEUE_OUTPUT")
    taker = boxes.task("", script="cat $ARKQUEUE_INPUTS\nfalse\necho never").replace('command: ""\n', "")
    archive.commit({"giver": giver, "taker": taker + "depends: [giver]\n"})
    settled(archive, "taker@2", "failed")
    assert log_of(archive, "taker@2") == '{"giver": {"pages": "12"}}'


@pytest.mark.usefixtures("manager")
def test_container_says_whose_it_is(archive: AnArchive, boxes: Boxes, home_folder: Path) -> None:
    archive.commit({"task": boxes.task(FOREVER)})
    (container,) = eventually(boxes.running)
    (attempt,) = attempts(archive, "task@2")
    assert container["Names"] == [f"/arkqueue-{boxes.installation[:8]}-{attempt['id']}"]
    assert {k: v for k, v in container["Labels"].items() if k.startswith("arkqueue.") and k != "arkqueue.test"} == {
        "arkqueue.installation": boxes.installation,
        "arkqueue.host": (home_folder / "host-id").read_text().strip(),
        "arkqueue.archive": "papers",
        "arkqueue.run": "papers@2",
        "arkqueue.task": "papers@2/task",
        "arkqueue.task-id": str(archive.task("task@2")),
        "arkqueue.attempt": str(attempt["id"]),
    }
    archive.cancel("task@2")
    settled(archive, "task@2", "canceled")


@pytest.mark.usefixtures("manager")
def test_user_can_write_where_a_task_writes(archive: AnArchive, boxes: Boxes) -> None:
    text = "echo $(id -u) $(id -g); touch mine sub && mkdir dir && echo ok=1 > $ARKQUEUE_OUTPUT"
    users = {"nobody": "65534 65534", "builder": "1000 100", "1234:56": "1234 56"}
    archive.commit({f"t{number}": boxes.task(text, user=user) for number, user in enumerate(users)})
    for number, numbers in enumerate(users.values()):
        settled(archive, f"t{number}@2", "completed")
        assert log_of(archive, f"t{number}@2") == numbers + "\n"
        assert attempts(archive, f"t{number}@2")[0]["outputs"] == {"ok": "1"}


# --- How it ends -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("manager")
def test_canceled_container_that_ignores_the_signal_is_proved_gone(
    archive: AnArchive, boxes: Boxes, home_folder: Path
) -> None:
    archive.commit({"task": boxes.task(f"trap '' TERM; echo begun; {FOREVER}", grace="1s")})
    eventually(lambda: attempts(archive, "task@2") and "begun" in log_of(archive, "task@2"))
    archive.cancel("task@2")
    settled(archive, "task@2", "canceled")
    assert boxes.all() == []
    assert attempts(archive, "task@2")[0]["end"] == "stopped"
    assert eventually(lambda: nothing_is_left(boxes, home_folder))


@pytest.mark.usefixtures("manager")
def test_container_whose_time_is_up_has_failed(
    archive: AnArchive, boxes: Boxes, time_begins: Callable[[Callable[[], object]], None]
) -> None:
    time_begins(lambda: eventually((boxes.shared / "begun").exists))
    text = f"trap 'echo asked; exit 3' TERM; {boxes.begun()}; {FOREVER}"
    archive.commit({"task": boxes.task(text, timeout="1s")})
    settled(archive, "task@2", "failed")
    (attempt,) = attempts(archive, "task@2")
    assert (attempt["end"], attempt["exit_code"]) == ("timed-out", 3)
    assert "stopped after its timeout of 1 s" in log_of(archive, "task@2", Stream.NOTE)
    assert log_of(archive, "task@2", Stream.STDOUT) == "asked\n"


@pytest.mark.usefixtures("manager")
def test_image_that_cannot_be_had_is_told_and_the_next_task_runs(
    archive: AnArchive, boxes: Boxes, home_folder: Path
) -> None:
    """More that a task cannot have is in ``test_bad_containers.py``."""
    image = "nonesuch.invalid/image:1"
    bad = {"fetched": {"image": image}, "kept": {"image": {"name": image, "pull": "never"}}}
    tasks = {name: boxes.task("true", **fields) for name, fields in bad.items()}
    archive.commit({**tasks, "good": boxes.task("true")})
    settled(archive, "good@2", "completed")
    for name, said in (("fetched", f"image {image!r}"), ("kept", "`pull: never` forbids fetching it")):
        settled(archive, f"{name}@2", "failed")
        (attempt,) = attempts(archive, f"{name}@2")
        assert attempt["end"] == "not-started"
        assert said in attempt["message"]
        assert said in log_of(archive, f"{name}@2")
    assert eventually(lambda: nothing_is_left(boxes, home_folder))


@pytest.mark.usefixtures("manager")
def test_running_out_of_memory_is_said_with_the_limit(archive: AnArchive, boxes: Boxes) -> None:
    archive.commit({"task": boxes.task("tail /dev/zero", resources={"memory": "16MiB"})})
    settled(archive, "task@2", "failed")
    (attempt,) = attempts(archive, "task@2")
    assert "ran out of memory: its limit is 16 MiB" in attempt["message"]
    assert attempt["end"] == "exited"


@pytest.fixture
def small_disk(home_folder: Path) -> Iterator[Path]:
    """The folder of the workspaces, on a disk of 4 MiB."""
    work = home_folder / "work"
    work.mkdir(mode=0o711, parents=True)
    with a_mount("-t", "tmpfs", "-o", "size=4m", "arkqueue-test", work):
        yield work


@pytest.mark.parametrize("checkout", [pytest.param("none", marks=pytest.mark.full), "tree"])
def test_full_disk_under_a_container_harms_no_other_task(
    archive: AnArchive, boxes: Boxes, small_disk: Path, managers: Managers, tmp_path: Path, checkout: str
) -> None:
    from tests.repositories import a_git_repository
    from tests.system.task_manager.test_checkouts import commit, watch

    managers(**boxes.settings)
    repository = a_git_repository(tmp_path)
    watch(archive, repository)
    fill = boxes.task(["dd", "if=/dev/zero", "of=big", "bs=1M", "count=10"], checkout=checkout)
    after = boxes.task("echo room > new && cat new", checkout=checkout) + "depends: [{task: fills, when: settled}]\n"
    commit(archive, repository, {"a.txt": "a"}, {"fills": fill, "after": after})
    settled(archive, "after@2", "completed")
    assert archive.states()["fills@2"] == "failed"
    assert "No space left on device" in log_of(archive, "fills@2")
    assert eventually(lambda: not list(small_disk.iterdir()))


# The last line digs deeper than a path may be long (4096 bytes).
HOSTILE = """
mkdir -p .git/hooks && printf '[core]\\nfsmonitor = touch /shared/owned\\n' > .git/config
printf '#!/bin/sh\\ntouch /shared/owned\\n' > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout
mknod disk b 8 0; mknod pipe p; ln -s /etc/passwd link; ln -s / root; ln -s loop loop
touch own; chmod 000 own; mkdir closed; touch closed/in; chmod 000 closed
ln -sf /etc/passwd /arkqueue/output
i=0; while [ $i -lt 2500 ]; do mkdir d; cd d; i=$((i+1)); done; touch bottom; pwd | wc -c
"""


@pytest.mark.usefixtures("manager")
@pytest.mark.full
@pytest.mark.parametrize("checkout", ["none", "tree"])
def test_whatever_a_task_leaves_is_removed_and_the_next_one_runs(
    archive: AnArchive, boxes: Boxes, home_folder: Path, tmp_path: Path, checkout: str
) -> None:
    from tests.repositories import a_git_repository
    from tests.system.task_manager.test_checkouts import commit, watch

    repository = a_git_repository(tmp_path)
    watch(archive, repository)
    task = boxes.task(HOSTILE, checkout=checkout)
    commit(archive, repository, {"a.txt": "a"}, {"hostile": task, "next": boxes.task("ls -a") + "depends: [hostile]\n"})
    settled(archive, "next@2", "completed")
    assert log_of(archive, "next@2").split() == [".", ".."]
    assert "OUTPUT" in log_of(archive, "hostile@2", Stream.NOTE)
    assert eventually(lambda: nothing_is_left(boxes, home_folder))
    assert not (boxes.shared / "owned").exists()
