"""A container that wrote more than the engine keeps. The adopting process reports that output is
lost, and has the container's exit code.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from arkqueue.executor import Mount
from arkqueue.model import AttemptId
from tests.system.executor.docker_bench import Bench, a_bench
from tests.system.executor.recorder import ended

MUCH = f"yes {'y' * 499} | head -n 16000; echo all"
"""More than the engine keeps here, in few lines: it keeps each by itself."""


@pytest.fixture
def bench(engine: docker.APIClient, engine_url: str, busybox: str) -> Iterator[Bench]:
    with a_bench(engine, engine_url, busybox, log_size=1 << 20) as made:
        yield made
        assert made.left() == []


def test_adoption_says_that_the_log_was_cut(bench: Bench, tmp_path: Path) -> None:
    text = f"{MUCH}; until [ -e /data/go ]; do sleep 0.05; done; echo end; exit 4"
    running, recorder = bench.start(text, mounts=(Mount("/data", tmp_path),))
    recorder.wait_for(b"\nall\n")
    running.leave()
    assert ended(running).left

    adopted = bench.another().adopt(AttemptId(1), recorder, recorder.counts)
    (tmp_path / "go").touch()

    end = ended(adopted)
    assert (end.exit_code, end.lost) == (4, False)
    assert end.message.startswith("some of its output is lost: the engine's log was cut")


def test_log_that_was_not_cut_is_not_said_to_be(bench: Bench) -> None:
    running, recorder = bench.start(f"{MUCH}; sleep 1000")
    recorder.wait_for(b"\nall\n")
    running.stop(0)

    assert ended(running).message == ""
