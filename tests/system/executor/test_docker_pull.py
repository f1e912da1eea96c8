"""Images of a registry: pulled if the policy says so, identified by their ids, and not awaited
after the last interested attempt has ended.
"""

from __future__ import annotations

import base64
import json
import threading
from pathlib import Path

import docker
import pytest

from arkqueue.errors import ExecutorError
from arkqueue.executor import Container
from arkqueue.executor.docker import images as module
from arkqueue.model import Pull
from tests.engine import busybox_files, label, packed
from tests.system.executor.docker_bench import Bench
from tests.system.executor.registry import Registry
from tests.waiting import PATIENCE


@pytest.fixture
def labels(request: pytest.FixtureRequest) -> dict[str, str]:
    """By which what is pulled is removed in the end."""
    return label(request.config)


def test_missing_image_is_fetched_once_and_known_by_its_digest(
    bench: Bench, registry: Registry, labels: dict[str, str]
) -> None:
    digest = registry.put("tool:2", busybox_files(), labels)
    name = f"{registry.address}/tool:2"

    image = bench.executor.image(Container(name, Pull.MISSING, {}))

    assert image == f"{registry.address}/tool@{digest}"
    assert bench.run("echo runs", image=image)[1].out == b"runs\n"
    registry.put("tool:2", packed({"other": b"other"}), labels)
    assert bench.executor.image(Container(name, Pull.MISSING, {})) == image


def test_always_gets_what_the_name_means_now(bench: Bench, registry: Registry, labels: dict[str, str]) -> None:
    name = f"{registry.address}/tool:2"
    for files in (packed({"first": b"1"}), packed({"second": b"2"})):
        digest = registry.put("tool:2", files, labels)

        assert bench.executor.image(Container(name, Pull.ALWAYS, {})) == f"{registry.address}/tool@{digest}"


def test_fetching_is_said_before_it_begins(bench: Bench, registry: Registry, labels: dict[str, str]) -> None:
    registry.put("tool:2", packed({"said": b"1"}), labels)
    name = f"{registry.address}/tool:2"
    notes: list[str] = []
    registry.refusal = 500

    with pytest.raises(ExecutorError):
        bench.executor.image(Container(name, Pull.MISSING, {}), note=notes.append)
    registry.refusal = None
    for pull in (Pull.MISSING, Pull.MISSING, Pull.NEVER, Pull.ALWAYS):
        bench.executor.image(Container(name, pull, {}), note=notes.append)

    assert notes == [*[f"image {name} is fetched"] * 2, f"image {name} is fetched, unless the engine has its newest"]


def test_name_without_a_tag_is_the_latest_and_nothing_else(
    bench: Bench, registry: Registry, labels: dict[str, str]
) -> None:
    digest = registry.put("tool:latest", packed({"latest": b"1"}), labels)
    registry.put("tool:other", packed({"other": b"1"}), labels)

    assert bench.executor.image(Container(f"{registry.address}/tool", Pull.MISSING, {})).endswith(digest)

    with pytest.raises(docker.errors.NotFound):
        bench.api.inspect_image(f"{registry.address}/tool:other")


def test_image_is_not_known_by_a_registry_that_was_not_asked_for(
    bench: Bench, registry: Registry, labels: dict[str, str]
) -> None:
    registry.put("tool:1", packed({"renamed": b"1"}), labels)
    bench.executor.image(Container(f"{registry.address}/tool:1", Pull.MISSING, {}))
    local = f"{registry.address.removeprefix(f'{registry.host}/')}/tool"
    bench.api.tag(f"{registry.address}/tool:1", local, "1")

    assert (
        bench.executor.image(Container(f"{local}:1", Pull.MISSING, {})) == bench.api.inspect_image(local + ":1")["Id"]
    )


def test_image_by_its_digest_is_fetched(bench: Bench, registry: Registry, labels: dict[str, str]) -> None:
    name = f"{registry.address}/tool@{registry.put('tool:1', packed({'by': b'digest'}), labels)}"

    assert bench.executor.image(Container(name, Pull.MISSING, {})) == name


@pytest.mark.parametrize("status", [401, 404, 500])
def test_registry_that_refuses_is_said(bench: Bench, registry: Registry, status: int) -> None:
    registry.refusal = status

    with pytest.raises(ExecutorError) as raised:
        bench.executor.image(Container(f"{registry.address}/tool:1", Pull.MISSING, {}))

    assert raised.value.thing == f"image '{registry.address}/tool:1'"
    assert raised.value.remedy


def log_in(folder: Path, registry: Registry, login: str) -> None:
    """What ``docker login`` leaves in the folder of its configuration."""
    auths = {registry.host: {"auth": base64.b64encode(login.encode()).decode()}}
    (folder / "config.json").write_text(json.dumps({"auths": auths}))


def test_login_is_read_when_it_is_needed(
    bench: Bench, registry: Registry, labels: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    digest = registry.put("tool:1", packed({"guarded": b"1"}), labels)
    wanted = Container(f"{registry.address}/tool:1", Pull.ALWAYS, {})
    registry.login = "me:old"
    log_in(tmp_path, registry, "me:old")
    assert bench.executor.image(wanted).endswith(digest)

    registry.login = "me:new"
    with pytest.raises(ExecutorError, match="its registry requires a login"):
        bench.executor.image(wanted)

    log_in(tmp_path, registry, "me:new")
    assert bench.executor.image(wanted).endswith(digest)


def test_registry_that_wants_a_login_is_said(
    bench: Bench, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    registry.login = "me:secret"

    with pytest.raises(ExecutorError, match="its registry requires a login"):
        bench.executor.image(Container(f"{registry.address}/tool:1", Pull.MISSING, {}))


def test_logins_that_cannot_be_read_are_said(
    bench: Bench, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.executor.check()
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"auths": {registry.host: {"auth": "!"}}}))

    with pytest.raises(ExecutorError, match="the logins to registries cannot be read"):
        bench.executor.image(Container(f"{registry.address}/tool:1", Pull.MISSING, {}))


def test_pull_that_hangs_is_given_up_when_nobody_wants_it_any_more(
    bench: Bench, registry: Registry, labels: dict[str, str]
) -> None:
    digest = registry.put("tool:2", packed({"late": b"1"}), labels)
    wanted = Container(f"{registry.address}/tool:2", Pull.MISSING, {})
    registry.hold()
    is_canceled = threading.Event()
    raised: list[ExecutorError] = []

    def get() -> None:
        try:
            bench.executor.image(wanted, lambda: not is_canceled.is_set())
        except ExecutorError as error:
            raised.append(error)

    getting = threading.Thread(target=get)
    getting.start()
    assert registry.has_held.wait(PATIENCE)
    is_canceled.set()
    getting.join(PATIENCE)

    assert [error.fault for error in raised] == ["the task was stopped while its image was fetched"]
    registry.let_go()
    assert bench.executor.image(wanted).endswith(digest)


def test_pull_of_which_nothing_is_heard_has_an_end(
    bench: Bench, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENCE", 0.5)
    registry.hold()

    with pytest.raises(ExecutorError) as raised:
        bench.executor.image(Container(f"{registry.address}/tool:2", Pull.MISSING, {}))

    assert raised.value.fault == "its registry cannot be reached (timeout: the registry sent nothing for 0.5 s)"


def test_what_is_removed_from_the_engine_meanwhile_is_fetched_again(
    bench: Bench, registry: Registry, labels: dict[str, str], tmp_path: Path
) -> None:
    registry.put("tool:2", packed({"again": str(tmp_path).encode()}), labels)
    wanted = Container(f"{registry.address}/tool:2", Pull.MISSING, {})
    image = bench.executor.image(wanted)

    bench.api.remove_image(wanted.image)

    assert bench.executor.image(wanted) == image
