"""Row 23: the times in a real browser: until the end of a log of 200 MB appears, how smoothly the
log scrolls, and until the grid reacts to the pointer and the keyboard without a network.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

import psycopg
from playwright.sync_api import Page

from benchmarks.bench import Bench, Figure, at_most, never_above
from benchmarks.browsing import COLUMNS, NAMES, make
from benchmarks.servers import a_server
from tests.browsers import a_browser
from tests.system.end_to_end.installation import Installation

END: Final = 1000
"""The most milliseconds until the end of a log of 200 MB appears (issue 36)."""
ANSWER: Final = 16
"""The most milliseconds until hover and focus are visible (issue 36)."""
LINE: Final = 80
"""Bytes of a line of the log."""
OF_CHUNK: Final = 800
"""Lines of a chunk of the log."""

_LOG = (
    "delete from log_chunk where attempt_id = %(attempt)s",
    "insert into log_chunk (attempt_id, position, stream, at, data, lines)"
    " select %(attempt)s, c * %(line)s::bigint * %(of_chunk)s, 'stdout', now(), (select convert_to(string_agg("
    " rpad('line ' || c * %(of_chunk)s::bigint + i || ' of a long log, compiled without a warning', %(line)s::int - 1) || chr(10), '' order by i), 'UTF8')"
    " from generate_series(1, %(of_chunk)s::int) i), %(of_chunk)s from generate_series(0, %(chunks)s::int - 1) c",
    "update attempt set log_bytes = %(line)s::bigint * %(of_chunk)s * %(chunks)s where id = %(attempt)s",
)
_SCROLL = """async (places) => {
  const box = document.querySelector(".log.virtual"), frame = () => new Promise(requestAnimationFrame);
  let frames = 0, blank = 0;
  const seen = () => {
    const at = box.getBoundingClientRect(), row = (y) => document.elementFromPoint(at.left + 200, at.top + y)?.closest(".seen > div");
    return row(6) && row(at.height / 2) && row(at.height - 10);
  };
  const waits = [];
  for (const place of places) {
    const before = box.querySelector(".seen > div[id]")?.id, began = performance.now();
    box.scrollTop = place * box.scrollHeight;
    do { await frame(); frames++; blank += !seen(); } while (box.querySelector(".seen > div[id]")?.id === before && performance.now() - began < 5000);
    waits.push(performance.now() - began);
  }
  return { frames, blank, waits };
}"""
_ANSWERS = """(kind) => {
  const cells = [...document.querySelectorAll(".grid tbody .cell a[id]")], foot = document.querySelector(".foot .line"), took = [];
  for (let n = 0; n < 60; n++) {
    const cell = cells[(n * 397) % cells.length], began = performance.now();
    kind === "focus" ? cell.focus({ preventScroll: true }) : cell.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
    document.body.offsetHeight;
    took.push(performance.now() - began);
    if (foot.textContent !== cell.title) throw new Error("the foot says " + foot.textContent);
  }
  return took;
}"""


def in_browser(bench: Bench) -> Iterator[Figure]:
    """Chromium without a screen, at the size of a desktop window."""
    times = bench.size("browser.times", 20, 5)
    megabytes = bench.size("browser.megabytes", 200, 200)
    with ExitStack() as stack:
        uri = stack.enter_context(bench.database())
        make(bench, uri)
        server = stack.enter_context(a_server(bench, uri, "web"))
        task = a_long_log(server, megabytes)
        browser = stack.enter_context(a_browser())
        context = browser.new_context(base_url=server.api.url, viewport={"width": 1280, "height": 900})
        page = context.new_page()
        _sign_in(page, server)
        yield from _log(page, task, times, megabytes)
        for what, address in ((f"a grid of {COLUMNS}", f"/{COLUMNS}"), ("300 names of the past", f"/{NAMES}?gone=yes")):
            page.goto(address)
            page.locator(".grid tbody .cell a[id]").first.wait_for()
            context.set_offline(True)
            for kind in ("focus", "hover"):
                took = page.evaluate(_ANSWERS, kind)
                yield Figure("23", f"{kind} on {what}, the network off", "ms", took, [at_most(ANSWER, "ms")], note="until the sentence and the edges are laid out")  # fmt: skip
            context.set_offline(False)


def a_long_log(server: Installation, megabytes: int) -> str:
    """Gives a task of the history a log of ``megabytes`` MB. Returns the task's address."""
    (one,) = server.sql("select a.name, t.number, t.attempt_id from task t join archive a on a.id = t.archive_id where a.name = 'past-7' and t.name = 'index' and t.state = 'completed' order by t.number desc limit 1")  # fmt: skip
    assert server.database is not None
    with psycopg.connect(server.database, autocommit=True) as admin:
        admin.execute("set statement_timeout = 0")
        values = {"attempt": one["attempt_id"], "line": LINE, "of_chunk": OF_CHUNK, "chunks": megabytes * 1_000_000 // (LINE * OF_CHUNK)}  # fmt: skip
        for statement in _LOG:
            admin.execute(statement.encode(), values)
    return f"/{one['name']}@{one['number']}/index"


def _sign_in(page: Page, server: Installation) -> None:
    page.goto("/-/sign-in")
    token = server.api.token
    assert token is not None
    page.fill("input[name=token]", token)
    page.keyboard.press("Enter")
    page.wait_for_url("**/")


def _log(page: Page, task: str, times: int, megabytes: int) -> Iterator[Figure]:
    lines = megabytes * 1_000_000 // (LINE * OF_CHUNK) * OF_CHUNK
    page.goto(task)
    took = []
    for _ in range(times):
        began = time.perf_counter()
        page.goto(task)
        page.locator(f".seen > #L{lines}").wait_for()
        took.append((time.perf_counter() - began) * 1000)
    yield Figure("23", f"the end of a log of {megabytes} MB", "ms", took, [at_most(END, "ms"), never_above(END, "ms")], note="until its last line is seen, the page included")  # fmt: skip
    places: list[Any] = [(n * 617 % 1000) / 1000 for n in range(times * 2)]
    seen = page.evaluate(_SCROLL, places)
    yield Figure("23", f"blank frames of {seen['frames']} while it is scrolled", "", [seen["blank"]], [never_above(0)], note=f"to {len(places)} places anywhere in it")  # fmt: skip
    yield Figure("23", "until the lines of another place are there", "ms", seen["waits"])
