"""Attempts and their logs over HTTP: bytes as they are, or followed as events while the attempt runs.

A follower holds no thread while nothing comes: the log is read by short calls, and waited for in the event loop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pybase64
from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from arkqueue import logs
from arkqueue.db.session import Session
from arkqueue.errors import DatabaseUnavailable
from arkqueue.model import AttemptId
from arkqueue.queue.tokens import Scope
from arkqueue.views import tasks
from arkqueue.views.tasks import AttemptView
from arkqueue.web.access import admit, authenticated
from arkqueue.web.problems import Refused

router = APIRouter(tags=["attempts"], prefix="/attempts")

POLL = 0.04
"""Seconds between two looks for a follower: with the writer's ``logs.INTERVAL`` and both ways to the database it sees a line within 0.1 s."""
HEARTBEAT = 15.0
"""Seconds of silence after which a follower is told that the connection lives."""
AWAY = 2.0
"""Seconds until a follower's next look when the database is away."""
PAGE = 1 << 20


@router.get("/{id}")
def show_attempt(request: Request, id: int) -> AttemptView:
    """One execution of a task."""
    caller = admit(request, Scope.READ)
    return tasks.attempt(caller.session, caller.attempt(id))


@router.get("/{id}/log", response_class=Response)
def log_of_attempt(
    request: Request,
    id: int,
    offset: Annotated[int, Query(ge=0, lt=2**63)] = 0,
    limit: Annotated[int, Query(ge=1, le=8 << 20)] = PAGE,
) -> Any:
    """A part of a log from a byte on, as it was written; `Accept: text/event-stream` follows it.

    `Log-Next-Offset` says where to go on, `Log-Complete` whether no more will come, `Log-Size` how long the log is. A long log is kept without its
    middle: the answer ends where bytes are missing, and `Log-Cut` of the next one says how many they are.
    """
    caller = admit(request, Scope.READ)
    attempt = caller.attempt(id)
    if "text/event-stream" in request.headers.get("accept", ""):
        last = request.headers.get("last-event-id", "")
        start = int(last) if last.isdecimal() and len(last) < 19 else offset
        events = _events(request, caller.session, attempt, start)
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


async def _events(request: Request, session: Session, attempt: AttemptId, offset: int) -> AsyncIterator[bytes]:
    """Server-sent events: `log` with a chunk (its data in base64), `end` when the attempt has ended and all was sent."""
    leaving: asyncio.Event | None = getattr(request.app.state, "leaving", None)
    silence = 0.0
    while leaving is None or not leaving.is_set():
        try:
            await authenticated(request)
            page = await run_in_threadpool(logs.read, session, attempt, offset)
        except Refused:  # its token was revoked meanwhile
            return
        except DatabaseUnavailable:
            yield b": the database does not answer\n\n"
            await asyncio.sleep(AWAY)
            continue
        for chunk in page.chunks:
            offset = chunk.end
            said = {"offset": chunk.position, "stream": chunk.stream, "at": chunk.at.isoformat(), "cut": chunk.cut}
            yield _event("log", offset, said, chunk.data)
        if page.chunks:
            silence = 0.0
        elif page.ended:
            yield _event("end", offset, {"offset": offset, "size": page.size})
            return
        else:
            await asyncio.sleep(POLL)
            silence += POLL
            if silence >= HEARTBEAT:
                silence = 0.0
                yield b": still here\n\n"


def _event(kind: str, offset: int, said: dict[str, Any], data: bytes | None = None) -> bytes:
    text = json.dumps(said).encode()
    if data is None:
        return b"id: %d\nevent: %b\ndata: %b\n\n" % (offset, kind.encode(), text)
    # Base64 has nothing that JSON would have to escape, and to look for it takes longer than all the rest. It is copied once: each copy is new memory.
    encoded = pybase64.b64encode(data)
    return b'id: %d\nevent: %b\ndata: %b, "data": "%b"}\n\n' % (offset, kind.encode(), text[:-1], encoded)
