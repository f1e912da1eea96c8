"""How many files and folders a tree of a Git repository has, and how many bytes, told before any of them is written.

Each tree is looked at once, however often it is in others: 10 folders that are the same on each of 9 levels are 10⁹ paths and 10 trees. So the cost is
that of its distinct trees, and what is known of them is kept: the next revision costs what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import pygit2
from pygit2.enums import FileMode

from arkqueue.repository.git.objects import Entry, Objects
from arkqueue.repository.git.tree_difference import is_folder, kind_of
from arkqueue.repository.limits import PathBudget, TooManyPaths

MOST_KNOWN = 100_000
"""Trees that are remembered."""
ENDLESS = 10**15
"""No tree has more: the numbers of a deep one would be longer than anybody can add."""


class TreeSizes:
    """The sizes of trees of one repository. Other repositories do not use them: nobody proves that
    a repository's objects are those of their ids.
    """

    def __init__(self, measure: Callable[[Objects, Collection[Entry]], int]) -> None:
        """``measure``: what one folder has, without the folders in it."""
        self._measure = measure
        self._known: dict[pygit2.Oid, int] = {}

    def of(self, objects: Objects, tree: pygit2.Oid, budget: PathBudget) -> int:
        """The sum below a tree. Raises `TooManyPaths` where its distinct trees have more than the budget, or it is in itself."""
        known = self._known
        if len(known) > MOST_KNOWN:
            known.clear()
        opened: dict[pygit2.Oid, tuple[int, list[pygit2.Oid]]] = {}
        """The trees on the way to the one that is looked at."""
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
    """How many files and folders these are."""
    return len(entries)


def weight(objects: Objects, entries: Collection[Entry]) -> int:
    """The bytes of those of them that are files."""
    ids = (pygit2.Oid(raw=entry[1]) for entry in entries if kind_of(entry) not in (FileMode.TREE, FileMode.COMMIT))
    return sum(objects.repository.odb.read_header(id)[1] for id in ids)
