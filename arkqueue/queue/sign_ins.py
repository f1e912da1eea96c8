"""Browsers sign in with a token, or with the code of a link that works once (design 7). Called by the pages and by ``serve``.

A browser gets a secret of its own, so that the token itself is in no cookie. Only hashes are stored. A sign-in ends with its token, at sign-out, or after
`BROWSER` seconds.
"""

from __future__ import annotations

import secrets

from arkqueue.db.session import Session
from arkqueue.queue.tokens import Token, digest_of, token_of

BROWSER = 30 * 86_400.0
"""Seconds that a browser stays signed in."""
LINK = 600.0
"""Seconds that a link can be used."""


def sign_in(session: Session, token: Token) -> str:
    """Sign a browser in; returns the secret that it shows from now on."""
    return _add(session, token, once=False, seconds=BROWSER)


def code(session: Session, token: Token) -> str:
    """A code that signs one browser in, once, within `LINK` seconds."""
    return _add(session, token, once=True, seconds=LINK)


def use(session: Session, code: str) -> Token | None:
    """The token that a code stands for; the code is used up. None: it is unknown, expired or used, or its token was revoked."""
    found = session.rows("use_code", hash=digest_of(code))
    return token_of(found[0]) if found else None


def check(session: Session, secret: str) -> Token | None:
    """The token that a browser is signed in with; None: it is not signed in."""
    found = session.rows("token_of_sign_in", hash=digest_of(secret))
    return token_of(found[0]) if found else None


def sign_out(session: Session, secret: str) -> None:
    """Make a browser's secret worthless."""
    session.do("sign_out", hash=digest_of(secret))


def _add(session: Session, token: Token, *, once: bool, seconds: float) -> str:
    secret = secrets.token_urlsafe(32)
    session.do("add_sign_in", hash=digest_of(secret), token=token.id, once=once, seconds=seconds)
    return secret
