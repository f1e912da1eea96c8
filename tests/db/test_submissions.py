"""Submissions: their runs and items, and their order relative to commits and to other submissions
(design 5.10, 5.14, 5.18, 5.31).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.errors import Busy, Conflict
from arkqueue.model import ArchiveId, PayloadKind, RunId
from arkqueue.queue import archives, holds, planning, purge, submissions
from arkqueue.queue.export import Export
from arkqueue.queue.proposed import proposed
from arkqueue.views import runs
from arkqueue.views.attention import unhandled_failures
from arkqueue.views.doctor import examine
from arkqueue.views.explain import explain
from arkqueue.views.graph import graph
from tests.builders import AnArchive, a_gateway

DEPOSIT = {"check": "on: submission", "deposit": "foreach: submission\ndepends: [check]"}


def names(archive: AnArchive, run: int) -> dict[str, str]:
    """The states of the tasks of a run, those of items with their keys."""
    tasks = runs.run(archive.session, RunId(run)).tasks
    return {task.full_name.partition("/")[2]: str(task.state) for task in tasks if task.name != "COMMIT"}


def test_a_submission_runs_the_tasks_that_are_for_it_with_its_items(archive: AnArchive) -> None:
    archive.commit({"build": "", **DEPOSIT})
    run = archive.submit('{"title": "May", "items": [{"id": "a", "size": 3}, {"id": "b"}]}', sender_id="may")
    assert names(archive, run) == {"check": "ready", "deposit/a": "waiting", "deposit/b": "waiting"}
    archive.run("check@2.2")
    assert archive.claim("deposit/a@2.2").item_body == '{"id":"a","size":3}'
    shown = runs.run(archive.session, RunId(run))
    assert (shown.full_name, shown.trigger, shown.by, shown.submission) == (
        "papers@2.2",
        "submission",
        "ann",
        "papers@id:may",
    )
    assert [(deed.verb, deed.note.partition(": ")[0]) for deed in shown.deeds] == [("submit", "papers@id:may")]
    assert examine(archive.session).findings == []


@pytest.mark.parametrize(
    ("kind", "text", "items"),
    [
        (PayloadKind.YAML, "items:\n- {id: a}\n- {id: 2}", {"a", "2"}),
        (PayloadKind.CSV, "id,size\na,1\nb,2\n", {"a", "b"}),
        (PayloadKind.LINES, "one\ntwo\n", {"one", "two"}),
        (PayloadKind.JSON, "[]", set()),
    ],
)
def test_items_come_from_every_kind_of_payload(
    archive: AnArchive, kind: PayloadKind, text: str, items: set[str]
) -> None:
    archive.commit({"deposit": "foreach: submission"})
    run = archive.submit(text, kind=kind)
    assert {name.partition("/")[2] for name in names(archive, run)} == items


def test_a_task_gets_the_payload_as_it_was_handed_in(archive: AnArchive) -> None:
    archive.commit({"check": "on: submission", "build": ""})
    archive.submit('{ "a": 1 }\n', sender_id="x")
    gateway, task = a_gateway(archive.session), archive.task("check@2.2")
    handed = gateway.submission(task)
    assert handed is not None
    assert (handed.kind, handed.sender_id) == (PayloadKind.JSON, "x")
    assert [gateway.payload_part(task, position) for position in (0, 1)] == [b'{ "a": 1 }\n', None]
    assert gateway.submission(archive.task("build@2")) is None


def test_commits_and_triggers_leave_tasks_of_submissions_out(archive: AnArchive) -> None:
    archive.commit({"build": "", **DEPOSIT})
    archive.trigger(2)
    assert archive.states() == {"build@2": "ready", "build@2.2": "ready"}
    with pytest.raises(Conflict, match=r"not for manual runs.*see `on` and `branches` of check"):
        archive.trigger(2, "check")
    with pytest.raises(Conflict, match=r"not for manual runs.*hand in a document: arkqueue submit papers FILE$"):
        archive.trigger(2, "deposit")
    archive.commit({"deposit": "foreach: submission"})
    with pytest.raises(Conflict, match=r"by hand. hand in a document: arkqueue submit papers FILE$"):
        archive.trigger(3)
    archive.commit({"deposit": "foreach: submission", "build": "on: commit"})
    with pytest.raises(Conflict, match=r"by hand. add `manual` to their `on`$"):
        archive.trigger(4)


def test_a_plan_says_once_what_becomes_of_a_dependency_on_items_of_a_submission(archive: AnArchive) -> None:
    archive.commit({"deposit": "foreach: submission", "index": "on: manual\ndepends: [deposit]"})
    assert proposed(archive.session, archive.revisions["", 2], names=["index"], without=["deposit"]).tasks[0].never_ran == ["deposit"]  # fmt: skip
    archive.submit('["a"]')
    (task,) = proposed(archive.session, archive.revisions["", 2], names=["index"]).tasks
    assert ([needed.task for needed in task.needs], task.never_ran) == (["papers@2.2/deposit:completed"], [])


def test_a_submission_without_a_task_is_refused_and_its_id_stays_free(archive: AnArchive) -> None:
    archive.commit({"build": ""})
    with pytest.raises(Conflict, match="no task of this revision runs on submissions"):
        archive.submit(sender_id="x")
    archive.commit({"check": "on: submission"})
    assert archive.submit(sender_id="x") == archive.submit(sender_id="x")


def test_a_submission_is_refused_where_what_it_needs_never_ran_or_will_not_come(archive: AnArchive) -> None:
    archive.commit({"build": "on: manual", "deposit": "on: submission\ndepends: [build]"})
    with pytest.raises(Conflict, match="build, which has never run on this branch") as refused:
        archive.submit(sender_id="x")
    assert "--without" not in str(refused.value)
    archive.trigger(2, "build")
    archive.cancel("build@2.2")
    with pytest.raises(Conflict, match=r"was canceled\. run it again: arkqueue retry papers@2\.2/build --force"):
        archive.submit(sender_id="x")
    archive.retry("build@2.2", force=True)
    archive.submit(sender_id="x")
    assert archive.state("deposit@2.3") == "waiting"
    archive.run("build@2.2", "deposit@2.3")


def test_a_held_submission_waits_for_a_release(archive: AnArchive) -> None:
    archive.commit(DEPOSIT)
    run = archive.submit('["a"]', is_held=True)
    assert names(archive, run) == {"check": "held", "deposit/a": "held"}
    assert [deed.verb for deed in runs.run(archive.session, RunId(run)).deeds] == ["hold", "submit"]


# Beside commits


STRICT = {"COMMIT": "depends: [{task: 'PREV:*', when: settled}]"}


def test_commits_do_not_wait_for_submissions(archive: AnArchive) -> None:
    archive.commit({"build": "", "check": "on: submission", **STRICT})
    archive.run("build@2")
    archive.submit()
    archive.commit({"build": "", "check": "on: submission", **STRICT})
    assert archive.states() == {"build@2": "completed", "check@2.2": "ready", "build@3": "ready"}


def test_submissions_close_no_gate(archive: AnArchive) -> None:
    archive.commit({"check": "on: submission\nexclusive: true", "build": ""})
    archive.submit()
    archive.commit({"build": ""})
    archive.submit(number=2)
    archive.commit({"build": ""})
    assert [archive.state(f"build@{number}") for number in (3, 4)] == ["ready", "ready"]


def test_submissions_at_an_older_revision_close_no_gate_either(archive: AnArchive) -> None:
    files = {"build": "exclusive: true", "check": "on: submission\nexclusive: true"}
    archive.commit(files)
    archive.commit(files)
    archive.submit(number=2)
    assert archive.state("build@3") == "waiting"
    archive.run("build@2")
    assert (archive.state("check@2.2"), archive.state("build@3")) == ("running", "ready")


def test_submissions_wait_at_no_gate(archive: AnArchive) -> None:
    archive.commit({"build": "exclusive: true", "check": "on: submission"})
    archive.commit({"build": "exclusive: true", "check": "on: submission", **STRICT})
    archive.submit()
    archive.submit()
    assert (archive.state("build@3"), archive.state("check@3.2"), archive.state("check@3.3")) == (
        "waiting",
        "ready",
        "ready",
    )


@pytest.mark.parametrize("is_purged", [False, True])
def test_what_comes_after_a_submission_waits_for_the_commit_before_it(archive: AnArchive, is_purged: bool) -> None:
    files = {"build": "exclusive: true", "check": "on: submission"}
    archive.commit(files)
    archive.commit(files)
    first, second = archive.submit(), archive.submit()
    archive.run("check@3.2", "check@3.3")
    if is_purged:
        purge.purge_runs(archive.session, [RunId(first), RunId(second)], "ann")
    archive.trigger(3)
    archive.commit(files)
    assert [archive.state(f"build@{place}") for place in ("3", "3.4", "4")] == ["waiting"] * 3
    archive.run("build@2")
    assert [archive.state(f"build@{place}") for place in ("3", "3.4", "4")] == ["ready", "ready", "waiting"]
    assert examine(archive.session).findings == []


# Beside one another


def test_only_a_later_submission_with_the_same_key_supersedes(archive: AnArchive) -> None:
    files = {"deposit": "foreach: submission\ncancels: [PREV]", "all": "cancels: ['PREV:deposit']  # gate"}
    archive.commit(files)
    archive.submit('["a", "b"]')
    archive.commit(files)
    archive.submit('["b", "c"]')
    states = {f"{row['item']}@{row['number']}": row["state"] for row in archive.sql("select item, number, state from task where name = 'deposit' order by id")}  # fmt: skip
    assert states == {"a@2": "ready", "b@2": "canceled", "b@3": "ready", "c@3": "ready"}
    archive.fail("deposit/a@2.2")
    archive.retry("deposit/a@2.2")
    assert archive.state("deposit/a@2.2") == "ready"


def test_graphs_draw_no_arrow_to_what_is_spared(archive: AnArchive) -> None:
    files = {
        "deposit": "foreach: submission\ncancels: [PREV]",
        "one": "on: [commit, submission]\ncancels: [PREV]",
        "all": "cancels: ['PREV:deposit', 'PREV:one']",
    }
    archive.commit(files)
    archive.submit('["a", "b"]')
    archive.commit(files)
    archive.submit('["b", "c"]')

    def cut(number: int, run: int) -> set[tuple[str, str]]:
        found = graph(archive.session, [RunId(archive.run_id(number, run))])
        names = {node.id: node.full_name for node in found.nodes}
        return {(names[e.target], names[e.source]) for e in found.edges if e.kind == "cancels"}

    assert cut(3, 1) == set()
    assert cut(3, 2) == {("papers@3.2/deposit/b", "papers@2.2/deposit/b"), ("papers@3.2/one", "papers@3/one")}


def test_a_submission_at_an_older_revision_never_replaces_newer_work(archive: AnArchive) -> None:
    archive.commit({"deposit": "foreach: submission"})
    archive.commit({"deposit": "foreach: submission"})
    archive.submit('["a"]')
    archive.run("deposit/a@3.2")
    with pytest.raises(Conflict, match=r"deposit/a completed\. submit it at the newest revision"):
        archive.submit('["a"]', number=2)
    archive.submit('["b"]', number=2)


def test_a_task_without_a_list_is_work_of_its_own_submission(archive: AnArchive) -> None:
    tasks = {"batch": "on: [commit, submission]", "jobs": "foreach: submission\ndepends: [batch]"}
    archive.commit(tasks)
    archive.submit('["a"]', sender_id="A")
    archive.fail("batch@2", "batch@2.2")
    archive.submit('["a"]', sender_id="B")
    archive.run("batch@2.3", "jobs/a@2.3")
    archive.commit(tasks)
    archive.run("batch@3")
    found = unhandled_failures(archive.session, ArchiveId(archive.id), archive.branches[""].id, 10)
    assert [one.name for one in found.newest] == ["papers@2.2/batch"]
    told = explain(archive.session, archive.task("batch@2.2"))
    assert told.commands[1:] == ["arkqueue retry papers@2.2/batch --force", "arkqueue skip papers@2.2/batch"], (
        "for its item"
    )
    assert "Later revisions" not in told.text
    archive.submit('["b"]', sender_id="C", number=2)
    with pytest.raises(Conflict, match=r"papers@2\.3/jobs/a completed"):
        archive.retry("batch@2.2")  # its item is the same work
    archive.retry("batch@2.2", force=True)
    assert (archive.state("batch@2.2"), archive.state("jobs/a@2.2")) == ("ready", "waiting")


def test_a_failed_task_of_an_older_submission_is_retried_and_released_beside_later_ones(archive: AnArchive) -> None:
    archive.commit({"batch": "on: submission", "jobs": "foreach: submission\ndepends: [batch]"})
    archive.submit('["a"]', sender_id="A")
    archive.fail("batch@2.2")
    archive.submit('["b"]', sender_id="B")
    archive.run("batch@2.3", "jobs/b@2.3")
    archive.retry("batch@2.2")
    holds.hold(archive.session, archive.task("batch@2.2"), "ann")
    done = holds.release(archive.session, archive.task("batch@2.2"), "ann")
    assert (done.refused, archive.state("batch@2.2")) == ([], "ready")


def test_a_submission_is_newer_work_for_commits(archive: AnArchive) -> None:
    archive.commit({"batch": "on: [commit, submission]"})
    archive.fail("batch@2")
    archive.submit("[]", sender_id="A")
    archive.run("batch@2.2")
    with pytest.raises(Conflict, match=r"papers@2\.2/batch completed"):
        archive.retry("batch@2")


def test_what_a_later_submission_built_on_a_failure_is_not_replaced(archive: AnArchive) -> None:
    archive.commit({"batch": "on: submission\ndepends: [{task: PREV, when: settled}]"})
    archive.submit("[]", sender_id="A")
    archive.submit("[]", sender_id="B")
    archive.fail("batch@2.2")
    archive.run("batch@2.3")
    with pytest.raises(Conflict, match=r"tasks of later revisions have started after it: papers@2\.3/batch"):
        archive.retry("batch@2.2")


def test_a_submission_at_a_head_that_has_moved_stores_nothing(archive: AnArchive) -> None:
    archive.commit(DEPOSIT)
    stored = submissions.store_payload(archive.session, [b"[]"])
    given = submissions.Payload(PayloadKind.JSON, 2, "0")
    old = archive.revisions["", 2]
    archive.commit(DEPOSIT)
    made = submissions.submit(archive.session, archive.id, "papers", old, given, stored, {}, sender_id="x", by="ann", head_of=archive.branches[""].id)  # type: ignore[arg-type]  # fmt: skip
    assert made is None
    assert archive.sql("select count(*) from run where trigger = 'submission'")[0]["count"] == 0


def test_a_held_archive_holds_submissions(archive: AnArchive) -> None:
    archive.commit(DEPOSIT)
    archives.change_settings(archive.session, archive.id, ArchiveSettings(process=True, require_approval=("deposit",)), "ann")  # type: ignore[arg-type]  # fmt: skip
    run = archive.submit('["a"]')
    assert names(archive, run) == {"check": "ready", "deposit/a": "held"}


def test_a_purge_exports_what_was_handed_in(archive: AnArchive, tmp_path: Path) -> None:
    archive.commit({"check": "on: submission"})
    run = RunId(archive.submit('{"a": "é"}', sender_id="x"))
    archive.run("check@2.2")
    with (tmp_path / "old.jsonl").open("x") as file:
        purge.purge_runs(archive.session, [run], "ann", export=Export(file))
    lines = [json.loads(line) for line in (tmp_path / "old.jsonl").read_text().splitlines()]
    (told,) = [line for line in lines if line["kind"] == "submission"]
    assert (told["id"], told["payload_kind"], told["run_id"]) == ("x", "json", run)
    assert [line["text"] for line in lines if line["kind"] == "payload"] == ['{"a": "é"}']


def test_payloads_that_came_to_nothing_are_swept(archive: AnArchive) -> None:
    def left() -> tuple[int, int]:
        """The parts of payloads, and the payloads without a run."""
        tables = "select (select count(*) from payload_part) as parts, (select count(*) from payload_left) as payloads"
        (row,) = archive.sql(tables)
        return row["parts"], row["payloads"]

    submissions.store_payload(archive.session, [b"a", b"b"])
    submissions.sweep(archive.session)
    assert left() == (2, 1), "whoever stores it may still be at it"
    archive.sql("update payload_left set since = since - interval '7 hours'")
    submissions.sweep(archive.session)
    assert left() == (0, 0)


@pytest.mark.full
def test_ten_thousand_items_are_planned_in_portions_and_run(archive: AnArchive) -> None:
    archive.commit({"check": "on: submission", "deposit": "foreach: submission\ndepends: [check]"})
    text = json.dumps([{"id": f"k{n}"} for n in range(10_000)])
    run = archive.submit(text, sender_id="x")
    assert runs.run(archive.session, RunId(run)).state == "planning"
    with pytest.raises(Busy, match="is still being planned"):
        archive.submit(text, sender_id="y")
    assert archive.submit(text, sender_id="x") == run
    left = planning.Planner(archive.session)
    while left.turn() is not None:
        pass
    archive.run("check@2.2")
    (row,) = archive.sql("select count(*) from task where name = 'deposit' and state = 'ready' and run_id = %s", run)
    assert row["count"] == 10_000
    (claimed,) = archive.claim_some(1)
    assert json.loads(claimed.item_body) == {"id": claimed.item}
    assert examine(archive.session).findings == []
    archive.submit('["a"]', sender_id="y")
