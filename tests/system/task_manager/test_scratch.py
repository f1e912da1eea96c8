"""Scratch folders of real task managers, on homes of their own, which are hosts of their own
(design 5.37).
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import re
import shutil
import stat
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection

from arkqueue.errors import Conflict
from arkqueue.gateway.sql import SqlGateway
from arkqueue.model import RunId, Scratch, Unneeded
from arkqueue.queue import deletion, holds, redo
from arkqueue.task_manager import scratch as keeping
from arkqueue.task_manager.sources import Sources
from arkqueue.views.explain import explain
from tests.builders import AnArchive, an_archive
from tests.requirements import a_mount
from tests.system.task_manager.boxes import Boxes, boxes
from tests.system.task_manager.conftest import Bells, Managers, attempts, ended, log_of, settled
from tests.waiting import PATIENCE, eventually

__all__ = ["boxes"]

MakeBells = Callable[[str], Bells]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs tasks as other users")


def command(text: str, **fields: str) -> str:
    """The fields of a task without files that has the folder of its run."""
    fields = {"checkout": "none", "scratch": "run", **fields}
    return f"command: {json.dumps(text)}\n" + "".join(f"{key}: {value}\n" for key, value in fields.items())


def folders(home: Path) -> list[Path]:
    return [place / "folder" for place in home.glob("scratch/*/*") if not place.name.startswith(".")]


def hosts(archive: AnArchive, *keys: str) -> set[str]:
    return {attempts(archive, key)[-1]["host"] for key in keys}


def test_what_one_task_leaves_the_next_ones_find(archive: AnArchive, managers: Managers, home_folder: Path) -> None:
    managers()
    archive.commit(
        {
            "fetch": command("umask 022; echo found > $ARKQUEUE_SCRATCH/file; pwd"),
            "read": command("cat $ARKQUEUE_SCRATCH/file", depends="[fetch]"),
            "without": "checkout: none\ndepends: [fetch]\ncommand: env",
        }
    )
    settled(archive, "read@2", "completed")
    assert log_of(archive, "read@2") == "found\n"
    settled(archive, "without@2", "completed")
    assert "ARKQUEUE_SCRATCH" not in log_of(archive, "without@2")
    (folder,) = folders(home_folder)
    assert (folder / "file").read_text() == "found\n"
    # Nobody else of this host can look into it.
    assert stat.S_IMODE(folder.parent.stat().st_mode) == stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_items_have_folders_of_their_own(archive: AnArchive, managers: Managers, home_folder: Path) -> None:
    managers()
    item = {"scratch": "item", "foreach": "['a', '../b', 'c/d']"}
    archive.commit(
        {
            "fetch": command("echo $ARKQUEUE_ITEM > $ARKQUEUE_SCRATCH/item", **item),
            "read": command("cat $ARKQUEUE_SCRATCH/item", depends="[fetch]", **item),
        }
    )
    for key in ("a", "../b", "c/d"):
        settled(archive, f"read/{key}@2", "completed")
        assert log_of(archive, f"read/{key}@2").strip() == f'"{key}"'
    assert len(folders(home_folder)) == 3


def test_all_tasks_of_a_run_are_where_its_folder_is(
    archive: AnArchive, managers: Managers, tmp_path: Path, bells: MakeBells
) -> None:
    """The other host has free slots throughout."""
    begun, end = bells("begun"), bells("end")
    first = managers(home=tmp_path / "one")
    steps = {f"step{n}": command("cat $ARKQUEUE_SCRATCH/file", depends="[fetch]") for n in range(6)}
    fetch = command(f"echo found > $ARKQUEUE_SCRATCH/file; echo > {begun.path}; read line < {end.path}")
    archive.commit({"fetch": fetch, **steps})
    begun.hear()
    other = managers(home=tmp_path / "two")
    assert other.host != first.host
    end.ring()
    for name in steps:
        settled(archive, f"{name}@2", "completed")
    assert hosts(archive, "fetch@2", *(f"{name}@2" for name in steps)) == {first.host}
    assert folders(tmp_path / "two") == []


def test_tasks_that_begin_at_once_on_two_hosts_end_up_on_one(
    archive: AnArchive, managers: Managers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have claimed one before either asks for the folder. Whoever asks later hands back what it has claimed."""
    have_claimed = threading.Barrier(2)
    asks = Sources.scratch

    def asks_with_the_other(self: Sources, *arguments: Any) -> Scratch:
        if not archive.sql("select id from scratch"):
            have_claimed.wait(PATIENCE)
        return asks(self, *arguments)

    monkeypatch.setattr(Sources, "scratch", asks_with_the_other)
    for home in ("one", "two"):
        managers(home=tmp_path / home, slots=1)
    tasks = {f"t{n}": command("echo $ARKQUEUE_TASK >> $ARKQUEUE_SCRATCH/all") for n in range(4)}
    archive.commit({**tasks, "sum": command("sort $ARKQUEUE_SCRATCH/all", depends=f"[{', '.join(tasks)}]")})
    settled(archive, "sum@2", "completed")
    assert log_of(archive, "sum@2").split() == sorted(tasks)
    assert len(hosts(archive, "sum@2", *(f"{name}@2" for name in tasks))) == 1
    told = archive.sql("select message from attempt where message like '%%it is on another host%%'")
    assert len(told) == 1


def test_a_task_waits_for_the_host_of_its_folder(archive: AnArchive, managers: Managers, tmp_path: Path) -> None:
    first = managers(home=tmp_path / "one")
    archive.commit({"fetch": command("echo found > $ARKQUEUE_SCRATCH/file")})
    settled(archive, "fetch@2", "completed")
    archive.trigger(2)
    settled(archive, "fetch@2.2", "completed")
    first.stop()
    managers(home=tmp_path / "two")
    archive.commit({"fetch": command("exit 1"), "read": command("cat $ARKQUEUE_SCRATCH/file", depends="[fetch]")})
    settled(archive, "fetch@3", "failed")
    two = hosts(archive, "fetch@3")
    assert two != {first.host}
    managers(home=tmp_path / "one")
    archive.retry("fetch@3")
    ended(archive, "fetch@3", 2)
    assert hosts(archive, "fetch@3") == two


Loss = Callable[[Path], object]
LOSSES = {
    "its place": lambda folder: shutil.rmtree(folder.parent),
    "the folder": shutil.rmtree,
    "for a link": lambda folder: (shutil.rmtree(folder), folder.symlink_to("/tmp")),
    "for a file": lambda folder: (shutil.rmtree(folder), folder.write_text("mine")),
}


@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES)
def test_a_folder_that_was_lost_is_not_made_anew(
    archive: AnArchive, managers: Managers, home_folder: Path, lose: Loss
) -> None:
    managers()
    archive.commit({"fetch": command("exit 0"), "read": command("exit 0", depends="[fetch]", hold="true")})
    settled(archive, "fetch@2", "completed")
    (folder,) = folders(home_folder)
    lose(folder)
    holds.release(archive.session, archive.task("read@2"), "ann")
    settled(archive, "read@2", "failed")
    assert "scratch folder: it was lost" in log_of(archive, "read@2")
    assert not any(folder.is_dir() and not folder.is_symlink() for folder in folders(home_folder))
    with pytest.raises(Conflict, match="Start at its first task: arkqueue retry papers@2 --from fetch"):
        archive.retry("read@2")
    redo.retry_from(archive.session, RunId(archive.run_id(2)), "fetch", "ann")
    settled(archive, "read@2", "completed")


def test_a_task_that_removes_the_folder_loses_it_for_the_next_ones(archive: AnArchive, managers: Managers) -> None:
    managers()
    archive.commit(
        {
            "fetch": command("exit 0"),
            "clean": command("rm -r $ARKQUEUE_SCRATCH", depends="[fetch]"),
            "read": command("mkdir -p $ARKQUEUE_SCRATCH", depends="[clean]"),
        }
    )
    settled(archive, "read@2", "failed")
    assert "scratch folder: it was lost" in log_of(archive, "read@2")


@pytest.mark.parametrize("lose", [LOSSES["its place"], LOSSES["the folder"]], ids=["its place", "the folder"])
def test_a_retry_from_the_first_task_makes_a_folder_anew_whose_loss_nobody_has_noticed(
    archive: AnArchive, managers: Managers, home_folder: Path, lose: Loss
) -> None:
    managers()
    step = command("echo $ARKQUEUE_TASK >> $ARKQUEUE_SCRATCH/all", depends="[fetch]")
    # A run with a held task is not over, so its folder stays.
    first, held = command("touch $ARKQUEUE_SCRATCH/all"), command("exit 0", hold="true")
    archive.commit({"fetch": first, "one": step, "two": step, "last": held})
    for name in ("one@2", "two@2"):
        settled(archive, name, "completed")
    (folder,) = folders(home_folder)
    run = RunId(archive.run_id(2))
    # What is still there stays.
    redo.retry_from(archive.session, run, "fetch", "ann")
    for name in ("one@2", "two@2"):
        ended(archive, name, 2)
    assert sorted((folder / "all").read_text().split()) == ["one", "one", "two", "two"]
    lose(folder)
    redo.retry_from(archive.session, run, "fetch", "ann")
    for name in ("one@2", "two@2"):
        ended(archive, name, 3)
        settled(archive, name, "completed")
    assert sorted((folder / "all").read_text().split()) == ["one", "two"]
    # From a later task it is lost: another one has left its files there.
    lose(folder)
    redo.retry_from(archive.session, run, "one", "ann")
    settled(archive, "one@2", "failed")
    assert "scratch folder: it was lost" in log_of(archive, "one@2")


@needs_root
def test_the_user_of_processes_gets_the_folder_and_no_other_user_does(
    archive: AnArchive, managers: Managers, home: Path
) -> None:
    home.chmod(0o711)
    archive.sql('update archive set settings = settings || \'{"process_user": "nobody"}\' where id = %s', archive.id)
    managers(home=home)
    archive.commit(
        {"a": command("id -un > $ARKQUEUE_SCRATCH/who"), "b": command("cat $ARKQUEUE_SCRATCH/who", depends="[a]")}
    )
    settled(archive, "b@2", "completed")
    assert log_of(archive, "b@2") == "nobody\n"
    (folder,) = folders(home)
    nobody = pwd.getpwnam("nobody")
    assert (folder.stat().st_uid, stat.S_IMODE(folder.stat().st_mode)) == (nobody.pw_uid, 0o700)
    assert (folder.parent.stat().st_gid, stat.S_IMODE(folder.parent.stat().st_mode)) == (nobody.pw_gid, 0o710)


# --- In containers ---------------------------------------------------------------------------------------------------


def in_box(boxes: Boxes, text: str, **fields: Any) -> str:
    return boxes.task(text, scratch="run", **fields)


def test_containers_find_the_folder_whoever_they_run_as(
    archive: AnArchive, boxes: Boxes, managers: Managers, home_folder: Path
) -> None:
    managers(**boxes.settings)
    archive.commit(
        {
            "root": in_box(boxes, "echo $ARKQUEUE_SCRATCH; umask 022; id -un > /scratch/root"),
            "builder": in_box(boxes, "cat /scratch/root; id -un > /scratch/builder", user="builder", depends=["root"]),
            "nobody": in_box(boxes, "cat /scratch/*", user="nobody", depends=["builder"], workdir="/scratch"),
        }
    )
    settled(archive, "nobody@2", "completed")
    assert log_of(archive, "root@2") == "/scratch\n"
    assert log_of(archive, "nobody@2") == "builder\nroot\n"
    (folder,) = folders(home_folder)
    # Whoever is shown the folder may write in it; on the host nobody else comes there.
    assert (stat.S_IMODE(folder.stat().st_mode), stat.S_IMODE(folder.parent.stat().st_mode)) == (0o777, 0o700)


def test_containers_find_a_folder_that_is_not_in_the_home_folder(
    archive: AnArchive, boxes: Boxes, managers: Managers, tmp_path: Path
) -> None:
    """The engine is shown to see it at the same path, as it is for the home folder."""
    managers(scratch_folder=str(tmp_path / "elsewhere"), **boxes.settings)
    archive.commit(
        {"a": in_box(boxes, "echo x > /scratch/file"), "b": in_box(boxes, "cat /scratch/file", depends=["a"])}
    )
    settled(archive, "b@2", "completed")
    assert log_of(archive, "b@2") == "x\n"
    assert [one.name for one in (tmp_path / "elsewhere").glob("*/*/*") if one.is_dir()] == ["folder"]


def test_a_folder_of_containers_that_was_lost_is_not_made_anew(
    archive: AnArchive, boxes: Boxes, managers: Managers, home_folder: Path
) -> None:
    managers(**boxes.settings)
    archive.commit({"fetch": in_box(boxes, "true"), "read": in_box(boxes, "true", depends=["fetch"], hold=True)})
    settled(archive, "fetch@2", "completed")
    (folder,) = folders(home_folder)
    folder.rmdir()
    holds.release(archive.session, archive.task("read@2"), "ann")
    settled(archive, "read@2", "failed")
    assert "scratch folder: it was lost" in log_of(archive, "read@2")
    redo.retry_from(archive.session, RunId(archive.run_id(2)), "fetch", "ann")
    settled(archive, "read@2", "completed")


@needs_root
def test_a_process_of_another_user_never_gets_what_a_container_had(
    archive: AnArchive, boxes: Boxes, managers: Managers, home: Path
) -> None:
    """Root in the container leaves a shell that is root's by setuid: the process is not started, until no setuid file works there."""
    archive.sql('update archive set settings = settings || \'{"process_user": "nobody"}\' where id = %s', archive.id)
    home.chmod(0o711)
    managers(home=home, **{**boxes.settings, "mounts": []})
    leave = "cp /bin/busybox /scratch/id; chmod 4755 /scratch/id"
    archive.commit(
        {
            "box": in_box(boxes, leave, mounts=[]),
            "process": command("$ARKQUEUE_SCRATCH/id -u; stat -c %a $ARKQUEUE_SCRATCH/id", depends="[box]"),
        }
    )
    attempt = ended(archive, "process@2")
    assert (attempt["end"], attempt["started_at"]) == ("withheld", None)
    told = attempt["message"]
    assert "with which a process would become root" in told
    (mount,) = re.findall(r"mount (-o bind,nosuid,nodev) (\S+) \S+", told)
    with a_mount(*mount[0].split(), mount[1], mount[1]):
        archive.retry("process@2")
        settled(archive, "process@2", "completed")
        assert log_of(archive, "process@2") == f"{pwd.getpwnam('nobody').pw_uid}\n4755\n"


@needs_root
def test_a_container_never_gets_what_a_process_of_another_user_has(
    archive: AnArchive, boxes: Boxes, managers: Managers, home: Path
) -> None:
    """It could leave something there while the process runs, or for the next one."""
    archive.sql('update archive set settings = settings || \'{"process_user": "nobody"}\' where id = %s', archive.id)
    home.chmod(0o711)
    managers(home=home, **{**boxes.settings, "mounts": []})
    archive.commit({"process": command("exit 0"), "box": in_box(boxes, "true", mounts=[], depends=["process"])})
    assert ended(archive, "box@2")["end"] == "withheld"


# --- Until when it stays ---------------------------------------------------------------------------------------------


@pytest.fixture
def swept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders are looked at all the time."""
    monkeypatch.setattr(keeping, "PACE", 0.05)
    monkeypatch.setattr(keeping, "MEASURE", 0.0)


@pytest.mark.usefixtures("swept")
def test_the_folder_goes_when_the_run_has_completed(archive: AnArchive, managers: Managers, home_folder: Path) -> None:
    managers(sweep="100ms")
    hostile = "cd $ARKQUEUE_SCRATCH && ln -s / root && ln -s .. up && mkdir -p a/b && chmod 0 a/b && touch -- '-rf' $'new\\nline' && ls -A | wc -l"
    report = command("ls $ARKQUEUE_SCRATCH | wc -l")
    archive.commit({"a": command(hostile), "fails": command("exit 1", depends="[a]"), "REPORT": report})
    settled(archive, "REPORT@2", "completed")
    assert log_of(archive, "REPORT@2").strip() == log_of(archive, "a@2").strip()
    assert len(folders(home_folder)) == 1, "the run has failed, and may be repaired"
    archive.skip("fails@2")
    eventually(lambda: folders(home_folder) == [])
    assert Path("/etc/passwd").exists()
    assert archive.sql("select removed_at is not null as gone, bytes from scratch") == [{"gone": True, "bytes": None}]


@pytest.mark.usefixtures("swept")
def test_the_folder_of_a_busy_archive_is_tried_again_soon(
    archive: AnArchive,
    managers: Managers,
    home_folder: Path,
    second_connection: Callable[[], Connection],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing happens afterwards that would wake the task manager, and its next look is in an hour."""
    was_busy = threading.Event()
    asks = SqlGateway.scratch_unneeded

    def ask(self: SqlGateway, folders: Sequence[int]) -> Unneeded:
        found = asks(self, folders)
        if found.is_partial:
            was_busy.set()
        return found

    monkeypatch.setattr(SqlGateway, "scratch_unneeded", ask)
    managers(sweep="1h")
    archive.commit({"fetch": command("exit 1")})
    settled(archive, "fetch@2", "failed")
    other = an_archive(archive.session, "other")
    with (home_folder / "scratch" / "lock").open("a") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # so that the folder stays for now
        deletion.delete_run(archive.session, RunId(archive.run_id(2)), "ann")
        holder = second_connection()
        holder.execute("begin")
        holder.execute("select from archive where id = %s for update", [archive.id])
    other.commit({"a": "checkout: none\ncommand: 'true'"})  # its end wakes the task manager
    assert was_busy.wait(PATIENCE)
    assert len(folders(home_folder)) == 1
    holder.execute("rollback")
    eventually(lambda: folders(home_folder) == [])


@pytest.mark.usefixtures("swept")
def test_what_root_of_a_container_left_goes_too(
    archive: AnArchive, boxes: Boxes, managers: Managers, home_folder: Path
) -> None:
    managers(sweep="100ms", **boxes.settings)
    archive.commit({"box": in_box(boxes, "mkdir -p /scratch/a/b; echo x > /scratch/a/b/c; chmod 000 /scratch/a")})
    settled(archive, "box@2", "completed")
    eventually(lambda: folders(home_folder) == [])


@pytest.mark.usefixtures("swept")
def test_a_folder_that_nobody_knows_goes(archive: AnArchive, managers: Managers, home_folder: Path) -> None:
    """Its run was purged, or its database restored from an older backup; another installation's is left alone."""
    manager = managers()
    archive.commit({"a": command("exit 1")})
    settled(archive, "a@2", "failed")
    (known,) = folders(home_folder)
    manager.stop()
    lost, foreign = known.parents[1] / "4711" / "folder", known.parents[2] / "other-installation" / "4711" / "folder"
    lost.mkdir(parents=True)
    foreign.mkdir(parents=True)
    managers(sweep="100ms")
    eventually(lambda: not lost.parent.exists())
    assert known.exists()
    assert foreign.exists()


@pytest.mark.usefixtures("swept")
def test_no_other_folder_is_made_where_they_take_too_much(
    archive: AnArchive, managers: Managers, home_folder: Path
) -> None:
    manager = managers(sweep="100ms", scratch_limit="1MiB")
    big = command("head -c 2000000 /dev/zero > $ARKQUEUE_SCRATCH/zeros; exit 1")
    archive.commit(
        {"big": big, "next": command("wc -c < $ARKQUEUE_SCRATCH/zeros", depends="[{task: big, when: settled}]")}
    )
    settled(archive, "next@2", "completed")
    # That there is no room, and that there is again, is known to the task manager alone.
    eventually(lambda: manager._means.preparation.files.scratches.lack is not None)
    archive.commit({"small": command("exit 0")})
    attempt = ended(archive, "small@3")
    assert attempt["end"] == "withheld"
    assert "those of this host, and its attachments, take 1.9 MiB, and scratch_limit is 1.0 MiB" in attempt["message"]
    # What has a folder goes on in it.
    archive.retry("big@2")
    ended(archive, "big@2", 2)
    archive.skip("big@2")
    eventually(lambda: folders(home_folder) == [])
    eventually(lambda: manager._means.preparation.files.scratches.lack is None)
    archive.retry("small@3")
    settled(archive, "small@3", "completed")


# --- Shared ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("swept")
def test_hosts_that_share_the_folder_share_its_tasks(
    archive: AnArchive, managers: Managers, tmp_path: Path, bells: MakeBells
) -> None:
    """Each of two tasks of a folder waits for the other one to run: with one slot each, they are on two hosts."""
    root = tmp_path / "shared"
    shared = {"scratch_folder": str(root), "scratch_shared": True, "slots": 1, "sweep": "100ms"}
    one = managers(home=tmp_path / "one", **shared)
    first, second = bells("first"), bells("second")
    a = f"cat $ARKQUEUE_SCRATCH/file; echo > {first.path}; read line < {second.path}"
    b = f"cat $ARKQUEUE_SCRATCH/file; read line < {first.path}; echo > {second.path}"
    archive.commit(
        {
            "fetch": command("echo found > $ARKQUEUE_SCRATCH/file"),
            "a": command(a, depends="[fetch]"),
            "b": command(b, depends="[fetch]"),
            "last": command("cat $ARKQUEUE_SCRATCH/file", depends="[a, b]", hold="true"),
        }
    )
    settled(archive, "fetch@2", "completed")
    other = managers(home=tmp_path / "other")  # which does not share it
    two = managers(home=tmp_path / "two", **shared)
    settled(archive, "a@2", "completed")
    settled(archive, "b@2", "completed")
    assert hosts(archive, "a@2") | hosts(archive, "b@2") == {one.host, two.host}
    # The host that has made the folder is not needed any more.
    one.stop()
    holds.release(archive.session, archive.task("last@2"), "ann")
    settled(archive, "last@2", "completed")
    assert log_of(archive, "last@2") == "found\n"
    assert hosts(archive, "last@2") == {two.host} != {other.host}
    eventually(lambda: list(root.glob("*/*")) == [])


# --- Where it is gone ------------------------------------------------------------------------------------------------


def test_a_run_goes_on_elsewhere_from_the_first_task_of_its_folder_where_the_host_is_gone(
    archive: AnArchive, managers: Managers, tmp_path: Path
) -> None:
    one = managers(home=tmp_path / "one")
    archive.commit(
        {
            "fetch": command("echo $ARKQUEUE_ATTEMPT > $ARKQUEUE_SCRATCH/file"),
            "read": command("cat $ARKQUEUE_SCRATCH/file", depends="[fetch]", hold="true"),
        }
    )
    settled(archive, "fetch@2", "completed")
    one.stop()
    two = managers(home=tmp_path / "two")
    holds.release(archive.session, archive.task("read@2"), "ann")
    (told,) = explain(archive.session, archive.task("read@2")).reasons[:1]
    assert told.commands == ["arkqueue retry papers@2 --from fetch"]
    redo.retry_from(archive.session, RunId(archive.run_id(2)), "fetch", "ann")
    settled(archive, "read@2", "completed")
    assert log_of(archive, "read@2") == "2\n"
    assert hosts(archive, "fetch@2", "read@2") == {two.host}
    # What is left on the host goes when it comes back.
    assert len(folders(tmp_path / "one")) == 1
    managers(home=tmp_path / "one")
    eventually(lambda: folders(tmp_path / "one") == [])
