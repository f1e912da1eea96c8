"""Endings in steps (design 5.16): a deleted branch, a rewrite, a rewind and a removed archive, each
with many tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db.session import Session
from arkqueue.model import End, RunId
from arkqueue.queue import archives, ending, finish, holds, many
from arkqueue.queue.done import MOST_TASKS
from arkqueue.queue.ending import Ender
from arkqueue.queue.purge import purge_runs
from arkqueue.views.doctor import examine
from arkqueue.views.explain import explain
from tests.builders import AnArchive, a_workflow, an_archive, an_entry
from tests.db.ends import remove, rewind, untrack

AFTER = "depends: [PREV]"
LARGE = {f"t{n}": "" for n in range(4)} | {
    "runs": "", "deferred": "", "retried": "retries: 1", "after": "depends: [{task: runs, when: settled}]", "behind": "depends: [after]",
    "locked": "lock: x", "in_line": "lock: x", "held": "hold: true", "REPORT": "",
}  # fmt: skip


def rewrite(archive: AnArchive) -> None:
    archive.append("", [an_entry(5, a_workflow({"new": AFTER}))], dropped=["2", "3", "4"])


def a_branch(session: Session, name: str) -> tuple[AnArchive, dict[str, Any]]:
    """Three revisions of which some tasks run, are deferred, or wait for those of other revisions; and the attempts that run."""
    archive = an_archive(session, name)
    archive.commit(LARGE)
    archive.sql("update task set priority = 1 where name in ('runs', 'deferred', 'retried')")
    claims = {claim.name: claim for claim in archive.claim_some(3)}
    assert claims.keys() == {"runs", "deferred", "retried"}
    archive.record(claims["deferred"].attempt, End.EXITED, 75)
    archive.sql("update task set due_at = now() where state = 'deferred'")
    for _ in range(2):
        archive.commit({"t0": AFTER, "t1": "depends: [{task: PREV, when: settled}]", "runs": AFTER, "all": "depends: ['PREV:*']"})  # fmt: skip
    return archive, claims


def found(archive: AnArchive) -> list[Any]:
    """What is stored of the tasks of the revisions."""
    return archive.sql(
        "select name, number, state, blocks, attempts, hold_id is null as free, by, fired from task"
        " where archive_id = %s order by branch_id, number, position, name",
        archive.id,
    )


def steps(archive: AnArchive, between: Callable[[], object] = lambda: None) -> int:
    """Take all steps, each with another queue manager, as the last one was killed; returns how many there were."""
    count = 0
    while Ender(archive.session).turn() is not None:
        count += 1
        between()
        assert examine(archive.session).findings == []
    return count


@pytest.mark.parametrize("gone", [remove, rewind, untrack, rewrite])
def test_nothing_of_what_is_gone_starts_between_the_steps_and_all_ends_as_in_one(
    session: Session, gone: Callable[[AnArchive], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once all is held that could start, what runs ends between the steps, what is deferred is due, and all is claimed that is ready."""
    both, ends, taken = [], [], []
    for most, name in ((MOST_TASKS, "one"), (2, "two")):
        monkeypatch.setattr(ending, "MOST_TASKS", most)
        archive, claims = a_branch(session, name)
        both.append(archive)
        old = {row["id"] for row in archive.sql("select id from task where archive_id = %s", archive.id)}
        gone(archive)

        def meanwhile(archive: AnArchive = archive, claims: dict[str, Any] = claims, old: set[int] = old) -> None:
            if archive.sql("select run_id from ending where not is_aside"):
                return
            archive.record(claims["runs"].attempt, End.EXITED, 0)
            archive.record(claims["retried"].attempt, End.EXITED, 1)
            finish.wake_deferred(session)
            assert [claim.name for claim in archive.claim_some(100) if claim.task in old] == []

        if most > 2:
            meanwhile()
        taken.append(steps(archive, meanwhile))
        ends.append(found(archive))
        assert archive.sql("select run_id from ending") == []
    assert ends[0] == ends[1]
    assert taken[0] == 0
    assert taken[1] > 10, "so few tasks are canceled with each step"
    states = {(row["name"], row["number"]): row["state"] for row in ends[1]}
    assert (states["runs", 2], states["retried", 2], states["behind", 2]) == ("completed", "canceled", "canceled")
    assert {state for (name, _), state in states.items() if name not in ("COMMIT", "REPORT", "runs", "new")} <= {"canceled", "completed"}  # fmt: skip
    if gone is untrack:
        for archive in both:
            archives.track(session, archive.id, "")
            for number in (4, 3, 2):
                many.retry_run(session, RunId(archive.run_id(number)), "ann")
        assert found(both[0]) == found(both[1]), "whoever brings it back finds no difference"


@pytest.mark.parametrize("most", [MOST_TASKS, 2])
def test_a_rewind_counts_what_it_cancels_also_in_steps(
    session: Session, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(ending, "MOST_TASKS", most)
    archive = an_archive(session)
    archive.commit({"runs": "", "ran": "", "REPORT": ""} | {f"t{n}": "depends: [runs]" for n in range(3)})
    archive.claim("runs@2")
    archive.run("ran@2")
    done = rewind(archive)
    assert (done.runs, done.running, done.canceled) == (1, 1, 4)
    steps(archive)
    assert sorted(archive.states().values()) == ["canceled"] * 3 + ["completed", "running"]


def test_what_an_end_has_not_reached_is_held_and_says_why(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "MOST_TASKS", 2)
    archive = an_archive(session)
    archive.commit({f"t{n}": "" for n in range(5)} | {"a": "depends: [t1]"})
    untrack(archive)
    held = [name for name, state in archive.states().items() if state == "held"]
    assert len(held) == 2, "those that would be claimed next"
    (reason,) = {r.text for r in explain(session, archive.task(held[0])).reasons if r.kind == "held"}
    assert "by the end of its branch" in reason
    assert "in steps; tasks that it has not reached are held" in reason
    assert steps(archive) > 3
    assert set(archive.states().values()) == {"canceled"}


def test_a_branch_that_comes_back_goes_on_only_when_a_person_retries_what_its_end_canceled(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes back while its end is under way; the end goes on, as if it had been over before."""
    monkeypatch.setattr(ending, "MOST_TASKS", 2)
    archive = an_archive(session)
    archive.commit({f"t{n}": "" for n in range(5)})
    untrack(archive)
    Ender(session).turn()
    archives.track(session, archive.id, "")
    archive.commit({"new": ""})
    steps(archive)
    assert archive.states() == {f"t{n}@2": "canceled" for n in range(5)} | {"new@3": "ready"}
    archive.retry("t1@2")
    assert archive.state("t1@2") == "ready", "and not held again"


@pytest.mark.parametrize("is_back", [True, False])
def test_an_end_that_goes_on_after_a_crash_leaves_alone_what_a_person_has_retried_since(
    session: Session, monkeypatch: pytest.MonkeyPatch, is_back: bool
) -> None:
    """What had failed before, what the end had canceled, and what a retry brings back with it. In vain would be a retry of what it has not reached."""
    monkeypatch.setattr(ending, "MOST_TASKS", 2)
    archive = an_archive(session)
    archive.commit({f"t{n}": "" for n in range(9)} | {"bad": "priority: 1", "after": "depends: [bad]"})
    archive.record(archive.claim("bad@2", slots=1).attempt, End.EXITED, 1)
    untrack(archive)
    ender = Ender(session)
    while "canceled" not in archive.states().values():
        ender.turn()
    canceled = next(name for name, state in archive.states().items() if state == "canceled")
    if is_back:
        archives.track(session, archive.id, "")
    archive.retry(canceled, force=not is_back)
    archive.retry("bad@2", force=not is_back)
    assert steps(archive) > 3
    expected = {canceled: "ready", "bad@2": "ready", "after@2": "waiting"}
    assert archive.states() == dict.fromkeys((f"t{n}@2" for n in range(9)), "canceled") | expected
    assert archive.sql("select * from spared") == []
    archive.run("bad@2", canceled, "after@2")
    if is_back:
        archive.retry(next(name for name, state in archive.states().items() if state == "canceled"))
        untrack(archive)
        steps(archive)
        assert set(archive.states().values()) == {"completed", "canceled"}, "the next end is another one"


def test_an_end_leaves_alone_what_ran_when_it_began(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The branch is back, so that another attempt follows by itself; the end, which goes on after a crash, is older."""
    monkeypatch.setattr(ending, "MOST_TASKS", 2)
    archive = an_archive(session)
    archive.commit({"retried": "retries: {max: 1, delay: 1h}\npriority: 1"} | {f"t{n}": "" for n in range(9)})
    attempt = archive.claim("retried@2", slots=1).attempt
    untrack(archive)
    archives.track(session, archive.id, "")
    archive.record(attempt, End.EXITED, 1)
    steps(archive)
    assert archive.states() == {"retried@2": "deferred"} | {f"t{n}@2": "canceled" for n in range(9)}


@pytest.mark.parametrize("is_back", [True, False])
def test_an_end_leaves_alone_what_a_person_has_released_since(
    session: Session, monkeypatch: pytest.MonkeyPatch, is_back: bool
) -> None:
    """The branch is back. Where it is still gone, a release is refused unless it is forced."""
    monkeypatch.setattr(ending, "MOST_TASKS", 2)
    archive = an_archive(session)
    archive.commit({f"t{n}": "" for n in range(9)} | {"approve": "hold: true"})
    untrack(archive)
    if is_back:
        archives.track(session, archive.id, "")
    holds.release(session, archive.task("approve@2"), "ann", how=holds.How(force=not is_back))
    assert steps(archive) > 3
    assert archive.states() == dict.fromkeys((f"t{n}@2" for n in range(9)), "canceled") | {"approve@2": "ready"}
    assert archive.sql("select * from spared") == []


def test_a_run_that_is_planned_after_an_end_began_is_not_canceled(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The branch is back. A commit, a run by hand of the revision whose run ends, and further items of a large run: the end is older than all of them."""
    monkeypatch.setattr(ending, "MOST_TASKS", 2)
    archive = an_archive(session)
    archive.commit({f"t{n}": "on: [commit, manual]" for n in range(5)})
    untrack(archive)
    Ender(session).turn()
    archives.track(session, archive.id, "")
    archive.commit({"new": ""})
    archive.trigger(2, "t1", force=True)
    steps(archive)
    assert archive.states() == {f"t{n}@2": "canceled" for n in range(5)} | {"t1@2.2": "ready", "new@3": "ready"}


def test_explain_says_that_what_is_gone_is_canceled_although_no_step_has_reached_it(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "MOST_TASKS", 2)
    archive = an_archive(session)
    archive.commit({f"t{n}": "" for n in range(5)} | {"a": "depends: [t4]"})
    untrack(archive)
    for name, state in (("t4@2", "ready"), ("a@2", "waiting")):
        assert archive.state(name) == state
        first = explain(session, archive.task(name)).reasons[0]
        assert first.kind == "canceled"
        assert first.text == (
            "It is canceled by the end of its branch (deleted, or tracked no more). It does not start any more, and is canceled"
            " within a moment: so many tasks are canceled that it takes several steps."
        )
    steps(archive)
    assert "within a moment" not in explain(session, archive.task("t4@2")).text


@pytest.mark.parametrize("settings", [{}, {"tier": 3}])
def test_no_claim_takes_what_is_gone_before_a_queue_manager_has_held_it(
    session: Session, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    """Also what becomes ready meanwhile, and of more ready tasks than the first transaction holds. Other revisions go on."""
    monkeypatch.setattr(ending, "MOST_TASKS", 2)
    archive = an_archive(session)
    present = ArchiveSettings(**archives.one(session, archive.id).settings)
    archives.change_settings(session, archive.id, replace(present, **settings), "ann")
    archive.commit({"runs": "priority: 1", "behind": "depends: [runs]"} | {f"t{n}": "" for n in range(9)})
    attempt = archive.claim("runs@2", slots=1).attempt
    archive.append("", [an_entry(3, a_workflow({"new": ""}))], dropped=["2"])
    archive.record(attempt, End.EXITED, 0)
    assert archive.states()["behind@2"] == "ready"
    ready = [name for name, state in archive.states().items() if state == "ready"]
    assert len(ready) == 9, "two are held, and two have become ready"
    assert [claim.name for claim in archive.claim_some(100)] == ["new"]
    steps(archive)
    assert set(archive.states().values()) == {"completed", "running", "canceled"}


def test_a_run_that_is_purged_before_its_end_has_gone_on_leaves_nothing(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    attempt = archive.claim("a@2").attempt
    untrack(archive)
    archive.record(attempt, End.EXITED, 0)
    assert purge_runs(session, [RunId(archive.run_id(2))], "ann", "").runs == ["papers@2"]
    assert archive.sql("select * from ending") == []


def test_a_step_takes_so_many_tasks_of_a_large_run(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "MOST_TASKS", 100)
    archive = an_archive(session)
    archive.commit({f"t{n}": f"depends: [t{n - 1}]" if n % 3 else "" for n in range(250)})
    untrack(archive)
    canceled, ender = [0], Ender(session)
    while ender.turn() is not None:
        (row,) = archive.sql("select count(*) as n from task where state = 'canceled'")
        canceled.append(row["n"])
    assert sorted({*canceled}) == [0, 100, 200, 250]


def test_an_end_that_fails_holds_up_that_of_no_other_archive(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "MOST_TASKS", 2)
    one, other = an_archive(session, "one"), an_archive(session, "other")
    for archive in one, other:
        archive.commit({f"t{n}": "" for n in range(5)})
        untrack(archive)
    work = ending._cancel  # a step of one archive alone is to fail
    monkeypatch.setattr(
        ending, "_cancel", lambda graph, **words: 1 / 0 if graph.archives == [one.id] else work(graph, **words)
    )
    ender = Ender(session)
    for _ in range(8):
        assert ender.turn() is not None
    assert set(other.states().values()) == {"canceled"}
    assert "canceled" not in one.states().values()
    monkeypatch.undo()
    while ender.turn() is not None:
        pass
    assert set(one.states().values()) == {"canceled"}
