"""Tiers of archives, and how many attempts of an archive run at once (design 5.24, 5.26)."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, AttemptId, End, Outcome, Pool
from arkqueue.queue import archives, claim, finish, pauses
from arkqueue.views.explain import explain
from arkqueue.views.reasons import Why
from tests.builders import HOST, PROCESS, AnArchive, an_archive
from tests.db.test_races import Connect

MANY = 40


def change(archive: AnArchive, **settings: Any) -> None:
    present = ArchiveSettings(**archives.one(archive.session, ArchiveId(archive.id)).settings)
    archives.change_settings(archive.session, ArchiveId(archive.id), replace(present, **settings), "ann")


def crowd(session: Session, name: str, count: int = 9, **settings: Any) -> AnArchive:
    archive = an_archive(session, name)
    change(archive, **settings)
    archive.commit({f"t{n}": "" for n in range(count)})
    return archive


def claimed(session: Session, slots: int, turns: claim.Turns | None = None, process: str = PROCESS) -> list[str]:
    return [one.archive.name for one in claim.claim(session, process, HOST, slots, turns=turns)]


def end(archive: AnArchive, count: int, process: str = PROCESS) -> None:
    """End the oldest attempts of an archive."""
    for row in archive.sql(
        "select a.id from attempt a join task t on t.id = a.task_id where a.ended_at is null and t.archive_id = %s"
        " and a.process = %s order by a.id limit %s",
        archive.id, process, count,
    ):  # fmt: skip
        finish.finish(archive.session, process, [Outcome(AttemptId(row["id"]), End.EXITED, 0)])


def live(archive: AnArchive) -> int:
    (row,) = archive.sql(
        "select count(*) as n from attempt a join task t on t.id = a.task_id where a.ended_at is null and t.archive_id = %s",
        archive.id,
    )
    return int(row["n"])


# Tiers


def test_archives_of_a_lower_tier_go_first_and_those_of_one_take_turns(session: Session) -> None:
    crowd(session, "late", 3, tier=9)
    for name in ("a", "b"):
        crowd(session, name, 4)
    crowd(session, "first", 3, tier=0)
    turns = claim.Turns()
    one_by_one = [claimed(session, 1, turns)[0] for _ in range(14)]
    assert one_by_one[:3] == ["first"] * 3
    assert one_by_one[3:11] in (["a", "b"] * 4, ["b", "a"] * 4)
    assert one_by_one[11:] == ["late"] * 3


def test_a_lower_tier_gets_all_slots_that_it_can_use(session: Session) -> None:
    crowd(session, "usual", 9)
    crowd(session, "first", 5, tier=1)
    crowd(session, "also-first", 2, tier=1)
    assert Counter(claimed(session, 8)) == {"first": 5, "also-first": 2, "usual": 1}


def test_what_a_lower_tier_has_for_others_alone_holds_up_nobody(session: Session) -> None:
    """Paused, at its limit, or of a kind that the task manager cannot start."""
    paused = crowd(session, "paused", tier=0)
    pauses.pause(session, ArchiveId(paused.id), "", "ann")
    full = crowd(session, "full", tier=0, max_running=1)
    assert claimed(session, 1) == ["full"]
    boxed = an_archive(session, "boxed")
    change(boxed, tier=0)
    boxed.commit({"a": "image: busybox"})
    crowd(session, "usual", 2)
    got = claim.claim(session, PROCESS, HOST, 5, pools=[Pool.PROCESS])
    assert [one.archive.name for one in got] == ["usual", "usual"]
    assert live(full) == 1


def test_a_tier_counts_from_the_moment_it_is_set(session: Session) -> None:
    """Also for what is ready already, and for an archive that is resumed."""
    crowd(session, "a", 2)
    b, c = crowd(session, "b", 2), crowd(session, "c", 2)
    change(b, tier=3)
    pauses.pause(session, ArchiveId(c.id), "", "ann")
    change(c, tier=2)
    pauses.resume(session, ArchiveId(c.id), "c", "ann")
    assert claimed(session, 5) == ["c", "c", "b", "b", "a"]
    b.commit({"late": ""})
    change(b, tier=7)
    assert claimed(session, 5) == ["a", "b"]


def test_explain_counts_what_a_lower_tier_has_ahead(session: Session) -> None:
    claim.register(session, PROCESS, HOST, "build-1", 1)
    usual = crowd(session, "usual", 1)
    crowd(session, "first", 3, tier=1)
    crowd(session, "late", 3, tier=9)
    assert "3 tasks ahead of it" in explain(session, usual.task("t0@2")).text


# max_running


def test_no_more_run_at_once_than_may_and_an_end_makes_room(session: Session) -> None:
    archive = crowd(session, "papers", 6, max_running=2)
    assert claimed(session, 10) == ["papers"] * 2
    assert claimed(session, 10) == []
    reason = explain(session, archive.task("t5@2")).reasons[0]
    assert reason.kind is Why.MAX_RUNNING
    assert "papers already runs as many tasks as its limit allows (max_running is 2)" in reason.text
    end(archive, 1)
    assert claimed(session, 10) == ["papers"]
    assert live(archive) == 2
    named = archive.sql("select s.attempt_id, a.ended_at from slot s join attempt a on a.id = s.attempt_id")
    assert [row["ended_at"] for row in named] == [None, None]


def test_a_claim_with_an_end_takes_the_slot_that_this_frees(session: Session) -> None:
    crowd(session, "papers", 3, max_running=1)
    (one,) = claim.claim(session, PROCESS, HOST, 4)
    request = claim.Request(HOST, 4, claim.Turns())
    done = finish.finish_and_claim(session, PROCESS, [Outcome(one.attempt, End.EXITED, 0)], request)
    assert len(done.claims) == 1


@pytest.mark.parametrize("how", [End.LOST, End.STOPPED, End.TIMED_OUT])
def test_every_end_gives_its_slot_back(session: Session, how: End) -> None:
    archive = crowd(session, "papers", 2, max_running=1)
    (one,) = claim.claim(session, PROCESS, HOST, 4)
    if how is End.LOST:
        archive.sql("update attempt set lease_until = now() - interval '1 s'")
        archive.sql("update heartbeat set steady_since = now() - interval '1 h', beat_at = clock_timestamp()")
        finish.lapse(session)
    else:
        finish.finish(session, PROCESS, [Outcome(one.attempt, how, None)])
    assert len(claimed(session, 4)) == 1


def test_a_full_archive_leaves_the_others_their_turns_however_many_are_full(session: Session) -> None:
    for n in range(claim.SPARE + 4):
        crowd(session, f"full{n:02}", 3, max_running=1)
    assert len(claimed(session, 99)) == claim.SPARE + 4
    crowd(session, "other", 2)
    assert claimed(session, 1) == ["other"]


def test_pools_of_a_limited_archive_keep_one_order(session: Session) -> None:
    archive = an_archive(session)
    change(archive, max_running=3)
    for _ in range(3):
        archive.commit({"bare": "", "boxed": "image: busybox"})
    found = claim.claim(session, PROCESS, HOST, 8)
    assert [f"{one.name}@{one.number}" for one in found] == ["bare@2", "boxed@2", "bare@3"]


def test_a_limit_is_set_while_more_are_running_and_counts_them(session: Session) -> None:
    archive = crowd(session, "papers", 9)
    assert len(claimed(session, 4)) == 4
    change(archive, max_running=2)
    assert claimed(session, 10) == []
    for left in (3, 2):
        end(archive, 1)
        assert (claimed(session, 10), live(archive)) == ([], left)
    end(archive, 1)
    assert (claimed(session, 10), live(archive)) == (["papers"], 2)


def test_a_limit_is_raised_lowered_and_taken_away_while_tasks_run(session: Session) -> None:
    archive = crowd(session, "papers", 30, max_running=1)
    for limit, running in ((3, 3), (2, 3), (5, 5), (1, 5), (None, 15)):
        change(archive, max_running=limit)
        claimed(session, 10)
        assert live(archive) == running, limit
    assert archive.sql("select * from slot") == []
    change(archive, max_running=10)
    end(archive, 6)
    assert (len(claimed(session, 10)), live(archive)) == (1, 10)


def test_a_large_limit_is_set_as_often_as_somebody_likes(session: Session) -> None:
    """In a time that grows with the limit, and not with its square."""
    archive = crowd(session, "papers", 2, max_running=1)
    claimed(session, 2)
    for _ in range(2):
        change(archive, max_running=20_000)
        (slots,) = archive.sql("select count(*) as n, count(attempt_id) as taken from slot")
        assert (slots["n"], slots["taken"]) == (20_000, 1)


def test_a_claim_that_is_not_committed_keeps_its_slot_from_others(session: Session, second_connection: Connect) -> None:
    archive = crowd(session, "papers", 5, max_running=2)
    other = second_connection()
    with other.transaction():
        taken, _ = claim.claim_within(other, "manager-2", claim.Request("host-2", 1, claim.Turns()))
        assert len(taken) == 1
        assert len(claimed(session, 5)) == 1
        assert claimed(session, 5) == []
    assert live(archive) == 2


def test_two_task_managers_that_claim_at_once_never_exceed_the_limit(session: Session) -> None:
    """Each claims and ends as fast as it can; what runs is counted by each before it ends anything."""
    limit = 3
    archive = crowd(session, "papers", MANY, max_running=limit)
    most: list[int] = []
    errors: list[BaseException] = []
    begin = threading.Barrier(2)

    def work(process: str) -> None:
        try:
            begin.wait()
            turns = claim.Turns()
            for _ in range(100 * MANY):
                got = claim.claim(session, process, process, 4, turns=turns)
                most.append(live(archive))
                ends = [Outcome(one.attempt, End.EXITED, 0) for one in got]
                finish.finish(session, process, ends)
                if all(state == "completed" for state in archive.states().values()):
                    return
        except BaseException as error:
            errors.append(error)

    managers = [threading.Thread(target=work, args=(f"manager-{n}",)) for n in (1, 2)]
    for one in managers:
        one.start()
    for one in managers:
        one.join()
    assert not errors
    assert set(archive.states().values()) == {"completed"}
    assert max(most) == limit


def test_an_archive_may_be_limited_from_the_first(session: Session) -> None:
    archives.register(
        session, name="new", kind="subversion", url="/srv/new", repository="/srv/new", uuid="", folder="",
        settings=ArchiveSettings(process=True, max_running=1, tier=2), starts=(),
    )  # fmt: skip
    (row,) = session.rows("archives_named", name="new")
    assert session.rows("free_slots", archive=row.id)[0].n == 1
