"""A person's verbs on tasks and runs: their effects, their refusals with reasons, and their exit
codes for programs.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.system.end_to_end.conftest import Archives, Installations
from tests.system.end_to_end.installation import Archive, Installation, Stage, is_gone, tasks
from tests.waiting import eventually


def refused(papers: Archive, *words: str, code: int = 1) -> str:
    """What a person is told whose wish is refused; ``code`` 2: it was a mistake."""
    done = papers.installation(*words, code=code)
    assert done.out == ""
    assert done.err.startswith("arkqueue: ")
    return done.err


def failing_until(file: Path) -> str:
    return f"test -e {file}"


def test_failure_holds_up_later_revisions_until_it_is_retried_or_waived(
    shared: Installation, archives: Archives, tmp_path: Path
) -> None:
    papers = archives(shared)
    command = failing_until(tmp_path / "mended-$ARKQUEUE_NUMBER")
    papers.commit(
        tasks({"index": {"depends": ["PREV"], "command": command}, "pdf": {"depends": ["index"], "command": "true"}})
    )
    papers.commit({"paper.tex": "third\n"})
    papers.commit({"paper.tex": "fourth\n"})
    papers.wait("index@2", "failed")
    for key in ("index@3", "index@4", "pdf@4"):
        papers.wait(key, "waiting")
        explained = papers.explained(key)
        assert papers.task("index@2") in explained, key
    explained = papers.explained("index@3")
    assert f"arkqueue retry {papers.task('index@2')}" in explained
    assert f"arkqueue skip {papers.task('index@2')}" in explained

    shared("skip", papers.task("index@2"))
    papers.wait("index@3", "failed")
    assert papers.states(2) == {"index@2": "failed", "pdf@2": "skipped"}, "inside its run nothing goes on"
    (tmp_path / "mended-3").touch()
    shared("retry", papers.task("index@3"))
    papers.wait_for_run(3)
    papers.wait("index@4", "failed")
    shared("skip", "--as-completed", papers.task("index@4"))
    papers.wait_for_run(4)
    assert papers.states(4) == {"index@4": "failed", "pdf@4": "completed"}

    said = refused(papers, "retry", papers.task("index@2"))
    assert "tasks of later revisions have started after it" in said
    assert papers.task("index@3") in said
    (tmp_path / "mended-2").touch()
    shared("retry", "--force", papers.task("index@2"))
    papers.wait_for_run(2)


def test_cancel_ends_the_process_and_is_remembered(shared: Installation, archives: Archives, stage: Stage) -> None:
    papers = archives(shared)
    papers.commit(
        tasks(
            {
                "held": {"command": stage.stubborn, "checkout": "none", "grace": "0.2s"},
                "next": {"depends": ["held"], "command": "true"},
                "beside": {"command": "true"},
            }
        )
    )
    pid = stage.begun("held@2")
    shared("cancel", papers.task("held@2"))
    papers.wait("held@2", "canceled")
    assert is_gone(pid)
    papers.wait_for_run(2, "canceled")
    assert papers.states(2) == {"held@2": "canceled", "next@2": "skipped", "beside@2": "completed"}
    assert "canceled by" in shared("show", papers.run(2)).out
    assert "is canceled already" in refused(papers, "cancel", papers.task("held@2"))
    assert "exists in every run" in refused(papers, "cancel", papers.task("COMMIT@2"))
    assert "nothing left to cancel" in refused(papers, "cancel", papers.run(2))
    stage.go()
    shared("retry", papers.task("held@2"))
    papers.wait_for_run(2)


@pytest.mark.full
def test_silent_task_manager_is_waited_for_unless_a_person_knows_better(
    installations: Installations, archives: Archives, stage: Stage
) -> None:
    arkqueue = installations()
    arkqueue.start("web", home="web")
    arkqueue.start("manager", home="manager")
    worker = arkqueue.start("worker", home="worker")
    papers = archives(arkqueue)
    papers.commit(
        tasks(
            {
                "pdf": {"cancels": ["PREV"], "command": stage.held, "checkout": "none", "paths": ["long.txt"]},
                "site": {"cancels": ["PREV:pdf"], "command": stage.once, "checkout": "none", "paths": ["site.txt"]},
            }
        )
        | {"long.txt": "long\n"}
    )
    pid = stage.begun("pdf@2")
    worker.process.send_signal(signal.SIGSTOP)
    papers.commit({"site.txt": "site\n"})
    eventually(lambda: "stopping" in arkqueue("show", papers.task("pdf@2"), code=None).out)
    assert papers.state("site@3") == "waiting"
    assert " ago and will prove the end itself" in refused(papers, "cancel", papers.task("pdf@2"), "--assume-gone")
    arkqueue.sql("update task_manager set seen_at = seen_at - interval '1 minute' returning process")
    explained = papers.explained("site@3")
    assert papers.task("pdf@2") in explained
    assert f"arkqueue cancel {papers.task('pdf@2')} --assume-gone" in explained
    arkqueue("cancel", papers.task("pdf@2"), "--assume-gone")
    assert papers.states(2, 3) == {"pdf@2": "canceled", "site@3": "ready"}
    (attempt,) = papers.attempts("pdf@2")
    worker.process.send_signal(signal.SIGCONT)
    eventually(lambda: is_gone(pid))
    papers.wait_for_run(3)
    assert papers.attempts("pdf@2") == [attempt], "what it reports late changes nothing"
    assert papers.state("pdf@2") == "canceled"


def test_trigger_runs_tasks_by_hand(shared: Installation, archives: Archives, tmp_path: Path) -> None:
    papers = archives(shared)
    papers.commit(
        tasks(
            {
                "index": {"command": failing_until(tmp_path / "mended")},
                "pdf": {"depends": ["index"], "command": "echo by $ARKQUEUE_TRIGGER, run $ARKQUEUE_RUN"},
                "nightly": {"on": "schedule", "schedule": "0 0 29 2 *", "command": "true"},
            }
        )
    )
    papers.wait_for_run(2, "failed")
    shared("skip", papers.task("index@2"))
    said = refused(papers, "trigger", papers.name, "pdf")
    assert f"pdf needs {papers.task('index@2')}, which failed and was waived" in said
    assert shared("trigger", papers.name, "pdf", "--without", "index").out == papers.run(2, 2) + "\n"
    papers.wait_for_run(2, run=2)
    assert "did you mean" in refused(papers, "trigger", papers.name, "indx", code=2).lower()
    assert "nightly" in refused(papers, "trigger", papers.name, "nightly")
    assert "7" in refused(papers, "trigger", papers.name, "--revision", "7")
    (tmp_path / "mended").touch()
    assert shared("trigger", papers.name, "index", "pdf").out == papers.run(2, 3) + "\n"
    papers.wait_for_run(2, run=3)
    assert papers.log("pdf@2.3") == "by manual, run 3\n"
    assert shared("trigger", papers.name, "pdf", "--revision", "2").out == papers.run(2, 4) + "\n"
    papers.wait_for_run(2, run=4)
