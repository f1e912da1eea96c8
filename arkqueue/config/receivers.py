"""The destinations of notifications: hosts that get webhooks, the mail server, and the files with
their keys. Part of the configuration; the modules that send notifications read it.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from arkqueue.config.values import Strict, is_address
from arkqueue.errors import ConfigurationError


def origin_of(url: str) -> str:
    """The scheme, host and port of a URL, as in `Webhook.url`; empty if the URL names a user, or no
    host.
    """
    match = re.match(r"(https?://(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(?::\d{1,5})?)(?=/|\?|\Z)", url)
    return match[1].lower() if match else ""


def is_mail_address(text: str) -> bool:
    """Whether a text is one plain e-mail address: no name, no quotes, no list, and no route. Mail
    servers may forward ``ann%example.net@example.org`` and ``example.net!ann@example.org`` to
    ann@example.net.
    """
    plain = r"[A-Za-z0-9][A-Za-z0-9.#$&'*+/=?^_`{|}~-]{0,63}@[A-Za-z0-9][A-Za-z0-9.-]{0,188}"
    return re.fullmatch(plain, text) is not None


def address_of(author: str) -> str:
    """The e-mail address in a revision's author, ``Name <address>``; empty if there is none."""
    found = re.fullmatch(r"[^<>]{0,1000}<([^<>]{1,300})>\s*", author[:1500])
    return found[1] if found and is_mail_address(found[1]) else ""


def read_key(path: Path, what: str) -> bytes:
    """The key in a file that only its owner may read. It is read at each call, so that it can be
    changed without a restart. Raises ConfigurationError.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            key = file.read(4096).strip()
    except OSError as error:
        raise ConfigurationError(str(path), f"{what} cannot be read: {error.strerror}", "Correct its path.") from error
    if mode & 0o077:
        remedy = f"Close the file: chmod 600 {shlex.quote(str(path))}"
        raise ConfigurationError(str(path), f"others than its owner may use {what}", remedy)
    return key


class Webhook(Strict):
    """A host that archives may name as receivers of notifications, and the key that signs what is
    sent there.
    """

    url: str
    key_file: Path
    ca_file: Path | None = None
    """The certificates that must have signed that of the host; None: the usual ones."""

    @field_validator("url")
    @classmethod
    def _is_a_host(cls, value: str) -> str:
        if not re.fullmatch(r"https?://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(:\d{1,5})?/?", value):
            raise PydanticCustomError(
                "url", "is not a valid address of a host; write it like https://hooks.example.org"
            )
        return value.rstrip("/").lower()


class Mail(Strict):
    """How notifications are mailed, and to whom archives may have them mailed."""

    server: str
    """The host and the port."""
    tls: Literal["starttls", "tls", "none"] = "starttls"
    username: str = ""
    password_file: Path | None = None
    sender: str
    recipients: tuple[str, ...] = Field(min_length=1)
    """Globs of the allowed addresses, in small letters."""
    ca_file: Path | None = None
    """The certificates that must have signed that of the server; None: the system's."""

    @field_validator("server")
    @classmethod
    def _is_address(cls, value: str) -> str:
        if not is_address(value):
            raise PydanticCustomError("server", "is not a valid address; write it like smtp.example.org:587")
        return value

    @field_validator("recipients")
    @classmethod
    def _in_small_letters(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(glob.lower() for glob in value)

    @field_validator("sender")
    @classmethod
    def _is_mail_address(cls, value: str) -> str:
        if not is_mail_address(value):
            raise PydanticCustomError("sender", "is not a valid mail address; write it like queue@example.org")
        return value

    @model_validator(mode="after")
    def _hides_the_password(self) -> Self:
        host = self.server.rpartition(":")[0].strip("[]")
        if self.tls == "none" and host not in ("localhost", "127.0.0.1", "::1"):
            raise PydanticCustomError("tls", 'tls = "none" is for a server on this host only')
        if bool(self.username) != (self.password_file is not None):
            raise PydanticCustomError("password", "give both username and password_file, or neither")
        return self
