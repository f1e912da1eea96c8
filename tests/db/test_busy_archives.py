"""No archive waits for another (design 5.12, 6). A second connection locks the row of archive A,
and the work of archive B continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from arkqueue.db import Connection, Overdue
from arkqueue.db.session import Session
from arkqueue.model import AttemptId, End, Outcome, Receipt
from arkqueue.queue import archives, claim, finish, schedules
from tests.builders import HOST, PROCESS, AnArchive, an_archive
from tests.db.test_races import PATIENCE, InThread, wait_until_blocked
from tests.waiting import eventually

Connect = Callable[[], Connection]
Two = tuple[AnArchive, AnArchive]


@pytest.fixture
def two(session: Session) -> Two:
    """Archives A and B, each with a task ``t``."""
    made = an_archive(session, "a"), an_archive(session, "b")
    for archive in made:
        archive.commit({"t": "on_lost: fail", "next": "depends: [t]"})
    return made


@contextmanager
def held(connect: Connect, archive: AnArchive) -> Iterator[None]:
    """The archive's row belongs to another transaction, as while its graph is being changed."""
    holder = connect()
    with holder.transaction():
        holder.execute("select from archive where id = %s for no key update", [archive.id])
        yield


def attempts(two: Two) -> tuple[AttemptId, AttemptId]:
    a, b = two
    by_archive = {one.archive.id: one.attempt for one in claim.claim(a.session, PROCESS, HOST, 9)}
    return by_archive[a.id], by_archive[b.id]


def ends(archive: AnArchive) -> list[str | None]:
    return [row["end"] for row in archive.sql('select "end" from attempt where task_id = %s', archive.task("t@2"))]


def test_an_end_is_recorded_while_another_archive_is_busy(two: Two, second_connection: Connect) -> None:
    a, b = two
    outcomes = [Outcome(attempt, End.EXITED, 0) for attempt in attempts(two)]
    of_a, of_b = (outcome.attempt for outcome in outcomes)
    with held(second_connection, a):
        receipts = finish.finish(a.session, PROCESS, outcomes, patience=0.0)
        assert receipts == {of_a: Receipt.BUSY, of_b: Receipt.RECORDED}
        assert (a.states(), b.states()) == (
            {"t@2": "running", "next@2": "waiting"},
            {"t@2": "completed", "next@2": "ready"},
        )
    receipts = finish.finish(a.session, PROCESS, outcomes, patience=0.0)
    assert receipts == {of_a: Receipt.RECORDED, of_b: Receipt.ALREADY_RECORDED}
    assert (ends(a), ends(b)) == (["exited"], ["exited"])


def test_an_end_that_waits_for_its_archive_holds_no_other(two: Two, second_connection: Connect) -> None:
    a, b = two
    outcomes = [Outcome(attempt, End.EXITED, 0) for attempt in attempts(two)]
    watcher = second_connection()
    with held(second_connection, a):
        finishing = InThread(lambda: finish.finish(a.session, PROCESS, outcomes, patience=PATIENCE))
        wait_until_blocked(watcher)
        assert b.state("t@2") == "completed"
        with watcher.transaction():
            watcher.execute("select from archive where id = %s for update nowait", [b.id])
    assert set(finishing.result().values()) == {Receipt.RECORDED}
    assert a.state("t@2") == "completed"


def test_each_of_several_busy_archives_is_recorded_when_it_is_free(
    session: Session, second_connection: Connect
) -> None:
    many = [an_archive(session, f"a{n}") for n in range(4)]
    for archive in many:
        archive.commit({"t": ""})
    outcomes = [Outcome(one.attempt, End.EXITED, 0) for one in claim.claim(session, PROCESS, HOST, 9)]
    first, *rest = many
    with held(second_connection, first):
        with held(second_connection, rest[0]), held(second_connection, rest[1]):
            finishing = InThread(lambda: finish.finish(session, PROCESS, outcomes, patience=PATIENCE))
            eventually(lambda: rest[2].state("t@2") == "completed")
            assert {archive.state("t@2") for archive in many[:3]} == {"running"}
        eventually(lambda: {archive.state("t@2") for archive in rest} == {"completed"})
        assert first.state("t@2") == "running"
    assert set(finishing.result().values()) == {Receipt.RECORDED}
    assert [ends(archive) for archive in many] == [["exited"]] * 4


def test_a_lease_lapses_while_another_archive_is_busy(two: Two, second_connection: Connect) -> None:
    a, b = two
    of_a, of_b = attempts(two)
    a.sql("update attempt set lease_until = clock_timestamp() - interval '1 s'")
    a.sql("update heartbeat set steady_since = clock_timestamp() - interval '1 hour', beat_at = clock_timestamp()")
    with held(second_connection, a):
        assert finish.lapse(a.session, patience=0.0) == [of_b]
        assert (a.state("t@2"), b.state("t@2")) == ("running", "failed")
    assert finish.lapse(a.session, patience=0.0) == [of_a]
    assert finish.lapse(a.session, patience=0.0) == []
    assert (ends(a), ends(b)) == (["lost"], ["lost"])


@pytest.mark.garbles
def test_many_lapsed_leases_of_a_busy_archive_hide_no_other(session: Session, second_connection: Connect) -> None:
    """Looked for are so many at a time; all of the first ones may belong to an archive that is busy."""
    a = an_archive(session, "a")
    a.commit({"t": ""})
    a.sql(
        "insert into attempt (task_id, number, process, host, lease_until, ended_at, \"end\")"
        " select nextval('task_id'), 1, %s, %s, now(), null, null from generate_series(1, 1500)", PROCESS, HOST,
    )  # fmt: skip
    a.sql(
        "insert into task (id, run_id, archive_id, branch_id, number, run, unmet, position, state, kind, program, name)"
        " select a.task_id, 0, %s, %s, 99, 1, 0, 1, 'running', 'ordinary', true, 't' || a.id from attempt a",
        a.id, a.branches[""].id,
    )  # fmt: skip
    b = an_archive(session, "b")
    b.commit({"t": ""})
    of_b = b.attempt("t@2")
    b.sql("update attempt set lease_until = clock_timestamp() - interval '1 s'")
    b.sql("update heartbeat set steady_since = clock_timestamp() - interval '1 hour', beat_at = clock_timestamp()")
    with held(second_connection, a):
        assert finish.lapse(session, patience=0.0) == [of_b]


def test_a_deferred_task_is_taken_up_while_another_archive_is_busy(two: Two, second_connection: Connect) -> None:
    a, b = two
    for attempt in attempts(two):
        a.record(attempt, End.EXITED, 75)
    a.sql("update task set due_at = clock_timestamp() where state = 'deferred'")
    with held(second_connection, a):
        due = finish.wake_deferred(a.session, patience=0.0)
        assert due is not None
        assert due <= 0
        assert (a.state("t@2"), b.state("t@2")) == ("deferred", "ready")
    assert finish.wake_deferred(a.session, patience=0.0) is None
    assert (a.state("t@2"), b.state("t@2")) == ("ready", "ready")


def test_more_deferred_tasks_than_one_transaction_takes_up_are_all_taken_up(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finish, "MOST_DUE", 4)
    many = [an_archive(session, f"a{n}") for n in range(3)]
    for archive in many:
        archive.commit({f"t{n}": "" for n in range(3)})
    for attempt in [one.attempt for one in claim.claim(session, PROCESS, HOST, 99)]:
        many[0].record(attempt, End.EXITED, 75)
    many[0].sql("update task set due_at = clock_timestamp() where state = 'deferred'")
    calls = 0
    while finish.wake_deferred(session, patience=0.0) is not None:
        calls += 1
    assert calls == 2, "one of each archive, three times"
    assert {state for archive in many for state in archive.states().values()} == {"ready"}


def make_overdue(archive: AnArchive, table: str = "task", event: str = "update") -> None:
    """Each such change of a table's rows of the archive takes longer than a transaction may."""
    archive.sql(
        "create function overdue() returns trigger language plpgsql as"
        " $$ begin raise exception 'canceling statement due to statement timeout' using errcode = 'query_canceled'; end $$"
    )
    archive.sql(
        f"create trigger overdue before {event} on {table} for each row"
        f" when ({'new' if event == 'insert' else 'old'}.archive_id = {archive.id}) execute function overdue()"
    )


def recover(archive: AnArchive) -> None:
    archive.sql("drop trigger overdue on task")


def test_an_archive_whose_changes_take_too_long_holds_up_no_end_of_another(two: Two) -> None:
    a, b = two
    outcomes = [Outcome(attempt, End.EXITED, 0) for attempt in attempts(two)]
    make_overdue(a)
    with pytest.raises(Overdue):
        finish.finish(a.session, PROCESS, outcomes)
    assert (a.state("t@2"), b.state("t@2")) == ("running", "completed")
    recover(a)
    receipts = finish.finish(a.session, PROCESS, outcomes)
    assert list(receipts.values()) == [Receipt.RECORDED, Receipt.ALREADY_RECORDED]


def test_an_archive_whose_changes_take_too_long_holds_up_no_deferred_task_of_another(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = two
    for attempt in attempts(two):
        a.record(attempt, End.EXITED, 75)
    a.sql("update task set due_at = clock_timestamp() where state = 'deferred'")
    monkeypatch.setattr(finish, "MOST_ARCHIVES", 1)
    make_overdue(a)
    with pytest.raises(Overdue):
        finish.wake_deferred(a.session)
    assert (a.state("t@2"), b.state("t@2")) == ("deferred", "ready")


def test_a_schedule_fires_while_another_archive_is_busy(session: Session, second_connection: Connect) -> None:
    a, b = an_archive(session, "a"), an_archive(session, "b")
    for archive in a, b:
        archive.commit({"t": "schedule: 0 3 * * *"})
    a.sql("update schedule set next_at = next_at - interval '1 day'")
    with held(second_connection, a):
        due = schedules.fire(session)
        assert due is not None
        assert due <= 0
        assert (len(a.states()), len(b.states())) == (0, 1)
    due = schedules.fire(session)
    assert due is not None
    assert due > 0
    assert (len(a.states()), len(b.states())) == (1, 1)


def test_an_archive_whose_changes_take_too_long_holds_up_no_schedule_of_another(session: Session) -> None:
    a, b = an_archive(session, "a"), an_archive(session, "b")
    for archive in a, b:
        archive.commit({"t": "schedule: 0 3 * * *"})
    a.sql("update schedule set next_at = next_at - interval '1 day'")
    a.sql("update schedule set next_at = next_at - interval '1 day' where branch_id = %s", a.branches[""].id)
    make_overdue(a, "run", "insert")
    assert schedules.fire(session) == schedules.PAUSE_AFTER_ERROR
    assert (len(a.states()), len(b.states())) == (0, 1)


def test_trouble_of_a_busy_archive_is_said_later(two: Two, second_connection: Connect) -> None:
    """The dispatcher, who says it, serves all archives."""
    a, _ = two
    told = a.session, archives.ArchiveId(a.id), "its repository hangs", 1.0
    with held(second_connection, a):
        assert not archives.say_trouble(*told)
    assert archives.say_trouble(*told)
    assert archives.one(a.session, archives.ArchiveId(a.id)).trouble == "its repository hangs"


def test_a_busy_archive_is_waited_for_no_longer_than_was_asked(two: Two, second_connection: Connect) -> None:
    """And the transaction waits for its other locks as long as any other."""
    a, _ = two
    outcomes = [Outcome(attempt, End.EXITED, 0) for attempt in attempts(two)]
    limits = set[str]()

    def limit(connection: Connection) -> None:
        limits.update(row["lock_timeout"] for row in connection.execute("show lock_timeout").fetchall())

    a.session.retrying(limit)
    with held(second_connection, a):
        receipts = finish.finish(a.session, PROCESS, outcomes, patience=0.001)
    assert receipts[outcomes[0].attempt] is Receipt.BUSY
    _, busy = finish.change_in_turn(a.session, lambda graph: limit(graph.conn), archives=[a.id], patience=1.0)
    assert not busy
    assert len(limits) == 1
