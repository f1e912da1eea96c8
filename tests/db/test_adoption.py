"""Adoption of attempts that outlive their task manager: how long an attempt stays reserved for its
host, and which process gets the attempt (design 6, rule 10).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from arkqueue import logs
from arkqueue.db import Connection
from arkqueue.db.session import SQL, Session
from arkqueue.logs import Logs
from arkqueue.model import AttemptId, End, Outcome, Receipt, Stream
from arkqueue.queue import claim, control, finish
from arkqueue.views.explain import explain
from tests.builders import HOST, PROCESS, AnArchive, a_gateway
from tests.db.test_claim import lapse
from tests.db.test_races import InThread, wait_until_blocked

Connect = Callable[[], Connection]
WITHIN = 300.0
NEXT = "manager-2"


def in_container(archive: AnArchive, key: str = "a@2") -> AttemptId:
    """A running attempt in a container; of a commit with one task, where the test made none."""
    if archive.numbers[""] == 1:
        archive.commit({"a": ""})
    attempt = archive.attempt(key)
    assert claim.reserve(archive.session, PROCESS, attempt, "sha256:1234", WITHIN)
    return attempt


def adopt(
    session: Session, *attempts: AttemptId, by: str = NEXT, of: str = PROCESS, host: str = HOST
) -> list[claim.Adopted]:
    return claim.adopt(session, by, host, dict.fromkeys(attempts, of), WITHIN)


def set_lease(archive: AnArchive, attempt: AttemptId, ago: str) -> None:
    """A lease that was over so long ago, in a database that has been heard all the time."""
    lapse(archive.session, attempt)
    archive.sql("update attempt set lease_until = clock_timestamp() - %s::interval where id = %s", ago, attempt)


def test_installation_has_one_id_however_many_ask(session: Session, second_connection: Connect) -> None:
    first, watcher = second_connection(), second_connection()
    with first.transaction():
        made = first.execute(SQL["installation"]).fetchall()
        other = InThread(lambda: claim.installation(session))
        wait_until_blocked(watcher)
    assert other.result() == made[0]["id"] == claim.installation(session)


def test_image_is_kept_with_the_attempt(archive: AnArchive) -> None:
    attempt = in_container(archive)
    (row,) = archive.sql("select image, outlives::text from attempt where id = %s", attempt)
    assert row == {"image": "sha256:1234", "outlives": "00:05:00"}


def test_what_is_not_ours_any_more_is_not_reserved(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    attempt = archive.attempt("a@2")
    assert not claim.reserve(archive.session, "somebody else", attempt, "sha256:1234", WITHIN)
    archive.end("a@2")
    assert not claim.reserve(archive.session, PROCESS, attempt, "sha256:1234", WITHIN)


def test_container_is_lost_only_after_its_reservation(archive: AnArchive) -> None:
    attempt = in_container(archive)
    set_lease(archive, attempt, "4 min")
    assert finish.lapse(archive.session) == []
    assert archive.state("a@2") == "running"
    set_lease(archive, attempt, "6 min")
    assert finish.lapse(archive.session) == [attempt]
    assert archive.state("a@2") == "ready"
    (row,) = archive.sql("select message from attempt where id = %s", attempt)
    assert row["message"].endswith("for a whole lease and 300 s (adopt_within)")


def test_container_can_be_kept_by_its_own_task_manager_after_its_lease(archive: AnArchive) -> None:
    attempt = in_container(archive)
    set_lease(archive, attempt, "4 min")
    assert claim.renew(archive.session, PROCESS, [attempt]).asked == {attempt: None}
    assert archive.end("a@2") is Receipt.RECORDED


def test_victim_in_a_container_is_gone_when_its_host_does_not_come_back(archive: AnArchive) -> None:
    """Rule 10: the canceling task waits as long as the host may still come back."""
    archive.commit({"a": "cancels: [PREV]"})
    victim = in_container(archive, "a@2")
    archive.commit({"a": "cancels: [PREV]"})
    assert archive.state("a@3") == "waiting"
    set_lease(archive, victim, "4 min")
    assert finish.lapse(archive.session) == []
    assert archive.states() == {"a@2": "running", "a@3": "waiting"}
    set_lease(archive, victim, "6 min")
    assert finish.lapse(archive.session) == [victim]
    assert archive.states() == {"a@2": "canceled", "a@3": "ready"}


def test_person_may_know_that_a_reserved_victim_is_gone(archive: AnArchive) -> None:
    in_container(archive)
    control.cancel(archive.session, archive.task("a@2"), "ann", assume_gone=True)
    assert archive.state("a@2") == "canceled"


def test_next_task_manager_gets_the_attempt_as_it_was_claimed(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.run("a@2")
    archive.commit({"a": ""})
    attempt = in_container(archive, "a@3")
    claimed = archive.running[archive.task("a@3")]
    archive.commit({"a": ""})
    assert claimed.base == "2"
    (adopted,) = adopt(archive.session, attempt)
    assert adopted.claim == claimed
    assert adopted.stop is None
    assert 0 <= adopted.age < 60
    assert claim.live_on(archive.session, HOST) == [claim.Live(attempt, NEXT, True)]
    assert claim.renew(archive.session, NEXT, [attempt]).asked == {attempt: None}
    assert finish.finish(archive.session, NEXT, [Outcome(attempt, End.EXITED, 0)]) == {attempt: Receipt.RECORDED}
    assert archive.state("a@3") == "completed"


def test_adoption_gives_a_new_lease(archive: AnArchive) -> None:
    attempt = in_container(archive)
    set_lease(archive, attempt, "4 min")
    assert adopt(archive.session, attempt)
    (row,) = archive.sql("select lease_until > clock_timestamp() + interval '80 s' as good from attempt")
    assert row["good"]


def test_adoption_says_what_was_asked_meanwhile(archive: AnArchive) -> None:
    attempt = in_container(archive)
    archive.cancel("a@2")
    (adopted,) = adopt(archive.session, attempt)
    assert adopted.stop == "cancel"


def test_log_goes_on_where_the_earlier_process_ended(archive: AnArchive) -> None:
    attempt = in_container(archive)
    before = Logs(a_gateway(archive.session))
    writer = before.open(attempt)
    writer.write(Stream.STDOUT, b"one\n")
    writer.note("said by arkqueue")
    writer.write(Stream.STDERR, b"two")
    before.flush([writer])
    writer.write(Stream.STDOUT, b"never stored")
    (adopted,) = adopt(archive.session, attempt)
    assert adopted.log_bytes == 24
    assert adopted.stored == {Stream.STDOUT: 4, Stream.STDERR: 3}
    assert adopted.log_lines == 1, "what arkqueue says is no line of the program"
    before.flush([writer])
    after = Logs(a_gateway(archive.session, NEXT))
    writer = after.adopt(attempt, adopted.log_bytes, adopted.stored)
    writer.write(Stream.STDERR, b"three")
    after.flush([writer])
    chunks = logs.read(archive.session, attempt).chunks
    assert [(c.position, c.data) for c in chunks] == [
        (0, b"one\n"), (4, b"said by arkqueue\n"), (21, b"two"), (24, b"three")
    ]  # fmt: skip
    (row,) = archive.sql("select log_bytes, log_stdout, log_stderr from attempt")
    assert row == {"log_bytes": 29, "log_stdout": 4, "log_stderr": 8}


def test_dropped_middle_of_a_log_counts(archive: AnArchive) -> None:
    """What was too long to be kept is accounted for all the same: it is not to come again."""
    attempt = in_container(archive)
    flusher = Logs(a_gateway(archive.session), 100, 1000)
    writer = flusher.open(attempt)
    for _ in range(10_000):
        writer.write(Stream.STDOUT, b"x" * 700)
        writer.write(Stream.STDERR, b"y" * 300)
    flusher.flush([writer])
    (adopted,) = adopt(archive.session, attempt)
    assert adopted.stored == {Stream.STDOUT: 7_000_000, Stream.STDERR: 3_000_000}
    assert adopted.log_bytes == 10_000_000


def test_counts_are_of_what_is_stored_not_of_what_was_written(archive: AnArchive) -> None:
    attempt = in_container(archive)
    flusher = Logs(a_gateway(archive.session))
    writer = flusher.open(attempt)
    for _ in range(40):
        writer.write(Stream.STDOUT, b"x" * 70_000)
        writer.write(Stream.STDERR, b"y" * 30_000)
    # One turn of the flusher, neither more nor less.
    flusher._turn([writer])
    (adopted,) = adopt(archive.session, attempt)
    assert adopted.log_bytes == sum(adopted.stored.values()) < 4_000_000
    chunks = logs.read(archive.session, attempt, limit=10_000_000).chunks
    for stream in (Stream.STDOUT, Stream.STDERR):
        assert adopted.stored[stream] == sum(len(c.data) for c in chunks if c.stream is stream)


def test_only_its_own_host_adopts_and_only_what_outlives(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": ""})
    archive.claim()
    inside, process = in_container(archive, "a@2"), archive.attempt("b@2")
    assert adopt(archive.session, inside, process, host="host-2") == []
    assert [a.claim.attempt for a in adopt(archive.session, inside, process)] == [inside]


def test_what_cannot_be_adopted_is_buried(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "", "c": ""})
    archive.claim()
    kept, gone = in_container(archive, "a@2"), in_container(archive, "b@2")
    process = archive.attempt("c@2")
    assert finish.expire(archive.session, NEXT, HOST) == [process]
    assert finish.expire(archive.session, NEXT, HOST, gone=[gone]) == [gone]
    assert archive.states() == {"a@2": "running", "b@2": "ready", "c@2": "ready"}
    adopt(archive.session, kept)
    assert finish.expire(archive.session, NEXT, HOST, gone=[kept]) == [], "it is no earlier process's any more"


def test_late_report_and_log_of_the_earlier_process_are_refused(archive: AnArchive) -> None:
    attempt = in_container(archive)
    adopt(archive.session, attempt)
    assert archive.record(attempt, End.EXITED, 1) is Receipt.NOT_YOURS
    assert claim.renew(archive.session, PROCESS, [attempt]).asked == {}
    zombie = Logs(a_gateway(archive.session))
    writer = zombie.open(attempt)
    writer.write(Stream.STDOUT, b"late")
    zombie.flush([writer])
    assert logs.read(archive.session, attempt).chunks == ()
    assert archive.state("a@2") == "running"


# --- Races -----------------------------------------------------------------------------------------------------------


def test_of_two_who_adopt_an_attempt_the_first_gets_it(archive: AnArchive, second_connection: Connect) -> None:
    attempt = in_container(archive)
    first, watcher = second_connection(), second_connection()
    values = {"host": HOST, "attempts": [attempt], "processes": [PROCESS], "lease": 90, "adopt_within": WITHIN}
    with first.transaction():
        assert first.execute(SQL["adopt"], {"process": NEXT, **values}).fetchall()
        other = InThread(lambda: adopt(archive.session, attempt, by="manager-3"))
        wait_until_blocked(watcher)
    assert other.result() == []
    assert claim.live_on(archive.session, HOST) == [claim.Live(attempt, NEXT, True)]


def test_attempt_that_is_adopted_while_it_lapses_is_not_lost(archive: AnArchive, second_connection: Connect) -> None:
    """The queue manager found its reservation over; when it has the lock, there is a new lease."""
    attempt = in_container(archive)
    set_lease(archive, attempt, "6 min")
    adopter, watcher = second_connection(), second_connection()
    values = {"host": HOST, "attempts": [attempt], "processes": [PROCESS], "lease": 90, "adopt_within": WITHIN}
    with adopter.transaction():
        assert adopter.execute(SQL["adopt"], {"process": NEXT, **values}).fetchall()
        lapsing = InThread(lambda: finish.lapse(archive.session))
        wait_until_blocked(watcher)
    assert lapsing.result() == []
    assert archive.state("a@2") == "running"


@pytest.mark.garbles
def test_attempt_that_lapses_while_it_is_adopted_is_not_adopted(archive: AnArchive, second_connection: Connect) -> None:
    attempt = in_container(archive)
    lapser, watcher = second_connection(), second_connection()
    with lapser.transaction():
        lapser.execute(b"update attempt set ended_at = clock_timestamp(), \"end\" = 'lost' where id = %s", [attempt])
        adopting = InThread(lambda: adopt(archive.session, attempt))
        wait_until_blocked(watcher)
    assert adopting.result() == []


@pytest.mark.garbles
def test_report_that_comes_before_the_adoption_counts(archive: AnArchive, second_connection: Connect) -> None:
    attempt = in_container(archive)
    holder, watcher = second_connection(), second_connection()
    with holder.transaction():
        holder.execute(b"select from attempt where id = %s for update", [attempt])
        adopting = InThread(lambda: adopt(archive.session, attempt))
        wait_until_blocked(watcher)
        holder.execute(b"update attempt set ended_at = clock_timestamp(), \"end\" = 'exited' where id = %s", [attempt])
    assert adopting.result() == []


def test_stop_that_comes_with_the_adoption_is_heard(archive: AnArchive, second_connection: Connect) -> None:
    """What the adoption could not see yet is said to its new process."""
    attempt = in_container(archive)
    adopter = second_connection()
    values = {"host": HOST, "attempts": [attempt], "processes": [PROCESS], "lease": 90, "adopt_within": WITHIN}
    with adopter.transaction():
        (row,) = adopter.execute(SQL["adopt"], {"process": NEXT, **values}).fetchall()
        assert row["stop"] is None
        archive.cancel("a@2")
    assert claim.stops(archive.session, NEXT) == {attempt: "cancel"}
    assert claim.renew(archive.session, NEXT, [attempt]).asked == {attempt: "cancel"}


# --- What people are told --------------------------------------------------------------------------------------------


def test_explain_says_until_when_a_silent_task_managers_container_is_reserved(archive: AnArchive) -> None:
    attempt = in_container(archive)
    set_lease(archive, attempt, "1 min")
    (row,) = archive.sql(
        "select to_char((lease_until + outlives) at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS') as until from attempt"
    )
    told = explain(archive.session, archive.task("a@2"))
    assert f"Until {row['until']} UTC the attempt is reserved for its host" in told.text
    assert told.commands == ["arkqueue cancel papers@2/a --assume-gone"]
