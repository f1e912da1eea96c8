"""The protocol of all kinds of repositories. Only this module knows which kinds exist."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

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
"""The most bytes of a workflow file. A longer one is a fault (design 3)."""

TOO_LONG = b" " * (WORKFLOW_FILE_LIMIT + 1)
"""Stands for the text of a workflow file over the limit. The parser finds it too long, and 2 GiB
are not read.
"""


_EARLIEST, _LATEST = datetime(1, 1, 3, tzinfo=UTC), datetime(9999, 12, 29, tzinfo=UTC)


def within_calendar(date: datetime) -> datetime:
    """A revision's date, moved to the nearest end of the calendar if some time zone could not show
    it. A revision may claim any date.
    """
    return min(max(date, _EARLIEST), _LATEST)


def is_workflow_file(name: str) -> bool:
    """True if a direct child of ``_workflows`` with this name is a workflow file."""
    return name.endswith((".yaml", ".yml", ".json"))


def linked(path: str) -> SourceFile:
    """A file with a fault, for a symbolic link in place of a workflow file or of their folder."""
    what = "the folder" if path.endswith(WORKFLOWS) else "the file"
    return SourceFile(path, fault=f"this is a symbolic link, and links are not followed; put {what} itself here")


NO_LIST = "there is no such file at this revision; correct the path, or commit the file"
"""The fault of a list whose file does not exist."""
LINKED_LIST = "this is a symbolic link, and links are not followed; name the file itself"
FOLDER_FOR_LIST = "this is a folder; name a file in it"
LONG_LIST = f"the file is larger than {LONGEST_LIST >> 20} MiB; make the list smaller"


def no_folder(path: str) -> SourceFile:
    """A file with a fault, for a file in place of the folder of workflow files."""
    return SourceFile(path, fault="this is not a folder; move it, and put workflow files into a folder of this name")


class Known(Protocol):
    """The part of a revision of the ledger that an archive compares with its own."""

    @property
    def id(self) -> str: ...
    @property
    def number(self) -> int: ...
    @property
    def author(self) -> str: ...
    @property
    def date(self) -> datetime: ...


class LastKnown(NamedTuple):
    """The last revision of a branch's ledger, as far as an archive compares it. A scan makes one
    for each of thousands of branches, and a `Revision` takes three times as long.
    """

    id: str
    number: int
    author: str
    date: datetime


@dataclass(frozen=True, slots=True)
class Advance:
    """The steps from a branch's last known revision to its head.

    ``dropped``: ids of commits that a force-push or reset took off the branch, newest first; the
    caller uses those that its ledger holds. ``revisions``: revisions to append, oldest first, with
    the numbers after the last known one. ``complete``: False if ``limit`` cut the list; then ask
    again with the last of them as known. ``baseline``: only for a new branch that left a tracked
    one (design 5.16): stored before ``revisions``.
    """

    dropped: tuple[str, ...] = ()
    revisions: tuple[Revision, ...] = ()
    complete: bool = True
    baseline: Revision | None = None


@dataclass(frozen=True, slots=True)
class NewBranch:
    """A branch without a ledger, or one that is back after it was deleted."""

    name: str
    head: str


@dataclass(frozen=True, slots=True)
class Fork:
    """The place where a new branch leaves the other branches (design 5.16).

    ``at``: the newest commit of its first-parent chain that another branch, or a ledger, contains;
    None: there is none. ``own``: the number of commits before that one in the
    chain, which are the branch's own.
    """

    at: str | None
    own: int


@dataclass(frozen=True, slots=True)
class SurveyOptions:
    """The facts that a `Survey` has beside the key of the tree.

    ``changes``: True to include the changes from ``base``; ``most`` as in `Archive.changes`.
    ``base_recorded``: the base as the ledger has it; if the repository now has another one,
    `ArchiveMismatch` is raised. ``notes``: True to include the references that are not followed.
    """

    base: str | None = None
    changes: bool = False
    notes: bool = False
    most: int = MOST_PATHS
    base_recorded: Revision | None = None


ONLY_KEY = SurveyOptions()
"""For a survey that has nothing beside the key."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The facts about a revision that a workspace needs, in one answer.

    ``tree_key``: equal for two revisions only if their exports are equal, also in a repository that
    went back in time. ``changes``: as in `Archive.changes`; None if not asked for, if the
    repository lacks the base, or if too many entries would have to be compared. ``not_followed``:
    as in `Archive.not_followed`; empty if not asked for.
    """

    tree_key: str
    changes: tuple[FileChange, ...] | None = None
    not_followed: tuple[str, ...] = ()


class Archive(Protocol):
    """One archive, open for reading. Revision ids are those of ``Revision.id``. Paths are relative
    to the archive's root.
    """

    fingerprint: bytes | None
    """The fingerprint of the repository from before the last call of `heads` with known revisions,
    as `fingerprint_of` takes it; None if it has none. Each later commit changes the fingerprint.
    """

    def identity(self) -> Identity:
        """The identity of the repository, and the archive's folder in it."""

    def main_branch(self, known: str | None = None) -> str:
        """The branch that the repository's HEAD names; for Subversion the empty name.

        In a repository with a working tree, HEAD names the branch that somebody works on at the
        moment. There the ``known`` branch is returned as long as it exists, and also where HEAD
        names no branch. For a remote, the answer is that of the last call of `heads`.
        """

    def heads(
        self, branches: Sequence[str] = (), main: str | None = None, known: Mapping[str, Known] | None = None
    ) -> dict[str, str]:
        """The present head of each branch that a glob in ``branches`` matches; without globs, of
        the main branch, for which ``main`` is the known one.

        ``known``: the last revision of each branch's ledger, for which the caller will call
        `check_known` and `advance`. An archive in another process then answers these along with the
        heads. Subversion returns ``{"": youngest revision}``, which need not touch the archive's
        folder: `advance` may add nothing.
        """

    # ``digests``: False to leave out `Revision.paths_digest`, which takes memory for each path that
    # a revision changes.

    def baseline(self, branch: str, at: str | None = None, *, digests: bool = True) -> Revision | None:
        """The revision where the ledger starts: the head, or ``at`` (number, id, SHA prefix, ``g``
        + prefix, tag).

        None: the branch has no revision yet, so its ledger starts empty.
        """

    def has(self, revision: str) -> bool:
        """True if the repository holds a revision that a notice named, on any branch or on none."""

    def baselines(self, heads: Mapping[str, str]) -> dict[str, Revision]:
        """The baselines of branches at the heads that `heads` returned. One call costs work linear
        in the number of branches.
        """

    def check_known(self, *known: Known) -> None:
        """Raise `ArchiveMismatch` if the repository no longer holds the last revision of a branch's
        ledger unchanged.
        """

    def check_gone(self, branch: str) -> None:
        """Raise `ArchiveUnreachable` if a branch that `heads` lacks was not deleted, but cannot be
        read just now.
        """

    def check_heads(self, heads: Mapping[str, str]) -> None:
        """Raise `ArchiveUnreachable` if the commit at the head of a branch is damaged. `heads` and
        `check_known` see only that the commits of the ledger exist.
        """

    def forks(self, new: Sequence[NewBranch], others: Collection[str], *, at_once: bool = True) -> dict[str, Fork]:
        """The fork of each new branch, in this order. Empty if the kind of repository has only one
        branch.

        A new branch counts only for those after it: otherwise two new branches would hide their
        common commits from each other, and no ledger would have them. ``others``: the heads of all
        other branches of the ledger, and the last revisions of branches that are or were deleted.
        Ids that the repository lacks do not count. One call costs work linear in the number of
        branches. ``at_once``: False to judge each new branch apart, which takes less memory and
        more time.
        """

    def advance(
        self,
        branch: str,
        known: Known | None,
        new_head: str,
        *,
        limit: int = 1000,
        fork: Fork | None = None,
        digests: bool = True,
    ) -> Advance:
        """The revisions up to ``new_head`` that the ledger lacks.

        ``fork``: the answer of `forks` for a branch that is new, or back after it was deleted;
        otherwise None.
        """

    def workflows_key(self, revision_id: str) -> str:
        """A key that is equal for two revisions only if their workflow folders are equal; empty if
        nothing has that name.
        """

    def read_workflows(self, revision_id: str) -> tuple[SourceFile, ...]:
        """The workflow files of a revision, by path. Folders are left out. A file over the limit is
        `TOO_LONG`, a link is `linked`.

        If something other than a folder has the name of their folder, the only result is `linked`
        or `no_folder`.
        """

    def read_list(self, revision_id: str, path: str) -> SourceFile:
        """A file of a revision that holds a list for a workflow file. A missing file, a link, or a
        file longer than `LONGEST_LIST` has a fault.
        """

    def lists(
        self, revision_id: str, wanted: Sequence[tuple[str, str | None]]
    ) -> tuple[list[tuple[Item, ...]], list[Fault]]:
        """The items in files of a revision, and their faults. ``wanted``: paths, each with the
        field that identifies an item.
        """

    def workflow(self, revision_id: str) -> Workflow:
        """The parsed workflow files, with the lists that they name."""

    def changed_paths(self, previous: str | None, revision_id: str) -> tuple[str, ...]:
        """Every file that differs between the two trees, sorted; without ``previous``, every file
        of the revision.

        A moved folder counts as all its files at the old and the new place. Empty folders and
        properties of folders do not count. A name that is not UTF-8 is shown with backslashes.
        """

    def changes(
        self, base: str | None, revision_id: str, *, most: int = MOST_PATHS, recorded: Revision | None = None
    ) -> tuple[FileChange, ...]:
        """The change of each file from one tree to another, sorted by path; without ``base``, every
        file of the revision is added.

        It is the difference of `changed_paths`, without version control data. In Subversion, files
        that differ only in the revision that changed them last are modified, too, because keywords
        and modification times in a workspace show that revision. ``base`` may be later than the
        revision. Raises `NotFound` if the repository lacks one of them, and `TooManyPaths` if more
        than ``most`` entries of folders would have to be read.
        """

    def not_followed(self, revision_id: str) -> tuple[str, ...]:
        """The references of a revision that a task does not get, as sentences for people:
        externals, submodules, files of Git LFS.
        """

    # Files for a task. ``recorded``: the revision as the ledger has it. If the repository now has
    # another one, `ArchiveMismatch` is raised before anything is written. For Git, the commit's id
    # is enough. `Recorded` passes it to each of these calls. ``early``: dates to use for some
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
        """Write the revision's tree, or only ``paths``, to ``target``: plain, without version
        control data.

        Subversion: the files that ``svn export`` writes. Git: texts as stored; no filter runs.
        Executable bits and symlinks are kept. Submodules are empty folders, externals are not
        followed. Nothing is written outside ``target``.
        """

    def survey(
        self, revision_id: str, options: SurveyOptions = ONLY_KEY, *, recorded: Revision | None = None
    ) -> Survey:
        """The facts about a revision that a workspace needs."""

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
        """Turn the export of revision ``before`` in ``target`` into the export of another one.
        Costs only what differs. Returns the survey of the other revision, too.

        ``before_key``: the `Survey.tree_key` of ``before`` when it was exported; None: it is not
        compared. If the repository now has another key, or no such revision, `WorkspaceError` is
        raised before anything is changed. ``others``: the keys of other trees. If the new key is
        among them, nothing is changed, and no change is returned. ``good``: a file that marks the
        tree as good. It is removed before anything is changed. So if it is missing after an error,
        the tree cannot be used any more.
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
        """Make a clone or checkout from which a task can commit as ``author`` (Git: "Name
        <email>"), marked with ``origin``.

        ``handover``: where the task finds the credentials for this archive's location; None: it has
        its own. ``target`` must not exist, or be empty. Returns a folder to put first on the task's
        PATH, if any.
        """

    def follow(
        self, revision_id: str, target: Path, following: Following, *, recorded: Revision | None = None
    ) -> Followed:
        """Put the references of a revision into a new working copy, from allowed addresses:
        externals, submodules, files of Git LFS.

        The result names the references that are not followed. If an allowed reference cannot be
        fetched, that is an error: `ArchiveUnreachable`, or `WorkspaceError` if another try would
        not help.
        """


def fingerprint_of(location: Location) -> Callable[[], bytes | None] | None:
    """A function that returns the fingerprint of a local repository; None for a repository
    elsewhere.

    The fingerprint differs after each change that a scan would find (commits, branches, HEAD, a
    restored backup, a replaced folder). It is None if the files do not show it. A call takes about
    50 µs.
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
    """Open an archive for reading.

    ``mirror``: the folder of this host's copy; needed if ``location.needs_mirror``. ``quarantine``:
    the objects of a push that a pre-receive hook checks. ``timeout``: seconds for one transfer by
    git.
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
