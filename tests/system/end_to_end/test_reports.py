"""A REPORT that sends its report to a remote service: once by itself, and again after a repair with
what has changed (design 5.32).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from arkqueue.views.reports import json_schema
from tests.system.end_to_end.conftest import Archives
from tests.system.end_to_end.installation import Installation, tasks
from tests.waiting import eventually


class Receiver(ThreadingHTTPServer):
    """Takes reports (POST), and refuses them while it is told to."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.reports: list[Any] = []
        self.refuses = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/reports"


class _Answer(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.server.refuses:
            self.server.reports.append(json.loads(body))
        self.send_response(503 if self.server.refuses else 204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    service = Receiver()
    thread = threading.Thread(target=service.serve_forever, args=[0.01])
    thread.start()
    yield service
    service.shutdown()
    thread.join()
    service.server_close()


SEND = """
import os, urllib.request
with open(os.environ["ARKQUEUE_INPUTS"], "rb") as report:
    urllib.request.urlopen("{url}", data=report.read())
"""


def test_a_report_is_sent_by_itself_and_again_after_a_repair(
    shared: Installation, archives: Archives, receiver: Receiver
) -> None:
    papers = archives(shared)
    send = {"script": SEND.format(url=receiver.url), "shell": "python3", "checkout": "none"}
    index = {"command": "echo pages=3 > $ARKQUEUE_OUTPUT; test -e good", "on": ["commit", "manual"]}
    mend = {"command": "true", "depends": ["index"]}
    papers.commit(tasks({"index": index, "publish": mend, "other": {"command": "true"}, "REPORT": send}))
    papers.wait_for_run(2, "failed")
    papers.wait("REPORT@2")
    (first,) = receiver.reports
    Draft202012Validator(json_schema()).validate(first)
    assert (first["run"], first["number"], first["state"], first["since"]) == (f"{papers.name}@2", 1, "failed", None)
    told = {task["name"]: (task["state"], task["outputs"]) for task in first["tasks"]}
    assert told == {"index": ("failed", {"pages": "3"}), "publish": ("skipped", None), "other": ("completed", None)}

    name = papers.run(2)
    shared("skip", f"{name}/index", "--as-completed")
    papers.wait("publish@2")
    assert "changed since its report" in shared("runs", papers.name).out
    assert len(receiver.reports) == 1

    receiver.refuses = True
    shared("report", name, "--update")
    papers.wait("REPORT@2", "failed")
    assert "REPORT" in shared("show", name).out
    assert f"arkqueue report {name} --update" in papers.explained("REPORT@2")
    receiver.refuses = False
    shared("report", name, "--update")
    eventually(lambda: len(receiver.reports) == 2)
    papers.wait("REPORT@2")
    again = receiver.reports[1]
    assert (again["number"], again["since"], again["changes"], again["made_by"] is None) == (3, 1, 2, False)
    assert {task["name"] for task in again["tasks"] if task["changed"]} == {"index", "publish"}
    said = shared("report", name, "--update").err
    assert "nothing has changed since report 3" in said
    listed = json.loads(shared("report", name, "--list", "--json").out)
    assert [(one["number"], one["is_given"], one["sent_at"] is not None) for one in listed] == [
        (4, False, False), (3, True, True), (2, True, False), (1, True, True)
    ]  # fmt: skip
    assert len(receiver.reports) == 2
