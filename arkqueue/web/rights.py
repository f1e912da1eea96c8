"""What a person may do who signed in with a provider: the scopes and archives that the configuration grants to their groups. Pure.

The rights are worked out anew for each request, so that an entry that is taken away ends what it gave as soon as the server has the new configuration. A person may have
one scope for some archives and another for others. Then the token has the least of them, and `at` gives the one that an archive has: who forgets to ask for it can do too
little, never too much.
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
"""The id of no token: a person who signed in with a provider."""
_ORDER: Final = (Scope.READ, Scope.OPERATE, Scope.APPROVE, Scope.ADMIN)
_EVER: Final = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class PersonsToken(Token):
    """The rights of a person. ``scopes``: of the archives for which they have another scope than ``scope``, which is the least."""

    scopes: Mapping[str, Scope] = field(default_factory=dict)


def at(token: Token, archive: str) -> Token:
    """The token as it is for one archive, and for nothing else where it differs."""
    if not isinstance(token, PersonsToken) or (scope := token.scopes.get(archive)) is None:
        return token
    return Token(token.id, token.name, scope, [archive], token.created_at, token.revoked_at, token.authors)


def rights_of(openid: OpenId, person: Person, names: Callable[[], Iterable[str]]) -> Token | None:
    """What a person may do; None: nothing, as no entry is for their groups, or they are of another provider. ``names``: asked for the archives that there are."""
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
