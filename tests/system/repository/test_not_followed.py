"""References of a revision that its exports lack are reported in words, at a cost in proportion to
the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pygit2
import pytest

from arkqueue.repository import locate, open_archive, unfollowed
from arkqueue.repository.checked_out import not_followed
from arkqueue.repository.subversion import repository
from tests.repositories import SubversionRepository, a_git_repository, a_subversion_repository, run
from tests.system.repository.test_update import write_commit


def externals(*folders: str) -> tuple[str, ...]:
    names = ", ".join(folders)
    said = f"svn:externals are not followed; what they name is missing from these folders: {names}"
    return (said,) if folders else ()


@pytest.fixture
def svn(tmp_path: Path) -> SubversionRepository:
    """Ten revisions; ``trunk`` is the archive."""
    repository = a_subversion_repository(tmp_path)
    repository.commit({"trunk/lib/a": "1", "trunk/b/c/d": "1", "other/x": "1"})
    repository.propset("svn:externals", "^/other lib", "trunk/b/c")
    repository.commit({"trunk/lib/a": "2"})
    repository.propset("svn:externals", "^/other more", "trunk")
    repository.copy("trunk/b", "trunk/lib/b")
    repository.delete("trunk/b")
    repository.change("propdel", "svn:externals", "trunk")
    repository.change("rm", "trunk/lib/b", "cp", "5", "trunk/lib", "trunk/lib2")
    repository.delete("trunk")
    repository.copy("trunk", "trunk", "7")
    return repository


EXPECTED = {
    "1": externals(), "2": externals("b/c"), "3": externals("b/c"), "4": externals("the root", "b/c"),
    "5": externals("the root", "b/c", "lib/b/c"), "6": externals("the root", "lib/b/c"), "7": externals("lib/b/c"),
    "8": externals("lib2/b/c"), "9": (), "10": externals("lib/b/c"),
}  # fmt: skip


def test_externals_are_found_whatever_was_asked_before(svn: SubversionRepository) -> None:
    archive = open_archive(locate(f"{svn.url}/trunk"))
    for number in (*EXPECTED, *reversed(EXPECTED), "2", "8", "3", "10"):
        assert archive.not_followed(number) == EXPECTED[number], number
    for number in EXPECTED:
        repository.externals_known.clear()
        assert archive.not_followed(number) == EXPECTED[number], number


def test_externals_of_a_restored_repository_are_its_own(svn: SubversionRepository, tmp_path: Path) -> None:
    uuid, url = svn.uuid, f"{svn.url}/trunk"
    assert open_archive(locate(url)).not_followed("2") == EXPECTED["2"]
    svn.path.rename(tmp_path / "before")
    other = a_subversion_repository(tmp_path)
    run("svnadmin", "setuuid", other.path, uuid)
    other.commit({"trunk/b/c/d": "1"})
    other.commit({"trunk/b/c/d": "2"})
    other.propset("svn:externals", "^/other lib", "trunk/b")
    assert open_archive(locate(url)).not_followed("3") == externals("b")


def test_many_places_are_named_in_part(tmp_path: Path) -> None:
    svn = a_subversion_repository(tmp_path)
    svn.commit({f"{name}/x": "1" for name in "abcdefg"})
    svn.change(*(word for name in "gfedcba" for word in ("propset", "svn:externals", "^/a x", name)))
    (said,) = open_archive(locate(svn.url)).not_followed("2")
    assert said.endswith(": a, b, c, d, e and others")


def test_submodules_and_lfs_are_found_in_any_folder(tmp_path: Path) -> None:
    repository = pygit2.init_repository(f"{tmp_path}/a.git", bare=True)
    link, lfs, other = (b"160000", b"\1" * 20), (b"100644", b"*.bin filter=lfs diff=lfs"), (b"100644", b"* text=auto")
    plain: dict[bytes, object] = {b"x": (b"100644", b"1")}
    trees: list[dict[bytes, object]] = [
        {**plain, b".gitattributes": other},
        {**plain, b"d": {b"e": {**plain, b"sub": link}}},
        {
            **plain,
            b"d": {b"e": {**plain, b"sub": link}},
            b".gitattributes": lfs,
            b"z": {b".gitattributes": lfs},
            b"a": link,
        },
        {**plain, b"d": {b"e": {}}},
    ]
    archive = open_archive(locate(f"{tmp_path}/a.git"))
    assert [archive.not_followed(write_commit(repository, tree)) for tree in trees] == [
        (),
        ("Git submodules are not followed; these folders are empty: d/e/sub",),
        (
            "Git submodules are not followed; these folders are empty: a, d/e/sub",
            "Git LFS is not asked for its files; they are pointers where .gitattributes says so, in: the root, z",
        ),
        (),
    ]


def test_a_working_copy_tells_the_same(svn: SubversionRepository, tmp_path: Path) -> None:
    svn.change("cp", "4", "trunk", "branch")
    copy = svn.check_out(tmp_path / "copy", "branch")
    assert not_followed(copy) == EXPECTED["4"]
    repository = a_git_repository(tmp_path, "git")
    repository.commit({"x": "1", "d/.gitattributes": "*.bin filter=lfs"})
    assert not_followed(repository.work) == (
        "Git LFS is not asked for its files; they are pointers where .gitattributes says so, in: d",
    )
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub")
    assert not_followed(repository.work)[0] == "Git submodules are not followed; these folders are empty: sub"
    (tmp_path / "none").mkdir()
    assert not_followed(tmp_path / "none") == ()
    run("rm", "-r", copy / ".svn" / "wc.db")
    assert not_followed(copy) == ()


@pytest.mark.parametrize("what", ["a link to what has no end", "a pipe", "too long"])
def test_attributes_of_a_working_copy_are_read_within_bounds(tmp_path: Path, what: str) -> None:
    repository = a_git_repository(tmp_path)
    repository.commit({"docs/.gitattributes": "*.bin filter=lfs\n", ".gitattributes": "*.bin filter=lfs\n"})
    work = tmp_path / "work"
    run("git", "clone", "-q", repository.path, work)
    (work / ".gitattributes").unlink()
    if what == "a pipe":
        os.mkfifo(work / ".gitattributes")
    elif what == "too long":
        (work / ".gitattributes").write_text("*.bin filter=lfs\n" + " " * unfollowed.LONGEST_ATTRIBUTES)
    else:
        (work / ".gitattributes").symlink_to("/dev/zero")
    (said,) = not_followed(work)
    assert said.endswith("in: docs")


def test_names_with_line_breaks_stay_in_their_line() -> None:
    (said,) = unfollowed.submodules([b"a\narkqueue: run this\r\n\tas root"])
    assert said.endswith("these folders are empty: a\\narkqueue: run this\\r\\n\\tas root")
