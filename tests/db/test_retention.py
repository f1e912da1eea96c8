"""Removal of runs and logs by age (design 5.27): `keep` for each state of a run, `keep-logs` only
for logs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from arkqueue import keeping, logs
from arkqueue.archive_settings import ArchiveSettings
from arkqueue.archives import retention
from arkqueue.db.session import Session
from arkqueue.errors import Conflict, DatabaseUnavailable, Invalid, NotFound
from arkqueue.keeping import AGED
from arkqueue.model import ArchiveId, RunId, Stream, TaskId
from arkqueue.queue import archives, control, deletion, purge, purge_batch
from arkqueue.views import find
from arkqueue.views.attempts import attempts
from arkqueue.views.doctor import examine
from tests.builders import AnArchive, an_archive
from tests.db.purges import purged_in_steps
from tests.db.test_purge import a_logged_run, kept_of, left_of


def set_to_keep(archive: AnArchive, keep: Mapping[str, str] | None = None, logs: str | None = None) -> None:
    present = ArchiveSettings(**archives.one(archive.session, ArchiveId(archive.id)).settings)
    settings = replace(present, keep=keep or {}, keep_logs=logs)
    archives.change_settings(archive.session, ArchiveId(archive.id), settings, "ann")


def let_age(archive: AnArchive, number: int, days: int, run: int = 1) -> None:
    """What happened in a run happened so many days earlier."""
    id = archive.run_id(number, run)
    values = {"settled_at": "task", "deleted_at": "run", "created_at": "run", "ended_at": "attempt", "at": "deed"}
    which = {
        "task": "run_id = %s",
        "deed": "run_id = %s",
        "run": "id = %s",
        "attempt": "task_id in (select id from task where run_id = %s)",
    }
    for column, table in values.items():
        archive.sql(
            f"update {table} set {column} = {column} - make_interval(days => %s) where {which[table]}", days, id
        )


def purge_by_age(archive: AnArchive, **more: bool) -> retention.PurgedByAge:
    return retention.purge_by_age(archive.session, ArchiveId(archive.id), "ann", **more)


def a_pass(session: Session) -> int:
    """All steps of one pass of a queue manager; how many there were."""
    manager, steps = retention.Retention(session), 0
    while manager.turn() != retention.EVERY:
        steps += 1
    return steps


@pytest.fixture
def aged(archive: AnArchive) -> AnArchive:
    """Six runs that are 40 days old, one for each state in which a run is settled, and one that is not."""
    for name in "aaabba":
        archive.commit({name: "cancels: [PREV]" if name == "b" else ""})
    deletion.delete_run(archive.session, RunId(archive.run_id(7)), "ann")
    archive.cancel("a@4")
    archive.run("a@2", "b@6")
    archive.fail("a@3")
    archive.commit({"a": ""})
    for number in range(2, 9):
        let_age(archive, number, 40)
    return archive


def test_runs_of_a_state_go_when_they_are_old_enough(aged: AnArchive) -> None:
    let_age(aged, 1, 50)
    left = {1, 2, 3, 4, 5, 6, 7, 8}
    for state, gone in (
        ("deleted", {7}),
        ("superseded", {5}),
        ("canceled", {4}),
        ("failed", {3}),
        ("completed", {1, 2, 6}),
    ):
        set_to_keep(aged, {state: "41d"})
        assert len(purge_by_age(aged).runs) == (state == "completed")
        set_to_keep(aged, {state: "39d"})
        purge_by_age(aged)
        left -= gone
        assert {row["number"] for row in aged.sql("select number from run")} == left, state
    assert aged.state("a@8") == "ready"


def test_each_state_has_its_own_age_and_that_of_a_deleted_run_begins_with_its_deletion(aged: AnArchive) -> None:
    set_to_keep(aged, {"completed": "30d", "failed": "50d", "deleted": "30d"})
    aged.sql("update run set deleted_at = now() where deleted_at is not null")
    assert purge_by_age(aged).runs == ["papers@2", "papers@6"]


def test_all_states_together_leave_what_is_not_settled(aged: AnArchive) -> None:
    set_to_keep(aged, dict.fromkeys(AGED, "39d"))
    purge_by_age(aged)
    assert aged.states() == {"a@8": "ready"}


def test_large_runs_go_by_the_same_rules_in_steps(session: Session, aged: AnArchive) -> None:
    set_to_keep(aged, {"completed": "30d", "failed": "50d", "superseded": "30d", "deleted": "30d"})
    with purged_in_steps(2):
        assert a_pass(session) >= 4
    assert {row["number"] for row in aged.sql("select number from run")} == {1, 3, 4, 8}
    assert aged.sql("select from purging") == []
    assert {row["number"] for row in aged.sql("select number from task")} == {1, 3, 4, 8}


def test_without_a_rule_everything_is_kept(session: Session, aged: AnArchive) -> None:
    with pytest.raises(Conflict, match="papers: keeps everything"):
        purge_by_age(aged)
    before = left_of(aged)
    assert a_pass(session) == 0
    assert left_of(aged) == before


def test_a_failure_that_something_waits_for_is_kept_until_the_pass_after_that(
    session: Session, archive: AnArchive
) -> None:
    archive.commit({"a": ""})
    archive.fail("a@2")
    archive.commit({"a": "depends: [PREV]"})
    let_age(archive, 2, 500)
    set_to_keep(archive, {"failed": "400d"})
    assert kept_of(purge_by_age(archive)) == {"papers@2": "papers@3/a waits for it"}
    a_pass(session)
    assert archive.state("a@2") == "failed"
    archive.skip("a@2")
    let_age(archive, 2, 500)
    archive.sql("update run set created_at = now() - interval '900 days'")
    set_to_keep(archive, {"completed": "400d"})
    a_pass(session)
    assert archive.states() == {"a@2": "failed", "a@3": "ready"}, "a@3 is given its outputs"
    archive.run("a@3")
    a_pass(session)
    assert archive.states() == {"a@3": "completed"}


@pytest.mark.parametrize("waive", ["one", "several"])
def test_the_age_of_a_run_counts_from_when_a_person_changed_its_state(
    session: Session, archive: AnArchive, waive: str
) -> None:
    archive.commit({"a": ""})
    archive.fail("a@2")
    let_age(archive, 2, 100)
    set_to_keep(archive, {"completed": "30d"})
    if waive == "one":
        archive.skip("a@2")
    else:
        control.skip_until(session, archive.id, archive.branches[""].id, "a", 2, "ann")
    a_pass(session)
    assert archive.states() == {"a@2": "failed"}
    archive.sql("update deed set at = now() - interval '31 days'")
    a_pass(session)
    assert archive.states() == {}


@pytest.mark.parametrize("most", [purge_batch.MOST_TASKS, 2], ids=["at-once", "in-steps"])
def test_what_a_person_takes_back_meanwhile_stays(session: Session, archive: AnArchive, most: int) -> None:
    """It is judged once more where nobody else can act on it."""
    archive.commit({"a": ""})
    archive.fail("a@2")
    run = RunId(archive.run_id(2))
    deletion.delete_run(session, run, "ann")
    let_age(archive, 2, 100)
    set_to_keep(archive, {"deleted": "7d"})
    with purged_in_steps(most):
        done = retention.purge_by_age(
            session, ArchiveId(archive.id), "bob", export=lambda *_: deletion.undelete_run(session, run, "ann")
        )
    assert (done.runs, done.kept, archive.states()) == ([], [], {"a@2": "failed"})


def test_the_audit_log_says_who_set_it_and_an_address_who_purged(session: Session, aged: AnArchive) -> None:
    set_to_keep(aged, {"completed": "30d", "failed": "400d"}, "90d")
    (entry,) = aged.sql("select by, note from deed where verb = 'set'")
    assert entry["by"] == "ann"
    assert 'keep: {} -> {"completed": "30d", "failed": "400d"}' in entry["note"]
    assert 'keep_logs: null -> "90d"' in entry["note"]
    a_pass(session)
    told = "papers@2: was purged on .* by the queue manager, because keep completed=30d failed=400d, keep-logs 90d"
    with pytest.raises(NotFound, match=told):
        find.find_run(session, "papers@2")
    assert aged.sql("select count(*) as n from deed where verb = 'purge'") == [{"n": 1}]


def test_logs_alone_go_and_say_so(session: Session, archive: AnArchive) -> None:
    archive.commit({"a": ""})
    attempt = a_logged_run(archive, "a@2")
    archive.commit({"a": ""})
    young = a_logged_run(archive, "a@3")
    let_age(archive, 2, 100)
    set_to_keep(archive, logs="90d")
    a_pass(session)

    (notice,) = logs.read(session, attempt).chunks
    assert notice.stream is Stream.NOTE
    text = notice.data.decode()
    assert text.startswith("The log was removed on ")
    assert text.endswith(" UTC by the queue manager, because keep-logs 90d\n")
    (shown,) = attempts(session, TaskId(archive.task("a@2")))
    assert (shown.outputs, shown.log_removed) == ({"size": "7"}, text.rstrip())
    assert [chunk.data for chunk in logs.read(session, young).chunks] == [b"hello\n"]
    assert left_of(archive)["log_chunk"] == 1
    assert archive.states() == {"a@2": "completed", "a@3": "completed"}
    a_pass(session)
    assert archive.sql("select count(*) as n from deed where verb = 'purge --log'") == [{"n": 1}]


def test_a_removal_of_logs_that_was_killed_goes_on_with_the_next_pass(
    session: Session, archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.commit({"a": ""})
    a_logged_run(archive, "a@2")
    let_age(archive, 2, 100)
    set_to_keep(archive, logs="90d")
    with monkeypatch.context() as broken:

        def killed(*_: object) -> None:
            raise KeyboardInterrupt

        # The process is killed between the entry in the audit log and the deletion.
        broken.setattr("arkqueue.queue.removal._delete", killed)
        with pytest.raises(KeyboardInterrupt):
            a_pass(session)
    assert left_of(archive)["log_chunk"] == 1
    a_pass(session)
    assert left_of(archive)["log_chunk"] == 0
    assert examine(session).is_sound


def test_what_a_killed_purge_left_goes_with_the_next_pass(
    session: Session, archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.commit({"a": ""})
    a_logged_run(archive, "a@2")

    def killed(_: Session) -> None:
        if left_of(archive)["purged_task"]:
            raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(purge, "sweep", killed)
        with pytest.raises(KeyboardInterrupt):
            purge.purge_runs(session, [RunId(archive.run_id(2))], "ann")
    assert left_of(archive)["log_chunk"] == 1
    assert examine(session).is_sound
    a_pass(session)
    assert [left_of(archive)[table] for table in ("log_chunk", "attempt", "purged_task")] == [0, 0, 0]


def test_a_dry_run_says_what_would_go(aged: AnArchive) -> None:
    set_to_keep(aged, dict.fromkeys(AGED, "39d"), "1d")
    before = left_of(aged)
    done = purge_by_age(aged, dry_run=True)
    assert (set(done.runs), done.is_whole) == ({f"papers@{number}" for number in range(2, 8)}, True)
    assert left_of(aged) == before
    assert purge_by_age(aged).runs == done.runs


def test_the_oldest_and_the_newest_run_are_those_that_were_made_first_and_last(
    aged: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PAGE", 2)
    aged.sql("update run set created_at = created_at - interval '9 days' where number = 4")
    set_to_keep(aged, dict.fromkeys(AGED, "39d"))
    done = purge_by_age(aged, dry_run=True)
    assert done.oldest is not None
    assert done.newest is not None
    assert (done.oldest.run, done.newest.run) == ("papers@4", "papers@7")


def test_a_command_works_for_so_long_and_goes_on_when_it_is_given_again(
    aged: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_to_keep(aged, dict.fromkeys(AGED, "39d"))
    monkeypatch.setattr(purge, "MOST_RUNS", 2)
    archive = ArchiveId(aged.id)
    done = retention.purge_by_age(aged.session, archive, "ann", longest=0)
    assert (len(done.runs), done.is_whole) == (2, False)
    while not done.is_whole:
        done = retention.purge_by_age(aged.session, archive, "ann", longest=0)
    assert aged.states() == {"a@8": "ready"}


@pytest.mark.garbles
def test_one_garbled_archive_keeps_no_other_from_its_purge(session: Session, aged: AnArchive) -> None:
    other = an_archive(session, "other")
    other.commit({"a": ""})
    other.run("a@2")
    let_age(other, 2, 40)
    for archive in (aged, other):
        set_to_keep(archive, {"completed": "30d"})
    aged.sql('update archive set settings = settings || \'{"keep": {"completed": "soon"}}\' where id = %s', aged.id)
    a_pass(session)
    assert other.states() == {}
    assert aged.state("a@2") == "completed"


def test_pages_are_gone_through_until_the_first_young_run(
    session: Session, aged: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PAGE", 2)
    set_to_keep(aged, dict.fromkeys(AGED, "39d"))
    a_pass(session)
    assert aged.states() == {"a@8": "ready"}


@pytest.mark.parametrize(
    ("keep", "logs", "fault"),
    [
        ({"running": "3d"}, None, "keep running: is not a state in which runs are purged"),
        ({"completed": "soon"}, None, "keep completed: is not a valid age: 'soon'"),
        ({}, "-3d", "keep-logs: is not a valid age"),
    ],
)
def test_what_is_no_rule_is_refused(keep: dict[str, str], logs: str | None, fault: str) -> None:
    with pytest.raises(Invalid, match=fault):
        keeping.check(keep, logs)


def test_a_pass_begins_anew_after_the_database_was_away(
    session: Session, aged: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_to_keep(aged, {"completed": "30d"})
    manager = retention.Retention(session)

    def away(_: Session) -> None:
        raise DatabaseUnavailable("the database", "is away", "")

    with monkeypatch.context() as broken:
        broken.setattr(purge, "sweep", away)
        with pytest.raises(DatabaseUnavailable):
            manager.turn()
    while manager.turn() != retention.EVERY:
        pass
    assert "a@2" not in aged.states()


def test_the_log_of_a_late_attempt_of_an_old_run_stays(session: Session, archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.fail("a@2")
    let_age(archive, 2, 100)
    archive.retry("a@2")
    late = a_logged_run(archive, "a@2")
    set_to_keep(archive, logs="90d")
    a_pass(session)
    assert [chunk.data for chunk in logs.read(session, late).chunks] == [b"hello\n"]
