"""Connections to the API have a limit and an end: whoever only holds them, with a token or none, cannot take what this process needs for everything else.

The server's protocol is uvicorn's, which ends a connection that stays after an answer, but neither one on which nothing comes, or half a request, nor one whose client does
not read what it is sent.
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
"""Connections at once; fewer where this process may not open twice as many files."""
ACCEPTED_AT_ONCE = 128
"""Connections that are accepted before any of them is looked at."""
PATIENCE = 30.0
"""Seconds in which a request's head has to come, and its body, or so much of it as `LEAST`."""
LEAST = 2**20
"""Bytes of a long body, a submission's payload say, that come meanwhile: then it is waited for longer."""
UNREAD = 60.0
"""Seconds in which a client has to read some of what waits for it."""
LINGER = 1.0
"""Seconds that a client has to take an answer that ends its connection. Closed at once, its own words would be answered with a reset, and ours be lost."""
TOLD = 60.0
"""Seconds until the log says again that there are too many."""

_told_at = -TOLD


class Protocol(H11Protocol):
    """One connection."""

    _awaited: object = None
    """Which part of which request is waited for."""
    _overdue: asyncio.TimerHandle | None = None
    """When it is waited for no longer, or, after an answer that ends the connection, when that is over."""
    _looking: asyncio.TimerHandle | None = None
    _came = 0
    """Bytes that came since it was waited for."""
    _is_ended = False
    """Whether such an answer was sent: what still comes means nothing."""

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
        # Also what came behind another request is read here, once that is answered.
        super().handle_events()
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._overdue, self._looking):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        self._end(Refused(400, "the request", "is not valid HTTP", "Send it as RFC 9112 defines it."))

    # -- requests ----------------------------------------------------------------------------------------------------

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

    # -- answers -----------------------------------------------------------------------------------------------------

    def _look(self, before: int = 0) -> None:
        """Whether somebody reads what he is sent; ``before``: how much waited for him at the last look. Nothing is added to it meanwhile."""
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
            self.transport.abort()  # those who are being refused hold files, too
        self._end(
            Refused(429, "the server", "has as many connections as it takes", "Try again later.", Retry_After="1")
        )

    def _end(self, error: Refused) -> None:
        """Answer past the application, which is not asked, and close; where it has begun to answer, only close."""
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
    """A transport on which nothing is written once its client has gone away.

    asyncio warns of that, and a stream writes on until it hears of the end of its connection.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def most() -> int:
    """How many connections there may be at once."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if files == resource.RLIM_INFINITY else min(MOST, files // 2)
