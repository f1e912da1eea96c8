"""The output of programs that print without end, or not at all."""

from __future__ import annotations

import pytest

from arkqueue.runtime.output import LongOutput, run_limited


def test_a_program_is_run_to_its_end() -> None:
    done = run_limited(["sh", "-c", "cat; echo out; echo err >&2; exit 3"], longest=8, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == (b"out\n", b"err\n", 3)


@pytest.mark.parametrize("script", ["exec yes", "exec yes >&2", "echo out; echo more >&2; exec sleep 60"])
def test_a_program_is_ended_when_it_has_printed_more_than_is_read(script: str) -> None:
    with pytest.raises(LongOutput):
        run_limited(["sh", "-c", script], longest=8)


@pytest.mark.parametrize("script", ["exec sleep 60", "exec sleep 60 >&- 2>&-"])
def test_a_program_is_ended_when_its_time_is_over(script: str) -> None:
    with pytest.raises(TimeoutError):
        run_limited(["sh", "-c", script], longest=8, timeout=0.05)
