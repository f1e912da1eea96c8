"""The words for what an attempt used."""

from __future__ import annotations

import pytest

from arkqueue.usage import usage_in_words, usage_of_run_in_words

MIB = 1 << 20


@pytest.mark.parametrize(
    ("processor", "memory", "sampled", "words"),
    [
        (0.81, 53.2 * MIB, False, "0.8 s of processor time, at most 54 MiB of memory in one process"),
        (3.24, 104.9 * MIB, True, "at least 3.2 s of processor time and 104 MiB of memory"),
        (0.0041, 9.5 * MIB, False, "4 ms of processor time, at most 10 MiB of memory in one process"),
        (119.0, 1.25 * 1024 * MIB, False, "119.0 s of processor time, at most 1.3 GiB of memory in one process"),
        (150.0, 1.25 * 1024 * MIB, True, "at least 2.5 min of processor time and 1.2 GiB of memory"),
        (9_000_000.0, None, False, "2,500.0 h of processor time"),
        (3.2, None, True, "at least 3.2 s of processor time"),
        (None, None, None, ""),
    ],
)
def test_words_say_what_is_an_upper_and_what_a_lower_bound(
    processor: float | None, memory: float | None, sampled: bool | None, words: str
) -> None:
    assert usage_in_words(processor, None if memory is None else int(memory), sampled) == words


def test_words_of_a_run_say_whether_they_are_all() -> None:
    assert usage_of_run_in_words(3, 9.1, 53 * MIB, is_all=True) == (
        "9.1 s of processor time in 3 attempts, at most 53 MiB of memory in one process"
    )
    assert usage_of_run_in_words(1, 9.1, 53 * MIB, is_all=False) == (
        "at least 9.1 s of processor time in 1 attempt, at least 53 MiB of memory in one of them"
    )
    assert usage_of_run_in_words(1200, 7200.0, None, is_all=True) == "2.0 h of processor time in 1,200 attempts"
