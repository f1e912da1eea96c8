"""The rights of a person who signed in with a provider: the scopes and archives that the
configuration grants to their groups. Pure.

The rights are computed for each request, so that a removed grant ends as soon as the server has the
new configuration. A person may have different scopes for different archives. Then the token has the
least of them, and `at` returns the token with the scope for one archive. So a caller that forgets
`at` gives too few rights, never too many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from arkqueue.config.openid import OpenId, OpenIdGrant
from arkqueue.plan.globs import matches
from arkqueue.queue.sign_ins import Person
from arkqueue.queue.tokens import Scope, Token

A_PERSON: Final = -1
"""Stands for the id of a token, for a person who signed in with a provider."""
_ORDER: Final = (Scope.READ, Scope.OPERATE, Scope.APPROVE, Scope.ADMIN)
_EVER: Final = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class PersonsToken(Token):
    """The rights of a person. ``scopes``: the scopes for archives for which they have more than
    ``scope``, which is the least.
    """

    scopes: Mapping[str, Scope] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenAt(Token):
    """The rights of a person in one archive, for which alone this token is. ``seen``: the archives that
    the person may see; None: all.
    """

    seen: Sequence[str] | None = None


def at(token: Token, archive: str) -> Token:
    """The token with the scope for one archive; it is for this archive only if the scope differs."""
    if not isinstance(token, PersonsToken) or (scope := token.scopes.get(archive)) is None:
        return token
    return TokenAt(
        token.id, token.name, scope, [archive], token.created_at, token.revoked_at, token.authors, token.archives
    )


def seen(token: Token) -> Sequence[str] | None:
    """The archives that the bearer of a token may see; None: all."""
    return token.seen if isinstance(token, TokenAt) else token.archives


def widest(token: Token) -> Token:
    """The token with the widest scope that it has for an archive; it is for this archive only if the
    scope differs.
    """
    if not isinstance(token, PersonsToken) or not token.scopes:
        return token
    return at(token, max(token.scopes, key=lambda archive: _ORDER.index(token.scopes[archive])))


def rights_of(openid: OpenId, person: Person, names: Callable[[], Iterable[str]]) -> Token | None:
    """The rights of a person. None: they have none, because no grant is for their groups, or they
    signed in with another provider. ``names``: returns the names of all archives.
    """
    grants = [grant for grant in openid.grants if grant.group in person.groups]
    if not grants or person.issuer != openid.issuer:
        return None
    everywhere = [Scope(grant.scope) for grant in grants if grant.archives is None]
    scopes = _by_archive(grants, names)
    authors = _authors(openid, person)
    name = f"{person.person} (openid)"
    if everywhere:
        least = _widest(everywhere)
        wider = {archive: scope for archive, scope in scopes.items() if _ORDER.index(scope) > _ORDER.index(least)}
        return PersonsToken(A_PERSON, name, least, None, _EVER, None, authors, wider)
    least = min(scopes.values(), key=_ORDER.index, default=Scope.READ)
    return PersonsToken(A_PERSON, name, least, sorted(scopes), _EVER, None, authors, scopes)


def _by_archive(grants: Sequence[OpenIdGrant], names: Callable[[], Iterable[str]]) -> dict[str, Scope]:
    """The widest scope of each archive that a grant names."""
    found: dict[str, list[Scope]] = {}
    known: list[str] | None = None
    for grant in grants:
        for glob in grant.archives or ():
            named = [glob]
            if "*" in glob or "?" in glob:
                known = list(names()) if known is None else known
                named = [name for name in known if matches((glob,), name)]
            for name in named:
                found.setdefault(name, []).append(Scope(grant.scope))
    return {name: _widest(scopes) for name, scopes in found.items()}


def _widest(scopes: Sequence[Scope]) -> Scope:
    return max(scopes, key=_ORDER.index)


def _authors(openid: OpenId, person: Person) -> list[str]:
    written = [author for entry in openid.persons if entry.person == person.person for author in entry.authors]
    return list(dict.fromkeys([*written, *person.authors]))
