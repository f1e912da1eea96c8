"""An executor for one test, with its own installation on a real engine, where nothing
may remain.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker

from arkqueue.executor import Container, Ended, Mount, Program
from arkqueue.executor.docker.executor import DockerExecutor, DockerRunning
from arkqueue.model import AttemptId, Pull, Resources
from tests.system.executor.recorder import Recorder, ended


class Bench:
    """An executor, and the operations of the tests."""

    def __init__(self, api: docker.APIClient, url: str, image: str, **options: Any) -> None:
        self.api, self.url, self.image = api, url, image
        self.installation, self.host = uuid.uuid4().hex, "bench"
        self._options = options
        self._executors: list[DockerExecutor] = []
        self.executor = self.another()
        self.volumes: list[str] = []

    def another(self, host: str | None = None, url: str | None = None, **options: Any) -> DockerExecutor:
        """Another executor of the same installation, for the next task manager or for
        another host.
        """
        made = DockerExecutor(self.installation, host or self.host, url or self.url, **{**self._options, **options})
        self._executors.append(made)
        return made

    def program(
        self,
        *argv: str,
        attempt: int = 1,
        image: str | None = None,
        pull: Pull = Pull.MISSING,
        mounts: tuple[Mount, ...] = (),
        network: str = "none",
        resources: Resources | None = None,
        env: dict[str, str] | None = None,
        **more: Any,
    ) -> Program:
        container = Container(
            image or self.image, pull, {"arkqueue.task": "bench"}, mounts, network, resources or Resources()
        )
        command = argv if len(argv) > 1 else ("/bin/sh", "-c", argv[0])
        environment = {"PATH": "/bin", **(env or {})}
        return replace(Program(AttemptId(attempt), command, environment, Path("/"), container=container), **more)

    def start(
        self, *argv: str, sink: Any = None, by: DockerExecutor | None = None, **more: Any
    ) -> tuple[DockerRunning, Recorder]:
        recorder = sink or Recorder()
        return (by or self.executor).start(self.program(*argv, **more), recorder), recorder

    def run(self, *argv: str, **more: Any) -> tuple[Ended, Recorder]:
        running, recorder = self.start(*argv, **more)
        return ended(running), recorder

    def inspect(self, attempt: int = 1) -> dict[str, Any]:
        (found,) = [one for one in self.executor.found() if one.attempt == attempt]
        looked: dict[str, Any] = self.api.inspect_container(found.container)
        return looked

    def left(self) -> list[str]:
        """The containers, volumes and images of this installation on the engine."""
        mine = {"label": f"arkqueue.installation={self.installation}"}
        containers = [one["Id"] for one in self.api.containers(all=True, filters=mine)]
        volumes = [one["Name"] for one in self.api.volumes(filters=mine)["Volumes"] or ()]
        images = [one["Id"] for one in self.api.images(filters=mine)]
        return containers + volumes + images

    def close_executors(self) -> None:
        for one in self._executors:
            one.close()

    def close(self) -> None:
        self.close_executors()
        for container in self.api.containers(all=True, filters={"label": f"arkqueue.installation={self.installation}"}):
            self.api.remove_container(container["Id"], force=True, v=True)
        for volume in self.volumes:
            self.api.remove_volume(volume, force=True)


@contextmanager
def a_bench(api: docker.APIClient, url: str, image: str, **options: Any) -> Iterator[Bench]:
    made = Bench(api, url, image, **options)
    try:
        yield made
    finally:
        made.close()
