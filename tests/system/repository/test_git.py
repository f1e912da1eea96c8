"""Git archives, against real repositories and git's own server."""

from __future__ import annotations

import base64
import fcntl
import os
import socket
import ssl
import stat
import tracemalloc
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread

import pytest

from arkqueue.errors import ArchiveError, ArchiveMismatch, ArchiveUnreachable, Invalid, NotFound, WorkspaceError
from arkqueue.model import ArchiveKind, Origin, Revision, SourceFile
from arkqueue.repository import (
    TOO_LONG,
    Advance,
    Archive,
    Location,
    NewBranch,
    limits,
    linked,
    locate,
    no_folder,
    open_archive,
)
from arkqueue.repository.git import export as git_export
from arkqueue.repository.git.program import read_blobs, run_git
from arkqueue.repository.limits import LONGEST_MESSAGE, TooManyPaths
from tests.attacks import a_tree_without_end, many_names_of_one_file, stored
from tests.counting import counted_calls
from tests.repositories import GitRepository, Link, a_git_repository, reaches, run, said
from tests.users import as_ordinary_user
from tests.waiting import eventually


@pytest.fixture
def repository(tmp_path: Path) -> GitRepository:
    return a_git_repository(tmp_path)


def an_archive(repository: GitRepository) -> Archive:
    return open_archive(locate(str(repository.path)))


def known(id: str, number: int) -> Revision:
    return Revision(id, number, "", datetime.now(UTC), "")


def begun(archive: Archive, branch: str, head: str, other: str, known: Revision | None = None) -> Advance:
    """The first advance of a new branch, or of one that is back, beside another one."""
    others = [other, known.id] if known else [other]
    return archive.advance(branch, known, head, fork=archive.forks([NewBranch(branch, head)], others)[branch])


def steps(advance: Advance) -> list[tuple[int, str]]:
    return [(revision.number, revision.message.strip()) for revision in advance.revisions]


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


def test_bare_and_plain_repositories_are_read_in_place(repository: GitRepository) -> None:
    id = repository.commit({"x": "1"})
    for given in (str(repository.path), repository.url, str(repository.work), str(repository.work / ".git")):
        archive = open_archive(locate(given))
        assert archive.identity().kind is ArchiveKind.GIT
        assert (archive.main_branch(), archive.heads()) == ("main", {"main": id})
        assert reaches(given + "/", archive.identity())
    link = repository.path.with_name("link")
    link.symlink_to(repository.path)
    assert reaches(str(link), an_archive(repository).identity())


def test_baseline_counts_first_parents(repository: GitRepository) -> None:
    first = repository.commit(message="one")
    repository.switch("topic")
    for _ in range(3):
        repository.commit(push=False)
    repository.switch("main")
    merge = repository.merge("topic")
    archive = an_archive(repository)
    for at in (None, "2", merge, merge[:8], "g" + merge[:8], "HEAD"):
        assert archive.baseline("main", at).number == 2, at  # type: ignore[union-attr]
    assert archive.baseline("main", "1").id == first  # type: ignore[union-attr]
    off_the_chain = archive.baseline("main", repository.id("topic"))
    assert off_the_chain is not None
    assert off_the_chain.number == 4


def test_baseline_tells_author_time_and_message(repository: GitRepository) -> None:
    repository.commit(message="Größe\n\nmore", author="Zoë <zoe@example.org>", at=1_000_000_000)
    baseline = an_archive(repository).baseline("main")
    assert baseline is not None
    assert (baseline.author, baseline.message) == ("Zoë <zoe@example.org>", "Größe\n\nmore\n")
    assert baseline.date == datetime.fromtimestamp(1_000_000_000, UTC)


@pytest.mark.parametrize("at", ["3", "²", "beef", "gbeef0000", "no-such-tag", "topic", "^", "@{"])
def test_baseline_at_what_is_not_on_the_branch_is_not_found(repository: GitRepository, at: str) -> None:
    repository.commit()
    repository.switch("topic")
    repository.commit()
    with pytest.raises(NotFound, match="has no revision"):
        an_archive(repository).baseline("main", at)


def test_an_empty_repository_has_no_baseline_and_its_first_push_counts_from_one(repository: GitRepository) -> None:
    archive = an_archive(repository)
    assert (archive.main_branch(), archive.heads(), archive.baseline("main")) == ("main", {}, None)
    with pytest.raises(NotFound):
        archive.baseline("main", "1")
    for message in "abc":
        repository.commit(message=message, push=False)
    repository.push()
    (head,) = archive.heads().values()
    assert steps(archive.advance("main", None, head)) == [(1, "a"), (2, "b"), (3, "c")]


def test_branches_are_tracked_by_globs(repository: GitRepository) -> None:
    repository.commit()
    for branch in ("release/1", "release/2", "topic"):
        repository.switch(branch)
        repository.push()
    heads = an_archive(repository).heads
    assert set(heads()) == {"main"}
    assert set(heads(["release/*"])) == {"release/1", "release/2"}
    assert set(heads(["*"])) == {"main", "topic"}, "as in `branches` of a workflow file"
    assert set(heads(["**"])) == {"main", "topic", "release/1", "release/2"}
    assert set(heads(["**", "!release/**"])) == {"main", "topic"}
    repository.delete_branch("topic")
    assert set(heads(["t*", "main"])) == {"main"}


def test_a_branch_that_stands_for_one_that_is_not_there_is_none(repository: GitRepository) -> None:
    head = repository.commit()
    run("git", "symbolic-ref", "refs/heads/latest", "refs/heads/gone", cwd=repository.path)
    assert an_archive(repository).heads(["*"]) == {"main": head}


def test_a_branch_that_was_packed_is_not_gone(repository: GitRepository) -> None:
    """libgit2 may miss it while it lists: it has looked at the packed ones before, and looks at the others afterwards."""
    repository.commit()
    run("git", "pack-refs", "--all", "--prune", cwd=repository.path)
    archive = an_archive(repository)
    with pytest.raises(ArchiveUnreachable, match="packed during the scan"):
        archive.check_gone("main")
    archive.check_gone("other")


def test_branches_are_listed_again_where_some_were_packed_meanwhile(
    repository: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = repository.commit()
    archive = an_archive(repository)
    stamps = iter([(1,), (2,), (2,), (2,)])
    # As if git had packed a branch between two of the reads.
    monkeypatch.setattr("arkqueue.repository.git.branches._packed", lambda _repository: next(stamps))
    assert archive.heads(["*"]) == {"main": head}
    assert list(stamps) == []


def test_a_ref_with_a_name_that_no_branch_can_have_is_none(repository: GitRepository) -> None:
    head = repository.commit()
    run("git", "pack-refs", "--all", "--prune", cwd=repository.path)
    with (repository.path / "packed-refs").open("a") as file:
        for name in ("rewound~1", "x..y", "y" * 1024):
            file.write(f"{head} refs/heads/{name}\n")
    archive = an_archive(repository)
    assert archive.heads(["**"]) == {"main": head}
    assert archive.heads(["rewound~1", "x..y"]) == {}


def test_a_head_that_the_ledger_has_is_not_read_but_must_exist(repository: GitRepository) -> None:
    head = repository.commit()
    archive, last = an_archive(repository), {"main": known(head, 1)}
    commit = repository.path / "objects" / head[:2] / head[2:]
    commit.unlink()
    commit.touch()
    assert archive.heads(["*"], known=last) == {"main": head}
    commit.unlink()
    for unread in (last, None):
        with pytest.raises(ArchiveUnreachable, match="the head of main"):
            archive.heads(["*"], known=unread)


@pytest.mark.parametrize("is_packed", [True, False])
def test_work_for_branches_is_linear_in_their_number(repository: GitRepository, is_packed: bool) -> None:
    repository.commit({"x": "0"})

    def calls(branches: int) -> int:
        for number in range(branches):
            repository.git("branch", "-f", f"topic/{number}", "main")
        repository.git("push", "-q", "origin", "refs/heads/topic/*")
        if is_packed:
            run("git", "pack-refs", "--all", "--prune", cwd=repository.path)
        archive = an_archive(repository)
        with counted_calls() as counted:
            heads = archive.heads(["**"])
            baselines = archive.baselines(heads)
            archive.check_known(*baselines.values())
        assert {name: revision.id for name, revision in baselines.items()} == heads
        assert len(heads) == branches + 1
        return counted.count

    few, more, most = calls(20), calls(40), calls(60)
    # A square would make it 5/3; what else a scan does,
    # such as asking once more whether it is due, varies.
    assert most - more <= 1.4 * (more - few)


def test_baselines_are_the_heads_numbered_along_first_parents(repository: GitRepository) -> None:
    for message in "ab":
        repository.commit(message=message)
    repository.switch("topic")
    repository.commit(message="c")
    archive = an_archive(repository)
    baselines = archive.baselines(archive.heads(["*"]))
    assert baselines == {name: archive.baseline(name) for name in ("main", "topic")}
    assert {name: revision.number for name, revision in baselines.items()} == {"main": 2, "topic": 3}


def test_a_detached_head_names_no_branch(repository: GitRepository) -> None:
    repository.commit()
    repository.git("checkout", "-q", "--detach")
    archive = open_archive(locate(str(repository.work)))
    with pytest.raises(NotFound, match="HEAD names no branch"):
        archive.heads()
    assert set(archive.heads(["*"])) == {"main"}


# The ledger


def test_nothing_new_adds_nothing(repository: GitRepository) -> None:
    id = repository.commit()
    assert an_archive(repository).advance("main", known(id, 7), id) == Advance()


def test_a_push_of_many_commits_comes_oldest_first_and_in_portions(repository: GitRepository) -> None:
    ids = [repository.commit(message=str(number), push=False) for number in range(1, 21)]
    repository.push()
    archive = an_archive(repository)
    assert steps(archive.advance("main", known(ids[0], 40), ids[-1])) == [(39 + n, str(n)) for n in range(2, 21)]
    portion = archive.advance("main", known(ids[0], 1), ids[-1], limit=3)
    assert (steps(portion), portion.complete) == ([(2, "2"), (3, "3"), (4, "4")], False)
    rest = archive.advance("main", portion.revisions[-1], ids[-1], limit=16)
    assert (len(rest.revisions), rest.complete, rest.dropped) == (16, True, ())


def test_a_merge_is_one_revision(repository: GitRepository) -> None:
    base = repository.commit(message="base")
    repository.switch("topic")
    repository.commit(message="off", push=False)
    repository.switch("main")
    repository.commit(message="on", push=False)
    merge = repository.merge("topic")
    assert steps(an_archive(repository).advance("main", known(base, 1), merge)) == [(2, "on"), (3, "Merge topic")]


def test_a_fast_forward_off_the_first_parent_chain_is_no_rewrite(repository: GitRepository) -> None:
    repository.commit(message="base", push=False)
    repository.switch("topic")
    repository.commit(message="topic", push=False)
    repository.switch("main")
    head = repository.commit(message="was main")
    repository.switch("topic")
    merge = repository.merge("main", push=False)
    repository.git("push", "-q", "origin", "topic:main")
    advance = an_archive(repository).advance("main", known(head, 2), merge)
    assert (steps(advance), advance.dropped) == ([(3, "topic"), (4, "Merge main")], ())


def test_a_force_push_drops_the_old_and_numbers_on(repository: GitRepository) -> None:
    repository.commit(message="base")
    base = repository.id()
    old = [repository.commit(message=f"old {n}") for n in range(3)]
    repository.reset(base)
    repository.commit(message="new 1", push=False)
    new = repository.commit(message="new 2", push=False)
    repository.push(force=True)
    advance = an_archive(repository).advance("main", known(old[-1], 4), new)
    assert advance.dropped == tuple(reversed(old))
    assert steps(advance) == [(5, "new 1"), (6, "new 2")]


def test_a_force_push_drops_also_what_a_pull_has_made_a_second_parent(repository: GitRepository) -> None:
    """``git pull`` merges the branch into what was done meanwhile: the branch's own commits are on no first-parent chain then."""
    base = repository.commit(message="base")
    pushed = repository.commit(message="pushed")
    repository.git("switch", "-q", "-c", "mine", base)
    mine = repository.commit({"mine": ""}, message="mine", push=False)
    repository.git("merge", "-q", "-m", "pull", "main")
    merged = repository.id("HEAD")
    archive = an_archive(repository)
    repository.push("mine:main")
    assert steps(archive.advance("main", known(pushed, 2), merged)) == [(3, "mine"), (4, "pull")]
    repository.reset(base)
    new = repository.commit(message="new", push=False)
    repository.git("push", "-q", "--force", "origin", "mine:main")
    assert archive.advance("main", known(merged, 4), new).dropped == (merged, mine, pushed)


def test_a_reset_appends_the_ancestor_again(repository: GitRepository) -> None:
    base = repository.commit(message="base")
    old = [repository.commit(message=f"old {n}") for n in range(2)]
    repository.reset(base)
    repository.push(force=True)
    archive = an_archive(repository)
    advance = archive.advance("main", known(old[-1], 3), base)
    assert (advance.dropped, steps(advance)) == (tuple(reversed(old)), [(4, "base")])
    assert steps(archive.advance("main", advance.revisions[-1], old[0])) == [(5, "old 0")]


def test_unrelated_histories_are_a_force_push(repository: GitRepository) -> None:
    old = repository.commit(message="old")
    repository.git("checkout", "-q", "--orphan", "other")
    repository.commit(message="a", push=False)
    new = repository.commit(message="b", push=False)
    repository.git("push", "-q", "--force", "origin", "other:main")
    advance = an_archive(repository).advance("main", known(old, 1), new)
    assert (advance.dropped, steps(advance)) == ((old,), [(2, "a"), (3, "b")])


def test_wrong_clocks_do_not_bring_old_commits_again(repository: GitRepository) -> None:
    """git rev-list names all of `base` here: it believes the dates."""
    for number in range(12):
        repository.commit(message=f"base {number}", at=1_000_000_000 + number, push=False)
    repository.switch("topic")
    for number in range(12):
        repository.commit(message=f"old {number}", at=1000 + number, push=False)
    old = repository.id()
    repository.switch("main")
    for number in range(3):
        repository.commit(message=f"new {number}", at=1_700_000_000 + number, push=False)
    archive = open_archive(locate(str(repository.work)))
    advance = archive.advance("main", known(old, 24), repository.id())
    assert steps(advance) == [(25, "new 0"), (26, "new 1"), (27, "new 2")]
    assert len(advance.dropped) == 12
    branch = begun(archive, "main", repository.id(), old)
    assert [message for _, message in steps(branch)] == ["new 0", "new 1", "new 2"]


def test_a_new_branch_starts_where_it_left_the_others(repository: GitRepository) -> None:
    repository.commit(message="base", push=False)
    left = repository.commit(message="left here", push=False)
    main = repository.commit(message="main goes on")
    repository.switch("topic", left)
    repository.commit(message="own 1", push=False)
    repository.merge("main", push=False)
    head = repository.commit(message="own 2")
    advance = begun(an_archive(repository), "topic", head, main)
    assert advance.baseline is not None
    assert (advance.baseline.id, advance.baseline.number) == (left, 2)
    assert steps(advance) == [(3, "own 1"), (4, "Merge main"), (5, "own 2")]


def test_a_new_branch_without_own_commits_is_one_revision(repository: GitRepository) -> None:
    ids = [repository.commit(message=str(n)) for n in range(3)]
    repository.switch("topic", ids[1])
    repository.push()
    advance = begun(an_archive(repository), "topic", ids[1], ids[2])
    assert (advance.baseline, steps(advance)) == (None, [(2, "1")])


def test_a_new_branch_without_common_history_counts_from_one(repository: GitRepository) -> None:
    main = repository.commit(message="main")
    repository.git("checkout", "-q", "--orphan", "pages")
    head = repository.commit(message="page")
    advance = begun(an_archive(repository), "pages", head, main)
    assert (advance.baseline, steps(advance)) == (None, [(1, "page")])


def test_a_branch_that_comes_back_has_its_own_new_commits_alone(repository: GitRepository) -> None:
    base = repository.commit(message="base")
    repository.switch("topic")
    old = [repository.commit(message=f"old {n}") for n in range(2)]
    repository.switch("main")
    main = repository.commit(message="main")
    repository.switch("again")
    own = repository.commit(message="own")
    archive = an_archive(repository)

    def back(known_id: str, head: str) -> tuple[list[tuple[int, str]], tuple[str, ...]]:
        advance = begun(archive, "topic", head, main, known=known(known_id, 3))
        assert (advance.baseline, advance.complete) == (None, True)
        return steps(advance), advance.dropped

    assert back(old[1], own) == ([(4, "own")], (old[1], old[0]))
    assert back("0" * 39 + "1", own) == ([(4, "own")], ())
    assert back(base, own) == ([(4, "own")], ())
    assert back(old[0], old[1]) == ([(4, "old 1")], ())
    assert back(old[1], main) == ([(4, "main")], (old[1], old[0])), "without own commits: its head alone"
    assert back(old[1], old[1]) == ([], ()), "it is as it was"


def test_a_known_commit_that_is_gone_is_a_mismatch(repository: GitRepository) -> None:
    id = repository.commit()
    archive = an_archive(repository)
    archive.check_known(known(id, 1))
    for call in (
        lambda: archive.check_known(known("0" * 39 + "1", 5)),
        lambda: archive.advance("main", known("0" * 39 + "1", 5), id),
    ):
        with pytest.raises(ArchiveMismatch, match=r"no longer holds .*revision 5.*rewind NAME REV"):
            call()
    assert archive.heads() == {"main": id}


@pytest.mark.parametrize("filling", [" ", "\t", "; generation=", "Arkqueue-Origin: "])
def test_a_message_that_is_long_to_search_for_its_origin_holds_nobody_up(
    repository: GitRepository, filling: str
) -> None:
    """Backtracking would take hours of the lock that all threads of the server share."""
    message = f"x\n\nArkqueue-Origin: a{filling * (10**6 // len(filling))}b"
    archive = an_archive(repository)
    repository.commit(message="base")
    path = repository.work / "message"
    path.write_text(message)
    repository.git("commit", "-q", "--allow-empty", "--cleanup=verbatim", "-F", str(path))
    repository.push()
    baseline = archive.baseline("main")
    assert baseline is not None
    assert (baseline.origin, len(baseline.message)) == (None, LONGEST_MESSAGE)


def test_hostile_commits_are_read(repository: GitRepository) -> None:
    repository.commit()
    text = (
        f"tree {repository.id('HEAD^{tree}')}\nparent {repository.id()}\nauthor \xff <\xfe> 1 +0000\n"
        "committer x <y> 99999999999999999 +0000\nencoding no-such\n\n\xff\n\nArkqueue-Origin: nonsense\n"
    )
    raw = repository.work / "raw"
    raw.write_bytes(text.encode("latin-1"))
    id = repository.git("hash-object", "-t", "commit", "-w", "--literally", str(raw)).strip()
    revision = open_archive(locate(str(repository.work))).advance("main", known(repository.id(), 1), id).revisions[0]
    assert (revision.author, revision.origin, revision.date.year) == ("\ufffd <\ufffd>", None, 9999)


@pytest.mark.parametrize(
    "encoding", ["punycode", "idna", "undefined", "hex", "utf-7", "unicode_escape", "\xff", "utf\xe98", "8" * 5000]
)
def test_a_commit_may_claim_any_encoding(repository: GitRepository, encoding: str) -> None:
    """Its texts can be stored whatever comes out of that: UTF-7 and escapes can name halves of characters."""
    repository.commit()
    text = (
        f"tree {repository.id('HEAD^{tree}')}\nparent {repository.id()}\nauthor +2AA- \\ud800 <x> 1 +0000\n"
        f"committer x <y> 1 +0000\nencoding {encoding}\n\nhello +2AA- \\ud800 \xff\n"
    )
    raw = repository.work / "raw"
    raw.write_bytes(text.encode("latin-1"))
    id = repository.git("hash-object", "-t", "commit", "-w", "--literally", str(raw)).strip()
    (revision,) = open_archive(locate(str(repository.work))).advance("main", known(repository.id(), 1), id).revisions
    assert revision.message.startswith("hello ")
    assert (revision.author + revision.message).encode()


@pytest.mark.parametrize(
    ("author", "committer", "said", "year"),
    [
        ("author Ann 1 +0000", "committer x <y> 1 +0000", "Ann", 1970),
        ("author Ann <ann@x 1 +0000", "committer x <y> 86400000 +0000", "Ann <ann@x>", 1972),
        ("author Ann <ann@x> soon", "committer x <y> soon", "Ann <ann@x>", 1970),
        ("author <ann@x> 1 +0000", "committer x y 1 +0000", " <ann@x>", 1970),
        ("author Ann <a> <b> 99999999999999999999 +0000", "committer", "Ann <a>", 1970),
        ("mergetag object 12\n author Eve <e> 1 +0000", "committer x <y> 1 +0000", "", 1970),
    ],
)
def test_a_commit_that_git_reads_and_libgit2_does_not_stands_in_no_ledgers_way(
    repository: GitRepository, tmp_path: Path, author: str, committer: str, said: str, year: int
) -> None:
    one = repository.commit({"a": "1"}, message="one")
    repository.git("switch", "-q", "--orphan", "aside")
    aside = repository.commit({"a": "1"}, message="aside", push=False)
    repository.git("switch", "-q", "main")
    repository.commit({"_workflows/w.yaml": "w", "b": "2"}, push=False)
    raw = repository.work / ".git" / "raw"
    raw.write_text(f"tree {repository.id('HEAD^{tree}')}\nparent {one}\nparent {aside}\n{author}\n{committer}\n\ntwo\n")
    two = repository.git("hash-object", "-t", "commit", "-w", "--literally", str(raw)).strip()
    repository.git("reset", "-q", "--hard", two)
    repository.push()
    archive = an_archive(repository)
    assert archive.heads() == {"main": two}
    baseline = archive.baseline("main")
    assert baseline is not None
    assert (baseline.number, baseline.author, baseline.date.year) == (2, said, year)

    three = repository.commit({"c": "3"}, message="three")

    assert steps(archive.advance("main", known(one, 1), three)) == [(2, "two"), (3, "three")]
    assert archive.advance("main", known(three, 3), three) == Advance()
    assert [file.path for file in archive.read_workflows(two)] == ["_workflows/w.yaml"]
    assert archive.changed_paths(one, two) == ("_workflows/w.yaml", "b")
    assert archive.workflows_key(two) == archive.workflows_key(three)
    archive.export(two, tmp_path / "tree")
    assert tree(tmp_path / "tree") == {"_workflows/w.yaml": "w", "a": "1", "b": "2"}
    back = archive.advance("main", known(three, 3), one)
    assert (back.dropped, steps(back)) == ((three, two, aside), [(4, "one")])
    for at in (two, f"g{two}", two[:12], "2"):
        assert archive.baseline("main", at) == baseline
    assert steps(begun(archive, "side", three, one)) == [(2, "two"), (3, "three")]


# Repositories that cannot be read


def test_what_is_no_repository_is_said_in_plain_words(tmp_path: Path) -> None:
    with pytest.raises(ArchiveUnreachable, match="no such folder"):
        open_archive(Location(ArchiveKind.GIT, "/nowhere/at/all")).heads()
    with pytest.raises(ArchiveUnreachable, match="cannot be read as a Git repository"):
        open_archive(Location(ArchiveKind.GIT, str(tmp_path))).heads()


def test_a_repository_of_another_kind_is_not_said_to_be_broken(tmp_path: Path) -> None:
    run("git", "init", "-q", "--bare", "--object-format=sha256", tmp_path / "other.git")
    with pytest.raises(ArchiveUnreachable, match="Nothing is broken, but arkqueue reads"):
        open_archive(Location(ArchiveKind.GIT, str(tmp_path / "other.git"))).heads()


def test_a_folder_inside_a_repository_is_no_repository(repository: GitRepository) -> None:
    repository.commit({"sub/x": "1"})
    with pytest.raises(ArchiveUnreachable):
        open_archive(Location(ArchiveKind.GIT, str(repository.work / "sub"))).heads()


def test_a_repository_that_vanished_is_unreachable_until_it_is_back(repository: GitRepository) -> None:
    id = repository.commit()
    archive = an_archive(repository)
    archive.heads()
    repository.path.rename(repository.path.with_name("away"))
    with pytest.raises(ArchiveUnreachable):
        archive.heads()
    repository.path.with_name("away").rename(repository.path)
    assert archive.heads() == {"main": id}


def test_a_repository_that_this_user_may_not_enter_is_unreachable(open_folder: Path) -> None:
    repository = a_git_repository(open_folder)
    repository.commit({"a": "1"})
    repository.path.chmod(0o700 if os.geteuid() == 0 else 0)
    done = as_ordinary_user(
        "from arkqueue.repository import Location, open_archive",
        f"open_archive(Location(arkqueue.model.ArchiveKind.GIT, {str(repository.path)!r})).heads()",
    )
    repository.path.chmod(0o700)
    assert done.stderr.splitlines()[-1].startswith(
        f"arkqueue.errors.ArchiveUnreachable: {repository.path}: the user "
    ), done.stderr
    assert done.stderr.endswith(" may not read it. Let that user read it, and enter the folders above it.\n")


def test_a_commit_that_does_not_exist_is_not_found(repository: GitRepository, tmp_path: Path) -> None:
    repository.commit({"x": "1"})
    archive = an_archive(repository)
    for id in ("0" * 40, "nonsense", repository.id("HEAD^{tree}")):
        for read in (
            lambda id=id: archive.read_workflows(id),
            lambda id=id: archive.changed_paths(None, id),
            lambda id=id: archive.export(id, tmp_path / "out"),
        ):
            with pytest.raises(NotFound, match="has no commit"):
                read()


# Remotes


def test_a_host_without_a_mirror_reads_a_commit_that_another_one_found(
    repository: GitRepository, tmp_path: Path
) -> None:
    first = repository.commit({"_workflows/a.yaml": "one", "x": "1"}, message="one")
    with repository.served() as server:
        location = locate(server.url)
        open_archive(location, mirror=tmp_path / "there").export(first, tmp_path / "tree")
        assert (tmp_path / "tree" / "x").read_text() == "1"
        here = open_archive(location, mirror=tmp_path / "here")
        here.working_copy(first, "main", tmp_path / "copy", author="Robot <robot@example.org>")
        assert (tmp_path / "copy" / "x").read_text() == "1"


def test_a_remote_is_read_through_its_mirror(repository: GitRepository, tmp_path: Path) -> None:
    first = repository.commit({"_workflows/a.yaml": "one"}, message="one")
    with repository.served() as server:
        location = locate(server.url)
        assert location.needs_mirror
        archive = open_archive(location, mirror=tmp_path / "mirror")
        assert reaches(server.url.removesuffix(".git"), archive.identity())
        assert (archive.heads(), archive.main_branch()) == ({"main": first}, "main")
        assert stat.S_IMODE((tmp_path / "mirror").stat().st_mode) == 0o700, "closed to others, wherever it lies"
        repository.switch("topic")
        dropped = repository.commit({"x": "1"}, message="topic")
        assert archive.heads(["*"]) == {"main": first, "topic": dropped}
        repository.reset(first)
        new = repository.commit({"x": "2"}, message="again", push=False)
        repository.push(force=True)
        assert archive.heads(["*"]) == {"main": first, "topic": new}
        advance = archive.advance("topic", known(dropped, 2), new)
        assert (advance.dropped, steps(advance)) == ((dropped,), [(3, "again")])
        repository.delete_branch("topic")
        run("git", "symbolic-ref", "HEAD", "refs/heads/trunk", cwd=repository.path)
        repository.git("push", "-q", "origin", "main:trunk")
        assert archive.heads() == {"trunk": first}
        assert set(archive.heads(["*"])) == {"main", "trunk"}
        assert archive.changed_paths(dropped, first) == ("x",)
    with pytest.raises(ArchiveUnreachable, match="does not answer"):
        archive.heads()
    assert archive.read_workflows(first) == (SourceFile("_workflows/a.yaml", b"one"),)


def test_a_mirror_is_of_the_kind_that_is_read_whatever_git_prefers(
    repository: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = repository.commit()
    monkeypatch.setenv("GIT_DEFAULT_HASH", "sha256")
    monkeypatch.setenv("GIT_DEFAULT_REF_FORMAT", "reftable")  # which later versions of git know
    with repository.served() as server:
        assert open_archive(locate(server.url), mirror=tmp_path / "mirror").heads() == {"main": head}
    assert run_git("git", "-c", "alias.format=!echo $GIT_DEFAULT_REF_FORMAT", "format", timeout=60) == "files\n"


def test_a_remote_that_was_cut_off_is_read_as_far_as_it_goes(repository: GitRepository, tmp_path: Path) -> None:
    for number in range(3):
        head = repository.commit({"x": str(number)}, message=str(number))
    whole = repository.path.rename(tmp_path / "whole")
    run("git", "clone", "-q", "--bare", "--depth", "2", f"file://{whole}", repository.path)
    with repository.served() as server:
        archive = open_archive(locate(server.url), mirror=tmp_path / "mirror")
        assert archive.heads() == {"main": head}
        baseline = archive.baseline("main")
        assert baseline is not None
        head = repository.commit({"x": "more"}, message="more")
        assert archive.heads() == {"main": head}
        assert [one.id for one in archive.advance("main", baseline, head).revisions] == [head]


def test_a_mirror_has_what_any_branch_or_tag_of_the_remote_has(repository: GitRepository, tmp_path: Path) -> None:
    first = repository.commit({"x": "1"})
    with repository.served() as server:
        archive = open_archive(locate(server.url), mirror=tmp_path / "mirror")
        repository.git("checkout", "-q", "-b", "topic")
        second = repository.commit({"x": "2"}, push=False)
        assert not archive.has(second)
        repository.push("topic")
        assert archive.has(first)
        assert archive.has(second)
        repository.git("tag", "-a", "v1", "-m", "one")
        repository.git("push", "-q", "origin", "v1")
        assert archive.has(repository.git("rev-parse", "v1").strip())
        assert not archive.has(second[:10])


def test_a_mirror_that_lags_behind_fetches_what_it_is_asked_for(repository: GitRepository, tmp_path: Path) -> None:
    repository.commit({"x": "1"})
    with repository.served() as server:
        manager = open_archive(locate(server.url), mirror=tmp_path / "mirror")
        manager.heads()
        id = repository.commit({"x": "2"})
        manager.export(id, tmp_path / "out")
        assert tree(tmp_path / "out") == {"x": "2"}


def test_what_a_mirror_fetches_is_there_as_a_whole_or_not_at_all(repository: GitRepository, tmp_path: Path) -> None:
    repository.commit({"x": "1"})
    with repository.served() as server:
        archive = open_archive(locate(server.url), mirror=tmp_path / "mirror")
        for text in ("2", "3"):
            repository.commit({"x": text})
            archive.heads()

    # Loose objects would come one by one, a commit before
    # its files; a pack is seen when it is complete.
    found = [path.parent.name for path in (tmp_path / "mirror" / "objects").rglob("*") if path.is_file()]
    assert set(found) == {"pack"}


def test_a_working_copy_is_not_made_of_a_mirror_that_changes(repository: GitRepository, tmp_path: Path) -> None:
    id = repository.commit({"x": "1"})
    lock = tmp_path / "mirror" / "arkqueue.lock"
    with repository.served() as server:
        archive = open_archive(locate(server.url), mirror=tmp_path / "mirror")
        archive.heads()
        task = Thread(target=archive.working_copy, args=[id, "main", tmp_path / "tree"], kwargs={"author": "a <a@b>"})
        with lock.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX)  # as while it is fetched
            task.start()
            eventually(lambda: _is_waited_for(lock))
            assert not (tmp_path / "tree").exists()
        task.join()

    assert (tmp_path / "tree" / "x").read_text() == "1"


def test_a_mirror_outlives_the_death_of_its_git(repository: GitRepository, tmp_path: Path) -> None:
    repository.commit()
    mirror = tmp_path / "mirror"
    with repository.served() as server:
        archive = open_archive(locate(server.url), mirror=mirror)
        archive.heads()
        for name in ("refs/heads/main.lock", "packed-refs.lock"):
            (mirror / name).touch()
            os.utime(mirror / name, (1, 1))
        id = repository.commit()
        assert archive.heads() == {"main": id}
        (mirror / "config").unlink()  # as when making it had been cut off
        id = repository.commit()
        assert open_archive(locate(server.url), mirror=mirror).heads() == {"main": id}


def test_a_remote_that_does_not_exist_is_unreachable(repository: GitRepository, tmp_path: Path) -> None:
    repository.commit()
    with repository.served() as server, pytest.raises(ArchiveUnreachable, match="no such repository"):
        open_archive(locate(server.url + "x"), mirror=tmp_path / "mirror").heads()
    for url in ("git://nohost.invalid/x", "http://127.0.0.1:1/x.git"):
        with pytest.raises(ArchiveUnreachable, match=r"host name is unknown|does not answer"):
            open_archive(locate(url), mirror=tmp_path / "other").heads()
    with pytest.raises(Invalid, match="needs a folder for its mirror"):
        open_archive(locate("git@example.org:x.git"))


@pytest.mark.full
def test_a_remote_that_needs_more_memory_than_git_may_have_is_unreachable(
    repository: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of nothing but zeros is small on the way, and as large as it likes in memory."""
    repository.commit({"zeros": bytes(2**26)})
    with repository.served() as server:
        monkeypatch.setattr("arkqueue.repository.git.program.MEMORY", 48 * 2**20)
        archive = open_archive(locate(server.url), mirror=tmp_path / "mirror")
        with pytest.raises(ArchiveUnreachable, match="more memory than git may have"):
            archive.heads()
        monkeypatch.undo()
        assert list(archive.heads()) == ["main"]


@pytest.mark.parametrize(
    ("noise", "fault"),
    [
        (
            "head -c 20000000 >&2; echo fatal: no space left >&2; exit 1",
            r"the disk of this host is full .git: y / fatal: no space left",
        ),
        ("cat", "the answer of git is longer than 100,000 bytes"),
    ],
)
def test_what_git_says_without_end_takes_no_memory(repository: GitRepository, noise: str, fault: str) -> None:
    words = ("-C", str(repository.work), "-c", f"alias.noise=!yes | {noise}", "noise")
    tracemalloc.start()
    try:
        with pytest.raises(ArchiveUnreachable, match=fault):
            run_git("mirror", *words, timeout=60, longest=100_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**21


def test_a_remote_that_lists_branches_without_end_is_unreachable(
    repository: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = repository.commit()
    packed = repository.path / "packed-refs"
    packed.write_text("".join(f"{head} refs/heads/b{number:05}\n" for number in range(20_000)))
    with repository.served() as server:
        archive = open_archive(locate(server.url), mirror=tmp_path / "mirror")
        remedy = "Delete the branches there that nobody needs, or watch a clone"
        for name, limit, fault in (
            ("MOST_BRANCH_BYTES", 2**20, "the list of its branches is longer than 1 MiB"),
            ("MOST_BRANCHES", 20_000, "it has more than 20,000 branches"),
        ):
            with monkeypatch.context() as patched:
                patched.setattr(limits, name, limit)
                with pytest.raises(ArchiveUnreachable, match=f"{server.url}: {fault}, and cannot be scanned. {remedy}"):
                    archive.heads()
        assert not list((tmp_path / "mirror").rglob("*.pack")), "nothing was fetched"
        packed.unlink()
        assert archive.heads() == {"main": head}


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Not in the test's output."""


class _Guarded(_Silent):
    """Serves files to who says bob's password, and remembers nothing."""

    def do_GET(self) -> None:
        given = self.headers.get("Authorization", "")
        if given == "Basic " + base64.b64encode(b"bob:pass word/@").decode():
            super().do_GET()
        else:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
            self.send_header("Content-Length", "0")
            self.end_headers()


def test_a_remote_is_read_with_name_and_password(repository: GitRepository, tmp_path: Path) -> None:
    id = repository.commit()
    run("git", "update-server-info", cwd=repository.path)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Guarded, directory=str(tmp_path))) as server:
        thread = Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}/{repository.path.name}"
            archive = open_archive(
                locate(url, username="bob", password="pass word/@"), mirror=tmp_path / "mirrors" / "mirror"
            )
            assert archive.heads(["main"]) == {"main": id}
            for password in ("wrong", None):
                refused = open_archive(
                    locate(url, username="bob", password=password), mirror=tmp_path / "mirrors" / "mirror"
                )
                with pytest.raises(ArchiveUnreachable, match="refuses access") as raised:
                    refused.heads()
                assert "wrong" not in str(raised.value)
        finally:
            server.shutdown()
            thread.join()


def test_a_remote_whose_certificate_is_not_trusted_says_what_helps(
    repository: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = repository.commit()
    run("git", "update-server-info", cwd=repository.path)
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *names, "-keyout", key, "-out", certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Silent, directory=str(tmp_path))) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            location = locate(f"https://localhost:{server.server_port}/{repository.path.name}")
            with pytest.raises(ArchiveUnreachable, match=r"certificate is not trusted.* GIT_SSL_CAINFO=FILE"):
                open_archive(location, mirror=tmp_path / "mirror").heads()
            monkeypatch.setenv("GIT_SSL_CAINFO", str(certificate))
            assert open_archive(location, mirror=tmp_path / "mirror").heads() == {"main": id}
        finally:
            server.shutdown()
            thread.join()


def test_git_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/x.git"
        connection: socket.socket | None = None
        for timeout in (0.3, 3, 30):  # it may be ended before it has called anybody
            archive = open_archive(locate(url), mirror=tmp_path / "mirror", timeout=timeout)
            with pytest.raises(ArchiveUnreachable, match=rf"did not finish within {timeout:g} s"):
                archive.heads()
            with suppress(BlockingIOError):
                connection, _ = silent.accept()
                break
        assert connection is not None
        with connection:
            connection.settimeout(60)
            while connection.recv(4096):
                pass  # until nobody holds the other end


def test_a_mirror_is_shared_by_threads(repository: GitRepository, tmp_path: Path) -> None:
    ids = [repository.commit({"x": str(n)}) for n in range(5)]
    seen: list[object] = []

    def read(url: str) -> None:
        archive = open_archive(locate(url), mirror=tmp_path / "mirror")
        seen.append(archive.heads())
        seen.extend(archive.changed_paths(old, new) for old, new in pairwise(ids))

    with repository.served() as server:
        threads = [Thread(target=read, args=(server.url,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert seen.count({"main": ids[-1]}) == 4
    assert seen.count(("x",)) == 16


# Workflow files


def test_workflow_files_are_the_direct_children_with_the_right_ends(repository: GitRepository) -> None:
    id = repository.commit(
        {
            "_workflows/b.yaml": b"\xff\xfe",
            "_workflows/a.json": "[]",
            "_workflows/c.yml": "",
            "_workflows/README": "no",
            "_workflows/sub/d.yaml": "no",
            "_workflows/e.yaml/f": "a folder",
            "_workflows/link.yaml": Link("b.yaml"),
            "x/_workflows/y.yaml": "no",
            os.fsdecode(b"_workflows/\xff.yaml"): "name",
        }
    )
    assert an_archive(repository).read_workflows(id) == (
        SourceFile("_workflows/\\xff.yaml", b"name"),
        SourceFile("_workflows/a.json", b"[]"),
        SourceFile("_workflows/b.yaml", b"\xff\xfe"),
        SourceFile("_workflows/c.yml", b""),
        linked("_workflows/link.yaml"),
    )


def test_a_workflow_file_over_the_limit_is_not_read(repository: GitRepository) -> None:
    id = repository.commit({"_workflows/a.yaml": "x" * 2**20, "_workflows/b.yaml": "x" * (2**20 + 1)})
    first, second = an_archive(repository).read_workflows(id)
    assert first.text == b"x" * 2**20
    assert second.text == TOO_LONG


def test_a_workflow_folder_that_is_a_file_or_a_link_is_a_fault(repository: GitRepository) -> None:
    keys = set()
    for content, found in (("x", no_folder("_workflows")), (Link("x"), linked("_workflows"))):
        id = repository.commit({"_workflows": content, "x/a.yaml": "a"})
        archive = an_archive(repository)
        assert archive.read_workflows(id) == (found,)
        keys.add(archive.workflows_key(id))
    id = repository.commit({"_workflows": None})
    assert (archive.read_workflows(id), archive.workflows_key(id)) == ((), "")
    assert len(keys - {""}) == 2


def test_the_workflows_key_changes_with_the_folder_only(repository: GitRepository) -> None:
    one = repository.commit({"_workflows/a.yaml": "1"})
    same = repository.commit({"x": "1"})
    other = repository.commit({"_workflows/a.yaml": "2"})
    key = an_archive(repository).workflows_key
    assert key(one) == key(same) != key(other)


def test_a_push_in_quarantine_is_read(repository: GitRepository, tmp_path: Path) -> None:
    repository.commit()
    hook = repository.path / "hooks" / "pre-receive"
    hook.write_text(f"#!/bin/sh\ncp -r $GIT_QUARANTINE_PATH {tmp_path}/quarantine\nexit 1\n")
    hook.chmod(0o755)
    id = repository.commit({"_workflows/a.yaml": "new"}, push=False)
    with pytest.raises(AssertionError, match="pre-receive hook declined"):
        repository.push()
    with pytest.raises(NotFound):
        an_archive(repository).read_workflows(id)
    archive = open_archive(locate(str(repository.path)), quarantine=tmp_path / "quarantine")
    assert archive.read_workflows(id)[0].text == b"new"


# The tree difference


def test_changed_paths_are_the_files_that_differ(repository: GitRepository) -> None:
    one = repository.commit({"a/1": "1", "a/b/2": "2", "c": "3", "g h/ü#%": "6", os.fsdecode(b"n\xff"): "7"})
    two = repository.commit({"c": "changed", "new/x": "1"})
    three = repository.move("a", "moved")
    (repository.work / "c").chmod(0o755)
    four = repository.commit()
    five = repository.commit({"c": "changed", "e": Link("c")})
    changed = an_archive(repository).changed_paths
    assert changed(None, one) == ("a/1", "a/b/2", "c", "g h/ü#%", "n\\xff")
    assert changed(one, two) == ("c", "new/x")
    assert changed(two, three) == ("a/1", "a/b/2", "moved/1", "moved/b/2")
    assert changed(three, four) == ("c",)
    assert changed(four, five) == ("c", "e")
    assert changed(five, five) == ()
    assert changed(two, one) == changed(one, two)
    assert changed("0" * 40, one) == changed(None, one)


def test_changes_say_what_happened_to_each_file(repository: GitRepository) -> None:
    one = repository.commit({"a/1": "1", "a/b/2": "2", "c": "3", "n/x": "4", os.fsdecode(b"n\xff"): "7"})
    two = repository.commit({"c": "changed", "new/x": "1"})
    three = repository.move("a", "moved")
    (repository.work / "c").chmod(0o755)
    four = repository.commit()
    repository.git("rm", "-q", "-r", "n")
    five = repository.commit({"c": Link("new/x"), "n": "now a file"})
    changes = an_archive(repository).changes
    assert said(changes(None, one)) == "A a/1, A a/b/2, A c, A n/x, A n\udcff"
    assert said(changes(one, two)) == "M c, A new/x"
    assert said(changes(two, one)) == "M c, D new/x"
    assert said(changes(two, three)) == "D a/1, D a/b/2, A moved/1, A moved/b/2"
    assert said(changes(three, four)) == "M c"
    assert said(changes(four, five)) == "M c, A n, D n/x"
    assert said(changes(five, four)) == "M c, D n, A n/x"
    assert changes(five, five) == ()
    for base, id in (("0" * 40, one), (one, "0" * 40)):
        with pytest.raises(NotFound):
            changes(base, id)


def test_changes_name_no_path_that_a_workspace_cannot_have(repository: GitRepository) -> None:
    blob = stored(repository, "hash-object", "-w", "--stdin", text="x")
    before = repository.commit({"x": "1"})

    def commit_of(*names: str) -> str:
        objects = b"".join(b"100644 %b\0%b" % (os.fsencode(name), bytes.fromhex(blob)) for name in names)
        file = repository.path / "tree"
        file.write_bytes(objects)
        tree = repository.git("hash-object", "-t", "tree", "-w", "--literally", str(file)).strip()
        id = repository.git("commit-tree", tree, "-p", before, "-m", "crafted").strip()
        repository.git("push", "-q", "--no-verify", "origin", f"{id}:refs/heads/{id}")
        return id

    changes = an_archive(repository).changes
    assert said(changes(before, commit_of(".GIT", ".git", "y"))) == "D x, A y"
    for name in ("..", "a/../../../etc/passwd", "/etc/passwd", "a//b", "."):
        with pytest.raises(ArchiveError, match="no tree may hold"):
            changes(before, commit_of(name))


# Working copies


def test_a_working_copy_commits_marked_and_pushes_to_its_branch(repository: GitRepository, tmp_path: Path) -> None:
    first = repository.commit({"x": "1"})
    repository.commit({"x": "2"})
    repository.switch("topic", first)
    repository.push()
    archive, copy = an_archive(repository), tmp_path / "copy"
    origin = Origin("My-Project:topic@1.1/it's", 2)
    assert archive.working_copy(first, "topic", copy, author="Ark Queue <ark@example.org>", origin=origin) is None
    assert (copy / "x").read_text() == "1"
    (copy / "x").write_text("by the task")
    run("git", "commit", "-q", "-a", "-m", "a task's", cwd=copy)
    run("git", "commit", "-q", "--allow-empty", "--no-verify", "-m", "without verification", cwd=copy)
    run("git", "commit", "-q", "--amend", "--allow-empty", "--no-verify", "--no-edit", cwd=copy)
    run("git", "push", "-q", cwd=copy)
    revisions = archive.advance("topic", known(first, 1), archive.heads(["topic"])["topic"]).revisions
    assert [(one.author, one.origin, one.message) for one in revisions] == [
        ("Ark Queue <ark@example.org>", origin, f"{said}\n\nArkqueue-Origin: {origin.task}; generation=2\n")
        for said in ("a task's", "without verification")
    ]


def test_a_working_copy_of_a_remote_pushes_to_the_remote(repository: GitRepository, tmp_path: Path) -> None:
    id = repository.commit({"x": "1"})
    with repository.served() as server:
        archive = open_archive(locate(server.url), mirror=tmp_path / "mirror")
        archive.heads()
        archive.working_copy(id, "main", tmp_path / "copy", author="A <a@b>")
        run("git", "commit", "-q", "--allow-empty", "-m", "more", cwd=tmp_path / "copy")
        run("git", "push", "-q", cwd=tmp_path / "copy")
        assert archive.heads()["main"] == run("git", "rev-parse", "main", cwd=repository.path).strip() != id


def test_a_working_copy_shares_no_file_with_the_repository(repository: GitRepository, tmp_path: Path) -> None:
    id = repository.commit({"x": "1"})
    an_archive(repository).working_copy(id, "main", tmp_path / "copy", author="A <a@b>")
    for file in (tmp_path / "copy").rglob("*"):
        assert not file.is_file() or file.stat().st_nlink == 1, file


def test_a_working_copy_of_a_commit_off_every_branch(repository: GitRepository, tmp_path: Path) -> None:
    first = repository.commit({"x": "1"})
    dropped = repository.commit({"x": "2"})
    repository.reset(first)
    repository.push(force=True)
    an_archive(repository).working_copy(dropped, "main", tmp_path / "copy", author="A <a@b>")
    assert (tmp_path / "copy" / "x").read_text() == "2"


def test_a_working_copy_needs_an_empty_place(repository: GitRepository, tmp_path: Path) -> None:
    id = repository.commit({"x": "1"})
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "mine").touch()
    with pytest.raises(WorkspaceError, match="not an empty directory"):
        an_archive(repository).working_copy(id, "main", tmp_path / "copy", author="A <a@b>")
    with pytest.raises(Invalid, match="is not a valid author"):
        an_archive(repository).working_copy(id, "main", tmp_path / "copy2", author="nobody")


def _is_waited_for(lock: Path) -> bool:
    inode = f":{lock.stat().st_ino} "
    return any("->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines())


@pytest.mark.full
def test_trees_without_end_are_not_looked_at_for_ever(
    repository: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four levels of a thousand entries that are the same: 10¹² files in a few kilobytes."""
    before = repository.commit({"paper": "x"})
    huge = repository.git("commit-tree", a_tree_without_end(repository), "-p", before, "-m", "huge").strip()
    repository.git("push", "-q", "origin", f"{huge}:refs/heads/huge")
    monkeypatch.setattr(limits, "MOST_PATHS", 50_000)
    for previous in (before, None):
        with pytest.raises(TooManyPaths, match="50,000 files and folders"):
            an_archive(repository).changed_paths(previous, huge)
        with pytest.raises(TooManyPaths, match="20,000 files and folders"):
            an_archive(repository).changes(previous, huge, most=20_000)


@pytest.mark.full
def test_a_tree_without_end_is_judged_before_anything_of_it_is_written(
    repository: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = repository.commit({"paper": "x"})
    huge = repository.git("commit-tree", a_tree_without_end(repository, 3), "-p", before, "-m", "huge").strip()
    repository.git("push", "-q", "origin", f"{huge}:refs/heads/huge")
    archive = an_archive(repository)
    base, target = tmp_path / "base", tmp_path / "target"
    archive.export(before, base)
    with pytest.raises(WorkspaceError, match=r"there are 1,001,001,001 files and folders, and .* at most 1,000,000\. "):
        archive.export(huge, target)
    with pytest.raises(WorkspaceError, match="there are 1,001,001 files and folders"):
        archive.export(huge, target, ["0007"])
    with pytest.raises(WorkspaceError, match="at most 1,000,000"):
        archive.working_copy(huge, "huge", target, author="A <a@b>")
    with pytest.raises(WorkspaceError, match="at most 1,000,000"):
        archive.update(before, huge, base)
    assert not target.exists()
    assert tree(base) == {"paper": "x"}
    archive.export(huge, target, ["0007/0007"])
    assert len(tree(target)) == 1000
    monkeypatch.setattr(limits, "MOST_FILES", 1500)
    with pytest.raises(WorkspaceError, match="there are more files and folders: a workspace has at most 1,500"):
        open_archive(locate(str(repository.path))).export(huge, target)


def test_a_large_file_is_never_in_memory_as_a_whole(
    repository: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A film of some gigabytes would not fit into a reader process."""
    id = repository.commit({"film": "x" * 100_000, "paper": "y"})
    monkeypatch.setattr(git_export, "LARGE", 50_000)
    asked: list[object] = []
    monkeypatch.setattr(git_export, "read_blobs", lambda *given: asked.append(given[2]) or read_blobs(*given))
    an_archive(repository).export(id, tmp_path / "tree")
    assert len(asked) == 1
    assert tree(tmp_path / "tree") == {"film": "x" * 100_000, "paper": "y"}


def test_many_names_of_one_workflow_file_are_not_read(repository: GitRepository) -> None:
    """A few kilobytes in the repository, gigabytes for whoever reads each of them."""
    id = repository.git("commit-tree", many_names_of_one_file(repository), "-m", "many").strip()
    repository.git("push", "-q", "origin", f"{id}:refs/heads/many")
    (file,) = an_archive(repository).read_workflows(id)
    assert file.path == "_workflows"
    assert file.fault.startswith("there are 6,000 workflow files here, more than 1,000")
