"""The process executor: an attempt is a tree of processes on this host, under a guard
(``guard.py``) that ends all of them.

The task manager calls this module, which knows no database. A guard has one attempt at a time and
is kept for the next one. The thread that waits for the end of an attempt copies the output to the
sink until the guard reports the end, so a slow sink delays only its own task.

If the guard server dies, the attempts continue under their guards, and the next start starts
another server. If such a guard dies as well, this module searches for the processes that it has
left (``leftovers``). If the task manager dies, its ends of the control sockets close, and the
guards end their trees. If it is suspended, they end their trees at the times that they were given
(``keep``).
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from arkqueue.errors import ExecutorError
from arkqueue.executor import Ended, Program, Running, Sink
from arkqueue.executor.process.guard_client import (
    Guard,
    GuardServer,
    NoGuard,
    no_descriptors,
    request_for,
)
from arkqueue.executor.process.leftovers import end_leftovers
from arkqueue.model import AttemptId, Stream, Usage

IDLE_GUARDS = 16
"""The number of idle guards that are kept; each has about 2 MB of its own. Further guards are made
and ended with the attempts.
"""
CHUNK = 64 * 1024
"""The bytes of one read: the size of a pipe, unless it was enlarged."""
LAST_READS = 16
"""The number of reads after the end: a process outside the tree may hold the pipe and write for
ever. 16 reads empty the largest usual pipe.
"""


class ProcessExecutor:
    """Starts attempts as processes. Any thread may call it."""

    def __init__(self, lock: int | None = None, work: Path | None = None) -> None:
        """``lock``: a descriptor that all guard processes have (but no task), so that a lock on its
        file (flock) shows whether a guard is left.

        ``work``: the folder of all workspaces, which identifies leftovers; None: no search for
        leftovers.
        """
        self._lock = threading.Lock()
        self._running: set[_ProcessRunning] = set()
        self._idle: list[Guard] = []
        self._is_closed = False
        self._inherited = () if lock is None else (lock,)
        self._work = work
        self._server = GuardServer(self._inherited)

    def start(self, program: Program, sink: Sink) -> Running:
        """Start an attempt. Returns when its program is being executed. Raises ExecutorError if it
        cannot be executed, and HostFault if the host can start nothing.
        """
        request = request_for(program)
        try:
            guard = self._guard()
        except NoGuard:
            guard = self._guard()
        try:
            running = self._begin(guard, program, request, sink)
        except BaseException:
            guard.close()
            raise
        with self._lock:
            self._running.add(running)
            is_closed = self._is_closed
        if is_closed:
            running.stop(0)
            running.wait()  # `close` may not know of it, and waits for its guard
        return running

    def close(self) -> None:
        """End all running attempts without a grace."""
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

    def _guard(self) -> Guard:
        """A guard without an attempt, whose server is alive."""
        with self._lock:
            if self._is_closed:
                raise ExecutorError("process executor", "it is closed")
            if not self._server.is_alive():
                # Without the server nobody ends the tree of a killed guard, so its idle guards are
                # useless, too.
                while self._idle:
                    self._idle.pop().close()
                self._server.close()
                self._server = GuardServer(self._inherited)
            while self._idle:
                guard = self._idle.pop()
                if guard.is_alive():
                    return guard
                guard.close()
            server = self._server
        return server.new_guard()

    def _begin(self, guard: Guard, program: Program, request: bytes, sink: Sink) -> _ProcessRunning:
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            try:
                stdout, to_stdout = _pipe(ours, theirs)
                stderr, to_stderr = _pipe(ours, theirs)
            except OSError as error:
                raise no_descriptors(error) from None
            guard.begin(program, request, [to_stdout, to_stderr])
            streams = {stdout: Stream.STDOUT, stderr: Stream.STDERR}
            look_after = partial(self._look_after, program.attempt)
            return _ProcessRunning(guard, streams, ours.pop_all(), sink, look_after, self._has_ended)

    def _look_after(self, attempt: AttemptId) -> str:
        """End the unguarded processes that an attempt has left; returns words about them."""
        if self._work is None or sys.platform != "linux":
            return "what was left of it may still run"
        found = end_leftovers(self._work, [attempt])
        if found.remaining:
            return f"what is left of it cannot be ended: {', '.join(found.remaining[:5])}"
        return "what was found of it has been ended"

    def _has_ended(self, running: _ProcessRunning, guard: Guard) -> None:
        with self._lock:
            self._running.discard(running)
            if not self._is_closed and len(self._idle) < IDLE_GUARDS and guard.is_alive():
                self._idle.append(guard)
            else:
                guard.close()


class _ProcessRunning:
    """One attempt. The thread that waits for its end follows it."""

    doubt = None

    def __init__(
        self,
        guard: Guard,
        streams: dict[int, Stream],
        opened: contextlib.ExitStack,
        sink: Sink,
        look_after: Callable[[], str],
        has_ended: Callable[[_ProcessRunning, Guard], None],
    ) -> None:
        self._guard, self._streams, self._opened, self._sink = guard, streams, opened, sink
        self._look_after, self._report_end = look_after, has_ended
        self._lock = threading.Lock()
        self._stop_by: float | None = None
        self._lost_output = ""
        self._ended: Ended | None = None
        self._following = threading.Lock()
        """The lock of the one caller of ``wait`` that follows the attempt."""
        self._poll = select.poll()
        for descriptor in (guard.fileno(), *streams):
            self._poll.register(descriptor, select.POLLIN)

    def wait(self, timeout: float | None = None) -> Ended | None:
        """The end, once all output has been handed to the sink and no process is left. None: this
        has not happened within ``timeout`` seconds.

        The caller follows the attempt meanwhile, unless another caller already does.
        """
        until = None if timeout is None else time.monotonic() + timeout
        if not self._following.acquire(timeout=-1 if timeout is None else timeout):
            return None
        try:
            if self._ended is None:
                self._follow(until)
            return self._ended
        finally:
            self._following.release()

    def stop(self, grace: float) -> None:
        """Stop the attempt: SIGTERM to all its processes, and SIGKILL after ``grace`` seconds.
        Returns at once. A later call with a shorter grace shortens it.
        """
        by = time.monotonic() + grace
        with self._lock:
            if self._ended is None and (self._stop_by is None or by < self._stop_by):
                self._stop_by = by
                self._guard.stop(grace)

    def keep(self, begin: float, end: float) -> None:
        """If this process is suspended and sends nothing more, the guard asks the attempt to end at
        ``begin``, and has ended it at ``end`` (CLOCK_BOOTTIME, seconds).
        """
        with self._lock:
            if self._ended is None:
                self._guard.keep(begin, end)

    def _follow(self, until: float | None) -> None:
        """Follow the attempt until nothing of it is left, or until a time (``time.monotonic``)."""
        if not self._copy_until_report(until):
            return
        report = self._guard.receive()
        became = self._look_after() if self._guard.is_unattended else "what was left of it has been ended"
        # Nothing of the attempt is left: the bytes in the pipes now are the last of its output.
        for descriptor in self._streams:
            for _ in range(LAST_READS):
                if not self._copy(descriptor):
                    break
        self._opened.close()
        # From here on, a stop of this attempt must not reach the guard's next attempt.
        with self._lock:
            self._ended = self._end(report, became)
        self._report_end(self, self._guard)

    def _copy_until_report(self, until: float | None) -> bool:
        """Copy output until the guard reports the end, or was killed. Returns False if the time is
        over before.
        """
        control = self._guard.fileno()
        # The end of a short attempt may have been reported along with its start.
        while not self._guard.has_message():
            rest = math.inf if until is None else max(0.0, until - time.monotonic())
            for descriptor, _ in self._poll.poll(min(self._guard.patience(self._stop_by), rest * 1000)):
                if descriptor == control:
                    return True
                if not self._copy(descriptor):
                    self._poll.unregister(descriptor)
            if rest == 0:
                return False
        return True

    def _copy(self, descriptor: int) -> bool:
        """Hand one chunk to the sink. Returns False at the end of the pipe. If the sink fails, the
        rest of the output is lost, and the end says so.
        """
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
        """``became``: the fate of the remaining processes, if the guard was killed."""
        if report is None:
            note = f"its guard process was killed, so that its exit code is not known; {became}"
            stopped = self._stop_by is not None
            return Ended(None, stopped, _notes(note, self._lost_output), lost=not stopped)
        left, usage = report["left"], Usage(report["processor"], report["memory"])
        if report["stopped"] or not left:
            abandoned = report["stopped"] and report["abandoned"]
            return Ended(report["exit"], report["stopped"], self._lost_output, abandoned=abandoned, usage=usage)
        names = ", ".join(sorted(set(left))[:5])
        note = f"it left {len(left)} process{'es' if len(left) > 1 else ''} behind, which had to be ended: {names}"
        return Ended(report["exit"], False, _notes(note, self._lost_output), usage=usage)


def _notes(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _pipe(ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> tuple[int, int]:
    read, write = os.pipe()
    ours.callback(os.close, read)
    theirs.callback(os.close, write)
    os.set_blocking(read, False)
    return read, write
