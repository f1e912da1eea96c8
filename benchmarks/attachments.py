"""Row 24: the speed at which `submit --attach` streams files with a submitted document, next to a
copy of the files with a digest and a sync.
"""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.bench import Bench, Figure, at_least, interleaved, never_above, seconds
from benchmarks.servers import Archive, a_server

SPEED = 50
"""The target speed of `submit --attach`, in megabytes a second."""
LONGEST = 500
"""The longest time in milliseconds that the API may take for an answer while files arrive."""
TASKS = {"store": {"command": 'test -d "$ARKQUEUE_ATTACHMENTS"', "on": "submission", "checkout": "none"}}


def attachments(bench: Bench) -> Iterator[Figure]:
    """One large file, and many small ones, each time with a new id. Meanwhile, the archive is
    repeatedly requested from the API.
    """
    megabytes, count = bench.size("attachments.megabytes", 1000, 50), bench.size("attachments.files", 1000, 50)
    folder = bench.a_folder("files")
    large, small = folder / "large", folder / "small"
    with large.open("wb") as file, Path("/dev/urandom").open("rb") as source:
        for _ in range(megabytes):
            file.write(source.read(10**6))
    small.mkdir()
    for number in range(count):
        (small / f"{number:05}").write_bytes(f"{number}\n".encode() * 1000)
    document = folder / "document.json"
    document.write_text("{}")
    ids = itertools.count()
    waits: list[float] = []
    with ExitStack() as stack:
        server = stack.enter_context(a_server(bench, stack.enter_context(bench.database())))
        archive = Archive.add(bench, server, TASKS)

        def submitted(path: Path) -> float:
            """Seconds until the run exists."""
            words = "submit", archive.name, str(document), "--id", f"bench-{next(ids)}", "--attach", str(path)
            began = time.perf_counter()
            with server.begun(*words) as process:
                while process.poll() is None:
                    waits.append(seconds(lambda: server.api.get(f"/archives/{archive.name}")) * 1000)
                assert process.returncode == 0
            took = time.perf_counter() - began
            archive.wait()
            return took

        target = bench.a_folder("copy") / "file"

        def copied() -> float:
            copy = f"cp {large} {target} && sync {target} && sha256sum {target}"
            return seconds(lambda: subprocess.run(["/bin/sh", "-c", copy], check=True, stdout=subprocess.DEVNULL))

        found = interleaved(
            bench.rounds,
            {
                "large": lambda: megabytes / submitted(large),
                "copy": lambda: megabytes / copied(),
                "small": lambda: count / submitted(small),
            },
        )
    what = f"submit --attach of {megabytes} MB, until the run is made"
    beside = "cp, sync and sha256sum"
    yield Figure("24", what, "MB/s", found["large"], [at_least(SPEED, "MB/s")], beside, found["copy"])
    yield Figure("24", f"submit --attach of {count} small files", "files/s", found["small"])
    yield Figure("24", "longest answer of the API meanwhile", "ms", [max(waits)], [never_above(LONGEST, "ms")])
