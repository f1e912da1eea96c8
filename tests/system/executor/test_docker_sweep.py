"""The next executor removes everything that a killed executor has left, except attempts. It touches
nothing else.
"""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.system.executor.docker_bench import Bench
from tests.system.executor.recorder import ended

KILLED = """
import os, sys
from arkqueue.executor.docker.executor import DockerExecutor
executor = DockerExecutor(sys.argv[1], "bench", sys.argv[2])
with executor._images._empty_image() as image, executor._images._made(image, {}):
    os.kill(os.getpid(), 9)
"""


def test_probe_of_a_killed_executor_is_swept(bench: Bench) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, bench.installation, bench.url], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(bench.left()) == 2, "the probe's container and its image"

    bench.executor.sweep()

    assert bench.left() == []


def test_sweep_touches_no_attempt_no_other_installation_and_nothing_unlabelled(bench: Bench) -> None:
    running, recorder = bench.start("echo begun; while :; do sleep 1; done")
    recorder.wait_for(b"begun")
    errand = {"arkqueue.installation": bench.installation, "arkqueue.host": bench.host, "arkqueue.errand": "somebody's"}
    strangers = [{}, errand | {"arkqueue.installation": "other"}, errand | {"arkqueue.host": "other"}]
    made = [bench.api.create_container(bench.image, "true", labels=labels)["Id"] for labels in (*strangers, errand)]
    try:
        bench.another().sweep()

        there = [one["Id"] for one in bench.api.containers(all=True)]
        assert [id in there for id in made] == [True, True, True, False]
        assert [one.is_running for one in bench.executor.found()] == [True]
    finally:
        for id in made[:-1]:
            bench.api.remove_container(id)
    running.stop(0)
    ended(running)
