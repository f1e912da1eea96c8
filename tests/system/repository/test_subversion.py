"""Subversion archives, against real repositories and svnserve."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Thread

import pytest

from arkqueue.errors import ArchiveMismatch, ArchiveUnreachable, NotFound, WorkspaceError
from arkqueue.model import ArchiveKind, Origin, Revision, SourceFile
from arkqueue.repository import (
    TOO_LONG,
    Archive,
    Location,
    limits,
    linked,
    locate,
    no_folder,
    open_archive,
)
from arkqueue.repository.limits import TooManyPaths
from tests.repositories import Link, SubversionRepository, a_subversion_repository, reaches, run, said


@pytest.fixture
def repository(tmp_path: Path) -> SubversionRepository:
    return a_subversion_repository(tmp_path)


def an_archive(repository: SubversionRepository, folder: str = "") -> Archive:
    return open_archive(locate(str(repository.path / folder)))


def numbers(archive: Archive, known: int, head: str, limit: int = 1000) -> list[int]:
    revision = Revision(str(known), known, "", datetime.now(UTC), "")
    return [found.number for found in archive.advance("", revision, head, limit=limit).revisions]


def tree(folder: Path) -> dict[str, str]:
    """Every file and symlink below a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_file():
            found[name] = path.read_text()
    return found


# Registration


def test_identity_names_root_uuid_and_folder(repository: SubversionRepository) -> None:
    repository.commit({"a b/trunk/x": "1"})
    identity = an_archive(repository, "a b/trunk").identity()
    assert (identity.kind, identity.repository) == (ArchiveKind.SUBVERSION, repository.url)
    assert (identity.uuid, identity.folder) == (repository.uuid, "a b/trunk")
    for given in (repository.uuid.upper(), repository.url, repository.url + "/", str(repository.path)):
        assert reaches(given, identity)
    assert not reaches(str(repository.path) + "2", identity)


def test_baseline_is_the_head_with_its_author_date_and_message(repository: SubversionRepository) -> None:
    repository.commit({"x": "1"}, message="Größe", author="ada")
    baseline = an_archive(repository).baseline("")
    assert baseline is not None
    assert (baseline.id, baseline.number, baseline.author, baseline.message) == ("1", 1, "ada", "Größe")
    assert abs(datetime.now(UTC) - baseline.date) < timedelta(hours=1)
    assert baseline.origin is None


def test_path_beyond_ascii_is_found_in_the_locale_that_services_have(tmp_path: Path) -> None:
    folder = tmp_path / "größe"
    folder.mkdir()
    repository = a_subversion_repository(folder)
    repository.commit({"x": "1"})
    program = "import sys; from arkqueue.repository import *; print(open_archive(locate(sys.argv[1])).baseline('').id)"
    assert run(sys.executable, "-c", program, repository.path, LC_ALL="C") == "1\n"


def test_baseline_of_an_empty_repository_is_revision_0(repository: SubversionRepository) -> None:
    baseline = an_archive(repository).baseline("")
    assert baseline is not None
    assert (baseline.number, baseline.author) == (0, "")


def test_baseline_of_a_folder_is_the_last_revision_that_touched_it(repository: SubversionRepository) -> None:
    repository.mkdir("other")
    repository.commit({"trunk/x": "1"})
    repository.commit({"other/x": "1"})
    archive = an_archive(repository, "trunk")
    assert [archive.baseline("", at).number for at in (None, "3", "2", "r1", "HEAD")] == [2, 2, 2, 1, 2]  # type: ignore[union-attr]


@pytest.mark.parametrize("at", ["7", "x", "-1", "٣"])
def test_baseline_at_no_revision_is_not_found(repository: SubversionRepository, at: str) -> None:
    with pytest.raises(NotFound, match="has no revision"):
        an_archive(repository).baseline("", at)


def test_it_has_every_revision_up_to_the_youngest(repository: SubversionRepository) -> None:
    repository.commit({"trunk/x": "1"})
    repository.commit({"other/x": "1"})
    archive = an_archive(repository, "trunk")
    assert [archive.has(revision) for revision in ("0", "2", "3", "x", "9" * 5000)] == [True, True, False, False, False]


def test_a_folder_that_does_not_exist_is_not_found(repository: SubversionRepository) -> None:
    repository.commit({"trunk/x": "1"})
    with pytest.raises(NotFound, match="is not a folder"):
        an_archive(repository, "trnk").baseline("")


# The ledger


def test_every_revision_counts_at_the_root_also_empty_ones(repository: SubversionRepository) -> None:
    repository.commit({"x": "1"})
    repository.empty()
    repository.propset("p", "v", "")
    archive = an_archive(repository)
    assert archive.heads() == {"": "3"}
    assert numbers(archive, 0, "3") == [1, 2, 3]
    assert numbers(archive, 2, "3") == [3]
    assert numbers(archive, 3, "3") == []


def test_a_limit_cuts_the_list_and_says_so(repository: SubversionRepository) -> None:
    for text in "abcde":
        repository.commit({"trunk/x": text})
    repository.mkdir("other")
    archive = an_archive(repository, "trunk")
    assert numbers(archive, 1, "6", limit=2) == [2, 3]
    known = archive.baseline("", "1")
    assert not archive.advance("", known, "6", limit=3).complete
    assert archive.advance("", known, "6", limit=4).complete


def test_a_folder_counts_what_touches_it_and_nothing_else(repository: SubversionRepository) -> None:
    repository.commit({"p/trunk/x": "1"})  # 1
    repository.commit({"other": "1"})  # 2: elsewhere
    repository.commit({"p/trunk2": "1"})  # 3: a name that only begins the same
    repository.propset("a", "b", "p")  # 4: a property of the parent
    repository.propset("a", "b", "p/trunk")  # 5: a property of the folder
    repository.empty()  # 6
    repository.commit({"p/trunk/x": "2"})  # 7
    repository.move("p", "q")  # 8: gone with its parent
    repository.commit({"q/trunk/x": "3"})  # 9: elsewhere
    repository.copy("q", "p")  # 10: back with its parent
    repository.delete("p/trunk")  # 11
    repository.copy("p", "p/trunk", "7")  # 12: replaced by something else
    repository.commit({"p/trunk/trunk/x": "9"})  # 13
    assert numbers(an_archive(repository, "p/trunk"), 0, "13") == [1, 5, 7, 8, 10, 11, 12, 13]


def test_a_folder_that_is_not_there_before_or_after_is_not_touched(repository: SubversionRepository) -> None:
    repository.mkdir("p")  # 1: no trunk yet
    repository.commit({"p/trunk/x": "1"})  # 2
    repository.delete("p/trunk")  # 3
    repository.move("p", "q")  # 4: without it
    repository.change("rm", "q", "mkdir", "p")  # 5
    repository.copy("p", "p/trunk", "3")  # 6
    assert numbers(an_archive(repository, "p/trunk"), 0, "6") == [2, 3, 6]


def test_a_folder_that_comes_from_where_nobody_may_look_is_touched(repository: SubversionRepository) -> None:
    repository.commit({"secret/p/trunk/x": "1"})  # 1
    repository.move("secret/p", "p")  # 2: the server does not say from where
    repository.commit({"p/trunk/x": "2"})  # 3
    with repository.served(users={"bob": "w"}, access="[/]\nbob = r\n[/secret]\nbob =\n") as server:
        archive = open_archive(Location(ArchiveKind.SUBVERSION, server.url + "/p/trunk", "bob", "w"))
        assert numbers(archive, 0, archive.heads()[""]) == [2, 3]


def test_a_quiet_folder_is_not_searched_twice_and_misses_nothing(repository: SubversionRepository) -> None:
    repository.commit({"trunk/x": "1"})
    repository.commit({"other": "1"})
    archive = an_archive(repository, "trunk")
    assert numbers(archive, 1, "2") == []
    repository.commit({"trunk/x": "2"})
    assert numbers(archive, 1, archive.heads()[""]) == [3]
    assert numbers(archive, 1, "3") == [3]


def test_a_quiet_folder_of_a_restored_backup_is_searched_anew(repository: SubversionRepository, tmp_path: Path) -> None:
    """The folder's last revision is in the backup, so that nothing is amiss but what was searched after it."""
    repository.commit({"trunk/x": "1"})
    shutil.copytree(repository.path, tmp_path / "backup")
    for text in "23456":
        repository.commit({"other": text})
    archive = an_archive(repository, "trunk")
    assert numbers(archive, 1, archive.heads()[""]) == []
    shutil.rmtree(repository.path)
    (tmp_path / "backup").rename(repository.path)
    repository.commit({"trunk/x": "2"})
    assert numbers(archive, 1, archive.heads()[""]) == [2]


def test_a_restored_folder_is_searched_anew_also_where_it_has_grown_past_what_was_searched(
    repository: SubversionRepository, tmp_path: Path
) -> None:
    repository.commit({"trunk/x": "1"})
    shutil.copytree(repository.path, tmp_path / "backup")
    for text in "23":
        repository.commit({"other": text})
    archive = an_archive(repository, "trunk")
    assert numbers(archive, 1, archive.heads()[""]) == []
    shutil.rmtree(repository.path)
    (tmp_path / "backup").rename(repository.path)
    for text in "234":
        repository.commit({"trunk/x": text})
    assert numbers(archive, 1, archive.heads()[""]) == [2, 3, 4]


def test_an_origin_property_is_read_back(repository: SubversionRepository) -> None:
    repository.commit({"x": "1"})
    run(
        "svn",
        "propset",
        "-q",
        "--revprop",
        "-r1",
        "arkqueue:origin",
        "A@1/t; generation=3",
        repository.url,
        check=False,
    )
    (repository.path / "hooks" / "pre-revprop-change").write_text("#!/bin/sh\n")
    (repository.path / "hooks" / "pre-revprop-change").chmod(0o755)
    run("svn", "propset", "-q", "--revprop", "-r1", "arkqueue:origin", "A@1/t; generation=3", repository.url)
    assert an_archive(repository).advance("", None, "1").revisions[-1].origin == Origin("A@1/t", 3)


# Histories that do not match


def test_the_last_known_revision_is_recognised(repository: SubversionRepository) -> None:
    repository.commit({"x": "1"})
    archive = an_archive(repository)
    known = archive.baseline("")
    assert known is not None
    repository.commit({"x": "2"})
    archive.check_known(known)


def test_a_revision_that_may_be_looked_at_now_is_no_other_one(repository: SubversionRepository) -> None:
    repository.commit({"open/x": "1", "secret/x": "1"})
    repository.commit({"secret/x": "2"})
    known = []
    for rights in ("", "r", ""):
        with repository.served(users={"bob": "w"}, access=f"[/]\nbob = r\n[/secret]\nbob = {rights}\n") as server:
            archive = open_archive(Location(ArchiveKind.SUBVERSION, server.url, "bob", "w"))
            for one in known:
                archive.check_known(one)
            known += archive.advance("", known[-1] if known else None, "2").revisions or [archive.baseline("")]
    assert [(one.number, one.author) for one in known[1:]] == [(2, ""), (2, "ada"), (2, "")]


def test_a_head_below_the_known_one_is_a_mismatch(repository: SubversionRepository) -> None:
    known = Revision("2", 2, "ada", datetime.now(UTC), "")
    with pytest.raises(ArchiveMismatch, match=r"only 0 revisions.*rewind NAME REV"):
        an_archive(repository).check_known(known)
    with pytest.raises(ArchiveMismatch):
        an_archive(repository).advance("", known, "1")


def test_a_restored_backup_with_another_future_is_a_mismatch_and_is_then_read_as_it_is(
    repository: SubversionRepository, tmp_path: Path
) -> None:
    repository.commit({"_workflows/a.yaml": "one"})
    shutil.copytree(repository.path, tmp_path / "backup")
    repository.commit({"_workflows/a.yaml": "two"}, author="ada")
    archive = an_archive(repository)
    known = archive.baseline("")
    assert known is not None
    assert archive.read_workflows("2")[0].text == b"two"
    shutil.rmtree(repository.path)
    shutil.copytree(tmp_path / "backup", repository.path)
    repository.commit({"_workflows/a.yaml": "TWO"}, author="ada")
    with pytest.raises(ArchiveMismatch, match="has another revision 2"):
        archive.check_known(known)
    # libsvn's cache for the whole process must not answer from the lost future.
    assert archive.heads() == {"": "2"}
    assert archive.read_workflows("2")[0].text == b"TWO"
    assert an_archive(repository).read_workflows("2")[0].text == b"TWO"


def test_another_uuid_is_a_mismatch(repository: SubversionRepository) -> None:
    repository.commit({"x": "1"})
    archive = an_archive(repository)
    archive.identity()
    registered = Location(ArchiveKind.SUBVERSION, repository.url, uuid=repository.uuid)
    run("svnadmin", "setuuid", repository.path)
    for one in (archive, open_archive(registered)):
        with pytest.raises(ArchiveMismatch, match="another repository"):
            one.heads()


# Repositories that cannot be read


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("file:///nowhere/at/all", "there is no Subversion repository"),
        ("svn://127.0.0.1:1/x", "connection refused"),
        ("svn://nohost.invalid/x", "host name is unknown"),
        ("http://127.0.0.1:1/x", "connection refused"),
        ("foo://x/y", "not a URL that Subversion accepts"),
    ],
)
def test_what_cannot_be_reached_is_said_in_plain_words(url: str, fault: str) -> None:
    with pytest.raises(ArchiveUnreachable, match=fault) as raised:
        open_archive(Location(ArchiveKind.SUBVERSION, url)).heads()
    assert raised.value.thing == url
    assert raised.value.remedy


def test_a_repository_that_vanished_is_unreachable_until_it_is_back(repository: SubversionRepository) -> None:
    repository.commit({"x": "1"})
    archive = an_archive(repository)
    archive.heads()
    repository.path.rename(repository.path.with_name("away"))
    with pytest.raises(ArchiveUnreachable):
        archive.heads()
    repository.path.with_name("away").rename(repository.path)
    assert archive.heads() == {"": "1"}


@pytest.mark.parametrize("is_served", [False, True])
def test_a_repository_of_which_a_file_is_gone_is_unreachable_until_it_is_back(
    repository: SubversionRepository, is_served: bool
) -> None:
    repository.commit({"x": "1"})
    current = repository.path / "db" / "current"
    with repository.served() as server:
        archive = open_archive(locate(server.url if is_served else str(repository.path)))
        assert archive.heads() == {"": "1"}
        away = current.rename(current.with_name("away"))
        with pytest.raises(ArchiveUnreachable, match=r"Can't open file .*current"):
            archive.heads()
        away.rename(current)
        assert archive.heads() == {"": "1"}


def test_a_revision_that_does_not_exist_is_not_found(repository: SubversionRepository, tmp_path: Path) -> None:
    archive = an_archive(repository)
    for read in (
        lambda: archive.read_workflows("5"),
        lambda: archive.workflows_key("5"),
        lambda: archive.changed_paths(None, "5"),
        lambda: archive.export("5", tmp_path / "out"),
        lambda: archive.export("abc", tmp_path / "out"),
    ):
        with pytest.raises(NotFound):
            read()
    assert archive.read_workflows("0") == ()


# Servers


def test_a_served_repository_is_read_with_name_and_password(repository: SubversionRepository, tmp_path: Path) -> None:
    repository.commit({"trunk/_workflows/a.yaml": "one", "trunk/d/x": "1" * 300_000})
    repository.move("trunk/d", "trunk/e")
    with repository.served(users={"bob": "pass word"}) as server:
        url = server.url + "/trunk"
        archive = open_archive(Location(ArchiveKind.SUBVERSION, url, "bob", "pass word"))
        assert archive.identity().folder == "trunk"
        assert numbers(archive, 0, archive.heads()[""]) == [1, 2]
        assert archive.read_workflows("2") == (SourceFile("_workflows/a.yaml", b"one"),)
        assert archive.changed_paths("1", "2") == ("d/x", "e/x")
        archive.export("2", tmp_path / "out")
        assert tree(tmp_path / "out") == {"_workflows/a.yaml": "one", "e/x": "1" * 300_000}
        for name, password in (("bob", "wrong"), (None, None)):
            with pytest.raises(ArchiveUnreachable, match=r"refuses|asks for"):
                open_archive(Location(ArchiveKind.SUBVERSION, url, name, password)).heads()


BLOCKS_LEFT = """
import gc, sys
from arkqueue.repository import locate, open_archive

def scan():
    for _ in range(20):
        open_archive(locate(sys.argv[1], username="bob", password="pass word")).heads()
    gc.collect()
    return sys.getallocatedblocks()

scan()  # what the first scan imports and caches stays
before = scan()
print(scan() - before)
"""
"""A program that scans a repository 60 times and prints how many blocks of memory the last 20 scans have left."""


@pytest.mark.full
def test_scans_of_a_repository_leave_nothing_in_memory(repository: SubversionRepository) -> None:
    with repository.served(users={"bob": "pass word"}) as server:
        for url in (repository.url, server.url):
            assert int(run(sys.executable, "-c", BLOCKS_LEFT, url)) < 20


def test_a_folder_is_watched_by_who_may_read_nothing_else(repository: SubversionRepository) -> None:
    repository.commit({"secret/x": "1"})
    repository.commit({"trunk/x": "1"})
    repository.commit({"secret/x": "2"})
    repository.commit({"trunk/x": "2"})
    with repository.served(users={"bob": "w"}, access="[/]\n* =\n[/trunk]\nbob = r\n") as server:
        archive = open_archive(Location(ArchiveKind.SUBVERSION, server.url + "/trunk", "bob", "w"))
        assert numbers(archive, 0, archive.heads()[""]) == [2, 4]


def test_a_server_that_was_started_anew_is_asked_again_without_an_error(repository: SubversionRepository) -> None:
    repository.commit({"x": "1"})
    with repository.served() as server:
        archive = open_archive(locate(server.url))
        assert archive.heads() == {"": "1"}
        server.drop_connections()
        assert archive.heads() == {"": "1"}
    with pytest.raises(ArchiveUnreachable):
        archive.heads()


# Workflow files


def test_workflow_files_are_the_direct_children_with_the_right_ends(repository: SubversionRepository) -> None:
    repository.commit(
        {
            "_workflows/b.yaml": b"\xff\xfe",
            "_workflows/a.json": "[]",
            "_workflows/c.yml": "",
            "_workflows/README": "no",
            "_workflows/sub/d.yaml": "no",
            "_workflows/e.yaml/f": "a folder",
            "_workflows/link.yaml": Link("b.yaml"),
            "x/_workflows/y.yaml": "no",
        }
    )
    archive = an_archive(repository)
    assert archive.read_workflows("1") == (
        SourceFile("_workflows/a.json", b"[]"),
        SourceFile("_workflows/b.yaml", b"\xff\xfe"),
        SourceFile("_workflows/c.yml", b""),
        linked("_workflows/link.yaml"),
    )
    assert [file.path for file in an_archive(repository, "x").read_workflows("1")] == ["_workflows/y.yaml"]


def test_a_workflow_file_over_the_limit_is_not_read(repository: SubversionRepository) -> None:
    repository.commit({"_workflows/a.yaml": "x" * 2**20, "_workflows/b.yaml": "x" * (2**20 + 1)})
    first, second = an_archive(repository).read_workflows("1")
    assert first.text == b"x" * 2**20
    assert second.text == TOO_LONG


def test_a_workflow_folder_that_is_a_file_or_a_link_is_a_fault(repository: SubversionRepository) -> None:
    repository.commit({"_workflows": "a file"})
    repository.delete("_workflows")
    repository.commit({"_workflows": Link("x")})
    archive = an_archive(repository)
    assert archive.read_workflows("1") == (no_folder("_workflows"),)
    assert archive.read_workflows("3") == (linked("_workflows"),)
    assert archive.workflows_key("1") != archive.workflows_key("3")
    for revision in ("0", "2"):
        assert archive.read_workflows(revision) == ()
        assert archive.workflows_key(revision) == ""


def test_the_workflows_key_changes_with_the_folder_only(repository: SubversionRepository) -> None:
    repository.commit({"trunk/_workflows/a.yaml": "one"})  # 1
    repository.commit({"trunk/x": "1"})  # 2
    repository.copy("trunk", "branch")  # 3
    repository.commit({"trunk/_workflows/a.yaml": "two", "branch/_workflows/a.yaml": "TWO"})  # 4
    repository.change("rm", "trunk", "cp", "4", "branch", "trunk")  # 5: made in 4, as the other was
    key = an_archive(repository, "trunk").workflows_key
    assert key("1") == key("2") == key("3")
    assert len({key("3"), key("4"), key("5")}) == 3
    assert key("5") == an_archive(repository, "branch").workflows_key("4")


def test_the_workflows_key_is_no_other_folders_that_nobody_may_look_at(repository: SubversionRepository) -> None:
    repository.commit({f"secret/{name}/_workflows/{name}.yaml": name for name in ("a", "b")})  # 1
    repository.copy("secret/a", "app", "1")  # 2
    repository.change("rm", "app", "cp", "1", "secret/b", "app")  # 3
    with repository.served(users={"bob": "w"}, access="[/]\nbob = r\n[/secret]\nbob =\n") as server:
        archive = open_archive(Location(ArchiveKind.SUBVERSION, server.url + "/app", "bob", "w"))
        assert archive.workflows_key("2") != archive.workflows_key("3")
        assert [file.path for file in archive.read_workflows("3")] == ["_workflows/b.yaml"]


# The tree difference


def test_changed_paths_are_the_files_that_differ(repository: SubversionRepository) -> None:
    repository.commit({"a/1": "1", "a/b/2": "2", "c": "3", "d": "4", "e/f": "5", "g h/ü#%": "6"})  # 1
    repository.commit({"c": "changed", "new/x": "1"})  # 2
    repository.move("a", "moved")  # 3
    repository.propset("p", "v", "d")  # 4
    repository.propset("p", "v", "e")  # 5: a folder's
    repository.mkdir("empty")  # 6
    repository.commit({"c": "3"})  # 7: as it was in 1
    repository.change("rm", "e", "put", repository.a_file("now a file"), "e")  # 8
    repository.delete("g h")  # 9
    changed = an_archive(repository).changed_paths
    assert changed(None, "1") == changed("0", "1") == ("a/1", "a/b/2", "c", "d", "e/f", "g h/ü#%")
    assert changed("1", "2") == ("c", "new/x")
    assert changed("2", "3") == ("a/1", "a/b/2", "moved/1", "moved/b/2")
    assert changed("3", "4") == ("d",)
    assert changed("4", "5") == changed("5", "6") == ()
    assert "c" not in changed("1", "7")
    assert changed("7", "8") == ("e", "e/f")
    assert changed("8", "9") == ("g h/ü#%",)
    assert changed("9", "7") == ("e", "e/f", "g h/ü#%")


def test_changed_paths_of_a_folder_that_comes_and_goes(repository: SubversionRepository) -> None:
    repository.mkdir("other")  # 1
    repository.commit({"trunk/a": "1", "trunk/b/c": "2"})  # 2
    repository.delete("trunk")  # 3
    repository.commit({"trunk/a": "1", "trunk/d": "3"})  # 4
    changed = an_archive(repository, "trunk").changed_paths
    assert changed("1", "2") == changed("2", "3") == ("a", "b/c")
    assert changed("3", "4") == ("a", "d")
    assert changed("2", "4") in {("b/c", "d"), ("a", "b/c", "d")}  # `a` is another file with the same text
    assert changed(None, "3") == changed("1", "3") == ()


def test_changes_say_what_happened_to_each_file(repository: SubversionRepository) -> None:
    repository.commit({"a/1": "1", "a/b/2": "2", "c": "3", "d": "4", "e/f": "5", ".svn/x": "6"})  # 1
    repository.commit({"c": "changed", "new/x": "1"})  # 2
    repository.move("a", "moved")  # 3
    repository.propset("svn:executable", "*", "d")  # 4
    repository.change("rm", "e", "put", repository.a_file("now a file"), "e")  # 5
    repository.change("rm", "d", "put", repository.a_file("replaced"), "d")  # 6
    changes = an_archive(repository).changes
    assert said(changes(None, "1")) == said(changes("0", "1")) == "A a/1, A a/b/2, A c, A d, A e/f"
    assert said(changes("1", "2")) == "M c, A new/x"
    assert said(changes("2", "1")) == "M c, D new/x"
    assert said(changes("2", "3")) == "D a/1, D a/b/2, A moved/1, A moved/b/2"
    assert said(changes("3", "4")) == "M d"
    assert said(changes("4", "5")) == "A e, D e/f"
    assert said(changes("5", "4")) == "D e, A e/f"
    assert said(changes("5", "6")) == "M d"
    assert changes("6", "6") == ()
    for base, id in (("7", "1"), ("1", "7"), ("x", "1")):
        with pytest.raises(NotFound):
            changes(base, id)


@pytest.mark.parametrize("is_decodable", [True, False], ids=["by the difference", "node by node"])
def test_a_file_whose_keywords_alone_differ_is_a_change_of_the_workspace(
    repository: SubversionRepository, tmp_path: Path, is_decodable: bool
) -> None:
    """It was replaced by a file with the same text, or its folder by a copy of another one."""
    repository.commit({"trunk/a": "$Rev$", "trunk/b": "same", "other/x": "1"})  # 1
    repository.propset("svn:keywords", "Rev", "trunk/a")  # 2
    text = repository.a_file("$Rev$")
    repository.change("rm", "trunk/a", "put", text, "trunk/a", "propset", "svn:keywords", "Rev", "trunk/a")  # 3
    if not is_decodable:
        (tmp_path / "value").write_bytes(b"\xff")
        repository.change("propsetf", "own", str(tmp_path / "value"), "trunk/b")  # 4
    archive = an_archive(repository, "trunk")
    assert archive.changed_paths("2", repository.head) == (() if is_decodable else ("b",))
    assert said(archive.changes("2", repository.head)) == ("M a" if is_decodable else "M a, M b")
    for id in ("2", "3"):
        archive.export(id, tmp_path / id)
        assert (tmp_path / id / "a").read_text() == f"$Rev: {id} $"


def test_changes_of_a_folder_are_those_of_its_workspace(repository: SubversionRepository) -> None:
    repository.commit({"old/a": "1", "old/b/c": "2", "elsewhere": "3"})  # 1
    repository.move("old", "trunk")  # 2
    repository.commit({"trunk/a": "4", "elsewhere": "5"})  # 3
    repository.delete("trunk")  # 4
    changes = an_archive(repository, "trunk").changes
    assert said(changes(None, "3")) == said(changes("1", "3")) == "A a, A b/c"
    assert said(changes("2", "3")) == said(changes("3", "2")) == "M a"
    assert said(changes("3", "4")) == "D a, D b/c"


# Exports


def test_export_keeps_bits_and_links_and_follows_no_externals(repository: SubversionRepository, tmp_path: Path) -> None:
    repository.commit(
        {
            "trunk/run": "#!/bin/sh",
            "trunk/d/id": "$Id$\r\n",
            "trunk/link": Link("d/id"),
            "trunk/empty": "",
            "lib/x": "1",
        }
    )
    repository.propset("svn:executable", "*", "trunk/run")
    repository.propset("svn:keywords", "Id", "trunk/d/id")
    repository.change("propset", "svn:eol-style", "LF", "trunk/run", "mkdir", "trunk/folder")
    repository.propset("svn:externals", "^/lib ext", "trunk")
    out = tmp_path / "out"
    an_archive(repository, "trunk").export(repository.head, out)
    assert set(os.listdir(out)) == {"run", "d", "link", "empty", "folder"}
    assert (out / "d/id").read_bytes().startswith(b"$Id: id 3 20")
    assert os.readlink(out / "link") == "d/id"
    assert (out / "empty").read_bytes() == b""
    assert stat.S_IMODE((out / "run").stat().st_mode) & 0o111
    assert not stat.S_IMODE((out / "d/id").stat().st_mode) & 0o111


def test_special_files_are_the_links_that_svn_makes_of_them(repository: SubversionRepository, tmp_path: Path) -> None:
    texts = {"line": "link x\n", "lines": "link x\nlink y\n", "nul": "link x\0y", "empty": "link ", "none": "text"}
    repository.commit(dict(texts))
    repository.change(*(word for name in texts for word in ("propset", "svn:special", "*", name)))
    repository.propset("svn:executable", "*", "none")
    an_archive(repository).export("3", tmp_path / "tree")
    assert tree(tmp_path / "tree") == {
        "line": "-> x",
        "lines": "-> x",
        "nul": "-> x",
        "empty": "link ",
        "none": "text",  # svn would not export the first one at all
    }
    assert (tmp_path / "tree" / "none").stat().st_mode & 0o111


@pytest.fixture
def undecodable(repository: SubversionRepository, tmp_path: Path) -> SubversionRepository:
    """Its second revision has properties that are not UTF-8; its first one, an author."""
    repository.commit({"trunk/d/f": "1", "trunk/d/g": "1", "trunk/x": "2", "trunk/link": Link("x"), "trunk/.git/y": ""})
    (tmp_path / "value").write_bytes(b"v\xff\0v")
    changes = (("propsetf", "user:bin", str(tmp_path / "value"), path) for path in ("trunk/d", "trunk/d/f"))
    repository.change("put", repository.a_file("2"), "trunk/d/g", *(word for change in changes for word in change))
    repository.commit({"trunk/x": "3"})
    file = repository.path / "db" / "revprops" / "0" / "1"
    file.write_bytes(file.read_bytes().replace(b"V 3\nada", b"V 3\n\xe9da"))
    return repository


@pytest.mark.parametrize("is_served", [False, True])
def test_properties_that_are_not_utf_8_stand_in_nobodys_way(
    undecodable: SubversionRepository, tmp_path: Path, is_served: bool
) -> None:
    with undecodable.served() as server:
        archive = open_archive(locate((server.url if is_served else undecodable.url) + "/trunk"))
        assert archive.changed_paths(None, "1") == (".git/y", "d/f", "d/g", "link", "x")
        assert archive.changed_paths("1", "2") == ("d/f", "d/g")
        assert archive.changed_paths("1", "3") == ("d/f", "d/g", "x")
        assert said(archive.changes(None, "1")) == "A d/f, A d/g, A link, A x"
        assert said(archive.changes("1", "3")) == "M d/f, M d/g, M x"
        for revision, g, x in (("1", "1", "2"), ("2", "2", "2"), ("3", "2", "3")):
            archive.export(revision, tmp_path / revision)
            assert tree(tmp_path / revision) == {"d/f": "1", "d/g": g, "x": x, "link": "-> x"}
        archive.export("3", tmp_path / "some", ["d", "x"])
        assert tree(tmp_path / "some") == {"d/f": "1", "d/g": "2", "x": "3"}
        with pytest.raises(WorkspaceError, match="has a property that is not UTF-8"):
            archive.update("1", "2", tmp_path / "1")


def test_export_of_some_paths(repository: SubversionRepository, tmp_path: Path) -> None:
    repository.commit({"a/b/c": "1", "a/d": "2", "e f/ü": "3", "g": "4", "l": Link("g")})
    archive = an_archive(repository)
    archive.export("1", tmp_path / "out", ["a/b", "/e f/", "a/b/c", "g", "l"])
    assert tree(tmp_path / "out") == {"a/b/c": "1", "e f/ü": "3", "g": "4", "l": "-> g"}
    with pytest.raises(NotFound, match="is not in revision 1"):
        archive.export("1", tmp_path / "out2", ["nope"])
    assert archive.heads() == {"": "1"}


def test_export_never_writes_through_what_is_there(repository: SubversionRepository, tmp_path: Path) -> None:
    repository.commit({"d/x": "overwritten"})
    outside, out = tmp_path / "outside", tmp_path / "out"
    outside.mkdir()
    out.mkdir()
    (out / "d").symlink_to(outside)
    with pytest.raises(WorkspaceError, match="File exists"):
        an_archive(repository).export("1", out)
    assert not list(outside.iterdir())


def test_a_committed_git_folder_is_left_out_of_exports(repository: SubversionRepository, tmp_path: Path) -> None:
    repository.commit({"a/.git/config": "[core]\nfsmonitor = touch /tmp/owned\n", "a/x": "1"})
    an_archive(repository).export("1", tmp_path / "out")
    assert tree(tmp_path / "out") == {"a/x": "1"}


# Working copies


def test_a_working_copy_commits_marked_and_as_the_author(repository: SubversionRepository, tmp_path: Path) -> None:
    repository.commit({"trunk/x": "1", "trunk/y": "1"})
    repository.commit({"trunk/x": "2"})
    archive = an_archive(repository, "trunk")
    copy = tmp_path / "copy"
    origin = Origin("My-Project@1.1/it's", 2)
    commands = archive.working_copy("1", "", copy, author="Ark Queue", origin=origin)
    assert (copy / "x").read_text() == "1"
    path = f"{commands}:{os.environ['PATH']}"
    (copy / "y").write_text("by the task")
    run("svn", "commit", "-m", "commit by a task", cwd=copy, PATH=path)
    run("svn", "mkdir", "local", cwd=copy, PATH=path)
    run("svn", "-m", "remove", "mkdir", repository.url + "/remote", cwd=copy, PATH=path)
    run("svn", "copy", repository.url + "/trunk/y", "z", cwd=copy, PATH=path)
    run("svnmucc", "-m", "two", "mkdir", repository.url + "/mucc", cwd=copy, PATH=path)
    run("svn", "-m", "caret", "copy", "^/mucc", "^/caret", cwd=copy, PATH=path)
    (copy / "y").write_text("again")
    run(
        "svn",
        "--trust-server-cert-failures",
        "other",
        "-m",
        "option",
        "commit",
        "--non-interactive",
        cwd=copy,
        PATH=path,
    )
    revisions = an_archive(repository).advance("", archive.baseline("", "2"), repository.head).revisions
    assert [(one.author, one.message, one.origin) for one in revisions] == [
        ("Ark Queue", "commit by a task", origin),
        ("Ark Queue", "remove", origin),
        ("Ark Queue", "two", origin),
        ("Ark Queue", "caret", origin),
        ("Ark Queue", "option", origin),
    ]
    with pytest.raises(WorkspaceError, match="not empty"):
        archive.working_copy("1", "", copy, author="A <a@b>")


@pytest.mark.parametrize("has_settings", [True, False])
def test_a_working_copy_leaves_the_home_of_its_user_as_it_is(
    repository: SubversionRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_settings: bool
) -> None:
    repository.commit({"x": "1"})
    home, copy = tmp_path / "home", tmp_path / "copy"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    if has_settings:
        run("svn", "info", repository.url)
        with (home / ".subversion" / "config").open("a") as file:
            file.write("[miscellany]\nenable-auto-props = yes\n[auto-props]\n*.txt = svn:eol-style=native\n")
    before = tree(home)
    commands = an_archive(repository).working_copy("1", "", copy, author="bot", origin=Origin("A@1/t", 1))
    assert commands is not None
    (copy / "y.txt").write_text("by the task")
    run(commands / "svn", "add", "-q", "y.txt", cwd=copy)
    run(commands / "svn", "commit", "-q", "-m", "", cwd=copy)
    run(commands / "svn", "checkout", "-q", "--username", "eve", repository.url, tmp_path / "another")
    run(commands / "svnmucc", "-m", "", "mkdir", repository.url + "/mucc")
    assert tree(home) == before
    for number in ("2", "3"):
        assert run("svnlook", "author", "-r", number, repository.path).strip() == "bot"
    assert ("svn:eol-style" in run("svnlook", "proplist", repository.path, "y.txt")) == has_settings


# Threads


def test_several_archives_are_read_at_once(repository: SubversionRepository, tmp_path: Path) -> None:
    other = a_subversion_repository(tmp_path, "other")
    for one in (repository, other):
        one.commit({f"_workflows/{one.path.name}.yaml": "x", "d/e": "1"})
        one.move("d", "f")
    seen: dict[int, set[object]] = {}

    def read(place: int, one: SubversionRepository) -> None:
        seen[place] = set()
        for _ in range(100):
            archive = an_archive(one)
            archive.heads()
            seen[place].add((archive.read_workflows("2")[0].path, archive.changed_paths("1", "2")))

    threads = [Thread(target=read, args=(place, (repository, other)[place % 2])) for place in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for place in range(6):
        assert seen[place] == {(f"_workflows/{('svn', 'other')[place % 2]}.yaml", ("d/e", "f/e"))}


def test_folders_without_end_are_not_looked_at_for_ever(
    repository: SubversionRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each revision doubles the files by a cheap copy."""
    repository.commit({"a/x": "x"})
    for name in "bcdefghijk":
        repository.change("cp", "HEAD", "a", f"a/{name}")
    monkeypatch.setattr(limits, "MOST_PATHS", 500)
    archive = an_archive(repository)
    youngest = repository.head
    assert len(archive.changed_paths("1", "2")) == 1
    with pytest.raises(TooManyPaths):
        archive.changed_paths("1", youngest)
    with pytest.raises(TooManyPaths):
        archive.changed_paths(None, youngest)
    with pytest.raises(TooManyPaths, match="300 files and folders"):
        archive.changes("1", youngest, most=300)
    assert len(archive.changed_paths("1", "2")) == 1, "the connection is good for more"


def test_folders_without_end_are_not_written_for_ever(
    repository: SubversionRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit({"a/x": "x"})
    for name in "bcdefghijk":
        repository.change("cp", "HEAD", "a", f"a/{name}")
    monkeypatch.setattr(limits, "MOST_FILES", 500)
    archive, youngest = an_archive(repository), repository.head
    archive.export("2", tmp_path / "base")
    for number, act in enumerate(
        (
            lambda target: archive.export(youngest, target),
            lambda target: archive.export(youngest, target, ["a"]),
            lambda target: archive.working_copy(youngest, "", target, author="ada"),
            lambda _: archive.update("2", youngest, tmp_path / "base"),
        )
    ):
        target = tmp_path / str(number)
        with pytest.raises(WorkspaceError, match="a workspace has at most 500"):
            act(target)
        assert sum(1 for _ in target.rglob("*")) <= 500
    archive.export(youngest, tmp_path / "some", ["a/h/b"])
    assert (tmp_path / "some/a/h/b/x").read_text() == "x"


@pytest.mark.full
def test_folders_without_end_are_counted_once_there_is_much(
    repository: SubversionRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To count a million is seconds, to write them is minutes. A server counts before it sends anything: it would wait for us else."""
    repository.commit({"a/x": "x"})
    for name in "bcdefghijk":
        repository.change("cp", "HEAD", "a", f"a/{name}")
    youngest, large = repository.head, str(int(repository.head) - 1)
    monkeypatch.setattr(limits, "MOST_FILES", 1500)
    monkeypatch.setattr(limits, "MANY_FILES", 100)
    with repository.served() as server:
        for place, written in ((repository.url, 150), (server.url, 1)):
            archive, folder = open_archive(locate(place)), tmp_path / str(written)
            archive.export("2", folder / "small")
            archive.export(large, folder / "large")
            before = tree(folder)
            for act in (
                partial(archive.export, youngest, folder / "all"),
                partial(archive.export, youngest, folder / "some", ["a/k", "a/j", "a/i"]),
                partial(archive.update, "2", youngest, folder / "small"),
                partial(archive.update, large, youngest, folder / "large"),
            ):
                with pytest.raises(
                    WorkspaceError, match="there are more files and folders: a workspace has at most 1,500"
                ):
                    act()
            for target in ("all", "some"):
                assert sum(1 for _ in (folder / target).rglob("*")) < written
                shutil.rmtree(folder / target)
            assert tree(folder) == before, "what was exported before is good for another revision"
            archive.export(youngest, folder / "half", ["a/k", "a/x"])
            assert sum(1 for _ in (folder / "half").rglob("*")) > 1000, "what is not too much is written after all"


@pytest.mark.parametrize("kind", ["plain", "translated", "of a property that is not UTF-8", "some paths"])
def test_the_bytes_of_a_workspace_are_counted_while_they_are_written(
    repository: SubversionRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    names = [str(n) for n in range(9)]
    repository.commit(dict.fromkeys(names, "line\n" * 200))
    if kind == "translated":
        repository.change(*(word for name in names for word in ("propset", "svn:eol-style", "native", name)))
    if kind == "of a property that is not UTF-8":
        (tmp_path / "latin").write_bytes("M\u00fcller".encode("latin-1"))
        repository.change("propsetf", "who", tmp_path / "latin", "8")
    monkeypatch.setattr(limits, "MOST_BYTES", 5000)
    with pytest.raises(WorkspaceError, match="there are more bytes: a workspace has at most"):
        an_archive(repository).export(repository.head, tmp_path / "tree", names if kind == "some paths" else ())
    assert sum(path.stat().st_size for path in (tmp_path / "tree").iterdir()) <= 6000


def test_bytes_are_weighed_once_there_is_much(
    repository: SubversionRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A film of which there are a thousand copies takes a kilobyte to commit. What is not written yet is judged by its sizes."""
    repository.commit({"a/film": "x" * 50_000, "b": "y"})
    repository.change(*(word for n in range(50) for word in ("cp", "HEAD", "a", f"a-{n}")))
    monkeypatch.setattr(limits, "MANY_BYTES", 150_000)
    monkeypatch.setattr(limits, "MOST_BYTES", 2_000_000)
    with repository.served() as server:
        for number, place in enumerate((repository.url, server.url)):
            weighs_before_it_writes(open_archive(locate(place)), tmp_path / str(number))


def weighs_before_it_writes(archive: Archive, folder: Path) -> None:
    """Revision 1 is small, 2 has more than 2,000,000 bytes, of which 150,000 are written without a question."""
    archive.export("1", folder / "base")
    for act, target in (
        (partial(archive.export, "2", folder / "all"), "all"),
        (partial(archive.export, "2", folder / "some", [f"a-{n}" for n in range(45)]), "some"),
        (partial(archive.update, "1", "2", folder / "base"), "base"),
    ):
        with pytest.raises(WorkspaceError, match="revision 2: there are more bytes: a workspace has at most"):
            act()
        assert sum(path.stat().st_size for path in (folder / target).rglob("film")) < 400_000
    archive.export("2", folder / "few", [f"a-{n}" for n in range(30)])
    assert len(list((folder / "few").iterdir())) == 30


def test_many_workflow_files_are_not_read(repository: SubversionRepository) -> None:
    repository.commit({"_workflows/0000.yaml": "#" * 2**20, "paper": "x"})
    copies = [part for n in range(1, 6) for part in ("cp", "HEAD", "_workflows/0000.yaml", f"_workflows/{n:04}.yaml")]
    repository.change(*copies)
    (file,) = an_archive(repository).read_workflows("2")
    assert file.path == "_workflows"
    assert file.fault.startswith("the workflow files here have 6,291,456 bytes, more than 4,194,304")
