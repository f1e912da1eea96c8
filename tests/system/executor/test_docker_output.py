"""Output of containers, byte for byte: live, after a connection that broke, and for a task manager
that comes later.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import time as now
from typing import Any

import pytest

from arkqueue.executor import Ended, Mount
from arkqueue.executor.docker.engine import Engine
from arkqueue.executor.docker.output import KEPT, Frames, LogReader, Output
from arkqueue.model import AttemptId, Stream
from tests.system.executor.docker_bench import Bench
from tests.system.executor.recorder import Recorder, ended
from tests.system.executor.relay import Relay
from tests.waiting import PATIENCE

MB = 1_000_000


def awkward_bytes() -> bytes:
    """What line-keeping logs stumble over: long lines around their limit, empty ones, every byte, no end of line at the end."""
    chance = random.Random(1)
    lengths = [0, 0, 1, 16383, 16384, 16385, 20000, 32767, 32768, 32769, 49152, 70000, 0, 5]
    lines = [bytes(chance.choices([b for b in range(256) if b != 10], k=length)) for length in lengths]
    noise = chance.randbytes(300_000)
    return b"\n".join([*lines, noise, *reversed(lines), b"x" * 16384, b"", b"y" * 40000])


class Task:
    """A container that writes a file in two halves, the second when it is told to."""

    def __init__(self, bench: Bench, folder: Path, data: bytes) -> None:
        self.bench, self.folder, self.data = bench, folder, data
        (folder / "first").write_bytes(data[: len(data) // 2])
        (folder / "second").write_bytes(data[len(data) // 2 :])
        self.mounts = (Mount("/data", folder),)
        self.command = (
            "cat /data/first; until [ -e /data/go ]; do rm /data/say 2>/dev/null && echo -n said >&2; sleep 0.05; done;"
            " cat /data/second; echo -n end >&2; exit 9"
        )

    def has_written_half(self, recorder: Recorder) -> None:
        with recorder.changed:
            assert recorder.changed.wait_for(lambda: len(recorder.out) >= len(self.data) // 2, PATIENCE)

    def go(self) -> None:
        (self.folder / "go").touch()


@pytest.fixture
def task(bench: Bench, tmp_path: Path) -> Task:
    folder = tmp_path / "data"
    folder.mkdir()
    return Task(bench, folder, awkward_bytes())


def test_streams_are_kept_apart(bench: Bench) -> None:
    _, recorder = bench.run("for i in 1 2 3; do echo out $i; echo err $i >&2; done")

    assert recorder.out == b"out 1\nout 2\nout 3\n"
    assert recorder.err == b"err 1\nerr 2\nerr 3\n"


def test_output_comes_while_the_task_runs(bench: Bench) -> None:
    running, recorder = bench.start("echo -n first; while :; do sleep 1; done")

    recorder.wait_for(b"first")

    running.stop(0)
    ended(running)


def test_binary_output_is_exact(task: Task) -> None:
    task.go()
    end, recorder = task.bench.run(task.command, mounts=task.mounts)

    assert (end, recorder.out, recorder.err) == (Ended(9, stopped=False), task.data, b"end")


@pytest.mark.full
def test_two_hundred_megabytes_are_exact_when_the_task_has_ended(bench: Bench) -> None:
    class Digest:
        def __init__(self) -> None:
            self.bytes, self.hash = 0, hashlib.md5()

        def write(self, stream: Stream, data: bytes) -> None:
            assert stream is Stream.STDOUT
            self.bytes += len(data)
            self.hash.update(data)

    digest = Digest()
    line = b"0123456789abcdef" * 16
    end, _ = bench.run(f"yes {line.decode()} | head -c {200 * MB}", sink=digest)

    assert end == Ended(0, stopped=False)
    assert digest.bytes == 200 * MB
    assert digest.hash.hexdigest() == hashlib.md5(((line + b"\n") * (200 * MB // 257 + 1))[: 200 * MB]).hexdigest()


def test_slow_sink_holds_up_only_its_own_task(bench: Bench) -> None:
    release = threading.Event()

    class Stuck(Recorder):
        def write(self, stream: Stream, data: bytes) -> None:
            assert release.wait(PATIENCE)
            super().write(stream, data)

    line = b"y" * 249  # the engine keeps each line by itself
    stuck, slow = bench.start(f"yes {line.decode()} | head -c {8 * MB}", sink=Stuck(), attempt=1)

    end, recorder = bench.run("echo quick", attempt=2)

    assert (end, recorder.out) == (Ended(0, stopped=False), b"quick\n")
    assert stuck.wait(0) is None
    release.set()
    assert ended(stuck) == Ended(0, stopped=False)
    assert slow.out == (line + b"\n") * (8 * MB // 250)


def test_sink_that_fails_is_told_and_the_task_goes_on(bench: Bench) -> None:
    class Broken:
        def write(self, stream: Stream, data: bytes) -> None:  # noqa: ARG002 (the sink's interface)
            raise OSError("the database is gone")

    end, _ = bench.run("echo one; sleep 0.1; echo two; exit 6", sink=Broken())

    assert end == Ended(6, stopped=False, message="its output from here on is lost: the database is gone")


def test_task_that_closes_its_output_is_waited_for(bench: Bench, tmp_path: Path) -> None:
    end, recorder = bench.run(
        "echo before; exec >&- 2>&-; sleep 2; touch /data/late; exit 5", mounts=(Mount("/data", tmp_path),)
    )

    assert (end, recorder.out) == (Ended(5, stopped=False), b"before\n")
    assert (tmp_path / "late").exists()


def test_broken_connection_is_taken_up_at_the_right_byte(task: Task, tmp_path: Path) -> None:
    relay = Relay(tmp_path / "relay.sock", task.bench.url)
    try:
        running, recorder = task.bench.start(task.command, mounts=task.mounts, by=task.bench.another(url=relay.url))
        task.has_written_half(recorder)

        assert relay.cut(b"/attach") == 1
        task.go()

        assert ended(running) == Ended(9, stopped=False)
        assert (recorder.out, recorder.err) == (task.data, b"end")
    finally:
        relay.close()


@pytest.mark.full
def test_connection_that_breaks_again_and_again_loses_nothing(task: Task, tmp_path: Path) -> None:
    relay = Relay(tmp_path / "relay.sock", task.bench.url)
    try:
        command = "for i in $(seq 60); do echo -n line $i; cat /data/first; done; exit 9"
        running, recorder = task.bench.start(command, mounts=task.mounts, by=task.bench.another(url=relay.url))
        for number in (b"line 5", b"line 20", b"line 40"):  # the later ones while the log is read
            recorder.wait_for(number)
            assert relay.cut(b"/attach") + relay.cut(b"/logs") >= 1

        assert ended(running) == Ended(9, stopped=False)
        half = task.data[: len(task.data) // 2]
        assert recorder.out == b"".join(b"line %d" % i + half for i in range(1, 61))
    finally:
        relay.close()


class TestAdoption:
    def test_output_goes_on_where_it_was_left(self, task: Task) -> None:
        first, recorder = task.bench.start(task.command, mounts=task.mounts)
        task.has_written_half(recorder)
        first.leave()
        assert ended(first) == Ended(None, stopped=False, left=True)

        second = task.bench.another().adopt(AttemptId(1), recorder, recorder.counts)
        task.go()

        assert ended(second) == Ended(9, stopped=False)
        assert (recorder.out, recorder.err) == (task.data, b"end")

    @pytest.mark.parametrize("kept", [0, 1, 16384, 16385, 100_000])
    def test_what_ended_meanwhile_is_complete(self, task: Task, kept: int) -> None:
        first, recorder = task.bench.start(task.command, mounts=task.mounts)
        task.has_written_half(recorder)
        first.leave()
        ended(first)
        task.go()
        task.bench.api.wait(task.bench.inspect()["Id"])

        rest = Recorder()
        second = task.bench.another().adopt(AttemptId(1), rest, {Stream.STDOUT: kept, Stream.STDERR: 1})

        assert ended(second) == Ended(9, stopped=False)
        assert (rest.out, rest.err) == (task.data[kept:], b"nd")

    def test_last_newline_of_a_long_line_is_not_lost(self, bench: Bench, tmp_path: Path) -> None:
        line = b"z" * 16384 + b"\n"
        folder = tmp_path / "data"
        folder.mkdir()
        task = Task(bench, folder, line * 4)
        first, recorder = bench.start(task.command, mounts=task.mounts)
        task.has_written_half(recorder)
        first.leave()
        ended(first)
        with _attachments(bench) as attached:
            second = bench.another().adopt(AttemptId(1), recorder, recorder.counts)
            next(attached)
        # The engine reports a connection a moment before it feeds it. Once a later one has received
        # something, the one of the adopting executor would have, too.
        engine = Engine(bench.url)
        with closing(engine), closing(engine.attach(bench.inspect()["Id"])) as later:
            (folder / "say").touch()
            assert b"said" in next(iter(later))

        task.go()

        assert ended(second) == Ended(9, stopped=False)
        assert recorder.out == line * 4

    def test_what_is_adopted_can_be_stopped(self, bench: Bench) -> None:
        first, recorder = bench.start("trap '' TERM; echo begun; while :; do sleep 1; done")
        recorder.wait_for(b"begun")
        first.leave()
        ended(first)
        second = bench.another().adopt(AttemptId(1), recorder, recorder.counts)

        second.stop(0.1)

        assert ended(second) == Ended(137, stopped=True)
        assert recorder.out == b"begun\n"

    def test_what_is_adopted_can_be_left_again(self, bench: Bench) -> None:
        running, recorder = bench.start("echo begun; while :; do sleep 1; done")
        recorder.wait_for(b"begun")
        for _ in range(3):
            running.leave()
            assert ended(running).left
            running = bench.another().adopt(AttemptId(1), recorder, recorder.counts)

        running.stop(0)

        assert ended(running) == Ended(137, stopped=True)
        assert recorder.out == b"begun\n"

    def test_what_is_gone_is_lost(self, bench: Bench) -> None:
        assert ended(bench.executor.adopt(AttemptId(1), Recorder(), {})).lost

    def test_what_was_never_started_is_lost_and_removed(self, bench: Bench) -> None:
        labels = {"arkqueue.installation": bench.installation, "arkqueue.host": bench.host, "arkqueue.attempt": "1"}
        bench.api.create_container(bench.image, "true", labels=labels)

        end = ended(bench.executor.adopt(AttemptId(1), Recorder(), {}))

        assert end.lost
        assert end.message == "its container had not been started"


class TestFrames:
    """Pure: the engine's streams as bytes, cut everywhere."""

    def test_however_they_are_cut(self) -> None:
        frames = [(1, b"a"), (2, b""), (1, b"bc" * 500), (3, b"the engine's own"), (2, b"d")]
        data = b"".join(bytes([number, 0, 0, 0]) + len(text).to_bytes(4) + text for number, text in frames)
        names = {1: Stream.STDOUT, 2: Stream.STDERR}
        for size in (1, 7, 8, 9, 1000, len(data)):
            reader = Frames()
            found = [frame for at in range(0, len(data), size) for frame in reader.feed(data[at : at + size])]
            assert found == [(names[number], text) for number, text in frames if number in names]
            assert not reader.is_cut

    def test_cut_frame_is_seen(self) -> None:
        reader = Frames()
        assert list(reader.feed(bytes([1, 0, 0, 0, 0, 0, 0, 2]) + b"a")) == []
        assert reader.is_cut

    @pytest.mark.parametrize("keeps_newline", [False, True])
    def test_newlines_are_put_back_whatever_the_engine_keeps(self, keeps_newline: bool) -> None:
        lines = [b"x" * 16384 + b"y\n", b"z" * 16384 + b"\n", b"short\n", b"\n", b"w" * 40000]
        frames = []
        for time, line in zip(itertools.count(1000), lines, strict=False):
            parts = [line[at : at + 16384] for at in range(0, len(line), 16384)]
            if len(line) > 16384 and not keeps_newline:
                parts[-1] = parts[-1].removesuffix(b"\n")
            frames += [(Stream.STDOUT, b"%d %b" % (time, part)) for part in parts]
        for skip in (0, 1, 16384, 16385, 16386, 40000):
            reader = LogReader({Stream.STDOUT: skip, Stream.STDERR: 0})
            assert b"".join(data for _, data in reader.feed(frames)) == b"".join(lines)[skip:]


@contextmanager
def _attachments(bench: Bench) -> Iterator[Iterator[Any]]:
    """The live connections that are made to the bench's container from now on. An engine soon forgets earlier ones: other tests use it too."""
    seen = {"container": bench.inspect()["Id"], "event": "attach"}
    events = bench.api.events(since=f"{now():.9f}", decode=True, filters=seen)
    yield events
    events.close()


class TestOutput:
    """The end of stderr, by which an init that could not execute the program is known. It writes its one line in three pieces."""

    def test_end_of_stderr_is_kept_however_it_was_cut(self) -> None:
        output = Output(Recorder())

        for piece in (b"[FATAL tini (7)] ", b"exec nonesuch failed", b"\n"):
            output.write(Stream.STDERR, piece)
            output.write(Stream.STDOUT, b"between")

        assert output.last_error_output == b"[FATAL tini (7)] exec nonesuch failed\n"

    def test_no_more_than_the_end_is_kept(self) -> None:
        output = Output(Recorder())

        for number in range(KEPT):
            output.write(Stream.STDERR, b"%03d " % number)

        assert len(output.last_error_output) == KEPT
        assert output.last_error_output.endswith(b"%03d " % (KEPT - 1))
