"""Reads the output of other programs, up to a limit of bytes and of time: a stranger's content may
make a program print without end.
"""

from __future__ import annotations

import math
import os
import select
import subprocess
import time
from collections.abc import Sequence
from typing import IO, Any

_PIECE = 2**18
"""The most bytes that are read at once."""


class LongOutput(Exception):
    """A program has more output than its caller reads."""


def read_outputs(*pipes: IO[bytes], longest: int, until: float = math.inf) -> list[bytes]:
    """All that programs write to some pipes. Raises `LongOutput` if it has more than ``longest``
    bytes, and `TimeoutError` if it does not end before ``until``, by `time.monotonic`.
    """
    found = {pipe.fileno(): bytearray() for pipe in pipes}
    poll = select.poll()
    for pipe in found:
        poll.register(pipe, select.POLLIN)
    left, size = len(found), 0
    while left:
        ready = poll.poll(None if until == math.inf else max(0.0, until - time.monotonic()) * 1000)
        if not ready:
            raise TimeoutError
        for pipe, _ in ready:
            piece = os.read(pipe, _PIECE)
            size += len(piece)
            if size > longest:
                raise LongOutput
            found[pipe] += piece
            if not piece:
                poll.unregister(pipe)
                left -= 1
    return [bytes(one) for one in found.values()]


def run_limited(
    command: Sequence[str], *, longest: int, timeout: float = math.inf, **options: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run a program without input. Raises `LongOutput` if its output and its messages have more than
    ``longest`` bytes together, and `TimeoutError` if it takes longer than ``timeout`` (seconds), and
    kills the program then. ``options``: as for `subprocess.Popen`.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, **options) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        until = time.monotonic() + timeout
        try:
            out, err = read_outputs(process.stdout, process.stderr, longest=longest, until=until)
            code = process.wait(None if until == math.inf else max(0.0, until - time.monotonic()))
        except BaseException as error:
            process.kill()
            if isinstance(error, subprocess.TimeoutExpired):
                raise TimeoutError from None
            raise
    return subprocess.CompletedProcess(command, code, out, err)
