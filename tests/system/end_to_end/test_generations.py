"""A task may commit to its own archive: that is a revision like any other, until the chain of such
commits is too long.
"""

from __future__ import annotations

from tests.system.end_to_end.conftest import Archives
from tests.system.end_to_end.installation import Installation, tasks

COMMIT_AGAIN = "date +%s%N > counter.txt; svn add -q --force counter.txt && svn commit -q -m again"


def test_chain_of_commits_by_tasks_is_held_after_ten_generations(shared: Installation, archives: Archives) -> None:
    papers = archives(shared)
    papers.commit(tasks({"again": {"command": COMMIT_AGAIN, "checkout": "working-copy"}}))
    for rev in range(2, 13):
        shown = papers.wait_for_run(rev)
        assert shown["generation"] == rev - 2
        assert shown["origin"] == (papers.task(f"again@{rev - 1}") if rev > 2 else None)
    papers.wait("again@13", "held")
    assert (papers.shown(13)["state"], papers.shown(13)["generation"]) == ("held", 11)
    told = papers.explained("again@13")
    assert "the 11th in a chain of commits by tasks" in told
    for rev in range(2, 13):
        assert papers.task(f"again@{rev}") in told
    assert "let the task commit only when something changed" in shared("show", papers.run(13)).out
    shared("sync", papers.name, "--wait")
    assert papers.ledger() == list(range(1, 14))

    shared("release", papers.run(13))
    papers.wait("again@13")
    papers.wait("again@14", "held")
    assert "the 12th in a chain" in papers.explained("again@14")

    papers.number = 14
    papers.commit(tasks({"again": {"command": "true"}}))
    assert papers.wait_for_run(15)["generation"] == 0, "a person's commit begins anew"
