"""Row 12: the time of a command, and the start of a server on an existing database."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.bench import Bench, Figure, at_most, interleaved, seconds
from benchmarks.servers import REST
from tests.system.end_to_end.installation import ROOT, Installation, environment


def starting(bench: Bench) -> Iterator[Figure]:
    """`arkqueue --help`, and `arkqueue serve` until it announces its address."""
    times = bench.size("starting.times", 15, 5)
    with bench.database() as uri:
        installation = Installation(bench.a_folder("server"), uri, poll="1s")
        installation.is_forked = False

        def serve() -> float:
            began = time.perf_counter()
            role = installation.start()
            took = time.perf_counter() - began
            time.sleep(REST)
            role.stop()
            return took

        def python(*words: str) -> float:
            command = [sys.executable, *words]
            return 1000 * seconds(
                lambda: subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=environment())
            )

        try:
            found = interleaved(
                times,
                {
                    "help": lambda: python("-m", "arkqueue", "--help"),
                    "bare": lambda: python("-c", "import click"),
                    "serve": serve,
                },
                warm=True,
            )
        finally:
            installation.close()
    yield Figure(
        "12", "arkqueue --help", "ms", found["help"], [at_most(150, "ms")], "python -c 'import click'", found["bare"]
    )
    yield Figure("12", "arkqueue serve → ready, on an existing database", "s", found["serve"], [at_most(1, "s")])
