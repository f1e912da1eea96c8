"""An archive whose row stays locked: requests for it wait, a few of them, and hold up
nobody else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest
from psycopg.conninfo import make_conninfo

from arkqueue.db import Database
from arkqueue.db.connections import Connection
from arkqueue.db.session import Session
from arkqueue.queue import claim
from arkqueue.queue.finish import Receipt
from arkqueue.web import app
from tests.builders import PROCESS, AnArchive, an_archive
from tests.system.web.conftest import PLAIN, problem
from tests.waiting import eventually

REQUESTS = 40
Connect = Callable[[], Connection]


@pytest.fixture
def database(pg_uri: str) -> Iterator[Database]:
    """Nobody gives up: whoever waits for the lock does so until the test lets go of it."""
    uri = make_conninfo(pg_uri, options="-c lock_timeout=0 -c statement_timeout=0")
    with Database.open(uri, application_name="arkqueue test") as database:
        yield database


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arkqueue.runtime.admission.PATIENCE", 600.0)


@contextmanager
def locked(archive: AnArchive, second_connection: Connect) -> Iterator[None]:
    """As by a transaction that plans thousands of tasks."""
    holder = second_connection()
    with holder.transaction():
        holder.execute("select from archive where id = %s for no key update", [archive.id])
        yield


class Requests:
    """Many requests at once, and the answers in the order in which they come."""

    def __init__(self, ask: Callable[[], httpx.Response], count: int) -> None:
        self.answers: list[httpx.Response] = []
        self._threads = [threading.Thread(target=lambda: self.answers.append(ask())) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def join(self) -> list[httpx.Response]:
        for thread in self._threads:
            thread.join()
        return self.answers


def test_requests_that_wait_for_one_archive_hold_up_nothing_else(
    session: Session, operator: httpx.Client, second_connection: Connect
) -> None:
    papers, code = an_archive(session, "papers"), an_archive(session, "code")
    papers.commit({"a": "", "b": "depends: [a]"})
    code.commit({"x": "", "y": ""})
    running, waiting = code.attempt("x@2"), f"/tasks/{code.task('y@2')}/cancel"
    path = f"{operator.base_url}tasks/{papers.task('b@2')}/cancel"

    def cancel() -> httpx.Response:
        return httpx.post(path, headers=operator.headers, **PLAIN)

    with locked(papers, second_connection):
        requests = Requests(cancel, REQUESTS)
        admitted = app.WAITING + 1
        eventually(lambda: len(requests.answers) == REQUESTS - admitted, lambda: requests.answers)
        assert running in claim.renew(session, PROCESS, [running]).asked
        assert code.end("x@2") is Receipt.RECORDED
        code.commit({"z": ""})
        assert code.attempt("z@3")
        for answer in (operator.post(waiting), operator.get("/runs"), operator.get("/healthz")):
            assert answer.status_code == 200, answer.text
        assert len(requests.answers) == REQUESTS - admitted, "the others still wait"
    answers = requests.join()
    for refused in answers[: REQUESTS - admitted]:
        document = problem(refused, 503, f"the archive: is being changed, and {app.WAITING} others wait for that")
        assert document["type"] == "/docs#problem-busy"
        assert refused.headers["retry-after"]
    statuses = {answer.status_code for answer in answers[REQUESTS - admitted :]}
    assert statuses == {200, 409}, "the first one cancels it, and the others find it canceled"
    assert papers.state("b@2") == "canceled"


def test_a_few_archives_that_are_locked_leave_connections_for_others(
    session: Session, operator: httpx.Client, second_connection: Connect
) -> None:
    archives = [an_archive(session, f"papers-{number}") for number in range(app.ACTING)]
    for archive in archives:
        archive.commit({"a": ""})
    paths = [f"{operator.base_url}tasks/{archive.task('a@2')}/cancel" for archive in archives]
    holders = [second_connection() for _ in archives]
    for holder, archive in zip(holders, archives, strict=True):
        holder.execute("begin")
        holder.execute("select from archive where id = %s for no key update", [archive.id])
    asked = iter(paths)
    requests = Requests(lambda: httpx.post(next(asked), headers=operator.headers, **PLAIN), len(paths))
    eventually(lambda: waiting_for_locks(session) == len(paths))
    assert operator.get("/runs").status_code == 200
    assert requests.answers == []
    for holder in holders:
        holder.execute("rollback")
    assert [answer.status_code for answer in requests.join()] == [200] * len(paths)


def waiting_for_locks(session: Session) -> int:
    with session.database.statement() as connection:
        row = connection.execute(
            "select count(*) as n from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        ).fetchone()
    assert row
    return int(row["n"])
