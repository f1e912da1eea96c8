"""Runs with long lists are shown by their numbers, and their items by pages (design 5.30)."""

from __future__ import annotations

import pytest

from arkqueue.db.session import Session
from arkqueue.model import RunId
from arkqueue.states import State
from arkqueue.views import graph, items, lists, runs
from tests.builders import AnArchive, an_archive
from tests.db.test_view_plans import plan_of

LIST = "foreach: [e, d, c, b, a]"


@pytest.fixture
def archive(session: Session, monkeypatch: pytest.MonkeyPatch) -> AnArchive:
    """A list of more than three items is long."""
    monkeypatch.setattr(lists, "MOST_SHOWN", 3)
    archive = an_archive(session)
    archive.commit(
        {"fetch": LIST, "store": f"{LIST}\ndepends: [fetch]", "few": "foreach: [x, y]", "index": "depends: [store]"}
    )
    archive.run("fetch/d@2")
    archive.fail("fetch/c@2", "fetch/a@2")
    return archive


def test_a_run_has_the_first_item_in_each_state_and_the_numbers(archive: AnArchive) -> None:
    shown = runs.run(archive.session, RunId(archive.run_id(2)))
    fetch, store = shown.lists
    assert (fetch.name, fetch.tasks, store.tasks) == ("fetch", 5, 5)
    assert {state: n for state, n in fetch.counts.items() if state not in (State.READY, State.RUNNING)} == {
        State.COMPLETED: 1,
        State.FAILED: 2,
    }
    assert store.counts[State.SKIPPED] == 2
    named = [(task.name, task.item) for task in shown.tasks if task.item]
    assert ("fetch", "c") in named
    assert ("fetch", "a") not in named
    assert [item for name, item in named if name == "few"] == ["x", "y"]
    assert not any(name.endswith("fetch/a") for edge in shown.edges for name in (edge.source_name, edge.target_name))
    assert {(edge.source_name, edge.target_name) for edge in shown.edges} >= {
        ("papers@2/fetch/c", "papers@2/store/c"),
        ("papers@2/store:completed", "papers@2/index"),
    }
    drawn = graph.graph(archive.session, [RunId(archive.run_id(2))])
    assert len(drawn.nodes) < 5 + 5 + 2 + 2


def test_pages_go_through_all_items_once(archive: AnArchive) -> None:
    run = RunId(archive.run_id(2))
    found: list[str] = []
    after = None
    while True:
        page = items.page_of_items(archive.session, run, None, [], after, 3)
        found += [f"{task.name}/{task.item}" for task in page.tasks]
        if page.next is None:
            break
        after = page.next
    listed = [f"{name}/{item}" for name in ("fetch", "store") for item in "edcba"]
    assert found == [*listed, "few/x", "few/y"]
    failed = items.page_of_items(archive.session, run, "fetch", [State.FAILED], None, 10)
    assert [task.item for task in failed.tasks] == ["c", "a"]


def test_a_page_of_items_is_read_from_its_index(archive: AnArchive) -> None:
    asked = {"run": archive.run_id(2), "name": None, "states": None, "after": None, "limit": 3}
    assert "task_items" in plan_of(archive.session, "page_of_items", **asked)
