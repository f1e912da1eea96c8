"""Keeps the files of a test run in memory, if the host has enough room there.

Tests make hundreds of thousands of small files: repositories, workspaces, databases. A new file on
a disk costs ten times the CPU time of a new file in memory, and the test also waits for the disk.

``TMPDIR`` selects another folder. A plugin of ``conftest.py``, and the first one, because the
others ask ``tempfile`` for the folder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
NEEDED = 5 << 30
"""The bytes that must be free, both in the folder and in the machine's memory. ``make test`` uses
0.6 GB, ``make test-full`` 2.2 GB.
"""


def _has_room() -> bool:
    """Whether the folder in memory has room for the files of a run and can hold executable
    programs.
    """
    if not os.access(MEMORY, os.W_OK | os.X_OK) or os.statvfs(MEMORY).f_flag & (os.ST_NOEXEC | os.ST_NODEV):
        return False
    return min(shutil.disk_usage(MEMORY).free, _available()) >= NEEDED


def _available() -> int:
    """The machine's available memory in bytes."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024


if "TMPDIR" not in os.environ and _has_room():
    # An environment variable reaches the workers and every program that a test starts.
    os.environ["TMPDIR"] = str(MEMORY)
    tempfile.tempdir = None
