"""`status` and `workers`: what needs a person, and where tasks run."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, End, Fault, LogAppend, LogChunk, RunId, Stream, Workflow
from arkqueue.queue import archives, claim, holds, logs, pauses
from tests.builders import HOST, PROCESS, AnArchive, a_workflow, an_archive, an_entry
from tests.system.cli.conftest import Cli


@pytest.fixture
def archive(session: Session) -> AnArchive:
    claim.register(session, PROCESS, HOST, "build-1", 4)
    return an_archive(session)


def test_where_nothing_needs_a_person_it_says_so(arkqueue: Cli, archive: AnArchive) -> None:
    archive.commit({"a": ""})
    done = arkqueue("status")
    assert (done.code, done.lines) == (
        0,
        ["nothing needs a person", "1 archive · 1 task manager · 4 slots · 0 running · 1 waiting"],
    )


def test_each_thing_that_needs_a_person_has_the_command_that_helps(
    arkqueue: Cli, archive: AnArchive, session: Session
) -> None:
    archive.commit({"a": "", "b": "hold: true"})
    archive.fail("a@2")
    books, maps, stamps = (an_archive(session, name) for name in ("books", "maps", "stamps"))
    holds.hold_archive(session, ArchiveId(books.id), "ben", reason="an audit")
    pauses.pause(session, ArchiveId(maps.id), "", "cleo")
    archives.stop(session, ArchiveId(stamps.id), "it is another repository")
    pauses.drain(session, HOST, "a new disk", "ann")
    done = arkqueue("status")
    assert done.code == 1
    assert done.lines[-1] == "4 archives · 1 task manager · 4 slots · 0 running · 0 waiting · 1 held"
    told = dict(zip(done.lines[:-1:2], done.lines[1:-1:2], strict=True))
    assert {text.split(None, 1)[0] + " " + text.split(None, 2)[1]: command.strip() for text, command in told.items()} == {
        "fault task": "arkqueue resume --worker build-1",
        "held books:": "arkqueue unhold books",
        "held maps:": "arkqueue resume maps",
        "failed stamps:": "arkqueue archive show stamps",
        "failed papers@2/a:": "arkqueue retry papers@2/a",
        "held papers@2/b:": "arkqueue release papers@2/b",
    }  # fmt: skip
    for command in told.values():
        words = shlex.split(command)[1:]
        assert arkqueue(*words).code == 0, command
    assert arkqueue("status").lines[0].startswith("failed   stamps: stopped")


def test_what_a_stop_refuses_is_not_named_until_it_ends(arkqueue: Cli, archive: AnArchive, session: Session) -> None:
    archive.commit({"pack": "foreach: [v, w]", "index": "depends: [pack]", "scan": "foreach: [v, w]"})
    archive.commit({"pdf": "", "show": "hold: true", "index": "depends: [PREV]"})
    archive.fail("pdf@3")
    for item in ("pack/v@2", "pack/w@2", "scan/v@2", "scan/w@2"):
        archive.end(item, 65)
    archive.commit({"a": "", "b": ""})
    holds.hold_run(session, RunId(archive.run_id(4)), "ben")
    of_all = an_archive(session, "books")
    holds.hold_archive(session, ArchiveId(of_all.id), "ben")
    of_all.commit({"a": ""})
    holds.unhold(session, ArchiveId(of_all.id), "ben")
    archives.stop(session, ArchiveId(archive.id), "it is another repository")
    archives.stop(session, ArchiveId(of_all.id), "it is another repository")
    lines = arkqueue("status").lines[:-1]
    told = {
        text.split()[1].rstrip(":"): (text, command.strip())
        for text, command in zip(lines[::2], lines[1::2], strict=True)
    }
    refused = {
        "papers@3/pdf": "arkqueue explain papers@3/pdf",
        "papers@2/pack/*": "arkqueue explain 'papers@2/pack/*'",
        "papers@3/show": "arkqueue explain papers@3/show",
        "papers@4/a": "arkqueue explain papers@4/a",
    }
    for name, command in refused.items():
        assert (told[name][0].endswith(" · papers is stopped"), told[name][1]) == (True, command), told[name]
        assert (
            arkqueue(*shlex.split(command)[1:]).lines[1].startswith("papers is stopped, so none of its tasks starts")
        ), name
    assert "arkqueue skip 'papers@2/scan/*' --state rejected" in told["papers@2/scan/*"][1]
    assert arkqueue("skip", "papers@2/scan/*", "--state", "rejected").code == 0
    assert told["books"] == ("held     books: 1 task is held by ben · books is stopped", "arkqueue archive show books")
    archives.go_on(session, ArchiveId(archive.id), "it is another repository")
    assert "         arkqueue retry papers@3/pdf" in arkqueue("status").lines


def test_what_was_held_together_is_told_once_with_one_command(
    arkqueue: Cli, archive: AnArchive, session: Session
) -> None:
    holds.hold_archive(session, ArchiveId(archive.id), "ben", reason="an audit")
    for _ in range(30):
        archive.commit({"a": "", "b": "depends: [a]"})
    assert arkqueue("status").lines[:-1] == [
        "held     papers: on hold by ben: an audit",
        "         arkqueue unhold papers",
    ]
    holds.unhold(session, ArchiveId(archive.id), "ben")
    assert arkqueue("status").lines[:-1] == [
        "held     papers: 60 tasks are held by ben: an audit",
        "         arkqueue release papers --all",
    ]
    assert arkqueue("release", "papers", "--all").code == 0
    assert arkqueue("status").lines[0] == "nothing needs a person"


def test_a_run_that_the_authors_of_workflows_hold_is_one_line_with_its_release(
    arkqueue: Cli, archive: AnArchive, session: Session
) -> None:
    archive.commit({"build": ""})
    settings = ArchiveSettings(process=True, workflow_authors=("ann",))
    archives.change_settings(session, archive.id, settings, "ann")
    for _ in range(2):
        archive.commit({"build": "", "evil": "", "after": "depends: [evil]"}, author="mallory")
    why = "is held by its archive (workflow-authors)"
    assert arkqueue("status").lines[:-1] == [
        f"held     papers@4: {why}",
        "         arkqueue release papers@4",
        f"held     papers@3: {why}",
        "         arkqueue release papers@3",
    ]
    assert arkqueue("status", "--json").json["count"] == 2
    assert arkqueue("release", "papers@3").code == 0
    archive.run("build@3", "evil@3")
    archive.commit({"build": "", "evil": "", "after": "depends: [evil]"}, author="mallory")
    assert archive.state("evil@5") == "ready", "the files are accepted"
    archive.run("build@5")
    about, command, *_ = arkqueue("status").lines
    assert about == f"held     papers@4: {why} · later revisions have already run"
    assert command.strip() == "arkqueue explain papers@4"
    explained = arkqueue("explain", "papers@4").out
    assert "arkqueue release papers@4 --skip-outdated" in explained
    assert "arkqueue release papers@4 --force" in explained


@pytest.mark.parametrize("how", ["the list", "the run", "its file"])
def test_items_that_one_hold_holds_are_one_line_with_the_release_of_all(
    arkqueue: Cli, archive: AnArchive, how: str
) -> None:
    archive.commit({"pack": "foreach: [v, w, x]" + "\nhold: true" * (how == "its file"), "b": ""})
    if how == "the list":
        assert arkqueue("hold", "papers@2/pack/*", "--state", "ready").code == 0
        assert re.search("UTC, until a person", arkqueue("explain", "papers@2/pack/v").out), "no selector as the reason"
    elif how == "the run":
        assert arkqueue("hold", "papers@2", "--reason", "an audit").code == 0
    by = {
        "the list": "by root (first token)",
        "the run": "by root (first token): an audit",
        "its file": "by its workflow file",
    }[how]
    b = [f"held     papers@2/b: is held {by}", "         arkqueue release papers@2/b"] * (how == "the run")
    assert arkqueue("status").lines[:-1] == [
        f"held     papers@2/pack/*: 3 items are held {by}",
        "         arkqueue release 'papers@2/pack/*'",
        *b,
    ]
    assert arkqueue("status", "--json").json["count"] == 3 + len(b) // 2
    assert arkqueue("release", "papers@2/pack/*").code == 0
    assert arkqueue("hold", "papers@2/pack/*", "--reason", "a second look").code == 0
    assert "3 items are held by root (first token): a second look" in arkqueue("status").out
    assert arkqueue("release", "papers@2/pack/v", "papers@2/pack/w").code == 0
    assert "papers@2/pack/x: is held by root (first token): a second look" in arkqueue("status").out


def test_failed_items_of_a_list_are_one_line_with_one_command(arkqueue: Cli, archive: AnArchive) -> None:
    archive.commit({"pack": "foreach: [v, w, x, y, z]", "b": ""})
    archive.fail("pack/v@2", "pack/w@2", "b@2")
    archive.record(archive.attempt("pack/x@2"), End.EXITED, 65)
    archive.record(archive.attempt("pack/y@2"), End.EXITED, 65)
    assert arkqueue("status").lines[:-1] == [
        "failed   papers@2/pack/*: 2 items failed, the first v: exit code 1",
        "         arkqueue retry 'papers@2/pack/*'",
        "failed   papers@2/pack/*: 2 items were rejected, the first x: exit code 65",
        "         arkqueue skip 'papers@2/pack/*' --state rejected",
        "failed   papers@2/b: exit code 1",
        "         arkqueue retry papers@2/b",
    ]
    told = arkqueue("status", "--json").json
    assert (told["count"], [need["count"] for need in told["needs"]]) == (5, [2, 2, 1])
    for command in arkqueue("status").lines[1:-1:2]:
        assert arkqueue(*shlex.split(command)[1:]).code == 0, command
    assert arkqueue("status").lines[0] == "nothing needs a person"


def test_a_failure_that_a_later_revision_has_made_good_is_left_out(arkqueue: Cli, archive: AnArchive) -> None:
    for _ in range(2):
        archive.commit({"a": "", "b": "depends: [a]"})
    archive.fail("a@2")
    archive.run("a@3")
    archive.fail("b@3")
    assert [line.strip() for line in arkqueue("status").lines[1:-1]] == ["arkqueue retry papers@3/b"]


def test_a_failure_behind_later_work_is_retried_by_force(arkqueue: Cli, archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.fail("a@2")
    archive.commit({"b": "depends: [{task: 'PREV:a', when: settled}]"})
    archive.run("b@3")
    first, command, _ = arkqueue("status").lines
    assert "later revisions have already run" in first
    assert command.strip() == "arkqueue retry papers@2/a --force"
    assert arkqueue("retry", "papers@2/a").code == 1
    assert arkqueue(*shlex.split(command)[1:]).code == 0


def test_a_failure_of_a_dropped_revision_is_waived_and_not_retried(arkqueue: Cli, archive: AnArchive) -> None:
    archive.commit({"a": "", "pack": "foreach: [x, y]"})
    archive.fail("a@2", "pack/x@2", "pack/y@2")
    archive.append("", [an_entry(3, a_workflow({"a": ""}))], dropped=["2"])
    lines = arkqueue("status").lines
    assert "exit code 1 · a rewrite of the branch dropped its revision at" in lines[0]
    assert "later revisions have already run" not in "".join(lines)
    commands = [line.strip() for line in lines[1:-1:2]]
    assert sorted(commands) == ["arkqueue skip 'papers@2/pack/*' --state failed", "arkqueue skip papers@2/a"]
    for command in commands:
        assert arkqueue(*shlex.split(command)[1:]).code == 0, command
    assert arkqueue("status").lines[0] == "nothing needs a person"


def test_workflow_files_with_faults_are_named_with_the_first_one(arkqueue: Cli, archive: AnArchive) -> None:
    archive.commit(Workflow(faults=(Fault("_workflows/a.yaml", 3, 1, "unknown field"), Fault("b", 1, 1, "x"))))
    assert arkqueue("status").lines[:2] == [
        "failed   papers@2: _workflows/a.yaml:3:1: unknown field. And 1 more.",
        "         arkqueue show papers@2",
    ]


def test_a_noisy_archive_hides_no_other_and_one_command_lists_all_of_it(
    arkqueue: Cli, archive: AnArchive, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"t{number}" for number in range(30)]
    maps = an_archive(session, "maps")
    maps.commit({"tile": ""})
    maps.fail("tile@2")
    archive.commit(dict.fromkeys(names, ""))
    archive.fail(*(f"{name}@2" for name in names))
    lines = arkqueue("status").lines
    assert any(line.startswith("failed   maps@2/tile: ") for line in lines)
    at = lines.index("failed   papers: and 25 more failures")
    assert lines[at + 1].strip() == "arkqueue status papers"
    whole = arkqueue("status", "papers")
    assert whole.code == 1
    assert sum(line.startswith("failed   papers@2/t") for line in whole.lines) == 30
    assert "maps" not in whole.out
    assert arkqueue("status", "nothing").code == 1
    monkeypatch.setattr("arkqueue.views.needs.MOST_NEEDS", 1)
    lines = arkqueue("status").lines
    at = lines.index("held     1 more archive needs a person: maps (1)")
    assert lines[at + 1].strip() == "arkqueue status ARCHIVE"


def test_a_token_for_some_archives_sees_these_alone(
    arkqueue: Cli, archive: AnArchive, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    books = an_archive(session, "books")
    for one in (archive, books):
        one.commit({"a": ""})
        one.fail("a@2")
    pauses.drain(session, HOST, "", "ann")
    made = arkqueue("token", "create", "--scope", "read", "--archive", "books")
    monkeypatch.setenv("ARKQUEUE_TOKEN", made.out.strip())
    done = arkqueue("status")
    assert "books@2/a" in done.lines[0]
    assert done.lines[1:] == ["         arkqueue retry books@2/a", "1 archive"]


def test_what_others_wrote_is_shown_and_obeyed_by_no_terminal(arkqueue: Cli, archive: AnArchive) -> None:
    archive.commit({"a": ""})
    attempt = archive.attempt("a@2")
    said = b"wrote 1 page\n! \x1b[2J\x07no room\n"
    logs.append(
        archive.session, PROCESS, [LogAppend(attempt, [LogChunk(0, Stream.STDOUT, 0.0, said)], len(said), len(said), 0)]
    )
    archive.fail("a@2")
    assert arkqueue("status").lines[0] == "failed   papers@2/a: exit code 1: ! \\x1b[2J\\x07no room"


def test_task_managers_are_listed_with_what_keeps_them_from_work(
    arkqueue: Cli, archive: AnArchive, session: Session
) -> None:
    claim.register(session, "p2", "b" * 32, "build-2", 2, fault="no fork", labels=["tex"])
    claim.register(session, "p3", "c" * 32, "build-2", 1, engine_fault="no engine")
    claim.register(session, "p4", "d" * 32, "build-3", 1)
    disk = "the disk of /srv has 1 MiB free, less than min_free (1 GiB)"
    claim.register(session, "p5", "e" * 32, "build-4", 1, low_disk=disk)
    archive.commit({"a": ""})
    archive.claim("a@2")
    pauses.drain(session, HOST, "a new disk", "ann")
    header, *rows = arkqueue("workers").lines
    assert header.split() == ["NAME", "STATE", "BUSY", "LABELS", "REPORTED", "WHY"]
    assert sorted(row.split(None, 2)[:2] for row in rows) == [
        ["bbbbbbbb", "unfit"],
        ["build-1", "drained"],
        ["build-3", "running"],
        ["build-4", "unfit"],
        ["cccccccc", "no"],
    ]
    text = "\n".join(rows)
    assert [row for row in rows if row.endswith(f"  {disk}")]
    assert "1 of 4" in text
    archive.sql("update task_manager set slots = 0 where slots = 4")
    assert "0 of 0" in arkqueue("workers").out, "the end of an attempt may not be recorded yet"
    assert "drained by ann: a new disk" in text
    assert "no fork" in text
    assert "tex" in text
    assert {one["name"] for one in json.loads(arkqueue("workers", "--json").out)} == {
        "build-1",
        "build-3",
        "build-4",
        "bbbbbbbb",
        "cccccccc",
    }


def test_without_a_task_manager_it_says_how_to_start_one(arkqueue: Cli, session: Session) -> None:
    an_archive(session)
    done = arkqueue("workers")
    assert (done.code, done.lines) == (0, [])
    assert "arkqueue worker" in done.err
    assert "no task manager is running" in arkqueue("status").out
