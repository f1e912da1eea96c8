"""The limits of one revision, and of what a repository has in all. A revision over a limit gets a
fault in its run, so that a committer harms only their own archive.

Sizes are checked before anything is read, as far as the repository gives them: those of workflow
files are known beforehand, the length of a Subversion log message is not.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from arkqueue.errors import ArchiveUnreachable, WorkspaceError
from arkqueue.model import Revision

MOST_WORKFLOW_FILES = 1000
MOST_WORKFLOW_BYTES = 4 * 2**20
"""The most bytes of all workflow files of a revision together."""
MOST_PATHS = 1_000_000
"""The most entries of folders that are compared to find a revision's changes."""
MOST_DIGESTED = 10_000
"""The most changed paths of a Subversion revision that its digest covers, in the order of their
names. If there are more, the digest also covers their number.
"""
MOST_FILES, MOST_BYTES = 1_000_000, 256 * 2**30
"""The limits of one workspace: files and folders together, and bytes."""
MANY_FILES, MANY_BYTES = 20_000, 2**30
"""The files and bytes that are written without counting first. If there are more, the rest is
counted, where counting costs much less than writing.
"""
COUNTING = 20.0
"""Seconds for which a server waits while the rest of its files is counted. Apache disconnects after
60.
"""
LONGEST_MESSAGE, LONGEST_AUTHOR = 64 * 2**10, 2**10
"""The most bytes, as UTF-8, of a message and of an author."""
MOST_BRANCHES, MOST_BRANCH_BYTES = 200_000, 64 * 2**20
"""The most branches of a Git repository that is scanned, and the most bytes of the list in which a
remote names them.
"""
MOST_FOLLOWED = 200
"""The most externals, submodules and requests for files of Git LFS that one working copy follows,
nested ones included.
"""
DEEPEST_FOLLOWED = 8
"""The deepest nesting of these references."""
MOST_FOLLOWED_BYTES = 8 * 2**30
MOST_FOLLOWED_SECONDS = 1800.0
"""The most seconds for all references that one working copy follows."""


class TooManyPaths(Exception):
    """The trees of two revisions have more entries than may be compared."""

    def __init__(self, most: int) -> None:
        super().__init__(most)

    def __str__(self) -> str:
        return f"more than {self.args[0]:,} files and folders would have to be compared"


class PathBudget:
    """Counts the entries that the comparison of two trees reads."""

    def __init__(self, most: int | None = None) -> None:
        self.most = MOST_PATHS if most is None else most
        self._looked_at = 0

    def look(self, entries: int = 1) -> None:
        """Count entries that are about to be read; raises `TooManyPaths`."""
        self._looked_at += entries
        if self._looked_at > self.most:
            raise TooManyPaths(self.most)


def check_files(thing: str, count: int | None) -> None:
    """Raise `WorkspaceError` if a workspace would get too many files and folders. ``count`` None:
    more than allowed, but not counted to the end.
    """
    if count is None or count > MOST_FILES:
        said = f"there are {count:,} files and folders, and" if count else "there are more files and folders:"
        raise WorkspaceError(thing, f"{said} a workspace has at most {MOST_FILES:,}", _LESS)


def check_bytes(thing: str, count: int) -> None:
    """Raise `WorkspaceError` if a workspace would get too many bytes."""
    if count > MOST_BYTES:
        raise WorkspaceError(thing, f"there are more bytes: a workspace has at most {MOST_BYTES >> 30} GiB", _LESS)


def too_many_branches(thing: str, *, are_counted: bool) -> ArchiveUnreachable:
    """The error for a repository with more branches than are scanned. ``are_counted`` False: the
    list of them is too long to be read.
    """
    fault = (
        f"it has more than {MOST_BRANCHES:,} branches"
        if are_counted
        else f"the list of its branches is longer than {MOST_BRANCH_BYTES >> 20} MiB"
    )
    remedy = "Delete the branches there that nobody needs, or watch a clone that has only the branches to track."
    return ArchiveUnreachable(thing, f"{fault}, and cannot be scanned", remedy)


_LESS = "Have the task take only the paths that it needs (`checkout: [PATH, …]`), or no files at all (`checkout: none`)"


def too_many_workflows(sizes: Collection[int]) -> str:
    """The reason why workflow files of these sizes (bytes) are not read; empty if they are."""
    if len(sizes) > MOST_WORKFLOW_FILES:
        return f"there are {len(sizes):,} workflow files here, more than {MOST_WORKFLOW_FILES:,}; put tasks into fewer files"
    if sum(sizes) > MOST_WORKFLOW_BYTES:
        return (
            f"the workflow files here have {sum(sizes):,} bytes, more than {MOST_WORKFLOW_BYTES:,}; make them shorter"
        )
    return ""


def bounded(revision: Revision) -> Revision:
    """A revision whose author and message are cut if they are too long; ``oversized`` then says so."""
    author, message = _cut(revision.author, LONGEST_AUTHOR), _cut(revision.message, LONGEST_MESSAGE)
    if author is revision.author and message is revision.message:
        return revision
    over = [
        f"its {what} has {len(text.encode(errors='replace')):,} bytes, more than {longest:,}"
        for what, text, cut, longest in (
            ("author", revision.author, author, LONGEST_AUTHOR),
            ("message", revision.message, message, LONGEST_MESSAGE),
        )
        if cut is not text
    ]
    return replace(revision, author=author, message=message, oversized=f"{' and '.join(over)}; make it shorter")


def _cut(text: str, longest: int) -> str:
    if 4 * len(text) <= longest:
        return text
    encoded = text.encode(errors="replace")
    return text if len(encoded) <= longest else encoded[:longest].decode(errors="ignore")
