"""Free disk space: a task manager claims no tasks while one of its disks has less than `min_free`.

Running tasks go on, and their ends are recorded. The disks are examined before each claim, so
claiming continues as soon as there is enough space. The task manager also frees space: it removes
trees that it keeps for later workspaces, the least recently used ones first.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection
from pathlib import Path

log = logging.getLogger("arkqueue")


class FreeSpace:
    """The free space of one task manager. The claiming thread calls `look`; any thread may read ``lack``."""

    def __init__(self, folders: Collection[Path], bases: Path, least: int, give_up_base: Callable[[], bool]) -> None:
        """``folders``, ``bases``: folders on the disks to examine. ``least``: the bytes that have to
        be free on each disk; 0: any number is enough.
        """
        self._folders, self._bases, self._least, self._give_up_base = folders, bases, least, give_up_base
        self.lack: str | None = None
        """The reason why no tasks are claimed; None if the disks have enough space."""

    def look(self) -> str | None:
        """Examine the disks, and return ``lack``. If the disk of the bases is short of space, each
        call removes one base.
        """
        was = self.lack
        self.lack = found = self._find()
        if found is not None:
            if was is None:
                log.warning("%s: nothing is claimed until there is room", found)
            if _free(self._bases) < self._least:
                self._give_up_base()
        elif was is not None:
            log.warning("every disk has room again: tasks are claimed")
        return found

    def is_short(self) -> bool:
        """True if a disk is short of space now. Frees no space, so that the caller is not held up."""
        return self._find() is not None

    def _find(self) -> str | None:
        if not self._least:
            return None
        for folder in (*self._folders, self._bases):
            if (free := _free(folder)) < self._least:
                return f"the disk of {folder} has {_size(int(free))} free, less than min_free ({_size(self._least)})"
        return None


def _free(folder: Path) -> float:
    """The free bytes of a disk; infinite if the disk cannot be examined, because tasks that do not
    start there will say what is wrong.
    """
    try:
        disk = os.statvfs(folder)
    except OSError:
        return float("inf")
    return disk.f_bavail * disk.f_frsize


def _size(count: int) -> str:
    """Bytes in a readable unit, rounded down, so that a smaller number never looks as large as the
    limit.
    """
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << power:
            tenths = count * 10 >> power
            return f"{tenths // 10}.{tenths % 10} {unit}" if tenths % 10 else f"{tenths // 10} {unit}"
    return f"{count} B"
