"""Browsers sign in with a token, or with the code of a link that works once (design 7), or as a person whom a provider knows. Called by the pages and by ``serve``.

A browser gets a secret of its own, so that the token itself is in no cookie. Only hashes are stored. A sign-in ends with its token, at sign-out, or after
`BROWSER` seconds. Of a person, what the provider said is stored; what that is worth the configuration says, at each request (`web.rights`).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from arkqueue.db.session import Session
from arkqueue.queue.tokens import Token, digest_of, token_of

BROWSER = 30 * 86_400.0
"""Seconds that a browser stays signed in."""
LINK = 600.0
"""Seconds that a link can be used."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody whom a provider knows. ``subject``: as the provider alone knows them; ``groups``: those of theirs that the configuration names; ``authors``: of revisions, by what the provider says."""

    issuer: str
    subject: str
    person: str
    groups: tuple[str, ...]
    authors: tuple[str, ...]


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


def sign_person_in(
    session: Session, person: Person, *, answer: bytes, answer_seconds: float, seconds: float
) -> str | None:
    """Sign a browser in for ``seconds``; returns the secret that it shows from now on. None: this ``answer`` (a digest) of the provider has signed somebody in already."""
    secret = secrets.token_urlsafe(32)
    added = session.rows(
        "sign_person_in", hash=digest_of(secret), answer=answer, answer_seconds=answer_seconds, seconds=seconds,
        issuer=person.issuer, subject=person.subject, person=person.person, groups=list(person.groups), authors=list(person.authors),
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


def _add(session: Session, token: Token, *, once: bool, seconds: float) -> str:
    secret = secrets.token_urlsafe(32)
    session.do("add_sign_in", hash=digest_of(secret), token=token.id, once=once, seconds=seconds)
    return secret
