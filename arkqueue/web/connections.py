"""Limits the number and the duration of connections to the API: a client that only holds
connections, with or without a token, cannot use up what this process needs for its other work.

The server's protocol is uvicorn's. It ends idle connections after an answer, but not connections on
which nothing arrives, or only half a request, or whose client does not read its answer.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from http import HTTPStatus
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from arkqueue.web.problems import Refused, of_error

log = logging.getLogger("arkqueue")

MOST = 2000
"""The most connections at once; fewer if this process may not open twice as many files."""
ACCEPTED_AT_ONCE = 128
"""The connections that are accepted before any of them is read."""
PATIENCE = 30.0
"""The seconds in which a request's head has to arrive, and its body, or at least `LEAST` bytes of
it.
"""
LEAST = 2**20
"""The bytes of a long body, for example a submission's payload, that have to arrive in this time to
extend it.
"""
UNREAD = 60.0
"""The seconds in which a client has to read a part of the bytes that wait for it."""
LINGER = 1.0
"""The seconds that a client has to read an answer that ends its connection. If the connection were
closed at once, the client's own bytes would be answered with a reset, and the answer would be lost.
"""
TOLD = 60.0
"""The seconds until the log reports again that there are too many connections."""

_told_at = -TOLD


class Protocol(H11Protocol):
    """One connection."""

    _awaited: object = None
    """The part of a request for which the server waits."""
    _overdue: asyncio.TimerHandle | None = None
    """The timer at which this wait ends, or at which an answer that ends the connection was read
    for long enough.
    """
    _looking: asyncio.TimerHandle | None = None
    _came = 0
    """The bytes that have arrived since the wait began."""
    _is_ended = False
    """Whether an answer that ends the connection was sent: bytes that still arrive are ignored."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(asyncio.Transport, _Open(transport)))
        self._look()
        if len(self.connections) > most():
            self._refuse()
        else:
            self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        if not self._is_ended:
            self._came += len(data)
            super().data_received(data)

    def handle_events(self) -> None:
        # Bytes that arrived after another request are also read here, once that request is
        # answered.
        super().handle_events()
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._overdue, self._looking):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def _should_upgrade(self) -> bool:
        """A request for another protocol gets the answer of a plain one (RFC 9110, 7.8). uvicorn would
        also log the advice to install a library for WebSockets, which nothing here uses.
        """
        return False

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        self._end(Refused(400, "the request", "is not valid HTTP", "Send it as RFC 9112 defines it."))

    # Requests

    def _wait_for_request(self) -> None:
        state = self.conn.their_state
        awaited = (state, self.cycle) if state in (h11.IDLE, h11.SEND_BODY) else None
        if awaited == self._awaited or self._is_ended:
            return
        self._awaited, self._came = awaited, 0
        if self._overdue is not None:
            self._overdue.cancel()
        self._overdue = self.loop.call_later(PATIENCE, self._give_up) if awaited else None

    def _give_up(self) -> None:
        if self._came >= LEAST and self.conn.their_state is h11.SEND_BODY:
            self._came = 0
            self._overdue = self.loop.call_later(PATIENCE, self._give_up)
            return
        self._end(Refused(408, "the request", f"has not come whole within {PATIENCE:g} s", "Send it at once."))

    # Answers

    def _look(self, before: int = 0) -> None:
        """Check whether the client reads its answer. ``before``: the number of waiting bytes at the
        last check. No bytes are added in the meantime.
        """
        waits = self.transport.get_write_buffer_size() if self.flow.write_paused or self.transport.is_closing() else 0
        if waits and waits == before:
            self.transport.abort()
        else:
            self._looking = self.loop.call_later(UNREAD, self._look, waits)

    def _refuse(self) -> None:
        global _told_at
        if time.monotonic() - _told_at >= TOLD:
            _told_at = time.monotonic()
            log.warning("the API has %d connections, which is the most it takes: others are refused", most())
        if len(self.connections) > most() + ACCEPTED_AT_ONCE:
            self.transport.abort()  # refused connections use files, too
        self._end(
            Refused(429, "the server", "has as many connections as it takes", "Try again later.", Retry_After="1")
        )

    def _end(self, error: Refused) -> None:
        """Answer without calling the application, and close the connection. If the application has
        begun to answer, only close it.
        """
        self._is_ended = True
        if self._overdue is not None:
            self._overdue.cancel()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE) or self.transport.is_closing():
            self.transport.abort()
            return
        answer = of_error(error)
        answer.headers["connection"] = "close"
        head = b"".join(b"%b: %b\r\n" % field for field in answer.raw_headers)
        status = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n".encode()
        self.transport.write(status + head + b"\r\n" + bytes(answer.body))
        self.transport.write_eof()
        self._overdue = self.loop.call_later(LINGER, self.transport.abort)


class _Open:
    """A transport that writes nothing once its client has gone away.

    Without it, asyncio logs a warning, and a stream continues to write until it learns of the end
    of its connection.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def most() -> int:
    """The most connections at once."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if files == resource.RLIM_INFINITY else min(MOST, files // 2)
