"""How the command line reads events: whole, however they come, and never as if a connection that broke had been ended."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from arkqueue.cli.client import MOST_AT_ONCE, Client, Event, Unreachable

LONG = "x" * 3 * MOST_AT_ONCE
TEXT = (
    'id: 1\nevent: log\ndata: {"data": "é…"}\n\n: still here\n\n'
    f'id: 2\r\nevent: log\r\ndata: {{"data":\r\ndata: "{LONG}"}}\r\n\r\n'
    'id: 3\nevent: end\ndata: {"size": 3}\n\n'
).encode()
EVENTS = [Event("log", "1", {"data": "é…"}), Event("log", "2", {"data": LONG}), Event("end", "3", {"size": 3})]


@contextmanager
def a_server(parts: Sequence[bytes], *, is_ended: bool = True) -> Iterator[Client]:
    """A server that answers once, each part in a chunk of its own, and ends its answer or breaks it off."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                while b"\r\n\r\n" not in (request := connection.recv(1 << 16)):
                    assert request
                connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                for part in parts:
                    connection.sendall(b"%x\r\n%b\r\n" % (len(part), part))
                if is_ended:
                    connection.sendall(b"0\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        yield Client(f"http://127.0.0.1:{listener.getsockname()[1]}", "secret")
        thread.join()


@pytest.mark.parametrize("size", [1, 7, 100, 5000, len(TEXT)])
def test_events_are_the_same_wherever_they_are_cut(size: int) -> None:
    few = TEXT[: 3 * 5000] if size < 100 else TEXT  # a chunk for each byte of what is long would take a while
    with a_server([few[at : at + size] for at in range(0, len(few), size)]) as client:
        assert list(client.events("/attempts/1/log")) == (EVENTS if few is TEXT else EVENTS[:1])


def test_events_that_break_off_are_not_taken_for_all() -> None:
    parts = [part + b"\n\n" for part in TEXT.split(b"\n\n")[:2]]
    with a_server(parts, is_ended=False) as client:
        events = client.events("/attempts/1/log")
        assert next(events) == EVENTS[0]
        with pytest.raises(Unreachable, match="cannot be reached"):
            next(events)
