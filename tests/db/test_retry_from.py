"""Running a part of a run again: ``retry RUN --from TASK`` (design 5.30; decision
0001, point 30).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db import session as sessions
from arkqueue.db.session import Session
from arkqueue.errors import Conflict, Forbidden, NotFound
from arkqueue.model import ArchiveId, BranchId, End, Outcome, RunId, TaskId
from arkqueue.plan import Entry
from arkqueue.queue import archives, control, deletion, finish, holds, many, redo
from arkqueue.queue import done as steps_of
from arkqueue.queue.done import MOST_TASKS, Done
from arkqueue.queue.graph import Graph
from arkqueue.queue.guards import Approver
from arkqueue.views import runs, tasks
from arkqueue.views.doctor import examine
from arkqueue.views.explain import explain
from arkqueue.views.needs import needs_of
from tests.builders import NOTHING, PROCESS, AnArchive, a_revision, an_archive
from tests.db.test_races import Connect, one_after_the_other

CHAIN = {"a": "", "b": "depends: [a]", "c": "depends: [b]", "beside": ""}
LIST = "foreach: [x, y]"
ITEMS = {"fetch": LIST, "pack": f"{LIST}\ndepends: [fetch]", "publish": "depends: [pack]"}


def retry_from(archive: AnArchive, name: str, *, number: int = 2, **options: Any) -> Done:
    return redo.retry_from(archive.session, RunId(archive.run_id(number)), name, "bob", **options)


def interrupted(archive: AnArchive, *stopped: str) -> list[tuple[str, str]]:
    """The runs that ``status`` lists because a retry --from was interrupted, with the commands.
    ``stopped``: the names of the stopped archives.
    """
    lines = needs_of(archive.session, None, [], [], stopped=stopped).lines
    return [(need.name, need.command) for need in lines if "--from" in need.text]


def names(archive: AnArchive, tasks: Sequence[int]) -> list[str]:
    rows = archive.sql("select id, name, item from task")
    found = {row["id"]: row["name"] + (f"/{row['item']}" if row["item"] else "") for row in rows}
    return sorted(found[task] for task in tasks)


def of_items(archive: AnArchive) -> dict[str, str]:
    rows = archive.sql("select name, item, state from task where kind = 'ordinary' order by name, item")
    return {row["name"] + (f"/{row['item']}" if row["item"] else ""): row["state"] for row in rows}


def retried(archive: AnArchive) -> dict[str, int]:
    """How often persons retried each task of revision 2."""
    found = runs.run(archive.session, RunId(archive.run_id(2)))
    return {
        task.name: tasks.task(archive.session, TaskId(task.id)).retry_count
        for task in found.tasks
        if task.name != "COMMIT"
    }


def test_retries_by_persons_are_counted_and_nothing_else(archive: AnArchive) -> None:
    archive.commit({**CHAIN, "again": "retries: {max: 3, delay: 6h}"})
    archive.fail("a@2", "again@2")
    archive.sql("update task set due_at = clock_timestamp() where state = 'deferred'")
    finish.wake_deferred(archive.session)
    assert retried(archive) == {"a": 0, "b": 0, "c": 0, "beside": 0, "again": 0}, "an automatic retry is no person's"
    archive.fail("again@2")
    archive.retry("again@2")  # deferred: tried at once
    archive.retry("a@2")
    assert retried(archive) == {"a": 1, "b": 0, "c": 0, "beside": 0, "again": 1}, (
        "b and c come back, and were not retried"
    )
    archive.run("a@2", "b@2", "c@2", "beside@2", "again@2")
    retry_from(archive, "b")
    assert retried(archive) == {"a": 1, "b": 1, "c": 1, "beside": 0, "again": 1}
    run = RunId(archive.run_id(2))
    deletion.delete_run(archive.session, run, "bob")
    deletion.undelete_run(archive.session, run, "bob")
    assert retried(archive)["c"] == 1, "what a deletion took and its end brings back was not retried"


# What runs again


def test_a_task_runs_again_and_everything_behind_it_and_nothing_else(archive: AnArchive) -> None:
    archive.commit(CHAIN)
    archive.run("a@2", "b@2", "c@2", "beside@2")
    done = retry_from(archive, "b")
    assert names(archive, done.tasks) == ["b", "c"]
    assert archive.states() == {"a@2": "completed", "b@2": "ready", "c@2": "waiting", "beside@2": "completed"}
    assert archive.state("REPORT@2") == "completed", "the run has reported, and does so again when somebody asks for it"
    archive.run("b@2", "c@2")
    assert set(archive.states().values()) == {"completed"}
    attempts = archive.sql("select name, attempts from task where kind = 'ordinary' order by name")
    assert [row["attempts"] for row in attempts] == [1, 2, 1, 2]


@pytest.mark.parametrize("code", [1, 65])
def test_it_goes_on_before_a_step_that_failed_or_rejected_its_input(archive: AnArchive, code: int) -> None:
    archive.commit(CHAIN)
    archive.run("a@2", "beside@2")
    archive.end("b@2", code)
    retry_from(archive, "a")
    assert archive.states() == {"a@2": "ready", "b@2": "waiting", "c@2": "waiting", "beside@2": "completed"}
    archive.run("a@2", "b@2", "c@2")


def test_what_has_not_started_waits_again_and_what_is_deferred_starts_anew(archive: AnArchive) -> None:
    tasks = {"b": "depends: [a]", "d": "depends: [a]", "gate": "depends: [a]\n# gate", "e": "depends: [gate, b]"}
    archive.commit({"a": ""} | tasks)
    archive.sql("update task set priority = 1 where name = 'd'")
    archive.run("a@2")
    (deferred,) = archive.claim_some(1)
    archive.record(deferred.attempt, End.EXITED, 75)
    still = {"b@2": "ready", "d@2": "deferred", "gate@2": "completed", "e@2": "waiting"}
    assert archive.states() == {"a@2": "completed"} | still
    done = retry_from(archive, "a")
    assert names(archive, done.tasks) == ["a", "d", "gate"]
    assert archive.states() == {"a@2": "ready"} | dict.fromkeys(still, "waiting")
    archive.run("a@2", "b@2", "d@2", "e@2")


def test_what_a_person_skipped_or_another_failure_skips_stays_skipped(archive: AnArchive) -> None:
    archive.commit(
        {"a": "", "bad": "", "b": "depends: [a]", "c": "depends: [b]", "d": "depends: [a, bad]", "e": "depends: [a]"}
    )
    archive.skip("b@2")
    archive.run("a@2", "e@2")
    archive.fail("bad@2")
    before = archive.states()
    assert before == {"a@2": "completed", "bad@2": "failed"} | dict.fromkeys(("b@2", "c@2", "d@2"), "skipped") | {
        "e@2": "completed"
    }
    done = retry_from(archive, "a")
    assert names(archive, done.tasks) == ["a", "e"]
    assert archive.states() == before | {"a@2": "ready", "e@2": "waiting"}


def test_what_completed_after_a_failure_that_was_retried_is_skipped_if_that_fails_again(archive: AnArchive) -> None:
    """`c` completed as `bad` was waived as completed. Since then `bad` was retried, and has failed again."""
    archive.commit({"a": "", "bad": "", "c": "depends: [a, bad]"})
    archive.run("a@2")
    archive.fail("bad@2")
    archive.skip("bad@2", as_completed=True)
    archive.run("c@2")
    archive.retry("bad@2")
    archive.fail("bad@2")
    assert archive.state("c@2") == "completed"
    retry_from(archive, "a")
    assert archive.states() == {"a@2": "ready", "bad@2": "failed", "c@2": "skipped"}


def test_a_waiver_is_lifted_and_what_needs_a_product_in_another_run_comes_back(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "depends: [a]", "use": "depends: [b]\non: [manual]"})
    archive.run("a@2")
    archive.fail("b@2")
    archive.trigger(2, "use")
    archive.skip("b@2")
    assert archive.state("use@2.2") == "skipped"
    retry_from(archive, "a")
    assert (archive.state("b@2"), archive.state("use@2.2")) == ("waiting", "waiting")
    archive.run("a@2", "b@2")
    archive.run("use@2.2")


def test_a_task_that_runs_only_after_a_failure_is_judged_again(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "depends: [a]", "mend": "depends: [{task: b, when: failed}]"})
    archive.run("a@2", "b@2")
    assert archive.state("mend@2") == "skipped"
    retry_from(archive, "a")
    assert archive.state("mend@2") == "waiting"
    archive.run("a@2")
    archive.fail("b@2")
    archive.run("mend@2")
    retry_from(archive, "b")
    archive.run("b@2")
    assert archive.state("mend@2") == "skipped"


def test_a_held_approval_step_is_not_held_a_second_time_once_it_was_released(archive: AnArchive) -> None:
    archive.commit({"a": "", "approve": "depends: [a]\nhold: true", "b": "depends: [approve]"})
    holds.release(archive.session, archive.task("approve@2"), "ann")
    archive.run("a@2", "approve@2", "b@2")
    retry_from(archive, "a")
    archive.run("a@2", "approve@2", "b@2")


# Lists


def test_of_one_item_only_that_item_runs_again(archive: AnArchive) -> None:
    archive.commit(ITEMS)
    archive.run("fetch/x@2", "fetch/y@2", "pack/x@2", "pack/y@2", "publish@2")
    done = retry_from(archive, "fetch", item="x")
    assert names(archive, done.tasks) == ["fetch/x", "pack/x"]
    still = {"fetch/y": "completed", "pack/y": "completed", "publish": "completed"}
    assert of_items(archive) == still | {"fetch/x": "ready", "pack/x": "waiting"}
    archive.run("fetch/x@2", "pack/x@2")
    assert set(of_items(archive).values()) == {"completed"}


def test_an_item_that_failed_lets_what_waits_for_the_list_come_back(archive: AnArchive) -> None:
    archive.commit(ITEMS)
    archive.run("fetch/x@2", "fetch/y@2", "pack/y@2")
    archive.fail("pack/x@2")
    assert archive.state("publish@2") == "skipped"
    retry_from(archive, "fetch", item="x")
    assert archive.state("publish@2") == "waiting"
    archive.run("fetch/x@2", "pack/x@2", "publish@2")


def test_of_a_run_all_items_run_again_and_what_waits_for_their_list(archive: AnArchive) -> None:
    archive.commit(ITEMS)
    archive.run("fetch/x@2", "fetch/y@2", "pack/x@2", "pack/y@2", "publish@2")
    done = retry_from(archive, "pack")
    assert names(archive, done.tasks) == ["pack/x", "pack/y", "publish"]
    archive.run("pack/x@2")
    assert archive.state("publish@2") == "waiting"
    archive.run("pack/y@2", "publish@2")


def test_an_item_that_cannot_come_back_keeps_no_other_from_it(archive: AnArchive) -> None:
    archive.commit(ITEMS)
    archive.fail("fetch/x@2")
    archive.run("fetch/y@2", "pack/y@2")
    done = retry_from(archive, "pack")
    assert names(archive, done.tasks) == ["pack/y"]
    (refused,) = done.refused
    assert (names(archive, [refused.task]), refused.why.fault) == (
        ["pack/x"],
        "was skipped because of papers@2/fetch/x, which is failed",
    )
    assert archive.state("publish@2") == "skipped"


# What is refused


def refused(archive: AnArchive, match: str, name: str, error: type[Exception] = Conflict, **options: Any) -> None:
    before = archive.sql("select id, state, unmet, waived from task order by id"), archive.sql("select * from deed")
    with pytest.raises(error, match=match):
        retry_from(archive, name, **options)
    after = archive.sql("select id, state, unmet, waived from task order by id"), archive.sql("select * from deed")
    assert after == before


def test_an_older_revision_never_replaces_the_work_of_a_newer_one_unasked(archive: AnArchive) -> None:
    for _ in range(2):
        archive.commit(CHAIN | {"c": "depends: [b, PREV]"})
    archive.run("a@2", "b@2", "c@2", "a@3", "b@3")
    later = r"papers@3/a, papers@3/b completed. to go back on purpose: arkqueue retry papers@2 --from a --force"
    refused(archive, later, "a")
    archive.run("c@3")
    refused(archive, "tasks of later revisions have started after it: papers@3/c", "c")
    retry_from(archive, "a", force=True)
    assert archive.state("a@2") == "ready"


def test_a_superseded_task_comes_back_only_by_force_unless_what_superseded_it_runs_again_too(
    archive: AnArchive,
) -> None:
    archive.commit({"a": "", "slow": "depends: [a]", "b": "depends: [a]\ncancels: [slow]", "x": ""})
    archive.run("a@2")
    assert archive.state("slow@2") == "canceled"
    archive.run("b@2")
    refused(archive, "papers@2/slow: is superseded by papers@2/b", "slow")
    retry_from(archive, "a")
    assert (archive.state("slow@2"), archive.state("b@2")) == ("waiting", "waiting")
    archive.run("a@2", "b@2")
    archive.commit({"x": "cancels: [PREV:a]"})
    archive.run("x@3")
    refused(archive, "a is superseded by x of revision 3", "a")


def test_what_runs_is_not_run_again_beside_itself(archive: AnArchive) -> None:
    archive.commit(CHAIN)
    archive.run("a@2")
    archive.claim("b@2")
    refused(
        archive, "would run tasks again that are running: papers@2/b. Wait until they have ended, or cancel them", "a"
    )
    refused(archive, "would run tasks again that are running: papers@2/b", "b")
    refused(
        archive,
        "papers@2/c: is waiting: it has not ended, so there is nothing to retry. arkqueue explain papers@2/c",
        "c",
    )
    holds.hold(archive.session, archive.task("c@2"), "ann")
    refused(
        archive, "papers@2/c: is held: it has not ended, so there is nothing to retry. arkqueue release papers@2/c", "c"
    )


@pytest.mark.parametrize("field", ["poll: {command: q}\ndeadline: 9d", "on_lost: fail"])
@pytest.mark.parametrize("start", ["fetch", "deposit"])
def test_a_second_deposit_is_made_on_purpose_only(archive: AnArchive, field: str, start: str) -> None:
    archive.commit({"fetch": "", "deposit": f"depends: [fetch]\n{field}"})
    archive.run("fetch@2")
    archive.end("deposit@2", 75)
    second = rf"run once \(poll, on_lost: fail\): papers@2/deposit. To do it nevertheless: arkqueue retry papers@2 --from {start} --from-start"
    refused(archive, second, start)
    archive.sql("update task set due_at = now() where state = 'deferred'")
    finish.wake_deferred(archive.session)
    archive.run("deposit@2")
    refused(archive, second, start)
    retry_from(archive, start, from_start=True)
    if start == "fetch":
        archive.run("fetch@2")
    claim = archive.claim("deposit@2")
    assert archive.sql("select kind from attempt where id = %s", claim.attempt) == [{"kind": "run"}]


def test_a_lost_command_that_may_have_deposited_runs_again_on_purpose_only(archive: AnArchive) -> None:
    archive.commit({"deposit": "on_lost: fail\nforeach: [x, y]", "after": "depends: [deposit]"})
    session, run = archive.session, RunId(archive.run_id(2))
    archive.end("deposit/x@2", None, End.LOST)
    archive.fail("deposit/y@2")
    done = many.retry_failed(session, run, "ann")
    assert (names(archive, done.tasks), len(done.refused)) == (["deposit/y"], 1)
    assert str(done.refused[0].why) == (
        "papers@2/deposit/x: was lost, and its command is meant to run once (on_lost: fail): find out whether it has done its work. "
        "If it has not: arkqueue retry papers@2/deposit/x --from-start. If it has: arkqueue skip papers@2/deposit/x --as-completed"
    )
    again: list[Callable[[], object]] = [
        lambda: archive.retry("deposit/x@2"),
        lambda: archive.retry("deposit/x@2", force=True),
        lambda: many.retry_failed_of_archive(session, ArchiveId(archive.id), "ann"),
        lambda: retry_from(archive, "deposit", item="x"),
    ]
    for verb in again:
        with pytest.raises(Conflict, match="--from-start"):
            verb()
    assert archive.state("deposit/x@2") == "failed"
    archive.retry("deposit/x@2", from_start=True)
    archive.run("deposit/x@2")


def test_a_lost_command_that_was_canceled_runs_again_on_purpose_only(archive: AnArchive) -> None:
    archive.commit({"deposit": "on_lost: fail", "other": ""})
    for name in ("deposit", "other"):
        attempt = archive.attempt(f"{name}@2")
        archive.cancel(f"{name}@2")
        archive.record(attempt, End.LOST, None)
    assert archive.states() == {"deposit@2": "canceled", "other@2": "canceled"}
    archive.retry("other@2")
    with pytest.raises(Conflict, match=r"its work\. If it has not: arkqueue retry papers@2/deposit --from-start$"):
        archive.retry("deposit@2")
    assert explain(archive.session, archive.task("deposit@2")).commands == [
        "arkqueue retry papers@2/deposit --from-start"
    ]
    archive.retry("deposit@2", from_start=True)


def test_a_deposit_that_failed_is_polled_again_after_what_it_needs(archive: AnArchive) -> None:
    archive.commit({"fetch": "", "deposit": "depends: [fetch]\npoll: {command: q}"})
    archive.run("fetch@2")
    archive.end("deposit@2", 75)
    archive.sql("update task set due_at = now() where state = 'deferred'")
    finish.wake_deferred(archive.session)
    archive.fail("deposit@2")
    retry_from(archive, "fetch")
    archive.run("fetch@2")
    claim = archive.claim("deposit@2")
    assert archive.sql("select kind from attempt where id = %s", claim.attempt) == [{"kind": "poll"}]


def test_a_task_that_another_failure_skips_is_not_where_it_goes_on(archive: AnArchive) -> None:
    archive.commit(CHAIN)
    archive.fail("a@2")
    refused(archive, "papers@2/b: was skipped because of papers@2/a, which is failed. arkqueue retry papers@2/a", "b")


def test_a_name_that_is_not_in_the_run_is_answered_with_those_that_are(archive: AnArchive) -> None:
    archive.commit(ITEMS)
    refused(archive, r"papers@2: has no task 'fetsch'. Did you mean fetch\?", "fetsch", NotFound)
    refused(archive, r"papers@2/\*/z: has no task 'fetch'", "fetch", NotFound, item="z")
    refused(archive, r"papers@2/\*/x: has no task 'publish'. It has: fetch, pack", "publish", NotFound, item="x")
    refused(archive, "REPORT: exists in every run and cannot be retried", "REPORT")


def test_what_is_guarded_takes_an_approver_also_behind_the_task(archive: AnArchive) -> None:
    settings = ArchiveSettings(process=True, require_approval=("publish",))
    archives.change_settings(archive.session, archive.id, settings, "ann")
    archive.commit({"build": "", "publish": "depends: [build]"})
    holds.release(archive.session, archive.task("publish@2"), "bob", how=holds.How(approver=Approver()))
    archive.run("build@2", "publish@2")
    refused(archive, "papers@2/publish: is guarded by require-approval", "build", Forbidden)
    retry_from(archive, "build", approver=Approver())
    archive.run("build@2", "publish@2")


def test_a_deleted_run_is_left_alone(archive: AnArchive) -> None:
    archive.commit(CHAIN)
    archive.cancel("a@2")
    deletion.delete_run(archive.session, RunId(archive.run_id(2)), "ann")
    refused(archive, "papers@2: was deleted", "a")


def test_a_deleted_item_is_left_alone_and_the_rest_goes_on_without_it(archive: AnArchive) -> None:
    archive.commit(ITEMS)
    archive.run("fetch/x@2", "fetch/y@2", "pack/y@2")
    archive.fail("pack/x@2")
    deletion.delete_item(archive.session, RunId(archive.run_id(2)), "x", "ann")
    archive.run("publish@2")
    refused(archive, r"papers@2/\*/x: was deleted. arkqueue undelete 'papers@2/\*/x'", "fetch", item="x")
    done = retry_from(archive, "fetch")
    assert names(archive, done.tasks) == ["fetch/y", "pack/y", "publish"]
    archive.run("fetch/y@2", "pack/y@2", "publish@2")


def test_the_audit_log_says_from_where_and_how(archive: AnArchive) -> None:
    archive.commit(ITEMS)
    archive.run("fetch/x@2")
    retry_from(archive, "fetch", item="x", force=True, from_start=True)
    (entry,) = archive.sql("select by, verb, run_id, note from deed where verb = 'retry'")
    note = "*/x --from fetch --force --from-start"
    assert entry == {"by": "bob", "verb": "retry", "run_id": archive.run_id(2), "note": note}


# Many tasks, and others at the same time


@pytest.mark.full
def test_a_large_part_comes_back_in_bounded_transactions(session: Session) -> None:
    many = MOST_TASKS + 500
    archive = an_archive(session)
    archive.commit({"a": ""} | {f"t{n}": "depends: [a]" for n in range(many)})
    archive.sql("update task set state = 'canceled', settled_at = now(), by = 'ann' where name like 't%%'")
    archive.sql("update task set unmet = 0 where kind = 'report'")
    archive.run("a@2")
    archive.sql("update edge set met = true where not met")
    archive.sql("update task set unmet = 0 where name like 't%%'")
    done = retry_from(archive, "a")
    assert len(done.tasks) == many + 1
    sizes = [row["n"] for row in archive.sql("select count(*) as n from task where kind = 'ordinary' group by xmin")]
    assert max(sizes) <= MOST_TASKS
    states = archive.sql(
        "select state, unmet, count(*) as n from task where kind = 'ordinary' group by 1, 2 order by n"
    )
    assert states == [{"state": "ready", "unmet": 0, "n": 1}, {"state": "waiting", "unmet": 1, "n": many}]
    archive.run("a@2")
    assert len(archive.claim_some(2 * many)) == many


def test_a_trial_says_of_a_large_part_what_comes_back(archive: AnArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if its time is over after the first step: the part is judged as a whole."""
    archive.commit({"a": "", "b": "depends: [a]", "c": "depends: [b]"})
    archive.run("a@2", "b@2", "c@2")
    for module in (redo, steps_of):
        monkeypatch.setattr(module, "MOST_TASKS", 1)
    monkeypatch.setattr(sessions, "LONGEST_REHEARSAL", 0.0)
    with archive.session.rehearsal(archive.id) as trial:
        done = redo.retry_from(trial, RunId(archive.run_id(2)), "a", "ann")
    assert (names(archive, done.tasks), done.left) == (["a", "b", "c"], 0)
    assert set(archive.states().values()) == {"completed"}


def test_a_part_is_judged_in_as_many_statements_however_many_items_it_has(
    archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    ask = Graph.rows

    def counts(self: Graph, block: str, /, **parameters: Any) -> list[Any]:
        nonlocal asked
        asked += 1
        return ask(self, block, **parameters)

    found = []
    for number, items in ((2, ["x"]), (3, ["x", "y", "z", "p", "q"])):
        listed = f"foreach: [{', '.join(items)}]"
        archive.commit({"fetch": listed, "store": f"{listed}\ndepends: [fetch]"})
        for name in ("fetch", "store"):
            archive.run(*(f"{name}/{key}@{number}" for key in items))
        with monkeypatch.context() as counting:
            counting.setattr(Graph, "rows", counts)
            assert len(retry_from(archive, "fetch", number=number).tasks) == 2 * len(items)
        found.append(asked)
        asked = 0
    assert found[0] == found[1] > 0


def in_steps(archive: AnArchive, monkeypatch: pytest.MonkeyPatch, between: Any) -> None:
    """One task with each transaction; `between` them something happens."""
    monkeypatch.setattr(redo, "MOST_TASKS", 1)
    monkeypatch.setattr(steps_of, "MOST_TASKS", 1)
    assert archive

    def portions(tasks: Sequence[int], *alone: Any) -> Iterator[Sequence[int]]:
        for portion in steps_of.portions(tasks, *alone):
            between()
            yield portion

    monkeypatch.setattr(control, "portions", portions)


def test_nothing_of_a_large_part_starts_before_all_of_it_waits(
    archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.commit(CHAIN | {"d": "depends: [c]\nlock: x", "e": "depends: [b]\n# gate"})
    archive.run("a@2", "b@2")
    archive.sql("update task set priority = 1 where name = 'c'")
    (c,) = archive.claim_some(1)
    archive.record(c.attempt, End.EXITED, 0)
    assert (archive.state("d@2"), archive.state("beside@2")) == ("ready", "running")
    seen: list[int] = []
    in_steps(archive, monkeypatch, lambda: seen.append(len(archive.claim_some(100))))
    done = retry_from(archive, "a")
    assert (names(archive, done.tasks), seen) == (["a", "b", "c", "e"], [0, 0, 0])
    waiting = dict.fromkeys(("b@2", "c@2", "d@2", "e@2"), "waiting")
    assert archive.states() == {"a@2": "ready", "beside@2": "running"} | waiting
    archive.run("a@2", "b@2", "c@2", "d@2")


def steps_that_have_run(archive: AnArchive, keys: str) -> list[str]:
    """Two steps over one list, and a task that needs all of the first; all have completed. Returns the
    names of the steps' tasks.
    """
    listed = f"foreach: [{', '.join(keys)}]"
    archive.commit({"fetch": listed, "store": f"{listed}\ndepends: [fetch]", "index": "depends: [fetch]"})
    steps = [f"{name}/{key}@2" for name in ("fetch", "store") for key in keys]
    archive.run(*steps, "index@2")
    return steps


def test_a_long_list_comes_back_though_its_first_items_run_before_its_last_are_back(
    archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = steps_that_have_run(archive, "xyzp")
    claimed: list[str] = []

    def run_all() -> None:
        while claims := archive.claim_some(100):
            claimed.extend(names(archive, [claim.task for claim in claims]))
            for claim in claims:
                archive.record(claim.attempt, End.EXITED, 0)

    in_steps(archive, monkeypatch, run_all)
    done = retry_from(archive, "fetch")
    assert (len(done.tasks), done.left) == (9, 0)
    assert "fetch/x" in claimed, "the first items ran before the last came back"
    assert "index" not in claimed
    run_all()
    assert sorted(claimed) == sorted(["index", *(name.removesuffix("@2") for name in first)])
    assert set(archive.states().values()) == {"completed"}


@pytest.mark.parametrize("back", [1, 2])
@pytest.mark.parametrize("runs", ["fetch", "store", ""])
def test_a_list_that_breaks_off_among_its_first_items_is_completed_by_the_command_given_again(
    archive: AnArchive, monkeypatch: pytest.MonkeyPatch, back: int, runs: str
) -> None:
    """It brings back the other items alone while those that are back run, or what follows them."""
    steps_that_have_run(archive, "xyz")
    claims: list[Any] = []

    def break_off() -> None:
        claims.extend(archive.claim_some(100))
        if len(claims) == back:
            raise ZeroDivisionError

    in_steps(archive, monkeypatch, break_off)
    with pytest.raises(ZeroDivisionError):
        retry_from(archive, "fetch")
    monkeypatch.undo()
    told = explain(archive.session, archive.task("store/z@2"))
    assert (told.text.count("was interrupted before it reached this task"), told.commands) == (
        1,
        ["arkqueue retry papers@2 --from fetch"],
    )
    assert interrupted(archive) == [("papers@2", "arkqueue retry papers@2 --from fetch")]
    assert interrupted(archive, "papers") == [("papers@2", "arkqueue explain papers@2")]
    broken = examine(archive.session).findings
    assert {finding.check for finding in broken} == {"met"}
    assert all("a retry with --from was interrupted, repeat that command" in finding.remedy for finding in broken)
    for claim in claims if runs != "fetch" else []:
        archive.record(claim.attempt, End.EXITED, 0)
    running = [*claims, *archive.claim_some(100)] if runs else []
    done = retry_from(archive, "fetch")
    assert done.left == 0
    assert interrupted(archive) == []
    again = [f"fetch/{key}" for key in "xyz"[back if runs else 0 :]]
    assert [name for name in names(archive, done.tasks) if name.startswith("fetch")] == again
    for claim in running:
        if archive.sql("select id from attempt where id = %s and ended_at is null", claim.attempt):
            archive.record(claim.attempt, End.EXITED, 0)
    while claims := archive.claim_some(100):
        for claim in claims:
            archive.record(claim.attempt, End.EXITED, 0)
    assert set(archive.states().values()) == {"completed"}


def test_while_an_item_runs_its_list_is_run_again_by_no_other_command(archive: AnArchive) -> None:
    archive.commit({"fetch": "foreach: [x, y]", "index": "depends: [fetch]"})
    archive.run("fetch/x@2", "fetch/y@2", "index@2")
    retry_from(archive, "fetch")
    archive.run("fetch/x@2")
    archive.claim("fetch/y@2")
    refused(archive, "running: papers@2/fetch/y. Wait until they have ended, or cancel them", "fetch")


def test_a_task_that_had_completed_and_fails_when_it_runs_again_needs_a_person(archive: AnArchive) -> None:
    archive.commit({"fetch": "foreach: [x, y]", "index": "depends: [fetch]"})
    archive.run("fetch/x@2", "fetch/y@2", "index@2")
    retry_from(archive, "fetch")
    archive.fail("fetch/x@2")
    (need,) = needs_of(archive.session, None, [], []).lines
    assert (need.name, need.command) == ("papers@2/fetch/x", "arkqueue retry papers@2/fetch/x")
    archive.commit({"fetch": "foreach: [x, y]"})
    archive.run("fetch/x@3")
    assert needs_of(archive.session, None, [], []).lines == [], "a later revision has repaired it"


@pytest.mark.parametrize("of_item", [False, True])
def test_what_waits_for_a_canceled_task_that_was_not_reached_is_told_to_repeat_the_command(
    archive: AnArchive, monkeypatch: pytest.MonkeyPatch, of_item: bool
) -> None:
    archive.commit({"fetch": "foreach: [x]", "store": "foreach: [x]\ndepends: [fetch]"})
    control.cancel_run(archive.session, RunId(archive.run_id(2)), "eve")
    in_steps(archive, monkeypatch, lambda: archive.state("store/x@2") == "waiting" and 1 / 0)
    options = {"item": "x", "force": True} if of_item else {}
    with pytest.raises(ZeroDivisionError):
        retry_from(archive, "fetch", **options)
    monkeypatch.undo()
    told = explain(archive.session, archive.task("store/x@2"))
    assert told.commands == [
        "arkqueue retry 'papers@2/*/x' --from fetch --force" if of_item else "arkqueue retry papers@2 --from fetch"
    ]
    assert interrupted(archive) == [("papers@2", *told.commands)]
    retry_from(archive, "fetch", **options)
    assert interrupted(archive) == []
    archive.run("fetch/x@2", "store/x@2")


def test_what_breaks_off_waits_until_the_command_is_given_again(
    archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.commit(CHAIN)
    archive.run("a@2", "b@2", "c@2", "beside@2")
    in_steps(archive, monkeypatch, lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        retry_from(archive, "a")
    assert archive.claim_some(100) == []
    monkeypatch.undo()
    retry_from(archive, "a")
    archive.run("a@2", "b@2", "c@2")


def test_it_takes_nothing_back_of_a_cancellation_that_comes_meanwhile(
    archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.commit(CHAIN)
    archive.run("a@2", "b@2", "c@2", "beside@2")
    canceled: list[Done] = []

    def cancel() -> None:
        if not canceled:
            canceled.append(control.cancel_run(archive.session, RunId(archive.run_id(2)), "eve"))

    in_steps(archive, monkeypatch, cancel)
    done = retry_from(archive, "a")
    assert (names(archive, done.tasks), names(archive, canceled[0].tasks), done.left) == (["b"], ["b"], 2)
    assert archive.states() == {"a@2": "completed", "b@2": "canceled", "c@2": "completed", "beside@2": "completed"}


@pytest.mark.parametrize("first", ["end", "retry"])
def test_of_an_end_and_a_retry_from_before_it_the_first_wins(
    session: Session, second_connection: Connect, first: str
) -> None:
    """While the last task runs nothing before it may run again; once it has ended, all may."""
    archive = an_archive(session)
    archive.commit(CHAIN)
    archive.run("a@2", "b@2")
    attempt = archive.attempt("c@2")
    doing = {
        "end": lambda: finish.finish(session, PROCESS, [Outcome(attempt, End.EXITED, 0)]),
        "retry": lambda: retry_from(archive, "a"),
    }
    one, two = one_after_the_other(archive, second_connection, doing.pop(first), *doing.values())
    if first == "end":
        one.result()
        assert names(archive, two.result().tasks) == ["a", "b", "c"]
        assert archive.states() == {"a@2": "ready", "b@2": "waiting", "c@2": "waiting", "beside@2": "running"}
    else:
        with pytest.raises(Conflict, match="would run tasks again that are running: papers@2/c"):
            one.result()
        two.result()
        assert archive.state("c@2") == "completed"


@pytest.mark.parametrize("first", ["rewind", "retry"])
def test_of_a_rewind_and_a_retry_the_first_wins_and_nothing_gone_starts(
    session: Session, second_connection: Connect, first: str
) -> None:
    archive = an_archive(session)
    archive.commit(CHAIN)
    archive.run("a@2", "b@2", "c@2", "beside@2")
    start = archives.Start("", True, Entry(a_revision(1), NOTHING))
    branch = BranchId(archive.branches[""].id)
    run = RunId(archive.run_id(2))
    doing = {
        "rewind": lambda: archives.rewind(session, archive.id, branch, start, "", "ann"),
        "retry": lambda: redo.retry_from(session, run, "a", "bob"),
    }
    one, two = one_after_the_other(archive, second_connection, doing.pop(first), *doing.values())
    if first == "rewind":
        one.result()
        with pytest.raises(Conflict, match="belongs to a revision, branch or archive that is gone"):
            two.result()
    else:
        one.result()
        two.result()
        states = archive.sql("select name, state from task where run_id = %s and kind = 'ordinary' order by name", run)
        assert [row["state"] for row in states] == ["canceled", "canceled", "completed", "canceled"]
    assert archive.claim_some(100) == []


def test_a_task_in_line_for_a_lock_whose_source_passes_again_at_once_cancels_anew(archive: AnArchive) -> None:
    """Seen by the random test: what a person had retried meanwhile, with force, is superseded again as the newer task comes back."""
    archive.commit({"holder": "lock: x"})
    archive.claim("holder@2")
    step = {"gate": "# gate", "d": "depends: [gate]\nlock: x\ncancels: [PREV]"}
    archive.commit(step)
    archive.commit(step)
    assert archive.state("d@3") == "canceled"
    archive.retry("d@3", force=True)
    assert (archive.state("d@3"), archive.state("d@4")) == ("waiting", "waiting")
    retry_from(archive, "gate", number=4)
    assert (archive.state("d@3"), archive.state("d@4")) == ("canceled", "waiting")


def test_a_task_that_has_canceled_before_says_whether_it_waits_for_a_source_or_for_what_it_cancels(
    archive: AnArchive,
) -> None:
    files = {"a": "", "pdf": "depends: [a]\ncancels: [PREV]"}
    archive.commit(files)
    archive.run("a@2")
    archive.claim("pdf@2")
    archive.commit(files)
    archive.run("a@3")

    def why() -> str:
        return tasks.task(archive.session, TaskId(archive.task("pdf@3"))).why

    assert (archive.state("pdf@3"), why()) == ("waiting", "stopping what it cancels")
    archive.end("pdf@2", end=End.STOPPED)
    archive.run("pdf@3")
    retry_from(archive, "a", number=3)
    assert (archive.state("pdf@3"), why()) == ("waiting", "for papers@3/a")
