"""The short process tasks per second of the process executor, next to bare ``subprocess``; and the
rate of output.

python benchmarks/processes.py [seconds]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from arkqueue.executor import Program
from arkqueue.executor.process.executor import ProcessExecutor
from arkqueue.model import AttemptId, Stream

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
OUTPUT_MB = 500


class Counter:
    """A sink that only counts."""

    def __init__(self) -> None:
        self.bytes = 0

    def write(self, stream: Stream, data: bytes) -> None:  # noqa: ARG002 (the sink's interface)
        self.bytes += len(data)


def program(command: str) -> Program:
    return Program(AttemptId(1), ("/bin/sh", "-c", command), ENV, Path("/"))


def rate(turn: Callable[[], object], threads: int, seconds: float) -> float:
    """Calls per second of ``threads`` threads that each repeat ``turn``."""
    until = time.perf_counter() + seconds
    done = [0] * threads

    def repeat(index: int) -> None:
        while time.perf_counter() < until:
            turn()
            done[index] += 1

    began = time.perf_counter()
    all_threads = [threading.Thread(target=repeat, args=(index,)) for index in range(threads)]
    for thread in all_threads:
        thread.start()
    for thread in all_threads:
        thread.join()
    return sum(done) / (time.perf_counter() - began)


def main(seconds: float = 3.0) -> None:
    executor = ProcessExecutor()
    try:
        for threads in (1, 4):
            bare = rate(lambda: subprocess.run(["/bin/sh", "-c", "true"], env=ENV, check=True), threads, seconds)
            ours = rate(lambda: executor.start(program("true"), Counter()).wait(), threads, seconds)
            print(f"{threads} threads: {ours:6.0f} tasks/s, bare subprocess {bare:6.0f}/s, ratio {ours / bare:.2f}")

        starts = []
        for _ in range(200):
            began = time.perf_counter()
            running = executor.start(program("true"), Counter())
            starts.append((time.perf_counter() - began) * 1000)
            running.wait()
        starts.sort()
        print(f"start: median {statistics.median(starts):.2f} ms, 95 % {starts[190]:.2f} ms")

        counter = Counter()
        began = time.perf_counter()
        executor.start(program(f"head -c {OUTPUT_MB}M /dev/zero"), counter).wait()
        print(f"output: {counter.bytes / (time.perf_counter() - began) / 1e6:.0f} MB/s")
    finally:
        executor.close()


if __name__ == "__main__":
    main(*map(float, sys.argv[1:2]))
