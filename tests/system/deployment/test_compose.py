"""``docker compose up``, then ``arkqueue archive add``: a whole installation, with real tasks in
containers.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.repositories import a_subversion_repository
from tests.requirements import missing
from tests.system.deployment.conftest import ROOT
from tests.waiting import eventually

# The first test that needs an image builds it.
pytestmark = pytest.mark.timeout(1200)

PATIENCE = 300.0
"""Seconds: the first start makes a database, and each look is a container's."""
WORKFLOW = """\
- name: index
  depends: [PREV]
  script: |
    test -e paper.tex
    echo "number=$ARKQUEUE_NUMBER" >> "$ARKQUEUE_OUTPUT"
- name: pdf
  depends: [index]
  cancels: [PREV]
  command: cat "$ARKQUEUE_INPUTS" && git --version && svn --version --quiet
- name: deposit
  on: submission
  command: cat "$ARKQUEUE_ATTACHMENTS/cover.tif" && ! touch "$ARKQUEUE_ATTACHMENTS/more"
"""


class Installation:
    """``compose.yml`` as it stands in the checkout, under a project's name of the test's own."""

    def __init__(self, folder: Path, engine_url: str, images: dict[str, str]) -> None:
        self.repositories = folder / "repositories"
        self.work = folder / "work"
        for made in (self.repositories, self.work):
            made.mkdir()
        self.project = f"arkqueue-{uuid.uuid4().hex[:8]}"
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("ARKQUEUE_", "COMPOSE_"))}
        self._environment = {
            **kept,
            **images,
            "DOCKER_HOST": engine_url,
            "DOCKER_SOCKET": engine_url.removeprefix("unix://"),
            "ARKQUEUE_WORK": str(self.work),
            "ARKQUEUE_REPOSITORIES": str(self.repositories),
            "ARKQUEUE_MIN_FREE": "0",
            "ARKQUEUE_LISTEN": "127.0.0.1:0",  # one that the engine finds free at that moment
        }

    def compose(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            [*_compose(), "--project-name", self.project, "--file", str(ROOT / "compose.yml"), *words],
            env=self._environment, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def __call__(self, *words: str) -> str:
        return self.compose("exec", "-T", "web", "arkqueue", *words)

    def run(self, name: str) -> dict[str, Any]:
        """A run, once it has ended."""
        return eventually(lambda: _ended(json.loads(self("show", name, "--json"))), patience=PATIENCE)


def _ended(run: dict[str, Any]) -> dict[str, Any] | None:
    return run if run["state"] in ("completed", "failed", "canceled") else None


def _compose() -> list[str]:
    if (
        shutil.which("docker")
        and subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0
    ):
        return ["docker", "compose"]
    if shutil.which("docker-compose") is None:
        missing("the Compose tool (Debian: apt-get install docker-compose)")
    return ["docker-compose"]


@pytest.fixture
def installation(
    engine_url: str, engine: docker.APIClient, arkqueue_image: str, default_image: str, postgres_image: str
) -> Iterator[Installation]:
    images = {
        "ARKQUEUE_IMAGE": arkqueue_image,
        "ARKQUEUE_DEFAULT_IMAGE": default_image,
        "POSTGRES_IMAGE": postgres_image,
    }
    # Not below pytest's own folder: the engine mounts what
    # is in it. Not below /dev/shm: a container has its own.
    folder = Path(tempfile.mkdtemp(prefix="arkqueue-compose-", dir="/tmp"))
    made = Installation(folder, engine_url, images)
    try:
        yield made
        made("doctor")
    finally:
        made.compose("down", "--volumes", "--timeout", "20", check=False)
        left = engine.containers(all=True, filters={"label": "arkqueue.host"})
        for container in left:
            if any(str(made.work) in str(mount) for mount in container["Mounts"]):
                engine.remove_container(container["Id"], force=True, v=True)
        shutil.rmtree(folder)


@pytest.mark.full
def test_up_and_add_an_archive_is_all_it_takes(installation: Installation, engine: docker.APIClient) -> None:
    repository = a_subversion_repository(installation.repositories, "papers")
    repository.commit({"paper.tex": "one\n"})
    installation.compose("up", "--detach", "--scale", "worker=2")
    eventually(lambda: len(_healthy(engine, installation.project)) == 5, patience=PATIENCE)
    installation("archive", "add", "papers", str(repository.path))
    repository.commit({"_workflows/papers.yaml": WORKFLOW})
    installation("sync", "papers", "--wait")
    run = installation.run("papers@2")
    assert run["state"] == "completed", installation("logs", "papers@2/index")
    assert '"number": "2"' in installation("logs", "papers@2/pdf")
    homes = [installation.work / name for name in ("1", "2")]
    there = sorted(path.name for path in installation.work.iterdir())
    assert there == ["1", "2", "scratch"], "each worker has a home, and all share a scratch folder"
    eventually(lambda: not [path for home in homes for path in (home / "work").iterdir()], patience=PATIENCE)
    host = json.loads(installation("show", "papers@2/pdf", "--json"))["history"][-1]["host"]
    assert host in {(home / "host-id").read_text().strip() for home in homes}
    for name, text in (("deposit.json", "{}"), ("cover.tif", "of May")):
        (installation.repositories / name).write_text(text)
    files = [str(installation.repositories / name) for name in ("deposit.json", "cover.tif")]
    assert installation("submit", "papers", files[0], "--id", "may", "--attach", files[1]) == "papers@2.2\n"
    assert installation.run("papers@2.2")["state"] == "completed", installation("logs", "papers@2.2/deposit")
    assert "of May" in installation("logs", "papers@2.2/deposit")


def _healthy(engine: docker.APIClient, project: str) -> list[str]:
    found = engine.containers(filters={"label": f"com.docker.compose.project={project}", "health": "healthy"})
    return [container["Id"] for container in found]
