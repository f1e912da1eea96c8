"""The resources that containers use, read while they run, because the figures of a container are
gone when it ends.

``DockerExecutor`` has one `Samples` object, with one thread that reads the figures of all
containers, one after the other. The figures of a container are read 1, 2, 4, 8, 16 and 32 s after
it was started or adopted, and each 30 s from then on. So the last figures are a lower bound: they
cover at least half of the container's time, or all but the last 30 s. A container that ends within
the first second has no figures.

The kernel has the figures in the files of the container's cgroup. If these are not on this host,
the engine is asked. Engines before version 25 take up to a second for an answer, and there is never
more than one call at a time, so the figures of many containers are read less often. If an engine
does not answer, or is too old to be asked for one sample (before API 1.41), only the figures are
missing.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from dataclasses import dataclass, replace
from typing import Any

from docker.errors import APIError

from arkqueue.executor.docker.cgroup import Cgroup, cgroup_of
from arkqueue.executor.docker.engine import Engine, EngineUnavailable
from arkqueue.model import Usage

log = logging.getLogger("arkqueue")

FIRST = 1.0
"""The seconds until the first sample, and until the second; later pauses double."""
LONGEST = 30.0
"""The most seconds between two samples."""
TIMEOUT = 2.0
"""The seconds for an answer of the engine."""


@dataclass(slots=True)
class _Sampled:
    """A sampled container, and its last figures."""

    newest: Usage | None = None
    cgroup: Cgroup | None = None
    is_sought: bool = False
    """Whether the container's cgroup was looked up on this host."""


class Samples:
    """The newest figures of the containers that an executor follows. Any thread may call it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._changed = threading.Condition()
        self._sampled: dict[str, _Sampled] = {}
        self._due: list[tuple[float, float, str]] = []
        """A heap of the times at which containers are sampled, with the pauses after them. Ended
        containers stay in it until their time.
        """
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def begin(self, container: str) -> None:
        """Begin to sample a container."""
        with self._changed:
            if self._is_closed:
                return
            self._sampled[container] = _Sampled()
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
        """Stop sampling a container. Returns its last figures; None if there are none."""
        with self._changed:
            sampled = self._sampled.pop(container, None)
        return None if sampled is None else sampled.newest

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._sampled.clear()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while (due := self._next()) is not None:
            pause, container, sampled = due
            try:
                read = self._read(container, sampled)
            except Exception:
                log.exception("what container %s uses cannot be read", container[:12])
                continue
            with self._changed:
                if read is not None:
                    sampled.newest = _both(sampled.newest, read)
                heapq.heappush(self._due, (time.monotonic() + pause, min(2 * pause, LONGEST), container))

    def _next(self) -> tuple[float, str, _Sampled] | None:
        """Wait for the next due container. Returns it with its time and its figures; None if no
        container is left to sample.
        """
        with self._changed:
            while not self._is_closed:
                rest = self._due[0][0] - time.monotonic() if self._due else None
                if rest is not None and rest <= 0:
                    _, pause, container = heapq.heappop(self._due)
                    if sampled := self._sampled.get(container):
                        return pause, container, sampled
                else:
                    self._changed.wait(rest)
            return None

    def _read(self, container: str, sampled: _Sampled) -> Usage | None:
        try:
            if not sampled.is_sought and self._engine.socket_path is not None:
                sampled.cgroup = cgroup_of(self._engine.pid(container, TIMEOUT), container)
            sampled.is_sought = True
            if sampled.cgroup is not None:
                return sampled.cgroup.usage()
            return usage_of(self._engine.stats(container, TIMEOUT))
        except (APIError, EngineUnavailable):
            return None


def usage_of(stats: dict[str, Any]) -> Usage | None:
    """The figures in an engine's answer about a container, as in `Cgroup.usage`; None if it has
    none, for example for an ended container.
    """
    processor = _figure((stats.get("cpu_stats") or {}).get("cpu_usage") or {}, "total_usage")
    if not processor:
        return None
    memory = stats.get("memory_stats") or {}
    details = memory.get("stats") or {}
    used = _figure(memory, "usage")
    cache = _figure(details, "total_inactive_file") or _figure(details, "inactive_file")  # cgroup version 1, version 2
    return Usage(processor / 1e9, max(0, used - cache) if used else None, sampled=True)


def _figure(figures: dict[str, Any], name: str) -> int:
    """One figure of an engine; 0 if it is missing or impossible, because PostgreSQL would refuse
    it.
    """
    figure = figures.get(name)
    return figure if isinstance(figure, int) and 0 < figure < 1 << 63 else 0


def _both(before: Usage | None, now: Usage) -> Usage:
    """The larger figures of two samples."""
    if before is None:
        return now
    peaks = [peak for peak in (before.peak_memory_bytes, now.peak_memory_bytes) if peak is not None]
    return replace(
        now,
        processor_seconds=max(before.processor_seconds, now.processor_seconds),
        peak_memory_bytes=max(peaks, default=None),
    )
