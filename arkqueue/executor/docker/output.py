"""A container's output as bytes: splits the engine's multiplexed streams, and restores the output
from its log, byte for byte.

This module knows only bytes, no engine and no container. The module that follows a container
(``running``) calls it.

The log is the engine's own (driver ``local``), which stores lines. A line of 16384 bytes or more is
stored in parts with one time, and engines up to 20.10 lose the newline at the end of such a line.
So if a frame without a newline is followed by a frame of the same stream with another time, this
module adds the lost newline. Newer engines lose none, and nothing is added. Only at the very end of
a stream, the log does not show whether a newline is missing; then the last byte that the live
connection received decides.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from arkqueue.executor import Sink
from arkqueue.model import Stream

_HEADER = struct.Struct(">BxxxL")
_STREAMS = {0: Stream.STDOUT, 1: Stream.STDOUT, 2: Stream.STDERR}
"""The streams by their numbers; 0 would be standard input, echoed."""
_ENGINE = 3
"""The stream of the engine's own errors about a log that it cannot continue."""
KEPT = 512
"""The number of kept bytes at the end of stderr."""


class Output:
    """Hands an attempt's output to its sink, and counts it. If the sink fails, the rest of the
    output is lost, and ``failure`` says so.
    """

    def __init__(self, sink: Sink, counts: Mapping[Stream, int] | None = None) -> None:
        self._sink = sink
        self.counts = {stream: (counts or {}).get(stream, 0) for stream in (Stream.STDOUT, Stream.STDERR)}
        self.failure = ""
        self.last_error_output = b""

    def write(self, stream: Stream, data: bytes) -> None:
        if not data:
            return
        self.counts[stream] += len(data)
        if stream is Stream.STDERR:
            self.last_error_output = (self.last_error_output + data[-KEPT:])[-KEPT:]
        if not self.failure:
            try:
                self._sink.write(stream, data)
            except Exception as error:
                self.failure = f"its output from here on is lost: {error}"


class Frames:
    """Splits a multiplexed stream into frames, wherever its pieces end."""

    def __init__(self) -> None:
        self._rest = b""
        self.engine_says = ""

    @property
    def is_cut(self) -> bool:
        """Whether a frame is incomplete. If nothing more arrives, the connection broke."""
        return bool(self._rest)

    def feed(self, data: bytes) -> Iterator[tuple[Stream, bytes]]:
        """The frames that are complete now."""
        if self._rest:
            data = self._rest + data
        at = 0
        frames = []
        while len(data) - at >= _HEADER.size:
            number, size = _HEADER.unpack_from(data, at)
            begin = at + _HEADER.size
            if begin + size > len(data):
                break
            at = begin + size
            if number in _STREAMS:
                frames.append((_STREAMS[number], data[begin:at]))
            elif number == _ENGINE:
                self.engine_says = data[begin:at].decode(errors="replace").strip()
        self._rest = data[at:]
        yield from frames


def joined(frames: Iterable[tuple[Stream, bytes]]) -> Iterator[tuple[Stream, bytes]]:
    """The frames, joined into as few pieces as their order allows."""
    for stream, group in groupby(frames, key=lambda frame: frame[0]):
        yield stream, b"".join(data for _, data in group)


class LogReader:
    """Makes the bytes of both streams from the frames of the log, without the first ``skip`` of
    each stream.
    """

    def __init__(self, skip: Mapping[Stream, int]) -> None:
        self._lines = {stream: _Lines(skip[stream]) for stream in (Stream.STDOUT, Stream.STDERR)}

    def feed(self, frames: Iterable[tuple[Stream, bytes]]) -> Iterator[tuple[Stream, bytes]]:
        for stream, frame in frames:
            yield stream, self._lines[stream].feed(frame)

    def end(self, last: Mapping[Stream, bytes]) -> Iterator[tuple[Stream, bytes]]:
        """The bytes that are missing at the end, found by the last byte of each stream that a live
        connection received.
        """
        for stream, lines in self._lines.items():
            yield stream, lines.end(last.get(stream, b""))

    @property
    def is_short(self) -> bool:
        """Whether the whole log is shorter than ``skip``, so that the engine has dropped its
        beginning. Any log may lack its last newline.
        """
        return any(lines.to_skip > 1 for lines in self._lines.values())


class _Lines:
    """One stream of the log."""

    def __init__(self, skip: int) -> None:
        self.to_skip = skip
        self._time = b""
        self._is_open = False

    def feed(self, frame: bytes) -> bytes:
        time, _, text = frame.partition(b" ")
        if self._is_open and time != self._time:
            text = b"\n" + text
        self._time = time
        self._is_open = not text.endswith(b"\n")
        return self._rest_of(text)

    def end(self, last: bytes) -> bytes:
        return self._rest_of(b"\n") if self._is_open and last == b"\n" else b""

    def _rest_of(self, data: bytes) -> bytes:
        skipped = min(self.to_skip, len(data))
        self.to_skip -= skipped
        return data[skipped:]
