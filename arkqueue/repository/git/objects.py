"""A cache of commits and folders of a Git repository, by their ids.

One workspace needs the same few several times: to list changes, to count files, to write them, and
to date them. The next revision needs most of them again. libgit2 reads each of them twice from the
disk, for its length and for its contents, and does not cache it. The cache belongs to one
repository, because nothing proves that a repository's objects match their ids. Whether the
repository still holds a commit is checked each time.
"""

from __future__ import annotations

import re

import pygit2
from pygit2.enums import ObjectType

from arkqueue.errors import ArchiveError
from arkqueue.repository.git.commits import Commit, read_commit
from arkqueue.repository.limits import PathBudget, TooManyPaths

LONGEST_KEPT, MOST_KEPT = 2**14, 2**18
"""The most bytes of one cached object, and of all of them."""

LEAST_ENTRY = 28
"""The bytes of the shortest entry of a folder."""

_ENTRY = re.compile(rb"([0-7]+) ([^\0]+)\0(.{20})", re.DOTALL)
"""The mode, name and id of an entry."""

Entry = tuple[bytes, bytes]
"""The mode and id of an entry."""


class Objects:
    """The cache of one repository, which may be opened again. One thread at a time uses it."""

    def __init__(self, repository: pygit2.Repository) -> None:
        self.repository = repository
        self._folders: dict[pygit2.Oid, bytes] = {}
        self._commits: dict[pygit2.Oid, Commit] = {}
        self._kept = 0

    def commit(self, id: pygit2.Oid) -> Commit | None:
        """Like `read_commit`."""
        commit = self._commits.get(id) or read_commit(self.repository, id)
        if commit is not None and id not in self._commits and self._has_room(commit.size):
            self._commits[id] = commit
        return commit

    def entries(self, id: pygit2.Oid, budget: PathBudget) -> dict[bytes, Entry]:
        """The entries of a folder, by name. Raises `TooManyPaths`."""
        return {name: (mode, entry) for mode, name, entry in _ENTRY.findall(self._folder(id, budget) or b"")}

    def all_entries(self, id: pygit2.Oid, budget: PathBudget) -> dict[bytes, Entry]:
        """Like `entries`, for callers that write them: raises `ArchiveError` for an invalid folder,
        or for a repeated name.
        """
        raw = self._folder(id, budget)
        found = [] if raw is None else _ENTRY.findall(raw)
        entries = {name: (mode, entry) for mode, name, entry in found}
        is_whole = raw is not None and sum(len(mode) + len(name) + 22 for mode, name, _ in found) == len(raw)
        if not is_whole or len(entries) != len(found):
            raise malformed(id)
        return entries

    def _folder(self, id: pygit2.Oid, budget: PathBudget) -> bytes | None:
        """The stored content of a folder; None if the object is not a tree."""
        if (raw := self._folders.get(id)) is not None:
            if len(raw) > budget.most * LEAST_ENTRY:
                raise TooManyPaths(budget.most)
            return raw
        _, size = self.repository.odb.read_header(id)
        if size > budget.most * LEAST_ENTRY:
            raise TooManyPaths(budget.most)
        kind, raw = self.repository.read(id)
        if kind != ObjectType.TREE:
            return None
        if self._has_room(len(raw)):
            self._folders[id] = raw
        return raw

    def _has_room(self, size: int) -> bool:
        if size > LONGEST_KEPT:
            return False
        if self._kept + size > MOST_KEPT:
            self._folders.clear()
            self._commits.clear()
            self._kept = 0
        self._kept += size
        return True


def malformed(id: pygit2.Oid) -> ArchiveError:
    return ArchiveError(f"tree {id}", "is malformed", "Correct the commit that made it.")
