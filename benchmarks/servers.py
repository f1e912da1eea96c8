"""A real server with real repositories, for rows that start with a commit: ``arkqueue serve`` in
its own process, on the bench's PostgreSQL.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.bench import Bench
from tests.repositories import Content, SubversionRepository, a_subversion_repository, run
from tests.system.end_to_end.installation import Installation, tasks

LOOK = 0.0005
"""Seconds between two polls."""
REST = 0.1
"""Seconds of rest for a server before the next commit."""
PATIENCE = 120.0
AUTHOR, DATE = "ada", "2026-01-01T00:00:00.000000Z"
"""The author and the date of loaded revisions."""


@contextmanager
def a_server(bench: Bench, uri: str, role: str = "serve", **settings: Any) -> Iterator[Installation]:
    """A running server with default settings, except that periodic scans are too rare
    to interfere.
    """
    installation = Installation(bench.a_folder("server"), uri, **{"poll": "1s", **settings})
    installation.is_forked = False
    try:
        installation.start(role)
        yield installation
    finally:
        installation.close()


def until(check: Any, what: str) -> Any:
    """Waits for a true value."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if found := check():
            return found
        time.sleep(LOOK)
    raise TimeoutError(f"{what} never came")


def load(repository: SubversionRepository, revisions: int) -> None:
    """Adds ``revisions`` revisions to a repository at once. Each changes ``notes``, which must
    exist.
    """
    told: list[bytes] = [b"SVN-fs-dump-format-version: 2\n\n"]
    first = int(repository.head) + 1
    for number in range(first, first + revisions):
        said = f"note {number}"
        props = f"K 7\nsvn:log\nV {len(said)}\n{said}\nK 10\nsvn:author\nV {len(AUTHOR)}\n{AUTHOR}\nK 8\nsvn:date\nV {len(DATE)}\n{DATE}\nPROPS-END\n"
        text = f"{said}\n"
        told.append(
            (
                f"Revision-number: {number}\nProp-content-length: {len(props)}\nContent-length: {len(props)}\n\n{props}\n"
                f"Node-path: notes\nNode-kind: file\nNode-action: change\nText-content-length: {len(text)}\n"
                f"Content-length: {len(text)}\n\n{text}\n\n"
            ).encode()
        )
    dump = repository.path.with_name(repository.path.name + ".dump")
    dump.write_bytes(b"".join(told))
    run("svnadmin", "load", "-q", repository.path, "-F", dump)
    dump.unlink()


@dataclass
class Archive:
    """An archive on a server. The first task of each revision writes the time into a file."""

    server: Installation
    name: str
    repository: SubversionRepository
    starts: Path
    seen: int = 0
    stages: dict[str, list[float]] = field(default_factory=dict)
    """For each latency, the times of its stages: the plan's transaction began, the first task
    became ready, and it was claimed.
    """

    @classmethod
    def add(
        cls,
        bench: Bench,
        server: Installation,
        definitions: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        revisions: int = 0,
        files: int = 0,
        checkout: str = "none",
    ) -> Archive:
        """A repository with ``revisions`` revisions, registered at its head. ``definitions``: tasks
        that replace the three tasks of row 1.
        """
        folder = bench.a_folder("archive")
        folder.chmod(0o755)
        starts = folder / "starts"
        starts.touch()
        repository = a_subversion_repository(folder)
        content: dict[str, Content] = {"notes": "note\n", **{f"file-{n}": f"{n}\n" * 100 for n in range(files)}}
        repository.commit(content | tasks(definitions or three_tasks(starts, checkout)))
        if revisions:
            load(repository, revisions - 1)
        name = folder.name
        server.api.post("/archives", {"name": name, "url": str(repository.path), "process": True})
        return cls(server, name, repository, starts)

    def commit(self) -> int:
        return int(self.repository.commit({"notes": f"{time.time_ns()}\n"}))

    def notify(self, revision: int) -> None:
        """Sends the hook's notice, without the hook."""
        self.server.api.post("/notices", {"repository": str(self.repository.path), "revision": revision})

    def notify_all(self, revisions: Sequence[int], posters: int = 4) -> None:
        """Sends the notices of many revisions as fast as possible, with several posters that each
        keep a connection.
        """
        left = iter(revisions)
        lock = threading.Lock()
        address = urlsplit(self.server.api.url).netloc
        headers = {"Authorization": f"Bearer {self.server.api.token}", "Content-Type": "application/json"}

        def post() -> None:
            with closing(HTTPConnection(address)) as connection:
                while True:
                    with lock:
                        if (revision := next(left, None)) is None:
                            return
                    body = {"repository": str(self.repository.path), "revision": revision}
                    connection.request("POST", "/api/v1/notices", json.dumps(body), headers)
                    answer = connection.getresponse()
                    assert answer.status == 202, answer.read()
                    answer.read()

        with ThreadPoolExecutor(posters) as pool:
            for done in [pool.submit(post) for _ in range(posters)]:
                done.result()

    def wait(self) -> None:
        """Waits until the archive has nothing more to do."""
        until(lambda: not self.open_tasks(), f"the end of {self.name}")

    def open_tasks(self) -> int:
        (row,) = self.server.sql(
            "select count(*) from task t join archive a on a.id = t.archive_id where a.name = %s"
            " and state in ('waiting', 'held', 'ready', 'running', 'deferred')",
            self.name,
        )
        return int(row["count"])

    def latency(self, before: Callable[[], object] = lambda: None) -> float:
        """Milliseconds from a notice to the start of the first process. The server has no other
        work than what ``before`` gives it.
        """
        revision = self.commit()
        time.sleep(REST)
        before()
        began = time.time_ns()
        self.notify(revision)
        took = (self.next_start() - began) / 1e6
        self.wait()
        self._note_stages(revision, began / 1e9)
        return took

    def _note_stages(self, revision: int, began: float) -> None:
        """Records the times after the notice, in milliseconds, at which the database learned of
        each stage.
        """
        (row,) = self.server.sql(
            "select extract(epoch from r.read_at)::float8 as planned, extract(epoch from t.ready_at)::float8 as ready,"
            " extract(epoch from a.claimed_at)::float8 as claimed"
            " from revision r join run on run.revision_id = r.id join task t on t.run_id = run.id join attempt a on a.id = t.attempt_id"
            " join archive x on x.id = run.archive_id where x.name = %s and r.number = %s order by a.id limit 1",
            self.name,
            revision,
        )
        for stage, at in row.items():
            self.stages.setdefault(stage, []).append((at - began) * 1000)

    def next_start(self) -> int:
        """Waits for the start of one more process. Returns its time in nanoseconds."""
        lines: Sequence[str] = until(lambda: self._more(), "the first process")
        self.seen = len(lines)
        return int(lines[-1])

    def _more(self) -> Sequence[str]:
        lines = [line for line in self.starts.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return lines if len(lines) > self.seen else ()


def writes_the_time(starts: Path) -> str:
    """The command whose start is measured, here and at the peers."""
    return f"date +%s%N >> {starts}"


def three_tasks(starts: Path, checkout: str) -> dict[str, dict[str, Any]]:
    return {
        "first": {"command": writes_the_time(starts), "checkout": checkout},
        "second": {"command": "true", "depends": ["first"], "checkout": checkout},
        "third": {"command": "true", "depends": ["second"], "checkout": checkout},
    }
