"""The tables ``[openid]`` of the configuration: the provider with which persons sign in to the
pages, and the rights of their groups. Imported by `settings`.

The provider tells who somebody is, and in which groups. The configuration alone gives rights to
groups.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from arkqueue.config.values import Duration, Strict, within

_CLAIM = re.compile(r"[A-Za-z0-9_.:/-]{1,200}")


def is_safe_url(url: str) -> bool:
    """True if a URL has https, or has http and names this host, so that nobody can listen in."""
    host = r"(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(?::\d{1,5})?"
    here = r"(?:localhost|127\.0\.0\.1|\[::1\])(?::\d{1,5})?"
    return re.fullmatch(rf"(https://{host}|http://{here})(/[!-~]*)?", url) is not None


class OpenIdGrant(Strict):
    """The rights of the members of a group."""

    group: str = Field(min_length=1, max_length=200)
    scope: Literal["read", "operate", "approve", "admin"]
    archives: tuple[str, ...] | None = Field(default=None, min_length=1, max_length=1000)
    """Globs of archives' names; None: all archives, and the installation."""

    @field_validator("archives")
    @classmethod
    def _are_globs_of_names(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for glob in value or ():
            if not re.fullmatch(r"[A-Za-z0-9*?][A-Za-z0-9._*?-]{0,99}", glob):
                raise PydanticCustomError(
                    "archives", "holds {glob}, which no archive can be called", {"glob": repr(glob)}
                )
        return value


class OpenIdPerson(Strict):
    """The names by which a person is the author of revisions, like ``token create --author`` for a
    token.
    """

    person: str = Field(min_length=1, max_length=200)
    """The value of the claim ``person``."""
    authors: tuple[str, ...] = Field(min_length=1, max_length=100)

    @field_validator("authors")
    @classmethod
    def _are_authors(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(author.strip() and author.isprintable() and len(author) <= 1000 for author in value):
            raise PydanticCustomError(
                "authors", "holds somebody without a proper name; write authors as revisions have them"
            )
        return value


class OpenId(Strict):
    """The provider of OpenID Connect with which persons sign in to the pages."""

    issuer: str
    """The issuer, exactly as in the provider's discovery document, whose URL begins with it."""
    client_id: str = Field(min_length=1, max_length=500)
    client_secret_file: Path | None = None
    """A file of mode 0600 with the client's secret; None: a public client, which only PKCE protects."""
    label: str = Field(default="OpenID Connect", min_length=1, max_length=60)
    """The text of the sign-in page's button after “Sign in with”."""
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    groups: str = "groups"
    """The claim that lists groups; dots lead into objects, as in ``realm_access.roles``."""
    person: str = "preferred_username"
    """The claim that names the person in the audit log and for ``persons``."""
    author_claims: tuple[str, ...] = Field(default=(), max_length=10)
    """Claims whose values are authors of revisions, beside those of ``persons``."""
    session: Annotated[Duration, within("1m", "30d")] = 43_200.0
    """Seconds after which a person has to sign in again, so that the provider is asked for their
    groups again.
    """
    clock_skew: Annotated[Duration, within("1ms", "10m")] = 60.0
    """Seconds by which the provider's clock may differ from ours."""
    ca_file: Path | None = None
    """The certificate authorities for the provider's certificate; None: those of this host."""
    grants: tuple[OpenIdGrant, ...] = Field(default=(), max_length=1000)
    persons: tuple[OpenIdPerson, ...] = Field(default=(), max_length=100_000)

    @field_validator("issuer")
    @classmethod
    def _is_an_issuer(cls, value: str) -> str:
        if not is_safe_url(value) or "?" in value or "#" in value:
            raise PydanticCustomError(
                "issuer",
                "is not a valid issuer; write it like https://login.example.org/realms/work (http is for this host only)",
            )
        return value

    @field_validator("label")
    @classmethod
    def _is_shown(cls, value: str) -> str:
        if not value.isprintable():
            raise PydanticCustomError("label", "holds a character that cannot be shown")
        return value

    @field_validator("scopes")
    @classmethod
    def _ask_for_an_id_token(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if "openid" not in value or not all(re.fullmatch(r"[!#-\[\]-~]{1,200}", scope) for scope in value):
            raise PydanticCustomError("scopes", 'must be scopes without spaces, "openid" among them')
        return value

    @field_validator("groups", "person")
    @classmethod
    def _is_a_claim(cls, value: str) -> str:
        if not _CLAIM.fullmatch(value):
            raise PydanticCustomError("claim", "is not a valid claim name")
        return value

    @field_validator("author_claims")
    @classmethod
    def _are_claims(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(_CLAIM.fullmatch(claim) for claim in value):
            raise PydanticCustomError("claims", "has a value that is not a valid claim name")
        return value

    @model_validator(mode="after")
    def _says_nothing_twice(self) -> Self:
        if not self.grants:
            raise PydanticCustomError("grants", "has no [[openid.grants]], so that nobody could sign in")
        named = [entry.person for entry in self.persons]
        if twice := next((person for place, person in enumerate(named) if person in named[:place]), None):
            raise PydanticCustomError(
                "persons", "names {person} twice; list all authors in one entry", {"person": repr(twice)}
            )
        granted = [(grant.group, grant.archives) for grant in self.grants]
        if again := next(
            (group for place, (group, _) in enumerate(granted) if granted[place] in granted[:place]), None
        ):
            raise PydanticCustomError(
                "grants", "gives {group} two scopes for the same archives; keep one of them", {"group": repr(again)}
            )
        return self
