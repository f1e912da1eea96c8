"""Connections to the API have a limit and an end: whoever only holds them, with a token or none, cannot take what this process needs for everything else.

The server's protocol is uvicorn's, which has an end for connections that stay after an answer, and none for those that say nothing at first, or never finish what they say.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from http import HTTPStatus

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from arkqueue.api.problems import Refused, of_error

log = logging.getLogger("arkqueue")

MOST = 2000
"""Connections at once; fewer where this process may not open twice as many files."""
ACCEPTED_AT_ONCE = 128
"""Connections that are accepted before any of them is looked at."""
PATIENCE = 30.0
"""Seconds in which a request has to come whole."""
TOLD = 60.0
"""Seconds until the log says again that there are too many."""

_told_at = -TOLD


class Protocol(H11Protocol):
    """One connection."""

    _overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > most():
            self._refuse()
        else:
            self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        super().connection_lost(exc)

    def _wait_for_request(self) -> None:
        """Let the time run from the first moment that a request could come until it is all there."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._wait_no_more()
        elif self._overdue is None:
            self._overdue = self.loop.call_later(PATIENCE, self.transport.abort)

    def _wait_no_more(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None

    def _refuse(self) -> None:
        global _told_at
        if time.monotonic() - _told_at >= TOLD:
            _told_at = time.monotonic()
            log.warning("the API has %d connections, which is the most it takes: others are refused", most())
        self._end(
            Refused(429, "the server", "has as many connections as it takes", "Try again later.", Retry_After="1")
        )

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        self._end(Refused(400, "the request", "is no HTTP that can be read", "Send it as RFC 9112 has it."))

    def _end(self, error: Refused) -> None:
        """Answer past the application, which is not asked, and close."""
        answer = of_error(error)
        answer.headers["connection"] = "close"
        head = b"".join(b"%b: %b\r\n" % field for field in answer.raw_headers)
        status = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n".encode()
        self.transport.write(status + head + b"\r\n" + bytes(answer.body))
        self.transport.close()


def most() -> int:
    """How many connections there may be at once."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if files == resource.RLIM_INFINITY else min(MOST, files // 2)
