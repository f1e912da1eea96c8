"""Every role in a process of its own, on one database; a task manager is killed in the middle."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from arkqueue.db.session import Session
from tests.builders import an_archive
from tests.loaded import fork
from tests.system.end_to_end.conftest import Archives, Installations
from tests.system.end_to_end.installation import Archive, Installation, Role, Stage, environment, is_gone, tasks
from tests.waiting import PATIENCE, eventually

COMMITS = 8


class Host:
    """One installation with its roles apart: the API, a queue manager, and two task managers as on two hosts."""

    def __init__(self, arkqueue: Installation) -> None:
        self.web = arkqueue.start("web", home="web")
        self.manager = arkqueue.start("manager", home="manager")
        self.workers = [arkqueue.start("worker", home=name) for name in ("worker-1", "worker-2")]

    def worker_of(self, papers: Archive, key: str) -> Role:
        """The task manager that runs a task."""
        process = papers.attempts(key)[-1]["process"]
        (found,) = [worker for worker in self.workers if f"-{worker.pid}-" in process]
        return found


@pytest.fixture
def arkqueue(installations: Installations) -> Installation:
    # An attempt goes on without a renewal for its lease less
    # its grace: longer than a busy machine stands still.
    return installations(lease="15s", renew="500ms", slots=1)


def workflow(stage: Stage) -> dict[str, object]:
    """``note`` of every revision one after the other, ``free`` as they come, and ``long`` of the revisions that change long.txt."""
    return dict(
        tasks(
            {
                "note": {"depends": ["PREV"], "command": stage.once, "checkout": "none", "grace": "1s"},
                "free": {"command": stage.once, "checkout": "none", "grace": "1s"},
                "long": {"paths": ["long.txt"], "command": stage.held, "checkout": "none", "grace": "1s"},
            }
        )
    )


def assert_each_ran_once(papers: Archive, stage: Stage, revs: range) -> None:
    for rev in revs:
        assert papers.wait_for_run(rev)["counts"]["completed"] == len(papers.states(rev))
    for name in ("note", "free"):
        assert [e for e in sorted_by_number(stage.events("begin")) if f" {name}@" in e] == [
            f"begin {name}@{rev}" for rev in revs
        ]
    assert [e for e in stage.events("begin") if " note@" in e] == [f"begin note@{rev}" for rev in revs], "in order"
    assert papers.ledger() == [1, *revs]


def sorted_by_number(events: list[str]) -> list[str]:
    return sorted(events, key=lambda event: int(event.rpartition("@")[2]))


def test_burst_of_commits_is_planned_and_run_once_by_two_queue_managers_and_two_task_managers(
    arkqueue: Installation, archives: Archives, stage: Stage
) -> None:
    host = Host(arkqueue)
    arkqueue.start("manager", home="another")
    papers = archives(arkqueue, "git")
    papers.commit({**workflow(stage), "long.txt": "long\n"})  # type: ignore[dict-item]
    stage.begun("long@2")
    papers.commit({"paper.tex": "3\n"})
    # The long task has the only slot of its task manager: the
    # other one runs what the next revision asks for.
    papers.wait("free@3")
    stage.go()
    for number in range(4, COMMITS + 2):
        papers.commit({"paper.tex": f"{number}\n"})
    assert_each_ran_once(papers, stage, range(2, COMMITS + 2))
    keys = ["long@2", *(f"free@{rev}" for rev in range(2, COMMITS + 2))]
    assert len({a["process"] for key in keys for a in papers.attempts(key)}) == 2, "both did some of it"
    assert host.web.process.poll() is None


@pytest.mark.full
def test_killed_roles_are_replaced_in_the_middle_of_a_burst(
    arkqueue: Installation, archives: Archives, stage: Stage
) -> None:
    """What the killed task manager ran is taken over by the other one; what the queue manager had not planned, by the next one."""
    host = Host(arkqueue)
    papers = archives(arkqueue)
    papers.commit({**workflow(stage), "long.txt": "long\n"})  # type: ignore[dict-item]
    pid = stage.begun("long@2")
    for number in range(3, COMMITS + 2):
        papers.commit({"paper.tex": f"{number}\n"})
        if number == 5:
            # It has one slot, which the long task keeps: so
            # nothing else is in the midst of anything there.
            host.worker_of(papers, "long@2").kill()
        if number == 7:
            host.manager.kill()
    arkqueue.start("manager", home="another")
    eventually(lambda: is_gone(pid))
    stage.begun("long@2", 2)
    stage.go()
    papers.wait("long@2")
    first, second = papers.attempts("long@2")
    assert (first["end"], second["end"]) == ("lost", "exited")
    assert first["host"] != second["host"]
    assert_each_ran_once(papers, stage, range(2, COMMITS + 2))


def test_second_server_of_a_home_ends_and_leaves_the_first_one_alone(shared: Installation) -> None:
    arkqueue, first = shared, shared.roles[0]
    refused = arkqueue("serve", "--listen", "127.0.0.1:0", code=1)
    assert "has a task manager that runs" in refused.err
    assert "serves at" not in refused.out
    assert arkqueue("archive", "list").code == 0, "the address of the first is still known"
    assert first.process.poll() is None


@pytest.mark.full
def test_another_api_of_a_home_leaves_the_command_line_to_the_first_one(shared: Installation, tmp_path: Path) -> None:
    arkqueue = shared
    home = arkqueue.home("home")
    address = (home / "url").read_text()
    words = ["arkqueue", "--home", str(home), "web", "--listen", "127.0.0.1:0"]
    log = tmp_path / "said"
    log.touch()
    second = fork("arkqueue.cli.main()", words, out=log, err=log, environment=environment())
    try:
        eventually(lambda: "serves at" in log.read_text())
        assert (home / "url").read_text() == address
    finally:
        second.send_signal(signal.SIGTERM)
        second.wait(PATIENCE)
    assert (home / "url").read_text() == address
    assert arkqueue("archive", "list").code == 0


def test_archive_that_is_called_like_an_address_of_the_server_is_told_of_at_the_start(
    installations: Installations, session: Session
) -> None:
    an_archive(session, "docs")  # no version of today would register it
    an_archive(session, "papers")
    web = installations().start("web")
    said = "archive docs: the server has an address of its own at /docs. The archive keeps its name; its page is at /-/archives/docs."
    eventually(lambda: said in web.said)
    assert web.said.count("/-/archives/") == 1


@pytest.mark.parametrize("wrong", [{"password": "wrong"}, {"dbname": "nothing"}])
def test_server_that_the_database_does_not_let_in_ends_and_says_why(
    installations: Installations, pg_uri: str, wrong: dict[str, str]
) -> None:
    arkqueue = installations(database=make_conninfo(pg_uri, **wrong))
    arkqueue.home()
    refused = arkqueue("serve", "--listen", "127.0.0.1:0", code=1)
    assert "Correct the connection string's user, password or database name." in refused.err
    assert "wrong" not in refused.err


def test_replicas_of_a_worker_share_a_folder_of_homes(installations: Installations, pg_uri: str) -> None:
    arkqueue = installations()
    homes = arkqueue.folder / "workers"
    workers = [arkqueue.start("worker", "--database", pg_uri, "--homes", str(homes), home=f"log-{n}") for n in range(3)]
    eventually(lambda: all("worker (home:" in worker.said for worker in workers))
    assert sorted(home.name for home in homes.iterdir()) == ["1", "2", "3"]
    hosts = {(home / "host-id").read_text().strip() for home in homes.iterdir()}
    eventually(lambda: {row["host"] for row in arkqueue.sql("select host from task_manager")} == hosts)
    (second,) = [worker for worker in workers if f"{homes}/2)" in worker.said]
    second.kill()
    arkqueue.start("worker", "--database", pg_uri, "--homes", str(homes), home="log-4")
    eventually(lambda: f"{homes}/2)" in (arkqueue.folder / "log-4.log").read_text())
    assert len(list(homes.iterdir())) == 3, "the home of the dead one is taken up by the next"


def test_server_with_a_database_of_its_own_says_whether_it_is_healthy(installations: Installations) -> None:
    arkqueue = installations(database=None)
    refused = arkqueue("manager", "--healthy", code=1)
    assert "does not run" in refused.err
    server = arkqueue.start()
    for role in ("manager", "worker"):
        eventually(lambda role=role: arkqueue(role, "--healthy", code=None).code == 0)
    server.stop()
    assert arkqueue("manager", "--healthy", code=1).err


def test_roles_say_whether_they_are_healthy(installations: Installations) -> None:
    arkqueue = installations(lease="1s", renew="100ms", poll="100ms")
    # A test's database begins as if a queue manager would be heard for another day.
    arkqueue.sql("update heartbeat set beat_at = now() - interval '1 hour'")
    assert "a queue manager was heard 36" in arkqueue("manager", "--healthy", code=1).out
    manager = arkqueue.start("manager", home="manager")
    eventually(lambda: arkqueue("manager", "--healthy", code=None).code == 0)
    assert "no task manager of" in arkqueue("worker", "--healthy", code=1).out
    worker = arkqueue.start("worker", home="worker")
    eventually(lambda: arkqueue("worker", "--healthy", code=None).code == 0)
    manager.kill()
    eventually(lambda: arkqueue("manager", "--healthy", code=None).code == 1)
    worker.stop()
    assert arkqueue("worker", "--healthy", code=1).out
    refused = arkqueue("worker", "--healthy", "--database", "postgresql://nobody@127.0.0.1:1/none", code=1)
    assert "See that PostgreSQL runs" in refused.err


def test_a_task_runs_only_on_the_task_manager_that_has_its_label(
    arkqueue: Installation, archives: Archives, stage: Stage
) -> None:
    arkqueue.start("web", home="web")
    arkqueue.start("manager", home="manager")
    arkqueue.start("worker", "--label", "tex", home="worker-1")
    papers = archives(arkqueue, "git")
    usual = {"command": stage.once, "checkout": "none", "grace": "1s"}
    papers.commit(dict(tasks({"train": {**usual, "runs_on": ["gpu"]}, "free": usual})))
    papers.wait("free@2")
    told = arkqueue("explain", f"{papers.name}@2/train").out
    assert "no running task manager has the label gpu" in told
    with_label = arkqueue.start("worker", "--label", "gpu", "--label", "linux", home="worker-2")
    papers.wait("train@2")
    assert f"-{with_label.pid}-" in papers.attempts("train@2")[-1]["process"]
    refused = arkqueue("worker", "--label", "two words", code=2)
    assert "is not a valid label" in refused.err
