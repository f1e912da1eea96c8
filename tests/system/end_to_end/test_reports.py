"""A REPORT that sends its report to a remote service: once by itself, and again after a repair with
what has changed (design 5.32).
"""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from arkqueue.views.reports import json_schema
from tests.system.end_to_end.conftest import Archives, Installations
from tests.system.end_to_end.installation import Installation, tasks
from tests.waiting import eventually

FAIL = 37
"""The number of items that fail in the test of many."""


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


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "items", [pytest.param(500, marks=pytest.mark.full), pytest.param(10_000, marks=pytest.mark.long)]
)
def test_the_items_of_a_batch_that_failed_are_repaired_together_and_reported(
    installations: Installations, archives: Archives, receiver: Receiver, tmp_path: Path, items: int
) -> None:
    """With the commands that ``status`` names, as a person at night would."""
    arkqueue = installations(slots=4)
    arkqueue.start()
    papers = archives(arkqueue)
    bad = [f"item-{at}" for at in range(5, items, items // FAIL)][:FAIL]
    keys = "".join(f"{'bad' if f'item-{at}' in bad else 'good'},item-{at}\n" for at in range(items))
    mended = tmp_path / "mended"
    each = {"foreach": {"file": "items.csv"}, "key": "id", "checkout": "none"}
    store = {"command": f"case $ARKQUEUE_ITEM in *bad*) test -e {mended};; esac"}
    send = {"script": SEND.format(url=receiver.url), "shell": "python3", "checkout": "none"}
    index = {"command": "true", "depends": ["store"], "checkout": "none"}
    papers.commit(tasks({"store": each | store, "index": index, "REPORT": send}) | {"items.csv": f"how,id\n{keys}"})
    eventually(lambda: receiver.reports, patience=1200)
    (first,) = receiver.reports
    assert {task["item"] for task in first["tasks"] if task["state"] == "failed"} == {*bad}
    assert (first["counts"]["completed"], first["counts"]["failed"]) == (items - FAIL, FAIL)

    (need,) = arkqueue("status", papers.name, "--json", code=1).json["needs"]
    assert need["text"].startswith(f"{FAIL} items failed")
    mended.touch()
    arkqueue(*shlex.split(need["command"])[1:])
    papers.wait("index@2")
    arkqueue("report", papers.run(2), "--update")
    eventually(lambda: len(receiver.reports) == 2)
    again = receiver.reports[1]
    assert (again["state"], again["changes"]) == ("completed", FAIL + 1)
    assert {task["item"] for task in again["tasks"] if task["changed"]} == {*bad, ""}
    attempts = arkqueue.sql(
        "select t.item <> '' and t.attempts = 2 as is_again, count(*)::int from task t join archive a on a.id = t.archive_id"
        " where a.name = %s and t.name = 'store' and t.kind = 'ordinary' group by 1 order by 1",
        papers.name,
    )
    assert [row["count"] for row in attempts] == [items - FAIL, FAIL], "what had completed ran once"
