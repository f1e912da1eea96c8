"""The revisions of a Subversion archive: which there are, their workflow files, and what they change.

The ledger holds the revisions that touch the archive's folder (design 1). `advance` finds these
revisions in the log of the whole repository. The log of the folder would follow copies, and would
leave out the revisions before a deletion. If the folder is the root, every revision counts.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from typing import Any
from urllib.parse import quote

import subvertpy
from subvertpy import SubversionException

from arkqueue.errors import NotFound
from arkqueue.model import (
    LONGEST_LIST,
    ChangeStatus,
    FileChange,
    Revision,
    SourceFile,
)
from arkqueue.repository import (
    FOLDER_FOR_LIST,
    LINKED_LIST,
    LONG_LIST,
    NO_LIST,
    TOO_LONG,
    WORKFLOWS,
    Advance,
    Fork,
    Known,
    NewBranch,
    is_workflow_file,
    linked,
    no_folder,
)
from arkqueue.repository.changes import listed
from arkqueue.repository.judged import JudgesFiles
from arkqueue.repository.limits import MOST_PATHS, PathBudget, too_many_workflows
from arkqueue.repository.location import Location
from arkqueue.repository.subversion.connection import SubversionConnection
from arkqueue.repository.subversion.editors import DifferenceEditor, Differences
from arkqueue.repository.subversion.export import contents
from arkqueue.repository.subversion.faults import UNREADABLE, codes_of
from arkqueue.repository.subversion.fingerprint import fingerprint
from arkqueue.repository.subversion.library import ra
from arkqueue.repository.subversion.revisions import (
    PROPERTIES,
    is_there_around,
    is_told,
    number_of,
    paths_digest,
    revision_of,
    touches,
)

_CHUNK = 1000
"""Revisions of the log that are read at a time."""


class SubversionHistory(SubversionConnection, JudgesFiles):
    """The calls of an `Archive` that read revisions."""

    def __init__(self, location: Location) -> None:
        super().__init__(location)
        self._searched: tuple[int, Revision] | None = None
        """A range of revisions (after, up to) that do not touch the folder, so that quiet archives
        are not searched again.
        """

    # The branch and its head

    def main_branch(self, known: str | None = None) -> str:  # noqa: ARG002  there is only one branch
        return ""

    def heads(
        self,
        branches: Sequence[str] = (),  # noqa: ARG002  there is only one branch
        main: str | None = None,  # noqa: ARG002  there is only one branch
        known: Mapping[str, Known] | None = None,
    ) -> dict[str, str]:
        self.fingerprint = fingerprint(self._path) if self._is_local and known is not None else None
        with self._session(fresh=True) as session:
            return {"": str(session.get_latest_revnum())}

    def check_gone(self, branch: str) -> None:
        """Nothing to do: the only branch always exists."""

    def check_heads(self, heads: Mapping[str, str]) -> None:
        """Nothing to do: `heads` returns only a number."""

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

    def check_known(self, *known: Known) -> None:
        with self._session(fresh=True) as session:
            head = session.get_latest_revnum()
            for revision in known:
                self._check_known(session, head, revision)

    def _check_known(self, session: Any, head: int, known: Known) -> None:
        if head < known.number:
            raise self._mismatch(f"has only {head} revisions, but {known.number} is known")
        now = revision_of(known.number, session.rev_proplist(known.number))
        if is_told(now) and is_told(known):
            self._compare(now, known)

    # The ledger

    def forks(
        self,
        new: Sequence[NewBranch],  # noqa: ARG002  there is only one branch
        others: Collection[str],  # noqa: ARG002  there is only one branch
        *,
        at_once: bool = True,  # noqa: ARG002  there is only one branch
    ) -> dict[str, Fork]:
        return {}

    def advance(
        self,
        branch: str,  # noqa: ARG002
        known: Known | None,
        new_head: str,
        *,
        limit: int = 1000,
        fork: Fork | None = None,  # noqa: ARG002
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
        return tuple(sorted(self._changed(previous, revision_id, PathBudget(), Differences())))

    def changes(
        self, base: str | None, revision_id: str, *, most: int = MOST_PATHS, recorded: Revision | None = None
    ) -> tuple[FileChange, ...]:
        if recorded is not None:
            with self._session(fresh=True) as session:
                self._properties(session, number_of(revision_id, self._location.shown), recorded)
        return self._changes(base, revision_id, most, Differences())

    def _changes(
        self, base: str | None, revision_id: str, most: int, differences: Differences
    ) -> tuple[FileChange, ...]:
        changed = self._changed(base, revision_id, PathBudget(most), differences, with_history=True)
        return listed({path.encode(errors="surrogateescape"): status for path, status in changed.items()})

    def _changed(
        self,
        previous: str | None,
        revision_id: str,
        budget: PathBudget,
        differences: Differences,
        *,
        with_history: bool = False,
    ) -> dict[str, ChangeStatus]:
        """The changes of files. ``with_history``: a file that only another revision changed last
        counts as modified, as its keywords show that in a workspace.
        """
        number = number_of(revision_id, self._location.shown)
        before = None if previous is None else number_of(previous, self._location.shown)
        try:
            return self._difference(before, number, budget, differences, with_history)
        except UnicodeDecodeError:
            pass
        with self._session() as session:
            old = {} if before is None else contents(session, before, budget, with_history=with_history)
            new = contents(session, number, budget, with_history=with_history)
        modified = {path for path in old.keys() & new.keys() if old[path] != new[path]}
        return _statuses(new.keys() - old.keys(), modified, old.keys() - new.keys())

    def _difference(
        self, before: int | None, number: int, budget: PathBudget, differences: Differences, with_history: bool
    ) -> dict[str, ChangeStatus]:
        with self._session() as session:
            exists = session.check_path("", number) == subvertpy.NODE_DIR
            if before is None or session.check_path("", before) != subvertpy.NODE_DIR:
                return _statuses(differences.between(session, None, number, budget).added if exists else (), (), ())
            if not exists:
                return _statuses((), (), self._files(session, "", before, budget))
            found = differences.between(session, before, number, budget)
            gone: set[str] = set()
            for path in found.deleted:
                if session.check_path(path, before) == subvertpy.NODE_DIR:
                    gone |= self._files(session, path, before, budget)
                else:
                    gone.add(path)
            modified = found.modified | (found.added & gone) | (found.touched if with_history else set())
            return _statuses(found.added - gone, modified, gone - found.added)

    def _files(self, session: Any, folder: str, number: int, budget: PathBudget) -> set[str]:
        """Every file of a folder, in one request: the difference to an empty one."""
        editor = DifferenceEditor(budget, folder)
        url = session.get_session_url() + (f"/{quote(folder)}" if folder else "")
        with self._at(session, url):
            reporter = session.do_diff(number, "", session.get_session_url(), editor, True, True, False)
            reporter.set_path("", number, True)
            reporter.finish()
        return editor.added


def _statuses(added: Iterable[str], modified: Iterable[str], deleted: Iterable[str]) -> dict[str, ChangeStatus]:
    found = dict.fromkeys(added, ChangeStatus.ADDED)
    found |= dict.fromkeys(modified, ChangeStatus.MODIFIED)
    return found | dict.fromkeys(deleted, ChangeStatus.DELETED)
