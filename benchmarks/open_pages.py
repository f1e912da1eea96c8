"""Row 22: open pages: the cost of 200 idle ones for a server, and the delay until one of them shows
a change.
"""

from __future__ import annotations

import os
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from benchmarks.bench import Bench, Figure, at_most, never_above
from benchmarks.browsing import Browser, a_browser
from benchmarks.commits import graph
from benchmarks.memory import SETTLING, resident
from benchmarks.servers import Archive, a_server, until
from tests.system.end_to_end.installation import Installation

LATEST: Final = 300
"""The most milliseconds until an open page shows a change (issue 36)."""
ADDED: Final = 30
"""The most megabytes that 200 open pages add to a server (issue 36)."""
IDLE: Final = 5
"""The most percent of a core that open pages take while nothing happens (issue 36)."""
REPORT: Final = 1
"""A task that waits for all others."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def open_pages(bench: Bench) -> Iterator[Figure]:
    """A server with idle archives. The pages of one archive are opened, and one of its tasks is
    repeatedly canceled and retried.
    """
    count, seconds = bench.size("open.pages", 200, 200), bench.size("open.seconds", 60, 20)
    changes = bench.size("open.changes", 50, 15)
    with ExitStack() as stack:
        server = stack.enter_context(a_server(bench, stack.enter_context(bench.database()), slots=2))
        archive = Archive.add(bench, server, {"gate": {"hold": True}, **graph(5)})
        archive.notify(archive.commit())
        until(lambda: server.sql("select 1 from task where name = 'gate' and state = 'held'"), "the held task")
        until(lambda: archive.open_tasks() <= 1 + REPORT, "the end of all others")
        browser = stack.enter_context(a_browser(server))
        page = f"/{archive.name}@{archive.repository.head}"
        for _ in range(20):
            browser.get(page)
        alone = [_change(server, browser, archive.name, page) for _ in range(changes)]
        time.sleep(SETTLING)
        pid = server.roles[0].pid
        before, spent_before = resident(pid), _load(pid, seconds)
        with _opened(server, browser, archive.name, count):
            time.sleep(SETTLING)
            spent, added = _load(pid, seconds), resident(pid) - before
            beside = [_change(server, browser, archive.name, page) for _ in range(changes)]
    yield Figure("22", f"added by {count} open pages", "MB", [added], [at_most(ADDED, "MB")])
    yield Figure("22", f"processor time with {count} open pages while nothing happens", "%", [spent], [at_most(IDLE, "%")], "without them", [spent_before], note=f"of one core, over {seconds} s, PostgreSQL apart")  # fmt: skip
    target = [at_most(LATEST, "ms"), never_above(LATEST, "ms")]
    yield Figure("22", "a change until an open page has it", "ms", alone, target, note="from the request that changes it to the last byte of the new page")  # fmt: skip
    yield Figure("22", f"a change until one of {count} open pages has it", "ms", beside, target, "one page", [statistics.median(alone)])  # fmt: skip


def _change(server: Installation, browser: Browser, archive: str, page: str) -> float:
    """Milliseconds from a verb until an open page has received the change, has reloaded itself, and
    has new content.
    """
    with _listening(server, browser, archive) as events:
        old = browser.get(page).text
        (row,) = server.sql("select t.id, t.state from task t join archive a on a.id = t.archive_id where a.name = %s and t.name = 'gate' order by t.id desc limit 1", archive)  # fmt: skip
        began = time.perf_counter()
        server.api.post(f"/tasks/{row['id']}/{'cancel' if row['state'] == 'held' else 'retry'}", {})
        while True:
            while b"event: changed" not in (heard := events.recv(4096)):
                assert heard, "the server ended the open page"
            if browser.get(page).text != old:
                return (time.perf_counter() - began) * 1000


@contextmanager
def _opened(server: Installation, browser: Browser, archive: str, count: int) -> Iterator[None]:
    """Open pages of an archive that read only the events that arrive."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(_listening(server, browser, archive))
        yield


@contextmanager
def _listening(server: Installation, browser: Browser, archive: str) -> Iterator[socket.socket]:
    address = urlsplit(server.api.url)
    with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
        request = f"GET /-/live?of={archive} HTTP/1.1\r\nhost: {address.netloc}\r\ncookie: {browser.cookie}\r\n\r\n"
        connection.sendall(request.encode())
        told = b""
        while b": open" not in told:
            told += connection.recv(4096)
        yield connection


def _load(pid: int, seconds: int) -> float:
    """The percentage of one core that a process uses during some seconds."""
    before, began = spent(pid), time.monotonic()
    time.sleep(seconds)
    return (spent(pid) - before) / (time.monotonic() - began) * 100


def spent(pid: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
