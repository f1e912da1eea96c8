"""Reads Subversion trees node by node, one request for each. `subversion` does so if an editor
fails.

An editor gets a tree, or a difference, in one request. But subvertpy decodes the reported
properties, and fails if one is not UTF-8: an author's name in a repository that was converted long
ago, or a custom property. For single nodes, it returns the bytes of properties.

This is slow for large trees: a difference reads every file of both revisions. The revisions in
which nodes were made cannot be used to read less: nodes below a copied folder keep those of the
original.
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
"""The prefixes of properties that say where a node comes from, and are not part of its content."""

Content = tuple[bytes, frozenset[tuple[str, bytes]]]
"""The identity of a file: the digest of its text, and its properties."""


def export(session: Any, folder: str, number: int, writer: TreeWriter, translation: Translation) -> None:
    """Write a folder of a revision, with all its contents."""
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
    """All files of a revision; empty if the archive's folder does not exist. ``with_history``:
    include the revision that last changed a file in its identity.
    """
    if session.check_path("", number) != subvertpy.NODE_DIR:
        return {}
    found = {}
    for path, is_folder, _ in _below(session, "", number):
        budget.look()
        if not is_folder:
            found[path] = _content(session, path, number, with_history)
    return found


def check_size(session: Any, folder: str, number: int, budget: PathBudget, until: float | None = None) -> int:
    """The bytes of all files of a folder, as they are stored. Raises `TooManyPaths` if there are
    more files and folders than the budget allows.

    ``until``: the time (`time.monotonic`) at which to stop; the result is then what was counted
    until then.
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
    """A file-like object that keeps only a digest of what is written."""

    def __init__(self) -> None:
        self.sum = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self.sum.update(data)


def _below(session: Any, folder: str, number: int) -> Iterator[tuple[str, bool, int]]:
    """Each path below a folder, folders before their contents, with whether it is a folder, and its
    bytes.
    """
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
