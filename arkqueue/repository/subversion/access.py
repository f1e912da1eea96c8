"""Opens connections to Subversion repositories, with the right URL and credentials. Called by
`subversion` only.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import subvertpy
from subvertpy import SubversionException, client, subr, wc

from arkqueue.errors import ArchiveUnreachable
from arkqueue.repository.location import Location, local_path
from arkqueue.repository.subversion.library import ra

Server = tuple[str, str, int]
"""The scheme, host and port of a server."""
_PORTS = {"http": 80, "https": 443, "svn": 3690}
_REALM = re.compile(r"<([a-z+]+)://\[?([^<>]*?)\]?:(\d+)>")
"""Matches the beginning of libsvn's realm, before its name."""
_realms: ContextVar[list[str] | None] = ContextVar("realms", default=None)
"""The list that `realms_asked` fills. libsvn asks for passwords in the thread that called it."""


def session_url(location: Location) -> str:
    """The URL of a location in libsvn's form, also for a path."""
    path = local_path(location)
    url: str = subr.uri_canonicalize("file://" + quote(os.path.abspath(path)) if path is not None else location.url)
    return url


def connected(location: Location, auth: Any) -> Any:
    """A session. If a server says that the repository has moved for good, libsvn returns no
    session, and each call on it would end this process. So that is refused.
    """
    session = ra.RemoteAccess(session_url(location), auth=auth)
    if session.corrected_url:
        raise _moved(location, session.corrected_url)
    return session


def check_out(location: Location, auth: Any, path: Path, revision: int, peg: int) -> None:
    """Make a working copy without externals. If it came from another place, it is removed.

    libsvn's client has sessions of its own, and each of them follows a server that says that the
    repository has moved.
    """
    client.Client(auth=auth).checkout(session_url(location), str(path), revision, peg, True, ignore_externals=True)
    check_place(location, path)


def check_place(location: Location, path: Path) -> None:
    """Raise `ArchiveUnreachable`, and remove a working copy, if it is not a copy of its location."""
    found = wc.Context().status(str(path))
    url = f"{found.repos_root_url}/{quote(found.repos_relpath)}".rstrip("/")
    if unquote(url) != unquote(session_url(location)):
        shutil.rmtree(path)
        raise _moved(location, url)


def _moved(location: Location, to: str) -> ArchiveUnreachable:
    return ArchiveUnreachable(
        location.shown,
        f"its server says that it has moved to {to}",
        "Have the server answer at the old URL, or remove the archive and add it at the new one.",
    )


def begin_commit(location: Location, auth: Any) -> None:
    """Begin a commit and abort it, so that the server asks for credentials."""
    with suppress(SubversionException):  # the server refuses; the task's own commit will show that
        connected(location, auth).get_commit_editor({"svn:log": ""}, lambda *_: None).abort()


def credentials(location: Location) -> Any:
    """The configured credentials, which libsvn does not store, or those that this host's user has
    stored. Never asks a person.
    """
    name, password = location.username or "", location.password
    passwords = _passwords_kept() if password is None else _passwords_given(name, password, _server_of(location.url))
    auth = ra.Auth([passwords, *_other_providers()])
    if name:
        auth.set_parameter(subvertpy.AUTH_PARAM_DEFAULT_USERNAME, name)
    return auth


@contextmanager
def realms_asked() -> Iterator[list[str]]:
    """The realms for which servers ask this thread for a configured password inside the ``with``
    block, in order.
    """
    realms: list[str] = []
    token = _realms.set(realms)
    try:
        yield realms
    finally:
        _realms.reset(token)


def _server_of(url: str) -> Server:
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or _PORTS.get(parts.scheme, 0)


# Providers are made once in a process and shared by all sessions. `ra.Auth` of subvertpy 0.11.1
# never frees a provider: its constructor takes each one by `PySequence_GetItem` and does not drop
# that reference. A provider takes 5 kB, and each session needs five. A provider has no state
# between two sessions (the `Auth` keeps the answers), so threads can share it.


@cache
def _other_providers() -> tuple[Any, ...]:
    """The providers of all credentials other than passwords."""
    return (
        ra.get_username_provider(),
        ra.get_ssl_server_trust_file_provider(),
        ra.get_ssl_client_cert_file_provider(),
        ra.get_ssl_client_cert_pw_file_provider(),
    )


@cache
def _passwords_kept() -> Any:
    """The provider of the passwords that this host's user has stored."""
    return ra.get_simple_provider()


@cache
def _passwords_given(name: str, password: str, server: Server) -> Any:
    """The provider of a configured password. The configuration is read once, so there are only a
    few.

    It gives the password to its own server only. If that server says that the repository has moved,
    libsvn asks for another server, which gets an empty password.
    """

    def answer(asked: str | bytes, _username: object, _may_save: object) -> tuple[str, str, bool]:
        realm = asked.decode() if isinstance(asked, bytes) else asked
        named = _REALM.match(realm)
        if named is None or (named[1], named[2].lower(), int(named[3])) != server:
            return "", "", False
        if (realms := _realms.get()) is not None:
            realms.append(realm)
        return name, password, False

    return ra.get_simple_prompt_provider(answer, 0)
