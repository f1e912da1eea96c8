"""Archives on the command line, with real repositories and a queue manager that reads them."""

from __future__ import annotations

import shlex
import shutil
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.queue import ledger
from arkqueue.queue_manager import QueueManager
from arkqueue.queue_manager.reader import Reader
from arkqueue.views import archives as views
from tests.builders import an_archive
from tests.db.test_retention import a_pass, let_age
from tests.repositories import a_git_repository, a_subversion_repository, run
from tests.system.cli.conftest import Cli, Start, the_rest
from tests.system.queue_manager.conftest import manager
from tests.waiting import eventually

__all__ = ["manager"]

WORKFLOW = {"_workflows/a.yaml": "- {name: index, command: 'true', depends: [PREV]}\n"}


def test_archive_is_added_listed_shown_and_removed(arkqueue: Cli, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    repository.commit(WORKFLOW, message="first")
    done = arkqueue("archive", "add", "papers", repository.url)
    assert done.code == 0
    assert done.lines[0] == f"papers: subversion archive {repository.url} is watched; its ledger starts at revision 1"
    assert "note: its tasks run in containers, of the image that they name, else of their task manager's" in done.out
    assert "arkqueue archive set papers --image IMAGE" in done.out
    assert "arkqueue archive set papers --executor process" in done.out
    assert f"arkqueue hook install {repository.path}" in done.out
    assert arkqueue("archive", "list").lines[1].split() == ["papers", "subversion", "1", "watched", repository.url]
    shown = arkqueue("archive", "show", "papers").out
    assert "not as processes" in shown
    assert "BRANCH  HEAD  NOTE  WHEN" in shown
    assert arkqueue("archive", "add", "papers", repository.url).code == 1
    assert arkqueue("archive", "remove", "papers").code == 0
    assert len(arkqueue("archive", "list").lines) == 0
    assert arkqueue("archive", "show", "papers").lines[0] == "papers  removed"


def test_settings_are_given_changed_and_unset(arkqueue: Cli, tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    repository.commit(WORKFLOW)
    add = ("archive", "add", "book", repository.url, "--executor", "process", "--author", "Ark <ark@example.org>")
    added = arkqueue(*add, "--branch", "main", "--branch", "release/*", "--process-user", "nobody", "--json").json
    assert added["settings"] == {
        "branches": ["main", "release/*"], "process": True, "process_user": "nobody",
        "author": "Ark <ark@example.org>", "task_url": None, "follow": [], "image": None, "images": [], "users": [], "networks": [],
        "require_approval": [], "approval_not_author": False, "workflow_authors": [], "tier": 5, "max_running": None,
        "keep": {}, "keep_logs": None, "notify": {},
    }  # fmt: skip
    done = arkqueue("archive", "set", "book", "--executor", "none", "--process-user", "", "--task-url", "file:///x")
    assert done.lines[0] == "book: process_user none, task_url file:///x, process no"
    done = arkqueue("archive", "set", "book", "--executor", "process")
    assert "every committer of " in done.out
    assert "can do on the task manager's host everything that the task manager's own user may do" in done.out
    assert "whoever" not in arkqueue("archive", "set", "book", "--executor", "none").out
    settings = arkqueue("archive", "show", "book", "--json").json["settings"]
    assert (settings["process"], settings["process_user"], settings["task_url"]) == (False, None, "file:///x")
    assert settings["branches"] == ["main", "release/*"]


def test_rules_of_age_are_tried_before_they_hold_and_changed_when_the_archive_is_removed(
    arkqueue: Cli, session: Session
) -> None:
    archive = an_archive(session)
    for number in (2, 3, 4, 5):
        archive.commit({"a": ""})
        archive.run(f"a@{number}")
    for number, days in ((1, 5), (2, 90), (3, 80), (4, 40), (5, 2)):
        let_age(archive, number, days)

    tried = arkqueue("archive", "set", "papers", "keep", "completed=30d", "--dry-run")
    assert tried.code == 0
    assert [line.partition(", made ")[0] for line in tried.lines] == [
        "Nothing is changed. With these rules:", "papers: 3 runs would go now", "  the oldest: papers@2", "  the newest: papers@4",
    ]  # fmt: skip
    assert arkqueue("archive", "set", "papers", "keep", "completed=100d", "--dry-run").lines[1:] == [
        "papers: 0 runs would go now"
    ]
    assert arkqueue("archive", "set", "papers", "keep", "", "--dry-run").lines[1:] == ["papers: 0 runs would go now"]
    assert "not a state in which" in arkqueue("archive", "set", "papers", "keep", "running=3d", "--dry-run").err
    assert "no other setting" in arkqueue("archive", "set", "papers", "tier", "3", "--dry-run").err
    assert arkqueue("archive", "show", "papers", "--json").json["settings"]["keep"] == {}
    assert len(archive.states()) == 4
    assert archive.sql("select count(*) as n from deed where verb in ('set', 'purge')") == [{"n": 0}]

    assert "arkqueue purge papers" in arkqueue("archive", "set", "papers", "keep", "completed=30d").lines[-1]
    arkqueue("archive", "set", "papers", "keep-logs", "20d")
    told = arkqueue("archive", "remove", "papers", "--dry-run").lines
    assert told[0] == "Nothing is changed. It would be:"
    assert arkqueue("archive", "show", "papers", "--json").json["removed_at"] is None
    removed = arkqueue("archive", "remove", "papers").lines
    assert removed == told[1:]
    assert removed[0] == "papers: is watched no longer: 4 runs kept"
    assert removed[1:] == [
        "note: its history is purged by its age as before. To keep all of it:",
        "note: arkqueue archive set papers keep ''",
        "note: arkqueue archive set papers keep-logs ''",
    ]
    assert arkqueue("archive", "set", "papers", "keep", "").lines == ["papers: keep everything for ever"]
    assert arkqueue("archive", "set", "papers", "keep-logs", "").code == 0
    assert "was removed" in arkqueue("archive", "set", "papers", "tier", "3").err
    a_pass(session)
    assert len(archive.states()) == 4, "nothing of a removed archive goes any more"
    arkqueue("archive", "set", "papers", "keep", "completed=30d")
    a_pass(session)
    assert archive.states() == {"a@5": "completed"}


def test_tier_and_limit_are_set_in_words_or_by_options_and_unset(arkqueue: Cli, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    arkqueue("archive", "add", "papers", repository.url, "--tier", "3")
    assert arkqueue("archive", "set", "papers", "tier", "0").lines == ["papers: tier 0"]
    assert arkqueue("archive", "set", "papers", "max_running", "1").lines == ["papers: max_running 1"]
    assert arkqueue("archive", "set", "papers", "max-running", "3").lines == ["papers: max_running 3"]
    assert arkqueue("archive", "set", "papers", "keep_logs", "90d").code == 0
    assert arkqueue("archive", "set", "papers", "require_approval", "pub*").code == 0
    assert arkqueue("archive", "set", "papers", "workflow_authors", "ann").code == 0
    shown = [line.split() for line in arkqueue("archive", "show", "papers").lines]
    assert ["tier", "0"] in shown
    assert ["max", "running", "3"] in shown
    done = arkqueue("archive", "set", "papers", "--tier", "none", "--max-running", "none")
    assert done.lines == ["papers: tier 5, max_running no limit"]
    for wrong in (
        ("tier",),
        ("tier", "1", "2"),
        ("tier", "low"),
        ("max_running", "-1"),
        ("speed", "3"),
        ("tier", "1", "--tier", "2"),
    ):
        assert arkqueue("archive", "set", "papers", *wrong).code == 2
    assert "tier" in arkqueue("archive", "set", "papers", "tier", "101").err
    assert "max_running" in arkqueue("archive", "set", "papers", "max_running", "0").err


def test_a_guard_that_could_hold_nothing_is_refused(arkqueue: Cli, tmp_path: Path) -> None:
    assert arkqueue("archive", "add", "papers", a_git_repository(tmp_path).url).code == 0
    refused = arkqueue("archive", "set", "papers", "require-approval", "x y")
    assert refused.code == 2
    assert "require-approval 'x y': matches no task" in refused.err
    assert (
        "An empty text ends require-approval" in arkqueue("archive", "set", "papers", "require-approval", "", "a").err
    )

    def settings(*words: str) -> tuple[list[str], bool]:
        found = arkqueue("archive", "set", "papers", *words, "--json").json["settings"]
        return found["require_approval"], found["approval_not_author"]

    assert settings("require-approval", "publish", "--not-author") == (["publish"], True)
    assert settings("require-approval", "publish", "deploy") == (["publish", "deploy"], True)
    assert settings("require-approval", "publish", "--any-author") == (["publish"], False)
    no_globs = arkqueue("archive", "set", "papers", "require-approval", "", "--not-author")
    assert "--not-author goes with the globs" in no_globs.err
    assert settings("require-approval", "") == ([], False)


def test_list_and_show_say_who_holds_an_import_and_why(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    branch = archive.branches[""]
    assert ledger.begin_import(session, [replace(branch, until="4")], limit=2)
    archive.branches[""] = replace(branch, until="4")
    for _ in range(3):
        archive.commit({"a": "", "b": "hold: true"})
    shown = arkqueue("archive", "show", "papers").out
    told = [line for line in arkqueue("archive", "list").lines if line.startswith("papers:")]
    assert len(told) == 1, "only holds of the whole archive"
    for said in (told[0], shown):
        assert "3 tasks held by arkqueue since 20" in said
        assert "one scan has found more than 2 new revisions, up to 4" in said
    assert "3 tasks held by the workflow file" in shown
    holds = arkqueue("archive", "show", "papers", "--json").json["holds"]
    assert [(one["by"], one["tasks"], one["is_whole"]) for one in holds] == [
        ("the workflow file", 3, False),
        ("arkqueue", 3, True),
    ]


def test_a_reason_of_several_lines_is_printed_whole_on_one_line(arkqueue: Cli, session: Session) -> None:
    an_archive(session)
    an_archive(session, "books")
    reason = "the disk\nis full\x1b[2J\nuntil Monday"
    assert arkqueue("hold", "papers", "--reason", reason).code == 0
    assert arkqueue("pause", "books", "--reason", reason).code == 0
    for said in (arkqueue("archive", "list").lines, arkqueue("archive", "show", "papers").lines):
        assert any(line.endswith("the disk is full\\x1b[2J until Monday") for line in said)
    assert sum(line.endswith("until Monday") for line in arkqueue("archive", "list").lines) == 2


def test_how_long_runs_and_logs_are_kept_is_set_in_words_shown_and_unset(arkqueue: Cli, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    arkqueue("archive", "add", "papers", repository.url)
    done = arkqueue("archive", "set", "papers", "keep", "failed=400d", "completed=30d")
    assert done.lines[0] == "papers: keep completed=30d failed=400d"
    assert arkqueue("archive", "set", "papers", "keep-logs", "90d").lines[0] == "papers: keep_logs 90d"
    shown = [line.split() for line in arkqueue("archive", "show", "papers").lines]
    assert ["keeps", "completed=30d", "failed=400d"] in shown
    assert ["keeps", "logs", "90d"] in shown
    for wrong in (
        ("keep", "completed"),
        ("keep",),
        ("keep-logs",),
        ("keep", "=3d"),
        ("keep", "failed=1d", "failed=2d"),
    ):
        assert arkqueue("archive", "set", "papers", *wrong).code == 2
    assert "is not a state in which runs are purged" in arkqueue("archive", "set", "papers", "keep", "running=3d").err
    assert "is not a valid age: 'soon'" in arkqueue("archive", "set", "papers", "keep-logs", "soon").err
    assert "is not a valid age: '0d'" in arkqueue("archive", "set", "papers", "keep", "failed=0d").err
    assert arkqueue("archive", "set", "papers", "keep", "").lines == ["papers: keep everything for ever"]
    assert arkqueue("archive", "set", "papers", "keep-logs", "").lines == ["papers: keep_logs for ever"]


def test_user_that_this_host_lacks_is_told_at_once(arkqueue: Cli, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    arkqueue("archive", "add", "papers", str(repository.path), "--executor", "process")
    done = arkqueue("archive", "set", "papers", "--process-user", "no-such-user")
    assert done.code == 0, "another host may have it"
    assert "note: this host has no user no-such-user" in done.out
    assert "has no user" not in arkqueue("archive", "set", "papers", "--process-user", "nobody").out


def test_what_containers_may_have_is_given_shown_and_unset(arkqueue: Cli, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    add = ("archive", "add", "papers", repository.url, "--image", "arkqueue/default", "--allow-image", "debian")
    done = arkqueue(*add, "--allow-image", "team/*", "--allow-user", "1000:*", "--allow-network", "lab")
    assert done.code == 0
    assert "note: its tasks run in containers, of arkqueue/default where they name no image" in done.out
    assert "--executor process" not in done.out
    shown = arkqueue("archive", "show", "papers").out
    for words in ("of arkqueue/default where", "debian, team/*", "1000:*", "lab"):
        assert words in shown
    done = arkqueue("archive", "set", "papers", "--image", "", "--allow-image", "", "--allow-user", "nobody")
    assert done.lines[0] == "papers: image none, images every one, users nobody"
    settings = arkqueue("archive", "show", "papers", "--json").json["settings"]
    assert [settings[key] for key in ("image", "images", "users", "networks")] == [None, [], ["nobody"], ["lab"]]
    done = arkqueue("archive", "set", "papers", "--executor", "process")
    assert "where they name an image, else as processes of the task manager's own user" in done.out
    done = arkqueue("archive", "set", "papers", "--task-url", "svn://:13690/s")
    assert (done.code, done.out) == (2, "")
    assert "svn://:13690/s: is not the address of a repository" in done.err
    done = arkqueue("archive", "set", "papers", "--image", "Debian")
    assert (done.code, done.out) == (2, "")
    assert "Did you mean debian?" in done.err


def test_path_from_here_is_a_path_everywhere(arkqueue: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = a_subversion_repository(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert arkqueue("archive", "add", "papers", "svn", "--json").json["repository"] == repository.url


def test_sync_waits_for_a_reading_that_began_after_it(
    arkqueue: Cli, started: Start, session: Session, configuration: Configuration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """One that was under way has missed what was committed meanwhile."""
    repository = a_subversion_repository(tmp_path)
    repository.commit({"x": "1"})
    has_read, first, second, asked = threading.Event(), threading.Event(), threading.Event(), []
    # A scan is held at two of its points, which nothing outside can do.
    look, expected, show = Reader._look, Reader._expected, views.archive

    def begin(reader: Reader, row: Any) -> None:
        assert not first.is_set() or second.wait(60)
        look(reader, row)

    def end(reader: Reader, row: Any) -> float | None:
        has_read.set()
        assert first.wait(60)
        return expected(reader, row)

    def count(*arguments: Any) -> views.ArchiveView:
        asked.append(arguments)
        return show(*arguments)

    monkeypatch.setattr(Reader, "_look", begin)
    monkeypatch.setattr(Reader, "_expected", end)
    monkeypatch.setattr(views, "archive", count)
    arkqueue("archive", "add", "papers", repository.url)
    before = shown(arkqueue)["notice"]
    with closing(QueueManager(session, configuration)) as manager:
        manager.start()
        assert has_read.wait(60)
        repository.commit({"x": "2"})
        process = started("sync", "papers", "--wait")
        eventually(lambda: shown(arkqueue)["notice"] != before)
        first.set()
        eventually(lambda: shown(arkqueue)["read_at"])
        seen = len(asked)
        eventually(lambda: len(asked) > seen + 2 or process.poll() is not None)
        second.set()
        assert the_rest(process) == ("papers: was read; its head is 2\n", "")


def shown(arkqueue: Cli) -> Any:
    return arkqueue("archive", "show", "papers", "--json").json


def test_an_archive_whose_branch_was_renamed_is_not_shown_as_in_order(
    arkqueue: Cli, manager: QueueManager, tmp_path: Path  # noqa: ARG001
) -> None:  # fmt: skip
    repository = a_git_repository(tmp_path)
    repository.commit({"readme": "1"})
    arkqueue("archive", "add", "papers", str(repository.path))
    run("git", "--git-dir", repository.path, "update-ref", "refs/heads/trunk", "refs/heads/main")
    assert "no branch" not in arkqueue("sync", "papers", "--wait").out
    run("git", "--git-dir", repository.path, "update-ref", "-d", "refs/heads/main")
    assert (
        "note: no branch is tracked, as main is deleted: arkqueue archive set papers --branch GLOB"
        in arkqueue("sync", "papers", "--wait").out
    )
    assert "no branch" in arkqueue("archive", "list").out
    assert "no branch is tracked" in arkqueue("archive", "show", "papers").out
    arkqueue("archive", "set", "papers", "--branch", "trunk")
    assert "no branch" not in arkqueue("sync", "papers", "--wait").out
    assert "watched" in arkqueue("archive", "list").out


def test_sync_says_that_nobody_is_there_to_read_and_goes_on_waiting(
    arkqueue: Cli, started: Start, session: Session, configuration: Configuration, tmp_path: Path
) -> None:
    repository = a_subversion_repository(tmp_path)
    repository.commit({"x": "1"})
    arkqueue("archive", "add", "papers", repository.url)
    with session.database.transaction() as connection:
        connection.execute(b"update heartbeat set beat_at = now() - interval '1 hour'")
    for done in (arkqueue("sync", "papers"), arkqueue("notify", "papers"), arkqueue("archive", "show", "papers")):
        assert "no queue manager is running" in done.out
        assert "Start one: arkqueue manager" in done.out
    process = started("sync", "papers", "--wait")
    assert process.stderr is not None
    said = "papers: no queue manager is running; waiting for one. Start one: arkqueue manager"
    assert process.stderr.readline() == f"arkqueue: {said}\n"
    with closing(QueueManager(session, configuration)) as manager:
        manager.start()
        assert the_rest(process) == ("papers: was read; its head is 1\n", "")


@pytest.mark.parametrize("make", [a_subversion_repository, a_git_repository])
def test_command_that_comes_next_can_be_pasted(arkqueue: Cli, tmp_path: Path, make: Callable[[Path, str], Any]) -> None:
    repository = make(tmp_path, "Bücher & 'Karten' 100%41")
    done = arkqueue("archive", "add", "books", str(repository.path))
    (said,) = [line for line in done.lines if line.startswith("next: ")]
    command = shlex.split(said.partition(": arkqueue ")[2])
    assert command == ["hook", "install", str(repository.path)]
    assert arkqueue(*command).code == 0


def test_notice_names_a_revision_or_a_commit(arkqueue: Cli, tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    head = repository.commit(WORKFLOW)
    arkqueue("archive", "add", "book", repository.url)
    assert arkqueue("notify", "book").out == "book: will be looked at\n"
    for revision, known in ((f"g{head}", head), (head, head), ("r12", "12")):
        done = arkqueue("notify", "book", revision)
        assert (done.code, done.out) == (0, f"book: will be looked at for {revision}\n")
        assert arkqueue("archive", "show", "book", "--json").json["notice"]["revision"] == known
    assert arkqueue("notify", "bok").code == 1


def test_sync_waits_until_commits_are_in_the_ledger_or_says_why_they_are_not(
    arkqueue: Cli, manager: QueueManager, tmp_path: Path  # noqa: ARG001
) -> None:  # fmt: skip
    repository = a_subversion_repository(tmp_path)
    repository.commit({"x": "1"})
    arkqueue("archive", "add", "papers", repository.url)
    assert arkqueue("sync", "papers", "--wait").code == 0
    repository.commit(WORKFLOW)
    repository.commit({"x": "2"})
    done = arkqueue("sync", "papers", "--wait")
    assert (done.code, done.out) == (0, "papers: was read; its head is 3\n")
    assert [line.split()[0] for line in arkqueue("runs").lines[1:]] == ["papers@3", "papers@2", "papers@1"]
    right = repository.uuid
    for other in ("0f0f0f0f-0000-4000-8000-000000000001", "0f0f0f0f-0000-4000-8000-000000000002"):
        run("svnadmin", "setuuid", repository.path, other)
        done = arkqueue("sync", "papers", "--wait")
        assert done.code == 1
        assert f"its UUID is {other}, not {right}" in done.err, "as it is now"
        assert "Bring the right one back, then: arkqueue sync papers" in done.err
    run("svnadmin", "setuuid", repository.path, right)
    repository.commit({"x": "3"})
    done = arkqueue("sync", "papers", "--wait")
    assert (done.code, done.out) == (0, "papers: was read; its head is 4\n")
    assert [b["name"] for b in arkqueue("archive", "show", "papers", "--json").json["branches"]] == [""]
    shutil.rmtree(repository.path)
    done = arkqueue("sync", "papers", "--wait")
    assert (done.code, done.out) == (1, "")
    assert done.err.count("arkqueue sync papers") == 1
    assert "in trouble" in arkqueue("archive", "list").out


def test_a_rewind_says_what_becomes_of_the_runs_before_and_after_it(
    arkqueue: Cli, session: Session, tmp_path: Path
) -> None:
    archive = an_archive(session)
    repository = a_subversion_repository(tmp_path)
    repository.commit({"x": "1"})
    archive.move_to(repository.url)
    archive.commit({"a": "", "b": "depends: [a]"})
    archive.claim("a@2")
    would = [
        "papers: its ledger starts anew at revision 1",
        "the ledger so far is kept as papers:rewound~1: 1 run, 1 task canceled, 1 task running on",
    ]
    tried = arkqueue("archive", "rewind", "papers", "1", "--dry-run")
    assert (tried.code, tried.lines) == (0, ["Nothing is changed. It would be:", *would])
    assert archive.states() == {"a@2": "running", "b@2": "waiting"}
    assert arkqueue("archive", "rewind", "papers", "9", "--dry-run").code == 1
    assert arkqueue("archive", "rewind", "papers", "1").lines == would
    assert archive.states() == {"a@2": "running", "b@2": "canceled"}


def test_a_corrected_revision_is_accepted(arkqueue: Cli, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    repository.commit({"x": "1"})
    arkqueue("archive", "add", "papers", repository.url)
    (tmp_path / "author").write_text("eve")
    run("svnadmin", "setrevprop", repository.path, "-r", "1", "svn:author", tmp_path / "author")
    done = arkqueue("archive", "accept", "papers@1")
    assert done.code == 0
    assert done.out.startswith("papers: papers@1 is by eve at 2")
    assert " UTC from now on, and no longer by ada at 2" in done.out
    done = arkqueue("archive", "accept", "papers@1")
    assert (done.code, done.out) == (1, "")
    assert "papers@1: has the author and the date that are known: there is nothing to accept" in done.err
    for name in ("papers", "papers@1/index", "papers@1.2", "papers@gabcd"):
        assert arkqueue("archive", "accept", name).code == 2
    (tmp_path / "author").write_text("mallory")
    run("svnadmin", "setrevprop", repository.path, "-r", "1", "svn:author", tmp_path / "author")
    assert arkqueue("archive", "accept", "papers@1", "--json").json["note"].startswith("papers@1 is by mallory")
