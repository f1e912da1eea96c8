"""What permissions refuse, also where the tests run as root."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import arkqueue

_LOADED = """
import encodings.ascii, encodings.idna, encodings.utf_8_sig, importlib, json, os, pkgutil, sys, arkqueue
for module in pkgutil.walk_packages(arkqueue.__path__, 'arkqueue.'):
    if not module.name.endswith('__main__'): importlib.import_module(module.name)
while line := sys.stdin.readline():
    asked = json.loads(line)
    child = os.fork()
    if child:
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    for descriptor, path in enumerate((os.devnull, asked['out'], asked['err'])):
        os.dup2(os.open(path, os.O_RDWR), descriptor)
    os.environ.clear(); os.environ.update(asked['environment'])
    os.chdir(asked['folder'])
    if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)
    sys.argv[1:] = asked['arguments']
    exec(asked['program'], globals())
    break
"""
"""A process that forks one for each program. It loads arkqueue once: that costs a second of CPU time."""


def as_ordinary_user(*lines: str, arguments: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """A Python program of somebody whom permissions concern. All of arkqueue is loaded before, for root's own folders shut others out."""
    with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
        asked = {
            "program": "\n".join(lines),
            "arguments": arguments,
            "environment": _environment(),
            "folder": os.getcwd(),
            "out": out.name,
            "err": err.name,
        }
        process = _loaded()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        code = int(process.stdout.readline())
        return subprocess.CompletedProcess(lines, code, out.read().decode(), err.read().decode())


@cache
def _loaded() -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _LOADED]
    process = subprocess.Popen(
        command, env=_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    atexit.register(_end, process)
    return process


def _end(process: subprocess.Popen[str]) -> None:
    """Without more to read, the process ends by itself."""
    process.communicate(timeout=10)


def _environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ARKQUEUE_")}
    return kept | {"PYTHONPATH": str(Path(arkqueue.__file__).parents[1]), "HOME": "/nonexistent"}
