"""The files that a task gets from real repositories, and commits that tasks make."""

from __future__ import annotations

import json
import re
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arkqueue.config import Configuration
from arkqueue.model import ArchiveKind, Stream
from arkqueue.plan import Entry
from arkqueue.repository import locate, open_archive
from arkqueue.repository.opening import open_registered
from arkqueue.repository.reader import client
from arkqueue.views.explain import explain_name
from tests.builders import AnArchive, a_workflow
from tests.repositories import GitRepository, SubversionRepository, a_subversion_repository
from tests.system.task_manager.conftest import Managers, attempts, log_of, settled
from tests.waiting import eventually

Repository = SubversionRepository | GitRepository

FILES = {"papers/a.txt": "a\n", "papers/b.txt": "b\n", "index.txt": "index\n"}


def watch(archive: AnArchive, repository: SubversionRepository | GitRepository) -> None:
    """Let the archive be this repository."""
    kind = "subversion" if isinstance(repository, SubversionRepository) else "git"
    archive.sql("update archive set url = %s, kind = %s", repository.url, kind)
    archive.sql("update branch set name = %s", "main" if kind == "git" else "")


def commit(
    archive: AnArchive, repository: SubversionRepository | GitRepository, files: Any, tasks: dict[str, str]
) -> None:
    """A commit to the repository, and its revision in the ledger."""
    id = repository.commit(files)
    opened = open_archive(locate(str(repository.path)))
    made = opened.baseline("" if isinstance(repository, SubversionRepository) else "main", id)
    assert made is not None
    archive.append("", [Entry(replace(made, number=archive.numbers[""] + 1), a_workflow(tasks), ())])


def run(text: str, **fields: str) -> str:
    return f"command: {json.dumps(text)}\n" + "".join(f"{key}: {value}\n" for key, value in fields.items())


def test_task_gets_the_tree_of_its_revision(
    archive: AnArchive, managers: Managers, repository: SubversionRepository | GitRepository
) -> None:
    watch(archive, repository)
    list_all = run("find . -type f | sort; cat papers/a.txt; touch mine")
    commit(archive, repository, FILES, {"task": list_all})
    commit(archive, repository, {"papers/a.txt": "newer\n"}, {"task": list_all})
    managers()
    for key, text in (("task@2", "a"), ("task@3", "newer")):
        settled(archive, key, "completed")
        assert log_of(archive, key) == f"./index.txt\n./papers/a.txt\n./papers/b.txt\n{text}\n"


def test_task_gets_the_paths_that_it_names(
    archive: AnArchive, managers: Managers, repository: SubversionRepository | GitRepository
) -> None:
    watch(archive, repository)
    commit(archive, repository, FILES, {"task": run("find . -type f | sort", checkout="[papers/b.txt]")})
    managers()
    settled(archive, "task@2", "completed")
    assert log_of(archive, "task@2") == "./papers/b.txt\n"


def test_what_is_not_followed_is_said_once_in_a_run(archive: AnArchive, managers: Managers, tmp_path: Path) -> None:
    svn = a_subversion_repository(tmp_path)
    watch(archive, svn)
    svn.commit({"lib/x": "1"})
    svn.propset("svn:externals", "^/lib more", "lib")
    tasks = {
        "none": run("true", checkout="none"),
        "first": run("ls", depends="none"),
        "second": run("ls", depends="first", checkout="[lib]"),
    }
    commit(archive, svn, {"lib/x": "2"}, tasks)
    commit(archive, svn, {"lib/x": "3"}, tasks)
    managers()
    said = "svn:externals are not followed; what they name is missing from these folders: lib\n"
    for number in (2, 3):
        settled(archive, f"second@{number}", "completed")
        logs = [log_of(archive, f"{name}@{number}", Stream.NOTE) for name in tasks]
        assert logs == ["", said, ""]


COMMITS = {
    SubversionRepository: "echo made > made.txt; svn add -q made.txt; svn commit -m 'made by a task'",
    GitRepository: "echo made > made.txt; git add made.txt; git commit -qm 'made by a task'; git push -q",
}


def test_commit_of_a_task_names_its_origin(
    archive: AnArchive, managers: Managers, repository: SubversionRepository | GitRepository, home_folder: Path
) -> None:
    watch(archive, repository)
    commit(archive, repository, FILES, {"task": run(COMMITS[type(repository)] + " 2>&1", checkout="working-copy")})
    managers()
    eventually(lambda: archive.state("task@2") in ("completed", "failed"))
    assert archive.state("task@2") == "completed", log_of(archive, "task@2")
    kind = ArchiveKind.SUBVERSION if isinstance(repository, SubversionRepository) else ArchiveKind.GIT
    opened = open_registered(Configuration.load({}, home=home_folder), repository.url, kind)
    branch = opened.main_branch()
    made = opened.baseline(branch)
    assert made is not None
    assert made.origin is not None
    assert (made.origin.task, made.origin.generation) == ("papers@2/task", 1)
    assert made.author.startswith("arkqueue")


# --- Repositories that cannot be read --------------------------------------------------------------------------------


def test_task_whose_repository_is_away_is_deferred_and_holds_up_nobody(
    archive: AnArchive, managers: Managers, repository: SubversionRepository | GitRepository
) -> None:
    watch(archive, repository)
    commit(archive, repository, FILES, {"task": run("cat index.txt"), "other": run("true", checkout="none")})
    away = repository.path.rename(repository.path.with_name("away"))
    managers()
    settled(archive, "other@2", "completed")
    settled(archive, "task@2", "deferred")
    (attempt,) = attempts(archive, "task@2")
    assert attempt["end"] == "unreachable"
    assert re.match(f"not started: (file://)?{repository.path}: ", log_of(archive, "task@2", Stream.NOTE))
    why = explain_name(archive.session, "papers@2/task").reasons[0]
    assert "its repository could not be read: " in why.text
    assert "failure" not in why.text
    assert "arkqueue retry papers@2/task" in why.commands
    away.rename(repository.path)
    archive.retry("task@2")
    settled(archive, "task@2", "completed")


def test_password_that_changes_in_its_file_is_taken_for_the_next_task(
    archive: AnArchive, managers: Managers, tmp_path: Path
) -> None:
    repository = a_subversion_repository(tmp_path)
    word = tmp_path / "word"
    word.write_text("old\n")
    with repository.served(users={"bob": "old"}) as server:
        watch(archive, repository)
        archive.sql("update archive set url = %s", server.url)
        commit(archive, repository, {"a.txt": "a"}, {"task": run("cat a.txt")})
        managers(slots=1, credentials=[{"url": server.url, "username": "bob", "password_file": str(word)}])
        settled(archive, "task@2", "completed")
        (repository.path / "conf" / "passwd").write_text("[users]\nbob = new\n")
        word.write_text("new\n")
        server.drop_connections()
        commit(archive, repository, {"a.txt": "b"}, {"task": run("cat a.txt")})
        settled(archive, "task@3", "completed")


def wait_for_nobody(archive: AnArchive, kind: str, scheme: str, silent: socket.socket) -> None:
    """Let the archive be at a server that takes connections and says nothing."""
    archive.sql("update archive set url = %s, kind = %s", f"{scheme}://127.0.0.1:{silent.getsockname()[1]}/x", kind)
    archive.commit({"task": run("true"), "other": run("true", checkout="none")})


@pytest.mark.parametrize(("kind", "scheme"), [("subversion", "svn"), ("git", "http")])
def test_task_that_waits_for_a_silent_repository_can_be_canceled(
    archive: AnArchive, managers: Managers, kind: str, scheme: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        wait_for_nobody(archive, kind, scheme, silent)
        manager = managers(slots=2)
        connection, _ = silent.accept()
        with connection:
            archive.cancel("task@2")
            settled(archive, "task@2", "canceled")
            assert log_of(archive, "task@2") == "not started: it was canceled\n"
            archive.retry("task@2")
            again, _ = silent.accept()
            with again:
                manager.stop()
                assert archive.state("task@2") == "ready", "a task manager that stops hands it back"


def test_silent_repository_is_not_waited_for_without_an_end(
    archive: AnArchive, managers: Managers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "DEADLINE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        wait_for_nobody(archive, "subversion", "svn", silent)
        managers()
        settled(archive, "task@2", "deferred")
        assert attempts(archive, "task@2")[-1]["end"] == "unreachable"
