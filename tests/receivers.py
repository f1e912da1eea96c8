"""Real HTTP servers that receive notifications. A test can make them refuse, hang, or lose an
answer.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Post:
    """A request as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.body)
        return document


Answer = Callable[[BaseHTTPRequestHandler], None]


def says(status: int, text: str = "", **headers: str) -> Answer:
    """An answer with a status, a body and headers."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("content-length", str(len(text.encode())))
        handler.end_headers()
        handler.wfile.write(text.encode())

    return answer


def lost(handler: BaseHTTPRequestHandler) -> None:
    """Closes the connection after taking the request, before any answer."""
    handler.close_connection = True


@dataclass
class Receiver:
    """A server. ``answers``: the answers to the next requests; after them the server accepts
    everything.
    """

    url: str
    posts: list[Post] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)

    def hangs(self, handler: BaseHTTPRequestHandler) -> None:
        """Sends only a byte now and then until the end of the test."""
        handler.close_connection = True
        try:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
            while not self.released.wait(0.2):
                handler.wfile.write(b"x-still: here\r\n")
        except OSError:
            pass  # the client has closed the connection


@contextmanager
def a_receiver() -> Iterator[Receiver]:
    """A server on the loopback interface."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            answer = receiver.answers.pop(0) if receiver.answers else says(204)
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.posts.append(Post(self.path, headers, body))
            answer(self)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver = Receiver(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
