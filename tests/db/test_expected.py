"""When tasks are expected to start and to end: one answer for `explain`, a task, a run and the
pages.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from arkqueue.db.session import Session
from arkqueue.model import INSTALLATION, RunId, TaskId
from arkqueue.queue import claim, locks, pauses
from arkqueue.views import expected, tasks
from arkqueue.views.explain import explain, explain_name
from arkqueue.views.runs import run
from tests.builders import HOST, PROCESS, AnArchive, an_archive

TASKS = {"a": "", "b": "depends: [a]", "c": "depends: [b, PREV]", "other": ""}


@pytest.fixture
def archive(session: Session) -> AnArchive:
    """A revision whose tasks took one, two and three minutes; ``other`` has never run."""
    archive = an_archive(session)
    claim.register(session, PROCESS, HOST, "build-1", 4)
    archive.commit(TASKS)
    for minutes, name in enumerate("abc", 1):
        archive.run(f"{name}@2")
        archive.sql(
            "update attempt set started_at = ended_at - make_interval(mins => %s) where task_id = %s",
            minutes,
            archive.task(f"{name}@2"),
        )
    archive.commit(TASKS)
    return archive


def minutes_from_now(at: datetime) -> float:
    return round((at - datetime.now(UTC)) / timedelta(minutes=1), 1)


def test_a_waiting_task_starts_when_what_it_waits_for_is_expected_to_end(session: Session, archive: AnArchive) -> None:
    found = explain_name(session, "papers@3/c").expected
    assert found is not None
    assert (minutes_from_now(found.start), minutes_from_now(found.end)) == (3.0, 6.0)
    assert tasks.task(session, TaskId(archive.task("c@3"))).expected is not None
    view = run(session, RunId(archive.run_id(3)))
    assert {name: minutes_from_now(one.end) for name, one in view.expected.items()} == {
        "papers@3/a": 1.0, "papers@3/b": 3.0, "papers@3/c": 6.0,
    }  # fmt: skip
    assert view.ends is None, "nobody knows how long other takes"


def test_a_running_task_is_expected_to_end_after_its_usual_time(session: Session, archive: AnArchive) -> None:
    archive.claim("a@3")
    archive.sql(
        "update attempt set started_at = clock_timestamp() - interval '45 s' where task_id = %s", archive.task("a@3")
    )
    archive.run("other@3")
    view = run(session, RunId(archive.run_id(3)))
    assert minutes_from_now(view.expected["papers@3/a"].end) == pytest.approx(0.25, abs=0.06)
    assert view.ends == view.expected["papers@3/c"].end


def test_nothing_is_expected_behind_a_failure_or_a_person(session: Session, archive: AnArchive) -> None:
    archive.fail("a@3")
    archive.commit(TASKS)
    assert explain(session, TaskId(archive.task("c@4"))).expected is None
    archive.commit({"a": "hold: true", "b": "depends: [a]"})
    assert explain(session, TaskId(archive.task("b@5"))).expected is None
    assert explain(session, TaskId(archive.task("a@2"))).expected is None, "it is done"


def test_while_the_archive_is_paused_only_what_runs_has_an_end(session: Session, archive: AnArchive) -> None:
    archive.claim("a@3")
    pauses.pause(session, archive.id, "", "ann")
    assert explain(session, TaskId(archive.task("b@3"))).expected is None
    view = run(session, RunId(archive.run_id(3)))
    assert list(view.expected) == ["papers@3/a"]
    assert view.ends is None
    pauses.resume(session, archive.id, "papers", "ann")
    assert explain(session, TaskId(archive.task("b@3"))).expected is not None


def test_nothing_is_expected_behind_a_paused_lock(session: Session, archive: AnArchive) -> None:
    locked = {"a": "lock: tex", "b": "depends: [a]", "c": "depends: [b]\nlock: global/printer", "other": ""}
    archive.run("other@3")
    archive.sql("update attempt set started_at = ended_at - interval '1 minute'")
    archive.commit(locked)
    number = "papers@4/"

    def known() -> list[str]:
        return sorted(run(session, RunId(archive.run_id(4))).expected)

    assert known() == [f"{number}{name}" for name in ("a", "b", "c", "other")]
    locks.pause(session, INSTALLATION, "global/printer", "no paper", "ann")
    assert known() == [f"{number}{name}" for name in ("a", "b", "other")], "c does not ask for it yet"
    locks.pause(session, archive.id, "tex", "the licence", "ann")
    assert known() == [f"{number}other"]
    assert explain(session, TaskId(archive.task("a@4"))).expected is None
    assert explain(session, TaskId(archive.task("b@4"))).expected is None, "it waits for a@4"
    locks.resume(session, archive.id, "tex", "papers/tex", "ann")
    archive.claim("a@4")
    locks.pause(session, archive.id, "tex", "the licence", "ann")
    assert f"{number}b" in known(), "a@4 has the lock and runs"


def test_of_too_many_tasks_nothing_is_said(
    session: Session, archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expected, "MOST", 2)
    assert explain(session, TaskId(archive.task("c@3"))).expected is None
    assert explain(session, TaskId(archive.task("b@3"))).expected is not None


def test_no_start_is_expected_where_only_a_person_ends_the_wait(session: Session, archive: AnArchive) -> None:
    pauses.drain(session, HOST, "", "ann")
    assert explain(session, TaskId(archive.task("a@3"))).expected is None
    assert explain(session, TaskId(archive.task("b@3"))).expected is None, "it waits for a@3"
    pauses.resume_worker(session, HOST, "build-1", "ann")
    assert explain(session, TaskId(archive.task("a@3"))).expected is not None
