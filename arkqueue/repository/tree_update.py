"""Brings a plain tree that was exported before to another revision, touching only what differs.

Git's and Subversion's differences say what goes and what comes; here it is done, with the care of `TreeWriter`: a place
that is to be filled must be empty, and the folders on the way must be folders. A file that differs is made anew, never
written to. Whatever is not as the earlier export left it is a `WorkspaceError`: then the tree is good for nothing, and
the caller exports another one.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

from arkqueue.errors import WorkspaceError
from arkqueue.model import STAMPS, TreeChange
from arkqueue.repository.tree_writer import Early, TreeWriter


def another_now(revision_id: str) -> WorkspaceError:
    """The error if the repository no longer has the revision of an exported tree."""
    return WorkspaceError(
        f"revision {revision_id}", "is another one now than the one that was exported", "Export it anew."
    )


class TreeUpdate(TreeWriter):
    """Changes a tree that is there. ``good``: the file that says that it is good, which is removed before anything is changed."""

    def __init__(self, target: Path, good: Path | None = None, early: Early | None = None) -> None:
        super().__init__(target, early)
        self._good = good
        self._began: int | None = None
        self._entered: dict[int, bytes] = {}
        self._walked: set[bytes] = {b""}
        self._new: dict[bytes, None] = {}  # in order, and each once
        self._freed = 0

    def remove(self, path: bytes) -> None:
        """Remove what is at ``path``: a file, a link, or a folder and all in it, however deep."""
        self._enter(path.rpartition(b"/")[0])
        self._change()
        with self._explained(path):
            folders, pending = [], [path]
            while pending:
                found = pending.pop()
                status = os.lstat(self._place(found))
                if found in self._new:
                    del self._new[found]
                else:
                    self._freed += _space(status)
                if stat.S_ISDIR(status.st_mode):
                    folders.append(found)
                    self._made.discard(found)
                    self._walked.discard(found)
                    pending += [found + b"/" + name for name in os.listdir(self._place(found))]
                else:
                    os.unlink(self._place(found))
            for folder in reversed(folders):
                os.rmdir(self._place(folder))

    def result(self) -> TreeChange:
        """What was done."""
        grown = -self._freed
        for path in self._new:
            with self._explained(path):
                grown += _space(os.lstat(self._place(path)))
        return TreeChange(tuple(self._new), grown, self._began, self._entered)

    def _prepare(self, path: bytes) -> None:
        self._change()
        super()._prepare(path)
        self._new[path] = None

    def _enter(self, folder: bytes) -> None:
        """Folders that this update does not make must exist already."""
        if folder in self._made or folder in self._walked:
            return
        self._enter(folder.rpartition(b"/")[0])
        with self._explained(folder):
            status = os.lstat(self._place(folder))
            if not stat.S_ISDIR(status.st_mode):
                raise NotADirectoryError("it is not a folder")
        self._entered.setdefault(status.st_ctime_ns, folder)  # before it is changed: its time will be new then
        self._walked.add(folder)

    def _change(self) -> None:
        if self._began is None:
            with self._explained(b""):
                self._entered.setdefault(os.lstat(self._place(b"")).st_ctime_ns, b"")
                if self._good is not None:
                    self._good.unlink(missing_ok=True)
            self._began = time.clock_gettime_ns(STAMPS)


def _space(status: os.stat_result) -> int:
    """About how many bytes a file or folder takes on a disk. The file system reports the exact number only after the write."""
    return 4096 if stat.S_ISDIR(status.st_mode) else -(-status.st_size // 4096) * 4096
