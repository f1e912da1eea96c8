"""Tasks whose repository has another revision now than the ledger: they do not start, and say so."""

from __future__ import annotations

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
    first, _, last = attempt["message"].partition("Only if somebody corrected its author or date")
    assert "Bring the right one back, then: arkqueue sync papers" in first
    assert "arkqueue archive rewind papers REV" in first
    assert "its files are what they were, whose contents are not compared: arkqueue archive accept papers@1" in last
    assert "wrong" not in log_of(archive, "task@2")
    assert "not started: " in log_of(archive, "task@2")
    assert "has another revision 1" in explain(archive.session, archive.task("task@2")).text
    assert [row.id for row in archives.to_read(archive.session)] == [archive.id], "it is to be looked at now"


def test_a_task_without_files_needs_no_repository(archive: AnArchive, managers: Managers, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    watch(archive, repository)
    commit(archive, repository, {"x": "right"}, {"task": command("echo done", checkout="none")})
    run("rm", "-r", repository.path)
    managers()
    settled(archive, "task@2", "completed")
