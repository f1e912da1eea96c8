"""The addresses of the pages: the names of the command line, and the addresses under ``/-/``
(design 8).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final
from urllib.parse import quote, unquote

from fastapi.concurrency import run_in_threadpool
from starlette import types
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route, Router

from arkqueue.errors import ArkqueueError, Forbidden, Invalid, NotFound
from arkqueue.model import RunId, TaskId
from arkqueue.names import EVERY_TASK, Name, as_backfill, page_path, parse_branch, parse_name
from arkqueue.queue import sign_ins, tokens
from arkqueue.queue.tokens import Scope, Token
from arkqueue.views.find import find_item, find_run, find_task
from arkqueue.views.lists import has_list
from arkqueue.web.access import Caller
from arkqueue.web.hosts import check_host
from arkqueue.web.live import Subscription
from arkqueue.web.openid import RETURN
from arkqueue.web.pages import (
    administration,
    archive,
    backfill,
    filling,
    log,
    overview,
    persons,
    proposing,
    reporting,
    run,
    search,
    sessions,
    submitting,
    task,
)
from arkqueue.web.pages.acting import act
from arkqueue.web.pages.administering import administer
from arkqueue.web.pages.answer import (
    HEADERS,
    SIGN_IN,
    Shown,
    asked,
    local,
    mistake_page,
    page,
    refused_page,
    sent_path,
    to_sign_in,
)
from arkqueue.web.pages.forms import MOST_FIELDS, Form
from arkqueue.web.pages.static_files import static_files
from arkqueue.web.pages.visitor import (
    SignInNeeded,
    Visitor,
    anybody_of,
    browser_of,
    check_form,
    cookie_of,
    is_of_another_site,
    keep,
    visitor_of,
)
from arkqueue.web.problems import Refused

_ENCODED: Final = re.compile("^([A-Za-z0-9][A-Za-z0-9._-]*)(?:%3A([^@/]+?))?%40", re.IGNORECASE)
"""The beginning of the name of a run whose ``@`` is encoded: the archive, and the branch."""
NAMES: Final = "Pages are named as on the command line: /papers, /papers@12, /papers@12/pdf."


def pages() -> types.ASGIApp:
    """All pages. An internal error is shown to a browser as a page, and to a program as JSON."""
    router = Router(routes())

    async def app(scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
        has_begun = False

        async def sent(message: types.Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await router(scope, receive, sent)
        except ClientDisconnect:
            raise  # no mistake: `problems` and `LimitedBody` answer it
        except Exception as error:
            response = None if has_begun else mistake_page(Request(scope), error)
            if response is None:
                raise
            await response(scope, receive, send)

    return app


def routes() -> list[BaseRoute]:
    """The pages in the order in which addresses are matched."""
    return [
        Route("/", page(overview.overview)),
        Route(SIGN_IN, _sign_in_page),
        Route(SIGN_IN, _sign_in, methods=["POST"]),
        Route(persons.BEGIN, persons.told(persons.begin)),
        Route(RETURN, persons.told(persons.come_back)),
        Route(persons.LEAVE, persons.told(persons.leave)),
        Route(persons.LOGOUT, persons.logout, methods=["POST"]),
        Route("/-/sign-out", _sign_out, methods=["POST"]),
        Route("/-/live", _live),
        Route("/-/search", page(search.look_for)),
        Route("/-/log/{attempt}", page(log.download)),
        Route("/-/log/{attempt}/lines", page(log.some_lines)),
        Route("/-/report", page(_signed_in_only(reporting.report_page))),
        Route("/-/payload", page(_signed_in_only(log.payload))),
        Route("/-/export", page(_signed_in_only(log.export))),
        Route("/-/locks", page(administration.locks_page)),
        Route("/-/schedules", page(administration.schedules_page)),
        Route("/-/task-managers", page(_signed_in_only(administration.task_managers_page))),
        Route("/-/tokens", page(_signed_in_only(administration.tokens_page))),
        Route("/-/mine", page(_signed_in_only(search.mine))),
        Route("/-/sessions", page(_signed_in_only(sessions.sessions_page))),
        Route("/-/notifications", page(_signed_in_only(administration.notifications_page))),
        Route("/-/audit-log", page(_signed_in_only(administration.audit_page))),
        Route("/-/trigger", page(_signed_in_only(_trigger_form))),
        Route("/-/archives/{name}", page(_archive)),
        Route("/-/settings/{name}", page(_signed_in_only(administration.settings_page))),
        Route("/-/add-archive", page(_signed_in_only(administration.adding_page))),
        Route("/-/submit/{name}", page(_signed_in_only(submitting.submit_page))),
        Route("/-/submit/{name}", submitting.submit_form, methods=["POST"]),
        Route("/-/act/{act}", _administer, methods=["POST"]),
        Route("/-/act", _act, methods=["POST"]),
        Mount("/-/static", static_files()),
        Route("/{address:path}", page(_thing)),
    ]


def _signed_in_only(
    build: Callable[[Visitor, Request], Shown | Response],
) -> Callable[[Visitor, Request], Shown | Response]:
    """A page that is not public, whatever archives are: it shows people, hosts or repositories."""

    def built(visitor: Visitor, request: Request) -> Shown | Response:
        if visitor.is_anybody:
            raise Forbidden(request.url.path, "is for those who have signed in")
        return build(visitor, request)

    return built


def _trigger_form(visitor: Visitor, request: Request) -> Shown:
    name = asked(request, "of")
    chosen, without = (request.query_params.getlist(one)[:MOST_FIELDS] for one in ("task", "without"))
    between = asked(request, "first"), asked(request, "last")
    return proposing.choices(visitor.at(name).caller, name, chosen, without, between)


def _archive(visitor: Visitor, request: Request) -> Shown | Response:
    """The page of an archive whose name is an address of the server."""
    return archive.archive(visitor, request, request.path_params["name"], None)


def _thing(visitor: Visitor, request: Request) -> Shown | Response:
    """The page of an archive, a run or a task, by its name."""
    address = sent_path(request).lstrip("/")
    first = address.partition("/")[0]
    if first in ("", "-"):
        raise NotFound(unquote(address), "there is no such page", NAMES)
    if (written := _as_written(address)) != address:
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"{local(f'/{written}')}{query}", 303, HEADERS)
    if "@" not in address:
        try:
            return archive.archive(visitor, request, *parse_branch(address))
        except Invalid as error:
            raise NotFound(unquote(address), "there is no such page", NAMES) from error
    if found := as_backfill(unquote(address)):
        return backfill.backfill(visitor, request, *found)
    name = parse_name(address)
    visitor.caller.archive(name.archive)
    try:
        return _of_run(visitor, request, name)
    except Forbidden:
        if not visitor.form or (id := _deleted_run(visitor, name)) is None:
            raise
        return run.deleted(visitor, id, replace(name, task=None, item=""))


def _as_written(address: str) -> str:
    """An address as the pages write it. Some programs encode the ``@`` of a link, or add a slash.
    No name of an archive has an ``@`` or a colon, and no name ends with a slash.
    """
    return _ENCODED.sub(lambda found: found[1] + ":" * bool(found[2]) + (found[2] or "") + "@", address.rstrip("/"))


def _of_run(visitor: Visitor, request: Request, name: Name) -> Shown | Response:
    """The page of a run, an item, a list or a task."""
    if name.task is None:
        return run.run(visitor, request, find_run(visitor.caller.session, name))
    if name.task == EVERY_TASK and name.item:
        return run.item(visitor, request, RunId(find_item(visitor.caller.session, name)), name.item)
    return _task_or_list(visitor, request, name)


def _deleted_run(visitor: Visitor, name: Name) -> RunId | None:
    """The run of a name, if it was deleted."""
    try:
        id = find_run(visitor.caller.session, replace(name, task=None, item=""))
    except NotFound:
        return None
    (row,) = visitor.caller.session.rows("place_of_run", run=id)
    return None if row.deleted_at is None else RunId(id)


def _task_or_list(visitor: Visitor, request: Request, name: Name) -> Shown | Response:
    """The page of a task. The name of a list (``RUN/TASK``, ``RUN/TASK/*``) leads to the items of
    that list on the page of its run.
    """
    session = visitor.caller.session
    try:
        return task.task(visitor, request, TaskId(find_task(session, name)))
    except NotFound:
        if not name.task or name.item not in ("", EVERY_TASK):
            raise
        of_run = replace(name, task=None, item="")
        id = visitor.caller.run(RunId(find_run(session, of_run)))
        if not has_list(session, id, name.task):
            raise
        address = f"/{page_path(str(of_run))}?list={quote(name.task, safe='')}"
        return RedirectResponse(local(address), 303, HEADERS)


def _sign_in_page(request: Request) -> Response:
    """The form for a token. With the code of a link, the browser is signed in at once."""
    try:
        check_host(request)
        # A program that only checks the link, as some do with each link of a mail, does not use it up.
        if (code := request.query_params.get("code")) and request.method != "HEAD":
            token = sign_ins.use(request.app.state.session, code)
            if token is None:
                fault = "has been used already, or is older than ten minutes"
                raise Refused(403, "the link", fault, "Ask for another one: arkqueue sign-in")
            return _signed_in(request, token, request.query_params.get("next", "/"))
    except ArkqueueError as error:
        return refused_page(request, None, error, to_sign_in(request.query_params.get("next", "/")))
    return persons.sign_in_page(request, request.query_params.get("next", "/"))


async def _sign_in(request: Request) -> Response:
    body = await request.body()
    return await run_in_threadpool(_sign_in_with, request, body)


def _sign_in_with(request: Request, body: bytes) -> Response:
    target = "/"
    try:
        check_host(request)
        form = Form(body)
        target = form["next"]
        # Nobody is signed in yet, so another site gains nothing from sending this form, except its
        # own token's rights in this browser.
        if is_of_another_site(request):
            raise Refused(403, "the form", "was not sent from a page of this server", "Open the page again.")
        token = tokens.check(request.app.state.session, form["token"])
        if token is None or not token.scope.allows(Scope.READ):
            fault = (
                "That token is unknown or revoked."
                if token is None
                else f"A token of scope {token.scope} shows no pages."
            )
            return persons.sign_in_page(request, form["next"], fault, 403)
        return _signed_in(request, token, form["next"])
    except ArkqueueError as error:
        return refused_page(request, None, error, to_sign_in(target))


def _signed_in(request: Request, token: Token, target: str) -> Response:
    response = RedirectResponse(local(target), 303, HEADERS)
    keep(request, response, sign_ins.sign_in(request.app.state.session, token, browser_of(request)))
    return response


async def _sign_out(request: Request) -> Response:
    body = await request.body()
    return await run_in_threadpool(_sign_out_with, request, body)


def _sign_out_with(request: Request, body: bytes) -> Response:
    try:
        form = Form(body)
        check_form(request, visitor_of(request), form["form"])
    except SignInNeeded:
        pass
    except ArkqueueError as error:
        return refused_page(request, None, error)
    session, secret = request.app.state.session, request.cookies.get(cookie_of(request), "")
    is_person = bool(secret) and sign_ins.person_of(session, secret) is not None
    sign_ins.sign_out(session, secret)
    response = RedirectResponse(f"{SIGN_IN}?out=1" if is_person else SIGN_IN, 303, HEADERS)
    if secret:  # a browser sends no cookie with a form of another site, which must not sign it out
        response.delete_cookie(cookie_of(request))
    return response


async def _live(request: Request) -> Response:
    """Events that tell a page when its contents have changed: ``?of=`` an archive (without it, any
    archive), ``?attempt=`` also the log of an attempt, after its first ``?log-size=`` bytes;
    ``?as-of=`` the moment as of which the page is current.
    """

    of = asked(request, "of")

    def reader() -> Caller:
        visitor = visitor_of(request)
        if not visitor.caller.token.covers(of) and of in request.app.state.configuration.public:
            visitor = anybody_of(request) or visitor
        return visitor.caller

    def admitted() -> tuple[Token, Subscription]:
        attempt, size = asked(request, "attempt"), asked(request, "log-size")
        caller = reader()
        archives = [caller.archive(of)] if of else caller.archives()
        return caller.token, Subscription(
            None if archives is None else frozenset(archives),
            caller.attempt(int(attempt)) if attempt.isdecimal() else None,
            int(size) if size.isdecimal() else -1,
            asked(request, "as-of"),
        )

    def is_signed_in() -> bool:
        # Where archives are public, a browser whose sign-in has ended is still a visitor, but one who
        # may see less.
        try:
            now = reader().token
        except (SignInNeeded, ArkqueueError):
            return False
        return (now.id, now.archives) == (token.id, token.archives)

    try:
        token, subscription = await run_in_threadpool(admitted)
    except SignInNeeded:
        # After this status, a browser does not connect again.
        return Response(status_code=204, headers=HEADERS)
    except ArkqueueError as error:
        return refused_page(request, None, error)
    events = request.app.state.live.events(request, subscription, is_signed_in)
    headers = {**HEADERS, "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


def _back(body: bytes) -> str:
    """The page of the form. If the user must sign in first, the sign-in leads there; the action is not
    carried out then. A refusal leads there, too.
    """
    try:
        return filling.page_of(Form(body))
    except ArkqueueError:
        return "/"


async def _act(request: Request) -> Response:
    body = await request.body()
    endpoint = page(lambda visitor, request: act(visitor, request, body), _back(body))
    return await run_in_threadpool(endpoint, request)


async def _administer(request: Request) -> Response:
    body = await request.body()
    endpoint = page(lambda visitor, request: administer(visitor, request, body), _back(body))
    return await run_in_threadpool(endpoint, request)
