"""Events at the command line: each event arrives whole, however its bytes arrive, and a broken
connection never looks like a normal end.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from arkqueue.cli.client import MOST_AT_ONCE, Client, Event, Unreachable


def told(length: int) -> tuple[bytes, list[Event]]:
    """Events as a server may send them, one of them so long, and what they say."""
    long = "x" * length
    text = (
        'id: 1\nevent: log\ndata: {"data": "é…"}\n\n: still here\n\n'
        f'id: 2\r\nevent: log\r\ndata: {{"data":\r\ndata: "{long}"}}\r\n\r\n'
        'id: 3\nevent: end\ndata: {"size": 3}\n\n'
    )
    return text.encode(), [
        Event("log", "1", {"data": "é…"}), Event("log", "2", {"data": long}), Event("end", "3", {"size": 3}),
    ]  # fmt: skip


@contextmanager
def a_server(parts: Sequence[bytes], *, is_ended: bool = True) -> Iterator[Client]:
    """A server that answers once, each part in a chunk of its own, and ends its answer or breaks it off."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as request:
                while request.readline().strip():
                    pass
                connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                for part in parts:
                    connection.sendall(b"%x\r\n%b\r\n" % (len(part), part))
                if is_ended:
                    connection.sendall(b"0\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield Client(f"http://127.0.0.1:{listener.getsockname()[1]}", "secret")
        finally:
            thread.join()


@pytest.mark.parametrize(
    ("size", "length"), [(1, 10), (7, 10), (100, 1000), (5000, 3 * MOST_AT_ONCE), (1 << 20, 3 * MOST_AT_ONCE)]
)
def test_events_are_the_same_wherever_they_are_cut(size: int, length: int) -> None:
    text, events = told(length)
    with a_server([text[at : at + size] for at in range(0, len(text), size)]) as client:
        assert list(client.events("/attempts/1/log")) == events


def test_events_that_break_off_are_not_taken_for_all() -> None:
    text, (first, *_) = told(10)
    parts = [part + b"\n\n" for part in text.split(b"\n\n")[:2]]
    with a_server(parts, is_ended=False) as client:
        events = client.events("/attempts/1/log")
        assert next(events) == first
        with pytest.raises(Unreachable, match="cannot be reached"):
            next(events)
