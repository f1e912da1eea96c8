"""The order of tasks by tier and priority (design 5.24, 5.26), on a whole server."""

from __future__ import annotations

from tests.system.end_to_end.conftest import Archives, Installations
from tests.system.end_to_end.installation import Stage, tasks


def test_a_free_slot_goes_to_the_lowest_tier_and_there_to_the_lowest_priority(
    installations: Installations, archives: Archives, stage: Stage
) -> None:
    arkqueue = installations(slots=1)
    arkqueue.start()
    papers, urgent = archives(arkqueue), archives(arkqueue)
    once = {"command": stage.once, "checkout": "none"}
    papers.commit(tasks({"first": {"command": stage.held, "checkout": "none"}}))
    stage.begun("first@2")
    papers.commit(tasks({"index": once}))
    papers.commit({"paper.tex": "fourth\n"})
    papers.wait("index@4", "ready")
    urgent.commit(tasks({"ingest": once}))
    urgent.wait("ingest@2", "ready")

    arkqueue("archive", "set", urgent.name, "tier", "1")
    arkqueue("prioritize", papers.run(4), "10")
    assert "1 task ahead of it" in papers.explained("index@4")
    assert "2 tasks ahead of it" in papers.explained("index@3")

    stage.go("first@2")
    papers.wait_for_run(3)
    assert stage.events("begin") == ["begin first@2", "begin ingest@2", "begin index@4", "begin index@3"]
