"""Finds when files of a Git commit were last changed, for their modification times (rule 38).

Git does not store these dates. So each commit is compared with its first parent, from the exported
commit backwards, until all files are found. The files that a merge brought to the branch get the
date of the merge. The walk has limits: a file that it does not find gets the date of the last
commit that was compared, which is later than its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from arkqueue.repository.git.commits import Commit, has_object
from arkqueue.repository.git.objects import Objects
from arkqueue.repository.git.tree_difference import changed_files
from arkqueue.repository.limits import PathBudget, TooManyPaths
from arkqueue.repository.tree_writer import TreeWriter

MOST_COMMITS, MOST_ENTRIES = 500, 200_000
"""The most commits, and the most entries of their folders, that are compared for the dates of one
tree.
"""


def set_dates(objects: Objects, commit: Commit, writer: TreeWriter, paths: Iterable[bytes]) -> None:
    """Give each of the written files the date of the commit that last changed it."""
    missing, at = dict.fromkeys(paths), commit
    budget = PathBudget(MOST_ENTRIES)
    for _ in range(MOST_COMMITS):
        parent = _first_parent(objects, at) if missing else None
        if parent is None:
            break
        try:
            changed = changed_files(objects, parent.tree, at.tree, budget)
        except TooManyPaths:
            break
        for path in changed.keys() & missing.keys():
            writer.set_time(path, str(at.id), at.time * 10**9)
            del missing[path]
        at = parent
    for path in missing:
        writer.set_time(path, str(at.id), at.time * 10**9)


def _first_parent(objects: Objects, commit: Commit) -> Commit | None:
    """The first parent; None also at the end of a shallow clone."""
    if not commit.parents or not has_object(objects.repository, commit.parents[0]):
        return None
    return objects.commit(commit.parents[0])
