"""Races with two connections and a fixed order of their steps (design 6, lessons).

A race stops at its turning point because a third connection holds a lock, or because the test
executes the statements of one side itself.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from arkqueue.db import Connection
from arkqueue.db.session import SQL, Session
from arkqueue.errors import Conflict
from arkqueue.logs import Logs
from arkqueue.model import End, Outcome, Receipt, Renewed, RunId
from arkqueue.plan import Entry
from arkqueue.queue import claim, control, deletion, finish, ledger
from arkqueue.queue.claim import parameters
from arkqueue.queue.graph import Graph
from tests.builders import HOST, PROCESS, AnArchive, a_gateway, a_revision, a_workflow, an_archive, an_entry
from tests.db.test_example import EXAMPLE

Connect = Callable[[], Connection]


class InThread:
    """Runs something beside the test; ``result`` waits for its end."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._result: Any = None
        self._error: BaseException | None = None

        def run() -> None:
            try:
                self._result = work()
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def result(self) -> Any:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        if self._error:
            raise self._error
        return self._result


PATIENCE = 30.0
"""Seconds after which what is waited for will never come. No test depends on it."""


def wait_until_blocked(connection: Connection, count: int = 1) -> None:
    """Until so many other backends wait for a lock."""
    waiting = "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    until = time.monotonic() + PATIENCE
    while len(connection.execute(waiting).fetchall()) < count:
        assert time.monotonic() < until, "nobody waits"


def one_after_the_other(archive: AnArchive, connect: Connect, *works: Callable[[], Any]) -> list[InThread]:
    """Do things that change the graph of an archive: all have begun before the first can act, and they act in this order."""
    holder, watcher = connect(), connect()
    begun = []
    with holder.transaction():
        holder.execute("select from archive where id = %s for update", [archive.id])
        for count, work in enumerate(works, 1):
            begun.append(InThread(work))
            wait_until_blocked(watcher, count)
    return begun


def test_a_claim_that_commits_while_its_task_is_canceled_does_not_escape(
    session: Session, second_connection: Connect
) -> None:
    """The victim is locked before it is judged: what was ready when the cancellation began and runs when it acts is asked to stop."""
    archive = an_archive(session)
    archive.commit(EXAMPLE)
    archive.commit(EXAMPLE)
    archive.run("indexing@2")
    archive.running.clear()
    # indexing@3 is claimed by hand, so that build-PDF@2 stays ready.
    archive.sql("update task set state = 'waiting' where id = %s", archive.task("build-PDF@2"))
    archive.claim("indexing@3")
    archive.sql("update task set state = 'ready' where id = %s", archive.task("build-PDF@2"))

    claimer, watcher = second_connection(), second_connection()
    with claimer.transaction():
        rows = claimer.execute(SQL["claim"], parameters("m2", "h2", 9)).fetchall()
        assert [row["name"] for row in rows] == ["build-PDF"]
        finishing = InThread(lambda: archive.end("indexing@3"))
        wait_until_blocked(watcher)
    assert finishing.result() is Receipt.RECORDED
    (victim,) = archive.sql("select state, stop from task where id = %s", archive.task("build-PDF@2"))
    assert victim == {"state": "running", "stop": "cancel"}
    assert archive.state("build-PDF@3") == "waiting"


def test_a_claim_skips_what_is_being_canceled(session: Session, second_connection: Connect) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    canceler = second_connection()
    with canceler.transaction():
        graph = Graph(canceler, [archive.id])
        graph.rows("lock_tasks", tasks=[archive.task("a@2")])
        assert claim.claim(session, PROCESS, HOST, 9) == []
        graph.follow(graph.ids("cancel", tasks=[archive.task("a@2")], by="ann"))
    assert claim.claim(session, PROCESS, HOST, 9) == []
    assert archive.state("a@2") == "canceled"


@pytest.mark.parametrize("first", ["finish", "cancel"])
def test_of_a_finish_and_a_cancel_the_first_wins(session: Session, second_connection: Connect, first: str) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    attempt = archive.attempt("a@2")
    doing = {
        "finish": lambda: finish.finish(session, PROCESS, [Outcome(attempt, End.EXITED, 0)]),
        "cancel": lambda: control.cancel(session, archive.task("a@2"), "ann"),
    }
    order = [doing.pop(first), *doing.values()]
    one, two = one_after_the_other(archive, second_connection, *order)
    one.result()
    if first == "finish":
        with pytest.raises(Exception, match="is completed already"):
            two.result()
    else:
        two.result()
    # Either way the attempt had ended before any signal: its outcome stands.
    assert archive.state("a@2") == "completed"


def test_a_lease_that_is_renewed_while_it_is_found_lapsed_does_not_lapse(
    session: Session, second_connection: Connect
) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    attempt = archive.attempt("a@2")
    archive.sql("update attempt set lease_until = clock_timestamp() - interval '1 s'")
    archive.sql(
        "update heartbeat set steady_since = clock_timestamp() - interval '1 hour', beat_at = clock_timestamp()"
    )
    renewer, watcher = second_connection(), second_connection()
    with renewer.transaction():
        renewer.execute(SQL["renew"], {"attempts": [attempt], "process": PROCESS, "lease": 90})
        lapsing = InThread(lambda: finish.lapse(session))
        wait_until_blocked(watcher)
    assert lapsing.result() == []
    assert archive.state("a@2") == "running"


def test_two_appends_of_the_same_revision_plan_it_once(session: Session, second_connection: Connect) -> None:
    """Notices that come together: the compare-and-set on the branch's head lets one through."""
    archive = an_archive(session)
    branch = archive.branches[""]
    entries = [Entry(a_revision(n), a_workflow(EXAMPLE)) for n in (2, 3)]
    append = [lambda: ledger.append(session, branch, entries)] * 2
    first, second = one_after_the_other(archive, second_connection, *append)
    assert first.result() is not None
    assert second.result() is None
    assert [r["number"] for r in archive.sql("select number from revision order by number")] == [1, 2, 3]
    assert len(archive.sql("select id from run")) == 3


@pytest.mark.parametrize("first", ["finish", "append"])
def test_an_edge_from_what_settles_while_it_is_stored_is_met(
    session: Session, second_connection: Connect, first: str
) -> None:
    """Judged before and released after, or the other way round: the next revision never waits for what has ended."""
    archive = an_archive(session)
    archive.commit({"a": ""})
    attempt = archive.attempt("a@2")
    branch = archive.branches[""]
    doing = {
        "finish": lambda: archive.record(attempt, End.EXITED, 0),
        "append": lambda: ledger.append(session, branch, [an_entry(3, a_workflow({"a": "depends: [PREV]"}))]),
    }
    order = [doing.pop(first), *doing.values()]
    for work in one_after_the_other(archive, second_connection, *order):
        assert work.result() is not None
    assert archive.states() == {"a@2": "completed", "a@3": "ready"}


def test_two_reports_of_one_end_at_once_count_once(session: Session, second_connection: Connect) -> None:
    """A report is sent again when its answer was lost, and the first may still be under way."""
    archive = an_archive(session)
    archive.commit({"a": "retries: 3"})
    attempt = archive.attempt("a@2")
    report = [lambda: archive.record(attempt, End.EXITED, 1)] * 2
    receipts = [work.result() for work in one_after_the_other(archive, second_connection, *report)]
    assert receipts == [Receipt.RECORDED, Receipt.ALREADY_RECORDED]
    assert archive.sql("select state, failures from task where name = 'a'") == [{"state": "deferred", "failures": 1}]


def test_two_queue_managers_end_a_lapsed_attempt_once(session: Session, second_connection: Connect) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    attempt = archive.attempt("a@2")
    archive.sql("update attempt set lease_until = clock_timestamp() - interval '1 s'")
    archive.sql(
        "update heartbeat set steady_since = clock_timestamp() - interval '1 hour', beat_at = clock_timestamp()"
    )
    lapsing = one_after_the_other(archive, second_connection, *[lambda: finish.lapse(session, patience=PATIENCE)] * 2)
    assert [work.result() for work in lapsing] == [[attempt], []]
    assert archive.sql("select state, losses from task where name = 'a'") == [{"state": "ready", "losses": 1}]


def test_two_queue_managers_take_a_deferred_task_back_once(session: Session, second_connection: Connect) -> None:
    """The second finds it due, and it runs already when it acts."""
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.end("a@2", 75)
    archive.sql("update task set due_at = clock_timestamp() where state = 'deferred'")

    holder, watcher = second_connection(), second_connection()
    with holder.transaction():
        holder.execute("select from archive where id = %s for update", [archive.id])
        late = InThread(lambda: finish.wake_deferred(session, patience=PATIENCE))
        wait_until_blocked(watcher)
        graph = Graph(holder, [archive.id])
        graph.follow(entering=graph.ids("make_due", archives=[archive.id], each=9))
        rows = holder.execute(SQL["claim"], parameters(PROCESS, HOST, 9)).fetchall()
        assert [row["name"] for row in rows] == ["a"]
    late.result()
    assert archive.state("a@2") == "running"


def test_two_runs_by_hand_at_once_have_numbers_of_their_own(session: Session, second_connection: Connect) -> None:
    archive = an_archive(session)
    archive.commit({"a": "depends: [PREV]"})
    one, two = one_after_the_other(archive, second_connection, *[lambda: archive.trigger(2)] * 2)
    assert (one.result(), two.result()) == (archive.run_id(2, 2), archive.run_id(2, 3))
    sources = archive.sql(
        "select s.number, s.run from edge e join task s on s.id = e.source where e.target = %s and e.crossing",
        archive.task("a@2.3"),
    )
    assert sources == [{"number": 2, "run": 2}]


@pytest.mark.parametrize("first", ["delete", "retry"])
def test_a_run_is_deleted_or_retried(session: Session, second_connection: Connect, first: str) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.fail("a@2")
    run = RunId(archive.run_id(2))
    doing = {
        "delete": lambda: deletion.delete_run(session, run, "ann"),
        "retry": lambda: archive.retry("a@2"),
    }
    order = [doing.pop(first), *doing.values()]
    one, two = one_after_the_other(archive, second_connection, *order)
    one.result()
    if first == "delete":
        with pytest.raises(Conflict, match="deleted"):
            two.result()
    else:
        two.result()  # what was retried is canceled with its run
    assert archive.state("a@2") == ("failed" if first == "delete" else "canceled")


def test_a_run_of_which_a_task_starts_while_it_is_being_deleted_is_not_deleted(
    session: Session, second_connection: Connect
) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    claimer, watcher = second_connection(), second_connection()
    with claimer.transaction():
        rows = claimer.execute(SQL["claim"], parameters(PROCESS, HOST, 1)).fetchall()
        assert [row["name"] for row in rows] == ["a"]
        late = InThread(lambda: deletion.delete_run(session, RunId(archive.run_id(2)), "ann"))
        wait_until_blocked(watcher)
    with pytest.raises(Conflict, match="papers@2/a is running"):
        late.result()
    assert archive.states() == {"a@2": "running", "b@2": "ready"}


@pytest.mark.parametrize("first", ["supersede", "retry"])
def test_of_a_retry_and_what_supersedes_it_the_newer_revision_wins(
    session: Session, second_connection: Connect, first: str
) -> None:
    """Which comes first decides only whether the retry is refused or canceled."""
    archive = an_archive(session)
    tasks = {"index": "", "pdf": "depends: [index]\ncancels: [PREV]"}
    archive.commit(tasks)
    archive.run("index@2")
    archive.fail("pdf@2")
    archive.commit(tasks)
    attempt = archive.attempt("index@3")
    doing = {
        "supersede": lambda: archive.record(attempt, End.EXITED, 0),
        "retry": lambda: archive.retry("pdf@2"),
    }
    order = [doing.pop(first), *doing.values()]
    one, two = one_after_the_other(archive, second_connection, *order)
    one.result()
    if first == "retry":
        two.result()
    else:
        with pytest.raises(Conflict, match="superseded by pdf of revision 3"):
            two.result()
    states = archive.states()
    assert (states["pdf@2"], states["pdf@3"]) == ("canceled" if first == "retry" else "failed", "ready")


def test_of_two_archives_that_take_a_name_at_once_one_gets_it(session: Session, second_connection: Connect) -> None:
    first, watcher = second_connection(), second_connection()
    with first.transaction():
        first.execute("insert into archive (name, kind, url, repository) values ('papers', 'git', '/x', '/x')")
        registering = InThread(lambda: an_archive(session))
        wait_until_blocked(watcher)
    with pytest.raises(Conflict, match="exists already"):
        registering.result()


@pytest.mark.parametrize("what", ["log", "start"])
@pytest.mark.garbles
def test_what_is_said_of_an_attempt_while_it_ends_comes_too_late(
    session: Session, second_connection: Connect, what: str
) -> None:
    """It waits for the attempt's row, and looks anew when it has it."""
    archive = an_archive(session)
    archive.commit({"a": ""})
    attempt = archive.attempt("a@2")
    before = archive.sql("select started_at, lease_until, log_bytes from attempt")
    flusher = Logs(a_gateway(session))
    writer = flusher.open(attempt)
    writer.note("too late")
    say: dict[str, Callable[[], Any]] = {
        "log": lambda: flusher.flush([writer]),
        "start": lambda: claim.started(session, {attempt: 0.0}),
    }
    ender, watcher = second_connection(), second_connection()
    with ender.transaction():
        ender.execute(SQL["end"], {"ends": json.dumps([{"attempt": attempt, "end": "lost", "message": ""}])})
        saying = InThread(say[what])
        wait_until_blocked(watcher)
    assert not saying.result()
    assert archive.sql("select started_at, lease_until, log_bytes from attempt") == before
    assert archive.sql("select position from log_chunk") == []


@pytest.mark.garbles
def test_a_renewal_waits_for_no_end_that_is_being_recorded(session: Session, second_connection: Connect) -> None:
    """Else one archive's long transaction would let the leases of all others lapse."""
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    ends, goes_on = archive.attempt("a@2"), archive.attempt("b@2")
    archive.sql("update attempt set lease_until = '2026-01-01' returning id")
    ender = second_connection()
    with ender.transaction():
        ender.execute(SQL["end"], {"ends": json.dumps([{"attempt": ends, "end": "lost", "message": ""}])})
        renewed = claim.renew(session, PROCESS, [ends, goes_on])
    assert renewed == Renewed({ends: None, goes_on: None}, frozenset({ends}))
    assert claim.renew(session, PROCESS, [ends, goes_on]) == Renewed({goes_on: None})
    leases = archive.sql("select id, lease_until > now() as renewed from attempt order by id")
    assert {row["id"]: row["renewed"] for row in leases} == {ends: False, goes_on: True}


def test_finishing_and_renewing_many_attempts_at_once_never_deadlocks(session: Session) -> None:
    """Both lock attempts in the same order."""
    archive = an_archive(session)
    archive.commit({f"t{n:02}": "" for n in range(40)})
    attempts = [c.attempt for c in claim.claim(session, PROCESS, HOST, 99)]
    begun, stop = threading.Barrier(3), threading.Event()

    def renew() -> None:
        claim.renew(session, PROCESS, list(reversed(attempts)))
        begun.wait(PATIENCE)
        while not stop.is_set():
            claim.renew(session, PROCESS, list(reversed(attempts)))

    renewing = [InThread(renew) for _ in range(2)]
    begun.wait(PATIENCE)
    for n in range(0, 40, 5):
        finish.finish(session, PROCESS, [Outcome(a, End.EXITED, 0) for a in reversed(attempts[n : n + 5])])
    stop.set()
    for each in renewing:
        each.result()
    (deadlocks,) = archive.sql("select deadlocks from pg_stat_database where datname = current_database()")
    assert deadlocks["deadlocks"] == 0
    assert set(archive.states().values()) == {"completed"}


def test_no_two_live_attempts_of_a_task_can_be_stored(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.claim("a@2")
    with pytest.raises(Exception, match="attempt_live"):
        archive.sql(
            "insert into attempt (task_id, number, process, host, lease_until) values (%s, 99, 'x', 'y', now())",
            archive.task("a@2"),
        )


def test_finishes_of_several_archives_in_any_order_do_not_deadlock(session: Session) -> None:
    archives: list[AnArchive] = [an_archive(session, f"a{n}") for n in range(6)]
    for archive in archives:
        archive.commit({f"t{n}": "" for n in range(6)})
    attempts = [c.attempt for c in claim.claim(session, PROCESS, HOST, 99)]
    assert len(attempts) == 36
    shuffled = [attempts[i::6] for i in range(6)]
    work = [
        InThread(lambda part=part: finish.finish(session, PROCESS, [Outcome(a, End.EXITED, 0) for a in part]))
        for part in shuffled
    ]  # type: ignore[misc]
    for w in work:
        assert set(w.result().values()) == {Receipt.RECORDED}
    (deadlocks,) = archives[0].sql("select deadlocks from pg_stat_database where datname = current_database()")
    assert deadlocks["deadlocks"] == 0
