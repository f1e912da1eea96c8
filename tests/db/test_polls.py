"""Polls (design 5.29). A poll asks for the outcome of a deferred task, so the task's command never
runs a second time unless a person requests it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from arkqueue.db.session import Session
from arkqueue.errors import Conflict
from arkqueue.model import ArchiveId, AttemptKind, Claim, End, Receipt, RunId
from arkqueue.queue import claim, deletion, finish, many, pauses, removal, retrying
from arkqueue.views import tasks
from arkqueue.views.explain import explain
from tests.builders import HOST, PROCESS, AnArchive, an_archive
from tests.db.test_limits import change

DEPOSIT = "retries: {max: 1, delay: 7s}\npoll: {command: ask, every: 1h}\ndeadline: 2d"


@pytest.fixture
def archive(session: Session) -> AnArchive:
    """A deposit that the remote service has taken, and has not decided yet."""
    archive = an_archive(session)
    archive.commit({"deposit": DEPOSIT, "after": "depends: [deposit]"})
    assert archive.claim("deposit@2").kind is AttemptKind.RUN
    archive.end("deposit@2", 75, outputs={"id": "d-1", "state": "received"})
    assert archive.state("deposit@2") == "deferred"
    return archive


def due_in(archive: AnArchive, key: str = "deposit@2") -> float:
    (row,) = archive.sql(
        "select extract(epoch from due_at - clock_timestamp())::float8 as n from task where id = %s", archive.task(key)
    )
    return float(row["n"])


def poll(archive: AnArchive, key: str = "deposit@2") -> Claim:
    """The claim of its poll, which is due now where it was to come later."""
    if archive.state(key) == "deferred":
        archive.sql("update task set due_at = clock_timestamp() where id = %s", archive.task(key))
        finish.wake_deferred(archive.session)
    claimed = archive.claim(key)
    assert claimed.kind is AttemptKind.POLL
    return claimed


def polled(archive: AnArchive, code: int | None, end: End = End.EXITED, **more: Any) -> str:
    """The state of the deposit after a poll has ended so."""
    poll(archive)
    assert archive.end("deposit@2", code, end, **more) is Receipt.RECORDED
    return archive.state("deposit@2")


def lose(archive: AnArchive, claimed: Claim) -> None:
    archive.running.clear()
    archive.sql("update attempt set lease_until = clock_timestamp() - interval '1 s' where ended_at is null")
    archive.sql(
        "update heartbeat set steady_since = clock_timestamp() - interval '1 hour', beat_at = clock_timestamp()"
    )
    assert finish.lapse(archive.session) == [claimed.attempt]


def commands(archive: AnArchive) -> int:
    """How often the command of the deposit was run."""
    (row,) = archive.sql(
        "select count(*) as n from attempt where kind = 'run' and task_id = %s", archive.task("deposit@2")
    )
    return int(row["n"])


def time_passes(archive: AnArchive, seconds: float = 9e6) -> None:
    archive.sql("update task set deferred_at = deferred_at - make_interval(secs => %s)", seconds)


@pytest.mark.parametrize(
    ("code", "end", "state", "after"),
    [(0, End.EXITED, "completed", "ready"), (65, End.EXITED, "rejected", "skipped"), (75, End.EXITED, "deferred", "waiting")],
)  # fmt: skip
def test_the_poll_says_what_became_of_the_deposit(
    archive: AnArchive, code: int, end: End, state: str, after: str
) -> None:
    assert polled(archive, code, end) == state
    assert (archive.state("after@2"), commands(archive)) == (after, 1)


def test_polls_follow_one_another_and_a_poll_may_say_when_the_next_is_due(archive: AnArchive) -> None:
    assert due_in(archive) == pytest.approx(3600, abs=20)
    for _ in range(3):
        assert polled(archive, 75) == "deferred"
        assert due_in(archive) == pytest.approx(3600, abs=20)
    assert polled(archive, 75, outputs={"arkqueue.retry_after": 60}) == "deferred"
    assert due_in(archive) == pytest.approx(60, abs=20)
    assert commands(archive) == 1


FAILURES = [(1, End.EXITED), (143, End.TIMED_OUT), (None, End.NOT_STARTED)]


@pytest.mark.parametrize(("code", "end"), FAILURES)
def test_a_poll_that_fails_is_repeated_as_retries_say_and_then_the_task_fails(
    archive: AnArchive, code: int | None, end: End
) -> None:
    assert polled(archive, code, end) == "deferred"
    assert due_in(archive) <= 7
    assert polled(archive, code, end) == "failed"
    assert (archive.state("after@2"), commands(archive)) == ("skipped", 1)


def test_each_poll_is_repeated_anew(archive: AnArchive) -> None:
    for _ in range(3):
        assert polled(archive, 1) == "deferred"
        assert polled(archive, 75) == "deferred"


@pytest.mark.parametrize(
    "delay",
    [
        lambda a: a.end("deposit@3", 1),
        lambda a: a.end("deposit@3", None, End.UNREACHABLE),
        lambda a: a.end("deposit@3", None, End.WITHHELD),
        lambda a: a.end("deposit@3", None, End.STOPPED),
    ],
)
def test_no_other_delay_than_75_makes_it_poll(archive: AnArchive, delay: Callable[[AnArchive], object]) -> None:
    archive.commit({"deposit": DEPOSIT})
    delay(archive)
    archive.sql("update task set due_at = clock_timestamp() where state = 'deferred' and number = 3")
    finish.wake_deferred(archive.session)
    assert archive.claim("deposit@3").kind is AttemptKind.RUN


def test_failures_of_the_command_are_none_of_the_poll(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"deposit": DEPOSIT})
    archive.fail("deposit@2")
    archive.sql("update task set due_at = clock_timestamp() where state = 'deferred'")
    finish.wake_deferred(session)
    archive.end("deposit@2", 75)
    assert polled(archive, 1) == "deferred"


@pytest.mark.parametrize(("code", "state"), [(75, "failed"), (0, "completed"), (65, "rejected")])
def test_after_the_deadline_there_is_one_last_poll(archive: AnArchive, code: int, state: str) -> None:
    time_passes(archive, 2 * 86400 - 600)
    assert polled(archive, 75) == "deferred"
    assert 0 < due_in(archive) <= 600  # and not an hour
    time_passes(archive, 600)
    assert polled(archive, code) == state
    assert commands(archive) == 1
    if state == "failed":
        assert "it had stayed deferred until its deadline" in explain(archive.session, archive.task("deposit@2")).text


def test_a_pause_beyond_the_deadline_does_not_cost_the_last_poll(archive: AnArchive) -> None:
    pauses.pause(archive.session, ArchiveId(archive.id), "", "ann")
    time_passes(archive)
    archive.sql("update task set due_at = clock_timestamp() where state = 'deferred'")
    finish.wake_deferred(archive.session)
    assert claim.claim(archive.session, PROCESS, HOST, 9) == []
    pauses.resume(archive.session, ArchiveId(archive.id), "papers", "ann")
    assert polled(archive, 0) == "completed"
    assert commands(archive) == 1


def test_a_lost_poll_is_repeated_however_often_also_where_a_lost_command_fails(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"deposit": DEPOSIT + "\non_lost: fail"})
    archive.end("deposit@2", 75)
    for _ in range(6):
        claimed = poll(archive)
        lose(archive, claimed)
        assert archive.state("deposit@2") == "deferred"
        assert archive.record(claimed.attempt, End.EXITED, 0) is Receipt.NOT_YOURS
    assert due_in(archive) == pytest.approx(3600, abs=20)
    assert polled(archive, 0) == "completed"
    assert commands(archive) == 1
    archive.commit({"deposit": DEPOSIT + "\non_lost: fail"})
    lose(archive, archive.claim("deposit@3"))
    assert archive.state("deposit@3") == "failed"


@pytest.mark.parametrize("state", ["failed", "deferred", "canceled", "skipped"])
def test_retry_polls_again_with_a_new_deadline_and_never_runs_the_command(archive: AnArchive, state: str) -> None:
    time_passes(archive)
    match state:
        case "failed":
            polled(archive, 75)
        case "canceled":
            archive.cancel("deposit@2")
        case "skipped":
            archive.skip("deposit@2")
    assert archive.state("deposit@2") == state
    archive.retry("deposit@2")
    assert archive.states() == {"deposit@2": "ready", "after@2": "waiting"}
    assert polled(archive, 75) == "deferred"  # its deadline is not over any more
    assert polled(archive, 0) == "completed"
    assert commands(archive) == 1


@pytest.mark.parametrize("state", ["failed", "deferred"])
def test_retry_from_start_alone_runs_the_command_again(archive: AnArchive, state: str) -> None:
    if state == "failed":
        polled(archive, 1)
        polled(archive, 1)
    many.retry_run(archive.session, RunId(archive.run_id(2)), "ann", from_start=True)
    assert archive.claim("deposit@2").kind is AttemptKind.RUN
    archive.end("deposit@2", 75)
    assert polled(archive, 0) == "completed"
    assert commands(archive) == 2
    assert "--from-start" in archive.sql("select note from deed where verb = 'retry'")[0]["note"]


@pytest.mark.parametrize(("code", "state"), [(0, "completed"), (65, "rejected"), (75, "canceled"), (1, "canceled")])
def test_a_cancellation_stops_a_live_poll_and_keeps_what_it_had_found(
    archive: AnArchive, code: int, state: str
) -> None:
    claimed = poll(archive)
    archive.cancel("deposit@2")
    assert claim.stops(archive.session, PROCESS) == {claimed.attempt: "cancel"}
    assert archive.state("after@2") == "waiting"
    archive.end("deposit@2", code, outputs={"state": "found"})
    assert archive.state("deposit@2") == state
    (row,) = archive.sql("select outputs from attempt where id = %s", claimed.attempt)
    assert row["outputs"] == {"id": "d-1", "state": "found"}


def test_a_command_that_ends_with_75_as_it_is_canceled_is_not_run_again_either(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"deposit": DEPOSIT})
    archive.claim("deposit@2")
    archive.cancel("deposit@2")
    archive.end("deposit@2", 75)
    assert archive.state("deposit@2") == "canceled"
    archive.retry("deposit@2")
    assert poll(archive).kind is AttemptKind.POLL


def test_a_later_revision_that_cancels_it_waits_until_the_live_poll_has_stopped(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"deposit": DEPOSIT})
    archive.end("deposit@2", 75)
    poll(archive)
    archive.commit({"deposit": DEPOSIT + "\ncancels: [PREV]"})
    assert archive.state("deposit@3") == "waiting"
    archive.end("deposit@2", None, End.STOPPED)
    assert archive.states() == {"deposit@2": "canceled", "deposit@3": "ready"}


@pytest.mark.parametrize(
    ("code", "end", "state"),
    [(None, End.STOPPED, "canceled"), (75, End.EXITED, "canceled"), (0, End.EXITED, "completed"), (65, End.EXITED, "rejected")],
)  # fmt: skip
def test_a_deletion_stops_a_live_poll_and_nothing_waits_for_what_it_found(
    archive: AnArchive, code: int | None, end: End, state: str
) -> None:
    claimed, run = poll(archive), RunId(archive.run_id(2))
    archive.commit({"deposit": DEPOSIT, "next": "depends: [PREV:deposit]"})
    deletion.delete_run(archive.session, run, "ann")
    assert claim.stops(archive.session, PROCESS) == {claimed.attempt: "cancel"}
    archive.end("deposit@2", code, end)
    assert (archive.state("deposit@2"), archive.state("next@3")) == (state, "ready")
    deletion.undelete_run(archive.session, run, "ann")
    assert archive.state("deposit@2") == ("held" if state == "canceled" else state)
    assert archive.sql("select waived from task where id = %s", archive.task("deposit@2")) == [{"waived": False}]
    assert commands(archive) == 1


def test_a_run_whose_command_runs_is_not_deleted(archive: AnArchive) -> None:
    archive.retry("deposit@2", from_start=True)
    archive.claim("deposit@2")
    with pytest.raises(Conflict, match="deposit is running"):
        deletion.delete_run(archive.session, RunId(archive.run_id(2)), "ann")


def test_a_poll_takes_no_lock(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"deposit": DEPOSIT + "\nlock: remote", "other": "lock: remote"})
    archive.end("deposit@2", 75)
    archive.claim("other@2")
    assert poll(archive).name == "deposit"  # beside the other one, which has the lock
    archive.end("deposit@2", 75)
    archive.run("other@2")
    poll(archive)
    archive.commit({"third": "lock: remote"})
    assert archive.state("third@3") == "ready"


def test_a_poll_takes_a_slot_of_its_archive_and_goes_to_a_task_manager_with_its_labels(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"deposit": DEPOSIT + "\nruns_on: [net]", "other": ""})
    (first,) = [c for c in claim.claim(session, PROCESS, HOST, 9, labels=["net"]) if c.name == "deposit"]
    archive.record(first.attempt, End.EXITED, 75)
    change(archive, max_running=1)
    retrying.refresh(session, archive.task("deposit@2"), "ann")
    assert claim.claim(session, PROCESS, HOST, 9, labels=["net"]) == []  # the other one has the only slot
    (other,) = archive.sql("select attempt_id from task where name = 'other'")
    archive.record(other["attempt_id"], End.EXITED, 0)
    assert claim.claim(session, PROCESS, HOST, 9) == []
    (claimed,) = claim.claim(session, PROCESS, HOST, 9, labels=["net"])
    assert claimed.kind is AttemptKind.POLL


def test_outputs_of_polls_are_merged_and_the_poll_gets_what_there_is(archive: AnArchive) -> None:
    claimed = poll(archive)
    own = {"self": {"id": "d-1", "state": "received"}}
    assert claim.inputs(archive.session, [claimed.task]) == {claimed.task: own}
    archive.end("deposit@2", 75, outputs={"state": "in review"})
    lose(archive, poll(archive))
    assert polled(archive, 0, outputs={"state": "accepted", "ark": "ark:/1/2"}) == "completed"
    after = archive.claim("after@2")
    merged = {"id": "d-1", "state": "accepted", "ark": "ark:/1/2"}
    assert claim.inputs(archive.session, [after.task]) == {after.task: {"deposit": merged}}


def test_outputs_that_were_removed_do_not_come_back_with_a_live_poll(archive: AnArchive) -> None:
    claimed = poll(archive)
    removal.remove(archive.session, archive.task("deposit@2"), "ann", "a secret", outputs=True)
    assert claim.inputs(archive.session, [claimed.task]) == {}
    assert archive.end("deposit@2", 0, outputs={"state": "accepted"}) is Receipt.RECORDED
    (row,) = archive.sql("select outputs from attempt where id = %s", claimed.attempt)
    assert row["outputs"] == {"state": "accepted"}


# --- refresh ---------------------------------------------------------------------------------------------------------


def test_refresh_polls_now_and_changes_no_deadline(archive: AnArchive) -> None:
    time_passes(archive, 86400)
    before = archive.sql("select deferred_at from task where name = 'deposit'")
    retrying.refresh(archive.session, archive.task("deposit@2"), "ann")
    assert archive.sql("select deferred_at from task where name = 'deposit'") == before
    waits = r"deposit: is about to be polled, and waits for its turn\. arkqueue explain papers@2/deposit"
    with pytest.raises(Conflict, match=waits):
        retrying.refresh(archive.session, archive.task("deposit@2"), "ann")
    assert poll(archive).kind is AttemptKind.POLL
    with pytest.raises(Conflict, match="is being polled already"):
        retrying.refresh(archive.session, archive.task("deposit@2"), "ann")


def test_refresh_is_for_what_is_deferred_and_has_a_poll(archive: AnArchive) -> None:
    archive.commit({"plain": ""})
    archive.end("plain@3", 75)
    for key, why in (("plain@3", "has no poll"), ("after@2", "is waiting")):
        with pytest.raises(Conflict, match=why):
            retrying.refresh(archive.session, archive.task(key), "ann")
    with pytest.raises(Conflict, match="papers@3: has no deferred task with a poll"):
        retrying.refresh_run(archive.session, RunId(archive.run_id(3)), "ann")


def test_refresh_of_a_run_and_an_archive(archive: AnArchive) -> None:
    session = archive.session
    archive.commit({"one": "poll: {command: ask}", "two": "poll: {command: ask}", "plain": ""})
    for key in ("one@3", "two@3", "plain@3"):
        archive.end(key, 75)
    done = retrying.refresh_run(session, RunId(archive.run_id(3)), "ann")
    assert done.tasks == [archive.task("one@3"), archive.task("two@3")]
    assert archive.state("deposit@2") == "deferred"
    assert retrying.refresh_archive(session, ArchiveId(archive.id), "ann").tasks == [archive.task("deposit@2")]
    with pytest.raises(Conflict, match="archive papers: has no deferred task with a poll"):
        retrying.refresh_archive(session, ArchiveId(archive.id), "ann")
    assert archive.state("plain@3") == "deferred"


# --- what is told ----------------------------------------------------------------------------------------------------


def test_a_refresh_of_a_paused_archive_says_that_the_poll_waits(archive: AnArchive) -> None:
    session, task = archive.session, archive.task("deposit@2")
    pauses.pause(session, ArchiveId(archive.id), "the disk is full", "bob")
    retrying.refresh(session, task, "ann")
    assert tasks.task(session, task).why == "its poll is due, but papers is paused"
    assert explain(session, task).commands == ["arkqueue resume papers"]
    pauses.resume(session, ArchiveId(archive.id), "papers", "bob")
    assert tasks.task(session, task).why == "its poll is due"
    assert archive.claim("deposit@2").kind is AttemptKind.POLL


def test_polls_are_told(archive: AnArchive) -> None:
    session, task = archive.session, archive.task("deposit@2")
    told = explain(session, task)
    assert "The next poll is due at" in told.text
    assert "Its deadline is" in told.text
    assert told.commands == ["arkqueue logs papers@2/deposit", "arkqueue refresh papers@2/deposit"]
    claim.register(session, PROCESS, HOST, "machine", 4)
    claimed = poll(archive)
    assert "It is being polled since" in explain(session, task).text
    detail = tasks.task(session, task)
    assert (detail.polls, detail.why) == (True, "its outcome is asked for (poll)")
    assert [(one.number, one.kind) for one in detail.history] == [(1, AttemptKind.RUN), (2, AttemptKind.POLL)]
    assert claimed.attempt_number == 2
