"""Tasks with a list (`foreach`, design 5.30): one task for each item, edges between items, and a
gate for each list.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db.session import SQL, Session
from arkqueue.errors import Conflict, NotFound
from arkqueue.model import End, RunId
from arkqueue.queue import archives, deletion, holds, redo
from arkqueue.queue.claim import Turns, inputs, parameters
from arkqueue.queue.claim import claim as claim_tasks
from arkqueue.queue.graph import Graph
from arkqueue.views.explain import explain_name
from arkqueue.views.graph import graph
from tests.builders import HOST, PROCESS, AnArchive, a_workflow, an_archive, an_entry
from tests.db.portions import plan_in_portions
from tests.db.test_races import Connect, InThread, wait_until_blocked

LIST = "foreach: [a, b]"


@pytest.fixture
def archive(session: Session, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AnArchive:
    if getattr(request, "param", "") == "in portions":
        plan_in_portions(monkeypatch, rows=8)
    return an_archive(session)


at_once_and_in_portions = pytest.mark.parametrize("archive", ["at once", "in portions"], indirect=True)
"""Whether a run is planned at once or in portions changes nothing of what a plan decides."""


def states(archive: AnArchive, *keys: str) -> list[str]:
    """The states of tasks; a builder claims all that is ready, so that ready and running mean the same."""
    return [archive.state(key).replace("running", "ready") for key in keys]


# Inside a run


@at_once_and_in_portions
def test_each_item_has_a_task_that_gets_the_item(archive: AnArchive) -> None:
    archive.commit({"deposit": "foreach: [{id: a, size: 3}, {id: b}, {id: 'c d'}]"})
    claims = {claim.item: claim.item_body for claim in archive.claim_some(10)}
    assert {key: json.loads(body) for key, body in claims.items()} == {
        "a": {"id": "a", "size": 3},
        "b": {"id": "b"},
        "c d": {"id": "c d"},
    }


def test_an_item_is_as_the_list_has_it(archive: AnArchive) -> None:
    """Its fields keep their order, and its numbers all of their digits, also in the name of a lock."""
    listed = "foreach: [{version: 1.10, b: 0.1000000000000000055511, a: [{y: null, x: é}]}]\nkey: version"
    archive.commit({"deposit": f"{listed}\nlock: store/${{{{ item.version }}}}"})
    (claim,) = archive.claim_some(10)
    assert claim.item == "1.10"
    assert claim.item_body == '{"version":1.10,"b":0.1000000000000000055511,"a":[{"y":null,"x":"é"}]}'
    assert archive.sql("select name from lock_use") == [{"name": "store/1.10"}]


@at_once_and_in_portions
def test_tasks_over_the_same_list_are_connected_item_by_item(archive: AnArchive) -> None:
    archive.commit({"fetch": LIST, "store": f"{LIST}\ndepends: [fetch]"})
    archive.run("fetch/a@2")
    assert states(archive, "store/a@2", "store/b@2") == ["ready", "waiting"]


def test_an_item_that_fails_affects_no_other(archive: AnArchive) -> None:
    archive.commit({"fetch": LIST, "store": f"{LIST}\ndepends: [fetch]", "publish": "depends: [store]"})
    archive.fail("fetch/a@2")
    assert states(archive, "store/a@2", "publish@2") == ["skipped", "skipped"]
    archive.run("fetch/b@2")
    assert states(archive, "store/b@2") == ["ready"]
    archive.retry("fetch/a@2")
    assert states(archive, "store/a@2", "publish@2", "REPORT@2") == ["waiting", "waiting", "waiting"]
    archive.run("store/b@2", "fetch/a@2", "store/a@2", "publish@2")
    assert archive.state("REPORT@2") == "completed"


def test_a_run_that_is_undeleted_has_no_held_gates(archive: AnArchive) -> None:
    archive.commit({"fetch": LIST, "publish": "depends: [fetch]"})
    run = RunId(archive.run_id(2))
    deletion.delete_run(archive.session, run, "ann")
    deletion.undelete_run(archive.session, run, "ann")
    assert states(archive, "fetch/a@2", "fetch/b@2", "publish@2") == ["held", "held", "held"]
    assert archive.sql("select state from task where kind = 'gate' and state = 'held'") == []
    holds.release_run(archive.session, run, "ann")
    archive.run("fetch/a@2", "fetch/b@2", "publish@2")


@at_once_and_in_portions
@pytest.mark.parametrize("other", ["foreach: [a, b, c]", "foreach: [{id: a}, {id: b}]\nkey: id", ""])
def test_any_other_edge_waits_for_all_items(archive: AnArchive, other: str) -> None:
    archive.commit({"fetch": LIST, "index": f"{other}\ndepends: [fetch]"})
    index = "index/a@2" if other else "index@2"
    archive.run("fetch/a@2")
    assert archive.state(index) == "waiting"
    archive.run("fetch/b@2")
    assert states(archive, index) == ["ready"]


def test_a_gate_of_settled_items_passes_when_all_have_settled(archive: AnArchive) -> None:
    archive.commit({"fetch": LIST, "tell": "depends: [{task: fetch, when: settled}]"})
    archive.fail("fetch/a@2")
    assert archive.state("tell@2") == "waiting"
    archive.run("fetch/b@2")
    assert states(archive, "tell@2") == ["ready"]


@at_once_and_in_portions
def test_an_empty_list_passes(archive: AnArchive) -> None:
    archive.commit({"fetch": "foreach: []", "index": "depends: [fetch]", "store": "foreach: []\ndepends: [fetch]"})
    archive.run("index@2")
    assert archive.state("REPORT@2") == "completed"


def test_what_waits_for_a_list_gets_the_outputs_of_its_items(archive: AnArchive) -> None:
    archive.commit({"mint": LIST, "store": f"{LIST}\ndepends: [mint]", "index": "depends: [mint]"})
    archive.end("mint/a@2", outputs={"ark": "1"})
    archive.end("mint/b@2", outputs={"ark": "2"})
    tasks = [archive.task("store/b@2"), archive.task("index@2")]
    assert inputs(archive.session, tasks) == {
        tasks[0]: {"mint": {"ark": "2"}},
        tasks[1]: {"mint": {"a": {"ark": "1"}, "b": {"ark": "2"}}},
    }


def test_a_lock_takes_a_field_of_the_item(archive: AnArchive) -> None:
    items = "foreach: [{id: a, shelf: x}, {id: b, shelf: x}, {id: c, shelf: y}]"
    archive.commit({"store": f"{items}\nlock: ['shelf-${{{{ item.shelf }}}}']"})
    assert states(archive, "store/a@2", "store/b@2", "store/c@2") == ["ready", "waiting", "ready"]
    archive.run("store/a@2")
    assert states(archive, "store/b@2") == ["ready"]


# Between runs

AFTER = "depends: [PREV]"


@at_once_and_in_portions
def test_prev_of_an_item_is_the_nearest_task_with_its_key(archive: AnArchive) -> None:
    archive.commit({"store": "foreach: [a, b]"})
    archive.commit({"store": "foreach: [b]"})
    archive.commit({"store": f"foreach: [a, b, c]\n{AFTER}"})
    assert states(archive, "store/a@4", "store/b@4", "store/c@4") == ["waiting", "waiting", "ready"]
    archive.run("store/a@2", "store/b@2")
    assert states(archive, "store/a@4", "store/b@4") == ["ready", "waiting"]
    archive.run("store/b@3")
    assert states(archive, "store/b@4") == ["ready"]


@at_once_and_in_portions
def test_prev_of_an_item_goes_back_over_lists_without_its_key_to_a_task_without_a_list(archive: AnArchive) -> None:
    archive.commit({"store": ""})
    archive.commit({"store": "foreach: [b]"})
    archive.commit({"store": "foreach: []"})
    archive.commit({"store": f"foreach: [a, b]\n{AFTER}"})
    archive.run("store/b@3")
    assert states(archive, "store/a@5", "store/b@5") == ["waiting", "ready"]
    archive.run("store@2")
    assert states(archive, "store/a@5") == ["ready"]


@at_once_and_in_portions
def test_prev_of_a_task_without_a_list_waits_for_all_items(archive: AnArchive) -> None:
    archive.commit({"store": LIST})
    archive.commit({"store": "foreach: []"})
    archive.commit({"store": AFTER, "tell": "depends: ['PREV:store']"})
    assert states(archive, "store@4", "tell@4") == ["waiting", "waiting"]
    archive.run("store/a@2")
    assert archive.state("store@4") == "waiting"
    archive.run("store/b@2")
    assert states(archive, "store@4", "tell@4") == ["ready", "ready"]


@at_once_and_in_portions
def test_a_task_without_a_list_is_nearer_than_an_earlier_list(archive: AnArchive) -> None:
    archive.commit({"store": LIST})
    archive.commit({"store": ""})
    archive.commit({"store": f"{LIST}\n{AFTER}", "tell": "depends: ['PREV:store']"})
    archive.run("store@3")
    assert states(archive, "store/a@4", "store/b@4", "tell@4") == ["ready", "ready", "ready"]


@at_once_and_in_portions
@pytest.mark.parametrize("entry", ["PREV:store", "store"])
def test_what_runs_because_of_a_failure_does_not_wait_for_an_earlier_list(archive: AnArchive, entry: str) -> None:
    """A list as a whole does not fail; `store` is left out of the later run."""
    archive.commit({"store": LIST})
    archive.commit({"store": "on: [submission]", "mend": f"depends: [{{task: '{entry}', when: failed}}]"})
    assert archive.state("mend@3") == "skipped"


@at_once_and_in_portions
def test_revisions_of_one_transaction_follow_one_another_by_key(archive: AnArchive) -> None:
    lists = ["[a, b]", "[b]", "[a]"]
    workflows = [a_workflow({"store": f"foreach: {items}\n{AFTER}"}) for items in lists]
    archive.append("", [an_entry(number, one) for number, one in enumerate(workflows, 2)])
    assert states(archive, "store/b@3", "store/a@4") == ["waiting", "waiting"]
    archive.run("store/b@2")
    assert states(archive, "store/b@3", "store/a@4") == ["ready", "waiting"]


@at_once_and_in_portions
@pytest.mark.parametrize("when", ["completed", "settled"])
def test_everything_before_includes_each_unsettled_item(archive: AnArchive, when: str) -> None:
    archive.commit({"store": LIST})
    archive.commit({"store": "foreach: [b]"})
    archive.commit({"index": f"depends: [{{task: 'PREV:*', when: {when}}}]"})
    archive.run("store/b@2", "store/b@3")
    assert archive.state("index@4") == "waiting", "store/a of revision 2 is not settled"
    archive.run("store/a@2")
    assert states(archive, "index@4") == ["ready"]


@at_once_and_in_portions
@pytest.mark.parametrize("strict", ["COMMIT", "index"])
def test_everything_before_includes_an_item_that_runs_again_behind_a_gate_that_stays_passed(
    archive: AnArchive, strict: str
) -> None:
    """A long run of the model test has found this case. The gate stays passed because `tell` has
    started.
    """
    archive.commit({"store": LIST, "tell": "depends: [store]"})
    archive.run("store/a@2", "store/b@2", "tell@2")
    redo.retry_from(archive.session, RunId(archive.run_id(2)), "store", "ann", item="a", force=True)
    archive.commit({strict: "depends: ['PREV:*']", "next": ""})
    behind = {"COMMIT": "next@3", "index": "index@3"}[strict]
    assert archive.state(behind) == "waiting"
    archive.fail("store/a@2")
    assert archive.state(behind) == "waiting", "a failure that nobody waived"
    archive.retry("store/a@2", force=True)
    archive.run("store/a@2")
    assert states(archive, behind) == ["ready"]


@at_once_and_in_portions
def test_a_strict_order_of_revisions_waits_for_the_items(archive: AnArchive) -> None:
    strict = "depends: [{task: 'PREV:*', when: settled}]"
    archive.commit({"COMMIT": strict, "store": LIST})
    archive.commit({"COMMIT": strict, "store": "foreach: [c]"})
    archive.run("store/a@2")
    assert archive.state("store/c@3") == "waiting"
    archive.fail("store/b@2")
    assert states(archive, "store/c@3") == ["ready"]


@at_once_and_in_portions
def test_a_strict_order_of_revisions_waits_for_items_of_earlier_lists(archive: AnArchive) -> None:
    archive.commit({"store": "foreach: [a]"})
    archive.commit({"store": "foreach: [c]"})
    archive.run("store/c@3")
    archive.commit({"COMMIT": "depends: [{task: 'PREV:*', when: settled}]", "tell": ""})
    assert archive.state("COMMIT@4") == "waiting", "store/a of revision 2 is not settled"
    archive.run("store/a@2")
    assert states(archive, "COMMIT@4", "tell@4") == ["completed", "ready"]


@at_once_and_in_portions
def test_everything_before_includes_items_that_were_canceled_before_what_they_waited_for_was_over(
    archive: AnArchive,
) -> None:
    """Of `store/a` nothing runs, yet it waited for `slow` of revision 2, which no cancellation lets others overtake (decision 0001, point 18)."""
    archive.commit({"slow": ""})
    archive.commit({"slow": "", "store": "foreach: [a]\ndepends: ['PREV:slow']"})
    archive.run("slow@3")
    archive.cancel("store/a@3")
    archive.commit({"index": "depends: [{task: 'PREV:*', when: settled}]"})
    assert archive.state("index@4") == "waiting"
    archive.run("slow@2")
    assert states(archive, "index@4") == ["ready"]


@at_once_and_in_portions
def test_everything_before_includes_a_deleted_item_that_waited_for_what_is_not_over(archive: AnArchive) -> None:
    """The gate of its list has passed without it, and says nothing of `store/a` of revision 2, which runs (decision 0001, point 18)."""
    archive.commit({"store": "foreach: [a]"})
    archive.commit({"store": "foreach: [a]\ndepends: [PREV]"})
    archive.claim("store/a@2")
    deletion.delete_item(archive.session, RunId(archive.run_id(3)), "a", "ann")
    archive.commit({"index": "depends: ['PREV:*']", "store": "foreach: [a]"})
    assert archive.state("index@4") == "waiting"
    archive.end("store/a@2")
    assert archive.state("index@4") == "ready"


@at_once_and_in_portions
def test_everything_before_includes_items_of_a_list_whose_task_came_again_without_one(archive: AnArchive) -> None:
    """The nearest occurrence is the later task, and no gate speaks for the items."""
    archive.commit({"store": "foreach: [a, b]"})
    archive.claim("store/a@2")
    archive.commit({"store": ""})
    archive.run("store@3", "store/b@2")
    archive.commit({"COMMIT": "depends: ['PREV:*']", "index": "", "store": "foreach: [a, b]"})
    assert archive.state("index@4") == "waiting"
    archive.end("store/a@2")
    assert archive.state("index@4") == "ready"


@at_once_and_in_portions
@pytest.mark.parametrize("between", ["", "foreach: [b]"])
def test_everything_before_includes_items_of_a_list_behind_a_revision_that_is_planned_with_it(
    archive: AnArchive, between: str
) -> None:
    archive.commit({"store": "foreach: [a]"})
    archive.claim("store/a@2")
    entries = [
        an_entry(3, a_workflow({"store": between})),
        an_entry(4, a_workflow({"COMMIT": "depends: ['PREV:*']", "index": ""})),
    ]
    archive.append("", entries)
    archive.run("store@3" if not between else "store/b@3")
    assert archive.state("index@4") == "waiting"
    archive.end("store/a@2")
    assert archive.state("index@4") == "ready"


@at_once_and_in_portions
def test_items_supersede_items_of_the_same_key_only(archive: AnArchive) -> None:
    archive.commit({"build": "foreach: [a, b]\ncancels: [PREV]"})
    archive.commit({"build": "foreach: [b, c]\ncancels: [PREV]"})
    assert states(archive, "build/a@2", "build/b@2") == ["ready", "canceled"]
    assert states(archive, "build/b@3", "build/c@3") == ["ready", "ready"]
    with pytest.raises(Conflict, match="superseded"):
        archive.retry("build/b@2")
    archive.cancel("build/a@2")
    archive.retry("build/a@2")
    assert states(archive, "build/a@2") == ["ready"], "no later task has its key"


@at_once_and_in_portions
def test_a_task_without_a_list_supersedes_all_items_and_is_superseded_by_each(archive: AnArchive) -> None:
    archive.commit({"build": "cancels: [PREV]"})
    archive.commit({"build": "foreach: [a, b]\ncancels: [PREV]"})
    archive.commit({"build": "cancels: [PREV]"})
    assert states(archive, "build@2", "build/a@3", "build/b@3", "build@4") == [
        "canceled",
        "canceled",
        "canceled",
        "ready",
    ]
    shown = graph(archive.session, [RunId(archive.run_id(number)) for number in (3, 4)])
    assert [(edge.source_name, edge.target_name) for edge in shown.edges if edge.kind == "cancels"] == [
        ("papers@2/build", "papers@3/build/a"),
        ("papers@2/build", "papers@3/build/b"),
        ("papers@3/build:settled", "papers@4/build"),
    ]


@at_once_and_in_portions
def test_a_run_by_hand_of_one_step_takes_the_products_of_the_items(archive: AnArchive) -> None:
    archive.commit({"fetch": LIST, "store": f"{LIST}\ndepends: [fetch]", "index": "depends: [fetch]"})
    archive.run("fetch/a@2")
    archive.trigger(2, "store")
    archive.trigger(2, "index")
    assert states(archive, "store/a@2.2", "store/b@2.2", "index@2.3") == ["ready", "waiting", "waiting"]
    archive.run("fetch/b@2")
    assert states(archive, "store/b@2.2", "index@2.3") == ["ready", "ready"]


def tell_of_a_failed_item(archive: AnArchive) -> None:
    """An item of papers@2 has failed, and a task of papers@3 that waited for all items has run."""
    archive.commit({"store": LIST})
    archive.commit({"tell": "depends: [{task: 'PREV:store', when: settled}]"})
    archive.fail("store/a@2")
    archive.run("store/b@2", "tell@3")


def test_a_release_is_refused_where_a_later_task_has_started_because_of_its_list(archive: AnArchive) -> None:
    tell_of_a_failed_item(archive)
    archive.retry("store/a@2", force=True)
    holds.hold(archive.session, archive.task("store/a@2"), "ann")
    with pytest.raises(Conflict, match="papers@3/tell"):
        holds.release(archive.session, archive.task("store/a@2"), "bob")


def test_a_retry_is_refused_where_a_later_task_has_started_because_of_its_list(archive: AnArchive) -> None:
    tell_of_a_failed_item(archive)
    with pytest.raises(Conflict, match="papers@3/tell"):
        archive.retry("store/a@2")


@pytest.mark.parametrize("how", ["retry", "from"])
def test_a_gate_that_items_have_passed_waits_again_as_long_as_nothing_behind_it_has_started(
    archive: AnArchive, how: str
) -> None:
    """`tell` waits for any end of the items, through a gate of its own; `later` keeps it from starting."""
    archive.commit(
        {
            "store": LIST,
            "later": "",
            "done": "depends: [{task: store, when: settled}]\n# gate",
            "tell": "depends: [done, later]",
        }
    )
    archive.run("store/b@2")
    archive.fail("store/a@2")
    assert states(archive, "store:settled@2", "done@2", "tell@2") == ["completed", "completed", "waiting"]
    _again(archive, how)
    assert states(archive, "store:settled@2", "done@2", "tell@2") == ["waiting", "waiting", "waiting"]
    archive.run("later@2")
    assert archive.state("tell@2") == "waiting"
    archive.fail("store/a@2")
    assert states(archive, "store:settled@2", "done@2", "tell@2") == ["completed", "completed", "ready"]
    archive.claim("tell@2")
    _again(archive, how)
    assert states(archive, "store:settled@2", "done@2", "tell@2") == ["completed", "completed", "ready"], (
        "it has started"
    )
    archive.run("store/a@2", "tell@2")


def test_a_guard_that_comes_after_a_gate_has_passed_does_not_hold_it_when_it_waits_again(archive: AnArchive) -> None:
    archive.commit({"store": LIST, "done": "depends: [{task: store, when: settled}]\n# gate"})
    archive.run("store/a@2", "store/b@2")
    guarded = ArchiveSettings(process=True, require_approval=("done",))
    archives.change_settings(archive.session, archive.id, guarded, "ann")
    _again(archive, "from")
    assert [archive.state(f"{name}@2") for name in ("store:settled", "done")] == ["waiting", "waiting"]
    archive.run("store/a@2")
    assert archive.state("done@2") == "completed"


def test_what_is_ready_behind_a_gate_waits_again(archive: AnArchive) -> None:
    archive.commit({"store": LIST, "tell": "depends: [store]"})
    for claim in archive.claim_some(2):
        archive.record(claim.attempt, End.EXITED, 0)
    assert archive.state("tell@2") == "ready"
    _again(archive, "from")
    assert [archive.state(f"{name}@2") for name in ("store:completed", "tell")] == ["waiting", "waiting"]
    archive.run("store/a@2", "tell@2")


def test_of_a_claim_and_a_retry_that_lets_a_gate_wait_again_the_first_wins(
    session: Session, second_connection: Connect
) -> None:
    archive = an_archive(session)
    archive.commit({"store": LIST, "tell": "depends: [{task: store, when: settled}]"})
    for claim, code in zip(archive.claim_some(2), (1, 0), strict=True):
        archive.record(claim.attempt, End.EXITED, code)
    claimer, watcher = second_connection(), second_connection()
    with claimer.transaction():
        rows = claimer.execute(SQL["claim"], parameters("m2", "h2", 9)).fetchall()
        assert [row["name"] for row in rows] == ["tell"]
        retrying = InThread(lambda: archive.retry("store/a@2"))
        wait_until_blocked(watcher)
    retrying.result()
    assert [archive.state(f"{name}@2") for name in ("store:settled", "tell")] == ["completed", "running"]


def test_a_gate_does_not_wait_again_behind_which_a_later_revision_has_started(archive: AnArchive) -> None:
    tell_of_a_failed_item(archive)
    archive.retry("store/a@2", force=True)
    assert archive.state("store:settled@2") == "completed"
    archive.fail("store/a@2")
    with pytest.raises(Conflict, match="papers@3/tell"):
        archive.retry("store/a@2")


def test_what_a_later_revision_started_counts_though_the_gate_waits_again(archive: AnArchive) -> None:
    """A met edge across runs stays met: `tell` starts while the gate waits, and from then on the item is out of date."""
    archive.commit({"store": LIST})
    archive.commit({"tell": "depends: [{task: 'PREV:store', when: settled}, slow]", "slow": ""})
    archive.fail("store/a@2")
    archive.run("store/b@2")
    archive.retry("store/a@2")
    assert archive.state("store:settled@2") == "waiting"
    archive.run("slow@3", "tell@3")
    archive.fail("store/a@2")
    with pytest.raises(Conflict, match="papers@3/tell"):
        archive.retry("store/a@2")


def test_a_waiver_that_lets_steps_of_an_item_come_back_lets_its_gate_wait_again(archive: AnArchive) -> None:
    archive.commit(
        {
            "fetch": LIST,
            "store": f"{LIST}\ndepends: [fetch]",
            "later": "",
            "tell": "depends: [{task: store, when: settled}, later]",
        }
    )
    archive.fail("fetch/a@2")
    archive.run("fetch/b@2", "store/b@2")
    assert states(archive, "store/a@2", "store:settled@2") == ["skipped", "completed"]
    archive.skip("fetch/a@2", as_completed=True)
    assert states(archive, "store/a@2", "store:settled@2") == ["ready", "waiting"]
    archive.run("later@2")
    assert archive.state("tell@2") == "waiting"
    archive.run("store/a@2", "tell@2")


@pytest.mark.parametrize("how", ["retry", "from"])
def test_the_gate_of_another_run_waits_again_with_items_that_come_back_there(archive: AnArchive, how: str) -> None:
    archive.commit(
        {
            "fetch": "",
            "store": f"{LIST}\ndepends: [{{task: fetch}}]",
            "later": "",
            "tell": "depends: [{task: store, when: settled}, later]",
        }
    )
    archive.trigger(2, "store", "later", "tell")
    archive.fail("fetch@2")
    archive.skip("fetch@2")
    assert states(archive, "store/a@2.2", "store:settled@2.2") == ["skipped", "completed"]
    if how == "retry":
        archive.retry("fetch@2")
    else:
        redo.retry_from(archive.session, RunId(archive.run_id(2)), "fetch", "ann")
    assert states(archive, "store/a@2.2", "store:settled@2.2") == ["waiting", "waiting"]
    archive.run("later@2.2")
    assert archive.state("tell@2.2") == "waiting"
    archive.run("fetch@2", "store/a@2.2", "store/b@2.2", "tell@2.2")


def _again(archive: AnArchive, how: str) -> None:
    if how == "retry":
        archive.retry("store/a@2")
    else:
        redo.retry_from(archive.session, RunId(archive.run_id(2)), "store", "ann", item="a")


def test_base_is_that_of_the_key(archive: AnArchive) -> None:
    archive.commit({"store": "foreach: [a, b]"})
    archive.run("store/a@2")
    archive.commit({"store": "foreach: [a, b]"})
    bases: dict[tuple[str, int], Any] = {
        (claim.item, claim.number): claim.base for claim in archive.claim_some(10) if claim.number == 3
    }
    assert bases == {("a", 3): "2", ("b", 3): None}


@at_once_and_in_portions
def test_exclusive_items_go_one_at_a_time_and_close_the_gate(archive: AnArchive) -> None:
    archive.commit({"store": f"{LIST}\nexclusive: true"})
    archive.commit({"store": LIST})
    assert states(archive, "store/a@2", "store/b@2", "COMMIT@3") == ["ready", "waiting", "waiting"]
    archive.run("store/a@2", "store/b@2")
    assert archive.state("COMMIT@3") == "completed"


# How they are named and explained


@at_once_and_in_portions
def test_an_empty_list_is_why_there_is_no_task(archive: AnArchive) -> None:
    archive.commit({"store": "foreach: []", "tell": "depends: [store]"})
    told = explain_name(archive.session, "papers@2/store/a")
    assert "Its list (foreach) has no items" in told.text
    assert told.commands == [], "a run by hand has no items either"
    with pytest.raises(Conflict, match="papers@2: store: the list has no items"):
        archive.trigger(2, "store", force=True)
    archive.trigger(2, "store", "tell", force=True)
    assert states(archive, "tell@2.2") == ["ready"]


def test_a_name_without_its_item_is_answered_with_how_to_write_it(archive: AnArchive) -> None:
    archive.commit({"store": LIST})
    with pytest.raises(NotFound, match=r"papers@2/store/KEY"):
        explain_name(archive.session, "papers@2/store")
    with pytest.raises(NotFound, match="has no item 'c'"):
        explain_name(archive.session, "papers@2/store/c")


# In which order they are claimed


def test_the_ready_items_of_a_task_are_claimed_in_the_order_of_their_list(archive: AnArchive) -> None:
    keys = [str(n) for n in range(30)]
    archive.commit({"fetch": f"foreach: {json.dumps(keys)}"})
    for key in ["9", "3", "21", "12", "0", "29"]:  # what becomes ready last is claimed in its place all the same
        holds.hold(archive.session, archive.task(f"fetch/{key}@2"), "ann")
        holds.release(archive.session, archive.task(f"fetch/{key}@2"), "ann")
    turns = Turns()
    claimed = [claim.item for _ in range(15) for claim in claim_tasks(archive.session, PROCESS, HOST, 2, turns=turns)]
    assert claimed == keys


@at_once_and_in_portions
@pytest.mark.parametrize("of", ["", "foreach: [a]\n"])
def test_what_waits_for_all_earlier_tasks_waits_for_what_a_waived_one_waited_for(archive: AnArchive, of: str) -> None:
    """The model found it: the gate of a list passes with an item that was waived as completed, whatever that item had to wait for."""
    item = "/a" if of else ""
    archive.commit({"store": of})
    archive.commit({"store": f"{of}depends: [PREV]"})
    archive.skip(f"store{item}@3", as_completed=True)
    archive.commit({"index": "depends: ['PREV:*']"})
    assert archive.state("index@4") == "waiting"
    archive.run(f"store{item}@2")
    assert archive.state("index@4") == "ready"


@pytest.mark.parametrize("verb", ["skip", "delete"])
def test_what_waits_for_all_earlier_tasks_waits_for_an_item_that_is_waived_or_deleted_later(
    archive: AnArchive, verb: str
) -> None:
    """papers@4 was planned behind the gate of papers@3, which passes while the item of papers@2 is still open."""
    archive.commit({"store": "foreach: [a]"})
    archive.commit({"store": "foreach: [a]\ndepends: [PREV]"})
    archive.commit({"index": "depends: ['PREV:*']"})
    assert archive.state("index@4") == "waiting"
    if verb == "skip":
        archive.skip("store/a@3", as_completed=True)
    else:
        deletion.delete_item(archive.session, RunId(archive.run_id(3)), "a", "ann")
    assert archive.state("index@4") == "waiting"
    archive.run("store/a@2")
    assert archive.state("index@4") == "ready"


def test_what_waits_for_all_earlier_tasks_goes_on_after_a_skipped_item_was_deleted(archive: AnArchive) -> None:
    archive.commit({"store": "foreach: [a, b]"})
    archive.commit({"index": "depends: ['PREV:*']"})
    archive.skip("store/a@2")
    deletion.delete_item(archive.session, RunId(archive.run_id(2)), "a", "ann")
    archive.run("store/b@2")
    assert archive.state("index@3") == "ready"


@at_once_and_in_portions
@pytest.mark.parametrize("strict", ["COMMIT", "publish"])
def test_what_waits_for_all_earlier_tasks_has_one_edge_to_the_nearest_list(archive: AnArchive, strict: str) -> None:
    """Its gate stands for its items, however they end; open items of older lists have an edge each."""
    tasks = {"store": "foreach: [a, b, c]", strict: "depends: ['PREV:*']"}
    archive.commit({"store": "foreach: [a, x]"})
    archive.commit(tasks)
    archive.commit(tasks)
    sources = """select s.number, s.name, s.item from edge e join task g on g.id = e.target and g.name like 'PREV:*%%' join task s on s.id = e.source
        where g.number = %s and s.name like 'store%%' order by 1, 2, 3"""
    waits = [(row["number"], row["name"], row["item"]) for row in archive.sql(sources, 4)]
    assert waits == [(2, "store", "x"), (3, "store:completed", "")]
    behind = f"{strict}@4"
    archive.run("store/a@2", "store/x@2")
    if strict == "publish":
        archive.run("publish@3")
    archive.run("store/a@3")
    archive.fail("store/b@3")
    archive.run("store/c@3")
    assert archive.state(behind) == "waiting", "a failure that nobody waived"
    archive.skip("store/b@3")
    assert states(archive, behind) == ["completed" if strict == "COMMIT" else "ready"]


# What a long list costs


def test_a_failure_in_a_long_list_is_judged_without_reading_its_items_again(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first failure the gate of the list is skipped, and each further end says whether it still blocks later runs: its thousands of items are not read again for that."""
    read: list[int] = []
    follow = Graph.follow
    fetched = "select sum(idx_tup_fetch + seq_tup_read)::int as n from pg_stat_xact_user_tables where relname in ('edge', 'task')"

    def count(graph: Graph) -> int:
        return int(graph.conn.execute(fetched.encode()).fetchall()[0]["n"])

    def and_count(graph: Graph, *told: Any, **options: Any) -> None:
        before = count(graph)
        follow(graph, *told, **options)
        read[-1] += count(graph) - before  # a transaction that is tried again counts, too

    items = 900  # of a few dozens PostgreSQL rather reads and sorts all than go along the index
    archive = an_archive(session)
    # Plans depend on the pages that earlier tests have left, which autovacuum changes in its own time.
    archive.sql("vacuum full task, edge")
    some = f"foreach: {[str(n) for n in range(items)]}".replace("'", '"')
    archive.commit({"fetch": some, "store": f"{some}\ndepends: [fetch]", "index": "depends: [store]"})
    archive.sql("analyze task, edge")  # as autovacuum does in its own time
    claims = archive.claim_some(items)
    archive.record(claims[0].attempt, End.EXITED, 1)
    monkeypatch.setattr(Graph, "follow", and_count)
    for one, code in ((claims[1], 1), (claims[2], 0)):
        read.append(0)
        archive.record(one.attempt, End.EXITED, code)
    plan = archive.sql(
        "explain (generic_plan) select source from edge where target = $1 and not met and kind in ('depends', 'stopping') order by source desc"
    )
    assert 0 < min(read) <= max(read) < items / 2, (read, plan)
