"""The fingerprint of a local repository, from its file system: each change of its branches changes
the fingerprint.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from arkqueue.errors import ArchiveUnreachable
from arkqueue.model import ArchiveKind
from arkqueue.repository import Archive, Known, LastKnown, fingerprint_of, locate, open_archive
from arkqueue.repository.git import branches
from arkqueue.repository.git import fingerprint as git_fingerprint
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


def listed(git: GitRepository) -> tuple[Archive, dict[str, Known]]:
    """An open archive, and a ledger that has all heads."""
    archive = open_archive(locate(str(git.path)))
    return archive, {name: LastKnown(id, 1, "", datetime.now(UTC)) for name, id in archive.heads(["**"]).items()}


def fingerprint(path: Path, kind: ArchiveKind | None = None) -> Callable[[], bytes | None]:
    take = fingerprint_of(locate(str(path), kind))
    assert take is not None
    return take


@pytest.mark.parametrize("name", GIT)
def test_each_change_of_a_git_repository_makes_another_one(git: GitRepository, name: str) -> None:
    """A scan has the fingerprint, too, and finds the heads that libgit2 lists."""
    GIT[name].before(git)
    take = fingerprint(git.path)
    before = take()
    assert before is not None
    assert take() == before
    archive, last = listed(git)
    GIT[name].happens(git)
    assert take() not in (before, None)
    heads = archive.heads(["**"], known=last)
    assert archive.fingerprint == take()
    assert heads == archive.heads(["**"])


def test_refs_of_any_content_and_name_are_those_that_libgit2_lists(git: GitRepository) -> None:
    packed, loose = git.path / "packed-refs", git.path / "refs/heads"
    for branch in ("a", "a-b", "a.b/c", "deep/er/b", "packed", "both", "ü", "other"):
        git.git("push", "-q", "origin", f"HEAD:refs/heads/{branch}")
    pack(git)
    old = git.id("HEAD^")
    (loose / "both").write_text(old + "\n")
    archive, last = listed(git)
    for content in (old, old + " \n", old + "\n\n", "ref: refs/heads/a\n"):
        (loose / "other").write_text(content)
        heads = archive.heads(["**"], known=last)
        assert heads == archive.heads(["**"])
        assert list(heads) == sorted(heads)
    for content in ("", old[:-1] + "\n"):
        (loose / "other").write_text(content)
        assert set(last) - set(archive.heads(["**"], known=last)) == {"other"}
        with pytest.raises(ArchiveUnreachable, match="the ref of branch other exists, but cannot be read"):
            archive.check_gone("other")  # where libgit2 lists the packed ref, which is old
    (loose / "other").unlink()
    names: tuple[str | bytes, ...] = (
        "a.lock",
        "main.lock",
        "x..y",
        "y" * 200,
        b"\xff",
        "ß",
        "@",
        "-x",
        "\N{SOFT HYPHEN}",
    )
    for name in names:
        (git.path / "refs/heads" / os.fsdecode(name)).write_text(old + "\n")
    archive, last = listed(git)
    (loose / "main").write_text(old + "\n")
    assert archive.heads(["**"], known=last) == archive.heads(["**"])
    written = packed.read_text()
    for text in (
        written.replace("\n", "\r\n"),
        written.replace(" refs", "  refs"),
        written + f"{old} refs/heads/packed\n",
        written + f"^{old}\n{old} refs/tags/t\n",
        written + f"{old} refs/heads/{'y' * 1024}\n{old} refs/heads/rewound~1\n",
        "",
    ):
        packed.write_text(text)
        assert archive.heads(["**"], known=last) == archive.heads(["**"]), text


def test_branch_that_is_packed_during_the_reading_is_found(git: GitRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    archive, last = listed(git)
    for branch in ("before", "after"):
        git.git("push", "-q", "origin", f"HEAD:refs/heads/{branch}")
    read = git_fingerprint.contents

    def packing(*words: Any) -> list[bytes | None]:
        found = read(*words)
        pack(git)
        return found

    monkeypatch.setattr(git_fingerprint, "contents", packing)
    monkeypatch.setattr(branches, "_listed", None)  # libgit2 lists nothing
    assert set(archive.heads(["**"], known=last)) == {"main", "before", "after"}
    assert archive.fingerprint != fingerprint(git.path)()
    assert set(archive.heads(["**"], known=last)) == {"main", "before", "after"}


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
    with pytest.raises(ArchiveUnreachable, match=f"git -C {git.path} refs migrate --ref-format=files"):
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
