"""Containers outlive their task manager: the next one of the host takes over what runs, and removes
what nobody owns.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import docker
import pytest

from arkqueue import logs
from arkqueue.db.session import Session
from arkqueue.model import AttemptId, Stream
from arkqueue.queue import finish
from arkqueue.task_manager.attempt import Why
from arkqueue.task_manager.leases import boottime
from tests.builders import AnArchive
from tests.system.task_manager.boxes import DEAF, FOREVER, Boxes, boxes
from tests.system.task_manager.conftest import DRIVER, Drivers, Managers, attempts, log_of, settled
from tests.system.task_manager.test_containers import nothing_is_left
from tests.system.task_manager.test_running import command
from tests.waiting import PATIENCE, eventually

__all__ = ["boxes"]


def kill(driver: subprocess.Popen[bytes]) -> None:
    driver.kill()
    driver.wait()


def output(archive: AnArchive, key: str, stream: Stream) -> bytes:
    """What the log of the newest attempt has of a stream."""
    attempt, found, offset = AttemptId(attempts(archive, key)[-1]["id"]), b"", 0
    while chunks := logs.read(archive.session, attempt, offset, limit=1 << 30).chunks:
        found += b"".join(chunk.data for chunk in chunks if chunk.stream is stream)
        offset = chunks[-1].end
    return found


def has_begun(archive: AnArchive, *keys: str) -> None:
    """Wait until tasks have said so, and their starts are noted: who is killed at once may have stored the one without the other."""

    def has(key: str) -> bool:
        found = attempts(archive, key)
        return bool(found and found[-1]["started_at"]) and b"begun" in output(archive, key, Stream.STDOUT)

    eventually(lambda: all(map(has, keys)))


GO = "until [ -e /shared/go ]; do sleep 0.05; done"


def test_killed_task_managers_containers_are_adopted_with_all_of_their_output(
    archive: AnArchive, boxes: Boxes, drivers: Drivers, managers: Managers, home_folder: Path
) -> None:
    """Four at once: bytes that are no text, both streams, lines longer than 64 KiB, before the kill, meanwhile and after."""
    piece = bytes(range(256)) * 300 + b"x" * 100_000 + b"\n" + b"\0\xff\n\n" + b"tail without newline"
    (boxes.shared / "piece").write_bytes(piece)
    text = (
        "cat /shared/piece; cat /shared/piece >&2; echo begun; until [ -e /shared/meanwhile ]; do sleep 0.05; done;"
        f"cat /shared/piece; cat /shared/piece >&2; touch /shared/written-$ARKQUEUE_TASK; {GO};"
        "cat /shared/piece; cat /shared/piece >&2; echo code=$1 > $ARKQUEUE_OUTPUT; exit $1"
    )
    codes = {"a": 0, "b": 1, "c": 65, "d": 0}
    archive.commit({name: boxes.task(["sh", "-c", text, "sh", str(code)]) for name, code in codes.items()})
    driver = drivers(slots=4, **boxes.settings)
    keys = [f"{name}@2" for name in codes]
    has_begun(archive, *keys)
    kill(driver)
    (boxes.shared / "meanwhile").touch()
    eventually(lambda: all((boxes.shared / f"written-{name}").exists() for name in codes))
    manager = managers(**boxes.settings)
    eventually(lambda: {a["process"] for key in keys for a in attempts(archive, key)} == {manager.process})
    (boxes.shared / "go").touch()
    for name, state in {"a": "completed", "b": "failed", "c": "rejected", "d": "completed"}.items():
        settled(archive, f"{name}@2", state)
        (attempt,) = attempts(archive, f"{name}@2")
        assert (attempt["exit_code"], attempt["outputs"]) == (codes[name], {"code": str(codes[name])})
        assert output(archive, f"{name}@2", Stream.STDOUT) == piece + b"begun\n" + piece * 2
        assert output(archive, f"{name}@2", Stream.STDERR) == piece * 3
    assert eventually(lambda: nothing_is_left(boxes, home_folder))


def test_an_adopted_container_tells_also_what_it_used_before(
    archive: AnArchive, boxes: Boxes, drivers: Drivers, managers: Managers
) -> None:
    burn = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"
    archive.commit({"task": boxes.task(f"{burn}; echo begun; {GO}")})
    driver = drivers(slots=4, **boxes.settings)
    has_begun(archive, "task@2")
    kill(driver)
    manager = managers(**boxes.settings)
    eventually(lambda: attempts(archive, "task@2")[0]["process"] == manager.process)
    # Nothing tells that a sample was read before the end does.
    eventually(lambda: any(one.newest for one in manager.executors.docker._samples._sampled.values()))
    (boxes.shared / "go").touch()
    settled(archive, "task@2", "completed")
    (attempt,) = attempts(archive, "task@2")
    assert attempt["usage_sampled"]
    assert attempt["processor_seconds"] > 0.05
    assert attempt["peak_memory_bytes"] > 0


def test_container_that_ended_while_nobody_looked_has_its_outcome(
    archive: AnArchive, boxes: Boxes, drivers: Drivers, managers: Managers
) -> None:
    archive.commit({"task": boxes.task(f"echo begun; {GO}; echo done; exit 65")})
    driver = drivers(slots=4, **boxes.settings)
    has_begun(archive, "task@2")
    kill(driver)
    (boxes.shared / "go").touch()
    eventually(lambda: boxes.all()[0]["State"] == "exited")
    managers(**boxes.settings)
    settled(archive, "task@2", "rejected")
    assert log_of(archive, "task@2") == "begun\ndone\n"


def test_stopped_task_manager_leaves_containers_to_the_next_and_ends_processes(
    archive: AnArchive, boxes: Boxes, managers: Managers, home_folder: Path
) -> None:
    home_folder.mkdir()
    first = managers(**boxes.settings)
    archive.commit({"inside": boxes.task(f"echo begun; {GO}; echo done"), "process": command("echo begun; sleep 1000")})
    has_begun(archive, "inside@2", "process@2")
    first.stop()
    (attempt,) = attempts(archive, "inside@2")
    assert first.left == [attempt["id"]]
    assert attempt["ended_at"] is None
    assert archive.state("process@2") == "ready"
    archive.cancel("process@2")
    assert [one["State"] for one in boxes.all()] == ["running"]
    managers(**boxes.settings)
    (boxes.shared / "go").touch()
    settled(archive, "inside@2", "completed")
    assert log_of(archive, "inside@2") == "begun\ndone\n"
    assert len(attempts(archive, "inside@2")) == 1
    assert eventually(lambda: nothing_is_left(boxes, home_folder))


def test_adopted_containers_count_against_the_slots(
    archive: AnArchive, boxes: Boxes, managers: Managers, home_folder: Path
) -> None:
    home_folder.mkdir()
    first = managers(slots=2, **boxes.settings)
    archive.commit({"a": boxes.task(f"echo begun; {GO}"), "b": boxes.task(f"echo begun; {GO}")})
    has_begun(archive, "a@2", "b@2")
    first.stop()
    archive.commit({"c": boxes.task("true")})
    second = managers(slots=2, **boxes.settings)
    eventually(lambda: len(archive.sql("select id from attempt where process = %s", second.process)) == 2)
    assert archive.state("c@3") == "ready"
    (boxes.shared / "go").touch()
    settled(archive, "c@3", "completed")


def test_what_was_asked_meanwhile_is_done(
    archive: AnArchive, boxes: Boxes, drivers: Drivers, managers: Managers
) -> None:
    archive.commit({"task": boxes.task(f"echo begun; test $ARKQUEUE_ATTEMPT = 2 || {{ {DEAF}; }}", grace="1s")})
    driver = drivers(slots=4, **boxes.settings)
    has_begun(archive, "task@2")
    kill(driver)
    archive.restart("task@2")
    managers(**boxes.settings)
    settled(archive, "task@2", "completed")
    assert attempts(archive, "task@2")[0]["end"] == "stopped"
    assert boxes.all() == []


@pytest.mark.full
def test_time_goes_on_while_nobody_looks(
    archive: AnArchive, boxes: Boxes, drivers: Drivers, managers: Managers
) -> None:
    archive.commit({"task": boxes.task(f"echo begun; {FOREVER}", timeout="1h", grace="1s")})
    driver = drivers(slots=4, **boxes.settings)
    has_begun(archive, "task@2")
    kill(driver)
    archive.sql("update attempt set started_at = started_at - interval '1 hour'")
    managers(**boxes.settings)
    settled(archive, "task@2", "failed")
    assert attempts(archive, "task@2")[0]["end"] == "timed-out"


def test_host_that_comes_back_too_late_removes_its_container(
    archive: AnArchive,
    session: Session,
    boxes: Boxes,
    drivers: Drivers,
    managers: Managers,
    home_folder: Path,
    tmp_path: Path,
) -> None:
    archive.commit({"task": boxes.task(f"echo begun $ARKQUEUE_ATTEMPT; test $ARKQUEUE_ATTEMPT = 2 || {{ {DEAF}; }}")})
    driver = drivers(slots=4, **boxes.settings)
    has_begun(archive, "task@2")
    kill(driver)
    archive.sql("update attempt set lease_until = clock_timestamp() - outlives - interval '1s'")
    eventually(lambda: finish.lapse(session, lease=0.01, gap=60))
    (first,) = boxes.all()
    managers(home=tmp_path / "elsewhere", **boxes.settings)
    settled(archive, "task@2", "completed")
    assert [a["end"] for a in attempts(archive, "task@2")] == ["lost", "exited"]
    assert [one["Id"] for one in boxes.all()] == [first["Id"]], "the other host leaves alone what is not its own"
    managers(**boxes.settings)
    assert eventually(lambda: nothing_is_left(boxes, home_folder))


def test_attempt_without_its_container_is_lost(
    archive: AnArchive, boxes: Boxes, drivers: Drivers, managers: Managers
) -> None:
    archive.commit({"task": boxes.task(f"echo begun; test $ARKQUEUE_ATTEMPT = 2 || {{ {FOREVER}; }}")})
    driver = drivers(slots=4, **boxes.settings)
    has_begun(archive, "task@2")
    kill(driver)
    boxes.kill()
    managers(**boxes.settings)
    settled(archive, "task@2", "completed")
    first = attempts(archive, "task@2")[0]
    assert (first["end"], first["message"]) == ("lost", "its task manager died, and its container is gone")


KILLED_BEFORE_ITS_CONTAINER = """
import os, signal
from arkqueue.task_manager.executors import Executors

Executors.start = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
"""


def test_attempt_whose_task_manager_was_killed_before_its_first_container_is_lost_at_once(
    archive: AnArchive, boxes: Boxes, drivers: Drivers, managers: Managers
) -> None:
    """It waited until its reservation was over: the next task manager did not ask the engine, as the home folder had no sign of containers yet."""
    archive.commit({"task": boxes.task("echo begun")})
    assert drivers(KILLED_BEFORE_ITS_CONTAINER, slots=4, **boxes.settings).wait(PATIENCE) == -signal.SIGKILL
    managers(**boxes.settings)
    settled(archive, "task@2", "completed")
    first = attempts(archive, "task@2")[0]
    assert (first["end"], first["message"]) == ("lost", "its task manager died, and its container is gone")


def test_strays_are_removed_also_while_tasks_run_and_nothing_else_is(
    archive: AnArchive, boxes: Boxes, managers: Managers, home_folder: Path
) -> None:
    home_folder.mkdir()
    archive.commit({"task": boxes.task(f"echo begun; {GO}")})
    managers(sweep="200ms", **boxes.settings)
    has_begun(archive, "task@2")
    (own,) = boxes.all()
    labels = dict(own["Labels"])

    def another(**changes: str) -> str:
        quiet = boxes.engine.create_host_config(network_mode="none")
        made = boxes.engine.create_container(boxes.image, ["sleep", "1000"], labels=labels | changes, host_config=quiet)
        with suppress(docker.errors.APIError):  # a sweep may take a stray before it starts
            boxes.engine.start(made["Id"])
        return str(made["Id"])

    stray = another(**{"arkqueue.attempt": "999"})
    others = {another(**{"arkqueue.attempt": "999", "arkqueue.host": "other"}), own["Id"]}
    eventually(lambda: stray not in {one["Id"] for one in boxes.all()})
    assert {one["Id"] for one in boxes.all() if one["State"] == "running"} == others
    (boxes.shared / "go").touch()
    settled(archive, "task@2", "completed")


def test_what_is_removed_before_a_task_is_run_again_is_its_own_alone(
    archive: AnArchive, boxes: Boxes, managers: Managers, home_folder: Path
) -> None:
    """An archive may have the name of one that was removed, whose containers still run."""
    home_folder.mkdir()
    managers(sweep="1h", **boxes.settings)
    archive.commit({"task": boxes.task(f"echo begun; test $ARKQUEUE_ATTEMPT -gt 1 || {{ {GO}; exit 1; }}")})
    has_begun(archive, "task@2")
    (own,) = boxes.all()
    made = {}
    for task in (own["Labels"]["arkqueue.task-id"], "999"):
        labels = own["Labels"] | {"arkqueue.attempt": "0", "arkqueue.task-id": task}
        made[task] = boxes.engine.create_container(boxes.image, ["true"], labels=labels)["Id"]
    (boxes.shared / "go").touch()
    settled(archive, "task@2", "failed")
    archive.retry("task@2")
    settled(archive, "task@2", "completed")
    assert eventually(lambda: [one["Id"] for one in boxes.all()] == [made["999"]])


def test_adoption_waits_for_the_engine_while_processes_run(
    archive: AnArchive, boxes: Boxes, drivers: Drivers, managers: Managers, tmp_path: Path
) -> None:
    archive.commit({"task": boxes.task(f"echo begun; {GO}; echo done")})
    driver = drivers(slots=4, **boxes.settings)
    has_begun(archive, "task@2")
    kill(driver)
    place = tmp_path / "engine.sock"
    manager = managers(**{**boxes.settings, "docker": {"host": f"unix://{place}"}})
    archive.commit({"process": command("true")})
    settled(archive, "process@3", "completed")
    assert attempts(archive, "task@2")[0]["process"] != manager.process
    place.symlink_to(boxes.url.removeprefix("unix://"))
    (boxes.shared / "go").touch()
    settled(archive, "task@2", "completed")
    assert log_of(archive, "task@2") == "begun\ndone\n"


def test_drain_waits_for_containers(archive: AnArchive, boxes: Boxes, managers: Managers, home_folder: Path) -> None:
    import threading

    home_folder.mkdir()
    manager = managers(**boxes.settings)
    archive.commit({"task": boxes.task(f"echo begun; {GO}")})
    has_begun(archive, "task@2")
    stopping = threading.Thread(target=manager.stop, kwargs={"drain": True})
    stopping.start()
    # Draining can be seen nowhere else before a task has ended.
    eventually(manager._closing.is_set)
    (boxes.shared / "go").touch()
    stopping.join()
    assert archive.state("task@2") == "completed"
    assert manager.left == []


def test_server_without_containers_does_not_load_the_engines_library(pg_uri: str, home_folder: Path) -> None:
    looked = "manager._adoption._tried.wait(60)\nassert manager._adoption.is_swept\nassert 'docker' not in sys.modules"
    script = DRIVER.replace("threading.Event().wait()", looked)
    subprocess.run([sys.executable, "-c", script, pg_uri, home_folder, "{}"], check=True)
    assert not (home_folder / "containers").exists()


def test_container_outlives_an_outage_of_the_database_that_is_longer_than_its_lease(
    archive: AnArchive, boxes: Boxes, managers: Managers, home_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch on the clock ends a process then; a container as long as its host may still come back to it."""
    home_folder.mkdir()
    manager = managers(**boxes.settings)
    archive.commit({"inside": boxes.task(f"echo begun; {GO}"), "process": command("echo begun; sleep 1000")})
    has_begun(archive, "inside@2", "process@2")
    # Time passes for the leases: no test waits for 200 seconds.
    leases = manager._leases
    inside, process = sorted(leases.held(), key=lambda attempt: attempt.claim.name)
    monkeypatch.setattr(leases, "renew", lambda: None)
    now = boottime()
    leases.clock = lambda: now + 200
    leases.look()
    assert process.why is Why.SILENCE
    assert inside.why is None
    leases.clock = lambda: now + 1000
    leases.look()
    assert inside.why is Why.SILENCE
