"""The example of the source document, from end to end: notices in the order 3, 2, and a PDF that is
superseded while it is built.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from tests.system.end_to_end.conftest import Archives
from tests.system.end_to_end.installation import Archive, Installation, Stage, tasks
from tests.waiting import eventually

EDGES = {
    ("2/build-PDF", "2/indexing", "depends"),
    ("2/indexing", "2/COMMIT", "depends"),
    ("2/COMMIT", "1/COMMIT", "depends"),
    ("3/build-PDF", "3/indexing", "depends"),
    ("3/build-PDF", "2/build-PDF", "cancels"),
    ("3/indexing", "2/indexing", "depends"),
    ("3/indexing", "3/COMMIT", "depends"),
    ("3/COMMIT", "2/COMMIT", "depends"),
}
"""(target, source, kind)."""


def test_slow_pdf_is_superseded_although_the_hooks_come_in_the_order_3_2(
    shared: Installation, archives: Archives, stage: Stage, kind: str
) -> None:
    papers = archives(shared, kind)
    hook = Hook(papers)
    hook.hold_back()
    papers.commit(
        tasks(
            {
                "indexing": {"depends": ["PREV"], "command": stage.held, "checkout": "none"},
                "build-PDF": {
                    "depends": ["indexing"],
                    "cancels": ["PREV"],
                    "command": stage.held,
                    "checkout": "none",
                    "grace": "1s",
                },
            }
        )
    )
    papers.commit({"paper.tex": "second thoughts\n"})
    hook.fire(3)
    hook.fire(2)

    stage.begun("indexing@2")
    papers.wait("indexing@3", "waiting")
    stage.go("indexing@2")
    stage.begun("build-PDF@2")
    stage.begun("indexing@3")
    assert papers.state("build-PDF@3") == "waiting"
    stage.go("indexing@3")
    stage.begun("build-PDF@3")
    assert papers.states(2, 3) == {
        "indexing@2": "completed", "build-PDF@2": "canceled", "indexing@3": "completed", "build-PDF@3": "running"
    }  # fmt: skip
    stage.go("build-PDF@3")
    papers.wait_for_run(3)
    papers.wait_for_run(2, "superseded")

    history = sorted((at, event) for key in papers.states(2, 3) for at, event in happened(papers, key))
    events = [event for _, event in history]
    assert events[:2] == ["indexing@2 running", "indexing@2 completed"]
    assert sorted(events[2:4]) == ["build-PDF@2 running", "indexing@3 running"]
    assert events[4:] == [
        "indexing@3 completed", "build-PDF@2 canceled", "build-PDF@3 running", "build-PDF@3 completed"
    ]  # fmt: skip
    assert stage.events() == [
        "begin indexing@2", "end indexing@2", *[e for e in stage.events() if e in ("begin build-PDF@2", "begin indexing@3")],
        "end indexing@3", "begin build-PDF@3", "end build-PDF@3",
    ]  # fmt: skip
    assert papers.ledger() == [1, 2, 3]

    graph = shared("graph", papers.run(2), papers.run(3), "--json").json
    here = f"{papers.name}@"
    edges = [
        (edge["target_name"].removeprefix(here), edge["source_name"].removeprefix(here), edge["kind"])
        for edge in graph["edges"]
    ]
    assert len(edges) == 8
    assert set(edges) == EDGES
    assert f"superseded by {papers.task('build-PDF@3')}" in shared("show", papers.run(2)).out


def happened(papers: Archive, key: str) -> list[tuple[Any, str]]:
    """What the database remembers of a task that had one attempt, with its times."""
    (attempt,) = papers.attempts(key)
    return [(attempt["claimed_at"], f"{key} running"), (papers.settled_at(key), f"{key} {papers.state(key)}")]


class Hook:
    """The installed hook of a repository, held back and fired later."""

    def __init__(self, papers: Archive) -> None:
        self._papers = papers
        self._script = papers.repository.path / "hooks" / ("post-receive" if papers.is_git else "post-commit")

    def hold_back(self) -> None:
        self._script.rename(self._held)

    def fire(self, number: int) -> None:
        """Run it as the repository would have for a revision; the notice of it has arrived then."""
        if self._script.exists():
            self._script.rename(self._held)
        before = self._asked()
        self._held.rename(self._script)
        path = self._papers.repository.path
        if self._papers.is_git:
            new = self._commits()[number - 1]
            words, lines = [self._script], f"{self._commits()[number - 2]} {new} refs/heads/main\n"
        else:
            words, lines = [self._script, path, str(number), f"{number - 1}-x"], ""
        subprocess.run(words, input=lines, text=True, cwd=path, env={}, check=True)
        eventually(lambda: self._asked() != before)

    @property
    def _held(self) -> Path:
        return self._script.with_suffix(".held")

    def _commits(self) -> list[str]:
        assert self._papers.is_git
        return self._papers.repository.git("rev-list", "--reverse", "main").split()  # type: ignore[union-attr]

    def _asked(self) -> Any:
        """What the server has heard of the archive so far: a notice that waits, or when it was last read."""
        rows = self._papers.installation.sql(
            "select a.read_at, l.asked from archive a left join look l on l.archive_id = a.id where a.name = %s",
            self._papers.name,
        )
        return rows[0]
