"""Subversion archives, read through one connection to the repository (libsvn, bound by subvertpy).

The ledger holds the revisions that touch the archive's folder (design 1): they are found in the log of the whole
repository, as the log of a folder would follow its history through copies and miss what a deletion cut off. Where the
folder is the root, every revision counts.

Two traps of the library are kept here. libsvn caches what it read from local repositories for the whole process, by
path and UUID: after a backup was restored it would go on to answer from the lost future; so that cache is switched off
and every look opens a local repository anew (50 µs). And `stat` of a path that does not exist crashes the process:
`check_path` comes first.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import subvertpy
from subvertpy import SubversionException, client, subr

# Not subvertpy.ra: its RemoteAccess only looks at the scheme, by a function that Python is about to drop.
from subvertpy import _ra as ra

from arkqueue.archive import TOO_LONG, WORKFLOWS, Advance, is_workflow_file, within_calendar
from arkqueue.archive.location import Identity, Location, local_path
from arkqueue.archive.origin import PROPERTY, install_subversion_commands, parse_origin
from arkqueue.archive.subversion_faults import UNREADABLE, codes_of, explained
from arkqueue.archive.subversion_tree import DifferenceEditor, ExportEditor, finish_file
from arkqueue.archive.tree import TreeWriter, outermost
from arkqueue.errors import ArchiveMismatch, Invalid, NotFound, WorkspaceError
from arkqueue.model import ArchiveKind, Origin, Revision, SourceFile

_CHUNK = 1000
"""Revisions of the log that are read at a time."""

_REVISION_PROPERTIES = ["svn:author", "svn:date", "svn:log", PROPERTY]


class SubversionArchive:
    """An `Archive` of a Subversion repository or a folder of it."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._url = _session_url(location)
        self._is_local = local_path(location) is not None
        self._connection: Any = None
        self._identity = Identity(ArchiveKind.SUBVERSION, "")
        """As the connection tells it; empty before the first one."""
        self._searched = (0, 0)
        """After which revision, and up to which, nothing touches the folder: quiet archives are not searched again."""

    # Registration and looks

    def identity(self) -> Identity:
        with self._session(fresh=True):
            return self._identity

    def main_branch(self) -> str:
        return ""

    def heads(self, branches: Sequence[str] = ()) -> dict[str, str]:  # noqa: ARG002  Subversion has one branch
        with self._session(fresh=True) as session:
            return {"": str(session.get_latest_revnum())}

    def baseline(self, branch: str, at: str | None = None) -> Revision | None:  # noqa: ARG002
        """At a folder: the last revision up to ``at`` that touches it, else (before it existed) ``at`` itself."""
        with self._session(fresh=True) as session:
            head = session.get_latest_revnum()
            number = head if at is None or at.upper() == "HEAD" else _number(at.removeprefix("r"), self._location.shown)
            if number > head:
                raise NotFound(self._location.shown, f"has no revision {number}", f"The youngest is {head}.")
            folder = self._identity.folder
            if session.check_path("", number) != subvertpy.NODE_DIR:
                if at is None:
                    raise NotFound(self._location.shown, f"is no folder of revision {number}", "Check the URL.")
            elif folder:
                found: list[int] = []
                session.get_log(lambda _, revision, *__: found.append(revision), [""], number, 0, 1)
                number = found[0] if found else number
            return _revision(number, session.rev_proplist(number))

    def has(self, revision: str) -> bool:
        """Also a revision that does not touch the archive's folder."""
        try:
            number = _number(revision, self._location.shown)
        except NotFound:
            return False
        with self._session(fresh=True) as session:
            return bool(number <= session.get_latest_revnum())

    def check_known(self, known: Revision) -> None:
        with self._session(fresh=True) as session:
            head = session.get_latest_revnum()
            if head < known.number:
                raise self._mismatch(f"has only {head} revisions, but {known.number} is known")
            now = _revision(known.number, session.rev_proplist(known.number))
            if (now.author, now.date) != (known.author, known.date):
                raise self._mismatch(
                    f"has another revision {known.number} (by {now.author or 'nobody'} at {now.date:%F %T}) than the one "
                    f"that is known (by {known.author or 'nobody'} at {known.date:%F %T})",
                )

    # The ledger

    def advance(
        self,
        branch: str,  # noqa: ARG002
        known: Revision | None,
        new_head: str,
        *,
        limit: int = 1000,
        siblings: Mapping[str, str] | None = None,  # noqa: ARG002
    ) -> Advance:
        after, head = known.number if known else 0, _number(new_head, self._location.shown)
        if head < after:
            raise self._mismatch(f"is at revision {head}, but {after} is known")
        searched_after, searched = self._searched
        start = max(after, searched if searched_after == after else 0) + 1
        found: list[Revision] = []
        with self._session() as session:
            folder = self._identity.folder
            while start <= head and len(found) <= limit:
                end = min(head, start + _CHUNK - 1)
                found += self._log(session, folder, start, end)
                start = end + 1
        if not found:
            self._searched = (after, head)
        return Advance(revisions=tuple(found[:limit]), complete=len(found) <= limit)

    def _log(self, session: Any, folder: str, start: int, end: int) -> list[Revision]:
        found = []

        def receive(
            changed: Mapping[str, Any] | None, number: int, properties: Mapping[str, bytes], *_: object
        ) -> None:
            if not folder or _touches(changed or {}, "/" + folder):
                found.append(_revision(number, properties))

        home = session.get_session_url()
        try:
            with self._at(session, self._identity.repository):
                # To see a parent of the folder move, all changed paths are needed; the root needs none.
                session.get_log(receive, [""], start, end, 0, bool(folder), revprops=_REVISION_PROPERTIES)
        except SubversionException as error:
            if not folder or codes_of(error).isdisjoint(UNREADABLE):
                raise
            # Who may read nothing but the folder has its own history, which knows no time before a deletion.
            session.reparent(home)
            session.get_log(receive, [""], start, end, 0, True, revprops=_REVISION_PROPERTIES)
        return found

    # One revision

    def workflows_key(self, revision_id: str) -> str:
        """Where the folder's node was made: its own path and revision, whatever copies it came through."""
        number = _number(revision_id, self._location.shown)
        with self._session() as session:
            if session.check_path(WORKFLOWS, number) != subvertpy.NODE_DIR:
                return ""
            made = session.stat(WORKFLOWS, number)["created_rev"]
            path = session.get_locations(WORKFLOWS, number, [made]).get(made, "")
            return f"{path}@{made}"

    def read_workflows(self, revision_id: str) -> tuple[SourceFile, ...]:
        number = _number(revision_id, self._location.shown)
        with self._session() as session:
            if session.check_path(WORKFLOWS, number) != subvertpy.NODE_DIR:
                return ()
            files = []
            entries, _, _ = session.get_dir(WORKFLOWS, number, ra.DIRENT_KIND | ra.DIRENT_SIZE)
            for name in sorted(entries):
                if entries[name]["kind"] != subvertpy.NODE_FILE or not is_workflow_file(name):
                    continue
                path = f"{WORKFLOWS}/{name}"
                if entries[name]["size"] >= len(TOO_LONG):
                    files.append(SourceFile(path, TOO_LONG))
                    continue
                text = BytesIO()
                _, properties = session.get_file(path, text, number)
                if "svn:special" not in properties:  # a symlink
                    files.append(SourceFile(path, text.getvalue()))
            return tuple(files)

    def changed_paths(self, previous: str | None, revision_id: str) -> tuple[str, ...]:
        number = _number(revision_id, self._location.shown)
        before = None if previous is None else _number(previous, self._location.shown)
        with self._session() as session:
            exists = session.check_path("", number) == subvertpy.NODE_DIR
            if before is None or session.check_path("", before) != subvertpy.NODE_DIR:
                return tuple(sorted(self._files(session, "", number))) if exists else ()
            if not exists:
                return tuple(sorted(self._files(session, "", before)))
            editor = DifferenceEditor()
            reporter = session.do_diff(number, "", session.get_session_url(), editor, True, True, False)
            reporter.set_path("", before, False)
            reporter.finish()
            changed = editor.changed
            for path in editor.deleted:
                if session.check_path(path, before) == subvertpy.NODE_DIR:
                    changed.update(self._files(session, path, before))
                else:
                    changed.add(path)
            return tuple(sorted(changed))

    def _files(self, session: Any, folder: str, number: int) -> set[str]:
        """Every file of a folder, in one request: the difference to an empty one."""
        editor = DifferenceEditor(folder)
        url = session.get_session_url() + (f"/{quote(folder)}" if folder else "")
        with self._at(session, url):
            reporter = session.do_diff(number, "", session.get_session_url(), editor, True, True, False)
            reporter.set_path("", number, True)
            reporter.finish()
        return editor.changed

    def export(self, revision_id: str, target: Path, paths: Sequence[str] = ()) -> None:
        number = _number(revision_id, self._location.shown)
        with self._session(fresh=True) as session:
            writer = TreeWriter(target)
            for path in outermost(paths) if paths else [""]:
                if ".." in path.split("/"):
                    raise Invalid(path, "leads out of the archive", "Correct the path.")
                kind = session.check_path(path, number)
                if kind == subvertpy.NODE_DIR:
                    self._export_folder(session, path, number, writer)
                elif kind == subvertpy.NODE_FILE and path:
                    name = path.encode()
                    with writer.create(name) as file:
                        _, properties = session.get_file(path, file, number)
                    finish_file(writer, name, properties)
                else:
                    raise NotFound(path or self._location.shown, f"is not in revision {number}", "Correct the path.")

    def _export_folder(self, session: Any, path: str, number: int, writer: TreeWriter) -> None:
        url = session.get_session_url() + (f"/{quote(path)}" if path else "")
        with self._at(session, url):
            reporter = session.do_update(number, "", True, ExportEditor(writer, path))
            reporter.set_path("", number, True)
            reporter.finish()

    def working_copy(
        self,
        revision_id: str,
        branch: str,  # noqa: ARG002
        target: Path,
        *,
        author: str,
        origin: Origin | None = None,
    ) -> Path | None:
        """The answer holds the ``svn`` that marks commits (see `origin`). A server asks the task for its own password."""
        number = _number(revision_id, self._location.shown)
        with self._session(fresh=True) as session:
            if session.check_path("", number) != subvertpy.NODE_DIR:
                raise NotFound(self._location.shown, f"has no revision {number}", "Check the revision.")
            try:
                target.mkdir(parents=True, exist_ok=True)
                if any(target.iterdir()):
                    raise WorkspaceError(str(target), "is not empty", "Empty it.")
                client.Client(auth=_credentials(self._location)).checkout(
                    self._url, str(target), number, number, True, ignore_externals=True
                )
                commands = target / ".svn" / "arkqueue"
                install_subversion_commands(commands, origin, author if self._is_local else None)
            except OSError as error:
                raise WorkspaceError(str(target), f"cannot be written ({error.strerror})") from error
            return commands

    # Below

    @contextmanager
    def _session(self, *, fresh: bool = False) -> Iterator[Any]:
        """The connection, dropped after any error. ``fresh``: where a look begins, it is proved alive, or made anew."""
        try:
            if fresh and self._connection is not None:
                self._connection = None if self._is_local else _if_alive(self._connection)
            if self._connection is None:
                connection = ra.RemoteAccess(self._url, auth=_credentials(self._location))
                self._identity = self._identify(connection)
                self._connection = connection
            yield self._connection
        except SubversionException as error:
            self._connection = None
            raise explained(self._location.shown, error) from error
        except BaseException:
            self._connection = None
            raise

    def _identify(self, session: Any) -> Identity:
        """Asked of each new connection before all else, so that no other repository's data comes through."""
        root, uuid = session.get_repos_root(), session.get_uuid()
        expected = self._location.uuid or self._identity.uuid
        if expected and uuid != expected:
            raise self._mismatch(f"is another repository now: its UUID is {uuid}, not {expected}")
        folder = unquote(session.get_session_url()[len(root) :]).strip("/")
        return Identity(ArchiveKind.SUBVERSION, root, uuid, folder)

    def _mismatch(self, fault: str) -> ArchiveMismatch:
        remedy = "Bring the right one back; if it is meant to be as it is now: arkqueue archive rewind NAME REV"
        return ArchiveMismatch(self._location.shown, fault, remedy)

    @contextmanager
    def _at(self, session: Any, url: str) -> Iterator[None]:
        """The session at another folder for a while; after an error it is dropped anyway."""
        home = session.get_session_url()
        if url != home:
            session.reparent(url)
        yield
        if url != home:
            session.reparent(home)


def _if_alive(session: Any) -> Any:
    try:
        session.get_latest_revnum()
    except SubversionException:
        return None
    return session


def _session_url(location: Location) -> str:
    path = local_path(location)
    url: str = subr.uri_canonicalize("file://" + quote(os.path.abspath(path)) if path is not None else location.url)
    return url


def _credentials(location: Location) -> Any:
    """Those of the configuration, which libsvn does not store; else those that this host's user keeps. Nobody is asked."""
    name, password = location.username or "", location.password
    if password is not None:
        passwords = ra.get_simple_prompt_provider(lambda _realm, _username, _may_save: (name, password, False), 0)
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


def _number(id: str, thing: str) -> int:
    if not id.isascii() or not id.isdigit() or len(id) > 9:
        raise NotFound(thing, f"has no revision {id!r}", "A Subversion revision is a number.")
    return int(id)


def _revision(number: int, properties: Mapping[str, bytes]) -> Revision:
    def text(name: str) -> str:
        return (properties.get(name) or b"").decode(errors="replace").replace("\0", "\ufffd")

    try:
        date = datetime.fromisoformat(text("svn:date"))
    except ValueError:  # removed, or never there
        date = datetime.fromtimestamp(0, UTC)
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return Revision(
        str(number), number, text("svn:author"), within_calendar(date), text("svn:log"), parse_origin(text(PROPERTY))
    )


def _touches(changed: Mapping[str, Any], folder: str) -> bool:
    """Whether a revision changes the folder, something in it, or moves, copies, replaces or deletes a parent of it."""
    for path, (action, copied_from, *_) in changed.items():
        if path == folder or path.startswith(folder + "/"):
            return True
        if folder.startswith(path.rstrip("/") + "/") and (action in "DR" or (action == "A" and copied_from)):
            return True
    return False


class _CacheConfiguration(ctypes.Structure):
    """svn_cache_config_t"""

    _fields_ = (("size", ctypes.c_uint64), ("file_handles", ctypes.c_size_t), ("single_threaded", ctypes.c_int))


def _switch_off_process_cache() -> None:
    """See the top of this file. It must happen before the process opens its first local repository."""
    library = ctypes.CDLL(ra.__file__)
    library.svn_cache_config_get.restype = ctypes.POINTER(_CacheConfiguration)
    now = library.svn_cache_config_get().contents
    library.svn_cache_config_set(ctypes.byref(_CacheConfiguration(0, now.file_handles, now.single_threaded)))


_switch_off_process_cache()
