"""Holds, releases and guards from the command line (design 5.21, 5.22)."""

from __future__ import annotations

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db.session import Session
from arkqueue.queue import archives, claim
from tests.builders import HOST, PROCESS, an_archive
from tests.system.cli.conftest import Cli


def test_show_names_the_release_of_everything_and_what_it_skipped_as_out_of_date(
    arkqueue: Cli, session: Session
) -> None:
    archive = an_archive(session)
    arkqueue("hold", "papers", "--reason", "a new disk")
    archive.commit({"upload": "", "other": ""})
    arkqueue("unhold", "papers")
    archive.commit({"upload": ""})
    archive.run("upload@3")
    assert "hold papers a new disk" in arkqueue("show", "papers@2/other").out
    assert arkqueue("release", "papers", "--all", "--skip-outdated", "--reason", "it is built in").code == 0
    assert "release papers --all it is built in" in arkqueue("show", "papers@2/other").out
    skipped = "as out of date: release papers --all --skip-outdated"
    assert f"skip upload {skipped}" in arkqueue("show", "papers@2/upload").out
    run = arkqueue("show", "papers@2").out
    assert "release papers --all it is built in" in run
    assert f"skip upload {skipped}" in run


def test_a_run_that_waits_for_the_release_of_its_report_says_so(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "REPORT": "command: ./send\nhold: true"})
    assert arkqueue("runs", "--state", "held").lines == []
    assert "papers@2/REPORT: It is held by its workflow file" in arkqueue("explain", "papers@2").out
    archive.run("a@2")
    (row,) = [line for line in arkqueue("runs", "--state", "held").lines if "papers@2" in line]
    assert "1/1, REPORT held" in row
    assert arkqueue("show", "papers@2").lines[0].split() == ["papers@2", "held"]
    explained = arkqueue("explain", "papers@2").out
    assert "Its task is settled." in explained
    assert "papers@2/REPORT: It is held by its workflow file (hold: true), until a person releases it." in explained
    assert "arkqueue release papers@2/REPORT" in explained
    archive.commit({"a": "", "REPORT": "command: ./send\nhold: true"})
    archive.fail("a@3")
    assert "0/1, 1 failed, REPORT held" in arkqueue("runs").out, "the state is that of the other tasks"
    assert arkqueue("release", "papers@2").code == 0
    assert arkqueue("show", "papers@2").lines[0].split() == ["papers@2", "reporting"]


def test_what_later_revisions_have_made_outdated_is_released_by_commands_that_are_accepted(
    arkqueue: Cli, session: Session
) -> None:
    claim.register(session, PROCESS, HOST, "build-1", 4)
    archive = an_archive(session)
    arkqueue("hold", "papers", "--reason", "a new disk")
    archive.commit({"upload": "", "other": ""})
    archive.commit({"upload": ""})
    assert (
        arkqueue("unhold", "papers").lines[-1].endswith("until somebody releases them: arkqueue release papers --all")
    )
    archive.commit({"upload": ""})
    everything, skipping = "arkqueue release papers --all", "arkqueue release papers --all --skip-outdated"
    assert f"for a release: {everything}\n" in arkqueue("archive", "show", "papers").out
    assert arkqueue("status").lines[1].strip() == everything
    archive.run("upload@4")

    explained = arkqueue("explain", "papers@2/upload")
    why = "A plain release is refused, because later revisions have already run (papers@4/upload)"
    assert f"{why}: --force releases the task all the same, and --skip-outdated waives it and releases the rest." in explained.out  # fmt: skip
    commands = [skipping, "arkqueue release papers@2 --skip-outdated", "arkqueue release papers@2/upload --force"]
    assert [line.strip() for line in explained.lines if line.strip().startswith("arkqueue release")] == commands
    assert "later revisions" not in arkqueue("explain", "papers@2/other").out
    assert f"for a release: {skipping}\n" in arkqueue("archive", "show", "papers").out
    about, command, *_ = arkqueue("status").lines
    assert "later revisions have already run, so this waives the outdated tasks, and releases the rest" in about
    assert command.strip() == skipping
    assert arkqueue("release", "papers@3").code == 1
    for command in [*commands, skipping]:
        assert arkqueue(*command.split()[1:], "--dry-run").code == 0, command
    assert arkqueue(*skipping.split()[1:]).code == 0
    assert archive.states() == {"upload@2": "skipped", "other@2": "ready", "upload@3": "skipped", "upload@4": "completed"}  # fmt: skip


def test_many_held_tasks_are_released_without_the_outdated_ones(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit(dict.fromkeys("abcdef", ""))
    for name in "abcdef":
        arkqueue("hold", f"papers@2/{name}", "--reason", f"because of {name}")
    archive.commit({"a": ""})
    archive.run("a@3")
    explained = arkqueue("explain", "papers@2").out
    assert "arkqueue release papers@2/a --force" in explained
    assert "3 more tasks are held" in explained
    assert "arkqueue release papers@2 --skip-outdated" in explained
    assert "--all" not in explained, "nobody has asked about other runs"


def test_one_held_task_that_later_work_has_made_outdated_is_released_by_force(arkqueue: Cli, session: Session) -> None:
    claim.register(session, PROCESS, HOST, "build-1", 4)
    archive = an_archive(session)
    archive.commit({"upload": ""})
    arkqueue("hold", "papers@2/upload")
    archive.commit({"upload": ""})
    archive.run("upload@3")
    about, command, *_ = arkqueue("status").lines
    assert about.endswith("· later revisions have already run")
    assert command.strip() == "arkqueue release papers@2/upload --force"
    assert arkqueue("release", "papers@2/upload").code == 1
    assert arkqueue(*command.split()[1:]).code == 0


def test_a_held_task_that_is_superseded_says_so(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"build": ""})
    assert arkqueue("delete", "papers@2").code == 0
    archive.commit({"upload": "cancels: ['PREV:build']"})
    assert arkqueue("undelete", "papers@2").code == 0
    explained = arkqueue("explain", "papers@2/build")
    assert "because it is superseded by upload of revision 3: --force releases" in explained.out
    assert arkqueue("release", "papers@2/build").code == 1
    assert explained.lines[-1].strip() == "arkqueue release papers@2/build --force"
    assert arkqueue("release", "papers@2/build", "--force").code == 0


def test_a_release_names_the_runs_whose_workflow_files_it_accepts(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archives.change_settings(session, archive.id, ArchiveSettings(process=True, workflow_authors=("ann",)), "ann")
    archive.commit({"evil": ""}, author="mallory")
    says = "papers@2: its workflow files are accepted by this (workflow-authors)"
    assert arkqueue("release", "papers@2", "--dry-run").lines[1:] == ["papers@2/evil: ready", says]
    assert arkqueue("release", "papers", "--all", "--dry-run").lines[1:] == [
        "papers: 1 task released", says, "  papers@2/evil",
    ]  # fmt: skip
    assert arkqueue("release", "papers@2").lines == ["papers@2/evil: ready", says]


def test_large_numbers_of_held_tasks_have_separators(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    arkqueue("hold", "papers", "--reason", "a new disk")
    archive.commit({f"t{n}": "" for n in range(1001)})
    arkqueue("unhold", "papers")
    assert "watched, 1,001 held" in arkqueue("archive", "list").out
    assert "1,001 tasks wait for a release" in arkqueue("archive", "show", "papers").out
    assert arkqueue("release", "papers", "--all").lines == ["papers: 1,001 tasks released"]
