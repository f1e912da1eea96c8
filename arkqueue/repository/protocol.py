"""The protocol of all kinds of repositories. This is the only module that knows which kinds exist."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol

from arkqueue.errors import Invalid
from arkqueue.model import (
    LONGEST_LIST,
    ArchiveKind,
    Fault,
    FileChange,
    Item,
    Origin,
    Revision,
    SourceFile,
    TreeChange,
    Workflow,
)
from arkqueue.repository.credentials import Handover
from arkqueue.repository.following.allowance import Followed, Following
from arkqueue.repository.limits import MOST_PATHS
from arkqueue.repository.location import Identity, Location, local_path
from arkqueue.repository.tree_writer import Early

WORKFLOWS = "_workflows"
"""The folder at an archive's root whose direct children are the workflow files (design 1)."""

WORKFLOW_FILE_LIMIT = 2**20
"""Bytes. A longer workflow file is a fault (design 3)."""

TOO_LONG = b" " * (WORKFLOW_FILE_LIMIT + 1)
"""Stands for the text of a workflow file over the limit: the parser sees that it is too long, and nobody reads 2 GiB."""


_EARLIEST, _LATEST = datetime(1, 1, 3, tzinfo=UTC), datetime(9999, 12, 29, tzinfo=UTC)


def within_calendar(date: datetime) -> datetime:
    """A revision may claim any time: what the calendar of some time zone lacks becomes its nearest end, or nobody could read it."""
    return min(max(date, _EARLIEST), _LATEST)


def is_workflow_file(name: str) -> bool:
    """Whether a direct child of ``_workflows`` with this name is a workflow file."""
    return name.endswith((".yaml", ".yml", ".json"))


def linked(path: str) -> SourceFile:
    """The file with a fault that stands for a symbolic link in the place of a workflow file, or of their folder."""
    what = "the folder" if path.endswith(WORKFLOWS) else "the file"
    return SourceFile(path, fault=f"this is a symbolic link, and links are not followed; put {what} itself here")


NO_LIST = "there is no such file at this revision; correct the path, or commit the file"
"""Why a list cannot be read whose file is not there."""
LINKED_LIST = "this is a symbolic link, and links are not followed; name the file itself"
FOLDER_FOR_LIST = "this is a folder; name a file in it"
LONG_LIST = f"the file is larger than {LONGEST_LIST >> 20} MiB; make the list smaller"


def no_folder(path: str) -> SourceFile:
    """The file with a fault that stands for a file with the name of the folder of workflow files."""
    return SourceFile(path, fault="this is not a folder; move it, and put workflow files into a folder of this name")


@dataclass(frozen=True, slots=True)
class Advance:
    """The steps from a branch's last known revision to its head.

    ``dropped``: ids that a force-push or reset took off the branch, newest first; the caller keeps those its ledger
    holds. ``revisions``: to be appended, oldest first, numbered on from the last known one. ``complete``: False when
    ``limit`` cut the list; then ask again with the last of them as known. ``baseline``: only for a new branch that
    left a tracked one (design 5.16): stored before ``revisions``.
    """

    dropped: tuple[str, ...] = ()
    revisions: tuple[Revision, ...] = ()
    complete: bool = True
    baseline: Revision | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """All that must be known of a revision before a task gets its files, in one answer.

    ``tree_key``: the same for two revisions only if their exports are the same, also in a repository that went back in time.
    ``changes``: what differs from the base, as `Archive.changes` has it; None where nobody asked, where the repository lacks the base, and where too much
    would have to be looked at. ``not_followed``: as `Archive.not_followed` has it; empty where nobody asked.
    """

    tree_key: str
    changes: tuple[FileChange, ...] | None = None
    not_followed: tuple[str, ...] = ()


class Archive(Protocol):
    """One archive, open for reading. Revision ids are those of ``Revision.id``; paths are relative to the archive's root."""

    def identity(self) -> Identity:
        """The identity of the repository, and the archive's folder in it."""

    def main_branch(self, known: str | None = None) -> str:
        """The branch that the repository's HEAD names; Subversion: the empty name.

        Where a repository has a working tree, HEAD is what somebody works on just now: there it is the ``known`` one as long as that exists. So it is where
        HEAD names no branch. Of a remote it is as of the last look at its heads.
        """

    def heads(
        self, branches: Sequence[str] = (), main: str | None = None, known: Mapping[str, Revision] | None = None
    ) -> dict[str, str]:
        """The head of each branch that a glob matches (none given: of the main branch; ``main`` is the known one), asked of the repository now.

        ``known``: the last revision of each branch's ledger, for which `check_known` and `advance` are going to be called. An archive that another process
        reads has these answered along with the heads. Subversion: ``{"": youngest revision}``, which need not touch the archive's folder: `advance` may add nothing.
        """

    # ``digests``: whether `Revision.paths_digest` is to be told, which takes memory for each path that a revision changes.

    def baseline(self, branch: str, at: str | None = None, *, digests: bool = True) -> Revision | None:
        """The revision where the ledger starts: the head, or ``at`` (number, id, SHA prefix, ``g`` + prefix, tag).

        None: the branch has no revision yet, so that its ledger starts empty.
        """

    def has(self, revision: str) -> bool:
        """Whether the repository holds a revision that a notice named, on any branch or on none."""

    def baselines(self, heads: Mapping[str, str]) -> dict[str, Revision]:
        """Where the ledgers of branches start at the heads that `heads` has answered; the work of one call is linear in the branches."""

    def check_known(self, *known: Revision) -> None:
        """Raise `ArchiveMismatch` where the repository no longer holds the last revision of a branch's ledger as it was."""

    def check_gone(self, branch: str) -> None:
        """Raise `ArchiveUnreachable` where a branch that `heads` lacks has not been deleted: it cannot be read just now."""

    def advance(
        self,
        branch: str,
        known: Revision | None,
        new_head: str,
        *,
        limit: int = 1000,
        siblings: Mapping[str, str] | None = None,
        digests: bool = True,
    ) -> Advance:
        """The revisions up to ``new_head`` that the ledger lacks.

        ``siblings``: the other tracked branches' heads, for a branch that is new, or back after it was deleted; else None.
        """

    def workflows_key(self, revision_id: str) -> str:
        """The same for two revisions only if their workflow folders are the same; "" where nothing has that name."""

    def read_workflows(self, revision_id: str) -> tuple[SourceFile, ...]:
        """The workflow files of a revision, by path. Folders are none; over-long ones are `TOO_LONG`, links `linked`.

        Where the name of their folder belongs to something else, that is the only file: `linked` or `no_folder`.
        """

    def read_list(self, revision_id: str, path: str) -> SourceFile:
        """A file of a revision that holds a list for a workflow file. A missing file, a link, or a file longer than `LONGEST_LIST` has a fault."""

    def lists(
        self, revision_id: str, wanted: Sequence[tuple[str, str | None]]
    ) -> tuple[list[tuple[Item, ...]], list[Fault]]:
        """The items in files of a revision, each with the field that identifies them, and what is wrong with them."""

    def workflow(self, revision_id: str) -> Workflow:
        """The parsed workflow files, with the lists that they name."""

    def changed_paths(self, previous: str | None, revision_id: str) -> tuple[str, ...]:
        """Every file that differs between the two trees, sorted; without ``previous`` every file of the revision.

        A moved folder is all its files at the old and the new place. Empty folders and properties of folders are no
        files. A name that is not UTF-8 is shown with backslashes.
        """

    def changes(
        self, base: str | None, revision_id: str, *, most: int = MOST_PATHS, recorded: Revision | None = None
    ) -> tuple[FileChange, ...]:
        """The change of each file from one tree to another, sorted by path; without ``base``, every
        file of the revision is added.

        It is the difference of `changed_paths`, without version control data. In Subversion, files
        that only differ in the revision that changed them last are modified too, because keywords
        and modification times in a workspace show that revision. ``base`` may be later than the
        revision. Raises `NotFound` if the repository lacks one of them, and `TooManyPaths` if more
        than ``most`` entries of folders would have to be read.
        """

    def not_followed(self, revision_id: str) -> tuple[str, ...]:
        """The references of a revision that a task does not get, in sentences for people: externals, submodules, files of Git LFS."""

    # Files for a task. ``recorded``: the revision as the ledger has it. Where the repository's is another one now, `ArchiveMismatch` is raised before
    # anything is written. A Git commit's id says that already. `Recorded` passes it to each of these calls. ``early``: what counts as the dates of some
    # revisions, for the modification times of files.

    def export(
        self,
        revision_id: str,
        target: Path,
        paths: Sequence[str] = (),
        *,
        recorded: Revision | None = None,
        early: Early | None = None,
    ) -> None:
        """Write the revision's tree (or the files and folders named) to ``target``: plain, without version control.

        Subversion: the files are those that ``svn export`` writes. Git: texts are as stored, and no filter runs. Executable bits
        and symlinks are kept. Submodules are empty folders, externals are not followed. Nothing is written outside ``target``.
        """

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
        """The facts about a revision that a workspace needs.

        ``changes``: with what differs from ``base``; ``most`` as in `changes`. ``notes``: with what is not followed. ``base_recorded``: the base as the ledger has it; where the
        repository's is another one now, `ArchiveMismatch` is raised.
        """

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
        """Make of the export of revision ``before`` in ``target`` the export of another one; it costs what differs.

        ``before_key``: the `Survey.tree_key` of ``before`` when it was exported; None: it is not compared. Where the repository has another one now, `WorkspaceError` is raised before
        anything is changed. ``good``: a file that says that the tree is good. It is removed before anything is changed: where it is gone after an error, the tree is good
        for nothing.
        """

    def working_copy(
        self,
        revision_id: str,
        branch: str,
        target: Path,
        *,
        author: str,
        origin: Origin | None = None,
        handover: Handover | None = None,
        recorded: Revision | None = None,
    ) -> Path | None:
        """Make a clone or checkout that a task can commit from, as ``author`` (Git: "Name <email>"), marked with ``origin``.

        ``handover``: where the task finds the credentials of this archive's location, if it has any (None: it has its own).
        ``target`` must not exist or be empty. The answer is a folder to put first on the task's PATH, if any.
        """

    def follow(
        self, revision_id: str, target: Path, following: Following, *, recorded: Revision | None = None
    ) -> Followed:
        """Put into a new working copy what the revision refers to, from allowed addresses: externals, submodules, files of Git LFS.

        The answer names the references that are not followed. An allowed reference that cannot be fetched is an error: `ArchiveUnreachable`, or `WorkspaceError`
        where another try would not help.
        """


def fingerprint_of(location: Location) -> Callable[[], bytes | None] | None:
    """Who tells, by a few files, whether a local repository may have changed; None for one that is elsewhere.

    The answer of a call is another one after each change that a scan would find (commits, branches, HEAD, a restored
    backup, a replaced folder). It is None where the files do not tell. A call takes about 50 µs.
    """
    path = local_path(location)
    if path is None:
        return None
    if location.kind is ArchiveKind.SUBVERSION:
        from arkqueue.repository.subversion.fingerprint import fingerprint
    else:
        from arkqueue.repository.git.fingerprint import fingerprint
    return partial(fingerprint, os.path.abspath(path))


def open_archive(
    location: Location, *, mirror: Path | None = None, quarantine: Path | None = None, timeout: float = 600.0
) -> Archive:
    """An archive to read from.

    ``mirror``: where this host keeps its copy; needed where ``location.needs_mirror``. ``quarantine``: objects of a
    push that a pre-receive hook judges. ``timeout``: seconds for one transfer by git.
    """
    if location.kind is ArchiveKind.SUBVERSION:
        from arkqueue.repository.subversion.repository import SubversionArchive

        return SubversionArchive(location)
    from arkqueue.repository.git.mirror import Mirror
    from arkqueue.repository.git.repository import GitArchive

    if not location.needs_mirror:
        return GitArchive(location, quarantine=quarantine, timeout=timeout)
    if mirror is None:
        raise Invalid(location.url, "is a remote repository and needs a folder for its mirror")
    return GitArchive(location, mirror=Mirror(location, mirror, timeout), timeout=timeout)
