"""The users of the embedded server. Two lock files decide who may make, start or stop the server, and
tell the processes of one machine of each other:

    home/postgres.lock      locked while a process makes, starts or stops the server
    home/postgres.users     locked as shared by every process that uses the server

The kernel releases both locks when their process ends, however it ends. Called only by `embedded`.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from arkqueue.errors import ArkqueueError

TURN_TIMEOUT = 180.0
"""The seconds to wait for the lock: as long as a start after a crash, or a stop, may take."""


class Users:
    """The users of one home folder's server. This object is one of them between ``join`` and
    ``leave``, which are called within ``locked``.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._membership: IO[bytes] | None = None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Inside the block, nobody else makes, starts or stops the server."""
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._home / "postgres.lock"
        with _open(path) as lock:
            deadline = time.monotonic() + TURN_TIMEOUT
            while not _try_lock(lock):
                if time.monotonic() > deadline:
                    raise ArkqueueError(
                        f"the database in {self._home}",
                        "another process has been starting or stopping it for minutes",
                        f"fuser {path} names that process.",
                    )
                time.sleep(0.02)
            yield

    def join(self) -> None:
        if self._membership is None:
            self._membership = _open(self._home / "postgres.users")
            # Nobody has this file locked exclusively for longer than the lock that we have now.
            fcntl.flock(self._membership, fcntl.LOCK_SH)

    def leave(self) -> bool:
        """Stop using the server. Returns whether nobody else uses it now."""
        if self._membership is not None:
            self._membership.close()
            self._membership = None
        with _open(self._home / "postgres.users") as users:
            return _try_lock(users)


def _open(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b", buffering=0)


def _try_lock(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
