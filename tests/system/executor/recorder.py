"""Records the output and the end of an attempt, for the tests of both executors."""

from __future__ import annotations

import threading

from arkqueue.executor import Ended, Running
from arkqueue.model import Stream
from tests.waiting import PATIENCE


class Recorder:
    """A sink that keeps all data, and lets a test wait for a word on stdout."""

    def __init__(self) -> None:
        self.data = {Stream.STDOUT: bytearray(), Stream.STDERR: bytearray()}
        self.changed = threading.Condition()

    def write(self, stream: Stream, data: bytes) -> None:
        with self.changed:
            self.data[stream] += data
            self.changed.notify_all()

    @property
    def out(self) -> bytes:
        return bytes(self.data[Stream.STDOUT])

    @property
    def err(self) -> bytes:
        return bytes(self.data[Stream.STDERR])

    @property
    def counts(self) -> dict[Stream, int]:
        with self.changed:
            return {stream: len(data) for stream, data in self.data.items()}

    def wait_for(self, word: bytes) -> None:
        with self.changed:
            came = self.changed.wait_for(lambda: word in self.data[Stream.STDOUT], PATIENCE)
            told = f"stdout has {len(self.out)} bytes, the last {self.out[-200:]!r}; stderr {self.err[-200:]!r}"
            assert came, f"{word!r} never came; {told}"


def followed(running: Running) -> Running:
    """The attempt, with a thread that waits for its end, as a worker of the task manager does."""
    threading.Thread(target=running.wait, name="attempt", daemon=True).start()
    return running


def ended(running: Running) -> Ended:
    end = running.wait(PATIENCE)
    assert end is not None
    return end
