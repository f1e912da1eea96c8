"""The files that a revision changes, as the API tells them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from arkqueue.archives import changed
from arkqueue.db.session import Session
from tests.builders import AnArchive, an_archive
from tests.repositories import GitRepository, SubversionRepository, a_git_repository, a_subversion_repository
from tests.system.task_manager.test_checkouts import commit, watch
from tests.system.web.conftest import problem
from tests.waiting import PATIENCE

Repository = SubversionRepository | GitRepository


@pytest.fixture
def archive(session: Session, repository: Repository) -> AnArchive:
    """With two revisions that the repository has."""
    archive = an_archive(session)
    watch(archive, repository)
    first = {"a": "1", "d/b": "1", "é": "1"}
    commit(archive, repository, first, {})
    commit(archive, repository, {"a": "2", "d/b": None}, {})
    # The baseline of the test's archive is no revision of the repository.
    archive.sql("update revision set previous = null where number = 2")
    return archive


def changes(reader: httpx.Client, archive: AnArchive, number: int, **asked: Any) -> Any:
    answer = reader.get(f"/runs/{archive.run_id(number)}/changes", params=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_run_has_the_files_that_its_revision_changes_or_says_why_they_cannot_be_told(
    reader: httpx.Client, archive: AnArchive, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert changes(reader, archive, 3) == {
        "files": [{"status": "modified", "path": "a"}, {"status": "deleted", "path": "d/b"}], "total": 2, "fault": "",
    }  # fmt: skip
    assert [file["path"] for file in changes(reader, archive, 2)["files"]] == ["a", "d/b", "é"]
    assert changes(reader, archive, 2, limit=1) == {
        "files": [{"status": "added", "path": "a"}], "total": 3, "fault": "",
    }  # fmt: skip
    assert changes(reader, archive, 2, limit=0) == {"files": [], "total": 3, "fault": ""}
    problem(reader.get(f"/runs/{archive.run_id(2)}/changes", params={"limit": 10_001}), 422)
    problem(reader.get("/runs/999/changes"), 404)
    monkeypatch.setattr(changed, "MOST_LOOKED_AT", 2)
    assert changes(reader, archive, 2) == {
        "files": [], "total": 0, "fault": "more than 2 files and folders would have to be compared",
    }  # fmt: skip
    repository.path.rename(repository.path.with_name("away"))
    assert changes(reader, archive, 3)["fault"].removeprefix("file://").startswith(f"{repository.path}: ")


def test_files_of_another_revision_under_the_same_number_are_not_shown(
    reader: httpx.Client, session: Session, tmp_path: Path
) -> None:
    repository = a_subversion_repository(tmp_path)
    archive = an_archive(session)
    watch(archive, repository)
    commit(archive, repository, {"a": "1"}, {})
    archive.sql("update revision set date = date - interval '1 second', previous = null")
    said = changes(reader, archive, 2)
    assert said["files"] == []
    assert "has another revision 1" in said["fault"]
    assert "arkqueue sync papers" in said["fault"]


def test_names_in_other_encodings_are_shown(reader: httpx.Client, session: Session, tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    archive = an_archive(session)
    watch(archive, repository)
    commit(archive, repository, {"n\udcff\n": "1"}, {})
    archive.sql("update revision set previous = null")
    assert changes(reader, archive, 2)["files"] == [{"status": "added", "path": "n\\xff\n"}]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy host takes seconds to start a reader."""
    monkeypatch.setattr(changed, "PATIENCE", PATIENCE)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Repositories that say nothing until the test is over."""
    go = threading.Event()
    # The calls that hang keep their places, which other tests of the process need.
    monkeypatch.setattr(changed, "_places", threading.BoundedSemaphore(changed.MOST_AT_ONCE))
    monkeypatch.setattr(changed, "PATIENCE", 0.05)
    monkeypatch.setattr(changed, "open_location", lambda *_: go.wait() and pytest.fail("nobody waits any more"))
    yield
    go.set()
    for thread in reading():
        thread.join()


def reading() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "read a revision"]


@pytest.mark.usefixtures("hanging")
@pytest.mark.parametrize("repository", ["subversion"], indirect=True)
def test_repositories_that_hang_hold_up_nobody(reader: httpx.Client, archive: AnArchive) -> None:
    """Not more of them than there are places are asked."""
    for _ in range(2 * changed.MOST_AT_ONCE):
        assert "has not answered" in changes(reader, archive, 2)["fault"]
    assert len(reading()) == changed.MOST_AT_ONCE


def test_what_a_revision_refers_to_is_told(reader: httpx.Client, archive: AnArchive, repository: Repository) -> None:
    if isinstance(repository, SubversionRepository):
        repository.propset("svn:externals", "^/d x", "")
    else:
        (repository.work / "lib").mkdir()
        repository.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},lib")
        repository.git("commit", "-qm", "link")
        repository.push()
    commit(archive, repository, {"a": "3"}, {})
    answer = reader.get(f"/runs/{archive.run_id(4)}/not-followed").json()
    said = "are not followed"
    assert (len(answer["notes"]), said in answer["notes"][0], answer["fault"]) == (1, True, "")
    assert reader.get(f"/runs/{archive.run_id(2)}/not-followed").json() == {"notes": [], "fault": ""}
    repository.path.rename(repository.path.with_name("away"))
    answer = reader.get(f"/runs/{archive.run_id(4)}/not-followed").json()
    assert answer["notes"] == []
    assert answer["fault"]
