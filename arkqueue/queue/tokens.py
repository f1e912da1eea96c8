"""Tokens say who may do what to which archives (design 7).

A token is 256 random bits. Only its SHA-256 is stored, so that a copy of the database reveals no
token. A random token cannot be guessed, so the hash needs no salt, and an index finds its row. The
API checks the token of each request that it has not seen lately; ``serve`` makes the first token.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import ArkqueueError, Conflict, Invalid, NotFound
from arkqueue.model import INSTALLATION

FILE = "token"
"""The name of the file in the home folder that holds the first token."""


class Scope(StrEnum):
    HOOK = "hook"
    """May send notices, and nothing else."""
    READ = "read"
    OPERATE = "operate"
    """May also act on runs and tasks, and do what a hook does."""
    APPROVE = "approve"
    """May also act on what an archive guards (design 5.22)."""
    ADMIN = "admin"
    """May also register archives and make tokens."""

    def allows(self, needed: Scope) -> bool:
        """True if this scope includes ``needed``. The scopes `hook` and `read` do not include each
        other.
        """
        return needed in _INCLUDED[self]


_INCLUDED = {
    Scope.HOOK: {Scope.HOOK},
    Scope.READ: {Scope.READ},
    Scope.OPERATE: {Scope.HOOK, Scope.READ, Scope.OPERATE},
    Scope.APPROVE: {Scope.HOOK, Scope.READ, Scope.OPERATE, Scope.APPROVE},
    Scope.ADMIN: set(Scope),
}


@dataclass(frozen=True, slots=True)
class Token:
    """A stored token. ``archives``: the names of the archives that it is for; None: all.
    ``authors``: the persons that it stands for.
    """

    id: int
    name: str
    scope: Scope
    archives: list[str] | None
    created_at: datetime
    revoked_at: datetime | None
    authors: list[str]

    def covers(self, archive: str) -> bool:
        return self.archives is None or archive in self.archives


def create(
    session: Session,
    *,
    name: str,
    scope: Scope,
    archives: Sequence[str] | None = None,
    authors: Sequence[str] = (),
    by: str,
) -> tuple[Token, str]:
    """Make a token. Returns it with its secret, which nobody can read again."""
    if not name.strip() or not name.isprintable() or len(name) > 100:
        raise Invalid(f"token {name!r}", "is not a valid name", "Give 1 to 100 printable characters.")
    if archives is not None and not archives:
        raise Invalid(f"token {name}", "is for no archive", "Name archives, or name none to allow all.")
    if authors and not scope.allows(Scope.APPROVE):
        raise Invalid(
            f"token {name}",
            f"stands for persons, which means nothing for the scope {scope}",
            "Leave --author out, or make it one of scope approve.",
        )
    if not all(author.strip() and author.isprintable() and len(author) <= 1000 for author in authors):
        raise Invalid(
            f"token {name}",
            "stands for somebody without a proper name",
            "Write persons as the authors of revisions are written.",
        )
    secret = "ark_" + secrets.token_urlsafe(32)
    listed = None if archives is None else sorted(set(archives))
    (row,) = session.rows(
        "add_token", name=name, hash=digest_of(secret), scope=str(scope), archives=listed, authors=list(authors)
    )
    _remember(
        session, by, "create token", f"{row.id} {name} ({scope})" + "".join(f" for {author}" for author in authors)
    )
    session.changed([INSTALLATION])
    return token_of(row), secret


def check(session: Session, secret: str) -> Token | None:
    """The token with this secret; None if no token has it, or if the token was revoked."""
    found = session.rows("token_of_hash", hash=digest_of(secret))
    return token_of(found[0]) if found else None


def tokens(session: Session) -> list[Token]:
    """All tokens, revoked ones included."""
    return [token_of(row) for row in session.rows("tokens")]


def one(session: Session, token: int) -> Token:
    """One token; raises ``NotFound``."""
    found = session.rows("token", token=token)
    if not found:
        raise NotFound(f"token {token}", "does not exist")
    return token_of(found[0])


def revoke(session: Session, token: int, by: str) -> None:
    """Revoke a token; raises ``Conflict`` if the token was revoked before."""
    known = one(session, token)
    if not session.rows("revoke_token", token=token):
        raise Conflict(f"token {token} ({known.name})", "is revoked already")
    _remember(session, by, "revoke token", f"{token} {known.name}")
    session.changed([INSTALLATION])


def first_token(session: Session, home: Path) -> str:
    """The secret of this host's administrator token. It is kept in a file that only its owner can
    read; if the file is missing, or its token is not valid any more, a new token is made.
    """
    path = home / FILE
    try:
        kept = path.read_text("ascii").strip()
    except FileNotFoundError:
        kept = ""
    except (OSError, UnicodeDecodeError) as error:
        raise ArkqueueError(str(path), f"cannot be read: {error}", "Correct its permissions, or remove it.") from error
    if kept and (known := check(session, kept)) and known.scope is Scope.ADMIN:
        return kept
    _, secret = create(session, name="first token", scope=Scope.ADMIN, by="arkqueue serve")
    _write(path, secret)
    return secret


def _write(path: Path, secret: str) -> None:
    # Renamed into place with the final permissions, so that nobody reads half a secret, and nobody
    # else reads it at all.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secret + "\n")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ArkqueueError(str(path), f"cannot be written: {error.strerror}", "Correct the home folder.") from error


def digest_of(secret: str) -> bytes:
    """The stored digest of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def token_of(row: Any) -> Token:
    """The token of a row."""
    return Token(row.id, row.name, Scope(row.scope), row.archives, row.created_at, row.revoked_at, row.authors)


def _remember(session: Session, by: str, verb: str, note: str) -> None:
    session.do("remember", by=by, verb=verb, archive=None, run=None, task=None, note=note)
