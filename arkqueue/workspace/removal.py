"""Removes the files that a stranger has left: at any depth, of any owner, and nothing outside their
folder.

Called when an attempt has ended, when a base is removed, and for the remains of a killed task
manager. No symlink is followed. As long as anything is mounted below a folder, the folder is not
touched: its files could be the files of this host.

Removing a million files takes a minute. A caller that needs the slot or the start waits for at most
`PATIENCE` seconds: then `TakesLong` is raised, and the caller leaves the rest to `Later`.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import queue
import re
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from arkqueue.model import AttemptId
from arkqueue.workspace.layers import mounts_below

log = logging.getLogger("arkqueue")

PATIENCE = 0.5
"""The seconds that a caller waits for a removal."""

LEVELS = 3
"""The levels of subfolders that are emptied where they are. Most workspaces have no more, so they
need no folder for what is moved.
"""

NOT_FOLLOWED = os.O_NOFOLLOW | os.O_CLOEXEC
FOLDER = os.O_RDONLY | os.O_DIRECTORY | NOT_FOLLOWED

_NAME = re.compile(r"\.?(\d+)(\.\d+)*")


def attempt_of(name: str) -> AttemptId | None:
    """The attempt of a folder in the work folder: its workspace, or a part of one whose removal was
    interrupted.
    """
    match = _NAME.fullmatch(name)
    return AttemptId(int(match[1])) if match else None


class TakesLong(Exception):
    """A folder has too many contents to be removed yet. `Removal` says how the remaining parts are
    named.
    """


class Later:
    """Removes folders in a thread of its own, one after the other. If the process ends earlier, the
    next start removes the rest.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._has_begun = False

    def put(self, remove: Callable[[], None]) -> None:
        """Add a removal to the queue; returns at once."""
        self._waiting.put(remove)
        with self._lock:
            if not self._has_begun:
                self._has_begun = True
                threading.Thread(target=self._removing, name="remove", daemon=True).start()

    def _removing(self) -> None:
        while True:
            remove = self._waiting.get()
            try:
                remove()
            except Exception:
                log.exception("what is not needed any more could not be removed")


def remove_folder(
    parent: Path, name: str, mounted: Sequence[bytes] | None = None, until: float | None = None
) -> list[tuple[str, OSError]]:
    """Remove a folder. Returns the paths that could not be removed, with the reasons.

    ``mounted``: the mounts there, if they are known. ``until``: the time (`time.monotonic`) at
    which TakesLong is raised; None: never.
    """
    if mounted is None:
        mounted = mounts_below(parent / name)
    if mounted:
        return [(os.fsdecode(mounted[0]), OSError(errno.EBUSY, "something is mounted there"))]
    descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return Removal(descriptor, name, until).run()
    finally:
        os.close(descriptor)


class Removal:
    """Removes one folder of the work folder, however deep, also while a task still works in it. No
    symlink is followed.

    The first levels are emptied where they are. Deeper subfolders that are not empty are moved into
    a folder of this process. When the turn of a moved folder comes, the same is done with it. So no
    path becomes long, no recursion deep, and only a few folders are open at a time. The folder of
    this process is closed to others, because a subfolder may hold a setuid file that a container's
    root has left. It lies in the work folder and is named like a part of the attempt, in case the
    removal is interrupted.
    """

    def __init__(self, work: int, name: str, until: float | None = None) -> None:
        self._work = work
        self._until = float("inf") if until is None else until
        self._name = name
        self._ours = f".{name.lstrip('.')}.{time.time_ns()}"
        self._within: int | None = None
        """The open folder of this process, once it exists."""
        self._pending: list[str] = []
        """The names of the folders that were moved into it and are not removed yet."""
        self._moved = 0
        self._faults: list[tuple[str, OSError]] = []

    def run(self) -> list[tuple[str, OSError]]:
        try:
            self._remove(self._name, self._work)
            while self._pending:
                assert self._within is not None
                self._remove(self._pending.pop(), self._within)
        finally:
            if self._within is not None:
                os.close(self._within)
                # The folder contains files that could not be removed.
                with contextlib.suppress(OSError):
                    os.rmdir(self._ours, dir_fd=self._work)
        return self._faults

    def _remove(self, folder: str, parent: int) -> None:
        with self._tolerant(folder):
            try:
                # Another user's folder: its contents stay, unless this process is root.
                with contextlib.suppress(PermissionError):
                    _take(folder, parent)
                descriptor = os.open(folder, FOLDER, dir_fd=parent)
            except NotADirectoryError:  # a task has replaced the folder by something else
                os.unlink(folder, dir_fd=parent)
                return
            self._empty(descriptor, 0)
            os.rmdir(folder, dir_fd=parent)

    def _empty(self, descriptor: int, level: int) -> None:
        """Remove the contents of an open folder, or move some of them into the folder of this
        process. Closes the folder.
        """
        try:
            with os.scandir(descriptor) as entries:
                found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
            for name, is_folder in found:
                if time.monotonic() >= self._until:
                    raise TakesLong
                with self._tolerant(name):
                    if is_folder:
                        self._remove_or_move(name, descriptor, level)
                    else:
                        os.unlink(name, dir_fd=descriptor)
        finally:
            os.close(descriptor)

    def _remove_or_move(self, name: str, parent: int, level: int) -> None:
        if _is_removed(name, parent):
            return
        if level < LEVELS:
            faults = len(self._faults)
            with contextlib.suppress(NotADirectoryError, PermissionError):
                self._empty(_opened(name, parent), level + 1)
                if _is_removed(name, parent):
                    return
            # A task may still work in the folder. It does not find the moved folder, which is tried
            # again.
            del self._faults[faults:]
        self._move(name, parent)

    def _move(self, name: str, parent: int) -> None:
        if self._within is None:
            os.mkdir(self._ours, 0o700, dir_fd=self._work)
            self._within = os.open(self._ours, FOLDER, dir_fd=self._work)
        self._moved += 1
        # Another user's folder, and this process is not root.
        with contextlib.suppress(PermissionError):
            _take(name, parent)  # moving a folder writes to it
        try:
            os.rename(name, str(self._moved), src_dir_fd=parent, dst_dir_fd=self._within)
        except PermissionError:  # another user's folder: it can be removed only if it is empty
            os.rmdir(name, dir_fd=parent)
            return
        self._pending.append(str(self._moved))

    @contextlib.contextmanager
    def _tolerant(self, name: str) -> Iterator[None]:
        """Record a path that cannot be removed, and continue."""
        try:
            yield
        except FileNotFoundError:
            pass
        except OSError as error:
            # Otherwise it contains paths that are recorded already.
            if error.errno != errno.ENOTEMPTY or not self._faults:
                self._faults.append((name, error))


def _is_removed(folder: str, parent: int) -> bool:
    """Remove a folder if it is empty."""
    try:
        os.rmdir(folder, dir_fd=parent)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EACCES, errno.EPERM):
            raise
        return False
    return True


def _opened(folder: str, parent: int) -> int:
    """Open a folder that only this process can read and write from now on. Raises
    NotADirectoryError, and PermissionError for another user's folder.
    """
    try:
        descriptor = os.open(folder, FOLDER, dir_fd=parent)
    except PermissionError:
        _take(folder, parent)
        descriptor = os.open(folder, FOLDER, dir_fd=parent)
    try:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != 0o700:
            os.fchmod(descriptor, 0o700)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _take(folder: str, parent: int) -> None:
    """Let only this process read and write a folder. If a task replaces the folder in the meantime,
    the replacement is not followed.

    Raises NotADirectoryError, and PermissionError for another user's folder.
    """
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY | NOT_FOLLOWED, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{place}", 0o700)  # fchmod needs a folder that can be read
    finally:
        os.close(place)
