"""Runs and tasks on the command line: listed, shown, drawn, explained, made by hand, acted on."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from arkqueue.archives import changed
from arkqueue.db.connections import Connection
from arkqueue.db.session import Session
from arkqueue.model import Usage
from arkqueue.plan import Entry
from arkqueue.queue import claim
from arkqueue.views import lists
from arkqueue.views import runs as run_views
from tests.builders import HOST, PROCESS, AnArchive, a_list, a_revision, an_archive, faulty
from tests.db.test_example import example
from tests.repositories import a_git_repository
from tests.system.cli.conftest import Cli, Start, the_rest
from tests.system.task_manager.test_checkouts import commit, watch
from tests.waiting import PATIENCE, eventually

THE_EIGHT = [
    "1:COMMIT <-- 2:COMMIT",
    "2:COMMIT <-- 2:indexing",
    "2:indexing <-- 2:build-PDF",
    "2:COMMIT <-- 3:COMMIT",
    "3:COMMIT <-- 3:indexing",
    "2:indexing <-- 3:indexing",
    "2:build-PDF <!= 3:build-PDF",
    "3:indexing <-- 3:build-PDF",
]

UNSCANNED = "arkqueue: papers: its repository was not scanned within 0 s. What is known of it counts.\n"
"""What a trigger says where no queue manager runs."""
UNMANAGED = "  No task manager is running: no task starts. To change that: arkqueue worker\n"
"""What a trigger says where no task manager runs."""


def a_failed_one(session: Session) -> AnArchive:
    """papers@2 with ``a`` failed and ``b`` skipped because of it; papers@3 waits for ``a``."""
    archive = an_archive(session)
    archive.commit({"a": "depends: [PREV]", "b": "depends: [a]"})
    archive.commit({"a": "depends: [PREV]"})
    archive.fail("a@2")
    return archive


def edges(text: str) -> list[str]:
    """The edges of a graph as text, without alignment and remarks."""
    lines = [" ".join(line.split("//")[0].split()) for line in text.splitlines()]
    return [line for line in lines if "<" in line]


# Seen


def test_an_empty_list_of_runs_does_not_say_that_there_never_was_one(arkqueue: Cli) -> None:
    assert arkqueue("runs").err == "no runs\n"


def test_show_lists_the_files_that_a_revision_changes(
    arkqueue: Cli, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed, "PATIENCE", PATIENCE)  # a busy host takes seconds to start a reader
    repository = a_git_repository(tmp_path)
    archive = an_archive(session)
    watch(archive, repository)
    commit(archive, repository, {"a": "1", "b": "1", "c": "1"}, {})
    commit(archive, repository, {"a": "2", "b": None, "new\x1b[31m\nD c": "1", "one": "1"}, {})
    shown = arkqueue("show", "papers@3").lines
    at = next(number for number, line in enumerate(shown) if line.split()[0] == "files")
    listed = [line[14:] for line in shown[at : at + 4]]
    assert listed == ["M a", "D b", r"A new\x1b[31m\nD c", "A one"]
    assert [line[14:] for line in arkqueue("show", "papers@3", "--files", "1").lines[at : at + 2]] == [
        "M a",
        "and 3 more",
    ]
    assert not [line for line in arkqueue("show", "papers@3", "--files", "0").lines if line.startswith("  files")]
    told = arkqueue("show", "papers@3", "--files", "2", "--json").json["changes"]
    assert (told["total"], [file["status"] for file in told["files"]]) == (4, ["modified", "deleted"])
    repository.path.rename(tmp_path / "away")
    assert f"  files       cannot be listed: {repository.path}" in arkqueue("show", "papers@3").out


def test_graph_of_the_example_spells_the_eight_edges_of_the_document_and_what_becomes_of_them(
    arkqueue: Cli, session: Session
) -> None:
    archive = example(session)
    done = arkqueue("graph", "papers@2", "papers@3")
    assert done.code == 0
    assert sorted(edges(done.out)) == sorted(THE_EIGHT)
    assert "  build-PDF  waiting" in done.lines
    assert sorted(arkqueue("graph", "papers@3", "papers@2").lines) == sorted(done.lines)
    assert "3:indexing  <-- 3:build-PDF  // not yet" in arkqueue("graph", "papers@3").lines
    archive.run("indexing@2")
    archive.claim("build-PDF@2")
    archive.run("indexing@3")
    assert "2:build-PDF <!= 3:build-PDF  // is being stopped" in arkqueue("graph", "papers@3").lines


def test_graph_has_one_format_for_each_kind_of_reader(arkqueue: Cli, session: Session) -> None:
    example(session)
    both = ("graph", "papers@2", "papers@3")
    document = arkqueue(*both, "--format", "json").json
    assert document == arkqueue(*both, "--json").json
    assert len(document["edges"]) == 8
    assert [n["full_name"] for n in document["nodes"] if n["outside"]] == ["papers@1/COMMIT"]
    ids = {node["full_name"]: node["id"] for node in document["nodes"]}
    older, newer = (ids[f"papers@{number}/build-PDF"] for number in (2, 3))
    mermaid = arkqueue(*both, "--format", "mermaid").lines
    assert mermaid[0] == "flowchart LR"
    assert f"  t{newer} --x t{older}" in mermaid
    assert sum(" --" in line for line in mermaid) == 8
    dot = arkqueue(*both, "--format", "dot").lines
    assert (dot[0], dot[-1]) == ("digraph arkqueue {", "}")
    assert sum(" -> " in line for line in dot) == 8
    assert f'  t{newer} -> t{older} [color=red arrowhead=tee label="cancels"]' in dot


def test_runs_are_listed_newest_first_and_narrowed(arkqueue: Cli, session: Session) -> None:
    archive = a_failed_one(session)
    an_archive(session, "other").commit({"x": ""})

    def listed(*options: str) -> list[str]:
        return [line.split()[0] for line in arkqueue("runs", *options).lines[1:]]

    assert listed() == ["other@2", "other@1", "papers@3", "papers@2", "papers@1"]
    assert listed(archive.name, "--limit", "2") == ["papers@3", "papers@2"]
    assert listed("--state", "failed") == ["papers@2"]
    assert listed("--state", "failed", "--state", "pending") == ["other@2", "papers@3", "papers@2"]
    rest = arkqueue("runs", "papers", "--limit", "2").err
    assert listed("papers", *rest.split(": ")[1].split()) == ["papers@1"]
    assert "0/2, 1 failed, 1 skipped" in arkqueue("runs", "papers").out


def test_runs_of_a_state_may_be_older_than_those_that_were_looked_at(
    arkqueue: Cli, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.fail("a@2")
    for _ in range(120):
        archive.commit({})
    monkeypatch.setattr(run_views, "MOST_LOOKED_AT", 100)
    done = arkqueue("runs", "papers", "--state", "failed")
    assert done.lines == []
    assert "none of the newest runs is of this kind; look through older ones: --before" in done.err
    before = done.err.split()[-1]
    assert "papers@2 " in arkqueue("runs", "papers", "--state", "failed", "--before", before).out


def test_run_is_shown_with_names_that_commands_take(arkqueue: Cli, session: Session) -> None:
    a_failed_one(session)
    done = arkqueue("show", "papers@2")
    assert done.lines[0] == "papers@2  failed"
    names = [line.split()[0] for line in done.lines if line.startswith("papers@2/")]
    assert names == ["papers@2/COMMIT", "papers@2/a", "papers@2/b"]
    for name in names:
        assert arkqueue("show", name).lines[0].startswith(name + "  ")
    assert "because of papers@2/a" in done.out


def test_author_of_a_shown_run_is_left_out_where_nobody_knows_him(arkqueue: Cli, session: Session) -> None:
    an_archive(session).commit({"a": ""})

    def revision() -> str:
        return next(line for line in arkqueue("show", "papers@2").lines if line.strip().startswith("revision"))

    assert " by " in revision()
    with session.database.transaction() as connection:
        connection.execute("update revision set author = ''")
    assert re.search(r"\w, \d{4}-", revision()), "the date follows the revision"


def test_run_is_shown_with_the_other_runs_of_its_revision(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    assert "other runs" not in arkqueue("show", "papers@2").out
    archive.run("a@2")
    archive.trigger(2, "a")
    shown = " ".join(arkqueue("show", "papers@2.2").out.split())
    assert shown.startswith("papers@2.2 pending")
    assert "other runs papers@2 commit completed" in shown


def test_refusals_of_a_whole_run_name_the_option_too(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    archive.commit({"a": "depends: [{task: PREV, when: settled}]"})
    archive.fail("a@2", "b@2")
    archive.run("a@3")
    remedy = "would replace the work of later revisions: papers@3/a completed. To go back on purpose: arkqueue retry papers@2/a --force"
    partly = arkqueue("retry", "papers@2")
    assert (partly.code, partly.lines) == (1, ["papers@2/b: ready", f"papers@2/a: {remedy}"])
    wholly = arkqueue("retry", "papers@2")
    assert (wholly.code, wholly.err) == (1, f"arkqueue: papers@2/a: {remedy}\n")
    assert "retried" not in arkqueue("show", "papers@2/a").out
    assert arkqueue("retry", "papers@2", "--force").lines == ["papers@2/a: ready"]
    assert re.search(r"retried +1 time by a person", arkqueue("show", "papers@2/a").out)
    archive.fail("a@2")
    arkqueue("retry", "papers@2/a", "--force")
    assert re.search(r"retried +2 times by a person", arkqueue("show", "papers@2/a").out)
    assert arkqueue("show", "papers@2/a", "--json").json["retry_count"] == 2


def test_a_rejection_is_final_and_its_refusal_says_what_may_be_done_instead(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]", "check": "on: submission", "deposit": "foreach: submission"})
    archive.end("a@2", 65)
    archive.submit('["x y", "z"]', sender_id="may")
    archive.end("check@2.2", 65)
    archive.end("deposit/x y@2.2", 65)
    final = "was rejected (exit code 65), which is final: its input is wrong, and no retry makes it right."
    for words in (["retry", "papers@2/a"], ["retry", "papers@2/a", "--force"], ["restart", "papers@2/a"]):
        refused = arkqueue(*words)
        assert (refused.code, refused.err) == (
            1,
            f"arkqueue: papers@2/a: {final} Fix the input in a new commit; or let what waits for it go on: arkqueue skip papers@2/a --as-completed; "
            "or run it again all the same, with what is behind it: arkqueue retry papers@2 --from a\n",
        )
    of_item = arkqueue("retry", "papers@2.2/deposit/x y").err
    assert "Fix what was submitted, and submit it under another id; or let" in of_item
    assert "arkqueue skip papers@2.2/deposit/x%20y --as-completed; or run" in of_item
    assert of_item.endswith("arkqueue retry 'papers@2.2/*/x%20y' --from deposit\n")
    assert arkqueue("retry", "papers@2", "--failed").err == (
        "arkqueue: papers@2: has no failed task that nobody waived; 1 was rejected, which is final. arkqueue explain papers@2/a\n"
    )
    assert "2 were rejected, which is final" in arkqueue("retry", "papers@2.2", "--failed").err
    assert "Fix the input" in arkqueue("explain", "papers@2/a").out
    # What the refusal names is possible.
    assert arkqueue("skip", "papers@2/a", "--as-completed").code == 0
    assert archive.state("b@2") == "ready"
    archive.run("b@2")
    assert "or let what waits" not in arkqueue("retry", "papers@2/a").err
    assert arkqueue("retry", "papers@2", "--from", "a").code == 0
    assert archive.state("a@2") == "ready"
    assert arkqueue("retry", "papers@2.2/*/x y", "--from", "deposit").code == 0


def test_a_completed_task_is_run_again_from_its_run(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.run("a@2")
    assert arkqueue("retry", "papers@2/a").err.endswith(
        "Run it again all the same, with what is behind it: arkqueue retry papers@2 --from a\n"
    )


def test_what_failed_of_a_run_or_of_archives_is_retried(arkqueue: Cli, session: Session) -> None:
    papers, books = an_archive(session), an_archive(session, "books")
    for archive in (papers, books):
        archive.commit({"a": "", "b": "", "c": ""})
        archive.fail("a@2", "b@2")
    papers.commit({"a": ""})
    papers.run("a@3")
    partly = arkqueue("retry", "papers@2", "--failed")
    assert (partly.code, partly.lines[0]) == (1, "papers@2/b: ready")
    assert "papers@2/a: would replace the work of later revisions: papers@3/a completed" in partly.lines[1]
    papers.fail("b@2")
    both = arkqueue("retry", "books", "papers", "--failed")
    assert (both.code, both.lines[:2]) == (
        1,
        ["books: 2 tasks to be run again", "papers: 1 task to be run again, 1 task not"],
    )
    assert "papers@2/a: would replace" in both.lines[2]
    assert books.states() == {"a@2": "ready", "b@2": "ready", "c@2": "running"}
    papers.commit({"b": ""})
    papers.run("b@4")
    papers.fail("b@2")
    before = papers.states()
    refused = arkqueue("retry", "papers", "--failed")
    assert (refused.code, refused.out) == (1, "")
    first, second = refused.err.splitlines()
    assert first.startswith(
        "arkqueue: papers@2/a: would replace the work of later revisions: papers@3/a completed; 1 more task is refused"
    )
    assert second == (
        "arkqueue: papers@2/b: would replace the work of later revisions: papers@4/b completed. "
        "To go back on purpose: arkqueue retry papers@2/b --force"
    )
    assert papers.states() == before
    nothing = arkqueue("retry", "books", "--failed")
    assert (nothing.code, nothing.err) == (1, "arkqueue: archive books: has no failed task that nobody waived\n")
    for words in (["books"], ["papers@2", "--failed", "--force"]):
        assert arkqueue("retry", *words).code == 2
    for words, said in {
        (
            "papers@2/a",
            "--failed",
        ): "papers@2/a: is the name of a task, and --failed is for runs and archives. Leave --failed out.",
        (
            "papers/a",
            "--failed",
        ): "'papers/a': is not the name of a run or a task. Write which revision: papers@REVISION/a",
        ("",): "'': is not the name of a run or a task. Write ARCHIVE@REVISION for a run",
    }.items():
        refused = arkqueue("retry", *words)
        assert (refused.code, said in refused.err) == (2, True), refused.err
    refused = arkqueue("cancel", "papers@2", "--assume-gone")
    assert refused.code == 2
    assert "papers@2: is the name of a run, and --assume-gone is for tasks." in refused.err


def test_the_items_of_a_long_list_come_in_pages(
    arkqueue: Cli, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "MOST_SHOWN", 3)
    archive = an_archive(session)
    archive.commit({"check": "foreach: [a, b, c, d, e]", "index": "depends: [check]"})
    archive.fail("check/b@2", "check/d@2", "check/e@2")
    archive.run("check/a@2")
    told = "5 items: 3 failed, 1 ready, 1 completed"
    row = next(line for line in arkqueue("show", "papers@2").lines if "check/*" in line)
    assert told in row.replace("running", "ready")
    first = arkqueue("show", "papers@2", "--state", "failed", "--limit", "2")
    assert [item for item in "abcde" if f"check/{item}" in first.out] == ["b", "d"]
    cursor = first.err.rpartition("--after ")[2].strip()
    last = arkqueue("show", "papers@2", "--state", "failed", "--after", cursor)
    assert [item for item in "abcde" if f"check/{item}" in last.out] == ["e"]
    assert "--after" not in last.err
    whole = arkqueue("show", "papers@2", "--items")
    assert [item for item in "abcde" if f"check/{item}" in whole.out] == list("abcde")
    assert "papers@2/index" in whole.out
    told = arkqueue("show", "papers@2", "--items", "--limit", "1", "--json").json
    assert (len(told["items"]["tasks"]), told["lists"][0]["tasks"]) == (1, 5)
    assert len(told["tasks"]) == 5, "COMMIT, index, and the first item in each state"
    archive.skip("check/b@2")
    row = next(line for line in arkqueue("show", "papers@2").lines if "check/*" in line)
    assert "5 items: 2 failed, 1 waived, 1 ready, 1 completed" in row.replace("running", "ready")


def test_what_a_verb_would_do_is_said_and_not_done(arkqueue: Cli, session: Session) -> None:
    archive = a_failed_one(session)
    before = archive.states()
    tried = arkqueue("retry", "papers@2", "--failed", "--dry-run")
    assert (tried.code, tried.lines) == (0, ["Nothing is changed. It would be:", "papers@2/a: ready"])
    refused = arkqueue("retry", "papers@2/b", "--dry-run")
    assert refused.code == 1
    assert "was skipped because of papers@2/a" in refused.err
    for words in (
        ["cancel", "papers@3"], ["skip", "papers@2/a"], ["skip", "papers/a", "--until", "2"], ["hold", "papers"], ["hold", "papers@3"],
        ["prioritize", "papers@3", "10"], ["retry", "papers", "--failed"],
    ):  # fmt: skip
        done = arkqueue(*words, "--dry-run")
        assert (done.code, done.lines[0]) == (0, "Nothing is changed. It would be:"), words
        assert len(done.lines) > 1
    assert archive.states() == before
    assert arkqueue("unhold", "papers").code == 1, "it was not put on hold"
    named = arkqueue("retry", "papers", "--failed", "--dry-run").lines
    assert named == ["Nothing is changed. It would be:", "papers: 1 task to be run again", "  papers@2/a"]
    assert refused.lines == ["Nothing is changed, and nothing would be."]
    wrong = arkqueue("release", "papers@2", "--all")
    assert wrong.code == 2
    assert "'papers@2' is not an archive, and --all is for archives" in wrong.err


def test_task_is_shown_with_its_attempts_and_what_people_did(arkqueue: Cli, session: Session) -> None:
    archive = a_failed_one(session)
    archive.retry("a@2")
    archive.sql("update attempt set image = 'tex@sha256:12ab' where id = %s", archive.claim("a@2").attempt)
    archive.end("a@2", 0, outputs={"pages": 3}, usage=Usage(0.8, 54 << 20))
    shown = arkqueue("show", "papers@2/a").out
    assert "  attempt 2 used 0.8 s of processor time, at most 54 MiB of memory in one process\n" in shown
    assert "attempt 1 used" not in shown, "nothing is known of it"
    assert "0.8 s of processor time in 1 attempt" in arkqueue("show", "papers@2").out
    assert "image of attempt 2: tex@sha256:12ab" in shown
    assert shown.startswith("papers@2/a  completed\n")
    assert "exit code 1" in shown
    assert "exit code 0" in shown
    assert "output of attempt 2: pages = 3" in shown
    assert "ann  retry" in shown


def test_of_many_attempts_that_are_alike_the_first_and_the_last_are_shown(arkqueue: Cli, session: Session) -> None:
    """A deposit that was in review for a week had 691 lines."""
    archive = an_archive(session)
    archive.commit({"a": ""})
    for _ in range(6):
        archive.claim("a@2")
        archive.end("a@2", 1, outputs={"status": "in review"})
        archive.retry("a@2")
    archive.claim("a@2")
    archive.end("a@2", 0, outputs={"status": "accepted"})
    lines = arkqueue("show", "papers@2/a").lines
    begin = next(n for n, line in enumerate(lines) if line.startswith("ATTEMPT"))
    assert [line.split("  ")[0] for line in lines[begin + 1 : begin + 5]] == ["1", "…", "6", "7"]
    assert "4 like these" in lines[begin + 2]
    assert "  output of attempts 1 to 6: status = in review" in lines
    assert "  output of attempt 7: status = accepted" in lines


def test_faults_of_a_revision_are_shown(arkqueue: Cli, session: Session) -> None:
    an_archive(session).commit(faulty())
    assert "_workflows/test.yaml:1:1: a fault" in arkqueue("show", "papers@2").lines
    assert "1 fault" in arkqueue("runs").out
    done = arkqueue("check", "--revision", "papers@2")
    assert (done.code, done.lines[0]) == (1, "_workflows/test.yaml:1:1: a fault")
    assert [line.partition(":")[2].partition(":")[0] for line in done.lines[1:]] == [
        " what is not followed cannot be told"
    ]


def test_commit_messages_do_not_reach_the_terminal_as_they_are(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    evil = "\x1b]0;owned\x07first\u202e\nsecond\x9b31m"
    revision = replace(a_revision(2), message=evil, author="a\x1b[31m")
    archive.append("", [Entry(revision, faulty(), ())])
    for command in (("runs",), ("show", "papers@2"), ("archive", "show", "papers"), ("runs", "--json")):
        done = arkqueue(*command)
        assert done.code == 0
        assert not any(character in done.out for character in "\x1b\x07\u202e\x9b"), command
    assert "\\x1b]0;owned\\x07first\\u202e" in arkqueue("runs").out
    assert "second\\x9b31m" in arkqueue("show", "papers@2").out
    assert arkqueue("runs", "--json").json["runs"][0]["message"] == evil


def test_long_commit_message_is_cut_in_tables(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    revision = replace(a_revision(2), message="x" * 100_000)
    archive.append("", [Entry(revision, faulty(), ())])
    for command in (("runs",), ("archive", "show", "papers")):
        (line,) = [line for line in arkqueue(*command).lines if "xxx" in line]
        assert line.endswith("x…"), command
        assert len(line) < 700, command
    assert "x" * 100_000 in arkqueue("show", "papers@2").out


# Explained


def test_explain_and_show_say_when_a_task_may_start_and_end(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    claim.register(session, PROCESS, HOST, "build-1", 4)
    archive.commit({"a": "", "b": "depends: [a]"})
    archive.run("a@2", "b@2")
    archive.sql("update attempt set started_at = ended_at - interval '1 minute'")
    archive.commit({"a": "", "b": "depends: [a]"})
    times = r"start (\S+ )?\d\d:\d\d:\d\d, end (\S+ )?\d\d:\d\d:\d\d"
    assert re.search(f"from earlier runs: {times}\\.", arkqueue("explain", "papers@3/b").out)
    assert re.search(f"expected +{times}", arkqueue("show", "papers@3/b").out)
    shown = arkqueue("show", "papers@3").out
    assert re.search(f"papers@3/b +waiting .*for papers@3/a; {times}", shown), shown
    assert re.search(r"expected +its end at", shown)
    assert "expected" not in arkqueue("show", "papers@2").out


def test_explain_names_the_root_and_commands_that_help(arkqueue: Cli, session: Session) -> None:
    archive = a_failed_one(session)
    done = arkqueue("explain", "papers@3/a")
    assert done.lines[0] == "papers@3/a: waiting"
    assert "It waits for papers@2/a, which failed" in done.out
    commands = [line.strip().split() for line in done.lines if line.startswith("  arkqueue ")]
    assert ["arkqueue", "retry", "papers@2/a"] in commands
    # What it prints can be typed.
    assert arkqueue(*commands[0][1:]).code == 0
    assert archive.state("a@2") == "ready"
    absent = arkqueue("explain", "papers@7/a")
    assert absent.code == 0
    assert "Revision 7 is not in the ledger of papers" in absent.out
    assert "  arkqueue sync papers" in absent.lines


def test_explain_gives_each_command_once(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "", "c": "depends: [a, b]"})
    done = arkqueue("explain", "papers@2/c")
    assert done.out.count("is ready, but no task manager is running.") == 1
    assert "It waits for 1 more task that is ready: papers@2/b." in done.out
    assert done.out.count("  arkqueue worker\n") == 1
    assert archive.states()["c@2"] == "waiting"


# Made and acted on


def test_trigger_says_what_is_going_to_run_and_what_each_task_waits_for(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    release = "on: manual\ndepends: [pdf, {task: approve, optional: true}]"
    archive.commit({"index": "", "pdf": "depends: [index]", "approve": "on: manual", "release": release})
    archive.run("index@2")
    done = arkqueue("trigger", "papers", "release", "--dry-run")
    assert (done.code, done.out) == (0, "")
    assert (
        done.err
        == f"{UNSCANNED}papers@2.2: 1 task\n  release waits for papers@2/pdf (ready); does without approve, which has never run\n{UNMANAGED}Nothing is made.\n"
    )
    done = arkqueue("trigger", "papers", "--force")
    assert (done.code, done.out) == (0, "papers@2.2\n")
    assert done.err == f"{UNSCANNED}papers@2.2: 2 tasks\n  index\n  pdf waits for index\n{UNMANAGED}"
    done = arkqueue("trigger", "papers", "pdf", "--force", "--dry-run")
    assert (
        done.err
        == f"{UNSCANNED}papers@2.3: 1 task\n  pdf waits for papers@2.2/index (ready)\n{UNMANAGED}Nothing is made.\n"
    )
    archive.run("index@2.2")
    done = arkqueue("trigger", "papers", "pdf", "--force", "--dry-run", "--json")
    assert done.json["tasks"][0]["needs"] == [{"task": "papers@2.2/index", "state": "completed", "is_awaited": False}]
    done = arkqueue("trigger", "papers", "pdf", "--force", "--dry-run")
    assert "  pdf uses the result of papers@2.2/index (completed)\n" in done.err
    assert arkqueue("trigger", "papers", "release", "--json").json["full_name"] == "papers@2.3"
    assert arkqueue("trigger", "papers", "approve", "--revision", "2").out == "papers@2.4\n"
    shown = arkqueue("show", "papers@2.4", "--json").json["tasks"]
    assert [task["name"] for task in shown] == ["COMMIT", "approve"]
    for words in (["--dry-run", "--wait"], ["--accept", "superseded"]):
        assert arkqueue("trigger", "papers", *words).code == 2


def test_trigger_refuses_to_leave_out_what_nothing_waits_for(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]", "c": ""})
    done = arkqueue("trigger", "papers", "b", "--without", "c", "--dry-run")
    assert (done.code, done.out) == (1, "")
    assert "no task of this run depends on c, so it cannot be left out (--without c)" in done.err
    done = arkqueue("trigger", "papers", "b", "--without", "b", "--dry-run")
    assert done.code == 1
    assert "b is a task of this run, and cannot be left out as well (--without b)" in done.err
    assert arkqueue("trigger", "papers", "b", "--without", "a", "--dry-run").code == 0


def test_trigger_says_of_a_long_list_what_its_first_items_wait_for(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    items = ", ".join(f"v/{n:02}" for n in range(12))
    archive.commit({"fetch": f"foreach: [{items}]", "store": f"foreach: [{items}]\ndepends: [fetch]"})
    archive.run("fetch/v/00@2")
    told = arkqueue("trigger", "papers", "store", "--dry-run", "--force").err.removeprefix(UNSCANNED).splitlines()
    assert told[:3] == [
        "papers@2.2: 12 tasks",
        "  store/v%2F00 uses the result of papers@2/fetch/v%2F00 (completed)",
        "  store/v%2F01 waits for papers@2/fetch/v%2F01 (running)",
    ]
    assert (told[-3], len(told)) == ("  store: 2 more items", 14)
    told = arkqueue("trigger", "papers", "fetch", "store", "--dry-run", "--force").err.splitlines()
    assert "  store/v%2F01 waits for fetch/v%2F01" in told
    assert told[-4:-2] == ["  fetch: 2 more items", "  store: 2 more items"]
    archive.commit({"fetch": "foreach: [a]", "index": "depends: [fetch]"})
    assert (
        "  index waits for the completion of all items of fetch"
        in arkqueue("trigger", "papers", "--dry-run", "--force").err.splitlines()
    )
    index = arkqueue("trigger", "papers", "index", "--dry-run", "--force").err.splitlines()
    assert index[-3] == "  index waits for the completion of all items of papers@3/fetch (waiting)"


@pytest.mark.parametrize(
    ("end", "accept", "code"),
    [("completed", [], 0), ("failed", [], 1), ("canceled", ["--accept", "canceled"], 0)],
)
def test_trigger_waits_for_the_end_of_its_run(
    arkqueue: Cli, session: Session, started: Start, end: str, accept: list[str], code: int
) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.run("a@2")
    process = started("trigger", "papers", "--wait", *accept)
    assert process.stdout
    assert process.stdout.readline() == "papers@2.2\n"
    match end:
        case "canceled":
            arkqueue("cancel", "papers@2.2")
        case "failed":
            archive.fail("a@2.2")
        case _:
            archive.run("a@2.2")
    out, err = process.communicate()
    assert (process.returncode, out) == (code, "")
    assert err.startswith(f"{UNSCANNED}papers@2.2: 1 task\n  a\n")
    assert f"papers@2.2  {end}" in err


def test_a_verb_prints_the_new_state_of_each_task(arkqueue: Cli, session: Session) -> None:
    archive = a_failed_one(session)
    done = arkqueue("retry", "papers@2/a")
    assert (done.code, done.out) == (0, "papers@2/a: ready\n")
    assert arkqueue("cancel", "papers@2/a").out.startswith("papers@2/a: canceled (canceled by ")
    assert arkqueue("skip", "papers@3/a").out.startswith("papers@3/a: skipped")
    assert archive.states() == {"a@2": "canceled", "b@2": "skipped", "a@3": "skipped"}
    archive.commit({"a": ""})
    archive.claim("a@4")
    assert arkqueue("restart", "papers@4/a").out.startswith("papers@4/a: running (stopping: restart by ")
    assert arkqueue("cancel", "papers@4/a", "--assume-gone").out.startswith("papers@4/a: canceled")
    archive.commit({"a": "", "b": "depends: [a]"})
    done = arkqueue("cancel", "papers@5")
    assert [line.split(" (")[0] for line in done.lines] == ["papers@5/a: canceled", "papers@5/b: canceled"]


def test_note_is_shown_with_who_wrote_it(arkqueue: Cli, session: Session) -> None:
    a_failed_one(session)
    assert arkqueue("note", "papers@2/a", "the disk was full\x1b[2J").out == "papers@2/a: noted\n"
    assert arkqueue("note", "papers@2", "Ann knows").out == "papers@2: noted\n"
    of_task, of_run = arkqueue("show", "papers@2/a").out, arkqueue("show", "papers@2").out
    assert "note a the disk was full\\x1b[2J" in of_task
    assert "Ann knows" not in of_task
    assert "note a the disk was full" in of_run
    assert "note Ann knows" in of_run
    assert arkqueue("note", "papers@2", "").code == 2
    assert arkqueue("note", "papers@2", "x" * 10_001).code == 2
    assert arkqueue("note", "papers@9", "x").code == 1


def test_many_failures_are_waived_at_once_and_are_not_said_to_be_none(arkqueue: Cli, session: Session) -> None:
    archive = a_failed_one(session)
    done = arkqueue("skip", "papers/a", "--until", "2")
    assert (done.code, done.out) == (0, "papers/a: 1 failure up to 2 waived\n")
    assert archive.state("a@3") == "ready"
    again = arkqueue("skip", "papers/a", "--until", "2")
    assert (again.code, again.err) == (1, "arkqueue: papers/a: has no failure up to 2 that nobody waived\n")
    assert arkqueue("skip", "papers@2/a", "--until", "2").code == 2
    assert arkqueue("retry", "papers@2", "--failed").err == (
        "arkqueue: papers@2: has no failed task that nobody waived. To take a waiver back, retry the task by its name.\n"
    )


def test_a_task_and_a_run_are_prioritized(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]"})
    assert arkqueue("prioritize", "papers@2/b", "10").lines == ["papers@2/b: waiting (for papers@2/a), priority 10"]
    assert any(line.split() == ["priority", "10"] for line in arkqueue("show", "papers@2/b").lines)
    assert arkqueue("prioritize", "papers@2", "0").lines == [
        "papers@2/a: ready, priority 0", "papers@2/b: waiting (for papers@2/a), priority 0",
    ]  # fmt: skip
    archive.claim()
    assert arkqueue("prioritize", "papers@2/a", "5").code == 1
    assert arkqueue("prioritize", "papers@2/a", "1001").code == 2


def test_runs_are_deleted_and_undeleted(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.claim("a@2")
    archive.commit({"a": "", "b": "depends: [a]"})
    trial = arkqueue("delete", "papers@3", "papers@2", "--dry-run")
    assert (trial.code, trial.lines) == (1, ["Nothing is changed. It would be:", "papers@3: deleted"])
    assert "papers@2: cannot be deleted" in trial.err
    assert archive.states() == {"a@2": "running", "a@3": "ready", "b@3": "waiting"}
    done = arkqueue("delete", "papers@3", "papers@2", "papers@3/a")
    assert (done.code, done.lines) == (2, ["papers@3: deleted"])
    assert "papers@2: cannot be deleted: papers@2/a is running. arkqueue cancel papers@2, and delete it" in done.err
    assert "papers@3/a: is the name of a task, not of a run. Its run is papers@3." in done.err
    assert "papers@3" not in arkqueue("runs").out
    assert [line.split()[0] for line in arkqueue("runs", "--state", "deleted").lines[1:]] == ["papers@3"]
    assert arkqueue("undelete", "papers@3", "--dry-run").lines[1:] == ["papers@3: held"]
    assert arkqueue("undelete", "papers@3").lines == ["papers@3: held"]
    assert archive.states() == {"a@2": "running", "a@3": "held", "b@3": "held"}
    assert arkqueue("undelete", "papers@3").code == 1


def test_refusal_says_why_and_names_the_option_that_overrules_it(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    for _ in range(2):
        archive.commit({"index": "", "pdf": "depends: [index]\ncancels: [PREV]", "site": "cancels: [PREV]"})
    assert (archive.state("site@2"), archive.state("site@3")) == ("canceled", "ready")
    done = arkqueue("retry", "papers@2/site")
    assert done.code == 1
    assert done.err.startswith("arkqueue: papers@2/site: is superseded by papers@3/site")
    assert "Use --force, or" in done.err
    assert arkqueue("retry", "papers@2/site", "--force").code == 0
    archive.fail("index@2")
    archive.run("index@3", "pdf@3")
    for name in ("papers@2/index", "papers@2"):
        done = arkqueue("skip", name, "--as-completed")
        fault = "papers@2/index: pdf is superseded by pdf of revision 3"
        assert done.code == 1
        assert fault in done.err
        assert "Use --force" in done.err
    assert arkqueue("skip", "papers@2/index", "--force").code == 2, "by itself it means nothing"
    assert arkqueue("skip", "papers@2/index", "--as-completed", "--force").code == 0
    assert archive.state("pdf@2") == "ready"


def test_one_refusal_does_not_keep_others_from_what_is_asked(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]"})
    archive.run("a@2")
    done = arkqueue("cancel", "papers@2/a", "papers@2/b")
    assert done.code == 1
    assert done.err == "arkqueue: papers@2/a: is completed already\n"
    assert archive.state("b@2") == "canceled"


# Found


def test_unknown_names_are_answered_with_the_nearest(arkqueue: Cli, session: Session) -> None:
    an_archive(session).commit({"index": ""})
    for words, said in {
        ("show", "paper@2"): "Did you mean papers?",
        ("show", "papers@9"): "the newest is 2",
        ("logs", "papers@2/indx"): "Did you mean index?",
        ("cancel", "papers:topic@2/index"): "has no branch 'topic'",
        ("show", "papers@2.7"): "does not exist: this revision has no run 7",
        ("explain", "papers@2/indx"): "Did you mean index?",
        ("runs", "papres"): "Did you mean papers?",
        ("archive", "show", "../.."): "does not exist",
    }.items():
        done = arkqueue(*words)
        assert (done.code, done.out, done.err.count("\n")) == (1, "", 1), words
        assert said in done.err


def test_mistakes_in_a_command_are_told_apart_from_a_no(arkqueue: Cli, session: Session) -> None:
    an_archive(session).commit({"index": ""})
    for words, said in {
        ("trigger", "papers", "indx"): "indx",
        ("show", "papers"): "ARCHIVE@REVISION",
        ("show", "papers@"): "ARCHIVE@REVISION",
        ("cancel", "papers"): "ARCHIVE@REVISION",
        ("delete", "papers@2/index"): "Its run is papers@2.",
        ("skip", "papers/bad", "papers@9/index"): "papers@REVISION/bad",
        ("cancel", "papers@9", "papers"): "ARCHIVE@REVISION",
        ("logs", "papers@2"): "Its tasks: papers@2/COMMIT, papers@2/index.",
        ("serve", "--slots", "0"): "0 is not in the range",
        ("serve", "--listen", "foo"): "write it like 127.0.0.1:8417",
    }.items():
        done = arkqueue(*words)
        assert (done.code, done.out) == (2, ""), words
        assert said in done.err


def test_every_reading_command_answers_with_one_json_document(arkqueue: Cli, session: Session) -> None:
    a_failed_one(session)
    for words in (
        ("archive", "list"), ("archive", "show", "papers"), ("check", "--revision", "papers@2"), ("runs",),
        ("runs", "papers", "--state", "failed"), ("show", "papers@2"), ("show", "papers@2/a"), ("graph", "papers@2"),
        ("explain", "papers@3/a"), ("logs", "papers@2/a"), ("token", "list"), ("watch", "papers@1"), ("doctor",),
    ):  # fmt: skip
        done = arkqueue(*words, "--json")
        assert (done.code, done.err) == (0, ""), words
        assert done.json


# Refused for now


@pytest.fixture
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an archive that is being changed makes of the second request."""
    monkeypatch.setattr("arkqueue.web.app.WAITING", 0)


@pytest.mark.usefixtures("nobody_waits")
def test_an_archive_that_too_many_want_to_change_is_told_from_a_server_that_is_away(
    arkqueue: Cli, started: Start, session: Session, second_connection: Callable[[], Connection]
) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    holder = second_connection()
    with holder.transaction():
        holder.execute("select from archive where id = %s for no key update", [archive.id])
        first = started("cancel", "papers@2/a")
        query = "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        eventually(lambda: archive.sql(query))  # the first one waits for the lock
        second = arkqueue("cancel", "papers@2/b")
    assert second.code == 1
    assert (
        second.err
        == "arkqueue: the archive: is being changed, and too many others wait for that already. Try again in a moment.\n"
    )
    assert "server" not in second.err
    the_rest(first)
    assert (first.returncode, archive.states()) == (0, {"a@2": "canceled", "b@2": "ready"})


# Items of lists


def test_an_item_is_retried_at_the_step_that_failed_and_no_other_item_is(arkqueue: Cli, session: Session) -> None:
    archive = a_list(session)
    archive.run("fetch/a@2")
    archive.fail("check/a@2")
    archive.fail("fetch/b/c@2")
    done = arkqueue("retry", "papers@2/*/a")
    assert (done.code, done.lines) == (0, ["papers@2/check/a: ready"])
    assert [archive.state(f"{name}/a@2") for name in ("fetch", "check", "store")] == ["completed", "ready", "waiting"]
    assert archive.state("fetch/b/c@2") == "failed"
    assert arkqueue("retry", "papers@2/*/b%2Fc", "--failed").lines == ["papers@2/fetch/b%2Fc: ready"]


def test_an_item_and_a_run_go_on_at_a_step_that_a_person_names(arkqueue: Cli, session: Session) -> None:
    archive = a_list(session)
    steps = [f"{step}/{item}@2" for step in ("fetch", "check", "store") for item in ("a", "b/c")]
    archive.run(*steps)
    told = arkqueue("explain", "papers@2/check/a")
    assert "arkqueue retry 'papers@2/*/a' --from check" in told.out
    tried = arkqueue("retry", "papers@2/*/a", "--from", "check", "--dry-run")
    assert tried.lines == [
        "Nothing is changed. It would be:",
        "papers@2/check/a: ready",
        "papers@2/store/a: waiting (for papers@2/check/a)",
    ]
    done = arkqueue("retry", "papers@2/*/a", "--from", "check")
    assert (done.code, done.lines) == (0, tried.lines[1:])
    refused = arkqueue("retry", "papers@2", "--from", "store")
    assert (refused.code, refused.lines) == (0, ["papers@2/store/b%2Fc: ready"]), "store of a is on its way"
    archive.run("check/a@2", "store/a@2", "store/b/c@2")
    done = arkqueue("retry", "papers@2", "--from", "check", "--from-start", "--force")
    assert len(done.lines) == 4
    (entry,) = arkqueue("show", "papers@2", "--json").json["deeds"][-1:]
    assert (entry["verb"], entry["note"]) == ("retry", "--from check --force --from-start")
    for words, said in {
        (
            "papers@2/check/a",
            "--from",
            "check",
        ): "is the name of a task, and --from is for runs and items. Name its run",
        ("papers@2", "--from", "chekc"): "has no task 'chekc'. Did you mean check?",
        ("papers@2", "--from", "check", "--failed"): "--failed and --from do not go together",
        ("papers", "--from", "check"): "is the name of an archive",
    }.items():
        refused = arkqueue("retry", *words)
        assert (refused.code != 0, said in refused.err) == (True, True), refused.err


def test_an_item_is_canceled_from_its_end_on_and_skipped(arkqueue: Cli, session: Session) -> None:
    archive = a_list(session)
    done = arkqueue("cancel", "papers@2/*/a")
    assert [line.partition(" (")[0] for line in done.lines] == [
        "papers@2/store/a: canceled",
        "papers@2/check/a: canceled",
        "papers@2/fetch/a: canceled",
    ]
    assert [archive.state(f"{name}/b/c@2") for name in ("fetch", "check", "store")] == ["ready", "waiting", "waiting"]
    assert arkqueue("skip", "papers@2/*/b%2Fc", "--dry-run").code == 0
    assert archive.state("fetch/b/c@2") == "ready"


def test_a_retry_of_an_item_that_completed_names_the_command_that_runs_it_again(
    arkqueue: Cli, session: Session
) -> None:
    a_list(session).run("fetch/a@2")
    refused = arkqueue("retry", "papers@2/*/a").err
    assert "has no task of the item a to retry: fetch is completed" in refused
    command = "arkqueue retry 'papers@2/*/a' --from fetch"
    assert refused.rstrip().endswith(command)
    assert arkqueue(*shlex.split(command)[1:]).code == 0


def test_what_is_no_item_and_what_takes_none_is_refused(arkqueue: Cli, session: Session) -> None:
    archive = a_list(session)
    assert "papers@2 has no item 'x'" in arkqueue("retry", "papers@2/*/x").err
    assert "has no task of the item a to retry" in arkqueue("retry", "papers@2/*/a").err
    for words in (("note", "seen"), ("graph",)):
        verb, *more = words
        done = arkqueue(verb, "papers@2/*/a", *more)
        assert done.code != 0
        assert "is the name of an item, which this command does not take" in done.err
    assert archive.state("fetch/a@2") == "ready"


def test_a_long_list_is_shown_by_its_numbers_and_its_items_on_demand(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    items = ", ".join(f"v{n:02}" for n in range(12))
    archive.commit({"store": f"foreach: [{items}]", "short": "foreach: [a, b]", "index": "depends: [store]"})
    for n in range(10):
        archive.run(f"store/v{n:02}@2")
    archive.fail("store/v10@2")

    def rows(*options: str) -> list[list[str]]:
        lines = arkqueue("show", "papers@2", "--files", "0", *options).lines
        at = next(number for number, line in enumerate(lines) if line.startswith("TASK"))
        return [line.split(maxsplit=3) for line in lines[at + 1 :] if line.startswith("papers@2/")]

    assert [row[0].partition("/")[2] for row in rows()] == ["COMMIT", "store/*", "short/a", "short/b", "index"]
    (store,) = [" ".join(row) for row in rows() if row[0] == "papers@2/store/*"]
    assert "failed" in store.split()[1]
    assert store.endswith("12 items: 1 failed, 1 running, 10 completed (the first: papers@2/store/v10)")
    archive.skip("store/v10@2")
    (store,) = [" ".join(row) for row in rows() if row[0] == "papers@2/store/*"]
    assert store.endswith("12 items: 1 failed, waived, 1 running, 10 completed")
    assert [row[0].rpartition("/")[2] for row in rows("--state", "failed")] == ["v10"]
    none = arkqueue("show", "papers@2", "--state", "rejected", "--state", "held")
    assert (none.code, none.err) == (0, "no task of it is rejected or held\n")
    assert len(rows("--items")) == 1 + 12 + 2 + 1
