"""Containers of a test's installation: tasks that run in them, what the engine has of them, and what is left on this host."""

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
    """``image`` has busybox and the users root, builder (1000:100) and nobody."""

    def __init__(self, engine: docker.APIClient, url: str, image: str, installation: str, shared: Path) -> None:
        self.engine, self.url, self.image, self.installation = engine, url, image, installation
        self.shared = shared
        shared.mkdir()

    @property
    def settings(self) -> dict[str, Any]:
        """For a task manager: the engine, and the folder ``shared``, which tasks may mount."""
        return {
            "docker": {"host": self.url},
            "mounts": [{"name": "shared", "folder": str(self.shared), "archives": ["*"]}],
        }

    def task(self, text: str | list[str], **fields: Any) -> str:
        """The fields of a task in a container, which has the shared folder at /shared."""
        known: dict[str, Any] = {"command": text, "image": self.image, "checkout": "none", "network": "none"}
        known["mounts"] = [{"name": "shared", "path": "/shared"}]
        return "".join(f"{key}: {json.dumps(value)}\n" for key, value in (known | fields).items())

    def begun(self, name: str = "begun") -> str:
        """A command that tells the test that it has begun: ``has_begun`` waits for that."""
        return f"touch /shared/{name}"

    def all(self) -> list[dict[str, Any]]:
        """The containers of attempts."""
        return [one for one in self.containers() if "arkqueue.attempt" in one["Labels"]]

    def running(self) -> list[dict[str, Any]]:
        """Those that run. One that is being made is listed before the engine can be asked for it."""
        return [one for one in self.all() if one["State"] == "running"]

    def containers(self) -> list[dict[str, Any]]:
        """All of the installation's, those included that only look at something."""
        return list(self.engine.containers(all=True, filters=self._ours))

    def volumes(self) -> list[Any]:
        return list(self.engine.volumes(filters=self._ours)["Volumes"] or [])

    def kill(self) -> None:
        eventually(lambda: not self._killed())

    def _killed(self) -> list[dict[str, Any]]:
        """What there was."""
        found = self.containers()
        for container in found:
            with suppress(docker.errors.APIError):  # whoever was about to remove it is quicker, or still at it
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
    """Whatever a test leaves is removed; to leave nothing is the test's to claim. To be asked for before task managers."""
    made = Boxes(engine, engine_url, busybox, claim.installation(session), tmp_path / "shared")
    yield made
    made.kill()
