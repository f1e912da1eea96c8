"""Subversion archives, read through one connection to the repository (libsvn, bound by subvertpy).

The ledger holds the revisions that touch the archive's folder (design 1). They are found in the log
of the whole repository, because the log of a folder would follow its history through copies and
omit what a deletion cut off. If the folder is the root, every revision counts.

A scan opens a local repository anew if its fingerprint has changed, because another repository may
have taken its place. Opening takes 60 µs, and the first read half a millisecond. `stat` of a path
that does not exist crashes the process, so `check_path` comes first.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import subvertpy
from subvertpy import SubversionException

from arkqueue.errors import ArchiveMismatch, ArchiveUnreachable, Invalid, NotFound, WorkspaceError
from arkqueue.model import (
    LONGEST_LIST,
    MOST_ITEMS,
    ArchiveKind,
    ChangeStatus,
    Fault,
    FileChange,
    Item,
    Origin,
    Revision,
    SourceFile,
    TreeChange,
    Workflow,
)
from arkqueue.repository import (
    FOLDER_FOR_LIST,
    LINKED_LIST,
    LONG_LIST,
    NO_LIST,
    TOO_LONG,
    WORKFLOWS,
    Advance,
    Survey,
    is_workflow_file,
    limits,
    linked,
    no_folder,
)
from arkqueue.repository.changes import listed
from arkqueue.repository.credentials import Handover, hand_to_subversion
from arkqueue.repository.following.addresses import NoAddress
from arkqueue.repository.following.allowance import Allowance, Followed, Following
from arkqueue.repository.limits import (
    MOST_PATHS,
    PathBudget,
    TooManyPaths,
    check_bytes,
    check_files,
    too_many_workflows,
)
from arkqueue.repository.location import Identity, Location, local_path
from arkqueue.repository.origin import install_subversion_commands
from arkqueue.repository.subversion.access import (
    begin_commit,
    check_out,
    connected,
    credentials,
    realms_asked,
)
from arkqueue.repository.subversion.editors import DifferenceEditor, ExportEditor
from arkqueue.repository.subversion.export import check_size, contents, export
from arkqueue.repository.subversion.externals import ExternalsEditor
from arkqueue.repository.subversion.faults import NO_SUCH_REVISION, UNREADABLE, codes_of, explained
from arkqueue.repository.subversion.fingerprint import fingerprint
from arkqueue.repository.subversion.following import Checkout, Externals, address_at
from arkqueue.repository.subversion.library import ra
from arkqueue.repository.subversion.revisions import (
    PROPERTIES,
    is_there_around,
    is_told,
    made,
    number_of,
    paths_digest,
    revision_of,
    touches,
)
from arkqueue.repository.subversion.translation import Translation
from arkqueue.repository.subversion.tree_difference import ChangedInPlace, UpdateEditor
from arkqueue.repository.tree_update import TreeUpdate, another_now
from arkqueue.repository.tree_writer import Early, TreeWriter, outermost
from arkqueue.repository.unfollowed import externals

_CHUNK = 1000
"""The number of revisions that are read from the log at a time."""


_MOST_ARCHIVES = 1000

externals_known: dict[tuple[str, str], tuple[Revision, frozenset[str]]] = {}
"""The folders with externals of the revision that was last asked for, by UUID and URL. All threads
share it, because the first query reads all folders.
"""


class SubversionArchive:
    """An `Archive` of a Subversion repository or a folder of it."""

    def __init__(self, location: Location) -> None:
        self._location = location
        path = local_path(location)
        self._is_local = path is not None
        self._path = os.path.abspath(path) if path is not None else ""
        self._fingerprint: bytes | None = None
        """The fingerprint of a local repository from before the connection was made."""
        self._connection: Any = None
        self._identity = Identity(ArchiveKind.SUBVERSION, "")
        """The identity that the connection reported; empty before the first connection."""
        self._searched: tuple[int, Revision] | None = None
        """A range of revisions (after, up to) that do not touch the folder, so that quiet archives
        are not searched again.
        """

    # Registration and looks

    def identity(self) -> Identity:
        with self._session(fresh=True):
            return self._identity

    def main_branch(self, known: str | None = None) -> str:  # noqa: ARG002  there is only one branch
        return ""

    def heads(
        self,
        branches: Sequence[str] = (),  # noqa: ARG002  there is only one branch
        main: str | None = None,  # noqa: ARG002  there is only one branch
        known: Mapping[str, Revision] | None = None,  # noqa: ARG002  reading in place needs no such hint
    ) -> dict[str, str]:
        with self._session(fresh=True) as session:
            return {"": str(session.get_latest_revnum())}

    def check_gone(self, branch: str) -> None:
        """Nothing to do: the only branch always exists."""

    def baseline(self, branch: str, at: str | None = None, *, digests: bool = True) -> Revision | None:  # noqa: ARG002
        """For a folder: the last revision up to ``at`` that touches it; before it existed, ``at``
        itself.
        """
        with self._session(fresh=True) as session:
            head = session.get_latest_revnum()
            number = (
                head if at is None or at.upper() == "HEAD" else number_of(at.removeprefix("r"), self._location.shown)
            )
            if number > head:
                raise NotFound(self._location.shown, f"has no revision {number}", f"The youngest is {head}.")
            folder = self._identity.folder
            if session.check_path("", number) != subvertpy.NODE_DIR:
                if at is None:
                    raise NotFound(self._location.shown, f"is not a folder of revision {number}", "Check the URL.")
            elif folder:
                found: list[int] = []
                session.get_log(lambda _, revision, *__: found.append(revision), [""], number, 0, 1)
                number = found[0] if found else number
            if digests and (logged := self._log(session, number, number, digests=True)):
                return logged[0][0]
            return revision_of(number, session.rev_proplist(number))

    def has(self, revision: str) -> bool:
        """True also for a revision that does not touch the archive's folder."""
        try:
            number = number_of(revision, self._location.shown)
        except NotFound:
            return False
        with self._session(fresh=True) as session:
            return bool(number <= session.get_latest_revnum())

    def baselines(self, heads: Mapping[str, str]) -> dict[str, Revision]:
        found = {branch: self.baseline(branch) for branch in heads}
        return {branch: revision for branch, revision in found.items() if revision}

    def check_known(self, *known: Revision) -> None:
        with self._session(fresh=True) as session:
            head = session.get_latest_revnum()
            for revision in known:
                self._check_known(session, head, revision)

    def _check_known(self, session: Any, head: int, known: Revision) -> None:
        if head < known.number:
            raise self._mismatch(f"has only {head} revisions, but {known.number} is known")
        now = revision_of(known.number, session.rev_proplist(known.number))
        if is_told(now) and is_told(known):
            self._compare(now, known)

    def _compare(self, now: Revision, known: Revision) -> None:
        """Raise ArchiveMismatch if the author or the date of a revision is not the known one."""
        if (now.author, now.date) != (known.author, known.date):
            raise self._mismatch(
                f"has another revision {known.id} ({made(now)}) than the one that is known ({made(known)})",
                also=f". Only if somebody corrected its author or date and its files are what they were, whose contents are not compared: arkqueue archive accept NAME@{known.id}",
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
        digests: bool = True,
    ) -> Advance:
        after, head = known.number if known else 0, number_of(new_head, self._location.shown)
        if head < after:
            raise self._mismatch(f"is at revision {head}, but {after} is known")
        found: list[Revision] = []
        with self._session() as session:
            start = self._searched_up_to(session, after, head) + 1
            folder = self._identity.folder
            while start <= head and len(found) <= limit:
                end = min(head, start + _CHUNK - 1)
                logged = self._log(session, start, end, digests=digests)
                found += [one for one, touched in logged if touched or is_there_around(session, one.number)]
                start = end + 1
            if not found and folder:
                self._searched = after, revision_of(head, session.rev_proplist(head))
        return Advance(revisions=tuple(found[:limit]), complete=len(found) <= limit)

    def _searched_up_to(self, session: Any, after: int, head: int) -> int:
        """The last revision up to which the log was searched. After a backup was restored, the
        searched numbers may belong to other revisions, also when the repository has grown past
        them.
        """
        if self._searched is None or self._searched[0] != after or (last := self._searched[1]).number > head:
            return after
        return last.number if revision_of(last.number, session.rev_proplist(last.number)) == last else after

    def _log(self, session: Any, start: int, end: int, *, digests: bool) -> list[tuple[Revision, bool | None]]:
        """Revisions that touch the archive's folder. None: they may, as in `touches`."""
        folder = self._identity.folder
        found: list[tuple[Revision, bool | None]] = []

        def receive(
            changed: Mapping[str, Any] | None, number: int, properties: Mapping[str, bytes], *_: object
        ) -> None:
            is_touched = touches(changed or {}, "/" + folder) if folder else True
            if is_touched is not False:
                revision = revision_of(number, properties)
                if digests:
                    revision = replace(revision, paths_digest=paths_digest(changed or {}, folder))
                found.append((revision, is_touched))

        home = session.get_session_url()
        try:
            with self._at(session, self._identity.repository):
                # All changed paths are needed to see that a parent of the folder moves. For the
                # root, only digests need them.
                session.get_log(receive, [""], start, end, 0, bool(folder) or digests, revprops=PROPERTIES)
        except SubversionException as error:
            if not folder or codes_of(error).isdisjoint(UNREADABLE):
                raise
            # A user who may read only the folder gets the folder's own history, which ends at a
            # deletion.
            session.reparent(home)
            session.get_log(receive, [""], start, end, 0, True, revprops=PROPERTIES)
        return found

    # One revision

    def workflows_key(self, revision_id: str) -> str:
        """The path and revision where the node of the folder was made, whatever copies it came
        through.
        """
        number = number_of(revision_id, self._location.shown)
        with self._session() as session:
            if session.check_path(WORKFLOWS, number) == subvertpy.NODE_NONE:
                return ""
            made = session.stat(WORKFLOWS, number)["created_rev"]
            path = session.get_locations(WORKFLOWS, number, [made]).get(made)
            # If it was copied from a place that this user may not read, its path there is unknown.
            return f"{path}@{made}" if path else f"{WORKFLOWS}@{number}"

    def read_workflows(self, revision_id: str) -> tuple[SourceFile, ...]:
        number = number_of(revision_id, self._location.shown)
        with self._session() as session:
            kind = session.check_path(WORKFLOWS, number)
            if kind == subvertpy.NODE_NONE:
                return ()
            if kind != subvertpy.NODE_DIR:
                with open(os.devnull, "wb") as nowhere:
                    _, properties = session.get_file(WORKFLOWS, nowhere, number)
                return ((linked if "svn:special" in properties else no_folder)(WORKFLOWS),)
            files = []
            entries, _, _ = session.get_dir(WORKFLOWS, number, ra.DIRENT_KIND | ra.DIRENT_SIZE)
            sizes = {
                name: entry["size"]
                for name, entry in sorted(entries.items())
                if entry["kind"] == subvertpy.NODE_FILE and is_workflow_file(name)
            }
            if fault := too_many_workflows(sizes.values()):
                return (SourceFile(WORKFLOWS, fault=fault),)
            for name, size in sizes.items():
                path = f"{WORKFLOWS}/{name}"
                if size >= len(TOO_LONG):
                    files.append(SourceFile(path, TOO_LONG))
                    continue
                text = BytesIO()
                _, properties = session.get_file(path, text, number)
                is_link = "svn:special" in properties
                files.append(linked(path) if is_link else SourceFile(path, text.getvalue()))
            return tuple(files)

    def workflow(self, revision_id: str) -> Workflow:
        from arkqueue.workflow import parse

        return parse(self.read_workflows(revision_id), partial(self.read_list, revision_id))

    def lists(
        self, revision_id: str, wanted: Sequence[tuple[str, str | None]]
    ) -> tuple[list[tuple[Item, ...]], list[Fault]]:
        from arkqueue.workflow.list_files import read_lists

        return read_lists(wanted, partial(self.read_list, revision_id), MOST_ITEMS)

    def read_list(self, revision_id: str, path: str) -> SourceFile:
        number = number_of(revision_id, self._location.shown)
        with self._session() as session:
            kind = session.check_path(path, number)
            if kind != subvertpy.NODE_FILE:
                return SourceFile(path, fault=FOLDER_FOR_LIST if kind == subvertpy.NODE_DIR else NO_LIST)
            if session.stat(path, number)["size"] > LONGEST_LIST:
                return SourceFile(path, fault=LONG_LIST)
            text = BytesIO()
            _, properties = session.get_file(path, text, number)
            return (
                SourceFile(path, fault=LINKED_LIST)
                if "svn:special" in properties
                else SourceFile(path, text.getvalue())
            )

    def changed_paths(self, previous: str | None, revision_id: str) -> tuple[str, ...]:
        return tuple(sorted(self._changed(previous, revision_id, PathBudget())))

    def changes(
        self, base: str | None, revision_id: str, *, most: int = MOST_PATHS, recorded: Revision | None = None
    ) -> tuple[FileChange, ...]:
        if recorded is not None:
            with self._session(fresh=True) as session:
                self._properties(session, number_of(revision_id, self._location.shown), recorded)
        return self._changes(base, revision_id, most)

    def _changes(self, base: str | None, revision_id: str, most: int) -> tuple[FileChange, ...]:
        changed = self._changed(base, revision_id, PathBudget(most), with_history=True)
        return listed({path.encode(errors="surrogateescape"): status for path, status in changed.items()})

    def _changed(
        self, previous: str | None, revision_id: str, budget: PathBudget, *, with_history: bool = False
    ) -> dict[str, ChangeStatus]:
        """The changes of files. ``with_history``: a file that only another revision changed last
        counts as modified, as its keywords show that in a workspace.
        """
        number = number_of(revision_id, self._location.shown)
        before = None if previous is None else number_of(previous, self._location.shown)
        try:
            return self._difference(before, number, budget, with_history)
        except UnicodeDecodeError:
            pass
        with self._session() as session:
            old = {} if before is None else contents(session, before, budget, with_history=with_history)
            new = contents(session, number, budget, with_history=with_history)
        modified = {path for path in old.keys() & new.keys() if old[path] != new[path]}
        return _statuses(new.keys() - old.keys(), modified, old.keys() - new.keys())

    def _difference(
        self, before: int | None, number: int, budget: PathBudget, with_history: bool
    ) -> dict[str, ChangeStatus]:
        with self._session() as session:
            exists = session.check_path("", number) == subvertpy.NODE_DIR
            if before is None or session.check_path("", before) != subvertpy.NODE_DIR:
                return _statuses(self._files(session, "", number, budget) if exists else (), (), ())
            if not exists:
                return _statuses((), (), self._files(session, "", before, budget))
            editor = DifferenceEditor(budget)
            reporter = session.do_diff(number, "", session.get_session_url(), editor, True, True, False)
            reporter.set_path("", before, False)
            reporter.finish()
            gone: set[str] = set()
            for path in editor.deleted:
                if session.check_path(path, before) == subvertpy.NODE_DIR:
                    gone |= self._files(session, path, before, budget)
                else:
                    gone.add(path)
            modified = editor.modified | (editor.added & gone) | (editor.touched if with_history else set())
            return _statuses(editor.added - gone, modified, gone - editor.added)

    def _files(self, session: Any, folder: str, number: int, budget: PathBudget) -> set[str]:
        """Every file of a folder, in one request: the difference to an empty one."""
        editor = DifferenceEditor(budget, folder)
        url = session.get_session_url() + (f"/{quote(folder)}" if folder else "")
        with self._at(session, url):
            reporter = session.do_diff(number, "", session.get_session_url(), editor, True, True, False)
            reporter.set_path("", number, True)
            reporter.finish()
        return editor.added

    def not_followed(self, revision_id: str) -> tuple[str, ...]:
        number = number_of(revision_id, self._location.shown)
        try:
            with self._session(fresh=True) as session:
                if session.check_path("", number) != subvertpy.NODE_DIR:
                    return ()
                folders = self._with_externals(session, number)
        except (UnicodeDecodeError, TooManyPaths):
            return ()
        return externals([folder.encode(errors="surrogateescape") for folder in folders])

    def survey(
        self,
        revision_id: str,
        base: str | None = None,
        *,
        changes: bool = False,
        notes: bool = False,
        most: int = MOST_PATHS,
        recorded: Revision | None = None,
        base_recorded: Revision | None = None,
    ) -> Survey:
        with self._session(fresh=True) as session:
            key = self._tree_key(session, number_of(revision_id, self._location.shown), recorded)
            if base_recorded is not None:
                self._properties(session, number_of(base_recorded.id, self._location.shown), base_recorded)
        found = None
        if changes:
            with suppress(NotFound, TooManyPaths):
                found = self._changes(base, revision_id, most)
        return Survey(key, found, self.not_followed(revision_id) if notes else ())

    def _tree_key(self, session: Any, number: int, recorded: Revision | None = None) -> str:
        """The tree key: the revision, its author and date (a restored backup may give its number to
        another one), and the URL, which keywords show.
        """
        properties = self._properties(session, number, recorded)
        made = "|".join((properties.get(f"svn:{name}") or b"").decode(errors="replace") for name in ("date", "author"))
        return f"{self._identity.uuid} {session.get_session_url()}@{number}|{made}"

    def _with_externals(self, session: Any, number: int) -> set[str]:
        """The folders with externals. Only the first query reads all folders; each later one costs
        what differs.
        """
        place = self._identity.uuid, session.get_session_url()
        known = externals_known.get(place)
        head = session.get_latest_revnum()
        if known is not None and (
            known[0].number > head
            or revision_of(known[0].number, session.rev_proplist(known[0].number)) != known[0]
            or session.check_path("", known[0].number) != subvertpy.NODE_DIR
        ):
            known = None
        editor = ExternalsEditor(known[1] if known else (), PathBudget())
        reporter = session.do_diff(number, "", session.get_session_url(), editor, True, True, False)
        reporter.set_path("", known[0].number if known else number, known is None)
        reporter.finish()
        if len(externals_known) > _MOST_ARCHIVES:
            externals_known.clear()
        externals_known[place] = revision_of(number, session.rev_proplist(number)), frozenset(editor.folders)
        return editor.folders

    def export(
        self,
        revision_id: str,
        target: Path,
        paths: Sequence[str] = (),
        *,
        recorded: Revision | None = None,
        early: Early | None = None,
    ) -> None:
        number = number_of(revision_id, self._location.shown)
        with _judged(number):
            try:
                self._export(number, target, paths, self._files, self._export_folder, recorded, early)
            except UnicodeDecodeError:
                _empty(target)
                self._export(number, target, paths, check_size, export, recorded, early)

    def _export(
        self,
        number: int,
        target: Path,
        paths: Sequence[str],
        count: Callable[..., object],
        export_folder: Callable[..., None],
        recorded: Revision | None,
        early: Early | None,
    ) -> None:
        with self._session(fresh=True) as session, TreeWriter(target, early) as writer:
            if recorded is not None:
                self._properties(session, number, recorded)
            kinds = self._kinds(session, number, outermost(paths) if paths else [""])
            folders = [path for path, kind in kinds.items() if kind == subvertpy.NODE_DIR]
            self._looks_ahead(writer, number, folders)
            if not self._is_local:  # a server that has begun to send would wait while another connection counts
                budget = PathBudget(limits.MOST_FILES)
                budget.look(len(kinds))
                for folder in folders:
                    count(session, folder, number, budget)
            translation = self._translation(session)
            for path, kind in kinds.items():
                if kind == subvertpy.NODE_DIR:
                    export_folder(session, path, number, writer, translation)
                    continue
                name = path.encode()
                with writer.create(name) as file:
                    _, properties = session.get_file(path, file, number)
                translation.finish(writer, name, properties)

    def _kinds(self, session: Any, number: int, paths: Sequence[str]) -> dict[str, int]:
        """The kind of each path of a revision: folder or file. Raises for a path that is neither."""
        kinds: dict[str, int] = {}
        for path in paths:
            if ".." in path.split("/"):
                raise Invalid(path, "leads out of the archive", "Correct the path.")
            kinds[path] = session.check_path(path, number)
            if kinds[path] != subvertpy.NODE_DIR and (kinds[path] != subvertpy.NODE_FILE or not path):
                raise NotFound(path or self._location.shown, f"is not in revision {number}", "Correct the path.")
        return kinds

    def _export_folder(
        self, session: Any, path: str, number: int, writer: TreeWriter, translation: Translation
    ) -> None:
        url = session.get_session_url() + (f"/{quote(path)}" if path else "")
        with self._at(session, url):
            editor = ExportEditor(writer, translation, path)
            reporter = session.do_update(number, "", True, editor)
            reporter.set_path("", number, True)
            editor.finish(reporter)

    def update(
        self,
        before: str,
        revision_id: str,
        target: Path,
        *,
        good: Path | None = None,
        before_key: str | None = None,
        recorded: Revision | None = None,
        early: Early | None = None,
    ) -> TreeChange:
        old, new = number_of(before, self._location.shown), number_of(revision_id, self._location.shown)
        try:
            with _judged(new):
                return self._update(old, new, TreeUpdate(target, good, early), before_key, recorded)
        except UnicodeDecodeError as error:
            raise WorkspaceError(f"revision {new}", "has a property that is not UTF-8", "Export it anew.") from error

    def _update(
        self, old: int, new: int, update: TreeUpdate, old_key: str | None, recorded: Revision | None
    ) -> TreeChange:
        with self._session(fresh=True) as session, update:
            if recorded is not None:
                self._properties(session, new, recorded)
            for number in (old, new):
                if session.check_path("", number) != subvertpy.NODE_DIR:
                    raise NotFound(self._location.shown, f"is not in revision {number}", "Check the revision.")
            if old_key not in (None, self._tree_key(session, old)):
                raise another_now(str(old))
            changed = ChangedInPlace(PathBudget(limits.MOST_FILES))
            reporter = session.do_diff(new, "", session.get_session_url(), changed, True, True, False)
            reporter.set_path("", old, False)
            reporter.finish()
            self._looks_ahead(update, new, [""])
            if changed.added >= limits.MANY_FILES:
                self._files(session, "", new, PathBudget(limits.MOST_FILES))
            files = changed.in_order()
            editor = UpdateEditor(update, self._translation(session), files)
            reporter = session.do_update(new, "", True, editor)
            reporter.set_path("", old, False)
            for path in files:
                reporter.delete_path(path)
            editor.finish(reporter)
            return update.result()

    def working_copy(
        self,
        revision_id: str,
        branch: str,  # noqa: ARG002
        target: Path,
        *,
        author: str,
        origin: Origin | None = None,
        handover: Handover | None = None,
        recorded: Revision | None = None,
    ) -> Path | None:
        """Returns a folder with the ``svn`` that marks commits (see `origin`)."""
        number = number_of(revision_id, self._location.shown)
        with self._session(fresh=True) as session:
            if recorded is not None:
                self._properties(session, number, recorded)
            if session.check_path("", number) != subvertpy.NODE_DIR:
                raise NotFound(self._location.shown, f"has no revision {number}", "Check the revision.")
            self._check_size(number)
            try:
                target.mkdir(parents=True, exist_ok=True)
                if any(target.iterdir()):
                    raise WorkspaceError(str(target), "is not empty", "Empty it.")
                with realms_asked() as realms:
                    check_out(self._location, credentials(self._location), target, number, number)
                    if recorded is not None:  # the checkout used a connection of its own, after the first check
                        self._properties(self._connected(), number, recorded)
                    hands_over = handover is not None and self._location.password is not None
                    if hands_over and not realms:  # reading needed no password, but committing may
                        begin_commit(self._location, credentials(self._location))
                settings = hand_to_subversion(self._location, realms[0], handover) if handover and realms else None
                commands = target / ".svn" / "arkqueue"
                install_subversion_commands(commands, origin, author if self._is_local else None, settings)
            except OSError as error:
                raise WorkspaceError(str(target), f"cannot be written ({error.strerror})") from error
            return commands

    def follow(
        self, revision_id: str, target: Path, following: Following, *, recorded: Revision | None = None
    ) -> Followed:
        number = number_of(revision_id, self._location.shown)
        with self._session(fresh=True) as session:
            made = revision_of(number, self._properties(session, number, recorded))
            try:
                root, at = address_at(session.get_repos_root()), address_at(session.get_session_url())
            except NoAddress as fault:
                return Followed((f"svn:externals are not followed: the archive's own URL cannot be compared: {fault}",))
            allowance = Allowance(following, root)
            found = Externals(allowance, target, number, made.date, self._identity.uuid)
            found.follow(Checkout(target, at, root, "", number, credentials(self._location)))
            return allowance.result()

    # Below

    def _check_size(self, number: int) -> None:
        """Raise WorkspaceError if a revision has too many files and folders for a workspace: libsvn
        does not count during a checkout.
        """
        with _judged(number):
            try:
                with self._session() as session:
                    self._files(session, "", number, PathBudget(limits.MOST_FILES))
            except UnicodeDecodeError:
                with self._session() as session:
                    check_size(session, "", number, PathBudget(limits.MOST_FILES))

    def _looks_ahead(self, writer: TreeWriter, number: int, folders: Sequence[str]) -> None:
        """Have the rest counted once many files have been written. The connection is busy then, so
        another one counts.

        A server that waits too long disconnects. So its files are counted beforehand, and its bytes
        only as long as it surely waits.
        """

        def look() -> None:
            session, budget = self._connected(), PathBudget(limits.MOST_FILES)
            until = None if self._is_local else time.monotonic() + limits.COUNTING
            with _judged(number):
                budget.look(len(folders))
                sizes = (check_size(session, folder, number, budget, until) for folder in folders)
                check_bytes(f"revision {number}", sum(sizes))

        writer.weigh = look
        if self._is_local and not isinstance(writer, TreeUpdate):
            writer.look_ahead = look

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

    def _translation(self, session: Any) -> Translation:
        """The translation of files whose paths are relative to the archive's folder, where the
        session is now.
        """
        return Translation(session.get_session_url(), session.get_repos_root())

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


def _statuses(added: Iterable[str], modified: Iterable[str], deleted: Iterable[str]) -> dict[str, ChangeStatus]:
    found = dict.fromkeys(added, ChangeStatus.ADDED)
    found |= dict.fromkeys(modified, ChangeStatus.MODIFIED)
    return found | dict.fromkeys(deleted, ChangeStatus.DELETED)


@contextmanager
def _judged(number: int) -> Iterator[None]:
    """Raises an error that says why a revision with more files and folders than a workspace may
    have is not written.
    """
    try:
        yield
    except TooManyPaths:
        check_files(f"revision {number}", None)


def _empty(folder: Path) -> None:
    """Remove the contents of a folder. The folder itself may be a mount."""
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry)
        else:
            os.unlink(entry)
