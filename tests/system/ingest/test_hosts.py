"""Ingest hosts that die: a job goes on at its step on another one that shares the working storage,
and an ARK that is being minted is minted once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ingest import host

from arkqueue.db.embedded.server import Embedded
from tests.postgres import a_database
from tests.system.end_to_end.installation import Installation
from tests.system.ingest.conftest import Ingest, a_collection
from tests.system.ingest.test_batches import JOB, completed
from tests.system.ingest.test_jobs import executions, failed_at, minted
from tests.waiting import eventually

pytestmark = pytest.mark.full


@pytest.fixture
def ingest(postgres: Embedded, template: str, tmp_path: Path) -> Iterator[Ingest]:
    """The API and a queue manager; the ingest hosts are the test's."""
    with a_database(postgres, template) as uri, a_database(postgres, "template0") as own:
        shared = {"scratch_folder": str(tmp_path / "shared"), "scratch_shared": True}
        arkqueue = Installation(tmp_path / "arkqueue", uri, slots=4, lease="6s", renew="1s", poll="200ms", **shared)
        (tmp_path / "shared").mkdir()
        try:
            arkqueue.start("web")
            arkqueue.start("manager")
            with host.services(tmp_path / "services", own) as services:
                yield a_collection(arkqueue, services, tmp_path, is_alone=True)
        finally:
            arkqueue.close()


def hosts(ingest: Ingest, batch: str) -> dict[str, list[str]]:
    """On which hosts each step of a job has run, by their ids."""
    rows = ingest.arkqueue.sql(
        "select t.name, array_agg(x.host order by x.id) as hosts from attempt x join task t on t.id = x.task_id join submission s on s.run_id = t.run_id"
        " where s.sender_id = %s and t.item <> '' group by t.name",
        f"{batch}-jobs",
    )
    return {row["name"]: row["hosts"] for row in rows}


def test_a_failed_job_is_resumed_at_its_step_on_another_host_that_shares_the_working_storage(ingest: Ingest) -> None:
    first = ingest.arkqueue.start("worker", home="first")
    ingest.services.switch("storage", full=True)
    batch = ingest.submit(payload_url=ingest.manifest(ingest.content(), ingest.content())["url"])
    ingest.jobs_ended(batch, "failed")
    assert ingest.states(batch) == failed_at("store")
    first.kill()
    ingest.arkqueue.start("worker", home="second")
    ingest.services.switch("storage")
    ingest("retry", ingest.job(batch))
    ingest.reaches(batch, "notify", "completed")
    completed(ingest, batch)
    assert executions(ingest, batch) == dict.fromkeys(JOB, 1) | {"store": 2}
    ran = hosts(ingest, batch)
    assert ran["store"][0] == ran["downloading"][0] != ran["store"][1] == ran["notify"][0]
    assert len(minted(ingest, batch)) == 1


def test_an_ark_is_minted_once_where_its_host_is_killed_in_the_middle(ingest: Ingest) -> None:
    """The service has the request, and whoever asked for it is gone; another host asks again."""
    first = ingest.arkqueue.start("worker", home="first")
    ingest.services.switch("minting", slow=2)
    batch = ingest.submit(payload_url=ingest.content()["url"], type="file")
    ingest.reaches(batch, "mint", "running")
    first.kill()
    ingest.services.switch("minting")
    ingest.arkqueue.start("worker", home="second")
    ingest.jobs_ended(batch)
    assert [attempt["end"] for attempt in ingest.attempts(batch, "mint")] == ["lost", "exited"]
    eventually(lambda: len(minted(ingest, batch)) == 1)
    assert minted(ingest, batch)[0]["ark"] == ingest.outputs(batch)["ark"]
    assert ingest.subjects(batch) == ["is queued: 1 object", "completed: 1 of 1 objects"]
