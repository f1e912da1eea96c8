"""Backfills over HTTP: made, tried, shown, acted on as a whole, and refused."""

from __future__ import annotations

import httpx
import pytest

from arkqueue.db.session import Session
from tests.builders import AnArchive, an_archive
from tests.system.web.conftest import problem

BACKFILLS = "/archives/papers/backfills"


@pytest.fixture
def archive(session: Session) -> AnArchive:
    """Its head alone has the task ``thumbs``."""
    archive = an_archive(session)
    for _ in range(4):
        archive.commit({})
    archive.commit({"thumbs": ""})
    return archive


def test_a_backfill_is_made_shown_and_listed(operator: httpx.Client, archive: AnArchive) -> None:
    answer = operator.post(BACKFILLS, json={"tasks": ["thumbs"], "first": "2", "last": 4})
    assert (answer.status_code, answer.headers["Location"]) == (201, f"/api/v1{BACKFILLS}/1")
    made = answer.json()
    assert (made["full_name"], made["definitions"], made["first"], made["last"]) == ("papers@fill:1", "papers@6", 2, 4)
    assert [run["full_name"] for run in made["open"]] == ["papers@2.2"]
    archive.fail("thumbs@2.2")
    shown = operator.get(f"{BACKFILLS}/1").json()
    assert (shown["counts"]["failed"], [run["full_name"] for run in shown["failed"]]) == (1, ["papers@2.2"])
    assert [one["full_name"] for one in operator.get(BACKFILLS).json()] == ["papers@fill:1"]
    run = operator.get(f"/runs/{archive.run_id(3, 2)}").json()
    assert (run["backfill"], run["definitions"], run["changed_since_report"]) == ("papers@fill:1", 6, False)


def test_a_trial_makes_nothing(operator: httpx.Client, archive: AnArchive) -> None:
    answer = operator.post(BACKFILLS, params={"dry_run": "true"}, json={"tasks": ["thumbs"], "first": 1})
    assert (answer.status_code, answer.json()["revisions"]) == (200, 5)
    assert operator.get(BACKFILLS).json() == []
    assert archive.states() == {"thumbs@6": "ready"}


@pytest.mark.usefixtures("archive")
def test_a_backfill_is_held_released_prioritized_and_canceled_as_a_whole(operator: httpx.Client) -> None:
    operator.post(BACKFILLS, json={"tasks": ["thumbs"], "first": 2, "last": 4})
    tasks = [f"papers@{number}.2/thumbs" for number in (2, 3, 4)]
    assert operator.post(f"{BACKFILLS}/1/hold", json={"reason": "why"}).json()["done"] == tasks
    assert operator.post(f"{BACKFILLS}/1/release", params={"dry_run": "true"}).json()["done"] == tasks
    assert operator.get(f"{BACKFILLS}/1").json()["counts"]["held"] == 3
    released = operator.post(f"{BACKFILLS}/1/release").json()
    assert (released["done"], released["backfill"]["is_held"]) == (tasks, False)
    assert operator.post(f"{BACKFILLS}/1/prioritize", json={"priority": 7}).json()["backfill"]["priority"] == 7
    canceled = operator.post(f"{BACKFILLS}/1/cancel").json()
    assert canceled["backfill"]["counts"]["canceled"] == 3
    problem(operator.post(f"{BACKFILLS}/1/cancel"), 409, "has nothing left to cancel")


@pytest.mark.usefixtures("archive")
def test_what_cannot_be_is_refused_with_what_helps(operator: httpx.Client) -> None:
    problem(operator.post(BACKFILLS, json={"tasks": ["thumb"], "first": 2}), 422, "did you mean thumbs?")
    problem(operator.post(BACKFILLS, json={"tasks": [], "first": 2}), 422, "tasks")
    problem(operator.post(BACKFILLS, json={"tasks": ["thumbs"], "first": "x"}), 422, "neither a number nor a SHA")
    problem(operator.post(BACKFILLS, json={"tasks": ["thumbs"], "first": "\u0662"}), 422, "neither a number nor a SHA")
    problem(operator.post(BACKFILLS, json={"tasks": ["thumbs"], "first": 10**18}), 422, "")
    problem(operator.get(f"{BACKFILLS}/1"), 404, "papers@fill:1: does not exist")
    problem(operator.get(f"{BACKFILLS}/0"), 404, "papers@fill:0: does not exist")
    operator.post(BACKFILLS, json={"tasks": ["thumbs"], "first": 2})
    problem(operator.get("/find", params={"name": "papers@fill:1"}), 422, "arkqueue show papers@fill:1")
    problem(operator.get("/find", params={"name": "papers@fill:1/thumbs"}), 422, "is the name of a backfill")
