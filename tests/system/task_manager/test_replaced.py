"""Tasks whose repository has another revision now than the ledger: they do not start,
and say so.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from arkqueue.queue import archives
from arkqueue.views.explain import explain
from tests.builders import AnArchive
from tests.repositories import a_subversion_repository, run
from tests.system.task_manager.conftest import Managers, attempts, log_of, settled
from tests.system.task_manager.test_checkouts import commit, watch
from tests.system.task_manager.test_checkouts import run as command
from tests.waiting import eventually


@pytest.mark.parametrize(
    ("checkout", "is_elsewhere"),
    [("tree", False), ("[x]", False), ("working-copy", False), ("working-copy", True)],
    ids=["tree", "paths", "working copy", "working copy of the task URL"],
)
def test_a_task_of_a_revision_that_is_another_one_now_is_not_started(
    archive: AnArchive, managers: Managers, tmp_path: Path, checkout: str, is_elsewhere: bool
) -> None:
    repository = a_subversion_repository(tmp_path)
    backup = repository.path.with_name("backup")
    watch(archive, repository)
    if is_elsewhere:
        settings = f'{{"process": true, "task_url": "{repository.url}"}}'
        archive.sql("update archive set settings = %s", settings)
    shutil.copytree(repository.path, backup)
    commit(archive, repository, {"x": "right"}, {"task": command("cat x", checkout=checkout)})
    right = repository.path.rename(repository.path.with_name("right"))
    backup.rename(repository.path)
    repository.commit({"x": "wrong"})
    if is_elsewhere:
        archive.sql("update archive set url = %s", f"file://{right}")
    archive.sql("delete from look")
    managers()
    settled(archive, "task@2", "failed")
    (attempt,) = attempts(archive, "task@2")
    assert (attempt["end"], attempt["started_at"]) == ("not-started", None)
    assert "has another revision 1 (by ada at" in attempt["message"]
    first, _, last = attempt["message"].partition("If only its author or date was corrected")
    assert "Bring the right one back, then: arkqueue sync papers" in first
    assert "arkqueue archive rewind papers REV" in first
    assert "its files are unchanged (their contents are not compared): arkqueue archive accept papers@1" in last
    assert "wrong" not in log_of(archive, "task@2")
    assert "not started: " in log_of(archive, "task@2")
    assert "has another revision 1" in explain(archive.session, archive.task("task@2")).text
    assert [row.id for row in archives.to_read(archive.session)] == [archive.id], "it is to be looked at now"


def test_files_show_the_author_of_a_revision_as_it_was_corrected(
    archive: AnArchive, managers: Managers, tmp_path: Path, home_folder: Path
) -> None:
    """Also where they were exported before, for another revision: what differs from that one says nothing of it."""
    repository = a_subversion_repository(tmp_path)
    repository.commit({"x": ""})
    repository.propset("svn:keywords", "Author", "x")
    watch(archive, repository)
    managers()

    def shown(number: int, files: dict[str, str]) -> str:
        commit(archive, repository, files, {"task": command("cat x")})
        settled(archive, f"task@{number}", "completed")
        return log_of(archive, f"task@{number}")

    assert shown(2, {"x": "$Author$\n"}) == "$Author: ada $\n"
    assert shown(3, {"y": "1"}) == "$Author: ada $\n"
    (tmp_path / "author").write_text("eve")
    (revision,) = archive.sql("select id, name, date from revision where number = 2")
    run("svnadmin", "setrevprop", repository.path, "-r", revision["name"], "svn:author", tmp_path / "author")
    archives.accept(archive.session, archive.id, revision["id"], "eve", revision["date"], "its author", "ann")
    assert shown(4, {"y": "2"}) == "$Author: eve $\n"
    assert shown(5, {"y": "3"}) == "$Author: eve $\n"
    eventually(lambda: len(os.listdir(home_folder / "bases")) == 1)


def test_a_task_without_files_needs_no_repository(archive: AnArchive, managers: Managers, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    watch(archive, repository)
    commit(archive, repository, {"x": "right"}, {"task": command("echo done", checkout="none")})
    run("rm", "-r", repository.path)
    managers()
    settled(archive, "task@2", "completed")
