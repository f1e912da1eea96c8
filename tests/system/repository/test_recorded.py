"""The files of a task are those of the revision in the ledger, or there are none: a repository may
be replaced at any time.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from arkqueue.errors import ArchiveMismatch, ArkqueueError, NotFound
from arkqueue.model import Revision
from arkqueue.repository import ONLY_KEY, Recorded, locate, open_archive
from arkqueue.repository.reader.entries import named
from arkqueue.views.archives import correction_of
from tests.repositories import GitRepository, SubversionRepository, a_git_repository, a_subversion_repository, run

Look = Callable[[Recorded, Path], object]


def updated(recorded: Recorded, target: Path) -> None:
    """It must not begin."""
    good = target.with_name("good")
    good.touch()
    try:
        recorded.update("1", target, ONLY_KEY, good=good, before_key="", others=())
    finally:
        assert good.exists(), "it was begun"


LOOKS: dict[str, Look] = {
    "survey": lambda recorded, _: recorded.survey(ONLY_KEY),
    "export": lambda recorded, target: recorded.export(target),
    "export of paths": lambda recorded, target: recorded.export(target, ["x"]),
    "update": updated,
    "working copy": lambda recorded, target: recorded.working_copy("", target, author="bot"),
}


@pytest.fixture
def svn(tmp_path: Path) -> SubversionRepository:
    repository = a_subversion_repository(tmp_path)
    repository.commit({"x": "1"})
    return repository


def recorded(repository: SubversionRepository | GitRepository, id: str, branch: str = "") -> Recorded:
    """A revision as the ledger would have it."""
    archive = open_archive(replace(locate(str(repository.path)), uuid=getattr(repository, "uuid", "")))
    revision = archive.baseline(branch, id)
    assert revision is not None
    return Recorded(archive, Revision(revision.id, revision.number, revision.author, revision.date, ""))


def replaced(repository: SubversionRepository, *contents: str, author: str = "ada") -> None:
    """A backup of revision 1 takes its place, with the same UUID and other revisions behind it."""
    before = repository.path.with_name("before")
    run("svnadmin", "hotcopy", repository.path, before)
    run(
        "sh",
        "-c",
        f"svnadmin create new && svnadmin dump -q -r 0:1 {before} | svnadmin load -q --force-uuid new",
        cwd=before.parent,
    )
    shutil.rmtree(repository.path)
    (before.parent / "new").rename(repository.path)
    for text in contents:
        repository.commit({"x": text}, author=author)


def revprop(repository: SubversionRepository, name: str, value: str, revision: str) -> None:
    """What an administrator does who corrects a revision."""
    file = repository.path.with_name("value")
    file.write_text(value)
    run("svnadmin", "setrevprop", repository.path, "-r", revision, name, file)


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
@pytest.mark.parametrize("contents", [["another"], ["another", "and more"], []], ids=["as long", "longer", "shorter"])
def test_another_revision_of_the_number_gives_no_files(
    svn: SubversionRepository, tmp_path: Path, look: Look, contents: list[str]
) -> None:
    known = recorded(svn, svn.commit({"x": "2"}))
    target = tmp_path / "target"
    target.mkdir()
    uuid = svn.uuid
    replaced(svn, *contents)
    assert svn.uuid == uuid
    with pytest.raises(ArchiveMismatch, match="has another revision 2" if contents else "has no revision 2 any more"):
        look(known, target)
    assert os.listdir(target) == []


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
@pytest.mark.parametrize(("name", "value"), [("svn:author", "eve"), ("svn:date", "2026-01-01T00:00:00.000001Z")])
def test_a_corrected_revision_is_said_to_be_one_that_may_be_accepted(
    svn: SubversionRepository, tmp_path: Path, look: Look, name: str, value: str
) -> None:
    known = recorded(svn, svn.commit({"x": "2"}))
    svn.commit({"x": "3"})
    revprop(svn, name, value, "2")
    with pytest.raises(
        ArchiveMismatch, match=r"If only its author or date was corrected, .*: arkqueue archive accept NAME@2"
    ) as raised:
        look(known, tmp_path / "target")
    assert correction_of(named(raised.value, "papers")) == "2", "the pages find the revision in the stop reason"
    assert not (tmp_path / "target").exists() or os.listdir(tmp_path / "target") == []


def test_a_revision_that_no_longer_says_who_made_it_when_proves_nothing(
    svn: SubversionRepository, tmp_path: Path
) -> None:
    known = recorded(svn, svn.commit({"x": "2"}))
    for name in ("svn:author", "svn:date"):
        run("svnadmin", "delrevprop", svn.path, "-r", "2", name)
    with pytest.raises(ArchiveMismatch, match="has another revision 2"):
        known.export(tmp_path / "target")


def test_a_microsecond_tells_two_revisions_apart(svn: SubversionRepository, tmp_path: Path) -> None:
    known = recorded(svn, svn.commit({"x": "2"}))
    known.export(tmp_path / "right")
    assert (tmp_path / "right" / "x").read_text() == "2"
    later = replace(known.revision, date=known.revision.date + timedelta(microseconds=1))
    with pytest.raises(ArchiveMismatch):
        Recorded(known.archive, later).export(tmp_path / "wrong")


def test_a_repository_that_is_replaced_during_a_checkout_gives_no_working_copy(
    svn: SubversionRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from arkqueue.repository.subversion import repository as module

    known = recorded(svn, svn.commit({"x": "2"}))
    ask = module.realms_asked

    def ask_late() -> object:
        # Between the look at the revision and the checkout, which opens the repository by itself.
        replaced(svn, "another")
        return ask()

    monkeypatch.setattr(module, "realms_asked", ask_late)
    with pytest.raises(ArchiveMismatch, match="has another revision 2"):
        known.working_copy("", tmp_path / "copy", author="bot")


def test_a_commit_that_is_gone_gives_no_files(tmp_path: Path) -> None:
    git = a_git_repository(tmp_path)
    git.commit({"x": "1"})
    known = recorded(git, git.commit({"x": "2"}), "main")
    other = a_git_repository(tmp_path, "other")
    other.commit({"x": "1"})
    other.commit({"x": "another"})
    shutil.rmtree(git.path)
    other.path.rename(git.path)
    for name in ("survey", "export", "export of paths", "working copy"):
        with pytest.raises((NotFound, ArkqueueError)) as refused:
            LOOKS[name](Recorded(open_archive(locate(str(git.path))), known.revision), tmp_path / name)
        assert known.revision.id in str(refused.value)
        assert not (tmp_path / name).exists() or os.listdir(tmp_path / name) == []
