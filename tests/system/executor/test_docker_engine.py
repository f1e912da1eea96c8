"""An engine that is stopped, killed, frozen or full while containers run: each test has one of its
own.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from arkqueue.errors import ExecutorError
from arkqueue.executor import Ended
from arkqueue.executor.docker.executor import EngineUnavailable
from arkqueue.model import AttemptId
from tests.engine import OwnEngine, busybox_files, client, import_image
from tests.system.executor.docker_bench import Bench
from tests.system.executor.recorder import ended
from tests.waiting import eventually

FOREVER = "echo begun; while :; do sleep 1; done"


@pytest.fixture
def stage(own_engine: Callable[..., OwnEngine]) -> Iterator[Callable[..., tuple[OwnEngine, Bench]]]:
    """Starts an engine with an image, and a bench on it."""
    with ExitStack() as opened:

        def start(prepare: Callable[[Path], None] = lambda _folder: None, **options: object) -> tuple[OwnEngine, Bench]:
            engine = own_engine(prepare)
            api = client(engine.url)
            opened.callback(api.close)
            image = import_image(api, "busybox", busybox_files(), [], "own")
            bench = Bench(api, engine.url, image, **options)
            opened.callback(bench.close_executors)
            return engine, bench

        yield start


Stage = Callable[..., tuple[OwnEngine, Bench]]


def test_engine_that_is_restarted_loses_the_task(stage: Stage) -> None:
    engine, bench = stage()
    running, recorder = bench.start(FOREVER)
    recorder.wait_for(b"begun")

    engine.stop()
    engine.start()

    end = ended(running)
    assert end.lost
    assert not end.stopped
    assert "Docker engine" in end.message
    assert recorder.out == b"begun\n"
    for one in bench.executor.found():
        bench.executor.remove(one.attempt)
    assert bench.left() == []


@pytest.mark.full
def test_engine_that_crashes_loses_the_task_but_no_output(stage: Stage) -> None:
    engine, bench = stage()
    running, recorder = bench.start("i=0; while :; do i=$((i + 1)); echo $i; sleep 0.01; done")
    recorder.wait_for(b"\n20\n")

    engine.kill()
    engine.start()

    end = ended(running)
    assert end.lost
    assert "went away or was restarted" in end.message
    numbers = recorder.out.split()
    assert numbers == [b"%d" % number for number in range(1, len(numbers) + 1)]
    assert bench.executor.found() == []
    assert bench.run("exit 3", attempt=2)[0] == Ended(3, stopped=False)


@pytest.mark.full
def test_engine_that_does_not_come_back_loses_the_task(stage: Stage) -> None:
    engine, bench = stage(patience=0.5)
    running, recorder = bench.start(FOREVER)
    recorder.wait_for(b"begun")

    engine.kill()

    end = ended(running)
    assert end.lost
    assert end.message.startswith("the Docker engine said nothing of it for")
    with pytest.raises(EngineUnavailable):
        bench.start("true", attempt=2)
    engine.start()
    assert [one.attempt for one in bench.executor.found()] == [1]
    bench.executor.remove(AttemptId(1))
    assert bench.left() == []


@pytest.mark.full
def test_task_that_is_stopped_while_the_engine_is_away_is_gone_when_it_is_back(stage: Stage) -> None:
    engine, bench = stage()
    running, recorder = bench.start(f"trap '' TERM; {FOREVER}")
    recorder.wait_for(b"begun")

    engine.kill()
    running.stop(0.1)
    eventually(lambda: running._signaled)  # the next engine may end the container by itself
    engine.start()

    end = ended(running)
    assert end.stopped
    assert not end.lost
    assert bench.left() == []


def test_engine_that_hangs_for_a_while_changes_nothing(stage: Stage) -> None:
    engine, bench = stage()
    running, recorder = bench.start(FOREVER)
    recorder.wait_for(b"begun")

    engine.freeze()
    running.stop(0.1)
    assert running.wait(0) is None
    engine.thaw()

    assert ended(running).stopped


def test_engine_that_hangs_from_the_start_holds_up_nobody_for_long(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, bench = stage()
    engine.freeze()
    other = bench.another()
    with monkeypatch.context() as patched:
        patched.setattr("arkqueue.executor.docker.engine.FIRST_ANSWER", 0.1)
        with pytest.raises(EngineUnavailable, match="timed out"):
            other.found()
    engine.thaw()
    assert other.found() == []


@pytest.mark.full
def test_engine_that_keeps_containers_alive_keeps_the_task(stage: Stage) -> None:
    def live_restore(folder: Path) -> None:
        (folder / "daemon.json").write_text('{"live-restore": true}')

    engine, bench = stage(live_restore)
    running, recorder = bench.start("i=0; while [ $i -lt 300 ]; do i=$((i + 1)); echo $i; sleep 0.01; done; exit 4")
    recorder.wait_for(b"\n20\n")
    # The engine loses a line that it has read and not yet written
    # when it stops; so ours is compared with what it has kept.
    (log,) = engine.folder.glob("data/containers/*/local-logs/container.log")
    with log.open("rb") as kept:
        engine.stop()
        engine.start()

        assert ended(running) == Ended(4, stopped=False)
        lines = recorder.out.split()
        # Each entry has its line behind the tag of a field and a length.
        assert lines == re.findall(rb"\x1a[\x01-\x03]([0-9]{1,3})(?![0-9])", kept.read())
    assert lines[-1] == b"300"
    assert len(lines) > 290


@pytest.mark.full
def test_full_disk_is_said_and_the_next_task_runs(stage: Stage) -> None:
    def small_disk(folder: Path) -> None:
        (folder / "data").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", folder / "data"], check=True)

    _, bench = stage(small_disk)
    filler, recorder = bench.start(
        "cat /dev/zero >/full; echo $?; trap 'rm /full; exit 5' TERM; echo begun; while :; do sleep 1; done"
    )
    recorder.wait_for(b"1\nbegun")
    assert b"No space left on device" in recorder.err

    with pytest.raises(ExecutorError) as raised:
        bench.start("true", attempt=2)

    assert (raised.value.thing, raised.value.remedy) == ("Docker engine", "Free space on it")
    assert "its disk is full" in raised.value.fault
    filler.stop(3600)
    assert ended(filler) == Ended(5, stopped=True)
    assert bench.run("exit 3", attempt=3)[0] == Ended(3, stopped=False)
    assert bench.left() == []
