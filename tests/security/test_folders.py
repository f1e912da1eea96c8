"""A committer whose tasks run as another user tries to enter folders that are closed
to that user.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from arkqueue.model import AttemptId
from arkqueue.workspace import Workspaces
from tests.repositories import Link
from tests.security.conftest import People, Site
from tests.system.end_to_end.installation import Archive, Stage, tasks
from tests.waiting import eventually


@pytest.fixture(params=["subversion", "git"])
def hers(request: pytest.FixtureRequest, site: Site, mallory: pwd.struct_passwd) -> Archive:
    """Mallory's archive, whose tasks run as the user that the administrator made for them."""
    return site.archive(request.param, "--executor", "process", "--process-user", mallory.pw_name)


def told(archive: Archive, key: str) -> str:
    return archive.log(key)


@pytest.fixture
def closed(open_folder: Path) -> Path:
    """A folder of root's with a secret."""
    folder = open_folder / "closed"
    folder.mkdir(mode=0o700)
    (folder / "the-secret").write_text("xyzzy")
    (folder / "program").write_text("#!/bin/sh\necho I ran\n")
    (folder / "program").chmod(0o755)
    (folder / "open").mkdir(mode=0o755)
    return folder


def test_i_commit_a_symlink_and_begin_in_a_folder_of_roots(site: Site, hers: Archive, closed: Path) -> None:
    look = {"command": "ls; cat the-secret; pwd", "workdir": "way"}
    hers.commit({"way": Link(str(closed)), **tasks({"look": look})})
    hers.wait("look@2", "failed")
    log = told(hers, "look@2")
    assert "the-secret" not in log
    assert "xyzzy" not in log
    assert "may not be entered" in log
    site.answers()


def test_i_begin_in_a_folder_that_i_may_enter_by_a_symlink(hers: Archive, open_folder: Path) -> None:
    """What is no attack goes on: a symlink inside the files, and one to a folder that is open."""
    hers.commit({
        "texts/one.tex": "one\n", "inside": Link("texts"), "outside": Link(str(open_folder)),
        **tasks({
            "in": {"command": "cat one.tex", "workdir": "inside"},
            "out": {"command": "test $(pwd -P) = " + str(open_folder), "workdir": "outside"},
            "name": {"command": ["./program"], "workdir": "texts"},
        }),
        "texts/program": "#!/bin/sh\nexit 0\n",
    })  # fmt: skip
    hers.wait("in@2")
    hers.wait("out@2")
    hers.wait("name@2", "failed")  # it is not executable, which the message says
    assert "Make it executable" in told(hers, "name@2")


def test_i_look_into_somebody_elses_running_workspace_and_base(
    site: Site, hers: Archive, people: People, mallory: pwd.struct_passwd, tmp_path: Path
) -> None:
    bob = people("bob")
    stage = Stage(tmp_path / "stage")
    his = site.archive("git", "--executor", "process", "--process-user", bob.pw_name)
    his.commit({"letter": "dear ada\n", **tasks({"write": {"command": "until [ -e done ]; do sleep 0.05; done"}})})
    attempt = eventually(lambda: [a for a in his.attempts("write@2") if his.state("write@2") == "running"])[0]["id"]
    workspace = site.home / "work" / str(attempt)
    eventually(lambda: (workspace / "tree" / "letter").exists())
    base = site.home / "bases" / (workspace / "base").read_text() / "tree"
    assert base.is_dir()
    ways = {
        "tree": workspace / "tree", "files": workspace / "files", "layer": workspace / "layer" / "upper", "base": base
    }  # fmt: skip
    reading = {name: {"command": "cat letter output; touch mine", "workdir": f"to-{name}"} for name in ways}
    hers.commit({f"to-{name}": Link(str(folder)) for name, folder in ways.items()} | tasks(reading))
    for name in ways:
        hers.wait(f"{name}@2", "failed")
        assert "dear ada" not in told(hers, f"{name}@2")
        assert not (ways[name] / "mine").exists()
    # Nor by another way than the task's own.
    for folder in ways.values():
        assert not may_enter(mallory, folder)
    (workspace / "tree" / "done").touch()
    his.wait("write@2")
    stage.go()
    site.answers()


def may_enter(person: pwd.struct_passwd, folder: Path) -> bool:
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(OSError):
            os.setgroups([])
            os.setgid(person.pw_gid)
            os.setuid(person.pw_uid)
            os.chdir(folder)
            os._exit(0)
        os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def test_i_ask_by_messages_whether_something_is_in_a_closed_folder(site: Site, hers: Archive, closed: Path) -> None:
    places = {"there": "the-secret", "missing": "nothing", "program": "program", "open": "open"}
    hers.commit(
        {f"to-{name}": Link(str(closed / place)) for name, place in places.items()}
        | tasks({f"go-{name}": {"command": "true", "workdir": f"to-{name}"} for name in places})
        | tasks({f"run-{name}": {"command": [str(closed / place)]} for name, place in places.items()}, "_workflows/run.json")
        | tasks({f"link-{name}": {"command": [f"./to-{name}"]} for name in places}, "_workflows/link.json")
    )  # fmt: skip
    for word in ("go", "run", "link"):
        said = set()
        for name, place in places.items():
            key = f"{word}-{name}@2"
            hers.wait(key, "failed")
            text = re.sub("work/[0-9]+/", "", hers.log(key))
            assert "not started" in text
            said.add(text.replace(f"to-{name}", "NAME").replace(str(closed / place), "NAME"))
        assert len(said) == 1, said
    site.answers()


def test_i_leave_a_setuid_file_in_a_container_and_run_it_on_the_host(
    site_with_containers: Site, mallory: pwd.struct_passwd, busybox: str
) -> None:
    site = site_with_containers
    hers = site.archive("git", "--executor", "process", "--process-user", mallory.pw_name)
    leave = "cp /bin/busybox id; chmod 4755 id; mkdir -p deep; cp -p id deep/id; sleep 1000"
    hers.commit(tasks({"leave": {"command": leave, "image": busybox, "network": "none"}}))
    attempt = eventually(lambda: [a for a in hers.attempts("leave@2") if hers.state("leave@2") == "running"])[0]["id"]
    upper = site.home / "work" / str(attempt) / "layer" / "upper"
    left = eventually(lambda: [file for file in (upper / "deep").glob("id") if file.stat().st_mode & stat.S_ISUID])
    assert left[0].stat().st_uid == 0
    commands = {
        "from": {"command": "./id -u", "workdir": "to-upper"},
        "by": {"command": [str(upper / "id"), "-u"]},
    }
    hers.commit({"to-upper": Link(str(upper)), **tasks(commands)})
    for name in commands:
        hers.wait(f"{name}@3", "failed")
        assert "\n0\n" not in "\n" + hers.log(f"{name}@3")
    hers.installation("cancel", hers.task("leave@2"))
    hers.wait("leave@2", "canceled")
    site.answers()


@pytest.mark.usefixtures("root")
def test_i_wait_for_my_setuid_file_to_come_by_when_the_workspace_is_removed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else can enter the workspace any more, nor the folder to which deep folders are moved."""
    workspaces = Workspaces(home)
    workspace = workspaces.prepare(AttemptId(1))
    workspace.folder.chmod(0o711)  # as for a task of another user
    deep = workspace.tree.joinpath(*"abcdef")
    deep.mkdir(parents=True)
    for folder in (workspace.tree, deep):
        (folder / "id").touch()
        (folder / "id").chmod(0o4755)
    closed: list[bool] = []
    rename, unlink = os.rename, os.unlink

    def watched(name: str, to: str, **where: int) -> None:
        rename(name, to, **where)
        closed.append(stat.S_IMODE(os.stat(where["dst_dir_fd"]).st_mode) == 0o700)

    def watched_in_place(name: str, **where: int) -> None:
        if workspace.folder.exists():
            closed.append(stat.S_IMODE(workspace.folder.stat().st_mode) == 0o700)
        unlink(name, **where)

    monkeypatch.setattr(os, "rename", watched)
    monkeypatch.setattr(os, "unlink", watched_in_place)
    assert workspaces.remove(AttemptId(1)) == ""
    assert len(closed) >= 3
    assert all(closed)


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("when", ["rmdir", "open", "rename"])
def test_i_swap_a_folder_for_a_link_while_root_removes_my_workspace(
    home: Path, open_folder: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Another task of the same user is at work in it, and wins the race each time: before root opens a folder, or moves a deep one, and after."""
    kept = open_folder / "kept"
    kept.mkdir(mode=0o755)
    (kept / "file").touch(mode=0o644)
    workspaces = Workspaces(home)
    workspace = workspaces.prepare(AttemptId(1))
    above = "ab" if when == "rename" else ""
    (workspace.tree.joinpath(*above) / "mine" / "full").mkdir(parents=True)
    swapped: list[str] = []
    real = getattr(os, when)

    def swapping(name: str, *more: Any, **where: int) -> Any:
        folder = where["src_dir_fd" if when == "rename" else "dir_fd"] if where else None
        if name == "mine" and not swapped:
            swapped.append(name)
            os.rename(name, "aside", src_dir_fd=folder, dst_dir_fd=folder)
            os.symlink(kept, name, dir_fd=folder)
            if when == "rmdir":
                raise OSError(errno.ENOTEMPTY, "as it was when it was asked")
        return real(name, *more, **where)

    monkeypatch.setattr(os, when, swapping)
    assert workspaces.remove(AttemptId(1)) == ""
    assert swapped
    assert not workspace.folder.exists()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o755
    assert stat.S_IMODE((kept / "file").stat().st_mode) == 0o644
