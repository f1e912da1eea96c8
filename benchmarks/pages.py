"""Rows 21 and 22: pages of an installation with a long history: their time in the server, their
size, and open pages that receive changes.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Final

import psycopg

from arkqueue.queue import claim
from benchmarks.bench import Bench, Figure, at_most, never_above
from benchmarks.browsing import (
    BOX,
    COLUMNS,
    FILLED,
    FOLDED,
    LIST,
    NAMES,
    PROCESS,
    Browser,
    a_browser,
    make,
    many_tasks,
    transferred,
)
from benchmarks.lines import Line, a_queue
from benchmarks.open_pages import spent
from benchmarks.servers import a_server
from tests.system.end_to_end.installation import Installation

MEDIAN: Final = 50
"""The target for the median milliseconds that a page takes in the server (issue 36)."""
MOST: Final = 150
"""The most milliseconds that any answer may take (issue 36)."""
FIRST: Final = 100
"""The most kilobytes of a first visit with everything (issue 36)."""
LATER: Final = 25
"""The most kilobytes of a page whose style and script are cached (issue 36)."""


@dataclass(slots=True)
class _Page:
    """A page's address, the times of its answers, and the processor time that each answer takes in
    the server and in its PostgreSQL, in milliseconds. ``fields``: those of the form whose answer is
    the page. ``status``: that of the answer, if it is a refusal. ``is_rehearsal``: the form would act
    on 10,000 tasks. The answer takes about as long as the action, which is carried out and undone, so
    the targets for pages do not apply.
    """

    what: str
    address: str
    fields: Mapping[str, str] | None = None
    status: int = 200
    is_rehearsal: bool = False
    took: list[float] = field(default_factory=list)
    spent: float = 0.0
    bytes: int = 0
    whole: int = 0


def answers(bench: Bench) -> Iterator[Figure]:
    """Requests each page repeatedly, in turns; then again while 10,000 tasks are canceled."""
    times = bench.size("pages.times", 25, 10)
    with ExitStack() as stack:
        uri = stack.enter_context(bench.database())
        sizes = make(bench, uri)
        server = stack.enter_context(a_server(bench, uri, "web"))
        (wide,) = server.sql("select max(r.id) as id from run r join archive a on a.id = r.archive_id where a.name = %s", COLUMNS)  # fmt: skip
        server.api.post(f"/runs/{wide['id']}/report", {"now": True})
        pages = pages_of(server)
        with a_browser(server) as browser:
            for page in pages:
                page.whole = browser.with_everything(page.address, page.fields, page.status)
                browser.get(page.address, page.fields, page.status)
            # Each rehearsal leaves 10,000 dead rows until the next vacuum. In turns with the pages,
            # a hundred of them within minutes would measure what no person does.
            look(browser, [page for page in pages if not page.is_rehearsal], times)
            look(browser, [page for page in pages if page.is_rehearsal], times)
            with bench.admin(uri) as admin:
                for page in pages:
                    page.spent = _spent_on(page, browser, server, admin, times)
            tasks = f"{sizes['tasks']} tasks of history"
            for page in pages:
                targets = [] if page.is_rehearsal else [at_most(MEDIAN, "ms"), never_above(MOST, "ms")]
                yield Figure("21", f"{page.what}, {tasks}", "ms", [*page.took], targets, "processor time", [page.spent], note=_size(page))  # fmt: skip
            visited = [page for page in pages if page.fields is None and page.status == 200]
            yield from _bytes(pages, visited, transferred(server, [page.address for page in visited]))
            yield from _while_canceling(bench, uri, server, browser, [page for page in pages if not page.is_rehearsal])


def pages_of(server: Installation) -> list[_Page]:
    """Every page that has content: of an archive with a history, of one with many names, of one with
    many columns, and of one with a long list; then forms: what they would do, and their refusals.
    """
    (past,) = server.sql(
        "select a.name, max(b.name) as branch, max(r.number) as number, max(r.id) as run from run r join archive a on a.id = r.archive_id"
        " join branch b on b.archive_id = a.id where a.name = 'past-7' group by 1"
    )
    name, number = past["name"], past["number"]
    (old,) = server.sql("select max(r.id) as run from run r join archive a on a.id = r.archive_id where a.name = %s and r.number = 50000", NAMES)  # fmt: skip
    (bad,) = server.sql("select t.number from task t join archive a on a.id = t.archive_id where a.name = %s and t.state = 'failed' order by t.number desc limit 1", name)  # fmt: skip
    (wide,) = server.sql("select max(number) as number from run r join archive a on a.id = r.archive_id where a.name = %s", COLUMNS)  # fmt: skip
    (list_,) = server.sql("select max(number) as number from run r join archive a on a.id = r.archive_id where a.name = %s", LIST)  # fmt: skip
    return [
        _Page("overview", "/"),
        _Page("overview, a later page", "/?page=9"),
        _Page("archive", f"/{name}"),
        _Page("archive, an earlier page", f"/{name}?before={past['run'] - 50_000}"),
        _Page("archive, failed runs", f"/{name}?state=failed"),
        _Page("archive, one author's", f"/{name}?author=author-3"),
        _Page("archive, words of the message", f"/{name}?message=chapter+12"),
        _Page("archive, unhandled failures", f"/{name}?state=unhandled"),
        _Page("run", f"/{name}@{number}"),
        _Page("task", f"/{name}@{number}/pdf"),
        _Page("failed task", f"/{name}@{bad['number']}/pdf"),
        _Page("search", "/-/search?q=chapter"),
        _Page("search for a task", "/-/search?q=publish"),
        _Page("locks", "/-/locks"),
        _Page("schedules", "/-/schedules"),
        _Page("task managers", "/-/task-managers"),
        _Page("tokens", "/-/tokens"),
        _Page("notifications", "/-/notifications"),
        _Page("audit log", "/-/audit-log"),
        _Page("settings", f"/-/settings/{name}"),
        _Page("300 names of the past", f"/{NAMES}"),
        _Page("300 names of the past, all of them", f"/{NAMES}?gone=yes"),
        _Page("300 names of the past, runs of one", f"/{NAMES}?task=old-7"),
        _Page("300 names of the past, one author's", f"/{NAMES}?author=author-3"),
        _Page("300 names of the past, words of the message", f"/{NAMES}?message=chapter+12"),
        *([_Page("300 names of the past, an earlier page", f"/{NAMES}?before={old['run']}")] if old["run"] else []),
        _Page("300 folded columns", f"/{FOLDED}"),
        _Page("300 folded columns, unfolded", f"/{FOLDED}?gone=yes"),
        _Page("500 columns", f"/{COLUMNS}"),
        _Page("a run of 500 tasks", f"/{COLUMNS}@{wide['number']}"),
        _Page("a task among 500", f"/{COLUMNS}@{wide['number']}/t7"),
        _Page("archive with a list", f"/{LIST}"),
        _Page("a run with a list", f"/{LIST}@{list_['number']}"),
        _Page("items in one state", f"/{LIST}@{list_['number']}?list=tile&state=ready"),
        _Page("an item", f"/{LIST}@{list_['number']}/*/item-77"),
        _Page("a task of an item", f"/{LIST}@{list_['number']}/tile/item-77"),
        _Page("search for an item", "/-/search?q=item-77"),
        _Page("backfill", f"/{FILLED}@fill:1"),
        _Page("a run of a backfill", f"/{FILLED}@2.2"),
        _Page("report", f"/-/report?of={COLUMNS}@{wide['number']}"),
        _Page("my revisions", "/-/mine?author=author-3"),
        _Page("sessions", "/-/sessions"),
        _Page("trigger", f"/-/trigger?of={name}"),
        _Page("trigger one of 500 tasks", f"/-/trigger?of={COLUMNS}"),
        _Page("submit", f"/-/submit/{BOX}"),
        _Page("add an archive", "/-/add-archive"),
        _Page("sign-in", "/-/sign-in"),
        _Page("badge", f"/{name}?format=svg"),
        _Page("feed", f"/{name}?format=atom"),
        *_forms(name, number, bad["number"], wide["number"], list_["number"]),
    ]


def _forms(name: str, number: int, bad: int, wide: int, list_: int) -> list[_Page]:
    """What forms show before anything happens, and refusals. ``number``: the newest revision of the
    archive ``name``; ``bad``: one with a failure.
    """

    def act(what: str, verb: str, of: str, status: int = 200, **more: str) -> _Page:
        return _Page(what, "/-/act", {"verb": verb, "name": of, "back": "/", **more}, status)

    every = f"{LIST}@{list_}/tile/*"

    def rehearsal(verb: str) -> _Page:
        return replace(act(f"preview: {verb} a list of 10,000 items", verb, every), is_rehearsal=True)

    return [
        act("preview: cancel a run of 500 tasks", "cancel", f"{COLUMNS}@{wide}"),
        *map(rehearsal, ("cancel", "skip", "hold")),
        act("preview: delete a run", "delete", f"{name}@{number}"),
        act("preview: cancel a backfill", "cancel", f"{FILLED}@fill:1"),
        act("preview: trigger", "trigger", f"{name}@{number}", task="pdf"),
        act("preview: trigger 500 tasks", "trigger", f"{COLUMNS}@{wide}"),
        act("preview: a backfill", "trigger", name, task="pdf", first="2", force="yes"),
        _Page("preview: remove an archive", "/-/act/remove-archive", {"name": name, "text": name, "back": "/"}),
        act("refusal: restart what does not run", "restart", f"{name}@{number}/pdf", 409),
        act("refusal: retry what later revisions replaced", "retry", f"{name}@{bad}/pdf", 409),
        act("refusal: retry all of an archive, which later revisions replaced", "retry", name, 409),
        act("refusal: a trigger of a task that is not there", "trigger", f"{name}@{number}", 422, task="nothing"),
        _Page("refusal: no such archive", "/past-7o", None, 404),
        _Page("refusal: no such run", f"/{name}@999999/pdf", None, 404),
    ]


def look(browser: Browser, pages: Sequence[_Page], times: int) -> None:
    """Requests each page ``times`` times in sequence."""
    for _ in range(times):
        for page in pages:
            answer = browser.get(page.address, page.fields, page.status)
            page.took.append(answer.took)
            page.bytes = max(page.bytes, answer.bytes)


def _spent_on(page: _Page, browser: Browser, server: Installation, admin: psycopg.Connection[Any], times: int) -> float:
    """Milliseconds of processor time per answer: the time that an answer takes if nothing else
    runs.
    """
    before = _spent(server, admin)
    for _ in range(times):
        browser.get(page.address, page.fields, page.status)
    return (_spent(server, admin) - before) * 1000 / times


def _spent(server: Installation, admin: psycopg.Connection[Any]) -> float:
    backends = admin.execute("select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()").fetchall()  # fmt: skip
    return spent(server.roles[0].pid) + sum(spent(pid) for (pid,) in backends)


def _size(page: _Page) -> str:
    return f"{page.bytes / 1000:.1f} kB"


def _bytes(pages: Sequence[_Page], visited: Sequence[_Page], later: Mapping[str, int]) -> Iterator[Figure]:
    whole, largest = max(pages, key=lambda page: page.whole), max(visited, key=lambda page: later[page.address])
    yield Figure("21", "first load with everything, the largest page", "kB", [whole.whole / 1000], [at_most(FIRST, "kB")], note=whole.what)  # fmt: skip
    yield Figure("21", "a page after that with what its script loads, the largest", "kB", [later[largest.address] / 1000], [at_most(LATER, "kB")], note=largest.what)  # fmt: skip


def _while_canceling(
    bench: Bench, uri: str, server: Installation, browser: Browser, pages: Sequence[_Page]
) -> Iterator[Figure]:
    """The pages while the server cancels a run of another archive; each page as often as time
    permits.
    """
    tasks = bench.size("pages.canceled", 10_000, 1_500)
    with a_queue(uri) as session:
        line = Line.register(session, "large")
        line.append(session, many_tasks(tasks))
        (run,) = session.rows("runs_of_revisions", revisions=[line.branch.head])
        assert claim.claim(session, PROCESS, PROCESS, tasks)
        before = {page.what: statistics.median(page.took) for page in pages}
        for page in pages:
            page.took.clear()
        with ThreadPoolExecutor(1) as canceler:
            canceled = canceler.submit(server.api.post, f"/runs/{run.id}/cancel", {})
            while not canceled.done():
                look(browser, pages, 1)
            canceled.result()
    every = [one for page in pages for one in page.took]
    slowest = max(pages, key=lambda page: max(page.took))
    what = f"while {tasks} tasks are canceled elsewhere"
    yield Figure("21", f"all pages {what}", "ms", every, [at_most(MEDIAN, "ms"), never_above(MOST, "ms")], "before it", list(before.values()), note=f"the longest: {slowest.what}")  # fmt: skip
