"""Drives Buildbot: a master with a local worker, changes posted to its hook, and builds that write
the time into a file.
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from benchmarks.bench import Bench
from benchmarks.peers import PATIENCE, environment


class Buildbot:
    """A running master. Every build runs ``command``."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.pid = process.pid
        self._hook = f"http://127.0.0.1:{port}/change_hook/base"

    def notify(self, revision: int) -> None:
        """Posts a change, as a commit hook does."""
        change = {
            "revision": revision,
            "author": "ada",
            "comments": "",
            "files": '["x"]',
            "project": "",
            "repository": "r",
        }
        with urllib.request.urlopen(self._hook, urllib.parse.urlencode(change).encode(), timeout=PATIENCE) as answer:
            answer.read()


@contextmanager
def a_buildbot(bench: Bench, command: Sequence[str], builds: int = 50) -> Iterator[Buildbot | None]:
    """A master on the bench's PostgreSQL; None if Buildbot is not installed."""
    python = environment(bench, "buildbot")
    if python is None:
        yield None
        return
    folder = bench.a_folder("buildbot")
    with bench.database(tables=False) as uri:
        port, workers_port = _a_port(), _a_port()
        chosen = {"port": port, "workers_port": workers_port, "command": list(command), "builds": builds}
        (folder / "settings.json").write_text(json.dumps({**chosen, "database": _sqlalchemy(uri)}))
        program = python.with_name("buildbot")
        with (folder / "said").open("wb") as said:
            subprocess.run([program, "create-master", "--quiet", folder], check=True, stdout=said, stderr=said)
            shutil.copy(Path(__file__).with_name("buildbot_master.py"), folder / "master.cfg")
            subprocess.run([program, "upgrade-master", "--quiet", folder], check=True, stdout=said, stderr=said)
            process = subprocess.Popen(
                [program, "start", "--nodaemon", folder], stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )
        try:
            _await(process, port, folder)
            yield Buildbot(process, port)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await(process: subprocess.Popen[bytes], port: int, folder: Path) -> None:
    """Waits until the master answers and its worker is attached."""
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        try:
            url = f"http://127.0.0.1:{port}/api/v2/workers"
            with urllib.request.urlopen(url, timeout=5) as answer:
                if any(worker["connected_to"] for worker in json.load(answer)["workers"]):
                    return
        except OSError:
            pass
        time.sleep(0.2)
    raise RuntimeError(f"Buildbot does not start: {(folder / 'said').read_text('utf-8', 'replace')[-2000:]}")


def _sqlalchemy(uri: str) -> str:
    """The URI in SQLAlchemy's form."""
    parts = conninfo_to_dict(uri)
    where = urllib.parse.urlencode({key: parts[key] for key in ("host", "passfile")})
    return f"postgresql+psycopg2://{parts['user']}@/{parts['dbname']}?{where}"


def _a_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
