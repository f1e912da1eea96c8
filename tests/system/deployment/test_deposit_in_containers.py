"""The application `workflows-examples/deposit` in containers: its credentials are 0600 files of a
mount that is granted read-only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from ipaddress import ip_network
from pathlib import Path

import docker
import pytest
from deposit import parts, statuses

from tests.system.deployment.conftest import ROOT, Build
from tests.system.end_to_end.conftest import Archives, Installations, archives, installations, kind
from tests.waiting import eventually

__all__ = ["archives", "installations", "kind"]

# The first test that needs an image builds it.
pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]


@pytest.fixture
def repository(engine: docker.APIClient, tmp_path: Path) -> Iterator[parts.Repository]:
    """A repository where containers on the engine's own network reach this host."""
    network = engine.inspect_network("bridge")["IPAM"]["Config"][0]
    host = str(network.get("Gateway") or next(ip_network(network["Subnet"]).hosts()))
    with closing(parts.Repository(tmp_path / "repository", host)) as made:
        made.start()
        yield made


def test_a_deposit_goes_from_a_container_with_credentials_of_a_granted_mount(
    installations: Installations,
    archives: Archives,
    engine: docker.APIClient,
    engine_url: str,
    build: Build,
    repository: parts.Repository,
    tmp_path: Path,
) -> None:
    image = build("deposit", ROOT / "workflows-examples" / "deposit" / "image")
    folder = parts.credentials(tmp_path / "credentials", repository=repository)
    granted = {"name": "credentials", "folder": str(folder), "archives": ["papers-*"], "read_only": True}
    arkqueue = installations(docker={"host": engine_url}, mounts=[granted])
    arkqueue.start()
    papers = archives(arkqueue, "git", process=False)
    papers.commit(parts.archive_files({"theses": parts.rest_target(repository)}, image=image))
    document, paper = tmp_path / "s-1.json", tmp_path / "paper.txt"
    document.write_text(json.dumps(parts.submission("s-1", ["theses"])))
    paper.write_text("On the bones of Etruria\n")

    def deposit() -> statuses.Deposit | None:
        with statuses.connect(arkqueue.home()) as api:
            (found,) = statuses.submissions(api, papers.name, ["s-1"])
        return next(iter(found.deposits), None)

    def status(wanted: str, said: str) -> bool:
        found = deposit()
        return found is not None and found.status == wanted and said in found.message

    try:
        (folder / "rest").chmod(0o644)
        arkqueue("submit", papers.name, document, "--id", "s-1", "--attach", paper)
        eventually(lambda: status("FAILED", "chmod 600 /etc/deposit/credentials/rest"), deposit)
        (folder / "rest").chmod(0o600)
        arkqueue("retry", f"{papers.name}@id:s-1/*/s-1.theses")
        eventually(lambda: status("SUBMITTED", "inreview"), deposit)
        repository.review("s-1.zip", "archived")
        arkqueue("refresh", papers.name)
        eventually(lambda: status("ACCEPTED", "archived"), deposit)
        sent = arkqueue("show", f"{papers.name}@id:s-1/send/s-1.theses", "--json").json
        assert sent["history"][-1]["image"]
    finally:
        ids = arkqueue.sql("select id::text from installation")
        arkqueue.close()
        for container in engine.containers(all=True, filters={"label": f"arkqueue.installation={ids[0]['id']}"}):
            engine.remove_container(container["Id"], force=True, v=True)
