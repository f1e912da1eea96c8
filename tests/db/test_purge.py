"""Purge of whole runs (design 5.27; decision 0001, point 27): the removed rows, the remaining rows,
and the reasons to keep a run.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from arkqueue.archives.retention import PurgedByAge, purge_by_age
from arkqueue.db import Connection
from arkqueue.db.session import Session
from arkqueue.errors import Conflict, Invalid, NotFound
from arkqueue.model import ArchiveId, AttemptId, End, Outcome, Receipt, RunId, TaskId
from arkqueue.names import PURGED
from arkqueue.queue import claim, control, deletion, finish, holds, lists, many, purge, purge_batch, schedules
from arkqueue.queue.export import Export
from arkqueue.views import explain, find, runs, tasks
from arkqueue.views.doctor import examine
from tests.builders import PROCESS, AnArchive
from tests.db.purges import purged_in_steps
from tests.db.test_races import Connect, InThread, one_after_the_other, wait_until_blocked
from tests.db.test_removal import write
from tests.waiting import eventually


def purged(archive: AnArchive, *numbers: int | tuple[int, int], reason: str = "") -> purge.Purged:
    ids = [RunId(archive.run_id(*(number if isinstance(number, tuple) else (number,)))) for number in numbers]
    return purge.purge_runs(archive.session, ids, "ann", reason)


def kept_of(done: purge.Purged | PurgedByAge) -> dict[str, str]:
    return {one.run: one.fault for one in done.kept}


def left_of(archive: AnArchive) -> dict[str, int]:
    """How many rows there are of what belongs to runs."""
    tables = ("run", "task", "edge", "item", "attempt", "log_chunk", "purged_task")
    return {table: archive.sql(f"select count(*) as n from {table}")[0]["n"] for table in tables}


def a_logged_run(archive: AnArchive, name: str, data: bytes = b"hello\n") -> AttemptId:
    attempt = archive.attempt(name)
    write(archive, AttemptId(attempt), data)
    archive.record(AttemptId(attempt), End.EXITED, 0, outputs={"size": "7"})
    archive.running.clear()
    return AttemptId(attempt)


def test_a_purged_run_is_gone_with_its_tasks_attempts_and_logs(session: Session, archive: AnArchive) -> None:
    before = left_of(archive)
    archive.commit({"a": "", "b": "depends: [a]"})
    a_logged_run(archive, "a@2")
    archive.run("b@2")
    run, task = archive.run_id(2), archive.task("a@2")
    archive.sql("insert into item (run_id, body) values (%s, '{}')", run)

    done = purged(archive, 2, reason="it is old")

    assert (done.runs, done.kept) == (["papers@2"], [])
    assert left_of(archive) == before
    with pytest.raises(NotFound):
        runs.run(session, RunId(run))
    with pytest.raises(NotFound):
        tasks.task(session, TaskId(task))


def test_the_address_of_a_purged_run_tells_who_purged_it_and_is_never_given_again(
    session: Session, archive: AnArchive
) -> None:
    archive.commit({"a": "on: [commit, manual]"})
    archive.run("a@2")
    archive.trigger(2)
    archive.run("a@2.2")
    purged(archive, (2, 2), reason="it is old")

    told = r"papers@2\.2(/a)?: was purged on 20\d\d-.* UTC by ann, because it is old"
    with pytest.raises(NotFound, match=told):
        find.find_run(session, "papers@2.2")
    with pytest.raises(NotFound, match=told):
        find.find_task(session, "papers@2.2/a")
    archive.trigger(2)
    assert archive.states() == {"a@2": "completed", "a@2.3": "ready"}
    archive.run("a@2.3")
    purged(archive, 2, (2, 3))
    with pytest.raises(NotFound, match="papers@2: was purged on"):
        find.find_run(session, "papers@2")
    with pytest.raises(NotFound, match=r"does not exist: this revision has no run 9"):
        find.find_run(session, "papers@2.9")
    with pytest.raises(NotFound, match="papers@2/a: was purged on"):
        explain.explain_name(session, "papers@2/a")


def test_an_unsettled_run_is_passed_over(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "depends: [a]"})
    assert kept_of(purged(archive, 2)) == {"papers@2": "is not settled"}
    archive.claim("a@2")
    assert kept_of(purged(archive, 2)) == {"papers@2": "is not settled"}
    archive.run("a@2", "b@2")
    assert kept_of(purged(archive, 2)) == {}


def test_a_failure_that_something_waits_for_is_passed_over(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.fail("a@2")
    archive.commit({"a": "depends: [PREV]"})
    assert kept_of(purged(archive, 2)) == {"papers@2": "papers@3/a waits for it"}
    archive.skip("a@2")
    archive.run("a@3")
    assert purged(archive, 2).runs == ["papers@2"]


def test_a_failure_that_nothing_waits_for_goes_and_later_tasks_do_not_wait_for_it(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.fail("a@2")
    assert purged(archive, 2).runs == ["papers@2"]
    archive.commit({"a": "depends: [PREV]"})
    assert archive.states() == {"a@3": "ready"}


def test_what_never_began_and_blocks_later_runs_is_passed_over(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.claim("a@2")
    archive.commit({"a": "depends: [PREV]"})
    archive.cancel("a@3")
    done = purged(archive, 3)
    assert kept_of(done) == {"papers@3": "later runs wait for what papers@3/a waited for"}
    with pytest.raises(Conflict, match=r"papers@3: later runs wait .* and is kept"):
        done.unless_kept()
    archive.run("a@2")
    assert purged(archive, 3).runs == ["papers@3"]


def test_a_task_that_waits_through_one_that_was_canceled_is_named_in_the_refusal(archive: AnArchive) -> None:
    for depends in ("", "depends: [PREV]", "depends: [PREV]"):
        archive.commit({"a": depends})
    archive.fail("a@2")
    archive.cancel("a@3")
    assert archive.states() == {"a@2": "failed", "a@3": "canceled", "a@4": "waiting"}
    (kept,) = purged(archive, 2).kept
    assert (kept.fault, kept.remedy) == (
        "papers@4/a waits for it (through papers@3/a, which was canceled)",
        "arkqueue explain papers@4/a",
    )
    archive.cancel("a@4")
    (kept,) = purged(archive, 2).kept
    assert kept.fault == "later runs would wait for it (through papers@3/a, which was canceled)"
    assert kept.remedy == "arkqueue explain papers@2"
    assert "arkqueue skip papers@2/a" in explain.explain_name(archive.session, "papers@2").commands
    archive.skip("a@2")
    assert purged(archive, 2).kept == []


def test_a_failed_run_goes_with_what_it_skipped_itself(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "depends: [a]", "c": "depends: [{task: b, when: settled}]"})
    archive.claim("a@2")
    archive.cancel("c@2")
    archive.fail("a@2")
    assert archive.states() == {"a@2": "failed", "b@2": "skipped", "c@2": "canceled"}
    assert purged(archive, 2).runs == ["papers@2"]


def test_a_run_whose_outputs_a_held_task_is_given_is_passed_over(archive: AnArchive) -> None:
    archive.commit({"build": "", "deploy": "depends: [build]\non: [manual]\nhold: true"})
    archive.run("build@2")
    archive.trigger(2, "deploy")
    assert kept_of(purged(archive, 2)) == {"papers@2": "papers@2.2/deploy is given its outputs"}
    holds.release(archive.session, archive.task("deploy@2.2"), "ann")
    archive.claim("deploy@2.2")
    assert kept_of(purged(archive, 2)) == {
        "papers@2": "papers@2.2/deploy is given its outputs"
    }  # it may be lost, and run again
    archive.run("deploy@2.2")
    assert purged(archive, 2).runs == ["papers@2"]


def test_a_run_because_of_which_others_were_skipped_goes_after_them(archive: AnArchive) -> None:
    archive.commit({"build": "", "deploy": "depends: [build]\non: [manual]"})
    archive.fail("build@2")
    archive.trigger(2, "deploy")
    archive.skip("build@2")
    assert archive.states() == {"build@2": "failed", "deploy@2.2": "skipped"}
    assert kept_of(purged(archive, 2)) == {"papers@2": "papers@2.2/deploy was skipped because of it"}
    # Given both, the later one goes, and then nothing hangs on the earlier one.
    assert purged(archive, 2, (2, 2)).runs == ["papers@2.2", "papers@2"]


def test_a_root_of_what_was_skipped_in_a_deleted_run_is_passed_over(session: Session, archive: AnArchive) -> None:
    """No edge holds it any more: the task in the deleted run is not judged again when its root completes."""
    archive.commit({"build": "", "deploy": "depends: [build]\non: [manual]"})
    archive.fail("build@2")
    archive.trigger(2, "deploy")
    archive.skip("build@2")
    deletion.delete_run(session, RunId(archive.run_id(2, 2)), "ann")
    archive.retry("build@2")
    archive.run("build@2")
    assert kept_of(purged(archive, 2)) == {"papers@2": "papers@2.2/deploy was skipped because of it"}
    assert purged(archive, 2, (2, 2)).kept == []


def test_an_edge_from_a_purged_task_counts_as_met(session: Session, archive: AnArchive) -> None:
    for _ in range(2):
        archive.commit({"a": "depends: [PREV]"})
    archive.cancel("a@3")
    archive.cancel("a@2")
    # The edge from what was canceled to what is settled stays unmet: either may be retried.
    assert archive.sql("select unmet from task where id = %s", archive.task("a@3")) == [{"unmet": 1}]
    purged(archive, 2)
    assert archive.sql("select unmet from task where id = %s", archive.task("a@3")) == [{"unmet": 0}]
    archive.retry("a@3")
    assert archive.states() == {"a@3": "ready"}
    assert examine(session).is_sound


def test_base_and_the_highest_completed_place_survive(session: Session, archive: AnArchive) -> None:
    archive.commit({"a": "on: [commit, manual]"})
    archive.fail("a@2")
    archive.commit({"a": ""})
    archive.run("a@3")
    purged(archive, 3)

    with pytest.raises(Conflict, match="would replace the work of later revisions: papers@3/a completed"):
        archive.retry("a@2")
    reasons = explain.explain(session, TaskId(archive.task("a@2"))).reasons
    assert "Later revisions have already run (papers@3/a)" in reasons[0].text
    archive.commit({"a": ""})
    assert archive.claim("a@4").base == "3"


def test_commit_does_not_wait_for_a_failure_before_a_commit_run_that_was_purged(archive: AnArchive) -> None:
    """A run by hand completed the same task after it, at a higher place and later in time."""
    strict = {"COMMIT": "depends: ['PREV:*']", "a": "on: [commit, manual]"}
    archive.commit({"a": "on: [commit, manual]"})
    archive.fail("a@2")
    archive.commit({"a": "on: [commit, manual]"})
    archive.run("a@3")
    archive.trigger(3)
    archive.run("a@3.2")
    purged(archive, 3)
    archive.commit(strict)
    assert archive.state("a@4") == "ready"


def test_commits_that_end_at_once_leave_the_highest_commit_run(session: Session, archive: AnArchive) -> None:
    archive.commit({"a": "on: [commit, manual]"})
    archive.trigger(2)
    attempts = [archive.attempt("a@2"), archive.attempt("a@2.2")]
    ended = finish.finish(session, PROCESS, [Outcome(AttemptId(attempt), End.EXITED, 0) for attempt in attempts])
    assert set(ended.values()) == {Receipt.RECORDED}
    place = {"highest_number": 2, "highest_run": 2, "commit_number": 2}
    assert archive.sql("select highest_number, highest_run, commit_number from completion where name = 'a'") == [place]


REFUSED = "tasks of later revisions have started after it: {}"


def test_a_retry_is_refused_after_the_later_task_that_had_started_was_purged(
    session: Session, archive: AnArchive
) -> None:
    archive.commit({"build": ""})
    archive.fail("build@2")
    archive.skip("build@2")
    archive.commit({"deploy": "depends: ['PREV:build']"})
    archive.fail("deploy@3")
    with pytest.raises(Conflict, match=REFUSED.format("papers@3/deploy")):
        archive.retry("build@2")
    assert purged(archive, 3).runs == ["papers@3"]

    with pytest.raises(Conflict, match=REFUSED.format("papers@3/deploy")):
        archive.retry("build@2")
    reasons = explain.explain(session, TaskId(archive.task("build@2"))).reasons
    assert "Later revisions have already run (papers@3/deploy)" in reasons[0].text
    archive.retry("build@2", force=True)
    assert archive.states() == {"build@2": "ready"}
    holds.hold(session, archive.task("build@2"), "ann")
    with pytest.raises(Conflict, match=REFUSED.format("papers@3/deploy")):
        holds.release(session, archive.task("build@2"), "ann")
    holds.release(session, archive.task("build@2"), "ann", how=holds.How(force=True))
    archive.run("build@2")
    assert purged(archive, 2).runs == ["papers@2"]
    assert archive.sql("select * from purged_start where name = 'deploy'") == []


def test_a_retry_is_not_refused_where_what_was_purged_had_never_started(archive: AnArchive) -> None:
    archive.commit({"build": ""})
    archive.fail("build@2")
    archive.skip("build@2")
    archive.commit({"deploy": "depends: ['PREV:build']"})
    archive.cancel("deploy@3")
    assert purged(archive, 3).runs == ["papers@3"]
    archive.retry("build@2")
    assert archive.states() == {"build@2": "ready"}


def test_a_retry_is_refused_where_a_purged_commit_let_later_tasks_start(archive: AnArchive) -> None:
    """COMMIT@3 waited for build@2 and let COMMIT@4 pass; nothing of revision 3 itself has started."""
    archive.commit({"build": ""})
    archive.fail("build@2")
    archive.skip("build@2")
    strict = {"COMMIT": "depends: [{task: 'PREV:*', when: settled}]", "deploy": ""}
    archive.commit(strict)
    archive.cancel("deploy@3")
    archive.commit(strict)
    archive.run("deploy@4")
    with pytest.raises(Conflict, match=REFUSED.format("papers@4/deploy")):
        archive.retry("build@2")
    assert purged(archive, 3).runs == ["papers@3"]
    with pytest.raises(Conflict, match=REFUSED.format("papers@3")):
        archive.retry("build@2")
    assert purged(archive, 4).runs == ["papers@4"]
    with pytest.raises(Conflict, match=REFUSED.format("papers@3")):
        archive.retry("build@2")


def test_a_start_is_remembered_through_a_gate_that_is_purged_later(archive: AnArchive) -> None:
    """The task that has started goes first; the gate through which its source led to it, after that."""
    archive.commit({"build": ""})
    archive.fail("build@2")
    archive.skip("build@2")
    archive.commit({"gate": "# gate\ndepends: ['PREV:build']"})
    archive.commit({"deploy": "depends: ['PREV:gate']"})
    archive.run("deploy@4")
    assert purged(archive, 4).runs == ["papers@4"]
    with pytest.raises(Conflict, match=REFUSED.format("papers@4/deploy")):
        archive.retry("build@2")
    assert purged(archive, 3).runs == ["papers@3"]
    with pytest.raises(Conflict, match=REFUSED.format("papers@3/gate")):
        archive.retry("build@2")


def test_a_run_by_hand_takes_what_a_purged_task_has_completed(archive: AnArchive) -> None:
    archive.commit({"build": "", "deploy": "depends: [build]\non: [manual]"})
    archive.fail("build@2")
    purged(archive, 2)
    with pytest.raises(Conflict, match="deploy needs build, which has never run on this branch, or was purged"):
        archive.trigger(2, "deploy")
    archive.commit({"build": "", "deploy": "depends: [build]\non: [manual]"})
    archive.run("build@3")
    purged(archive, 3)
    archive.trigger(3, "deploy")
    assert archive.states() == {"deploy@3.2": "ready"}


def test_what_a_purged_run_superseded_stays_so(session: Session, archive: AnArchive) -> None:
    for _ in range(2):
        archive.commit({"a": "cancels: [PREV]"})
    archive.run("a@3")
    purged(archive, 3)

    assert archive.states() == {"a@2": "canceled"}
    task = TaskId(archive.task("a@2"))
    assert tasks.task(session, task).superseded_by == PURGED
    assert runs.run(session, RunId(archive.run_id(2))).state == "superseded"
    (reason,) = explain.explain(session, task).reasons
    assert f"superseded by {PURGED}" in reason.text
    with pytest.raises(Conflict, match=f"is superseded by {PURGED}"):
        archive.retry("a@2")
    archive.retry("a@2", force=True)
    assert archive.states() == {"a@2": "ready"}


def test_all_runs_of_an_archive_may_go_and_it_goes_on(archive: AnArchive) -> None:
    archive.commit({"a": "depends: [PREV]\nexclusive: true"})
    archive.run("a@2")
    assert purged(archive, 1, 2).runs == ["papers@1", "papers@2"]
    archive.commit({"a": "depends: [PREV]\nexclusive: true", "b": "depends: ['PREV:*']"})
    assert archive.states() == {"a@3": "ready", "b@3": "ready"}


def test_a_schedule_forgets_a_purged_run(session: Session, archive: AnArchive) -> None:
    archive.commit({"a": "schedule: '0 3 * * *'\ntimezone: UTC"})
    archive.sql("update schedule set next_at = clock_timestamp()")
    schedules.fire(session)
    archive.run("a@2.2")
    assert archive.sql("select count(*) as n from schedule where run_id is not null") == [{"n": 1}]
    purged(archive, (2, 2))
    fires = "select (select count(*) from schedule where run_id is not null) + (select count(*) from schedule_fire where run_id is not null) as n"
    assert archive.sql(fires) == [{"n": 0}]
    archive.sql("update schedule set next_at = clock_timestamp()")
    schedules.fire(session)
    assert archive.states() == {"a@2.3": "ready"}


def test_a_deleted_run_is_purged_and_brought_back_until_then(session: Session, archive: AnArchive) -> None:
    archive.commit({"a": ""})
    run = RunId(archive.run_id(2))
    deletion.delete_run(session, run, "ann")
    deletion.undelete_run(session, run, "ann")
    deletion.delete_run(session, run, "ann")
    assert purged(archive, 2).runs == ["papers@2"]
    with pytest.raises(NotFound):
        deletion.undelete_run(session, run, "ann")


def test_a_dry_run_removes_nothing_and_says_what_would_go(session: Session, archive: AnArchive) -> None:
    archive.commit({"a": ""})
    a_logged_run(archive, "a@2")
    archive.commit({"a": ""})
    before = left_of(archive)
    ids = [RunId(archive.run_id(2)), RunId(archive.run_id(3))]
    done = purge.purge_runs(session, ids, "ann", dry_run=True)
    assert (done.runs, kept_of(done)) == (["papers@2"], {"papers@3": "is not settled"})
    assert left_of(archive) == before


def test_what_goes_is_exported_before(session: Session, archive: AnArchive, tmp_path: Path) -> None:
    archive.commit({"a": "", "b": "depends: [a]"})
    attempt = a_logged_run(archive, "a@2", b"hello\n")
    archive.sql("insert into log_chunk values (%s, 100, 'stderr', now(), %s)", attempt, b"\xff\xfe")
    odd = "\x1b\x85\u2028\u202eü\U000e0001"
    archive.sql("insert into log_chunk values (%s, 102, 'stderr', now(), %s)", attempt, odd.encode())
    archive.sql("update attempt set log_bytes = 120 where id = %s", attempt)
    archive.run("b@2")
    archive.commit({"a": ""})
    ids = [RunId(archive.run_id(2)), RunId(archive.run_id(3))]
    with (tmp_path / "old.jsonl").open("x") as file:
        purge.purge_runs(session, ids, "ann", export=Export(file))

    text = (tmp_path / "old.jsonl").read_text()
    assert text.replace("\n", "").isprintable()
    assert "\\u001b\\u0085\\u2028\\u202eü\\udb40\\udc01" in text
    lines = [json.loads(line) for line in text.splitlines()]
    (run,) = [line for line in lines if line["kind"] == "run"]
    assert (run["archive"], run["number"], run["run"], run["author"]) == ("papers", 2, 1, "ann")
    names = {line["id"]: line for line in lines if line["kind"] == "task"}
    assert [task["name"] for task in names.values()] == ["COMMIT", "a", "b", "REPORT"]
    (a, b) = (next(task for task in names.values() if task["name"] == name) for name in "ab")
    assert a["definition"]["command"] == "true"
    assert {"source": a["id"], "kind": "depends", "met": True} in b["edges"]
    ended = {line["task_id"]: line["outputs"] for line in lines if line["kind"] == "attempt"}
    assert ended == {a["id"]: {"size": "7"}, b["id"]: None}
    logged = [line for line in lines if line["kind"] == "log"]
    assert [(line["attempt_id"], line.get("text"), line.get("base64")) for line in logged] == [
        (attempt, "hello\n", None),
        (attempt, None, "//4="),
        (attempt, odd, None),
    ]


def test_a_run_that_changes_while_it_is_exported_stays(session: Session, archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.fail("a@2")

    def retried(_: Session, __: object) -> None:
        archive.retry("a@2")
        archive.fail("a@2")

    def noted(_: Session, __: object) -> None:
        control.note(session, "Ann looks into it", "ann", run=RunId(archive.run_id(2)))

    def waived(_: Session, __: object) -> None:
        control.skip_until(session, archive.id, archive.branches[""].id, "a", 2, "ann")

    for act in (retried, noted, waived):
        done = purge.purge_runs(session, [RunId(archive.run_id(2))], "ann", export=act)
        assert kept_of(done) == {"papers@2": "changed while it was exported"}
        assert archive.states() == {"a@2": "failed"}
    assert purged(archive, 2).runs == ["papers@2"]
    assert archive.sql("select verb from deed where verb = 'note'") == []
    with pytest.raises(Invalid, match="10001 characters"):
        purge.purge_runs(session, [], "ann", "x" * 10_001)


def test_a_purge_of_many_runs_takes_few_with_each_transaction(
    session: Session, archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2, 9):
        archive.commit({"a": ""})
        archive.run(f"a@{number}")
    monkeypatch.setattr(purge, "MOST_RUNS", 4)
    monkeypatch.setattr(purge_batch, "MOST_TASKS", 6)  # each run has three
    ids = [archive.run_id(number) for number in range(2, 9)]
    steps = [list(done.runs) for done in purge.purging(session, archive.id, ids, "ann", "")]
    assert [len(step) for step in steps] == [2, 2, 2, 1]
    assert archive.sql("select count(*) as n from deed where verb = 'purge'") == [{"n": 1}]


def test_the_edges_inside_a_large_run_are_deleted_without_its_archive(
    session: Session, archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later runs wait for some of its tasks: one as it failed, one because it was canceled."""
    archive.commit({"a": "", "b": "depends: [a]", "c": "depends: [a, {task: b, when: settled}]"})
    archive.commit({"c": "depends: [PREV]"})
    attempt = a_logged_run(archive, "a@2")
    archive.cancel("b@2")
    archive.cancel("c@2")
    archive.cancel("c@3")
    archive.commit({"a": "depends: [PREV]"})
    archive.run("a@4")
    monkeypatch.setattr(purge_batch, "MOST_TASKS", 4)
    monkeypatch.setattr(purge, "MOST_EDGES", 2)
    with monkeypatch.context() as patch:
        patch.setattr(purge, "sweep", lambda _: None)
        purged(archive, 2)
    inside = "from edge e where not exists (select from task where id = e.target)"
    assert archive.sql(f"select bool_or(crossing) as crossing, count(*) >= 4 as many {inside}") == [
        {"crossing": False, "many": True}
    ]
    assert archive.sql("select unmet from task where id = %s", archive.task("c@3")) == [{"unmet": 0}]
    assert examine(session).is_sound
    archive.commit({"a": "depends: [PREV]", "c": "depends: ['PREV:*']"})
    archive.run("a@5")
    with session.database.transaction() as connection:
        connection.execute("select from archive for update")
        purge.sweep(session)
    left = left_of(archive)
    assert (archive.sql(f"select count(*) as n {inside}"), left["purged_task"]) == ([{"n": 0}], 0)
    assert archive.sql("select from attempt where id = %s", attempt) == []
    assert examine(session).is_sound


# Beside others


RETRIES: dict[str, Callable[[AnArchive, RunId], object]] = {
    "a task": lambda archive, _: archive.retry("a/x@2"),
    "an item": lambda archive, run: many.act_on_item(archive.session, run, "x", "retry", many.retrying("bob", None)),
    "a list": lambda archive, run: lists.act(archive.session, run, "a", [], "retry", many.retrying("bob", None)),
}
"""The ways to retry the item x."""


@pytest.mark.parametrize("what", RETRIES)
def test_of_a_purge_and_a_retry_the_first_wins(
    session: Session, archive: AnArchive, second_connection: Connect, what: str
) -> None:
    archive.commit({"a": "foreach: [x, y]", "all": "depends: [a]"})
    archive.run("a/y@2")
    archive.fail("a/x@2")
    run = RunId(archive.run_id(2))
    retry = partial(RETRIES[what], archive, run)
    retrying, purging = one_after_the_other(
        archive, second_connection, retry, lambda: purge.purge_runs(session, [run], "ann")
    )
    retrying.result()
    assert kept_of(purging.result()) == {"papers@2": "is not settled"}
    archive.fail("a/x@2")
    purging, retrying = one_after_the_other(
        archive, second_connection, lambda: purge.purge_runs(session, [run], "ann"), retry
    )
    assert purging.result().runs == ["papers@2"]
    with pytest.raises(NotFound, match="was purged"):
        retrying.result()


def test_of_two_purges_the_second_names_what_the_first_has_removed(
    session: Session, archive: AnArchive, second_connection: Connect
) -> None:
    for number in (2, 3):
        archive.commit({"a": ""})
        archive.run(f"a@{number}")
    two, three = (RunId(archive.run_id(number)) for number in (2, 3))
    first, second = one_after_the_other(
        archive,
        second_connection,
        lambda: purge.purge_runs(session, [two], "ann"),
        lambda: purge.purge_runs(session, [three, two, two], "bob"),
    )
    assert (first.result().runs, first.result().gone) == (["papers@2"], [])
    done = second.result()
    assert (done.runs, done.kept, done.gone) == (["papers@3"], [], [purge_batch.Gone(run="papers@2", by="ann")])
    assert purge.purge_runs(session, [three], "ann").gone == [purge_batch.Gone(run="papers@3", by="bob")]


def test_of_two_purges_by_age_the_second_names_what_the_first_has_removed(
    session: Session, archive: AnArchive, second_connection: Connect
) -> None:
    archive.commit({"a": ""})
    archive.run("a@2")
    archive.sql("update task set settled_at = now() - interval '40 days'")
    archive.sql("update run set created_at = now() - interval '40 days'")
    archive.sql('update archive set settings = settings || \'{"keep": {"completed": "30d"}}\'')
    first, second = one_after_the_other(
        archive,
        second_connection,
        lambda: purge_by_age(session, ArchiveId(archive.id), "ann"),
        lambda: purge_by_age(session, ArchiveId(archive.id), "bob"),
    )
    assert "papers@2" in first.result().runs
    assert [gone.by for gone in second.result().gone] == ["ann"] * len(first.result().runs)


@pytest.mark.parametrize("most", [purge_batch.MOST_TASKS, 2], ids=["at-once", "in-steps"])
def test_of_a_purge_and_an_undelete_the_first_wins(
    session: Session, archive: AnArchive, second_connection: Connect, most: int
) -> None:
    archive.commit({"a": "", "b": ""})
    run = RunId(archive.run_id(2))
    deletion.delete_run(session, run, "ann")
    with purged_in_steps(most):
        undeleting, purging = one_after_the_other(
            archive,
            second_connection,
            lambda: deletion.undelete_run(session, run, "ann"),
            lambda: purge.purge_runs(session, [run], "ann"),
        )
        undeleting.result()
        assert kept_of(purging.result()) == {"papers@2": "is not settled"}
        deletion.delete_run(session, run, "ann")
        purging, undeleting = one_after_the_other(
            archive,
            second_connection,
            lambda: purge.purge_runs(session, [run], "ann"),
            lambda: deletion.undelete_run(session, run, "ann"),
        )
        assert purging.result().runs == ["papers@2"]
        with pytest.raises(NotFound, match="was purged"):
            undeleting.result()
    purge.sweep(session)


def test_logs_are_deleted_without_the_archive(session: Session, archive: AnArchive, second_connection: Connect) -> None:
    """Tasks of the archive are planned, claimed and end while the logs of a purged run, which may be many, are deleted."""
    archive.commit({"a": ""})
    attempt = a_logged_run(archive, "a@2")
    ids = [RunId(archive.run_id(2))]
    holder, watcher = second_connection(), second_connection()
    with holder.transaction():
        holder.execute("select from log_chunk where attempt_id = %s for update", [attempt])
        purging = InThread(lambda: purge.purge_runs(session, ids, "ann"))
        wait_until_blocked(watcher)
        archive.commit({"a": ""})
        archive.run("a@3")
    assert purging.result().runs == ["papers@2"]
    assert left_of(archive)["log_chunk"] == 0


def uri_of(session: Session) -> str:
    with session.database.connect() as connection:
        return make_conninfo(connection.info.dsn, password=connection.info.password)


@pytest.mark.full
def test_a_purge_that_is_killed_leaves_whole_runs_and_the_next_one_goes_on(
    session: Session, archive: AnArchive, second_connection: Connect, tmp_path: Path
) -> None:
    """Killed for real: once while it deletes the logs of the first run, then, before it reaches the second one, which waits for its archive."""
    archive.commit({"a": ""})
    attempt = a_logged_run(archive, "a@2")
    archive.commit({"a": ""})
    a_logged_run(archive, "a@3")

    def start(*names: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "arkqueue", "--home", str(tmp_path / "home"), "purge", *names]
        return subprocess.Popen([*command, "--database", uri_of(session)], stderr=subprocess.PIPE)

    def kill_when_blocked(process: subprocess.Popen[bytes], watcher: Connection) -> None:
        wait_until_blocked(watcher)
        process.send_signal(signal.SIGKILL)
        process.communicate()

    holder, watcher = second_connection(), second_connection()
    with holder.transaction():
        holder.execute("select from log_chunk where attempt_id = %s for update", [attempt])
        kill_when_blocked(start("papers@2"), watcher)
    nobody_waits(watcher)
    assert left_of(archive)["purged_task"] == 1
    assert archive.states() == {"a@3": "completed"}
    assert examine(session).is_sound

    again = start("papers@2")
    assert b"papers@2: was purged on" in again.communicate()[1]
    assert again.returncode == 1
    assert left_of(archive)["purged_task"] == 0, "it has deleted what the one that was killed has left"

    with holder.transaction():
        holder.execute("select from archive for update")
        kill_when_blocked(start("papers@3"), watcher)
    nobody_waits(watcher)
    assert archive.states() == {"a@3": "completed"}
    assert examine(session).is_sound

    process = start("papers@3")
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert archive.states() == {}
    assert {name: n for name, n in left_of(archive).items() if name in ("attempt", "log_chunk", "purged_task")} == {
        "attempt": 0, "log_chunk": 0, "purged_task": 0,
    }  # fmt: skip


def nobody_waits(watcher: Connection) -> None:
    """Until the backend of a killed command has gone, too."""
    backends = (
        "select from pg_stat_activity where datname = current_database() and application_name like 'arkqueue purge%'"
    )
    eventually(lambda: not watcher.execute(backends).fetchall())


def test_a_late_report_of_a_purged_attempt_changes_nothing(session: Session, archive: AnArchive) -> None:
    """Its task manager repeats it, as the answer to the first one was lost."""
    archive.commit({"a": ""})
    attempt = a_logged_run(archive, "a@2")
    purged(archive, 2)
    assert archive.record(attempt, End.EXITED, 0) is Receipt.NOT_YOURS
    assert claim.renew(session, PROCESS, [attempt]).asked == {}
    write(archive, attempt, b"late")
    assert left_of(archive)["log_chunk"] == 0


def test_what_somebody_else_deletes_of_a_purge_is_left_to_them(
    session: Session, archive: AnArchive, second_connection: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.commit({"a": ""})
    a_logged_run(archive, "a@2")
    with monkeypatch.context() as patch:
        patch.setattr(purge, "sweep", lambda _: None)
        purged(archive, 2)
    other = second_connection()
    with other.transaction():
        other.execute("select from purged_task for update")
        purge.sweep(session)
        assert left_of(archive)["log_chunk"] == 1
    purge.sweep(session)
    assert left_of(archive)["log_chunk"] == 0
