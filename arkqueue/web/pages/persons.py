"""Persons sign in with their provider, and sign out there (OpenID Connect, authorization code flow
with PKCE).

A browser that begins gets a secret in a cookie. State, nonce and the verifier of PKCE are digests
of this secret. So nothing is stored until the provider has named the person, and an answer works
only once, for ten minutes, and only in the browser that asked. The cookie is SameSite=Lax, so the
browser sends it when the provider sends the browser back.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from arkqueue.config import Configuration
from arkqueue.errors import ArkqueueError, NotFound
from arkqueue.queue import sign_ins
from arkqueue.text import one_line
from arkqueue.web import problems
from arkqueue.web.hosts import check_host
from arkqueue.web.openid import RETURN, NobodyHere, NoLogout, NoRights, NotSignedIn, Provider
from arkqueue.web.pages.answer import HEADERS, SIGN_IN, Shown, answer, local, refused_page, to_sign_in
from arkqueue.web.pages.forms import Form
from arkqueue.web.pages.visitor import browser_of, is_of_another_site, keep, rights

log = logging.getLogger("arkqueue")

BEGIN: Final = "/-/openid"
LEAVE: Final = "/-/openid/leave"
LOGOUT: Final = "/-/openid/logout"
"""The address at which the provider reports that a person has signed out there."""
LONGEST_TOKEN: Final = 16 << 10
ASKED: Final = "arkqueue_openid"
"""The cookie of a browser that has gone to the provider."""
PATIENCE: Final = 600
"""The seconds within which the provider has to send a browser back."""
LONGEST_ADDRESS: Final = 1000


def provider_of(configuration: Configuration) -> Provider:
    """The provider of the configuration. Raises `NotFound` if there is none."""
    if configuration.openid is None:
        raise NotFound(BEGIN, "no provider is configured", "Sign in with a token or a link.")
    return Provider(configuration.openid, configuration.pages_url + RETURN)


def told(build: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint whose refusals are pages, and lines of the server's log."""

    async def endpoint(request: Request) -> Response:
        try:
            check_host(request)
            return await build(request)
        except ArkqueueError as error:
            if problems.of_error(error).status_code < 500:  # else the page logs it
                log.warning("a sign-in was refused: %s", one_line(str(error), 1000))
            other = LEAVE if isinstance(error, NobodyHere) else ""
            return await run_in_threadpool(refused_page, request, None, error, to_sign_in(_wanted(request)), other)

    return endpoint


async def begin(request: Request) -> Response:
    """Send a browser to the provider. ``?next=``: the page that it wants to see. A browser that another
    site leads here sees the sign-in page first: the provider may sign it in without a question, and so
    end the session that it has.
    """
    configuration: Configuration = request.app.state.configuration
    provider = _provider(request)
    target = local(request.query_params.get("next", "/"))
    target = target if len(target) <= LONGEST_ADDRESS else "/"
    if is_of_another_site(request):
        return RedirectResponse(to_sign_in(target), 303, HEADERS)
    own = urlsplit(configuration.pages_url)
    if request.url.netloc.lower() != own.netloc.lower() and not request.query_params.get("here"):
        # The provider sends browsers back to this name, and the cookie has to belong to this name.
        return RedirectResponse(
            f"{configuration.pages_url}{BEGIN}?{urlencode({'next': target, 'here': '1'})}", 303, HEADERS
        )
    secret = _secret(request) or secrets.token_urlsafe(32)
    said = base64.urlsafe_b64encode(json.dumps([int(time.time()), secrets.token_urlsafe(8), target]).encode()).decode()
    state = f"{said}.{_digest(secret, 'state', said)}"
    address = await provider.address(state, _digest(secret, "nonce", said), _digest(secret, "verifier", said))
    response = RedirectResponse(address, 303, HEADERS)
    response.set_cookie(
        ASKED, secret, max_age=PATIENCE, path=BEGIN, httponly=True, samesite="lax", secure=own.scheme == "https"
    )
    return response


async def come_back(request: Request) -> Response:
    """Sign in a browser that the provider has sent back."""
    asked, session = request.query_params, request.app.state.session
    configuration: Configuration = request.app.state.configuration
    provider = _provider(request)
    secret, said, target = _begun(request)
    used = hashlib.sha256(asked["state"].encode()).digest()
    if await run_in_threadpool(sign_ins.was_used, session, used):
        raise NotSignedIn("has been used already: it signs in once")
    if error := asked.get("error"):
        told = one_line(f"{error} {asked.get('error_description', '')}", 300).strip()
        raise NotSignedIn(f"was refused by the provider: {told}")
    if not (code := asked.get("code", "")) or len(code) > 4096:
        raise NotSignedIn("came back without a code")
    nonce, verifier = _digest(secret, "nonce", said), _digest(secret, "verifier", said)
    person = await provider.person(code, asked.get("iss"), nonce, verifier)

    def signed_in() -> Response:
        assert configuration.openid is not None
        seconds = configuration.openid.session
        if rights(session, configuration, person) is None:
            raise NoRights("gives no rights here")
        made = sign_ins.sign_person_in(
            session, person, answer=used, answer_seconds=PATIENCE, seconds=seconds, browser=browser_of(request)
        )
        if made is None:
            raise NotSignedIn("has been used already: it signs in once")
        response = RedirectResponse(target, 303, HEADERS)
        keep(request, response, made, seconds)
        response.delete_cookie(ASKED, path=BEGIN)
        return response

    return await run_in_threadpool(signed_in)


async def leave(request: Request) -> Response:
    """Send a browser that has signed out here to the provider, to sign out there. Another site cannot
    lead a browser there.
    """
    if is_of_another_site(request):
        return RedirectResponse(SIGN_IN, 303, HEADERS)
    configuration: Configuration = request.app.state.configuration
    address = await _provider(request).leave(configuration.pages_url + SIGN_IN)
    return RedirectResponse(address or SIGN_IN, 303, HEADERS)


async def logout(request: Request) -> Response:
    """Sign out the browsers of a person who has signed out at the provider, which reports this by a
    token in a form (back-channel logout). The answers are those that providers expect.
    """
    try:
        check_host(request)
        provider = _provider(request)
        token = Form(await request.body())["logout_token"]
        if not token or len(token) > LONGEST_TOKEN:
            raise NoLogout("is missing" if not token else "is too long")
        said = await provider.logout(token)
        if said is None:
            raise NotFound(LOGOUT, "the provider does not say that it sends logout tokens")
        session, openid = request.app.state.session, request.app.state.configuration.openid
        digest = hashlib.sha256(f"logout {openid.issuer} {said.token}".encode()).digest()
        is_new = await run_in_threadpool(
            sign_ins.end_at_provider, session, openid.issuer, said.subject, said.sid, token=digest, expires=said.expires
        )
        if not is_new:
            raise NoLogout("has been used already")
    except ArkqueueError as error:
        log.warning("a logout of the provider was refused: %s", one_line(str(error), 1000))
        status = problems.of_error(error).status_code
        told = {
            "error": "invalid_request" if status < 500 else "temporarily_unavailable",
            "error_description": one_line(str(error), 500),
        }
        return JSONResponse(told, status, HEADERS)
    return Response(status_code=200, headers=HEADERS)


def sign_in_names(request: Request, target: str, fault: str = "") -> dict[str, Any]:
    """The contents of the sign-in page."""
    openid = request.app.state.configuration.openid
    label = None if openid is None else openid.label
    return {"next": local(target), "fault": fault, "label": label, "is_out": request.query_params.get("out") == "1"}


def sign_in_page(request: Request, target: str, fault: str = "", status: int = 200) -> Response:
    """The page with the ways to sign in."""
    return answer(request, None, Shown("sign-in.html", sign_in_names(request, target, fault)), status)


def _provider(request: Request) -> Provider:
    """The provider; one for each server, because it caches the keys. Called only in the server's
    event loop.
    """
    state = request.app.state
    if not hasattr(state, "provider"):
        state.provider = provider_of(state.configuration)
    provider: Provider = state.provider
    return provider


def _begun(request: Request) -> tuple[str, str, str]:
    """For a sign-in that was begun in this browser: the browser's secret, the text in the state,
    and the page to show. Raises `NotSignedIn`.
    """
    state = request.query_params.get("state", "")
    said, _, proof = state.partition(".")
    secret = _secret(request)
    if secret is None:
        fault = f"was not begun in this browser within {PATIENCE // 60} minutes, or the browser keeps no cookies"
        raise NotSignedIn(fault)
    if len(state) > 4096 or not hmac.compare_digest(_digest(secret, "state", said).encode(), proof.encode()):
        raise NotSignedIn("came back with the state of another one, or of another browser")
    # The proof shows only that the browser's secret was known, and a program can choose its own.
    if (written := _written(said)) is None:
        raise NotSignedIn("came back with a state that this server did not write")
    began, target = written
    if int(time.time()) - began > PATIENCE:
        raise NotSignedIn(f"was begun more than {PATIENCE // 60} minutes ago")
    return secret, said, local(target)


def _written(said: str) -> tuple[int, str] | None:
    """The time and the page in the text of a state; None: this server did not write it."""
    try:
        began, _, target = json.loads(base64.urlsafe_b64decode(said))
    except (ValueError, TypeError, RecursionError):
        return None
    return (began, target) if type(began) is int and isinstance(target, str) else None


def _secret(request: Request) -> str | None:
    secret = request.cookies.get(ASKED, "")
    return secret if re.fullmatch(r"[A-Za-z0-9_-]{43}", secret) else None


def _wanted(request: Request) -> str:
    """The page that a browser wanted to see before a sign-in that was refused. It comes from the
    address, which proves nothing.
    """
    said, _, _ = request.query_params.get("state", "")[:4096].partition(".")
    written = _written(said)
    target = request.query_params.get("next", "/") if written is None else written[1]
    return target if len(target) <= LONGEST_ADDRESS else "/"


def _digest(secret: str, what: str, said: str) -> str:
    """43 characters that nobody can know without the browser's secret."""
    digest = hmac.digest(secret.encode(), f"{what} {said}".encode("utf-8", "surrogatepass"), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
