"""What differs between two trees of a Git repository, brought to a plain tree on disk.

The two are compared folder by folder, and folders with the same id are the same: the cost is that of what changed. It is
compared here and not by libgit2's diff, which knows no empty folders: a tree has them where another tool made it, and
where a submodule's place is.
"""

from __future__ import annotations

import re

import pygit2
from pygit2.enums import FileMode

from arkqueue.errors import ArchiveError
from arkqueue.model import ChangeStatus
from arkqueue.repository.limits import PathBudget, TooManyPaths
from arkqueue.repository.tree_update import TreeUpdate

_ENTRY = re.compile(rb"([0-7]+) ([^\0]+)\0(.{20})", re.DOTALL)
"""Mode, name and id."""

LEAST_ENTRY = 28
"""Bytes of the shortest entry of a tree."""

_Entry = tuple[bytes, bytes]
_Entries = dict[bytes, _Entry]


def changed_entries(
    repository: pygit2.Repository, before: pygit2.Tree, after: pygit2.Tree, update: TreeUpdate
) -> list[tuple[pygit2.Object, bytes]]:
    """Remove what is gone or replaced; the answer is what is to be written, with its paths."""
    new: list[tuple[pygit2.Object, bytes]] = []
    pending = [(before, after, b"")]
    while pending:
        old_tree, new_tree, folder = pending.pop()
        was, now = _entries(old_tree), _entries(new_tree)
        for name in sorted({name for name, _ in was.items() ^ now.items()}):
            path = folder + b"/" + name if folder else name
            if not update.wants(path):
                continue
            entry = new_tree[name.decode(errors="surrogateescape")] if name in now else None
            if name in was and is_folder(was[name]) and isinstance(entry, pygit2.Tree):
                old = repository[pygit2.Oid(raw=was[name][1])]
                if not isinstance(old, pygit2.Tree):
                    raise _malformed(old_tree)
                pending.append((old, entry, path))
                continue
            if name in was:
                update.remove(path)
            if entry is not None:
                new.append((entry, path))
    return new


def changed_files(
    repository: pygit2.Repository, before: pygit2.Oid | None, after: pygit2.Oid, budget: PathBudget
) -> dict[bytes, ChangeStatus]:
    """All files that differ between two trees, by path; without ``before``, those of the tree. A submodule counts as a file.

    Raises `TooManyPaths`. libgit2's own difference has no end where a tree holds itself a thousand times, on each of several levels.
    """
    changed: dict[bytes, ChangeStatus] = {}
    pending: list[tuple[pygit2.Oid | None, pygit2.Oid | None, bytes]] = [(before, after, b"")]
    while pending:
        old_id, new_id, folder = pending.pop()
        if old_id == new_id:
            continue
        was, now = ({} if id is None else entries_of(repository, id, budget) for id in (old_id, new_id))
        budget.look(len(was) + len(now))
        for name in {name for name, _ in was.items() ^ now.items()}:
            old, new = was.get(name), now.get(name)
            if (status := _status(old, new)) is not None:
                changed[folder + name] = status
            below = [
                pygit2.Oid(raw=entry[1]) if entry is not None and is_folder(entry) else None for entry in (old, new)
            ]
            if below != [None, None]:
                pending.append((below[0], below[1], folder + name + b"/"))
    return changed


def _status(old: _Entry | None, new: _Entry | None) -> ChangeStatus | None:
    """What happened to the file of a name; None where both entries are folders, or there is no other."""
    was_file, is_file = (entry is not None and not is_folder(entry) for entry in (old, new))
    if was_file and is_file:
        return ChangeStatus.MODIFIED
    if was_file:
        return ChangeStatus.DELETED
    return ChangeStatus.ADDED if is_file else None


def entries_of(repository: pygit2.Repository, id: pygit2.Oid, budget: PathBudget) -> _Entries:
    """What a folder has: mode and id, by name. Raises `TooManyPaths`."""
    _, size = repository.odb.read_header(id)
    if size > budget.most * LEAST_ENTRY:
        raise TooManyPaths(budget.most)
    _, raw = repository.read(id)
    return {name: (mode, entry) for mode, name, entry in _ENTRY.findall(raw)}


def is_folder(entry: _Entry) -> bool:
    """Whether an entry is said to be a tree."""
    return int(entry[0], 8) & 0o170000 == FileMode.TREE


def _entries(tree: pygit2.Tree) -> _Entries:
    raw = tree.read_raw()
    found = _ENTRY.findall(raw)
    entries = {name: (mode, id) for mode, name, id in found}
    whole = sum(len(mode) + len(name) + 22 for mode, name, _ in found) == len(raw)
    if len(entries) != len(found) or not whole or any(b"/" in name for name in entries):
        raise _malformed(tree)
    return entries


def _malformed(tree: pygit2.Tree) -> ArchiveError:
    return ArchiveError(f"tree {tree.id}", "is malformed", "Correct the commit that made it.")
