"""Notices that another program changed a base, at a cost that does not grow with the base.

The kernel records for each file and folder when it was last changed (ctime), and nobody can set
this time. So in an untouched base, each file was last changed before ``since``, or in one of the
``windows`` of time in which an update was at work. Each use of a base checks some thousand more of
its files, so any change is found in the end. A base that exists at the start of a task manager is
checked as a whole. When all files have been seen, ``since`` moves to the time when that walk began,
and the windows before it are forgotten.

If an update has changed a folder, its time is new; so the update says when the folder was last
changed before. Two changes cannot be noticed: one in the very window of an update, and one by
somebody who sets the host's clock back.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from itertools import islice

from arkqueue.model import STAMPS

AT_A_TIME = 4096
"""The number of files and folders that one use of a base checks: a few milliseconds, and all files
of most archives.
"""

Window = tuple[int, int]


class Changed(Exception):
    """A base has changed since its last export or update."""


class Watch:
    """The watch over one tree. Times are nanoseconds since 1970. One thread at a time may call it."""

    def __init__(self, tree: bytes, since: int, windows: list[Window]) -> None:
        self._tree = tree
        self.since, self.windows = since, windows
        self._walk, self._began = iter(()), since  # type: Iterator[tuple[bytes, os.stat_result]], int

    def changed_since(self, began: int) -> None:
        """Record that an update made all changes from a time until now."""
        self.windows.append((began, time.time_ns()))

    def check(self, most: int | None = AT_A_TIME) -> None:
        """Check the next files, or (None) all of them; raises Changed."""
        self.check_one(self._tree, self._status(self._tree).st_ctime_ns)
        if most is None:
            self._begin()
        seen = 0
        for path, status in islice(self._walk, most):
            self.check_one(path, status.st_ctime_ns)
            seen += 1
        if most is None or seen < most:
            self._all_seen()

    def _begin(self) -> None:
        self._began = time.clock_gettime_ns(STAMPS)
        self._walk = self._all()

    def _all_seen(self) -> None:
        self.since = max(self.since, self._began)
        self.windows = [window for window in self.windows if window[1] > self.since]
        self._begin()

    def check_one(self, path: bytes, changed: int) -> None:
        """Check one file by the time of its last change; raises Changed."""
        if changed > self.since and not any(start <= changed <= end for start, end in self.windows):
            raise Changed(f"{path.decode(errors='backslashreplace')} was changed by somebody else")

    def _status(self, path: bytes) -> os.stat_result:
        try:
            return os.lstat(path)
        except OSError as error:
            raise Changed(f"{path.decode(errors='backslashreplace')}: {error.strerror}") from None

    def _all(self) -> Iterator[tuple[bytes, os.stat_result]]:
        """All files and folders of the tree. The tree may change at the same time. Files that
        disappear are left out.
        """
        pending = [self._tree]
        while pending:
            folder = pending.pop()
            try:
                names = os.listdir(folder)
            except (FileNotFoundError, NotADirectoryError):
                continue
            for name in names:
                path = folder + b"/" + name
                try:
                    status = os.lstat(path)
                except (FileNotFoundError, NotADirectoryError):
                    continue
                yield path, status
                if stat.S_ISDIR(status.st_mode):
                    pending.append(path)
