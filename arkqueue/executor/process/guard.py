"""The guard: a separate program that starts attempts as processes, and ends all processes of their
trees.

``guard_client`` starts it once for a task manager, as ``python -I -S guard.py`` with a Unix socket as
its standard input. It imports nothing of arkqueue, decides nothing and stores nothing.

Three generations::

    task manager ── socket ── guard server ── guards ── the task of each ── its processes
                  └──── control socket, one for each guard ────┘

- A guard has one attempt at a time: it starts the task and waits. It is the *subreaper* of the tree:
  a process whose parent ends, daemonised or not, becomes the guard's child. So everything has ended
  when ``waitpid`` says that the guard has no child. Only then does the guard report the end, and can
  get the next attempt.
- If the control socket closes, the task manager is gone (or no longer needs this guard), and the
  guard ends the tree.
- The server forks guards, and keeps a copy of each control socket, nothing else. If a task kills its
  guard, the processes of the tree become children of the server, which is a subreaper, too. It ends
  all processes that are not its guards, reports this instead of the guard, and closes its copy of the
  control socket. If a control socket ends without this report, the server was killed as well. Then
  nobody has ended the processes, and ``leftovers`` has to find them.

Messages are JSON, one in each line. From a guard, once: ``{"guard": pid}``. Then for each attempt, to
the guard: ``{"argv", "env", "cwd", "user", "keep"}`` with the descriptors of stdout and stderr; from
it ``{"failed": [step, errno, path]}`` or ``{"started": pid}``; to it any number of
``{"stop": grace}`` and of ``{"keep": [begin, end]}``; from it ``{"exit": code, "stopped": bool,
"abandoned": bool, "left": [names], "processor": seconds, "memory": bytes}``. From the server, when
the guard was killed and nothing of its tree is left: ``{"killed": true}``.

``processor`` is the user and system time of all processes of the tree that their parents or the
guard have waited for: all but the children of a process that ignores SIGCHLD. ``memory`` is the peak
of the largest process. No peak is below the memory of the guard, about 10 MB, because Linux counts
this for the task before its program is executed.

``keep`` has two times of CLOCK_BOOTTIME, or is null if there is no limit. The task manager may be
suspended (SIGSTOP) while others take its lease for expired. Unless new times have arrived by then,
the guard asks the tree to end at the first time, and ends it at the second.

A fork of Python costs more than the rest of a short attempt, so guards are kept, and start tasks by a
vfork.

On a system without subreapers (not Linux), only the task's process group is ended.
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
import subprocess
import sys
import time
from collections.abc import Container, Iterable, Iterator
from types import FrameType
from typing import Any, NoReturn

ABANDONED_GRACE = 0.5
"""Seconds between SIGTERM and SIGKILL when the task manager has died: enough to remove a lock file,
far below a lease.
"""
LINGER = 1.0
"""Seconds in which processes that the main process left may end by themselves, as
``exec > >(tee log)`` needs to.
"""
LEFT_GRACE = 0.75
"""Seconds between SIGTERM and SIGKILL for processes that linger longer."""
AGAIN = 0.1
"""Seconds until a kill is repeated for remaining processes."""
LAST_WORD = 5.0
"""Seconds after which the server of a dead task manager kills guards that do not end (a task has
stopped its guard).
"""

CLOEXEC: int = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
LINUX = sys.platform == "linux"
MAXRSS_UNIT = 1024 if LINUX else 1
"""Bytes of one unit of ``ru_maxrss``."""
PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 15, 36
libc = ctypes.CDLL(None)

# Signals that a task could send its guard by accident (kill 0, kill $PPID). The guard handles them
# by doing nothing. It does not ignore them: exec resets handled signals to their defaults, but
# keeps ignored ones ignored.
HARMLESS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM,
            signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCHLD)  # fmt: skip


# --- The server -----------------------------------------------------------------------------------


def main() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE}:
        with contextlib.suppress(OSError, ValueError):  # the C library keeps some for itself
            signal.signal(number, _wake if number in HARMLESS else signal.SIG_DFL)
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    os.umask(0o022)
    _prctl(PR_SET_NAME, b"arkqueue-guard")
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    # A garbage collection would only copy the pages that the guards share with the server.
    gc.disable()
    gc.freeze()
    Server(socket.socket(fileno=0)).run()


class Server:
    """Forks guards, and ends the tree of a guard that is killed."""

    def __init__(self, requests: socket.socket) -> None:
        self.requests = requests
        self.wake = wake_pipe()
        self.guards: dict[int, int] = {}
        """The process id of each guard → this process's copy of its control socket."""
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
        """Fork a guard for the control socket that comes next; False when the task manager is gone."""
        data, descriptors, _, _ = socket.recv_fds(self.requests, 1, 1, CLOEXEC)
        if not data:
            return False
        (control,) = descriptors
        try:
            pid = os.fork()
        except OSError as error:
            os.write(control, _line({"failed": ["fork", error.errno, ""]}))
            os.close(control)
            return True
        if pid == 0:
            self.become_guard(control)
        self.guards[pid] = control
        return True

    def become_guard(self, control: int) -> NoReturn:
        code = 1
        try:
            # The control socket of another attempt must close as soon as its own guard and the
            # server close it.
            for other in (*self.guards.values(), *self.lost, self.wake):
                os.close(other)
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, self.requests.detach())  # standard input, of the tasks too
            os.close(null)
            Guard(socket.socket(fileno=control)).run()
            code = 0
        finally:
            os._exit(code)

    def reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            for pid, status, _ in ended_children():
                control = self.guards.pop(pid, None)
                if control is not None and status == 0:
                    os.close(control)
                elif control is not None:
                    self.lost.append(control)

    def end_orphans(self) -> None:
        """Kill the processes that lost guards have left: every child that is not a guard. Repeated
        until there is none.
        """
        if all(pid in self.guards for pid in children(os.getpid())):
            for control in self.lost:
                with contextlib.suppress(OSError):  # the task manager is gone: nobody to tell
                    os.write(control, _line({"killed": True}))
                os.close(control)
            self.lost.clear()
        else:
            kill_descendants(spared=self.guards)


# --- A guard --------------------------------------------------------------------------------------


class Guard:
    """Holds the conversation with the task manager, and has one attempt after the other."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.buffer = b""
        self.descriptors: list[int] = []
        """Stdout and stderr of the attempt that is about to begin."""
        self.wake = wake_pipe()

    def run(self) -> None:
        os.setsid()
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.send({"guard": os.getpid()})
        while (messages := self.receive()) is not None:
            for message in messages:
                if "argv" in message:  # else a stop for what had just ended
                    self.attempt(message)

    def attempt(self, request: dict[str, Any]) -> None:
        try:
            main = execute(request, *self.descriptors)
        except Failed as failed:
            self.send({"failed": failed.args})
            return
        finally:
            # From here on only the tree holds the pipes: they end with it.
            for descriptor in self.descriptors:
                os.close(descriptor)
            self.descriptors.clear()
        self.send({"started": main})
        tree = Tree(main, request["keep"])
        self.watch(tree)
        self.send({
            "exit": tree.exit_code, "stopped": tree.stopped, "abandoned": tree.abandoned, "left": tree.left,
            "processor": tree.processor, "memory": tree.memory * MAXRSS_UNIT,
        })  # fmt: skip

    def watch(self, tree: Tree) -> None:
        """Return when no process of the attempt is left."""
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        poll.register(self.control, select.POLLIN)
        while tree.reap():
            for descriptor, _ in poll.poll(tree.press()):
                if descriptor == self.wake:
                    drain(self.wake)
                    continue
                messages = self.receive()
                if messages is None:
                    poll.unregister(self.control)
                    messages = [{"stop": ABANDONED_GRACE}]
                for message in messages:
                    if "keep" in message:
                        tree.keep(*message["keep"])
                    else:
                        tree.stop(message["stop"])

    def send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the task manager is gone: nobody to tell
            self.control.sendall(_line(message))

    def receive(self) -> list[dict[str, Any]] | None:
        """The messages that have arrived, maybe none; None if the task manager is gone."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self.control, 65536, 2, CLOEXEC)
        except ConnectionResetError:
            return None
        if not data:
            return None
        self.descriptors += descriptors
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        return [json.loads(line) for line in lines]


class Failed(Exception):
    """A task could not be executed: the step, the errno and the path."""


def execute(request: dict[str, Any], stdout: int, stderr: int) -> int:
    """Start the task's main process, in a session of its own and with no other descriptor; its
    process id.
    """
    argv, env, cwd, account = request["argv"], request["env"], request["cwd"], request["user"]
    user, group, groups = account or (None, None, None)
    program = argv[0]
    try:
        with acting_as(account):
            enter(cwd)
            program = find(argv[0], env.get("PATH", os.defpath), cwd)
        process = subprocess.Popen(  # it begins in this folder
            argv,
            executable=program,
            env=env,
            stdin=0,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            user=user,
            group=group,
            extra_groups=groups,
        )
    except OSError as error:
        step = "exec" if error.filename is not None or account is None else "user"
        raise Failed(step, error.errno, program) from None
    finally:
        os.chdir("/")  # a guard that stayed there would keep the workspace from being unmounted
    process.returncode = 0  # this module waits for the process, not Popen
    return process.pid


@contextlib.contextmanager
def acting_as(account: tuple[int, int, list[int]] | None) -> Iterator[None]:
    """Act with the rights of the task's user (None: of this process) in the block.

    The task chooses the names of the folder and of the program, and both may contain symlinks of
    the archive. If root looked them up, a task could begin in a folder that is closed to its user,
    or learn its contents. Only the effective ids change: the user may neither trace nor signal this
    process meanwhile.
    """
    if account is None:
        yield
        return
    user, group, groups = account
    ours = os.geteuid(), os.getegid(), os.getgroups()
    try:
        try:
            os.setgroups(groups)
            os.setegid(group)
            os.seteuid(user)
        except OSError as error:
            raise Failed("user", error.errno, "") from None
        yield
    finally:
        os.seteuid(ours[0])
        os.setegid(ours[1])
        os.setgroups(ours[2])


def enter(cwd: str) -> None:
    try:
        os.chdir(cwd)
    except OSError as error:
        raise Failed("cwd", error.errno, cwd) from None


class Tree:
    """The processes of one attempt: the main one, which is the task, and all that descend from it."""

    def __init__(self, main: int, kept: tuple[float, float] | None) -> None:
        self.main = main
        self.kept = kept
        """The times, by CLOCK_BOOTTIME, at which it is asked to end without a request, and has to
        be gone.
        """
        self.exit_code: int | None = None
        self.stopped = self.abandoned = False
        self.warned = False
        """SIGTERM has been sent."""
        self.deadline: float | None = None
        """The time at which the remaining processes get SIGTERM, or SIGKILL if they had it."""
        self.left: list[str] = []
        """The names of processes that had to be ended after the main process."""
        self.processor = 0.0
        """Processor seconds of the ended processes."""
        self.memory = 0
        """The largest resident set of one of them, from ``getrusage``."""

    def reap(self) -> bool:
        """Collect ended processes; returns False if none is left, which proves the end."""
        try:
            for pid, status, used in ended_children():
                self.processor += used.ru_utime + used.ru_stime
                self.memory = max(self.memory, used.ru_maxrss)
                if pid == self.main:
                    self.exit_code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        except ChildProcessError:
            return False
        if self.exit_code is not None and self.deadline is None:
            self.deadline = time.monotonic() + LINGER
        return True

    def stop(self, grace: float) -> None:
        if not self.reap():
            return
        until = time.monotonic() + grace
        if self.exit_code is None and not self.warned:
            self.stopped = True
            self.warn()
        self.deadline = until if self.deadline is None else min(until, self.deadline)

    def keep(self, begin: float, end: float) -> None:
        self.kept = begin, end

    def press(self) -> float | None:
        """Ask the remaining processes to end when their time is up, or kill them. Returns the
        milliseconds until the next time.
        """
        heard = self.abandon()
        if self.deadline is None:
            return heard
        rest = self.deadline - time.monotonic()
        if rest <= 0:
            if self.exit_code is not None and not self.left:
                self.left = [name(pid) for pid in descendants(os.getpid())]
            if self.warned:
                kill_descendants()
                self.signal_group(signal.SIGKILL)
                rest = AGAIN
            else:
                self.warn()
                rest = LEFT_GRACE
            self.deadline = time.monotonic() + rest
        return rest * 1000 + 1 if heard is None else min(rest * 1000 + 1, heard)

    def abandon(self) -> float | None:
        """Stop the tree if the task manager was silent for too long. Returns the milliseconds until
        then. After a sleep of the machine, the task manager gets to act first.
        """
        if self.kept is None:
            return None
        begin, end = self.kept
        now = boottime()
        if now < begin:
            return (begin - now) * 1000 + 1
        self.kept = None
        self.abandoned = not self.warned
        self.stop(max(0.0, end - now))
        return None

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


def boottime() -> float:
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def find(command: str, path: str, cwd: str) -> str:
    """The file that ``command`` means, as execvp(3) looks for it."""
    folders = [""] if "/" in command else path.split(":")
    files = [file for folder in folders if os.path.isfile(file := os.path.join(cwd, folder, command))]
    for file in files:
        if os.access(file, os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            return file
    raise Failed("find", errno.EACCES if files else errno.ENOENT, command)


# --- Processes ------------------------------------------------------------------------------------


def ended_children() -> Iterator[tuple[int, int, resource.struct_rusage]]:
    """The ended children of this process, with the resources that they and the children that they
    waited for used. Raises ChildProcessError if there is no child at all.
    """
    while True:
        pid, status, used = os.wait4(-1, os.WNOHANG)
        if pid == 0:
            return
        yield pid, status, used


def kill_descendants(spared: Container[int] = ()) -> None:
    """Send SIGKILL to all descendants of this process, except the spared children.

    Each process is stopped before its children are listed, because a stopped process forks no more.
    A process that has lost its parent meanwhile is a child of this one, so the search is repeated
    until it finds nothing new. So nothing escapes by forking, however fast.
    """
    seen: set[int] = set()
    before = -1
    while before < len(seen):
        before = len(seen)
        pending = [pid for pid in children(os.getpid()) if pid not in spared]
        while pending:
            pid = pending.pop()
            if pid not in seen:
                seen.add(pid)
                signal_each([pid], signal.SIGSTOP)
            pending += children(pid)
    signal_each(seen, signal.SIGKILL)


def signal_each(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        # The process has just ended, or belongs to another user by now.
        with contextlib.suppress(OSError):
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
    """The children of a process. Linux lists the children of each thread separately."""
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


# --- Waking up ------------------------------------------------------------------------------------


def wake_pipe() -> int:
    """A descriptor that becomes readable when a child ends. After a fork, a new one replaces that
    of the server.
    """
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
    """The handler of all signals: with a handler, signals write to the wake pipe, and are harmless."""


def _prctl(option: int, value: int | bytes) -> None:
    if LINUX:
        libc.prctl(option, value, 0, 0, 0)


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


if __name__ == "__main__":
    main()
