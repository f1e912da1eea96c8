"""A Subversion tree is what ``svn export`` writes: texts, links, modes and times, exported at once
or brought forward.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from arkqueue.errors import WorkspaceError
from arkqueue.repository import Archive, locate, open_archive
from arkqueue.repository.subversion import editors
from tests.repositories import SubversionRepository, a_subversion_repository, run
from tests.requirements import a_mount
from tests.system.repository.subversion_histories import RandomHistory, load_project
from tests.system.repository.test_http import Apache, apache, ports
from tests.system.repository.test_update import picture

__all__ = ["apache", "ports"]


def times(folder: Path) -> dict[str, int]:
    """The modification times of all files, in microseconds; a link has none of its own."""
    found, pending, root = {}, [str(folder)], f"{folder}/"
    while pending:
        for entry in os.scandir(pending.pop()):
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                found[entry.path.removeprefix(root)] = entry.stat(follow_symlinks=False).st_mtime_ns // 1000
    return found


def check_revision(archive: Archive, url: str, number: int, tree: Path, place: Path, *options: str) -> None:
    """That ``tree`` and a new export are what ``svn export`` writes."""
    theirs, ours = place / f"theirs-{number}", place / f"ours-{number}"
    run("svn", "export", "-q", *options, "-r", str(number), url, theirs)
    archive.export(str(number), ours)
    expected = picture(theirs)
    assert picture(ours) == expected, f"revision {number}"
    assert picture(tree) == expected, f"revision {number}, brought forward"
    # svn gives no time to a file that only wants to be a link.
    dated = {path: time for path, time in times(theirs).items() if time < 1_750_000_000_000_000}
    assert dated.items() <= (found := times(ours)).items()
    assert times(tree) == found
    run("rm", "-r", theirs, ours)


def check_history(
    repository: SubversionRepository, url: str, seed: int, revisions: int, place: Path, *options: str, **opening: str
) -> None:
    history = RandomHistory(seed)
    for _ in range(revisions):
        history.commit()
    history.load(repository)
    archive, tree = open_archive(locate(url, **opening)), place / "tree"
    archive.export("1", tree)
    for number in range(2, history.head + 1):
        archive.update(str(number - 1), str(number), tree)
        check_revision(archive, url, number, tree, place, *options)
    for before, after in ((history.head, 2), (2, history.head), (history.head, history.head // 2)):
        archive.update(str(before), str(after), tree)
        check_revision(archive, url, after, tree, place, *options)


@pytest.mark.full
@pytest.mark.parametrize("in_memory", [editors.IN_MEMORY, 100])
def test_a_made_history_is_exported_as_svn_exports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: int
) -> None:
    monkeypatch.setattr(editors, "IN_MEMORY", in_memory)
    repository = a_subversion_repository(tmp_path)
    check_history(repository, f"{repository.url}/trunk", 45, 20, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3))
def test_long_made_histories_are_exported_as_svn_exports_them(tmp_path: Path, seed: int) -> None:
    repository = a_subversion_repository(tmp_path)
    check_history(repository, f"{repository.url}/trunk", seed, 100, tmp_path)


@pytest.mark.full
def test_a_served_made_history_is_exported_as_svn_exports_it(tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    with repository.served() as server:
        check_history(repository, f"{server.url}/trunk", 4, 60, tmp_path)


@pytest.mark.full
def test_a_made_history_is_exported_over_http_as_svn_exports_it(apache: Apache, tmp_path: Path) -> None:
    options = ("--username", "bob", "--password", "pass word", "--non-interactive")
    url, opening = f"{apache.http}/trunk", {"username": "bob", "password": "pass word"}
    check_history(apache.repository, url, 5, 40, tmp_path, *options, **opening)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_the_history_of_the_project_is_exported_as_svn_exports_it(tmp_path: Path) -> None:
    project = Path(__file__).parents[3]
    if not (project / ".git").exists():
        pytest.skip("the project lies here without its history")
    repository = a_subversion_repository(tmp_path)
    url, tree = f"{repository.url}/trunk", tmp_path / "tree"
    head = load_project(project, repository, 30)
    archive = open_archive(locate(url))
    archive.export("1", tree)
    for number in range(2, head + 1):
        archive.update(str(number - 1), str(number), tree)
        check_revision(archive, url, number, tree, tmp_path)


def test_bringing_keywords_forward_touches_the_files_that_changed_alone(tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    repository.commit({f"{name}": "$Rev$" for name in "abc"})
    repository.change(*(word for name in "abc" for word in ("propset", "svn:keywords", "Rev", name)))
    repository.commit({"b": "$Rev$\n"})
    archive, tree = open_archive(locate(repository.url)), tmp_path / "tree"
    archive.export("2", tree)
    _, change = archive.update("2", "3", tree)
    assert change is not None
    assert change.made == (b"b",)
    assert {name: (tree / name).read_text() for name in "abc"} == {
        "a": "$Rev: 2 $",
        "b": "$Rev: 3 $\n",
        "c": "$Rev: 2 $",
    }


def test_a_file_that_got_its_old_text_back_shows_who_changed_it_last(tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    repository.commit({"a": "$Rev$ $Author$"})
    repository.propset("svn:keywords", "Rev Author", "a")
    repository.commit({"a": "else"})
    repository.commit({"a": "$Rev$ $Author$"}, author="bob")
    archive, tree = open_archive(locate(repository.url)), tmp_path / "tree"
    archive.export("2", tree)
    archive.update("2", "4", tree)
    assert (tree / "a").read_text() == "$Rev: 4 $ $Author: bob $"


def test_trees_with_other_urls_in_their_keywords_are_told_apart(tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    repository.commit({"a": "$URL$"})
    with repository.served() as server:
        keys = {open_archive(locate(url)).survey("1").tree_key for url in (server.url, repository.url)}
    assert len(keys) == 2


def test_a_date_that_nobody_can_read_stands_in_nobodys_way(tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    repository.commit({"a": "$Rev$ $Date$"})
    repository.propset("svn:keywords", "Rev Date", "a")
    file = repository.path / "db" / "revprops" / "0" / "2"
    file.chmod(0o644)
    file.write_bytes(file.read_bytes().replace(b"-", b"x"))
    open_archive(locate(repository.url)).export("2", tmp_path / "tree")
    assert (tmp_path / "tree" / "a").read_text() == "$Rev: 2 $ $Date: $"


@pytest.mark.parametrize(("length", "disk"), [(300_000, "200k"), (1_500_000, "2m")])
def test_a_disk_that_fills_while_a_file_is_translated_is_told_as_such(tmp_path: Path, length: int, disk: str) -> None:
    repository = a_subversion_repository(tmp_path)
    repository.commit({"a": b"x" * length + b"\n$Rev$"})
    repository.propset("svn:keywords", "Rev", "a")
    (tmp_path / "small").mkdir()
    with a_mount("-t", "tmpfs", "-o", f"size={disk}", "tmpfs", tmp_path / "small"):
        with pytest.raises(WorkspaceError) as raised:
            open_archive(locate(repository.url)).export("2", tmp_path / "small" / "tree")
        assert isinstance(raised.value.__cause__, OSError)
        assert raised.value.__cause__.errno == errno.ENOSPC
