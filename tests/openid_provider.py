"""An OpenID Connect provider over real HTTP, built from Authlib's server side. It checks clients,
redirects, codes and PKCE. A test can make it answer wrongly.
"""

from __future__ import annotations

import html
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
from authlib.oauth2 import AuthorizationServer, OAuth2Request
from authlib.oauth2.rfc6749 import grants
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from authlib.oauth2.rfc6750 import BearerTokenGenerator
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oidc.core import OpenIDCode
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

CLIENT, SECRET = "arkqueue", "a secret of %41+forty characters: 0123456789"
Claims = dict[str, Any]


@cache
def _a_key() -> RSAKey:
    """The signing key of all providers. A key for each test would take 0.1 s of CPU time."""
    return RSAKey.generate_key(2048, auto_kid=True)


@dataclass
class _Code:
    code: str
    redirect_uri: str
    scope: str
    nonce: str
    user: str
    code_challenge: str
    code_challenge_method: str

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope

    def get_nonce(self) -> str:
        return self.nonce

    def get_auth_time(self) -> None: ...
    def get_acr(self) -> None: ...
    def get_amr(self) -> None: ...


@dataclass
class _Client:
    redirect_uris: list[str]
    secret: str | None

    def get_client_id(self) -> str:
        return CLIENT

    def get_default_redirect_uri(self) -> str:
        return self.redirect_uris[0]

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_redirect_uri(self, uri: str) -> bool:
        return uri in self.redirect_uris

    def check_client_secret(self, secret: str) -> bool:
        return secret == self.secret

    def check_endpoint_auth_method(self, method: str, _endpoint: str) -> bool:
        return method == ("none" if self.secret is None else "client_secret_basic")

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "authorization_code"


@dataclass
class OpenIdProvider:
    """The provider. ``people``: the claims of each person, by the name of the user."""

    url: str
    people: dict[str, Claims] = field(default_factory=dict)
    in_userinfo: set[str] = field(default_factory=set)
    """Claims that only the user info contains."""
    spoil: Callable[[Claims], None] = lambda _: None
    """Changes the claims of each id_token before the provider signs it."""
    metadata: Claims = field(default_factory=dict)
    """Entries that replace those of the discovery document."""
    answers: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """Responses (status and body) of paths that answer nothing else."""
    hanging: set[str] = field(default_factory=set)
    """Paths that send only a byte now and then until the end of the test."""
    asked: list[str] = field(default_factory=list)
    """The paths of all requests."""
    arrived: threading.Condition = field(default_factory=threading.Condition)
    released: threading.Event = field(default_factory=threading.Event)
    client: _Client = field(default_factory=lambda: _Client([], SECRET))
    key: RSAKey = field(default_factory=_a_key)
    shown_keys: list[RSAKey] | None = None
    """The keys at ``jwks_uri``. None publishes the key that signs."""

    def rotate(self) -> None:
        """Replaces the signing key."""
        self.key = RSAKey.generate_key(2048, auto_kid=True)

    def await_request(self, path: str) -> None:
        """Waits until a request for the path has arrived."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: path in self.asked, 60)

    def log_out(self, address: str, **claims: Any) -> httpx.Response:
        """Sends a client a back-channel logout. ``claims``: replacements for the claims of the
        token, of which None removes one, and for its ``header`` and ``key``.
        """
        now = int(time.time())
        usual = {
            "iss": self.url, "aud": CLIENT, "iat": now, "exp": now + 120, "jti": secrets.token_hex(8),
            "events": {"http://schemas.openid.net/event/backchannel-logout": {}},
        }  # fmt: skip
        said = {name: value for name, value in (usual | claims).items() if value is not None}
        header = said.pop("header", {"alg": "RS256", "kid": self.key.kid, "typ": "logout+jwt"})
        token = jwt.encode(header, said, said.pop("key", self.key), [header["alg"]])
        return httpx.post(address, data={"logout_token": token}, timeout=30, trust_env=False, verify=False)

    def document(self) -> Claims:
        usual = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "userinfo_endpoint": f"{self.url}/userinfo",
            "end_session_endpoint": f"{self.url}/leave",
            "response_types_supported": ["code"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }
        return {name: value for name, value in (usual | self.metadata).items() if value is not None}


class _Request(OAuth2Request):  # type: ignore[misc]
    provider: OpenIdProvider

    @property
    def args(self) -> dict[str, str]:
        return self.payload.data  # type: ignore[no-any-return]

    @property
    def form(self) -> dict[str, str]:
        return self.payload.data  # type: ignore[no-any-return]


class _Server(AuthorizationServer):  # type: ignore[misc]
    def __init__(self, provider: OpenIdProvider) -> None:
        super().__init__()
        self.provider, self.codes, self.tokens = provider, dict[str, _Code](), dict[str, str]()
        self.register_token_generator("default", BearerTokenGenerator(lambda **_: f"access-{len(self.tokens)}"))
        self.register_grant(_Grant, [CodeChallenge(required=True), _IdTokens(require_nonce=True)])

    def query_client(self, client_id: str) -> _Client | None:
        return self.provider.client if client_id == CLIENT else None

    def save_token(self, token: Claims, request: OAuth2Request) -> None:
        self.tokens[token["access_token"]] = request.user

    def create_oauth2_request(self, request: OAuth2Request) -> OAuth2Request:
        return request

    def handle_response(self, status: int, body: Any, headers: Any) -> tuple[int, Any, list[tuple[str, str]]]:
        return status, body, list(headers)

    def send_signal(self, name: str, *args: Any, **kwargs: Any) -> None: ...


class _Grant(grants.AuthorizationCodeGrant):  # type: ignore[misc]
    TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic", "none")

    def save_authorization_code(self, code: str, request: OAuth2Request) -> None:
        data = request.payload.data
        self.server.codes[code] = _Code(
            code, data["redirect_uri"], data["scope"], data["nonce"], request.user,
            data["code_challenge"], data["code_challenge_method"],
        )  # fmt: skip

    def query_authorization_code(self, code: str, _client: _Client) -> _Code | None:
        return self.server.codes.get(code)  # type: ignore[no-any-return]

    def delete_authorization_code(self, authorization_code: _Code) -> None:
        del self.server.codes[authorization_code.code]

    def authenticate_user(self, authorization_code: _Code) -> str:
        return authorization_code.user


class _IdTokens(OpenIDCode):  # type: ignore[misc]
    def exists_nonce(self, _nonce: str, _request: OAuth2Request) -> bool:
        return False

    def get_client_claims(self, _client: _Client) -> Claims:
        return {"iss": ""}

    def encode_id_token(self, token: Claims, request: OAuth2Request) -> str:
        from authlib.oidc.core.grants.util import create_half_hash

        provider: OpenIdProvider = request.provider
        now = int(time.time())
        mine = {
            name: value for name, value in provider.people[request.user].items() if name not in provider.in_userinfo
        }
        claims = {
            "iss": provider.url, "aud": CLIENT, "sub": f"sub-{request.user}", "iat": now, "exp": now + 300,
            "nonce": request.authorization_code.get_nonce(), "at_hash": create_half_hash(token["access_token"], "RS256").decode(), **mine,
        }  # fmt: skip
        provider.spoil(claims)
        header = claims.pop("header", {"alg": "RS256", "kid": provider.key.kid})
        key = claims.pop("key", provider.key)
        return jwt.encode(header, {k: v for k, v in claims.items() if v is not None}, key, [header["alg"]])


class _Handler(BaseHTTPRequestHandler):
    provider: OpenIdProvider
    server_side: _Server

    def log_message(self, *_: Any) -> None: ...

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        self._answer(dict(parse_qsl(self.rfile.read(length).decode())))

    def _answer(self, form: dict[str, str]) -> None:
        provider, parts = self.provider, urlsplit(self.path)
        with provider.arrived:
            provider.asked.append(parts.path)
            provider.arrived.notify_all()
        if parts.path in provider.hanging:
            self._hang()
        elif parts.path in provider.answers:
            self._say(*provider.answers[parts.path])
        elif parts.path == "/.well-known/openid-configuration":
            self._say(200, json.dumps(provider.document()).encode())
        elif parts.path == "/keys":
            shown = provider.shown_keys if provider.shown_keys is not None else [provider.key]
            self._say(200, json.dumps(KeySet(shown).as_dict(private=False)).encode())
        elif parts.path == "/authorize":
            self._authorize(dict(parse_qsl(parts.query)))
        elif parts.path == "/token":
            self._own(self.server_side.create_token_response(self._request("POST", form)))
        elif parts.path == "/userinfo":
            user = self.server_side.tokens.get(self.headers.get("authorization", "").removeprefix("Bearer "))
            known = {} if user is None else {"sub": f"sub-{user}", **provider.people[user]}
            self._say(200 if user else 401, json.dumps(known).encode())
        else:
            self._say(404, b"{}")

    def _authorize(self, asked: dict[str, str]) -> None:
        user = asked.pop("as", None)
        request = self._request("GET", asked)
        if user is None:
            self.server_side.get_consent_grant(request, None)
            links = "".join(
                f'<p><a href="{html.escape(self.path)}&amp;as={name}">I am {name}</a></p>'
                for name in [*self.provider.people, "nobody"]
            )
            self._say(200, f"<!doctype html><title>Who are you?</title>{links}".encode(), "text/html")
            return
        granted = user if user in self.provider.people else None
        grant = self.server_side.get_consent_grant(request, granted)
        status, body, headers = self.server_side.create_authorization_response(request, granted, grant)
        told = [(n, f"{v}&iss={self.provider.url}" if n == "Location" else v) for n, v in headers]
        self._own((status, body, told))

    def _request(self, method: str, data: dict[str, str]) -> OAuth2Request:
        request = _Request(method, "https://over-loopback/", headers=dict(self.headers))
        request.payload = BasicOAuth2Payload(data)
        request.provider = self.provider
        return request

    def _own(self, made: tuple[int, Any, list[tuple[str, str]]]) -> None:
        status, body, headers = made
        self._say(status, json.dumps(body).encode() if body else b"", None, headers)

    def _say(self, status: int, body: bytes, kind: str | None = "application/json", headers: Any = ()) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if kind:
            self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _hang(self) -> None:
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
        try:
            while not self.provider.released.wait(0.2):
                self.wfile.write(b" ")
        except OSError:
            return


@contextmanager
def a_provider() -> Iterator[OpenIdProvider]:
    """A provider on a free port, without any people."""

    class Handler(_Handler):
        pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider = OpenIdProvider(f"http://127.0.0.1:{server.server_port}")
    Handler.provider, Handler.server_side = provider, _Server(provider)
    thread = threading.Thread(target=server.serve_forever, args=[0.01], name="openid provider", daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        provider.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


__all__ = ["CLIENT", "SECRET", "OpenIdProvider", "a_provider"]
