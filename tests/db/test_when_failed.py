"""Tasks that wait for a failure (`when: failed`, design 5.6), to clean up or to notify somebody."""

from __future__ import annotations

import re

import pytest

from arkqueue.db.session import Session
from arkqueue.errors import Conflict
from arkqueue.model import End, RunId
from arkqueue.queue import deletion, purge, redo, schedules
from arkqueue.views import runs
from arkqueue.views.doctor import examine
from arkqueue.views.explain import explain
from arkqueue.views.graph import graph
from arkqueue.views.reasons import Why
from tests.builders import AnArchive, an_archive

FAILED = "{task: deposit, when: failed}"
TASKS = {"deposit": "", "clean": f"depends: [{FAILED}]", "tell": "depends: [clean]"}


@pytest.fixture
def archive(session: Session) -> AnArchive:
    """One revision: a deposit, what cleans up after it, and what tells of that."""
    archive = an_archive(session)
    archive.commit(TASKS)
    return archive


def run_state(archive: AnArchive, number: int = 2, run: int = 1) -> str:
    return str(runs.run(archive.session, RunId(archive.run_id(number, run))).state)


def states(archive: AnArchive, *keys: str) -> list[str]:
    return [archive.state(key) for key in keys]


# Inside a run


@pytest.mark.parametrize("code", [1, 65])
def test_it_runs_where_its_source_failed_and_the_run_has_failed_all_the_same(archive: AnArchive, code: int) -> None:
    archive.end("deposit@2", code)
    assert states(archive, "clean@2", "tell@2") == ["ready", "waiting"]
    archive.run("clean@2", "tell@2")
    assert run_state(archive) == "failed"
    archive.skip("deposit@2")
    assert run_state(archive) == "completed", "the failure was waived"


def test_it_is_skipped_where_its_source_completed_and_the_run_has_completed(archive: AnArchive) -> None:
    archive.run("deposit@2")
    assert states(archive, "clean@2", "tell@2", "REPORT@2") == ["skipped", "skipped", "completed"]
    assert run_state(archive) == "completed"
    told = explain(archive.session, archive.task("tell@2"))
    assert (told.reasons[0].kind, told.commands) == (Why.SKIPPED, [])
    assert "It was not needed: it, or a task that it depends on, runs only if papers@2/deposit fails" in told.text


def test_it_waits_for_the_last_of_the_automatic_retries(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"deposit": "retries: {max: 1, delay: 0s}", "clean": f"depends: [{FAILED}]"})
    archive.fail("deposit@2")
    assert states(archive, "deposit@2", "clean@2") == ["deferred", "waiting"]
    told = explain(session, archive.task("clean@2"))
    assert "It waits for a failure of papers@2/deposit, which is deferred" in told.text
    assert [(wait.task, wait.kind) for wait in told.waits_for] == [("papers@2/deposit", "failed")]


def test_a_lost_source_has_failed_only_when_it_is_given_up(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"deposit": "on_lost: fail", "clean": f"depends: [{FAILED}]"})
    archive.end("deposit@2", None, End.LOST)
    assert states(archive, "deposit@2", "clean@2") == ["failed", "ready"]


def test_a_canceled_source_has_not_failed_and_its_retry_brings_back_what_waits_for_a_failure(
    archive: AnArchive,
) -> None:
    archive.cancel("deposit@2")
    assert states(archive, "clean@2", "tell@2") == ["skipped", "skipped"]
    archive.retry("deposit@2")
    assert states(archive, "clean@2", "tell@2") == ["waiting", "waiting"]
    archive.fail("deposit@2")
    archive.run("clean@2", "tell@2")


def test_a_superseded_source_has_not_failed(session: Session) -> None:
    archive = an_archive(session)
    tasks = {"deposit": "cancels: [PREV]", "clean": f"depends: [{FAILED}]"}
    archive.commit(tasks)
    archive.commit(tasks)
    assert archive.states() == {
        "deposit@2": "canceled",
        "clean@2": "skipped",
        "deposit@3": "ready",
        "clean@3": "waiting",
    }
    assert run_state(archive) == "superseded"


def test_a_skipped_source_has_not_failed_whoever_skipped_it(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"index": "", "deposit": "depends: [index]", "clean": f"depends: [{FAILED}]"})
    archive.fail("index@2")
    assert states(archive, "deposit@2", "clean@2") == ["skipped", "skipped"]
    archive.skip("index@2", as_completed=True)
    assert states(archive, "deposit@2", "clean@2") == ["ready", "waiting"]
    archive.skip("deposit@2", as_completed=True)
    assert archive.state("clean@2") == "skipped"


def test_a_retry_of_the_source_takes_back_what_has_not_started_and_leaves_what_has(archive: AnArchive) -> None:
    archive.fail("deposit@2")
    archive.retry("deposit@2")
    assert archive.state("clean@2") == "waiting"
    archive.fail("deposit@2")
    archive.claim("clean@2")
    archive.retry("deposit@2")
    assert states(archive, "deposit@2", "clean@2") == ["ready", "running"]
    archive.run("deposit@2", "clean@2")
    assert archive.state("tell@2") == "ready", "what cleaned up is told of, although the retry completed"


def test_what_cleaned_up_does_not_clean_up_again_where_a_retry_fails_too(archive: AnArchive) -> None:
    archive.fail("deposit@2")
    archive.run("clean@2")
    archive.retry("deposit@2")
    archive.run("deposit@2")
    assert archive.state("clean@2") == "completed"
    archive.run("tell@2")
    assert run_state(archive) == "completed"


def test_what_is_not_needed_is_not_retried_and_the_refusal_says_how_to_run_it(archive: AnArchive) -> None:
    archive.claim("deposit@2")
    archive.cancel("clean@2")
    archive.run("deposit@2")
    with pytest.raises(Conflict, match="papers@2/deposit, which is completed") as canceled:
        archive.retry("clean@2")
    assert canceled.value.remedy == "run it all the same: arkqueue trigger papers --revision 2 clean --without deposit"
    archive.commit(TASKS)
    archive.run("deposit@3")
    with pytest.raises(Conflict, match="was skipped because of papers@3/deposit, which is completed"):
        archive.retry("clean@3")
    archive.trigger(3, "clean", without=["deposit"])
    assert archive.state("clean@3.2") == "ready"


def test_of_several_that_must_fail_one_that_does_not_is_enough_to_skip_it(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "", "clean": "depends: [{task: a, when: failed}, {task: b, when: failed}]"})
    archive.fail("a@2")
    assert archive.state("clean@2") == "waiting"
    archive.run("b@2")
    assert archive.state("clean@2") == "skipped"


def test_what_was_skipped_for_a_failure_stays_so_where_it_turns_out_that_it_is_not_needed(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"deposit": "", "index": "", "clean": f"depends: [index, {FAILED}]"})
    archive.fail("index@2")
    archive.run("deposit@2")
    archive.retry("index@2")
    assert states(archive, "index@2", "clean@2") == ["ready", "skipped"]


# From revision to revision


def test_later_revisions_go_on_behind_what_was_not_needed(session: Session) -> None:
    archive = an_archive(session)
    tasks = {"deposit": "", "clean": f"depends: [{FAILED}, PREV]"}
    archive.commit(tasks)
    archive.run("deposit@2")
    archive.commit(tasks)
    archive.fail("deposit@3")
    assert states(archive, "clean@2", "clean@3") == ["skipped", "ready"]


def test_later_revisions_do_not_overtake_what_runs_before_one_that_was_not_needed(session: Session) -> None:
    archive = an_archive(session)
    tasks = {"deposit": "", "clean": f"depends: [{FAILED}, PREV]"}
    for _ in range(3):
        archive.commit(tasks)
    archive.fail("deposit@2")
    archive.claim("clean@2")
    archive.run("deposit@3")
    archive.fail("deposit@4")
    assert states(archive, "clean@2", "clean@3", "clean@4") == ["running", "skipped", "waiting"]
    archive.run("clean@2")
    assert archive.state("clean@4") == "ready"


def test_a_canceled_one_blocks_nobody_as_soon_as_its_source_has_begun(session: Session) -> None:
    archive = an_archive(session)
    tasks = {"index": "", "deposit": "depends: [index]", "clean": f"depends: [{FAILED}, PREV]"}
    archive.commit(tasks)
    archive.cancel("clean@2")
    archive.commit(tasks)
    archive.run("index@3")
    archive.fail("deposit@3")
    assert archive.state("clean@3") == "waiting", "deposit@2, for which clean@2 waited, has not begun"
    archive.run("index@2")
    assert states(archive, "deposit@2", "clean@3") == ["ready", "ready"]


def test_a_failure_of_the_revision_before_starts_it_and_another_end_does_not_fail_the_run(session: Session) -> None:
    archive = an_archive(session)
    tasks = {"deposit": "", "repair": "depends: [{task: 'PREV:deposit', when: failed}]"}
    archive.commit(tasks)
    assert archive.state("repair@2") == "ready", "no earlier revision has the task, so that there is no edge"
    archive.run("repair@2")
    archive.commit(tasks)
    archive.fail("deposit@2")
    archive.run("repair@3", "deposit@3")
    archive.commit(tasks)
    archive.run("deposit@4")
    assert archive.state("repair@4") == "skipped", "it was planned behind what had completed"
    assert run_state(archive, 4) == "completed"
    with pytest.raises(Conflict, match="later revisions have started after it: papers@3/repair"):
        archive.retry("deposit@2")


@pytest.mark.parametrize("of", ["", "foreach: [x]\n"])
def test_what_completed_and_was_purged_has_not_failed(session: Session, of: str) -> None:
    archive = an_archive(session)
    item = "/x" if of else ""
    archive.commit({"deposit": of})
    archive.run(f"deposit{item}@2")
    archive.commit({"other": ""})
    archive.run("other@3")
    purge.purge_runs(session, [RunId(archive.run_id(2))], "ann")
    archive.commit({"deposit": of, "repair": of + "depends: [{task: 'PREV:deposit', when: failed}]"})
    assert archive.state(f"repair{item}@4") == "skipped"


def test_a_source_that_filters_leave_out_is_its_nearest_earlier_occurrence(session: Session) -> None:
    archive = an_archive(session)
    tasks = {"deposit": "paths: [data/*]", "clean": f"depends: [{FAILED}]"}
    archive.commit(tasks, changed=["data/a"])
    archive.fail("deposit@2")
    archive.commit(tasks)
    assert archive.state("clean@3") == "ready"


@pytest.mark.parametrize("entry", [FAILED, "{task: nobody, when: failed, optional: true}"])
def test_what_never_ran_has_not_failed(session: Session, entry: str) -> None:
    archive = an_archive(session)
    archive.commit({"deposit": "paths: [data/*]", "clean": f"depends: [{entry}]", "tell": "depends: [clean]"})
    assert archive.states() == {"clean@2": "skipped", "tell@2": "skipped"}
    assert run_state(archive) == "completed"
    assert "never ran before" in explain(session, archive.task("clean@2")).text
    assert {edge.kind for edge in graph(session, [RunId(archive.run_id(2))]).edges} == {"depends"}


def test_what_never_ran_has_not_failed_also_where_the_run_waits_for_its_turn(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"deposit": ""})
    strict = {"COMMIT": "depends: [{task: 'PREV:*', when: settled}]"}
    archive.commit(strict | {"x": "paths: [data/*]", "clean": "depends: [{task: x, when: failed}]"})
    assert archive.state("clean@3") == "waiting"
    archive.run("deposit@2")
    assert archive.state("clean@3") == "skipped"


def test_a_trigger_by_hand_is_refused_where_nothing_failed(archive: AnArchive) -> None:
    archive.run("deposit@2")
    why = "clean runs only when deposit failed, and papers@2/deposit is completed"
    with pytest.raises(Conflict, match=why) as refused:
        archive.trigger(2, "clean")
    assert refused.value.remedy == "--without deposit runs it all the same"
    archive.trigger(2)
    assert archive.state("clean@2.2") == "waiting", "who names nothing gets all of it"


def test_a_trigger_by_hand_cleans_up_after_what_failed(archive: AnArchive) -> None:
    archive.fail("deposit@2")
    archive.fail("clean@2")
    archive.trigger(2, "clean")
    assert archive.state("clean@2.2") == "ready"


def test_a_scheduled_run_that_has_nothing_to_clean_up_has_completed_and_the_next_fire_looks_again(
    session: Session,
) -> None:
    archive = an_archive(session)
    archive.commit({"deposit": "", "nightly": f"schedule: '0 3 * * *'\ndepends: [{FAILED}]"})
    archive.run("deposit@2")
    for days in (3, 2):
        archive.sql("update schedule set next_at = date_trunc('day', now()) - make_interval(days => %s)", days)
        schedules.fire(session)
    assert [run_state(archive, 2, run) for run in (2, 3)] == ["completed", "completed"]


def test_a_fire_that_finds_another_source_supersedes_the_run_that_waits_for_the_last_one(session: Session) -> None:
    archive = an_archive(session)
    tasks = {"deposit": "", "nightly": f"schedule: '0 3 * * *'\ndepends: [{FAILED}]"}
    for days in (4, 3, 2):
        if days != 3:
            archive.commit(tasks)
        archive.sql("update schedule set next_at = date_trunc('day', now()) - make_interval(days => %s)", days)
        schedules.fire(session)
    assert states(archive, "nightly@2.2", "nightly@3.2") == ["canceled", "waiting"]
    assert archive.sql("select number, left_out from run where trigger = 'schedule' order by number") == [
        {"number": 2, "left_out": 1},
        {"number": 3, "left_out": 0},
    ]


# What people see


def test_the_graph_shows_what_waits_for_a_failure(archive: AnArchive) -> None:
    shown = graph(archive.session, [RunId(archive.run_id(2))]).edges
    (edge,) = [edge for edge in shown if edge.kind == "failed"]
    assert re.findall(r"\w+$", f"{edge.source_name} {edge.target_name}") == ["clean"]
    assert (edge.source_name, edge.declared, edge.met) == ("papers@2/deposit", True, False)


def test_a_run_that_was_deleted_starts_no_clean_up(archive: AnArchive) -> None:
    archive.fail("deposit@2")
    archive.run("clean@2", "tell@2")
    deletion.delete_run(archive.session, RunId(archive.run_id(2)), "ann")
    assert run_state(archive) == "deleted"


@pytest.mark.parametrize("when", ["settled", "completed"])
def test_what_a_gate_behind_a_list_spared_is_judged_again_with_the_gate(session: Session, when: str) -> None:
    """A gate of revision 2 is a task with a program now. An item comes back, and the gate waits again: no skipped task may name it as the root."""
    archive = an_archive(session)
    archive.commit({"deposit": "foreach: [i, j]", "all": f"depends: [{{task: deposit, when: {when}}}] # gate"})
    archive.end("deposit/i@2", 1 if when == "settled" else 0)
    archive.run("deposit/j@2")
    spared = "depends: [{task: 'PREV:all', when: failed}]"
    archive.commit({"all": "", "clean": spared, "tell": "depends: [clean]", "further": "foreach: [i, j]\ndepends: [clean]"})  # fmt: skip
    archive.commit({"clean": "", "last": "depends: [{task: 'PREV:further', when: failed}]", "list": "depends: ['PREV:further']"})  # fmt: skip
    skipped = "clean@3", "tell@3", "further/i@3"
    assert {root_of(archive, key) for key in skipped} == {"all@2"}, "it passed"

    redo.retry_from(session, RunId(archive.run_id(2)), "deposit", "ann", item="i", force=True)
    assert states(archive, "all@2", *skipped) == ["waiting"] * 4
    assert {root_of(archive, key) for key in skipped} == {None}
    archive.fail("deposit/i@2")
    root = "deposit/i@2" if when == "completed" else "all@2"
    assert {(archive.state(key), root_of(archive, key)) for key in skipped} == {("skipped", root)}

    archive.retry("deposit/i@2", force=True)
    archive.run("deposit/i@2")
    assert {(archive.state(key), root_of(archive, key)) for key in skipped} == {("skipped", "all@2")}
    assert examine(session).findings == []


def root_of(archive: AnArchive, key: str) -> str | None:
    (row,) = archive.sql(
        "select r.name || case when r.item > '' then '/' || r.item else '' end || '@' || r.number as root from task t"
        " left join task r on r.id = t.root_id where t.id = %s",
        archive.task(key),
    )
    return row["root"]
