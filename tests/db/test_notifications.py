"""Events of runs go into the outbox for each receiver: once, after a change, and in the transaction
that makes the change (design 15).
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from arkqueue.config import Configuration
from arkqueue.db.session import Session, rows
from arkqueue.model import USUAL_OCCASIONS, ArchiveId, End, RunId
from arkqueue.notifications.message import write
from arkqueue.queue import archives, deletion, holds, many, notifications
from tests.builders import AnArchive, an_archive, faulty
from tests.db.outbox import ALL, CHAT, CI, choose, judge, occasions, outbox, set_receivers


def test_a_run_is_told_once_it_has_settled_and_again_once_it_is_fixed(told: AnArchive) -> None:
    told.commit({"a": "", "b": ""})
    told.fail("a@2")
    assert occasions(told) == []
    told.run("b@2")
    assert occasions(told) == ["failed 2"]
    told.commit({"a": "", "b": ""})
    told.run("a@3", "b@3")
    assert occasions(told) == ["failed 2", "fixed 3"]
    told.commit({"a": "", "b": ""})
    told.run("a@4", "b@4")
    assert occasions(told) == ["failed 2", "fixed 3", "completed 4"]
    assert occasions(told) == ["failed 2", "fixed 3", "completed 4"]


def test_a_retried_run_is_told_as_failed_for_each_failure_and_as_fixed(told: AnArchive) -> None:
    told.commit({"a": ""})
    told.fail("a@2")
    assert occasions(told) == ["failed 2"]
    told.retry("a@2")
    told.fail("a@2")  # nobody has judged the run while it went on
    assert occasions(told) == ["failed 2", "failed 2"]
    told.retry("a@2")
    told.run("a@2")
    assert occasions(told) == ["failed 2", "failed 2", "fixed 2"]


def test_a_run_whose_failure_was_waived_has_completed_and_is_not_fixed(told: AnArchive) -> None:
    told.commit({"a": ""})
    told.fail("a@2")
    assert occasions(told) == ["failed 2"]
    told.skip("a@2")
    assert occasions(told) == ["failed 2", "completed 2"]


@pytest.mark.parametrize("as_completed", [False, True])
def test_a_task_that_completes_after_its_waived_failure_is_told_as_fixed(told: AnArchive, as_completed: bool) -> None:
    set_receivers(told, ci=["failed", "fixed"])
    for _ in range(2):
        told.commit({"a": "depends: [PREV]"})
    told.fail("a@2")
    assert occasions(told) == ["failed 2"]
    told.skip("a@2", as_completed=as_completed)
    told.run("a@3")
    assert occasions(told) == ["failed 2", "fixed 3"]


def test_faults_of_workflow_files_are_told_and_so_is_that_they_are_gone(told: AnArchive) -> None:
    told.commit(faulty())
    assert occasions(told) == ["failed 2"]
    told.commit({"a": ""})
    told.run("a@3")
    assert occasions(told) == ["failed 2", "fixed 3"]


def test_a_run_that_waits_for_a_release_is_told_each_time_that_it_begins_to(told: AnArchive) -> None:
    told.commit({"a": "hold: true", "b": "depends: [a]"})
    assert occasions(told) == ["held 2"]
    holds.release(told.session, told.task("a@2"), "ann")
    assert occasions(told) == ["held 2"]
    holds.hold(told.session, told.task("b@2"), "ann")
    assert occasions(told) == ["held 2"]  # b waits for a as well
    told.run("a@2")
    assert occasions(told) == ["held 2", "held 2"]


def test_a_held_task_is_told_once_it_waits_for_nothing_but_its_release(told: AnArchive) -> None:
    workflow = {"index": "", "upload": "depends: [index]", "publish": "depends: [upload]\nhold: true"}
    told.commit(workflow)
    told.run("index@2")
    told.fail("upload@2")
    assert occasions(told) == ["failed 2"]
    told.commit(workflow)
    told.run("index@3", "upload@3")
    assert occasions(told) == ["failed 2", "held 3"]
    (held,) = told.sql("select count, tasks from delivery where occasion = 'held'")
    assert (held["count"], held["tasks"]) == (1, [told.task("publish@3")])


def test_a_held_task_that_waits_for_an_earlier_run_is_told_when_that_is_over(told: AnArchive) -> None:
    told.commit({"a": "", "publish": ""})
    told.commit({"a": "", "publish": "depends: [PREV]\nhold: true"})
    told.run("a@2", "a@3")
    assert occasions(told) == []
    told.run("publish@2")
    assert sorted(occasions(told)) == ["completed 2", "held 3"]


def test_a_run_that_is_held_as_a_whole_is_told_as_held(told: AnArchive) -> None:
    told.commit({"a": "", "b": "depends: [a]"})
    holds.hold_run(told.session, RunId(told.run_id(2)), "ann")
    assert occasions(told) == ["held 2"]
    (held,) = told.sql("select tasks from delivery")
    assert held["tasks"] == [told.task("a@2")]


def test_a_failure_is_told_before_the_run_settles_also_if_the_held_task_waits_for_an_earlier_run(
    told: AnArchive,
) -> None:
    told.commit({"publish": ""})
    told.commit({"a": "", "publish": "depends: [PREV]\nhold: true"})
    told.fail("a@3")
    assert occasions(told) == ["failed 3"]
    told.run("publish@2")
    assert sorted(occasions(told)) == ["completed 2", "failed 3", "held 3"]


def test_a_gate_in_the_midst_of_a_run_is_told_and_the_failure_before_it_is_not_forgotten(told: AnArchive) -> None:
    told.commit({"a": "", "b": ""})
    told.fail("a@2")
    told.run("b@2")
    assert occasions(told) == ["failed 2"]
    told.retry("a@2")
    holds.hold(told.session, told.task("a@2"), "ann")
    assert occasions(told) == ["failed 2", "held 2"]
    holds.release(told.session, told.task("a@2"), "ann")
    told.run("a@2")
    assert occasions(told) == ["failed 2", "held 2", "fixed 2"]


def test_failures_beside_a_held_task_are_told_before_the_run_settles_and_once(told: AnArchive) -> None:
    told.commit({"approve": "hold: true", "a": "", "b": "", "c": "depends: [approve]"})
    assert occasions(told) == ["held 2"]
    told.fail("a@2")
    assert occasions(told) == ["held 2"]  # b goes on
    told.fail("b@2")
    assert occasions(told) == ["held 2", "failed 2"]
    (failed,) = told.sql("select count, tasks from delivery where occasion = 'failed'")
    assert (failed["count"], set(failed["tasks"])) == (2, {told.task("a@2"), told.task("b@2")})
    holds.release(told.session, told.task("approve@2"), "ann")
    told.run("approve@2")
    assert occasions(told) == ["held 2", "failed 2"]
    holds.hold(told.session, told.task("c@2"), "ann")
    assert occasions(told) == ["held 2", "failed 2", "held 2"]
    holds.release(told.session, told.task("c@2"), "ann")
    told.run("c@2")
    assert occasions(told) == ["held 2", "failed 2", "held 2"]  # the same failures
    told.retry("a@2")
    told.fail("a@2")
    assert occasions(told) == ["held 2", "failed 2", "held 2", "failed 2"]
    told.retry("a@2")
    told.retry("b@2")
    told.run("a@2", "b@2")
    assert occasions(told)[4:] == ["fixed 2"]


def test_a_run_that_fails_and_is_held_in_one_moment_is_told_as_failed_first(told: AnArchive) -> None:
    told.commit({"a": "", "approve": "hold: true"})
    told.fail("a@2")
    assert occasions(told) == ["failed 2", "held 2"]
    (delivery,) = choose(told)
    message = write(told.session, Configuration(home=Path("home")), delivery)
    assert message is not None
    assert message.title == "papers@2 has failures: a"


def test_who_put_an_archive_on_hold_is_not_told_of_each_of_its_runs(told: AnArchive) -> None:
    told.commit({"a": ""})
    holds.hold_archive(told.session, ArchiveId(told.id), "ann")
    told.commit({"a": ""})
    assert set(told.states().values()) == {"held"}
    assert occasions(told) == []


def test_a_stopped_archive_is_told_once_and_again_after_it_went_on(told: AnArchive) -> None:
    id = ArchiveId(told.id)
    archives.stop(told.session, id, "it went back")
    assert occasions(told) == ["stopped 0"]
    archives.stop(told.session, id, "it went back")
    assert occasions(told) == ["stopped 0"]
    archives.go_on(told.session, id, "it went back")
    assert occasions(told) == ["stopped 0"]
    archives.stop(told.session, id, "it went back")
    assert occasions(told) == ["stopped 0", "stopped 0"]


def test_canceled_and_superseded_runs_are_nobodys_news(told: AnArchive) -> None:
    told.commit({"a": "cancels: [PREV]"})
    told.commit({"a": "cancels: [PREV]"})
    told.cancel("a@3")
    assert occasions(told) == []


def test_each_receiver_is_told_what_it_asked_for(archive: AnArchive) -> None:
    set_receivers(archive, ci=["completed"], chat=[str(o) for o in USUAL_OCCASIONS])
    archive.commit({"a": ""})
    archive.fail("a@2")
    archive.commit({"a": ""})
    archive.run("a@3")
    archive.commit({"a": ""})
    archive.run("a@4")
    assert sorted(outbox(archive), key=lambda one: one[1:]) == [
        ("failed", 2, CHAT),
        ("fixed", 3, CHAT),
        ("completed", 3, CI),
        ("completed", 4, CI),
    ]


def test_an_author_who_is_a_receiver_too_is_told_once(archive: AnArchive) -> None:
    set_receivers(archive, author=ALL, **{"ann@example.org": ["failed"]})
    archive.commit({"a": ""}, author="Ann <Ann@example.org>")
    archive.fail("a@2")
    assert [receiver for _, _, receiver in outbox(archive)] == ["ann@example.org"]
    archive.retry("a@2")
    archive.run("a@2")
    assert [receiver for _, _, receiver in outbox(archive)] == [
        "ann@example.org",
        "author",
    ]  # fixed, which only authors asked for


def test_an_archive_without_receivers_has_nothing_judged(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.fail("a@2")
    holds.hold_archive(archive.session, ArchiveId(archive.id), "ann")
    archives.stop(archive.session, ArchiveId(archive.id), "it went back")
    assert archive.sql("select 1 as one from to_judge") == []


def test_nothing_of_before_is_told_to_a_new_receiver(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.fail("a@2")
    set_receivers(archive, ci=ALL)
    assert occasions(archive) == []


def test_a_deleted_item_that_had_failed_leaves_a_run_that_has_completed(told: AnArchive) -> None:
    told.commit({"a": "foreach: [x, y]"})
    told.run("a/x@2")
    told.fail("a/y@2")
    assert occasions(told) == ["failed 2"]
    deletion.delete_item(told.session, RunId(told.run_id(2)), "y", "ann")
    assert occasions(told)[0] == "failed 2"
    assert occasions(told)[1:] in (["fixed 2"], ["completed 2"])


def test_two_judges_at_once_tell_everything_once(told: AnArchive) -> None:
    for number in range(2, 12):
        told.commit({"a": ""})
        told.fail(f"a@{number}")
    threads = [threading.Thread(target=judge, args=(told.session,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert occasions(told) == [f"failed {number}" for number in range(2, 12)]


def test_what_moves_while_it_is_judged_is_judged_again(told: AnArchive) -> None:
    """Two connections: the judge has taken the run and looked at it, and has not committed; the run goes on."""
    told.commit({"a": ""})
    told.fail("a@2")
    with told.session.database.transaction() as connection:
        assert rows(connection, "lock_outbox", work=1)
        taken = rows(connection, "take_to_judge", most=10)
        assert [row.run_id for row in taken] == [told.run_id(2)]
        told.retry("a@2")  # waits for nobody
        told.run("a@2")
        assert not notifications.judge(told.session)  # another one judges
    assert occasions(told) == ["completed 2"]  # what was taken is forgotten with its judge; what came after is not


def test_runs_of_other_archives_are_told_to_their_own_receivers_alone(told: AnArchive) -> None:
    other = an_archive(told.session, "letters")
    set_receivers(other, chat=ALL)
    for archive in (told, other):
        archive.commit({"a": ""})
        archive.fail("a@2")
    assert outbox(told) == [("failed", 2, CI)]
    assert outbox(other) == [("failed", 2, CHAT)]


def test_many_verbs_at_once_are_told_by_what_came_of_them(told: AnArchive) -> None:
    told.commit({"a": "", "b": ""})
    told.fail("a@2", "b@2")
    assert occasions(told) == ["failed 2"]
    many.retry_failed(told.session, RunId(told.run_id(2)), "ann")
    told.run("a@2", "b@2")
    assert occasions(told) == ["failed 2", "fixed 2"]


def test_a_receiver_is_told_of_the_branches_that_it_named(session: Session) -> None:
    archive = an_archive(session, branches=("main", "release/1", "release/1/fix", "try"))
    set_receivers(archive, ci=[*ALL, "branch=release/*"], chat=["failed", "branch=**", "branch=!try"])
    for branch in archive.numbers:
        archive.commit({"a": ""}, branch=branch)
    archive.claim()
    for claimed in archive.running.values():
        archive.record(claimed.attempt, End.EXITED, 1)
    archives.stop(session, ArchiveId(archive.id), "another repository")
    judge(session)
    found = archive.sql(
        "select d.receiver, coalesce(b.name, '') as branch from delivery d"
        " left join run r on r.id = d.run_id left join branch b on b.id = r.branch_id"
    )
    told = {receiver: sorted(row["branch"] for row in found if row["receiver"] == receiver) for receiver in (CI, CHAT)}
    assert told == {CI: ["", "release/1"], CHAT: ["main", "release/1", "release/1/fix"]}
