"""Peers: other systems that do parts of the same job, each from PyPI in its own environment, on the
same PostgreSQL as arkqueue.

``environment`` installs a missing peer. The peers' Pythons run the programs beside this file, which
do not use arkqueue and answer with one JSON object. If a peer cannot be installed, the bench says
so and measures without the peer.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench

REQUIREMENTS = {
    "buildbot": ("buildbot>=4,<5", "buildbot-worker>=4,<5", "buildbot-www>=4,<5", "psycopg2-binary"),
    "pgqueuer": ("pgqueuer", "asyncpg"),
    "procrastinate": ("procrastinate", "psycopg[binary,pool]"),
}
PATIENCE = 600.0
"""The most seconds that any step of a peer may take."""


def environment(bench: Bench, name: str) -> Path | None:
    """The Python of a peer's environment, which is made if missing. None without peers, or if the
    installation fails.
    """
    if bench.peers is None:
        return None
    folder = bench.peers / name
    python, stamp = folder / "bin" / "python", folder / "requirements"
    wanted = "\n".join(REQUIREMENTS[name])
    if not stamp.exists() or stamp.read_text() != wanted:
        bench.say(f"installing {name} into {folder}")
        subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", folder], check=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python", str(python)]
        done = subprocess.run([*pip, "install", *REQUIREMENTS[name]], check=False, capture_output=True, text=True)
        if done.returncode:
            bench.say(f"{name} cannot be installed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
            return None
        stamp.write_text(wanted)
    return python


def answer(python: Path, program: str, *arguments: object) -> dict[str, Any]:
    """The answer of a program beside this file, run by a peer's Python."""
    command = [python, Path(__file__).with_name(program), *arguments]
    done = subprocess.run(
        [str(word) for word in command], check=False, capture_output=True, text=True, timeout=PATIENCE
    )
    if done.returncode:
        raise RuntimeError(f"{program}: {done.stderr.strip()[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found
