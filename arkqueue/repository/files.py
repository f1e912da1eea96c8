"""Reads files of a repository for the fingerprints: never through a symbolic link, and without
waiting.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import blake2b

State = tuple[int | bytes, ...]
ABSENT: State = ()
"""The state of a file that does not exist."""

_SHORT = 128
"""The bytes of a file that are read first. Most refs are shorter, and space for more takes time."""
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def state(path: str, length: int) -> State:
    """The state of a file, which differs after each change: its identity, its times, and its first
    ``length`` bytes.

    The file is opened, because a network file system then asks its server instead of its cache.
    """
    try:
        file = os.open(path, _FLAGS)
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    try:
        status = os.fstat(file)
        content = os.read(file, min(length, status.st_size)) if length else b""
    finally:
        os.close(file)
    # A restored backup may bring back the old mtime. The kernel sets the ctime, and no program can
    # set it back.
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, content


def contents(names: Iterable[str], folder: int, length: int) -> list[bytes | None]:
    """The first ``length`` bytes of each of some files in an open folder; None if the file does not
    exist any more. A file takes half of the time of `state`.
    """
    found: list[bytes | None] = []
    for name in names:
        try:
            file = os.open(name, _FLAGS, dir_fd=folder)
        except FileNotFoundError:
            found.append(None)
            continue
        try:
            content = os.read(file, _SHORT)
            if len(content) == _SHORT:
                content += os.read(file, length - _SHORT)
        finally:
            os.close(file)
        found.append(content)
    return found


def digest(states: object) -> bytes:
    """A digest of many states."""
    return blake2b(repr(states).encode(), digest_size=16).digest()
