"""Files of a repository, read as what they are: never through a symbolic link, and without waiting. Called by the fingerprints."""

from __future__ import annotations

import os
from hashlib import blake2b

State = tuple[int | bytes, ...]
ABSENT: State = ()
"""The state of a file that is not there."""

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def state(path: str, length: int) -> State:
    """Another one after each change of a file: which file it is, when it was changed, and its first ``length`` bytes.

    The file is opened, not only asked for its status: a network file system then asks its server, and not its cache.
    """
    try:
        file = os.open(path, _FLAGS)
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    try:
        status = os.fstat(file)
        content = os.read(file, length) if length else b""
    finally:
        os.close(file)
    # A restored backup may bring back the old mtime. The kernel sets the ctime, and nobody can set that back.
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, content


def digest(states: object) -> bytes:
    """A short form of many states."""
    return blake2b(repr(states).encode(), digest_size=16).digest()
