"""The access queue of the example ``ingest`` (seed 002): requests in two pools by the size of their
content, with a token, a status, a URL and the time when they are expected.
"""

from __future__ import annotations

import io
import json
import uuid
import zipfile
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.system.ingest.conftest import Ingest, Servers, a_collection, an_access_queue
from tests.waiting import eventually

pytestmark = pytest.mark.full


@pytest.fixture
def access(servers: Servers, tmp_path: Path) -> Ingest:
    return an_access_queue(*servers, tmp_path, large="64KiB")


def ask(access: Ingest, *arks: str) -> list[str]:
    """Ask for objects; the tokens."""
    tokens = [str(uuid.uuid4()) for _ in arks]
    file = access.folder / f"{tokens[0]}.json"
    file.write_text(
        json.dumps({"items": [{"token": t, "ark": a, "delivery-node": 7} for t, a in zip(tokens, arks, strict=True)]})
    )
    access("submit", access.name, str(file), "--id", tokens[0])
    return tokens


def outputs(access: Ingest, token: str, of: str | None = None) -> dict[str, Any]:
    return {
        k: v for t in access.tasks(of or token, token) for a in t["attempts"] for k, v in (a["outputs"] or {}).items()
    }


def test_requests_are_assembled_in_the_pool_of_their_size(access: Ingest, servers: Servers, tmp_path: Path) -> None:
    demo = a_collection(*servers, tmp_path)
    small = demo.submit(payload_url=demo.content("a few words", "few.txt")["url"], type="file")
    large = demo.submit(payload_url=demo.content("many words " * 10_000, "many.txt")["url"], type="file")
    arks = []
    for batch in (small, large):
        demo.jobs_ended(batch)
        arks.append(demo.outputs(batch)["ark"])
    first = ask(access, *arks)
    access.ended(first[0])
    found = [outputs(access, token, first[0]) for token in first]
    assert [one["pool"] for one in found] == ["Small", "Large"]
    assert [one["status"] for one in found] == ["available"] * 2
    assert "anticipated-availability-time" not in found[0], "nothing was ever assembled"
    with urlopen(found[0]["url"]) as answer, zipfile.ZipFile(io.BytesIO(answer.read())) as zipped:
        assert zipped.read("producer/few.txt") == b"a few words"
        assert int(found[0]["cloud-content-byte"]) == sum(entry.file_size for entry in zipped.infolist())

    # The pools are locks: one is paused, and the other goes
    # on. The history says when a request may be ready.
    access("pause", "--lock", f"{access.name}/accessLarge", "--reason", "the node is slow")
    second = ask(access, *arks)
    eventually(lambda: {t["name"]: t["state"] for t in access.tasks(second[0], second[0])}["assemble"] == "completed")
    eventually(lambda: outputs(access, second[1], second[0]).get("pool") == "Large")
    assert {t["name"]: t["state"] for t in access.tasks(second[0], second[1])}["assemble"] == "waiting"
    assert datetime.fromisoformat(outputs(access, second[1], second[0])["anticipated-availability-time"]).tzinfo
    assert "the node is slow" in access("explain", f"{access.name}@id:{second[0]}/assemble/{second[1]}").out
    access("resume", "--lock", f"{access.name}/accessLarge")
    access.ended(second[0])


def test_a_pool_assembles_as_many_at_once_as_its_lock_has_room(
    access: Ingest, servers: Servers, tmp_path: Path
) -> None:
    demo = a_collection(*servers, tmp_path)
    batch = demo.submit(payload_url=demo.content("many words " * 10_000)["url"], type="file")
    demo.jobs_ended(batch)
    tokens = ask(access, *[demo.outputs(batch)["ark"]] * 4)
    access.ended(tokens[0])
    times = access.arkqueue.sql(
        "select x.started_at, x.ended_at from attempt x join task t on t.id = x.task_id join archive a on a.id = t.archive_id"
        " where a.name = %s and t.name = 'assemble' order by x.started_at",
        access.name,
    )
    assert len(times) == 4
    assert all(a["ended_at"] <= b["started_at"] for a, b in pairwise(times)), "accessLarge has room for one"


def test_a_request_for_what_is_not_there_is_rejected(access: Ingest) -> None:
    (token,) = ask(access, "ark:/99999/nothing")
    access.ended(token, "failed")
    assert "ark:/99999/nothing: is not on node 7" in outputs(access, token)["message"]
