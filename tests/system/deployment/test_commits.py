"""A task in a container of the default image commits to its own archive, with what the
configuration knows (design 9, rule 15).
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_network

import docker
import pytest

from tests.system.end_to_end.conftest import Archives, Installations, archives, installations, kind
from tests.system.end_to_end.installation import Archive, Installation, tasks
from tests.waiting import eventually

__all__ = ["archives", "installations", "kind"]

# The first test that needs an image builds it.
pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]

COMMIT = {
    "subversion": "svn add -q stamp && svn commit -q --message 'add a stamp'",
    "git": "git add stamp && git commit -q --message 'add a stamp' && git push -q origin HEAD:main",
}


@pytest.fixture
def host(engine: docker.APIClient) -> str:
    """Where a container on the engine's own network reaches this host."""
    network = engine.inspect_network("bridge")["IPAM"]["Config"][0]
    # An engine that has just made its network does not say so; then it is the first address.
    return str(network.get("Gateway") or next(ip_network(network["Subnet"]).hosts()))


@pytest.fixture
def arkqueue(installations: Installations, engine: docker.APIClient, engine_url: str) -> Iterator[Installation]:
    made = installations(docker={"host": engine_url})
    yield made
    made.close()
    for installation in made.sql("select id::text from installation"):
        label = f"arkqueue.installation={installation['id']}"
        for container in engine.containers(all=True, filters={"label": label}):
            engine.remove_container(container["Id"], force=True, v=True)


def test_commit_from_a_container_is_a_revision_that_names_its_task(
    arkqueue: Installation, archives: Archives, kind: str, default_image: str, host: str
) -> None:
    server = arkqueue.start()
    papers = archives(arkqueue, kind, process=False)
    arkqueue("archive", "set", papers.name, "--image", default_image)
    script = f"date > stamp; {COMMIT[kind]}; env; find /arkqueue -type f -exec ls -l {{}} +"
    workflow = tasks({"stamp": {"script": script, "checkout": "working-copy", "paths": ["paper.tex"]}})
    served = papers.repository.served
    with served(users={"robot": "secret"}, host=host) if kind == "subversion" else served(host=host) as repository:  # type: ignore[call-arg]
        arkqueue.configure(credentials=[{"url": repository.url, "username": "robot", "password": "secret"}])
        server.stop()
        arkqueue.start()
        author = "robot" if kind == "subversion" else "Robot <robot@example.org>"
        arkqueue("archive", "set", papers.name, "--task-url", repository.url, "--author", author)
        papers.commit({**workflow, "paper.tex": "second thoughts\n"})
        papers.wait_for_run(2)
        eventually(lambda: papers.ledger() == [1, 2, 3])
    assert "add a stamp" in arkqueue("show", f"{papers.name}@3").out
    (revision,) = arkqueue.sql("select author, origin, generation from revision where number = 3")
    assert (revision["author"].split()[0].lower(), revision["generation"]) == ("robot", 1)
    assert revision["origin"] == papers.task("stamp@2")
    assert_nothing_is_told(papers)


def assert_nothing_is_told(papers: Archive) -> None:
    """The password is in no variable and in no argument, and in no file that others may read."""
    log = papers.log("stamp@2")
    assert "ARKQUEUE_TASK=stamp" in log
    assert "secret" not in log
