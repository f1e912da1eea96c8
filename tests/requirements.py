"""What a test needs of its host beside the programs of ``requirements.sh``: with ``CI=true`` nothing may be missing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest


def missing(what: str) -> NoReturn:
    """Skip the test, or fail it where nothing may be missing."""
    message = f"the test needs {what}"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def root() -> None:
    """Only root can mount, make a device, become another user, and give files away."""
    if os.geteuid() != 0:
        missing("root")


@contextmanager
def a_mount(*arguments: str | Path) -> Iterator[None]:
    """Mount what ``mount`` is given, a folder last; it may be unmounted before its time."""
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        missing(f"the right to mount ({done.stderr.strip()})")
    try:
        yield
    finally:
        # A bind mount in its own file system is none to `os.path.ismount`.
        if subprocess.run(["mountpoint", "-q", arguments[-1]], check=False).returncode == 0:
            subprocess.run(["umount", arguments[-1]], check=True)
