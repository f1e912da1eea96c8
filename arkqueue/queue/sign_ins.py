"""Browsers sign in with a token, or with the code of a link that works once (design 7), or as a person whom a provider knows. Called by the pages and by ``serve``.

A browser gets a secret of its own, so that the token itself is in no cookie. Only hashes are stored. A sign-in ends with its token, at sign-out, or after
`BROWSER` seconds. Of a person, what the provider said is stored; what that is worth the configuration says, at each request (`web.rights`).
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
"""Seconds that a link can be used."""
MOST_SIGN_INS = 500
"""Browsers that a list names."""
LONGEST_BROWSER = 300
"""Characters of what a browser calls itself that are kept."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody whom a provider knows. ``subject``: as the provider alone knows them; ``groups``: those of theirs that the configuration names; ``authors``: of revisions, by what the provider says. ``sid``: the session at the provider, where it names that."""

    issuer: str
    subject: str
    person: str
    groups: tuple[str, ...]
    authors: tuple[str, ...]
    sid: str | None = None


def sign_in(session: Session, token: Token, browser: str = "") -> str:
    """Sign a browser in; returns the secret that it shows from now on. ``browser``: what it calls itself."""
    return _add(session, token, once=False, seconds=BROWSER, browser=browser)


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


def sign_person_in(
    session: Session, person: Person, *, answer: bytes, answer_seconds: float, seconds: float, browser: str = ""
) -> str | None:
    """Sign a browser in for ``seconds``; returns the secret that it shows from now on. None: this ``answer`` (a digest) of the provider has signed somebody in already."""
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
    """Whether an answer of a provider has signed somebody in."""
    return bool(session.rows("was_answer_used", hash=answer))


def person_of(session: Session, secret: str) -> Person | None:
    """The person who is signed in in a browser; None: nobody is."""
    found = session.rows("person_of_sign_in", hash=digest_of(secret))
    if not found:
        return None
    row = found[0]
    return Person(row.issuer, row.subject, row.person, tuple(row.groups), tuple(row.authors))


def sign_out(session: Session, secret: str) -> None:
    """Make a browser's secret worthless."""
    session.do("sign_out", hash=digest_of(secret))


@dataclass(frozen=True, slots=True)
class SignIn:
    """A browser that is signed in. ``id``: which one, and good for nothing else; ``whose``: the name of its token or person. ``owner``: what all browsers of that token, or person, have in common.

    ``scope``: of its token; None: it is a person's. ``begun_at`` None, ``browser`` empty: that is not known. ``is_own``: it is the one that asks.
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
    """Where somebody is signed in, the last one first: with the token or as the person that a browser's ``secret`` has, or with a ``token``. ``every``: where anybody is."""
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
    """Sign browsers out; of others than the one that asks, the audit log keeps by whom."""
    ended = {row.hash.hex() for row in session.rows("end_sign_ins", hashes=[bytes.fromhex(one.id) for one in some])}
    for whose, count in Counter(one.whose for one in some if one.id in ended and not one.is_own).items():
        note = f"{count} browser{'' if count == 1 else 's'} of {whose}"
        session.do("remember", by=by, verb="sign out", archive=None, run=None, task=None, note=note)


def end_at_provider(
    session: Session, issuer: str, subject: str | None, sid: str | None, *, token: bytes, expires: float
) -> bool:
    """Sign out the browsers of a person, or of one of their sessions at the provider, who has signed out there. False: this ``token`` (a digest) has done so already, and nothing is done.

    ``sid`` None: all of the person. A browser of whose session nothing is known is signed out with the person. ``expires``: when the token is good no longer, as a Unix time.
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
