"""Writes the logs of attempts; no other module does. The package's docstring describes logs."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from arkqueue.errors import DatabaseUnavailable
from arkqueue.logs.overflow import Piece, Spill
from arkqueue.model import AttemptId, LogAppend, LogChunk, LogCut, Stream

log = logging.getLogger("arkqueue")

HEAD = 1 << 20
TAIL = 15 << 20
"""The bytes that are kept of a log's beginning and of its end."""
CHUNK = (64 << 10) - 64
"""The most bytes of a chunk: together with the headers of Python and the C library, 16 pages."""
TURN = 15 * CHUNK
ROWS = 1000
"""The most bytes, and the most chunks, that one iteration writes for one attempt. The connection
keeps a buffer for an iteration: 1 MiB if the iteration is shorter than that, and otherwise 2 MiB.
"""
STATEMENT = 4 << 20
"""The bytes that one statement carries."""
CUT = 1 << 20
"""The surplus of bytes at which a stored tail is shortened."""
OVERHEAD = 128
"""The bytes of memory that a chunk takes besides its data."""
INTERVAL = 0.05
"""The seconds between two iterations of the flusher. Together with the watcher's ``follow.PACE``,
they limit the delay of a line.
"""
PAUSE = 0.5
"""The seconds until the flusher tries again while the database is away."""


class LogStore(Protocol):
    """The store of one task manager's logs, for example its gateway. Both calls raise
    DatabaseUnavailable, and may be repeated.
    """

    def append_log(self, appends: Sequence[LogAppend]) -> set[AttemptId]:
        """Store the next chunks of some logs. Returns the attempts that still belong to the task
        manager.
        """

    def cut_log(self, cuts: Sequence[LogCut]) -> None:
        """Delete the middle of some logs."""


class _Pending:
    """A chunk that is not stored yet. It grows while it is the newest one."""

    __slots__ = ("at", "before", "data", "lines", "position", "stream")

    def __init__(self, position: int, before: dict[Stream, int], lines: int, stream: Stream) -> None:
        self.position, self.before, self.stream, self.at = position, before, stream, time.time()
        self.lines = lines  # the line ends of the output before the chunk
        # One buffer, instead of the pieces as they were read: each of many small pieces would cost
        # additional memory.
        self.data: bytearray | bytes | Piece = bytearray()

    def grow(self, data: bytes) -> None:
        assert isinstance(self.data, bytearray)
        self.data += data

    def close(self) -> None:
        """End the growth of the chunk. A long chunk is copied without its spare room."""
        if self.is_long:
            self.data = bytes(self.data)

    def fetch(self) -> None:
        """Read the data into memory, for sending; raises OSError if the file cannot be read."""
        self.data = bytes(self.data)

    @property
    def sent(self) -> bytes:
        """The bytes, after ``fetch``."""
        assert isinstance(self.data, bytes)
        return self.data

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def is_long(self) -> bool:
        return self.size > CHUNK // 2

    def counted(self, stream: Stream) -> int:
        """The bytes of a stream up to the end of this chunk, including dropped ones."""
        return self.before[stream] + (self.size if self.stream is stream else 0)


class LogWriter:
    """The log of one attempt; a sink for its executor. ``write`` waits for nothing but the disk,
    and for this only if more than one iteration's output is waiting.
    """

    def __init__(
        self,
        logs: Logs,
        attempt: AttemptId,
        size: int = 0,
        counted: Mapping[Stream, int] | None = None,
        lines: int = 0,
    ) -> None:
        self.attempt = attempt
        self._logs = logs
        self._lock = threading.Lock()
        self._size = size
        self._counted = dict.fromkeys(Stream, 0) | dict(counted or {})
        self._lines = lines
        self._head: deque[_Pending] = deque()
        self._tail: deque[_Pending] = deque()
        self._cost = 0  # the memory that the tail takes
        self._sending: list[_Pending] = []
        self._spill = logs.spill()
        self._putting = threading.Lock()
        self._stored, self._cut = size, 0
        self._is_discarded = False

    def write(self, stream: Stream, data: bytes) -> None:
        full: list[_Pending] = []
        with self._lock:
            if self._is_discarded:
                return
            while data:
                # No chunk crosses the border: the head is exact to the byte.
                rest = self._logs.head - self._size
                pending, part = (self._head, data[:rest]) if rest > 0 else (self._tail, data)
                data = data[self._append(pending, stream, part, full) :]
            self._drop()
        self._logs.wake()
        for chunk in full:
            self._put_away(chunk)

    def note(self, text: str) -> None:
        """Write a message of arkqueue, on a line of its own."""
        self.write(Stream.NOTE, text.encode("utf-8", "backslashreplace") + b"\n")

    def discard(self) -> None:
        """Drop the unstored chunks and accept no more: the attempt belongs to another process now."""
        with self._lock:
            self._is_discarded = True
            self._head.clear()
            self._tail.clear()
            self._sending.clear()
            self._spill = self._logs.spill()

    def _append(self, pending: deque[_Pending], stream: Stream, data: bytes, full: list[_Pending]) -> int:
        """Append some bytes to the newest chunk, or to a new one, as far as they fit. Returns their
        number. ``full``: receives the chunks to move to the file.
        """
        newest = pending[-1] if pending else None
        if newest is None or newest.stream is not stream or newest.size >= CHUNK:
            if newest is not None and newest.is_long and len(pending) * CHUNK > TURN:
                full.append(newest)
            elif newest is not None:
                newest.close()
            newest = _Pending(self._size, dict(self._counted), self._lines, stream)
            pending.append(newest)
            self._cost += OVERHEAD if pending is self._tail else 0
        data = data[: CHUNK - newest.size]
        newest.grow(data)
        self._cost += len(data) if pending is self._tail else 0
        self._size += len(data)
        self._counted[stream] += len(data)
        if stream is not Stream.NOTE:
            self._lines += data.count(b"\n")
        return len(data)

    def _put_away(self, chunk: _Pending) -> None:
        """Move a chunk to the file, without the log's lock: if the disk is slow, only this attempt
        waits, not the flusher with all logs.
        """
        if not isinstance(data := chunk.data, bytearray):
            return  # the flusher has already taken it
        with self._putting:
            piece = None if self._is_discarded else self._spill.put(data)
        with self._lock:
            if chunk.data is data:
                chunk.data = piece or bytes(data)

    def _drop(self) -> None:
        """Drop bytes that would be cut anyway once they were stored. If there are very many tiny
        chunks, also drop those that would cost too much memory.
        """
        tail = self._logs.tail
        while self._tail:
            oldest = self._tail[0]
            if oldest.position + oldest.size > self._size - tail and self._cost <= 2 * tail + CHUNK:
                break
            self._tail.popleft()
            self._cost -= oldest.size + OVERHEAD

    # Called only by ``Logs``, one call at a time.

    def take(self) -> Sequence[_Pending]:
        """The chunks to store next; the same chunks again until ``stored`` is called."""
        with self._lock:
            if self._sending:
                return tuple(self._sending)
            size = lost = 0
            fault = ""
            while size < TURN and len(self._sending) < ROWS and (pending := self._head or self._tail):
                chunk = pending[0]
                try:
                    chunk.fetch()
                    self._sending.append(chunk)
                # This leaves a gap in the log; another try would delay all logs.
                except OSError as error:
                    lost, fault = lost + chunk.size, str(error)
                pending.popleft()
                self._cost -= chunk.size + OVERHEAD if pending is self._tail else 0
                size += chunk.size
            if lost:
                log.warning("%d bytes of the log of attempt %d are lost: %s", lost, self.attempt, fault)
            return tuple(self._sending)

    def stored(self) -> None:
        with self._lock:
            if self._sending:
                self._stored = self._sending[-1].position + self._sending[-1].size
            self._sending.clear()
            if not self._head and not self._tail:
                self._spill = self._logs.spill()  # this frees the room on the disk

    def has_more(self) -> bool:
        with self._lock:
            return bool(self._sending or self._head or self._tail)

    def is_behind(self) -> bool:
        """Whether more than one iteration's output is waiting, of a log that will be kept as a
        whole.
        """
        with self._lock:
            behind = self._size - self._stored
            return not self._is_discarded and behind >= TURN and self._size <= self._logs.head + self._logs.tail

    def cut(self, *, final: bool) -> int | None:
        """The position before which the middle is to be deleted. None: it is too little for a
        statement.
        """
        with self._lock:
            to = self._stored - self._logs.tail - CHUNK
            if self._is_discarded or to - self._cut < (1 if final else CUT) or to <= self._logs.head:
                return None
            self._cut = to
            return to


class Logs:
    """The flusher of one task manager's logs, with a thread of its own between ``start`` and
    ``close``.

    ``folder``: the folder of the files for waiting output. None: the folder of temporary files.
    """

    def __init__(self, store: LogStore, head: int = HEAD, tail: int = TAIL, folder: Path | None = None) -> None:
        self.head, self.tail = head, tail
        self._store, self._folder = store, folder
        self._writers: dict[AttemptId, LogWriter] = {}
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._is_awake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="logs", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._is_awake.set()
        self._thread.join()

    def open(self, attempt: AttemptId) -> LogWriter:
        """The log of an attempt that begins."""
        return self._opened(LogWriter(self, attempt))

    def adopt(self, attempt: AttemptId, size: int, stored: Mapping[Stream, int], lines: int = 0) -> LogWriter:
        """The log of an attempt that another process began. ``size``: the bytes of it that are
        stored. ``stored``: the bytes among them of each stream. ``lines``: the line ends among them.
        """
        return self._opened(LogWriter(self, attempt, size, stored, lines))

    def _opened(self, writer: LogWriter) -> LogWriter:
        with self._lock:
            self._writers[writer.attempt] = writer
        return writer

    def forget(self, writer: LogWriter) -> None:
        """Forget the log of an attempt whose end is stored, or that belongs to another process."""
        writer.discard()
        with self._lock:
            self._writers.pop(writer.attempt, None)

    def flush(self, writers: Sequence[LogWriter]) -> None:
        """Store all waiting bytes of these logs, and cut the logs to size. Raises
        DatabaseUnavailable; nothing is lost then.
        """
        with self._flushing:
            unstored = [writer for writer in writers if writer.has_more()]
            while unstored:
                self._turn(unstored)
                unstored = [writer for writer in unstored if writer.has_more()]
            self._cut(writers, final=True)

    def spill(self) -> Spill:
        """A file for a log's waiting output, which is made when it is needed."""
        return Spill(self._folder, CHUNK)

    def wake(self) -> None:
        if not self._is_awake.is_set():
            self._is_awake.set()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._is_awake.wait()
            self._is_awake.clear()
            pause: float = INTERVAL
            try:
                with self._lock:
                    writers = list(self._writers.values())
                with self._flushing:
                    self._turn(writers)
                    self._cut(writers, final=False)
                if any(writer.has_more() for writer in writers):
                    self._is_awake.set()
                if any(writer.is_behind() for writer in writers):
                    pause = 0
            except DatabaseUnavailable:
                self._is_awake.set()
                pause = PAUSE
            except Exception:
                log.exception("logs could not be written and are tried again")
                self._is_awake.set()
                pause = PAUSE
            self._closing.wait(pause)

    def _turn(self, writers: Sequence[LogWriter]) -> None:
        """Store one iteration's output of each log, in few statements."""
        batch: list[tuple[LogWriter, Sequence[_Pending]]] = []
        size = 0
        for writer in writers:
            if chunks := writer.take():
                batch.append((writer, chunks))
                size += sum(chunk.size for chunk in chunks)
            if size >= STATEMENT:
                self._append(batch)
                batch, size = [], 0
        if batch:
            self._append(batch)

    def _append(self, batch: Sequence[tuple[LogWriter, Sequence[_Pending]]]) -> None:
        still = self._store.append_log([_as_append(writer.attempt, chunks) for writer, chunks in batch])
        for writer, _ in batch:
            if writer.attempt in still:
                writer.stored()
            else:
                writer.discard()

    def _cut(self, writers: Sequence[LogWriter], *, final: bool) -> None:
        cuts = [
            LogCut(writer.attempt, self.head, to) for writer in writers if (to := writer.cut(final=final)) is not None
        ]
        if cuts:
            self._store.cut_log(cuts)


def _as_append(attempt: AttemptId, chunks: Sequence[_Pending]) -> LogAppend:
    """The call that stores some chunks. The chunks are in memory and do not grow any more, so their
    data is not copied.
    """
    last = chunks[-1]
    return LogAppend(
        attempt,
        [LogChunk(chunk.position, chunk.stream, chunk.at, chunk.sent, chunk.lines) for chunk in chunks],
        last.position + last.size,
        last.counted(Stream.STDOUT),
        last.counted(Stream.STDERR),
    )
