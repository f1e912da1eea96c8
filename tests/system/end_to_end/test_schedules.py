"""Schedules fire once, at the head of the branch with the head's definitions. The tests set the clock by setting when a schedule is due."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import psycopg

from tests.system.end_to_end.conftest import Archives, Installations
from tests.system.end_to_end.installation import Archive, Installation, tasks
from tests.waiting import eventually

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


def let_be_due(papers: Archive, ago: str = "1 minute") -> datetime:
    """As if its time had come so long ago; when that was."""
    (row,) = papers.installation.sql(
        "update schedule s set next_at = now() - %s::interval from branch b join archive a on a.id = b.archive_id"
        " where b.id = s.branch_id and a.name = %s returning s.next_at",
        ago,
        papers.name,
    )
    at: datetime = row["next_at"]
    return at


def fires(papers: Archive) -> list[dict[str, Any]]:
    return papers.installation.sql(
        "select f.* from schedule_fire f join branch b on b.id = f.branch_id join archive a on a.id = b.archive_id"
        " where a.name = %s order by f.fire_at",
        papers.name,
    )


def scheduled_runs(papers: Archive) -> list[Any]:
    page = papers.installation("runs", papers.name, "--limit", "500", "--json").json
    return [run for run in reversed(page["runs"]) if run["trigger"] == "schedule"]


def waiting_for_the_lock(arkqueue: Installation) -> int:
    """How many wait for an archive to change its graph. A sweep, and a reader that found nothing new, may wait beside them."""
    (row,) = arkqueue.sql(
        "select count(*)::int as n from pg_stat_activity"
        " where datname = current_database() and wait_event_type = 'Lock' and query ~ 'server_since'"
    )
    return int(row["n"])


def test_schedule_fires_once_with_three_queue_managers(installations: Installations, archives: Archives) -> None:
    arkqueue = installations(poll="50ms")
    arkqueue.start()
    arkqueue.start("manager", home="another")
    arkqueue.start("manager", home="third")
    papers = archives(arkqueue)
    papers.commit(nightly("hello"))
    papers.wait_for_run(2)
    for count in range(1, 4):
        with psycopg.connect(arkqueue.database or "") as hold:
            # All of them see that it is due, and stand before the archive's lock.
            hold.execute("select from archive where name = %s for update", [papers.name])
            at = let_be_due(papers)
            eventually(lambda: waiting_for_the_lock(arkqueue) == 3)
        papers.wait_for_run(2, run=count + 1)
        eventually(lambda: waiting_for_the_lock(arkqueue) == 0)
        assert [fire["fire_at"] for fire in fires(papers)[count - 1 :]] == [at]
        (schedule,) = schedules(papers)
        assert schedule["next_at"] > at
    assert [run["full_name"] for run in scheduled_runs(papers)] == [papers.run(2, n) for n in range(2, 5)]
    assert papers.log("nightly@2.2") == "hello\n"
    assert NEVER in arkqueue("archive", "show", papers.name).out


def test_missed_fires_collapse_into_one(installations: Installations, archives: Archives) -> None:
    arkqueue = installations()
    server = arkqueue.start()
    papers = archives(arkqueue)
    papers.commit(nightly("hello"))
    papers.wait_for_run(2)
    server.stop()
    let_be_due(papers, "100 years")
    arkqueue.start()
    papers.wait_for_run(2, run=2)
    (schedule,) = schedules(papers)
    (now,) = arkqueue.sql("select clock_timestamp() as now")
    assert schedule["next_at"] > now["now"]
    assert len(fires(papers)) == len(scheduled_runs(papers)) == 1


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
