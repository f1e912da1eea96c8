"""What permissions refuse, also where the tests run as root."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import arkqueue


def as_ordinary_user(*lines: str, arguments: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """A Python program of somebody whom permissions concern. All of arkqueue is loaded before, for root's own folders shut others out."""
    start = [
        "import encodings.ascii, encodings.idna, encodings.utf_8_sig, importlib, os, pkgutil, sys, arkqueue",
        "for module in pkgutil.walk_packages(arkqueue.__path__, 'arkqueue.'):",
        "    if not module.name.endswith('__main__'): importlib.import_module(module.name)",
        "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)",
    ]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ARKQUEUE_")}
    environment |= {"PYTHONPATH": str(Path(arkqueue.__file__).parents[1]), "HOME": "/nonexistent"}
    command = [sys.executable, "-c", "\n".join([*start, *lines]), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
