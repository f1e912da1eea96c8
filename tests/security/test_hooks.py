"""The owner of a repository has root install hooks, and leads them elsewhere."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from arkqueue.errors import ArkqueueError, Conflict, Invalid
from arkqueue.hooks import installation, settings
from arkqueue.hooks.installation import install
from tests.repositories import a_git_repository, a_subversion_repository, run
from tests.security.conftest import People, as_person

MAKE: dict[str, Callable[[Path], Any]] = {"subversion": a_subversion_repository, "git": a_git_repository}


@pytest.mark.parametrize("way", ["subversion", "git", "core.hooksPath", "a folder of it"])
def test_i_lead_the_hooks_out_of_my_repository_by_a_link(tmp_path: Path, way: str) -> None:
    roots = tmp_path / "roots"
    roots.mkdir()
    path = (a_subversion_repository if way == "subversion" else a_git_repository)(tmp_path).path
    link = path / "hooks"
    if link.exists():
        link.rename(path / "hooks.away")
    if way in ("core.hooksPath", "a folder of it"):
        link = path / "mine"
        run("git", "config", "core.hooksPath", "mine" if way == "core.hooksPath" else "mine/deep", cwd=path)
    link.symlink_to(roots)
    with pytest.raises(Conflict, match="is a link"):
        install(path, server="http://127.0.0.1:8417", token="t")
    assert list(roots.iterdir()) == []


@pytest.mark.parametrize("what", ["hooks", "arkqueue", "arkqueue/servers", "the repository"])
@pytest.mark.parametrize("kind", MAKE)
def test_i_swap_a_folder_for_a_link_while_root_installs(
    people: People, open_folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str, what: str
) -> None:
    """At the last moment: everything has been looked at, and nothing is written yet."""
    mallory = people("mallory")
    path, roots = MAKE[kind](open_folder).path, open_folder / "roots"
    (path / "hooks").mkdir(exist_ok=True)
    for folder in (roots, *(roots / name for name in ("hooks", "servers", "arkqueue", "db", "objects"))):
        folder.mkdir()
    install(path, server="http://127.0.0.1:8417", token="t")
    run("chmod", "-R", "g+w", path)
    run("chown", "-R", f"{mallory.pw_uid}:{mallory.pw_gid}", path)
    # Called right between the looks and the writes.
    look = installation.about_place

    def swap(*found: Any) -> list[str]:
        swapped = path if what == "the repository" else path / what
        swapped.rename(open_folder / "away")
        swapped.symlink_to(roots)
        return look(*found)

    monkeypatch.setattr(installation, "about_place", swap)
    os.chown(open_folder, mallory.pw_uid, 0)
    with suppress(ArkqueueError):
        install(path, server="http://127.0.0.1:9000", token="t")
    assert path.is_symlink() or (path / what).is_symlink(), "the swap has taken place"
    assert [file for file in roots.rglob("*") if not file.is_dir()] == []
    assert len(list(roots.rglob("*"))) == 5
    assert os.geteuid() == 0


def test_i_have_root_tell_what_only_root_may_read(people: People, open_folder: Path) -> None:
    """The UUID of a repository is told to everybody who installs its hooks, and to the server."""
    mallory = people("mallory")
    path, secret = a_subversion_repository(open_folder).path, open_folder / "secret"
    secret.write_text("s3cret\n")
    secret.chmod(0o600)
    (path / "db/uuid").unlink()
    (path / "db/uuid").symlink_to(secret)
    for owner in (mallory.pw_uid, 0):
        run("chown", "-R", "-h", str(owner), path)
        with pytest.raises(ArkqueueError) as refused:
            install(path, server="http://127.0.0.1:8417", token="t")
        assert "s3cret" not in str(refused.value)


def test_i_own_what_root_put_into_my_repository(people: People, open_folder: Path) -> None:
    mallory = people("mallory")
    for kind, make in MAKE.items():
        path = make(open_folder).path
        run("chown", "-R", f"{mallory.pw_uid}:{mallory.pw_gid}", path)
        install(path, server="http://127.0.0.1:8417", token="t")
        owners = {file.lstat().st_uid for file in path.rglob("*")}
        assert owners == {mallory.pw_uid}, kind


SERVER = "http://127.0.0.1:8417"


def what_is_in(folder: Path) -> dict[Path, int]:
    """Each file with its change time."""
    return {path: path.lstat().st_ctime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize("kind", MAKE)
def test_i_link_to_my_files_in_a_folder_of_root_s_where_all_may_write(
    people: People, open_folder: Path, kind: str
) -> None:
    """As in /dev/shm or /tmp: the folder is root's, and what decides in it is mine."""
    mallory = people("mallory")
    path, shared, home = MAKE[kind](open_folder).path, open_folder / "shared", open_folder / "home"
    roots = open_folder / "roots/.git/hooks"
    roots.mkdir(parents=True)
    (roots / "post-commit").write_text("#!/bin/sh\n")
    if kind == "git":
        for name, value in (("core.bare", "false"), ("core.worktree", "/"), ("core.hooksPath", str(roots))):
            run("git", "config", name, value, cwd=path)
    else:
        (path / "hooks/pre-commit.user").symlink_to("/etc/shadow")
    shared.mkdir()
    shared.chmod(0o1777)
    home.mkdir()
    os.chown(home, mallory.pw_uid, mallory.pw_gid)
    copied = as_person(mallory, "cp", "-R", f"{path}/.", shared)
    assert (shared / ("HEAD" if kind == "git" else "format")).owner() == mallory.pw_name, copied.stderr
    link = home / "repository"
    as_person(mallory, "ln", "-s", shared, link)
    before = what_is_in(roots.parent), what_is_in(shared)
    for given in (link, shared):
        with pytest.raises(Conflict, match=r"belongs to mallory|can be changed by others|may share"):
            install(given, server=SERVER, token="t", check=True, checker="/bin/true")
    assert (what_is_in(roots.parent), what_is_in(shared)) == before


@pytest.mark.parametrize("kind", MAKE)
def test_i_may_write_to_a_repository_of_root_s_with_my_group(people: People, open_folder: Path, kind: str) -> None:
    mallory = people("mallory")
    path = MAKE[kind](open_folder).path
    run("chmod", "-R", "g+w", path)
    run("chgrp", "-R", mallory.pw_name, path)
    before = what_is_in(path)
    with pytest.raises(Conflict, match="can be changed by others than its owner root") as refused:
        install(path, server=SERVER, token="t")
    assert what_is_in(path) == before
    # The command that is printed helps: members of the
    # group still commit, and decide no more what is run.
    run("sh", "-c", refused.value.remedy.partition(": ")[2].removesuffix("."))
    assert install(path, server=SERVER, token="t").hooks
    assert (path / ("objects" if kind == "git" else "db")).stat().st_mode & 0o020


@pytest.mark.parametrize("value", ["absolute", "relative"])
def test_i_have_core_worktree_make_other_repositories_mine(tmp_path: Path, value: str) -> None:
    """Whoever may change the settings would have the hooks of another repository call what lies in this one."""
    path, others = a_git_repository(tmp_path).path, tmp_path / "others"
    run("git", "init", "-q", others)
    hooks = others / ".git/hooks"
    given = str(hooks) if value == "absolute" else os.path.relpath(hooks, tmp_path)
    for worktree in ("/", str(tmp_path)):
        for name, told in (("core.bare", "false"), ("core.worktree", worktree), ("core.hooksPath", given)):
            run("git", "config", name, told, cwd=path)
        before = what_is_in(others)
        with pytest.raises(Conflict, match="which other repositories may share"):
            install(path, server=SERVER, token="t")
        assert what_is_in(others) == before
    assert not (path / "arkqueue").exists()


def test_i_lead_the_hooks_into_a_repository_within_the_work_tree(tmp_path: Path) -> None:
    """As where a home folder is a work tree."""
    run("git", "init", "-q", tmp_path)
    for name, hooks in (("plain", "plain/.git/hooks"), ("bare.git", "bare.git/hooks")):
        run("git", "init", "-q", *(["--bare"] if name == "bare.git" else []), tmp_path / name)
        run("git", "config", "core.hooksPath", hooks, cwd=tmp_path)
        before = what_is_in(tmp_path / name)
        with pytest.raises(Conflict, match="which other repositories may share"):
            install(tmp_path, server=SERVER, token="t")
        assert what_is_in(tmp_path / name) == before


@pytest.mark.parametrize("kind", MAKE)
def test_i_can_change_the_way_to_a_repository_of_root_s(people: People, open_folder: Path, kind: str) -> None:
    mallory = people("mallory")
    below = open_folder / "below"
    below.mkdir()
    path, link = MAKE[kind](below).path, open_folder / "link"
    link.symlink_to(below)
    assert install(link / path.name, server=SERVER, token="t").hooks, "root's own link in a folder of root's"
    before = what_is_in(path)
    os.lchown(link, mallory.pw_uid, mallory.pw_gid)
    with pytest.raises(Conflict, match=r"link.* belongs to mallory"):
        install(link / path.name, server=SERVER, token="t")
    for mode, owner in ((0o777, 0), (0o755, mallory.pw_uid)):
        below.chmod(mode)
        os.chown(below, owner, 0)
        with pytest.raises(Conflict, match=r"can be changed by others|belongs to mallory"):
            install(path, server=SERVER, token="t")
    assert what_is_in(path) == before


@pytest.mark.parametrize("kind", MAKE)
def test_i_own_one_thing_in_a_repository_of_root_s(people: People, open_folder: Path, kind: str) -> None:
    mallory = people("mallory")
    path = MAKE[kind](open_folder).path
    install(path, server=SERVER, token="t")
    things = ("config", "HEAD") if kind == "git" else ("conf", "format")
    for name in (*things, "hooks", "arkqueue", "arkqueue/servers"):
        os.chown(path / name, mallory.pw_uid, 0)
        before = what_is_in(path)
        with pytest.raises(Conflict, match=r"belongs to mallory|and not to root"):
            install(path, server=SERVER, token="t")
        assert what_is_in(path) == before, name
        os.chown(path / name, 0, 0)
    # Who has the data alone, as a web server that serves it, commits and decides no more than that.
    os.chown(path / ("objects" if kind == "git" else "db"), mallory.pw_uid, 0)
    assert install(path, server=SERVER, token="t").hooks


@pytest.mark.parametrize("what", ["a FIFO", "a file without an end", "a long path"])
def test_i_have_root_read_for_ever(
    people: People, open_folder: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(settings, "DEADLINE", 2.0)
    mallory = people("mallory")
    path = a_git_repository(open_folder).path
    included = path / "included"
    if what == "a FIFO":
        os.mkfifo(included)
    elif what == "a long path":
        included.write_text("[core]\n\thooksPath = " + 10_000_000 * "x")
    else:
        included.write_text("[core]\n\thooksPath = x")
        os.truncate(included, 2**33)
    run("git", "config", "include.path", "included", cwd=path)
    run("chown", "-R", f"{mallory.pw_uid}:{mallory.pw_gid}", path)
    tracemalloc.start()
    try:
        with pytest.raises(Invalid, match="cannot be opened as a Git repository"):
            install(path, server=SERVER, token="t")
        assert tracemalloc.get_traced_memory()[1] < 2**21
    finally:
        tracemalloc.stop()
    assert not (path / "arkqueue").exists()
    assert os.geteuid() == 0


def test_members_of_a_group_are_told_who_else_decides(people: People, open_folder: Path) -> None:
    """A team's repository, whose owner installs with no other rights than the owner's own."""
    ada, team = people("ada"), people("team")
    path = a_git_repository(open_folder).path
    run("chmod", "-R", "g+w", path)
    run("chown", "-R", f"{ada.pw_uid}:{team.pw_gid}", path)
    with pytest.raises(Conflict, match=f"run this as {ada.pw_name}"):
        install(path, server=SERVER, token="t")
    os.seteuid(ada.pw_uid)
    try:
        done = install(path, server=SERVER, token="t")
    finally:
        os.seteuid(0)
    assert any("others may write to" in note for note in done.notes)


@pytest.mark.parametrize("way", ["--gid", "--append --groups"])
def test_i_am_in_the_group_that_has_its_owner_s_name(people: People, open_folder: Path, way: str) -> None:
    mallory, ada = people("mallory"), people("ada")
    path = a_git_repository(open_folder).path
    run("chmod", "-R", "g+w", path)
    run("chown", "-R", f"{ada.pw_uid}:{ada.pw_gid}", path)
    assert install(path, server=SERVER, token="t").hooks, "nobody else is in it"
    usermod = "flock", "/tmp/arkqueue-accounts.lock", "usermod"
    run(*usermod, *way.split(), ada.pw_name, mallory.pw_name)
    try:
        with pytest.raises(Conflict, match="can be changed by others"):
            install(path, server=SERVER, token="t")
    finally:
        run(*usermod, "--gid", mallory.pw_name, mallory.pw_name)  # so that the group goes with the account
