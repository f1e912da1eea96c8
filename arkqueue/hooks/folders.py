"""Folders of a repository, each opened once: whatever its name means later, all actions use its
descriptor.

A person who may write to a repository can replace a folder by a link while root installs hooks. A
`Folder` is opened beneath another one, never through a link, and its descriptor resolves all names
in it. Called by `installation`.
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
    """An open folder. ``path`` is for messages, and never looked up again."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor, self.path = descriptor, path

    @classmethod
    def at(cls, path: Path) -> Self:
        """The folder that has this absolute path, without a link on the way."""
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
        """A folder beneath this one. Raises OSError where one of the names is a link."""
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
        """Of this folder, or of what has a name in it, a link too; None where there is none."""
        if not name:
            return os.fstat(self._descriptor)
        with suppress(FileNotFoundError):
            return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        return None

    def names(self) -> list[str]:
        return sorted(os.listdir(self._descriptor))

    def read(self, name: str, length: int, *, follow: bool = False) -> bytes:
        """The beginning of a regular file; nothing where it is no such file. ``follow``: also where a link leads to one."""
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
        """Whether what has a name here, or what it leads to, may be executed."""
        return os.access(name, os.X_OK, dir_fd=self._descriptor, effective_ids=True)

    def make(self, name: str, like: os.stat_result, mode: int) -> None:
        """Make a folder if it is not there, and give it a mode and a group."""
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=self._descriptor)
        with self.inner(name) as made:
            give(made._descriptor, like, mode)

    def write(self, name: str, text: str, like: os.stat_result, mode: int) -> bool:
        """Put a file in place at once and whole; never readable by more than ``mode`` says. Whether it could be given to the group."""
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
        """Remove a folder with all in it; links in it are removed and not followed."""
        shutil.rmtree(name, dir_fd=self._descriptor)


def give(descriptor: int, like: os.stat_result, mode: int) -> bool:
    """Give what is open a mode, and the group of something else. The answer is whether this user may give it to that group."""
    is_given = True
    try:
        if os.fstat(descriptor).st_gid != like.st_gid:
            os.chown(descriptor, -1, like.st_gid)
    except PermissionError:
        mode &= 0o707  # the group is this user's own, and not the repository's
        is_given = False
    os.chmod(descriptor, mode)
    return is_given
