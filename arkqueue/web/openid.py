"""The provider with which persons sign in (OpenID Connect): where it is, what its keys are, and who somebody is by its answer.

Authlib judges the answers; the requests are made here, so that each has a deadline and a limit, whatever the provider sends: who asks is a browser that waits, and the
server has other pages to show. Nothing but the keys of the provider is kept. Called by the pages.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from fastapi.concurrency import run_in_threadpool

from arkqueue.config.openid import OpenId, is_safe_url
from arkqueue.config.receivers import read_key
from arkqueue.errors import Busy
from arkqueue.queue.sign_ins import Person
from arkqueue.text import one_line
from arkqueue.web.problems import Refused

LONGEST: Final = 10.0
"""Seconds that a browser waits for the provider, for all requests of one sign-in."""
AT_ONCE: Final = 20
"""Sign-ins that wait for the provider at once; more are told to come again."""
KEPT: Final = 3600.0
"""Seconds after which the provider's document and its keys are asked for again; the document, before each time that a browser is sent to the provider, too."""
LONGEST_ANSWER: Final = 1 << 20
MOST_GROUPS: Final = 10_000
AGAIN: Final = 60.0
"""Seconds after which a token that nobody has signed is a reason to ask for the provider's keys again, where anybody may send one."""
RETURN: Final = "/-/openid/return"
"""Where the provider sends browsers back to, on this server."""
LOGOUT_EVENT: Final = "http://schemas.openid.net/event/backchannel-logout"
LONGEST_LOGOUT: Final = 86_400
"""Seconds for which a logout token may be good: so long it is remembered that it was used."""
ALGORITHMS: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"})  # fmt: skip
"""Signatures that only the provider can make. Not ``none``, and not those with a secret that both sides have."""


NOT_THIS_CLIENT: Final = ("invalid_client", "unauthorized_client")
"""Errors of a provider that does not take the client or its secret; Keycloak answers with the second one."""


class ProviderFault(Refused):
    """The provider is away, slow, or answers what no provider may."""

    def __init__(self, openid: OpenId, fault: str, remedy: str = "Try again; the administrator's `arkqueue doctor` says more.") -> None:  # fmt: skip
        super().__init__(502, openid.issuer, fault, remedy)


class NotSignedIn(Refused):
    """The provider has answered, and that signs nobody in."""

    def __init__(self, fault: str, remedy: str = "Sign in again.") -> None:
        super().__init__(403, "the sign-in", fault, remedy)


class NobodyHere(NotSignedIn):
    """The provider has named a person who cannot be signed in. The page offers to sign in as another one, as the provider would name this one again."""


class NoRights(NobodyHere):
    """The person may see nothing here."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """What the provider's discovery document says (OpenID Connect Discovery 1.0, section 3)."""

    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None
    end_session_endpoint: str | None
    algorithms: frozenset[str]
    auth_method: str
    says_issuer: bool
    """Whether its answers name it (RFC 9207)."""
    says_logout: bool
    """Whether it tells this server who has signed out there (OpenID Connect Back-Channel Logout 1.0)."""


class NoLogout(Refused):
    """What claims to say that somebody has signed out says nothing that counts."""

    def __init__(self, fault: str) -> None:
        super().__init__(400, "the logout token", fault, "The provider has to send a token as OpenID Connect Back-Channel Logout 1.0 describes it.")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Logout:
    """Who has signed out at the provider: all of a person (``subject``), or one session there (``sid``). ``token``: which token said so; ``expires``: when that is good no longer."""

    subject: str | None
    sid: str | None
    token: str
    expires: float


class Provider:
    """One provider. Its methods belong to one event loop. ``return_url``: where it sends browsers back to."""

    def __init__(self, openid: OpenId, return_url: str) -> None:
        self._openid, self._return_url = openid, return_url
        self._places = asyncio.Semaphore(AT_ONCE)
        self._metadata: tuple[float, Metadata] | None = None
        self._keys: tuple[float, Any] | None = None
        self._trusted: ssl.SSLContext | None = None

    async def address(self, state: str, nonce: str, verifier: str) -> str:
        """Where a browser goes to sign in. Raises `ProviderFault` if nobody is there."""
        from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
        from authlib.oauth2.rfc7636 import create_s256_code_challenge

        async with self._in_time():
            metadata = await self._discovered(again=True)
        return str(
            prepare_grant_uri(
                metadata.authorization_endpoint,
                self._openid.client_id,
                "code",
                redirect_uri=self._return_url,
                scope=" ".join(self._openid.scopes),
                state=state,
                nonce=nonce,
                code_challenge=create_s256_code_challenge(verifier),
                code_challenge_method="S256",
            )
        )

    async def leave(self, back: str) -> str | None:
        """Where a browser goes to sign out at the provider as well; None: it has no such place."""
        from authlib.common.urls import add_params_to_uri

        async with self._in_time():
            metadata = await self._discovered(again=True)
        if metadata.end_session_endpoint is None:
            return None
        sent = {"client_id": self._openid.client_id, "post_logout_redirect_uri": back}
        return str(add_params_to_uri(metadata.end_session_endpoint, sent))

    async def person(self, code: str, issuer: str | None, nonce: str, verifier: str) -> Person:
        """Who has signed in, for a code that the provider gave. ``issuer``: by whom the browser says that it was sent."""
        async with self._in_time():
            metadata = await self._discovered()
            if (issuer is not None or metadata.says_issuer) and issuer != self._openid.issuer:
                raise NotSignedIn(
                    f"was answered by {_shown(issuer or 'nobody')}, and not by {self._openid.issuer}",
                    "Sign in again, with a link of this server alone.",
                )
            token = await self._exchanged(metadata, code, verifier)
            claims = await self._judged(metadata, token, nonce)
            if any(_claim(claims, name) is None for name in (self._openid.groups, self._openid.person)):
                claims = await self._with_userinfo(metadata, token, claims)
        return person_of(self._openid, claims)

    async def logout(self, token: str) -> Logout | None:
        """Whose sign-ins end by a logout token (Back-Channel Logout 1.0, 2.6); None: this provider sends none. Raises `NoLogout`. Anybody may send one, so that new keys are asked for once a minute at most."""
        from joserfc.errors import JoseError

        async with self._in_time():
            metadata = await self._discovered()
            if not metadata.says_logout:
                return None
            is_old = self._keys is not None and self._keys[0] - KEPT + AGAIN < time.monotonic()
            try:
                header, claims = await self._decoded(metadata, token, is_old)
            except JoseError as error:
                raise NoLogout(
                    f"is not signed by {self._openid.issuer}: {one_line(str(error), 200).rstrip('.')}"
                ) from None
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                raise NoLogout(f"cannot be read: {one_line(str(error), 200)}") from None
        return logout_of(self._openid, header, claims)

    async def _decoded(
        self, metadata: Metadata, token: str, again: bool = True
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The header and the claims of a token that the provider has signed. ``again``: whether its keys are asked for anew where none of those that are kept has signed it."""
        from joserfc import jwt
        from joserfc.errors import BadSignatureError, InvalidKeyIdError
        from joserfc.jws import JWSRegistry

        registry = JWSRegistry(algorithms=sorted(metadata.algorithms), strict_check_header=False)
        try:
            decoded = jwt.decode(token, await self._current_keys(metadata), registry=registry)
        except (InvalidKeyIdError, BadSignatureError):
            if not again:
                raise
            # It may have other keys since they were asked for.
            decoded = jwt.decode(token, await self._current_keys(metadata, again=True), registry=registry)
        return dict(decoded.header), dict(decoded.claims)

    async def check(self) -> Metadata:
        """Ask the provider now for its document, for its keys, and whether it takes this client with its secret; raises `ProviderFault`."""
        async with self._in_time():
            metadata = await self._discovered()
            await self._current_keys(metadata)
            # A provider judges the client before the code, which it never gave.
            answer = await self._token(metadata, secrets.token_urlsafe(32), secrets.token_urlsafe(32))
            if answer.get("error") in NOT_THIS_CLIENT:
                raise _unknown_client(self._openid, answer)
        return metadata

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        if self._places.locked():
            raise Busy(
                "the sign-in",
                f"cannot begin: {AT_ONCE} others wait for {self._openid.issuer}",
                "Try again in a moment.",
            )
        async with self._places:
            try:
                async with asyncio.timeout(LONGEST):
                    yield
            except TimeoutError:
                raise ProviderFault(self._openid, f"has not answered within {LONGEST:g} s") from None

    async def _discovered(self, *, again: bool = False) -> Metadata:
        if again or self._metadata is None or self._metadata[0] < time.monotonic():
            url = self._openid.issuer.rstrip("/") + "/.well-known/openid-configuration"
            document = await self._asked("GET", url, {})
            self._metadata = time.monotonic() + KEPT, metadata_of(self._openid, document)
        return self._metadata[1]

    async def _current_keys(self, metadata: Metadata, *, again: bool = False) -> Any:
        if again or self._keys is None or self._keys[0] < time.monotonic():
            document = await self._asked("GET", metadata.jwks_uri, {})
            self._keys = time.monotonic() + KEPT, keys_of(self._openid, document)
        return self._keys[1]

    async def _token(self, metadata: Metadata, code: str, verifier: str) -> dict[str, Any]:
        """The provider's answer to the request for a token; an error, too."""
        from authlib.common.urls import url_encode
        from authlib.oauth2.auth import ClientAuth

        openid = self._openid
        name, secret, method = openid.client_id, "", metadata.auth_method
        if openid.client_secret_file is not None:
            key = await run_in_threadpool(read_key, openid.client_secret_file, "the client's secret of [openid]")
            secret = key.decode("utf-8", "replace")
        if secret and method == "client_secret_basic":
            # RFC 6749, 2.3.1: Authlib leaves this to its caller.
            # Not every provider reads a plus as a space.
            name, secret = quote(name, safe=""), quote(secret, safe="")
        body = url_encode(
            [("grant_type", "authorization_code"), ("code", code), ("redirect_uri", self._return_url), ("code_verifier", verifier)]
        )  # fmt: skip
        headers = {"content-type": "application/x-www-form-urlencoded"}
        client = ClientAuth(name, secret, method if secret else "none")
        url, headers, body = client.prepare("POST", metadata.token_endpoint, headers, body)
        return await self._asked("POST", url, headers, body)

    async def _exchanged(self, metadata: Metadata, code: str, verifier: str) -> dict[str, Any]:
        openid = self._openid
        token = await self._token(metadata, code, verifier)
        if error := token.get("error"):
            if error in NOT_THIS_CLIENT:
                raise _unknown_client(openid, token)
            said = _error(token)
            if error == "invalid_grant":
                raise NotSignedIn(f"was refused by {openid.issuer}: {said}", "Its code was used already, or is too old: sign in again.")  # fmt: skip
            raise ProviderFault(openid, f"does not take this server's request for a token: {said}")
        if not isinstance(token.get("id_token"), str):
            raise ProviderFault(openid, "gave no id_token", 'scopes of [openid] has to hold "openid".')
        return token

    async def _judged(self, metadata: Metadata, token: Mapping[str, Any], nonce: str) -> dict[str, Any]:
        """The claims of an id_token that the provider has signed for this client and this sign-in (OpenID Connect Core 1.0, 3.1.3.7)."""
        from authlib.oidc.core import CodeIDToken
        from joserfc.errors import JoseError

        issuer, client = self._openid.issuer, self._openid.client_id
        try:
            header, said = await self._decoded(metadata, token["id_token"])
            claims = CodeIDToken(
                said,
                header,
                {"iss": {"essential": True, "value": issuer}, "aud": {"essential": True, "value": client}},
                {"nonce": nonce, "client_id": client, "access_token": token.get("access_token")},
            )
            claims.validate(now=int(time.time()), leeway=int(self._openid.clock_skew))
        except JoseError as error:
            raise NotSignedIn(*_why_refused(error, issuer, self._openid.clock_skew)) from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise NotSignedIn(f"has an id_token that cannot be read: {one_line(str(error), 200)}") from None
        return dict(claims)

    async def _with_userinfo(
        self, metadata: Metadata, token: Mapping[str, Any], claims: dict[str, Any]
    ) -> dict[str, Any]:
        """The claims, and those that only the provider's user info has."""
        access = token.get("access_token")
        if metadata.userinfo_endpoint is None or not isinstance(access, str):
            return claims
        more = await self._asked("GET", metadata.userinfo_endpoint, {"authorization": f"Bearer {access}"})
        if more.get("sub") != claims["sub"]:
            raise NotSignedIn("got the user info of somebody else")
        return more | claims

    async def _asked(self, method: str, url: str, headers: Mapping[str, str], body: str = "") -> dict[str, Any]:
        """The JSON object at a URL; of an error, too. Raises `ProviderFault`."""
        import httpx

        if self._trusted is None:
            self._trusted = await run_in_threadpool(ssl.create_default_context, cafile=self._openid.ca_file)
        sent = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "arkqueue", **headers}
        said = b""
        try:
            async with (
                httpx.AsyncClient(
                    trust_env=False, follow_redirects=False, timeout=None, verify=self._trusted
                ) as client,
                client.stream(method, url, headers=sent, content=body.encode()) as answer,
            ):
                async for piece in answer.aiter_raw():
                    said += piece
                    if len(said) > LONGEST_ANSWER:
                        raise ProviderFault(
                            self._openid, f"answers more than {LONGEST_ANSWER >> 20} MiB at {_shown(url)}"
                        )
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            fault = f"cannot be reached at {_shown(url)}: {one_line(str(error) or type(error).__name__, 300)}"
            raise ProviderFault(self._openid, fault) from None
        is_told = method == "POST" and answer.status_code in (400, 401)
        if answer.status_code != 200 and not is_told:
            raise ProviderFault(self._openid, f"answered HTTP {answer.status_code} at {_shown(url)}")
        try:
            document = json.loads(said)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise ProviderFault(self._openid, f"did not answer with a JSON object at {_shown(url)}")
        return document


def metadata_of(openid: OpenId, document: Mapping[str, Any]) -> Metadata:
    """What a discovery document says; raises `ProviderFault` where nobody can be signed in with it."""
    if document.get("issuer") != openid.issuer:
        fault = f"calls itself {_shown(str(document.get('issuer')))}"
        raise ProviderFault(
            openid, fault, "Write issuer of [openid] exactly like that, if that is the provider you mean."
        )
    urls: dict[str, str | None] = {}
    for name in ("authorization_endpoint", "token_endpoint", "jwks_uri", "userinfo_endpoint", "end_session_endpoint"):
        url = document.get(name)
        if url is None and name in ("userinfo_endpoint", "end_session_endpoint"):
            urls[name] = None
        elif not isinstance(url, str) or not is_safe_url(url):
            raise ProviderFault(openid, f"has no proper {name} in its discovery document: {_shown(str(url))}", "Ask the provider's administrator.")  # fmt: skip
        else:
            urls[name] = url
    algorithms = ALGORITHMS & _texts(document, "id_token_signing_alg_values_supported", {"RS256"})
    if not algorithms:
        raise ProviderFault(openid, "offers no safe signature algorithm", f"Have it sign with one of {', '.join(sorted(ALGORITHMS))}.")  # fmt: skip
    if "code" not in _texts(document, "response_types_supported", {"code"}):
        raise ProviderFault(openid, "does not know the authorization code flow", "Use another provider.")
    if "S256" not in _texts(document, "code_challenge_methods_supported", {"S256"}):
        raise ProviderFault(openid, "knows PKCE without S256", "Use another provider.")
    ways = _texts(document, "token_endpoint_auth_methods_supported", {"client_secret_basic"})
    return Metadata(
        authorization_endpoint=urls["authorization_endpoint"] or "",
        token_endpoint=urls["token_endpoint"] or "",
        jwks_uri=urls["jwks_uri"] or "",
        userinfo_endpoint=urls["userinfo_endpoint"],
        end_session_endpoint=urls["end_session_endpoint"],
        algorithms=algorithms,
        auth_method="client_secret_post" if ways == {"client_secret_post"} else "client_secret_basic",
        says_issuer=document.get("authorization_response_iss_parameter_supported") is True,
        says_logout=document.get("backchannel_logout_supported") is True,
    )


def _error(answer: Mapping[str, Any]) -> str:
    """What an error of the provider says."""
    return one_line(f"{answer.get('error')} {answer.get('error_description', '')}", 300).strip()


def _unknown_client(openid: OpenId, answer: Mapping[str, Any]) -> ProviderFault:
    fault = f"does not accept the client {_shown(openid.client_id)} with its secret: {_error(answer)}"
    remedy = "The administrator has to correct client_id or client_secret_file of [openid]."
    return ProviderFault(openid, fault, remedy)


def keys_of(openid: OpenId, document: Mapping[str, Any]) -> Any:
    """The provider's keys for signatures (a ``KeySet``); what is of no use for that is left out."""
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet, import_key

    listed = document.get("keys")
    keys = []
    for one in listed[:100] if isinstance(listed, list) else ():
        if isinstance(one, dict) and one.get("kty") in ("RSA", "EC", "OKP") and one.get("use", "sig") == "sig":
            try:
                keys.append(import_key(one))
            except (JoseError, ValueError, TypeError, KeyError):
                continue
    if not keys:
        raise ProviderFault(openid, "has no key for signatures at its jwks_uri", "Ask the provider's administrator.")
    return KeySet(keys)


def logout_of(openid: OpenId, header: Mapping[str, Any], said: Mapping[str, Any]) -> Logout:
    """What a logout token says that the provider has signed; raises `NoLogout` unless it is one, for this client, and of now."""
    from joserfc.errors import JoseError
    from joserfc.jwt import JWTClaimsRegistry

    kind = header.get("typ")
    if kind is not None and (not isinstance(kind, str) or kind.lower() not in ("logout+jwt", "jwt")):
        raise NoLogout(f"is of the type {_shown(str(kind))}")
    if "nonce" in said:
        raise NoLogout("has a nonce, as an id_token has")
    events = said.get("events")
    if not isinstance(events, dict) or not isinstance(events.get(LOGOUT_EVENT), dict):
        raise NoLogout(f"has no event {LOGOUT_EVENT}")
    needed: dict[str, Any] = {name: {"essential": True} for name in ("iat", "exp", "jti")}
    needed |= {
        "iss": {"essential": True, "value": openid.issuer},
        "aud": {"essential": True, "value": openid.client_id},
    }
    now, skew = int(time.time()), int(openid.clock_skew)
    try:
        JWTClaimsRegistry(now=now, leeway=skew, **needed).validate(dict(said))
    except (JoseError, ValueError, TypeError) as error:
        raise NoLogout(f"is not for this server now: {one_line(str(error), 200)}") from None
    if said["exp"] > now + LONGEST_LOGOUT:
        raise NoLogout(f"is good for more than {LONGEST_LOGOUT:,} s")
    texts = {name: said.get(name) for name in ("sub", "sid", "jti")}
    for name, text in texts.items():
        if text is not None and (not isinstance(text, str) or not 1 <= len(text) <= 255 or not text.isprintable()):
            raise NoLogout(f"has no proper {name}")
    if texts["sub"] is None and texts["sid"] is None:
        raise NoLogout("names nobody: it has neither sub nor sid")
    return Logout(texts["sub"], texts["sid"], str(texts["jti"]), said["exp"] + skew)


def person_of(openid: OpenId, claims: Mapping[str, Any]) -> Person:
    """The person of some claims, with those groups that the configuration names; raises `NobodyHere`."""
    subject, person = claims.get("sub"), _claim(claims, openid.person)
    if not isinstance(subject, str) or not 1 <= len(subject) <= 255 or not subject.isprintable():
        raise NobodyHere("has no proper sub", "Ask the provider's administrator.")
    if not isinstance(person, str) or not person.strip() or len(person) > 200 or not person.isprintable():
        fault = f"names nobody: the provider's claim {openid.person} is missing, empty, longer than 200 characters, or has control characters"
        raise NobodyHere(
            fault,
            "The administrator has to let the provider send that claim, request the scope that it is sent for (scopes of [openid]), or name another claim (person).",
        )
    groups = _claim(claims, openid.groups)
    groups = [groups] if isinstance(groups, str) else groups
    if not isinstance(groups, list) or len(groups) > MOST_GROUPS or not all(isinstance(one, str) for one in groups):
        fault = f"names no groups of {_shown(person)}: the provider's claim {openid.groups} is missing, or is not a list of at most {MOST_GROUPS:,} names"
        raise NobodyHere(
            fault,
            "The administrator has to let the provider send that claim, request the scope that it is sent for (scopes of [openid]), or name another claim (groups).",
        )
    named = {grant.group for grant in openid.grants}
    mine = tuple(dict.fromkeys(group for group in groups if group in named))
    if not mine:
        theirs = ", ".join(_shown(group) for group in groups[:20]) or "none"
        fault = f"gives no rights: the provider says that {_shown(person)} is in no group that may see these pages (of these: {theirs})"
        raise NoRights(fault, "Ask the administrator: [[openid.grants]] says which groups may.")
    sid = claims.get("sid")
    sid = sid if isinstance(sid, str) and 1 <= len(sid) <= 255 and sid.isprintable() else None
    return Person(openid.issuer, subject, person.strip(), mine, tuple(_author_claims(openid, claims)), sid)


def _author_claims(openid: OpenId, claims: Mapping[str, Any]) -> list[str]:
    """Whom the provider says a person to be as an author. An address of mail counts once it is verified."""
    found = []
    for name in openid.author_claims:
        value = _claim(claims, name)
        is_verified = name != "email" or claims.get("email_verified") is True
        if isinstance(value, str) and value.strip() and value.isprintable() and len(value) <= 1000 and is_verified:
            found.append(value.strip())
    return found


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """A claim by its name, or by the names of the objects that lead to it."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _why_refused(error: Any, issuer: str, skew: float) -> tuple[str, str]:
    """Why an id_token signs nobody in, and what helps."""
    name = type(error).__name__
    claim = getattr(error, "claim", None)
    if name == "ExpiredTokenError" or claim in ("exp", "iat", "nbf"):
        fault = f"has an id_token that is not of this time: {one_line(str(error), 200)}"
        return fault, f"Compare the clocks of this server and of {issuer}; they may differ by {skew:g} s (clock_skew of [openid])."  # fmt: skip
    if claim == "nonce":
        return "has an id_token of another sign-in (nonce)", "Sign in again."
    if claim in ("iss", "aud", "azp"):
        return f"has an id_token of another provider, or for another client ({claim})", "Sign in again; if that does not help, compare issuer and client_id of [openid]."  # fmt: skip
    if claim is not None:
        return f"has an id_token that cannot be used: {one_line(str(error), 200)}", "Ask the provider's administrator."
    return f"has an id_token that {issuer} has not signed: {one_line(str(error), 200)}", "Sign in again; if that does not help, ask the provider's administrator."  # fmt: skip


def _texts(document: Mapping[str, Any], name: str, usual: set[str]) -> set[str]:
    value = document.get(name)
    return {one for one in value if isinstance(one, str)} if isinstance(value, list) else usual


def _shown(text: str) -> str:
    return one_line(text, 200)
