"""A connection to the engine that a test can hold and cut. It relays the real bytes between its own
socket and the engine's.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path


class Relay:
    """Listens at ``url`` and relays everything to the engine's socket."""

    def __init__(self, path: Path, engine: str) -> None:
        self.url = f"unix://{path}"
        self._engine = engine.removeprefix("unix://")
        self._lock = threading.Lock()
        self._held: Callable[[bytes], bool] = lambda _request: False
        self._released = threading.Event()
        self._broken = b""
        self._is_passed_on = True
        self.has_held = threading.Event()
        self._pairs: list[tuple[bytearray, socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._run(self._accept)

    def hold(self, word: bytes) -> None:
        """Holds further requests that contain a word until ``release``. The first one sets
        ``has_held``.
        """
        self._held = lambda request: word in request

    def break_off(self, word: bytes, *, is_passed_on: bool) -> None:
        """Leaves further requests that contain a word unanswered. ``is_passed_on``: whether the
        engine still receives and executes them.
        """
        self._broken, self._is_passed_on = word, is_passed_on

    def release(self) -> None:
        self._released.set()

    def cut(self, word: bytes) -> int:
        """Ends the connections whose last request contains a word. Returns their number."""
        with self._lock:
            found = [pair for pair in self._pairs if word in pair[0]]
            self._pairs = [pair for pair in self._pairs if word not in pair[0]]
        for _, ours, theirs in found:
            _end(ours, theirs)
        return len(found)

    def close(self) -> None:
        _end(self._listener)
        self.release()
        self.cut(b"")
        for thread in self._threads:
            thread.join()
        for one in (self._listener, *self._sockets):
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                ours, _ = self._listener.accept()
            except OSError:
                return
            theirs = socket.socket(socket.AF_UNIX)
            self._sockets += [ours, theirs]
            theirs.connect(self._engine)
            request = bytearray()
            with self._lock:
                self._pairs.append((request, ours, theirs))
            is_unanswered = threading.Event()
            self._run(partial(self._pass_requests, ours, theirs, request, is_unanswered))
            self._run(partial(_pass, theirs, ours, is_unanswered))

    def _pass_requests(
        self, ours: socket.socket, theirs: socket.socket, request: bytearray, is_unanswered: threading.Event
    ) -> None:
        with suppress(OSError):
            while data := ours.recv(65536):
                with self._lock:
                    request[:] = data
                if self._held(data):
                    self.has_held.set()
                    self._released.wait()
                is_broken = bool(self._broken) and self._broken in data
                if is_broken and not self._is_passed_on:
                    _end(ours)
                    return
                if is_broken:
                    is_unanswered.set()
                theirs.sendall(data)
        _end(theirs)

    def _run(self, target: Callable[[], None]) -> None:
        self._threads.append(threading.Thread(target=target, daemon=True))
        self._threads[-1].start()


def _pass(source: socket.socket, target: socket.socket, is_unanswered: threading.Event) -> None:
    with suppress(OSError):
        while (data := source.recv(65536)) and not is_unanswered.is_set():
            target.sendall(data)
    _end(target)


def _end(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
