"""What containers used: sampled from a real engine while they run, a lower bound, and nothing where there is no sample."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from arkqueue.executor.docker import samples
from arkqueue.executor.docker.executor import DockerRunning
from arkqueue.executor.docker.samples import usage_of
from arkqueue.model import Resources, Usage
from tests.system.executor.docker_bench import Bench
from tests.system.executor.recorder import Recorder, ended
from tests.waiting import eventually

FILL = "held=$(head -c 20000000 /dev/zero | tr '\\0' x); "
BURN = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; "
WAIT = "until [ -e /go ]; do sleep 0.1; done; "
FOREVER = "echo begun; while :; do sleep 1; done"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "FIRST", 0.1)


def sampled(running: DockerRunning) -> Usage | None:
    """The newest figures while it runs."""
    # They are nobody's business before the end; here it must not come before they are there.
    return running._samples._newest.get(running._container)


def go(bench: Bench) -> None:
    """Let a container that waits go on."""
    bench.api.exec_start(bench.api.exec_create(bench.inspect()["Id"], ["touch", "/go"]))


def test_a_container_that_ends_has_the_figures_of_its_last_sample(bench: Bench) -> None:
    running, recorder = bench.start(f"{FILL}{BURN}{FOREVER}")
    recorder.wait_for(b"begun")
    before = sampled(running)
    eventually(lambda: sampled(running) not in (None, before))
    running.stop(0)

    usage = ended(running).usage

    assert usage is not None
    assert usage.sampled
    assert 0.05 < usage.processor_seconds < 60
    assert usage.peak_memory_bytes is not None
    assert 20_000_000 < usage.peak_memory_bytes < 200_000_000


def test_a_peak_that_was_seen_stays_when_the_memory_was_given_back(bench: Bench) -> None:
    running, recorder = bench.start(f"({FILL}echo full; {WAIT}); {FOREVER}")
    recorder.wait_for(b"full")
    eventually(lambda: (found := sampled(running)) is not None and (found.peak_memory_bytes or 0) > 20_000_000)
    go(bench)
    recorder.wait_for(b"begun")
    before = sampled(running)
    eventually(lambda: sampled(running) != before)
    running.stop(0)

    usage = ended(running).usage
    assert usage is not None
    assert (usage.peak_memory_bytes or 0) > 20_000_000


def test_a_short_container_has_none(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "FIRST", 60)
    end, _ = bench.run("exit 3")
    assert (end.exit_code, end.usage) == (3, None)


def test_the_next_task_manager_has_the_figures_of_the_whole_container(bench: Bench) -> None:
    running, recorder = bench.start(f"{BURN}{FOREVER}")
    recorder.wait_for(b"begun")
    running.leave()
    assert ended(running).left

    after = Recorder()
    adopted = bench.another().adopt(bench.program("x").attempt, after, recorder.counts)
    eventually(lambda: sampled(adopted) is not None)
    adopted.stop(0)

    usage = ended(adopted).usage
    assert usage is not None
    assert usage.processor_seconds > 0.05, "what it had used before is counted, too"


def test_a_container_that_ran_out_of_memory_says_so_and_what_was_seen_of_it(bench: Bench) -> None:
    running, recorder = bench.start(f"echo begun; {WAIT}tail /dev/zero", resources=Resources(memory=16 << 20))
    recorder.wait_for(b"begun")
    eventually(lambda: sampled(running) is not None)
    go(bench)

    end = ended(running)

    assert end.exit_code == 137
    assert "ran out of memory: its limit is 16 MiB" in end.message
    assert end.usage is not None
    assert 0 < (end.usage.peak_memory_bytes or 0) <= 16 << 20


def test_an_engine_that_is_too_old_or_does_not_answer_costs_the_figures_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Event()
    # No engine of before 1.41 can be had: the client says that this one is.
    engine = bench.executor._engine
    real = engine.stats

    def told(container: str, timeout: float) -> dict[str, Any]:
        with engine.calls() as api:
            monkeypatch.setattr(api, "_version", "1.40")
        found = real(container, timeout)
        assert found == {}
        asked.set()
        return found

    monkeypatch.setattr(engine, "stats", told)
    running, recorder = bench.start(FOREVER)
    recorder.wait_for(b"begun")
    eventually(asked.is_set)
    running.stop(0)

    end = ended(running)
    assert (end.exit_code, end.message, end.usage) == (137, "", None)


def test_one_thread_asks_for_all_containers(bench: Bench) -> None:
    def threads() -> int:
        return sum(thread.name == "container samples" for thread in threading.enumerate())

    before = threads()
    both = [bench.start(FOREVER, attempt=attempt)[0] for attempt in (1, 2)]
    eventually(lambda: all(sampled(one) for one in both))
    assert threads() == before + 1
    for one in both:
        one.stop(0)
    assert all(ended(one).usage for one in both)
    bench.executor.close()
    assert threads() == before


def test_figures_of_both_versions_of_cgroups_are_read() -> None:
    def stats(**memory: Any) -> dict[str, Any]:
        return {"cpu_stats": {"cpu_usage": {"total_usage": 1_500_000_000}}, "memory_stats": memory}

    assert usage_of(stats(usage=9_000_000, stats={"total_inactive_file": 4_000_000})) == Usage(1.5, 5_000_000, True)
    assert usage_of(stats(usage=9_000_000, stats={"inactive_file": 3_000_000})) == Usage(1.5, 6_000_000, True)
    assert usage_of(stats()) == Usage(1.5, None, True), "a kernel that does not count memory"
    assert usage_of({"cpu_stats": {"cpu_usage": {"total_usage": 0}}, "memory_stats": {}}) is None, "it has ended"
    assert usage_of({}) is None
