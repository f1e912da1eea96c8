"""What permissions refuse, also where the tests run as root."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import arkqueue
from tests.loaded import fork

_ORDINARY = "import os\nif os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
"""What a program of root's begins with, to be somebody whom permissions concern."""


def as_ordinary_user(*lines: str, arguments: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """A Python program of somebody whom permissions concern. All of arkqueue is loaded before, for root's own folders shut others out."""
    with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
        process = fork(
            _ORDINARY + "\n".join(lines), ["", *arguments], out=out.name, err=err.name, environment=_environment()
        )
        code = process.wait()
        return subprocess.CompletedProcess(lines, code, out.read().decode(), err.read().decode())


def _environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ARKQUEUE_")}
    return kept | {"PYTHONPATH": str(Path(arkqueue.__file__).parents[1]), "HOME": "/nonexistent"}
