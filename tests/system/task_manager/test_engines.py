"""Task managers whose engine is restarted, is full, or has to remember much; the engines that are
harmed are the tests' own.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from arkqueue.db.session import Session
from arkqueue.model import Stream
from arkqueue.views.explain import explain
from arkqueue.views.reasons import Why
from tests.builders import AnArchive
from tests.engine import OwnEngine, busybox_files, client, import_image
from tests.system.executor.relay import Relay
from tests.system.task_manager.boxes import DEAF, FOREVER, Boxes, boxes
from tests.system.task_manager.conftest import Managers, attempts, ended, log_of, settled
from tests.system.task_manager.test_adoption import output
from tests.system.task_manager.test_containers import nothing_is_left
from tests.waiting import eventually

__all__ = ["boxes"]

OwnEngines = Callable[..., OwnEngine]


@pytest.fixture
def an_image() -> Iterator[Callable[[OwnEngine], tuple[docker.APIClient, str]]]:
    """Busybox, on an engine that has nothing."""
    made: list[docker.APIClient] = []

    def make(engine: OwnEngine) -> tuple[docker.APIClient, str]:
        made.append(client(engine.url))
        return made[-1], import_image(made[-1], "busybox", busybox_files(), [], "own")

    yield make
    for api in made:
        api.close()


AnImage = Callable[[OwnEngine], tuple[docker.APIClient, str]]


def in_container(image: str, text: str, **fields: str) -> str:
    known = {"image": image, "checkout": "none", "network": "none", **fields}
    return f"command: {text!r}\n" + "".join(f"{name}: {value}\n" for name, value in known.items())


@pytest.mark.full
def test_task_whose_engine_is_restarted_is_lost_and_does_what_it_says_of_that(
    archive: AnArchive, managers: Managers, home_folder: Path, own_engine: OwnEngines, an_image: AnImage
) -> None:
    engine = own_engine()
    _, image = an_image(engine)
    home_folder.mkdir()
    managers(docker={"host": engine.url})
    text = f"echo begun; test $ARKQUEUE_ATTEMPT = 2 || {{ {FOREVER}; }}"
    archive.commit({"again": in_container(image, text), "never": in_container(image, text, on_lost="fail")})
    eventually(
        lambda: all(attempts(archive, key) and log_of(archive, key) == "begun\n" for key in ("again@2", "never@2"))
    )

    engine.stop()
    engine.start()

    settled(archive, "again@2", "completed")
    settled(archive, "never@2", "failed")
    assert [one["end"] for one in attempts(archive, "again@2")] == ["lost", "exited"]
    (only,) = attempts(archive, "never@2")
    assert only["end"] == "lost"
    assert "Docker engine" in only["message"]
    assert only["message"] in log_of(archive, "never@2", Stream.NOTE)


@pytest.mark.full
def test_engine_that_is_started_after_its_task_manager_is_waited_for(
    archive: AnArchive, managers: Managers, home_folder: Path, own_engine: OwnEngines, an_image: AnImage
) -> None:
    """As at the start of a host, where nothing says which comes first."""
    engine = own_engine()
    _, image = an_image(engine)
    home_folder.mkdir()
    first = managers(docker={"host": engine.url})
    archive.commit({"task": in_container(image, "true")})
    settled(archive, "task@2", "completed")
    first.stop()
    engine.stop()

    managers(docker={"host": engine.url})
    archive.commit({"task": in_container(image, "true")})
    message = ended(archive, "task@3")["message"]
    assert message.startswith(f"not started, and handed back: Docker engine at {engine.url}: it does not answer")
    engine.start()

    settled(archive, "task@3", "completed")
    assert {one["end"] for one in attempts(archive, "task@3")[:-1]} == {"stopped"}


def test_while_the_engine_is_away_other_tasks_go_on_and_it_is_told_why_containers_wait(
    archive: AnArchive,
    session: Session,
    managers: Managers,
    home_folder: Path,
    own_engine: OwnEngines,
    an_image: AnImage,
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = own_engine()
    _, image = an_image(engine)
    home_folder.mkdir()
    managers(slots=1, docker={"host": engine.url}).executors.prove()
    engine.stop()
    archive.commit({f"boxed{n}": in_container(image, "true") for n in range(3)})
    eventually(lambda: archive.sql("select 1 from task_manager where engine_fault is not null"))
    archive.commit({f"bare{n}": "command: echo here\ncheckout: none" for n in range(9)})
    for number in range(9):
        settled(archive, f"bare{number}@3", "completed")
    told = explain(session, archive.task("boxed2@2"))
    assert [reason.kind for reason in told.reasons] == [Why.NO_FIT_HOST]
    assert f"Docker engine at {engine.url}: it does not answer" in told.text

    engine.start()

    for number in range(3):
        settled(archive, f"boxed{number}@2", "completed")
    assert eventually(lambda: archive.sql("select 1 from task_manager where engine_fault is null"))
    # Said once: by the engine's answer, or by a container that starts before that.
    assert re.findall("(containers|tasks) (?:can )?start on this host again", caplog.text) == ["containers"]


@pytest.mark.full
def test_engine_that_hangs_keeps_no_process_from_running(
    archive: AnArchive,
    managers: Managers,
    home_folder: Path,
    own_engine: OwnEngines,
    an_image: AnImage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = own_engine()
    _, image = an_image(engine)
    home_folder.mkdir()
    managers(slots=2, docker={"host": engine.url}).executors.prove()
    monkeypatch.setattr("arkqueue.executor.docker.engine.FIRST_ANSWER", 1.0)
    engine.freeze()
    archive.commit({f"boxed{n}": in_container(image, "true") for n in range(3)})
    archive.commit({f"bare{n}": "command: echo here\ncheckout: none" for n in range(3)})
    for number in range(3):
        settled(archive, f"bare{number}@3", "completed")
    assert set(archive.states().values()) <= {"ready", "running", "completed", "waiting"}
    (told,) = eventually(lambda: archive.sql("select engine_fault from task_manager where engine_fault is not null"))
    assert "timed out" in told["engine_fault"]

    engine.thaw()

    for number in range(3):
        settled(archive, f"boxed{number}@2", "completed")


@pytest.mark.full
def test_start_that_the_engine_does_not_answer_is_no_proof_that_it_can_start_containers(
    archive: AnArchive,
    boxes: Boxes,
    managers: Managers,
    tmp_path: Path,
    home_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("arkqueue.executor.docker.engine.CALL_TIMEOUT", 3.0)
    relay = Relay(tmp_path / "relay.sock", boxes.url)
    try:
        home_folder.mkdir()
        managers(slots=2, **boxes.settings | {"docker": {"host": relay.url}}).executors.prove()
        relay.hold(b"/start")
        archive.commit({f"boxed{n}": boxes.task("true") for n in range(4)})
        (told,) = eventually(
            lambda: archive.sql("select engine_fault from task_manager where engine_fault is not null")
        )
        assert "timed out" in told["engine_fault"]

        relay.release()

        for number in range(4):
            settled(archive, f"boxed{number}@2", "completed")
        eventually(lambda: archive.sql("select 1 from task_manager where engine_fault is null"))
        assert eventually(lambda: nothing_is_left(boxes, home_folder))
    finally:
        relay.close()


@pytest.mark.full
def test_other_host_runs_what_a_full_engine_cannot(
    archive: AnArchive,
    boxes: Boxes,
    managers: Managers,
    tmp_path: Path,
    own_engine: OwnEngines,
) -> None:
    """Its free slots would swallow all tasks, as each of them fails within milliseconds."""
    engine = own_engine(small_disk)
    fill(engine)
    ill = managers(home=tmp_path / "ill", docker={"host": engine.url})
    archive.commit({f"t{number}": in_container(boxes.image, "true") for number in range(12)})
    eventually(lambda: archive.sql("select 1 from attempt where ended_at is not null"))

    well = managers(home=tmp_path / "well", **boxes.settings)

    for number in range(12):
        settled(archive, f"t{number}@2", "completed")
        assert [one["host"] for one in attempts(archive, f"t{number}@2") if one["end"] == "exited"] == [well.host]
    assert archive.sql('select distinct "end" from attempt where host = %s', ill.host) == [{"end": "stopped"}]


def test_task_for_containers_fails_where_there_never_was_an_engine(
    archive: AnArchive, managers: Managers, tmp_path: Path
) -> None:
    managers(docker={"host": f"unix://{tmp_path}/none.sock"})
    archive.commit({"task": in_container("busybox", "true")})
    settled(archive, "task@2", "failed")
    (only,) = attempts(archive, "task@2")
    assert only["end"] == "not-started"
    assert "it does not answer" in only["message"]


def small_disk(folder: Path) -> None:
    (folder / "data").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", folder / "data"], check=True)


def fill(engine: OwnEngine) -> Path:
    """What to remove to make room again."""
    full = engine.folder / "data" / "full"
    assert subprocess.run(["dd", "if=/dev/zero", f"of={full}", "bs=4k"], check=False, capture_output=True).returncode
    return full


@pytest.mark.full
@pytest.mark.parametrize("was_used", [False, True])
def test_task_on_an_engine_whose_disk_is_full_is_told_so_and_runs_later(
    archive: AnArchive,
    managers: Managers,
    home_folder: Path,
    own_engine: OwnEngines,
    an_image: AnImage,
    was_used: bool,
) -> None:
    engine = own_engine(small_disk)
    api, image = an_image(engine)
    unknown = import_image(api, "unknown", busybox_files(), ["USER builder"], "own")
    home_folder.mkdir()
    if was_used:
        managers(docker={"host": engine.url})
        archive.commit({"first": in_container(image, "true")})
        settled(archive, "first@2", "completed")
    full = fill(engine)
    if not was_used:
        assert "its disk is full" in managers(docker={"host": engine.url}).executors.announce()
    archive.commit({"known": in_container(image, "true"), "unknown": in_container(unknown, "true")})
    rev = 3 if was_used else 2
    for name in ("known", "unknown"):
        message = ended(archive, f"{name}@{rev}")["message"]
        assert message.startswith("not started, and handed back: Docker engine: its disk is full (")
        assert message.endswith("Free space on it")

    full.unlink()

    for name in ("known", "unknown"):
        settled(archive, f"{name}@{rev}", "completed")
        assert {one["end"] for one in attempts(archive, f"{name}@{rev}")[:-1]} == {"stopped"}
    assert archive.sql("select distinct failures from task") == [{"failures": 0}]
    assert eventually(lambda: list((home_folder / "work").iterdir()) == [])


def live_restore(folder: Path) -> None:
    (folder / "daemon.json").write_text('{"live-restore": true}')


@pytest.mark.full
def test_attempt_begins_only_when_what_the_engine_has_kept_of_earlier_ones_is_gone(
    archive: AnArchive, managers: Managers, home_folder: Path, own_engine: OwnEngines, an_image: AnImage
) -> None:
    """The engine crashes and its containers go on; it is back when the attempt has been given up."""
    engine = own_engine(live_restore)
    api, image = an_image(engine)
    home_folder.mkdir()
    managers(docker={"host": engine.url}, adopt_within="1s", sweep="1h")
    archive.commit({"task": in_container(image, f"echo begun; test $ARKQUEUE_ATTEMPT -gt 1 || {{ {DEAF}; }}")})
    eventually(lambda: attempts(archive, "task@2") and log_of(archive, "task@2") == "begun\n")

    engine.kill()
    eventually(lambda: [one["end"] for one in attempts(archive, "task@2")[:2]] == ["lost", "stopped"])
    engine.start()

    settled(archive, "task@2", "completed")
    first, *_, last = (str(one["id"]) for one in attempts(archive, "task@2"))
    events = api.events(since=1, until=time.time(), filters={"type": "container"}, decode=True)
    seen = [(one["Actor"]["Attributes"].get("arkqueue.attempt"), one["Action"]) for one in events]
    assert seen.index((first, "die")) < seen.index((last, "start"))


def test_output_is_whole_when_its_task_is_settled(
    archive: AnArchive, boxes: Boxes, managers: Managers, home_folder: Path
) -> None:
    piece = bytes(range(256)) * 1024
    (boxes.shared / "piece").write_bytes(piece)
    home_folder.mkdir()
    managers(log_head="16MiB", log_tail="16MiB", **boxes.settings)
    text = "for i in 1 2 3 4; do cat /shared/piece; cat /shared/piece >&2; done"
    archive.commit({f"t{number}": boxes.task(text) for number in range(4)})
    for number in range(4):
        settled(archive, f"t{number}@2", "completed")
        for stream in (Stream.STDOUT, Stream.STDERR):
            assert output(archive, f"t{number}@2", stream) == piece * 4
    assert eventually(lambda: nothing_is_left(boxes, home_folder))


def test_engine_keeps_at_least_as_much_of_a_log_as_arkqueue(
    archive: AnArchive, boxes: Boxes, managers: Managers, home_folder: Path
) -> None:
    home_folder.mkdir()
    managers(log_head="1GiB", log_tail="512MiB", **boxes.settings)
    archive.commit({"task": boxes.task(FOREVER)})
    (container,) = eventually(boxes.running)
    log = boxes.engine.inspect_container(container["Id"])["HostConfig"]["LogConfig"]
    archive.cancel("task@2")
    settled(archive, "task@2", "canceled")

    assert log["Type"] == "local"
    assert log["Config"]["compress"] == "false"
    assert int(log["Config"]["max-size"]) >= 3 << 29


def test_index_in_a_volume_lives_from_revision_to_revision_and_others_only_read_it(
    archive: AnArchive, boxes: Boxes, managers: Managers, home_folder: Path
) -> None:
    volume = f"arkqueue-test-{boxes.installation}"
    granted = [
        {"name": "index", "volume": volume, "archives": ["papers"]},
        {"name": "readable", "volume": volume, "archives": ["papers"], "read_only": True},
    ]
    home_folder.mkdir()
    managers(**boxes.settings | {"mounts": granted})
    write = boxes.task("echo $ARKQUEUE_REVISION >> /index/list", mounts=[{"name": "index", "path": "/index"}])
    read = boxes.task("cat /mnt/readable/list; touch /mnt/readable/mine", mounts=["readable"])
    try:
        for _ in range(3):
            archive.commit({"write": write + "depends: [PREV]\n", "read": read + "depends: [write]\n"})
        settled(archive, "read@4", "failed")  # by touch
        assert log_of(archive, "read@4", Stream.STDOUT).splitlines()[:3] == ["2", "3", "4"]
        assert "Read-only file system" in log_of(archive, "read@4", Stream.STDERR)
        assert eventually(lambda: nothing_is_left(boxes, home_folder))
        assert boxes.engine.inspect_volume(volume)["Name"] == volume
    finally:
        boxes.kill()
        boxes.engine.remove_volume(volume, force=True)
