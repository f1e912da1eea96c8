"""A schedule fires at the head of the branch with the head's definitions. The test sets the clock
by setting when the schedule is due.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.system.end_to_end.conftest import Archives, Installations
from tests.system.end_to_end.installation import Archive, tasks
from tests.waiting import eventually

NEVER = "0 0 29 2 *"
"""Due so rarely that no test sees it by itself."""


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


def test_nightly_task_that_waits_for_a_failure_runs_as_soon_as_another_revision_has_its_source(
    installations: Installations, archives: Archives, tmp_path: Path
) -> None:
    """Revision 2's pdf fails, the nightly task waits, revision 3's pdf completes, and the next fire runs without anybody's hand."""
    arkqueue = installations(poll="200ms")
    arkqueue.start()
    papers, mended = archives(arkqueue), tmp_path / "mended"
    pdf = {"paths": ["chapters/**"], "command": f"test -e {mended}", "checkout": "none"}
    night = {"schedule": NEVER, "depends": ["pdf"], "command": "echo at $ARKQUEUE_REVISION", "checkout": "none"}
    papers.commit({**tasks({"pdf": pdf, "nightly": night}), "chapters/one": "1\n"})
    papers.wait_for_run(2, "failed")
    let_be_due(papers)
    papers.wait("nightly@2.2", "waiting")
    let_be_due(papers)
    eventually(lambda: papers.shown(2, run=2)["left_out"] == 1)
    said = papers.explained("nightly@2.2")
    assert f"{papers.task('pdf@2')}, which failed" in said
    assert "1 fire of its schedule was left out since" in said
    assert any("left out since" in fault for fault in arkqueue.api.get("/healthz")["faults"])
    assert papers.run(2, 2) in arkqueue("archive", "show", papers.name).out
    mended.touch()
    papers.commit({"chapters/one": "2\n"})
    papers.wait_for_run(3)
    let_be_due(papers)
    papers.wait_for_run(3, run=2)
    assert papers.log("nightly@3.2").startswith("at ")
    papers.wait_for_run(2, "superseded", run=2)
