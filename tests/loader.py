"""The process that has arkqueue imported and forks the programs that ``loaded`` asks for. Run it as
``python -m tests.loader SOCKET PID``.

PID is the process that controls the test run. The loader ends with that process, and removes the
folder of its socket.

A request is the ``repr`` of a dictionary on one line, with three file descriptors: the standard
input, output and error of the new program. The answer has two lines: the program's process id, and later its exit code. The
connection stays open until the program has ended. A request with ``ends_with_caller`` kills the
program when the caller closes the connection earlier. A request with ``modules`` only imports them.
"""

from __future__ import annotations

import ast
import atexit
import encodings.ascii
import encodings.idna
import encodings.utf_8_sig  # noqa: F401  # an account without rights finds no file of root's
import gc
import importlib
import io
import os
import pkgutil
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import tomllib  # noqa: F401  # imported late by arkqueue, see above
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pygit2
from pygit2.enums import ConfigLevel

import arkqueue
from tests import loaded

MOST = 2**20
"""The most bytes of a request that one call receives."""


def main() -> None:
    for module in pkgutil.walk_packages(arkqueue.__path__, "arkqueue."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    address = sys.argv[1]
    loaded.use(address)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(100)
        gc.collect()
        gc.freeze()
        controller = os.pidfd_open(int(sys.argv[2]))
        print("ready", flush=True)
        program = _serve(listener, controller)
    os.close(controller)
    if not program:
        shutil.rmtree(Path(address).parent)
    else:
        _run(program)


def _run(program: str) -> NoReturn:
    """Runs a program and exits with its exit code, after its threads and its exit handlers.

    A normal end of the interpreter visits every object of every module. That copies the memory
    shared with the loader, and takes 70 ms of CPU time.
    """
    code = 1
    try:
        exec(program, {"__name__": "__main__", "arkqueue": arkqueue})
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    # An interpreter that ends joins its threads first. No public function does only that.
    threading._shutdown()  # type: ignore[attr-defined]
    # Exit handlers have no public function either.
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code & 0xFF)


def _serve(listener: socket.socket, controller: int) -> str:
    """Forks for each request, and reports how each forked program ends. Returns twice: in a forked
    process with its program, and in the loader with an empty string when the run is over.
    """
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(controller, select.POLLIN)
    forked: dict[int, tuple[int, socket.socket]] = {}
    """For each running program, by its process descriptor: its process id, and the connection of
    its caller.
    """
    callers: dict[int, int] = {}
    """The process id of each program that ends with its caller, by the descriptor of its connection."""
    while True:
        ready = dict(poll.poll())
        if controller in ready:
            return ""
        for ended in ready.keys() & forked.keys():
            program, connection = forked.pop(ended)
            poll.unregister(ended)
            os.close(ended)
            if callers.pop(connection.fileno(), None) is not None:
                poll.unregister(connection)
            _, status = os.waitpid(program, 0)
            # the caller may be gone
            with connection, suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
        for gone in ready.keys() & callers.keys():
            poll.unregister(gone)
            program = callers.pop(gone)
            os.kill(program, signal.SIGKILL)
            with suppress(ProcessLookupError):  # it had no group of its own yet
                os.killpg(program, signal.SIGKILL)
        if listener.fileno() not in ready:
            continue
        connection, _ = listener.accept()
        request, descriptors = _received(connection)
        if request is not None and "modules" in request:
            with connection:
                for module in request["modules"]:
                    with suppress(ImportError):  # a program that needs it says so
                        importlib.import_module(module)
                gc.collect()
                gc.freeze()
                connection.sendall(b"ready\n")
            continue
        program = os.fork() if request is not None else -1
        if request is not None and program == 0:
            for other, (_, asked) in forked.items():
                os.close(other)
                asked.close()
            listener.close()
            connection.close()
            return _become(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        if request is None:
            connection.close()
            continue
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(b"%d\n" % program)
        ends = os.pidfd_open(program)
        poll.register(ends, select.POLLIN)
        forked[ends] = program, connection
        if request.get("ends_with_caller"):
            poll.register(connection, select.POLLRDHUP)
            callers[connection.fileno()] = program


def _received(connection: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    data, descriptors, _, _ = socket.recv_fds(connection, MOST, 3)
    while data and not data.endswith(b"\n"):
        more = connection.recv(MOST)
        data = data + more if more else b""
    return (ast.literal_eval(data.decode()) if data else None), list(descriptors)


def _become(request: dict[str, Any], descriptors: list[int]) -> str:
    """Turns this forked process into the requested program: session, files, environment and folder.
    Returns the program's text.
    """
    os.setsid()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
    # The streams are unbuffered, as with PYTHONUNBUFFERED.
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(number, "wb", closefd=False), errors=errors, write_through=True)
        for number, errors in ((1, "strict"), (2, "backslashreplace"))
    )
    os.environ.clear()
    os.environ.update({os.fsdecode(name): os.fsdecode(value) for name, value in request["environment"].items()})
    tempfile.tempdir = None
    home = os.environ.get("HOME", "/")  # libgit2 read HOME when it was imported
    pygit2.settings.homedir = home
    pygit2.settings.search_path[ConfigLevel.GLOBAL] = home
    pygit2.settings.search_path[ConfigLevel.XDG] = home + "/.config/git"
    os.chdir(request["folder"])
    sys.argv = request["arguments"]
    return str(request["program"])


if __name__ == "__main__":
    main()
