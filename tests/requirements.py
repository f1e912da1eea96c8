"""What tests need of their host besides the programs of ``requirements.sh``. With ``CI=true``, a
missing requirement fails the test.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest


def missing(what: str) -> NoReturn:
    """Skips the test, or fails it with ``CI=true``."""
    message = f"the test needs {what}"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def root() -> None:
    """Requires root, who alone can mount, make devices, become another user and give files away."""
    if os.geteuid() != 0:
        missing("root")


@contextmanager
def a_mount(*arguments: str | Path) -> Iterator[None]:
    """Mounts a file system with the arguments of ``mount``, the folder last. The test may unmount
    it earlier.
    """
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        missing(f"the right to mount ({done.stderr.strip()})")
    try:
        yield
    finally:
        # `os.path.ismount` does not recognize a bind mount within the same file system.
        if subprocess.run(["mountpoint", "-q", arguments[-1]], check=False).returncode == 0:
            subprocess.run(["umount", arguments[-1]], check=True)
