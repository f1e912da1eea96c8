"""Tasks in containers from end to end: a commit, a real engine, and servers that are killed and
stopped meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.system.end_to_end.conftest import Archives, Installations
from tests.system.end_to_end.installation import Installation, Stage, tasks
from tests.waiting import eventually


@pytest.fixture
def arkqueue(
    installations: Installations, engine: docker.APIClient, engine_url: str, stage: Stage
) -> Iterator[Installation]:
    """An installation whose tasks may have the stage."""
    folder = str(stage.journal.parent)
    mounts = [{"name": "stage", "folder": folder, "archives": ["*"]}]
    made = installations(docker={"host": engine_url}, mounts=mounts)
    yield made
    made.close()
    for container in containers(made, engine):
        engine.remove_container(container["Id"], force=True, v=True)


def containers(arkqueue: Installation, engine: docker.APIClient) -> list[Any]:
    ids = arkqueue.sql("select id::text from installation")
    return list(engine.containers(all=True, filters={"label": f"arkqueue.installation={ids[0]['id']}"})) if ids else []


@pytest.fixture
def inside(busybox: str) -> dict[str, Any]:
    """The fields of a task in a container that has the stage."""
    mounts = [{"name": "stage", "path": "/stage"}]
    return {"image": busybox, "network": "none", "mounts": mounts, "env": {"STAGE": "/stage"}}


def test_killed_server_adopts_its_container_and_a_stopped_one_says_what_goes_on(
    arkqueue: Installation, archives: Archives, stage: Stage, inside: dict[str, Any], engine: docker.APIClient
) -> None:
    server = arkqueue.start()
    eventually(lambda: "tasks with an image run in containers, on the engine at" in server.said)
    papers = archives(arkqueue)
    papers.commit(tasks({"slow": {"command": f"{stage.held}; cat /workspace/paper.tex", **inside}}))
    stage.begun("slow@2")
    server.kill()
    server = arkqueue.start()
    eventually(lambda: len({a["process"] for a in arkqueue.sql("select process from attempt")}) == 1)
    eventually(lambda: "is adopted with its container" in server.said)
    assert server.stop() == 0
    assert "1 task goes on in containers" in server.said
    assert papers.state("slow@2") == "running"
    server = arkqueue.start()
    stage.go()
    papers.wait_for_run(2)
    assert papers.attempts("slow@2")[0]["image"]
    assert papers.log("slow@2").endswith("first thoughts\n")
    assert len(papers.attempts("slow@2")) == 1
    assert containers(arkqueue, engine) == []
    assert eventually(lambda: list((Path(server.home) / "work").iterdir()) == [])


def test_server_without_an_engine_says_so_and_runs_processes(
    installations: Installations, archives: Archives, tmp_path: Path
) -> None:
    arkqueue = installations(docker={"host": f"unix://{tmp_path}/nobody.sock"})
    server = arkqueue.start()
    papers = archives(arkqueue)
    papers.commit(tasks({"inside": {"command": "true", "image": "any"}, "process": {"command": "true"}}))
    papers.wait("process@2")
    papers.wait("inside@2", "failed")
    eventually(lambda: "no container engine" in server.said)
    assert "it does not answer" in arkqueue("show", papers.task("inside@2")).out
