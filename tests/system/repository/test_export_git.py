"""The export of a Git archive writes the whole tree as committed, nothing else, and nowhere else,
whoever reads its files.
"""

from __future__ import annotations

import os
import stat
from functools import partial
from pathlib import Path

import pygit2
import pytest

from arkqueue.errors import ArchiveError, ArchiveUnreachable, NotFound, WorkspaceError
from arkqueue.repository import limits
from arkqueue.repository.git import export as module
from arkqueue.repository.git import objects as git_objects
from arkqueue.repository.git.objects import Objects
from arkqueue.repository.limits import PathBudget, TooManyPaths
from tests.repositories import GitRepository, Link, run
from tests.system.repository.test_git import an_archive, repository, tree

__all__ = ["repository"]


@pytest.fixture(autouse=True, params=["libgit2", "git", "git, in portions"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads the files; else it depends on how many there are."""
    many, most = {"libgit2": (1000, 1000), "git": (0, 1000), "git, in portions": (0, 2)}[request.param]
    monkeypatch.setattr(module, "MANY", many)
    monkeypatch.setattr(module, "MOST", most)


def test_export_keeps_bits_links_and_raw_texts_and_nothing_else(repository: GitRepository, tmp_path: Path) -> None:
    repository.commit({"run": "#!/bin/sh"})
    (repository.work / "run").chmod(0o755)
    repository.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(repository.path), "sub")
    id = repository.commit(
        {
            ".gitattributes": "*.txt text eol=crlf filter=evil ident\n",
            "d/a.txt": "$Id$\n",
            "link": Link("d/a.txt"),
            "out": Link("/etc/passwd"),
            os.fsdecode(b"n\xff"): "7",
        }
    )
    out = tmp_path / "out"
    an_archive(repository).export(id, out)
    assert set(os.listdir(out)) == {
        ".gitattributes",
        "run",
        "d",
        "link",
        "out",
        "sub",
        ".gitmodules",
        os.fsdecode(b"n\xff"),
    }
    assert (out / "d/a.txt").read_bytes() == b"$Id$\n"
    assert (os.readlink(out / "link"), os.readlink(out / "out")) == ("d/a.txt", "/etc/passwd")
    assert list((out / "sub").iterdir()) == []
    assert stat.S_IMODE((out / "run").stat().st_mode) & 0o111
    assert not stat.S_IMODE((out / "d/a.txt").stat().st_mode) & 0o111


def test_export_of_some_paths(repository: GitRepository, tmp_path: Path) -> None:
    id = repository.commit({"a/b/c": "1", "a/d": "2", "e f/ü": "3", "g": "4", "l": Link("g")})
    archive = an_archive(repository)
    archive.export(id, tmp_path / "out", ["a/b", "/e f/", "a/b/c", "g", "l"])
    assert tree(tmp_path / "out") == {"a/b/c": "1", "e f/ü": "3", "g": "4", "l": "-> g"}
    for path in ("nope", "../x", "g/x", "."):
        with pytest.raises(NotFound, match="is not in revision"):
            archive.export(id, tmp_path / "out2", [path])


def a_hostile_commit(repository: GitRepository, *entries: tuple[str, bytes, str]) -> str:
    """A commit whose tree git itself would never write: (mode, name, object)."""
    raw = b"".join(mode.encode() + b" " + name + b"\0" + bytes.fromhex(id) for mode, name, id in entries)
    bare = pygit2.Repository(str(repository.path))
    tree = bare.odb.write(pygit2.enums.ObjectType.TREE, raw)
    text = f"tree {tree}\nauthor x <y> 1 +0000\ncommitter x <y> 1 +0000\n\nevil\n"
    return str(bare.odb.write(pygit2.enums.ObjectType.COMMIT, text.encode()))


@pytest.mark.parametrize("name", [b"..", b".", b"../evil", b"a/../../evil", b"/evil"])
def test_hostile_names_never_leave_the_target(repository: GitRepository, tmp_path: Path, name: bytes) -> None:
    repository.commit({"x": "evil"})
    blob = repository.id("HEAD:x")
    for mode, id in (("100644", blob), ("40000", repository.id("HEAD^{tree}"))):
        hostile = a_hostile_commit(repository, (mode, name, id))
        before = set(tmp_path.rglob("*evil*"))
        with pytest.raises(ArchiveError, match="no tree may hold"):
            an_archive(repository).export(hostile, tmp_path / "deep" / "out")
        assert set(tmp_path.rglob("*evil*")) == before
        assert tree(tmp_path / "deep") == {}


def test_a_link_and_a_folder_of_one_name_never_lead_outside(repository: GitRepository, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    repository.commit({"link": Link(str(outside)), "d/x": "evil"})
    link, folder = repository.id("HEAD:link"), repository.id("HEAD:d")
    for entries in (
        [("120000", b"a", link), ("40000", b"a", folder)],
        [("40000", b"a", folder), ("120000", b"a", link)],
    ):
        hostile = a_hostile_commit(repository, *entries)
        with pytest.raises((ArchiveError, WorkspaceError)):
            an_archive(repository).export(hostile, tmp_path / f"out-{entries[0][0]}")
        assert not list(outside.iterdir())


def test_an_entry_that_is_another_kind_of_object_is_an_error(repository: GitRepository, tmp_path: Path) -> None:
    good = repository.commit({"x": "text", "d/y": "1"})
    blob, folder = repository.id("HEAD:x"), repository.id("HEAD:d")
    archive = an_archive(repository)
    bare = pygit2.Repository(str(repository.path))
    like_a_folder = str(bare.odb.write(pygit2.enums.ObjectType.BLOB, bare.read(folder)[1]))
    for mode, id in (("40000", blob), ("040000", like_a_folder), ("100644", folder), ("120000", folder)):
        hostile = a_hostile_commit(repository, (mode, b"a", id))
        with pytest.raises((ArchiveError, ArchiveUnreachable)):
            archive.export(hostile, tmp_path / f"out-{mode}")
        archive.export(good, tmp_path / f"base-{mode}")
        with pytest.raises((ArchiveError, ArchiveUnreachable)):
            archive.update(good, hostile, tmp_path / f"base-{mode}")


def test_bytes_are_weighed_once_there_is_much(
    repository: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = repository.commit({"d/film": "x" * 50_000, "b": "y"})
    large = repository.commit({f"d{n}/film": "x" * 50_000 for n in range(50)})
    monkeypatch.setattr(limits, "MANY_BYTES", 150_000)
    monkeypatch.setattr(limits, "MOST_BYTES", 2_000_000)
    archive = an_archive(repository)
    archive.export(small, tmp_path / "base")
    for act, target in (
        (partial(archive.export, large, tmp_path / "all"), "all"),
        (partial(archive.export, large, tmp_path / "some", [f"d{n}" for n in range(45)]), "some"),
        (partial(archive.update, small, large, tmp_path / "base"), "base"),
    ):
        with pytest.raises(WorkspaceError, match=f"revision {large}: there are more bytes: a workspace has at most"):
            act()
        assert sum(path.stat().st_size for path in (tmp_path / target).rglob("film")) < 400_000
    archive.export(large, tmp_path / "few", [f"d{n}" for n in range(30)])
    assert len(list((tmp_path / "few").iterdir())) == 30


def test_what_is_remembered_of_a_repository_is_bounded_and_does_not_stand_for_what_it_holds(
    repository: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A revision that the repository has lost is not told from memory."""
    monkeypatch.setattr(git_objects, "MOST_KEPT", 20_000)
    first = repository.commit({f"{folder}/{folder:02}{file:098}": "" for folder in range(10) for file in range(20)})
    bare = pygit2.Repository(str(repository.path))
    objects = Objects(bare)
    commit = objects.commit(pygit2.Oid(hex=first))
    assert commit is not None
    for entry in bare[commit.tree]:
        assert len(objects.entries(entry.id, PathBudget())) == 20
    # Private: nobody but this test asks how much is kept.
    assert 0 < sum(map(len, objects._folders.values())) <= 20_000 < 10 * 20 * 128
    with pytest.raises(TooManyPaths):
        objects.entries(bare[commit.tree]["0"].id, PathBudget(10))

    archive = an_archive(repository)
    archive.export(first, tmp_path / "out")
    lost = repository.path / "objects" / first[:2] / first[2:]
    lost.unlink()
    archive.heads(("another",))  # a look, which opens the repository anew
    with pytest.raises(NotFound, match="has no commit"):
        archive.export(first, tmp_path / "again")


def test_export_overwrites_nothing(repository: GitRepository, tmp_path: Path) -> None:
    id = repository.commit({"x": "new"})
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x").hardlink_to(tmp_path / "mine")
    with pytest.raises(WorkspaceError, match="File exists"):
        an_archive(repository).export(id, tmp_path / "out")
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_committed_git_folder_is_left_out_of_exports(repository: GitRepository, tmp_path: Path) -> None:
    repository.commit({"x": "1"})
    tree_id, blob = repository.id("HEAD^{tree}"), repository.id("HEAD:x")
    hostile = a_hostile_commit(
        repository, ("40000", b".Git", tree_id), ("40000", b".git", tree_id), ("100644", b"y", blob)
    )
    an_archive(repository).export(hostile, tmp_path / "out")
    assert tree(tmp_path / "out") == {"y": "1"}


def test_a_very_deep_tree_is_an_error_and_not_a_crash(repository: GitRepository, tmp_path: Path) -> None:
    repository.commit({"x": "1"})
    bare = pygit2.Repository(str(repository.path))
    id = repository.id("HEAD^{tree}")
    for _ in range(2500):
        id = str(bare.odb.write(pygit2.enums.ObjectType.TREE, b"40000 d\0" + bytes.fromhex(id)))
    hostile = a_hostile_commit(repository, ("40000", b"d", id))
    try:
        with pytest.raises(WorkspaceError, match="too long"):
            an_archive(repository).export(hostile, tmp_path / "out")
    finally:
        run("rm", "-rf", tmp_path / "out")  # pytest's own removal cannot go so deep


def test_contents_are_kept_byte_by_byte(repository: GitRepository, tmp_path: Path) -> None:
    texts = [
        b"",
        b"\n",
        b"no end",
        b"\r\n\0\n" * 5,
        bytes(range(256)) * 5000,
        os.urandom((1 << 18) + 1),
        b"x" * (1 << 19),
    ]
    contents = {f"{number % 3}/{number}": text for number, text in enumerate(texts)}
    id = repository.commit(contents)
    repository.git("--git-dir", str(repository.path), "repack", "-adfq")
    an_archive(repository).export(id, tmp_path / "out")
    found = {path: (tmp_path / "out" / path).read_bytes() for path in contents}
    assert found == contents


def test_repository_that_lacks_a_file_is_an_error_that_says_so(repository: GitRepository, tmp_path: Path) -> None:
    id = repository.commit({"a": "1", "b": "2", "c": "3"})
    place_of(repository, "b").unlink()
    with pytest.raises(ArchiveUnreachable) as caught:
        an_archive(repository).export(id, tmp_path / "out")
    assert str(repository.path) in str(caught.value)
    assert repository.id("HEAD:b") in str(caught.value)


def test_what_was_committed_is_written_and_not_what_replaces_it(repository: GitRepository, tmp_path: Path) -> None:
    id = repository.commit({"a": "as committed", "b": "another"})
    run("git", "--git-dir", repository.path, "replace", repository.id("HEAD:a"), repository.id("HEAD:b"))
    an_archive(repository).export(id, tmp_path / "out")
    assert tree(tmp_path / "out") == {"a": "as committed", "b": "another"}


@pytest.mark.parametrize("reader", ["git"], indirect=True)  # libgit2 up to 1.9.7 never ends (its issue 7342)
@pytest.mark.parametrize("left", [0, 20, 1 << 18])
def test_repository_with_half_a_file_is_an_error_that_says_so(
    repository: GitRepository, tmp_path: Path, left: int
) -> None:
    id = repository.commit({"a": "1", "b": os.urandom(1 << 19), "c": "3"})
    place = place_of(repository, "b")
    place.chmod(0o644)
    os.truncate(place, left)
    with pytest.raises(ArchiveUnreachable, match=r"git failed \(git: .*" + place.name) as caught:
        an_archive(repository).export(id, tmp_path / "out")
    assert str(repository.path) in str(caught.value)


def place_of(repository: GitRepository, path: str) -> Path:
    """The loose object of a file."""
    id = repository.id(f"HEAD:{path}")
    return repository.path / "objects" / id[:2] / id[2:]


def test_repository_that_would_fetch_what_is_missing_runs_nothing(repository: GitRepository, tmp_path: Path) -> None:
    """A partial clone asks its remote, by a program that its own configuration names."""
    id = repository.commit({"a": "1", "b": "2"})
    place_of(repository, "b").unlink()
    for setting, value in {
        "remote.origin.url": str(repository.work),
        "remote.origin.promisor": "true",
        "remote.origin.uploadPack": f"touch {tmp_path}/was-run; git-upload-pack",
        "protocol.allow": "always",
    }.items():
        run("git", "--git-dir", repository.path, "config", setting, value)
    with pytest.raises(ArchiveUnreachable):
        an_archive(repository).export(id, tmp_path / "out")
    assert not (tmp_path / "was-run").exists()
