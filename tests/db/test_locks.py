"""Locks of an archive (design 5.25): who gets them, in which order, and when they come back."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg
import pytest

from arkqueue.db.session import Session
from arkqueue.errors import Conflict
from arkqueue.model import ArchiveId, End
from arkqueue.queue import claim, control, finish, holds, locks, pauses
from tests.builders import HOST, PROCESS, AnArchive, an_archive


def claimed(archive: AnArchive, slots: int = 9, *labels: str) -> list[str]:
    found = claim.claim(archive.session, PROCESS, HOST, slots, labels=labels)
    archive.running |= {one.task: one for one in found}
    return [f"{one.name}@{one.number}" for one in found]


def set_lock(archive: AnArchive, name: str, capacity: int | None) -> None:
    locks.set_capacity(archive.session, ArchiveId(archive.id), name, capacity, "ann")


def test_of_two_tasks_that_name_a_lock_one_runs_at_a_time(archive: AnArchive) -> None:
    archive.commit({"a": "lock: tex", "b": "lock: tex", "other": ""})
    assert archive.states() == {"a@2": "ready", "b@2": "waiting", "other@2": "ready"}
    assert claimed(archive) == ["a@2", "other@2"]
    archive.run("a@2")
    assert archive.state("b@2") == "ready"
    assert claimed(archive) == ["b@2"]


def test_a_lock_is_free_for_who_waits_in_the_transaction_that_ends_its_holder(archive: AnArchive) -> None:
    archive.commit({"a": "lock: tex", "b": "lock: tex"})
    outcome = finish.Outcome(archive.attempt("a@2"), End.EXITED, 0)
    request = claim.Request(HOST, 4, claim.Turns())
    finished = finish.finish_and_claim(archive.session, PROCESS, [outcome], request, patience=0.0)
    assert [one.name for one in finished.claims] == ["b"]


@pytest.mark.parametrize("capacity", [0, -3])
def test_a_lock_without_room_for_any_task_is_not_stored(archive: AnArchive, capacity: int) -> None:
    """`lock list` would show no reason why its tasks wait; a pause has one."""
    set_lock(archive, "tex", 1)
    with pytest.raises(psycopg.errors.CheckViolation, match="lock_capacity_check"):
        archive.sql("update lock set capacity = %s", capacity)


def test_a_task_gets_all_of_its_locks_or_none(archive: AnArchive) -> None:
    """And keeps nobody from a lock that it has no use for yet, but for those behind it in that line."""
    archive.commit({"tex": "lock: tex", "both": "lock: [tex, printer]", "print": "lock: printer"})
    assert archive.states() == {"tex@2": "ready", "both@2": "waiting", "print@2": "waiting"}
    archive.run("tex@2")
    assert archive.states() == {"tex@2": "completed", "both@2": "ready", "print@2": "waiting"}
    archive.run("both@2")
    assert archive.state("print@2") == "ready"


def test_a_later_task_never_overtakes_an_earlier_one_on_a_lock_that_both_want(archive: AnArchive) -> None:
    archive.commit({"tex": "lock: tex"})
    archive.claim("tex@2")
    archive.commit({"both": "lock: [tex, printer]"})
    archive.commit({"print": "lock: printer"})
    assert archive.states() == {"tex@2": "running", "both@3": "waiting", "print@4": "waiting"}
    archive.end("tex@2")
    assert archive.states() == {"tex@2": "completed", "both@3": "ready", "print@4": "waiting"}


def test_a_lock_goes_to_the_lowest_priority_and_then_to_the_oldest(archive: AnArchive) -> None:
    archive.commit({"holder": "lock: tex"})
    archive.claim("holder@2")
    for _ in range(3):
        archive.commit({"a": "lock: tex"})
    control.prioritize(archive.session, archive.task("a@5"), 10, "ann")
    order = []
    archive.end("holder@2")
    while found := claimed(archive):
        order += found
        archive.end(found[0])
    assert order == ["a@5", "a@3", "a@4"]


def test_a_task_gives_its_locks_back_when_a_task_before_it_wants_them(archive: AnArchive) -> None:
    archive.commit({"first": "depends: [begin]\nlock: tex", "begin": ""})
    archive.commit({"second": "lock: tex"})
    assert archive.states() == {"first@2": "waiting", "begin@2": "ready", "second@3": "ready"}
    archive.commit({"third": "lock: tex"})
    control.prioritize(archive.session, archive.task("third@4"), 10, "ann")
    assert (archive.state("second@3"), archive.state("third@4")) == ("waiting", "ready")
    assert archive.run("begin@2") is None
    assert archive.states() == {
        "first@2": "waiting",
        "begin@2": "completed",
        "second@3": "waiting",
        "third@4": "running",
    }
    archive.end("third@4")
    assert (archive.state("first@2"), archive.state("second@3")) == ("ready", "waiting")


def test_capacity_says_how_many_have_a_lock_at_once(archive: AnArchive) -> None:
    set_lock(archive, "tex", 2)
    archive.commit(dict.fromkeys("abcd", "lock: tex"))
    assert claimed(archive) == ["a@2", "b@2"]
    set_lock(archive, "tex", None)
    assert claimed(archive, 1) == ["c@2"]
    set_lock(archive, "tex", 1)  # what runs goes on, and what has not started waits again
    assert archive.states() == {"a@2": "running", "b@2": "running", "c@2": "running", "d@2": "waiting"}
    archive.run("a@2", "b@2")
    assert archive.state("d@2") == "waiting"
    archive.run("c@2")
    assert archive.state("d@2") == "ready"


@pytest.mark.parametrize(
    ("end", "code", "state"),
    [
        (End.EXITED, 1, "failed"),
        (End.EXITED, 75, "deferred"),
        (End.LOST, None, "waiting"),
        (End.STOPPED, None, "waiting"),
    ],
)
def test_an_attempt_that_ends_in_any_way_frees_its_locks(
    archive: AnArchive, end: End, code: int | None, state: str
) -> None:
    """What comes back to work stands in line by its place: it is the first one again. A deferred task has no locks."""
    archive.commit({"a": "lock: tex", "b": "lock: tex"})
    attempt = archive.attempt("a@2")
    if end is End.LOST:
        archive.sql("update attempt set lease_until = clock_timestamp() - interval '1 s' where id = %s", attempt)
        archive.sql(
            "update heartbeat set steady_since = clock_timestamp() - interval '1 hour', beat_at = clock_timestamp()"
        )
        assert finish.lapse(archive.session) == [attempt]
    else:
        archive.record(attempt, end, code)
    states = {"a@2": "ready", "b@2": "waiting"} if state == "waiting" else {"a@2": state, "b@2": "ready"}
    assert archive.states() == states


def test_a_deferred_task_that_is_due_stands_in_line_again(archive: AnArchive) -> None:
    archive.commit({"a": "lock: tex", "b": "lock: tex"})
    archive.end("a@2", 75)
    archive.claim("b@2")
    archive.sql("update task set due_at = clock_timestamp() where state = 'deferred'")
    finish.wake_deferred(archive.session)
    assert archive.states() == {"a@2": "waiting", "b@2": "running"}
    archive.end("b@2")
    assert archive.state("a@2") == "ready"


def test_what_is_canceled_while_it_waits_for_a_lock_leaves_the_line(archive: AnArchive) -> None:
    archive.commit(dict.fromkeys("abc", "lock: tex"))
    archive.cancel("b@2")
    archive.cancel("a@2")
    assert archive.states() == {"a@2": "canceled", "b@2": "canceled", "c@2": "ready"}
    archive.retry("a@2")
    assert archive.states() == {"a@2": "ready", "b@2": "canceled", "c@2": "waiting"}


def test_a_cancellation_fires_before_its_task_asks_for_the_lock_that_the_victim_holds(archive: AnArchive) -> None:
    tasks = {"build": "cancels: [PREV]\nlock: tex"}
    archive.commit(tasks)
    archive.claim("build@2")
    archive.commit(tasks)
    (row,) = archive.sql("select stop from task where id = %s", archive.task("build@2"))
    assert (row["stop"], archive.state("build@3")) == ("cancel", "waiting")
    archive.end("build@2", 143, End.STOPPED)
    assert archive.states() == {"build@2": "canceled", "build@3": "ready"}


def test_what_a_task_cancels_is_canceled_once_while_it_waits_for_its_lock(archive: AnArchive) -> None:
    """A pause that ends meanwhile fires nothing again."""
    archive.commit({"tex": "lock: tex", "build": ""})
    assert claimed(archive, 1) == ["tex@2"]
    archive.commit({"sweep": "cancels: ['PREV:build']\nlock: tex"})
    assert (archive.state("sweep@3"), archive.state("build@2")) == ("waiting", "canceled")
    archive.retry("build@2", force=True)
    pauses.pause(archive.session, ArchiveId(archive.id), "", "ann")
    pauses.resume(archive.session, ArchiveId(archive.id), archive.name, "ann")
    assert (archive.state("sweep@3"), archive.state("build@2")) == ("waiting", "ready")


def test_a_held_task_has_no_lock(archive: AnArchive) -> None:
    archive.commit({"a": "lock: tex", "b": "lock: tex"})
    holds.hold(archive.session, archive.task("a@2"), "ann")
    assert archive.states() == {"a@2": "held", "b@2": "ready"}
    holds.release(archive.session, archive.task("a@2"), "ann")
    assert archive.states() == {"a@2": "ready", "b@2": "waiting"}


def test_what_is_retried_before_a_task_that_waits_for_a_lock_lets_it_leave_the_line(archive: AnArchive) -> None:
    archive.commit(
        {
            "tex": "lock: tex",
            "first": "",
            "then": "depends: [{task: first, when: settled}]\nlock: tex",
            "last": "lock: tex",
        }
    )
    archive.claim("tex@2")
    archive.end("first@2", 1)
    archive.retry("first@2")
    archive.end("tex@2")
    assert (archive.state("then@2"), archive.state("last@2")) == ("waiting", "ready")
    archive.run("last@2", "first@2")
    assert archive.state("then@2") == "ready"


def test_a_paused_archive_gives_the_locks_of_what_has_not_started_back(archive: AnArchive) -> None:
    archive.commit({"a": "lock: tex", "b": "lock: tex"})
    pauses.pause(archive.session, ArchiveId(archive.id), "", "ann")
    assert archive.states() == {"a@2": "waiting", "b@2": "waiting"}
    pauses.resume(archive.session, ArchiveId(archive.id), archive.name, "ann")
    assert archive.states() == {"a@2": "ready", "b@2": "waiting"}


def test_a_paused_lock_is_granted_to_nobody_and_its_tasks_hold_up_no_other_lock(archive: AnArchive) -> None:
    archive.commit({"both": "lock: [tex, printer]", "print": "lock: printer", "tex": "lock: tex"})
    locks.pause(archive.session, ArchiveId(archive.id), "tex", "the licence ran out", "ann")
    assert archive.states() == {"both@2": "waiting", "print@2": "ready", "tex@2": "waiting"}
    locks.resume(archive.session, ArchiveId(archive.id), "tex", "papers/tex", "ann")
    assert archive.states() == {"both@2": "ready", "print@2": "waiting", "tex@2": "waiting"}
    with pytest.raises(Conflict, match="is not paused"):
        locks.resume(archive.session, ArchiveId(archive.id), "tex", "papers/tex", "ann")


def test_a_pause_of_a_lock_survives_a_change_of_its_capacity_and_runs_go_on(archive: AnArchive) -> None:
    archive.commit({"a": "lock: tex", "b": "lock: tex"})
    archive.claim("a@2")
    locks.pause(archive.session, ArchiveId(archive.id), "tex", "", "ann")
    set_lock(archive, "tex", 5)
    assert archive.states() == {"a@2": "running", "b@2": "waiting"}
    archive.end("a@2")
    assert archive.state("b@2") == "waiting"


def test_what_no_living_task_manager_can_run_gives_its_locks_back(archive: AnArchive) -> None:
    session = archive.session
    claim.register(session, PROCESS, HOST, "here", 4, labels=("gpu",))
    archive.commit({"a": "lock: tex\nruns_on: gpu", "b": "lock: tex"})
    assert archive.states() == {"a@2": "ready", "b@2": "waiting"}
    claim.unregister(session, PROCESS)
    claim.register(session, "another", "there", "there", 4)
    locks.judge_all(session)
    assert archive.states() == {"a@2": "waiting", "b@2": "ready"}
    pauses.drain(session, "there", "", "ann")
    claim.register(session, "third", HOST, "here", 4, labels=("gpu", "tex"))
    locks.judge_all(session)
    assert archive.states() == {"a@2": "ready", "b@2": "waiting"}


def test_while_every_task_manager_is_drained_their_labels_still_count(archive: AnArchive) -> None:
    session = archive.session
    claim.register(session, PROCESS, HOST, "here", 4)
    archive.commit({"a": "lock: tex\nruns_on: gpu", "b": "lock: tex"})
    assert archive.states() == {"a@2": "waiting", "b@2": "ready"}
    pauses.drain(session, HOST, "", "ann")
    locks.judge_all(session)
    assert archive.states() == {"a@2": "waiting", "b@2": "ready"}


def test_a_task_that_waits_for_a_lock_leaves_the_slots_of_its_archive_to_others(archive: AnArchive) -> None:
    """`max_running` is no lock: what waits for six hours takes none of the archive's attempts."""
    from tests.db.test_limits import change as limit

    limit(archive, max_running=2)
    archive.commit({"a": "lock: tex"})
    archive.claim("a@2")
    archive.commit({"b": "lock: tex"})
    archive.sql("update task set ready_at = clock_timestamp() - interval '6 hours' where state = 'running'")
    archive.commit({"c": "", "d": ""})
    assert claimed(archive) == ["c@4"]
    archive.end("c@4")
    assert claimed(archive) == ["d@4"]
    assert archive.state("b@3") == "waiting"


def test_locks_of_two_archives_have_nothing_to_do_with_each_other(session: Session) -> None:
    one, other = an_archive(session, "one"), an_archive(session, "other")
    for archive in (one, other):
        archive.commit({"a": "lock: tex"})
    assert (one.state("a@2"), other.state("a@2")) == ("ready", "ready")


def test_two_tasks_that_take_two_locks_crosswise_go_one_after_the_other(archive: AnArchive) -> None:
    archive.commit({"a": "lock: [tex, printer]", "b": "lock: [printer, tex]"})
    assert claimed(archive) == ["a@2"]
    archive.end("a@2")
    assert claimed(archive) == ["b@2"]


def beside(work: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, errors


def test_of_a_grant_that_is_given_back_and_its_claim_the_first_wins(archive: AnArchive) -> None:
    """Whichever is first, at no moment have two tasks the lock."""
    archive.commit({"a": "lock: tex"})
    archive.commit({"b": "lock: tex"})
    with archive.session.database.transaction() as connection:
        # A claim under way has taken `a`, and has not committed.
        claims, _ = claim.claim_within(connection, PROCESS, claim.Request(HOST, 1, claim.Turns()))
        assert [one.name for one in claims] == ["a"]
        thread, errors = beside(lambda: control.prioritize(archive.session, archive.task("b@3"), 10, "ann"))
        thread.join(0.3)
        assert thread.is_alive(), "what is being claimed was judged before its claim had committed"
    thread.join(10)
    assert not errors
    assert archive.states() == {"a@2": "running", "b@3": "waiting"}
    control.prioritize(archive.session, archive.task("b@3"), 10, "ann")
    archive.record(claims[0].attempt, End.STOPPED, None)
    assert archive.states() == {"a@2": "waiting", "b@3": "ready"}
