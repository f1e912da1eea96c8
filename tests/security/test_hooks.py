"""The owner of a repository has root install hooks, and leads them elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from arkqueue.errors import Conflict
from arkqueue.hooks.installation import install
from tests.repositories import a_git_repository, a_subversion_repository, run


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
