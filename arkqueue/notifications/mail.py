"""Sends a notification as a mail: plain text, to one receiver, by SMTP with TLS.

Each try has the same ``Message-ID``, so that mail programs show a repeated mail once. Texts of
strangers are only in the body and in the subject, which is one line.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import TYPE_CHECKING

import anyio

from arkqueue.config import Configuration
from arkqueue.config.receivers import Mail, address_of, is_mail_address, read_key
from arkqueue.errors import ConfigurationError
from arkqueue.model import AUTHOR
from arkqueue.notifications.message import Message, Shown
from arkqueue.notifications.sending import NotSent, within_time
from arkqueue.plan.globs import matches
from arkqueue.text import one_line

if TYPE_CHECKING:
    import aiosmtplib

GOODBYE = 2.0
"""The most seconds for closing a connection after the server has the mail."""
NOBODY = "the author of the commit"
"""Stands for the address of an author who has none."""
NOT_ALLOWED = "is not an address that [mail] recipients of arkqueue.toml allows"


def why_not(configuration: Configuration, message: Message) -> str:
    """The reason why the author of a commit gets no mail; empty: the author gets it, or the receiver
    is somebody else. Anybody may commit, so an author without an allowed address is no fault.
    """
    to = address_of(message.author)
    if message.delivery.receiver != AUTHOR or configuration.mail is None or _is_allowed(configuration.mail, to):
        return ""
    return f"{to or NOBODY}: {NOT_ALLOWED}"


def _is_allowed(mail: Mail, to: str) -> bool:
    return is_mail_address(to) and matches(mail.recipients, to.lower())


def send(configuration: Configuration, message: Message) -> None:
    """Mail a notification; raises `NotSent` or `ConfigurationError`."""
    if (mail := configuration.mail) is None:
        raise ConfigurationError("mail", "no [mail] of arkqueue.toml says how it is sent", "Add it.")
    to = message.delivery.receiver
    if to == AUTHOR:
        to = address_of(message.author)
    if not _is_allowed(mail, to):
        raise ConfigurationError(to or NOBODY, NOT_ALLOWED, "Add a glob for it there, or name another receiver.")
    password = (
        read_key(mail.password_file, "the password for mail").decode("utf-8", "replace") if mail.password_file else None
    )
    written = mail_of(mail, message, to, configuration.pages_url)
    within_time(mail.server, lambda: _send(mail, written, to, password))


def mail_of(mail: Mail, message: Message, to: str, pages_url: str) -> EmailMessage:
    """The mail of a notification. ``pages_url``: the address of the installation."""
    domain = mail.sender.rpartition("@")[2]
    installation = hashlib.sha256(pages_url.encode()).hexdigest()[:12]
    written = EmailMessage(policy=SMTP)
    written["From"] = f"arkqueue <{mail.sender}>"
    written["To"] = to
    written["Subject"] = f"[{message.archive}] {one_line(message.title, 200)}"
    written["Date"] = format_datetime(datetime.now(UTC))
    written["Message-ID"] = f"<delivery-{message.delivery.name}@{domain}>"
    # So that mail programs show the mails of a run together, and those of no other installation.
    of_run = f"archive-{message.delivery.archive}-run-{message.delivery.run}"
    written["References"] = f"<{of_run}.{installation}@{domain}>"
    written["Auto-Submitted"] = "auto-generated"
    written.set_content("\n".join(_lines(message)) + "\n")
    return written


def _lines(message: Message) -> Iterator[str]:
    yield message.title
    if run := message.run:
        yield ""
        yield f"  {one_line(run.message, 200)}"
        yield f"  {one_line(run.author, 200)}, {run.date:%Y-%m-%d %H:%M %Z}"
    if message.what:
        yield ""
        yield f"  {message.what}"
    for fault in message.faults:
        yield ""
        yield f"  {fault}"
    for task in message.tasks:
        yield ""
        yield _said(task)
        yield from (f"  | {line}" for line in task.lines)
    if message.more:
        yield ""
        yield f"and {message.more} more"
    if message.others:
        yield ""
        yield from (f"  {line}" for line in message.others)
    yield ""
    yield "What helps:" if message.helps else "To see more:"
    yield from (f"  {command}" for command in message.commands)
    yield ""
    yield message.url
    yield ""
    yield "-- "
    yield f"arkqueue archive show {message.archive} says who gets notifications of this archive."


def _said(task: Shown) -> str:
    more = "; ".join(part for part in (task.why, task.message) if part)
    return f"{task.name}: {task.state}" + (f" ({more})" if more else "")


async def _send(mail: Mail, written: EmailMessage, to: str, password: str | None) -> None:
    import aiosmtplib  # only where mail is sent

    host, _, port = mail.server.rpartition(":")
    context = None if mail.tls == "none" else ssl.create_default_context(cafile=mail.ca_file)
    # Step by step: the connection of a step that fails is left open, to be aborted below.
    client = aiosmtplib.SMTP(
        hostname=host.strip("[]"), port=int(port), tls_context=context, use_tls=mail.tls == "tls", start_tls=False, timeout=None,
    )  # fmt: skip
    try:
        await client.connect()
        if mail.tls == "starttls":
            await client.starttls(tls_context=context)
        if password is not None:
            await client.login(mail.username, password)
        try:
            await client.send_message(written, sender=mail.sender, recipients=[to])
        except (aiosmtplib.SMTPResponseException, aiosmtplib.SMTPRecipientsRefused):
            await _quit(client)  # a server that refuses hears that as well
            raise
        await _quit(client)
    except aiosmtplib.SMTPRecipientsRefused as error:
        raise NotSent(mail.server, f"refuses {to}: {_words(error.recipients[0])}") from None
    except aiosmtplib.SMTPAuthenticationError as error:
        raise NotSent(mail.server, f"refuses the password: {_words(error)}", is_silent=True) from None
    except aiosmtplib.SMTPResponseException as error:
        raise NotSent(mail.server, f"refuses the mail: {_words(error)}", is_silent=error.code == 421) from None
    except (aiosmtplib.SMTPException, ssl.SSLError, OSError) as error:
        fault = f"cannot be reached: {one_line(str(error) or type(error).__name__, 300)}"
        raise NotSent(mail.server, fault, is_silent=True) from None
    finally:
        if isinstance(client.transport, asyncio.WriteTransport):
            client.transport.abort()


async def _quit(client: aiosmtplib.SMTP) -> None:
    """Send QUIT, as SMTP requires. Its failure is ignored."""
    import aiosmtplib

    with suppress(aiosmtplib.SMTPException, OSError), anyio.move_on_after(GOODBYE):
        await client.execute_command(b"QUIT")


def _words(error: object) -> str:
    return one_line(f"{getattr(error, 'code', '')} {getattr(error, 'message', error)}".strip(), 300)
