"""A message about the engine itself is not a fault of a task. The messages are those of real
engines.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from arkqueue.errors import EngineFault, ExecutorError
from arkqueue.executor import Container, Program
from arkqueue.executor.docker.container import refusal
from arkqueue.executor.docker.images import cannot_be_fetched
from arkqueue.model import AttemptId, Pull

PROGRAM = Program(
    AttemptId(1), ("/bin/sh", "-c", "true"), {}, Path("/workspace"), container=Container("box", Pull.MISSING, {})
)


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("write /var/lib/docker/overlay2/1f/merged/x: no space left on device", "its disk is full"),
        ("create 5e7: mkdir /var/lib/docker/volumes/5e7: no space left on device", "its disk is full"),
        ("mkdir /var/lib/docker/overlay2/1f0c-init: read-only file system", "its disk is read-only"),
        ("open /var/lib/docker/containers/1f/.tmp-config.json: read-only file system", "its disk is read-only"),
        (
            'connection error: desc = "transport: Error while dialing dial unix /run/containerd/containerd.sock:'
            ' connect: connection refused": unavailable',
            "its containerd does not answer",
        ),
    ],
)
def test_what_an_engine_cannot_do_for_now_is_its_own_fault(words: str, fault: str) -> None:
    error = refusal(PROGRAM, "box", words)
    assert isinstance(error, EngineFault)
    assert str(error).startswith(f"Docker engine: {fault} (")


@pytest.mark.parametrize(
    "words",
    [
        "OCI runtime create failed: mkdir /workspace: read-only file system: unknown",
        "error mounting: mkdir /var/lib/docker/overlay2/1f/merged/idx/sub: read-only file system: unknown",
        "failed to populate volume: write /var/lib/docker/volumes/index/_data/a: no space left on device",
        'dial tcp 10.0.0.1:443: connect: connection refused while pulling "containerd/box"',
        'exec: "nonesuch": executable file not found in $PATH',
    ],
)
def test_what_a_task_asks_for_is_its_own_fault(words: str) -> None:
    error = refusal(PROGRAM, "box", words)
    assert isinstance(error, ExecutorError)
    assert not isinstance(error, EngineFault)


@pytest.mark.parametrize(
    "words",
    [
        'Get "https://box.example/v2/": dial tcp: lookup box.example: no such host',
        'Get "https://box.example/v2/": net/http: TLS handshake timeout',
        'Get "https://box.example/v2/": context deadline exceeded',
        'Get "https://box.example/v2/": net/http: request canceled while waiting for connection'
        " (Client.Timeout exceeded while awaiting headers)",
    ],
)
def test_registry_that_is_not_reached_is_told(words: str) -> None:
    assert cannot_be_fetched("box", words).fault.startswith("its registry cannot be reached (")


@pytest.mark.parametrize(
    "words",
    [
        'Head "https://box.example/v2/box/manifests/1": no basic auth credentials',
        "unauthorized: authentication required",
    ],
)
def test_registry_that_wants_a_login_is_told(words: str) -> None:
    error = cannot_be_fetched("box", words)
    assert error.fault.startswith("its registry requires a login (")
    assert error.remedy == "Log the task manager's account in (docker login)"
