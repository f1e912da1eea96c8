"""Signs browsers in: with a token, with the code of a link that works once (design 7), or as a
person whom an OpenID provider knows. Called by the pages and by ``serve``.

A browser gets a secret of its own, so that no cookie holds the token. Only hashes are stored. A
sign-in ends when its token is revoked, at sign-out, or after `BROWSER` seconds. For a person, the
provider's statements are stored; the configuration says at each request which rights they give
(`web.rights`).
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from arkqueue.db.session import Session
from arkqueue.queue.tokens import Token, digest_of, token_of

BROWSER = 30 * 86_400.0
"""Seconds that a browser stays signed in."""
LINK = 600.0
"""Seconds for which a link can be used."""
MOST_SIGN_INS = 500
"""The most browsers that a list names."""
LONGEST_BROWSER = 300
"""The most characters kept of a browser's User-Agent."""


@dataclass(frozen=True, slots=True)
class Person:
    """A person whom a provider knows. ``subject``: the provider's id of the person. ``groups``: the
    person's groups that the configuration names. ``authors``: the person as an author of revisions,
    from the provider's statements. ``sid``: the id of the session at the provider, if the provider
    gives one.
    """

    issuer: str
    subject: str
    person: str
    groups: tuple[str, ...]
    authors: tuple[str, ...]
    sid: str | None = None


def sign_in(session: Session, token: Token, browser: str = "") -> str:
    """Sign a browser in. Returns the secret that it shows from now on. ``browser``: its User-Agent."""
    return _add(session, token, once=False, seconds=BROWSER, browser=browser)


def code(session: Session, token: Token) -> str:
    """A new code that signs one browser in, once, within `LINK` seconds."""
    return _add(session, token, once=True, seconds=LINK)


def use(session: Session, code: str) -> Token | None:
    """Use up a code. Returns its token; None if the code is unknown, expired or used, or its token
    was revoked.
    """
    found = session.rows("use_code", hash=digest_of(code))
    return token_of(found[0]) if found else None


def check(session: Session, secret: str) -> Token | None:
    """The token with which a browser is signed in; None if it is not."""
    found = session.rows("token_of_sign_in", hash=digest_of(secret))
    return token_of(found[0]) if found else None


def sign_person_in(
    session: Session, person: Person, *, answer: bytes, answer_seconds: float, seconds: float, browser: str = ""
) -> str | None:
    """Sign a browser in for ``seconds``. Returns the secret that it shows from now on; None if this
    ``answer`` of the provider (a digest) has signed somebody in already.
    """
    secret = secrets.token_urlsafe(32)
    added = session.rows(
        "sign_person_in", hash=digest_of(secret), answer=answer, answer_seconds=answer_seconds, seconds=seconds,
        issuer=person.issuer, subject=person.subject, person=person.person, groups=list(person.groups), authors=list(person.authors),
        browser=browser[:LONGEST_BROWSER], sid=person.sid,
    )  # fmt: skip
    if not added:
        return None
    note = f"{person.person}: {person.subject} of {person.issuer}, in {', '.join(person.groups)}"
    session.do("remember", by=person.person, verb="sign in", archive=None, run=None, task=None, note=note)
    return secret


def was_used(session: Session, answer: bytes) -> bool:
    """True if this answer of a provider has signed somebody in."""
    return bool(session.rows("was_answer_used", hash=answer))


def person_of(session: Session, secret: str) -> Person | None:
    """The person who is signed in in a browser; None if nobody is."""
    found = session.rows("person_of_sign_in", hash=digest_of(secret))
    if not found:
        return None
    row = found[0]
    return Person(row.issuer, row.subject, row.person, tuple(row.groups), tuple(row.authors))


def sign_out(session: Session, secret: str) -> None:
    """Sign a browser out: its secret is not valid any more."""
    session.do("sign_out", hash=digest_of(secret))


@dataclass(frozen=True, slots=True)
class SignIn:
    """A browser that is signed in. ``id``: identifies the sign-in, but is not its secret.
    ``whose``: the name of its token or person. ``owner``: identifies the token or person; equal for
    all its browsers.

    ``scope``: that of its token; None for a person. ``begun_at`` None, ``browser`` empty: unknown.
    ``is_own``: True for the browser that asks.
    """

    id: str
    whose: str
    owner: str
    scope: str | None
    begun_at: datetime | None
    expires_at: datetime
    browser: str
    is_own: bool


def sign_ins(session: Session, secret: str, token: int | None, *, every: bool = False) -> list[SignIn]:
    """The sign-ins of one owner, the newest first: of the owner of the browser with ``secret``, or
    of the ``token``. ``every``: the sign-ins of all owners.
    """
    rows = session.rows("sign_ins_seen", own=digest_of(secret), token=token, every=every, most=MOST_SIGN_INS)
    return [
        SignIn(
            id=row.hash.hex(),
            whose=row.token if row.token_id is not None else row.person,
            owner=f"token {row.token_id}" if row.token_id is not None else f"{row.subject} of {row.issuer}",
            scope=row.scope,
            begun_at=row.begun_at,
            expires_at=row.expires_at,
            browser=row.browser,
            is_own=row.is_own,
        )
        for row in rows
    ]


def end(session: Session, some: Sequence[SignIn], by: str) -> None:
    """Sign browsers out. For all but the browser that asks, the audit log records by whom."""
    ended = {row.hash.hex() for row in session.rows("end_sign_ins", hashes=[bytes.fromhex(one.id) for one in some])}
    for whose, count in Counter(one.whose for one in some if one.id in ended and not one.is_own).items():
        note = f"{count} browser{'' if count == 1 else 's'} of {whose}"
        session.do("remember", by=by, verb="sign out", archive=None, run=None, task=None, note=note)


def end_at_provider(
    session: Session, issuer: str, subject: str | None, sid: str | None, *, token: bytes, expires: float
) -> bool:
    """Sign out the browsers of a person, or of one session at the provider, after a sign-out there.
    Returns False, and does nothing, if this ``token`` of the provider (a digest) was used already.

    ``sid`` None: all browsers of the person. A browser whose session is unknown is signed out, too.
    ``expires``: when the provider's token expires, as a Unix time.
    """
    (done,) = session.rows("end_at_provider", issuer=issuer, subject=subject, sid=sid, token=token, expires=expires)
    for person, count in Counter(done.persons).items():
        note = f"{count} browser{'' if count == 1 else 's'} of {person}, who signed out at {issuer}"
        session.do("remember", by=person, verb="sign out", archive=None, run=None, task=None, note=note)
    return bool(done.is_new)


def _add(session: Session, token: Token, *, once: bool, seconds: float, browser: str = "") -> str:
    secret, told = secrets.token_urlsafe(32), browser[:LONGEST_BROWSER]
    session.do("add_sign_in", hash=digest_of(secret), token=token.id, once=once, seconds=seconds, browser=told)
    return secret
