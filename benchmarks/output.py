"""Row 10: how fast output flows from a task into its log and to a follower, beside `cat` through a pipe into a file; and how soon a follower sees a line."""

from __future__ import annotations

import base64
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from benchmarks.bench import Bench, Figure, at_least, at_most, interleaved, never_above, seconds
from benchmarks.servers import Archive, a_server, until
from tests.system.end_to_end.installation import Installation

LINE = "0123456789abcdef" * 3 + "0123456789abcde"


def output(bench: Bench) -> Iterator[Figure]:
    """A flood, with and without a follower; then a line now and then."""
    megabytes, lines = bench.size("output.megabytes", 200, 20), bench.size("output.lines", 50, 10)
    flood = f"yes {LINE} | head -c {megabytes}000000"
    with ExitStack() as stack:
        server = stack.enter_context(a_server(bench, stack.enter_context(bench.database())))
        archive = Archive.add(bench, server, {"flood": {"command": flood, "checkout": "none"}})
        target = bench.a_folder("cat") / "file"
        followed: list[float] = []
        stored: dict[bool, list[float]] = {True: [], False: []}

        def cat() -> float:
            took = seconds(lambda: subprocess.run(["/bin/sh", "-c", f"{flood} | cat > {target}"], check=True))
            return megabytes / took

        def logged(*, follow: bool) -> float:
            revision = archive.commit()
            archive.notify(revision)
            attempt = _attempt(server, archive.name, "flood", revision)
            if follow:
                began, seen = time.perf_counter(), 0
                for event in server.api.events(f"/attempts/{attempt}/log"):
                    seen += len(base64.b64decode(event.data["data"])) if event.kind == "log" else 0
                followed.append(seen / 1e6 / (time.perf_counter() - began))
            archive.wait()
            (row,) = server.sql(
                "select extract(epoch from ended_at - started_at)::float8 as took, log_bytes from attempt where id = %s", attempt
            )  # fmt: skip
            assert row["log_bytes"] >= megabytes * 10**6, row
            (kept,) = server.sql(
                "select sum(octet_length(data)) as bytes from log_chunk where attempt_id = %s", attempt
            )
            # The middle of a long log is dropped before it is written: what never reached the disk is no pace of storing.
            stored[follow].append(int(kept["bytes"]) / 1e6 / float(row["took"]))
            return megabytes / float(row["took"])

        found = interleaved(
            bench.rounds,
            {"log": lambda: logged(follow=False), "followed": lambda: logged(follow=True), "cat": cat},
            warm=True,
        )
        ticking = f"i=0; while [ $i -lt {lines} ]; do date +%s%N; sleep 0.15; i=$((i+1)); done"
        ticker = Archive.add(bench, server, {"ticker": {"command": ticking, "checkout": "none"}})
        delays = _delays(server, ticker)
    for follow, name, what in ((False, "log", ""), (True, "followed", ", with a follower")):
        rates = stored[follow][-bench.rounds :]
        yield Figure(
            "10", f"{megabytes} MB: what is kept of it, to the stored log{what}", "MB/s", rates, [at_least(50, "MB/s")]
        )
        title = f"{megabytes} MB: the pace of the process, its middle dropped{what}"
        yield Figure("10", title, "MB/s", found[name], (), "cat into a file", found["cat"])
    yield Figure(
        "10",
        f"{megabytes} MB: what is kept of it, to a follower",
        "MB/s",
        followed[-bench.rounds :],
        [at_least(50, "MB/s")],
    )
    yield Figure(
        "10", "a line is written → a follower sees it", "ms", delays, [at_most(100, "ms"), never_above(100, "ms")]
    )


def _attempt(server: Installation, archive: str, task: str, revision: int) -> int:
    query = "select t.attempt_id from task t join archive a on a.id = t.archive_id where a.name = %s and t.name = %s and t.number = %s and t.attempt_id is not null"
    rows: Any = until(lambda: server.sql(query, archive, task, revision), "the attempt")
    return int(rows[0]["attempt_id"])


def _delays(server: Installation, archive: Archive) -> list[float]:
    """Milliseconds between the time in each line and its arrival."""
    revision = archive.commit()
    archive.notify(revision)
    attempt = _attempt(server, archive.name, "ticker", revision)
    found = []
    for event in server.api.events(f"/attempts/{attempt}/log"):
        now = time.time_ns()
        if event.kind == "log" and event.data["stream"] == "stdout":
            # Of lines that come together the first has waited longest.
            written = base64.b64decode(event.data["data"]).split()[0]
            found.append((now - int(written)) / 1e6)
    archive.wait()
    return found
