"""The connection to a Subversion repository (libsvn, bound by subvertpy), and the check that it is
the known repository.

A scan opens a local repository anew if its fingerprint has changed, because another repository may
have taken its place. Opening takes 60 µs, and the first read half a millisecond. `stat` of a path
that does not exist crashes the process, so `check_path` comes first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from subvertpy import SubversionException

from arkqueue.errors import ArchiveMismatch, ArchiveUnreachable
from arkqueue.model import ArchiveKind, Revision
from arkqueue.repository import Known
from arkqueue.repository.location import Identity, Location, local_path
from arkqueue.repository.subversion.access import connected, credentials
from arkqueue.repository.subversion.faults import NO_SUCH_REVISION, codes_of, explained
from arkqueue.repository.subversion.fingerprint import fingerprint
from arkqueue.repository.subversion.revisions import is_told, made, revision_of


class SubversionConnection:
    """Reads one repository, or a folder of it, through one connection at a time."""

    def __init__(self, location: Location) -> None:
        self._location = location
        path = local_path(location)
        self._is_local = path is not None
        self._path = os.path.abspath(path) if path is not None else ""
        self.fingerprint: bytes | None = None
        """The fingerprint of a local repository from before the last call of `heads`."""
        self._fingerprint: bytes | None = None
        """The fingerprint of a local repository from before the connection was made."""
        self._connection: Any = None
        self._identity = Identity(ArchiveKind.SUBVERSION, "")
        """The identity that the connection reported; empty before the first connection."""

    def identity(self) -> Identity:
        with self._session(fresh=True):
            return self._identity

    @contextmanager
    def _session(self, *, fresh: bool = False) -> Iterator[Any]:
        """The connection, dropped after any error. ``fresh``: at the beginning of a scan, it is
        proved to belong to the present repository, or made again.
        """
        try:
            if fresh and self._connection is not None and not self._is_still_there():
                self._connection = None
            if self._connection is None:
                if self._is_local:
                    self._fingerprint = fingerprint(self._path)
                connection = connected(self._location, credentials(self._location))
                self._identity = self._identify(connection)
                self._connection = connection
            yield self._connection
        except SubversionException as error:
            self._connection = None
            raise explained(self._location.shown, error) from error
        except BaseException as error:
            self._connection = None
            if isinstance(error, OSError) and (fault := error.strerror or "").startswith("Can't "):
                # libsvn's error for a file of the repository, on this host or at its server.
                remedy = "Bring it back where the repository lies, or make it readable."
                raise ArchiveUnreachable(self._location.shown, fault, remedy) from error
            if isinstance(error, SystemError) and error.__cause__ is not None:
                raise error.__cause__ from None  # an editor's error, which subvertpy has wrapped
            raise

    def _is_still_there(self) -> bool:
        if self._is_local:
            return self._fingerprint is not None and fingerprint(self._path) == self._fingerprint
        try:
            self._connection.get_latest_revnum()
        except (SubversionException, OSError):
            return False
        return True

    def _connected(self) -> Any:
        """A new connection to the repository in its present state."""
        connection = connected(self._location, credentials(self._location))
        self._identify(connection)
        return connection

    def _identify(self, session: Any) -> Identity:
        """The identity of a new connection, asked for before everything else, so that no data of
        another repository is used.
        """
        root, uuid = session.get_repos_root(), session.get_uuid()
        expected = self._location.uuid or self._identity.uuid
        if expected and uuid != expected:
            raise self._mismatch(f"is another repository now: its UUID is {uuid}, not {expected}")
        folder = unquote(session.get_session_url()[len(root) :]).strip("/")
        return Identity(ArchiveKind.SUBVERSION, root, uuid, folder)

    def _properties(self, session: Any, number: int, recorded: Revision | None = None) -> Mapping[str, bytes]:
        """The properties of a revision. Raises ArchiveMismatch if it is not the one that the ledger
        has under its number.
        """
        try:
            properties: Mapping[str, bytes] = session.rev_proplist(number)
        except SubversionException as error:
            if recorded is None or NO_SUCH_REVISION not in codes_of(error):
                raise
            raise self._mismatch(f"has no revision {number} any more, but it is known") from error
        if recorded is not None and is_told(recorded):
            self._compare(revision_of(number, properties), recorded)
        return properties

    def _compare(self, now: Revision, known: Known) -> None:
        """Raise ArchiveMismatch if the author or the date of a revision is not the known one."""
        if (now.author, now.date) != (known.author, known.date):
            raise self._mismatch(
                f"has another revision {known.id} ({made(now)}) than the one that is known ({made(known)})",
                also=f". If only its author or date was corrected, and its files are unchanged (their contents are not compared): arkqueue archive accept NAME@{known.id}",
            )

    def _mismatch(self, fault: str, also: str = "") -> ArchiveMismatch:
        """``also``: the end of the remedy."""
        remedy = "Bring the right one back, then: arkqueue sync NAME; if it is meant to be as it is now: arkqueue archive rewind NAME REV"
        return ArchiveMismatch(self._location.shown, fault, remedy + also)

    @contextmanager
    def _at(self, session: Any, url: str) -> Iterator[None]:
        """The session at another folder inside the ``with`` block. After an error it is dropped
        anyway.
        """
        home = session.get_session_url()
        if url != home:
            session.reparent(url)
        yield
        if url != home:
            session.reparent(home)
