"""Who opens a Subversion repository, and under which URL. Called by `subversion` only."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import subvertpy
from subvertpy import SubversionException, subr

from arkqueue.errors import ArchiveUnreachable
from arkqueue.repository.location import Location, local_path
from arkqueue.repository.subversion.library import ra


def session_url(location: Location) -> str:
    """The URL as libsvn wants it, of a path too."""
    path = local_path(location)
    url: str = subr.uri_canonicalize("file://" + quote(os.path.abspath(path)) if path is not None else location.url)
    return url


def connected(location: Location, auth: Any) -> Any:
    """A session. Where a server says that the repository has moved for good, libsvn answers with none, and each call of it would end this process."""
    session = ra.RemoteAccess(session_url(location), auth=auth)
    if session.corrected_url:
        raise ArchiveUnreachable(
            location.shown,
            f"its server says that it has moved to {session.corrected_url}",
            "Have the server answer at the old URL, or remove the archive and add it at the new one.",
        )
    return session


def begin_commit(location: Location, auth: Any) -> None:
    """Begin a commit and give it up, so that the server asks who commits."""
    with suppress(SubversionException):  # it does not let us; the task will see
        connected(location, auth).get_commit_editor({"svn:log": ""}, lambda *_: None).abort()


def credentials(location: Location, realms: list[str] | None = None) -> Any:
    """Those of the configuration, which libsvn does not store; else those that this host's user keeps. Nobody is asked.

    ``realms`` gets the names under which servers asked for a password.
    """
    name, password = location.username or "", location.password
    if password is not None:

        def given(realm: str | bytes, _username: object, _may_save: object) -> tuple[str, str, bool]:
            if realms is not None:
                realms.append(realm.decode() if isinstance(realm, bytes) else realm)
            return name, password, False

        passwords = ra.get_simple_prompt_provider(given, 0)
    else:
        passwords = ra.get_simple_provider()
    auth = ra.Auth(
        [
            ra.get_username_provider(),
            passwords,
            ra.get_ssl_server_trust_file_provider(),
            ra.get_ssl_client_cert_file_provider(),
            ra.get_ssl_client_cert_pw_file_provider(),
        ]
    )
    if name:
        auth.set_parameter(subvertpy.AUTH_PARAM_DEFAULT_USERNAME, name)
    return auth
