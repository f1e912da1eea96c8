"""Connections: who only holds them is refused in time and let go, and takes nothing from anybody else."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import suppress

import httpx
import pytest

from arkqueue.api import ApiServer, connections
from tests.system.api.conftest import problem

HEAD = b"POST /api/v1/notices HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n"


def a_connection(server: ApiServer) -> socket.socket:
    return socket.create_connection((server.host, server.port), timeout=30)


def is_refused(connection: socket.socket) -> bool:
    """Whether the server closes it, having said so."""
    with connection, connection.makefile("rb") as answer:
        head, _, body = answer.read().partition(b"\r\n\r\n")
    assert json.loads(body)["fault"] == "has as many connections as it takes"
    return head.startswith(b"HTTP/1.1 429 Too Many Requests\r\n") and b"application/problem+json" in head


def test_there_are_as_many_connections_as_it_takes_and_no_more(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "MOST", 3)
    monkeypatch.setattr(connections, "_told_at", -connections.TOLD)
    held = [a_connection(server) for _ in range(3)]
    for _ in range(2):
        assert is_refused(a_connection(server))
    for each in held:
        each.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        with each, each.makefile("rb") as answer:
            assert answer.readline() == b"HTTP/1.1 200 OK\r\n"
    assert httpx.get(f"{server.url}/healthz", trust_env=False).status_code == 200
    assert [record.message for record in caplog.records if "connections" in record.message] == [
        "the API has 3 connections, which is the most it takes: others are refused"
    ]


@pytest.mark.parametrize(
    "said", [b"", HEAD[:20], HEAD, HEAD + b"{}"], ids=["nothing", "half a head", "no body", "half a body"]
)
def test_a_request_that_does_not_come_whole_is_not_waited_for(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(connections, "PATIENCE", 0.2)
    with a_connection(server) as connection:
        connection.sendall(said)
        # An answer may come first: without a token, the body of a request is not waited for.
        with suppress(ConnectionResetError):
            while connection.recv(1 << 16):
                pass


def test_what_is_no_http_is_answered_with_a_problem_document(server: ApiServer) -> None:
    with a_connection(server) as connection, connection.makefile("rb") as answer:
        connection.sendall(b"\xff\xff\r\n\r\n")
        head, _, body = answer.read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert json.loads(body)["thing"] == "the request"


def test_a_path_with_a_slash_too_many_leads_nowhere(server: ApiServer) -> None:
    answer = httpx.get(f"{server.url}/api/v1/runs/", trust_env=False)
    problem(answer, 404, "/api/v1/runs/: there is nothing here")


def test_half_of_the_files_that_may_be_open_are_for_others() -> None:
    """In a process of its own, as what it may open is the process's."""
    script = (
        "import resource; from arkqueue.api import connections;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)); print(connections.most())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "128\n"
