"""Large runs are planned in portions (design 5.30). No task of a run starts before the run is
complete, and any process continues the work of one that was killed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from arkqueue.db.session import Session
from arkqueue.errors import Busy, Conflict
from arkqueue.model import Item, RunId, SourceFile
from arkqueue.queue import archives, backfill, control, deletion, holds, ledger, many, planning, purge, retrying
from arkqueue.queue.backfill import Lists
from arkqueue.queue.changes import change
from arkqueue.queue.graph import Graph
from arkqueue.states import RunState
from arkqueue.views import runs
from arkqueue.views.doctor import examine
from arkqueue.views.explain import explain, explain_name
from arkqueue.workflow.parsing import parse
from tests.builders import AnArchive, a_workflow, an_archive, an_entry, no_lists
from tests.db.portions import make_portions_small

KEYS = [f"i{n}" for n in range(9)]
LIST = f"foreach: [{', '.join(KEYS)}]"
STEPS = {"fetch": LIST, "store": f"{LIST}\ndepends: [fetch]", "index": "depends: [store]"}


@pytest.fixture
def archive(session: Session, monkeypatch: pytest.MonkeyPatch) -> AnArchive:
    """A portion has the tasks of two items."""
    make_portions_small(monkeypatch, rows=20)
    return an_archive(session)


def steps(archive: AnArchive, most: int = 100) -> int:
    """Store portions of the run that is being planned, each by a planner of its own; returns how many it took to the end, or until it waits for its COMMIT."""
    for n in range(most):
        if not archive.session.rows("plannings"):
            return n
        # One portion: a whole turn of a planner stores all that its time allows.
        planning.Planner(archive.session)._step(_row(archive), patience=10.0)
    return most


def _row(archive: AnArchive) -> Any:
    (row,) = archive.session.rows("plannings")
    return row


def planned(archive: AnArchive) -> dict[str, Any]:
    """All tasks of the last run, and its edges, by name."""
    tasks = archive.sql(
        "select name, item, state::text, unmet, position, priority, hold_id is not null as held from task"
        " where run_id = (select max(id) from run) order by position, name, item"
    )
    edges = archive.sql(
        "select t.name, t.item, s.name as source, s.item as source_item, s.number, e.kind::text, e.settled, e.met from edge e"
        " join task t on t.id = e.target join task s on s.id = e.source"
        " where t.run_id = (select max(id) from run) order by 1, 2, 3, 4, 5, 6, 7"
    )
    return {"tasks": tasks, "edges": edges}


def state(archive: AnArchive) -> RunState:
    return runs.run(archive.session, RunId(archive.sql("select max(id) as id from run")[0]["id"])).state


def test_nothing_starts_before_all_of_it_stands(archive: AnArchive) -> None:
    archive.commit(STEPS)
    stood = 0
    while archive.sql("select run_id from planning where next < items"):
        assert state(archive) is RunState.PLANNING
        assert archive.claim_some(10) == []
        (count,) = archive.sql("select count(*) as n from task where item <> ''")
        assert count["n"] >= stood
        stood = count["n"]
        assert steps(archive, most=1) == 1
    (count,) = archive.sql("select count(*) as n from task where item <> ''")
    assert count["n"] == 2 * len(KEYS)
    assert state(archive) is RunState.PENDING
    assert archive.claim_some(10) == []
    assert archive.state("COMMIT@2") == "completed"
    steps(archive)
    assert sorted(claim.item for claim in archive.claim_some(20)) == KEYS


@pytest.mark.parametrize("bound", ["AT_ONCE", "CANCELING"])
def test_what_may_start_is_let_in_in_portions(archive: AnArchive, monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    """Also where each item cancels its earlier one, and what depends on that is skipped: then in smaller ones."""
    monkeypatch.setattr(planning, bound, 2)
    archive.commit(STEPS)
    steps(archive)
    archive.commit(STEPS | {"fetch": f"{LIST}\ncancels: [PREV]"})
    ready: list[int] = []
    while archive.sql("select run_id from planning"):
        (count,) = archive.sql("select count(*) as n from task where number = 3 and state = 'ready'")
        (gone,) = archive.sql(
            "select count(*) as n from task where number = 2 and name = 'store' and state = 'skipped'"
        )
        assert count == gone
        ready.append(count["n"])
        assert steps(archive, most=1) == 1
    assert [n for n in sorted(set(ready)) if n] == [2, 4, 6, 8, 9]
    assert archive.state("index@2") == "skipped"


def test_a_run_that_is_canceled_while_it_is_let_in_can_be_retried_and_purged(
    archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "AT_ONCE", 2)
    archive.commit(STEPS)
    while not archive.sql("select id from task where state = 'ready'"):
        assert steps(archive, most=1) == 1
    run = RunId(archive.run_id(2))
    control.cancel_run(archive.session, run, "ann")
    archive.retry("fetch/i8@2")
    assert archive.state("fetch/i8@2") == "waiting"
    steps(archive)
    assert archive.state("fetch/i8@2") == "ready"
    archive.commit(STEPS)
    while not archive.sql("select id from task where state = 'ready' and number = 3"):
        assert steps(archive, most=1) == 1
    control.cancel_run(archive.session, RunId(archive.run_id(3)), "ann")
    assert purge.purge_runs(archive.session, [RunId(archive.run_id(3))], "ann", "a mistake").runs
    assert archive.sql("select run_id from planning") == []


def test_portions_come_to_the_same_as_one_transaction(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = [
        {"fetch": LIST, "other": "foreach: [i1, i4, x]", "plain": ""},
        {
            "fetch": f"{LIST}\ndepends: [PREV, plain]\ncancels: [other]\npriority: 7",
            "other": "foreach: [i1, i4, i8, x]\ndepends: [PREV:fetch, 'PREV:*']\ncancels: [PREV]\nexclusive: true",
            "store": f"{LIST}\ndepends: [fetch, {{task: other, when: settled}}]\nexclusive: true\nhold: true",
            "plain": "cancels: [store]",
            "last": "depends: [store, {task: plain, when: settled}]\nexclusive: true",
        },
    ]
    whole, parts = an_archive(session, "whole"), an_archive(session, "parts")
    for archive in (whole, parts):
        archive.commit(commits[0])
        archive.run("fetch/i0@2", "plain@2")
        archive.fail("fetch/i3@2", "other/x@2")
    whole.commit(commits[1])
    expected = planned(whole)
    make_portions_small(monkeypatch, rows=20)
    parts.commit(commits[1])
    assert steps(parts) > 4
    found = planned(parts)
    assert found["tasks"] == expected["tasks"]
    assert found["edges"] == expected["edges"]
    assert len(found["edges"]) > 60


def test_any_number_of_planners_store_each_item_once(archive: AnArchive) -> None:
    """Each has loaded the run before; whoever has the archive's lock stores the next portion."""
    archive.commit(STEPS)
    row = _row(archive)
    planners = [planning.Planner(archive.session) for _ in range(3)]
    turns = 0
    while archive.sql("select run_id from planning"):
        for planner in planners:
            planner._step(row, patience=10.0)
            turns += 1
    assert turns >= 6
    (count,) = archive.sql("select count(*) as n, count(distinct (name, item)) as different from task where number = 2")
    assert count["n"] == count["different"] == 2 * len(KEYS) + 4 + 3
    archive.run(*(f"{name}/{key}@2" for name in ("fetch", "store") for key in KEYS), "index@2")
    assert archive.state("REPORT@2") == "completed"


@pytest.mark.parametrize("after", range(1, 4))
def test_what_happens_meanwhile_is_seen_by_what_is_stored_then(archive: AnArchive, after: int) -> None:
    """What an earlier revision's items come to, between two portions, is as if it had come to it before or after them."""
    archive.commit({"fetch": LIST})
    steps(archive)
    archive.commit(
        {
            "fetch": f"{LIST}\ndepends: [{{task: PREV, when: failed}}]",
            "end": "depends: [{task: PREV:fetch, when: settled}]",
        }
    )
    assert steps(archive, most=after) == after
    for key in KEYS:
        (archive.run if key != "i4" else archive.fail)(f"fetch/{key}@2")
    steps(archive)
    assert {key: archive.state(f"fetch/{key}@3") for key in KEYS} == dict.fromkeys(KEYS, "skipped") | {"i4": "ready"}
    assert archive.state("end@3") == "ready"


def test_an_order_between_revisions_waits_for_all_items(archive: AnArchive) -> None:
    archive.commit(STEPS)
    steps(archive)
    archive.commit({"COMMIT": "depends: [{task: 'PREV:*', when: settled}]", "next": LIST})
    steps(archive)
    assert archive.state("COMMIT@3") == "waiting"
    archive.run(*(f"{name}/{key}@2" for name in ("fetch", "store") for key in KEYS), "index@2")
    steps(archive)
    assert archive.state("next/i8@3") == "ready"


STRICT = {"COMMIT": "depends: [{task: 'PREV:*', when: settled}]"}


def behind_a_revision(archive: AnArchive, most: int = 100) -> None:
    """A large run that is stored, as far as ``most`` portions go, and whose COMMIT waits for a task of the revision before."""
    archive.commit({"before": ""})
    archive.commit(STEPS | STRICT)
    steps(archive, most)
    assert archive.state("COMMIT@3") == "waiting"


def test_a_large_run_whose_commit_waits_is_let_in_in_portions_when_that_passes(
    archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No transaction meets all edges from its COMMIT, and none of its tasks starts before all of these are as if it had."""
    monkeypatch.setattr(planning, "AT_ONCE", 2)
    behind_a_revision(archive)
    assert archive.session.rows("plannings") == [], "nobody asks for it again and again"
    assert planning.finish(archive.session, archive.branches[""].id, lambda: True)
    archive.commit({"after": ""})
    archive.trigger(4, "after")
    assert "papers@2/before" in explain(archive.session, archive.task("store/i3@3")).text
    assert examine(archive.session).findings == []
    archive.run("before@2")
    assert archive.state("COMMIT@3") == "completed"
    assert archive.state("fetch/i0@3") == "waiting"
    assert "become ready, some thousands at a time" in explain(archive.session, archive.task("fetch/i0@3")).text
    unmet = "select count(*) as n from edge e join task s on s.id = e.source where s.name = 'COMMIT' and s.number = 3 and not e.met and not e.crossing"
    ready, left = list[int](), [archive.sql(unmet)[0]["n"]]
    while archive.session.rows("plannings"):
        assert examine(archive.session).findings == []
        assert steps(archive, most=1) == 1
        ready += [archive.sql("select count(*) as n from task where number = 3 and state = 'ready'")[0]["n"]]
        left += [archive.sql(unmet)[0]["n"]]
    assert (left[0], left[-1]) == (2 * len(KEYS) + 1, 0)
    assert max(before - now for before, now in pairwise(left)) == 2
    assert ready[:5] == [2, 4, 6, 8, 9]
    assert examine(archive.session).findings == []
    assert archive.sql("select run_id from planning") == []
    archive.run(*(f"{name}/{key}@3" for name in ("fetch", "store") for key in KEYS), "index@3")
    assert runs.run(archive.session, RunId(archive.run_id(3))).state is RunState.COMPLETED


def test_the_planner_is_woken_when_the_commit_of_a_large_run_passes(
    archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind_a_revision(archive)
    woken: list[str] = []
    monkeypatch.setattr(Session, "wake", lambda _, *topics: woken.extend(topics))
    archive.run("before@2")
    assert "planning" in woken


@pytest.mark.parametrize("most", [1, 3])
def test_a_commit_that_passes_while_its_large_run_is_stored_meets_no_edge_of_it_before_that_is_let_in(
    archive: AnArchive, most: int
) -> None:
    behind_a_revision(archive, most)
    archive.run("before@2")
    assert archive.state("COMMIT@3") == "completed"
    steps(archive)
    assert sorted(claim.item for claim in archive.claim_some(20)) == KEYS
    assert examine(archive.session).findings == []


def test_a_large_run_whose_commit_waits_is_canceled_retried_and_deleted_as_any_other(archive: AnArchive) -> None:
    behind_a_revision(archive)
    run = RunId(archive.run_id(3))
    control.cancel_run(archive.session, run, "ann")
    archive.retry("fetch/i8@3")
    assert archive.state("fetch/i8@3") == "waiting"
    assert examine(archive.session).findings == []
    archive.run("before@2")
    steps(archive)
    assert archive.claim().item == "i8"
    assert len(archive.running) == 1
    assert examine(archive.session).findings == []
    archive.commit(STEPS | STRICT)
    steps(archive)
    deletion.delete_run(archive.session, RunId(archive.run_id(4)), "ann")
    archive.run("fetch/i8@3")
    steps(archive)
    assert archive.sql("select run_id from planning") == []
    assert examine(archive.session).findings == []


def test_later_revisions_and_runs_wait_in_order(archive: AnArchive) -> None:
    archive.commit({"plain": ""})
    archive.commit(STEPS)
    branch = archive.branches[""]
    entry = an_entry(4, a_workflow(STEPS))
    assert ledger.append(archive.session, branch, [entry]) is None, "read again"
    with pytest.raises(Busy, match="papers@3 is still being planned"):
        archive.trigger(2)
    steps(archive)
    archive.trigger(2)
    archive.append("", [entry])


VERBS: list[Callable[[Session, RunId], Any]] = [
    lambda session, run: control.cancel_run(session, run, "ann"),
    lambda session, run: control.prioritize_run(session, run, 3, "ann"),
    lambda session, run: retrying.refresh_run(session, run, "ann"),
    lambda session, run: deletion.delete_run(session, run, "ann"),
    lambda session, run: holds.hold_run(session, run, "ann"),
    lambda session, run: holds.release_run(session, run, "ann"),
    lambda session, run: many.retry_failed(session, run, "ann"),
    lambda session, run: many.skip_run(session, run, "ann"),
    lambda session, run: purge.purge_runs(session, [run], "ann", "old").unless_kept(),
]


def test_verbs_on_a_run_that_is_being_planned_are_refused_with_the_reason(archive: AnArchive) -> None:
    archive.commit(STEPS)
    steps(archive, most=2)
    run = RunId(archive.run_id(2))
    for verb in VERBS:
        with pytest.raises(Conflict, match=r"papers@2: is (still being planned \(4 of 9 items\)|not settled)"):
            verb(archive.session, run)
    with pytest.raises(Conflict, match="is still being planned"):
        archive.cancel("fetch/i0@2")
    for name in ("papers@2", "papers@2/fetch/i0"):
        said = explain_name(archive.session, name).text
        assert said.startswith("Its run is still being planned: the tasks of 4 of 9 items are stored.")
    steps(archive)
    assert archive.state("fetch/i0@2") == "ready"


def test_a_hold_of_the_archive_meanwhile_holds_all_of_it(archive: AnArchive) -> None:
    archive.commit(STEPS)
    steps(archive, most=2)
    holds.hold_archive(archive.session, archive.id, "ann")
    steps(archive)
    assert {archive.state(f"{name}/{key}@2") for name in ("fetch", "store") for key in KEYS} == {"held"}
    assert state(archive) is RunState.HELD


def test_what_its_branch_has_lost_meanwhile_is_planned_and_canceled(archive: AnArchive) -> None:
    archive.commit(STEPS)
    steps(archive, most=2)
    branch = archive.branches[""]
    archives.untrack(archive.session, archive.id, branch.id, head=branch.head)
    steps(archive)
    assert {archive.state(f"{name}/{key}@2") for name in ("fetch", "store") for key in KEYS} == {"canceled"}
    assert archive.claim_some(10) == []


def test_a_stopped_archive_is_planned_further_when_it_goes_on(archive: AnArchive) -> None:
    archive.commit(STEPS)
    archives.stop(archive.session, archive.id, "it is another repository")
    assert planning.Planner(archive.session).turn() is None
    assert not planning.finish(archive.session, archive.branches[""].id, lambda: True)
    assert archive.sql("select run_id from planning")


def test_a_run_by_hand_is_planned_in_portions_too(archive: AnArchive) -> None:
    archive.commit(STEPS)
    steps(archive)
    archive.trigger(2, "fetch", "store", force=True)
    assert steps(archive) > 4
    assert archive.state("store/i8@2.2") == "waiting"
    archive.run(*(f"fetch/{key}@2.2" for key in KEYS))
    assert archive.state("store/i8@2.2") == "ready"


def test_a_backfill_goes_on_behind_each_of_its_large_runs(archive: AnArchive) -> None:
    for _ in range(3):
        archive.commit(STEPS)
        steps(archive)
    backfill.begin(archive.session, archive.id, archive.branches[""].id, 2, 3, names=["fetch"], by="ann")
    assert backfill.plan(archive.session, no_lists) is None, "the first run is still being planned"
    steps(archive)
    assert backfill.plan(archive.session, no_lists) is not None
    steps(archive)
    waiting = archive.sql(
        "select t.item from task t where t.number = 3 and t.run = 2 and t.name = 'fetch' and t.state = 'waiting'"
    )
    assert len(waiting) == len(KEYS), "in order, item by item"
    archive.run("fetch/i3@2.2")
    assert archive.state("fetch/i3@3.2") == "ready"


def test_the_items_of_a_submission_are_kept_until_its_run_is_planned(archive: AnArchive) -> None:
    archive.commit(
        {name: f"foreach: submission\n{more}" for name, more in (("fetch", ""), ("store", "depends: [fetch]"))}
    )
    archive.submit(json.dumps([{"id": key} for key in KEYS]), sender_id="batch")
    assert steps(archive) > 4
    assert archive.state("store/i8@2.2") == "waiting"
    archive.run(*(f"{name}/{key}@2.2" for name in ("fetch", "store") for key in KEYS))
    assert archive.state("REPORT@2.2") == "completed"
    assert lists(archive) == 1
    purge.purge_runs(archive.session, [RunId(archive.run_id(2, 2))], "ann", "it is old")
    assert lists(archive) == 0


# Lists


def lists(archive: AnArchive) -> int:
    (row,) = archive.sql("select count(distinct l.digest) as n from list l join list_part p on p.digest = l.digest")
    return int(row["n"])


def test_a_list_goes_with_the_last_run_that_has_it_and_comes_back_with_the_next(archive: AnArchive) -> None:
    other = an_archive(archive.session, "other")
    for one in (archive, other):
        one.commit({"fetch": "foreach: [a, b]"})
        one.run("fetch/a@2", "fetch/b@2")
        one.commit({"fetch": "foreach: [c]"})
    assert lists(archive) == 2
    for one, left in ((archive, 2), (other, 1)):
        done = purge.purge_runs(one.session, [RunId(one.run_id(2))], "ann", "it is old")
        assert len(done.runs) == 1
        assert lists(archive) == left
    with pytest.raises(
        Conflict, match=r"the items of its lists were removed on .* by ann, with the last run that had them"
    ):
        archive.trigger(2, force=True)
    archive.commit({"fetch": "foreach: [a, b]"})
    assert lists(archive) == 2
    assert archive.state("fetch/a@4") == "ready"


def test_a_purge_passes_over_a_list_that_is_being_stored(archive: AnArchive) -> None:
    archive.commit({"fetch": "foreach: [a, b]"})
    archive.run("fetch/a@2", "fetch/b@2")
    entry = an_entry(3, a_workflow({"fetch": "foreach: [a, b]"}))

    def append(graph: Graph) -> None:
        assert ledger.append_in(graph, archive.branches[""], [entry])
        (row,) = archive.sql("select digest from list")
        assert archive.session.rows("lock_lists_to_purge", digests=[row["digest"]]) == []

    change(archive.session, [archive.id], append)
    (row,) = archive.sql("select digest from list")
    assert len(archive.session.rows("lock_lists_to_purge", digests=[row["digest"]])) == 1


def test_a_large_run_of_a_backfill_is_planned_over_the_list_file_of_its_revision(archive: AnArchive) -> None:
    texts = [
        "- name: fetch\n  foreach: {file: items.txt}\n  command: x\n",
        "- name: store\n  foreach: {file: items.txt}\n  depends: [fetch]\n  command: x\n",
    ]
    archive.commit()
    archive.commit(
        parse([SourceFile("_workflows/a.yaml", "".join(texts).encode())], lambda path: SourceFile(path, b"new"))
    )
    wanted = backfill.wanted_first(archive.session, archive.branches[""].id, 2, ["fetch", "store"])
    assert wanted is not None
    lists = Lists(wanted, {("items.txt", None): tuple(Item(key, f'"{key}"') for key in KEYS)})
    backfill.begin(
        archive.session, archive.id, archive.branches[""].id, 2, 2, names=["fetch", "store"], by="ann", lists=lists
    )
    assert archive.sql("select run_id from planning where next < items")
    steps(archive)
    assert [task["item"] for task in planned(archive)["tasks"] if task["name"] == "store"] == KEYS
    archive.run(*(f"{name}/{key}@2.2" for name in ("fetch", "store") for key in KEYS))
    assert state(archive) is RunState.COMPLETED
