"""The Docker executor with a real engine: how a container is made, how it ends, and that nothing of
it is left.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import docker
import pytest

from arkqueue.errors import ExecutorError
from arkqueue.executor import Ended, Mount
from arkqueue.executor.docker.executor import EngineUnavailable
from arkqueue.model import AttemptId, Layer, Resources, Stream
from tests.system.executor.docker_bench import Bench
from tests.system.executor.recorder import Recorder, ended
from tests.system.executor.relay import Relay
from tests.waiting import PATIENCE, eventually

FOREVER = "echo begun; while :; do sleep 1; done"
DEAF = f"trap '' TERM; {FOREVER}"


class TestOutcome:
    @pytest.mark.parametrize("code", [0, 1, 65, 75, 255])
    def test_exit_code_is_the_programs(self, bench: Bench, code: int) -> None:
        end, _ = bench.run(f"exit {code}")

        assert end == Ended(code, stopped=False)

    def test_death_by_a_signal_is_told_as_a_shell_does(self, bench: Bench) -> None:
        end, _ = bench.run("sh -c 'kill -9 $$'; exit $?")

        assert end == Ended(137, stopped=False)

    def test_command_as_a_list_is_executed_as_it_is(self, bench: Bench) -> None:
        end, recorder = bench.run("printf", "%s|", "a b", "$HOME", "", "*")

        assert (end.exit_code, recorder.out) == (0, b"a b|$HOME||*|")

    def test_nothing_of_the_images_own_command_is_left(self, bench: Bench, dressed: str) -> None:
        end, recorder = bench.run("echo $A $B; id -un", image=dressed, env={"B": "task"})

        assert (end.exit_code, recorder.out) == (0, b"image task\nbuilder\n")

    def test_container_that_exits_at_once_has_its_output(self, bench: Bench) -> None:
        for attempt in range(5):
            assert bench.run("echo", "here", attempt=attempt)[1].out == b"here\n"

    def test_running_out_of_memory_is_told_with_the_limit(self, bench: Bench) -> None:
        end, _ = bench.run("tail", "/dev/zero", resources=Resources(memory=16 << 20))

        assert end.exit_code == 137
        assert not end.lost
        assert end.message in [
            "it was ended because it ran out of memory: its limit is 16 MiB (`resources: memory`)",
            "the engine does not say why; maybe it ran out of memory: its limit is 16 MiB (`resources: memory`)",
        ]

    @pytest.mark.parametrize("command", ["sh -c 'kill -9 $$'; exit $?", "exit 137"])
    def test_what_is_killed_and_has_a_limit_of_memory_is_told_of_it(self, bench: Bench, command: str) -> None:
        """Engines miss one of twenty that run out of memory while they have much to do."""
        end, _ = bench.run(command, resources=Resources(memory=16 << 20))

        maybe = "the engine does not say why; maybe it ran out of memory: its limit is 16 MiB (`resources: memory`)"
        assert end == Ended(137, stopped=False, message=maybe)

    def test_program_that_the_image_does_not_have_is_told(self, bench: Bench) -> None:
        end, _ = bench.run("nonesuch", "--now")

        assert end.exit_code == 127
        assert end.message.startswith(f"command 'nonesuch': there is no such command in image {bench.image}")

    def test_image_without_a_shell_is_told(self, bench: Bench, empty_image: str) -> None:
        end, _ = bench.run("echo hello", image=empty_image, shell=True)

        assert end.exit_code == 127
        assert end.message.startswith(f"shell '/bin/sh': there is no such shell in image {empty_image}")

    def test_container_that_somebody_removes_is_lost(self, bench: Bench) -> None:
        running, recorder = bench.start(FOREVER)
        recorder.wait_for(b"begun")

        bench.api.remove_container(bench.inspect()["Id"], force=True)

        end = ended(running)
        assert end.lost
        assert not end.stopped

    def test_container_that_somebody_stops_is_lost(self, bench: Bench) -> None:
        running, recorder = bench.start(FOREVER)
        recorder.wait_for(b"begun")

        bench.api.kill(bench.inspect()["Id"], "SIGKILL")

        end = ended(running)
        assert end.lost
        assert "ended from outside" in end.message


class TestContainer:
    def test_it_is_shut_in_by_default(self, bench: Bench) -> None:
        running, recorder = bench.start(FOREVER)
        recorder.wait_for(b"begun")
        host = bench.inspect()["HostConfig"]
        running.stop(0)
        ended(running)

        assert host["SecurityOpt"] == ["no-new-privileges"]
        assert host["CapDrop"] in (["MKNOD"], ["CAP_MKNOD"])
        assert not host["Privileged"]
        assert not host["CapAdd"]
        assert host["PidsLimit"] > 0
        assert host["RestartPolicy"]["Name"] == "no"
        assert host["LogConfig"]["Type"] == "local"
        assert host["LogConfig"]["Config"]["compress"] == "false"

    def test_no_program_gains_privileges(self, bench: Bench) -> None:
        _, recorder = bench.run("grep NoNewPrivs /proc/self/status")

        assert recorder.out.split() == [b"NoNewPrivs:", b"1"]

    def test_it_carries_whose_it_is(self, bench: Bench) -> None:
        running, recorder = bench.start(FOREVER, attempt=42)
        recorder.wait_for(b"begun")
        looked = bench.inspect(42)
        running.stop(0)
        ended(running)

        assert looked["Name"] == f"/arkqueue-{bench.installation[:8]}-42"
        assert (
            looked["Config"]["Labels"].items()
            >= {
                "arkqueue.installation": bench.installation,
                "arkqueue.host": bench.host,
                "arkqueue.attempt": "42",
                "arkqueue.task": "bench",
            }.items()
        )

    def test_resources_are_limits(self, bench: Bench) -> None:
        wanted = Resources(cpu=0.5, memory=64 << 20, pids=20, shm=1 << 20, tmpfs={"/fast": 2 << 20}, read_only=True)
        command = f"df -k /dev/shm /fast | awk 'NR>1 {{print $2}}'; touch /no; touch /fast/yes && {FOREVER}"
        running, recorder = bench.start(command, resources=wanted)
        recorder.wait_for(b"begun")
        host = bench.inspect()["HostConfig"]
        running.stop(0)
        ended(running)

        assert recorder.out == b"1024\n2048\nbegun\n"
        assert b"Read-only file system" in recorder.err
        assert (host["NanoCpus"], host["Memory"], host["MemorySwap"]) == (500_000_000, 64 << 20, 64 << 20)
        assert host["PidsLimit"] == 20

    def test_network_none_has_no_way_out(self, bench: Bench) -> None:
        _, recorder = bench.run("ls /sys/class/net", network="none")

        assert recorder.out == b"lo\n"

    def test_user_and_folder_are_the_tasks(self, bench: Bench) -> None:
        _, recorder = bench.run("id -u; id -g; pwd", user="nobody", cwd=Path("/tmp"))

        assert recorder.out == b"65534\n65534\n/tmp\n"

    @pytest.mark.parametrize(
        ("more", "thing", "fault"),
        [
            ({"user": "stranger"}, "user 'stranger'", "has no such user"),
            ({"network": "nowhere"}, "network 'nowhere'", "no such network"),
            ({"mounts": (Mount("/x", Path("/no/such/folder")),)}, "mount /no/such/folder", "no such folder"),
            ({"mounts": (Mount("/x", Path("/var/run")),)}, "mount /var/run", "engine's own socket"),
            ({"env": {"A": "\0"}}, "environment", "no program can be given"),
        ],
    )
    def test_what_it_cannot_have_is_said(
        self, bench: Bench, more: dict[str, object], thing: str, fault: str, engine_url: str
    ) -> None:
        if "/var/run" in thing:
            folder = Path(engine_url.removeprefix("unix://")).parent
            thing, more = f"mount {folder}", {"mounts": (Mount("/x", folder),)}
        with pytest.raises(ExecutorError) as raised:
            bench.start("true", **more)

        assert raised.value.thing == thing
        assert fault in raised.value.fault
        assert raised.value.remedy


class TestMounts:
    def test_folder_of_the_host(self, bench: Bench, tmp_path: Path) -> None:
        (tmp_path / "in").write_text("seen")
        end, recorder = bench.run("cat /here/in; echo made >/here/out", mounts=(Mount("/here", tmp_path),))

        assert (end.exit_code, recorder.out) == (0, b"seen")
        assert (tmp_path / "out").read_text() == "made\n"

    def test_folder_that_is_only_read(self, bench: Bench, tmp_path: Path) -> None:
        end, _ = bench.run("echo made >/here/out", mounts=(Mount("/here", tmp_path, read_only=True),))

        assert end.exit_code == 1
        assert list(tmp_path.iterdir()) == []

    def test_layer_keeps_what_is_below(self, bench: Bench, tmp_path: Path) -> None:
        layer = Layer(tmp_path / "lower", tmp_path / "upper", tmp_path / "work")
        for folder in (layer.lower, layer.upper, layer.work):
            folder.mkdir()
        (layer.lower / "changed").write_text("old")
        (layer.lower / "removed").write_text("old")
        command = "cat changed; echo new >changed; rm removed; mkdir made; ls"

        end, recorder = bench.run(command, mounts=(Mount("/workspace", layer),), cwd=Path("/workspace"))

        assert (end.exit_code, recorder.out) == (0, b"oldchanged\nmade\n")
        assert (layer.lower / "changed").read_text() == (layer.lower / "removed").read_text() == "old"
        assert (layer.upper / "changed").read_text() == "new\n"
        assert str(tmp_path) not in Path("/proc/mounts").read_text()

    def test_volume_outlives_its_tasks(self, bench: Bench) -> None:
        volume = f"arkqueue-test-{bench.installation}"
        bench.volumes.append(volume)
        for attempt in range(3):
            bench.run("echo x >>/index/lines", mounts=(Mount("/index", volume),), attempt=attempt)

        _, recorder = bench.run("cat /index/lines", mounts=(Mount("/index", volume, read_only=True),))

        assert recorder.out == b"x\nx\nx\n"

    def test_volumes_of_the_image_go_with_the_container(self, bench: Bench, dressed: str) -> None:
        running, recorder = bench.start(FOREVER, image=dressed)
        recorder.wait_for(b"begun")
        (mount,) = bench.inspect()["Mounts"]
        running.stop(0)
        ended(running)

        with pytest.raises(docker.errors.NotFound):
            bench.api.inspect_volume(mount["Name"])


class TestStop:
    def test_shell_obeys_at_once(self, bench: Bench) -> None:
        running, recorder = bench.start(FOREVER)
        recorder.wait_for(b"begun")

        running.stop(3600)

        assert ended(running) == Ended(143, stopped=True)

    def test_all_processes_get_the_signal(self, bench: Bench) -> None:
        # The shell's trap runs when its child has ended: so the child has to get the signal too.
        # The child says that it has begun: one that is only forked still has the shell's trap.
        running, recorder = bench.start("trap 'echo tidied; exit 7' TERM; sh -c 'echo begun; exec sleep 3600'")
        recorder.wait_for(b"begun")

        running.stop(3600)

        assert ended(running) == Ended(7, stopped=True)
        assert recorder.out == b"begun\ntidied\n"

    @pytest.mark.parametrize("grace", [0, 0.3])
    def test_what_ignores_the_signal_is_killed(self, bench: Bench, grace: float) -> None:
        running, recorder = bench.start(DEAF)
        recorder.wait_for(b"begun")

        running.stop(grace)

        assert ended(running) == Ended(137, stopped=True)

    def test_whatever_it_forked_is_gone(self, bench: Bench) -> None:
        fork = f"(trap '' TERM; setsid sh -c '{DEAF.replace(chr(39), chr(34))}' &)"
        running, recorder = bench.start(f"{fork}; {fork}; {DEAF}")
        recorder.wait_for(b"begun\nbegun\nbegun")
        processes = bench.api.top(bench.inspect()["Id"])["Processes"]
        pids = [int(process[1]) for process in processes]

        running.stop(0.1)

        assert ended(running).stopped
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]

    def test_later_shorter_grace_shortens_it(self, bench: Bench) -> None:
        running, recorder = bench.start(DEAF)
        recorder.wait_for(b"begun")

        running.stop(3600)
        running.stop(0)

        assert ended(running) == Ended(137, stopped=True)

    def test_what_had_ended_keeps_its_outcome(self, bench: Bench) -> None:
        release = threading.Event()

        class Held(Recorder):
            def write(self, stream: Stream, data: bytes) -> None:
                assert release.wait(PATIENCE)
                super().write(stream, data)

        running, _ = bench.start("echo done; exit 3", sink=Held())
        bench.api.wait(bench.inspect()["Id"])
        running.stop(5)
        release.set()

        assert ended(running) == Ended(3, stopped=False)
        running.stop(5)
        assert ended(running) == Ended(3, stopped=False)

    def test_paused_container_is_ended(self, bench: Bench) -> None:
        running, recorder = bench.start(DEAF)
        recorder.wait_for(b"begun")
        bench.api.pause(bench.inspect()["Id"])

        running.stop(0.1)

        assert ended(running).stopped

    def test_stop_does_not_wait_for_the_sink(self, bench: Bench) -> None:
        release = threading.Event()

        class Stuck(Recorder):
            def write(self, stream: Stream, data: bytes) -> None:
                super().write(stream, data)
                assert release.wait(PATIENCE)

        running, recorder = bench.start("yes", sink=Stuck())
        recorder.wait_for(b"y")
        container = bench.inspect()["Id"]

        running.stop(0)

        bench.api.wait(container)
        assert running.wait(0) is None
        release.set()
        assert ended(running) == Ended(137, stopped=True)

    @pytest.mark.parametrize("word", [b"signal=SIGTERM", b"/wait"])
    def test_engine_that_is_slow_holds_up_no_kill(self, bench: Bench, tmp_path: Path, word: bytes) -> None:
        relay = Relay(tmp_path / "relay.sock", bench.url)
        try:
            running, recorder = bench.start(DEAF, by=bench.another(url=relay.url))
            recorder.wait_for(b"begun")
            relay.hold(word)

            running.stop(0.2)

            assert relay.has_held.wait(PATIENCE)
            assert ended(running) == Ended(137, stopped=True)
        finally:
            relay.close()

    def test_what_is_not_wanted_any_more_when_its_container_is_made_never_starts(
        self, bench: Bench, tmp_path: Path
    ) -> None:
        program = bench.program("touch /data/ran", mounts=(Mount("/data", tmp_path),))

        with pytest.raises(ExecutorError, match="the task was stopped while its container started"):
            bench.executor.start(program, Recorder(), is_wanted=lambda: False)

        assert not (tmp_path / "ran").exists()
        assert bench.left() == []


class TestOthersContainers:
    def test_name_that_a_stray_of_the_attempt_has_is_taken_over(self, bench: Bench) -> None:
        stray, recorder = bench.start(FOREVER, attempt=7)
        recorder.wait_for(b"begun")
        stray.leave()
        assert ended(stray).left

        end, _ = bench.run("exit 5", attempt=7)

        assert end == Ended(5, stopped=False)

    def test_name_that_somebody_else_has_stays_theirs(self, bench: Bench) -> None:
        theirs = bench.api.create_container(bench.image, "true", name=f"arkqueue-{bench.installation[:8]}-7")["Id"]
        try:
            end, _ = bench.run("exit 5", attempt=7)

            assert end == Ended(5, stopped=False)
            assert bench.api.inspect_container(theirs)["State"]["Status"] == "created"
        finally:
            bench.api.remove_container(theirs)

    def test_other_hosts_and_unlabelled_ones_are_not_touched(self, bench: Bench) -> None:
        other = bench.another(host="other")
        theirs, recorder = bench.start(FOREVER, attempt=7, by=other)
        recorder.wait_for(b"begun")

        assert bench.executor.found() == []
        bench.executor.remove(AttemptId(7))

        assert [one.attempt for one in other.found()] == [7]
        other.remove(AttemptId(7))
        assert ended(theirs).lost
        assert other.found() == []

    def test_stray_is_ended_and_removed_with_its_volume(self, bench: Bench, tmp_path: Path) -> None:
        layer = Layer(tmp_path / "lower", tmp_path / "upper", tmp_path / "work")
        for folder in (layer.lower, layer.upper, layer.work):
            folder.mkdir()
        stray, recorder = bench.start(DEAF, attempt=7, mounts=(Mount("/workspace", layer),))
        recorder.wait_for(b"begun")
        stray.leave()
        assert ended(stray).left
        assert len(bench.left()) == 2

        bench.another().remove(AttemptId(7))

        assert bench.left() == []

    def test_layer_whose_container_somebody_else_removed_is_swept_by_the_next_executor(
        self, bench: Bench, tmp_path: Path
    ) -> None:
        layer = Layer(tmp_path / "lower", tmp_path / "upper", tmp_path / "work")
        for folder in (layer.lower, layer.upper, layer.work):
            folder.mkdir()
        running, recorder = bench.start(FOREVER, attempt=7, mounts=(Mount("/workspace", layer),))
        recorder.wait_for(b"begun")
        made = int(time.time())
        running.leave()
        assert ended(running).left
        (container,) = [
            one["Id"]
            for one in bench.api.containers(filters={"label": "arkqueue.attempt=7"})
            if one["Id"] in bench.left()
        ]
        bench.api.remove_container(container, force=True)
        assert len(bench.left()) == 1
        while int(time.time()) <= made:  # until then it could be one of the next executor's own
            time.sleep(0.01)

        bench.another().sweep()

        assert bench.left() == []


class TestManyTasks:
    @pytest.mark.full
    def test_tasks_in_a_row_leave_nothing(self, bench: Bench) -> None:
        def taken() -> dict[str, int]:
            return {"threads": threading.active_count(), "descriptors": len(os.listdir("/proc/self/fd"))}

        assert bench.left() == []  # what looks at the engine has its connection from now on
        executor = bench.another()
        before = taken()

        for attempt in range(16):
            running, _ = bench.start("echo out; echo err >&2", attempt=attempt, by=executor)
            if attempt % 4 == 0:
                running.stop(0)
            ended(running)

        assert bench.left() == []
        executor.close()
        # A task's thread may have a last word to say when its end is known.
        eventually(lambda: all(taken()[name] <= count for name, count in before.items()), lambda: (before, taken()))

    @pytest.mark.full
    def test_tasks_at_once(self, bench: Bench) -> None:
        started = [bench.start(f"echo {attempt}; exit {attempt}", attempt=attempt) for attempt in range(12)]

        for attempt, (running, recorder) in enumerate(started):
            assert ended(running) == Ended(attempt, stopped=False)
            assert recorder.out == f"{attempt}\n".encode()


class TestClosed:
    def test_close_leaves_containers_running(self, bench: Bench) -> None:
        running, recorder = bench.start(FOREVER)
        recorder.wait_for(b"begun")

        bench.executor.close()

        assert ended(running) == Ended(None, stopped=False, left=True)
        with pytest.raises(ExecutorError, match="closed"):
            bench.start("true")
        bench.executor = bench.another()
        assert [(one.attempt, one.is_running) for one in bench.executor.found()] == [(1, True)]
        bench.executor.remove(AttemptId(1))


class TestNoEngine:
    def test_it_is_said_with_the_address(self, tmp_path: Path, bench: Bench) -> None:
        executor = bench.another(url=f"unix://{tmp_path}/nobody.sock")

        with pytest.raises(EngineUnavailable) as raised:
            bench.start("true", by=executor)

        assert str(raised.value) == (
            f"Docker engine at unix://{tmp_path}/nobody.sock: it does not answer (No such file or directory). "
            "Start the engine, or correct its address and the rights to its socket"
        )

    def test_it_is_connected_to_when_it_is_there(self, tmp_path: Path, bench: Bench) -> None:
        executor = bench.another(url=f"unix://{tmp_path}/late.sock")
        with pytest.raises(EngineUnavailable):
            executor.found()
        relay = Relay(tmp_path / "late.sock", bench.url)
        try:
            running, _ = bench.start("exit 4", by=executor)

            assert ended(running) == Ended(4, stopped=False)
        finally:
            relay.close()

    def test_container_whose_start_was_not_answered_runs_once(self, bench: Bench, tmp_path: Path) -> None:
        relay = Relay(tmp_path / "relay.sock", bench.url)
        data = tmp_path / "data"
        data.mkdir()
        try:
            relay.break_off(b"/start", is_passed_on=True)

            running, recorder = bench.start(
                "echo here; echo x >> /data/ran; exit 4",
                by=bench.another(url=relay.url),
                mounts=(Mount("/data", data),),
            )

            assert isinstance(running.doubt, EngineUnavailable)
            assert (ended(running), recorder.out) == (Ended(4, stopped=False), b"here\n")
            assert (data / "ran").read_text() == "x\n"
        finally:
            relay.close()

    def test_container_whose_start_never_arrived_is_lost_and_removed(self, bench: Bench, tmp_path: Path) -> None:
        relay = Relay(tmp_path / "relay.sock", bench.url)
        try:
            relay.break_off(b"/start", is_passed_on=False)

            end, recorder = bench.run("echo here", by=bench.another(url=relay.url))

            assert (end.lost, end.message, recorder.out) == (True, "its container had not been started", b"")
            assert bench.left() == []
        finally:
            relay.close()

    def test_container_of_which_the_engine_says_nothing_is_lost(self, bench: Bench, tmp_path: Path) -> None:
        """As where its containerd is ill: it does answer, but not when it is asked for the container."""
        relay = Relay(tmp_path / "relay.sock", bench.url)
        try:
            running, recorder = bench.start(FOREVER, by=bench.another(url=relay.url, patience=1.5))
            recorder.wait_for(b"begun")
            assert running.doubt is None

            relay.break_off(b"/json", is_passed_on=False)
            relay.cut(b"/attach")

            end = ended(running)
            assert end.lost
            assert end.message == "the Docker engine said nothing of it for 2 s; its container may still run"
        finally:
            relay.close()
            for one in bench.executor.found():
                bench.executor.remove(one.attempt)

    def test_engine_that_goes_away_before_the_start_leaves_the_attempt_to_begin_again(
        self, bench: Bench, tmp_path: Path
    ) -> None:
        relay = Relay(tmp_path / "relay.sock", bench.url)
        try:
            executor = bench.another(url=relay.url)
            relay.break_off(b"/attach", is_passed_on=False)
            with pytest.raises(EngineUnavailable):
                bench.start("echo here", by=executor)
            relay.break_off(b"", is_passed_on=True)

            end, recorder = bench.run("echo here", by=executor)

            assert (end, recorder.out) == (Ended(0, stopped=False), b"here\n")
            assert bench.left() == []
        finally:
            relay.close()
