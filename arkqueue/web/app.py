"""The API and the pages as one application: its parts, its errors and its limits (design 7)."""

from __future__ import annotations

import html
import re
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arkqueue import __version__
from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.logs.hits import Searches
from arkqueue.names import RESERVED
from arkqueue.runtime.admission import Admission
from arkqueue.web import problems
from arkqueue.web.access import Callers, authenticated
from arkqueue.web.api import (
    administration,
    archives,
    attempts,
    backfills,
    by_name,
    deliveries,
    holds,
    locks,
    notices,
    purge,
    reports,
    runs,
    submissions,
    tasks,
    triggering,
    uploads,
)
from arkqueue.web.api.calls import PREFIX
from arkqueue.web.api.responses import Call
from arkqueue.web.hosts import check_host
from arkqueue.web.live import Live

LONGEST_BODY = 1 << 20
CONNECTIONS = 8
"""The database connections for all requests."""
ACTING, WAITING, MOST_WAITING = 6, 15, 20
"""The most requests that change archives at once, one for each archive; the most that wait for one
archive; and the most that wait for all archives. The framework has 40 threads: the rest are for
requests that only read.
"""


class Application(FastAPI):
    """The framework's application. Its OpenAPI document is made when somebody first asks for it."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            routes = [route.described if isinstance(route, Call) else route for route in self.routes]
            self.openapi_schema = get_openapi(
                title=self.title, version=self.version, summary=self.summary, routes=routes
            )
        return self.openapi_schema


def create_app(session: Session, configuration: Configuration) -> FastAPI:
    """The application. It reads and writes only through ``queue``, and stores nothing that must not
    be lost.
    """
    app = Application(
        title="arkqueue",
        version=__version__,
        summary="The queue that runs automations on versioned archives, in strict revision order.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,  # FastAPI would make the document in the event loop
        redirect_slashes=False,  # a redirect would lead to the caller's Host, without a token
    )
    session = session.share(CONNECTIONS, Admission(ACTING, WAITING, MOST_WAITING))
    app.state.session, app.state.configuration = session, configuration
    app.state.callers = Callers(session, configuration)
    app.state.followers = attempts.Followers(session)
    app.state.live = Live(session)
    app.state.searches = Searches()
    app.state.uploads = uploads.Uploads(session, configuration)
    app.state.watched, app.state.intake = notices.Watched(session), notices.Intake(session)
    # Before FastAPI's own routes, because every commit takes this way.
    app.router.routes.insert(0, Route(f"{PREFIX}/notices", notices.notice_directly, methods=["POST"]))
    for part in (
        holds,
        purge,
        reports,
        backfills,
        submissions,
        uploads,
        notices,
        archives,
        locks,
        triggering,
        runs,
        tasks,
        by_name,
        attempts,
        deliveries,
        administration,
    ):
        app.router.routes.extend(part.router.routes)
    app.router.routes.extend(submissions.payloads.routes)
    app.router.routes.extend(uploads.begin_router.routes)
    app.include_router(administration.open_router, prefix=PREFIX)
    app.include_router(administration.open_router, include_in_schema=False)
    named: dict[str, Any] = {"include_in_schema": False, "dependencies": [Depends(check_host)]}
    app.add_api_route("/openapi.json", lambda: JSONResponse(app.openapi()), **named)
    app.add_api_route("/docs", lambda: _docs(app), **named)
    # Browsers ask for this path when they show a badge, a feed or JSON alone.
    app.add_api_route("/favicon.ico", lambda: RedirectResponse("/-/static/icon.svg"), **named)
    app.router.routes.append(Pages())
    problems.install(app)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_middleware(LimitedBody)
    app.add_middleware(PlainCookies)
    return app


async def _malformed(request: Request, error: Exception) -> Response:
    """The answer to a malformed request. A caller without a token first learns that; FastAPI reads
    a body before it checks the caller.
    """
    if not hasattr(request.state, "token"):
        try:
            await authenticated(request)
        except problems.Refused as refused:
            return problems.of_error(refused)
    return await problems.malformed(request, error)


class Pages(BaseRoute):
    """The pages, for all addresses that nothing else answers. They are loaded when somebody first
    requests one: the API alone is smaller and starts faster.
    """

    def __init__(self) -> None:
        self._pages: ASGIApp | None = None

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path = scope.get("path", "")
        is_page = scope["type"] == "http" and (scope["method"] in ("GET", "HEAD") or path.startswith("/-/"))
        is_page = is_page and path.startswith("/") and path.split("/", 2)[1] not in RESERVED
        return (Match.FULL if is_page else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._pages is None:
            self._pages = await run_in_threadpool(_load_pages)
        await self._pages(scope, receive, send)


def _load_pages() -> ASGIApp:
    from arkqueue.web.pages.routes import pages

    return pages()


_STREAMED = re.compile(rf"POST {PREFIX}/archives/[^/]+/submissions|POST /-/submit/[^/]+|PATCH {PREFIX}/uploads/\d+/\d+")
"""The calls that read their bodies in pieces, after they have checked the caller, and limit them.
"""
_LISTS = re.compile(rf"POST {PREFIX}/archives/[^/]+/uploads")


class LimitedBody:
    """Refuses bodies that are longer than any call of the API accepts, before they are read, and
    bodies with two lengths (RFC 9112, 6.1).
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if b"content-length" in headers and b"transfer-encoding" in headers:
            await _two_lengths()(scope, receive, send)
            return
        called = f"{scope['method']} {scope['path']}"
        if _STREAMED.fullmatch(called):
            await self._app(scope, receive, send)
            return
        most = uploads.LONGEST_LIST if _LISTS.fullmatch(called) else LONGEST_BODY
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > most:
            await _too_long(scope, most)(scope, receive, send)
            return
        seen = 0
        is_answered = False

        async def limited() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            # The application gets no more of the body, and its answer is not sent.
            return message if seen <= most else {"type": "http.disconnect"}

        async def answer(message: Message) -> None:
            nonlocal is_answered
            if is_answered or seen <= most:
                is_answered = True
                await send(message)

        await self._app(scope, limited, answer)
        if not is_answered:
            await _too_long(scope, most)(scope, receive, send)


class PlainCookies:
    """Removes cookies with backslashes from requests. No cookie of this server has one. Python's
    library reads backslashes in a time that grows with the square of their number, before anything
    is known of the caller.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if any(name == b"cookie" and b"\\" in value for name, value in scope.get("headers", ())):
            scope["headers"] = [
                (name, _without_backslashes(value) if name == b"cookie" else value) for name, value in scope["headers"]
            ]
        await self._app(scope, receive, send)


def _without_backslashes(cookies: bytes) -> bytes:
    return b";".join(cookie for cookie in cookies.split(b";") if b"\\" not in cookie)


def _two_lengths() -> Response:
    """The answer to a body with two lengths. It ends the connection: a proxy that believes the other
    length takes the end of this body for the beginning of somebody else's request.
    """
    fault = "has both a Content-Length and a Transfer-Encoding"
    return problems.of_error(problems.Refused(400, "the request", fault, "Send one of them.", Connection="close"))


def _too_long(scope: Scope, most: int) -> Response:
    """The answer to a body that is too long: of a form, a page."""
    refused = problems.Refused(413, "the request", f"is longer than {most} bytes", "Send less at once.")
    if not scope["path"].startswith("/-/"):
        return problems.of_error(refused)
    from arkqueue.web.pages.answer import refused_page

    return refused_page(Request(scope), None, refused)


def _docs(app: FastAPI) -> Response:
    """All calls on one page, made from the OpenAPI document. The page loads nothing from elsewhere."""
    from arkqueue.web.pages.answer import HEADERS
    from arkqueue.web.pages.static_files import version

    rows = []
    for path, calls in app.openapi()["paths"].items():
        for method, call in calls.items():
            what = html.escape(call.get("description", ""))
            rows.append(f'<tr><td>{method.upper()}<td><code>{html.escape(path)}</code><p class="soft">{what}</p></tr>')
    kinds = [
        f'<dt id="problem-{kind}">{503 if kind == problems.BUSY else kind}<dd>{title}'
        for kind, title in problems.TITLES.items()
    ]
    return HTMLResponse(
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>arkqueue API</title><link rel="stylesheet" href="/-/static/look.css?{version()}">'
        f'<main class="docs"><h1>arkqueue {html.escape(__version__)}</h1>'
        "<p>Every call but <code>healthz</code> needs a token: <code>Authorization: Bearer TOKEN</code>. "
        'The whole description: <a href="/openapi.json">openapi.json</a>.'
        f"<h2>Calls</h2><table><thead><tr><th scope='col'>Method<th scope='col'>Call</thead>{''.join(rows)}</table>"
        "<h2>Problems</h2><p>Errors are problem documents (RFC 9457) with thing, fault and remedy."
        f"<dl>{''.join(kinds)}</dl></main></html>",
        headers=HEADERS,
    )
