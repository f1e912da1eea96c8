"""Races of polls (design 5.29): in either order of two events, the command never runs a second
time.
"""

from __future__ import annotations

from typing import Any

import pytest

from arkqueue.db.session import SQL, Session
from arkqueue.errors import Conflict
from arkqueue.model import ArchiveId, AttemptKind, Claim, End, Outcome, Receipt
from arkqueue.queue import claim, finish, retrying
from arkqueue.queue.claim import parameters
from arkqueue.queue.graph import Graph
from tests.builders import HOST, PROCESS, AnArchive, an_archive
from tests.db.test_races import PATIENCE, Connect, InThread, one_after_the_other, wait_until_blocked


@pytest.fixture
def archive(session: Session) -> AnArchive:
    """A deposit whose poll runs."""
    archive = an_archive(session)
    archive.commit({"deposit": "poll: {command: ask, every: 1h}"})
    archive.end("deposit@2", 75)
    retrying.refresh(session, archive.task("deposit@2"), "ann")
    assert archive.claim("deposit@2").kind is AttemptKind.POLL
    return archive


def report(archive: AnArchive, attempt: Any, code: int) -> Receipt:
    return finish.finish(archive.session, PROCESS, [Outcome(attempt, End.EXITED, code)])[attempt]


def make_late(archive: AnArchive) -> None:
    """Its lease is over, and the database was heard all the time."""
    archive.sql("update attempt set lease_until = clock_timestamp() - interval '1 s' where ended_at is null")
    archive.sql(
        "update heartbeat set steady_since = clock_timestamp() - interval '1 hour', beat_at = clock_timestamp()"
    )


def next_claim(archive: AnArchive) -> Claim:
    if archive.state("deposit@2") == "deferred":
        retrying.refresh(archive.session, archive.task("deposit@2"), "ann")
    (claimed,) = claim.claim(archive.session, PROCESS, HOST, 9)
    return claimed


def test_a_task_manager_that_dies_between_the_outcome_and_the_record_costs_one_more_poll(archive: AnArchive) -> None:
    """The remote service has said yes, and nobody has recorded it: the next poll hears it again."""
    make_late(archive)
    assert finish.lapse(archive.session) == [archive.running[archive.task("deposit@2")].attempt]
    assert archive.state("deposit@2") == "deferred"
    again = next_claim(archive)
    assert again.kind is AttemptKind.POLL
    assert report(archive, again.attempt, 0) is Receipt.RECORDED
    assert archive.state("deposit@2") == "completed"


@pytest.mark.parametrize("first", ["record", "lapse"])
def test_of_a_record_and_a_lapse_at_once_the_first_wins(
    archive: AnArchive, second_connection: Connect, first: str
) -> None:
    attempt = archive.running[archive.task("deposit@2")].attempt
    make_late(archive)
    doing = {
        "record": lambda: report(archive, attempt, 0),
        "lapse": lambda: finish.lapse(archive.session, patience=PATIENCE),
    }
    order = [doing.pop(first), *doing.values()]
    one, two = (work.result() for work in one_after_the_other(archive, second_connection, *order))
    if first == "record":
        assert (one, two, archive.state("deposit@2")) == (Receipt.RECORDED, [], "completed")
    else:
        assert (one, two, archive.state("deposit@2")) == ([attempt], Receipt.NOT_YOURS, "deferred")
        assert next_claim(archive).kind is AttemptKind.POLL


@pytest.mark.parametrize("first", ["record", "retry"])
@pytest.mark.parametrize("code", [0, 1, 65, 75])
def test_a_retry_beside_the_end_of_a_poll_never_runs_the_command(
    archive: AnArchive, second_connection: Connect, first: str, code: int
) -> None:
    attempt = archive.running[archive.task("deposit@2")].attempt
    doing = {"record": lambda: report(archive, attempt, code), "retry": lambda: archive.retry("deposit@2")}
    order = [doing.pop(first), *doing.values()]
    works = dict(zip([first, *doing], one_after_the_other(archive, second_connection, *order), strict=True))
    assert works["record"].result() is Receipt.RECORDED
    if first == "record" and code in (1, 75):
        works["retry"].result()
        assert archive.state("deposit@2") == "ready"
    else:
        with pytest.raises(Conflict):
            works["retry"].result()
        assert archive.state("deposit@2") == {0: "completed", 1: "failed", 65: "rejected", 75: "deferred"}[code]
    if code in (1, 75):
        if archive.state("deposit@2") == "failed":
            archive.retry("deposit@2")
        assert next_claim(archive).kind is AttemptKind.POLL
    assert archive.sql("select count(*) as n from attempt where kind = 'run'") == [{"n": 1}]


def test_a_retry_while_the_poll_that_is_due_is_claimed_comes_too_late(
    session: Session, second_connection: Connect
) -> None:
    """The retry has found it deferred, and waits for the archive; when it acts the poll runs."""
    archive = an_archive(session)
    archive.commit({"deposit": "poll: {command: ask}"})
    archive.end("deposit@2", 75)
    archive.sql("update task set due_at = clock_timestamp() where state = 'deferred'")
    holder, watcher = second_connection(), second_connection()
    with holder.transaction():
        holder.execute("select from archive where id = %s for update", [archive.id])
        late = InThread(lambda: archive.retry("deposit@2", from_start=True))
        wait_until_blocked(watcher)
        graph = Graph(holder, [archive.id])
        graph.follow(entering=graph.ids("make_due", archives=[archive.id], each=9))
        (row,) = holder.execute(SQL["claim"], parameters(PROCESS, HOST, 9)).fetchall()
        assert row["attempt_kind"] == "poll"
    with pytest.raises(Conflict, match="is running"):
        late.result()
    assert archive.sql("select polls from task where name = 'deposit'") == [{"polls": True}]


def test_a_refresh_and_a_queue_manager_make_one_poll_of_it(session: Session, second_connection: Connect) -> None:
    archive = an_archive(session)
    archive.commit({"deposit": "poll: {command: ask}"})
    archive.end("deposit@2", 75)
    archive.sql("update task set due_at = clock_timestamp() where state = 'deferred'")
    taken_up, refreshed = one_after_the_other(
        archive,
        second_connection,
        lambda: finish.wake_deferred(session, patience=PATIENCE),
        lambda: retrying.refresh_archive(session, ArchiveId(archive.id), "ann"),
    )
    taken_up.result()
    with pytest.raises(Conflict, match="has no deferred task with a poll"):
        refreshed.result()
    assert len(claim.claim(session, PROCESS, HOST, 9)) == 1
