"""Wake-ups: at once in the same process, soon in others, for everybody after a gap, and never with
an error for the caller.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from arkqueue.db import wakeups as module
from arkqueue.db.connections import Connection, Database
from arkqueue.db.session import Session
from arkqueue.db.wakeups import Wakeups
from tests.builders import an_archive
from tests.waiting import eventually

LONG = 60.0
"""Seconds that only a failing test waits."""


@contextmanager
def wakeups_of(uri: str) -> Iterator[Wakeups]:
    """The wake-ups of another process would differ in nothing: each has its own connections."""
    with Database.open(uri) as database:
        wakeups = Wakeups(database)
        try:
            yield wakeups
        finally:
            wakeups.close()


@pytest.fixture
def no_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process pings because of silence: on a slow machine, a test is longer than that silence."""
    monkeypatch.setattr(module, "PING", 3600.0)


@pytest.fixture
def ours(pg_uri: str) -> Iterator[Wakeups]:
    with wakeups_of(pg_uri) as wakeups:
        assert wakeups.listening.wait(LONG)
        yield wakeups


@pytest.fixture
def theirs(pg_uri: str) -> Iterator[Wakeups]:
    with wakeups_of(pg_uri) as wakeups:
        assert wakeups.listening.wait(LONG)
        yield wakeups


def test_a_bell_rings_in_another_process(ours: Wakeups, theirs: Wakeups) -> None:
    bell, other = theirs.bell("ready"), theirs.bell("cancel")
    ours.wake("ready")
    assert bell.wait(LONG)
    assert not other.wait(0)
    assert not bell.wait(0), "a wait clears the bell"


@pytest.mark.usefixtures("no_pings")
def test_a_process_that_is_alone_sends_nothing_until_another_one_begins_to_listen(
    pg_uri: str, ours: Wakeups, second_connection: Callable[[], Connection]
) -> None:
    eventually(lambda: ours._has_pinged_last)  # its first ping may be slow to leave
    ours._company_until = 0.0  # as after half a minute
    assert not ours.has_company
    bell = ours.bell("ready")
    ear = second_connection()
    ear.execute(f"listen {module.CHANNEL}".encode())
    ours.wake("ready")
    assert bell.wait(0)
    with wakeups_of(pg_uri) as theirs:
        assert theirs.listening.wait(LONG)
        far = theirs.bell("begin")
        eventually(lambda: ours.has_company)
        ours.wake("begin")
        assert far.wait(LONG)
    heard = [notice.payload for notice in ear.notifies(timeout=LONG, stop_after=2)]
    assert heard == ["!ping", "begin"]


def test_processes_in_silence_hear_each_other(ours: Wakeups, theirs: Wakeups, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PING", 0.1)
    ours.wake("begin")  # and wait for no longer than that from here on
    for _ in range(3):
        ours._company_until = theirs._company_until = 0.0
        eventually(lambda: ours.has_company)
        eventually(lambda: theirs.has_company)


def test_what_has_to_wait_for_its_time_is_told(database: Database, ours: Wakeups) -> None:
    """Who takes it up waits no longer than until then, however seldom he looks by himself."""
    archive = an_archive(Session(database, ours))
    deferred, schedule = ours.bell("deferred"), ours.bell("schedule")
    archive.commit({"a": ""})
    assert not deferred.wait(0)
    archive.end("a@2", 75)
    assert deferred.wait(LONG)
    assert not schedule.wait(0)
    archive.commit({"a": "schedule: '0 3 * * *'"})
    assert schedule.wait(LONG)


def test_a_bell_may_listen_to_several_topics(ours: Wakeups, theirs: Wakeups) -> None:
    bell = theirs.bell("look", "schedule")
    ours.wake("schedule")
    assert bell.wait(LONG)
    ours.wake("look")
    assert bell.wait(LONG)


def test_the_own_process_hears_at_once_and_only_once(ours: Wakeups, theirs: Wakeups) -> None:
    bell, far, end = ours.bell("ready"), theirs.bell("ready"), ours.bell("end")
    ours.wake("ready")
    assert bell.wait(0)
    assert far.wait(LONG)
    theirs.wake("end")
    # NOTIFYs arrive in the order of their commits: what
    # we sent ourselves has come back before this one.
    assert end.wait(LONG)
    assert not bell.wait(0)


def test_what_is_said_again_at_once_is_sent_later_and_not_lost(ours: Wakeups, theirs: Wakeups) -> None:
    bell = theirs.bell("ready")
    for _ in range(3):
        ours.wake("ready")
        assert bell.wait(LONG)


def test_what_is_said_in_a_hurry_is_sent_together(
    ours: Wakeups, theirs: Wakeups, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = []
    # How many statements the wake-ups took cannot be seen from outside.
    send = Wakeups._send_next

    def count(self: Wakeups, connection: Connection) -> bool:
        sent.append(1)
        return send(self, connection)

    monkeypatch.setattr(module, "INTERVAL", 0.2)
    monkeypatch.setattr(Wakeups, "_send_next", count)
    bell = theirs.bell("last")
    for _ in range(1000):
        ours.wake("ready")
    ours.wake("last")
    assert bell.wait(LONG)
    assert len(sent) < 20


def test_who_always_has_something_to_say_says_it_less_often(ours: Wakeups, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    idle, burst = threading.Event(), threading.Event()
    next_topic = ours._to_send.wait  # what the sender does between its pauses cannot be seen from outside

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if burst.is_set() and len(waits) < 5:
            ours.wake("ready")

    def rest() -> bool:
        if waits and not ours._to_send.is_set():  # there was something to send, and now there is nothing
            idle.set()
        return next_topic()

    monkeypatch.setattr(ours._closed, "wait", wait)  # the sender's pauses cannot be seen from outside
    monkeypatch.setattr(ours._to_send, "wait", rest)  # nor can it be seen when it has nothing to send
    ours.wake("ready")
    assert idle.wait(LONG)
    waits.clear()
    idle.clear()
    burst.set()
    ours.wake("ready")
    assert idle.wait(LONG)
    ours.wake("ready")
    eventually(lambda: len(waits) >= 6)
    assert waits[:6] == [0.005, 0.01, 0.02, 0.02, 0.02, 0.005]


def test_a_forgotten_bell_is_forgotten(ours: Wakeups) -> None:
    bell = ours.bell("ready")
    # A bell that is forgotten leaves nothing to be seen but this.
    assert len(ours._bells) == 1
    del bell
    assert len(ours._bells) == 0


def test_a_listener_that_was_cut_off_comes_back_and_rings_every_bell(
    ours: Wakeups, second_connection: Callable[[], Connection]
) -> None:
    bell, other = ours.bell("ready"), ours.bell("whatever")
    second_connection().execute(
        "select pg_terminate_backend(pid, 60000) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid()"
    )
    assert bell.wait(LONG)
    assert other.wait(LONG)
    assert ours.listening.wait(LONG)


def test_a_listener_that_hears_nothing_although_connected_connects_anew(
    pg_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PING", 0.05)
    with wakeups_of(pg_uri) as wakeups:
        assert wakeups.listening.wait(LONG)
        # As behind a pooler, which takes the LISTEN and gives the session to somebody else.
        monkeypatch.setattr(module, "ANSWER", 0.05)
        monkeypatch.setattr(module, "CHANNEL", "elsewhere")
        bell = wakeups.bell("ready")
        assert bell.wait(LONG)


def test_a_listener_in_silence_stays_connected_while_its_ping_comes_back(
    pg_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pings = threading.Semaphore(0)
    # Each ping is waited for: nothing else says that one was sent.
    post = Wakeups._post

    def count(self: Wakeups, topics: tuple[str, ...]) -> None:
        post(self, topics)
        pings.release()

    monkeypatch.setattr(Wakeups, "_post", count)
    with wakeups_of(pg_uri) as wakeups:
        assert wakeups.listening.wait(LONG)
        # The test compares the connection itself.
        listener = wakeups._connections["listener"]
        with monkeypatch.context() as quick:
            quick.setattr(module, "PING", 0.05)
            wakeups.wake("begin")
            for _ in range(3):
                assert pings.acquire(timeout=LONG)
        assert wakeups._connections["listener"] is listener


def test_while_the_database_is_away_nobody_is_held_and_afterwards_wake_ups_arrive(
    own_postgres: Callable[[], Any],
) -> None:
    server = own_postgres()
    with wakeups_of(server.uri) as near, wakeups_of(server.uri) as far:
        assert near.listening.wait(LONG)
        assert far.listening.wait(LONG)
        bell = far.bell("gap")
        server.stop()
        for n in range(3 * module.MOST_PENDING):
            near.wake(f"log {n}")
        server.start()
        assert bell.wait(LONG), "everything rings after a gap"
        assert near.listening.wait(LONG)
        assert far.listening.wait(LONG)
        bell, done = far.bell("ready"), threading.Event()
        bell.wait(0)
        while not done.is_set():
            near.wake("ready")
            if bell.wait(1.0):
                done.set()


def test_closing_leaves_no_thread_even_when_the_database_is_away(own_postgres: Callable[[], Any]) -> None:
    server = own_postgres()
    before = set(threading.enumerate())
    with wakeups_of(server.uri) as wakeups:
        assert wakeups.listening.wait(LONG)
        server.stop()
        wakeups.wake("ready")
    eventually(lambda: set(threading.enumerate()) <= before)  # those of the pool are not waited for without end


def test_no_bell_is_missed_between_waits(ours: Wakeups, theirs: Wakeups) -> None:
    bell, answer = theirs.bell("ping"), ours.bell("pong")
    stop = threading.Event()

    def echo() -> None:
        while not stop.is_set():
            if bell.wait(LONG):
                theirs.wake("pong")

    thread = threading.Thread(target=echo)
    thread.start()
    for _ in range(50):
        ours.wake("ping")
        assert answer.wait(LONG)
    stop.set()
    ours.wake("ping")
    thread.join()


class Noting:
    """Notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def hear(self, topics: Any) -> None:
        self.heard += topics or ()


def test_which_archives_change_is_told_while_somebody_looks(ours: Wakeups, theirs: Wakeups) -> None:
    noting = Noting()
    theirs.tell(noting)
    ours.changed([1])
    ours.wake("ready")
    eventually(lambda: "ready" in noting.heard)
    assert "archive 1" not in noting.heard
    theirs.watch()
    eventually(lambda: ours.is_watched)
    ours.changed([2, 3])
    eventually(lambda: {"archive 2", "archive 3"} <= set(noting.heard))


def test_a_change_before_a_process_learns_that_it_is_watched_is_announced_late(
    ours: Wakeups, theirs: Wakeups, monkeypatch: pytest.MonkeyPatch
) -> None:
    noting = Noting()
    theirs.tell(noting)
    ours.changed([1])
    theirs.watch()
    eventually(lambda: "archive 1" in noting.heard)
    monkeypatch.setattr(module, "LATELY", 0)
    monkeypatch.setattr(module, "WATCHED", 0)
    ours.watch()  # ends the watch that has begun
    ours.changed([2])
    monkeypatch.setattr(module, "WATCHED", LONG)
    theirs.watch()
    eventually(lambda: ours.is_watched)
    ours.changed([3])
    eventually(lambda: "archive 3" in noting.heard)
    assert "archive 2" not in noting.heard, "it changed long before"
