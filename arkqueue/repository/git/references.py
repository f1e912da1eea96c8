"""The references of a Git tree that an export of the tree lacks: submodules, and files that Git LFS
stores elsewhere.

Each folder is read once, and the result is cached by the folder's id. So the next revision costs
only its changes, and a tree that holds the same folder a thousand times costs no more than one
folder.
"""

from __future__ import annotations

import pygit2
from pygit2.enums import FileMode

from arkqueue.repository.git.objects import Objects
from arkqueue.repository.limits import PathBudget
from arkqueue.repository.unfollowed import LONGEST_ATTRIBUTES, NAMED, lfs, submodules

MOST_FOLDERS = 100_000
"""The most folders in the cache."""

_ATTRIBUTES = b".gitattributes"

_Found = tuple[tuple[bytes, ...], tuple[bytes, ...]]
"""The submodules, and the folders whose attributes name Git LFS, as paths from the folder. Only
some of each, if there are many.
"""


class References:
    """The cache of folders, shared by all threads and repositories, as an id stands for the content
    of a folder.
    """

    def __init__(self) -> None:
        self._folders: dict[bytes, _Found] = {}

    def of(self, objects: Objects, tree: pygit2.Oid) -> tuple[str, ...]:
        """The references as sentences for people. Raises `TooManyPaths`."""
        if len(self._folders) > MOST_FOLDERS:
            self._folders = {}  # another thread goes on with the old one
        known = self._folders
        budget = PathBudget()
        pending = [tree]
        while pending:  # not by recursion: a tree may be nested more deeply than Python's stack
            at = pending[-1]
            if at.raw in known:
                pending.pop()
                continue
            entries = objects.entries(at, budget)
            budget.look(len(entries))
            below = {name: id for name, (mode, id) in entries.items() if _kind(mode) == FileMode.TREE}
            missing = {id for id in below.values() if id not in known}
            if missing:
                pending += [pygit2.Oid(raw=id) for id in missing]
                continue
            links = [name for name, (mode, _) in entries.items() if _kind(mode) == FileMode.COMMIT]
            attributes = entries.get(_ATTRIBUTES)
            named = [b""] if attributes is not None and _names_lfs(objects.repository, attributes[1]) else []
            for name, id in below.items():
                links += [name + b"/" + path for path in known[id][0]]
                named += [(name + b"/" + path).rstrip(b"/") for path in known[id][1]]
            known[at.raw] = tuple(sorted(links)[: NAMED + 1]), tuple(sorted(named)[: NAMED + 1])
            pending.pop()
        links_found, folders = known[tree.raw]
        return (*submodules(links_found), *lfs(folders))


references = References()


def _kind(mode: bytes) -> int:
    return int(mode, 8) & 0o170000


def _names_lfs(repository: pygit2.Repository, id: bytes) -> bool:
    oid = pygit2.Oid(raw=id)
    if repository.odb.read_header(oid)[1] > LONGEST_ATTRIBUTES:
        return False
    return b"filter=lfs" in repository.read(oid)[1]
