"""The information for a task about its revision: the author, the message, and the files that differ
from its base.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial, partialmethod
from pathlib import Path
from typing import Any

import pytest

from arkqueue.model import Stream
from arkqueue.plan import Entry
from arkqueue.repository import SurveyOptions, limits
from arkqueue.repository.reader.archive import ReadArchive
from arkqueue.repository.reader.client import Call, ReaderProcesses, processes
from arkqueue.task_manager import task_files
from tests.builders import AnArchive, a_revision, a_workflow
from tests.repositories import a_git_repository, a_subversion_repository
from tests.system.task_manager.boxes import Boxes, boxes
from tests.system.task_manager.conftest import Managers, attempts, log_of, settled
from tests.system.task_manager.test_checkouts import Repository, commit, watch
from tests.system.task_manager.test_checkouts import run as command

__all__ = ["boxes"]

TELL = 'echo "$ARKQUEUE_BASE"; cat "$ARKQUEUE_CHANGES"'


def told(archive: AnArchive, key: str) -> tuple[str, list[str]]:
    """The base and the changes that a task has shown."""
    settled(archive, key, "completed")
    base, _, text = log_of(archive, key, Stream.STDOUT).partition("\n")
    changes: list[dict[str, str]] = json.loads(text)
    assert text.count("\n") == len(changes) + 2, "a line for each change"
    return base, [f"{change['status']} {change['path']}" for change in changes]


def test_changes_are_those_since_the_task_last_completed(
    archive: AnArchive, managers: Managers, repository: Repository
) -> None:
    watch(archive, repository)
    managers()
    commit(archive, repository, {"a": "1", "d/b": "1", "c": "1"}, {"tell": command(TELL)})
    assert told(archive, "tell@2") == ("", ["added a", "added c", "added d/b"])
    commit(archive, repository, {"a": "2", "new": "1"}, {"tell": command(TELL + "; exit 1")})
    settled(archive, "tell@3", "failed")
    repository.delete("d")
    commit(archive, repository, {"c": "2", "new": "2"}, {"tell": command(TELL)})
    base, changes = told(archive, "tell@4")
    assert changes == ["modified a", "modified c", "deleted d/b", "added new"]
    assert archive.sql("select name from revision where number = 2") == [{"name": base}]
    archive.trigger(2, "tell", force=True)
    base, changes = told(archive, "tell@2.2")
    assert changes == ["modified a", "modified c", "added d/b", "deleted new"], "it goes back"
    assert archive.sql("select name from revision where number = 4") == [{"name": base}]
    archive.trigger(2, "tell", force=True)
    assert told(archive, "tell@2.3")[1] == []


def test_a_task_asks_its_repository_once_before_its_files_are_written(
    archive: AnArchive, managers: Managers, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    call = ReaderProcesses.call

    def noting(processes: ReaderProcesses, asks: Call) -> Any:
        asked.append(asks.request["call"])
        return call(processes, asks)

    watch(archive, repository)
    managers()
    expected = (("1", ["survey", "export"]), ("2", ["update"]))
    for number, (text, calls) in enumerate(expected, start=2):
        with monkeypatch.context() as patched:
            patched.setattr(ReaderProcesses, "call", noting)
            commit(archive, repository, {"a": text}, {"tell": command(TELL)})
            settled(archive, f"tell@{number}", "completed")
        of_files = ("survey", "export", "update", "changes", "not_followed")
        assert [one for one in asked if one in of_files] == calls
        asked.clear()


def test_changes_are_made_for_a_task_that_asks_for_them(archive: AnArchive, managers: Managers, tmp_path: Path) -> None:
    """A program of the archive may read them without being named so."""
    repository = a_subversion_repository(tmp_path)
    watch(archive, repository)
    managers()
    files = {"tell.sh": TELL}
    commit(archive, repository, files, {"tell": command("sh ./tell.sh", changes="true"), "no": command("sh ./tell.sh")})
    assert told(archive, "tell@2") == ("", ["added tell.sh"])
    settled(archive, "no@2", "failed")


def test_changes_name_files_in_any_encoding(archive: AnArchive, managers: Managers, tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    watch(archive, repository)
    managers()
    script = """
import json, os
for change in json.load(open(os.environ["ARKQUEUE_CHANGES"])):
    print(open(os.fsencode(change["path"])).read(), ascii(change["path"]))
"""
    names = {"n\udcff": "latin", "\U0001f4d6 é": "book", 'a"\\\n': "odd"}
    task = f"script: {json.dumps(script)}\nshell: python3\n"
    commit(archive, repository, names, {"tell": task})
    settled(archive, "tell@2", "completed")
    assert sorted(log_of(archive, "tell@2").splitlines()) == sorted(f"{text} {n!a}" for n, text in names.items())


def test_a_base_that_the_repository_has_lost_is_none(archive: AnArchive, managers: Managers, tmp_path: Path) -> None:
    """After a force-push and its clean-up. With all files as added and no base, a task begins anew, and nothing stale is left."""
    repository = a_git_repository(tmp_path)
    watch(archive, repository)
    manager = managers()
    commit(archive, repository, {"a": "1"}, {"tell": command(TELL)})
    first = repository.id()
    assert told(archive, "tell@2") == ("", ["added a"])
    manager.stop()
    processes.close()  # what they have read of the lost revision is forgotten
    repository.git("checkout", "-q", "--orphan", "other")
    repository.git("branch", "-q", "-D", "main")
    repository.git("branch", "-q", "-m", "main")
    repository.commit({"b": "1"}, push=False)
    repository.push(force=True)
    repository.git("--git-dir", str(repository.path), "reflog", "expire", "--expire=now", "--all")
    repository.git("--git-dir", str(repository.path), "gc", "-q", "--prune=now")
    commit(archive, repository, {"c": "1"}, {"tell": command(TELL)})
    managers()
    assert told(archive, "tell@3") == ("", ["added a", "added b", "added c"])
    assert f"no longer has revision {first}" in log_of(archive, "tell@3", Stream.NOTE)


def test_too_many_changes_are_a_fault_of_the_attempt(
    archive: AnArchive, managers: Managers, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch(archive, repository)
    commit(archive, repository, {f"f{n}": "1" for n in range(9)}, {"tell": command(TELL), "other": command("ls")})
    monkeypatch.setattr(task_files, "SurveyOptions", partial(SurveyOptions, most=5))
    monkeypatch.setattr(ReadArchive, "changes", partialmethod(ReadArchive.changes, most=5))
    managers()
    settled(archive, "tell@2", "failed")
    (attempt,) = attempts(archive, "tell@2")
    assert (attempt["end"], attempt["started_at"]) == ("not-started", None)
    assert "ARKQUEUE_CHANGES: it cannot be made: more than 5 files and folders" in attempt["message"]
    settled(archive, "other@2", "completed")


def test_changes_of_another_revision_under_the_same_number_are_not_told(
    archive: AnArchive, managers: Managers, tmp_path: Path
) -> None:
    """The repository was replaced, and the task takes no files that would show it."""
    repository = a_subversion_repository(tmp_path)
    watch(archive, repository)
    commit(archive, repository, {"x": "right"}, {"tell": command(TELL, checkout="none")})
    archive.sql("update revision set date = date - interval '1 second'")
    managers()
    settled(archive, "tell@2", "failed")
    (attempt,) = attempts(archive, "tell@2")
    assert "has another revision 1" in attempt["message"]


def test_a_base_that_is_another_revision_now_is_a_mismatch(
    archive: AnArchive, managers: Managers, tmp_path: Path
) -> None:
    """Going back by force, while a later revision was replaced: what led back from that would be wrong."""
    repository = a_subversion_repository(tmp_path)
    watch(archive, repository)
    managers()
    for number in (2, 3):
        commit(archive, repository, {"a": str(number)}, {"tell": command(TELL)})
        settled(archive, f"tell@{number}", "completed")
    archive.sql("update revision set date = date - interval '1 second' where number = 3")
    archive.trigger(2, "tell", force=True)
    settled(archive, "tell@2.2", "failed")
    assert "has another revision 2" in attempts(archive, "tell@2.2")[0]["message"]


# --- The author and the message --------------------------------------------------------------------------------------


HOSTILE = {
    "author": "Eve\x1b[2J\n\x85=\u2028 $(id) é",
    "message": "first\n\x1b[31m\r\n$(touch hacked)`id`\n\ttab, \x85 and é 📖\n",
}


def a_hostile_commit(archive: AnArchive, tasks: dict[str, str], **more: Any) -> None:
    revision = replace(a_revision(2), **(HOSTILE | more))
    archive.append("", [Entry(revision, a_workflow(tasks), ())])


SHOW = 'printf "%s\\n" "$ARKQUEUE_AUTHOR"; cat "$ARKQUEUE_MESSAGE"; ls'
SHOWN = "Eve\ufffd[2J\ufffd\ufffd=\ufffd $(id) é\n" + HOSTILE["message"]


def test_author_is_a_line_of_text_and_the_message_as_it_was_written(archive: AnArchive, managers: Managers) -> None:
    managers()
    a_hostile_commit(archive, {"show": command(SHOW, checkout="none")})
    settled(archive, "show@2", "completed")
    assert log_of(archive, "show@2", Stream.STDOUT) == SHOWN


def test_the_longest_author_and_message_reach_a_task(archive: AnArchive, managers: Managers) -> None:
    managers()
    author, message = "é" * (limits.LONGEST_AUTHOR // 2), "\t" * limits.LONGEST_MESSAGE
    a_hostile_commit(archive, {"show": command(SHOW, checkout="none")}, author=author, message=message)
    settled(archive, "show@2", "completed")
    assert log_of(archive, "show@2", Stream.STDOUT) == f"{author}\n{message}"


def test_nobody_may_have_made_a_revision_and_said_nothing(archive: AnArchive, managers: Managers) -> None:
    managers()
    a_hostile_commit(archive, {"show": command(SHOW, checkout="none")}, author="", message="")
    settled(archive, "show@2", "completed")
    assert log_of(archive, "show@2", Stream.STDOUT) == "\n"


def test_container_sees_the_author_the_message_and_the_changes(
    archive: AnArchive, managers: Managers, boxes: Boxes, tmp_path: Path, home_folder: Path
) -> None:
    repository = a_subversion_repository(tmp_path)
    watch(archive, repository)
    home_folder.mkdir()
    managers(**boxes.settings)
    text = 'id -u; echo "$ARKQUEUE_CHANGES $ARKQUEUE_MESSAGE"; cat "$ARKQUEUE_CHANGES" "$ARKQUEUE_MESSAGE"'
    commit(archive, repository, {"a": "1"}, {"tell": boxes.task(text, user="1234")})
    settled(archive, "tell@2", "completed")
    uid, files, *rest = log_of(archive, "tell@2", Stream.STDOUT).splitlines()
    assert (uid, files) == ("1234", "/arkqueue/changes.json /arkqueue/message")
    assert rest[:3] == ["[", '{"status": "added", "path": "a"}', "]"]
