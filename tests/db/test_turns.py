"""The order in which ready tasks are claimed: archives take turns, and within an archive the order
is priority, ledger entry, run, position (design 6).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db import Connection
from arkqueue.db.session import SQL, Session
from arkqueue.model import End, Pool
from arkqueue.queue import archives, claim, control, finish
from tests.builders import HOST, PROCESS, AnArchive, an_archive


def claimed(session: Session, slots: int, turns: claim.Turns | None = None, **options: Any) -> list[str]:
    """The archives of what a claim gives, in its order."""
    return [one.archive.name for one in claim.claim(session, PROCESS, HOST, slots, turns=turns, **options)]


def names(session: Session, slots: int, **options: Any) -> list[str]:
    return [f"{one.name}@{one.number}" for one in claim.claim(session, PROCESS, HOST, slots, **options)]


def crowd(archive: AnArchive, count: int) -> None:
    archive.commit({f"t{n}": "" for n in range(count)})


def test_one_slot_at_a_time_goes_round_the_archives(session: Session) -> None:
    for name in ("a", "b", "c"):
        crowd(an_archive(session, name), 3)
    turns = claim.Turns()
    assert [claimed(session, 1, turns)[0] for _ in range(7)] == ["a", "b", "c", "a", "b", "c", "a"]


def test_several_slots_are_shared_out(session: Session) -> None:
    for name in ("a", "b", "c"):
        crowd(an_archive(session, name), 9)
    assert Counter(claimed(session, 9)) == {"a": 3, "b": 3, "c": 3}


def test_what_one_archive_cannot_use_others_get(session: Session) -> None:
    crowd(an_archive(session, "small"), 1)
    crowd(an_archive(session, "large"), 20)
    assert Counter(claimed(session, 10)) == {"small": 1, "large": 9}


def test_an_archive_whose_thousands_were_canceled_has_its_turn_at_once(session: Session) -> None:
    busy, other = an_archive(session, "busy"), an_archive(session, "other")
    crowd(busy, 300)
    control.cancel_run(session, busy.run_id(2), "ann")
    crowd(other, 100)
    busy.commit({"single": ""})
    turns = claim.Turns()
    assert "busy" in claimed(session, 1, turns) + claimed(session, 1, turns)


def test_a_task_that_was_handed_back_is_the_first_of_its_archive_again(session: Session) -> None:
    archive = an_archive(session)
    crowd(archive, 50)
    first = archive.claim_some(1)[0]
    archive.record(first.attempt, End.STOPPED, None)
    assert archive.claim_some(1)[0].name == first.name


def test_a_retried_task_goes_before_what_is_later(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.fail("a@2")
    for _ in range(20):
        archive.commit({"a": ""})
    archive.retry("a@2")
    assert names(session, 1) == ["a@2"]


def test_a_task_that_became_due_goes_before_what_is_later(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.end("a@2", 75)
    for _ in range(20):
        archive.commit({"a": ""})
    archive.sql("update task set due_at = now() - interval '1 s' where state = 'deferred'")
    finish.wake_deferred(session)
    assert names(session, 1) == ["a@2"]


def test_lower_priorities_go_first(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    archive.commit({"a": ""})
    archive.sql("update task set priority = 10 where id = %s", archive.task("a@3"))
    assert names(session, 3) == ["a@3", "a@2", "b@2"]


def test_branches_are_compared_by_when_their_revisions_came(session: Session) -> None:
    """Numbers say nothing across branches: an orphan branch begins at 1 when the main one is at 12,000."""
    archive = an_archive(session, branches=("main", "orphan"), baseline=1)
    archive.numbers["main"] = 12_000
    archive.commit({"a": ""}, branch="main")
    archive.commit({"a": ""}, branch="orphan")
    assert names(session, 2) == ["a@12001", "a@2"]


def test_pools_of_an_archive_keep_one_order(session: Session) -> None:
    archive = an_archive(session)
    archives.change_settings(session, archive.id, ArchiveSettings(process=True), "ann")
    for _ in range(3):
        archive.commit({"bare": "", "boxed": "image: busybox"})
    crowd(an_archive(session, "other"), 9)
    found = claim.claim(session, PROCESS, HOST, 8)
    assert [f"{c.name}@{c.number}" for c in found if c.archive.id == archive.id] == [
        "bare@2", "boxed@2", "bare@3", "boxed@3",
    ]  # fmt: skip


def test_changed_settings_move_what_is_ready_to_another_pool(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "boxed": "image: busybox"})
    archives.change_settings(session, archive.id, ArchiveSettings(image="busybox"), "ann")
    assert names(session, 5, pools=[Pool.PROCESS]) == []
    assert names(session, 5, pools=[Pool.CONTAINER]) == ["a@2", "boxed@2"]


def test_a_claim_finds_what_is_behind_what_others_have_locked(session: Session, second_connection: Any) -> None:
    locked, free = an_archive(session, "locked"), an_archive(session, "free")
    for archive in (locked, free):
        archive.commit({"a": ""})
    other = second_connection()
    with other.transaction():
        other.execute("select from task where id = %s for update", [locked.task("a@2")])
        assert claimed(session, 1) == ["free"]


def test_archives_without_ready_tasks_are_withdrawn_and_come_back(session: Session) -> None:
    archive, other = an_archive(session), an_archive(session, "other")
    crowd(other, 1)
    archive.commit({"a": "", "b": "depends: [a]"})

    def turn() -> set[int]:
        return {row["archive_id"] for row in archive.sql("select archive_id from ready_archive")}

    archive.claim("a@2")
    archive.running.pop(other.task("t0@2"), None)
    claim.withdraw(session)
    assert turn() == set()
    archive.end("a@2")
    assert turn() == {archive.id}
    claim.withdraw(session)
    assert turn() == {archive.id}


def test_an_archive_that_is_locked_is_not_waited_for(session: Session, second_connection: Any) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.claim("a@2")
    other = second_connection()
    with other.transaction():
        other.execute("select from archive for update")
        claim.withdraw(session)
        assert archive.sql("select archive_id from ready_archive")
    claim.withdraw(session)
    assert not archive.sql("select archive_id from ready_archive")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_busy_archive_is_looked_at_from_where_it_was_lately(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim.Turns, "RECENT", 3)
    archive = an_archive(session)
    archive.commit({"early": ""})
    archive.fail("early@2")
    for _ in range(5):
        archive.commit({"a": ""})
    clock = Clock()
    turns = claim.Turns(clock)
    assert names(session, 4, turns=turns) == ["a@3", "a@4", "a@5", "a@6"]
    archive.retry("early@2")
    assert turns.floors()[archive.id].entry > 0
    assert names(session, 1, turns=turns) == ["a@7"], "it begins behind"
    clock.now += claim.Turns.LOOK_AT_ALL
    assert names(session, 1, turns=turns) == ["early@2"]


def test_turns_remember_few_archives(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim.Turns, "RECENT", 1)
    monkeypatch.setattr(claim.Turns, "MOST_ARCHIVES", 2)
    ids = []
    for n in range(4):
        made = an_archive(session, f"a{n}")
        crowd(made, 1)
        ids.append(made.id)
    turns = claim.Turns()
    claimed(session, 4, turns)
    assert list(turns.floors()) == ids[2:]


def test_where_a_task_completed_is_kept(session: Session) -> None:
    archive = an_archive(session)
    for _ in range(3):
        archive.commit({"a": ""})
    archive.claim()
    archive.run("a@3")
    archive.run("a@2")  # later in time, at a lower place
    archive.end("a@4", None, End.STOPPED)
    (row,) = archive.sql(
        "select r.number, c.run, c.highest_number, c.highest_run from completion c join revision r on r.id = c.revision_id"
    )
    assert row == {"number": 2, "run": 1, "highest_number": 3, "highest_run": 1}
    assert archive.claim("a@4").base == "2", "BASE is the last in time"


def test_a_claim_reads_a_few_tasks_however_long_the_history_is(session: Session) -> None:
    """BASE of a task that never completed, too: it is looked up where completions are kept."""
    archive = an_archive(session)
    for number in range(2, 42):
        archive.commit({"a": ""})
        archive.fail(f"a@{number}")
    archive.commit({"a": ""})
    archive.sql("analyze")
    with session.database.transaction() as connection:
        connection.execute("set local enable_seqscan = off")
        before = _tasks_read(connection)
        (got,) = connection.execute(SQL["claim"], claim.parameters(PROCESS, HOST, 1)).fetchall()
        after = _tasks_read(connection)
    assert got["number"] == 42
    assert after - before <= 6


def test_a_claim_of_one_slot_looks_at_one_archive_of_many(session: Session) -> None:
    for n in range(12):
        crowd(an_archive(session, f"a{n}"), 2)
    with session.database.transaction() as connection:
        connection.execute("set local enable_seqscan = off")
        before = _tasks_read(connection)
        (got,) = connection.execute(SQL["claim"], claim.parameters(PROCESS, HOST, 1)).fetchall()
        after = _tasks_read(connection)
    assert got["archive"] == "a0"
    assert after - before <= 6


def test_a_host_without_containers_does_not_read_what_needs_one(session: Session) -> None:
    """Its engine may be away for an hour, with a hundred thousand container tasks ready."""
    archive = an_archive(session)
    archives.change_settings(session, archive.id, ArchiveSettings(process=True), "ann")
    archive.commit({f"boxed{n}": "image: busybox" for n in range(300)})
    archive.commit({"bare": ""})
    archive.sql("analyze")
    with session.database.transaction() as connection:
        connection.execute("set local enable_seqscan = off")
        before = _tasks_read(connection)
        (got,) = connection.execute(SQL["claim"], claim.parameters(PROCESS, HOST, 8, pools=[Pool.PROCESS])).fetchall()
        after = _tasks_read(connection)
    assert got["name"] == "bare"
    assert after - before <= 6


def _tasks_read(connection: Connection) -> int:
    """How many rows of `task` this transaction's backend has read."""
    query = b"select idx_tup_fetch + seq_tup_read as n from pg_stat_xact_user_tables where relname = 'task'"
    (row,) = connection.execute(query).fetchall()
    return int(row["n"])
