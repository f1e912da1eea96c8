"""The resources that an attempt used, in words, for the command line and the pages. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable


def usage_in_words(processor_seconds: float | None, peak_memory_bytes: int | None, sampled: bool | None) -> str:
    """The words for the figures of ``model.Usage``:
    ``0.8 s of processor time, at most 54 MiB of memory in one process``. Empty if nothing is known.
    """
    if processor_seconds is None:
        return ""
    processor = f"{_seconds(processor_seconds)} of processor time"
    if sampled:
        memory = f" and {size_in_words(peak_memory_bytes, math.floor)} of memory" if peak_memory_bytes else ""
        return f"at least {processor}{memory}"
    return processor + (
        f", at most {size_in_words(peak_memory_bytes, math.ceil)} of memory in one process" if peak_memory_bytes else ""
    )


def usage_of_run_in_words(
    attempts: int, processor_seconds: float, peak_memory_bytes: int | None, *, is_all: bool
) -> str:
    """The words for the resources that attempts used together:
    ``9.1 s of processor time in 3 attempts, at most 54 MiB of memory in one process``. ``is_all``:
    True if the figures include everything that they used.
    """
    least = "" if is_all else "at least "
    words = (
        f"{least}{_seconds(processor_seconds)} of processor time in {attempts:,} attempt{'s' if attempts != 1 else ''}"
    )
    if peak_memory_bytes is None:
        return words
    if is_all:
        return f"{words}, at most {size_in_words(peak_memory_bytes, math.ceil)} of memory in one process"
    return f"{words}, at least {size_in_words(peak_memory_bytes, math.floor)} of memory in one of them"


def _seconds(seconds: float) -> str:
    if seconds < 0.1:
        return f"{seconds * 1000:.0f} ms"
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.1f} s"


def size_in_words(size: int, rounded: Callable[[float], int]) -> str:
    """A size in MiB, or in tenths of a GiB."""
    if size < 1 << 30:
        return f"{rounded(size / (1 << 20))} MiB"
    return f"{rounded(size * 10 / (1 << 30)) / 10:,.1f} GiB"
