"""The task manager's side of the connection to guards and their server; ``guard`` documents the
messages.

This module turns the answers of a guard into errors with remedies: ExecutorError for a fault of the
task, and HostFault for a fault of this host that would stop any task. Called only by ``executor``.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pwd
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from arkqueue.errors import ExecutorError, HostFault
from arkqueue.executor import Program, check_texts

START_TIMEOUT = 60.0
"""The seconds after which a program that is not executed is given up, because its folder is on a
dead file server.
"""
OVERDUE = 5.0
"""The seconds after the grace until a guard that has reported no end is killed, because its task
may have stopped it with a signal. The guard server then ends the rest of the tree.
"""


class Guard:
    """The task manager's side of the connection to a guard; ``guard.py`` documents the messages."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._buffer = b""
        self._pid = 0
        self.is_unattended = False
        """True if the guard and its server were killed before the server had ended the guard's
        tree.
        """
        self._tree_has_ended = False
        """True if the guard was killed, and its server has ended the rest of its tree."""
        self.fileno = control.fileno
        self.close = control.close

    def greet(self) -> None:
        """Wait until the guard has begun."""
        with self._limited():
            hello = self.receive()
        if hello is None:
            raise NoGuard
        if "failed" in hello:
            reason = os.strerror(hello["failed"][1])
            raise nothing_starts(f"this host gives no further process ({reason})", "Use fewer slots")
        self._pid = hello["guard"]

    def begin(self, program: Program, request: bytes, descriptors: list[int]) -> None:
        """Give the guard an attempt. Returns when its program is being executed, or has killed the
        guard at once.
        """
        with self._limited():
            try:
                sent = socket.send_fds(self._control, [request], descriptors)
                if rest := request[sent:]:
                    self._control.sendall(rest)
            except OSError:
                answer = None
            else:
                answer = self.receive()
        # A guard that was killed after the request may have executed the program, which then killed
        # the guard: the end of the attempt will be reported.
        if answer is None and not (self._tree_has_ended or self.is_unattended):
            self._kill()
            fault = "its guard process was killed, or could not execute it in time"
            raise ExecutorError("process executor", fault, "Try again")
        if answer is not None and "failed" in answer:
            raise _failure(program, *answer["failed"])

    def _kill(self) -> None:
        """Kill the guard, if it still exists, because a signal has stopped it. The server then ends
        the rest of its tree.
        """
        # No other process can have its id yet: the server closes the control socket only after it
        # has reaped the guard.
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def is_alive(self) -> bool:
        """Whether the guard can take an attempt. An idle guard sends nothing, so a readable socket
        means that it has ended.
        """
        if self._tree_has_ended or self.is_unattended:
            # The guard's last message has been read, and the socket may not be closed yet.
            return False
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        return not poll.poll(0)

    def stop(self, grace: float) -> None:
        self._tell({"stop": grace})

    def keep(self, begin: float, end: float) -> None:
        self._tell({"keep": [begin, end]})

    def _tell(self, message: dict[str, Any]) -> None:
        """Send a message without waiting, because the caller may have to reach other guards, too. A
        guard that has not read hundreds of messages was stopped by its task, and is killed.
        """
        data = json.dumps(message).encode() + b"\n"
        try:
            is_told = self._control.send(data, socket.MSG_DONTWAIT) == len(data)
        except BlockingIOError:
            is_told = False
        except OSError:
            return  # the guard was killed, and its end will be reported soon
        if not is_told:
            self._kill()

    def patience(self, stop_by: float | None) -> float:
        """The milliseconds to wait for the guard. An overdue guard is killed here."""
        if stop_by is None:
            return 1000.0
        rest = stop_by + OVERDUE - time.monotonic()
        if rest <= 0:
            self._kill()
            return OVERDUE * 1000
        return min(rest * 1000 + 1, 1000.0)

    @contextlib.contextmanager
    def _limited(self) -> Iterator[None]:
        self._control.settimeout(START_TIMEOUT)
        yield
        self._control.settimeout(None)

    def has_message(self) -> bool:
        return b"\n" in self._buffer

    def receive(self) -> dict[str, Any] | None:
        """The guard's next message; None if it was killed, or after the timeout of the socket."""
        while not self.has_message():
            try:
                data = self._control.recv(4096)
            except TimeoutError:
                return None
            except ConnectionResetError:
                data = b""
            if not data:
                self.is_unattended = not self._tree_has_ended
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        if "killed" in message:
            self._tree_has_ended = True
            return None
        return message


class GuardServer:
    """The process that forks guards, one for each executor."""

    def __init__(self, inherited: tuple[int, ...]) -> None:
        try:
            self._requests, theirs = socket.socketpair()
        except OSError as error:
            raise no_descriptors(error) from None
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(Path(__file__).with_name("guard.py"))],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    env={},
                    cwd="/",
                    start_new_session=True,
                    pass_fds=inherited,
                )
            except OSError as error:
                self._requests.close()
                raise nothing_starts(f"the guard server does not start ({error})", "Free memory or processes") from None

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def new_guard(self) -> Guard:
        try:
            control, theirs = socket.socketpair()
        except OSError as error:
            raise no_descriptors(error) from None
        guard = Guard(control)
        try:
            with theirs, contextlib.suppress(BrokenPipeError):
                socket.send_fds(self._requests, [b"."], [theirs.fileno()])
            guard.greet()
        except NoGuard:
            guard.close()
            # In case the server exists, but does not answer; the next start makes another one.
            self._process.kill()
            self._process.wait()
            raise
        except BaseException:
            guard.close()
            raise
        return guard

    def close(self) -> None:
        """Let the server end, which happens after its guards have ended."""
        self._requests.close()
        self._process.wait()


class NoGuard(HostFault):
    """The guard server has been killed, or stopped with a signal."""

    def __init__(self) -> None:
        super().__init__("process executor", "the guard server does not answer", "Try again")


# --- Requests to a guard, and its answers ---------------------------------------------------------


def request_for(program: Program) -> bytes:
    """The request to a guard. Raises ExecutorError for a command or environment that no process can
    have.
    """
    check_texts(program, os.fsencode)
    request = {
        "argv": program.argv,
        "env": program.env,
        "cwd": str(program.cwd),
        "user": _user(program.user),
        "keep": program.keep,
    }
    return json.dumps(request).encode() + b"\n"


def _user(name: str | None) -> tuple[int, int, list[int]] | None:
    """The ids of a user; None: those of this process."""
    if name is None:
        return None
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise ExecutorError(
            f"user {name!r}", "there is no such user on this host", "Create it or name another"
        ) from None
    if user.pw_uid == os.geteuid():
        return None
    if os.geteuid() != 0:
        raise ExecutorError(
            f"user {name!r}", "a task manager that is not root cannot use another user", "Leave `user` out"
        )
    return user.pw_uid, user.pw_gid, os.getgrouplist(name, user.pw_gid)


_NO_PROCESS = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""The errors of a fork that are faults of the host. EIO is not among them: a damaged program of the
task gives it, too.
"""


def _failure(program: Program, step: str, number: int, path: str) -> ExecutorError | HostFault:
    """The reason why a guard could not execute the program."""
    command = program.argv[0]
    thing = f"shell {command!r}" if program.shell else f"command {command!r}"
    reason = os.strerror(number)
    if number in _NO_PROCESS:
        return nothing_starts(f"this host gives {thing} no process ({reason})", "Use fewer slots")
    match step, number:
        case "find", errno.ENOENT:
            remedy = "Install it or use sh" if program.shell else "Install it, or correct the name or PATH"
            return ExecutorError(thing, f"there is no such {thing.split()[0]} on this host", remedy)
        case "find", _:
            return ExecutorError(thing, f"it cannot be executed ({reason})", "Make it executable (chmod +x)")
        case "exec", errno.ENOENT:
            return ExecutorError(thing, f"the interpreter that {path} names is not on this host", "Correct its #! line")
        case "exec", errno.ENOEXEC:
            return ExecutorError(thing, f"{path} is not a program of this host", "Give it a #! line, or run it with sh")
        case "exec", errno.E2BIG:
            return ExecutorError(thing, "its arguments and environment are too long", "Pass them in a file")
        case "cwd", errno.EACCES:
            whose = f" by user {program.user!r}" if program.user else ""
            remedy = "Name a folder of the task's own files"
            return ExecutorError(f"folder {program.cwd}", f"it, or the way to it, may not be entered{whose}", remedy)
        case "cwd", _:
            return ExecutorError(f"folder {program.cwd}", f"the task cannot start there ({reason})", "Create it")
        case "user", _:
            return ExecutorError(f"user {program.user!r}", f"the task cannot become it ({reason})", "Name another")
    return ExecutorError(thing, f"it cannot be executed ({reason})")


def nothing_starts(fault: str, remedy: str) -> HostFault:
    """The fault of a host that cannot start any process."""
    return HostFault("process executor", fault, remedy)


def no_descriptors(error: OSError) -> HostFault:
    return nothing_starts(f"no descriptors are left ({error.strerror})", "Use fewer slots")
