"""Containers of a test's installation: their tasks, their state on the engine, and what remains on
this host.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import docker
import pytest

from arkqueue.db.session import Session
from arkqueue.queue import claim
from tests.waiting import eventually

FOREVER = "while :; do sleep 1; done"
DEAF = f"trap '' TERM; {FOREVER}"


class Boxes:
    """The containers of a test. ``image`` has busybox and the users root, builder (1000:100) and
    nobody.
    """

    def __init__(self, engine: docker.APIClient, url: str, image: str, installation: str, shared: Path) -> None:
        self.engine, self.url, self.image, self.installation = engine, url, image, installation
        self.shared = shared
        shared.mkdir()

    @property
    def settings(self) -> dict[str, Any]:
        """Settings for a task manager: the engine, and the folder ``shared`` that
        tasks may mount.
        """
        return {
            "docker": {"host": self.url},
            "mounts": [{"name": "shared", "folder": str(self.shared), "archives": ["*"]}],
        }

    def task(self, text: str | list[str], **fields: Any) -> str:
        """The fields of a task in a container that mounts the shared folder at /shared."""
        known: dict[str, Any] = {"command": text, "image": self.image, "checkout": "none", "network": "none"}
        known["mounts"] = [{"name": "shared", "path": "/shared"}]
        return "".join(f"{key}: {json.dumps(value)}\n" for key, value in (known | fields).items())

    def begun(self, name: str = "begun") -> str:
        """A command that announces its start to the test; ``has_begun`` waits for it."""
        return f"touch /shared/{name}"

    def all(self) -> list[dict[str, Any]]:
        """The containers of attempts."""
        return [one for one in self.containers() if "arkqueue.attempt" in one["Labels"]]

    def running(self) -> list[dict[str, Any]]:
        """The running containers of attempts. A container under creation is listed before it can be
        inspected.
        """
        return [one for one in self.all() if one["State"] == "running"]

    def containers(self) -> list[dict[str, Any]]:
        """All containers of the installation, including those that only inspect something."""
        return list(self.engine.containers(all=True, filters=self._ours))

    def volumes(self) -> list[Any]:
        return list(self.engine.volumes(filters=self._ours)["Volumes"] or [])

    def kill(self) -> None:
        eventually(lambda: not self._killed())

    def _killed(self) -> list[dict[str, Any]]:
        """Removes all containers. Returns those that it found."""
        found = self.containers()
        for container in found:
            # somebody else may have removed it, or may be removing it
            with suppress(docker.errors.APIError):
                self.engine.remove_container(container["Id"], force=True, v=True)
        return found

    @property
    def _ours(self) -> dict[str, str]:
        return {"label": f"arkqueue.installation={self.installation}"}


def mounts_below(folder: Path) -> list[str]:
    places = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return [place for place in places if Path(place).is_relative_to(folder)]


@pytest.fixture
def boxes(session: Session, engine: docker.APIClient, engine_url: str, busybox: str, tmp_path: Path) -> Iterator[Boxes]:
    """The containers of a test. Whatever remains is removed afterwards; the test itself has to
    check that nothing remains. Request this fixture before task managers.
    """
    made = Boxes(engine, engine_url, busybox, claim.installation(session), tmp_path / "shared")
    yield made
    made.kill()
