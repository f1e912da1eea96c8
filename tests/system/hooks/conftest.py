"""Receivers of notices for these tests, and a checker as the hooks start it."""

from __future__ import annotations

import json
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.ports import a_port

TOKEN = "s3cret-of-the-hook"


@dataclass(frozen=True)
class Notice:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Receiver:
    """An HTTP server on the loopback interface that keeps every notice."""

    def __init__(self) -> None:
        notices: queue.SimpleQueue[Notice] = queue.SimpleQueue()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                notices.put(Notice(self.path, dict(self.headers), body))
                self.send_response(202)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._notices = notices
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def next(self) -> Notice:
        """Waits for the next notice."""
        return self._notices.get(timeout=60)

    def told(self) -> dict[str, Any]:
        return self.next().body

    def only(self, marker: Callable[[], object]) -> list[dict[str, Any]]:
        """All notices up to the one that ``marker`` sends, without that one.

        Notices can overtake each other. So this is only for notices that would have been sent long
        before.
        """
        marker()
        found = [self.told()]
        while not self._notices.empty():
            found.append(self.told())
        return found[:-1]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def second_receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


class HangingServer:
    """A server that accepts connections and never answers."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(60)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._held: list[socket.socket] = []

    def request(self) -> bytes:
        """Waits for a request up to the end of its JSON body. The sender continues to wait for the
        answer.
        """
        connection, _ = self._listener.accept()
        connection.settimeout(60)
        self._held.append(connection)
        received = b""
        while not received.endswith(b"}"):
            received += connection.recv(4096)
        return received

    def still_held(self) -> bool:
        """Whether the client of the last request is still connected."""
        self._held[-1].setblocking(False)
        try:
            return self._held[-1].recv(1) != b""
        except BlockingIOError:
            return True

    def close(self) -> None:
        for connection in (*self._held, self._listener):
            connection.close()


@pytest.fixture
def hanging() -> Iterator[HangingServer]:
    server = HangingServer()
    yield server
    server.close()


@pytest.fixture
def nobody() -> Iterator[str]:
    """The URL of a server that is down."""
    with a_port() as port:
        yield f"http://127.0.0.1:{port}"
