"""Applies the difference between two trees of a Git repository to a plain tree on disk.

The trees are compared folder by folder. Folders with the same id are equal, so the cost follows the
changes. libgit2's diff is not used, because it leaves out empty folders. A tree has them if
another tool made it, and in the places of submodules.
"""

from __future__ import annotations

import pygit2
from pygit2.enums import FileMode

from arkqueue.model import ChangeStatus
from arkqueue.repository.git.objects import Entry, Objects, malformed
from arkqueue.repository.limits import PathBudget
from arkqueue.repository.tree_update import TreeUpdate


def changed_entries(
    objects: Objects, before: pygit2.Oid, after: pygit2.Oid, update: TreeUpdate, budget: PathBudget
) -> list[tuple[Entry, bytes]]:
    """Remove entries that are gone or replaced. Returns the entries to write, with their paths."""
    new: list[tuple[Entry, bytes]] = []
    pending = [(before, after, b"")]
    while pending:
        old_id, new_id, folder = pending.pop()
        was, now = (objects.all_entries(id, budget) for id in (old_id, new_id))
        for name in sorted({name for name, _ in was.items() ^ now.items()}):
            path = folder + b"/" + name if folder else name
            if b"/" in name:
                raise malformed(new_id if name in now else old_id)
            if not update.wants(path):
                continue
            old, entry = was.get(name), now.get(name)
            if old is not None and entry is not None and is_folder(old) and is_folder(entry):
                pending.append((pygit2.Oid(raw=old[1]), pygit2.Oid(raw=entry[1]), path))
                continue
            if old is not None:
                update.remove(path)
            if entry is not None:
                new.append((entry, path))
    return new


def changed_files(
    objects: Objects, before: pygit2.Oid | None, after: pygit2.Oid, budget: PathBudget
) -> dict[bytes, ChangeStatus]:
    """All files that differ between two trees, by path; without ``before``, all files of ``after``.
    A submodule counts as a file.

    Raises `TooManyPaths`. libgit2's own diff does not end if a tree holds itself a thousand times,
    on each of several levels.
    """
    changed: dict[bytes, ChangeStatus] = {}
    pending: list[tuple[pygit2.Oid | None, pygit2.Oid | None, bytes]] = [(before, after, b"")]
    while pending:
        old_id, new_id, folder = pending.pop()
        if old_id == new_id:
            continue
        was, now = ({} if id is None else objects.entries(id, budget) for id in (old_id, new_id))
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


def _status(old: Entry | None, new: Entry | None) -> ChangeStatus | None:
    """The change of the file with one name; None if both entries are folders, or both are missing."""
    was_file, is_file = (entry is not None and not is_folder(entry) for entry in (old, new))
    if was_file and is_file:
        return ChangeStatus.MODIFIED
    if was_file:
        return ChangeStatus.DELETED
    return ChangeStatus.ADDED if is_file else None


def is_folder(entry: Entry) -> bool:
    """True if an entry claims to be a tree."""
    return kind_of(entry) == FileMode.TREE


def kind_of(entry: Entry) -> int:
    """The kind of an entry: `FileMode.TREE`, ``COMMIT`` or ``LINK``, or a kind of files."""
    return int(entry[0], 8) & 0o170000
