"""Turns an exported plain tree into another revision, and touches only what differs.

The differences of Git and Subversion say what to remove and what to write. This module removes and
writes with the checks of `TreeWriter`: nothing may be at the place of a new file, and everything
above it must be a folder. A file that differs is made again, never written to. If anything differs from the
earlier export, that is a `WorkspaceError`: the tree cannot be used any more, and the caller exports
a new one.
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
    """Changes an existing tree. ``good``: the file that marks it as good, which is removed before
    anything is changed.
    """

    def __init__(self, target: Path, good: Path | None = None, early: Early | None = None) -> None:
        super().__init__(target, early)
        self._good = good
        self._began: int | None = None
        self._entered: dict[int, bytes] = {}
        self._walked: set[bytes] = {b""}
        self._new: dict[bytes, None] = {}  # an ordered set
        self._freed = 0

    def remove(self, path: bytes) -> None:
        """Remove the thing at ``path``: a file, a link, or a folder with all its contents, however
        deep.
        """
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
        """The summary of the changes."""
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
        self._entered.setdefault(status.st_ctime_ns, folder)  # before the folder is changed, which sets its ctime
        self._walked.add(folder)

    def _change(self) -> None:
        if self._began is None:
            with self._explained(b""):
                self._entered.setdefault(os.lstat(self._place(b"")).st_ctime_ns, b"")
                if self._good is not None:
                    self._good.unlink(missing_ok=True)
            self._began = time.clock_gettime_ns(STAMPS)


def _space(status: os.stat_result) -> int:
    """The approximate bytes that a file or folder takes on a disk. The file system reports the
    exact number only after the write.
    """
    return 4096 if stat.S_ISDIR(status.st_mode) else -(-status.st_size // 4096) * 4096
