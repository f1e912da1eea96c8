"""Writes a tree that strangers committed below one folder, and nowhere else.

Nothing can be written outside. Every folder on the way is made here by ``mkdir``, which fails if
anything already has the name, a symlink included. Files are opened with O_EXCL | O_NOFOLLOW. Names
with a slash, ``.`` and ``..`` are refused. So no symlink of the tree is ever followed. Only the
caller uses the folder meanwhile.
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
"""Subversion stores a symlink as a file with ``svn:special`` and this prefix before the target."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Buffer = bytes | memoryview

Early = Mapping[str, int]
"""The time at which each revision with a date in the future was read, by revision id, in
nanoseconds since 1970. It is used in place of that date, on every host and at every time.
"""


def outermost(paths: Sequence[str]) -> list[str]:
    """The normalised paths, without those below another one."""
    kept: list[str] = []
    for path in sorted({path.strip("/") for path in paths}, key=lambda path: path.split("/")):
        if not kept or not path.startswith(kept[-1] + "/"):
            kept.append(path)
    return kept


def is_wanted(path: bytes) -> bool:
    """False for version control data that was committed by mistake or malice: a tool that runs in
    the tree would obey it.
    """
    return _VERSION_CONTROL.isdisjoint(name.lower() for name in path.split(b"/"))


def check_names(path: bytes) -> None:
    """Raise `ArchiveError` if one of the names of a path is not allowed in a tree."""
    parts = path.split(b"/")
    for end in range(1, len(parts) + 1):
        check_name(b"/".join(parts[:end]))


def check_name(path: bytes) -> None:
    """Raise `ArchiveError` if the last name of a path is not allowed in a tree."""
    name = path.rpartition(b"/")[2]
    if path.startswith(b"/") or name in {b"", b".", b".."} or b"\0" in name:
        shown = path.decode(errors="backslashreplace")
        raise ArchiveError(shown, "is a path name that no tree may hold", "Remove it from the archive.")


@dataclass(frozen=True, slots=True)
class Sink:
    """A file that only takes what is written."""

    write: Callable[[bytes], object]


class TreeWriter:
    """Writes files, symlinks and folders, given by paths relative to ``target``, which is made if
    it is missing. Close it at the end.
    """

    def __init__(self, target: Path, early: Early | None = None) -> None:
        """``early``: dates to use for some revisions."""
        self._target, self._early = os.fsencode(target), early or {}
        self._made: set[bytes] = {b""}
        self._begun: dict[bytes, int] = {}
        self._count = self._bytes = 0
        self.look_ahead: Callable[[], None] | None = None
        """Called once many files have been written; raises if there will be too many."""
        self.weigh: Callable[[], None] | None = None
        """Called once many bytes have been written; raises if there will be too many."""
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
        """A new file, open for writing."""
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
        """A new file, as a descriptor to write to."""
        descriptor = self._create(path, False)
        try:
            with self._explained(path):
                yield descriptor
            self._count_bytes(os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)

    def begin(self, path: bytes) -> None:
        """Begin a new file, which `append` continues until `end`. Several may be open: over http,
        libsvn requests some dozens of files before it gets the first.
        """
        self._begun[path] = self._create(path, False)

    def append(self, path: bytes, data: bytes) -> None:
        """Continue a file that was begun."""
        self._write(self._begun[path], path, data)

    def end(self, path: bytes) -> None:
        """Complete a file, if it was begun."""
        if path in self._begun:
            os.close(self._begun.pop(path))

    def close(self) -> None:
        """Close all files. Nothing more is written."""
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
        """Count bytes that are written; raises `WorkspaceError` if they are too many."""
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
        """Make a written file executable for everybody who may read it."""
        with self._explained(path):
            mode = os.lstat(self._place(path)).st_mode & 0o777
            os.chmod(self._place(path), mode | (mode & 0o444) >> 2)

    def make_symlink(self, path: bytes) -> bool:
        """Turn a written file into the symlink whose Subversion text it holds: one line. Returns
        False for any other text, which stays a file.
        """
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
        """A written file, open for reading, and the new file in its place, open for writing: two
        descriptors.
        """
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
        """Set the modification time of a written file: the date of the revision that last changed
        it, in nanoseconds since 1970. A future date becomes the present time, because `make` would
        otherwise never finish.
        """
        modified = min(max(self._early.get(revision, date), 0), time.time_ns())
        with self._explained(path):
            os.utime(self._place(path), ns=(modified, modified), follow_symlinks=False)

    def _prepare(self, path: bytes) -> None:
        """Check the name of a new entry, and prepare the folder of it."""
        check_name(path)
        self._count += 1
        check_files("the files of the task", self._count)
        if self._count == limits.MANY_FILES and self.look_ahead is not None:
            self.look_ahead()
        self._enter(path.rpartition(b"/")[0])

    def _enter(self, folder: bytes) -> None:
        """Prepare a folder that will get an entry."""
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
