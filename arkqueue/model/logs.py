"""The logs of attempts, as task managers write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arkqueue.model.words import AttemptId, Stream


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Bytes that a task has written to one stream. ``position``: that of the first byte in the log.
    ``at``: seconds since 1970. ``before``: the line ends of the task's output before these bytes,
    with those that were left out; None: not counted.
    """

    position: int
    stream: Stream
    at: float
    data: bytes
    before: int | None = None


@dataclass(frozen=True, slots=True)
class LogAppend:
    """The next chunks of one attempt's log. ``size``: the bytes of the log up to their end, dropped
    ones included. ``stdout``, ``stderr``: the number of these from each stream of the program.
    """

    attempt: AttemptId
    chunks: Sequence[LogChunk]
    size: int
    stdout: int
    stderr: int


@dataclass(frozen=True, slots=True)
class LogCut:
    """The middle of one attempt's log, which is to be deleted: the chunks whose position is at least
    ``head`` and less than ``tail``.
    """

    attempt: AttemptId
    head: int
    tail: int
