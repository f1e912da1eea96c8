"""A schedule fires at the head of the branch with the head's definitions. The test sets the clock by setting when the schedule is due."""

from __future__ import annotations

from typing import Any

from tests.system.end_to_end.conftest import Archives
from tests.system.end_to_end.installation import Archive, Installation, tasks

NEVER = "0 0 29 2 *"
"""Due so rarely that no test sees it by itself."""


def nightly(text: str, cron: str = NEVER) -> dict[str, Any]:
    return dict(tasks({"nightly": {"schedule": cron, "command": f"echo {text}", "checkout": "none"}}))


def schedules(papers: Archive) -> list[dict[str, Any]]:
    return papers.installation.sql(
        "select s.* from schedule s join branch b on b.id = s.branch_id join archive a on a.id = b.archive_id"
        " where a.name = %s order by s.id",
        papers.name,
    )


def let_be_due(papers: Archive) -> None:
    """As if its time had come a minute ago."""
    papers.installation.sql(
        "update schedule s set next_at = now() - interval '1 minute' from branch b join archive a on a.id = b.archive_id"
        " where b.id = s.branch_id and a.name = %s",
        papers.name,
    )


def test_schedule_follows_the_head(shared: Installation, archives: Archives) -> None:
    papers = archives(shared)
    papers.commit(nightly("old"))
    papers.wait_for_run(2)
    papers.commit(nightly("new"))
    papers.wait_for_run(3)
    let_be_due(papers)
    papers.wait_for_run(3, run=2)
    assert papers.log("nightly@3.2") == "new\n"
    papers.commit({"_workflows/tasks.json": "{"})
    papers.wait_for_run(4, "failed")
    assert len(schedules(papers)) == 1, "a fault ends no schedule"
    papers.commit(tasks({"nightly": {"command": "true"}}))
    papers.wait_for_run(5)
    assert schedules(papers) == []
