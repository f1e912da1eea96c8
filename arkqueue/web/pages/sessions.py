"""The page of a person's sessions: the signed-in browsers, and the buttons that sign one of them
out, or all others.

Everybody sees the sessions with their own token, or of their own person. An administrator of the
installation sees all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from arkqueue.errors import NotFound
from arkqueue.queue import sign_ins
from arkqueue.queue.sign_ins import SignIn
from arkqueue.web.pages.answer import Shown
from arkqueue.web.pages.forms import Form
from arkqueue.web.pages.visitor import Visitor, cookie_of

_BROWSERS: Final = (("Edg", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari"))  # fmt: skip
_SYSTEMS: Final = (("Android", "Android"), ("iPhone", "an iPhone"), ("iPad", "an iPad"), ("Windows", "Windows"), ("Mac OS X", "macOS"), ("CrOS", "ChromeOS"), ("Linux", "Linux"))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Group:
    """The browsers that are signed in with one token, or as one person. ``is_own``: the group of
    the visitor.
    """

    whose: str
    scope: str | None
    is_own: bool
    sessions: list[SignIn]


def sessions_page(visitor: Visitor, request: Request) -> Shown:
    """The signed-in browsers; the visitor's own sessions come first."""
    found: dict[str, list[SignIn]] = {}
    for one in _seen(visitor, request):
        found.setdefault(one.owner, []).append(one)
    groups = [
        Group(of[0].whose, of[0].scope, owner == _owner(visitor) or any(one.is_own for one in of), of)
        for owner, of in found.items()
    ]
    groups.sort(key=lambda group: not group.is_own)
    names = {"groups": groups, "_words": {one.id: words_of(one.browser) for of in found.values() for one in of}}
    return Shown("sessions.html", names)


def end_sessions(visitor: Visitor, request: Request, form: Form) -> None:
    """Sign a browser out, or, with ``all``, all others that are signed in with the same token or as
    the same person.
    """
    seen = _seen(visitor, request)
    meant = next((one for one in seen if one.id == form["name"]), None)
    if meant is None:
        raise NotFound("the session", "has ended already, or is not for you to end", "Open the page again.")
    some = [one for one in seen if one.owner == meant.owner and not one.is_own] if form["all"] == "yes" else [meant]
    sign_ins.end(visitor.caller.session, some, visitor.caller.by)


def words_of(browser: str) -> str:
    """A browser in a few words, from the name that it gives itself."""
    name = next((words for sign, words in _BROWSERS if sign in browser), "")
    system = next((words for sign, words in _SYSTEMS if sign in browser), "")
    plain = re.split(r"[/ ]", browser, maxsplit=1)[0] if browser else "unknown"
    return f"{name or plain} on {system}" if system else name or plain


def _seen(visitor: Visitor, request: Request) -> list[SignIn]:
    token = visitor.caller.token
    secret = request.cookies.get(cookie_of(request), "")
    every = visitor.may_administer and visitor.sees_all
    return sign_ins.sign_ins(visitor.caller.session, secret, token.id if token.id > 0 else None, every=every)


def _owner(visitor: Visitor) -> str:
    return f"token {visitor.caller.token.id}"
