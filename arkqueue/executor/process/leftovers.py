"""Leftovers: processes of attempts that no guard watches any more; they are found by their
environment and folder, and killed.

Guards end the trees of their attempts, and the guard server ends what a killed guard leaves. If
both are killed at once (``pkill -9 arkqueue``), processes are left whose parent is init. Two things
still identify them: their environment, which names files of their attempt in the home's work
folder, and their working folder. The name of a program proves nothing.

A process that has cleaned its environment and left the folder is not found; a process of another
user is found only by root. A search reads all of ``/proc``: it happens at a start, and after a
guard server was killed. Where there is no ``/proc`` (not Linux), nothing is found.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import sys
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from arkqueue.model import AttemptId

LINUX = sys.platform == "linux"
PATIENCE = 10.0
"""The seconds after which the search gives up a process that does not end, because it waits for a
device or belongs to another user.
"""
AGAIN = 0.1
"""The seconds between two searches for remaining processes."""
CLEAN = 2
"""The number of empty searches in a row that prove the end: during an exec, a process shows no
environment.
"""
VARIABLES = (b"ARKQUEUE_OUTPUT", b"ARKQUEUE_INPUTS", b"TMPDIR")
"""The variables in the environment of a process that name a file of the attempt. In a container,
the first two have paths that only the container sees.
"""


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The killed processes, and those that are still there, by name and process id."""

    ended: list[str] = field(default_factory=list)
    remaining: list[str] = field(default_factory=list)


def end_leftovers(work: Path, attempts: Collection[AttemptId]) -> Leftovers:
    """Kill the leftovers of attempts with workspaces in the folder ``work``. Returns when they are
    gone.
    """
    if not LINUX or not attempts:
        return Leftovers()
    look = _Look(work, attempts)
    names: dict[int, str] = {}
    until = time.monotonic() + PATIENCE
    found: list[int] = []
    clean = 0
    try:
        while clean < CLEAN:
            if found := look.processes():
                names |= {pid: f"{_name(pid)} ({pid})" for pid in found}
                if time.monotonic() >= until:
                    break
                # The next search finds processes that they have started in the meantime.
                _kill(found, look)
                clean = 0
            elif (clean := clean + 1) < CLEAN:
                time.sleep(AGAIN)
    except OSError as error:
        return Leftovers(list(names.values()), [f"what cannot be looked for ({error.strerror})"])
    remaining = [names.pop(pid) for pid in found]
    return Leftovers(list(names.values()), remaining)


class _Look:
    """Recognizes leftovers."""

    def __init__(self, work: Path, attempts: Collection[AttemptId]) -> None:
        self.work = os.path.realpath(os.fsencode(work))
        self.named = b"/" + os.fsencode(work.name) + b"/"
        self.attempts = {b"%d" % attempt for attempt in attempts}
        # A task can start a server. Then the processes of this server may name that attempt, too,
        # such as the embedded database.
        self.ours = self.attempt_of("self")

    def processes(self) -> list[int]:
        return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and self.is_leftover(pid)]

    def is_leftover(self, pid: str) -> bool:
        attempt = self.attempt_of(pid)
        return attempt in self.attempts and attempt != self.ours

    def attempt_of(self, pid: str) -> bytes | None:
        """The attempt of a process; None if it belongs to no attempt, has ended, or cannot be
        inspected.
        """
        with _shown(), open(f"/proc/{pid}/environ", "rb") as file:
            for variable in file.read().split(b"\0"):
                name, _, path = variable.partition(b"=")
                if name in VARIABLES and (attempt := self.attempt_at(path)) is not None:
                    return attempt
        with _shown():
            attempt = self.attempt_at(os.readlink(os.fsencode(f"/proc/{pid}/cwd")))
            if attempt is not None and _is_here(pid) and not _has_terminal(pid):
                return attempt
        return None

    def attempt_at(self, path: bytes) -> bytes | None:
        """The attempt whose workspace contains the process. The home may be reached by several
        paths; no link that a task has made is followed.
        """
        before, named, rest = path.partition(self.named)
        while named:
            attempt = rest.partition(b"/")[0]
            if attempt.isdigit() and os.path.realpath(before + named) == self.work:
                return attempt
            more, named_again, rest = rest.partition(self.named)
            before, named = before + named + more, named_again
        return None


@contextlib.contextmanager
def _shown() -> Iterator[None]:
    """Ignore errors of reading a process, except a lack of descriptors or memory in this process."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise


def _is_here(pid: str) -> bool:
    """Whether the process sees the files that this process sees: the working folder of a container
    is a path of its own.
    """
    return os.stat(f"/proc/{pid}/ns/mnt").st_ino == os.stat("/proc/self/ns/mnt").st_ino


def _has_terminal(pid: str) -> bool:
    """Whether a process has a terminal, like the shell of a person; a guard starts none with a
    terminal.
    """
    with open(f"/proc/{pid}/stat", "rb") as file:
        _, _, fields = file.read().rpartition(b")")
    return fields.split()[4] != b"0"


def _kill(pids: list[int], look: _Look) -> None:
    """Kill the processes that still have the same identity. Returns when they are gone, or at the
    time of the next search.
    """
    with contextlib.ExitStack() as opened:
        poll = select.poll()
        waited_for = 0
        for pid in pids:
            handle = None
            with contextlib.suppress(AttributeError, OSError):  # an old kernel, or no descriptors are left
                handle = os.pidfd_open(pid)
                opened.callback(os.close, handle)
            # Another process may have this number by now; the handle stays with the process that is
            # inspected here.
            if not look.is_leftover(str(pid)):
                continue
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if handle is None:
                    os.kill(pid, signal.SIGKILL)
                else:
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    poll.register(handle, select.POLLIN)
                    waited_for += 1
        if not waited_for:
            time.sleep(AGAIN)
        until = time.monotonic() + AGAIN
        while waited_for and (rest := until - time.monotonic()) > 0:
            for handle, _ in poll.poll(rest * 1000 + 1):
                poll.unregister(handle)
                waited_for -= 1


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except OSError:
        return str(pid)
