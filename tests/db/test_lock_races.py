"""Races for locks (design 5.25), with two connections and a fixed order of their steps. Two tasks
never have a lock with room for one at the same moment.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from arkqueue.db import Connection
from arkqueue.db.session import SQL, Session
from arkqueue.model import ArchiveId, End, Outcome, Receipt
from arkqueue.queue import claim, control, finish, pauses
from arkqueue.queue.claim import parameters
from arkqueue.queue.graph import Graph
from tests.builders import HOST, PROCESS, AnArchive
from tests.db.test_races import InThread, one_after_the_other, wait_until_blocked

Connect = Callable[[], Connection]


@pytest.mark.parametrize("first", ["tex", "printer"])
def test_of_two_tasks_that_take_two_locks_crosswise_one_gets_both(
    archive: AnArchive, second_connection: Connect, first: str
) -> None:
    """The holders of the two locks end at once. Neither end gives one lock to one task and the other lock to the other task."""
    archive.commit({"tex": "lock: tex", "printer": "lock: printer"})
    archive.commit({"a": "lock: [tex, printer]", "b": "lock: [printer, tex]"})
    attempts = {name: archive.attempt(f"{name}@2") for name in ("tex", "printer")}

    def end(name: str) -> Callable[[], Receipt]:
        return lambda: archive.record(attempts[name], End.EXITED, 0)

    second = "printer" if first == "tex" else "tex"
    for ended in one_after_the_other(archive, second_connection, end(first), end(second)):
        assert ended.result() is Receipt.RECORDED
    assert [archive.state(key) for key in ("a@3", "b@3")] == ["ready", "waiting"]
    archive.run("a@3")
    assert archive.state("b@3") == "ready"


@pytest.mark.parametrize("first", ["lapse", "report"])
def test_of_a_lapse_and_a_late_report_of_its_holder_the_first_frees_a_lock(
    archive: AnArchive, second_connection: Connect, first: str
) -> None:
    archive.commit({"a": "lock: tex\non_lost: fail", "b": "lock: tex", "c": "lock: tex"})
    attempt = archive.attempt("a@2")
    archive.sql("update attempt set lease_until = clock_timestamp() - interval '1 s' where id = %s", attempt)
    archive.sql(
        "update heartbeat set steady_since = clock_timestamp() - interval '1 hour', beat_at = clock_timestamp()"
    )
    works = {
        "lapse": lambda: finish.lapse(archive.session, patience=30.0),
        "report": lambda: archive.record(attempt, End.EXITED, 0),
    }
    begun = one_after_the_other(
        archive, second_connection, *(works[name] for name in sorted(works, key=lambda name: name != first))
    )
    for work in begun:
        work.result()
    assert archive.states() == {"a@2": "failed" if first == "lapse" else "completed", "b@2": "ready", "c@2": "waiting"}
    archive.claim("b@2")
    # The one that was late says it once more: the lock is somebody else's by now.
    archive.record(attempt, End.EXITED, 0)
    assert (archive.state("b@2"), archive.state("c@2")) == ("running", "waiting")


def test_a_claim_beside_a_grant_that_is_being_given_back_does_not_take_it(
    archive: AnArchive, session: Session, second_connection: Connect
) -> None:
    """The other order of `test_of_a_grant_that_is_given_back_and_its_claim_the_first_wins`."""
    archive.commit({"a": "lock: tex"})
    archive.commit({"b": "lock: tex"})
    connection = second_connection()
    with connection.transaction():
        graph = Graph(connection, [archive.id])
        graph.reordered = graph.ids("prioritize", tasks=[archive.task("b@3")], priority=10)
        graph.grant()
        assert claim.claim(session, PROCESS, HOST, 9) == [], "what gives its lock back was claimed"
    assert [one.name for one in claim.claim(session, PROCESS, HOST, 9)] == ["b"]
    assert archive.states() == {"a@2": "waiting", "b@3": "running"}


@pytest.mark.parametrize("first", ["cancel", "end"])
def test_a_lock_of_a_victim_goes_to_its_canceler_once_the_victim_is_gone(
    archive: AnArchive, second_connection: Connect, first: str
) -> None:
    tasks = {"begin": "", "build": "depends: [begin]\ncancels: [PREV]\nlock: tex"}
    archive.commit(tasks)
    archive.run("begin@2")
    victim = archive.attempt("build@2")
    archive.commit(tasks)
    begin = archive.attempt("begin@3")
    works = {
        "cancel": lambda: archive.record(begin, End.EXITED, 0),
        "end": lambda: archive.record(victim, End.EXITED, 0),
    }
    order = sorted(works, key=lambda name: name != first)
    for work in one_after_the_other(archive, second_connection, *(works[name] for name in order)):
        assert work.result() is Receipt.RECORDED
    # What had ended before it was stopped keeps its outcome (design 5.10).
    assert archive.states() == {
        "begin@2": "completed",
        "build@2": "completed",
        "begin@3": "completed",
        "build@3": "ready",
    }
    archive.run("build@3")


def test_a_claim_that_commits_while_its_archive_is_paused_keeps_its_lock(
    archive: AnArchive, second_connection: Connect
) -> None:
    archive.commit({"a": "lock: tex", "b": "lock: tex"})
    claimer, watcher = second_connection(), second_connection()
    with claimer.transaction():
        assert [row["name"] for row in claimer.execute(SQL["claim"], parameters(PROCESS, HOST, 9))] == ["a"]
        pausing = InThread(lambda: pauses.pause(archive.session, ArchiveId(archive.id), "", "ann"))
        wait_until_blocked(watcher)
    pausing.result()
    assert archive.states() == {"a@2": "running", "b@2": "waiting"}
    pauses.resume(archive.session, ArchiveId(archive.id), archive.name, "ann")
    assert archive.states() == {"a@2": "running", "b@2": "waiting"}


def test_ends_of_two_holders_in_one_report_grant_as_many_as_have_room(archive: AnArchive) -> None:
    archive.commit({"a": "lock: tex", "b": "lock: printer", "c": "lock: [printer, tex]", "d": "lock: tex"})
    ended = [Outcome(archive.attempt(key), End.EXITED, 0) for key in ("a@2", "b@2")]
    finish.finish(archive.session, PROCESS, ended)
    assert archive.states() == {"a@2": "completed", "b@2": "completed", "c@2": "ready", "d@2": "waiting"}
    control.prioritize(archive.session, archive.task("d@2"), 10, "ann")
    assert (archive.state("c@2"), archive.state("d@2")) == ("waiting", "ready")
