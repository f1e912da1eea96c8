"""Connections: who only holds them is refused in time and let go, and takes nothing from anybody
else.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.web import ApiServer, connections, create_app, run_api
from arkqueue.web.app import PlainCookies
from tests.system.web.conftest import PLAIN, problem
from tests.waiting import PATIENCE, eventually

HEAD = b"POST /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\n"
WHOLE = b"GET /docs HTTP/1.1\r\nHost: localhost\r\n\r\n"


def a_connection(server: ApiServer) -> socket.socket:
    return socket.create_connection((server.host, server.port), timeout=30)


def answers(connection: socket.socket) -> bytes:
    """All that comes until the server closes."""
    said = b""
    with suppress(ConnectionResetError):
        while more := connection.recv(1 << 16):
            said += more
    return said


def is_ended(said: bytes, status: str, fault: str) -> bool:
    """Whether the last answer is this problem document."""
    head, _, body = said[said.rindex(b"HTTP/1.1 ") :].partition(b"\r\n\r\n")
    assert json.loads(body)["fault"] == fault
    return head.startswith(f"HTTP/1.1 {status}\r\n".encode()) and b"application/problem+json" in head


def test_there_are_as_many_connections_as_it_takes_and_no_more(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "MOST", 3)
    # As if nothing had been logged yet: an earlier test may just have caused it.
    monkeypatch.setattr(connections, "_told_at", -connections.TOLD)
    held = [a_connection(server) for _ in range(3)]
    for _ in range(20):
        with a_connection(server) as connection:
            connection.sendall(HEAD + b"12345")  # what is said must not have the answer lost
            assert is_ended(answers(connection), "429 Too Many Requests", "has as many connections as it takes")
    for each in held:
        each.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        with each, each.makefile("rb") as answer:
            assert answer.readline() == b"HTTP/1.1 200 OK\r\n"
    assert httpx.get(f"{server.url}/healthz", **PLAIN).status_code == 200
    assert [record.message for record in caplog.records if "connections" in record.message] == [
        "the API has 3 connections, which is the most it takes: others are refused"
    ]


@pytest.mark.parametrize(
    "said",
    [b"", HEAD[:20], HEAD, HEAD + b"{}", WHOLE + HEAD + b"{}", WHOLE + HEAD[:20]],
    ids=[
        "nothing",
        "half a head",
        "no body",
        "half a body",
        "half a body behind another",
        "half a head behind another",
    ],
)
def test_a_request_that_does_not_come_whole_is_not_waited_for(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(connections, "PATIENCE", 0.2)
    with a_connection(server) as connection:
        connection.sendall(said)
        assert is_ended(answers(connection), "408 Request Timeout", "has not come whole within 0.2 s")


def test_each_request_has_its_own_time(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is refused before its body has come leaves the next one its own."""
    begun: list[asyncio.TimerHandle] = []
    # The timer itself is looked at: waiting for it would take its time.
    wait = connections.Protocol._wait_for_request

    def noted(self: connections.Protocol) -> None:
        wait(self)
        if self._overdue is not None:
            begun.append(self._overdue)

    monkeypatch.setattr(connections.Protocol, "_wait_for_request", noted)
    with a_connection(server) as connection, connection.makefile("rb") as answer:
        connection.sendall(HEAD.replace(b"/runs", b"/nothing"))
        assert answer.readline().startswith(b"HTTP/1.1 404 ")
        connection.sendall(b"12345" + WHOLE)
        assert any(line.endswith(b"HTTP/1.1 200 OK\r\n") for line in iter(answer.readline, b""))
    assert begun[0].cancelled()
    assert begun[0] is not begun[-1]


def test_a_request_for_another_protocol_is_answered_as_a_plain_one(
    server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    asked = {
        "connection": "upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "eA==",
    }
    for path in ("/healthz", "/-/live"):
        assert httpx.get(server.url + path, headers=asked, **PLAIN).status_code < 400
    assert caplog.messages == []


def test_who_goes_away_in_the_midst_of_an_answer_is_nothing_to_warn_of(caplog: pytest.LogCaptureFixture) -> None:
    is_gone, is_answered = threading.Event(), threading.Event()

    async def stream(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        chunk = {"type": "http.response.body", "body": b"x", "more_body": True}
        await send(chunk)
        is_gone.wait()  # so that the event loop hears of it by what is sent
        for _ in range(100):
            await send(chunk)
        await send({**chunk, "more_body": False})
        is_answered.set()

    app = FastAPI()
    app.state.followers = SimpleNamespace(watcher=SimpleNamespace(call_all=lambda: None))
    app.mount("/", stream)
    server = run_api(app, "127.0.0.1", 0)
    try:
        connection = a_connection(server)
        connection.sendall(WHOLE.replace(b"/docs", b"/stream"))
        assert connection.recv(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        is_gone.set()
        assert is_answered.wait(PATIENCE)
    finally:
        is_gone.set()
        server.close()
    assert caplog.messages == []


def test_who_does_not_read_is_let_go(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "UNREAD", 0.2)
    with a_connection(server) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.sendall(WHOLE.replace(b"/docs", b"/openapi.json") * 200)
        eventually(lambda: len(server.connections) == 1)
        eventually(lambda: not server.connections)


def test_server_stops_also_while_somebody_does_not_read_and_logs_no_traceback(
    server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    with a_connection(server) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.sendall(WHOLE.replace(b"/docs", b"/openapi.json") * 200)
        eventually(lambda: any(each.flow.write_paused for each in [*server.connections]))  # type: ignore[attr-defined]
        server.close()
    assert "timeout graceful shutdown exceeded" in caplog.text
    assert "CancelledError" not in caplog.text


def test_what_is_no_http_is_answered_with_a_problem_document(server: ApiServer) -> None:
    for before in (b"", WHOLE):
        with a_connection(server) as connection:
            connection.sendall(before + b"\xff\xff\r\n\r\n")
            assert is_ended(answers(connection), "400 Bad Request", "is not valid HTTP")


def test_nothing_behind_a_request_of_two_lengths_is_read(server: ApiServer) -> None:
    """A proxy may go by the other length, and so forward two requests as one."""
    both = HEAD.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
    with a_connection(server) as connection:
        connection.sendall(both + WHOLE)
        said = answers(connection)
    assert said.count(b"HTTP/1.1 ") == 1
    assert is_ended(said, "400 Bad Request", "has both a Content-Length and a Transfer-Encoding")


def test_a_path_with_a_slash_too_many_leads_nowhere(server: ApiServer) -> None:
    answer = httpx.get(f"{server.url}/api/v1/runs/", **PLAIN)
    problem(answer, 404, "/api/v1/runs/: there is nothing here")


@pytest.mark.full
def test_backslashes_in_cookies_are_not_read(session: Session, configuration: Configuration) -> None:
    """Python reads them in a time that grows with the square of their number."""

    async def app(scope: Scope, _: Receive, __: Send) -> None:
        assert Request(scope).cookies == {"other": "x"}

    cookies = b'a="' + b"\\\\" * 1_000_000 + b'"; other=x'
    scope = {"type": "http", "headers": [(b"host", b"localhost"), (b"cookie", cookies)]}
    asyncio.run(PlainCookies(app)(scope, nothing, nothing))
    assert scope["headers"] == [(b"host", b"localhost"), (b"cookie", b" other=x")]
    assert create_app(session, configuration).user_middleware[0].cls is PlainCookies


async def nothing(*_: object) -> Any:
    """Neither receives nor sends."""


def test_half_of_the_files_that_may_be_open_are_for_others() -> None:
    """In a process of its own, as what it may open is the process's."""
    script = (
        "import resource; from arkqueue.web import connections;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)); print(connections.most())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "128\n"
