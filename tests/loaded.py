"""Programs that start with arkqueue already imported: one process of the test run imports arkqueue
(``tests.loader``) and forks each program.

A server that starts with ``python -m arkqueue`` takes a second of CPU time, mostly to import its
modules. Its reader process takes a third of a second. A forked program has its own session,
environment and output, like any other program. It is not a child process of the test, so the loader
reports how it ended.

A plugin of ``conftest.py``. The first worker that needs the loader starts it. The loader ends with
the process that controls the run.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TextIO, TypeVar

import pytest

import arkqueue
from arkqueue.repository.reader import client
from tests.waiting import PATIENCE

_OWNER = os.geteuid()
begin_reader_alone = client.begin
"""Starts a reader process as a server does, without the loader. For tests of its start and its
memory.
"""
_address = ""
"""The socket of the loader. The socket may not exist yet."""
_controller = 0
"""The id of the process that controls the run."""
before_readers = ""
"""Statements that each forked reader process runs first. A test can set a lower limit with it, in a
server of its own (``Installation.before_readers``).
"""


def pytest_configure(config: pytest.Config) -> None:
    global _controller
    if hasattr(config, "workerinput"):
        _controller, address = config.workerinput["arkqueue_loader"]
    else:
        # The folder is made only by a run that needs the loader.
        address = str(Path(tempfile.gettempdir()) / f"arkqueue-loader-{uuid.uuid4().hex[:12]}" / "socket")
        _controller = os.getpid()
    use(address)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["arkqueue_loader"] = _controller, _address


def use(address: str) -> None:
    """Makes later forks go through the given loader, including the readers of repositories."""
    global _address
    _address = address
    client.begin = begin_reader


class Forked:
    """A forked program, with the part of ``subprocess.Popen`` that tests and arkqueue use."""

    def __init__(self, loader: socket.socket) -> None:
        self._loader = loader
        self.returncode: int | None = None
        self.pid = int(self._line())

    def poll(self) -> int | None:
        return self._end(0)

    def wait(self, timeout: float | None = PATIENCE) -> int:
        if (code := self._end(timeout)) is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _end(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._loader, select.POLLIN)
            if poll.poll(None if seconds is None else seconds * 1000):
                self.returncode = int(self._line())
                self._loader.close()
        return self.returncode

    def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            piece = self._loader.recv(1)
            assert piece, "the loader of the tests is gone"
            line += piece
        return line


F = TypeVar("F", bound=Forked)


def fork(
    program: str,
    arguments: Sequence[str],
    *,
    out: str | Path,
    err: str | Path,
    environment: Mapping[str, str],
    folder: str | Path | None = None,
) -> Forked:
    """Starts a program in a process that has arkqueue imported. Its output is appended to existing
    files.
    """
    with open(os.devnull, "rb") as nothing, open(out, "ab") as said, open(err, "ab") as complained:
        files = [nothing.fileno(), said.fileno(), complained.fileno()]
        return _fork(program, arguments, files, environment, folder)


class Command(Forked):
    """A command of arkqueue whose output a test reads while the command runs."""

    stdout: TextIO | None = None
    """None if the output goes to a file of the caller."""
    stderr: TextIO

    def communicate(self) -> tuple[str, str]:
        """The complete output and errors of the command. A long error output would block the
        command.
        """
        said = self.stdout.read() if self.stdout is not None else ""
        complained = self.stderr.read()
        self.wait()
        return said, complained

    def close(self) -> None:
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()


def begin(*arguments: str, environment: Mapping[str, str], stdout: int | None = None) -> Command:
    """Starts a command of arkqueue in a process that has arkqueue imported. ``stdout``: an open
    file for the output; None lets the test read the output here.
    """
    # In the background of a shell, a test run ignores interrupts, and the command would inherit
    # that.
    listens = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    said, complained = os.pipe() if stdout is None else (-1, os.dup(stdout)), os.pipe()
    with open(os.devnull, "rb") as nothing:
        files = [nothing.fileno(), said[1], complained[1]]
        program = f"{listens} import arkqueue.cli; arkqueue.cli.main()"
        command = _fork(program, ["arkqueue", *arguments], files, environment, None, Command)
    os.close(said[1])
    os.close(complained[1])
    command.stdout = open(said[0]) if stdout is None else None  # noqa: SIM115  `Command.close`
    command.stderr = open(complained[0])  # noqa: SIM115  `Command.close`
    return command


_CALLER = """#!{python} -IS
# These modules are built in. Others would take this program twice as long.
import _socket, posix, sys
request = {{
    "program": {program!r},
    "arguments": sys.argv,
    "environment": dict(posix.environ),
    "folder": posix.getcwd(),
    "ends_with_caller": True,
}}
if log := {log!r}:
    with open(log, "a") as file:
        file.write("started\\n")
loader = _socket.socket(_socket.AF_UNIX)
loader.connect({address!r})
data = repr(request).encode() + b"\\n"
files = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
sent = loader.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
while sent < len(data):
    sent += loader.send(data[sent:])
said = b""
while said.count(b"\\n") < 2:
    said += (more := loader.recv(100))
    if not more:
        sys.exit("the loader of the tests is gone")
sys.exit(int(said.split()[1]))
"""
ARKQUEUE = "import arkqueue.cli; arkqueue.cli.main()"
SCRIPT = """
import runpy, sys
sys.dont_write_bytecode = True
sys.argv[:] = sys.argv[2:] if sys.argv[1] == "-B" else sys.argv[1:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def write_program(path: Path, log: Path | None = None) -> None:
    """Writes an executable that behaves like ``arkqueue``, for a caller that starts a program by
    path. The executable notes each start in ``log``.
    """
    _write(path, ARKQUEUE, log)


def write_python(path: Path, *modules: str) -> None:
    """Writes an executable that behaves like ``python -B SCRIPT``, but has arkqueue and the given
    modules imported.
    """
    _write(path, SCRIPT)
    _import(modules)


@cache
def _import(modules: tuple[str, ...]) -> None:
    """Lets the loader import modules, if it has not yet."""
    with _connected() as loader:
        loader.sendall(repr({"modules": modules}).encode() + b"\n")
        assert loader.recv(10), "the loader of the tests is gone"


def _write(path: Path, program: str, log: Path | None = None) -> None:
    _loader()
    path.write_text(
        _CALLER.format(python=sys.executable, program=program, log=str(log) if log else "", address=_address)
    )
    path.chmod(0o755)


def begin_reader(kinds: Collection[str], connection: socket.socket, environment: Mapping[str, str]) -> Any:
    """Starts a reader process, with the parameters of ``client.begin``. An account other than the
    loader's owner gets a reader that is not forked.
    """
    if os.geteuid() != _OWNER:
        return begin_reader_alone(kinds, connection, environment)
    with open(os.devnull, "wb") as nothing:
        files = [connection.fileno(), nothing.fileno(), 2]
        program = f"{before_readers}\nimport arkqueue.repository.reader.process as reader; reader.main()"
        return _fork(program, ["", str(client.MEMORY), *kinds], files, environment, None)


def _fork(
    program: str,
    arguments: Sequence[str],
    files: Sequence[int],
    environment: Mapping[str, str],
    folder: str | Path | None,
    kind: type[F] = Forked,
) -> F:
    request = {
        "program": program,
        "arguments": list(map(str, arguments)),
        "environment": dict(environment),
        "folder": str(folder or os.getcwd()),
    }
    _loader()
    loader = _connected()
    data = repr(request).encode() + b"\n"
    sent = socket.send_fds(loader, [data], list(files))
    loader.sendall(data[sent:])
    return kind(loader)


def _connected() -> socket.socket:
    loader = socket.socket(socket.AF_UNIX)
    loader.connect(_address)
    return loader


@cache
def _loader() -> None:
    """Starts the loader if no worker has done so. A forked process inherits the cached result."""
    home = Path(_address).parent
    home.mkdir(mode=0o700, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if Path(_address).exists():
            return
        kept = {key: value for key, value in os.environ.items() if not key.startswith("ARKQUEUE_")}
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.loader", _address, str(_controller)],
            env=kept | {"PYTHONPATH": str(Path(arkqueue.__file__).parents[1]), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        with process.stdout:
            assert process.stdout.readline() == b"ready\n"
        # The loader outlives this worker; this silences the warning about a running child process.
        process.returncode = 0
