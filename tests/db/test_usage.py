"""The resources that an attempt used are stored with its end, and told wherever the attempt is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from arkqueue.db.session import Session
from arkqueue.model import AttemptId, End, Outcome, Receipt, RunId, Usage
from arkqueue.queue import finish, purge
from arkqueue.queue.export import Export
from arkqueue.views import reports, runs
from arkqueue.views.attempts import attempt as show_attempt
from arkqueue.views.runs import RunUsage
from tests.builders import PROCESS, AnArchive, an_archive

OF_A_PROCESS, OF_A_CONTAINER = Usage(0.8, 54 << 20), Usage(3.2, None, sampled=True)
NOTHING = (None, None, None, "")


@pytest.fixture
def archive(session: Session) -> AnArchive:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "", "c": ""})
    return archive


def told(archive: AnArchive, attempt: AttemptId) -> tuple[Any, ...]:
    shown = show_attempt(archive.session, attempt)
    return shown.processor_seconds, shown.peak_memory_bytes, shown.usage_sampled, shown.used


def test_ends_that_are_recorded_together_have_each_their_own(session: Session, archive: AnArchive) -> None:
    a, b, c = (archive.attempt(f"{name}@2") for name in "abc")
    assert told(archive, a) == NOTHING, "while it runs"
    ends = [
        Outcome(a, End.EXITED, 1, usage=OF_A_PROCESS),
        Outcome(b, End.EXITED, 0, usage=OF_A_CONTAINER),
        Outcome(c, End.LOST),
    ]
    assert set(finish.finish(session, PROCESS, ends).values()) == {Receipt.RECORDED}
    assert told(archive, a) == (
        0.8, 54 << 20, False, "0.8 s of processor time, at most 54 MiB of memory in one process"
    )  # fmt: skip
    assert told(archive, b) == (3.2, None, True, "at least 3.2 s of processor time")
    assert told(archive, c) == NOTHING


def test_an_end_that_is_reported_again_changes_nothing(archive: AnArchive) -> None:
    attempt = archive.attempt("a@2")
    archive.record(attempt, End.EXITED, 0, usage=OF_A_PROCESS)
    again = archive.record(attempt, End.EXITED, 0, usage=OF_A_CONTAINER)
    assert again is Receipt.ALREADY_RECORDED
    assert told(archive, attempt)[:3] == (0.8, 54 << 20, False)


def test_a_report_has_what_the_newest_attempt_used(session: Session, archive: AnArchive) -> None:
    for name, usage in (("a", OF_A_PROCESS), ("b", OF_A_CONTAINER), ("c", None)):
        archive.record(archive.attempt(f"{name}@2"), End.EXITED, 0, usage=usage)
    report = reports.as_json(reports.report(session, RunId(archive.run_id(2))))
    found = {
        task["name"]: (task["processor_seconds"], task["peak_memory_bytes"], task["usage_sampled"])
        for task in report["tasks"]
    }
    assert found == {"a": (0.8, 54 << 20, False), "b": (3.2, None, True), "c": (None, None, None)}


def test_what_is_purged_is_exported_with_it(session: Session, archive: AnArchive, tmp_path: Path) -> None:
    for name in "abc":
        archive.record(archive.attempt(f"{name}@2"), End.EXITED, 0, usage=OF_A_PROCESS)
    with open(tmp_path / "gone.jsonl", "w") as file:
        purge.purge_runs(session, [RunId(archive.run_id(2))], "ann", export=Export(file))
    lines = [json.loads(line) for line in (tmp_path / "gone.jsonl").read_text().splitlines()]
    attempts = [line for line in lines if line["kind"] == "attempt"]
    assert [(one["processor_seconds"], one["peak_memory_bytes"]) for one in attempts] == [(0.8, 54 << 20)] * 3


def used(archive: AnArchive) -> RunUsage | None:
    return runs.run(archive.session, RunId(archive.run_id(2))).used


def test_a_run_sums_what_its_attempts_used(archive: AnArchive) -> None:
    assert used(archive) is None
    archive.record(archive.attempt("a@2"), End.EXITED, 1, usage=OF_A_PROCESS)
    archive.retry("a@2")
    again = archive.attempt("a@2")
    assert used(archive) == RunUsage(attempts=1, processor_seconds=0.8, peak_memory_bytes=54 << 20, is_all=True)
    archive.record(again, End.EXITED, 0, usage=Usage(1.5, 20 << 20))
    archive.record(archive.attempt("b@2"), End.NOT_STARTED, None)
    assert used(archive) == RunUsage(attempts=2, processor_seconds=2.3, peak_memory_bytes=54 << 20, is_all=True)


@pytest.mark.parametrize("usage", [OF_A_CONTAINER, None], ids=["sampled", "unknown"])
def test_a_run_used_at_least_what_is_known_of_it(archive: AnArchive, usage: Usage | None) -> None:
    archive.record(archive.attempt("a@2"), End.EXITED, 0, usage=OF_A_PROCESS)
    archive.record(archive.attempt("b@2"), End.EXITED, 0, usage=usage, ran=1.0)
    found = used(archive)
    assert found is not None
    assert (found.attempts, found.is_all) == (1 if usage is None else 2, False)


def test_a_run_with_a_long_list_sums_all_and_one_of_too_many_tasks_nothing(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_archive(session, "long")
    archive.commit({"tile": f"foreach: [{', '.join(f'i{number}' for number in range(101))}]"})
    archive.record(archive.attempt("tile/i0@2"), End.EXITED, 0, usage=OF_A_PROCESS)
    found = used(archive)
    assert found is not None
    assert (found.attempts, found.processor_seconds) == (1, 0.8)
    monkeypatch.setattr(runs, "MOST_SUMMED", 100)
    assert used(archive) is None
