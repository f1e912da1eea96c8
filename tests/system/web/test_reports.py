"""Reports of runs over HTTP: listed, read, made, and what is refused."""

from __future__ import annotations

import httpx
from jsonschema import Draft202012Validator

from arkqueue.db.session import Session
from arkqueue.views.reports import json_schema
from tests.builders import an_archive
from tests.system.web.conftest import problem


def test_reports_are_listed_read_and_made(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]"})
    run = f"/runs/{archive.run_id(2)}"
    assert operator.get(f"{run}/reports").json() == []
    problem(operator.get(f"{run}/reports/1"), 404, "has no report yet, as it has not settled")
    archive.end("a@2", 1, outputs={"pages": 3})

    (own,) = operator.get(f"{run}/reports").json()
    assert (own["number"], own["made_by"], own["state"], own["since"], own["changes"]) == (1, None, "failed", None, 2)
    first = operator.get(f"{run}/reports/1").json()
    Draft202012Validator(json_schema()).validate(first)
    assert [(task["name"], task["state"], task["outputs"]) for task in first["tasks"]] == [
        ("a", "failed", {"pages": 3}),
        ("b", "skipped", None),
    ]

    archive.retry("a@2")
    problem(operator.post(f"{run}/report", json={}), 409, "2 of its tasks are not settled")
    now = operator.post(f"{run}/report", json={"now": True})
    assert (now.status_code, now.headers["location"]) == (201, f"/api/v1{run}/reports/2")
    assert (now.json()["made_by"], now.json()["changes"]) == ("operate test", 2)
    archive.run("a@2", "b@2")

    listed = operator.get("/runs", params={"rev": 2}).json()["runs"]
    assert [one["changed_since_report"] for one in listed] == [True]
    assert operator.post(f"{run}/report").json()["number"] == 3
    shown = operator.get(run).json()
    assert (shown["changed_since_report"], [one["number"] for one in shown["reports"]]) == (False, [3, 2, 1])
    assert operator.get(f"{run}/reports/1").json() == first
    problem(operator.get(f"{run}/reports/4"), 404, "report 4 of papers@2: does not exist")
    problem(operator.get(f"{run}/reports/0"), 422, "number")
    problem(operator.post(f"{run}/report", json={"send": True}), 422, "send")
    assert [deed["verb"] for deed in shown["deeds"]] == ["retry", "report", "report"]
