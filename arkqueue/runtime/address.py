"""The address that a server leaves in its home folder, and the proof that this server still lives.

The file ``url`` stays after ``kill -9``, and then any program may listen at the address. So the
server holds a lock on the file as long as it runs. A client connects first, and checks the lock
afterwards: if it is held, the server had its port when the connection was made. Only its owner can
open the file, because everybody who opens it can lock it.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

URL_FILE = "url"
"""The name of the file in the home folder to which ``serve`` writes its address."""


def announce(home: Path, url: str) -> int | None:
    """Write the address of this server. Returns the descriptor that holds the lock; None: another
    server of this home folder runs, and has written its own.
    """
    file = home / URL_FILE
    with suppress(OSError):
        if is_served(file, file.read_text("ascii", "replace").strip()):
            return None
    # A new file, complete and locked before it gets its name, so that the lock never belongs to an
    # earlier server's address.
    draft = home / f".{URL_FILE}-{os.getpid()}"
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, f"{url}\n".encode("ascii"))
    draft.replace(file)
    return descriptor


def withdraw(home: Path, descriptor: int) -> None:
    """Remove the address, unless another server has written its own meanwhile."""
    file = home / URL_FILE
    with suppress(OSError):
        if os.path.samestat(file.lstat(), os.fstat(descriptor)):
            file.unlink()
    os.close(descriptor)


def is_served(file: Path, url: str) -> bool:
    """True if the server that wrote this address to the file still runs."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if os.fstat(descriptor).st_mode & 0o077 or os.read(descriptor, 1000).decode("ascii", "replace").strip() != url:
            return False
        # Shared, so that two clients do not take each other for the server.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
