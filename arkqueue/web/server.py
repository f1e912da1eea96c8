"""The HTTP server in a thread, so that it can share a process with the other roles. Its port is
bound before it starts, so that a port in use is reported at once.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import threading
from collections.abc import Collection
from contextlib import suppress

import uvicorn
from fastapi import FastAPI

from arkqueue.errors import ArkqueueError
from arkqueue.web.connections import ACCEPTED_AT_ONCE, Protocol

PATIENCE = 3
"""The seconds that unfinished requests have when the server stops."""
TICK = 1.0
"""The seconds between two updates of the date in the answers."""


class ApiServer:
    """A running server. ``url``: its address. ``close`` ends it."""

    def __init__(self, app: FastAPI, host: str, port: int) -> None:
        logging.getLogger("uvicorn.error").addFilter(_is_no_farewell)
        self._socket = _bind(host, port)
        self.host, self.port = self._socket.getsockname()[:2]
        self._started = threading.Event()
        self._failure: BaseException | None = None
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http=Protocol,
            backlog=ACCEPTED_AT_ONCE,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            log_level="warning",
            server_header=False,
            timeout_graceful_shutdown=PATIENCE,
        )
        self._server = _Server(config, app, self._started)
        self._thread = threading.Thread(target=self._run, name="api", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            raise ArkqueueError(f"the API at {self.url}", f"could not start: {self._failure}")

    @property
    def url(self) -> str:
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    @property
    def connections(self) -> Collection[object]:
        """The open connections."""
        return self._server.server_state.connections

    def close(self) -> None:
        """Accept no more requests, let the unfinished ones end, and return when all have ended."""
        self._server.leave()
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except BaseException as failure:
            self._failure = failure
        finally:
            self._started.set()


class _Server(uvicorn.Server):
    """Reports when it listens. When it leaves, it notifies followers of logs and open pages.

    uvicorn's own server checks every 0.1 s whether it has to leave, and waits 0.1 s for its
    connections, even if it has none.
    """

    def __init__(self, config: uvicorn.Config, app: FastAPI, started: threading.Event) -> None:
        super().__init__(config)
        self._app, self._listens = app, started
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave = asyncio.Event()

    def leave(self) -> None:
        """End the server soon. Any thread may call it."""
        self.should_exit = True
        with suppress(RuntimeError):  # the server has ended by itself
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._leave.set)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._app.state.leaving = asyncio.Event()
        await super().startup(sockets)
        self._listens.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # this also sets the date of the answers
            with suppress(TimeoutError):
                await asyncio.wait_for(self._leave.wait(), TICK)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.state.leaving.set()
        self._app.state.followers.watcher.call_all()
        self._app.state.live.hear(None)
        if not (self.server_state.connections or self.server_state.tasks):
            for server in self.servers:
                server.close()
            for bound in sockets or []:
                bound.close()
            return
        await super().shutdown(sockets)
        for connection in [*self.server_state.connections]:
            connection.transport.abort()  # the client does not read its answer


def _is_no_farewell(record: logging.LogRecord) -> bool:
    """Whether a line is worth logging. Requests that end with the server are counted in one line,
    because their places in the code do not matter.
    """
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def run_api(app: FastAPI, host: str, port: int) -> ApiServer:
    """Serve the app at an address until ``close``. Port 0: any free port. Raises ArkqueueError if
    the address cannot be used.
    """
    return ApiServer(app, host, port)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # TCP is named explicitly: otherwise asyncio does not switch Nagle's algorithm off, and each
    # answer on a connection that stays would wait for 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(ACCEPTED_AT_ONCE)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            fault = "another program listens at this address"
            remedy = "Stop that program, or choose another address: arkqueue serve --listen HOST:PORT"
        else:
            fault = f"the server cannot listen at this address: {error.strerror}"
            remedy = "Choose an address of this host (listen)."
        raise ArkqueueError(f"{host}:{port}", fault, remedy) from error
    return bound
