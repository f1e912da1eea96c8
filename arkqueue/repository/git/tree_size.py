"""Counts the files and folders of a Git tree, and their bytes, before any of them is written.

Each tree is read once, however often it is part of others: 10 equal folders on each of 9 levels are
10⁹ paths, but 10 trees. So the cost is that of the distinct trees. Their results are cached: the
next revision costs only its changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import pygit2
from pygit2.enums import FileMode

from arkqueue.repository.git.objects import Entry, Objects
from arkqueue.repository.git.tree_difference import is_folder, kind_of
from arkqueue.repository.limits import PathBudget, TooManyPaths

MOST_KNOWN = 100_000
"""The most trees in the cache."""
ENDLESS = 10**15
"""The most that is counted. The numbers of a deeply nested tree would otherwise become too long to
add.
"""


class TreeSizes:
    """The sizes of trees of one repository. Repositories do not share them, because nothing proves
    that a repository's objects match their ids.
    """

    def __init__(self, measure: Callable[[Objects, Collection[Entry]], int]) -> None:
        """``measure``: the size of one folder, without its subfolders."""
        self._measure = measure
        self._known: dict[pygit2.Oid, int] = {}

    def of(self, objects: Objects, tree: pygit2.Oid, budget: PathBudget) -> int:
        """The sum over all of a tree. Raises `TooManyPaths` if its distinct trees have more entries
        than the budget, or it contains itself.
        """
        known = self._known
        if len(known) > MOST_KNOWN:
            known.clear()
        opened: dict[pygit2.Oid, tuple[int, list[pygit2.Oid]]] = {}
        """The trees on the way to the current one."""
        pending = [tree]
        while pending:
            id = pending[-1]
            if id in known:
                pending.pop()
            elif id in opened:
                entries, folders = opened.pop(id)
                known[id] = min(ENDLESS, entries + sum(known[folder] for folder in folders))
            else:
                found = objects.entries(id, budget)
                budget.look(len(found))
                folders = [pygit2.Oid(raw=entry[1]) for entry in found.values() if is_folder(entry)]
                opened[id] = self._measure(objects, found.values()), folders
                if any(folder in opened for folder in folders):
                    raise TooManyPaths(budget.most)
                pending += dict.fromkeys(folder for folder in folders if folder not in known)
        return known[tree]


def number(_objects: Objects, entries: Collection[Entry]) -> int:
    """The number of these files and folders."""
    return len(entries)


def weight(objects: Objects, entries: Collection[Entry]) -> int:
    """The bytes of the files among these entries."""
    ids = (pygit2.Oid(raw=entry[1]) for entry in entries if kind_of(entry) not in (FileMode.TREE, FileMode.COMMIT))
    return sum(objects.repository.odb.read_header(id)[1] for id in ids)
