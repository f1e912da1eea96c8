"""A queue manager purges by age in the background (design 5.27)."""

from __future__ import annotations

from arkqueue.config import Configuration
from arkqueue.db.session import Session
from tests.builders import an_archive
from tests.db.test_retention import let_age, set_to_keep
from tests.system.queue_manager.test_imports import managing
from tests.waiting import eventually


def test_old_runs_go_in_the_background_of_two_queue_managers(session: Session, configuration: Configuration) -> None:
    archive = an_archive(session)
    for number in range(2, 6):
        archive.commit({"a": ""})
        archive.run(f"a@{number}")
        let_age(archive, number, 40 if number < 5 else 20)
    set_to_keep(archive, {"completed": "30d"})
    with managing(session, configuration), managing(session, configuration):
        eventually(lambda: archive.states() == {"a@5": "completed"})
        archive.commit({"a": "depends: [PREV]"})
    assert archive.states() == {"a@5": "completed", "a@6": "ready"}
