"""The owner of a repository has root install hooks, and leads them elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from arkqueue.errors import ArkqueueError, Conflict
from arkqueue.hooks import installation
from arkqueue.hooks.installation import install
from tests.repositories import a_git_repository, a_subversion_repository, run
from tests.security.conftest import People

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


@pytest.mark.parametrize("whose", ["mine", "root's, and my group may write to it"])
@pytest.mark.parametrize("what", ["hooks", "arkqueue", "arkqueue/servers", "the repository"])
@pytest.mark.parametrize("kind", MAKE)
def test_i_swap_a_folder_for_a_link_while_root_installs(
    people: People, open_folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str, what: str, whose: str
) -> None:
    """At the last moment: everything has been looked at, and nothing is written yet."""
    mallory = people("mallory")
    path, roots = MAKE[kind](open_folder).path, open_folder / "roots"
    (path / "hooks").mkdir(exist_ok=True)
    for folder in (roots, *(roots / name for name in ("hooks", "servers", "arkqueue", "db", "objects"))):
        folder.mkdir()
    install(path, server="http://127.0.0.1:8417", token="t")
    run("chmod", "-R", "g+w", path)
    run("chown", "-R", f"{mallory.pw_uid if whose == 'mine' else 0}:{mallory.pw_gid}", path)
    # Called right between the looks and the writes.
    look = installation.about_place

    def swap(*found: Any) -> list[str]:
        swapped = path if what == "the repository" else path / what
        swapped.rename(open_folder / "away")
        swapped.symlink_to(roots)
        return look(*found)

    # The last component is swapped with root's rights here: in a shared folder that takes no more than mallory's.
    monkeypatch.setattr(installation, "about_place", swap)
    open_folder.chmod(0o777)
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
