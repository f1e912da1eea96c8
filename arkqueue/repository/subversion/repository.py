"""Subversion archives: the files of a revision for a task, on top of `history` and `connection`."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import subvertpy

from arkqueue.errors import Invalid, NotFound, WorkspaceError
from arkqueue.model import Origin, Revision, TreeChange
from arkqueue.repository import ONLY_KEY, Survey, SurveyOptions, limits
from arkqueue.repository.credentials import Handover, hand_to_subversion
from arkqueue.repository.following.addresses import NoAddress
from arkqueue.repository.following.allowance import Allowance, Followed, Following
from arkqueue.repository.limits import PathBudget, TooManyPaths, check_bytes, check_files
from arkqueue.repository.origin import install_subversion_commands
from arkqueue.repository.subversion.access import begin_commit, check_out, credentials, realms_asked
from arkqueue.repository.subversion.editors import Differences, ExportEditor
from arkqueue.repository.subversion.export import check_size, export
from arkqueue.repository.subversion.following import Checkout, Externals, address_at
from arkqueue.repository.subversion.history import SubversionHistory
from arkqueue.repository.subversion.revisions import number_of, revision_of
from arkqueue.repository.subversion.translation import Translation
from arkqueue.repository.subversion.tree_difference import UpdateEditor
from arkqueue.repository.tree_update import TreeUpdate, another_now
from arkqueue.repository.tree_writer import Early, TreeWriter, outermost
from arkqueue.repository.unfollowed import externals

_MOST_ARCHIVES = 1000

externals_known: dict[tuple[str, str], tuple[Revision, frozenset[str]]] = {}
"""The folders with externals of the revision that was last asked for, by UUID and URL. All threads
share it, because the first query reads all folders.
"""


class SubversionArchive(SubversionHistory):
    """An `Archive` of a Subversion repository or a folder of it."""

    def not_followed(self, revision_id: str) -> tuple[str, ...]:
        return self._not_followed(number_of(revision_id, self._location.shown), Differences(), fresh=True)

    def _not_followed(self, number: int, differences: Differences, *, fresh: bool = False) -> tuple[str, ...]:
        try:
            with self._session(fresh=fresh) as session:
                if session.check_path("", number) != subvertpy.NODE_DIR:
                    return ()
                folders = self._with_externals(session, number, differences)
        except (UnicodeDecodeError, TooManyPaths):
            return ()
        return externals([folder.encode(errors="surrogateescape") for folder in folders])

    def survey(
        self, revision_id: str, options: SurveyOptions = ONLY_KEY, *, recorded: Revision | None = None
    ) -> Survey:
        return self._survey(number_of(revision_id, self._location.shown), options, recorded, Differences())

    def _survey(
        self, number: int, options: SurveyOptions, recorded: Revision | None, differences: Differences
    ) -> Survey:
        base = options.base_recorded
        with self._session(fresh=True) as session:
            key = self._tree_key(session, number, recorded)
            if base is not None:
                self._properties(session, number_of(base.id, self._location.shown), base)
        found = None
        if options.changes:
            with suppress(NotFound, TooManyPaths):
                found = self._changes(options.base, str(number), options.most, differences)
        return Survey(key, found, self._not_followed(number, differences) if options.notes else ())

    def _tree_key(self, session: Any, number: int, recorded: Revision | None = None) -> str:
        """The tree key: the revision, its author and date (a restored backup may give its number to
        another one), and the URL, which keywords show.
        """
        properties = self._properties(session, number, recorded)
        made = "|".join((properties.get(f"svn:{name}") or b"").decode(errors="replace") for name in ("date", "author"))
        return f"{self._identity.uuid} {session.get_session_url()}@{number}|{made}"

    def _with_externals(self, session: Any, number: int, differences: Differences) -> set[str]:
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
        difference = differences.between(session, known[0].number if known else None, number, PathBudget())
        folders = difference.with_externals(known[1] if known else ())
        if len(externals_known) > _MOST_ARCHIVES:
            externals_known.clear()
        externals_known[place] = revision_of(number, session.rev_proplist(number)), frozenset(folders)
        return folders

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
        options: SurveyOptions = ONLY_KEY,
        good: Path | None = None,
        before_key: str | None = None,
        others: Collection[str] = (),
        recorded: Revision | None = None,
        early: Early | None = None,
    ) -> tuple[Survey, TreeChange | None]:
        old, new = number_of(before, self._location.shown), number_of(revision_id, self._location.shown)
        differences = Differences()
        survey = self._survey(new, options, recorded, differences)
        if survey.tree_key in others:
            return survey, None
        try:
            with _judged(new):
                change = self._update(old, new, TreeUpdate(target, good, early), before_key, recorded, differences)
        except UnicodeDecodeError as error:
            raise WorkspaceError(f"revision {new}", "has a property that is not UTF-8", "Export it anew.") from error
        return survey, change

    def _update(
        self,
        old: int,
        new: int,
        update: TreeUpdate,
        old_key: str | None,
        recorded: Revision | None,
        differences: Differences,
    ) -> TreeChange:
        with self._session() as session, update:
            if recorded is not None:  # the connection may be another one than the survey's
                self._properties(session, new, recorded)
            if session.check_path("", new) != subvertpy.NODE_DIR:
                raise NotFound(self._location.shown, f"is not in revision {new}", "Check the revision.")
            if not self._is_there(session, old) or old_key not in (None, self._tree_key(session, old)):
                raise another_now(str(old))
            difference = differences.between(session, old, new, PathBudget(limits.MOST_FILES))
            self._looks_ahead(update, new, [""])
            if difference.made >= limits.MANY_FILES:
                self._files(session, "", new, PathBudget(limits.MOST_FILES))
            files = difference.in_place()
            editor = UpdateEditor(update, self._translation(session), files)
            reporter = session.do_update(new, "", True, editor)
            reporter.set_path("", old, False)
            for path in files:
                reporter.delete_path(path)
            editor.finish(reporter)
            return update.result()

    def _is_there(self, session: Any, number: int) -> bool:
        """True if the repository has a revision, and the archive's folder in it."""
        return bool(number <= session.get_latest_revnum() and session.check_path("", number) == subvertpy.NODE_DIR)

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

    def _translation(self, session: Any) -> Translation:
        """The translation of files whose paths are relative to the archive's folder, where the
        session is now.
        """
        return Translation(session.get_session_url(), session.get_repos_root())


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
