"""Programs that have arkqueue loaded when they begin: one process of a worker loads it and forks each of them.

A server that is started by ``python -m arkqueue`` takes a second of CPU time, most of it for its modules. Forked, it has them already.
What starts so is a child of the test as any other, with its own session, environment and output.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import arkqueue
from tests.waiting import PATIENCE, eventually

_LOADER = """
import encodings.ascii, encodings.idna, encodings.utf_8_sig, gc, importlib, json, os, pkgutil, sys, arkqueue, pygit2
from pygit2.enums import ConfigLevel
for module in pkgutil.walk_packages(arkqueue.__path__, 'arkqueue.'):
    if not module.name.endswith('__main__'): importlib.import_module(module.name)
gc.collect(); gc.freeze()
while line := sys.stdin.readline():
    between = os.fork()
    if between:
        os.waitpid(between, 0)
        continue
    program = os.fork()
    if program:
        print(program, flush=True)
        os._exit(0)
    asked = json.loads(line)
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor, path in ((1, asked['out']), (2, asked['err'])):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), descriptor)
    os.environ.clear(); os.environ.update(asked['environment'])
    home = os.environ.get('HOME', '/')  # libgit2 looked for it when it was loaded
    pygit2.settings.homedir = home
    pygit2.settings.search_path[ConfigLevel.GLOBAL] = home
    pygit2.settings.search_path[ConfigLevel.XDG] = home + '/.config/git'
    os.chdir(asked['folder'])
    sys.argv = asked['arguments']
    exec(asked['program'], globals())
    break
"""
_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2): orphans below become children of this process."""


class Forked:
    """A program that was forked; the part of ``subprocess.Popen`` that tests use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float = PATIENCE) -> int:
        eventually(lambda: self.poll() is not None, lambda: f"{self.pid} does not end", timeout)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def fork(
    program: str,
    arguments: Sequence[str],
    *,
    out: str | Path,
    err: str | Path,
    environment: Mapping[str, str],
    folder: str | Path | None = None,
) -> Forked:
    """Begin a program in a process that has arkqueue loaded; what it says is appended to files that exist."""
    asked = {
        "program": program,
        "arguments": list(map(str, arguments)),
        "out": str(out),
        "err": str(err),
        "environment": dict(environment),
        "folder": str(folder or os.getcwd()),
    }
    loader = _loader()
    assert loader.stdin is not None
    assert loader.stdout is not None
    # The loader forks twice: what it began is an orphan, and so ours.
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(_SUBREAPER, 1) == 0, os.strerror(ctypes.get_errno())
    try:
        loader.stdin.write(json.dumps(asked) + "\n")
        loader.stdin.flush()
        forked = Forked(int(loader.stdout.readline()))
        eventually(lambda: _parent(forked.pid) == os.getpid())
    finally:
        prctl(_SUBREAPER, 0)
    return forked


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@cache
def _loader() -> subprocess.Popen[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ARKQUEUE_")}
    path = {"PYTHONPATH": str(Path(arkqueue.__file__).parents[1]), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", _LOADER],
        env=kept | path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    atexit.register(_end, process)
    return process


def _end(process: subprocess.Popen[str]) -> None:
    """Without more to read, the process ends by itself."""
    process.communicate(timeout=10)
