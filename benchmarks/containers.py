"""What a container task costs: the Docker executor beside the bare SDK, in interleaved pairs on the same engine and image.

python benchmarks/containers.py [--pairs 30] [--rounds 5] [--megabytes 200] [--image IMAGE] [--url URL]

Prints ratios, each the median of the pairs with its quartiles: the time of one task against the SDK's create + start + wait + remove (to reach: at most
1.10), the throughput of four slots against four bare threads (at least 0.9), and the output's rate against a bare attach (at least 0.8).
Both run the same command on the same network; the engine's init, the labels and the limits are the executor's alone. So is the log's driver for the times
(bare: the engine's default); for the output's rate it is the same.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker

from arkqueue.executor import Container, Program
from arkqueue.executor.docker import DockerExecutor
from arkqueue.model import AttemptId, Pull, Stream

SLOTS = 4
_attempts = itertools.count(1)


class Counter:
    """A sink that only counts."""

    def __init__(self) -> None:
        self.bytes = 0

    def write(self, stream: Stream, data: bytes) -> None:  # noqa: ARG002 (the sink's interface)
        self.bytes += len(data)


class Contest:
    """The same container, by the executor and by the SDK."""

    def __init__(self, url: str | None, image: str, network: str) -> None:
        self.api = docker.APIClient(base_url=url, version="auto", timeout=120)
        self.executor = DockerExecutor(f"benchmark-{uuid.uuid4().hex}", "benchmark", url)
        self.image, self.network = image, network

    def ours(self, command: str, sink: Counter | None = None) -> None:
        container = Container(self.image, Pull.MISSING, {}, network=self.network)
        argv = ("/bin/sh", "-c", command)
        program = Program(AttemptId(next(_attempts)), argv, {"PATH": "/bin:/usr/bin"}, Path("/"), container=container)
        ended = self.executor.start(program, sink or Counter()).wait()
        assert ended is not None, "it has no end"
        assert ended.exit_code == 0, ended

    def bare(self, command: str) -> None:
        container = self._created(command)
        self.api.start(container)
        self.api.wait(container)
        self.api.remove_container(container)

    def bare_attach(self, command: str) -> int:
        container = self._created(
            command, {"Type": "local", "Config": {"max-size": "1g", "max-file": "2", "compress": "false"}}
        )
        output = self.api.attach(container, stream=True, demux=True)
        self.api.start(container)
        count = sum(len(out or b"") + len(err or b"") for out, err in output)
        self.api.wait(container)
        self.api.remove_container(container)
        return count

    def _created(self, command: str, log: dict[str, Any] | None = None) -> str:
        configuration: dict[str, Any] = {
            "Image": self.image,
            "Entrypoint": ["/bin/sh", "-c", command],
            "AttachStdout": True,
            "AttachStderr": True,
            "HostConfig": {"NetworkMode": self.network, "LogConfig": log or {}},
        }
        created: str = self.api.create_container_from_config(configuration)["Id"]
        return created

    def close(self) -> None:
        self.executor.close()
        self.api.close()


def seconds(turn: Callable[[], object]) -> float:
    began = time.perf_counter()
    turn()
    return time.perf_counter() - began


def together(turn: Callable[[], object], times: int) -> Callable[[], None]:
    """``turn`` so many times in each of four threads."""

    def repeat() -> None:
        for _ in range(times):
            turn()

    def run() -> None:
        threads = [threading.Thread(target=repeat) for _ in range(SLOTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return run


def compare(
    what: str, bound: str, pairs: int, ours: Callable[[], object], bare: Callable[[], object], is_rate: bool
) -> None:
    """Each pair in turn begins with the other; the ratio is ours to bare, of times or of rates."""
    ours(), bare()
    ratios, times = [], []
    for number in range(pairs):
        order = (ours, bare) if number % 2 else (bare, ours)
        took = {turn: seconds(turn) for turn in order}
        ratios.append(took[bare] / took[ours] if is_rate else took[ours] / took[bare])
        times.append((took[ours], took[bare]))
    low, middle, high = statistics.quantiles(ratios, n=4)
    own, other = (statistics.median(column) for column in zip(*times, strict=True))
    print(
        f"{what:<28} {middle:5.2f}  ({low:.2f}-{high:.2f}, {pairs} pairs; to reach: {bound})  ours {own:.3f} s, bare {other:.3f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--image", required=True, help="an image with sh, head and yes")
    parser.add_argument("--network", default="bridge")
    parser.add_argument("--url", help="the engine (default: the local socket)")
    arguments = parser.parse_args()
    contest = Contest(arguments.url, arguments.image, arguments.network)
    flood = f"yes 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde | head -c {arguments.megabytes}000000"
    try:
        compare(
            "time of a task", "<= 1.10", arguments.pairs, lambda: contest.ours(":"), lambda: contest.bare(":"), False
        )
        compare(
            f"throughput, {SLOTS} slots",
            ">= 0.90",
            arguments.rounds,
            together(lambda: contest.ours(":"), 5),
            together(lambda: contest.bare(":"), 5),
            True,
        )
        compare(
            f"output, {arguments.megabytes} MB",
            ">= 0.80",
            arguments.rounds,
            lambda: contest.ours(flood),
            lambda: contest.bare_attach(flood),
            True,
        )
    finally:
        contest.close()


if __name__ == "__main__":
    main()
