"""A revision whose list is long is planned in portions (design 5.30), whatever becomes of those who
plan it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from arkqueue.db.session import Session
from tests.loaded import Forked
from tests.repositories import a_git_repository
from tests.system.queue_manager.conftest import Watched
from tests.system.queue_manager.killed import kill_in_each_step, queue_manager

ITEMS = 12
SMALL = "from arkqueue.plan import entry, items; entry.MOST_ROWS = items.MOST_ROWS = 30"
STEP = {"command": "true", "foreach": {"file": "items.txt"}}
TASKS = [STEP | {"name": "fetch"}, STEP | {"name": "store", "depends": ["fetch"]}]


@pytest.mark.full
def test_planning_goes_on_after_its_queue_manager_was_killed_in_each_step(
    watch: Callable[..., Watched], session: Session, tmp_path: Path
) -> None:
    """Killed for real: nothing is lost, twice there, or started before all of it stands."""
    repository = a_git_repository(tmp_path)
    repository.commit({"readme": "1"})
    papers = watch(repository.path)
    listed = "".join(f"item {n}\n" for n in range(ITEMS))
    repository.commit({"_workflows/a.json": json.dumps(TASKS), "items.txt": listed})
    repository.commit({"readme": "2"})
    stored = "select name, item, state::text from task where item <> '' and number = 2"
    ready = f"{stored} and state = 'ready'"
    seen: list[int] = []

    def manager() -> AbstractContextManager[Forked]:
        return queue_manager(session, tmp_path / "manager", "", SMALL)

    def look() -> None:
        rows = papers.sql(stored)
        assert len({(row["name"], row["item"]) for row in rows}) == len(rows)
        seen.append(len(rows))
        is_stored = not papers.sql("select run_id from planning where next < items")
        assert is_stored == (len(rows) == 2 * ITEMS)
        assert is_stored or not papers.sql("select id from revision where number = 3"), "later revisions wait"
        assert is_stored or not papers.sql(ready)

    def done() -> bool:
        return bool(papers.sql(ready))

    event = "insert or update or delete on planning"
    steps = kill_in_each_step(session, event, manager, done, look)
    assert seen == sorted(seen)
    assert steps > 4
    assert seen[-1] == 2 * ITEMS
    assert len(papers.sql(ready)) == ITEMS
    with manager():
        papers.wait_for(lambda: papers.sql("select id from revision where number = 3"))
    assert papers.sql("select count(*) as n from list_use") != [{"n": 0}]
