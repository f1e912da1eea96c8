"""The installation and the browser of rows 21 to 23. The installation has a long history, an
archive with many task names, one whose tasks were all renamed, one with many columns, a long list, a
backfill, and an archive for submissions. The browser has no screen, and is signed in.
"""

from __future__ import annotations

import gzip
import http.client
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

import psycopg

from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, BranchId, SourceFile, Workflow
from arkqueue.queue import backfill, planning
from arkqueue.workflow.parsing import parse
from benchmarks import history
from benchmarks.bench import Bench
from benchmarks.lines import Line, a_queue, a_workflow
from tests.browsers import a_browser as a_real_browser
from tests.system.end_to_end.installation import Installation

NAMES = "names"
"""The archive whose tasks have had many names."""
FOLDED = "folded"
"""The archive whose earlier runs had hundreds of tasks that the newest workflow files
do not have.
"""
COLUMNS = "columns"
"""The archive whose runs have many tasks."""
LIST = "list"
"""The archive whose newest run has a list."""
BOX = "box"
"""The archive with a task for submissions."""
FILLED = "past-8"
"""The archive of the history that has a backfill over all of its revisions."""
PROCESS = "bench"
SETTLED = 2.0
"""Seconds after the load of a page in which its script may load more."""
_SHARE = 8
"""The number of tasks in a run of `COLUMNS` that form a chain, like `build`, `test` and so on."""

_NAMES = (
    "create temporary table place as select g as n, b.id as branch_id, b.archive_id, {first} + g as id, {tasks} + g * 2 as task,"
    " 'old-' || g * {names} / ({revisions} + 1) as name, now() - interval '1 s' * ({revisions} - g) as at"
    " from generate_series(2, {revisions}) g join branch b on true join archive a on a.id = b.archive_id and a.name = '{archive}'",
    "insert into revision (id, branch_id, number, name, author, date, message, workflow_id, previous, read_at)"
    " select id, branch_id, n, n::text, 'author-' || n %% 7, at, 'Revise chapter ' || n %% 40, (select max(id) from workflow), (n - 1)::text, at from place order by place.n",
    "update branch b set head_id = p.id from place p where p.branch_id = b.id and p.n = {revisions}",
    "insert into run (id, archive_id, branch_id, revision_id, number, run, trigger, by, report_id, created_at)"
    " select id, archive_id, branch_id, id, n, 1, 'commit', 'author-' || n %% 7, null, at from place order by place.n",
    "insert into task (id, run_id, archive_id, branch_id, number, run, definition_id, unmet, position, attempts, failures, state, kind, program, fired, ready_at, settled_at, name)"
    " select task + k, id, archive_id, branch_id, n, 1, case when k = 1 then (select max(id) from definition) end, 0, k, 0, 0, 'completed',"
    " (case when k = 0 then 'commit' else 'ordinary' end)::task_kind, k = 1, false, at, at, case when k = 0 then 'COMMIT' else name end"
    " from place, generate_series(0, 1) k order by place.n, k",
    "insert into task_name select distinct branch_id, name, true from place on conflict do nothing",
    "insert into completion (branch_id, name, revision_id, run, highest_number, highest_run)"
    " select distinct on (branch_id, name) branch_id, name, id, 1, n, 1 from place order by branch_id, name, place.n desc",
    *(f"select setval('{name}_id', {{tasks}} + {{revisions}} * 2 + 10)" for name in ("revision", "run", "task")),
    "drop table place",
    "analyze",
)


def make(bench: Bench, uri: str) -> dict[str, int]:
    """Fills a database for the pages. Returns its sizes."""
    sizes = {
        "tasks": bench.size("history.tasks", 1_000_000, 50_000), "archives": bench.size("history.archives", 1000, 100),
        "names": bench.size("pages.names", 300, 300), "revisions": bench.size("pages.revisions", 100_000, 5_000),
        "columns": bench.size("pages.columns", 500, 500), "items": bench.size("pages.items", 10_000, 1_000),
    }  # fmt: skip
    with bench.admin(uri) as admin:
        history.make(admin, sizes["tasks"], sizes["archives"])
    with a_queue(uri) as session:
        for name in (NAMES, FOLDED, COLUMNS, LIST, BOX):
            Line.register(session, name)
        line = _line(session, FOLDED)
        line.append(session, a_workflow("".join(_task(n) for n in range(sizes["names"]))), 3)
        line.append(
            session, a_workflow("- {name: index, command: 'true'}\n- {name: pdf, depends: [index], command: 'true'}\n")
        )
        line = _line(session, COLUMNS)
        line.append(session, a_workflow("".join(_task(n) for n in range(sizes["columns"]))), 10)
        line = _line(session, LIST)
        line.append(session, _a_list(sizes["items"]))
        assert planning.finish(session, line.branch.id, lambda: True)
        _line(session, BOX).append(session, a_workflow("- {name: check, command: 'true', on: submission}\n"))
        filled = _line(session, FILLED).branch
        backfill.begin(
            session, ArchiveId(filled.archive), BranchId(filled.id), 2, None, names=["pdf"], by="bench", force=True
        )
        while backfill.plan(session, lambda *_: "no list is read") == 0.0:
            pass
        with bench.admin(uri) as admin:
            _make_names(admin, sizes["names"], sizes["revisions"])
    return sizes


def _task(number: int) -> str:
    waits = f"t{number - 1}, PREV" if number % _SHARE else "PREV"
    return f"- {{name: t{number}, command: 'true', depends: [{waits}]}}\n"


def _a_list(items: int) -> Workflow:
    rows = [{"id": f"item-{n}", "title": f"the title of item {n}"} for n in range(items)]
    tasks = [{"name": "tile", "command": "true", "foreach": {"file": "items.json"}}]
    files = [SourceFile("_workflows/list.json", json.dumps(tasks).encode())]
    parsed = parse(files, lambda path: SourceFile(path, json.dumps(rows).encode()), items)
    assert not parsed.faults, [str(fault) for fault in parsed.faults]
    return parsed


def many_tasks(count: int) -> Workflow:
    """A run to cancel: chains of ten tasks, of which the first runs and the others wait for any end
    of the one before.
    """
    return a_workflow("".join(_link(n) for n in range(count)))


def _link(number: int) -> str:
    waits = f", depends: [{{task: t{number - 1}, when: settled}}]" if number % 10 else ""
    return f"- {{name: t{number}, command: 'true'{waits}}}\n"


def _line(session: Session, name: str) -> Line:
    (row,) = session.rows("show_archives", archive=None, names=[name])
    return Line.of(session, row.id)


def _make_names(admin: psycopg.Connection[Any], names: int, revisions: int) -> None:
    """Makes a history in which the single task of an archive has had many names in turn."""
    (first,) = admin.execute("select greatest((select max(id) from revision), (select max(id) from run)) + 10").fetchone() or (0,)  # fmt: skip
    (tasks,) = admin.execute("select greatest(max(id), %s) + 10 from task", (first + revisions,)).fetchone() or (0,)
    sizes = {"names": names, "revisions": revisions, "archive": NAMES, "first": first, "tasks": tasks}
    admin.execute("set statement_timeout = 0")
    with admin.transaction():
        for statement in _NAMES:
            admin.execute(statement.format(**sizes).replace("%%", "%").encode())


@dataclass(frozen=True, slots=True)
class Answer:
    """The response of a page: the milliseconds until its end, the transferred bytes, and the
    content.
    """

    took: float
    bytes: int
    text: str


class Browser:
    """Requests pages like a signed-in browser, over one persistent connection."""

    def __init__(self, url: str, token: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        self._form = ""
        body = urlencode({"token": token, "next": "/"})
        self._connection.request("POST", "/-/sign-in", body, {"Content-Type": "application/x-www-form-urlencoded"})
        answer = self._connection.getresponse()
        answer.read()
        assert answer.status == 303, answer.status
        self.cookie = (answer.headers["set-cookie"] or "").partition(";")[0]

    def get(self, address: str, fields: Mapping[str, str] | None = None, status: int = 200) -> Answer:
        """The answer of a page; with ``fields``, that of a form that is sent to the address."""
        try:
            return self._get(address, fields, status)
        except http.client.RemoteDisconnected:  # the server has closed the idle connection
            self._connection.close()
            return self._get(address, fields, status)

    def _get(self, address: str, fields: Mapping[str, str] | None, status: int) -> Answer:
        if fields is not None and not self._form:
            (self._form,) = re.findall(r'name="form" value="(\w+)"', self._get("/-/locks", None, 200).text)[:1]
        body = None if fields is None else urlencode({"form": self._form, **fields}).encode()
        began = time.perf_counter()
        headers = {"Cookie": self.cookie, "Accept": "text/html", "Accept-Encoding": "gzip", "Connection": "keep-alive"}
        if body is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        self._connection.request("GET" if body is None else "POST", address, body, headers)
        answer = self._connection.getresponse()
        body = answer.read()
        took = (time.perf_counter() - began) * 1000
        assert answer.status == status, f"{address} {fields or ''}: {answer.status} {body[:300]!r}"
        text = gzip.decompress(body) if answer.headers["content-encoding"] == "gzip" else body
        return Answer(took, len(body) + len(bytes(str(answer.headers), "latin-1")), text.decode("utf-8", "replace"))

    def with_everything(self, address: str, fields: Mapping[str, str] | None = None, status: int = 200) -> int:
        """The bytes of a page and of everything that the page refers to, as transferred at a first
        visit.
        """
        page = self.get(address, fields, status)
        parts = re.findall(r'(?:src|href)="(/-/static/[^"]+)"', page.text)
        return page.bytes + sum(self.get(part).bytes for part in parts)

    def close(self) -> None:
        self._connection.close()


def transferred(server: Installation, addresses: Sequence[str]) -> dict[str, int]:
    """The bytes that a real browser transfers for each page at a second visit, with everything that
    the page's script loads in the first seconds, by address.
    """
    found = dict.fromkeys(addresses, 0)
    with a_real_browser() as browser, a_browser(server) as signed_in:
        context = browser.new_context(base_url=server.api.url)
        name, _, secret = signed_in.cookie.partition("=")
        context.add_cookies([{"name": name, "value": secret, "url": server.api.url}])
        for address in addresses:
            page = context.new_page()
            page.goto(address)
            network = context.new_cdp_session(page)
            sizes: list[int] = []
            network.on("Network.loadingFinished", lambda event, to=sizes: to.append(event["encodedDataLength"]))
            network.send("Network.enable")
            page.goto(address)
            page.wait_for_timeout(SETTLED * 1000)
            found[address] = sum(sizes)
            page.close()
    return found


@contextmanager
def a_browser(server: Installation) -> Iterator[Browser]:
    """A browser that is signed in with the server's own token."""
    token = server.api.token
    assert token is not None
    browser = Browser(server.api.url, token)
    try:
        yield browser
    finally:
        browser.close()
