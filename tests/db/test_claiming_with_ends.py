"""Ends that are recorded and the next tasks that are claimed by one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from psycopg.errors import DeadlockDetected

from arkqueue.db import Connection, connections, pipelines
from arkqueue.db import session as sessions
from arkqueue.db.session import Session
from arkqueue.model import AttemptId, End, Outcome, Receipt
from arkqueue.queue import claim, finish, graph
from tests.builders import HOST, PROCESS, AnArchive, an_archive


def a_request(slots: int = 4) -> claim.Request:
    return claim.Request(HOST, slots, claim.Turns())


def completed(*attempts: AttemptId) -> list[Outcome]:
    return [Outcome(attempt, End.EXITED, 0) for attempt in attempts]


def chain(session: Session, name: str = "papers") -> AnArchive:
    archive = an_archive(session, name)
    archive.commit({"first": "", "next": "depends: [first]"})
    return archive


def test_what_an_end_makes_ready_is_claimed_in_its_transaction(session: Session) -> None:
    archive = chain(session)
    finished = finish.finish_and_claim(session, PROCESS, completed(archive.attempt("first@2")), a_request())
    assert list(finished.receipts.values()) == [Receipt.RECORDED]
    assert [(one.name, one.number) for one in finished.claims] == [("next", 2)]
    assert not finished.is_more
    assert archive.state("next@2") == "running"
    writers = archive.sql(
        "select xmin from attempt where ended_at is not null union select xmin from attempt where ended_at is null"
    )
    assert len(writers) == 1, "one transaction wrote the end and the next attempt"


def test_nobody_is_woken_for_a_task_that_is_claimed_at_once(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = chain(session)
    archive.commit({"first": "", "next": "depends: [first]", "beside": "depends: [first]"})
    woken: list[str] = []
    monkeypatch.setattr(Session, "wake", lambda _, *topics: woken.extend(topics))
    first, second = archive.attempt("first@2"), archive.attempt("first@3")
    woken.clear()
    finish.finish_and_claim(session, PROCESS, completed(first), a_request(1))
    assert woken == []
    finish.finish_and_claim(session, PROCESS, completed(second), a_request(1))
    assert woken == ["ready"], "one of two is left for others"


def test_archives_take_their_turns_with_ends_too(session: Session) -> None:
    busy, other = chain(session, "busy"), an_archive(session, "other")
    ends = completed(busy.attempt("first@2"))
    other.commit({"waits": ""})
    request = a_request(1)
    request.turns.after = busy.id
    finished = finish.finish_and_claim(session, PROCESS, ends, request)
    assert [one.name for one in finished.claims] == ["waits"]
    assert finished.is_more
    assert busy.state("next@2") == "ready"


def test_nothing_is_claimed_where_nothing_can_be_recorded(
    session: Session, second_connection: Callable[[], Connection]
) -> None:
    archive = chain(session)
    attempt = archive.attempt("first@2")
    other = second_connection()
    other.execute("begin")
    other.execute("select from archive for update")
    finished = finish.finish_and_claim(session, PROCESS, completed(attempt), a_request(), patience=0.0)
    assert (finished.receipts, finished.claims) == ({attempt: Receipt.BUSY}, [])
    other.execute("rollback")


def test_a_busy_archive_does_not_make_the_others_claim_twice(
    session: Session, second_connection: Callable[[], Connection]
) -> None:
    """Each archive that was busy gets a transaction of its own; the slots are given away in the first one."""
    free = chain(session, "free")
    ends = completed(free.attempt("first@2"))
    busy = chain(session, "busy")
    ends += completed(busy.attempt("first@2"))
    other = second_connection()
    other.execute("begin")
    other.execute("select from archive where name = 'busy' for update")
    real = graph.Graph.lock_within

    def let_go(self: graph.Graph, archive: int, seconds: float) -> list[int]:
        other.execute("rollback")
        return real(self, archive, seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph.Graph, "lock_within", let_go)
        finished = finish.finish_and_claim(session, PROCESS, ends, a_request(1), patience=10.0)
    assert set(finished.receipts.values()) == {Receipt.RECORDED}
    assert [one.name for one in finished.claims] == ["next"]
    assert (free.state("next@2"), busy.state("next@2")) == ("running", "ready")


def test_a_claim_whose_transaction_deadlocks_is_made_once(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = chain(session)
    attempt = archive.attempt("first@2")
    real, tries = finish.claim_last, []

    def collide(locked: graph.Graph, *arguments: Any) -> Any:
        claims = real(locked, *arguments)
        tries.append(locked.conn)  # sends the claim
        if len(tries) == 1:
            raise DeadlockDetected("made up")
        return claims

    monkeypatch.setattr(finish, "claim_last", collide)
    finished = finish.finish_and_claim(session, PROCESS, completed(attempt), a_request())
    assert len(tries) == 2
    assert [one.name for one in finished.claims] == ["next"]
    assert archive.sql("select count(*) as n from attempt") == [{"n": 2}]


def test_a_link_of_a_chain_takes_three_round_trips(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The locks; the end and what it makes ready; the claim and the commit."""
    archive = chain(session)
    attempt = archive.attempt("first@2")
    trips: list[int] = []

    def counted(connection: Connection, calls: Sequence[pipelines.Call]) -> list[pipelines.Answer]:
        trips.append(len(calls))
        return pipelines.run(connection, calls)

    for module in (connections, sessions, graph):
        monkeypatch.setattr(module, "run", counted)
    finished = finish.finish_and_claim(session, PROCESS, completed(attempt), a_request())
    assert [one.name for one in finished.claims] == ["next"]
    assert trips == [3, 2, 2]


def test_an_end_that_does_not_move_its_running_task_is_not_recorded(session: Session) -> None:
    """Its consequences are computed in the same round trip, so they must not be stored either."""
    archive = chain(session)
    attempt = archive.attempt("first@2")
    keep = "create function keep() returns trigger language plpgsql as $$begin return null; end$$"
    archive.sql(f"{keep}; create trigger keep before update of state on task for each row execute function keep()")
    try:
        with pytest.raises(AssertionError, match="1 locked tasks were running, and only 0 of them ended"):
            finish.finish_and_claim(session, PROCESS, completed(attempt), a_request())
    finally:
        archive.sql("drop function keep cascade")
    assert archive.sql("select ended_at from attempt") == [{"ended_at": None}]
    assert archive.state("next@2") == "waiting"
    finish.finish_and_claim(session, PROCESS, completed(attempt), a_request())
    assert archive.state("next@2") == "running"
