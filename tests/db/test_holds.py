"""Holds and releases (design 5.21, 5.22): what waits for a person, and what a release refuses."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db import Connection
from arkqueue.db.session import SQL, Session
from arkqueue.errors import Conflict
from arkqueue.model import ArchiveId, End, RunId
from arkqueue.queue import archives, claim, holds, schedules
from arkqueue.queue.claim import parameters
from arkqueue.views.archives import archive as archive_view
from arkqueue.views.explain import explain, explain_name
from arkqueue.views.explanation import MOST_HELD
from arkqueue.views.reasons import Why
from arkqueue.views.runs import RunState
from arkqueue.views.runs import run as run_view
from arkqueue.views.tasks import task as task_view
from tests.builders import HOST, PROCESS, AnArchive, a_workflow, an_archive
from tests.db.test_races import InThread, one_after_the_other, wait_until_blocked

Connect = Callable[[], Connection]

CHAIN = {"a": "", "b": "depends: [a]"}
NEWEST = {"pdf": "cancels: [PREV]"}


def hold(archive: AnArchive, reason: str = "") -> holds.Done:
    return holds.hold_archive(archive.session, archive.id, "ann", reason)


def unhold(archive: AnArchive) -> None:
    holds.unhold(archive.session, archive.id, "ann")


def release(archive: AnArchive, key: str, by: str = "bob", **how: bool) -> None:
    holds.release(archive.session, archive.task(key), by, how=holds.How(**how))


def release_all(archive: AnArchive, **how: bool) -> holds.Done:
    return holds.release_archive(archive.session, archive.id, "bob", how=holds.How(**how))


def run_state(archive: AnArchive, number: int) -> RunState:
    return run_view(archive.session, RunId(archive.run_id(number))).state


def hold_by_eve(execute: Callable[[str], object], archive: int) -> None:
    """Put an archive on hold by hand, in the transaction of somebody else."""
    entry = f"insert into deed (by, verb, archive_id) values ('eve', 'hold', {archive}) returning id"
    execute(f"with d as ({entry}) update archive set hold_id = d.id from d")


# Tasks and runs


def test_a_refusal_names_the_command_for_what_was_to_be_released(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": ""})
    holds.hold_run(archive.session, RunId(archive.run_id(2)), "ann")
    archive.commit({"a": "", "b": ""})
    archive.run("a@3", "b@3")
    with pytest.raises(Conflict, match=r"arkqueue release papers@2 --force, or waive it: --skip-outdated"):
        holds.release_run(archive.session, RunId(archive.run_id(2)), "bob")
    with pytest.raises(Conflict, match=r"arkqueue release papers --all --force"):
        release_all(archive)
    with pytest.raises(Conflict, match=r"To release its held tasks: arkqueue release papers --all"):
        holds.unhold(archive.session, archive.id, "bob")


def test_the_explanation_of_a_run_says_once_why_a_person_holds_it(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "", "c": "depends: [a, b]"})
    holds.hold_run(archive.session, RunId(archive.run_id(2)), "ann", "the disk (of papers) is full")
    told = explain_name(archive.session, "papers@2")
    assert told.text.count("the disk (of papers) is full") == 1
    lines = told.text.splitlines()
    assert re.fullmatch(
        r"papers@2/a: It is held by ann since .* UTC \(the disk \(of papers\) is full\), until a person releases it\.",
        lines[0],
    )
    assert re.fullmatch(r"papers@2/b: It is held by ann since [-0-9: ]* UTC, until a person releases it\.", lines[1])
    guarded = ArchiveSettings(process=True, require_approval=("*",))
    archives.change_settings(archive.session, archive.id, guarded, "ann")
    told = explain_name(archive.session, "papers@2")
    assert told.text.count("guarded by require-approval") == 3
    assert told.text.count("the disk (of papers) is full") == 1


def test_a_held_task_waits_for_its_release_and_says_by_whom(archive: AnArchive) -> None:
    archive.commit(CHAIN)
    holds.hold(archive.session, archive.task("a@2"), "ann", "the disk\nis full")
    assert archive.states() == {"a@2": "held", "b@2": "waiting"}
    assert claim.claim(archive.session, PROCESS, HOST, 9) == []
    assert run_state(archive, 2) is RunState.HELD
    told = explain(archive.session, archive.task("a@2"))
    assert told.text.startswith("It is held by ann since ")
    assert "(the disk is full), until a person releases it." in told.text
    assert told.commands == ["arkqueue release papers@2", "arkqueue release papers@2/a"]
    assert "arkqueue release papers@2/a" in explain(archive.session, archive.task("b@2")).commands
    assert task_view(archive.session, archive.task("a@2")).why == "by ann: the disk\nis full"

    holds.release(archive.session, archive.task("a@2"), "bob", "a new disk")
    archive.run("a@2", "b@2")
    assert "bob released it at" in explain(archive.session, archive.task("a@2")).text
    assert "a new disk" in explain(archive.session, archive.task("a@2")).text
    deeds = task_view(archive.session, archive.task("a@2")).deeds
    assert [(d.by, d.verb, d.note) for d in deeds] == [
        ("ann", "hold", "the disk\nis full"),
        ("bob", "release", "a new disk"),
    ]


def test_the_audit_log_entry_of_an_item_has_its_key_as_an_address_has_it(archive: AnArchive) -> None:
    archive.commit(a_workflow({"deposit": 'foreach: ["13030/m5"]'}))
    holds.hold(archive.session, archive.task("deposit/13030/m5@2"), "ann")
    (entry,) = task_view(archive.session, archive.task("deposit/13030/m5@2")).deeds
    assert entry.task == "deposit/13030%2Fm5"


def test_what_has_started_or_is_over_is_not_held(archive: AnArchive) -> None:
    archive.commit({"runs": "", "later": "", "over": "", "g": "# gate"})
    archive.claim("runs@2")
    archive.end("later@2", 75)
    archive.run("over@2")
    for key, fault in (
        ("runs@2", "it has started"),
        ("later@2", "it has started"),
        ("over@2", "completed already"),
        ("g@2", "completed already"),
    ):
        with pytest.raises(Conflict, match=fault):
            holds.hold(archive.session, archive.task(key), "ann")
    with pytest.raises(Conflict, match="has no unstarted task"):
        holds.hold_run(archive.session, RunId(archive.run_id(2)), "ann")
    with pytest.raises(Conflict, match="only a held task is released"):
        release(archive, "runs@2")


def test_what_is_held_already_says_by_whom_since_when_and_why(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "depends: [a]", "signed": "hold: true"})
    run = RunId(archive.run_id(2))
    holds.hold_run(archive.session, run, "ann", "the disk is\nfull")
    again = (
        r"papers@2: is held already \(3 tasks\), by its workflow file \(hold: true\)"
        r" and by ann since 20\d\d-[^,]* UTC \(the disk is full\)\..*arkqueue release papers@2"
    )
    with pytest.raises(Conflict, match=again):
        holds.hold_run(archive.session, run, "bob")
    with pytest.raises(Conflict, match=r"papers@2/a: is held already, by ann since 20.* release papers@2/a"):
        holds.hold(archive.session, archive.task("a@2"), "bob")


def test_a_hold_of_a_run_leaves_gates_and_what_runs_alone(archive: AnArchive) -> None:
    archive.commit({"runs": "", "next": "depends: [runs]", "g": "depends: [runs]\n# gate", "beside": ""})
    archive.claim("runs@2")
    # Both have been claimed: give one back.
    archive.end("beside@2", 1)
    archive.retry("beside@2")
    done = holds.hold_run(archive.session, RunId(archive.run_id(2)), "ann")
    assert sorted(done.tasks) == sorted([archive.task("next@2"), archive.task("beside@2")])
    archive.end("runs@2")
    assert archive.states() == {"runs@2": "completed", "next@2": "held", "g@2": "completed", "beside@2": "held"}
    view = run_view(archive.session, RunId(archive.run_id(2)))
    assert (view.state, view.counts.held) == (RunState.PROCESSING, 2)
    assert holds.release_run(archive.session, RunId(archive.run_id(2)), "bob").tasks == sorted(done.tasks)
    assert archive.states() == {"runs@2": "completed", "next@2": "ready", "g@2": "completed", "beside@2": "ready"}


def test_cancels_fire_at_the_release_and_not_before(archive: AnArchive) -> None:
    archive.commit(NEWEST)
    archive.commit({"gate": "", "pdf": "depends: [gate]\ncancels: [PREV]"})
    holds.hold(archive.session, archive.task("pdf@3"), "ann")
    archive.run("gate@3")
    assert archive.states() == {"pdf@2": "running", "gate@3": "completed", "pdf@3": "held"}
    archive.end("pdf@2", 75)
    release(archive, "pdf@3")
    assert archive.states() == {"pdf@2": "canceled", "gate@3": "completed", "pdf@3": "ready"}


def test_a_newer_revision_supersedes_what_is_held(archive: AnArchive) -> None:
    archive.commit({"pdf": "cancels: [PREV]\nhold: true"})
    archive.commit(NEWEST)
    assert archive.states() == {"pdf@2": "canceled", "pdf@3": "ready"}


def test_what_needs_a_held_task_is_skipped_when_that_is_waived(archive: AnArchive) -> None:
    archive.commit({"a": "hold: true", "b": "depends: [a]\nhold: true"})
    archive.skip("a@2")
    assert archive.states() == {"a@2": "skipped", "b@2": "skipped"}
    archive.retry("a@2")
    assert archive.states() == {"a@2": "held", "b@2": "held"}


# The approval step


def test_an_approval_step_is_held_in_every_run_and_approved_once(archive: AnArchive) -> None:
    tasks = {"build": "", "approved": "depends: [build]\nhold: true\n# gate", "publish": "depends: [approved]"}
    archive.commit(tasks)
    assert run_state(archive, 2) is RunState.HELD
    told = explain(archive.session, archive.task("approved@2"))
    assert told.reasons[-1].text == (
        "It is held by its workflow file (hold: true), until a person releases it. "
        "A release alone does not start it, because it also waits."
    )
    assert told.commands[-1] == "arkqueue release papers@2/approved"
    assert told.waits_for[0].task == "papers@2/build"
    archive.run("build@2")
    assert archive.states() == {"build@2": "completed", "approved@2": "held", "publish@2": "waiting"}
    release(archive, "approved@2")
    archive.fail("publish@2")
    archive.retry("publish@2")
    archive.run("publish@2")
    assert run_state(archive, 2) is RunState.COMPLETED
    archive.trigger(2, "approved", "publish", force=True)
    assert archive.states()["approved@2.2"] == "held"


def test_a_retry_does_not_get_around_an_approval(archive: AnArchive) -> None:
    archive.commit({"publish": "hold: true"})
    archive.cancel("publish@2")
    archive.retry("publish@2")
    assert archive.states() == {"publish@2": "held"}
    release(archive, "publish@2")
    archive.fail("publish@2")
    archive.retry("publish@2")  # it was released
    assert archive.states() == {"publish@2": "ready"}


# Archives


def test_a_hold_of_an_archive_lets_go_on_what_has_begun_and_holds_what_is_planned(archive: AnArchive) -> None:
    archive.commit(CHAIN)
    archive.claim("a@2")
    archive.commit(CHAIN)
    archive.claim("a@3")
    archive.end("a@3", 75)  # deferred: its run has begun
    archive.commit(CHAIN)
    done = hold(archive, "Friday")
    assert sorted(done.tasks) == [archive.task("a@4"), archive.task("b@4")]
    archive.commit({**CHAIN, "g": "# gate"})
    archive.trigger(2, "a", force=True)
    archive.run("a@2", "b@2")
    assert archive.states() == {
        "a@2": "completed", "b@2": "completed", "a@2.2": "held", "a@3": "deferred", "b@3": "waiting", "a@4": "held", "b@4": "held",
        "a@5": "held", "b@5": "held", "g@5": "completed",
    }  # fmt: skip
    view = archive_view(archive.session, archive.id)
    assert view.hold is not None
    assert (view.hold.by, view.hold.reason, view.held) == ("ann", "Friday", 5)
    told = explain(archive.session, archive.task("a@4"))
    assert "It is held with its archive by ann since" in told.text
    assert "papers is on hold by ann since" in told.text
    assert told.commands[0] == "arkqueue unhold papers"
    (commit,) = archive.sql("select state from task where kind = 'commit' and number = 5")
    assert commit["state"] == "completed"


def test_a_hold_of_an_archive_holds_the_items_that_have_not_begun_of_a_run_that_has(archive: AnArchive) -> None:
    """`index` and what else is no item goes with its run, which has begun."""
    steps = {"fetch": "foreach: [a, b]", "store": "foreach: [a, b]\ndepends: [fetch]", "index": "depends: [store]"}
    archive.commit(steps)
    (begun,) = archive.claim_some(1)
    assert (begun.name, begun.item) == ("fetch", "a")
    assert len(hold(archive).tasks) == 2
    items = [archive.state(key) for key in ("store/a@2", "fetch/b@2", "store/b@2", "index@2")]
    assert items == ["waiting", "held", "held", "waiting"]
    archive.record(begun.attempt, End.EXITED, 1)
    archive.retry("fetch/a@2")
    archive.cancel("fetch/b@2")
    archive.retry("fetch/b@2")
    assert [archive.state("fetch/a@2"), archive.state("fetch/b@2")] == ["ready", "held"]
    unhold(archive)
    release_all(archive)
    archive.run("fetch/a@2", "store/a@2", "fetch/b@2", "store/b@2", "index@2")


def test_a_hold_is_sticky(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    hold(archive)
    archive.commit({"a": ""})
    with pytest.raises(Conflict, match=r"is on hold \(by ann\)"):
        release_all(archive)
    with pytest.raises(Conflict, match="arkqueue unhold papers"):
        release(archive, "a@2")
    with pytest.raises(Conflict, match=r"is on hold already \(by ann.*, since 20.* UTC\).*arkqueue unhold papers"):
        hold(archive)
    unhold(archive)
    with pytest.raises(Conflict, match="is not on hold"):
        unhold(archive)
    archive.commit({"a": ""})
    assert archive.states() == {"a@2": "held", "a@3": "held", "a@4": "ready"}
    assert len(release_all(archive).tasks) == 2
    assert archive.states() == {"a@2": "ready", "a@3": "ready", "a@4": "ready"}
    with pytest.raises(Conflict, match="has no held task"):
        release_all(archive)


def test_what_is_retried_in_an_archive_on_hold_is_held_unless_its_run_has_begun(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.cancel("a@2")
    archive.commit({"a": "", "b": "depends: [a]"})
    archive.fail("a@3")
    hold(archive)
    archive.retry("a@2")
    archive.retry("a@3")
    assert archive.states() == {"a@2": "held", "a@3": "ready", "b@3": "waiting"}


def history(archive: AnArchive, task: str) -> list[tuple[str, str, str | None, str]]:
    return [(d.by, d.verb, d.of, d.note) for d in task_view(archive.session, archive.task(task)).deeds]


def test_the_history_of_a_task_names_the_release_of_its_run_or_archive(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": ""})
    hold(archive)
    archive.commit({"a": ""})
    assert history(archive, "a@3") == [("ann", "hold", "papers", "")]
    unhold(archive)
    release_all(archive)
    assert history(archive, "a@3") == [("bob", "release", "papers --all", "")]
    run = RunId(archive.run_id(3))
    assert [(d.verb, d.of) for d in run_view(archive.session, run).deeds] == [("release", "papers --all")]
    holds.hold_run(archive.session, run, "ann")
    holds.release_run(archive.session, run, "bob", "seen")
    assert history(archive, "a@3") == [("bob", "release", "papers@3", "seen")]
    assert [(d.verb, d.of) for d in run_view(archive.session, run).deeds] == [("hold", None), ("release", None)]


def test_the_history_of_a_task_says_that_a_release_skipped_it_as_out_of_date(archive: AnArchive) -> None:
    hold(archive)
    archive.commit({"upload": ""})
    archive.commit({"upload": ""})
    unhold(archive)
    archive.commit({"upload": ""})
    archive.run("upload@4")
    release_all(archive, skip_outdated=True)
    note = "as out of date: release papers --all --skip-outdated"
    for task in ("upload@2", "upload@3"):
        assert history(archive, task)[-1] == ("bob", "skip", None, note)


def test_a_release_names_what_it_would_overwrite(archive: AnArchive) -> None:
    hold(archive)
    archive.commit({"upload": "", "other": ""})
    archive.commit({"upload": ""})
    unhold(archive)
    archive.commit({"upload": ""})
    archive.run("upload@4")

    done = release_all(archive)
    assert done.tasks == [archive.task("other@2")]
    assert [refused.task for refused in done.refused] == [archive.task("upload@2"), archive.task("upload@3")]
    assert "would replace the work of later revisions: papers@4/upload" in done.refused[0].why.fault
    with pytest.raises(Conflict, match="waive it: --skip-outdated"):
        release(archive, "upload@2")
    with pytest.raises(Conflict, match="; 1 more task is refused"):
        release_all(archive)
    assert archive.states() == {"upload@2": "held", "other@2": "ready", "upload@3": "held", "upload@4": "completed"}

    release(archive, "upload@2", force=True)
    done = release_all(archive, skip_outdated=True)
    assert (done.skipped, done.refused) == ([archive.task("upload@3")], [])
    assert archive.states() == {"upload@2": "ready", "other@2": "ready", "upload@3": "skipped", "upload@4": "completed"}


def test_held_tasks_that_are_described_are_not_counted_again(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "", "c": "", "d": "depends: [a, b, c]"})
    for name in "abcd":
        holds.hold(archive.session, archive.task(f"{name}@2"), "ann", f"because of {name}")
    told = explain_name(archive.session, "papers@2")
    held = [reason for reason in told.reasons if reason.kind is Why.HELD]
    (more,) = (reason for reason in held if "more task" in reason.text)
    described = {name for reason in held if reason is not more for name in reason.tasks}
    assert described == {"papers@2/a", "papers@2/b", "papers@2/c"}
    assert more.tasks == ["papers@2/d"]
    assert more.text == "1 more task is held: papers@2/d."


def test_a_removed_archive_is_not_put_on_hold(archive: AnArchive) -> None:
    archives.remove(archive.session, ArchiveId(archive.id), "ann")
    with pytest.raises(Conflict, match=r"archive papers: was removed: .*\. To watch it again, add it again\."):
        hold(archive)
    assert not archive.sql("select from deed where verb = 'hold'")


def test_ten_commits_of_a_weekend_go_on_as_the_graph_says(archive: AnArchive) -> None:
    """With the strict line, one after the other; what supersedes the one before it leaves the newest alone."""
    hold(archive)
    strict = {"COMMIT": 'depends: [{task: "PREV:*", when: settled}]', "a": "", "pdf": "cancels: [PREV]"}
    for _ in range(10):
        archive.commit(strict)
    told = explain(archive.session, archive.task("a@11"))
    assert told.text.count("papers is on hold") == 1
    (more,) = (reason for reason in told.reasons if "more tasks are held" in reason.text)
    assert more.commands == ["arkqueue release papers --all"]
    assert len(more.tasks) == 19 - MOST_HELD
    named = [name for reason in told.reasons if reason.kind is Why.HELD and reason is not more for name in reason.tasks]
    assert len(named) == MOST_HELD
    assert not {*named} & {*more.tasks}
    unhold(archive)
    release_all(archive)
    for number in range(2, 12):
        states = archive.states()
        assert [key for key, state in states.items() if state == "ready"] == [f"a@{number}", f"pdf@{number}"]
        archive.run(f"a@{number}", f"pdf@{number}")


def test_a_stopped_archive_releases_nothing(archive: AnArchive) -> None:
    archive.commit({"a": "hold: true"})
    archives.stop(archive.session, archive.id, "another repository")
    with pytest.raises(Conflict, match="is stopped"):
        release(archive, "a@2")
    with pytest.raises(Conflict, match="is stopped"):
        release_all(archive)


def test_a_hold_that_was_killed_midway_is_continued(archive: AnArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holds, "MOST_TASKS", 2)
    for _ in range(3):
        archive.commit(CHAIN)
    killed: list[object] = []

    def change(*words: object) -> object:
        killed.append(words)
        if len(killed) == 3:
            raise KeyboardInterrupt
        return holds_change(*words)

    holds_change = holds.change
    monkeypatch.setattr(holds, "change", change)
    with pytest.raises(KeyboardInterrupt):
        hold(archive)
    monkeypatch.setattr(holds, "change", holds_change)
    assert archive.states() == {
        "a@2": "held",
        "b@2": "held",
        "a@3": "ready",
        "b@3": "waiting",
        "a@4": "ready",
        "b@4": "waiting",
    }
    archive.commit(CHAIN)
    assert archive.state("a@5") == "held"
    assert len(hold(archive).tasks) == 4
    unhold(archive)
    assert len(release_all(archive).tasks) == 8
    assert [row["verb"] for row in archive.sql("select verb from deed order by id")] == [
        "hold",
        "unhold",
        *["release"] * 4,
    ]


def test_a_hold_that_comes_during_a_release_ends_it(archive: AnArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holds, "MOST_TASKS", 1)
    archive.commit({"a": "hold: true"})
    archive.commit({"a": "hold: true"})
    portions: list[object] = []

    def change(*words: object) -> object:
        portions.append(words)
        if len(portions) == 3:  # the first one only asks whether it may
            hold_by_eve(archive.sql, archive.id)
        return holds_change(*words)

    holds_change = holds.change
    monkeypatch.setattr(holds, "change", change)
    with pytest.raises(Conflict, match=r"is on hold \(by eve\)"):
        release_all(archive)
    assert archive.states() == {"a@2": "ready", "a@3": "held"}


# Schedules


def test_a_nightly_that_nobody_releases_for_a_month_makes_one_run(archive: AnArchive) -> None:
    archive.commit({"nightly": 'schedule: "0 3 * * *"\nhold: true'})
    for _ in range(30):
        archive.sql("update schedule set next_at = now() - interval '1 minute'")
        schedules.fire(archive.session)
    assert archive.states() == {"nightly@2.2": "held"}
    (run,) = archive.sql("select left_out from run where trigger = 'schedule'")
    assert run["left_out"] == 29
    release(archive, "nightly@2.2")
    archive.run("nightly@2.2")


def test_a_run_that_supersedes_a_held_one_of_its_schedule_is_held(archive: AnArchive) -> None:
    tasks = {"pdf": "", "nightly": 'schedule: "0 3 * * *"\ndepends: [pdf]'}
    archive.commit(tasks)
    archive.run("pdf@2")
    archive.sql("update schedule set next_at = now() - interval '1 minute'")
    schedules.fire(archive.session)
    holds.hold(archive.session, archive.task("nightly@2.2"), "ann", "not before Monday")
    archive.commit(tasks)
    archive.run("pdf@3")
    archive.sql("update schedule set next_at = now() - interval '1 minute'")
    schedules.fire(archive.session)
    assert archive.states() == {
        "pdf@2": "completed",
        "nightly@2.2": "canceled",
        "pdf@3": "completed",
        "nightly@3.2": "held",
    }
    assert "not before Monday" in explain(archive.session, archive.task("nightly@3.2")).text


# Two at once


def test_of_a_hold_and_a_claim_the_first_wins(session: Session, second_connection: Connect) -> None:
    """A claim that is under way has begun the run; a hold that is under way is skipped by claims."""
    archive = an_archive(session)
    archive.commit({"a": "", "behind": "depends: [a]"})
    archive.commit({"b": ""})
    claiming, watcher = second_connection(), second_connection()
    with claiming.transaction():
        claiming.execute(SQL["claim"], parameters("other", "other-host", 1))
        holding = InThread(lambda: hold(archive))
        wait_until_blocked(watcher)
    assert holding.result().tasks == [archive.task("b@3")]
    assert archive.states() == {"a@2": "running", "behind@2": "waiting", "b@3": "held"}, "that run has begun"

    release_after = archive.task("b@3")
    unhold(archive)
    holds.release(session, release_after, "bob")
    locking = second_connection()
    with locking.transaction():
        locking.execute("select from task where id = %s for no key update", (release_after,))
        assert claim.claim(session, PROCESS, HOST, 9) == []
        holding = InThread(lambda: hold(archive))
        wait_until_blocked(watcher)
    assert holding.result().tasks == [release_after]
    assert claim.claim(session, PROCESS, HOST, 9) == []


def test_a_release_beside_a_hold_releases_nothing_of_an_archive_on_hold(
    session: Session, second_connection: Connect
) -> None:
    """What waits for the archive's row looks anew when it has it: at the hold, and at its end."""
    archive = an_archive(session)
    archive.commit({"a": "hold: true"})
    other, watcher = second_connection(), second_connection()
    with other.transaction():
        other.execute("select from archive for no key update")
        hold_by_eve(other.execute, archive.id)
        releasing = InThread(lambda: release_all(archive))
        wait_until_blocked(watcher)
    with pytest.raises(Conflict, match=r"is on hold \(by eve\)"):
        releasing.result()
    with other.transaction():
        other.execute("select from archive for no key update")
        other.execute("update archive set hold_id = null")
        releasing = InThread(lambda: release_all(archive))
        wait_until_blocked(watcher)
    assert releasing.result().tasks == [archive.task("a@2")]


def test_of_a_release_and_an_unhold_at_once_the_release_counts_behind_the_unhold_alone(
    session: Session, second_connection: Connect
) -> None:
    archive = an_archive(session)
    archive.commit({"a": "hold: true"})
    hold(archive)
    releasing, unholding = one_after_the_other(
        archive, second_connection, lambda: release_all(archive), lambda: unhold(archive)
    )
    unholding.result()
    with pytest.raises(Conflict, match="is on hold"):
        releasing.result()
    assert archive.states() == {"a@2": "held"}, "an unhold alone releases nothing"
    hold(archive)
    unholding, releasing = one_after_the_other(
        archive, second_connection, lambda: unhold(archive), lambda: release_all(archive)
    )
    unholding.result()
    assert releasing.result().tasks == [archive.task("a@2")]
    assert archive.states() == {"a@2": "ready"}


def test_a_commit_beside_a_hold_is_held(session: Session, second_connection: Connect) -> None:
    archive = an_archive(session)
    other, watcher = second_connection(), second_connection()
    with other.transaction():
        other.execute("select from archive for no key update")
        hold_by_eve(other.execute, archive.id)
        committing = InThread(lambda: archive.commit({"a": ""}))
        wait_until_blocked(watcher)
    committing.result()
    assert archive.states() == {"a@2": "held"}
