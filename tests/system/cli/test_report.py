"""`arkqueue report` as a person types it."""

from __future__ import annotations

import json

import pytest

from arkqueue.cli import report as cli_report
from arkqueue.db.session import Session
from tests.builders import an_archive
from tests.system.cli.conftest import Cli


def test_says_that_the_command_which_makes_the_report_has_not_started(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "REPORT": "command: ./send"})
    archive.run("a@2")
    told = "papers@2: has no report yet, because papers@2/REPORT is ready. arkqueue explain papers@2/REPORT"
    assert told in arkqueue("report", "papers@2").err
    assert "arkqueue explain papers@2/REPORT" in arkqueue("report", "papers@2", "--update", "--now").err
    assert "papers@2/REPORT: It is ready" in arkqueue("explain", "papers@2").out


def test_a_task_that_only_a_failure_starts_was_not_needed_as_there_was_none(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [{task: a, when: failed}]"})
    archive.run("a@2")
    assert "as papers@2/a completed" in arkqueue("report", "papers@2").out
    assert [one["unneeded"] for one in arkqueue("report", "papers@2", "--json").json["tasks"]] == [True, False]


def test_shows_the_report_of_a_run_and_makes_another_after_a_repair(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]", "c": ""})
    early = arkqueue("report", "papers@2")
    assert (early.code, early.lines) == (1, [])
    assert "papers@2: has no report yet, as it has not settled. arkqueue report papers@2 --update --now" in early.err
    archive.end("a@2", 1, message="no \x1b[2Jpaper")
    archive.run("c@2")

    first = arkqueue("report", "papers@2")
    assert first.code == 0
    assert first.lines[0] == "papers@2  failed, report 1"
    assert "  tasks       3, 1 completed, 1 failed, 1 skipped" in first.lines
    assert "\x1b[2J" not in first.out
    assert not [line for line in first.lines if line.split() in (["changes"], ["sent"])], (
        "nothing is said of what there is not"
    )
    (failed,) = [line for line in first.lines if line.split()[:2] == ["a", "failed"]]
    assert "paper" in failed
    assert first.err == ""

    archive.retry("a@2")
    refused = arkqueue("report", "papers@2", "--update")
    assert refused.code == 1
    assert "2 of its tasks are not settled. Wait for its end, or report its present state" in refused.err
    archive.run("a@2", "b@2")
    assert "papers@2  completed  3/3, changed since its report" in arkqueue("runs").out
    assert "1, the newest of" in arkqueue("show", "papers@2", "--files", "0").out
    assert "arkqueue report papers@2 --update" in arkqueue("report", "papers@2").err

    again = arkqueue("report", "papers@2", "--update")
    assert (again.code, again.lines[0], again.err) == (0, "papers@2  completed, report 2", "")
    assert "  changes     2 tasks since report 1" in again.lines
    assert [line.split()[:3] for line in again.lines if line.startswith("*")] == [
        ["*", "a", "completed"],
        ["*", "b", "completed"],
    ]
    assert "changed since its report" not in arkqueue("runs").out
    listed = arkqueue("report", "papers@2", "--list").lines
    assert [line.split()[0] for line in listed] == ["REPORT", "2", "1"]
    one = json.loads(arkqueue("report", "papers@2", "--number", "1", "--json").out)
    assert (one["version"], one["number"], one["counts"]["failed"]) == (1, 1, 1)


def test_of_a_deleted_run_no_further_report_is_named(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.fail("a@2")
    archive.retry("a@2")
    archive.run("a@2")
    assert "arkqueue report papers@2 --update" in arkqueue("report", "papers@2").err
    assert arkqueue("delete", "papers@2").code == 0
    for command in (["report", "papers@2"], ["report", "papers@2", "--list"]):
        assert (arkqueue(*command).code, arkqueue(*command).err) == (0, ""), command
    assert "papers@2: was deleted" in arkqueue("report", "papers@2", "--update").err


def test_of_many_tasks_those_that_changed_are_listed(
    arkqueue: Cli, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_report, "MOST_LINES", 1)
    archive = an_archive(session)
    archive.commit(dict.fromkeys("abcd", ""))
    archive.run("a@2", "b@2")
    archive.fail("c@2")
    archive.fail("d@2")
    first = arkqueue("report", "papers@2")
    assert (first.lines[-1].split()[:2], first.err) == (["c", "failed"], "and 3 more tasks: --json\n")
    archive.retry("c@2")
    archive.retry("d@2")
    archive.run("c@2", "d@2")
    again = arkqueue("report", "papers@2", "--update")
    assert again.lines[-1].split()[:3] == ["*", "c", "completed"]
    assert again.err == "and 3 more tasks, 1 of them changed: --json\n"


def test_refuses_what_does_not_go_together_and_says_why_there_is_no_report(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    assert "--now goes with --update" in arkqueue("report", "papers@2", "--now").err
    assert "Give one of" in arkqueue("report", "papers@2", "--list", "--number", "1").err
    named = arkqueue("report", "papers@2/a")
    assert (named.code, "is the name of a task, not of a run" in named.err) == (2, True)
    assert "papers@1: has no report: its archive's history begins there\n" in arkqueue("report", "papers@1").err
    assert "nothing has settled yet" in arkqueue("report", "papers@2", "--update", "--now").err
    archive.commit({"c": "", "REPORT": ""})
    arkqueue("delete", "papers@3")
    deleted = arkqueue("report", "papers@3").err
    assert "papers@3: was deleted before it had a report. arkqueue undelete papers@3" in deleted
    archive.run("a@2", "b@2")
    assert "nothing has changed since report" in arkqueue("report", "papers@2", "--update").err
