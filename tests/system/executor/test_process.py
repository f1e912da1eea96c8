"""The process executor with real processes: outcomes, output, and that nothing of a tree survives
its attempt.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import resource
import shlex
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from arkqueue.errors import ExecutorError, HostFault
from arkqueue.executor import Ended, Program, Running, argv_for
from arkqueue.executor.process.executor import ProcessExecutor
from arkqueue.executor.process.guard import boottime
from arkqueue.executor.process.guard_client import Guard
from arkqueue.model import AttemptId, Stream, TaskDefinition
from tests.system.executor.recorder import Recorder, ended, followed
from tests.waiting import PATIENCE, eventually

PATH = os.environ["PATH"]


def marked(marker: str) -> list[int]:
    """The living processes with this in their environment: a tree, wherever its processes have gone."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if marker.encode() in environment:
            found.append(int(pid))
    return found


class Bench:
    """An executor and what the tests do with it."""

    def __init__(self, folder: Path) -> None:
        self.executor = ProcessExecutor()
        self.folder = folder
        self.marker = f"MARK={folder}"

    def start(self, *argv: str, sink: object = None, **more: object) -> tuple[Running, Recorder]:
        recorder = sink or Recorder()
        command = argv if len(argv) > 1 else ("/bin/sh", "-c", *argv)
        env = {"PATH": PATH, "MARK": str(self.folder)}
        program = Program(**{"attempt": AttemptId(1), "argv": command, "env": env, "cwd": self.folder} | more)  # type: ignore[arg-type]
        return followed(self.executor.start(program, recorder)), recorder  # type: ignore[arg-type, return-value]

    def run(self, *argv: str, **more: object) -> tuple[Ended, Recorder]:
        running, recorder = self.start(*argv, **more)
        return ended(running), recorder

    def left(self) -> list[int]:
        return marked(self.marker)

    @property
    def server(self) -> subprocess.Popen[bytes]:
        # The guard server and the guards are nobody's business; here they are killed.
        return self.executor._server._process


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.executor.close()
    assert bench.left() == []


class TestOutcome:
    @pytest.mark.parametrize("code", [0, 1, 65, 75, 126, 127, 255])
    def test_exit_code(self, bench: Bench, code: int) -> None:
        end, _ = bench.run(f"exit {code}")
        assert end == Ended(code, stopped=False)

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGPIPE])
    def test_signal_is_128_and_its_number(self, bench: Bench, number: int) -> None:
        end, _ = bench.run(f"kill -{int(number)} $$")
        assert end == Ended(128 + number, stopped=False)

    def test_wait_with_a_timeout_says_that_it_still_runs(self, bench: Bench) -> None:
        running, recorder = bench.start("echo there; exec sleep 1000")
        recorder.wait_for(b"there")
        assert running.wait(0.001) is None
        running.stop(0)
        assert ended(running).stopped

    def test_wait_with_a_timeout_ends_although_the_output_never_does(self, bench: Bench) -> None:
        running, recorder = bench.start("exec yes")
        recorder.wait_for(b"y")
        assert running.wait(0.001) is None
        running.stop(0)
        assert ended(running).stopped

    def test_everybody_who_waits_hears_of_the_end(self, bench: Bench) -> None:
        os.mkfifo(bench.folder / "go")
        running, _ = bench.start("read line < go; exit 3")
        with ThreadPoolExecutor(4) as pool:
            waiting = [pool.submit(running.wait, PATIENCE) for _ in range(4)]
            (bench.folder / "go").write_text("\n")
            assert [one.result() for one in waiting] == [Ended(3, stopped=False)] * 4

    def test_the_environment_is_the_given_one_and_nothing_else_is_inherited(self, bench: Bench) -> None:
        with open(bench.folder / "held", "w") as held:
            os.set_inheritable(held.fileno(), True)
            listing = (
                "import os; print(sorted(os.environ), os.listdir('/proc/self/fd'), os.readlink('/proc/self/fd/0'))"
            )
            end, recorder = bench.run(sys.executable, "-I", "-S", "-c", listing, env={"ONLY": "x"})
        assert end.exit_code == 0
        names, descriptors = recorder.out.split(b"] [")
        assert b"'ONLY'" in names
        assert b"PATH" not in names
        assert descriptors.strip() == b"'0', '1', '2', '3'] /dev/null"  # 3 is that of the listing

    def test_signals_are_default_and_the_session_is_its_own(self, bench: Bench) -> None:
        show = "grep -E 'Sig(Blk|Ign)' /proc/self/status; cut -d' ' -f6 /proc/$$/stat; echo $$; umask; ulimit -c; pwd"
        _, recorder = bench.run("exec 2>&1; " + show)
        lines = recorder.out.split()
        assert lines[0:4:2] == [b"SigBlk:", b"SigIgn:"]
        # Signals 32 and 33 are the C library's own: no program can
        # set them, and whoever started us may have left them ignored.
        assert [int(mask, 16) & ~(0b11 << 31) for mask in lines[1:4:2]] == [0, 0]
        assert lines[4] == lines[5]
        assert lines[6:] == [b"0022", b"0", str(bench.folder).encode()]

    def test_arguments_that_are_not_utf8_arrive(self, bench: Bench) -> None:
        _, recorder = bench.run("printf", "%s", os.fsdecode(b"\xff\xe4"))
        assert recorder.out == b"\xff\xe4"

    @pytest.mark.usefixtures("root")
    def test_runs_as_a_named_user(self, bench: Bench) -> None:
        _, recorder = bench.run("id -un; id -G", user="nobody", cwd=Path("/"))
        assert recorder.out.split() == subprocess.check_output("id -un nobody; id -G nobody", shell=True).split()


class TestNotStarted:
    def refused(self, bench: Bench, *argv: str, **more: object) -> str:
        with pytest.raises(ExecutorError) as caught:
            bench.executor.start(
                Program(**{"attempt": AttemptId(1), "argv": argv, "env": {"PATH": PATH}, "cwd": bench.folder} | more),  # type: ignore[arg-type]
                Recorder(),
            )
        # The guard that refused is of no harm to what comes next.
        assert bench.run("exit 3")[0].exit_code == 3
        return str(caught.value)

    def test_no_such_shell(self, bench: Bench) -> None:
        message = self.refused(bench, "no-such-fish", "script", shell=True)
        assert message == "shell 'no-such-fish': there is no such shell on this host. Install it or use sh"

    def test_no_such_command(self, bench: Bench) -> None:
        assert "there is no such command on this host" in self.refused(bench, "no-such-thing")
        assert "there is no such command on this host" in self.refused(bench, "./no-such-thing")

    def test_not_executable(self, bench: Bench) -> None:
        (bench.folder / "plain").touch()
        assert "chmod +x" in self.refused(bench, "./plain")

    def test_missing_interpreter(self, bench: Bench) -> None:
        (bench.folder / "script").write_text("#!/no/such/python\n")
        (bench.folder / "script").chmod(0o755)
        assert "the interpreter that" in self.refused(bench, "./script")

    def test_no_program_format(self, bench: Bench) -> None:
        (bench.folder / "script").write_text("echo without first line\n")
        (bench.folder / "script").chmod(0o755)
        assert "Give it a #! line" in self.refused(bench, "./script")

    def test_missing_folder(self, bench: Bench) -> None:
        message = self.refused(bench, "true", cwd=bench.folder / "nowhere")
        assert "nowhere: the task cannot start there (No such file or directory)" in message

    def test_unknown_user(self, bench: Bench) -> None:
        assert "there is no such user" in self.refused(bench, "true", user="nobody-at-all")

    def test_arguments_too_long(self, bench: Bench) -> None:
        assert "too long" in self.refused(bench, "true", "x" * 3_000_000)

    @pytest.mark.parametrize("argv", [(), ("a\0b",), ("\ud800",)])
    def test_impossible_command(self, bench: Bench, argv: tuple[str, ...]) -> None:
        assert "command: " in self.refused(bench, *argv)

    @pytest.mark.parametrize("env", [{"": "x"}, {"a=b": "x"}, {"a": "\0"}])
    def test_impossible_environment(self, bench: Bench, env: dict[str, str]) -> None:
        assert "environment: " in self.refused(bench, "true", env=env)

    def test_closed(self, bench: Bench) -> None:
        bench.executor.close()
        with pytest.raises(ExecutorError, match="it is closed"):
            bench.run("true")


class TestNothingStarts:
    """What is the fault of this host for the moment, and of no task."""

    def test_no_descriptors(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        def none(*_: object) -> None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        for where in ("os.pipe", "socket.socketpair"):
            with monkeypatch.context() as patched:
                patched.setattr(where, none)
                with pytest.raises(HostFault, match="no descriptors are left"):
                    bench.start("true")
        assert bench.run("exit 3")[0].exit_code == 3

    def test_no_guard_server(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        def none(*_: object, **__: object) -> None:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

        bench.server.kill()
        bench.server.wait()
        with monkeypatch.context() as patched:
            patched.setattr("arkqueue.executor.process.guard_client.subprocess.Popen", none)
            for _ in range(2):
                with pytest.raises(HostFault, match="the guard server does not start"):
                    bench.start("true")
        assert bench.run("exit 3")[0].exit_code == 3

    def test_guard_that_cannot_fork(self, bench: Bench) -> None:
        bench.run("true")
        (guard,) = children(bench.server.pid)
        # Room for the two ends of the output, and none for what a fork needs.
        held = max(map(int, os.listdir(f"/proc/{guard}/fd")))
        _, hard = resource.prlimit(guard, resource.RLIMIT_NOFILE)
        resource.prlimit(guard, resource.RLIMIT_NOFILE, (held + 3, hard))
        with pytest.raises(HostFault, match=r"no process \(Too many open files\)"):
            bench.start("true")
        # That guard is not kept: the next one has room again.
        assert bench.run("exit 3")[0].exit_code == 3

    def test_damaged_program_is_the_tasks_own_fault(self, bench: Bench) -> None:
        """It is cut off within the name of its interpreter, which the system calls an I/O error."""
        program = bench.folder / "damaged"
        program.write_bytes(Path("/bin/true").read_bytes()[: elf_interpreter("/bin/true") + 1])
        program.chmod(0o755)
        with pytest.raises(ExecutorError, match="Input/output error"):
            bench.start(str(program), "x")


def elf_interpreter(program: str) -> int:
    """Where in a program of 64 bits the name of its interpreter stands."""
    data = Path(program).read_bytes()
    (headers,) = struct.unpack_from("<Q", data, 0x20)
    size, count = struct.unpack_from("<HH", data, 0x36)
    for place in range(headers, headers + size * count, size):
        kind, _, offset = struct.unpack_from("<IIQ", data, place)
        if kind == 3:
            return int(offset)
    raise AssertionError(f"{program} has no interpreter")


class TestOutput:
    def test_streams_are_kept_apart_to_the_byte(self, bench: Bench) -> None:
        (bench.folder / "o").write_bytes(os.urandom(300_000))
        (bench.folder / "e").write_bytes(os.urandom(300_000))
        _, recorder = bench.run("cat o & cat e >&2; wait")
        assert recorder.data[Stream.STDOUT] == (bench.folder / "o").read_bytes()
        assert recorder.data[Stream.STDERR] == (bench.folder / "e").read_bytes()

    def test_comes_while_the_task_runs(self, bench: Bench) -> None:
        os.mkfifo(bench.folder / "go")
        running, recorder = bench.start("echo first; cat go; echo second")
        recorder.wait_for(b"first")
        assert running.wait(0) is None
        (bench.folder / "go").write_text("")
        assert ended(running).exit_code == 0
        assert recorder.out == b"first\nsecond\n"

    @pytest.mark.full
    def test_two_hundred_megabytes_arrive_whole(self, bench: Bench) -> None:
        class Hashing:
            length, hash = 0, hashlib.sha1()

            def write(self, stream: Stream, data: bytes) -> None:
                assert stream is Stream.STDOUT
                assert len(data) <= 64 * 1024
                self.length += len(data)
                self.hash.update(data)

        sink = Hashing()
        end, _ = bench.run("yes 0123456789abcde | head -c 200000000", sink=sink)
        assert end.exit_code == 0
        assert sink.length == 200_000_000
        assert sink.hash.digest() == hashlib.sha1(b"0123456789abcde\n" * 12_500_000).digest()

    def test_a_slow_sink_makes_its_task_wait_and_no_other(self, bench: Bench) -> None:
        class Blocked(Recorder):
            free, got = threading.Event(), 0

            def write(self, stream: Stream, data: bytes) -> None:  # noqa: ARG002
                self.free.wait(PATIENCE)
                self.got += len(data)

        sink = Blocked()
        running, _ = bench.start("head -c 10M /dev/zero; touch written", sink=sink)
        assert bench.run("true")[0].exit_code == 0
        assert not (bench.folder / "written").exists()
        sink.free.set()
        assert ended(running).exit_code == 0
        assert sink.got == 10 * 2**20

    def test_a_sink_that_fails_is_told_at_the_end(self, bench: Bench) -> None:
        class Broken(Recorder):
            def write(self, stream: Stream, data: bytes) -> None:  # noqa: ARG002
                raise OSError("the database is gone")

        end, _ = bench.run("head -c 10M /dev/zero", sink=Broken())
        assert end == Ended(0, stopped=False, message="its output from here on is lost: the database is gone")

    def test_what_is_left_behind_does_not_hold_up_the_end(self, bench: Bench) -> None:
        both = "until [ $(cat /proc/$a/comm)-$(cat /proc/$b/comm) = sleep-sleep ]; do sleep 0.01; done"
        end, recorder = bench.run(f"sleep 1000 & a=$!; setsid sleep 1000 & b=$!; {both}; echo done")
        assert (end.exit_code, end.stopped) == (0, False)
        assert end.message == "it left 2 processes behind, which had to be ended: sleep"
        assert recorder.out == b"done\n"
        assert bench.left() == []

    def test_what_ends_by_itself_right_after_is_heard_out(self, bench: Bench) -> None:
        end, recorder = bench.run("bash", "-c", "exec > >(sleep 0.01; cat); echo said")
        assert end == Ended(0, stopped=False)
        assert recorder.out == b"said\n"

    def test_a_foreign_process_that_holds_the_pipe_does_not_hold_up_the_end(self, bench: Bench) -> None:
        os.mkfifo(bench.folder / "go")
        running, recorder = bench.start("echo $$; read line < go; echo end")
        recorder.wait_for(b"\n")
        with open(f"/proc/{int(recorder.out)}/fd/1", "wb"):
            (bench.folder / "go").write_text("\n")
            assert ended(running).exit_code == 0
        assert recorder.out.endswith(b"\nend\n")


FAMILY = """
sleep 1000 &
setsid sleep 1000 &
nohup sleep 1000 > /dev/null 2>&1 &
(setsid sh -c 'trap "" TERM HUP; sleep 1000 & while :; do sleep 1000; done' &)
(sh -c 'kill -STOP $$; sleep 1000' &)
echo ready
"""
"""Processes that try each way out of a tree; ``ready`` says only that they have been started."""


HOPPERS = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
for _ in range(10):
    if os.fork() == 0:
        while True:
            os.setsid()
            if os.fork():
                os._exit(0)
signal.pause()
"""


class TestStop:
    def test_term_is_honoured(self, bench: Bench) -> None:
        running, recorder = bench.start("trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.01; done")
        recorder.wait_for(b"ready")
        running.stop(PATIENCE)
        assert ended(running) == Ended(7, stopped=True)
        assert recorder.out == b"ready\nbye\n"

    def test_term_ignored_is_killed_after_the_grace(self, bench: Bench) -> None:
        running, recorder = bench.start("trap '' TERM; echo ready; while :; do sleep 1000; done")
        recorder.wait_for(b"ready")
        running.stop(0.05)
        assert ended(running) == Ended(128 + signal.SIGKILL, stopped=True)

    def test_a_shorter_grace_shortens_and_a_longer_one_does_not_lengthen(self, bench: Bench) -> None:
        running, recorder = bench.start("trap '' TERM; echo ready; while :; do sleep 1000; done")
        recorder.wait_for(b"ready")
        running.stop(10 * PATIENCE)
        running.stop(0.01)
        running.stop(10 * PATIENCE)
        assert ended(running) == Ended(128 + signal.SIGKILL, stopped=True)
        running.stop(0)

    @pytest.mark.parametrize(
        "last", ["wait", "exit 0", "exec sleep 1000", "trap '' TERM; while :; do sleep 1000; done"]
    )
    def test_the_whole_family_is_gone(self, bench: Bench, last: str) -> None:
        running, recorder = bench.start(FAMILY + last)
        recorder.wait_for(b"ready")
        running.stop(0.05)
        ended(running)
        assert bench.left() == []

    def test_processes_that_never_stay_are_gone(self, bench: Bench) -> None:
        """Each forks its successor and ends, again and again: whoever kills what he has seen comes too late."""
        running, recorder = bench.start(sys.executable, "-I", "-S", "-c", HOPPERS)
        recorder.wait_for(b"ready")
        eventually(lambda: len(bench.left()) > 5)
        running.stop(0)
        assert ended(running) == Ended(128 + signal.SIGKILL, stopped=True)
        assert bench.left() == []

    def test_a_stopped_task_ends_too(self, bench: Bench) -> None:
        running, _ = bench.start("kill -STOP $$; exit 1")
        running.stop(PATIENCE)
        assert ended(running) == Ended(128 + signal.SIGTERM, stopped=True)

    def test_stop_after_the_end_changes_nothing(self, bench: Bench) -> None:
        running, _ = bench.start("echo out; exit 5")
        end = ended(running)
        running.stop(0)
        assert running.wait(0) == end == Ended(5, stopped=False)
        # Nor is the attempt touched that has the same guard now.
        assert bench.run("exit 6")[0] == Ended(6, stopped=False)

    def test_stop_while_leftovers_end_keeps_the_outcome(self, bench: Bench) -> None:
        left = "trap '' TERM; while kill -0 $$ 2>/dev/null; do sleep 0.01; done; echo orphan; while :; do sleep 1; done"
        running, recorder = bench.start(f"({left}) & exit 5")
        recorder.wait_for(b"orphan")
        running.stop(0)
        end = ended(running)
        assert (end.exit_code, end.stopped) == (5, False)

    def test_what_had_ended_before_the_signal_keeps_its_outcome(self, bench: Bench) -> None:
        os.mkfifo(bench.folder / "go")
        running, recorder = bench.start("echo $$; read line < go; exit 5")
        recorder.wait_for(b"\n")
        (guard,) = children(bench.server.pid)
        os.kill(guard, signal.SIGSTOP)
        (bench.folder / "go").write_text("\n")
        eventually(lambda: b"\nState:\tZ" in Path(f"/proc/{int(recorder.out)}/status").read_bytes())
        running.stop(PATIENCE)
        os.kill(guard, signal.SIGCONT)
        assert ended(running) == Ended(5, stopped=False)

    def test_a_stop_that_races_the_end_tells_one_story(self, bench: Bench) -> None:
        seen: Counter[bool] = Counter()
        for turn in range(60):
            running, _ = bench.start("exit 5")
            for _ in range(turn * 40):
                pass
            running.stop(PATIENCE)
            end = ended(running)
            assert end in (Ended(5, stopped=False), Ended(128 + signal.SIGTERM, stopped=True), Ended(5, stopped=True))
            seen[end.stopped] += 1
        assert seen.total() == 60


class TestKept:
    """What becomes of it when its task manager stands still, and says nothing more."""

    FOREVER, OVER = boottime() + 1e6, boottime() - 1

    def test_it_is_asked_to_end_and_has_time_for_it(self, bench: Bench) -> None:
        running, recorder = bench.start("trap 'echo bye; exit 3' TERM; echo begun; while :; do sleep 0.01; done")
        recorder.wait_for(b"begun")
        running.keep(self.OVER, self.FOREVER)

        assert ended(running) == Ended(3, stopped=True, abandoned=True)
        assert recorder.out == b"begun\nbye\n"

    def test_it_is_gone_at_the_end_of_its_time(self, bench: Bench) -> None:
        running, recorder = bench.start("trap '' TERM; echo begun; while :; do sleep 0.01; done")
        recorder.wait_for(b"begun")
        running.keep(self.OVER, boottime() + 0.1)

        assert ended(running) == Ended(137, stopped=True, abandoned=True)

    def test_the_time_it_begins_with_counts_where_nothing_more_is_said(self, bench: Bench) -> None:
        end, _ = bench.run("sleep", "1000", keep=(boottime() + 0.05, self.FOREVER))

        assert end == Ended(143, stopped=True, abandoned=True)

    def test_it_goes_on_when_it_is_told_anew(self, bench: Bench, tmp_path: Path) -> None:
        go = tmp_path / "go"
        os.mkfifo(go)
        running, recorder = bench.start(
            f"echo begun; read line < {go}; echo went on", keep=(boottime() + 2, self.FOREVER)
        )
        running.keep(self.FOREVER, self.FOREVER)
        recorder.wait_for(b"begun")
        other, _ = bench.start("sleep", "1000", keep=(boottime() + 2.1, self.FOREVER))
        assert ended(other).stopped  # so that time is over now
        go.write_bytes(b"\n")

        assert ended(running) == Ended(0, stopped=False)

    def test_a_long_grace_is_cut_short(self, bench: Bench) -> None:
        running, recorder = bench.start("trap '' TERM; echo begun; while :; do sleep 0.01; done")
        recorder.wait_for(b"begun")
        running.stop(1000)
        running.keep(self.OVER, self.OVER)

        assert ended(running) == Ended(137, stopped=True)

    def test_a_guard_that_was_stopped_holds_up_nobody_who_tells_it_so(self, bench: Bench) -> None:
        """The same thread tells all others; they would be lost with it."""
        os.mkfifo(bench.folder / "go")
        running, recorder = bench.start("read line < go; kill -STOP $PPID; echo begun; sleep 1000")
        (bench.folder / "go").write_text("\n")  # once the guard has told that it started
        recorder.wait_for(b"begun")

        def keep() -> None:
            while running.wait(0) is None:
                running.keep(self.FOREVER, self.FOREVER)

        threading.Thread(target=keep, daemon=True).start()

        end = ended(running)
        assert (end.exit_code, end.stopped, end.lost) == (None, False, True)
        assert "its guard process was killed" in end.message

    def test_nothing_of_it_is_left_to_the_guards_next_attempt(self, bench: Bench) -> None:
        running, _ = bench.start("sleep", "1000", keep=(boottime() + 1e6, self.FOREVER))
        running.keep(self.OVER, self.OVER)
        assert ended(running).stopped
        running.keep(self.OVER, self.OVER)

        assert bench.run("sleep 0.1; echo here")[0] == Ended(0, stopped=False)


class TestGone:
    """Whoever is killed, nothing of an attempt is left, and its end is told."""

    def test_a_task_manager_killed_with_9_leaves_no_process(self, tmp_path: Path) -> None:
        driver = (
            f"import sys; sys.path[:0] = {sys.path!r}\n"
            "import threading\n"
            "from pathlib import Path\n"
            "from arkqueue.executor import Program\n"
            "from arkqueue.executor.process.executor import ProcessExecutor\n"
            "class Sink:\n  def write(self, stream, data): print(data.decode(), end='', flush=True)\n"
            "executor = ProcessExecutor()\n"
            "for number in (1, 2, 3):\n"
            f"  running = executor.start(Program(number, ('sh', '-c', sys.argv[1]), {{'PATH': {PATH!r}, 'MARK': {str(tmp_path)!r}}},"
            f" Path({str(tmp_path)!r})), Sink())\n"
            "  threading.Thread(target=running.wait, daemon=True).start()\n"
            "input()\n"
        )
        arguments = [sys.executable, "-c", driver, FAMILY + "trap '' TERM; while :; do sleep 1000; done"]
        with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as manager:
            assert manager.stdout is not None
            for _ in range(3):
                assert manager.stdout.readline() == "ready\n"
            (server,) = children(manager.pid)
            guards = children(server)
            assert len(guards) == 3
            manager.kill()
        eventually(lambda: not marked(f"MARK={tmp_path}"))
        eventually(lambda: not any(is_guard(pid) for pid in (server, *guards)))

    def test_the_lock_is_held_by_guards_alone_and_until_the_last_has_ended(self, tmp_path: Path) -> None:
        with open(tmp_path / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            executor = ProcessExecutor(lock.fileno())
        with open(tmp_path / "lock") as other:
            with pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            recorder = Recorder()
            listing = "import os; print(os.listdir('/proc/self/fd'))"
            argv = (sys.executable, "-I", "-S", "-c", listing)
            ended(executor.start(Program(AttemptId(1), argv, {}, tmp_path), recorder))
            assert recorder.out.endswith(b"['0', '1', '2', '3']\n")  # 3 is that of the listing
            executor.close()
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def test_a_task_that_kills_its_guard(self, bench: Bench) -> None:
        running, recorder = bench.start(FAMILY + "kill -9 $PPID; while :; do sleep 1000; done")
        end = ended(running)
        assert (end.exit_code, end.stopped, end.lost) == (None, False, True)
        assert "its guard process was killed" in end.message
        assert end.message.endswith("what was left of it has been ended")
        assert recorder.out == b"ready\n"
        assert bench.left() == []
        assert bench.run("exit 4")[0].exit_code == 4

    def test_a_task_that_kills_its_guard_before_that_has_told_of_its_start(self, bench: Bench) -> None:
        for _ in range(20):
            end = ended(bench.start("kill -9 $PPID; while :; do sleep 1000; done")[0])
            assert (end.exit_code, end.stopped) == (None, False)
            assert end.message.endswith("what was left of it has been ended")
        assert bench.left() == []

    def test_a_killed_guard_is_not_kept_until_its_server_has_closed_the_socket(self) -> None:
        control, theirs = socket.socketpair()
        with control, theirs:
            guard = Guard(control)
            assert guard.is_alive()
            theirs.sendall(b'{"killed": true}\n')
            assert guard.receive() is None
            assert not guard.is_alive()
            assert not guard.is_unattended

    def test_a_task_that_stops_its_guard_and_is_stopped(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("arkqueue.executor.process.guard_client.OVERDUE", 0.1)
        os.mkfifo(bench.folder / "go")
        running, recorder = bench.start("read line < go; kill -STOP $PPID; echo ready; while :; do sleep 1000; done")
        (bench.folder / "go").write_text("\n")
        recorder.wait_for(b"ready")
        running.stop(0)
        end = ended(running)
        assert (end.exit_code, end.stopped) == (None, True)
        assert bench.left() == []

    def test_a_guard_that_never_says_that_the_task_has_started(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench.run("true")
        (guard,) = children(bench.server.pid)
        os.kill(guard, signal.SIGSTOP)
        monkeypatch.setattr("arkqueue.executor.process.guard_client.START_TIMEOUT", 0.05)
        with pytest.raises(ExecutorError, match="could not execute it in time"):
            bench.start("sleep 1000")
        eventually(lambda: guard not in children(bench.server.pid))
        assert bench.left() == []

    def test_a_guard_is_killed_and_its_server_too(self, tmp_path: Path) -> None:
        """Nobody else can end then what is left: it is looked for. The attempts of other guards go on."""
        executor = ProcessExecutor(work=tmp_path / "work")
        first, second = (attempt_in(executor, tmp_path / "work", n, "while :; do sleep 0.01; done") for n in (1, 2))
        kill_both(executor, first)
        end = ended(first)
        left = marked(f"MARK={tmp_path}/work/1")
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert left == []
        assert (end.exit_code, end.stopped, end.lost) == (None, False, True)
        assert "its guard process was killed" in end.message
        assert end.message.endswith("what was found of it has been ended")
        assert second.wait(0) is None
        executor.close()
        assert ended(second).stopped
        assert marked(f"MARK={tmp_path}") == []

    def test_what_cannot_be_looked_for_is_not_said_to_have_ended(self, bench: Bench) -> None:
        running, recorder = bench.start("echo $$; exec sleep 1000")
        recorder.wait_for(b"\n")
        kill_both(bench.executor, running)
        end = ended(running)
        os.kill(int(recorder.out), signal.SIGKILL)
        eventually(lambda: bench.left() == [])
        assert end.message.endswith("what was left of it may still run")

    def test_harmless_signals_to_the_guard_change_nothing(self, bench: Bench) -> None:
        end, _ = bench.run("for s in HUP INT QUIT TERM USR1 USR2 ALRM TSTP PIPE; do kill -$s $PPID; done; kill 0")
        assert end == Ended(128 + signal.SIGTERM, stopped=False)

    def test_a_killed_guard_server_is_replaced_and_its_attempts_go_on(self, bench: Bench) -> None:
        os.mkfifo(bench.folder / "go")
        running, _ = bench.start("read line < go; exit 9")
        before = bench.server
        before.kill()
        assert bench.run("exit 4")[0].exit_code == 4
        assert bench.server is not before
        (bench.folder / "go").write_text("\n")
        assert ended(running) == Ended(9, stopped=False)

    def test_a_killed_guard_server_is_replaced_at_any_moment(self, bench: Bench) -> None:
        held = [bench.start("exec sleep 1000")[0] for _ in range(3)]
        for _ in range(10):
            bench.server.kill()
            held.append(bench.start("exec sleep 1000")[0])
        bench.executor.close()
        assert all(ended(running).stopped for running in held)

    def test_an_idle_guard_that_was_killed_is_not_used(self, bench: Bench) -> None:
        bench.run("true")
        (guard,) = children(bench.server.pid)
        (ours,) = bench.executor._idle  # nothing public says that the server's word of its end has come
        os.kill(guard, signal.SIGKILL)
        eventually(lambda: not ours.is_alive())
        assert bench.run("exit 4")[0].exit_code == 4

    def test_close_ends_everything(self, bench: Bench) -> None:
        attempts = [bench.start(FAMILY + "wait") for _ in range(5)]
        for _, recorder in attempts:
            recorder.wait_for(b"ready")
        server, guards = bench.server.pid, children(bench.server.pid)
        bench.executor.close()
        assert bench.left() == []
        assert all(running.wait(0) is not None for running, _ in attempts)
        assert not any(is_guard(pid) for pid in (server, *guards))


class TestMany:
    def test_fifty_at_once(self, bench: Bench) -> None:
        with ThreadPoolExecutor(50) as pool:
            attempts = list(
                pool.map(lambda n: bench.start(f"echo {n}; until [ -e go ]; do sleep 0.01; done; exit {n}"), range(50))
            )
        for number, (_, recorder) in enumerate(attempts):
            recorder.wait_for(f"{number}\n".encode())
        assert all(running.wait(0) is None for running, _ in attempts)
        (bench.folder / "go").touch()
        assert [ended(running).exit_code for running, _ in attempts] == list(range(50))
        eventually(lambda: len(children(bench.server.pid)) == 16)  # the guards that are kept

    def test_nothing_is_left_of_two_hundred(self, bench: Bench) -> None:
        def turn() -> None:
            bench.run("true")
            with pytest.raises(ExecutorError):
                bench.start("no-such-thing", "x")

        def held() -> tuple[int, int]:
            # The thread of an attempt ends just after it has told the end.
            eventually(lambda: not any(thread.name == "attempt" for thread in threading.enumerate()))
            return len(os.listdir("/proc/self/fd")), threading.active_count()

        turn()
        bench.run("true")  # so that one guard is kept
        before = held()
        for _ in range(100):
            turn()
        bench.run("true")
        # Fewer, where something of an earlier test has ended meanwhile.
        assert [now <= then for now, then in zip(held(), before, strict=True)] == [True, True]
        eventually(lambda: len(children(bench.server.pid)) == 1)
        (guard,) = children(bench.server.pid)
        # It closes the guard's socket after it has reaped the guard.
        eventually(lambda: len(os.listdir(f"/proc/{bench.server.pid}/fd")) == 6)
        assert len(os.listdir(f"/proc/{guard}/fd")) == 6

    def test_nothing_is_left_of_a_closed_executor(self, tmp_path: Path) -> None:
        def turn() -> None:
            bench = Bench(tmp_path)
            bench.start("sleep 1000")
            bench.executor.close()

        # A server that other tests share may be a child of this process too.
        others = children(os.getpid())
        turn()
        before = len(os.listdir("/proc/self/fd"))
        turn()
        assert len(os.listdir("/proc/self/fd")) <= before
        assert set(children(os.getpid())) <= set(others)


def attempt_in(executor: ProcessExecutor, work: Path, number: int, script: str) -> Any:
    """An attempt that runs, with a workspace as its environment names it."""
    folder = work / str(number)
    folder.mkdir(parents=True)
    recorder = Recorder()
    env = {"PATH": PATH, "MARK": str(folder), "ARKQUEUE_OUTPUT": f"{folder}/files/output"}
    program = Program(AttemptId(number), ("/bin/sh", "-c", f"echo ready; {script}"), env, Path("/"))
    running = followed(executor.start(program, recorder))
    recorder.wait_for(b"ready")
    return running


def kill_both(executor: ProcessExecutor, running: Any) -> None:
    """Kill the guard server and a guard; neither gets to do anything about it."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        # Nobody outside knows the processes that stand between a task and its executor.
        for pid in (executor._server._process.pid, running._guard._pid):
            os.kill(pid, number)


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def is_guard(pid: int) -> bool:
    try:
        return b"guard.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


class TestArgv:
    @pytest.mark.parametrize(
        ("task", "argv"),
        [
            ({"command": "a | b"}, ("/bin/sh", "-c", "a | b")),
            ({"command": ("a", "b c")}, ("a", "b c")),
            ({"script": "x"}, ("sh", "-e", "FILE")),
            ({"script": "x", "shell": "sh"}, ("sh", "-e", "FILE")),
            ({"script": "x", "shell": "bash"}, ("bash", "-eo", "pipefail", "FILE")),
            ({"script": "x", "shell": "python3"}, ("python3", "FILE")),
            ({"script": "x", "shell": "perl -w"}, ("perl", "-w", "FILE")),
            ({"script": "x", "shell": "bash -x"}, ("bash", "-x", "FILE")),
        ],
    )
    def test_what_is_executed(self, task: dict[str, str], argv: tuple[str, ...]) -> None:
        assert argv_for(TaskDefinition("t", **task), "FILE") == argv  # type: ignore[arg-type]

    def test_a_gate_has_nothing_to_execute(self) -> None:
        with pytest.raises(ValueError, match="gate"):
            argv_for(TaskDefinition("t"), "FILE")


BURN = "import time\nwhile time.process_time() < {seconds}: pass\n"
FILL = "held = b'x' * ({mib} << 20)\n"


def python(text: str, **values: float) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", text.format(**values))


class TestUsage:
    """What an attempt used: the processor time of its whole tree, and the peak of its largest process."""

    def usage(self, bench: Bench, *argv: str) -> tuple[float, float]:
        end, _ = bench.run(*argv)
        return used(end)

    def test_time_and_peak_of_a_program_are_told_with_its_end(self, bench: Bench) -> None:
        seconds, mib = self.usage(bench, *python(FILL + BURN, mib=100, seconds=0.3))
        assert 0.3 <= seconds < 0.6
        assert 100 <= mib < 130

    def test_the_time_is_of_the_whole_tree_and_the_peak_of_its_largest_process(self, bench: Bench) -> None:
        """One child is waited for by its parent, one by nobody, and one goes into a session of its own."""
        (bench.folder / "child").write_text(
            f"#!/bin/sh\n{shlex.join(python(FILL + BURN, mib=60, seconds=0.2))}\ntouch $1\n"
        )
        (bench.folder / "child").chmod(0o755)
        # What is left after the main process is ended soon:
        # the children of nobody have to be done by then.
        done = "until [ -e b ] && [ -e c ]; do sleep 0.05; done"
        seconds, mib = self.usage(bench, f"./child a; (./child b &); setsid ./child c & {done}")
        assert 0.6 <= seconds < 1.2
        assert 60 <= mib < 90

    def test_a_kept_guard_counts_each_attempt_for_itself(self, bench: Bench) -> None:
        self.usage(bench, *python(FILL + BURN, mib=100, seconds=0.3))
        seconds, mib = self.usage(bench, "exit 0")
        assert seconds < 0.2
        assert mib < 50, "a guard's own memory, and no more"

    def test_what_a_killed_program_used_is_told(self, bench: Bench) -> None:
        running, recorder = bench.start(
            *python(FILL + BURN + "print('there', flush=True); time.sleep(1000)", mib=100, seconds=0.3)
        )
        recorder.wait_for(b"there")
        running.stop(0)
        end = ended(running)
        assert end.stopped
        seconds, mib = used(end)
        assert seconds >= 0.3
        assert mib >= 100

    def test_nothing_is_told_where_the_guard_was_killed(self, bench: Bench) -> None:
        running, recorder = bench.start("echo $PPID; exec sleep 1000")
        recorder.wait_for(b"\n")
        os.kill(int(recorder.out), signal.SIGKILL)
        end = ended(running)
        assert (end.lost, end.usage) == (True, None)


def used(end: Ended) -> tuple[float, float]:
    """The seconds and the MiB of an attempt whose whole use is known."""
    assert end.usage is not None
    assert not end.usage.sampled
    assert end.usage.peak_memory_bytes is not None
    return end.usage.processor_seconds, end.usage.peak_memory_bytes / 2**20
