"""Where two things happen at once: two connections, and a fixed order of their steps (design 6, lessons).

A race is stopped at its turning point by holding a lock on a third connection, or by doing one side's statements by hand.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from arkqueue.db import Connection
from arkqueue.model import End, Outcome
from arkqueue.queue import SQL, Queue, actions, claim, finish
from arkqueue.queue.finish import Receipt
from arkqueue.queue.graph import Graph
from tests.builders import HOST, PROCESS, AnArchive, a_revision, an_archive
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
        self._thread.join(30)
        assert not self._thread.is_alive()
        if self._error:
            raise self._error
        return self._result


def wait_until_blocked(connection: Connection) -> None:
    """Until some other backend waits for a lock."""
    while not connection.execute(
        "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    ).fetchall():
        pass


def test_a_claim_that_commits_while_its_task_is_canceled_does_not_escape(
    queue: Queue, second_connection: Connect
) -> None:
    """The victim is locked before it is judged: what was ready when the cancellation began and runs when it acts is asked to stop."""
    archive = an_archive(queue)
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
        rows = claimer.execute(
            SQL["claim"], {"process": "m2", "host": "h2", "slots": 9, "lease": 90, "floor": 0}
        ).fetchall()
        assert [row["name"] for row in rows] == ["build-PDF"]
        finishing = InThread(lambda: archive.end("indexing@3"))
        wait_until_blocked(watcher)
    assert finishing.result() is Receipt.RECORDED
    (victim,) = archive.sql("select state, stop from task where id = %s", archive.task("build-PDF@2"))
    assert victim == {"state": "running", "stop": "cancel"}
    assert archive.state("build-PDF@3") == "waiting"


def test_a_claim_skips_what_is_being_canceled(queue: Queue, second_connection: Connect) -> None:
    archive = an_archive(queue)
    archive.commit({"a": ""})
    canceler = second_connection()
    with canceler.transaction():
        graph = Graph(canceler, [archive.id])
        graph.rows("lock_tasks", tasks=[archive.task("a@2")])
        assert claim.claim(queue, PROCESS, HOST, 9) == []
        graph.follow(graph.ids("cancel", tasks=[archive.task("a@2")], by="ann"))
    assert claim.claim(queue, PROCESS, HOST, 9) == []
    assert archive.state("a@2") == "canceled"


@pytest.mark.parametrize("first", ["finish", "cancel"])
def test_of_a_finish_and_a_cancel_the_first_wins(queue: Queue, second_connection: Connect, first: str) -> None:
    archive = an_archive(queue)
    archive.commit({"a": ""})
    attempt = archive.attempt("a@2")
    doing = {
        "finish": lambda: finish.finish(queue, PROCESS, [Outcome(attempt, End.EXITED, 0)]),
        "cancel": lambda: actions.cancel(queue, archive.task("a@2"), "ann"),
    }
    holder, watcher = second_connection(), second_connection()
    with holder.transaction():
        holder.execute("select from archive where id = %s for update", [archive.id])
        one = InThread(doing.pop(first))
        wait_until_blocked(watcher)
        (other,) = doing.values()
        two = InThread(other)
        while (
            len(
                watcher.execute(
                    "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
                ).fetchall()
            )
            < 2
        ):
            pass
    one.result()
    if first == "finish":
        with pytest.raises(Exception, match="is completed already"):
            two.result()
    else:
        two.result()
    # Either way the attempt had ended before any signal: its outcome stands.
    assert archive.state("a@2") == "completed"


def test_a_lease_that_is_renewed_while_it_is_found_lapsed_does_not_lapse(
    queue: Queue, second_connection: Connect
) -> None:
    archive = an_archive(queue)
    archive.commit({"a": ""})
    attempt = archive.attempt("a@2")
    archive.sql("update attempt set lease_until = clock_timestamp() - interval '1 s'")
    archive.sql(
        "update heartbeat set steady_since = clock_timestamp() - interval '1 hour', beat_at = clock_timestamp()"
    )
    renewer, watcher = second_connection(), second_connection()
    with renewer.transaction():
        renewer.execute(SQL["renew"], {"attempts": [attempt], "process": PROCESS, "lease": 90})
        lapsing = InThread(lambda: finish.lapse(queue))
        wait_until_blocked(watcher)
    assert lapsing.result() == []
    assert archive.state("a@2") == "running"


def test_two_appends_of_the_same_revision_plan_it_once(queue: Queue, second_connection: Connect) -> None:
    """Notices that come together: the compare-and-set on the branch's head lets one through."""
    from arkqueue.queue import planning
    from tests.builders import a_workflow

    archive = an_archive(queue)
    branch = archive.branches[""]
    entries = [planning.Entry(a_revision(n), a_workflow(EXAMPLE)) for n in (2, 3)]
    holder, watcher = second_connection(), second_connection()
    with holder.transaction():
        holder.execute("select from archive where id = %s for update", [archive.id])
        appends = [InThread(lambda: planning.append(queue, branch, entries)) for _ in range(2)]
        while (
            len(
                watcher.execute(
                    "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
                ).fetchall()
            )
            < 2
        ):
            pass
    heads = [append.result() for append in appends]
    assert sorted(head is None for head in heads) == [False, True]
    assert [r["number"] for r in archive.sql("select number from revision order by number")] == [1, 2, 3]
    assert len(archive.sql("select id from run")) == 3


def test_finishing_and_renewing_many_attempts_at_once_never_deadlocks(queue: Queue) -> None:
    """Both lock attempts in the same order."""
    archive = an_archive(queue)
    archive.commit({f"t{n:02}": "" for n in range(40)})
    attempts = [c.attempt for c in claim.claim(queue, PROCESS, HOST, 99)]
    stop = threading.Event()

    def renew() -> int:
        turns = 0
        while not stop.is_set():
            claim.renew(queue, PROCESS, list(reversed(attempts)))
            turns += 1
        return turns

    renewing = [InThread(renew) for _ in range(2)]
    for n in range(0, 40, 5):
        finish.finish(queue, PROCESS, [Outcome(a, End.EXITED, 0) for a in reversed(attempts[n : n + 5])])
    stop.set()
    assert all(r.result() > 0 for r in renewing)
    (deadlocks,) = archive.sql("select deadlocks from pg_stat_database where datname = current_database()")
    assert deadlocks["deadlocks"] == 0
    assert set(archive.states().values()) == {"completed"}


def test_no_two_live_attempts_of_a_task_can_be_stored(queue: Queue) -> None:
    archive = an_archive(queue)
    archive.commit({"a": ""})
    archive.claim("a@2")
    with pytest.raises(Exception, match="attempt_live"):
        archive.sql(
            "insert into attempt (task_id, number, process, host, lease_until) values (%s, 99, 'x', 'y', now())",
            archive.task("a@2"),
        )


def test_finishes_of_several_archives_in_any_order_do_not_deadlock(queue: Queue) -> None:
    archives: list[AnArchive] = [an_archive(queue, f"a{n}") for n in range(6)]
    for archive in archives:
        archive.commit({f"t{n}": "" for n in range(6)})
    attempts = [c.attempt for c in claim.claim(queue, PROCESS, HOST, 99)]
    assert len(attempts) == 36
    shuffled = [attempts[i::6] for i in range(6)]
    work = [
        InThread(lambda part=part: finish.finish(queue, PROCESS, [Outcome(a, End.EXITED, 0) for a in part]))
        for part in shuffled
    ]  # type: ignore[misc]
    for w in work:
        assert set(w.result().values()) == {Receipt.RECORDED}
    (deadlocks,) = archives[0].sql("select deadlocks from pg_stat_database where datname = current_database()")
    assert deadlocks["deadlocks"] == 0
