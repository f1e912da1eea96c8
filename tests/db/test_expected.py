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


def test_nothing_is_expected_behind_a_task_that_runs_for_longer_than_usual(
    session: Session, archive: AnArchive
) -> None:
    archive.run("other@3")
    archive.claim("a@3")
    archive.sql(
        "update attempt set started_at = clock_timestamp() - interval '90 s' where task_id = %s", archive.task("a@3")
    )
    for task in "bc":
        assert explain(session, TaskId(archive.task(f"{task}@3"))).expected is None
    view = run(session, RunId(archive.run_id(3)))
    assert {name: minutes_from_now(one.end) for name, one in view.expected.items()} == {"papers@3/a": 0.0}
    assert view.ends is None


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


def locked(session: Session, *, revisions: int, lock: str = "tex", name: str = "maps") -> AnArchive:
    """Revisions whose task ``tex`` has the lock and took ten minutes. The first is running, and the
    others wait for it.
    """
    archive = an_archive(session, name)
    claim.register(session, PROCESS, HOST, "build-1", 9)
    text = {"tex": f"lock: {lock}", "upload": "depends: [tex]", "fetch": "", "print": f"depends: [fetch]\nlock: {lock}"}
    archive.commit(text)
    for task in ("tex", "upload", "fetch", "print"):
        locks.pass_on(session)
        archive.run(f"{task}@2")
    archive.sql("update attempt set started_at = ended_at - interval '10 minutes'")
    for _ in range(revisions):
        archive.commit({name: of for name, of in text.items() if name in ("tex", "upload")})
    locks.pass_on(session)
    assert archive.claim().task == archive.task("tex@3")
    archive.sql("update attempt set started_at = clock_timestamp() - interval '3 minutes' where ended_at is null")
    return archive


def times(archive: AnArchive, *keys: str) -> list[tuple[float, float] | None]:
    """The expected starts and ends of tasks, in minutes from now."""
    found = [explain(archive.session, archive.task(key)).expected for key in keys]
    return [one and (round(minutes_from_now(one.start)), round(minutes_from_now(one.end))) for one in found]


def test_a_task_starts_after_the_holder_of_its_lock_and_after_those_before_it_in_line(session: Session) -> None:
    archive = locked(session, revisions=3)
    assert times(archive, "tex@4", "tex@5", "upload@5") == [(7, 17), (17, 27), (27, 37)]
    view = run(session, RunId(archive.run_id(5)))
    assert view.ends is not None
    assert round(minutes_from_now(view.ends)) == 37
    locks.set_capacity(session, archive.id, "tex", 2, "ann")
    archive.claim()
    assert times(archive, "tex@5") == [(7, 17)], "two have it at once"


def test_a_task_that_does_not_ask_for_its_lock_yet_starts_after_the_line(session: Session) -> None:
    archive = locked(session, revisions=2)
    archive.trigger(2, "fetch", "print")
    assert times(archive, "fetch@2.2", "print@2.2") == [(0, 10), (17, 27)]


def test_nothing_is_expected_of_the_line_of_a_holder_without_a_known_end(session: Session) -> None:
    archive = locked(session, revisions=2)
    archive.sql("update attempt set started_at = clock_timestamp() - interval '11 minutes' where ended_at is null")
    assert times(archive, "tex@4", "upload@4") == [None, None]
    assert run(session, RunId(archive.run_id(4))).ends is None


def test_nothing_is_expected_far_behind_in_a_line_or_beside_other_archives(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = locked(session, revisions=3, lock="global/printer")
    assert times(archive, "tex@4", "tex@5") == [(7, 17), (17, 27)]
    monkeypatch.setattr(expected, "MOST_AT_A_LOCK", 1)
    assert times(archive, "tex@4", "tex@5") == [(7, 17), None]
    an_archive(session, "other").commit({"tex": "lock: global/printer"})
    assert times(archive, "tex@4", "tex@5") == [None, None], "archives take turns"


def test_nothing_is_expected_of_a_ready_task_without_a_free_slot(archive: AnArchive) -> None:
    archive.sql("update task_manager set slots = 1")
    archive.commit(TASKS)
    archive.claim_some(1)
    assert times(archive, "a@3", "a@4", "b@4") == [(0, 1), None, None]
