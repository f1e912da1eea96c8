"""A deposit with a remote service that reviews it for a while: one deposit, however often its
outcome is asked for (design 5.29).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.system.end_to_end.conftest import Archives, Installations
from tests.system.end_to_end.installation import Installation, tasks
from tests.waiting import PATIENCE, eventually

STATUS = {"in review": 202, "accepted": 200}


class Remote(ThreadingHTTPServer):
    """Takes deposits (POST), tells their status (GET), and can keep who asks from hearing the end of an answer (GET /wait)."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.deposits, self.asked, self.status = 0, 0, "in review"
        self.waiting, self.go_on = threading.Event(), threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    server: Remote

    def do_POST(self) -> None:
        self.server.deposits += 1
        self.answer(202, f"id=d-{self.server.deposits}\n")

    def do_GET(self) -> None:
        if self.path == "/wait":
            self.server.waiting.set()
            self.server.go_on.wait(PATIENCE)
            self.answer(200, "")
            return
        self.server.asked += 1
        self.answer(STATUS[self.server.status], f"status={self.server.status}\n")

    def answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def remote() -> Iterator[Remote]:
    service = Remote()
    thread = threading.Thread(target=service.serve_forever, args=[0.01])
    thread.start()
    yield service
    service.go_on.set()
    service.shutdown()
    thread.join()
    service.server_close()


HAND_OVER = """
import os, sys, urllib.request
with urllib.request.urlopen("{url}/deposits", data=b"the paper") as answer:
    open(os.environ["ARKQUEUE_OUTPUT"], "wb").write(answer.read())
sys.exit(75)
"""
ASK = """
import json, os, sys, urllib.request
deposit = json.load(open(os.environ["ARKQUEUE_INPUTS"]))["self"]["id"]
answer = urllib.request.urlopen("{url}/deposits/" + deposit)
open(os.environ["ARKQUEUE_OUTPUT"], "wb").write(answer.read())
if answer.status == 200 and {waits}:
    urllib.request.urlopen("{url}/wait").read()
sys.exit(0 if answer.status == 200 else 75)
"""


def deposit(remote: Remote, waits: bool = False, *, every: str = "1h", deadline: str = "14d") -> Any:
    ask = {"script": ASK.format(url=remote.url, waits=waits), "every": every}
    hand_over = HAND_OVER.format(url=remote.url)
    fields = {"script": hand_over, "shell": "python3", "checkout": "none", "on_lost": "fail", "deadline": deadline}
    after = {"depends": ["deposit"], "command": "cat $ARKQUEUE_INPUTS", "checkout": "none"}
    return tasks({"deposit": fields | {"poll": ask}, "after": after})


def test_a_deposit_that_is_in_review_for_a_while(shared: Installation, archives: Archives, remote: Remote) -> None:
    papers = archives(shared)
    papers.commit(deposit(remote))
    papers.wait("deposit@2", "deferred")
    name = papers.task("deposit@2")
    explained = papers.explained("deposit@2")
    assert "The next poll is due at" in explained
    assert f"arkqueue refresh {name}" in explained
    shared("refresh", name)
    eventually(lambda: len(papers.attempts("deposit@2")) == 2 and papers.state("deposit@2") == "deferred")
    assert "status = in review" in shared("show", name).out
    remote.status = "accepted"
    shared("refresh", papers.name)
    papers.wait_for_run(2)
    assert (remote.deposits, remote.asked) == (1, 2)
    assert [a["kind"] for a in papers.attempts("deposit@2")] == ["run", "poll", "poll"]
    assert "3 (poll)" in shared("show", name).out
    assert '{"deposit": {"id": "d-1", "status": "accepted"}}' in papers.log("after@2")
    refused = shared("refresh", name, code=1)
    assert "is completed: only a deferred task with a poll can be polled" in refused.err


@pytest.mark.parametrize(
    "is_accepted", [pytest.param(True, id="accepted"), pytest.param(False, id="never", marks=pytest.mark.full)]
)
def test_a_deposit_that_is_in_review_for_a_week_is_made_once(
    installations: Installations, archives: Archives, remote: Remote, is_accepted: bool
) -> None:
    """It is asked for each day, also by a server that was killed and started again. The days pass in the database."""
    arkqueue = installations()
    server = arkqueue.start()
    papers = archives(arkqueue)
    papers.commit(deposit(remote, every="1d", deadline="7d"))
    papers.wait("deposit@2", "deferred")
    week = 7
    for day in range(1, week + 1):
        if day == 3:
            assert server.stop() == 0
            server = arkqueue.start()
        if day == 5:
            server.kill()
            server = arkqueue.start()
        if day == week and is_accepted:
            remote.status = "accepted"
        passed = "update task set due_at = due_at - interval '1 d', deferred_at = deferred_at - interval '1 d' where state = 'deferred' returning id"
        assert len(arkqueue.sql(passed)) == 1
        eventually(lambda day=day: [a["end"] for a in papers.attempts("deposit@2")] == ["exited"] * (day + 1))
        papers.wait("deposit@2", "deferred" if day < week else "completed" if is_accepted else "failed")
    assert [a["kind"] for a in papers.attempts("deposit@2")] == ["run"] + ["poll"] * week
    assert (remote.deposits, remote.asked) == (1, week)
    if not is_accepted:
        assert "it had stayed deferred until its deadline" in papers.explained("deposit@2")
        remote.status = "accepted"
        arkqueue("retry", papers.task("deposit@2"))
        papers.wait("deposit@2")
        assert (remote.deposits, remote.asked) == (1, week + 1), "a retry asks again"


def test_a_server_that_is_killed_between_the_remote_yes_and_its_record_asks_again(
    installations: Installations, archives: Archives, remote: Remote
) -> None:
    arkqueue = installations()
    server = arkqueue.start()
    papers = archives(arkqueue)
    papers.commit(deposit(remote, waits=True))
    papers.wait("deposit@2", "deferred")
    remote.status = "accepted"
    arkqueue("refresh", papers.task("deposit@2"))
    assert remote.waiting.wait(PATIENCE), "the poll has heard the yes"
    server.kill()
    remote.go_on.set()
    arkqueue.start()
    eventually(lambda: papers.attempts("deposit@2")[-1]["end"] == "lost")
    papers.wait("deposit@2", "deferred")
    arkqueue("refresh", papers.task("deposit@2"))
    papers.wait("deposit@2")
    papers.wait("after@2")
    assert (remote.deposits, remote.asked) == (1, 2)
    assert [(a["kind"], a["end"]) for a in papers.attempts("deposit@2")] == [
        ("run", "exited"), ("poll", "lost"), ("poll", "exited")
    ]  # fmt: skip
