"""A real SMTP server with TLS that receives notifications. A test can make it refuse a mail, hang,
or lose an answer.
"""

from __future__ import annotations

import asyncio
import email
import ssl
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session

from tests.ports import a_port
from tests.repositories import run

USER, PASSWORD = "arkqueue", "a password"


@dataclass
class MailServer:
    """A mail server. ``answers``: the answers to the next mails; after them the server accepts
    every mail. ``refused``: addresses that the server does not know. ``greylisted``: addresses that
    it accepts only at the second attempt. ``farewells``: the number of sessions that ended with
    QUIT.
    """

    address: str
    certificate: Path
    mails: list[EmailMessage] = field(default_factory=list)
    tried: list[EmailMessage] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    greylisted: set[str] = field(default_factory=set)
    encrypted: list[bool] = field(default_factory=list)
    farewells: int = 0


class _Handler:
    def __init__(self, known: MailServer) -> None:
        self._known = known

    async def handle_RCPT(self, _: SMTP, __: Session, envelope: Envelope, address: str, ___: list[str]) -> str:
        if address in self._known.refused:
            return "550 5.1.1 no such user \x1b[31m here"
        if address in self._known.greylisted:
            self._known.greylisted.discard(address)
            return "451 4.7.1 greylisted, try again later"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_QUIT(self, _: SMTP, __: Session, ___: Envelope) -> str:
        self._known.farewells += 1
        return "221 Bye"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        assert isinstance(envelope.content, bytes)
        mail = email.message_from_bytes(envelope.content, policy=default)
        assert isinstance(mail, EmailMessage)
        self._known.tried.append(mail)
        answer = self._known.answers.pop(0) if self._known.answers else "250 OK"
        if answer == "hang":
            await asyncio.sleep(3600)
        if answer == "lose":
            # The server has stored the mail, but the client gets no answer.
            self._known.mails.append(mail)
            server.transport.abort()
            return "250 OK"
        if answer.startswith("250"):
            self._known.encrypted.append(session.ssl is not None)
            self._known.mails.append(mail)
        return answer


def _check(_: SMTP, __: Session, ___: Envelope, ____: str, data: Any) -> AuthResult:
    return AuthResult(success=(data.login, data.password) == (USER.encode(), PASSWORD.encode()), handled=False)


@contextmanager
def a_mail_server(folder: Path, *, implicit_tls: bool = False, name: str = "localhost") -> Iterator[MailServer]:
    """A server on the loopback interface that requires a password and TLS: STARTTLS, or TLS from
    the first byte as at port 465. ``name``: the host name in its certificate.
    """
    certificate, key = folder / "mail-certificate.pem", folder / "mail-key.pem"
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}",
        "-addext", f"subjectAltName=DNS:{name}", "-keyout", key, "-out", certificate)  # fmt: skip
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    with a_port() as port:
        known = MailServer(f"localhost:{port}", certificate)
        tls: dict[str, Any] = {"tls_context": context, "require_starttls": True}
        if implicit_tls:
            tls = {"ssl_context": context, "auth_require_tls": False}
        with warnings.catch_warnings():
            # The SMTP library does not know about the TLS around it, and warns at each connection.
            warnings.filterwarnings("ignore", message="Requiring AUTH while not requiring TLS")
            server = Controller(
                _Handler(known), hostname="127.0.0.1", port=port, authenticator=_check, auth_required=True, **tls
            )
            server.start()
            try:
                yield known
            finally:
                server.stop()


@contextmanager
def an_open_mail_server() -> Iterator[MailServer]:
    """A server that offers no TLS and accepts every mail."""
    with a_port() as port:
        known = MailServer(f"localhost:{port}", Path())
        server = Controller(_Handler(known), hostname="127.0.0.1", port=port)
        server.start()
        try:
            yield known
        finally:
            server.stop()
