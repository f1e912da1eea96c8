"""Jobs of the example ``ingest`` reserve the space that they are going to use. Together, they do
not fill a disk on which each of them would fit.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def provision(tools: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, float], bool]:
    """Ask for a share of the disk for a job; whether there is room. The limit lets half of what is free be taken."""
    disk = shutil.disk_usage(tmp_path)
    limit = 100 * (disk.used + disk.free / 2) / (disk.used + disk.free)
    settings = tmp_path / "settings.json"
    storage = {"threshold": limit, "threshold_unestimated": 0, "reservations": str(tmp_path / "reservations")}
    settings.write_text(json.dumps({"working_storage": storage}))
    monkeypatch.setenv("INGEST_SETTINGS", str(settings))
    monkeypatch.setenv("ARKQUEUE_ARCHIVE", "demo")
    monkeypatch.setenv("ARKQUEUE_OUTPUT", str(tmp_path / "output"))

    def ask(job: str, share: float) -> bool:
        folder = tmp_path / job
        folder.mkdir(exist_ok=True)
        monkeypatch.setenv("ARKQUEUE_SCRATCH", str(folder))
        monkeypatch.setenv("ARKQUEUE_ITEM", json.dumps({"job_id": job, "batch_id": "b"}))
        estimate = {"space_needed": int(disk.free * share), "is_known": share > 0}
        (folder / "estimate.json").write_text(json.dumps(estimate))
        try:
            tools.provisioning.main()
        except tools.job.NotNow:
            return False
        return True

    return ask


def test_the_second_of_two_jobs_waits_until_the_first_has_what_it_fetches(
    provision: Callable[[str, float], bool], tools: Any
) -> None:
    assert provision("first", 0.3)
    assert not provision("second", 0.3)
    assert provision("small", 0.1), "it looks for itself, and has room"
    assert provision("first", 0.3), "it is not counted twice when it is asked again"
    assert not provision("second", 0.3)
    assert provision("first", 0.1)
    tools.provisioning.release(tools.job.Job())
    assert provision("second", 0.3)


def test_what_a_deleted_job_reserved_is_free_again(provision: Callable[[str, float], bool], tmp_path: Path) -> None:
    assert provision("first", 0.4)
    assert not provision("second", 0.3)
    shutil.rmtree(tmp_path / "first")
    assert provision("second", 0.3)


def test_a_job_of_unknown_size_has_a_limit_of_its_own_and_reserves_nothing(
    provision: Callable[[str, float], bool],
) -> None:
    assert not provision("unknown", 0)
    assert provision("known", 0.4)
