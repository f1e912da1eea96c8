"""Minutes of the hour in fast motion: batches that come together, while the server and the services
are killed and the disk is full.

``make test-long`` hands in a hundred of them at once, as ``python -m benchmarks ingest`` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ingest import host
from ingest.fast_motion import Motion

from arkqueue.db.embedded.server import Embedded
from benchmarks.ingesting import Killed, a_small_disk
from tests.postgres import a_database
from tests.soundness import assert_sound
from tests.system.end_to_end.installation import Installation
from tests.system.ingest.conftest import a_collection


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path | None]:
    with a_small_disk(tmp_path / "disk") as made:
        yield made


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("size", [pytest.param(20, marks=pytest.mark.full), pytest.param(100, marks=pytest.mark.long)])
def test_no_batch_is_lost_doubled_or_stuck_whatever_is_killed(
    postgres: Embedded, template: str, tmp_path: Path, disk: Path | None, size: int
) -> None:
    with a_database(postgres, template) as uri, a_database(postgres, "template0") as own:
        folder = {"scratch_folder": str(disk / "scratch")} if disk else {}
        arkqueue = Installation(tmp_path / "arkqueue", uri, slots=6, min_free="0", **folder)
        try:
            server = Killed(arkqueue)
            arkqueue("lock", "set", "global/ingest", "unlimited")
            with host.services(tmp_path / "services", own) as services:
                limits = {"threshold": 80, "threshold_unestimated": 70}
                demo = a_collection(arkqueue, services, tmp_path, is_alone=size > 20, **limits)
                motion = Motion(demo.name, server, services, disk)
                told = motion.run(rounds=1, size=size)
                print(told)
                assert told.faults == []
                assert_sound(arkqueue.connection)
        finally:
            arkqueue.close()
