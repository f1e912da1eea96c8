"""Subversion trees read node by node, one request for each. `subversion` does so where an editor fails.

An editor is told a tree, or a difference, in one request. But subvertpy makes texts of the properties that it tells, and fails where one is not UTF-8: an author's
name in a repository that was converted long ago, or what somebody keeps in a property of his own. Asked for a node, it gives them as they are.

It takes long where much is there: a difference reads every file of both revisions. By the revisions that nodes were made in, no shorter way can be trusted: what lies below a
copied folder keeps those of the original.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from typing import Any

import subvertpy

from arkqueue.repository.limits import PathBudget
from arkqueue.repository.subversion.editors import LAST_CHANGED
from arkqueue.repository.subversion.library import ra
from arkqueue.repository.subversion.translation import Translation
from arkqueue.repository.tree_writer import TreeWriter

ABOUT_THE_NODE = ("svn:entry:", "svn:wc:")
"""How properties begin that say where a node comes from, not what it is."""

Content = tuple[bytes, frozenset[tuple[str, bytes]]]
"""The identity of a file: the digest of its text, and its properties."""


def export(session: Any, folder: str, number: int, writer: TreeWriter, translation: Translation) -> None:
    """Write a folder of a revision, and all below it."""
    if folder:
        writer.folder(_place(folder))
    for path, is_folder, _ in _below(session, folder, number):
        if not writer.wants(_place(path)):
            continue
        if is_folder:
            writer.folder(_place(path))
        else:
            with writer.create(_place(path)) as file:
                _, properties = session.get_file(path, file, number)
            translation.finish(writer, _place(path), properties)


def contents(session: Any, number: int, budget: PathBudget, *, with_history: bool = False) -> dict[str, Content]:
    """All files of a revision; none where the archive's folder is not there. ``with_history``: the revision that last changed a file is part of what it is."""
    if session.check_path("", number) != subvertpy.NODE_DIR:
        return {}
    found = {}
    for path, is_folder, _ in _below(session, "", number):
        budget.look()
        if not is_folder:
            found[path] = _content(session, path, number, with_history)
    return found


def check_size(session: Any, folder: str, number: int, budget: PathBudget, until: float | None = None) -> int:
    """The bytes of all files of a folder, as they are stored. Raises `TooManyPaths` where there are more files and folders than the budget has.

    ``until``: when (`time.monotonic`) it is enough; the answer is what was found until then.
    """
    size = 0
    for _, _, bytes in _below(session, folder, number):
        budget.look()
        size += bytes
        if until is not None and time.monotonic() > until:
            break
    return size


def _content(session: Any, path: str, number: int, with_history: bool) -> Content:
    digest = _Digest()
    _, properties = session.get_file(path, digest, number)
    own = frozenset(
        (name, value)
        for name, value in properties.items()
        if not name.startswith(ABOUT_THE_NODE) or (with_history and name == LAST_CHANGED)
    )
    return digest.sum.digest(), own


class _Digest:
    """A file that keeps no more of what is written than its sum."""

    def __init__(self) -> None:
        self.sum = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self.sum.update(data)


def _below(session: Any, folder: str, number: int) -> Iterator[tuple[str, bool, int]]:
    """Each path below a folder, folders before what is in them, whether it is one, and its bytes."""
    pending = [folder]
    while pending:
        at = pending.pop()
        entries, _, _ = session.get_dir(at, number, ra.DIRENT_KIND | ra.DIRENT_SIZE)
        for name, entry in entries.items():
            path, is_folder = f"{at}/{name}".lstrip("/"), entry["kind"] == subvertpy.NODE_DIR
            yield path, is_folder, 0 if is_folder else entry["size"]
            if is_folder:
                pending.append(path)


def _place(path: str) -> bytes:
    return path.encode(errors="surrogateescape")
