"""Notices of what is not there, and repositories that vanish, are replaced or go back in time: no
histories are ever mixed.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.repositories import Content, SubversionRepository, a_subversion_repository, run
from tests.system.end_to_end.conftest import Archives
from tests.system.end_to_end.installation import Archive, Installation, Stage, tasks
from tests.waiting import eventually

WORKFLOW = tasks({"index": {"depends": ["PREV"], "command": "cat paper.tex"}})


def test_notice_of_no_revision_is_a_mistake_of_the_command(shared: Installation, archives: Archives) -> None:
    papers = archives(shared, hook=False)
    assert "does not exist" in shared("notify", "nobody", code=1).err
    assert "neither a revision number nor a full SHA" in shared("notify", papers.name, "soon", code=2).err


def test_revision_that_is_not_there_yet_is_shown_and_found_later(shared: Installation, archives: Archives) -> None:
    papers = archives(shared, "git", hook=False)
    papers.commit(WORKFLOW, push=False)
    name = papers.repository.id()  # type: ignore[union-attr]
    shared("notify", papers.name, name)
    shown = eventually(
        lambda: (said := shared("archive", "show", papers.name).out) and "not there yet" in said and said
    )
    assert name in shown
    papers.repository.push()  # type: ignore[union-attr]
    papers.wait_for_run(2)
    eventually(lambda: "not there yet" not in shared("archive", "show", papers.name).out)


def test_repository_that_vanishes_is_shown_and_holds_up_nobody(shared: Installation, archives: Archives) -> None:
    papers, others = archives(shared, "git"), archives(shared, "git")
    papers.commit(WORKFLOW)
    papers.wait_for_run(2)
    path = papers.repository.path
    away = path.with_name(path.name + ".away")
    path.rename(away)
    said = shared("sync", papers.name, "--wait", code=1).err
    assert str(path) in said
    shown = shared("archive", "show", papers.name).out
    assert "in trouble" in shown
    assert str(path) in shown
    assert "in trouble" in next(
        line for line in shared("archive", "list").out.splitlines() if line.startswith(papers.name)
    )
    others.commit(WORKFLOW)
    others.wait_for_run(2)
    away.rename(path)
    papers.commit({"paper.tex": "back again\n"})
    # It is tried again by itself, each time a little later.
    papers.wait_for_run(3)
    eventually(lambda: "in trouble" not in shared("archive", "show", papers.name).out)


def stopped(papers: Archive) -> str:
    """What a person is told of an archive that must have stopped."""
    arkqueue, remedy = papers.installation, f"arkqueue archive rewind {papers.name}"
    # A reading that is under way may fail, as there was
    # no repository for a moment; then it is tried again.
    eventually(lambda: remedy in arkqueue("sync", papers.name, "--wait", code=1).err)
    shown = arkqueue("archive", "show", papers.name).out
    assert remedy in shown
    (listed,) = (line for line in arkqueue("archive", "list").out.splitlines() if papers.name in line.split())
    assert "stopped" in listed
    return shown


@pytest.mark.parametrize("ahead", [0, 1], ids=["shorter", "as long, with another text"])
def test_restored_backup_stops_the_archive_until_it_is_rewound(
    shared: Installation, archives: Archives, ahead: int
) -> None:
    papers = archives(shared)
    repository = papers.repository
    assert isinstance(repository, SubversionRepository)
    papers.commit(WORKFLOW)
    backup = repository.path.with_name("backup")
    shutil.copytree(repository.path, backup)
    papers.commit({"paper.tex": "lost\n"})
    papers.wait_for_run(3)
    before = papers.shown(3)
    shutil.rmtree(repository.path)
    backup.rename(repository.path)
    for _ in range(ahead):
        repository.commit({"paper.tex": "another third\n"}, author="eve")
    stopped(papers)
    assert papers.shown(3)["revision"] == before["revision"], "its history stays readable"

    done = shared("archive", "rewind", papers.name, repository.head)
    assert done.out.startswith(f"{papers.name}: its ledger starts anew at revision {repository.head}\n")
    assert "watched" in shared("archive", "show", papers.name).out
    papers.number = int(repository.head)
    rev = papers.commit({"paper.tex": "new\n"})
    papers.wait_for_run(rev)
    assert papers.log(f"index@{rev}") == "new\n"
    # The number 3 was given again: the address means the
    # newest ledger, and says how the older one is named.
    older = f"{papers.name}:rewound~1@3"
    for name in (papers.run(3), *([papers.task("index@3")] if rev == 3 else [])):
        assert shared("show", name).out.endswith(
            f"A ledger from before a rewind has this number, too: arkqueue show {older}\n"
        )
    then = shared("show", older).out
    assert before["revision"] in then
    assert "before a rewind" not in then


def replace_repository(papers: Archive, changes: Mapping[str, Content]) -> Path:
    """Another repository takes the place of an archive's, with its UUID and another revision 2. Answers where the right one is kept."""
    repository = papers.repository
    assert isinstance(repository, SubversionRepository)
    away = repository.path.with_name("right")
    new = a_subversion_repository(repository.path.parent, "new")
    run("svnadmin", "setuuid", new.path, repository.uuid)
    run("sh", "-c", f"svnadmin dump -q -r 0:1 {repository.path} | svnadmin load -q --ignore-uuid {new.path}")
    new.commit(changes)
    repository.path.rename(away)
    new.path.rename(repository.path)
    return away


def test_nothing_of_an_archive_starts_while_its_repository_is_another_one(
    shared: Installation, archives: Archives, stage: Stage
) -> None:
    papers, others = archives(shared), archives(shared)
    workflow = tasks(
        {
            "hold": {"command": stage.held, "checkout": "none"},
            "pdf": {"depends": ["hold"], "command": "cat paper.tex"},
            "broken": {"command": "cat paper.tex; false"},
        }
    )
    papers.commit({**workflow, "paper.tex": "right\n"})
    stage.begun("hold@2")
    papers.wait("broken@2", "failed")
    right = replace_repository(papers, {**workflow, "paper.tex": "of another repository\n"})
    stopped(papers)
    for words in (
        ("trigger", papers.name),
        ("trigger", papers.name, "broken", "--revision", "2", "--force"),
        ("retry", papers.task("broken@2")),
        ("retry", papers.task("broken@2"), "--force"),
        ("restart", papers.task("hold@2")),
        ("skip", "--as-completed", papers.task("hold@2")),
    ):
        done = shared(*words, code=1)
        assert done.out == ""
        if words[0] != "skip":
            assert f"archive {papers.name}: is stopped, so none of its tasks starts: " in done.err
            assert f"arkqueue archive rewind {papers.name} REV" in done.err

    # What ran goes on; what it lets become ready does not start, while others do.
    stage.go("hold@2")
    papers.wait("hold@2")
    papers.wait("pdf@2", "ready")
    others.commit(WORKFLOW)
    others.wait_for_run(2)
    assert papers.attempts("pdf@2") == []
    explained = papers.explained("pdf@2")
    assert f"It is ready, but {papers.name} is stopped, so none of its tasks starts" in explained
    assert f"arkqueue archive rewind {papers.name} REV" in explained

    shutil.rmtree(papers.repository.path)
    right.rename(papers.repository.path)
    shared("sync", papers.name, "--wait")
    papers.wait("pdf@2")
    assert papers.log("pdf@2") == "right\n"
    assert len(papers.attempts("broken@2")) == 1


def test_a_corrected_revision_is_not_run_until_its_correction_is_accepted(
    shared: Installation, archives: Archives
) -> None:
    papers = archives(shared)
    assert isinstance(papers.repository, SubversionRepository)
    papers.commit({**tasks({"index": {"command": "cat paper.tex"}}), "paper.tex": "second\n"})
    papers.commit({"paper.tex": "third\n"})
    papers.wait_for_run(3)
    author = papers.repository.path / "author"
    author.write_text("Ada Lovelace")
    run("svnadmin", "setrevprop", papers.repository.path, "-r", "2", "svn:author", author)
    name = shared("trigger", papers.name, "index", "--revision", "2", "--force").out.strip()
    papers.wait("index@2.2", "failed")
    accept = f"arkqueue archive accept {papers.run(2)}"
    assert accept in papers.explained("index@2.2")
    assert "has another revision 2 (by Ada Lovelace at" in papers.attempts("index@2.2")[0]["message"]
    # Only the last known revision is looked at by every
    # scan: nothing else of the archive is held up.
    papers.commit({"paper.tex": "fourth\n"})
    papers.wait_for_run(4)

    said = shared(*accept.split()[1:]).out
    assert f"{papers.run(2)} is by Ada Lovelace at" in said
    assert "and no longer by ada at" in said
    shared("retry", "--force", name)
    papers.wait("index@2.2")
    assert papers.log("index@2.2") == "second\n"
    assert "there is nothing to accept" in shared(*accept.split()[1:], code=1).err


def test_pushes_that_rewrite_history_go_on_in_number(shared: Installation, archives: Archives) -> None:
    papers = archives(shared, "git")
    papers.commit(WORKFLOW)
    papers.commit({"paper.tex": "to be dropped\n"})
    papers.wait_for_run(3)
    repository = papers.repository
    repository.reset("HEAD~1")  # type: ignore[union-attr]
    repository.commit({"paper.tex": "instead\n"}, push=False)
    repository.push(force=True)  # type: ignore[union-attr]
    papers.wait_for_run(4)
    assert papers.log("index@4") == "instead\n"
    assert papers.shown(3)["dropped"]


@pytest.mark.parametrize(
    ("url", "word", "code"),
    [
        ("/nowhere/at/all", "/nowhere/at/all", 2),
        ("svn://127.0.0.1:1/x", "svn://127.0.0.1:1/x", 1),
        ("{here}/no", "no", 1),
    ],
)
def test_repository_that_cannot_be_read_is_not_registered(
    shared: Installation, archives: Archives, url: str, word: str, code: int
) -> None:
    papers = archives(shared, hook=False)
    url = url.format(here=papers.repository.url)
    said = shared("archive", "add", "cannot-be", url, code=code).err
    assert said.startswith("arkqueue: ")
    assert word in said
    assert "cannot-be" not in shared("archive", "list").out


def test_name_that_is_taken_is_refused(shared: Installation, archives: Archives) -> None:
    papers = archives(shared, hook=False)
    assert papers.name in shared("archive", "add", papers.name, papers.repository.path, code=1).err
    shared("archive", "remove", papers.name)
    assert papers.name not in shared("archive", "list").out
    shared("archive", "add", papers.name, papers.repository.path)
