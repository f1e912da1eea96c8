"""Writes a tree that strangers committed below one folder, and nowhere else.

Why nothing can get out: every folder on the way is made here by ``mkdir``, which fails where anything is already in its
place, a symlink included; files are opened with O_EXCL | O_NOFOLLOW; names with a slash, ``.`` and ``..`` are refused.
So no symlink of the tree is ever walked through. The folder belongs to the caller alone while this runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from arkqueue.errors import ArchiveError, WorkspaceError
from arkqueue.repository import limits
from arkqueue.repository.limits import check_bytes, check_files

_VERSION_CONTROL = {b".git", b".svn"}
_SPECIAL_PREFIX = b"link "
"""How Subversion stores a symlink: a file with ``svn:special`` and this before the target."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Buffer = bytes | memoryview

Early = Mapping[str, int]
"""When revisions were read whose dates were to come then, by their ids, in nanoseconds since 1970: the same on every host and at every time."""


def outermost(paths: Sequence[str]) -> list[str]:
    """The paths, clean, without those below another one."""
    kept: list[str] = []
    for path in sorted({path.strip("/") for path in paths}, key=lambda path: path.split("/")):
        if not kept or not path.startswith(kept[-1] + "/"):
            kept.append(path)
    return kept


def is_wanted(path: bytes) -> bool:
    """False for version control data that was committed by mistake or malice: a tool run in the tree would obey it."""
    return _VERSION_CONTROL.isdisjoint(name.lower() for name in path.split(b"/"))


def check_names(path: bytes) -> None:
    """Raise `ArchiveError` where one of the names of a path is none that a tree may hold."""
    parts = path.split(b"/")
    for end in range(1, len(parts) + 1):
        check_name(b"/".join(parts[:end]))


def check_name(path: bytes) -> None:
    """Raise `ArchiveError` where the last name of a path is none that a tree may hold."""
    name = path.rpartition(b"/")[2]
    if path.startswith(b"/") or name in {b"", b".", b".."} or b"\0" in name:
        shown = path.decode(errors="backslashreplace")
        raise ArchiveError(shown, "is a path name that no tree may hold", "Remove it from the archive.")


@dataclass(frozen=True, slots=True)
class Sink:
    """A file of which nothing is asked but to take what is written."""

    write: Callable[[bytes], object]


class TreeWriter:
    """Writes files, symlinks and folders, given by paths relative to ``target``, which is made if need be; to be closed."""

    def __init__(self, target: Path, early: Early | None = None) -> None:
        """``early``: what counts as the dates of some revisions."""
        self._target, self._early = os.fsencode(target), early or {}
        self._made: set[bytes] = {b""}
        self._begun: dict[bytes, int] = {}
        self._count = self._bytes = 0
        self.look_ahead: Callable[[], None] | None = None
        """Called once there are many files: raises where there will be too much."""
        self.weigh: Callable[[], None] | None = None
        """The same, once there are many bytes."""
        with self._explained(b""):
            os.makedirs(self._target, exist_ok=True)

    def wants(self, path: bytes) -> bool:
        return is_wanted(path)

    def folder(self, path: bytes) -> None:
        if path not in self._made:
            self._prepare(path)
            with self._explained(path):
                os.mkdir(self._place(path))
            self._made.add(path)

    @contextmanager
    def create(self, path: bytes) -> Iterator[Sink]:
        """The new file, open for writing."""
        descriptor = self._create(path, False)
        try:
            yield Sink(partial(self._write, descriptor, path))
        finally:
            os.close(descriptor)

    def write(self, path: bytes, pieces: Iterable[Buffer], *, executable: bool = False) -> None:
        descriptor = self._create(path, executable)
        try:
            for data in pieces:
                self._write(descriptor, path, data)
        finally:
            os.close(descriptor)

    @contextmanager
    def created(self, path: bytes) -> Iterator[int]:
        """The new file, as a descriptor to write to."""
        descriptor = self._create(path, False)
        try:
            with self._explained(path):
                yield descriptor
            self._count_bytes(os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)

    def begin(self, path: bytes) -> None:
        """A new file, which `append` goes on with until `end`. Several may be begun: over http, libsvn asks for some dozens of files before it has the first."""
        self._begun[path] = self._create(path, False)

    def append(self, path: bytes, data: bytes) -> None:
        """Go on with a file that was begun."""
        self._write(self._begun[path], path, data)

    def end(self, path: bytes) -> None:
        """A file is whole, if it was begun."""
        if path in self._begun:
            os.close(self._begun.pop(path))

    def close(self) -> None:
        """Nothing more is written."""
        for path in list(self._begun):
            self.end(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _create(self, path: bytes, executable: bool) -> int:
        self._prepare(path)
        try:
            return os.open(self._place(path), _NEW, 0o777 if executable else 0o666)
        except (OSError, ValueError) as error:
            raise self._fault(path, error) from error

    def _write(self, descriptor: int, path: bytes, data: Buffer) -> None:
        self._count_bytes(len(data))
        try:
            written = os.write(descriptor, data)
            while written < len(data):
                written += os.write(descriptor, memoryview(data)[written:])
        except OSError as error:
            raise self._fault(path, error) from error

    def _count_bytes(self, more: int) -> None:
        """Count bytes that are written; raises `WorkspaceError` where they are too many."""
        before = self._bytes
        self._bytes += more
        check_bytes("the files of the task", self._bytes)
        if before < limits.MANY_BYTES <= self._bytes and self.weigh is not None:
            self.weigh()

    def symlink(self, path: bytes, to: bytes) -> None:
        self._prepare(path)
        with self._explained(path):
            os.symlink(to, self._place(path))

    def make_executable(self, path: bytes) -> None:
        """Give a file written here the executable bits that its readable ones allow."""
        with self._explained(path):
            mode = os.lstat(self._place(path)).st_mode & 0o777
            os.chmod(self._place(path), mode | (mode & 0o444) >> 2)

    def make_symlink(self, path: bytes) -> bool:
        """Turn a file written here into the symlink whose Subversion text it holds: one line. Any other text stays a file, and the answer is False."""
        with self._explained(path):
            with open(self._place(path), "rb") as file:
                text = file.read(len(_SPECIAL_PREFIX) + 4096)
            to = text.removeprefix(_SPECIAL_PREFIX).split(b"\n")[0].split(b"\0")[0]
            if not text.startswith(_SPECIAL_PREFIX) or not to:
                return False
            os.unlink(self._place(path))
            os.symlink(to, self._place(path))
            return True

    @contextmanager
    def rewritten(self, path: bytes) -> Iterator[tuple[int, int]]:
        """A file written here, open for reading, and the new file in its place, open for writing: two descriptors."""
        with self._explained(path):
            old = os.open(self._place(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.unlink(self._place(path))
                new = os.open(self._place(path), _NEW, 0o666)
                try:
                    yield old, new
                    self._count_bytes(max(0, os.fstat(new).st_size - os.fstat(old).st_size))
                finally:
                    os.close(new)
            finally:
                os.close(old)

    def set_time(self, path: bytes, revision: str, date: int) -> None:
        """Give a file written here its modification time: the date of the revision that last changed it, in nanoseconds since 1970. A date to come is now, or `make` would never be done."""
        modified = min(max(self._early.get(revision, date), 0), time.time_ns())
        with self._explained(path):
            os.utime(self._place(path), ns=(modified, modified), follow_symlinks=False)

    def _prepare(self, path: bytes) -> None:
        """Make sure of the name and of the folder that it will be in."""
        check_name(path)
        self._count += 1
        check_files("the files of the task", self._count)
        if self._count == limits.MANY_FILES and self.look_ahead is not None:
            self.look_ahead()
        self._enter(path.rpartition(b"/")[0])

    def _enter(self, folder: bytes) -> None:
        """Make sure of a folder that something will be in."""
        self.folder(folder)

    def _place(self, path: bytes) -> bytes:
        return self._target + b"/" + path if path else self._target

    @contextmanager
    def _explained(self, path: bytes) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            raise self._fault(path, error) from error

    def _fault(self, path: bytes, error: OSError | ValueError) -> WorkspaceError:
        place = self._place(path).decode(errors="backslashreplace")
        fault = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return WorkspaceError(place, f"cannot be written ({fault})", "Free space there, or empty it.")
