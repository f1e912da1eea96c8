"""A queue manager passes locks of the whole installation on (design 5.25), and judges lines again
when other task managers live than before.
"""

from __future__ import annotations

import pytest

from arkqueue.db.session import Session
from arkqueue.queue import claim, locks
from tests.builders import HOST, PROCESS, an_archive
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("manager")


def test_a_queue_manager_passes_a_lock_on_between_archives(session: Session) -> None:
    one, other = an_archive(session, "one"), an_archive(session, "other")
    one.commit({"a": "lock: global/printer"})
    eventually(lambda: one.state("a@2") == "ready")
    other.commit({"x": "lock: global/printer"})
    one.end("a@2")
    eventually(lambda: other.state("x@2") == "ready")


def test_a_queue_manager_gives_a_lock_to_what_can_run_when_task_managers_go(session: Session) -> None:
    claim.register(session, PROCESS, HOST, "here", 4, labels=("gpu",))
    archive = an_archive(session)
    archive.commit({"a": "lock: tex\nruns_on: gpu", "b": "lock: tex"})
    assert archive.states() == {"a@2": "ready", "b@2": "waiting"}
    claim.register(session, "another", "there", "there", 4)
    claim.unregister(session, PROCESS)
    eventually(lambda: archive.states() == {"a@2": "waiting", "b@2": "ready"})
    assert locks.labels_that_live(session) == [[]]
