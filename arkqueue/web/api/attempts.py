"""Attempts and their logs over HTTP: the bytes of a log, or events while the attempt runs.

A follower waits in the event loop until the watcher of this process reports that its log has grown
(``logs.follow``), and holds no thread meanwhile. Then it reads with a short call, which it shares
with followers at the same position.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Any

import pybase64
from fastapi import Query, Request, Response
from fastapi.responses import StreamingResponse

from arkqueue import logs
from arkqueue.db.session import Session
from arkqueue.errors import DatabaseUnavailable
from arkqueue.model import AttemptId
from arkqueue.queue.logs import follow
from arkqueue.queue.tokens import Scope
from arkqueue.views import attempts
from arkqueue.views.attempts import AttemptView
from arkqueue.web.access import admit, authenticated
from arkqueue.web.api.calls import calls
from arkqueue.web.problems import Refused
from arkqueue.web.shared import Shared

router = calls("attempts", "/attempts")

CHECKED = 1.0
"""Seconds after which a follower's token is checked again, even if nothing is written."""
HEARTBEAT = 15.0
"""Seconds of silence after which a follower gets a heartbeat."""
AWAY = 2.0
"""Seconds until a follower tries again while the database is unavailable."""
PAGE = 1 << 20


class Followers:
    """The state that followers of logs share in this application. All of them are in one event
    loop.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.watcher = logs.Watcher(session, follow)
        self._reads = Shared[logs.Page]()

    async def read(self, attempt: AttemptId, followed: logs.Followed, offset: int) -> logs.Page:
        """The next page of a log, at least as far as the watcher knows it. A caller that asks
        during the same read of another caller gets that result.
        """
        key = attempt, offset, followed.size, followed.ended
        return await self._reads.get(key, logs.read, self._session, attempt, offset)


@router.get("/{id}")
def show_attempt(request: Request, id: int) -> AttemptView:
    """One attempt, an execution of a task."""
    caller = admit(request, Scope.READ)
    return attempts.attempt(caller.session, caller.attempt(id))


@router.get("/{id}/log", response_class=Response)
def log_of_attempt(
    request: Request,
    id: int,
    offset: Annotated[int, Query(ge=0, lt=2**63)] = 0,
    limit: Annotated[int, Query(ge=1, le=8 << 20)] = PAGE,
) -> Any:
    """A part of a log from a byte on, as it was written. `Accept: text/event-stream` follows the
    log.

    `Log-Next-Offset`: where to continue. `Log-Complete`: whether more will come. `Log-Size`: the
    length of the log. Of a long log, the middle is not kept: the answer ends where bytes are
    missing, and `Log-Cut` of the next answer gives their number.
    """
    caller = admit(request, Scope.READ)
    attempt = caller.attempt(id)
    if "text/event-stream" in request.headers.get("accept", ""):
        last = request.headers.get("last-event-id", "")
        start = int(last) if last.isdecimal() and len(last) < 19 else offset
        events = _events(request, attempt, start)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)
    page = logs.read(caller.session, attempt, offset, limit)
    return _page(page, offset)


def _page(page: logs.Page, offset: int) -> Response:
    cut, end = 0, offset
    chunks: list[bytes] = []
    for chunk in page.chunks:
        if chunk.cut and chunks:
            break
        cut = cut or chunk.cut
        chunks.append(chunk.data)
        end = chunk.end
    headers = {
        "Log-Next-Offset": str(end),
        "Log-Size": str(page.size),
        "Log-Complete": "true" if page.ended and end >= page.size else "false",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    if cut:
        headers["Log-Cut"] = str(cut)
    return Response(b"".join(chunks), headers=headers, media_type="text/plain; charset=utf-8")


async def _events(request: Request, attempt: AttemptId, offset: int) -> AsyncIterator[bytes]:
    """Server-sent events: `log` with a chunk (its data in base64), `end` when the attempt has ended
    and all of its log was sent.
    """
    leaving: asyncio.Event | None = getattr(request.app.state, "leaving", None)
    followers: Followers = request.app.state.followers
    changed, loop = asyncio.Event(), asyncio.get_running_loop()

    def wake() -> None:
        with suppress(RuntimeError):  # the event loop has ended meanwhile
            loop.call_soon_threadsafe(changed.set)

    heard, is_due = loop.time(), True
    with followers.watcher.following(attempt, wake) as followed:
        while leaving is None or not leaving.is_set():
            changed.clear()
            try:
                await authenticated(request)
                page = await followers.read(attempt, followed, offset) if is_due or followed.has_more(offset) else None
            except Refused:  # the token was revoked meanwhile
                return
            except DatabaseUnavailable:
                yield b": the database does not answer\n\n"
                await asyncio.sleep(AWAY)
                continue
            is_due = page is not None and bool(page.chunks)
            for chunk in page.chunks if page else ():
                offset, heard = chunk.end, loop.time()
                said = {"offset": chunk.position, "stream": chunk.stream, "at": chunk.at.isoformat(), "cut": chunk.cut}
                yield _event("log", offset, said, chunk.data)
            if page and page.ended and not page.chunks:
                yield _event("end", offset, {"offset": offset, "size": page.size})
                return
            if loop.time() - heard >= HEARTBEAT:
                heard = loop.time()
                yield b": still here\n\n"
            if not is_due:
                with suppress(TimeoutError):
                    async with asyncio.timeout(CHECKED):
                        await changed.wait()


def _event(kind: str, offset: int, said: dict[str, Any], data: bytes | None = None) -> bytes:
    text = json.dumps(said).encode()
    if data is None:
        return b"id: %d\nevent: %b\ndata: %b\n\n" % (offset, kind.encode(), text)
    # JSON needs no escapes in base64, and searching for them would take longer than everything
    # else. The data is copied only once, because each copy takes new memory.
    encoded = pybase64.b64encode(data)
    return b'id: %d\nevent: %b\ndata: %b, "data": "%b"}\n\n' % (offset, kind.encode(), text[:-1], encoded)
