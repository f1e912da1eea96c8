"""The process that has arkqueue loaded, and forks from itself what ``loaded`` asks for. Run as ``python -m tests.loader SOCKET PID``.

It ends with the process of that id, which controls the run of the tests, and removes the folder of its socket.

A request is a line of JSON with three file descriptors: the standard input, output and error of what begins. The answers are two lines: its process
id, and, when it has ended, how. The connection stays open until then.
"""

from __future__ import annotations

import atexit
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
import socket
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

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
        _run(program)


def _run(program: str) -> NoReturn:
    """Run a program and end with its exit code, after its threads and what it has asked to be done at its end.

    An interpreter that ends looks at every object of every module, which copies what was shared with the loader: 70 ms of CPU time.
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
    # What an interpreter that ends does first; nothing public does only that.
    threading._shutdown()  # type: ignore[attr-defined]
    # As above.
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code & 0xFF)


def _serve(listener: socket.socket, controller: int) -> str:
    """Fork for each request, and say how what was forked ends. Returns in what was forked, with its program, and in the loader itself, with none, when the run is over."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(controller, select.POLLIN)
    forked: dict[int, tuple[int, socket.socket]] = {}
    """By the descriptor of each program that runs: its process id, and who asked for it."""
    while True:
        ready = dict(poll.poll())
        if controller in ready:
            return ""
        for ended in ready.keys() & forked.keys():
            program, connection = forked.pop(ended)
            poll.unregister(ended)
            os.close(ended)
            _, status = os.waitpid(program, 0)
            with connection, suppress(BrokenPipeError, ConnectionResetError):  # who asked may be gone by then
                connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
        if listener.fileno() not in ready:
            continue
        connection, _ = listener.accept()
        request, descriptors = _received(connection)
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


def _received(connection: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    data, descriptors, _, _ = socket.recv_fds(connection, MOST, 3)
    while data and not data.endswith(b"\n"):
        more = connection.recv(MOST)
        data = data + more if more else b""
    return (json.loads(data) if data else None), list(descriptors)


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
