"""Folders of a repository that stay open: all actions use the descriptor of the open folder, so
renaming or replacing the folder does not redirect them.

A person who may write to a repository can replace a folder by a link while root installs hooks. A
`Folder` is opened beneath another open folder, never through a link, and its descriptor resolves
all names in it. Called by `installation`.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PASS = _OPEN | getattr(os, "O_PATH", 0)  # enough for a folder that may be entered and not read


class Folder:
    """An open folder. ``path`` is only for messages; it is never looked up again."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor, self.path = descriptor, path

    @classmethod
    def at(cls, path: Path) -> Self:
        """The folder at an absolute path. Raises OSError if a link is on the way."""
        here = os.open("/", _PASS)
        for name in path.parts[1:-1]:
            try:
                deeper = os.open(name, _PASS, dir_fd=here)
            finally:
                os.close(here)
            here = deeper
        try:
            return cls(os.open(path.name or "/", _OPEN, dir_fd=here), path)
        finally:
            os.close(here)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def inner(self, *names: str) -> Folder:
        """A folder beneath this one. Raises OSError if one of the names is a link."""
        here = os.dup(self._descriptor)
        for name in names:
            try:
                deeper = os.open(name, _OPEN, dir_fd=here)
            except OSError as error:
                error.filename = name
                raise
            finally:
                os.close(here)
            here = deeper
        return Folder(here, self.path.joinpath(*names))

    def status(self, name: str = "") -> os.stat_result | None:
        """The status of this folder, or of the entry with a name in it, without following a link.
        None: there is no such entry.
        """
        if not name:
            return os.fstat(self._descriptor)
        with suppress(FileNotFoundError):
            return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        return None

    def names(self) -> list[str]:
        return sorted(os.listdir(self._descriptor))

    def read(self, name: str, length: int, *, follow: bool = False) -> bytes:
        """The beginning of a regular file; empty if there is no regular file of this name.
        ``follow``: True if the name may be a link to a regular file.
        """
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
        try:
            file = os.open(name, flags, dir_fd=self._descriptor)
        except OSError:
            return b""
        try:
            return os.read(file, length) if stat.S_ISREG(os.fstat(file).st_mode) else b""
        finally:
            os.close(file)

    def is_program(self, name: str) -> bool:
        """Whether the entry with a name, or the file that it links to, may be executed."""
        return os.access(name, os.X_OK, dir_fd=self._descriptor, effective_ids=True)

    def make(self, name: str, like: os.stat_result, mode: int) -> None:
        """Make a folder, unless it exists, and set its mode and its group."""
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=self._descriptor)
        with self.inner(name) as made:
            give(made._descriptor, like, mode)

    def write(self, name: str, text: str, like: os.stat_result, mode: int) -> bool:
        """Write a file completely, or not at all. At no time may more users read it than ``mode``
        allows. Returns whether it could be given to the group.
        """
        temporary = f".{name}.{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600, dir_fd=self._descriptor)
        try:
            with os.fdopen(descriptor, "wb") as file:
                given = give(descriptor, like, mode)
                file.write(os.fsencode(text))
            os.replace(temporary, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except BaseException:
            os.unlink(temporary, dir_fd=self._descriptor)
            raise
        return given

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def unlink(self, name: str) -> None:
        os.unlink(name, dir_fd=self._descriptor)

    def remove(self, name: str) -> None:
        """Remove a folder with its contents. Links in it are removed, not followed."""
        shutil.rmtree(name, dir_fd=self._descriptor)


def give(descriptor: int, like: os.stat_result, mode: int) -> bool:
    """Set the mode of an open file or folder, and give it the group of ``like``. Returns whether
    this user may give it to that group. If not, the group gets no rights.
    """
    is_given = True
    try:
        if os.fstat(descriptor).st_gid != like.st_gid:
            os.chown(descriptor, -1, like.st_gid)
    except PermissionError:
        mode &= 0o707  # the group is still this user's own, not the repository's
        is_given = False
    os.chmod(descriptor, mode)
    return is_given
