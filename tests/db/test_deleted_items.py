"""Deletion and undeletion of an item of a list (design 5.27; docs/decisions/0001, point 25). After
each test, `arkqueue doctor` checks the graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from arkqueue.db.session import Session
from arkqueue.errors import Conflict, Forbidden, NotFound
from arkqueue.model import End, RunId
from arkqueue.queue import claim, control, deletion, holds, many, purge, reports, retrying
from arkqueue.queue.guards import Approver
from arkqueue.queue.holds import How
from arkqueue.queue.walk import alone
from arkqueue.states import RunState
from arkqueue.views import runs
from arkqueue.views.explain import explain
from arkqueue.views.reports import report
from arkqueue.views.search import search
from tests.builders import HOST, PROCESS, AnArchive, an_archive
from tests.db.test_races import Connect, InThread, wait_until_blocked

FETCH, CHECK = "foreach: [x, y]", "foreach: [x, y]\ndepends: [fetch]"
STEPS = {"fetch": FETCH, "check": CHECK, "index": "depends: [check]"}
"""Each item is fetched and checked; the index needs all items."""


@dataclass
class Items:
    """papers@2 with the steps above."""

    archive: AnArchive

    @property
    def run(self) -> RunId:
        return RunId(self.archive.run_id(2))

    def delete(self, item: str = "x", approver: Approver | None = None) -> None:
        deletion.delete_item(self.archive.session, self.run, item, "ann", approver)

    def undelete(self, item: str = "x", approver: Approver | None = None) -> None:
        deletion.undelete_item(self.archive.session, self.run, item, "ann", approver)

    def states(self) -> dict[str, str]:
        """By name and item, those of deleted items among them."""
        rows = self.archive.sql(
            "select name || case item when '' then '' else '/' || item end as key, state from task where number = 2 and kind = 'ordinary'"
        )
        return {row["key"]: row["state"] for row in rows}

    def shown(self) -> list[str]:
        """The names of the tasks that are shown with the run."""
        found = runs.run(self.archive.session, self.run).tasks
        return [task.full_name.partition("/")[2] for task in found if task.kind == "ordinary"]


@pytest.fixture
def items(session: Session) -> Items:
    archive = an_archive(session)
    archive.commit(STEPS)
    return Items(archive)


# What waits for an item


def test_a_deleted_item_is_canceled_and_what_waits_for_the_list_goes_on_without_it(items: Items) -> None:
    holds.hold(items.archive.session, items.archive.task("fetch/x@2"), "ann")
    items.archive.run("fetch/y@2", "check/y@2")
    assert items.archive.state("index@2") == "waiting"
    items.delete()
    assert items.states() == {
        "fetch/x": "canceled", "fetch/y": "completed", "check/x": "canceled", "check/y": "completed", "index": "ready",
    }  # fmt: skip


def test_what_was_skipped_because_of_a_failed_item_comes_back(items: Items) -> None:
    items.archive.fail("fetch/x@2")
    items.archive.run("fetch/y@2", "check/y@2")
    assert items.states() == {
        "fetch/x": "failed", "check/x": "skipped", "fetch/y": "completed", "check/y": "completed", "index": "skipped",
    }  # fmt: skip
    items.delete()
    assert items.states()["index"] == "ready"
    items.archive.run("index@2")
    assert runs.run(items.archive.session, items.run).state is RunState.COMPLETED


def test_another_failed_item_still_keeps_the_rest_from_running(items: Items) -> None:
    items.archive.fail("fetch/x@2", "fetch/y@2")
    items.delete()
    assert items.states()["index"] == "skipped"
    items.archive.retry("fetch/y@2")
    items.archive.run("fetch/y@2", "check/y@2")
    assert items.states()["index"] == "ready", "nothing waits for the deleted item any more"


def test_what_would_replace_the_work_of_a_later_revision_stays_skipped(items: Items) -> None:
    items.archive.fail("fetch/x@2")
    items.archive.run("fetch/y@2", "check/y@2")
    items.archive.commit({"index": ""})
    items.archive.run("index@3")
    items.delete()
    assert items.states()["index"] == "skipped"
    items.undelete()
    items.archive.retry("fetch/x@2", force=True)
    items.archive.run("fetch/x@2", "check/x@2")
    assert items.states()["index"] == "ready", "a person has forced it"


def test_a_later_revision_goes_on_without_a_deleted_item(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"store": "foreach: [x, y]"})
    archive.commit({"store": "foreach: [x, y]\ndepends: [PREV]"})
    archive.fail("store/x@2")
    archive.run("store/y@2")
    assert [archive.state(f"store/{item}@3") for item in "xy"] == ["waiting", "ready"]
    Items(archive).delete()
    assert archive.state("store/x@3") == "ready"


def test_what_needs_the_product_of_a_deleted_item_is_skipped(session: Session) -> None:
    """As where the whole run is deleted (rule 18)."""
    archive = an_archive(session)
    archive.commit({"store": "foreach: [x, y]", "publish": "foreach: [x, y]\ndepends: [store]"})
    archive.fail("store/x@2", "store/y@2")
    archive.trigger(2, "publish")
    assert [archive.state(f"publish/{item}@2.2") for item in "xy"] == ["waiting", "waiting"]
    Items(archive).delete()
    assert [archive.state(f"publish/{item}@2.2") for item in "xy"] == ["skipped", "waiting"]


def test_what_needs_a_product_that_a_deleted_item_would_have_made_is_skipped(session: Session) -> None:
    """The item failed in a task before the one that makes the product."""
    archive = an_archive(session)
    archive.commit({"fetch": FETCH, "store": CHECK, "publish": "foreach: [x, y]\ndepends: [store]"})
    archive.fail("fetch/x@2", "fetch/y@2")
    archive.trigger(2, "publish")
    assert [archive.state(f"publish/{item}@2.2") for item in "xy"] == ["waiting", "waiting"]
    Items(archive).delete()
    assert [archive.state(f"publish/{item}@2.2") for item in "xy"] == ["skipped", "waiting"]


def test_what_needs_the_product_of_a_deleted_item_is_skipped_when_the_failure_before_it_is_waived(
    session: Session,
) -> None:
    archive = an_archive(session)
    archive.commit(
        {"fetch": "", "store": "foreach: [x, y]\ndepends: [fetch]", "publish": "foreach: [x, y]\ndepends: [store]"}
    )
    archive.fail("fetch@2")
    archive.trigger(2, "publish")
    Items(archive).delete()
    archive.skip("fetch@2")
    assert [archive.state(f"publish/{item}@2.2") for item in "xy"] == ["skipped", "skipped"]


def needing(archive: AnArchive) -> Items:
    """papers@2.2 needs the products of two items, which were skipped because of a failure before
    the list; the first one is deleted.
    """
    archive.commit({"prepare": "", "store": "foreach: [x, y]\ndepends: [prepare]", "publish": CHECK.replace("fetch", "store")})  # fmt: skip
    archive.fail("prepare@2")
    archive.trigger(2, "publish")
    assert [archive.state(f"publish/{item}@2.2") for item in "xy"] == ["waiting", "waiting"]
    items = Items(archive)
    items.delete()
    return items


def test_what_needs_the_product_of_a_deleted_item_does_not_wait_for_a_failure_before_the_list(session: Session) -> None:
    """A retry of the failure brings the item back, but not once it is deleted."""
    archive = needing(an_archive(session)).archive
    assert [archive.state(f"publish/{item}@2.2") for item in "xy"] == ["skipped", "waiting"]
    found = explain(session, archive.task("publish/x@2.2"))
    assert "because papers@2/store/x was skipped" in found.reasons[0].text
    assert "and its item was deleted" in found.reasons[0].text
    assert found.reasons[0].commands == ["arkqueue undelete 'papers@2/*/x'"]
    with pytest.raises(Conflict, match="was skipped because of papers@2/store/x, whose item was deleted") as refused:
        archive.retry("publish/x@2.2")
    assert refused.value.remedy == "arkqueue undelete 'papers@2/*/x'"
    archive.retry("prepare@2")
    archive.run("prepare@2", "store/y@2")
    assert [archive.state(f"publish/{item}@2.2") for item in "xy"] == ["skipped", "ready"]


@pytest.mark.parametrize("is_repaired", [False, True])
def test_what_needs_the_product_of_an_item_waits_again_when_the_item_is_undeleted(
    session: Session, is_repaired: bool
) -> None:
    items = needing(an_archive(session))
    archive = items.archive
    if is_repaired:
        archive.retry("prepare@2")
        archive.run("prepare@2")
    items.undelete()
    assert archive.state("publish/x@2.2") == "waiting"
    if not is_repaired:
        archive.retry("prepare@2")
        archive.run("prepare@2")
    else:
        holds.release(session, archive.task("store/x@2"), "ann")
    archive.run("store/x@2")
    assert archive.state("publish/x@2.2") == "ready"


def test_what_needs_the_product_of_an_undeleted_item_is_skipped_again_if_the_product_is_lost_all_the_same(
    session: Session,
) -> None:
    items = needing(an_archive(session))
    items.archive.skip("prepare@2")
    items.undelete()
    assert items.archive.state("publish/x@2.2") == "skipped"
    items.archive.retry("prepare@2")
    assert items.archive.state("publish/x@2.2") == "waiting"


def test_what_needs_the_failure_of_a_deleted_item_is_skipped_because_of_the_failure_before_it_again(
    session: Session,
) -> None:
    """After the item is undeleted."""
    archive = an_archive(session)
    archive.commit({"prepare": "", "store": "foreach: [x]\ndepends: [prepare]"})
    archive.fail("prepare@2")
    Items(archive).delete()
    archive.commit({"store": "foreach: [x]\ndepends: [{task: PREV, when: failed}]"})
    root = "select r.name from task t join task r on r.id = t.root_id where t.id = %s"
    assert archive.sql(root, archive.task("store/x@3")) == [{"name": "store"}]
    Items(archive).undelete()
    assert archive.sql(root, archive.task("store/x@3")) == [{"name": "prepare"}]


@pytest.mark.parametrize("most", [1000, 0])
def test_what_needs_the_product_of_a_deleted_run_waits_again_when_the_run_is_undeleted(
    session: Session, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """``most``: a run of more tasks is deleted in steps."""
    monkeypatch.setattr(deletion, "MOST_TASKS", most)
    archive = an_archive(session)
    archive.commit({"prepare": "", "store": "depends: [prepare]", "publish": "depends: [store]"})
    archive.fail("prepare@2")
    archive.trigger(2, "store")
    archive.trigger(2, "publish")
    archive.skip("prepare@2")
    deletion.delete_run(session, RunId(archive.run_id(2, 2)), "ann")
    archive.retry("prepare@2")
    assert archive.state("publish@2.3") == "skipped"
    found = explain(session, archive.task("publish@2.3"))
    assert found.reasons[0].commands == ["arkqueue undelete papers@2.2"]
    deletion.undelete_run(session, RunId(archive.run_id(2, 2)), "ann")
    assert [archive.state("store@2.2"), archive.state("publish@2.3")] == ["held", "waiting"]


def test_a_list_of_which_every_item_is_deleted_passes(items: Items) -> None:
    items.delete("x")
    items.delete("y")
    assert items.states()["index"] == "ready"
    assert items.shown() == ["index"]


# What is refused


def test_an_item_of_which_a_command_runs_is_not_deleted(items: Items) -> None:
    items.archive.claim("fetch/x@2")
    with pytest.raises(Conflict, match="cannot be deleted: papers@2/fetch/x is running") as refusal:
        items.delete()
    assert refusal.value.remedy.startswith("arkqueue cancel 'papers@2/*/x'")
    assert items.shown() == ["fetch/x", "fetch/y", "check/x", "check/y", "index"]


def test_a_claim_that_is_under_way_keeps_its_item(items: Items, second_connection: Connect) -> None:
    """The claim has the task's row; the person waits for it, and is refused as it has started."""
    other, watcher = second_connection(), second_connection()
    with other.transaction():
        (claimed, _) = claim.claim_within(other, PROCESS, claim.Request(HOST, 1, claim.Turns()))
        deleting = InThread(items.delete)
        wait_until_blocked(watcher)
    with pytest.raises(Conflict, match="cannot be deleted: papers@2/fetch/x is running"):
        deleting.result()
    items.archive.record(claimed[0].attempt, End.EXITED, 0)
    assert items.states()["check/x"] == "ready"


def test_there_is_one_tombstone_and_none_of_what_is_no_item(items: Items) -> None:
    items.delete()
    with pytest.raises(Conflict, match=r"papers@2/\*/x: is deleted already"):
        items.delete()
    with pytest.raises(Conflict, match=r"papers@2/\*/y: is not deleted"):
        items.undelete("y")
    for act in (items.delete, items.undelete):
        with pytest.raises(NotFound, match="papers@2 has no item 'z'"):
            act("z")


def test_every_verb_on_a_deleted_item_and_its_tasks_is_refused(items: Items) -> None:
    session, archive = items.archive.session, items.archive
    items.delete()
    acts = {
        "cancel": control.cancel, "restart": control.restart, "retry": retrying.retry, "skip": control.skip,
        "refresh": retrying.refresh, "hold": holds.hold, "release": holds.release,
    }  # fmt: skip
    for verb, act in acts.items():
        with pytest.raises(Conflict, match="belongs to an item that was deleted") as refusal:
            act(session, archive.task("fetch/x@2"), "ann")
        assert refusal.value.remedy == "arkqueue undelete 'papers@2/*/x'"
        with pytest.raises(Conflict, match=r"papers@2/\*/x: was deleted"):
            many.act_on_item(session, items.run, "x", verb, alone(lambda task, act=act: act(session, task, "ann")))


def test_a_retry_of_the_run_or_of_what_comes_before_leaves_a_deleted_item_alone(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"mint": "", **STEPS, "fetch": f"{FETCH}\ndepends: [mint]"})
    archive.fail("mint@2")
    items = Items(archive)
    items.delete()
    done = many.retry_run(session, items.run, "ann")
    assert len(done.tasks) == 1
    archive.run("mint@2")
    assert {key: state for key, state in items.states().items() if key.endswith("/x")} == {
        "fetch/x": "skipped",
        "check/x": "skipped",
    }
    archive.run("fetch/y@2", "check/y@2")
    assert items.states()["index"] == "ready"
    items.undelete()
    assert items.states()["fetch/x"] == "held", "its root was retried meanwhile"
    holds.release(session, archive.task("fetch/x@2"), "ann")
    assert items.states()["fetch/x"] == "ready"


def test_what_is_guarded_takes_an_approver(session: Session) -> None:
    archive = an_archive(session)
    archive.sql('update archive set settings = settings || \'{"require_approval": ["check"]}\'')
    archive.commit(STEPS)
    items = Items(archive)
    with pytest.raises(Forbidden, match="is guarded by require-approval"):
        items.delete()
    items.delete(approver=Approver())
    with pytest.raises(Forbidden, match="is guarded by require-approval"):
        items.undelete()
    items.undelete(approver=Approver())
    assert items.states()["check/x"] == "held"


def test_nothing_of_a_stopped_archive_starts_because_of_a_deletion(items: Items) -> None:
    items.archive.fail("fetch/x@2")
    items.archive.run("fetch/y@2", "check/y@2")
    items.archive.sql("update archive set stopped = 'another UUID'")
    with pytest.raises(Conflict, match="stopped"):
        items.delete()
    assert items.states()["index"] == "skipped"
    items.archive.sql("update archive set stopped = null")


# What is shown


def test_a_deleted_item_is_in_no_list_count_or_state(items: Items) -> None:
    session = items.archive.session
    items.archive.fail("fetch/x@2")
    items.archive.run("fetch/y@2", "check/y@2")
    assert runs.run(session, items.run).state is RunState.FAILED
    items.delete()
    items.archive.run("index@2")
    found = runs.run(session, items.run)
    assert found.state is RunState.COMPLETED
    assert (found.counts.tasks, found.counts.completed, found.counts.failed, found.counts.canceled) == (3, 3, 0, 0)
    assert items.shown() == ["fetch/y", "check/y", "index"]
    assert not [edge for edge in found.edges if "/x" in edge.source_name + edge.target_name]
    told = explain(session, items.archive.task("check/x@2"))
    assert "its item was deleted" in str(told)


def test_a_deleted_item_is_not_found_by_a_search(items: Items) -> None:
    session = items.archive.session
    assert [task.full_name for task in search(session, "x", None, 10).items] == ["papers@2/check/x", "papers@2/fetch/x"]
    items.delete()
    assert search(session, "x", None, 10).items == []
    assert search(session, "y", None, 10).items


def test_a_report_tells_nothing_of_a_deleted_item_and_the_earlier_one_stays(items: Items) -> None:
    session = items.archive.session
    items.archive.fail("fetch/x@2")
    items.archive.run("fetch/y@2", "check/y@2")
    items.delete()
    assert runs.run(session, items.run).changed_since_report
    (first,) = runs.run(session, items.run).reports
    assert report(session, items.run, first.number).counts.failed == 1
    items.archive.run("index@2")
    made = reports.update_report(session, items.run, "ann")
    assert made.changes == 3, "the index, and two tasks that are gone"
    now = report(session, items.run)
    assert [(task.name, task.item) for task in now.deleted] == [("fetch", "x"), ("check", "x")]
    assert (now.counts.tasks, now.counts.failed) == (3, 0)
    assert [(task.name, task.item) for task in now.tasks] == [("index", ""), ("fetch", "y"), ("check", "y")]
    assert not runs.run(session, items.run).changed_since_report


def test_the_audit_log_says_who_deleted_and_undeleted_an_item(items: Items) -> None:
    items.delete()
    items.undelete()
    assert items.archive.sql("select by, verb, note, task_id from deed order by id") == [
        {"by": "ann", "verb": verb, "note": "papers@2/*/x", "task_id": None} for verb in ("delete", "undelete")
    ]


# Taking it back


def test_undelete_brings_back_as_held_what_the_deletion_canceled(items: Items) -> None:
    session, archive = items.archive.session, items.archive
    for item in "xy":
        holds.hold(session, archive.task(f"check/{item}@2"), "ann")
    archive.run("fetch/x@2", "fetch/y@2")
    for item in "xy":
        holds.release(session, archive.task(f"check/{item}@2"), "ann")
    items.delete()
    items.undelete()
    assert items.states() == {
        "fetch/x": "completed", "check/x": "held", "fetch/y": "completed", "check/y": "ready", "index": "waiting",
    }  # fmt: skip
    why = {task.full_name: task.why for task in runs.run(session, items.run).tasks}
    assert why["papers@2/check/x"] == "by ann: it was undeleted"
    archive.run("check/y@2")
    assert items.states()["index"] == "waiting", "it waits for the item again"
    holds.release(session, archive.task("check/x@2"), "ann", how=How())
    archive.run("check/x@2")
    assert items.states()["index"] == "ready"


def test_undelete_lets_failures_count_again(items: Items) -> None:
    items.archive.fail("fetch/x@2")
    items.delete()
    assert items.states()["index"] == "waiting"
    items.undelete()
    assert items.states()["index"] == "skipped"
    assert items.archive.sql("select waived from task where name = 'fetch' and item = 'x'") == [{"waived": False}]
    items.archive.retry("fetch/x@2")
    assert items.states()["index"] == "waiting"


def test_what_went_on_because_of_the_deletion_has_gone_on(items: Items) -> None:
    items.archive.fail("fetch/x@2")
    items.archive.run("fetch/y@2", "check/y@2")
    items.delete()
    items.archive.run("index@2")
    items.undelete()
    assert items.states() == {
        "fetch/x": "failed", "check/x": "skipped", "fetch/y": "completed", "check/y": "completed", "index": "completed",
    }  # fmt: skip
    assert runs.run(items.archive.session, items.run).state is RunState.FAILED
    items.archive.retry("fetch/x@2", force=True)
    items.archive.run("fetch/x@2", "check/x@2")
    assert runs.run(items.archive.session, items.run).state is RunState.COMPLETED


def test_what_a_person_canceled_before_stays_canceled(items: Items) -> None:
    items.archive.cancel("check/x@2")
    items.delete()
    items.undelete()
    assert (items.states()["fetch/x"], items.states()["check/x"], items.states()["index"]) == (
        "held",
        "canceled",
        "skipped",
    )


def test_a_live_poll_is_stopped_and_what_it_found_is_kept(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"deposit": "foreach: [x, y]\npoll: {command: ask, every: 1h}", "after": "depends: [deposit]"})
    archive.end("deposit/x@2", 75)
    archive.run("deposit/y@2")
    items = Items(archive)
    retrying.refresh(session, archive.task("deposit/x@2"), "ann")
    archive.claim("deposit/x@2")
    items.delete()
    assert (items.states()["deposit/x"], items.states()["after"]) == ("running", "ready")
    archive.end("deposit/x@2", 65)
    assert archive.sql("select waived from task where name = 'deposit' and item = 'x'") == [{"waived": True}]
    archive.run("after@2")
    assert runs.run(session, items.run).counts.rejected == 0


def test_a_poll_that_stops_brings_the_item_back_as_held(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"deposit": "foreach: [x]\npoll: {command: ask, every: 1h}"})
    archive.end("deposit/x@2", 75)
    items = Items(archive)
    retrying.refresh(session, archive.task("deposit/x@2"), "ann")
    archive.claim("deposit/x@2")
    items.delete()
    archive.end("deposit/x@2", None, End.STOPPED)
    assert items.states() == {"deposit/x": "canceled"}
    items.undelete()
    assert items.states() == {"deposit/x": "held"}


def test_a_gate_that_waits_again_does_not_pass_without_an_item_that_came_back_meanwhile(session: Session) -> None:
    """The model found it: the gate passed while the item was deleted, and was judged by what had moved alone."""
    archive = an_archive(session)
    archive.commit({"fetch": FETCH, "index": "depends: [fetch]"})
    items = Items(archive)
    archive.skip("fetch/y@2", as_completed=True)
    archive.skip("fetch/x@2")
    items.delete()
    assert items.states()["index"] == "ready"
    items.undelete()
    archive.retry("fetch/y@2")
    assert items.states() == {"fetch/x": "skipped", "fetch/y": "ready", "index": "skipped"}


# Beside the deletion of its run


def test_a_run_is_deleted_and_comes_back_without_its_deleted_item(items: Items) -> None:
    session = items.archive.session
    items.delete()
    deletion.delete_run(session, items.run, "ann")
    with pytest.raises(Conflict, match="papers@2: was deleted"):
        items.undelete()
    deletion.undelete_run(session, items.run, "ann")
    assert items.states() == {
        "fetch/x": "canceled", "check/x": "canceled", "fetch/y": "held", "check/y": "held", "index": "held",
    }  # fmt: skip
    items.undelete()
    assert {items.states()[key] for key in ("fetch/x", "check/x")} == {"held"}


def test_a_purge_takes_the_tombstone_along(items: Items) -> None:
    session = items.archive.session
    items.delete()
    control.cancel_run(session, items.run, "ann")
    purge.purge_runs(session, [items.run], "ann")
    assert items.archive.sql("select from deleted_item") == []


def test_what_is_deleted_in_a_trial_is_there_afterwards(items: Items) -> None:
    session = items.archive.session
    with session.rehearsal(items.archive.id) as trial:
        deletion.delete_item(trial, items.run, "x", "ann")
    assert items.shown() == ["fetch/x", "fetch/y", "check/x", "check/y", "index"]
