"""The process that has arkqueue loaded, and forks from itself what ``loaded`` asks for. Run as ``python -m tests.loader SOCKET PID``.

It ends with the process of that id, which controls the run of the tests, and removes the folder of its socket.

A request is a line of JSON with three file descriptors: the standard input, output and error of what begins. The answers are two lines: its process
id, and, when it has ended, how. The connection stays open until then.
"""

from __future__ import annotations

import encodings.ascii
import encodings.idna
import encodings.utf_8_sig  # noqa: F401  # an account without rights finds no file of root's
import gc
import importlib
import io
import json
import os
import pkgutil
import select
import shutil
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pygit2
from pygit2.enums import ConfigLevel

import arkqueue
from tests import loaded

MOST = 2**20
"""Bytes of a request at once."""


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
        exec(program, {"__name__": "__main__", "arkqueue": arkqueue})


def _serve(listener: socket.socket, controller: int) -> str:
    """Fork for each request. Returns in what was forked, with its program, and in the loader itself, with none, when the run is over."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how those end that only wait for a program
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(controller, select.POLLIN)
    while controller not in dict(poll.poll()):
        connection, _ = listener.accept()
        with connection:
            request, descriptors = _received(connection)
            if request is not None and os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listener.close()
                _wait_for_a_program(connection)
                return _become(request, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
    return ""


def _received(connection: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    data, descriptors, _, _ = socket.recv_fds(connection, MOST, 3)
    while data and not data.endswith(b"\n"):
        more = connection.recv(MOST)
        data = data + more if more else b""
    return (json.loads(data) if data else None), list(descriptors)


def _wait_for_a_program(connection: socket.socket) -> None:
    """Returns in a process of its own. The one that was here says which it is, how it ends, and ends, too."""
    program = os.fork()
    if program:
        os.closerange(0, connection.fileno())
        os.closerange(connection.fileno() + 1, 1000)
        with suppress(BrokenPipeError, ConnectionResetError):  # who asked may be gone by then
            connection.sendall(b"%d\n" % program)
            _, status = os.waitpid(program, 0)
            connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
        os._exit(0)
    connection.close()


def _become(request: dict[str, Any], descriptors: list[int]) -> str:
    """Be what was asked for. Returns its program."""
    os.setsid()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
    # Unbuffered, as with PYTHONUNBUFFERED.
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(number, "wb", closefd=False), errors=errors, write_through=True)
        for number, errors in ((1, "strict"), (2, "backslashreplace"))
    )
    os.environ.clear()
    os.environ.update(request["environment"])
    home = os.environ.get("HOME", "/")  # libgit2 looked for it when it was loaded
    pygit2.settings.homedir = home
    pygit2.settings.search_path[ConfigLevel.GLOBAL] = home
    pygit2.settings.search_path[ConfigLevel.XDG] = home + "/.config/git"
    os.chdir(request["folder"])
    sys.argv = request["arguments"]
    return str(request["program"])


if __name__ == "__main__":
    main()
