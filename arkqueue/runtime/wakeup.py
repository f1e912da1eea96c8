"""The bell of one waiting thread. ``db.wakeups`` rings it, also for events of other processes."""

from __future__ import annotations

import threading


class Bell:
    """The bell of one waiting thread. A ring is kept until a ``wait`` has returned True."""

    def __init__(self, topics: tuple[str, ...]) -> None:
        self.topics = topics
        self._rung = threading.Event()

    def ring(self) -> None:
        self._rung.set()

    def wait(self, timeout: float) -> bool:
        """Wait until it rings, at most ``timeout`` seconds. Returns whether it rang. Later rings count
        for the next wait.
        """
        if not self._rung.wait(timeout):
            return False
        self._rung.clear()
        return True
