"""The resource usage of containers, sampled from a real engine while they run: a lower bound, or
nothing without a sample.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from arkqueue.executor.docker import samples
from arkqueue.executor.docker.cgroup import cgroup_of
from arkqueue.executor.docker.executor import DockerRunning
from arkqueue.executor.docker.samples import usage_of
from arkqueue.model import Resources, Usage
from tests.system.executor.docker_bench import Bench
from tests.system.executor.recorder import Recorder, ended
from tests.system.executor.relay import Relay
from tests.waiting import PATIENCE, eventually

FILL = "held=$(head -c 20000000 /dev/zero | tr '\\0' x); "
BURN = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; "
WAIT = "until [ -e /go ]; do sleep 0.1; done; "
FOREVER = "echo begun; while :; do sleep 1; done"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "FIRST", 0.1)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is on another host, as far as its containers' cgroups go."""
    monkeypatch.setattr(samples, "cgroup_of", lambda _pid, _container: None)


@pytest.fixture(params=["here", "elsewhere"])
def place(request: pytest.FixtureRequest, bench: Bench) -> str:
    """Where the figures are read from: the cgroup on this host, or the engine."""
    if request.param == "elsewhere":
        request.getfixturevalue("elsewhere")
    else:
        # Whoever asks the engine does not read the cgroup.
        bench.executor._engine.stats = None  # type: ignore[method-assign, assignment]
    return str(request.param)


def sampled(running: DockerRunning) -> Usage | None:
    """The newest figures while it runs."""
    # They are nobody's business before the end; here it must not come before they are there.
    found = running._samples._sampled.get(running._container)
    return None if found is None else found.newest


def go(bench: Bench) -> None:
    """Let a container that waits go on."""
    bench.api.exec_start(bench.api.exec_create(bench.inspect()["Id"], ["touch", "/go"]))


@pytest.mark.usefixtures("place")
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


@pytest.mark.usefixtures("elsewhere")
def test_an_engine_that_does_not_answer_costs_the_figures_alone(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "TIMEOUT", 0.2)
    relay = Relay(tmp_path / "relay.sock", bench.url)
    try:
        executor = bench.another(url=relay.url)
        relay.hold(b"/stats")
        running, recorder = bench.start(f"echo begun; {WAIT}exit 3", by=executor)
        recorder.wait_for(b"begun")
        assert relay.has_held.wait(PATIENCE)
        go(bench)
        end = ended(running)
        executor.close()
    finally:
        relay.close()
    assert (end.exit_code, end.message, end.usage) == (3, "", None)


@pytest.mark.usefixtures("elsewhere")
def test_an_engine_that_is_is_too_old_is_not_asked(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()
    # No engine of before 1.41 can be had: the client says that this one is.
    engine = bench.executor._engine
    real = engine.stats

    def told(container: str, timeout: float) -> dict[str, Any]:
        with engine.calls() as api:
            monkeypatch.setattr(api, "_version", "1.40")  # what the client says of the engine
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


ID = "5ac5" * 16
FILES = {
    1: {
        "cpuacct": {"cpuacct.usage": "1500000000\n"},
        "memory": {"memory.usage_in_bytes": "9000000\n", "memory.stat": "cache 5\ntotal_inactive_file 4000000\n"},
    },
    2: {
        "": {
            "cpu.stat": "usage_usec 1500000\nuser_usec 1\n",
            "memory.current": "9000000\n",
            "memory.stat": "anon 5\ninactive_file 4000000\n",
        }
    },
}


@pytest.mark.parametrize("version", [1, 2])
def test_files_of_both_versions_of_cgroups_are_read(tmp_path: Path, version: int) -> None:
    lines = []
    for number, (controllers, files) in enumerate(FILES[version].items()):
        folder = tmp_path / controllers / "system.slice" / f"docker-{ID}.scope"
        folder.mkdir(parents=True)
        lines.append(f"{number}:{controllers}:/system.slice/docker-{ID}.scope\n")
        for name, text in files.items():
            (folder / name).write_text(text)
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text("".join(lines))

    found = cgroup_of(7, ID, tmp_path, tmp_path)

    assert found is not None
    assert found.usage() == Usage(1.5, 5_000_000, sampled=True)
    assert cgroup_of(7, "ffff" * 16, tmp_path, tmp_path) is None, "the number is another container's here"
    assert cgroup_of(8, ID, tmp_path, tmp_path) is None, "no process of this host has the number"
    (found.memory / "memory.stat").unlink()
    assert found.usage() is None, "the container has ended"


def test_what_an_engine_says_of_both_versions_of_cgroups_is_read() -> None:
    def stats(**memory: Any) -> dict[str, Any]:
        return {"cpu_stats": {"cpu_usage": {"total_usage": 1_500_000_000}}, "memory_stats": memory}

    assert usage_of(stats(usage=9_000_000, stats={"total_inactive_file": 4_000_000})) == Usage(1.5, 5_000_000, True)
    assert usage_of(stats(usage=9_000_000, stats={"inactive_file": 3_000_000})) == Usage(1.5, 6_000_000, True)
    assert usage_of(stats()) == Usage(1.5, None, True), "a kernel that does not count memory"
    assert usage_of({"cpu_stats": {"cpu_usage": {"total_usage": 0}}, "memory_stats": {}}) is None, "it has ended"
    assert usage_of({}) is None
    assert usage_of(stats(usage=(1 << 64) - 1)) == Usage(1.5, None, True), "a kernel that counted below zero"
