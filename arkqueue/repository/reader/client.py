"""The server's side of its reader processes: starts them, gives them calls, and ends them.

A process has one call at a time, so it is known which call a process had when it broke. A process
serves all archives, and is kept running. No archive waits for one whose repository hangs: another
process is started when a call has waited for `TURN` seconds, and while a call takes longer than
`SLOW`. Each further process is ended when it has been idle for `IDLE` seconds.

What happens to a call whose process breaks:

    the process has ended, for any cause         the call is made again, in a new process; not if it
                                                 writes files
    it has ended again, by a crash or because    `ArchiveHarmful`: the archive is stopped
      memory ran out
    it has ended by a crash or because memory    `WorkspaceError`: the task fails
      ran out, and writes files
    it has ended again, by a signal of another   `ArchiveUnreachable`: tried again later
      process
    no answer before the deadline                the process is ended: `ArchiveHarmful` if it has
                                                 computed instead of waiting, otherwise
                                                 `ArchiveUnreachable`: its server or disk hangs
    an invalid answer, or one that is too long   the process is ended: `ArchiveHarmful`
    nobody wants the answer (`give_up`)          the process is ended: `ArchiveUnreachable`

Calls of other archives run in other processes, or wait for one. They are not affected.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from arkqueue.errors import ArchiveHarmful, ArchiveUnreachable, HostFault, WorkspaceError
from arkqueue.repository.reader.frames import LENGTH, Malformed, frame, length, message
from arkqueue.repository.reader.messages import take_error
from arkqueue.repository.reader.process import OUT_OF_MEMORY, TERMINATED

DEADLINE = 600.0
"""Seconds within which a call is answered. For a call that writes files: seconds within which its
process has to use its processor.
"""
TRANSFER_DEADLINE = 1900.0
"""Seconds for a call that may transfer new commits from a remote Git repository. The git program has shorter limits of its own."""
MEMORY = 2**30
"""Bytes that a process may allocate. The paths of a million files take about half of that."""
STARTING = 60.0
"""Seconds that a process has until it is ready."""
SLOW = 0.5
"""Seconds after which a call may hang."""
TURN = 0.05
"""Seconds that a call waits for a process before another one is started."""
IDLE = 30.0
"""Seconds without a call after which a process is ended, unless it is the only one."""
MOST_AT_ONCE = max(2, min(os.cpu_count() or 1, 8))
"""The most processes with a call, without those whose calls may hang."""
MOST = 128
"""The most processes in all."""
COMPUTES = 0.25
"""The part of a deadline during which a process has to use a processor to count as computing, and
not as waiting for a server or a disk.
"""
TICK = 0.25
"""Seconds between two checks of a running call."""
_AT_ONCE = 2**16
"""The most bytes of a message that one call of the socket takes."""
FORCE = 1.0
"""Seconds that a process, and the git that it started, have to end by themselves."""

SYNC = (
    "Remove what makes it so, then: arkqueue sync NAME; or go on behind that revision: arkqueue archive rewind NAME REV"
)
LESS = "Have the task take only the paths that it needs (`checkout: [PATH, …]`), or a working copy, which git or svn makes (`checkout: working-copy`)"


class Broken(Exception):
    """A reader process has ended in the middle of a call."""


class _Overdue(Exception):
    """The deadline of a call is over. ``has_computed``: True if its process has used a processor,
    and has not waited.
    """

    def __init__(self, *, has_computed: bool) -> None:
        self.has_computed = has_computed


@dataclass(frozen=True, slots=True)
class Call:
    """One call. ``thing``: the repository, for people. ``doing``: what the call does, for people.

    ``request``: the message to the process. ``deadline``: seconds. ``writes``: the call makes or
    changes files; it is not repeated, and may go on as long as its process works. ``once``: it is
    not repeated either, and waits for nothing. ``again``: the request for the second try, if it
    differs. ``longest``: the most seconds that it may take in all. ``most_written``: the most bytes
    that its process may write; more is a `WorkspaceError`.
    """

    thing: str
    doing: str
    request: Mapping[str, Any]
    deadline: float
    writes: bool = False
    again: Mapping[str, Any] | None = None
    once: bool = False
    longest: float | None = None
    most_written: int | None = None


def begin(kinds: Collection[str], connection: socket.socket, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a reader process that has one end of a connection."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "arkqueue.repository.reader.process", str(MEMORY), *kinds],
        stdin=connection.fileno(),
        stdout=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )


class ReaderProcess:
    """One reader process. One thread at a time uses it."""

    def __init__(self, kinds: Collection[str] = ()) -> None:
        """``kinds``: the kinds of repositories whose libraries the process loads before its first
        call.
        """
        # The process does not get the variables with the server's database and tokens.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ARKQUEUE_")}
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = begin(kinds, theirs, environment)
            except OSError as error:
                ours.close()
                fault = f"cannot start a process that reads repositories ({error.strerror})"
                raise HostFault("this host", fault, "Give it more processes or memory.") from error
        ours.settimeout(TICK)
        self._socket, self._received = ours, b""
        self.is_ready = False
        """True once it has reported that it is ready."""
        self.pid = self._process.pid
        self.since = time.monotonic()
        """The start of its call, or of its idleness."""
        self.location: object = None
        """The location of the archive of its last call."""
        self.is_given_up = False

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, call: Call, while_slow: Callable[[], None]) -> dict[str, Any]:
        """Send a call and return the answer, or raise its error. After `Broken` or `Malformed` the
        process cannot be used any more.

        ``while_slow``: called repeatedly once the answer takes long.
        """
        if not self.is_ready:
            self._await_ready()
        request = frame(call.request)
        began = heard = time.monotonic()
        written = self._written() if call.most_written is not None else 0
        used: list[float] = []
        """Its processor time at the start (or at the last progress), and now."""

        def check() -> None:
            nonlocal heard
            now = time.monotonic()
            if now - began >= SLOW:
                while_slow()
            used[1:] = [self._processor_time()]
            if call.writes and used[0] != used[-1]:
                heard, used[0] = now, used[-1]
            if call.longest is not None and now - began >= call.longest:
                raise WorkspaceError(call.thing, f"{call.doing}: it takes longer than {call.longest:.0f} s")
            if call.most_written is not None and self._written() - written > call.most_written:
                raise WorkspaceError(
                    call.thing, f"{call.doing}: more than {call.most_written >> 20} MiB would be written"
                )
            if now - heard >= call.deadline:
                has_computed = not call.writes and used[-1] - used[0] >= COMPUTES * call.deadline
                raise _Overdue(has_computed=has_computed)

        self._send(request)
        said = self._hear(check)
        if "answer" not in said and "error" not in said:
            raise Malformed("an invalid answer")
        return said

    def end(self) -> str:
        """End the process, with the programs that it has started. Returns how it ended, in case it
        had ended by itself.
        """
        self._socket.close()
        try:
            self._process.wait(FORCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
        if self._process.wait() not in (0, TERMINATED):  # otherwise it has ended git by itself
            self._end_what_is_left()
        return self.how_it_ended()

    def _end_what_is_left(self) -> None:
        """End the git that a killed process has left. git is in the session that the process began;
        no other session gets its number as long as git runs.
        """
        for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
            with suppress(ProcessLookupError):
                if pid != self.pid and os.getsid(pid) == self.pid:
                    os.kill(pid, signal.SIGTERM)

    def how_it_ended(self) -> str:
        code = self._process.wait()
        if code == OUT_OF_MEMORY:
            return f"it needs more than {MEMORY >> 20} MiB of memory"
        if code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        return f"its process ended with exit code {code}"

    @property
    def was_signaled(self) -> bool:
        """True if another process has ended it by a signal, and not the call."""
        return self._process.wait() in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP, TERMINATED)

    def give_up(self) -> None:
        """Let the thread that waits for it get `Broken`, and end the process. Called by another
        thread; never waits.
        """
        self.is_given_up = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _await_ready(self) -> None:
        began = time.monotonic()

        def check() -> None:
            if time.monotonic() - began > STARTING:
                raise Broken

        try:
            if "ready" not in self._hear(check):
                raise Malformed("an answer before the first question")
        except Broken:
            if self.is_given_up:
                raise
            fault = f"a process that reads repositories did not come up: {self.end()}"
            raise HostFault("this host", fault, "Look at its memory, and at the server's standard error.") from None
        self.is_ready = True
        self.since = time.monotonic()

    def _send(self, data: bytes) -> None:
        try:
            if len(data) > _AT_ONCE:
                self._socket.settimeout(STARTING)
            self._socket.sendall(data)
            if len(data) > _AT_ONCE:
                self._socket.settimeout(TICK)
        except TimeoutError:
            raise _Overdue(has_computed=False) from None
        except OSError:
            raise Broken from None

    def _hear(self, check: Callable[[], None]) -> dict[str, Any]:
        return message(self._exactly(length(self._exactly(LENGTH.size, check)), check))

    def _exactly(self, size: int, check: Callable[[], None]) -> bytes:
        pieces, missing = [self._received], size - len(self._received)
        while missing > 0:
            try:
                piece = self._socket.recv(max(_AT_ONCE, min(missing, 2**20)))
            except TimeoutError:
                check()
                continue
            except OSError:
                piece = b""
            if not piece:
                raise Broken
            pieces.append(piece)
            missing -= len(piece)
            if missing > 0:
                check()
        data = b"".join(pieces)
        self._received = data[size:]
        return data[:size]

    def _written(self) -> int:
        """The bytes that the process has written."""
        try:
            lines = dict(line.split(b": ") for line in Path(f"/proc/{self.pid}/io").read_bytes().splitlines())
            return int(lines[b"wchar"])
        except (OSError, ValueError, KeyError):
            return 0

    def _processor_time(self) -> float:
        """The processor time of the process, in seconds."""
        try:
            return int(Path(f"/proc/{self.pid}/schedstat").read_bytes().split()[0]) / 1e9
        except (OSError, ValueError, IndexError):
            return 0.0


class ReaderProcesses:
    """All reader processes of this process. Any thread may call it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._free: list[ReaderProcess] = []
        """The last one is the one that was used last."""
        self._busy: dict[ReaderProcess, int] = {}
        """The processes that have a call, with the thread that waits for each."""
        self._kinds: set[str] = set()
        """The kinds of repositories that calls were about. Loading a library that nobody needs
        would take 10 to 20 MB.
        """

    def warm(self) -> None:
        """Start a process before the first call."""
        with self._changed:
            if not (self._free or self._busy):
                with suppress(HostFault):
                    self._free.append(ReaderProcess(self._kinds))

    def call(self, call: Call) -> Any:
        """The unchecked answer of a call; raises the call's error."""
        for is_last in (call.writes or call.once, True):
            reader = self._take(call)
            try:
                said = reader.ask(call, self._see_to_spare)
            except Broken:
                self._drop(reader)
                how = reader.end()
                if reader.is_given_up:
                    raise ArchiveUnreachable(call.thing, "nobody waits for its answer any more") from None
                if not is_last:
                    call = replace(call, request=call.again or call.request)
                    continue
                fault = f"{call.doing}: {how}"
                if reader.was_signaled:
                    raise ArchiveUnreachable(call.thing, fault) from None
                if call.writes:
                    raise WorkspaceError(call.thing, fault, LESS) from None
                raise ArchiveHarmful(call.thing, fault, SYNC) from None
            except _Overdue as error:
                self._end(reader)
                if error.has_computed or call.once:
                    fault = f"{call.doing}: it takes longer than {call.deadline:.0f} s"
                    raise ArchiveHarmful(call.thing, fault, SYNC) from None
                fault = f"{call.doing}: no answer for {call.deadline:.0f} s"
                raise ArchiveUnreachable(call.thing, fault, "Check its server, the network and the disk.") from None
            except Malformed as error:
                self._end(reader)
                raise ArchiveHarmful(call.thing, f"{call.doing}: its reader gave {error}", SYNC) from None
            except HostFault:
                self._drop(reader)
                raise
            except BaseException:
                self._end(reader)
                raise
            if said.get("last"):  # it has grown
                self._end(reader)
            else:
                self._give_back(reader)
            return self._result(call, said)
        raise AssertionError("the second time is the last")

    def _result(self, call: Call, said: dict[str, Any]) -> Any:
        if "answer" in said:
            return said["answer"]
        try:
            error = take_error(said["error"])
        except Malformed as found:
            raise self.malformed(call, found) from None
        raise error

    def malformed(self, call: Call, found: Malformed) -> ArchiveHarmful:
        """The fault of an answer that does not fit its call."""
        return ArchiveHarmful(call.thing, f"{call.doing}: its reader gave {found}", SYNC)

    def give_up(self, thread: int) -> None:
        """Let a thread stop waiting for its call, if it has one. Never waits. The thread may make
        another call afterwards.
        """
        with self._changed:
            for reader, waits in self._busy.items():
                if waits == thread:
                    reader.give_up()

    def pids(self) -> list[int]:
        """The ids of the running processes, for diagnosis."""
        with self._changed:
            return [reader.pid for reader in (*self._free, *self._busy)]

    def close(self) -> None:
        """End all processes; threads that wait for one get an error. A later call starts a new one."""
        with self._changed:
            free, self._free = self._free, []
            busy = list(self._busy)
        for reader in busy:
            reader.give_up()
        for reader in free:
            reader.end()

    # Below

    def _take(self, call: Call) -> ReaderProcess:
        """A process for a call: the one that has the archive open, otherwise the one that was used
        last, otherwise a new one.
        """
        since, thread, location = time.monotonic(), threading.get_ident(), call.request["location"]
        with self._changed:
            if location is not None:
                self._kinds.add(location[0])
            while True:
                self._forget_ended()
                if self._free:
                    reader = next((one for one in self._free if one.location == location), self._free[-1])
                    self._free.remove(reader)
                    break
                now = time.monotonic()
                if self._may_start(now, has_waited=now - since >= TURN):
                    reader = ReaderProcess(self._kinds)
                    break
                if now - since >= call.deadline:
                    raise ArchiveUnreachable(call.thing, "all processes that read repositories are waiting for others")
                self._changed.wait(TURN)
            reader.location, reader.since = location, time.monotonic()
            self._busy[reader] = thread
            return reader

    def _forget_ended(self) -> None:
        """Remove processes that have ended while they had no call."""
        for reader in [reader for reader in self._free if not reader.is_alive]:
            self._free.remove(reader)
            reader.end()

    def _may_start(self, now: float, *, has_waited: bool) -> bool:
        """True if another process may be started. While one is starting, the caller waits for that."""
        if not self._busy:
            return True
        if not has_waited or len(self._busy) >= MOST or not all(reader.is_ready for reader in self._busy):
            return False
        return sum(now - reader.since < SLOW for reader in self._busy) < MOST_AT_ONCE

    def _give_back(self, reader: ReaderProcess) -> None:
        idle = []
        with self._changed:
            self._busy.pop(reader, None)
            reader.since = time.monotonic()
            if not reader.is_given_up:
                self._free.append(reader)
            for one in self._free[:-1]:
                if reader.since - one.since > IDLE:
                    self._free.remove(one)
                    idle.append(one)
            self._changed.notify()
        if reader.is_given_up:
            idle.append(reader)
        for one in idle:
            one.end()

    def _drop(self, reader: ReaderProcess) -> None:
        with self._changed:
            self._busy.pop(reader, None)
            self._changed.notify()

    def _end(self, reader: ReaderProcess) -> None:
        self._drop(reader)
        reader.end()

    def _see_to_spare(self) -> None:
        """Keep one process free for the next call while all other calls may hang."""
        with self._changed:
            self._forget_ended()
            now = time.monotonic()
            all_may_hang = all(reader.is_ready and now - reader.since >= SLOW for reader in self._busy)
            if not self._free and all_may_hang and len(self._busy) < MOST:
                with suppress(HostFault):
                    self._free.append(ReaderProcess(self._kinds))
                    self._changed.notify()


processes = ReaderProcesses()
"""The reader processes of this process."""

atexit.register(processes.close)
