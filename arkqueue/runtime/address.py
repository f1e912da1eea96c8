"""The address that a server leaves in its home folder, and the proof that this server still lives.

The file ``url`` stays after ``kill -9``, and anybody may listen at the address then. So the server holds a lock on the file
as long as it lives. A client connects first and looks at the lock then: a lock that is held then means that the server had
its port when the connection was made. The file is its owner's alone, as whoever can open it can lock it.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

URL_FILE = "url"
"""Where ``serve`` writes the address that it is bound to, in the home folder."""


def announce(home: Path, url: str) -> int | None:
    """Leave the address of this server; the descriptor that holds the lock. None: another server of this home has left its own."""
    file = home / URL_FILE
    with suppress(OSError):
        if is_served(file, file.read_text("ascii", "replace").strip()):
            return None
    # A new file, whole and locked before anybody sees it: the lock never stands for what an earlier server wrote.
    draft = home / f".{URL_FILE}-{os.getpid()}"
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, f"{url}\n".encode("ascii"))
    draft.replace(file)
    return descriptor


def withdraw(home: Path, descriptor: int) -> None:
    """Take the address back, unless another server has left its own meanwhile."""
    file = home / URL_FILE
    with suppress(OSError):
        if os.path.samestat(file.lstat(), os.fstat(descriptor)):
            file.unlink()
    os.close(descriptor)


def is_served(file: Path, url: str) -> bool:
    """Whether the server lives that has left this address in the file."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if os.fstat(descriptor).st_mode & 0o077 or os.read(descriptor, 1000).decode("ascii", "replace").strip() != url:
            return False
        # Shared, so that two who look do not take each other for the server.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
