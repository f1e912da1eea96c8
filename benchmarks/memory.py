"""Row 9: resident memory of a server and its own child processes, without PostgreSQL and the
processes of tasks; next to an idle Buildbot.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench, Figure, at_most, never_above
from benchmarks.commits import graph
from benchmarks.peers.buildbot import a_buildbot
from benchmarks.servers import Archive, a_server, until
from tests.system.end_to_end.installation import Installation

SETTLING = 3.0
"""The seconds after which a newly started server is idle."""
SAMPLE = 0.1


def memory(bench: Bench) -> Iterator[Figure]:
    """Memory when idle, before and after a first task; with many waiting tasks; and while a task's
    output streams.

    The memory of what a server imports and starts for its first task is a separate figure, because
    it comes only once.
    """
    waiting, output = bench.size("memory.waiting", 10_000, 1000), bench.size("memory.megabytes", 200, 20)
    each = min(500, waiting)
    fresh, used, crowded, streaming, theirs = list[float](), list[float](), list[float](), list[float](), list[float]()
    for _ in range(min(bench.rounds, 3)):
        with _a_used_server(bench, fresh, used) as server:
            held: dict[str, dict[str, Any]] = {"gate": {"command": "exec sleep 100000", "checkout": "none"}}
            held |= {name: {**fields, "depends": ["gate"]} for name, fields in graph(each).items()}
            archive = Archive.add(bench, server, held)
            for _commit in range(waiting // each):
                archive.notify(archive.commit())
            until(lambda: archive.open_tasks() >= waiting, "the waiting tasks")  # noqa: B023 (called at once)
            time.sleep(SETTLING)
            crowded.append(resident(server.roles[0].pid) - used[-1])
        with _a_used_server(bench, fresh, used) as server:
            flood = f"yes 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde | head -c {output}000000"
            archive = Archive.add(bench, server, {"flood": {"command": flood, "checkout": "none"}})
            with _Peak(server.roles[0].pid) as peak:
                for _again in range(3):
                    archive.notify(archive.commit())
                    until(lambda: archive.open_tasks() > 0, "the flood")  # noqa: B023
                    archive.wait()
            streaming.append(peak.highest - used[-1])
        with a_buildbot(bench, ["true"]) as buildbot:
            if buildbot:
                time.sleep(SETTLING)
                theirs.append(resident(buildbot.pid))
    beside = "Buildbot, idle" if theirs else ""
    yield Figure("9", "idle server", "MB", fresh, [at_most(130, "MB")], beside, theirs)
    yield Figure("9", "idle server, after a first task", "MB", used, [at_most(130, "MB")])
    yield Figure("9", f"added by {waiting} waiting tasks", "MB", crowded, [at_most(20, "MB")])
    yield Figure("9", f"added at most while {output} MB of output stream, three times", "MB", streaming, [never_above(20, "MB")])  # fmt: skip


@contextmanager
def _a_used_server(bench: Bench, fresh: list[float], used: list[float]) -> Iterator[Installation]:
    """A server that has run one task. Appends its memory before and after the task."""
    with ExitStack() as stack:
        server = stack.enter_context(a_server(bench, stack.enter_context(bench.database()), slots=2))
        time.sleep(SETTLING)
        fresh.append(resident(server.roles[0].pid))
        archive = Archive.add(bench, server, {"first": {"command": "true", "checkout": "none"}})
        revision = archive.commit()
        archive.notify(revision)
        until(lambda: server.sql("select 1 from task where number = %s and state = 'completed' and name = 'first'", revision), "the first task")  # fmt: skip
        time.sleep(SETTLING)
        used.append(resident(server.roles[0].pid))
        yield server


class _Peak:
    """The peak memory of a server, sampled in a thread."""

    def __init__(self, pid: int) -> None:
        self._pid, self.highest = pid, 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> _Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(SAMPLE):
            self.highest = max(self.highest, resident(self._pid))


def resident(pid: int) -> float:
    """Megabytes of a process and of the Python processes below it. Pages that the processes share
    count once (PSS of the others).
    """
    return sum(_of(one, "Rss" if one == pid else "Pss") for one in [pid, *_below(pid)]) / 1000


def _of(pid: int, what: str) -> float:
    """Kilobytes of one process; 0 if the process has ended or is not part of the server."""
    try:
        if b"python" not in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]:
            return 0
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(f"{what}:"):
                return int(line.split()[1]) * 1.024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def _below(pid: int) -> list[int]:
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            for child in map(int, children.read_text().split()):
                found += [child, *_below(child)]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
