"""Attachments of submissions on the disk of a store: they arrive in pieces, and tasks read them
(design 5.31; decision 25).

In ``<root>/<installation>/attachments/<folder>``, where the root is that of the scratch folders::

    parts/7     the received bytes of the eighth file; the next piece begins at its end
    files       the folder that tasks see as ARKQUEUE_ATTACHMENTS, once all files are there; nobody
                can write to it

The folder has the number of a row in the database, which decides how long the folder stays. A web
process writes the files; the task managers of the store read and remove them. The names of the
files have been checked (`workflow.attachments`), and no task can write here, so it is safe to follow
paths in the folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from arkqueue.errors import HostFault, WorkspaceError
from arkqueue.workspace.bases import OURS, Owner
from arkqueue.workspace.removal import NOT_FOLLOWED, attempt_of, remove_folder
from arkqueue.workspace.scratch import make_root
from arkqueue.workspace.workspaces import check_way

if TYPE_CHECKING:
    from hashlib import _Hash

PIECE = 1 << 20
"""The bytes that are read at once to compute a digest."""
MOST_DIGESTS = 256
"""The number of unfinished digests that are kept."""

REMEDY = "Make room there, and submit them again with the same id: the received bytes are kept"


class Full(HostFault):
    """The disk has no room for attachments. The received bytes stay."""


class Taken(Exception):
    """Another call writes this file."""


class Wrong(Exception):
    """A complete file has another digest (``found``) than its sender announced. The file is
    removed.
    """

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found


class AttachmentFolders:
    """The attachment folders of one installation in one store. Any thread may call it."""

    def __init__(self, root: Path, installation: str, least_free: int = 0) -> None:
        """``root``: the root of the scratch folders. ``least_free``: the bytes that stay free on
        its disk.
        """
        self._root, self._parent = root, root / installation / "attachments"
        self._least_free = least_free
        self._digests = Digests()
        self._sealing = threading.Lock()

    # While files are received

    def check_room(self, size: int) -> None:
        """Raise Full if ``size`` bytes more would leave too little free space."""
        disk = os.statvfs(self._root)
        free = disk.f_bavail * disk.f_frsize
        if free - size < self._least_free:
            kept = f", of which {self._least_free:,} stay free (min_free)" if self._least_free else ""
            raise Full("the attachments", f"do not fit on the disk of {self._root}: {size:,} bytes more, and {free:,} are free{kept}", REMEDY)  # fmt: skip

    def with_room(self, size: int) -> Path:
        """The folder of all attachments. Raises Full if there is no room for ``size`` bytes more;
        for 0 bytes there is always room.
        """
        make_root(self._root)
        if size:
            self.check_room(size)
        return self._root

    def make(self, folder: int) -> None:
        """Make the folder of an upload, unless it exists."""
        for place in (self._parent.parent, self._parent):
            with suppress(FileExistsError):
                place.mkdir(0o711, parents=True)
                place.chmod(0o711)
        for place in (self._place(folder), self._place(folder) / "parts"):
            with suppress(FileExistsError):
                place.mkdir(0o700)

    def received(self, folder: int, position: int) -> int:
        """The number of received bytes of a file."""
        try:
            return self._part(folder, position).stat().st_size
        except FileNotFoundError:
            return 0

    def open(self, folder: int, position: int) -> Part:
        """A file, to continue it. Raises Taken, and FileNotFoundError if the upload is gone."""
        return Part(self._part(folder, position), (folder, position), self._digests, self.check_room)

    def seal(self, folder: int, names: Iterable[str]) -> None:
        """Give complete files their names, in the order of their positions. A repeated call changes
        nothing.
        """
        with self._sealing:
            self._seal(folder, names)

    def _seal(self, folder: int, names: Iterable[str]) -> None:
        files = self._place(folder) / "files"
        files.mkdir(0o755, exist_ok=True)
        files.chmod(0o755)
        folders = {files}
        for position, name in enumerate(names):
            part, place = self._part(folder, position), files / name
            for above in (one for one in reversed(place.parents) if one.is_relative_to(files)):
                if above not in folders:
                    above.mkdir(0o755, exist_ok=True)
                    above.chmod(0o755)
                    folders.add(above)
            try:
                part.chmod(0o444)
                part.rename(place)
            except FileNotFoundError:
                if not place.exists():
                    fault = f"is gone from {self._place(folder)}"
                    raise WorkspaceError(f"attachment {name!r}", fault, "Submit it again") from None
        for place in folders:
            place.chmod(0o555)
            _sync(place)

    # For tasks

    def for_tasks(self, folder: int, owner: Owner | None = None) -> Path:
        """The folder of the files, for containers, or for processes of ``owner`` (None: the user of
        this process). Raises WorkspaceError.
        """
        place = self._place(folder)
        files = place / "files"
        if not files.is_dir():
            raise WorkspaceError(f"the attachments in {files}", "are gone", "Submit them again, with another id")
        if owner is not None and owner != OURS:
            check_way(place, owner, f"the attachments in {files}")
            os.chown(place, -1, owner[1])
            place.chmod(0o710)
        return files

    # Removal

    def known(self) -> set[int]:
        """The numbers of the folders that are here."""
        with suppress(FileNotFoundError):
            return {int(id) for name in os.listdir(self._parent) if (id := attempt_of(name)) is not None}
        return set()

    def remove(self, folders: Collection[int]) -> list[str]:
        """Remove folders. Returns notes about what could not be removed."""
        notes = []
        for name in os.listdir(self._parent) if folders else ():
            if attempt_of(name) in folders and (faults := remove_folder(self._parent, name)):
                what, error = faults[0]
                notes.append(f"attachments {name}: {what!r} could not be removed: {error.strerror}. Remove {self._parent / name} as root")  # fmt: skip
        return notes

    def _place(self, folder: int) -> Path:
        return self._parent / str(folder)

    def _part(self, folder: int, position: int) -> Path:
        return self._place(folder) / "parts" / str(position)


class Part:
    """One file that is being continued, by one writer at a time. Closed by ``close``."""

    def __init__(self, path: Path, key: tuple[int, int], digests: Digests, check_room: Callable[[int], None]) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | NOT_FOLLOWED, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise Taken from None
        self._key, self._digests, self._check_room = key, digests, check_room
        self.offset = os.lseek(self._file, 0, os.SEEK_END)
        """The number of its received bytes."""
        self._known = digests.take(key, os.fstat(self._file))
        self._before = self.offset, Known(self._known.offset, self._known.digest.copy())

    def write(self, data: bytes) -> None:
        """Append a piece. After Full, ``offset`` says how much of it was written."""
        self._check_room(len(data))
        try:
            rest = memoryview(data)
            while rest:
                written = os.write(self._file, rest)
                if self._known.offset == self.offset:
                    self._known.digest.update(rest[:written])
                    self._known = self._known._replace(offset=self.offset + written)
                self.offset += written
                rest = rest[written:]
        except OSError as error:
            raise Full("the attachments", f"cannot be written: {error.strerror}", REMEDY) from error

    def verify(self, expected: str, until: float) -> bool:
        """Verify the digest of the whole file. Returns False if it is not computed by ``until``
        (`time.monotonic`); the next call continues. Raises Wrong, and removes the file.
        """
        os.fdatasync(self._file)
        while self._known.offset < self.offset:
            if time.monotonic() >= until:
                return False
            # Another process, or an earlier one, received these bytes, so this process has no
            # digest of them: it reads them.
            piece = os.pread(self._file, min(PIECE, self.offset - self._known.offset), self._known.offset)
            self._known.digest.update(piece)
            self._known = self._known._replace(offset=self._known.offset + len(piece))
        found = self._known.digest.hexdigest()
        if found != expected:
            os.ftruncate(self._file, 0)
            self.offset, self._known = 0, Known(0, hashlib.sha256())
            raise Wrong(found)
        return True

    def take_back(self) -> None:
        """Remove the bytes that were written since this file was opened."""
        self.offset, self._known = self._before
        os.ftruncate(self._file, self.offset)

    def close(self) -> None:
        """Write the received bytes to the disk, and let others open the file."""
        try:
            os.fdatasync(self._file)
            self._digests.put(self._key, self._known, os.fstat(self._file))
        finally:
            os.close(self._file)


class Known(NamedTuple):
    """The digest of the first ``offset`` bytes of a file."""

    offset: int
    digest: _Hash


class Digests:
    """The digests of files that arrive in several calls, as far as this process has computed them.
    A digest is used only if the file has not changed since.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, int], tuple[Known, tuple[int, ...]]] = OrderedDict()

    def take(self, key: tuple[int, int], status: os.stat_result) -> Known:
        with self._lock:
            known, seen = self._kept.pop(key, (None, ()))
        return known if known is not None and seen == _as_it_is(status) else Known(0, hashlib.sha256())

    def put(self, key: tuple[int, int], known: Known, status: os.stat_result) -> None:
        with self._lock:
            self._kept[key] = known, _as_it_is(status)
            while len(self._kept) > MOST_DIGESTS:
                self._kept.popitem(last=False)


def _sync(folder: Path) -> None:
    """Write the names in a folder to the disk, so that the files of a run exist even after the host
    has lost power.
    """
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _as_it_is(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
