"""Schedules follow the head of their branch and fire once for each time (design 5.17)."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from arkqueue.cron import next_time
from arkqueue.db import Connection
from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, BranchId, End, RunId, Trigger, Workflow
from arkqueue.plan import Entry
from arkqueue.queue import archives, control, deletion, ledger, schedules
from arkqueue.views.explain import explain, explain_name
from arkqueue.views.installation import measure
from arkqueue.views.runs import RunView
from arkqueue.views.runs import runs as show_runs
from tests.builders import AnArchive, a_revision, a_workflow, an_archive, faulty
from tests.db.test_races import PATIENCE, InThread, one_after_the_other, wait_until_blocked

Connect = Callable[[], Connection]
NIGHTLY = {"nightly": "schedule: '0 3 * * *'"}


def make_due(archive: AnArchive, days: int = 0) -> None:
    """Let the time of every schedule have come, ``days`` ago: the same time, whenever it is asked for on a day."""
    archive.sql("update schedule set next_at = date_trunc('day', now()) - make_interval(days => %s)", days)


def runs(archive: AnArchive) -> list[tuple[int, int]]:
    """(number, run) of the runs that schedules made."""
    found = archive.sql("select number, run from run where trigger = 'schedule' order by id")
    return [(row["number"], row["run"]) for row in found]


def scheduled(archive: AnArchive) -> list[tuple[str, list[str]]]:
    return [(row["cron"], row["tasks"]) for row in archive.sql("select cron, tasks from schedule order by cron, tasks")]


def fire(archive: AnArchive, *, day: int) -> None:
    """Fire as on one of the days after a day in the past."""
    make_due(archive, days=100 - day)
    schedules.fire(archive.session)


def views(archive: AnArchive) -> list[RunView]:
    """The runs that schedules made."""
    page = show_runs(archive.session, archives=[ArchiveId(archive.id)], trigger=Trigger.SCHEDULE)
    return list(reversed(page.runs))


def reason(archive: AnArchive) -> str:
    """Why the last of these runs could not start."""
    return "; ".join(fault.message for fault in views(archive)[-1].faults)


def left_out(archive: AnArchive) -> list[int]:
    return [run.left_out for run in views(archive)]


# When


@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        # In Berlin 2:30 does not exist on 2026-03-29 and exists
        # twice on 2026-10-25: either way one fire for the day.
        ("30 2 * * *", "2026-03-28T01:30:00", ["2026-03-29T01:00:00", "2026-03-30T00:30:00"]),
        ("30 2 * * *", "2026-10-24T00:30:00", ["2026-10-25T00:30:00", "2026-10-26T01:30:00"]),
        ("0 * * * *", "2026-10-24T23:30:00", ["2026-10-25T00:00:00", "2026-10-25T01:00:00", "2026-10-25T02:00:00"]),
        # In the second pass of that hour its first one is over.
        ("30 2 * * *", "2026-10-25T01:10:00", ["2026-10-26T01:30:00"]),
        ("*/30 2,3 * * *", "2026-10-25T01:10:00", ["2026-10-25T01:30:00", "2026-10-25T02:00:00"]),
        ("0 0 29 2 *", "2026-01-01T00:00:00", ["2028-02-28T23:00:00"]),
    ],
)
def test_times_are_those_of_the_zone_also_when_its_clocks_change(cron: str, after: str, expected: list[str]) -> None:
    at: datetime | None = datetime.fromisoformat(after).replace(tzinfo=UTC)
    found = []
    for _ in expected:
        assert at is not None
        at = next_time(cron, "Europe/Berlin", at)
        assert at is not None
        found.append(f"{at.astimezone(UTC):%FT%T}")
    assert found == expected


NEVER = "0 0 */30 * 1#2"
"""On the 1st or 31st where that is the second Monday of the month."""


def test_a_schedule_that_never_fires_holds_up_no_commit(archive: AnArchive) -> None:
    assert next_time(NEVER, "UTC", datetime.now(UTC)) is None
    nightly, never = a_workflow(NIGHTLY | {"never": "schedule: '0 4 * * *'"}).tasks
    archive.commit(Workflow((nightly, replace(never, schedule=NEVER))))
    assert scheduled(archive) == [("0 3 * * *", ["nightly"])]


def test_one_that_will_never_fire_again_ends(archive: AnArchive) -> None:
    archive.commit(NIGHTLY)
    archive.sql("update schedule set cron = %s", NEVER)
    make_due(archive)
    assert schedules.fire(archive.session) is None
    assert runs(archive) == [(2, 2)]
    assert scheduled(archive) == []


def test_the_next_one_is_said(archive: AnArchive) -> None:
    assert schedules.fire(archive.session) is None
    archive.commit(NIGHTLY)
    seconds = schedules.fire(archive.session)
    assert seconds is not None
    assert 0 < seconds <= 86_400
    assert runs(archive) == []


def test_fires_missed_while_everything_was_down_collapse_into_one(archive: AnArchive) -> None:
    archive.commit(NIGHTLY)
    make_due(archive, days=10)
    schedules.fire(archive.session)
    schedules.fire(archive.session)
    assert runs(archive) == [(2, 2)]
    assert archive.states()["nightly@2.2"] == "ready"


# Once


def test_two_queue_managers_fire_a_time_once(session: Session, second_connection: Connect) -> None:
    """Both have found the schedule due before either acts."""
    archive = an_archive(session)
    archive.commit(NIGHTLY)
    make_due(archive)
    for manager in one_after_the_other(
        archive, second_connection, *[lambda: schedules.fire(session, patience=PATIENCE)] * 2
    ):
        manager.result()
    assert runs(archive) == [(2, 2)]
    assert archive.sql("select count(*) from schedule_fire") == [{"count": 1}]


def test_a_time_that_has_fired_does_not_fire_again_when_the_clock_goes_back(archive: AnArchive) -> None:
    archive.commit(NIGHTLY)
    make_due(archive)
    schedules.fire(archive.session)
    make_due(archive)
    schedules.fire(archive.session)
    assert runs(archive) == [(2, 2)]


# What and where


def test_schedules_follow_the_definitions_of_the_head(archive: AnArchive) -> None:
    archive.commit(NIGHTLY | {"weekly": "schedule: '0 4 * * 0'"})
    assert scheduled(archive) == [("0 3 * * *", ["nightly"]), ("0 4 * * 0", ["weekly"])]
    archive.commit(NIGHTLY | {"also": "schedule: '0 3 * * *'"})
    assert scheduled(archive) == [("0 3 * * *", ["also", "nightly"])]
    archive.commit({"a": ""})
    assert scheduled(archive) == []


def test_a_schedule_that_stays_keeps_its_time(archive: AnArchive) -> None:
    archive.commit(NIGHTLY)
    make_due(archive)
    archive.commit(NIGHTLY)
    schedules.fire(archive.session)
    assert runs(archive) == [(3, 2)]


def test_a_head_that_moves_while_a_schedule_fires_is_the_one_that_counts(
    session: Session, second_connection: Connect
) -> None:
    archive = an_archive(session)
    archive.commit(NIGHTLY)
    make_due(archive)
    branch = archive.branches[""]
    holder, watcher = second_connection(), second_connection()
    with holder.transaction():
        from arkqueue.queue.graph import Graph

        graph = Graph(holder, [archive.id])
        entry = Entry(a_revision(3), a_workflow(NIGHTLY))
        firing = InThread(lambda: schedules.fire(session, patience=PATIENCE))
        wait_until_blocked(watcher)
        assert ledger.append_in(graph, branch, [entry])
    firing.result()
    assert runs(archive) == [(3, 2)]


def test_a_schedule_that_the_head_drops_while_it_fires_makes_no_run(
    session: Session, second_connection: Connect
) -> None:
    archive = an_archive(session)
    archive.commit(NIGHTLY)
    make_due(archive)
    holder, watcher = second_connection(), second_connection()
    with holder.transaction():
        from arkqueue.queue.graph import Graph

        graph = Graph(holder, [archive.id])
        firing = InThread(lambda: schedules.fire(session, patience=PATIENCE))
        wait_until_blocked(watcher)
        entry = Entry(a_revision(3), a_workflow({"a": ""}))
        assert ledger.append_in(graph, archive.branches[""], [entry])
    firing.result()
    assert runs(archive) == []


def test_a_faulty_head_keeps_the_schedules_and_makes_one_failed_run(archive: AnArchive) -> None:
    archive.commit(NIGHTLY)
    archive.commit(faulty())
    fire(archive, day=1)
    assert [(run.rev, run.run, str(run.state)) for run in views(archive)] == [(3, 2, "failed")]
    assert "faults" in reason(archive)
    archive.commit(NIGHTLY)
    fire(archive, day=2)
    assert [(run.rev, str(run.state)) for run in views(archive)] == [(3, "failed"), (4, "pending")]


# What is left out (5.17, 5.18)

AFTER_PDF = {"pdf": "paths: ['chapters/*']", "nightly": "depends: [pdf]\nschedule: '0 3 * * *'"}
CHAPTER = ["chapters/1"]


def test_a_nightly_task_takes_the_product_of_an_earlier_revision(archive: AnArchive) -> None:
    archive.commit(AFTER_PDF, changed=CHAPTER)
    archive.commit(AFTER_PDF, changed=["notes"])
    archive.run("pdf@2")
    fire(archive, day=1)
    assert archive.states()["nightly@3.2"] == "ready"


def test_a_nightly_task_waits_for_a_failure_until_the_next_fire_finds_another_source(archive: AnArchive) -> None:
    archive.commit(AFTER_PDF, changed=CHAPTER)
    archive.fail("pdf@2")
    for day in (1, 2, 3):
        fire(archive, day=day)
    assert archive.states() == {"pdf@2": "failed", "nightly@2.2": "waiting"}
    (waiting,) = views(archive)
    assert (str(waiting.state), waiting.left_out) == ("pending", 2)
    told = explain(archive.session, archive.task("nightly@2.2"))
    assert "papers@2/pdf, which failed" in told.text
    assert "2 fires of its schedule were left out since" in told.text
    assert told.commands == ["arkqueue retry papers@2/pdf", "arkqueue skip papers@2/pdf --as-completed"]
    since = archive.sql(
        "select min(fire_at) as at from schedule_fire where fire_at > (select min(fire_at) from schedule_fire)"
    )
    assert waiting.left_out_since == since[0]["at"]
    archive.commit(AFTER_PDF, changed=["notes"])
    told = explain(archive.session, archive.task("nightly@2.2"))
    assert told.text.endswith(
        "The first fire that finds a later pdf makes a run that takes it and supersedes this run."
    )
    assert not [command for command in told.commands if "cancel" in command], "it would wait for the same"
    archive.commit(AFTER_PDF, changed=CHAPTER)
    archive.run("pdf@4")
    told = explain(archive.session, archive.task("nightly@2.2"))
    assert "papers@4/pdf exists by now. The next fire at " in told.text
    assert told.text.endswith("supersedes this run.")
    assert not [command for command in told.commands if "cancel" in command]
    fire(archive, day=4)
    assert (archive.state("nightly@2.2"), archive.state("nightly@4.2")) == ("canceled", "ready")
    assert [str(run.state) for run in views(archive)] == ["superseded", "pending"]
    archive.run("nightly@4.2")
    fire(archive, day=5)
    assert (archive.state("nightly@4.3"), left_out(archive)) == ("ready", [2, 0, 0])


def test_a_nightly_task_that_waits_runs_when_its_source_is_mended(archive: AnArchive) -> None:
    archive.commit(AFTER_PDF, changed=CHAPTER)
    archive.fail("pdf@2")
    fire(archive, day=1)
    archive.retry("pdf@2")
    archive.run("pdf@2")
    assert archive.states()["nightly@2.2"] == "ready"


def test_a_nightly_task_whose_dependency_never_ran_fails_once(archive: AnArchive) -> None:
    archive.commit(AFTER_PDF)
    for day in (1, 2):
        fire(archive, day=day)
    archive.commit(AFTER_PDF)
    fire(archive, day=3)
    assert [(run.rev, str(run.state), run.left_out) for run in views(archive)] == [(2, "failed", 2)]
    assert reason(archive).startswith("nightly needs pdf, which has never run on this branch")
    told = explain_name(archive.session, "papers@2.2")
    assert "nightly needs pdf, which has never run" in told.text
    assert "2 fires of its schedule were left out since" in told.text
    assert "its last run papers@2.2 is failed" in explain_name(archive.session, "papers@3/nightly").text
    archive.commit(AFTER_PDF, changed=CHAPTER)
    fire(archive, day=4)
    assert archive.states()["nightly@4.2"] == "waiting"


@pytest.mark.parametrize("end", ["canceled before", "canceled after", "waived"])
def test_a_nightly_task_whose_product_will_not_come_fails_once(archive: AnArchive, end: str) -> None:
    archive.commit(AFTER_PDF, changed=CHAPTER)
    if end == "canceled before":
        archive.cancel("pdf@2")
    fire(archive, day=1)
    if end == "canceled after":
        archive.cancel("pdf@2")
    elif end == "waived":
        archive.fail("pdf@2")
        archive.skip("pdf@2")
    for day in (2, 3):
        fire(archive, day=day)
    assert [(str(run.state), run.left_out) for run in views(archive)] == [("failed", 2)]
    assert archive.states()["nightly@2.2"] == "skipped"
    archive.commit(AFTER_PDF, changed=CHAPTER)
    fire(archive, day=4)
    archive.run("pdf@3", "nightly@3.2")
    assert [str(run.state) for run in views(archive)] == ["failed", "completed"]


def test_a_run_that_another_task_of_the_schedule_can_begin_is_made_each_time(archive: AnArchive) -> None:
    archive.commit(AFTER_PDF | {"clean": "schedule: '0 3 * * *'"}, changed=CHAPTER)
    archive.cancel("pdf@2")
    fire(archive, day=1)
    archive.run("clean@2.2")
    fire(archive, day=2)
    assert (archive.states()["clean@2.3"], left_out(archive)) == ("ready", [0, 0])


def test_a_schedule_whose_last_run_waits_for_a_slot_makes_no_other(archive: AnArchive) -> None:
    archive.commit(NIGHTLY)
    fire(archive, day=1)
    archive.commit(NIGHTLY)
    fire(archive, day=2)
    assert left_out(archive) == [1]
    attempt = archive.attempt("nightly@2.2")
    fire(archive, day=3)
    assert left_out(archive) == [1, 0], "what has begun holds up no fire"
    archive.record(attempt, End.EXITED, 0)


def test_a_fire_supersedes_nothing_that_has_begun(archive: AnArchive) -> None:
    archive.commit(AFTER_PDF, changed=CHAPTER)
    archive.run("pdf@2")
    fire(archive, day=1)
    archive.commit(AFTER_PDF, changed=CHAPTER)
    archive.run("pdf@3")
    claimed = archive.attempt("nightly@2.2")
    fire(archive, day=2)
    assert (archive.state("nightly@2.2"), archive.state("nightly@3.2")) == ("running", "ready")
    archive.record(claimed, End.EXITED, 0)


def test_a_run_that_waits_for_a_person_stands_for_the_fires_and_says_that_it_is_of_an_old_revision(
    archive: AnArchive,
) -> None:
    nightly = {"nightly": "schedule: '0 3 * * *'\nhold: true"}
    archive.commit(nightly)
    for day in (1, 2):
        fire(archive, day=day)
    assert archive.states() == {"nightly@2.2": "held"}
    told = explain(archive.session, archive.task("nightly@2.2")).reasons[-1]
    assert told.text.endswith("this run stands for it.")
    archive.commit(nightly)
    fire(archive, day=3)
    assert measure(archive.session).fires_left_out[0] == 2
    told = explain(archive.session, archive.task("nightly@2.2")).reasons[-1]
    assert (
        "This run is of revision 2; the newest revision is 3. If you cancel this run, the next fire makes a run of the newest revision."
        in told.text
    )
    assert told.commands == ["arkqueue cancel papers@2.2"]
    control.cancel_run(archive.session, RunId(archive.run_id(2, 2)), "ann")
    fire(archive, day=4)
    assert archive.states() == {"nightly@2.2": "canceled", "nightly@3.2": "held"}


def test_a_failed_run_that_was_deleted_stands_for_nothing(archive: AnArchive) -> None:
    archive.commit(AFTER_PDF)
    fire(archive, day=1)
    deletion.delete_run(archive.session, RunId(archive.run_id(2, 2)), "ann")
    fire(archive, day=2)
    assert [str(run.state) for run in views(archive)] == ["failed"]


def test_fires_left_out_are_measured_until_the_run_begins(archive: AnArchive) -> None:
    archive.commit(AFTER_PDF, changed=CHAPTER)
    archive.fail("pdf@2")
    for day in (1, 2, 3):
        fire(archive, day=day)
    assert measure(archive.session).fires_left_out[0] == 2
    archive.retry("pdf@2")
    archive.run("pdf@2", "nightly@2.2")
    assert measure(archive.session).fires_left_out[0] == 0


@pytest.mark.garbles
def test_one_that_fails_holds_up_no_other(archive: AnArchive) -> None:
    archive.commit(NIGHTLY | {"broken": "schedule: '0 4 * * *'"})
    make_due(archive, days=1)
    archive.sql(
        "update schedule set zone = 'Nowhere/At-All', next_at = next_at - interval '1 day' where cron like '0 4%%'"
    )
    assert schedules.fire(archive.session) == schedules.PAUSE_AFTER_ERROR
    assert runs(archive) == [(2, 2)]


def test_the_schedules_of_a_baseline_count(session: Session) -> None:
    archive = an_archive(session)
    start = archives.Start("draft", False, Entry(a_revision(1, branch="draft"), a_workflow(BRANCHES)))
    archives.register(
        session, name="other", kind="git", url="/x", repository="/x", uuid="", folder="",
        settings=archives.ArchiveSettings(), starts=[start],
    )  # fmt: skip
    make_due(archive)
    schedules.fire(session)
    assert runs(archive) == [(1, 1 + 1)]


BRANCHES = {"nightly": "schedule: '0 3 * * *'\nbranches: ['*']"}


def test_only_the_main_branch_has_schedules_unless_they_say_more(session: Session) -> None:
    archive = an_archive(session, branches=("main", "draft"))
    archive.commit(NIGHTLY, branch="draft")
    assert scheduled(archive) == []
    archive.commit(BRANCHES, branch="draft")
    archive.commit(NIGHTLY, branch="main")
    assert len(scheduled(archive)) == 2


@pytest.mark.parametrize("branch", ["main", "draft"])
def test_a_deleted_branch_loses_its_schedules_until_it_comes_back(session: Session, branch: str) -> None:
    archive = an_archive(session, branches=("main", "draft"))
    archive.commit({"nightly": "schedule: '0 3 * * *'" + ("\nbranches: [draft]" * (branch == "draft"))}, branch=branch)
    (before,) = scheduled(archive)
    archives.untrack(session, archive.id, BranchId(archive.branches[branch].id))
    assert scheduled(archive) == []
    archives.track(session, archive.id, branch)
    assert scheduled(archive) == [before]


def test_a_removed_archive_fires_nothing(archive: AnArchive) -> None:
    archive.commit(NIGHTLY)
    make_due(archive)
    archives.remove(archive.session, archive.id, "ann")
    assert schedules.fire(archive.session) is None
    assert runs(archive) == []


def test_a_stopped_archive_fires_nothing_and_keeps_nobody_busy(archive: AnArchive) -> None:
    """Its repository may be another one by now."""
    archive.commit(NIGHTLY)
    make_due(archive)
    archives.stop(archive.session, archive.id, "it went back in time")
    assert schedules.fire(archive.session) is None
    assert runs(archive) == []


def test_very_many_tasks_may_share_a_schedule(archive: AnArchive) -> None:
    """More than an index of PostgreSQL takes as a key."""
    letters = random.Random(1)
    names = ["".join(letters.choices(string.ascii_letters, k=90)) for _ in range(200)]
    fields: dict[str, Any] = dict.fromkeys(names, "schedule: '0 3 * * *'")
    archive.commit(fields)
    make_due(archive)
    schedules.fire(archive.session)
    assert len(archive.states()) == 200
