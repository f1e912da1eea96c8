"""Priorities of tasks, set by a person or by the output of a task for later tasks of its run
(design 5.24).
"""

from __future__ import annotations

import pytest

from arkqueue.errors import Conflict
from arkqueue.model import End, Outcome, RunId
from arkqueue.priorities import PRIORITY, as_priority
from arkqueue.queue import claim, control, finish
from arkqueue.workspace.outputs import parse_outputs
from tests.builders import HOST, PROCESS, AnArchive
from tests.db.test_races import Connect, InThread, wait_until_blocked

TREE = {"a": "", "b": "depends: [a]", "c": "depends: [b]", "beside": ""}


def priorities(archive: AnArchive) -> dict[str, int]:
    rows = archive.sql("select name, number, priority from task where kind = 'ordinary' and number > 1 order by id")
    return {f"{row['name']}@{row['number']}": row["priority"] for row in rows}


def prioritize(archive: AnArchive, key: str, priority: int) -> None:
    control.prioritize(archive.session, archive.task(key), priority, "ann")


def claimed(archive: AnArchive, slots: int = 100) -> list[str]:
    return [f"{one.name}@{one.number}" for one in archive.claim_some(slots)]


def test_a_workflow_file_puts_a_task_before_and_behind_the_others(archive: AnArchive) -> None:
    archive.commit({"usual": "", "urgent": "priority: 0", "idle": "priority: 1000"})
    archive.commit({"urgent": "priority: 0", "usual": ""})
    assert claimed(archive) == ["urgent@2", "urgent@3", "usual@2", "usual@3", "idle@2"]


def test_a_waiting_task_and_one_with_a_lock_have_the_priority_of_their_file(archive: AnArchive) -> None:
    archive.commit(
        {"a": "", "b": "depends: [a]\npriority: 90", "c": "lock: tex\npriority: 80", "d": "lock: tex\npriority: 70"}
    )
    assert priorities(archive) == {"a@2": 50, "b@2": 90, "c@2": 80, "d@2": 70}
    a, d = archive.claim_some(10)
    assert (a.name, d.name) == ("a", "d"), "of two tasks that want a lock the one with the lower number gets it"
    archive.record(a.attempt, End.EXITED, 0)
    assert claimed(archive) == ["b@2"]


def test_a_person_and_an_output_overrule_the_priority_of_the_file(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "depends: [a]\npriority: 90", "c": "depends: [a]\npriority: 90"})
    prioritize(archive, "c@2", 20)
    (a,) = archive.claim_some(1)
    archive.record(a.attempt, End.EXITED, 0, outputs={PRIORITY: "10"})
    assert priorities(archive) == {"a@2": 50, "b@2": 10, "c@2": 20}


def test_a_person_puts_a_task_before_and_behind_the_others(archive: AnArchive) -> None:
    for _ in range(3):
        archive.commit({"a": ""})
    prioritize(archive, "a@4", 10)
    prioritize(archive, "a@2", 60)
    assert claimed(archive) == ["a@4", "a@3", "a@2"]
    assert archive.sql("select by, verb, note from deed order by id") == [
        {"by": "ann", "verb": "prioritize", "note": note} for note in ("10", "60")
    ]


def test_a_waiting_task_takes_its_priority_along(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "depends: [a]"})
    archive.commit({"c": ""})
    prioritize(archive, "b@2", 10)
    one, _ = archive.claim_some(2)
    archive.commit({"c": ""})
    archive.record(one.attempt, End.EXITED, 0)
    assert claimed(archive) == ["b@2", "c@4"]


def test_a_run_is_prioritized_but_for_what_has_started(archive: AnArchive) -> None:
    archive.commit(TREE)
    (a,) = archive.claim_some(1)
    control.prioritize_run(archive.session, RunId(archive.run_id(2)), 5, "ann")
    assert priorities(archive) == {"a@2": 50, "b@2": 5, "c@2": 5, "beside@2": 5}
    archive.record(a.attempt, End.EXITED, 75)
    with pytest.raises(Conflict, match="papers@2/a: is deferred: only the priority of an unstarted task can be set"):
        prioritize(archive, "a@2", 1)
    archive.cancel("beside@2")
    with pytest.raises(Conflict, match="papers@2/beside: is canceled"):
        prioritize(archive, "beside@2", 1)
    with pytest.raises(Conflict, match="exists in every run and cannot be prioritized"):
        prioritize(archive, "REPORT@2", 1)


def test_what_is_to_start_again_gets_a_priority_too(archive: AnArchive) -> None:
    archive.commit(TREE)
    archive.fail("a@2")
    archive.retry("a@2")
    prioritize(archive, "a@2", 1)
    assert priorities(archive)["a@2"] == 1


def test_a_run_of_which_everything_has_started_is_refused(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.claim()
    with pytest.raises(Conflict, match="papers@2: has no unstarted task"):
        control.prioritize_run(archive.session, RunId(archive.run_id(2)), 5, "ann")


def test_an_output_sets_the_priority_of_what_follows_in_its_run(archive: AnArchive) -> None:
    archive.commit(TREE)
    archive.commit({**TREE, "a": "depends: [PREV]"})
    archive.end("a@2", 0, outputs={PRIORITY: "90", "other": "1"})
    assert priorities(archive) == {"a@2": 50, "b@2": 90, "c@2": 90, "beside@2": 50} | {f"{name}@3": 50 for name in TREE}
    archive.end("b@2", 0, outputs={PRIORITY: 7})
    assert priorities(archive)["c@2"] == 7


def test_an_output_of_an_item_sets_the_priority_of_what_follows_in_that_item(archive: AnArchive) -> None:
    archive.commit(
        {"fetch": "foreach: [x, y]", "store": "foreach: [x, y]\ndepends: [fetch]", "index": "depends: [store]"}
    )
    archive.end("fetch/x@2", 0, outputs={PRIORITY: "10"})
    of = {
        key: archive.sql("select priority from task where id = %s", archive.task(f"{key}@2"))[0]["priority"]
        for key in ("store/x", "store/y", "index")
    }
    assert of == {"store/x": 10, "store/y": 50, "index": 50}


def test_an_output_of_a_task_sets_the_priority_of_all_items_behind_it(archive: AnArchive) -> None:
    archive.commit(
        {"mint": "", "fetch": "foreach: [x, y]\ndepends: [mint]", "store": "foreach: [x, y]\ndepends: [fetch]"}
    )
    archive.end("mint@2", 0, outputs={PRIORITY: "10"})
    found = archive.sql("select distinct priority from task where item <> ''")
    assert [row["priority"] for row in found] == [10]


def test_a_persons_priority_wins_over_an_output(archive: AnArchive) -> None:
    archive.commit(TREE)
    prioritize(archive, "c@2", 30)
    archive.end("a@2", 0, outputs={PRIORITY: "90"})
    assert priorities(archive) == {"a@2": 50, "b@2": 90, "c@2": 30, "beside@2": 50}


def test_of_two_outputs_in_one_report_the_more_urgent_one_counts(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "", "c": "depends: [a, b]"})
    ends = {name: archive.attempt(f"{name}@2") for name in "ab"}
    outcomes = [
        Outcome(ends["a"], End.EXITED, 0, outputs={PRIORITY: 20}),
        Outcome(ends["b"], End.EXITED, 0, outputs={PRIORITY: 70}),
    ]
    finish.finish(archive.session, PROCESS, outcomes)
    assert priorities(archive)["c@2"] == 20


@pytest.mark.parametrize("said", ["", "-1", "1001", "ten", "1.5", "9" * 5000, 1.0, True, None, [5], "٣"])
def test_what_is_no_priority_is_told_and_changes_nothing(archive: AnArchive, said: object) -> None:
    assert as_priority(said) is None
    archive.commit(TREE)
    archive.end("a@2", 0, outputs={PRIORITY: said})
    assert set(priorities(archive).values()) == {50}
    if isinstance(said, str):
        found = parse_outputs(f"{PRIORITY}={said}\nx=1\n".encode())
        assert found.values == {"x": "1"}, "only this value is wrong"
        assert "not a whole number from 0 to 1000" in found.fault


@pytest.mark.parametrize(("said", "meant"), [("0", 0), ("1000", 1000), (10, 10), ("050", 50)])
def test_what_is_a_priority_is_taken(said: object, meant: int) -> None:
    assert as_priority(said) == meant


def test_a_claim_that_is_under_way_keeps_its_task(archive: AnArchive, second_connection: Connect) -> None:
    """The claim has the task's row; the person waits for it, and is refused as it has started."""
    archive.commit({"a": ""})
    other, watcher = second_connection(), second_connection()
    with other.transaction():
        (claimed, _) = claim.claim_within(other, PROCESS, claim.Request(HOST, 1, claim.Turns()))
        prioritizing = InThread(lambda: prioritize(archive, "a@2", 5))
        wait_until_blocked(watcher)
    with pytest.raises(Conflict, match="is running: only the priority"):
        prioritizing.result()
    archive.record(claimed[0].attempt, End.EXITED, 0)
    assert priorities(archive) == {"a@2": 50}
