"""Following of logs: one watcher serves all followers of a process. Writers wake the watcher, and
without output it asks the database once every `POLL` seconds.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from arkqueue.db import Database, Wakeups
from arkqueue.db.connections import Connection
from arkqueue.db.session import Session
from arkqueue.logs import Logs, LogWriter, Watcher
from arkqueue.logs import follow as module
from arkqueue.model import AttemptId, End, Outcome, Stream
from arkqueue.queue import finish
from arkqueue.queue.logs import follow as announce
from tests.builders import PROCESS, a_gateway, an_archive
from tests.following import follow
from tests.postgres import OwnPostgres
from tests.waiting import PATIENCE, eventually

NEVER = 1000.0
"""Seconds: who waits so long is not woken."""


@contextmanager
def a_process(uri: str) -> Iterator[Session]:
    """A session with wake-ups, as another process has it."""
    with Database.open(uri) as database:
        wakeups = Wakeups(database)
        assert wakeups.listening.wait(PATIENCE)
        try:
            yield Session(database, wakeups)
        finally:
            wakeups.close()


@pytest.fixture
def theirs(pg_uri: str) -> Iterator[Session]:
    """The session of a process that follows logs."""
    with a_process(pg_uri) as session:
        yield session


@pytest.fixture
def ours(pg_uri: str) -> Iterator[Session]:
    """The session of a process that writes them."""
    with a_process(pg_uri) as session:
        yield session


def a_log(session: Session, attempt: AttemptId) -> LogWriter:
    return Logs(a_gateway(session)).open(attempt)


def write(log: LogWriter, data: bytes) -> None:
    log.write(Stream.STDOUT, data)
    # What the flusher does in a turn, done at once.
    log._logs.flush([log])  # what the flusher does


def end(session: Session, attempt: AttemptId) -> None:
    finish.finish(session, PROCESS, [Outcome(attempt, End.EXITED, 0)])


def is_announced(session: Session, attempt: AttemptId) -> bool:
    with session.database.statement() as connection:
        row = connection.execute("select followed_until > now() as yes from attempt where id = %s", [attempt])
        return bool((row.fetchone() or {})["yes"])


def test_a_line_and_the_end_reach_a_follower_in_another_process_by_a_wake_up_alone(
    ours: Session, theirs: Session, attempt: AttemptId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POLL", NEVER)
    log = a_log(ours, attempt)
    write(log, b"before\n")
    chunks = follow(Watcher(theirs, announce), theirs, attempt)
    assert next(chunks).data == b"before\n"
    for line in (b"one\n", b"two\n"):
        write(log, line)
        assert next(chunks).data == line
    end(ours, attempt)
    assert list(chunks) == []


def test_what_nobody_was_woken_for_is_found_by_polling(
    session: Session, theirs: Session, attempt: AttemptId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POLL", 0.01)
    chunks = follow(Watcher(theirs, announce), theirs, attempt)
    log = a_log(session, attempt)
    write(log, b"one\n")
    assert next(chunks).data == b"one\n"
    end(session, attempt)
    assert list(chunks) == []


def test_a_log_that_nobody_follows_wakes_nobody(
    ours: Session, attempt: AttemptId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POLL", NEVER)
    assert ours.wakeups
    bell, log = ours.wakeups.bell("log"), a_log(ours, attempt)
    write(log, b"one\n")
    assert not bell.wait(0)
    with Watcher(ours, announce).following(attempt, lambda: None):
        eventually(lambda: is_announced(ours, attempt))
        bell.wait(0)
        write(log, b"two\n")
        assert bell.wait(0)


def test_silent_followers_cost_one_question_however_many_they_are(
    session: Session, theirs: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_archive(session)
    archive.commit({f"t{number}": "" for number in range(30)})
    attempts = [archive.attempt(f"t{number}@2") for number in range(30)]
    asked: Counter[str] = Counter()
    rows = Session.rows

    def count(self: Session, block: str, /, **parameters: Any) -> list[Any]:
        asked[block] += 1
        return rows(self, block, **parameters)

    monkeypatch.setattr(module, "POLL", 0.001)
    monkeypatch.setattr(module, "PACE", 0.0)
    monkeypatch.setattr(Session, "rows", count)
    told: Counter[int] = Counter()
    watcher = Watcher(theirs, announce)
    with ExitStack() as followers:
        for number in range(60):
            one = attempts[number % 30]
            followers.enter_context(watcher.following(one, lambda one=one: told.update([one])))  # type: ignore[misc]
        eventually(lambda: len(told) == 30)
        before, asked_before = Counter(told), Counter(asked)
        eventually(lambda: asked["log_sizes"] >= asked_before["log_sizes"] + 100)
        assert told == before, "nobody is told of silence"
        new = asked - asked_before
        assert set(new) == {"log_sizes"}


def test_followers_of_an_attempt_that_is_locked_are_announced_later(
    theirs: Session, attempt: AttemptId, second_connection: Callable[[], Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POLL", NEVER)
    told = threading.Semaphore(0)
    holder = second_connection()
    with holder.transaction():
        holder.execute("select from attempt where id = %s for update", [attempt])
        following = Watcher(theirs, announce).following(attempt, told.release)
        following.__enter__()
        assert told.acquire(timeout=PATIENCE), "the log is looked at meanwhile"
        assert not is_announced(theirs, attempt)
    eventually(lambda: is_announced(theirs, attempt))
    following.__exit__(None, None, None)


def test_an_announcement_is_repeated_before_it_is_over(
    theirs: Session, attempt: AttemptId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POLL", 0.01)
    announced = []

    def count(session: Session, attempts: Any, seconds: float) -> set[AttemptId]:
        announced.append(set(attempts))
        return announce(session, attempts, seconds)

    with Watcher(theirs, count).following(attempt, lambda: None):
        eventually(lambda: announced)
        monkeypatch.setattr(module, "ANNOUNCED", 0.0)
        eventually(lambda: len(announced) > 5)
    assert announced[0] == {attempt}


def test_followers_are_told_again_after_the_database_was_away(
    server: OwnPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AWAY", 0.01)
    with a_process(server.uri) as session:
        archive = an_archive(session)
        archive.commit({"index": ""})
        attempt = archive.attempt("index@2")
        chunks, log = follow(Watcher(session, announce), session, attempt), a_log(session, attempt)
        write(log, b"one\n")
        assert next(chunks).data == b"one\n"
        server.stop()
        server.start()
        eventually(lambda: archive.states())
        write(log, b"two\n")
        assert next(chunks).data == b"two\n"
        chunks.close()


def test_the_watchers_thread_ends_with_the_last_follower_and_comes_back(theirs: Session, attempt: AttemptId) -> None:
    watcher = Watcher(theirs, announce)
    for _ in range(2):
        told = threading.Event()
        with watcher.following(attempt, told.set), watcher.following(attempt, lambda: None):
            assert told.wait(PATIENCE)
        eventually(lambda: not any(thread.name == "log watcher" for thread in threading.enumerate()))
