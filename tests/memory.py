"""The files of a test run lie in memory, where the host has room for them there.

Tests make hundreds of thousands of small files: repositories, workspaces, databases. A new file on a disk costs ten times the CPU
time of one in memory, and the test waits for the disk as well.

A person who sets ``TMPDIR`` chooses another folder. A plugin of ``conftest.py``, the first one: the others ask ``tempfile``.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
NEEDED = 5 << 30
"""Bytes that must be free, in the folder and in the machine's memory. A run of ``make test`` uses 0.6 GB, ``make test-full`` 2.2 GB."""


def _has_room() -> bool:
    """Whether the folder in memory takes the files of a run, programs that are executed from it included."""
    if not os.access(MEMORY, os.W_OK | os.X_OK) or os.statvfs(MEMORY).f_flag & (os.ST_NOEXEC | os.ST_NODEV):
        return False
    return min(shutil.disk_usage(MEMORY).free, _available()) >= NEEDED


def _available() -> int:
    """The machine's free memory in bytes."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024


if "TMPDIR" not in os.environ and _has_room():
    # In the environment, so that workers and whatever a test starts use the same folder.
    os.environ["TMPDIR"] = str(MEMORY)
    tempfile.tempdir = None
