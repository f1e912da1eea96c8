"""The fingerprint of a local repository, from its file system: each change of its branches changes
the fingerprint.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from arkqueue.errors import ArchiveUnreachable
from arkqueue.model import ArchiveKind
from arkqueue.repository import fingerprint_of, locate, open_archive
from tests.changes import GIT, SUBVERSION, pack
from tests.repositories import GitRepository, SubversionRepository, a_git_repository, a_subversion_repository, run


@pytest.fixture
def git(tmp_path: Path) -> GitRepository:
    repository = a_git_repository(tmp_path)
    for text in "12":
        repository.commit({"x": text})
    return repository


@pytest.fixture
def subversion(tmp_path: Path) -> SubversionRepository:
    repository = a_subversion_repository(tmp_path)
    repository.commit({"trunk/deep/x": "1"})
    return repository


def fingerprint(path: Path, kind: ArchiveKind | None = None) -> Callable[[], bytes | None]:
    take = fingerprint_of(locate(str(path), kind))
    assert take is not None
    return take


@pytest.mark.parametrize("name", GIT)
def test_each_change_of_a_git_repository_makes_another_one(git: GitRepository, name: str) -> None:
    GIT[name].before(git)
    take = fingerprint(git.path)
    before = take()
    assert before is not None
    assert take() == before
    GIT[name].happens(git)
    assert take() not in (before, None)


@pytest.mark.parametrize("folder", ["", "trunk/deep"])
@pytest.mark.parametrize("name", SUBVERSION)
def test_each_change_of_a_subversion_repository_makes_another_one(
    subversion: SubversionRepository, name: str, folder: str
) -> None:
    SUBVERSION[name].before(subversion)
    take = fingerprint(subversion.path / folder)
    before = take()
    assert before is not None
    assert take() == before
    SUBVERSION[name].happens(subversion)
    assert take() not in (before, None)


def test_reading_changes_nothing(git: GitRepository, subversion: SubversionRepository, tmp_path: Path) -> None:
    for number, path in enumerate((git.path, subversion.path)):
        take = fingerprint(path)
        before = take()
        archive = open_archive(locate(str(path)))
        for head in archive.heads().values():
            archive.export(head, tmp_path / str(number))
        assert take() == before is not None


def test_there_is_none_where_refs_are_in_tables(git: GitRepository) -> None:
    """Newer versions of git make these files for older ones, and never change them. If libgit2 learns
    to read the tables, this test fails: `reftable/tables.list` then needs a place in the fingerprint.
    """
    take = fingerprint(git.path)
    shutil.rmtree(git.path / "refs")
    (git.path / "refs").mkdir()
    (git.path / "refs/heads").write_text("this repository uses the reftable format\n")
    (git.path / "HEAD").write_text("ref: refs/heads/.invalid\n")
    with (git.path / "config").open("a") as config:
        config.write("[core]\nrepositoryformatversion = 1\n[extensions]\nrefStorage = reftable\n")
    assert take() is None
    with pytest.raises(ArchiveUnreachable, match=r"reads repositories with .* refs in files only"):
        open_archive(locate(str(git.path))).heads()


def test_a_working_tree_has_the_fingerprint_of_its_git_folder(git: GitRepository) -> None:
    take = fingerprint(git.work)
    before = take()
    (git.work / "y").touch()
    assert take() == before is not None
    git.commit(push=False)
    assert take() != before


def test_there_is_none_where_the_files_do_not_tell(git: GitRepository, tmp_path: Path) -> None:
    assert fingerprint_of(locate("https://example.org/x.git")) is None
    assert fingerprint_of(locate("svn://example.org/x")) is None
    further = tmp_path / "further"
    git.git("worktree", "add", "-q", str(further))
    assert fingerprint(further)() is None
    assert fingerprint(git.work / ".git" / "worktrees" / "further", ArchiveKind.GIT)() is None
    take = fingerprint(git.path)
    for name, target in (("elsewhere", "refs/remotes/origin/main"), ("here", "refs/heads/main")):
        run("git", "symbolic-ref", f"refs/heads/{name}", target, cwd=git.path)
        assert (take() is None) == (name == "elsewhere")
        run("git", "symbolic-ref", "--delete", f"refs/heads/{name}", cwd=git.path)
    link = git.path / "refs/heads/link"
    link.symlink_to("main")
    assert take() is None
    link.unlink()
    assert take() is not None
    pack(git)
    shutil.rmtree(git.path)
    assert take() is None


def test_there_is_none_of_a_subversion_repository_that_is_gone(subversion: SubversionRepository) -> None:
    take = fingerprint(subversion.path / "trunk")
    shutil.rmtree(subversion.path)
    assert take() is None
