"""Backfills: a task over old revisions, with the definition of the head (issue 34; design 5.2,
5.11, 5.19).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db.session import Session
from arkqueue.errors import Conflict, Forbidden, Invalid, NotFound
from arkqueue.model import ArchiveId, BranchId, End, Item, RunId, SourceFile, Workflow
from arkqueue.queue import archives, backfill, control, deletion, holds, many, purge
from arkqueue.queue.backfill import Lists, Wanted
from arkqueue.queue.guards import Approver
from arkqueue.queue.holds import How
from arkqueue.views import backfills
from arkqueue.views.attention import FailuresOfBackfill, attention
from arkqueue.views.backfills import BackfillDetail
from arkqueue.views.doctor import examine
from arkqueue.views.explain import explain, explain_name
from arkqueue.views.needs import needs_of
from arkqueue.views.runs import run as view_of_run
from arkqueue.views.status import status
from arkqueue.workflow.parsing import parse
from tests.builders import AnArchive, a_workflow, an_archive, an_entry, no_lists
from tests.db.test_races import Connect, one_after_the_other

NEW = {"thumbs": "command: new"}


def fill(archive: AnArchive, first: int, last: int | None = None, *names: str, branch: str = "", **options: Any) -> int:
    place = archive.id, BranchId(archive.branches[branch].id)
    made = backfill.begin(
        archive.session, *place, first, last, names=names or ("thumbs",), by="ann", **{"force": False} | options
    )
    assert made is not None
    return made


def shown(archive: AnArchive, id: int) -> BackfillDetail:
    return backfills.backfill(archive.session, id)


def an_old_archive(session: Session, revisions: int = 5, head: Any = NEW, old: Any = None) -> AnArchive:
    """An archive whose head has a task that the revisions before it do not have, or have otherwise. The head's own is done."""
    archive = an_archive(session)
    for _ in range(revisions - 2):
        archive.commit(old or {})
    archive.commit(head)
    return archive


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backfill has several steps of few revisions."""
    monkeypatch.setattr(backfill, "FIRST_STEP", 5)
    monkeypatch.setattr(backfill, "STEP", 5)


def plan_all(archive: AnArchive) -> None:
    while backfill.plan(archive.session, no_lists) == 0.0:
        pass


def test_a_task_runs_at_old_revisions_with_the_definition_of_the_head_one_after_the_other(session: Session) -> None:
    archive = an_old_archive(session)
    id = fill(archive, 2)
    assert archive.states() == {
        "thumbs@2.2": "ready",
        "thumbs@3.2": "waiting",
        "thumbs@4.2": "waiting",
        "thumbs@5": "ready",
    }
    first = archive.claim("thumbs@2.2")
    assert (first.number, first.revision, first.trigger) == (2, "2", "manual")
    archive.run("thumbs@2.2", "thumbs@3.2", "thumbs@4.2")
    view = shown(archive, id)
    assert (view.full_name, view.definitions, view.revisions, view.planned) == ("papers@fill:1", "papers@5", 3, 3)
    assert (view.is_planned, view.counts.completed, view.failed, view.open) == (True, 3, [], [])
    run = view_of_run(session, archive.run_id(3, 2))
    assert (run.backfill, run.definitions, run.revision) == ("papers@fill:1", 5, "3")
    assert view_of_run(session, archive.run_id(3)).backfill is None


@pytest.mark.usefixtures("small_steps")
def test_what_is_committed_meanwhile_changes_no_definition_of_a_backfill(session: Session) -> None:
    archive = an_old_archive(session, 14)
    fill(archive, 2)
    archive.commit({"thumbs": "command: newer"})
    plan_all(archive)
    commands = archive.sql(
        "select distinct d.body->>'command' as c from task t join definition d on d.id = t.definition_id join run r on r.id = t.run_id where r.backfill_id is not null"
    )
    assert commands == [{"c": "new"}]
    assert len([key for key in archive.states() if key.endswith(".2")]) == 12


def test_a_failure_lets_the_next_revision_go_on_and_depends_prev_does_not(session: Session) -> None:
    archive = an_old_archive(session)
    id = fill(archive, 2)
    archive.fail("thumbs@2.2")
    assert archive.state("thumbs@3.2") == "ready"
    assert [run.full_name for run in shown(archive, id).failed] == ["papers@2.2"]
    strict = an_archive(session, "strict")
    strict.commit()
    strict.commit()
    strict.commit({"thumbs": "depends: [PREV]"})
    fill(strict, 2)
    strict.fail("thumbs@2.2")
    assert strict.state("thumbs@3.2") == "waiting"


def test_a_backfill_that_waits_says_which_of_its_runs_and_for_what(session: Session) -> None:
    archive = an_archive(session)
    archive.commit()
    archive.commit()
    archive.commit({"thumbs": "depends: [PREV]"})
    first = fill(archive, 3)
    archive.fail("thumbs@3.2")
    second = fill(archive, 2)
    assert [run.full_name for run in shown(archive, second).open] == ["papers@2.2"], "it is ready"
    archive.run("thumbs@2.2")
    assert [run.full_name for run in shown(archive, second).open] == ["papers@3.3"]
    told = explain_name(session, "papers@fill:2")
    assert told.full_name == "papers@fill:2"
    assert "papers@3.3/thumbs: It waits for papers@3.2/thumbs, which failed" in told.text
    assert told.commands == ["arkqueue retry papers@3.2/thumbs", "arkqueue skip papers@3.2/thumbs"]
    assert [run.full_name for run in shown(archive, first).failed] == ["papers@3.2"]
    archive.retry("thumbs@3.2")
    archive.run("thumbs@3.2", "thumbs@3.3")
    assert explain_name(session, "papers@fill:2").text == "All of its runs have ended."


def test_the_head_has_run_its_definition_itself_unless_it_is_named(session: Session) -> None:
    archive = an_old_archive(session, 4)
    archive.run("thumbs@4")
    with pytest.raises(
        Conflict,
        match=r"papers@4: is the head of its branch, which has run its own definitions. to run it again: --to 4",
    ):
        fill(archive, 4)
    fill(archive, 4, 4)
    assert archive.states() == {"thumbs@4": "completed", "thumbs@4.2": "ready"}


def test_new_commits_go_first_unless_a_person_says_otherwise(session: Session) -> None:
    archive = an_old_archive(session, head=NEW | {"idle": "priority: 900"})
    id = fill(archive, 2, None, "thumbs", "idle")
    assert [f"{c.name}@{c.number}" for c in archive.claim_some(3)] == ["thumbs@5", "thumbs@2", "idle@5"], (
        "a higher number stays"
    )
    assert backfill.prioritize(session, id, 10, "ann").tasks
    assert {
        row["priority"]
        for row in archive.sql("select priority from task where run = 2 and kind = 'ordinary' and attempts = 0")
    } == {10}


def test_it_waits_for_the_products_that_its_definition_needs(session: Session) -> None:
    archive = an_archive(session)
    archive.commit()
    archive.commit({"index": ""})
    archive.commit({"index": ""})
    archive.commit({"index": "", "thumbs": "depends: [index]"})
    with pytest.raises(
        Conflict, match=r"papers@2: thumbs needs index, which has never run on this branch.*--without index"
    ):
        fill(archive, 2)
    assert not archive.sql("select from backfill")
    archive.run("index@3")
    fill(archive, 3)
    assert archive.state("thumbs@3.2") == "ready"
    archive.run("thumbs@3.2")
    assert archive.state("thumbs@4.2") == "waiting"
    assert "papers@4/index" in explain(session, archive.task("thumbs@4.2")).text
    fill(archive, 2, 2, without=["index"])
    assert archive.state("thumbs@2.2") == "ready"


def test_a_revision_whose_product_will_not_come_has_a_failed_run_and_the_others_go_on(session: Session) -> None:
    archive = an_archive(session)
    for _ in range(3):
        archive.commit({"index": ""})
    archive.commit({"index": "", "thumbs": "depends: [index]"})
    archive.cancel("index@3")
    archive.run("index@2", "index@4")
    id = fill(archive, 2)
    archive.run("thumbs@2.2", "thumbs@4.2")
    assert archive.state("thumbs@3.2") == "skipped"
    assert view_of_run(session, archive.run_id(3, 2)).state == "failed"
    assert shown(archive, id).counts.completed == 2


def test_it_is_refused_where_the_task_has_completed_later_unless_it_is_forced(session: Session) -> None:
    archive = an_old_archive(session)
    archive.run("thumbs@5")
    with pytest.raises(
        Conflict,
        match=r"papers@2: would replace the work of later revisions: papers@5/thumbs completed. to go back on purpose: arkqueue trigger papers --from 2 --to 4 --force thumbs",
    ):
        fill(archive, 2)
    fill(archive, 2, force=True)
    archive.run("thumbs@2.2", "thumbs@3.2")


def test_what_a_backfill_completed_never_counts_as_newer_work(session: Session) -> None:
    archive = an_old_archive(session, old={"thumbs": "command: old"})
    archive.fail("thumbs@2", "thumbs@3", "thumbs@4")
    first = fill(archive, 3)
    archive.run("thumbs@3.2")
    assert archive.sql("select highest_number, highest_run, commit_number from completion") == [
        {"highest_number": None, "highest_run": None, "commit_number": None}
    ]
    archive.retry("thumbs@2")
    archive.run("thumbs@2", "thumbs@4.2")
    assert archive.sql("select highest_number as h from completion") == [{"h": 2}], "its own definition completed it"
    fill(archive, 2, 2)  # a second backfill is not refused for the first one
    archive.trigger(2, "thumbs")
    assert shown(archive, first).counts.completed == 2
    assert examine(session).findings == []
    archive.claim()
    base = archive.sql("select a.base from attempt a join task t on t.id = a.task_id where t.number = 2 and t.run = 2")
    assert base == [{"base": "4"}], "BASE goes by time"


def test_a_task_that_a_later_one_has_superseded_is_refused_unless_forced(session: Session) -> None:
    archive = an_old_archive(session, 4, {"thumbs": "cancels: [PREV]"})
    with pytest.raises(Conflict, match="papers@2: thumbs is superseded by thumbs of revision 4"):
        fill(archive, 2)
    fill(archive, 2, force=True)
    archive.run("thumbs@2.2", "thumbs@3.2")


def test_bad_wishes_are_told_and_nothing_is_made(session: Session) -> None:
    archive = an_old_archive(session)
    for refused, match, given in (
        (
            Invalid,
            "papers@5: has no task 'thumb'. did you mean thumbs",
            {"first": 2, "last": None, "names": ("thumb",)},
        ),
        (
            Invalid,
            "a backfill: would begin at revision 4, which comes after its last one, 3.*--from 3 --to 4",
            {"first": 4, "last": 3},
        ),
        (Conflict, "papers@5: is the head, and its branch has no revision from 70 to 80", {"first": 70, "last": 80}),
        (Conflict, "papers@5: is the head, and its branch has no revision from 70 on", {"first": 70, "last": None}),
        (
            Conflict,
            "papers@5: is the newest revision: there is no revision 99 yet.*--to 5 at most",
            {"first": 2, "last": 99},
        ),
        (
            Conflict,
            "papers@5: is the newest revision, and the oldest one is 1: there is no revision 0.*--from 1",
            {"first": 0, "last": 3},
        ),
        (
            Conflict,
            "papers@5: is the head of its branch, which has run its own definitions",
            {"first": 5, "last": None},
        ),
    ):
        with pytest.raises(refused, match=match):
            fill(archive, given["first"], given["last"], *given.get("names", ()))  # type: ignore[arg-type, misc, call-overload]
    archive.append("", [an_entry(6, a_workflow("- name: a\n  command: x"))])
    with pytest.raises(Invalid, match="papers@6: has no task 'thumbs'"):
        fill(archive, 2)
    assert not archive.sql("select from backfill")


def test_a_head_with_faults_gives_no_definition(session: Session) -> None:
    from tests.builders import faulty

    archive = an_old_archive(session)
    archive.commit(faulty())
    with pytest.raises(Conflict, match="papers@6: its workflow files have faults"):
        fill(archive, 2)


def test_items_of_a_list_wait_for_the_same_item_of_the_revision_before(session: Session) -> None:
    archive = an_old_archive(session, 4, {"thumbs": "foreach: [one, two]"})
    fill(archive, 2)
    states = "select item, state from task where name = 'thumbs' and number = %s and run = 2 order by item"
    one, two = archive.sql("select id, item from task where name = 'thumbs' and number = 2 and run = 2 order by item")
    assert archive.sql(states, 3) == [{"item": "one", "state": "waiting"}, {"item": "two", "state": "waiting"}]
    claims = {claim.task: claim for claim in archive.claim_some(10)}
    archive.record(claims[one["id"]].attempt, End.EXITED, 1)
    assert archive.sql(states, 3) == [{"item": "one", "state": "ready"}, {"item": "two", "state": "waiting"}]
    archive.record(claims[two["id"]].attempt, End.EXITED, 0)
    assert archive.sql(states, 3) == [{"item": "one", "state": "ready"}, {"item": "two", "state": "ready"}]


# Lists in files


FILE = "- name: thumbs\n  foreach: {file: items.txt}\n  command: x\n"


def over(*keys: str) -> Workflow:
    """A workflow over a list file that has these items."""
    text = "\n".join(keys).encode()
    return parse([SourceFile("_workflows/a.yaml", FILE.encode())], lambda path: SourceFile(path, text))


def read(wanted: Wanted, *keys: str, fault: str = "") -> Lists:
    """As if these were the items of the list file at a revision."""
    return Lists(wanted, {("items.txt", None): tuple(Item(key, f'"{key}"') for key in keys)}, fault)


def items(archive: AnArchive) -> dict[str, str]:
    """The state of each item of thumbs, by number, run and key."""
    rows = archive.sql(
        "select number, run, item, state::text from task where name = 'thumbs' and item <> '' order by id"
    )
    return {f"{row['number']}.{row['run']} {row['item']}": row["state"] for row in rows}


def test_a_list_file_is_that_of_each_revision_and_not_that_of_the_head(session: Session) -> None:
    archive = an_old_archive(session, 6, head=over("new"))
    branch = BranchId(archive.branches[""].id)
    first = backfill.wanted_first(session, branch, 2, ["thumbs"])
    assert first is not None
    assert (first.revision, first.files) == (archive.revisions["", 2], (("items.txt", None),))
    fill(archive, 2, lists=read(first, "a", "b"))
    assert items(archive) == {"2.2 a": "ready", "2.2 b": "ready", "6.1 new": "ready"}
    asked: list[int] = []

    def some(_: Session, __: ArchiveId, wanted: Sequence[Wanted]) -> list[Lists]:
        asked.append(len(wanted))
        return [read(one, f"of{one.revision - first.revision}", "b") for one in wanted[:2]]

    assert backfill.plan(session, some) == 0.0
    assert backfill.plan(session, some) == 0.0
    assert backfill.plan(session, some) is None
    assert asked == [3, 1]
    archive.run("thumbs/a@2.2", "thumbs/b@2.2", "thumbs/b@3.2", "thumbs/of1@3.2", "thumbs/of2@4.2")
    assert items(archive) == {
        "2.2 a": "completed", "2.2 b": "completed", "3.2 of1": "completed", "3.2 b": "completed", "4.2 of2": "completed",
        "4.2 b": "running", "5.2 of3": "running", "5.2 b": "waiting", "6.1 new": "running",
    }  # fmt: skip
    assert examine(session).findings == []


def test_a_backfill_is_asked_for_anew_where_the_head_has_moved_since_its_list_was_read(session: Session) -> None:
    archive = an_old_archive(session, head=over("new"))
    branch = BranchId(archive.branches[""].id)
    first = backfill.wanted_first(session, branch, 2, ["thumbs"])
    assert first is not None
    archive.commit(over("newer"))
    given = {"names": ["thumbs"], "by": "ann", "force": True}
    assert backfill.begin(session, archive.id, branch, 2, None, lists=read(first, "a"), **given) is None
    assert backfill.begin(session, archive.id, branch, 2, None, **given) is None
    assert not archive.sql("select id from backfill")


def test_a_list_that_is_faulty_fails_the_run_of_its_revision_and_is_refused_at_the_first(session: Session) -> None:
    archive = an_old_archive(session, 4, head=over("new"))
    first = backfill.wanted_first(session, BranchId(archive.branches[""].id), 2, ["thumbs"])
    assert first is not None
    with pytest.raises(Conflict, match=r"papers@2: items.txt: is not there.*--from"):
        fill(archive, 2, lists=read(first, fault="items.txt: is not there"))
    id = fill(archive, 2, lists=read(first))
    assert shown(archive, id).counts.tasks == 0
    assert backfill.plan(session, lambda *_: [read(first, "a")]) == 0.0, "a list of another revision is no use"
    wanted = backfill.wanted(session, id, 10)
    assert [one.revision for one in wanted] == [archive.revisions["", 3]]
    assert backfill.plan(session, lambda *_: [read(wanted[0], fault="items.txt: is not there")]) == 0.0
    assert [run.full_name for run in shown(archive, id).failed] == ["papers@3.2"]
    again = "arkqueue trigger papers --from 3 --to 3 thumbs"
    failed = RunId(archive.run_id(3, 2))
    with pytest.raises(
        Conflict, match=f"papers@3.2: has no task to retry, as it could not start.*delete papers@3.2.*{again}"
    ):
        many.retry_run(session, failed, "ann")
    told = explain_name(session, "papers@3.2")
    assert (
        "items.txt: is not there. No commit changes an old revision. Delete this run to leave its revision out"
        in told.text
    )
    assert told.commands == ["arkqueue show papers@3.2", "arkqueue delete papers@3.2", again]
    assert needs(session) == [FailuresOfBackfill("papers@fill:1", failed=0, rejected=0, unsent=0, unstarted=1)]
    deletion.delete_run(session, failed, "ann")
    assert not shown(archive, id).failed
    assert not needs(session)
    deletion.undelete_run(session, failed, "ann")
    anew = backfill.wanted_first(session, BranchId(archive.branches[""].id), 3, ["thumbs"])
    assert anew is not None
    fill(archive, 3, 3, lists=read(anew, "a"))
    assert archive.state("thumbs/a@3.3") == "ready"


def needs(session: Session) -> list[FailuresOfBackfill]:
    """The backfills that need a person."""
    return [one for of in attention(session, None, 10, 10).backfills for one in of.shown]


def test_a_backfill_distinguishes_its_tasks_from_its_reports_and_forgets_waived_failures(session: Session) -> None:
    archive = an_old_archive(session, 5, head={**NEW, "REPORT": ""})
    id = fill(archive, 2, 4)
    plan_all(archive)
    archive.fail("thumbs@2.2")
    archive.end("thumbs@3.2", 65)
    archive.run("REPORT@2.2", "REPORT@3.2", "thumbs@4.2")
    archive.fail("REPORT@4.2")
    assert needs(session) == [FailuresOfBackfill("papers@fill:1", failed=1, rejected=1, unsent=1, unstarted=0)]
    (need,) = needs_of(session, None, [], []).lines
    assert need.text == "1 of its tasks failed, and 1 of its tasks was rejected, and 1 of its reports could not be sent"
    text = explain_name(session, "papers@fill:1").text
    assert "\npapers@4.2/REPORT: It failed" in text
    assert "papers@4.2: papers@4.2/" not in text
    archive.skip("thumbs@2.2")
    assert needs(session) == [FailuresOfBackfill("papers@fill:1", failed=0, rejected=1, unsent=1, unstarted=0)]
    control.note(session, "known", "ann", run=RunId(archive.run_id(3, 2)), task=archive.task("thumbs@3.2"))
    assert needs(session) == [FailuresOfBackfill("papers@fill:1", failed=0, rejected=0, unsent=1, unstarted=0)]
    assert [run.full_name for run in shown(archive, id).failed] == ["papers@4.2"]


def test_a_backfill_waits_for_a_repository_that_does_not_give_its_lists_and_holds_up_no_other(session: Session) -> None:
    archive = an_old_archive(session, 4, head=over("new"))
    first = backfill.wanted_first(session, BranchId(archive.branches[""].id), 2, ["thumbs"])
    assert first is not None
    waits = fill(archive, 2, lists=read(first, "a"))
    other = an_archive(session, name="other")
    for _ in range(20):
        other.commit()
    other.commit(NEW)
    goes_on = fill(other, 2)
    assert backfill.plan(session, no_lists) == 0.0
    assert backfill.plan(session, no_lists) == backfill.PAUSE_AFTER_ERROR
    assert (shown(archive, waits).planned, shown(other, goes_on).is_planned) == (1, True)
    assert shown(other, goes_on).waits is None


def test_a_backfill_says_why_it_waits_and_since_when_until_it_goes_on(session: Session) -> None:
    archive = an_old_archive(session, 4, head=over("new"))
    first = backfill.wanted_first(session, BranchId(archive.branches[""].id), 2, ["thumbs"])
    assert first is not None
    id = fill(archive, 2, lists=read(first, "a"))
    assert (shown(archive, id).waits, shown(archive, id).waits_since) == (None, None)
    backfill.plan(session, no_lists)
    view = shown(archive, id)
    assert view.waits == f"its lists cannot be read: {no_lists()}"
    backfill.plan(session, lambda *_: "another fault")
    assert shown(archive, id).waits == "its lists cannot be read: another fault"
    assert shown(archive, id).waits_since == view.waits_since
    archive.sql("update archive set stopped = 'papers: it is another repository.'")
    assert shown(archive, id).waits == (
        "its archive is stopped: papers: it is another repository. To go on: arkqueue archive rewind papers REV"
    )
    archive.sql("update archive set stopped = null")
    wanted = backfill.wanted(session, id, 10)
    assert backfill.plan(session, lambda *_: [read(wanted[0], "a")]) == 0.0
    assert (shown(archive, id).is_planned, shown(archive, id).waits, shown(archive, id).waits_since) == (
        True,
        None,
        None,
    )


# Many revisions


@pytest.mark.usefixtures("small_steps")
def test_a_long_backfill_is_planned_in_steps_that_anybody_continues(session: Session) -> None:
    archive = an_old_archive(session, 14)
    id = fill(archive, 2)
    assert (shown(archive, id).planned, shown(archive, id).is_planned) == (backfill.STEP, False)
    assert backfill.plan(session, no_lists) == 0.0
    assert shown(archive, id).planned == 2 * backfill.STEP
    plan_all(archive)
    assert (shown(archive, id).planned, shown(archive, id).is_planned) == (12, True)
    assert backfill.plan(session, no_lists) is None
    for number in range(2, 14):
        archive.run(f"thumbs@{number}.2")
    assert shown(archive, id).counts.completed == 12


@pytest.mark.usefixtures("small_steps")
def test_two_that_plan_at_once_make_each_run_once(session: Session, second_connection: Connect) -> None:
    archive = an_old_archive(session, 22)
    id = fill(archive, 2)
    for planner in one_after_the_other(
        archive, second_connection, *[lambda: backfill.plan(session, no_lists, 10.0)] * 2
    ):
        planner.result()
    assert shown(archive, id).planned == 3 * backfill.STEP
    plan_all(archive)
    runs = archive.sql("select number, count(*) as n from run where backfill_id is not null group by number")
    assert {run["n"] for run in runs} == {1}
    assert len(runs) == 20


@pytest.mark.usefixtures("small_steps")
def test_a_stopped_archive_is_planned_no_further_until_it_goes_on(session: Session) -> None:
    archive = an_old_archive(session, 14)
    id = fill(archive, 2)
    archive.sql("update archive set stopped = 'another repository'")
    assert backfill.plan(session, no_lists) is None
    archive.sql("update archive set stopped = null")
    plan_all(archive)
    assert shown(archive, id).planned == 12


def test_a_backfill_ends_with_its_branch(session: Session) -> None:
    archive = an_archive(session, branches=("main", "side"))
    for _ in range(30):
        archive.commit(branch="side")
    archive.commit(NEW, branch="side")
    id = fill(archive, 2, branch="side")
    archives.untrack(session, archive.id, BranchId(archive.branches["side"].id))
    plan_all(archive)
    assert (shown(archive, id).is_planned, shown(archive, id).fault) == (True, "its branch or archive is gone")


def test_dropped_revisions_are_left_out(session: Session) -> None:
    archive = an_old_archive(session, 4)
    archive.append("", [an_entry(5, a_workflow(NEW))], dropped=["3", "4"])
    id = fill(archive, 2)
    assert [key for key in archive.states() if key.endswith(".2")] == ["thumbs@2.2"]
    assert shown(archive, id).revisions == 1


def test_a_dropped_revision_counts_if_its_run_was_planned(session: Session) -> None:
    archive = an_old_archive(session, 4)
    id = fill(archive, 2)
    assert (shown(archive, id).revisions, shown(archive, id).planned) == (2, 2)
    archive.append("", [an_entry(5, a_workflow(NEW))], dropped=["3", "4"])
    assert (shown(archive, id).revisions, shown(archive, id).planned) == (2, 2)


def test_a_revision_that_cannot_be_planned_any_more_has_a_failed_run_with_the_reason(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"index": ""})
    for _ in range(40):
        archive.commit()
    archive.commit({"index": "", "thumbs": "depends: [index]"})
    id = fill(archive, 2)
    backfill.plan(session, no_lists)
    archive.run("index@2", *[f"thumbs@{number}.2" for number in range(2, 27)])
    purge.purge_runs(session, [RunId(archive.run_id(2))], "ann")
    archive.sql("delete from completion where name = 'index'")  # as nothing remembers it, nothing can be waited for
    plan_all(archive)
    run = view_of_run(session, archive.run_id(30, 2))
    assert (run.state, [task.name for task in run.tasks if task.kind == "ordinary"]) == ("failed", [])
    assert "thumbs needs index, which has never run" in run.faults[0].message
    assert shown(archive, id).failed[0].full_name == "papers@27.2"


# All of a backfill


@pytest.mark.usefixtures("small_steps")
def test_a_hold_keeps_also_what_is_planned_later_until_a_release(session: Session) -> None:
    archive = an_old_archive(session, 14)
    id = fill(archive, 2)
    assert len(backfill.hold(session, id, "ann", "the disk is full").tasks) == backfill.STEP
    plan_all(archive)
    assert shown(archive, id).counts.held == 12
    assert "It is held with its backfill by ann" in explain(session, archive.task("thumbs@12.2")).text
    assert len(backfill.release(session, id, "ann").tasks) == 12
    assert archive.state("thumbs@2.2") == "ready"
    with pytest.raises(Conflict, match="papers@fill:1: has no held task"):
        backfill.release(session, id, "ann")


@pytest.mark.usefixtures("small_steps")
def test_a_release_in_the_middle_lets_what_is_planned_later_go(session: Session) -> None:
    archive = an_old_archive(session, 14)
    id = fill(archive, 2)
    backfill.hold(session, id, "ann")
    backfill.release(session, id, "ann")
    plan_all(archive)
    assert shown(archive, id).counts.held == 0


def test_what_a_refused_release_leaves_held_is_still_held_with_its_backfill(session: Session) -> None:
    archive = an_old_archive(session)
    archive.run("thumbs@5")
    id = fill(archive, 2, force=True)
    backfill.hold(session, id, "ann", "the disk is full")
    with pytest.raises(Conflict, match="would replace the work of later revisions"):
        backfill.release(session, id, "ann")
    told = explain(session, archive.task("thumbs@2.2"))
    assert "It is held with its backfill by ann" in told.text
    assert told.reasons[0].commands[0] == "arkqueue release papers@fill:1 --force"


@pytest.mark.usefixtures("small_steps")
def test_a_cancellation_ends_the_planning_and_what_runs(session: Session) -> None:
    archive = an_old_archive(session, 14)
    id = fill(archive, 2)
    archive.claim("thumbs@2.2")
    done = backfill.cancel(session, id, "ann")
    assert len(done.tasks) == backfill.STEP
    assert archive.sql("select stop from task where id = %s", archive.task("thumbs@2.2")) == [{"stop": "cancel"}]
    plan_all(archive)
    view = shown(archive, id)
    assert (view.planned, view.counts.canceled, view.fault) == (backfill.STEP, backfill.STEP - 1, "canceled by ann")
    archive.end("thumbs@2.2", None, End.STOPPED)
    with pytest.raises(Conflict, match="papers@fill:1: has nothing left to cancel"):
        backfill.cancel(session, id, "ann")


def between_portions(archive: AnArchive, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> list[list[int]]:
    """Let verbs on a backfill take two runs with each transaction, and act before each, when nobody has locked the archive; returns the runs of each as they come."""
    seen: list[list[int]] = []
    portions = holds._portions  # private: what decides when the archive is free
    for module in (holds, backfill):
        monkeypatch.setattr(module, "MOST_RUNS", 2)

    def few(runs: Sequence[Any]) -> Iterator[list[int]]:
        for portion in portions(runs):
            archive.sql("select id from archive for update nowait")
            act()
            seen.append(portion)
            yield portion

    monkeypatch.setattr(holds, "_portions", few)
    return seen


def test_nothing_of_a_large_backfill_starts_while_it_is_canceled_the_oldest_runs_first(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = {"thumbs": "", "gate": "depends: [thumbs] # gate", "next": "depends: [gate, PREV]"}
    archive = an_old_archive(session, 9, head=head)
    control.cancel_run(session, RunId(archive.run_id(9)), "ann")
    id = fill(archive, 2, None, "thumbs", "gate", "next")
    plan_all(archive)
    archive.claim("thumbs@2.2")
    seen = between_portions(archive, monkeypatch, lambda: archive.claim_some(9) == [] or pytest.fail("it started"))
    done = backfill.cancel(session, id, "ann")
    assert len(done.tasks) == 7 * 3
    assert seen == [sorted(portion) for portion in seen]
    assert len(seen) == 4
    archive.end("thumbs@2.2", None, End.STOPPED)
    view = shown(archive, id)
    assert (view.counts.canceled, view.counts.tasks) == (21, 21)
    assert examine(session).findings == []
    many.retry_run(session, RunId(archive.run_id(3, 2)), "ann")
    assert archive.state("thumbs@3.2") == "ready", "what a cancellation held is not held again"


def test_the_explanation_of_a_held_backfill_names_the_release_of_the_backfill(session: Session) -> None:
    archive = an_old_archive(session, 7)
    holds.hold_archive(session, archive.id, "ann", "the disk")
    fill(archive, 2)
    told = explain_name(session, "papers@fill:1").commands
    assert told[:2] == ["arkqueue unhold papers", "arkqueue release papers --all"]
    assert "arkqueue release papers@fill:1" in told
    assert not [command for command in told if re.fullmatch(r"arkqueue release papers@[0-9.]+", command)]


def test_what_a_cancellation_of_a_backfill_has_not_reached_is_held_and_canceled_by_the_next(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_old_archive(session, 7)
    id = fill(archive, 2)
    control.cancel_run(session, RunId(archive.run_id(7)), "ann")
    seen = between_portions(archive, monkeypatch, lambda: 1 / 0 if len(seen) == 1 else None)
    with pytest.raises(ZeroDivisionError):
        backfill.cancel(session, id, "ann")
    assert shown(archive, id).counts.canceled == 2
    assert shown(archive, id).counts.held == 3
    told = explain(session, archive.task("thumbs@6.2"))
    assert "(a cancellation that has not come to its end)" in told.text
    assert told.commands[0] == "arkqueue cancel papers@fill:1"
    assert "arkqueue cancel papers@fill:1" in [need.command for need in status(session, None, None, lease=30.0).needs]
    assert archive.claim_some(9) == []
    assert examine(session).findings == []
    monkeypatch.undo()
    assert len(backfill.cancel(session, id, "bob").tasks) == 3


def test_a_cancellation_of_a_backfill_that_takes_long_says_what_is_left(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_old_archive(session, 7)
    id = fill(archive, 2)
    between_portions(archive, monkeypatch, lambda: None)
    monkeypatch.setattr(backfill, "LONGEST", -1.0)
    assert backfill.cancel(session, id, "ann").left == 5
    assert shown(archive, id).is_planned
    monkeypatch.undo()
    with session.rehearsal(archive.id) as rehearsal:
        assert len(backfill.cancel(rehearsal, id, "ann").tasks) == 5
    assert len(backfill.cancel(session, id, "ann").tasks) == 5


def test_a_cancellation_of_a_large_backfill_leaves_guarded_tasks_as_they_are(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_archive(session)
    archives.change_settings(session, archive.id, ArchiveSettings(process=True, require_approval=("review",)), "ann")
    for _ in range(5):
        archive.commit()
    archive.commit({"review": "", "thumbs": ""})
    id = fill(archive, 2, None, "review", "thumbs")
    approver = Approver(("bob",))
    backfill.release(session, id, "bob", how=How(approver=approver))
    between_portions(archive, monkeypatch, lambda: None)
    done = backfill.cancel(session, id, "mallory")
    assert (len(done.tasks), len(done.refused)) == (5, 5)
    assert [archive.state(f"review@{number}.2") for number in (2, 3)] == ["ready", "waiting"]
    assert len(backfill.cancel(session, id, "bob", approver).tasks) == 5


@pytest.mark.usefixtures("small_steps")
def test_a_priority_counts_for_what_is_planned_later_and_for_good(session: Session) -> None:
    archive = an_old_archive(session, 14)
    id = fill(archive, 2)
    backfill.prioritize(session, id, 7, "ann")
    plan_all(archive)
    rows = archive.sql("select distinct priority, prioritized from task where run = 2 and kind = 'ordinary'")
    assert rows == [{"priority": 7, "prioritized": True}]


def test_a_priority_counts_for_what_is_held(session: Session) -> None:
    archive = an_old_archive(session)
    id = fill(archive, 2)
    backfill.hold(session, id, "ann")
    with pytest.raises(Conflict, match=r"papers@fill:1: is held already \(3 tasks\), by ann since"):
        backfill.hold(session, id, "bob")
    assert len(backfill.prioritize(session, id, 7, "ann").tasks) == 3
    assert archive.sql("select distinct priority from task where run = 2 and kind = 'ordinary'") == [{"priority": 7}]


def test_what_is_refused_changes_nothing(session: Session) -> None:
    archive = an_old_archive(session)
    id = fill(archive, 2)
    archive.run("thumbs@2.2", "thumbs@3.2", "thumbs@4.2")
    before = archive.sql("select * from backfill"), archive.sql("select * from deed")
    with pytest.raises(Conflict, match="papers@fill:1: has no unstarted task"):
        backfill.hold(session, id, "ann")
    with pytest.raises(Conflict, match="papers@fill:1: has no unstarted task"):
        backfill.prioritize(session, id, 3, "ann")
    assert (archive.sql("select * from backfill"), archive.sql("select * from deed")) == before


def test_what_was_done_is_in_the_audit_log(session: Session) -> None:
    archive = an_old_archive(session)
    id = fill(archive, 2)
    backfill.hold(session, id, "bob", "why")
    backfill.release(session, id, "bob")
    backfill.prioritize(session, id, 5, "bob")
    backfill.cancel(session, id, "bob")
    assert [(d["by"], d["verb"], d["note"]) for d in archive.sql("select by, verb, note from deed order by id")] == [
        ("ann", "trigger", "papers@fill:1: arkqueue trigger papers --from 2 --to 4 thumbs"),
        ("bob", "hold", "papers@fill:1: why"),
        ("bob", "release", "papers@fill:1"),
        ("bob", "prioritize", "papers@fill:1: 5"),
        ("bob", "cancel", "papers@fill:1"),
    ]


def test_a_deleted_and_a_purged_run_of_it_keep_nobody_waiting(session: Session) -> None:
    archive = an_old_archive(session)
    id = fill(archive, 2)
    deletion.delete_run(session, RunId(archive.run_id(2, 2)), "ann")
    assert archive.state("thumbs@3.2") == "ready"
    archive.run("thumbs@3.2")
    purge.purge_runs(session, [RunId(archive.run_id(2, 2)), RunId(archive.run_id(3, 2))], "ann", "old")
    archive.run("thumbs@4.2")
    assert shown(archive, id).counts.completed == 1
    assert examine(session).findings == []


# Guards


def test_files_that_nobody_accepted_give_no_definition(session: Session) -> None:
    archive = an_archive(session)
    settings = ArchiveSettings(process=True, workflow_authors=("ann",))
    archive.commit()
    archives.change_settings(session, archive.id, settings, "ann")
    archive.commit({"thumbs": ""}, author="mallory")
    with pytest.raises(
        Conflict, match=r"papers@3: its workflow files are not accepted.*releasing the run: arkqueue release papers@3"
    ):
        fill(archive, 2)


def test_the_author_of_the_definitions_approves_nothing_of_a_backfill(session: Session) -> None:
    archive = an_archive(session)
    settings = ArchiveSettings(process=True, require_approval=("thumbs",), approval_not_author=True)
    archives.change_settings(session, archive.id, settings, "ann")
    archive.commit(author="ann")
    archive.commit({"thumbs": ""}, author="mallory")
    id = fill(archive, 2)
    assert archive.state("thumbs@2.2") == "held"
    with pytest.raises(Conflict, match="you are the author of the revision whose workflow files its backfill has"):
        backfill.release(session, id, "m", how=How(approver=Approver(("mallory",))))
    with pytest.raises(Forbidden, match="you are the author"):
        backfill.cancel(session, id, "m", Approver(("mallory",)))
    assert backfill.release(session, id, "bob", how=How(approver=Approver(("bob",)))).tasks


def test_a_backfill_leaves_out_no_guarded_task(session: Session) -> None:
    archive = an_archive(session)
    archives.change_settings(session, archive.id, ArchiveSettings(process=True, require_approval=("review",)), "ann")
    archive.commit()
    archive.commit({"review": "", "thumbs": "depends: [review]"})
    with pytest.raises(Forbidden, match="papers@3: would leave out review"):
        fill(archive, 2, without=["review"])


def test_there_is_no_backfill_of_that_number(session: Session) -> None:
    archive = an_old_archive(session)
    with pytest.raises(NotFound, match=r"papers@fill:1: does not exist. The archive has none"):
        backfills.find_backfill(session, archive.id, "papers", 1)
    fill(archive, 2)
    fill(archive, 2)
    assert [view.full_name for view in backfills.backfills(session, archive.id)] == ["papers@fill:2", "papers@fill:1"]
    with pytest.raises(NotFound, match=r"papers@fill:9: does not exist. The newest is papers@fill:2"):
        backfills.find_backfill(session, archive.id, "papers", 9)
