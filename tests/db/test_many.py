"""Verbs on many tasks (design 5.33): the tasks they act on, their refusals, and the size of their
transactions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db import session as db_session
from arkqueue.db.session import Session
from arkqueue.errors import Busy, Conflict, Forbidden
from arkqueue.model import ArchiveId, End, Outcome, RunId
from arkqueue.queue import archives, control, deletion, finish, graph, holds, many, redo, reports, retrying, steps, walk
from arkqueue.queue import done as steps_of
from arkqueue.queue.done import MOST_TASKS, Done
from arkqueue.queue.guards import Approver
from arkqueue.runtime.admission import Admission
from arkqueue.views.doctor import examine
from arkqueue.views.explain import explain
from arkqueue.views.status import status
from tests.builders import PROCESS, AnArchive, an_archive

MANY = 2 * MOST_TASKS + 500


def retry_failed(archive: AnArchive, number: int) -> Done:
    return many.retry_failed(archive.session, RunId(archive.run_id(number)), "bob")


def names(archive: AnArchive, tasks: list[int]) -> list[str]:
    found = {row["id"]: f"{row['name']}@{row['number']}" for row in archive.sql("select id, name, number from task")}
    return [found[task] for task in tasks]


def test_exactly_what_failed_of_a_run_is_retried(session: Session) -> None:
    archive = an_archive(session)
    tasks = ("failed", "rejected", "canceled", "deferred", "completed", "waived", "failed-too")
    archive.commit(dict.fromkeys(tasks, "") | {"after": "depends: [failed]"})
    archive.fail("failed@2", "waived@2", "failed-too@2")
    archive.end("rejected@2", 65)
    archive.end("deferred@2", 75)
    archive.run("completed@2")
    control.cancel(session, archive.task("canceled@2"), "ann")
    control.skip(session, archive.task("waived@2"), "ann")
    before = archive.states()
    done = retry_failed(archive, 2)
    assert (names(archive, done.tasks), done.refused) == (["failed@2", "failed-too@2"], [])
    expected = before | {"failed@2": "ready", "failed-too@2": "ready", "after@2": "waiting"}
    assert archive.states() == expected
    with pytest.raises(Conflict, match="has no failed task that nobody waived"):
        retry_failed(archive, 2)


def test_what_is_out_of_date_is_left_alone_and_told(session: Session) -> None:
    """The newer revision has done the work of `a`; nothing has done that of `b`."""
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    archive.fail("a@2", "b@2")
    archive.commit({"a": ""})
    archive.run("a@3")
    done = retry_failed(archive, 2)
    assert names(archive, done.tasks) == ["b@2"]
    (refused,) = done.refused
    assert names(archive, [refused.task]) == ["a@2"]
    assert "would replace the work of later revisions: papers@3/a completed" in refused.why.fault
    assert archive.state("a@2") == "failed"


def test_the_remedy_of_a_retry_names_a_command_that_is_not_refused_in_turn(session: Session) -> None:
    """`b` needs `a`, whose work a later revision has done: to retry `a` has to be forced."""
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]"})
    archive.cancel("b@2")
    archive.skip("a@2")
    with pytest.raises(Conflict, match=r"needs papers@2/a, which is skipped\. arkqueue retry papers@2/a$"):
        archive.retry("b@2")
    archive.commit({"a": ""})
    archive.run("a@3")
    with pytest.raises(Conflict, match=r"arkqueue retry papers@2/a --force, if it may be out of date$"):
        archive.retry("b@2")
    archive.retry("a@2", force=True)
    archive.retry("b@2")


def test_all_of_an_archive_is_retried_the_oldest_runs_first(session: Session) -> None:
    archive, other = an_archive(session), an_archive(session, "other")
    other.commit({"a": ""})
    other.fail("a@2")
    for _ in range(3):
        archive.commit({"a": "", "b": ""})
    archive.fail("b@4", "a@3", "b@3", "a@2")
    archive.run("b@2")
    deletion.delete_run(session, RunId(archive.run_id(3)), "ann")
    done = many.retry_failed_of_archive(session, ArchiveId(archive.id), "bob")
    assert names(archive, done.tasks) == ["a@2", "b@4"]
    assert other.states() == {"a@2": "failed"}
    with pytest.raises(Conflict, match="papers: has no failed task"):
        many.retry_failed_of_archive(session, ArchiveId(archive.id), "bob")


def test_where_all_is_refused_the_first_reason_is_the_answer(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    archive.fail("a@2", "b@2")
    archive.commit({"a": "", "b": ""})
    archive.run("a@3", "b@3")
    with pytest.raises(Conflict, match="later revisions: papers@3/a completed; 1 more task is refused"):
        retry_failed(archive, 2)


def test_each_retry_is_a_transaction_of_its_own(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({f"t{n}": "" for n in range(9)})
    archive.fail(*(f"t{n}@2" for n in range(9)))
    assert len(retry_failed(archive, 2).tasks) == 9
    assert max(_in_one_transaction(archive)) == 1


def test_what_a_command_has_no_time_for_is_told_and_done_by_the_next(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    archive.fail("a@2", "b@2")
    monkeypatch.setattr(walk, "LONGEST", -1.0)
    assert retry_failed(archive, 2).left == 2
    monkeypatch.undo()
    monkeypatch.setattr(db_session, "LONGEST_REHEARSAL", -1.0)
    with session.rehearsal(archive.id) as rehearsal:
        assert many.retry_failed(rehearsal, RunId(archive.run_id(2)), "ann").left == 2
    done = retry_failed(archive, 2)
    assert (len(done.tasks), done.left) == (2, 0)


def test_a_retry_takes_nothing_back_of_a_cancellation_that_comes_meanwhile(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "", "c": ""})
    run = RunId(archive.run_id(2))
    control.cancel_run(session, run, "ann")
    change = walk.change

    def and_cancel(*words: Any) -> Any:
        done = change(*words)
        if archive.state("a@2") == "ready":
            control.cancel_run(session, run, "eve")
        return done

    monkeypatch.setattr(walk, "change", and_cancel)
    done = many.retry_run(session, run, "bob")
    assert (names(archive, done.tasks), done.left) == (["a@2"], 2)
    assert set(archive.states().values()) == {"canceled"}


@pytest.mark.full
def test_a_large_run_is_canceled_in_bounded_transactions_and_nothing_of_it_starts_meanwhile(session: Session) -> None:
    """Each task waits for any end of the one before it: canceled in the order of the file, it would let the next one start."""
    archive = an_archive(session)
    tasks = {f"t{n}": f"depends: [{{task: t{n - 1}, when: settled}}]" if n else "" for n in range(MANY)}
    archive.commit(tasks)
    done = control.cancel_run(session, RunId(archive.run_id(2)), "bob")
    assert sorted(names(archive, done.tasks)) == sorted(f"{name}@2" for name in tasks)
    assert set(archive.states().values()) == {"canceled"}
    sizes = _in_one_transaction(archive)
    assert (sum(sizes), max(sizes)) == (MANY, MOST_TASKS)
    began = archive.sql("select name from task where ready_at is not null and kind = 'ordinary'")
    assert [row["name"] for row in began] == ["t0"], "which was ready before"
    (entry,) = archive.sql("select count(*) as n from deed where verb = 'cancel'")
    assert entry["n"] == 1


def test_nothing_of_a_large_run_starts_while_it_is_canceled(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its steps all is claimed that is ready, what runs ends, what is deferred is due, and locks are granted: none of it starts a task of the run."""
    archive = an_archive(session)
    tasks = {f"t{n}": "" for n in range(4)} | {
        "runs": "",
        "deferred": "",
        "after": "depends: [{task: runs, when: settled}]",
        "gate": "depends: [t0]\n# gate",
        "locked": "lock: x",
        "in_line": "lock: x",
        "held": "hold: true",
    }
    archive.commit(tasks)
    archive.sql("update task set priority = 1 where name in ('runs', 'deferred')")
    (runs, deferred) = sorted(archive.claim_some(2), key=lambda claim: claim.name, reverse=True)
    archive.record(deferred.attempt, End.EXITED, 75)
    archive.sql("update task set due_at = now() where state = 'deferred'")
    assert (archive.state("locked@2"), archive.state("in_line@2")) == ("ready", "waiting")
    monkeypatch.setattr(control, "MOST_TASKS", 2)
    monkeypatch.setattr(steps_of, "MOST_TASKS", 2)
    run, seen = RunId(archive.run_id(2)), []

    def between(tasks: Sequence[int], *alone: Any) -> Iterator[Sequence[int]]:
        for portion in steps_of.portions(tasks, *alone):
            seen.append(portion)
            finish.finish(session, PROCESS, [Outcome(runs.attempt, End.EXITED, 0)])
            finish.wake_deferred(session)
            assert archive.claim_some(100) == []
            yield portion

    monkeypatch.setattr(control, "portions", between)
    canceled = control.cancel_run(session, run, "bob")
    assert len(seen) == 5
    assert sorted(names(archive, canceled.tasks)) == sorted(f"{name}@2" for name in tasks if name != "runs")
    assert archive.states() == {f"{name}@2": "canceled" for name in tasks} | {"runs@2": "completed"}
    many.retry_run(session, run, "bob")
    still = {"runs@2": "completed", "held@2": "held", "gate@2": "waiting", "in_line@2": "waiting"}
    assert archive.states() == {f"{name}@2": "ready" for name in tasks} | still, (
        "as if it had been canceled in one step"
    )


def test_what_a_cancellation_that_breaks_has_not_reached_is_held_and_canceled_by_the_next(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_archive(session)
    archive.commit({f"t{n}": "" for n in range(3)} | {"a": "depends: [t1]", "b": "depends: [a]", "c": "depends: [b]"})
    run = RunId(archive.run_id(2))
    monkeypatch.setattr(control, "MOST_TASKS", 2)
    monkeypatch.setattr(control, "portions", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        control.cancel_run(session, run, "bob")
    assert Counter(archive.states().values()) == {"canceled": 2, "held": 2, "waiting": 2}
    assert examine(session).findings == []
    (reason,) = {reason.text for reason in explain(session, archive.task("t1@2")).reasons if reason.kind == "held"}
    assert "by bob" in reason
    assert (
        "(a cancellation that has not come to its end), until a person releases it. If that command has ended or was interrupted, repeat it: arkqueue cancel goes on"
        in reason
    )
    assert explain(session, archive.task("t1@2")).commands[0] == "arkqueue cancel papers@2"
    (need, *_) = status(session, None, None, lease=30.0).needs
    assert (need.name, need.command) == ("papers@2", "arkqueue cancel papers@2")
    assert "held by bob: a cancellation that has not come to its end: if that command has ended, repeat it" in need.text
    monkeypatch.undo()
    assert len(control.cancel_run(session, run, "ann").tasks) == 4
    many.retry_run(session, run, "bob")
    assert Counter(archive.states().values()) == {"ready": 3, "waiting": 3}


def test_what_is_claimed_before_a_cancellation_has_held_it_is_stopped_and_nothing_behind_it_starts(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`a` and `b` are claimed while others are being held, and `a` completes; then `next` could start, which nobody could know before."""
    archive = an_archive(session)
    archive.commit({"t0": "", "t1": "", "a": "", "b": "", "next": "depends: [a]", "late": "depends: [next]"})
    for module in (control, steps_of):
        monkeypatch.setattr(module, "MOST_TASKS", 2)
    claimed: list[Any] = []

    def act() -> None:
        if not claimed:
            archive.sql("update task set priority = 1 where name in ('a', 'b')")
            claimed.extend(archive.claim_some(2))
            archive.record(claimed[0].attempt, End.EXITED, 0)

    seen = in_steps(archive, monkeypatch, act)
    done = control.cancel_run(session, RunId(archive.run_id(2)), "bob")
    assert [claim.name for claim in claimed] == ["a", "b"]
    assert sorted(names(archive, done.tasks)) == ["b@2", "late@2", "next@2", "t0@2", "t1@2"]
    assert archive.states() == {"a@2": "completed", "b@2": "running"} | {
        f"{name}@2": "canceled" for name in ("t0", "t1", "next", "late")
    }
    assert archive.sql("select stop from task where name = 'b'") == [{"stop": "cancel"}]
    assert archive.sql("select ready_at from task where name = 'late'") == [{"ready_at": None}]
    assert max(seen) == 2


def in_steps(archive: AnArchive, monkeypatch: pytest.MonkeyPatch, act: Any) -> list[int]:
    """Act between the steps that hold what could start of a run, when nobody has locked the archive; returns how many tasks each took."""
    seen: list[int] = []

    def portions(tasks: Sequence[int], *alone: Any) -> Iterator[Sequence[int]]:
        for portion in steps_of.portions(tasks, *alone):
            seen.append(len(portion))
            yield portion
            archive.sql("select id from archive for update nowait")
            act()

    monkeypatch.setattr(steps, "portions", portions)
    return seen


def end_alone(archive: AnArchive, name: str, code: int) -> None:
    """Let one task run and end, and nothing else."""
    archive.sql("update task set priority = 1 where name = %s and number = 2", name)
    (claim,) = archive.claim_some(1)
    assert claim.name == name
    archive.record(claim.attempt, End.EXITED, code)


@pytest.mark.full
def test_a_large_run_is_deleted_and_undeleted_in_bounded_transactions(session: Session) -> None:
    """Some of it has completed and failed. A later run waits for the failures."""
    archive = an_archive(session)
    archive.commit({f"t{n}": f"depends: [t{n - 1}]" if n % 3 else "" for n in range(MANY)})
    run = RunId(archive.run_id(2))
    end_alone(archive, "t0", 1)
    end_alone(archive, "t6", 1)
    end_alone(archive, "t3", 0)
    end_alone(archive, "t4", 0)
    archive.commit({"t0": "depends: [PREV]", "t1": "depends: [PREV]"})
    before = archive.states()
    assert (before["t0@3"], before["t1@2"], before["t7@2"], before["t5@2"], before["t10@2"]) == (
        "waiting",
        "skipped",
        "skipped",
        "ready",
        "waiting",
    )
    deletion.delete_run(session, run, "bob")
    after = archive.states()
    settled = ("completed", "failed", "skipped")
    assert {key for key, state in after.items() if key.endswith("@2") and state != "canceled"} == {
        key for key, state in before.items() if key.endswith("@2") and state in settled
    }
    assert (after["t0@3"], after["t1@3"]) == ("ready", "ready")
    sizes = _in_one_transaction(archive)
    most = MOST_TASKS + 5  # what needs a task that is canceled with the next ones is judged with these again
    assert max(sizes) <= most
    with pytest.raises(Conflict, match="is deleted already"):
        deletion.delete_run(session, run, "bob")
    deletion.undelete_run(session, run, "bob")
    back = {
        key: "held" if state in ("ready", "waiting") else state for key, state in before.items() if key.endswith("@2")
    }
    assert {key: state for key, state in archive.states().items() if key.endswith("@2")} == back
    assert max(_in_one_transaction(archive)) <= most
    assert archive.sql("select deleted_tasks, deleted_at from run where id = %s", run) == [
        {"deleted_tasks": None, "deleted_at": None}
    ]
    holds.release_run(session, run, "bob")
    assert archive.states() | {"t0@3": "", "t1@3": ""} == before | {"t0@3": "", "t1@3": ""}


@pytest.mark.parametrize("stage", ["while it is held", "while it is canceled"])
def test_a_deletion_that_breaks_leaves_the_run_there_and_the_next_one_ends_it(
    session: Session, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    archive = an_archive(session)
    archive.commit({f"t{n}": "" for n in range(5)} | {"REPORT": "", "t5": "depends: [t4]"})
    run = RunId(archive.run_id(2))
    end_alone(archive, "t0", 1)
    for module in (control, deletion, steps_of):
        monkeypatch.setattr(module, "MOST_TASKS", 2)
    module, calls = (steps if stage == "while it is held" else control), list[int]()

    def portions(tasks: Sequence[int], *alone: Any) -> Iterator[Sequence[int]]:
        for portion in steps_of.portions(tasks, *alone):
            if calls:
                raise ZeroDivisionError
            yield portion
            calls.append(1)

    monkeypatch.setattr(module, "portions", portions)
    with pytest.raises(ZeroDivisionError):
        deletion.delete_run(session, run, "bob")
    assert archive.sql("select deleted_at from run where id = %s", run) == [{"deleted_at": None}]
    counts = Counter(archive.states().values())
    assert counts["held"] == (2 if module is steps else 3), "and of `t5` nothing could start"
    held = next(key for key, state in archive.states().items() if state == "held")
    (reason,) = {reason.text for reason in explain(session, archive.task(held)).reasons if reason.kind == "held"}
    assert "repeat it: arkqueue delete goes on" in reason
    monkeypatch.undo()
    deletion.delete_run(session, run, "ann")
    assert {key: state for key, state in archive.states().items() if key != "REPORT@2"} == {"t0@2": "failed"} | {
        f"t{n}@2": "canceled" for n in range(1, 6)
    }
    deletion.undelete_run(session, run, "ann")
    assert {key: state for key, state in archive.states().items() if key != "REPORT@2"} == {"t0@2": "failed"} | {
        f"t{n}@2": "held" for n in range(1, 6)
    }


def test_an_undeletion_takes_nothing_back_that_a_person_did_after_the_deletion_had_broken(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_archive(session)
    archive.commit({f"t{n}": "" for n in range(6)})
    run = RunId(archive.run_id(2))
    for name in ("t0", "t1"):
        end_alone(archive, name, 1)
    for module in (control, deletion, steps_of):
        monkeypatch.setattr(module, "MOST_TASKS", 2)
    monkeypatch.setattr(control, "portions", lambda tasks, _: iter([next(steps_of.portions(tasks)), 1 / 0]))
    with pytest.raises(ZeroDivisionError):
        deletion.delete_run(session, run, "bob")
    monkeypatch.undo()
    control.skip(session, archive.task("t0@2"), "ann")
    control.cancel(session, archive.task("t2@2"), "ann")
    deletion.undelete_run(session, run, "bob")
    assert archive.states() == {"t0@2": "failed", "t1@2": "failed", "t2@2": "canceled"} | {
        f"t{n}@2": "held" for n in (3, 4, 5)
    }
    waived = archive.sql("select name from task where waived and name like 't%%' order by name")
    assert [row["name"] for row in waived] == ["t0"]


def test_the_report_of_a_large_run_is_written_before_its_archive_is_locked(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_archive(session)
    archive.commit({f"t{n}": "" for n in range(5)})
    run, written = RunId(archive.run_id(2)), list[int]()
    for module in (control, deletion, steps_of):
        monkeypatch.setattr(module, "MOST_TASKS", 2)
    write = reports._write  # private: what holds the archive back, if it runs with its lock

    def beside_others(ask: reports.Ask, of: int, by: str | None) -> reports.Made:
        archive.sql("select id from archive for update nowait")
        written.append(of)
        return write(ask, of, by)

    monkeypatch.setattr(reports, "_write", beside_others)
    deletion.delete_run(session, run, "bob")
    assert written == [run], "of what the run was when all of it had been canceled"
    deletion.undelete_run(session, run, "bob")
    control.cancel_run(session, run, "ann")
    assert written == [run]


def test_an_undeletion_that_breaks_is_ended_by_the_next(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = an_archive(session)
    archive.commit({f"t{n}": f"depends: [t{n - 1}]" if n else "" for n in range(5)})
    run = RunId(archive.run_id(2))
    deletion.delete_run(session, run, "bob")
    for module in (control, deletion, steps_of):
        monkeypatch.setattr(module, "MOST_TASKS", 2)
    monkeypatch.setattr(control, "portions", lambda tasks, _: iter([next(steps_of.portions(tasks)), 1 / 0]))
    with pytest.raises(ZeroDivisionError):
        deletion.undelete_run(session, run, "bob")
    monkeypatch.undo()
    deletion.undelete_run(session, run, "ann")
    assert set(archive.states().values()) == {"held"}
    with pytest.raises(Conflict, match="is not deleted"):
        deletion.undelete_run(session, run, "ann")


def test_what_begins_while_a_large_run_is_deleted_is_stopped_before_its_tombstone(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_archive(session)
    archive.commit({f"t{n}": "" for n in range(5)})
    run, claimed = RunId(archive.run_id(2)), list[Any]()
    for module in (control, deletion, steps_of):
        monkeypatch.setattr(module, "MOST_TASKS", 2)

    def act() -> None:
        if not claimed:
            claimed.extend(archive.claim_some(1))

    in_steps(archive, monkeypatch, act)
    with pytest.raises(
        Conflict,
        match=r"papers@2: cannot be deleted yet: papers@2/t2 started meanwhile, and is being stopped\. Repeat when it has ended: arkqueue delete papers@2",
    ):
        deletion.delete_run(session, run, "bob")
    archive.record(claimed[0].attempt, End.STOPPED, None)
    deletion.delete_run(session, run, "bob")
    deletion.undelete_run(session, run, "bob")
    assert set(archive.states().values()) == {"held"}


def test_a_large_run_of_which_something_runs_is_not_deleted(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = an_archive(session)
    archive.commit({f"t{n}": "" for n in range(5)})
    archive.claim_some(1)
    monkeypatch.setattr(deletion, "MOST_TASKS", 2)
    before = _everything(archive)
    with pytest.raises(Conflict, match="cannot be deleted: papers@2/t0 is running"):
        deletion.delete_run(session, RunId(archive.run_id(2)), "bob")
    assert _everything(archive) == before


def test_a_large_run_is_prioritized_in_bounded_transactions(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({f"t{n}": "" for n in range(MANY)})
    done = control.prioritize_run(session, RunId(archive.run_id(2)), 10, "bob")
    assert len(done.tasks) == MANY
    sizes = _in_one_transaction(archive)
    assert (sum(sizes), max(sizes)) == (MANY, MOST_TASKS)


def between(archive: AnArchive, monkeypatch: pytest.MonkeyPatch, act: Any, most: int = 2) -> list[int]:
    """Let steps of verbs take so few tasks, and act between them, when nobody has locked the archive; returns how many steps follow the first one."""
    seen: list[int] = []
    for each in (control, holds, steps_of):
        monkeypatch.setattr(each, "MOST_TASKS", most)

    def portions(tasks: Sequence[int], *alone: Any) -> Iterator[Sequence[int]]:
        for portion in steps_of.portions(tasks, *alone):
            seen.append(len(portion))
            archive.sql("select id from archive for update nowait")
            act()
            yield portion

    monkeypatch.setattr(control, "portions", portions)
    return seen


@pytest.mark.full
def test_a_large_run_is_held_and_released_in_bounded_transactions(session: Session) -> None:
    """What is ready is held first, as it could start next."""
    archive = an_archive(session)
    archive.commit({f"t{n}": f"depends: [t{n + 1}]" if n % 2 == 0 else "" for n in range(MANY)})
    run = RunId(archive.run_id(2))
    done = holds.hold_run(session, run, "bob")
    assert len(done.tasks) == MANY
    assert set(archive.states().values()) == {"held"}
    sizes = _in_one_transaction(archive)
    assert (sum(sizes), max(sizes)) == (MANY, MOST_TASKS)
    order = archive.sql(
        "select number from (select xmin::text::bigint as number, name from task where kind = 'ordinary') t group by number order by number"
    )
    first = archive.sql("select name from task where xmin::text::bigint = %s and kind = 'ordinary'", order[0]["number"])
    assert {int(row["name"][1:]) % 2 for row in first} == {1}
    done = holds.release_run(session, run, "bob")
    assert len(done.tasks) == MANY
    assert archive.states() == {f"t{n}@2": "waiting" if n % 2 == 0 else "ready" for n in range(MANY)}
    sizes = _in_one_transaction(archive)
    assert (sum(sizes), max(sizes)) == (MANY, MOST_TASKS)
    entries = archive.sql("select verb, count(*)::int as n from deed where by = 'bob' group by verb order by verb")
    assert entries == [{"verb": "hold", "n": 1}, {"verb": "release", "n": 1}]


def test_all_of_an_archive_with_a_large_run_is_held_and_released_in_bounded_transactions(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.commit({f"t{n}": "" for n in range(7)})
    archive.commit({"b": ""})
    for module in (holds, steps_of):
        monkeypatch.setattr(module, "MOST_TASKS", 3)
    assert len(holds.hold_archive(session, ArchiveId(archive.id), "bob").tasks) == 9
    assert sorted(_in_one_transaction(archive)) == [1, 1, 1, 3, 3]
    holds.unhold(session, ArchiveId(archive.id), "bob")
    assert len(holds.release_archive(session, ArchiveId(archive.id), "bob").tasks) == 9
    assert sorted(_in_one_transaction(archive)) == [1, 1, 1, 3, 3]
    assert set(archive.states().values()) == {"ready"}


def test_what_starts_while_a_large_run_is_held_goes_on(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = an_archive(session)
    archive.commit({f"t{n}": "" for n in range(5)})
    seen = between(archive, monkeypatch, lambda: archive.claim_some(1))
    done = holds.hold_run(session, RunId(archive.run_id(2)), "bob")
    assert seen == [2, 1]
    assert names(archive, done.tasks) == ["t0@2", "t1@2", "t3@2"]
    assert archive.states() == {"t2@2": "running", "t4@2": "running"} | {f"t{n}@2": "held" for n in (0, 1, 3)}


def test_a_hold_of_the_archive_ends_the_release_of_a_large_run(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_archive(session)
    archive.commit({f"t{n}": "hold: true" for n in range(5)})
    run, id = RunId(archive.run_id(2)), ArchiveId(archive.id)
    on_hold = "update archive set hold_id = (select max(id) from deed)"
    between(archive, monkeypatch, lambda: archive.sql(on_hold))
    done = holds.release_run(session, run, "bob")
    assert (names(archive, done.tasks), done.left) == (["t0@2", "t1@2"], 3)
    monkeypatch.undo()
    holds.unhold(session, id, "eve")
    assert len(holds.release_run(session, run, "bob").tasks) == 3


def test_a_release_in_steps_tells_what_is_out_of_date_of_all_of_them(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`t3` is done by a later revision, and `t4` needs it."""
    archive = an_archive(session)
    archive.commit({f"t{n}": "hold: true" for n in range(4)} | {"t4": "depends: [t3]\nhold: true"})
    archive.commit({"t3": ""})
    archive.run("t3@3")
    run = RunId(archive.run_id(2))
    between(archive, monkeypatch, lambda: None)
    done = holds.release_run(session, run, "bob")
    assert (names(archive, done.tasks), names(archive, [one.task for one in done.refused])) == (
        ["t0@2", "t1@2", "t2@2", "t4@2"],
        ["t3@2"],
    )
    done = holds.release_run(session, run, "bob", how=holds.How(skip_outdated=True))
    assert names(archive, done.skipped) == ["t3@2"]
    assert archive.state("t4@2") == "skipped"


def _in_one_transaction(archive: AnArchive) -> list[int]:
    """How many tasks each transaction changed last, of those from a workflow file."""
    of_run = "select count(*) as n from task where kind = 'ordinary' group by xmin"
    return [row["n"] for row in archive.sql(of_run)]


def test_every_verb_asks_for_an_approver_itself(session: Session) -> None:
    archive = an_archive(session)
    archives.change_settings(session, archive.id, ArchiveSettings(process=True, require_approval=("publish",)), "ann")
    archive.commit({"build": "", "publish": ""})
    publish, run = archive.task("publish@2"), RunId(archive.run_id(2))
    branch = archive.branches[""].id

    def refused(act: Any, *words: Any, **options: Any) -> None:
        before = archive.states()
        with pytest.raises(Forbidden, match="is guarded by require-approval"):
            act(session, *words, **options)
        assert archive.states() == before

    refused(control.cancel, publish, "ann")
    refused(control.skip, publish, "ann")
    holds.release(session, publish, "bob", how=holds.How(approver=Approver()))
    archive.fail("publish@2", "build@2")
    refused(retrying.retry, publish, "ann", force=True)
    refused(control.skip_until, archive.id, branch, "publish", 9, "ann")
    refused(deletion.delete_run, run, "ann")
    deletion.delete_run(session, run, "bob", Approver())
    refused(deletion.undelete_run, run, "ann")
    deletion.undelete_run(session, run, "bob", Approver())
    done = retry_failed(archive, 2)
    assert names(archive, done.tasks) == ["build@2"], "what is guarded keeps nothing else from it"
    assert names(archive, [one.task for one in done.refused]) == ["publish@2"]
    retrying.retry(session, publish, "bob", approver=Approver())
    control.cancel_run(session, run, "bob", approver=Approver())
    assert set(archive.states().values()) == {"canceled"}


@pytest.mark.parametrize("number", [3, MOST_TASKS + 1])
def test_a_cancellation_leaves_what_is_guarded_and_does_the_rest(session: Session, number: int) -> None:
    archive = an_archive(session)
    guards = ArchiveSettings(process=True, require_approval=("publish", "sign"))
    archives.change_settings(session, archive.id, guards, "ann")
    items = ", ".join(f"i{n}" for n in range(number))
    archive.commit(
        {"build": f"foreach: [{items}]", "publish": "", "sign": "depends: [build]", "later": "depends: [publish]"}
    )
    run = RunId(archive.run_id(2))
    done = control.cancel_run(session, run, "ann")
    assert len(done.tasks) == number + 1
    assert names(archive, [one.task for one in done.refused]) == ["publish@2"], "sign is skipped because of build"
    assert isinstance(done.refused[0].why, Forbidden)
    states = archive.states()
    assert (states["publish@2"], states["sign@2"], states["later@2"]) == ("held", "skipped", "canceled")
    with pytest.raises(Forbidden, match=r"papers@2/publish: is guarded by require-approval"):
        control.cancel_run(session, run, "ann")
    shown = "select canceled_by from run where id = %s"
    assert archive.sql(shown, run) == [{"canceled_by": None}]
    control.cancel_run(session, run, "bob", approver=Approver())
    assert archive.sql(shown, run) == [{"canceled_by": "bob"}]
    assert archive.state("publish@2") == "canceled"


# What would be done


def test_a_rehearsal_answers_what_the_verb_would_and_changes_nothing(session: Session) -> None:
    """`c` needs `a`, and was canceled: what becomes of it is decided by what was done to `a` just before."""
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]", "c": "depends: [a]", "d": ""})
    archive.commit({"d": ""})
    control.cancel(session, archive.task("c@2"), "ann")
    archive.fail("a@2", "d@2")
    archive.run("d@3")
    run = RunId(archive.run_id(2))
    verbs: dict[str, Any] = {
        "retry": lambda on: many.retry_run(on, run, "bob"),
        "failed": lambda on: many.retry_failed_of_archive(on, ArchiveId(archive.id), "bob"),
        "skip": lambda on: many.skip_run(on, run, "bob"),
    }
    for verb, act in verbs.items():
        before = _everything(archive)
        with session.rehearsal(archive.id) as rehearsal:
            said = act(rehearsal)
            state = {row.id: row.state for row in rehearsal.rows("tasks_to_act_on", run=run, item=None, tasks=None)}
        assert _everything(archive) == before, f"{verb} in a rehearsal changed something"
        done = act(session)
        assert names(archive, said.tasks) == names(archive, done.tasks)
        assert [(r.task, str(r.why)) for r in said.refused] == [(r.task, str(r.why)) for r in done.refused]
        assert state == {row.id: row.state for row in session.rows("tasks_to_act_on", run=run, item=None, tasks=None)}
        if verb == "retry":
            assert names(archive, done.tasks) == ["a@2", "c@2"]
            assert names(archive, [one.task for one in done.refused]) == ["d@2"]
            archive.fail("a@2")


def test_a_rehearsal_that_is_refused_or_breaks_changes_nothing(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    before = _everything(archive)
    with (
        session.rehearsal(archive.id) as rehearsal,
        pytest.raises(Conflict, match="has no failed task that nobody waived"),
    ):
        many.retry_failed(rehearsal, RunId(archive.run_id(2)), "bob")

    def breaks() -> None:
        with session.rehearsal(archive.id) as rehearsal:
            control.cancel(rehearsal, archive.task("a@2"), "bob")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        breaks()
    assert _everything(archive) == before
    control.cancel(session, archive.task("a@2"), "bob")


def test_a_long_rehearsal_ends_and_says_how_much_it_has_judged(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    archive.fail("a@2", "b@2")
    archive.commit({"c": "", "d": "", "e": ""})
    failed, run, id = RunId(archive.run_id(2)), RunId(archive.run_id(3)), ArchiveId(archive.id)
    monkeypatch.setattr(control, "MOST_TASKS", 2)
    monkeypatch.setattr(steps_of, "MOST_TASKS", 2)
    monkeypatch.setattr(db_session, "LONGEST_REHEARSAL", -1.0)
    verbs: dict[str, Any] = {
        "retry": (lambda on: many.retry_failed(on, failed, "bob"), 0, 2),
        "retry of an archive": (lambda on: many.retry_failed_of_archive(on, id, "bob"), 0, 2),
        "cancel": (lambda on: control.cancel_run(on, run, "bob"), 2, 1),
        "prioritize": (lambda on: control.prioritize_run(on, run, 7, "bob"), 2, 1),
        "hold": (lambda on: holds.hold_archive(on, id, "bob"), 0, 3),
        "release": (lambda on: holds.release_archive(on, id, "bob"), 0, 3),
    }
    for verb, (act, judged, left) in verbs.items():
        if verb == "release":
            archive.sql("update task set state = 'held', hold_id = 0 where number = 3 and state = 'ready'")
        with session.rehearsal(archive.id) as rehearsal:
            said = act(rehearsal)
        assert (len(said.tasks), said.left) == (judged, left), verb


def test_a_rehearsal_is_admitted_like_a_verb_and_gives_way(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    archive.fail("a@2", "b@2")
    admission = Admission(2, 0, 2)
    admitted = session.share(4, admission)
    run = RunId(archive.run_id(2))
    with admitted.rehearsal(archive.id) as rehearsal:
        assert len(many.retry_failed(rehearsal, run, "bob").tasks) == 2
        with pytest.raises(Busy, match="is being changed, and"):
            control.prioritize(admitted, archive.task("a@2"), 7, "ann")
    monkeypatch.setattr(db_session, "LITTLE_PATIENCE", 0.01)
    with session.database.transaction() as other:
        other.execute("select from archive for update")
        with admitted.rehearsal(archive.id) as rehearsal, pytest.raises(Busy, match="is being changed by others"):
            many.retry_failed(rehearsal, run, "bob")


def test_what_was_done_is_told_also_where_the_rest_finds_the_archive_locked(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "", "c": ""})
    archive.fail("a@2", "b@2", "c@2")
    change, calls = walk.change, list[str]()

    def and_wait(*words: Any) -> Any:
        calls.append("a step")
        if len(calls) > 1:
            raise Busy("a lock", "is held by others")
        return change(*words)

    monkeypatch.setattr(walk, "change", and_wait)
    done = retry_failed(archive, 2)
    assert (names(archive, done.tasks), done.left) == (["a@2"], 2)
    with pytest.raises(Busy):
        retry_failed(archive, 2)


def _everything(archive: AnArchive) -> dict[str, list[str]]:
    """All rows that verbs change, as they are stored."""
    tables = ("archive", "branch", "run", "task", "edge", "attempt", "deed", "ready_archive", "completion", "slot")
    return {
        table: [row["row"] for row in archive.sql(f"select t::text as row from {table} t order by 1")]
        for table in tables
    }


@pytest.mark.parametrize(
    "act",
    [
        lambda session, run: control.cancel_run(session, run, "ann"),
        lambda session, run: retrying.refresh_run(session, run, "ann"),
        lambda session, run: control.prioritize_run(session, run, 3, "ann"),
        lambda session, run: holds.hold_run(session, run, "ann"),
        lambda session, run: holds.release_run(session, run, "ann"),
        lambda session, run: many.retry_run(session, run, "ann"),
        lambda session, run: redo.retry_from(session, run, "a", "ann"),
        lambda session, run: deletion.undelete_item(session, run, "i", "ann"),
    ],
    ids=["cancel", "refresh", "prioritize", "hold", "release", "retry", "retry from", "undelete item"],
)
def test_a_verb_on_a_deleted_run_names_the_command_that_helps(
    session: Session, act: Callable[[Session, RunId], object]
) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    run = RunId(archive.run_id(2))
    deletion.delete_run(session, run, "ann")
    with pytest.raises(Conflict) as refused:
        act(session, run)
    assert str(refused.value) == "papers@2: was deleted. arkqueue undelete papers@2"


def test_each_gate_of_a_long_list_comes_back_in_a_transaction_of_its_own(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To find whether one comes back takes a look at all items. Between these transactions all rules hold."""
    archive = an_archive(session)
    steps_of_item = {"a": "foreach: [x, y, z]", "b": "foreach: [x, y, z]\ndepends: [a]"}
    archive.commit(steps_of_item | {"all": "depends: [a]", "both": "depends: [{task: b, when: settled}, a]"})
    before, run = archive.states(), RunId(archive.run_id(2))
    for module in (control, deletion, steps_of):
        monkeypatch.setattr(module, "MOST_TASKS", 4)
    deletion.delete_run(session, run, "bob")
    roots = archive.sql("select distinct root_id from task where kind = 'gate' and state = 'skipped'")
    assert len(roots) == 2
    alone: list[int] = []
    rows = graph.Graph.rows

    def judged(of: graph.Graph, block: str, /, **told: Any) -> list[Any]:
        if block == "staying_skipped":
            gates = of.conn.execute("select id from task where id = any(%s) and kind = 'gate'", [told["candidates"]])
            alone.append(len(gates.fetchall()))
            assert examine(session).is_sound
        return rows(of, block, **told)

    monkeypatch.setattr(graph.Graph, "rows", judged)
    deletion.undelete_run(session, run, "bob")
    assert max(alone) == 1
    assert set(archive.states().values()) == {"held"}
    assert archive.states().keys() == before.keys()
