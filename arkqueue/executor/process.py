"""The process executor: an attempt is a tree of processes on this host, under a guard (``guard.py``) that ends all of it.

The task manager calls it; it knows no database. A guard has one attempt at a time and is kept for the next. Each attempt
has a thread, which copies the output to the sink and waits for the guard's report; it is the attempt's own, so that a slow
sink holds up one task and no other.

If the guard server dies, the attempts go on under their guards, and the next start brings up another server. If such a
guard dies as well, we look ourselves for what it has left (``leftovers``). If the task manager dies, its ends of the
control sockets close, and the guards end their trees.
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
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from arkqueue.errors import ExecutorError, HostFault
from arkqueue.executor import Ended, Program, Running, Sink, check_texts
from arkqueue.executor.leftovers import end_leftovers
from arkqueue.model import AttemptId, Stream

IDLE_GUARDS = 16
"""Guards that are kept; each has about 2 MB of its own. More come and go with the attempts."""
CHUNK = 64 * 1024
"""Bytes of one read: a pipe holds no more, unless it was enlarged."""
LAST_READS = 16
"""Reads after the end: a process outside the tree may hold the pipe and write for ever; 16 empty the largest usual one."""
START_TIMEOUT = 60.0
"""Seconds until a program that does not get executed (its folder is on a dead file server) is given up."""
OVERDUE = 5.0
"""Seconds after the grace until a guard that has reported no end is killed: its task may have stopped it with a signal.
The guard server then ends what is left."""


class ProcessExecutor:
    """Starts attempts as processes. Any thread may call it."""

    def __init__(self, lock: int | None = None, work: Path | None = None) -> None:
        """``lock``: a descriptor that all guard processes hold (but no task), so that an flock on it says whether one is left.

        ``work``: the folder of all workspaces, by which leftovers are known; None: they are not looked for.
        """
        self._lock = threading.Lock()
        self._running: set[_ProcessRunning] = set()
        self._idle: list[_Guard] = []
        self._is_closed = False
        self._inherited = () if lock is None else (lock,)
        self._work = work
        self._server = _GuardServer(self._inherited)

    def start(self, program: Program, sink: Sink) -> Running:
        """Start an attempt; returns when its program is being executed. Raises ExecutorError where it cannot be, HostFault where nothing can."""
        request = _request(program)
        try:
            guard = self._guard()
        except _NoGuard:
            guard = self._guard()
        try:
            running = self._begin(guard, program, request, sink)
        except BaseException:
            guard.close()
            raise
        with self._lock:
            self._running.add(running)
            is_closed = self._is_closed
        try:
            running.follow()
        except RuntimeError as error:
            # Its process has begun, but what nobody follows must not go on.
            running.stop(0)
            running.follow_here()
            raise _host_fault(f"this host gives no further thread ({error})", "Use fewer slots") from None
        if is_closed:
            running.stop(0)
        return running

    def close(self) -> None:
        """End everything that is still running, with no grace."""
        with self._lock:
            self._is_closed = True
            running = list(self._running)
        for one in running:
            one.stop(0)
        for one in running:
            one.wait()
        with self._lock:
            idle, self._idle = self._idle, []
        for guard in idle:
            guard.close()
        self._server.close()

    def _guard(self) -> _Guard:
        """A guard without an attempt, under a server that lives."""
        with self._lock:
            if self._is_closed:
                raise ExecutorError("process executor", "it is closed")
            if not self._server.is_alive():
                # Without it nobody ends what a killed guard leaves: its idle guards are of no use either.
                while self._idle:
                    self._idle.pop().close()
                self._server.close()
                self._server = _GuardServer(self._inherited)
            while self._idle:
                guard = self._idle.pop()
                if guard.is_alive():
                    return guard
                guard.close()
            server = self._server
        return server.new_guard()

    def _begin(self, guard: _Guard, program: Program, request: bytes, sink: Sink) -> _ProcessRunning:
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            try:
                stdout, to_stdout = _pipe(ours, theirs)
                stderr, to_stderr = _pipe(ours, theirs)
            except OSError as error:
                raise _no_descriptors(error) from None
            guard.begin(program, request, [to_stdout, to_stderr])
            streams = {stdout: Stream.STDOUT, stderr: Stream.STDERR}
            look_after = partial(self._look_after, program.attempt)
            return _ProcessRunning(guard, streams, ours.pop_all(), sink, look_after, self._has_ended)

    def _look_after(self, attempt: AttemptId) -> str:
        """End what an attempt has left that nobody guards any more; words for what became of it."""
        if self._work is None or sys.platform != "linux":
            return "what was left of it may still run"
        found = end_leftovers(self._work, [attempt])
        if found.remaining:
            return f"what is left of it cannot be ended: {', '.join(found.remaining[:5])}"
        return "what was found of it has been ended"

    def _has_ended(self, running: _ProcessRunning, guard: _Guard) -> None:
        with self._lock:
            self._running.discard(running)
            if not self._is_closed and len(self._idle) < IDLE_GUARDS and guard.is_alive():
                self._idle.append(guard)
            else:
                guard.close()


class _ProcessRunning:
    """One attempt and the thread that follows it."""

    def __init__(
        self,
        guard: _Guard,
        streams: dict[int, Stream],
        opened: contextlib.ExitStack,
        sink: Sink,
        look_after: Callable[[], str],
        has_ended: Callable[[_ProcessRunning, _Guard], None],
    ) -> None:
        self._guard, self._streams, self._opened, self._sink = guard, streams, opened, sink
        self._look_after, self._report_end = look_after, has_ended
        self._lock = threading.Lock()
        self._stop_by: float | None = None
        self._lost_output = ""
        self._ended: Ended | None = None
        self._has_ended = threading.Event()

    def wait(self, timeout: float | None = None) -> Ended | None:
        """The end, once all output has been handed to the sink and no process is left; None after ``timeout`` seconds."""
        return self._ended if self._has_ended.wait(timeout) else None

    def stop(self, grace: float) -> None:
        """SIGTERM to all of it, SIGKILL after ``grace`` seconds; returns at once. A later, shorter grace shortens it."""
        by = time.monotonic() + grace
        with self._lock:
            if self._ended is None and (self._stop_by is None or by < self._stop_by):
                self._stop_by = by
                self._guard.stop(grace)

    def follow(self) -> None:
        """In a thread of its own; RuntimeError where there is none to be had."""
        threading.Thread(target=self.follow_here, name="attempt", daemon=True).start()

    def follow_here(self) -> None:
        """Return when nothing of it is left."""
        report = self._copy_until_report()
        became = self._look_after() if self._guard.is_unattended else "what was left of it has been ended"
        # Nothing of the attempt is left: what is in the pipes now is the last of its output.
        for descriptor in self._streams:
            for _ in range(LAST_READS):
                if not self._copy(descriptor):
                    break
        self._opened.close()
        with self._lock:  # from here on nobody stops the guard's next attempt in the name of this one
            self._ended = self._end(report, became)
        self._report_end(self, self._guard)
        self._has_ended.set()

    def _copy_until_report(self) -> dict[str, Any] | None:
        """Copy output until the guard reports the end; None where the guard has been killed."""
        control = self._guard.fileno()
        poll = select.poll()
        for descriptor in (control, *self._streams):
            poll.register(descriptor, select.POLLIN)
        while not self._guard.has_message():  # a short one may have been reported along with its start
            for descriptor, _ in poll.poll(self._guard.patience(self._stop_by)):
                if descriptor == control:
                    return self._guard.receive()
                if not self._copy(descriptor):
                    poll.unregister(descriptor)
        return self._guard.receive()

    def _copy(self, descriptor: int) -> bool:
        """Hand one chunk to the sink; False where there is none. A sink that fails loses the rest, and the end says so."""
        try:
            data = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return False
        if data and not self._lost_output:
            try:
                self._sink.write(self._streams[descriptor], data)
            except Exception as error:
                self._lost_output = f"its output from here on is lost: {error}"
        return bool(data)

    def _end(self, report: dict[str, Any] | None, became: str) -> Ended:
        """``became``: what became of the rest, where the guard was killed."""
        if report is None:
            note = f"its guard process was killed, so that its exit code is not known; {became}"
            return Ended(None, self._stop_by is not None, _notes(note, self._lost_output))
        left = report["left"]
        if report["stopped"] or not left:
            return Ended(report["exit"], report["stopped"], self._lost_output)
        names = ", ".join(sorted(set(left))[:5])
        note = f"it left {len(left)} process{'es' if len(left) > 1 else ''} behind, which had to be ended: {names}"
        return Ended(report["exit"], False, _notes(note, self._lost_output))


class _Guard:
    """Our side of the conversation with a guard; ``guard.py`` documents the messages."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._buffer = b""
        self._pid = 0
        self.is_unattended = False
        """It was killed, and its server too, before that could end what is left of its tree."""
        self._is_attended = False
        """It was killed, and its server has ended what was left."""
        self.fileno = control.fileno
        self.close = control.close

    def greet(self) -> None:
        """Return when the guard is there."""
        with self._limited():
            hello = self.receive()
        if hello is None:
            raise _NoGuard
        if "failed" in hello:
            reason = os.strerror(hello["failed"][1])
            raise _host_fault(f"this host gives no further process ({reason})", "Use fewer slots")
        self._pid = hello["guard"]

    def begin(self, program: Program, request: bytes, descriptors: list[int]) -> None:
        """Give the guard an attempt; return when its program is being executed, or has killed its guard at once."""
        with self._limited():
            try:
                sent = socket.send_fds(self._control, [request], descriptors)
                if rest := request[sent:]:
                    self._control.sendall(rest)
            except OSError:
                answer = None
            else:
                answer = self.receive()
        # One that was killed when it had the request may have executed the program, which killed it: its end will be told.
        if answer is None and not (self._is_attended or self.is_unattended):
            self._kill()
            fault = "its guard process was killed, or could not execute it in time"
            raise ExecutorError("process executor", fault, "Try again")
        if answer is not None and "failed" in answer:
            raise _failure(program, *answer["failed"])

    def _kill(self) -> None:
        """Kill it, if it is there: a guard that was stopped with a signal. The server then ends what is left of its tree."""
        # Its process id cannot be another's yet: the server closes the control socket when it has reaped it.
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def is_alive(self) -> bool:
        """Whether it can be given an attempt. A guard without one says nothing; it can only have ended."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        return not poll.poll(0)

    def stop(self, grace: float) -> None:
        with contextlib.suppress(OSError):  # it has been killed: the end is near
            self._control.sendall(json.dumps({"stop": grace}).encode() + b"\n")

    def patience(self, stop_by: float | None) -> float:
        """How long to wait for it, in milliseconds. A guard that is overdue is killed here."""
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
        """Its next message; None where it has been killed (or a timeout that was set has passed)."""
        while not self.has_message():
            try:
                data = self._control.recv(4096)
            except TimeoutError:
                return None
            except ConnectionResetError:
                data = b""
            if not data:
                self.is_unattended = not self._is_attended
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        if "killed" in message:
            self._is_attended = True
            return None
        return message


class _GuardServer:
    """The program that forks guards: one for each executor."""

    def __init__(self, inherited: tuple[int, ...]) -> None:
        try:
            self._requests, theirs = socket.socketpair()
        except OSError as error:
            raise _no_descriptors(error) from None
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
                raise _host_fault(f"the guard server does not start ({error})", "Free memory or processes") from None

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def new_guard(self) -> _Guard:
        try:
            control, theirs = socket.socketpair()
        except OSError as error:
            raise _no_descriptors(error) from None
        guard = _Guard(control)
        try:
            with theirs, contextlib.suppress(BrokenPipeError):
                socket.send_fds(self._requests, [b"."], [theirs.fileno()])
            guard.greet()
        except _NoGuard:
            guard.close()
            self._process.kill()  # should it be there but not answer; the next start has another
            self._process.wait()
            raise
        except BaseException:
            guard.close()
            raise
        return guard

    def close(self) -> None:
        """Let the server end, which it does when its guards have ended."""
        self._requests.close()
        self._process.wait()


class _NoGuard(HostFault):
    """The guard server has been killed, or stopped with a signal."""

    def __init__(self) -> None:
        super().__init__("process executor", "the guard server does not answer", "Try again")


# --- What a guard is asked for, and what it may answer ---------------------------------------------------------------


def _request(program: Program) -> bytes:
    check_texts(program, os.fsencode)
    request = {"argv": program.argv, "env": program.env, "cwd": str(program.cwd), "user": _user(program.user)}
    return json.dumps(request).encode() + b"\n"


def _user(name: str | None) -> tuple[int, int, list[int]] | None:
    """The ids of a user, None for our own."""
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
"""What a fork says of the host. Not EIO, which a damaged program of the task's own gives, too."""


def _failure(program: Program, step: str, number: int, path: str) -> ExecutorError | HostFault:
    """The words for what kept a guard from executing the program."""
    command = program.argv[0]
    thing = f"shell {command!r}" if program.shell else f"command {command!r}"
    reason = os.strerror(number)
    if number in _NO_PROCESS:
        return _host_fault(f"this host gives {thing} no process ({reason})", "Use fewer slots")
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
        case "cwd", _:
            return ExecutorError(f"folder {program.cwd}", f"the task cannot start there ({reason})", "Create it")
        case "user", _:
            return ExecutorError(f"user {program.user!r}", f"the task cannot become it ({reason})", "Name another")
    return ExecutorError(thing, f"it cannot be executed ({reason})")


def _host_fault(fault: str, remedy: str) -> HostFault:
    return HostFault("process executor", fault, remedy)


def _no_descriptors(error: OSError) -> HostFault:
    return _host_fault(f"no descriptors are left ({error.strerror})", "Use fewer slots")


def _notes(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _pipe(ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> tuple[int, int]:
    read, write = os.pipe()
    ours.callback(os.close, read)
    theirs.callback(os.close, write)
    os.set_blocking(read, False)
    return read, write
