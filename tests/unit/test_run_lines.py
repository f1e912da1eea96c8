"""The line of a run in the output of `arkqueue runs`."""

from __future__ import annotations

from typing import Any

import pytest

from arkqueue.cli.runs import tally, whence

COUNTS = dict.fromkeys(("running", "held", "failed", "rejected", "canceled", "superseded", "skipped"), 0)


@pytest.mark.parametrize(("baseline", "told"), [(True, "baseline"), (False, "1/2, 1 failed")])
def test_a_baseline_has_no_tasks_to_count(baseline: bool, told: str) -> None:
    run: dict[str, Any] = {
        "faults": [],
        "baseline": baseline,
        "trigger": "commit",
        "changed_since_report": False,
        "report": None,
    }
    run["counts"] = {**COUNTS, "tasks": 2, "completed": 1, "failed": 1}
    assert tally(run) == told


@pytest.mark.parametrize(("changed", "told"), [(False, "2/2"), (True, "2/2, changed since its report")])
def test_a_run_that_has_changed_since_its_report_is_marked(changed: bool, told: str) -> None:
    run: dict[str, Any] = {
        "faults": [],
        "baseline": False,
        "trigger": "commit",
        "changed_since_report": changed,
        "report": None,
    }
    run["counts"] = {**COUNTS, "tasks": 2, "completed": 2}
    assert tally(run) == told


@pytest.mark.parametrize(
    ("trigger", "by", "backfill", "submission", "told"),
    [
        ("schedule", "schedule 35 11 * * *", None, None, "schedule 35 11 * * *"),
        ("manual", "ann", None, None, "manual: ann"),
        ("manual", "", None, None, "manual"),
        ("manual", "ann", "papers@fill:3", None, "fill:3: ann"),
        ("submission", "ann", None, None, "submission: ann"),
        ("submission", "ann", None, "papers@id:batch-17", "id:batch-17: ann"),
    ],
)
def test_whence_a_run_comes_is_said_once(
    trigger: str, by: str, backfill: str | None, submission: str | None, told: str
) -> None:
    run = {"trigger": trigger, "by": by, "author": "", "backfill": backfill, "submission": submission}
    assert whence(run) == told
