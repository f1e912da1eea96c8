"""Drafts: what a transaction adds to a branch, in rows that are not stored yet."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from arkqueue.model import Key, Origin, TaskId, TaskKind, Workflow
from arkqueue.plan import Draft, Entry, Known, NewIds, Occurrence, generations
from arkqueue.plan.ledger import NewEdge, NewTask
from tests.builders import a_revision, a_workflow

FIRST = 100
"""The id of the first drafted task."""


def a_draft(known: Known | None = None) -> Draft:
    return Draft(1, "main", known or Known(), NewIds(count(1), count(1), map(TaskId, count(FIRST))))


def append(draft: Draft, number: int, workflow: Workflow) -> None:
    draft.append(Entry(a_revision(number), workflow), str(number - 1), 0, workflow.faults)


def states(draft: Draft) -> dict[str, str]:
    """How each task is stored: passed, ready, waiting without an unmet edge (``enters``), or with so many."""
    entering = {*draft.gates, *draft.behind}
    return {
        f"{task.name}@{task.number}": "passed"
        if task.passed
        else "ready"
        if task.ready
        else "enters"
        if task.id in entering
        else str(task.unmet)
        for task in map(NewTask._make, draft.tasks)
    }


def test_each_revision_is_planned_behind_the_one_that_was_drafted_before() -> None:
    draft = a_draft()
    for number in (2, 3):
        append(draft, number, a_workflow({"a": "depends: [PREV]"}))
    ids = {(task.name, task.number): task.id for task in map(NewTask._make, draft.tasks)}
    crossing = {(edge.source, edge.target): edge.met for edge in map(NewEdge._make, draft.edges) if edge.crossing}
    assert crossing == {
        (ids["COMMIT", 2], ids["COMMIT", 3]): True,
        (ids["a", 2], ids["a", 3]): False,
    }
    assert states(draft) == {
        "COMMIT@2": "passed", "a@2": "ready", "REPORT@2": "1", "COMMIT@3": "passed", "a@3": "1", "REPORT@3": "1"
    }  # fmt: skip


def test_what_cancels_or_has_no_program_enters_when_it_is_stored() -> None:
    draft = a_draft()
    append(draft, 2, a_workflow({"a": "cancels: [PREV]", "gate": "# gate", "b": ""}))
    assert states(draft) == {
        "COMMIT@2": "passed", "a@2": "enters", "gate@2": "enters", "b@2": "ready", "REPORT@2": "3"
    }  # fmt: skip


def test_an_edge_is_met_by_what_is_known_of_its_source() -> None:
    past = {
        Key("COMMIT"): Occurrence(TaskId(1), TaskKind.COMMIT, settled=True, passes=True),
        Key("good"): Occurrence(TaskId(2), TaskKind.ORDINARY, settled=True, passes=True),
        Key("bad"): Occurrence(TaskId(3), TaskKind.ORDINARY, settled=True),
        Key("open"): Occurrence(TaskId(4), TaskKind.ORDINARY),
    }
    draft = a_draft(Known(past))
    wishes = {
        "a": "'PREV:good'",
        "b": "'PREV:bad'",
        "c": "{task: 'PREV:bad', when: settled}",
        "d": "{task: 'PREV:open', when: settled}",
    }
    append(draft, 2, a_workflow({name: f"depends: [{wish}]" for name, wish in wishes.items()}))
    found = states(draft)
    assert [found[f"{name}@2"] for name in wishes] == ["ready", "1", "ready", "1"]


def test_exclusive_tasks_close_the_gate_to_the_next_revision_alone() -> None:
    past = {Key("COMMIT"): Occurrence(TaskId(1), TaskKind.COMMIT, settled=True, passes=True)}
    draft = a_draft(Known(past, exclusives=[TaskId(9)]))
    for number, workflow in enumerate((a_workflow({"a": "exclusive: true"}), a_workflow({"b": ""}), Workflow()), 2):
        append(draft, number, workflow)
    ids = {(task.name, task.number): task.id for task in map(NewTask._make, draft.tasks)}
    closed = {(edge.source, edge.target) for edge in map(NewEdge._make, draft.edges) if edge.kind == "exclusive"}
    assert closed == {(9, ids["COMMIT", 2]), (ids["a", 2], ids["COMMIT", 3])}
    assert states(draft)["COMMIT@4"] == "1", "it waits for the COMMIT before it"


def test_a_baseline_is_a_passed_commit_alone() -> None:
    draft = a_draft()
    draft.append_baseline(Entry(a_revision(7), a_workflow({"a": ""})), None, 0)
    assert states(draft) == {"COMMIT@7": "passed"}
    assert (draft.runs[0].report, draft.revisions[0].baseline) == (None, True)


def test_commits_by_tasks_are_counted_along_their_chain() -> None:
    by_hand = a_revision(1)
    by_author = replace(by_hand, author="robot")
    by_task = replace(by_hand, origin=Origin("papers@3/a", 4))
    revisions = [by_author, by_author, by_hand, by_task, by_author]
    assert list(generations(revisions, 2, "robot")) == [3, 4, 0, 4, 5]
