"""The guard: a program of its own that starts attempts as processes and ends every process of their trees.

``process`` starts it once for a task manager, as ``python -I -S guard.py`` with a Unix socket as its standard input. It
imports nothing of arkqueue and stays small, because it is forked for every attempt. It decides nothing and keeps nothing.

Three generations::

    task manager ── socket ── guard server ── guard of an attempt ── the task ── its processes
                  └──────── control socket, one for each attempt ───┘

- The server gets the descriptors of an attempt's stdout, stderr and control socket, forks the attempt's guard and keeps a
  copy of the control socket, nothing else.
- The guard reads the request from the control socket, starts the task and waits. It is the *subreaper* of the tree: a
  process whose parent ends, daemonised or not, becomes the guard's child. So everything is ended when ``waitpid`` says
  that the guard has no child, and only then does it report the end.
- If the control socket closes, the task manager is gone; the guard ends the tree.
- If a task kills its guard, the tree falls to the server, a subreaper too. It ends whatever is not a guard of its, and
  then closes its copy of the control socket. So the end of the control socket always means: nothing is left.

Messages are JSON, one a line. To the guard: the request, then any number of ``{"stop": grace}``. From it, in this order:
``{"guard": pid}``; ``{"failed": [step, errno, detail]}`` or ``{"started": pid}``; ``{"exit": code, "stopped": bool, "left":
[names]}``.

Where there is no subreaper (not Linux), only the task's process group is ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, NoReturn

ABANDONED_GRACE = 0.5
"""Seconds between SIGTERM and SIGKILL when the task manager has died: enough to remove a lock file, far below a lease."""
LINGER = 0.25
"""Seconds in which what the main process left behind may end by itself, as ``exec > >(tee log)`` needs to."""
LEFT_GRACE = 0.75
"""Seconds between SIGTERM and SIGKILL for what has lingered longer."""
AGAIN = 0.1
"""Seconds until a kill is repeated for what is still there."""
LAST_WORD = 5.0
"""Seconds after which the server of a dead task manager kills guards that do not end (a task has stopped its guard)."""

LINUX = sys.platform == "linux"
PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36
libc = ctypes.CDLL(None)

# What a task could send its guard by accident (kill 0, kill $PPID), and what Python ignores; all are default in the task.
IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE,
           signal.SIGALRM, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)  # fmt: skip


# --- The server ------------------------------------------------------------------------------------------------------


def main() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        with contextlib.suppress(OSError, ValueError):  # the C library keeps some for itself
            signal.signal(number, signal.SIG_IGN if number in IGNORED else signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, _wake)
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    os.umask(0o022)
    _prctl(PR_SET_NAME, b"arkqueue-guard")
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    # A guard lives shortly; a collection would only copy the pages that it shares with the server.
    gc.disable()
    gc.freeze()
    Server(socket.socket(fileno=0)).run()


class Server:
    """Forks guards; ends what falls to it when one of them is killed."""

    def __init__(self, requests: socket.socket) -> None:
        self.requests = requests
        self.wake = wake_pipe()
        self.guards: dict[int, int] = {}
        """Process id of a guard → our copy of its control socket."""
        self.lost: list[int] = []
        """Control sockets of guards that were killed, until nothing of their trees is left."""

    def run(self) -> None:
        poll = select.poll()
        poll.register(self.requests, select.POLLIN)
        poll.register(self.wake, select.POLLIN)
        patience: float | None = None  # until when guards may take to end, once the task manager is gone
        is_open = True
        while is_open or self.guards or self.lost:
            timeout = AGAIN if self.lost else LAST_WORD if not is_open else None
            for descriptor, _ in poll.poll(timeout and timeout * 1000):
                if descriptor == self.wake:
                    drain(self.wake)
                elif not self.accept():
                    poll.unregister(self.requests)
                    is_open, patience = False, time.monotonic() + LAST_WORD
            self.reap()
            if patience and time.monotonic() >= patience:
                signal_each(self.guards, signal.SIGKILL)
            if self.lost:
                self.end_orphans()

    def accept(self) -> bool:
        """Fork the guard of the attempt whose descriptors come next; False when the task manager is gone."""
        data, descriptors, _, _ = socket.recv_fds(self.requests, 1, 3, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
        if not data:
            return False
        stdout, stderr, control = descriptors
        try:
            pid = os.fork()
        except OSError as error:
            os.write(control, _line({"failed": ["fork", error.errno, ""]}))
            os.close(control)
        else:
            if pid == 0:
                self.become_guard(stdout, stderr, control)
            self.guards[pid] = control
        os.close(stdout)
        os.close(stderr)
        return True

    def become_guard(self, stdout: int, stderr: int, control: int) -> NoReturn:
        code = 1
        try:
            # Another attempt's control socket must close when its own guard and the server have closed it.
            for other in (*self.guards.values(), *self.lost, self.wake):
                os.close(other)
            self.requests.close()
            Guard(socket.socket(fileno=control)).run(stdout, stderr)
            code = 0
        finally:
            os._exit(code)

    def reap(self) -> None:
        for pid, status in ended_children():
            control = self.guards.pop(pid, None)
            if control is not None and status == 0:
                os.close(control)
            elif control is not None:
                self.lost.append(control)

    def end_orphans(self) -> None:
        """Kill what lost guards have left: every child that is no guard. Repeated until there is none."""
        orphans = [pid for pid in children(os.getpid()) if pid not in self.guards]
        if orphans:
            kill_trees(orphans)
        else:
            for control in self.lost:
                os.close(control)
            self.lost.clear()


# --- The guard of one attempt ----------------------------------------------------------------------------------------


class Guard:
    """Starts one task, waits for it, and ends its whole tree."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.buffer = b""
        self.wake = wake_pipe()
        self.main = 0
        self.exit_code: int | None = None
        self.stopped = False
        self.warned = False
        """SIGTERM has been sent."""
        self.deadline: float | None = None
        """When what is left is warned, if it has not been, or else killed."""
        self.left: list[str] = []
        """Names of what had to be ended after the main process."""

    def run(self, stdout: int, stderr: int) -> None:
        os.setsid()
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.send({"guard": os.getpid()})
        request = self.request()
        if request is None:
            return
        failed = self.start(request, stdout, stderr)
        # From here on only the tree holds the pipes: they end with it.
        os.close(stdout)
        os.close(stderr)
        if failed:
            os.waitpid(self.main, 0)
            self.send({"failed": failed})
            return
        self.send({"started": self.main})
        self.watch()
        self.send({"exit": self.exit_code, "stopped": self.stopped, "left": self.left})

    def request(self) -> dict[str, Any] | None:
        lines = self.receive()
        while not lines:
            if lines is None:
                return None
            lines = self.receive()
        request: dict[str, Any] = lines[0]
        return request

    def start(self, request: dict[str, Any], stdout: int, stderr: int) -> list[Any] | None:
        """Fork and execute; what failed, if it did, comes back through a pipe that a successful exec closes."""
        report, failed = os.pipe()
        self.main = os.fork()
        if self.main == 0:
            try:
                execute(request, stdout, stderr, failed)
            finally:
                os._exit(127)
        os.close(failed)
        text = b""
        while chunk := os.read(report, 65536):
            text += chunk
        os.close(report)
        return json.loads(text) if text else None

    def watch(self) -> None:
        """Return when no process of the attempt is left."""
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        poll.register(self.control, select.POLLIN)
        while self.reap():
            now = time.monotonic()
            if self.exit_code is not None and self.deadline is None:
                self.deadline = now + LINGER
            if self.deadline is not None and now >= self.deadline:
                self.press()
            timeout = None if self.deadline is None else max(0.0, self.deadline - now) * 1000 + 1
            for descriptor, _ in poll.poll(timeout):
                if descriptor == self.wake:
                    drain(self.wake)
                    continue
                messages = self.receive()
                if messages is None:
                    poll.unregister(self.control)
                    messages = [{"stop": ABANDONED_GRACE}]
                for message in messages:
                    self.stop(message["stop"])

    def reap(self) -> bool:
        """Collect what has ended; False when nothing is left, which is the proof of the end."""
        with contextlib.suppress(ChildProcessError):
            for pid, status in ended_children(or_none=True):
                if pid == self.main:
                    self.exit_code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            return True
        return False

    def stop(self, grace: float) -> None:
        if not self.reap():
            return
        until = time.monotonic() + grace
        if self.exit_code is None and not self.warned:
            self.stopped = True
            self.warn()
        self.deadline = until if self.deadline is None else min(until, self.deadline)

    def press(self) -> None:
        """The time of what is left is up: ask it to end, or end it."""
        if self.exit_code is not None and not self.left:
            self.left = [name(pid) for pid in descendants(os.getpid())]
        if self.warned:
            kill_trees(children(os.getpid()))
            self.signal_group(signal.SIGKILL)
            self.deadline = time.monotonic() + AGAIN
        else:
            self.warn()
            self.deadline = time.monotonic() + LEFT_GRACE

    def warn(self) -> None:
        self.warned = True
        tree = descendants(os.getpid())
        signal_each(tree, signal.SIGTERM)
        signal_each(tree, signal.SIGCONT)  # a stopped process could not act on it
        self.signal_group(signal.SIGTERM)

    def signal_group(self, number: signal.Signals) -> None:
        if not LINUX:
            with contextlib.suppress(OSError):
                os.killpg(self.main, number)

    def send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the task manager is gone: nobody to tell
            self.control.sendall(_line(message))

    def receive(self) -> list[Any] | None:
        """The messages that have come, maybe none; None when the task manager is gone."""
        try:
            data = self.control.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            return None
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        return [json.loads(line) for line in lines]


def execute(request: dict[str, Any], stdout: int, stderr: int, failed: int) -> None:
    """In the child: become the task's program. Every other descriptor is closed by the exec."""
    step, guard, argv = "start", os.getppid(), request["argv"]
    program = argv[0]
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        for descriptor, target in ((null, 0), (stdout, 1), (stderr, 2)):
            os.dup2(descriptor, target)
        for number in IGNORED:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if request["user"] is not None:
            step = "user"
            uid, gid, groups = request["user"]
            os.setgroups(groups)
            os.setgid(gid)
            os.setuid(uid)
        # Should something kill guard and server at once, the main process at least goes with them.
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            return
        step = "cwd"
        os.chdir(request["cwd"])
        step = "find"
        program = find(argv[0], request["env"].get("PATH", os.defpath))
        step = "exec"
        os.execve(program, argv, request["env"])
    except OSError as error:
        os.write(failed, json.dumps([step, error.errno, program]).encode())


def find(command: str, path: str) -> str:
    """The file that ``command`` means, as execvp(3) looks for it."""
    candidates = [command] if "/" in command else [os.path.join(folder or ".", command) for folder in path.split(":")]
    files = [candidate for candidate in candidates if os.path.isfile(candidate)]
    for candidate in files:
        if os.access(candidate, os.X_OK):
            return candidate
    raise OSError(errno.EACCES if files else errno.ENOENT, command)


# --- Processes -------------------------------------------------------------------------------------------------------


def ended_children(or_none: bool = False) -> Iterator[tuple[int, int]]:
    """Those of our children that have ended. With ``or_none``, ChildProcessError where there is no child at all."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            if or_none:
                raise
            return
        if pid == 0:
            return
        yield pid, status


def kill_trees(roots: Iterable[int]) -> None:
    """SIGKILL to these processes and all that descend from them.

    They are stopped first, again and again until no new one turns up: a stopped process forks no more, so none escapes.
    """
    roots = list(roots)
    seen: set[int] = set()
    while new := {*roots, *(pid for root in roots for pid in descendants(root))} - seen:
        signal_each(new, signal.SIGSTOP)
        seen |= new
    signal_each(seen, signal.SIGKILL)


def signal_each(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):  # it has just ended, or has become another user's
            os.kill(pid, number)


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    pending = [pid]
    while pending:
        new = children(pending.pop())
        found += new
        pending += new
    return found


def children(pid: int) -> list[int]:
    """The children of a process; a thread's children are told apart from those of its process by Linux."""
    found: list[int] = []
    if LINUX:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(ProcessLookupError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                    found += map(int, file.read().split())
    return found


def name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return str(pid)


# --- Waking up -------------------------------------------------------------------------------------------------------


def wake_pipe() -> int:
    """A descriptor that becomes readable when a child ends; after a fork it replaces the server's."""
    wake, write = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(write, False)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    if before != -1:
        os.close(before)
    return wake


def drain(wake: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(wake, 65536)


def _wake(number: int, frame: FrameType | None) -> None:
    """SIGCHLD has a handler so that it writes to the wake pipe."""


def _prctl(option: int, value: int | bytes) -> None:
    if LINUX:
        libc.prctl(option, value, 0, 0, 0)


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


if __name__ == "__main__":
    main()
