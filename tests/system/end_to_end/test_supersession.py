"""A newer revision supersedes a task whose task manager is dead. The earlier task must be proved
gone and be canceled without another run before the newer task starts.
"""

from __future__ import annotations

import signal

import pytest

from tests.system.end_to_end.conftest import Archives, Installations
from tests.system.end_to_end.installation import Stage, is_gone, tasks
from tests.waiting import eventually


@pytest.mark.parametrize(
    ("successor", "dies"),
    [
        pytest.param("worker", "before", id="of the same home"),
        pytest.param("another", "after", id="on another host", marks=pytest.mark.full),
    ],
)
def test_victim_of_a_dead_task_manager_is_canceled_and_not_run_again(
    installations: Installations, archives: Archives, stage: Stage, successor: str, dies: str
) -> None:
    """Its successor knows at once that it is gone; another host, when its lease is over."""
    arkqueue = installations(lease="6s", renew="2s")
    arkqueue.start("web", home="web")
    arkqueue.start("manager", home="manager")
    worker = arkqueue.start("worker", home="worker")
    papers = archives(arkqueue)
    papers.commit(
        tasks(
            {
                "pdf": {"command": stage.stubborn, "checkout": "none", "grace": "1s", "paths": ["long.txt"]},
                "site": {"cancels": ["PREV:pdf"], "command": stage.once, "checkout": "none", "paths": ["site.txt"]},
            }
        )
        | {"long.txt": "long\n"}
    )
    pid = stage.begun("pdf@2")
    if dies == "before":
        worker.kill()
    else:
        # Frozen, it does not get the request before its end.
        worker.process.send_signal(signal.SIGSTOP)
    papers.commit({"site.txt": "site\n"})
    eventually(lambda: arkqueue.sql("select id from task where superseded_by is not null"))
    worker.kill()
    eventually(lambda: is_gone(pid))
    arkqueue.start("worker", home=successor)
    papers.wait_for_run(3)
    assert papers.states(2, 3) == {"pdf@2": "canceled", "site@3": "completed"}
    (attempt,) = papers.attempts("pdf@2")
    assert attempt["end"] == "lost"
    assert stage.events() == ["begin pdf@2", "begin site@3", "end site@3"]
    assert f"superseded by {papers.task('site@3')}" in arkqueue("show", papers.task("pdf@2")).out
