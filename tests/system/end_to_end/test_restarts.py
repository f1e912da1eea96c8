"""The server is killed, stopped and drained in the middle of a run: the run ends as it should, and
nothing is left behind.
"""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from tests.repositories import a_git_repository
from tests.system.cli.conftest import the_rest
from tests.system.end_to_end.conftest import Archives, Installations
from tests.system.end_to_end.installation import TRACEBACK, Installation, Stage, is_gone, processes_of, tasks
from tests.waiting import PATIENCE, eventually


def workflow(stage: Stage) -> dict[str, object]:
    """A held task that leaves its session and ignores SIGTERM, one behind it, one beside it, and one across revisions."""
    return dict(
        tasks(
            {
                "slow": {"command": f"setsid sh -c {quoted(stage.stubborn)} & wait", "checkout": "none", "grace": "1s"},
                "after": {"depends": ["slow"], "command": stage.once},
                "beside": {"command": stage.once},
                "index": {"depends": ["PREV"], "command": stage.once},
            }
        )
    )


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def test_killed_server_goes_on_where_it_was(
    home: Path, installations: Installations, archives: Archives, stage: Stage
) -> None:
    """kill -9 of the whole process in the middle of a run, then a restart of the same home with its embedded database."""
    home.chmod(0o711)  # or PostgreSQL's account could not pass through it to the home folder proper
    arkqueue = installations(folder=home, database=None)
    server = arkqueue.start()
    papers = archives(arkqueue)
    papers.commit(workflow(stage))  # type: ignore[arg-type]
    pid = stage.begun("slow@2")
    papers.wait("index@2")
    papers.wait("beside@2")
    server.kill()
    papers.commit({"paper.tex": "while it was dead\n"})

    eventually(lambda: is_gone(pid))
    eventually(lambda: not processes_of("ARKQUEUE_ARCHIVE=" + papers.name))
    arkqueue.start()
    stage.begun("slow@2", 2)
    stage.go()
    for rev in (2, 3):
        assert papers.wait_for_run(rev)["counts"]["completed"] == 4
    assert [(a["end"], a["message"]) for a in papers.attempts("slow@2")] == [
        ("lost", "its task manager died"), ("exited", "")
    ]  # fmt: skip
    for key in ("after@2", "beside@2", "index@2", "slow@3", "after@3", "beside@3", "index@3"):
        assert len(papers.attempts(key)) == 1, key
    ends = stage.events("end")
    assert sorted(ends) == sorted(set(ends)), "each came to its end once"
    assert len(ends) == 8
    arkqueue.close()
    assert processes_of(str(home)) == []


@pytest.mark.full
def test_stopped_server_ends_the_git_that_waits_for_a_remote(installations: Installations, tmp_path: Path) -> None:
    arkqueue = installations()
    server = arkqueue.start()
    repository = a_git_repository(tmp_path)
    repository.commit({"paper.tex": "first thoughts\n"})
    with repository.served() as remote:
        arkqueue("archive", "add", "papers", remote.url)
        read = "select name from archive where read_at is not null and not exists (select from look)"
        eventually(lambda: arkqueue.sql(read))
    with socket.create_server(("127.0.0.1", remote.port)) as silent:
        arkqueue("notify", "papers")
        connection, _ = silent.accept()
    with connection:
        assert server.stop() == 0
        connection.settimeout(PATIENCE)
        while connection.recv(4096):
            pass  # until nobody holds the other end
    assert arkqueue.sql("select trouble from archive") == [{"trouble": None}], "the end was ours, not the remote's"


def test_log_is_followed_across_a_restart(installations: Installations, archives: Archives, stage: Stage) -> None:
    arkqueue = installations()
    server = arkqueue.start()
    papers = archives(arkqueue)
    papers.commit(tasks({"held": {"command": f"echo attempt of mine; {stage.held}", "checkout": "none"}}))
    stage.begun("held@2")
    with arkqueue.begun("logs", papers.task("held@2"), "-f") as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "attempt of mine\n"
        server.kill()
        arkqueue.start()
        stage.begun("held@2", 2)
        stage.go()
        out, err = the_rest(follower)
    assert out.splitlines()[-1] == "attempt of mine"
    assert "attempt 2" in err
    assert f"{papers.task('held@2')}: completed" in err
    assert TRACEBACK not in err
    assert follower.returncode == 0


@pytest.mark.full
def test_stopped_server_waits_for_no_large_removal_and_the_next_one_ends_it(
    installations: Installations, archives: Archives
) -> None:
    """What a task has left is removed in the background. SIGTERM ends the server in the middle of that."""
    arkqueue = installations()
    server = arkqueue.start()
    papers = archives(arkqueue)
    script = (
        "import os\nfor folder in range(200):\n os.mkdir(str(folder))\n for n in range(1000): os.mknod(f'{folder}/{n}')"
    )
    papers.commit(tasks({"many": {"script": script, "shell": "python3", "checkout": "none"}}))
    work = server.home / "work"

    def parts() -> list[str]:
        """What has been moved aside to be removed."""
        return [path.name for path in work.iterdir() if path.name.startswith(".")]

    papers.wait("many@2")
    eventually(parts)
    assert server.stop() == 0
    assert parts(), "it was not done yet"
    assert server.said.count(TRACEBACK) == 0

    arkqueue.start()
    papers.commit(tasks({"next": {"command": "true", "checkout": "none"}}))
    papers.wait("next@3")
    eventually(lambda: not list(work.iterdir()))


def test_draining_server_lets_its_running_task_finish(
    installations: Installations, archives: Archives, stage: Stage
) -> None:
    arkqueue = installations()
    server = arkqueue.start("serve", "--drain")
    papers = archives(arkqueue)
    papers.commit(workflow(stage))  # type: ignore[arg-type]
    stage.begun("slow@2")
    papers.wait("beside@2")
    papers.wait("index@2")
    server.process.send_signal(signal.SIGTERM)
    eventually(lambda: "arkqueue stops when its running tasks have ended" in server.said)
    assert server.process.poll() is None
    stage.go()
    assert server.process.wait() == 0
    assert papers.state("slow@2") == "completed"
    assert len(papers.attempts("slow@2")) == 1
    assert papers.states(2)["after@2"] == "ready", "nothing new was begun"
    arkqueue.start()
    papers.wait_for_run(2)


def test_second_signal_ends_draining_and_hands_the_running_task_back(
    installations: Installations, archives: Archives, stage: Stage
) -> None:
    arkqueue = installations()
    server = arkqueue.start("serve", "--drain")
    papers = archives(arkqueue)
    papers.commit(workflow(stage))  # type: ignore[arg-type]
    pid = stage.begun("slow@2")
    server.process.send_signal(signal.SIGTERM)
    eventually(lambda: "arkqueue stops when" in server.said)
    assert server.stop() == 0
    assert is_gone(pid)
    assert papers.state("slow@2") == "ready"
    (handed_back,) = papers.attempts("slow@2")
    assert handed_back["end"] == "stopped"
    assert "shutting down" in handed_back["message"]
    arkqueue.start()
    stage.begun("slow@2", 2)
    stage.go()
    papers.wait_for_run(2)


def test_server_that_cannot_start_says_why(shared: Installation, tmp_path: Path) -> None:
    arkqueue = shared
    assert "'nonsense' is not a valid address" in arkqueue("serve", "--listen", "nonsense", code=2).err
    assert "--slots" in arkqueue("worker", "--slots", "0", code=2).err
    address = arkqueue.api.url.removeprefix("http://")
    (tmp_path / "file").touch()
    for words, said in (
        (["serve", "--listen", address], f"{address}: another program listens at this address"),
        (["worker", "--database", "nonsense"], "nonsense"),
        (["--home", str(tmp_path / "file"), "worker"], str(tmp_path / "file")),
    ):
        done = arkqueue(*words, code=1)
        assert done.err.splitlines()[-1].startswith("arkqueue: "), done
        assert said in done.err
    said = arkqueue("worker", code=1).err
    assert "has a task manager that runs" in said
    assert "another home: arkqueue --home FOLDER, then the command" in said
