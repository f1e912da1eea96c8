"""Whose task is next (design 5.24, 5.26), and runs that a person deletes and takes back (5.27), as
a person sees it.
"""

from __future__ import annotations

from pathlib import Path

from tests.system.end_to_end.conftest import Archives, Installations
from tests.system.end_to_end.installation import Installation, Stage, tasks
from tests.system.end_to_end.test_verbs import refused


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


def test_an_archive_runs_as_many_tasks_at_once_as_it_may(
    shared: Installation, archives: Archives, stage: Stage
) -> None:
    papers, others = archives(shared), archives(shared)
    held = {"command": stage.held, "checkout": "none"}
    shared("archive", "set", papers.name, "max_running", "1")
    papers.commit(tasks({"a": held, "b": held, "c": held}))
    stage.begun("a@2")
    others.commit(tasks({"free": held}))
    stage.begun("free@2")  # whoever is claimed for after that has passed b and c over
    assert papers.states(2) == {"a@2": "running", "b@2": "ready", "c@2": "ready"}
    assert "(max_running is 1)" in papers.explained("b@2")
    stage.go("a@2")
    stage.begun("b@2")
    assert papers.states(2) == {"a@2": "completed", "b@2": "running", "c@2": "ready"}
    shared("archive", "set", papers.name, "max_running", "none")
    stage.begun("c@2")
    stage.go()
    papers.wait_for_run(2)
    others.wait_for_run(2)


def test_a_run_is_deleted_lets_go_what_waited_for_it_and_comes_back_held(
    shared: Installation, archives: Archives, tmp_path: Path
) -> None:
    papers = archives(shared)
    command = f"test $ARKQUEUE_NUMBER -gt 2 || test -e {tmp_path / 'mended'}"
    papers.commit(
        tasks(
            {
                "index": {"depends": ["PREV"], "command": command},
                "pdf": {"command": "true", "hold": True},
                "upload": {"depends": ["pdf"], "command": "true"},
            }
        )
    )
    papers.commit(tasks({"index": {"depends": ["PREV"], "command": command}}))
    papers.wait("index@2", "failed")
    papers.wait("index@3", "waiting")
    assert papers.task("index@2") in papers.explained("index@3")

    shared("delete", papers.run(2), "--dry-run")
    assert papers.run(2) in shared("runs", papers.name).out
    shared("delete", papers.run(2))
    papers.wait_for_run(3)
    assert papers.run(2) not in shared("runs", papers.name).out
    assert papers.states(2) == {"index@2": "failed", "pdf@2": "canceled", "upload@2": "canceled"}

    shared("undelete", papers.run(2))
    assert papers.run(2) in shared("runs", papers.name).out
    assert papers.states(2) == {"index@2": "failed", "pdf@2": "held", "upload@2": "held"}
    assert "tasks of later revisions have started after it" in refused(papers, "retry", papers.task("index@2"))
    shared("release", papers.run(2))
    papers.wait("upload@2")
