"""The visitor of a page: a browser that is signed in, with a token or as a person, or a program
with a token.

The cookie holds a secret that is valid only for the pages of this server; it reveals nothing about
the token. A form carries a digest of this secret and of its page's address, which no other site can
know. A browser that was led here under a foreign name (DNS rebinding) is refused.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.names import archive_in
from arkqueue.queue import sign_ins, tokens
from arkqueue.queue.sign_ins import BROWSER, Person
from arkqueue.queue.tokens import Scope, Token
from arkqueue.views.public import in_public
from arkqueue.web.access import Caller, admit
from arkqueue.web.hosts import check_host, scheme_of
from arkqueue.web.problems import Refused
from arkqueue.web.rights import at, rights_of, widest

COOKIE: Final = "arkqueue"
"""The name of the cookie of a sign-in; a port follows (`cookie_of`)."""
NONCE: Final = 16
"""The number of characters at the beginning of a form's secret that identify the form."""
ANYBODY: Final = 0
"""The id that no token has, for a visitor who has not signed in and looks at public archives."""
_EVER: Final = datetime.fromtimestamp(0, UTC)


class SignInNeeded(Exception):
    """Nobody has signed in in this browser."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """A caller who looks at pages. ``form``: the secret of the forms on this page; empty for a
    program, which needs none and must not send any. ``key``: the key from which the secret is made.
    """

    caller: Caller
    form: str
    key: str

    @property
    def is_anybody(self) -> bool:
        """Whether nobody has signed in; public contents are shown."""
        return self.caller.token.id == ANYBODY

    @property
    def may_act(self) -> bool:
        return bool(self.form) and self.caller.token.scope.allows(Scope.OPERATE)

    @property
    def may_administer(self) -> bool:
        return bool(self.form) and self.caller.token.scope.allows(Scope.ADMIN)

    @property
    def sees_all(self) -> bool:
        """Whether the token is for all archives, and so for the installation."""
        return self.caller.token.archives is None

    @property
    def looking(self) -> Visitor:
        """The visitor without buttons, for things on which nobody can act any more."""
        return replace(self, form="")

    @property
    def somewhere(self) -> Visitor:
        """The visitor with the widest scope that they have for an archive: for a form that names any."""
        return replace(self, caller=replace(self.caller, token=widest(self.caller.token)))

    def at(self, address: str) -> Visitor:
        """The visitor with the scope that they have for the archive of an address, like ``papers``
        or ``papers@12/pdf``.
        """
        token = at(self.caller.token, archive_of(address))
        return self if token is self.caller.token else replace(self, caller=replace(self.caller, token=token))


def cookie_of(request: Request) -> str:
    """The name of the cookie of a sign-in at this server. Browsers send a cookie to all ports of a host.
    The port in the name lets a browser be signed in at several servers of one host.
    """
    _, colon, port = request.headers.get("host", "").rpartition(":")
    return f"{COOKIE}-{port}" if colon and port.isdecimal() else COOKIE


def visitor_of(request: Request) -> Visitor:
    """The visitor of a request. Raises `SignInNeeded`, or an error that becomes an error page."""
    check_host(request)
    session = request.app.state.session
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        if (token := tokens.check(session, secret.strip())) is None:
            raise Refused(401, "the request", "carries a token that is unknown or revoked", "Ask for another one.")
        return _visitor(request, token, "")
    secret = request.cookies.get(cookie_of(request), "")
    signed_in = sign_ins.check(session, secret) if secret else None
    if signed_in is not None:
        return _visitor(request, signed_in, _key_of(secret))
    if secret and (person := sign_ins.person_of(session, secret)) is not None:
        token = rights(session, request.app.state.configuration, person)
        if token is not None:
            return _visitor(request, token, _key_of(secret))
    if (anybody := anybody_of(request)) is not None:
        return anybody
    raise SignInNeeded


def anybody_of(request: Request) -> Visitor | None:
    """The visitor who has not signed in; None: no archive is public."""
    if not (public := request.app.state.configuration.public):
        return None
    visitor = _visitor(request, Token(ANYBODY, "anybody", Scope.READ, list(public), _EVER, None, []), "")
    return replace(visitor, caller=replace(visitor.caller, session=in_public(visitor.caller.session)))


def _visitor(request: Request, token: Token, key: str) -> Visitor:
    request.state.token = token
    return Visitor(admit(request, Scope.READ), _form(key, _digest(key, str(request.url))) if key else "", key)


def rights(session: Session, configuration: Configuration, person: Person) -> Token | None:
    """The rights that the present configuration gives to a person; None: no rights (any more)."""
    if configuration.openid is None:
        return None
    return rights_of(configuration.openid, person, lambda: [row.name for row in session.rows("archive_names")])


def archive_of(address: str) -> str:
    """The archive of an address."""
    return unquote(archive_in(address))


def _key_of(secret: str) -> str:
    """The key for the forms of the browser with this secret."""
    return hashlib.sha256(b"form " + secret.encode()).hexdigest()


def _digest(key: str, text: str) -> str:
    return hmac.new(key.encode(), text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def _form(key: str, nonce: str) -> str:
    """The secret of a form. It differs at each address: otherwise the sizes of compressed pages
    that repeat words of an attacker would reveal it (BREACH).
    """
    return nonce[:NONCE] + _digest(key, nonce[:NONCE])[NONCE:]


def is_of_another_site(request: Request) -> bool:
    """Whether a browser says that another site sends the request, or leads the browser here."""
    return request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")


def check_form(request: Request, visitor: Visitor, sent: str) -> None:
    """Raise `Refused` for a form that another site may have sent."""
    check_site(request, visitor)
    if not hmac.compare_digest(_form(visitor.key, sent).encode(), sent.encode()):
        raise _foreign()


def check_site(request: Request, visitor: Visitor) -> None:
    """The part of `check_form` that needs no form. Raises `Refused` if a browser says that another
    site sends the request, and for a program, which sends no forms. Raises `SignInNeeded` if nobody
    has signed in, or not any more, also where archives are public.
    """
    if is_of_another_site(request):
        raise _foreign()
    if visitor.is_anybody:
        raise SignInNeeded
    if not visitor.form:
        raise _foreign()


def _foreign() -> Refused:
    fault = "was not sent from a page of this server"
    return Refused(403, "the form", fault, "Open the page again, and send it there.")


def keep(request: Request, response: Response, secret: str, seconds: float = BROWSER) -> None:
    """Let the browser keep the secret of its new session: for this server only, out of reach of
    scripts, and sent with links from other sites but not with their forms. The session that the
    browser had before ends, because no browser has its secret any more.
    """
    if before := request.cookies.get(cookie_of(request)):
        sign_ins.sign_out(request.app.state.session, before)
    response.set_cookie(
        cookie_of(request),
        secret,
        max_age=int(seconds),
        path="/",
        httponly=True,
        samesite="lax",
        secure=scheme_of(request) == "https",
    )


def browser_of(request: Request) -> str:
    """The name that a browser gives itself."""
    return request.headers.get("user-agent", "").replace("\0", "")
