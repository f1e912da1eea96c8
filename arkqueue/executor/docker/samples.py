"""The resources that containers use, read from the engine while they run: it forgets the figures of a container when that ends.

``DockerExecutor`` has one `Samples`. Its one thread asks for all containers, one after the other, so never more than one call is under way. A container is
asked for 1, 2, 4, 8, 16 and 32 s after it was begun or adopted, and each 30 s from then on. So the last figures of a container are a lower bound: at least
half of its time is behind them, or all but its last 30 s. A container that ends within the first second has none.

An engine that does not answer, or that is too old to answer at once (before API 1.41), costs the figures and nothing else.
"""

from __future__ import annotations

import heapq
import threading
import time
from dataclasses import replace
from typing import Any

from docker.errors import APIError

from arkqueue.executor.docker.engine import Engine, EngineUnavailable
from arkqueue.model import Usage

FIRST = 1.0
"""Seconds until the first sample, and between it and the second; the pauses double."""
LONGEST = 30.0
"""Seconds between two samples at most."""
TIMEOUT = 2.0
"""Seconds for an answer."""


class Samples:
    """The newest figures of the containers that an executor follows. Any thread may call it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._changed = threading.Condition()
        self._newest: dict[str, Usage | None] = {}
        self._due: list[tuple[float, float, str]] = []
        """When a container is asked for, and the pause after that; a heap. It keeps those that have ended until they would be due."""
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def begin(self, container: str) -> None:
        """Sample a container from now on."""
        with self._changed:
            if self._is_closed:
                return
            self._newest[container] = None
            heapq.heappush(self._due, (time.monotonic() + FIRST, FIRST, container))
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="container samples", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the host gives no thread: the next container tries again
                    return
                self._thread = thread
            self._changed.notify()

    def end(self, container: str) -> Usage | None:
        """Sample a container no more; what was read of it last, None where nothing was."""
        with self._changed:
            return self._newest.pop(container, None)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._newest.clear()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while (due := self._next()) is not None:
            pause, container = due
            read = self._read(container)
            with self._changed:
                if container not in self._newest:
                    continue
                if read is not None:
                    self._newest[container] = _both(self._newest[container], read)
                after = (time.monotonic() + pause, min(2 * pause, LONGEST), container)
                heapq.heappush(self._due, after)

    def _next(self) -> tuple[float, str] | None:
        """The container that is due, as soon as one is, and the pause after it; None when nothing is to be sampled any more."""
        with self._changed:
            while not self._is_closed:
                rest = self._due[0][0] - time.monotonic() if self._due else None
                if rest is not None and rest <= 0:
                    _, pause, container = heapq.heappop(self._due)
                    if container in self._newest:
                        return pause, container
                else:
                    self._changed.wait(rest)
            return None

    def _read(self, container: str) -> Usage | None:
        try:
            return usage_of(self._engine.stats(container, TIMEOUT))
        except (APIError, EngineUnavailable):
            return None


def usage_of(stats: dict[str, Any]) -> Usage | None:
    """The figures in what an engine says of a container; None where it says none, as of one that has ended.

    Memory is counted as ``docker stats`` does, without the file cache that the kernel can drop at once.
    """
    processor = (stats.get("cpu_stats") or {}).get("cpu_usage", {}).get("total_usage")
    if not processor:
        return None
    memory = stats.get("memory_stats") or {}
    details = memory.get("stats") or {}
    cache = details.get("total_inactive_file", details.get("inactive_file", 0))  # cgroup version 1, version 2
    used = memory.get("usage")
    return Usage(processor / 1e9, max(0, used - cache) if used else None, sampled=True)


def _both(before: Usage | None, now: Usage) -> Usage:
    """The largest of two samples."""
    if before is None:
        return now
    peaks = [peak for peak in (before.peak_memory_bytes, now.peak_memory_bytes) if peak is not None]
    return replace(
        now,
        processor_seconds=max(before.processor_seconds, now.processor_seconds),
        peak_memory_bytes=max(peaks, default=None),
    )
