"""Tests file permissions, even if the tests run as root."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import arkqueue
from tests.loaded import fork

_ORDINARY = "import os\nif os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
"""The first lines of a program that root starts: they make the process an ordinary user."""


def as_ordinary_user(*lines: str, arguments: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Runs a Python program as an ordinary user. The program loads all of arkqueue first, because
    an ordinary user may not read root's own folders.
    """
    with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
        process = fork(
            _ORDINARY + "\n".join(lines), ["", *arguments], out=out.name, err=err.name, environment=_environment()
        )
        code = process.wait()
        return subprocess.CompletedProcess(lines, code, out.read().decode(), err.read().decode())


def _environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ARKQUEUE_")}
    return kept | {"PYTHONPATH": str(Path(arkqueue.__file__).parents[1]), "HOME": "/nonexistent"}
