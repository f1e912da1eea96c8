"""What one waiter of this process waits for. ``db.wakeups`` rings it, also for what other processes tell."""

from __future__ import annotations

import threading


class Bell:
    """What one waiter waits for. It stays rung until a ``wait`` has returned True."""

    def __init__(self, topics: tuple[str, ...]) -> None:
        self.topics = topics
        self._rung = threading.Event()

    def ring(self) -> None:
        self._rung.set()

    def wait(self, timeout: float) -> bool:
        """Wait until it rings, or for ``timeout`` seconds; whether it rang. What rings from now on counts for the next wait."""
        if not self._rung.wait(timeout):
            return False
        self._rung.clear()
        return True
