"""Row 10: the rate of output from a task to its log and to a follower, next to `cat` through a pipe
into a file; and the delay until a follower receives a line.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pybase64

from benchmarks.bench import Bench, Figure, at_least, at_most, interleaved, never_above, seconds
from benchmarks.servers import Archive, a_server, until
from tests.system.end_to_end.installation import Installation

LINE = "0123456789abcdef" * 3 + "0123456789abcde"


KEPT = 16
"""The megabytes of a log that are kept, as head and tail (``arkqueue.logs``)."""


def output(bench: Bench) -> Iterator[Figure]:
    """Output that is kept completely, and a flood whose middle is dropped, with and without a
    follower; then single lines, rarely and often.
    """
    megabytes, lines = bench.size("output.megabytes", 200, 20), bench.size("output.lines", 50, 10)
    with ExitStack() as stack:
        server = stack.enter_context(a_server(bench, stack.enter_context(bench.database())))
        flood = f"yes {LINE} | head -c {megabytes}000000"
        commands = {KEPT: f"yes {LINE} | head -c {KEPT}000000", megabytes: flood}
        archives = {
            size: Archive.add(bench, server, {"flood": {"command": command, "checkout": "none"}})
            for size, command in commands.items()
        }
        target = bench.a_folder("cat") / "file"

        def cat() -> float:
            took = seconds(lambda: subprocess.run(["/bin/sh", "-c", f"{flood} | cat > {target}"], check=True))
            return megabytes / took

        def logged(size: int) -> float:
            """Megabytes per second from the start of the process until its end is recorded, when
            the log is complete.
            """
            archive = archives[size]
            attempt = _begin(server, archive, "flood")
            archive.wait()
            (row,) = server.sql(
                "select extract(epoch from ended_at - started_at)::float8 as took, log_bytes from attempt where id = %s", attempt
            )  # fmt: skip
            assert row["log_bytes"] == size * 10**6, row
            return size / float(row["took"])

        def followed(size: int) -> float:
            """Megabytes per second from the request of the log until the follower
            receives the end.
            """
            archive = archives[size]
            attempt = _begin(server, archive, "flood")
            began, seen, cut = time.perf_counter(), 0, 0
            for event in server.api.events(f"/attempts/{attempt}/log"):
                if event.kind == "log":
                    seen, cut = seen + len(pybase64.b64decode(event.data["data"])), cut + event.data["cut"]
            took = time.perf_counter() - began
            archive.wait()
            assert seen + cut == size * 10**6
            return seen / 1e6 / took

        found = interleaved(
            bench.rounds,
            {
                "kept": lambda: logged(KEPT),
                "kept, followed": lambda: followed(KEPT),
                "flood": lambda: logged(megabytes),
                "flood, followed": lambda: followed(megabytes),
                "cat": cat,
            },
            warm=True,
        )
        delays = {pause: _delays(bench, server, pause, lines) for pause in (0.15, 0.02)}
    at_speed = [at_least(50, "MB/s")]
    yield Figure("10", f"{KEPT} MB, all kept, to the stored log", "MB/s", found["kept"], at_speed)
    yield Figure("10", f"{KEPT} MB, all kept, to a follower", "MB/s", found["kept, followed"], at_speed)
    title = f"{megabytes} MB, the middle dropped: until the log is complete"
    yield Figure("10", title, "MB/s", found["flood"], at_speed, "cat into a file", found["cat"])
    title = f"{megabytes} MB, the middle dropped: what of it a follower is sent"
    yield Figure("10", title, "MB/s", found["flood, followed"])
    for pause, found_delays in delays.items():
        title = f"a line each {pause * 1000:g} ms → a follower sees it"
        yield Figure("10", title, "ms", found_delays, [at_most(100, "ms"), never_above(100, "ms")])


def _begin(server: Installation, archive: Archive, task: str) -> int:
    """Runs an archive's task again. Returns its attempt."""
    revision = archive.commit()
    archive.notify(revision)
    return _attempt(server, archive.name, task, revision)


def _attempt(server: Installation, archive: str, task: str, revision: int) -> int:
    query = "select t.attempt_id from task t join archive a on a.id = t.archive_id where a.name = %s and t.name = %s and t.number = %s and t.attempt_id is not null"
    rows: Any = until(lambda: server.sql(query, archive, task, revision), "the attempt")
    return int(rows[0]["attempt_id"])


def _delays(bench: Bench, server: Installation, pause: float, lines: int) -> list[float]:
    """Milliseconds between the time in each line and the line's arrival. Of lines that arrive
    together, the first has waited longest.
    """
    ticking = f"i=0; while [ $i -lt {lines} ]; do date +%s%N; sleep {pause}; i=$((i+1)); done"
    archive = Archive.add(bench, server, {"ticker": {"command": ticking, "checkout": "none"}})
    attempt = _begin(server, archive, "ticker")
    found = []
    for event in server.api.events(f"/attempts/{attempt}/log"):
        now = time.time_ns()
        if event.kind == "log" and event.data["stream"] == "stdout":
            written = pybase64.b64decode(event.data["data"]).split()[0]
            found.append((now - int(written)) / 1e6)
    archive.wait()
    return found
