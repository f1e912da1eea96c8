"""The ownership of a home folder by one task manager: the host id, and two locks.

A task manager holds ``task-manager.lock`` as long as it lives. Its guard processes inherit
``guards.lock``; an flock belongs to all processes that have the descriptor. So a process that gets
both locks knows that no earlier task manager of this home is alive, and no guard of one. Guards end
when their tasks have ended. If all guards were killed at once, ``executor.process.leftovers`` looks
for the processes that their tasks left. Together this is the proof that ``finish.expire`` asks for.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from arkqueue.errors import ConfigurationError, HomeTaken
from arkqueue.runtime.accounts import account

GUARDS_END = 30.0
"""Seconds that guards get to end the tasks of a task manager that died."""
LOOK = 0.02
ANOTHER = "another home: arkqueue --home FOLDER, then the command"
"""The remedy for a task manager whose home folder another one has."""


def host_id(home: Path) -> str:
    """The id of this host, which the first call makes."""
    return id_in(home, "host-id")


def id_in(folder: Path, name: str) -> str:
    """The id in a file of a folder, which the first call makes."""
    path = folder / name
    with suppress(FileNotFoundError), _used(path):
        return path.read_text("ascii").strip()
    made = path.with_name(f".{name}-{uuid.uuid4().hex}")
    with _used(folder):
        made.write_text(uuid.uuid4().hex + "\n", "ascii")
    try:
        # Two processes may do this at once. The first file
        # stays, and is complete when it gets its name.
        with suppress(FileExistsError):
            os.link(made, path)
    finally:
        made.unlink()
    return path.read_text("ascii").strip()


def known_host_id(home: Path) -> str | None:
    """The id of this host; None: no task manager was started with this home folder, or the folder is
    another user's.
    """
    try:
        return (home / "host-id").read_text("ascii").strip()
    except OSError:
        return None


class HomeLock:
    """Both locks of a home folder. ``guards``: the descriptor for guard processes to inherit."""

    def __init__(self, home: Path) -> None:
        """Raises HomeTaken if another task manager has this home folder, or if the guards of an
        earlier one do not end.
        """
        with ExitStack() as opened:
            if not _locked(_opened(opened, home / "task-manager.lock"), 0):
                raise HomeTaken(
                    f"the home folder {home}",
                    "has a task manager that runs",
                    f"Stop that one, or give this one {ANOTHER}.",
                )
            self.guards = _opened(opened, home / "guards.lock")
            if not _locked(self.guards, GUARDS_END):
                raise HomeTaken(
                    f"the home folder {home}",
                    "still has processes of tasks of an earlier task manager, which cannot be ended",
                    "Look for processes named arkqueue-guard and what they wait for.",
                )
            self._opened = opened.pop_all()

    def release(self) -> None:
        self._opened.close()


def _opened(opened: ExitStack, path: Path) -> int:
    with _used(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    opened.callback(os.close, descriptor)
    return descriptor


@contextmanager
def _used(path: Path) -> Iterator[None]:
    """Use a path of the home folder inside the ``with`` block. Raises an error with a remedy if it is
    another user's.
    """
    try:
        yield
    except PermissionError as error:
        fault = f"cannot be used by {account()}: {error.strerror}"
        with suppress(OSError):
            fault += f"; it belongs to {account(path.stat().st_uid)}"
        raise ConfigurationError(
            str(path), fault, f"Run this as the user of its home folder, or give it {ANOTHER}."
        ) from error


def _locked(descriptor: int, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(LOOK)
