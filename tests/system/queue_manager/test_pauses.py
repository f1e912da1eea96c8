"""A queue manager finishes a pause of the whole installation, or its end, that was killed before it
had reached each archive (design 5.23).
"""

from __future__ import annotations

import pytest

from arkqueue.db.session import Session
from arkqueue.queue import claim
from tests.builders import HOST, PROCESS, an_archive
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("manager")


def test_a_queue_manager_finishes_a_pause_of_all_that_was_killed_halfway_and_its_end(session: Session) -> None:
    """`healthz` says from the first moment that no task starts."""
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.sql("update pause set paused_at = now(), paused_by = 'ann', reason = ''")
    eventually(lambda: archive.sql("select is_paused from archive") == [{"is_paused": True}])
    assert claim.claim(session, PROCESS, HOST, 4) == []
    archive.sql("update pause set paused_at = null, paused_by = null, reason = null")
    eventually(lambda: archive.sql("select is_paused from archive") == [{"is_paused": False}])
    assert [one.name for one in claim.claim(session, PROCESS, HOST, 4)] == ["a"]
