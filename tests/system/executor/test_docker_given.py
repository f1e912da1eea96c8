"""The settings of a container, as the kernel and the engine see them: networks, limits, and a log
that is large enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from arkqueue.model import Resources
from tests.system.executor.docker_bench import Bench
from tests.system.executor.recorder import ended

FOREVER = "echo begun; while :; do sleep 1; done"


@pytest.fixture
def network(bench: Bench) -> Iterator[str]:
    name = f"arkqueue-test-{bench.installation}"
    made = bench.api.create_network(name, driver="bridge")
    yield name
    bench.api.remove_network(made["Id"])


def test_networks_are_the_one_that_is_asked_for(bench: Bench, network: str) -> None:
    for asked in ("bridge", network):
        running, recorder = bench.start(f"ls /sys/class/net; {FOREVER}", network=asked)
        recorder.wait_for(b"begun")

        assert list(bench.inspect()["NetworkSettings"]["Networks"]) == [asked]
        assert recorder.out == b"eth0\nlo\nbegun\n"

        running.stop(0)
        ended(running)


def test_tasks_of_one_named_network_reach_each_other_and_no_other_does(bench: Bench, network: str) -> None:
    server, recorder = bench.start("echo begun; while :; do echo answer | nc -l -p 8000; done", network=network)
    recorder.wait_for(b"begun")
    address = bench.inspect()["NetworkSettings"]["Networks"][network]["IPAddress"]

    # Its port may open a moment after it has said that it begins.
    ask = f"until nc -w 60 {address} 8000; do sleep 0.05; done"
    assert bench.run(ask, attempt=2, network=network)[1].out == b"answer\n"
    assert bench.run(f"nc -w 1 {address} 8000", attempt=3, network="none")[1].out == b""

    server.stop(0)
    ended(server)


def test_limit_of_processes_holds(bench: Bench) -> None:
    fork = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 1000 & done; echo all"
    end, recorder = bench.run(fork, resources=Resources(pids=8))

    assert (end.exit_code != 0, recorder.out) == (True, b"")
    assert b"can't fork" in recorder.err


def test_limits_are_the_kernels(bench: Bench) -> None:
    script = "cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/memory.max 2>/dev/null || cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/memory/memory.limit_in_bytes"
    _, recorder = bench.run(script, resources=Resources(cpu=0.5, memory=64 << 20))

    cpu, memory = recorder.out.splitlines()
    assert (cpu.split()[0], memory) == (b"50000", b"%d" % (64 << 20))


def test_no_task_has_a_capability_that_makes_the_host_its_own(bench: Bench) -> None:
    _, recorder = bench.run("grep CapEff /proc/self/status; ls /var/run/docker.sock /dev/sda; mount -t tmpfs x /tmp")

    capabilities = int(recorder.out.split()[1], 16)
    forbidden = {"NET_ADMIN": 12, "SYS_MODULE": 16, "SYS_RAWIO": 17, "SYS_PTRACE": 19, "SYS_ADMIN": 21}
    assert [name for name, bit in forbidden.items() if capabilities >> bit & 1] == []
    assert recorder.err.count(b"No such file") == 2
    assert b"permission denied" in recorder.err.lower()


@pytest.mark.parametrize("size", [1 << 20, 1 << 30])
def test_log_of_the_engine_holds_what_is_asked_for(bench: Bench, size: int) -> None:
    running, recorder = bench.start(FOREVER, by=bench.another(log_size=size))
    recorder.wait_for(b"begun")
    log = bench.inspect()["HostConfig"]["LogConfig"]
    running.stop(0)
    ended(running)

    assert log == {"Type": "local", "Config": {"max-size": str(size), "max-file": "2", "compress": "false"}}


def test_read_only_root_leaves_the_mounts_writable(bench: Bench, tmp_path: Path) -> None:
    from arkqueue.executor import Mount

    mounts = (Mount("/here", tmp_path),)
    end, _ = bench.run("! touch /no && touch /here/yes", mounts=mounts, resources=Resources(read_only=True))

    assert end.exit_code == 0
    assert (tmp_path / "yes").exists()
