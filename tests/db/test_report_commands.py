"""REPORT with a command (design 5.4, 5.32): the command gets the report, exit code 0 means that the
report was sent, and only an update runs the command again.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db.session import Session
from arkqueue.errors import Conflict, Forbidden, NotFound
from arkqueue.model import ArchiveId, End
from arkqueue.queue import archives, claim, deletion, finish, holds, many, pauses
from arkqueue.queue.guards import Approver
from arkqueue.queue.reports import Made, update_report
from arkqueue.views import reports as views
from arkqueue.views import runs
from arkqueue.views.doctor import examine
from arkqueue.views.explain import explain, explain_name
from tests.builders import HOST, PROCESS, AnArchive, a_gateway, an_archive
from tests.db.test_races import Connect, InThread, one_after_the_other, wait_until_blocked
from tests.db.test_reports import is_marked, run_of

SENDS = "command: ./send"


@pytest.fixture
def archive(session: Session) -> Any:
    archive = an_archive(session)
    yield archive
    assert not examine(session).findings


def state(archive: AnArchive, number: int = 2) -> str:
    return archive.state(f"REPORT@{number}")


def given(archive: AnArchive, number: int = 2) -> dict[str, Any]:
    """What the command that was claimed gets."""
    return a_gateway(archive.session).report(archive.task(f"REPORT@{number}"))


def send(archive: AnArchive, code: int = 0, number: int = 2) -> dict[str, Any]:
    """Claim and end the command; what it got."""
    archive.claim(f"REPORT@{number}")
    got = given(archive, number)
    archive.end(f"REPORT@{number}", code)
    return got


def told(archive: AnArchive, number: int = 2) -> list[tuple[int, bool, bool, int]]:
    """Of each report its number, whether it was given and sent, and its changes; the first first."""
    found = views.reports(archive.session, run_of(archive, number))
    return [(one.number, one.is_given, one.sent_at is not None, one.changes) for one in reversed(found)]


def update(archive: AnArchive, *, now: bool = False, **options: Any) -> Made:
    return update_report(archive.session, run_of(archive), "ann", now=now, **options)


def run_state(archive: AnArchive) -> str:
    return str(runs.run(archive.session, run_of(archive)).state)


def test_the_command_gets_the_report_when_all_else_has_settled(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "depends: [a]", "REPORT": SENDS})
    assert state(archive) == "waiting"
    archive.fail("a@2")
    assert (state(archive), run_state(archive)) == ("ready", "failed")
    got = send(archive)
    assert (got["number"], got["state"], got["counts"]["failed"], got["version"]) == (1, "failed", 1, 1)
    assert [task["name"] for task in got["tasks"]] == ["a", "b"]
    assert (state(archive), told(archive)) == ("completed", [(1, True, True, 2)])
    assert not is_marked(archive)


def test_a_run_whose_report_is_being_sent_is_deleted_after_its_end(archive: AnArchive) -> None:
    archive.commit({"a": "", "REPORT": SENDS})
    archive.run("a@2")
    archive.claim("REPORT@2")
    with pytest.raises(
        Conflict, match=r"papers@2/REPORT is running. Wait for its end: arkqueue logs papers@2/REPORT -f"
    ):
        deletion.delete_run(archive.session, run_of(archive), "ann")
    archive.end("REPORT@2", 0)
    deletion.delete_run(archive.session, run_of(archive), "ann")


def test_the_command_gets_what_the_last_task_came_to_as_well(archive: AnArchive) -> None:
    """An attempt ends a moment after its task has settled."""
    archive.commit({"a": "", "b": "", "REPORT": SENDS})
    archive.end("a@2", 0, outputs={"ark": "m5"})
    archive.end("b@2", 65, outputs={"reason": "no metadata"}, message="it was said")
    for report in (send(archive), asdict(views.report(archive.session, run_of(archive), 1))):
        told = {task["name"]: (task["exit_code"], task["outputs"], task["message"]) for task in report["tasks"]}
        assert told == {"a": (0, {"ark": "m5"}, ""), "b": (65, {"reason": "no metadata"}, "it was said")}


def test_a_deferred_command_is_tried_at_once_by_a_retry(archive: AnArchive) -> None:
    """Nothing else would hurry it: no further report is made beside it."""
    archive.commit({"a": "", "REPORT": SENDS})
    archive.run("a@2")
    send(archive, 75)
    with pytest.raises(Conflict, match="another report runs: papers@2/REPORT is deferred"):
        update(archive)
    assert explain(archive.session, archive.task("REPORT@2")).commands[-1] == "arkqueue retry papers@2/REPORT"
    archive.retry("REPORT@2")
    assert state(archive) == "ready"
    send(archive)
    assert (state(archive), told(archive)) == ("completed", [(1, True, True, 1)])
    with pytest.raises(Conflict, match="REPORT: exists in every run and cannot be retried"):
        archive.retry("REPORT@2")


def test_a_command_that_is_deferred_without_an_end_is_ended_with_its_run(archive: AnArchive) -> None:
    archive.commit({"a": "", "REPORT": SENDS})
    archive.run("a@2")
    send(archive, 75)
    for verb, word in ((archive.cancel, "canceled"), (archive.skip, "skipped")):
        said = f"REPORT: exists in every run and cannot be {word}. to stop it, delete its run: .*a 'deadline' ends"
        with pytest.raises(Conflict, match=said):
            verb("REPORT@2")
    text = explain(archive.session, archive.task("REPORT@2")).text
    assert text.endswith("It has no deadline: only another exit code, or the deletion of its run, ends it.")
    deletion.delete_run(archive.session, run_of(archive), "ann")
    assert state(archive) == "canceled"


def test_a_deadline_ends_a_command_that_is_deferred_without_an_end(archive: AnArchive) -> None:
    archive.commit({"a": "", "REPORT": f"{SENDS}\ndeadline: 1d"})
    archive.run("a@2")
    send(archive, 75)
    assert "Its deadline is" in explain(archive.session, archive.task("REPORT@2")).text
    archive.sql("update task set deferred_at = deferred_at - interval '25 h', due_at = now() where state = 'deferred'")
    finish.wake_deferred(archive.session)
    send(archive, 75)
    assert state(archive) == "failed"


def test_an_update_runs_the_command_again_if_something_has_changed(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "", "REPORT": SENDS})
    archive.run("b@2")
    archive.fail("a@2")
    send(archive)
    assert update(archive) == Made(2, 0, False)
    assert state(archive) == "completed"
    archive.retry("a@2")
    archive.run("a@2")
    assert (state(archive), is_marked(archive)) == ("completed", True)
    assert update(archive) == Made(3, 1, True)
    assert state(archive) == "ready"
    with pytest.raises(Conflict, match="another report runs: papers@2/REPORT is ready"):
        update(archive)
    got = send(archive)
    assert (got["number"], got["since"]) == (3, 1)
    assert {task["name"]: task["changed"] for task in got["tasks"]} == {"a": True, "b": False}
    assert told(archive) == [(1, True, True, 2), (2, False, False, 0), (3, True, True, 1)]


def test_what_was_not_sent_is_told_again(archive: AnArchive) -> None:
    archive.commit({"a": "", "REPORT": SENDS})
    archive.run("a@2")
    send(archive, code=1)
    assert (state(archive), run_state(archive)) == ("failed", "completed")
    assert update(archive) == Made(2, 1, True)
    assert send(archive)["since"] is None
    assert told(archive) == [(1, True, False, 1), (2, True, True, 1)]
    with pytest.raises(Conflict, match="has no failed task"):
        many.retry_failed(archive.session, run_of(archive), "ann")


def test_a_report_that_was_given_stays_as_it_was(archive: AnArchive) -> None:
    archive.commit({"a": "", "REPORT": SENDS})
    archive.fail("a@2")
    archive.claim("REPORT@2")
    before = given(archive)
    archive.retry("a@2")
    archive.run("a@2")
    assert given(archive) == before
    assert before["counts"]["failed"] == 1
    archive.end("REPORT@2")
    assert (told(archive), is_marked(archive)) == ([(1, True, True, 1)], True)


def test_a_retry_before_the_command_began_lets_it_wait_again(archive: AnArchive) -> None:
    archive.commit({"a": "", "REPORT": SENDS})
    archive.fail("a@2")
    assert state(archive) == "ready"
    archive.retry("a@2")
    assert (state(archive), told(archive)) == ("waiting", [])
    archive.run("a@2")
    assert send(archive)["counts"]["completed"] == 1
    assert told(archive) == [(1, True, True, 1)]


def test_a_report_now_is_sent_and_the_run_sends_its_own_when_it_has_settled(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "", "REPORT": SENDS})
    archive.run("a@2")
    assert update(archive, now=True) == Made(1, 1, True)
    got = send(archive)
    assert (got["counts"]["unsettled"], got["made_by"]) == (1, "ann")
    assert (state(archive), told(archive)) == ("waiting", [(1, True, True, 1)])
    archive.run("b@2")
    assert state(archive) == "ready"
    got = send(archive)
    assert (got["number"], got["made_by"], got["since"]) == (2, None, 1)
    assert (state(archive), told(archive)) == ("completed", [(1, True, True, 1), (2, True, True, 1)])


def test_the_last_end_beside_a_report_now_does_not_hinder_the_own_one(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "", "REPORT": SENDS})
    archive.run("a@2")
    update(archive, now=True)
    archive.run("b@2")
    assert send(archive)["number"] == 1
    assert state(archive) == "ready"
    assert send(archive)["number"] == 2
    assert told(archive) == [(1, True, True, 1), (2, True, True, 1)]


def test_a_command_that_is_lost_or_asks_to_wait_goes_on_with_the_same_report(archive: AnArchive) -> None:
    archive.commit({"a": "", "REPORT": SENDS})
    archive.claim("a@2")
    archive.end("a@2", 1)
    archive.claim("REPORT@2")
    first = given(archive)
    archive.record(archive.running.pop(archive.task("REPORT@2")).attempt, End.STOPPED, None)
    archive.retry("a@2")
    assert state(archive) == "ready", "its report is made"
    archive.claim("REPORT@2")
    assert given(archive) == first


def test_a_deleted_run_sends_nothing_until_it_is_undeleted(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "", "REPORT": SENDS})
    archive.run("a@2")
    archive.claim("b@2")
    archive.end("b@2", 75)
    deletion.delete_run(archive.session, run_of(archive), "ann")
    assert (state(archive), told(archive)) == ("canceled", [])
    deletion.undelete_run(archive.session, run_of(archive), "ann")
    assert (state(archive), archive.state("b@2")) == ("waiting", "held")
    holds.release_run(archive.session, run_of(archive), "ann")
    archive.run("b@2")
    assert send(archive)["counts"]["completed"] == 2


def test_approval_steps_and_guards_hold_the_command(archive: AnArchive) -> None:
    archive.commit({"a": "", "REPORT": f"{SENDS}\nhold: true"})
    archive.run("a@2")
    assert state(archive) == "held"
    with pytest.raises(Conflict, match="papers@2/REPORT: is held"):
        update(archive)
    holds.release(archive.session, archive.task("REPORT@2"), "ann")
    assert state(archive) == "ready"
    send(archive)
    guarded = ArchiveSettings(process=True, require_approval=("REP*",))
    archives.change_settings(archive.session, archive.id, guarded, "ann")
    with pytest.raises(Forbidden, match="guarded by require-approval"):
        update(archive)
    archive.commit({"REPORT": SENDS})
    assert state(archive, 3) == "held"
    how = holds.How(approver=Approver())
    holds.release_run(archive.session, run_of(archive, 3), "bob", how=how)
    got = send(archive, number=3)
    assert (got["state"], got["counts"]["tasks"]) == ("completed", 0)


def test_a_guard_that_names_report_holds_it_without_a_command(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    guarded = ArchiveSettings(process=True, require_approval=("REPORT",))
    archives.change_settings(archive.session, archive.id, guarded, "ann")
    assert state(archive) == "held", "it had not passed when the guard was set"
    archive.run("a@2")
    assert (state(archive), run_state(archive), told(archive)) == ("held", "held", [])
    shown = runs.run(archive.session, run_of(archive))
    assert [task.name for task in shown.tasks] == ["COMMIT", "a", "REPORT"]
    with pytest.raises(Forbidden, match="papers@2/REPORT: is guarded by require-approval"):
        update(archive)
    with pytest.raises(Conflict, match="papers@2/REPORT: is held"):
        update(archive, approver=Approver())
    with pytest.raises(Conflict, match="guarded by require-approval"):
        holds.release_run(archive.session, run_of(archive), "ann")
    holds.release_run(archive.session, run_of(archive), "bob", how=holds.How(approver=Approver()))
    assert (state(archive), run_state(archive)) == ("completed", "completed")
    assert told(archive) == [(1, False, False, 1)]

    archive.commit({})
    assert (state(archive, 3), str(runs.run(archive.session, run_of(archive, 3)).state)) == ("held", "held")
    with pytest.raises(Forbidden, match="papers@3/REPORT: is guarded by require-approval"):
        deletion.delete_run(archive.session, run_of(archive, 3), "ann")
    deletion.delete_run(archive.session, run_of(archive, 3), "bob", Approver())
    assert state(archive, 3) == "canceled"
    deletion.undelete_run(archive.session, run_of(archive, 3), "ann")
    assert state(archive, 3) == "held"
    archive.commit({}, dropped=["3"])
    assert (state(archive, 3), state(archive, 4)) == ("canceled", "held")


def test_hold_holds_a_report_without_a_command(archive: AnArchive) -> None:
    archive.commit({"a": "", "REPORT": "hold: true  # gate"})
    assert state(archive) == "held"
    archive.run("a@2")
    assert (state(archive), run_state(archive), told(archive)) == ("held", "held", [])
    assert "held by its workflow file" in explain(archive.session, archive.task("REPORT@2")).text
    archives.change_settings(archive.session, archive.id, ArchiveSettings(process=True, require_approval=("*",)), "ann")
    holds.release_run(archive.session, run_of(archive), "ann")
    assert (state(archive), run_state(archive)) == ("completed", "completed"), "a wildcard does not guard it"
    assert told(archive) == [(1, False, False, 1)]
    archive.commit({"REPORT": "hold: true  # gate"})
    deletion.delete_run(archive.session, run_of(archive, 3), "ann")
    assert state(archive, 3) == "canceled"
    deletion.undelete_run(archive.session, run_of(archive, 3), "ann")
    assert state(archive, 3) == "held"
    holds.release(archive.session, archive.task("REPORT@3"), "ann")
    assert state(archive, 3) == "completed"


def test_a_wildcard_leaves_a_report_without_a_command_alone(archive: AnArchive) -> None:
    guarded = ArchiveSettings(process=True, require_approval=("*",))
    archives.change_settings(archive.session, archive.id, guarded, "ann")
    archive.commit({"a": ""})
    assert (archive.state("a@2"), state(archive)) == ("held", "waiting")
    archive.commit({"REPORT": SENDS})
    assert state(archive, 3) == "held"
    archives.change_settings(archive.session, archive.id, replace(guarded, require_approval=("*", "REPORT")), "ann")
    assert state(archive) == "held"


def test_a_command_that_was_canceled_while_it_was_held_is_held_again(archive: AnArchive) -> None:
    archive.commit({"a": "", "REPORT": f"{SENDS}\nhold: true"})
    archive.run("a@2")
    archive.commit(dropped=["2"])
    assert state(archive) == "canceled"
    assert update(archive) == Made(1, 1, True)
    assert state(archive) == "held"
    how = holds.How(force=True)
    holds.release(archive.session, archive.task("REPORT@2"), "ann", how=how)
    assert send(archive)["number"] == 1


def test_a_run_on_hold_has_its_tasks_held_and_not_its_report(archive: AnArchive) -> None:
    holds.hold_archive(archive.session, archive.id, "ann")
    archive.commit({"a": "", "REPORT": SENDS})
    assert (archive.states(), state(archive)) == ({"a@2": "held"}, "waiting")


def test_a_rewrite_cancels_a_command_that_has_not_started(archive: AnArchive) -> None:
    archive.commit({"a": "", "REPORT": SENDS})
    archive.commit({"a": "", "REPORT": SENDS}, dropped=["2"])
    assert (archive.states()["a@2"], state(archive)) == ("canceled", "canceled")
    assert told(archive) == []


def test_in_a_pause_a_report_waits_for_its_command(archive: AnArchive) -> None:
    archive.commit({"a": "", "REPORT": SENDS})
    archive.claim("a@2")
    pause(archive)
    archive.end("a@2", 1)
    assert_waits_for_the_pause(archive)
    with pytest.raises(
        NotFound, match=r"has no report yet, because papers@2/REPORT is ready\. arkqueue explain papers@2/REPORT"
    ):
        views.report(archive.session, run_of(archive))
    for now in (False, True):
        with pytest.raises(Conflict, match=r"papers@2/REPORT is ready\. arkqueue explain papers@2/REPORT"):
            update(archive, now=now)
    pauses.resume(archive.session, ArchiveId(archive.id), archive.name, "ann")
    archive.claim("REPORT@2")
    pause(archive)
    archive.end("REPORT@2")
    assert told(archive) == [(1, True, True, 1)], "what had begun goes on"


def test_an_update_in_a_pause_makes_a_report_and_the_command_waits(archive: AnArchive) -> None:
    archive.commit({"a": "", "REPORT": SENDS})
    archive.fail("a@2")
    send(archive)
    pause(archive)
    archive.skip("a@2")
    assert update(archive) == Made(2, 1, True)
    assert told(archive) == [(1, True, True, 1), (2, True, False, 1)]
    assert_waits_for_the_pause(archive)
    pauses.resume(archive.session, ArchiveId(archive.id), archive.name, "ann")
    send(archive)
    assert told(archive) == [(1, True, True, 1), (2, True, True, 1)]


def pause(archive: AnArchive) -> None:
    pauses.pause(archive.session, ArchiveId(archive.id), "the receiver moves", "ann")


def assert_waits_for_the_pause(archive: AnArchive) -> None:
    assert state(archive) == "ready"
    claim.withdraw(archive.session)
    assert claim.claim(archive.session, PROCESS, HOST, 10) == []
    for explained in (explain(archive.session, archive.task("REPORT@2")), explain_name(archive.session, "papers@2")):
        assert "t is ready, but papers is paused" in explained.text
        assert "arkqueue resume papers" in explained.commands


def test_archives_without_a_command_have_reports_that_nobody_sends(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.run("a@2")
    assert told(archive) == [(1, False, False, 1)]
    assert update(archive) == Made(2, 0, False)


# Two at once


@pytest.mark.parametrize("first", ["claim", "retry"])
def test_a_claim_of_the_command_beside_a_retry(archive: AnArchive, second_connection: Connect, first: str) -> None:
    """Either the command has its report, and goes on with it, or REPORT waits again; never a report of half a retry."""
    archive.commit({"a": "", "REPORT": SENDS})
    archive.fail("a@2")
    if first == "claim":
        # A claim has REPORT's row, and commits while the retry waits for it.
        holder, watcher = second_connection(), second_connection()
        with holder.transaction():
            holder.execute(
                b"update task set state = 'running', attempts = 1, attempt_id = nextval('attempt_id') where id = %s",
                [archive.task("REPORT@2")],
            )
            holder.execute(
                b"insert into attempt (id, task_id, number, process, host, lease_until) select attempt_id, id, 1, %s, %s, now() + interval '1 h' from task where id = %s",
                [PROCESS, HOST, archive.task("REPORT@2")],
            )
            retry = InThread(lambda: archive.retry("a@2"))
            wait_until_blocked(watcher)
        retry.result()
        assert (state(archive), archive.state("a@2")) == ("running", "ready")
        assert given(archive)["counts"]["failed"] == 1
        (row,) = archive.sql("select attempt_id from task where id = %s", archive.task("REPORT@2"))
        archive.record(row["attempt_id"], End.EXITED, 0)
        assert told(archive) == [(1, True, True, 1)]
    else:
        archive.retry("a@2")
        assert [claimed.name for claimed in archive.claim_some(10)] == ["a"]
        assert (state(archive), told(archive)) == ("waiting", [])


def test_of_two_updates_at_once_one_runs_the_command(archive: AnArchive, second_connection: Connect) -> None:
    archive.commit({"a": "", "REPORT": SENDS})
    archive.fail("a@2")
    send(archive)
    archive.retry("a@2")
    archive.run("a@2")
    first, second = one_after_the_other(archive, second_connection, lambda: update(archive), lambda: update(archive))
    assert first.result() == Made(2, 1, True)
    with pytest.raises(Conflict, match="another report runs"):
        second.result()
    assert told(archive) == [(1, True, True, 1), (2, True, False, 1)]


@pytest.mark.parametrize("is_first", [True, False])
def test_an_update_now_beside_the_last_end(archive: AnArchive, second_connection: Connect, is_first: bool) -> None:
    archive.commit({"a": "", "REPORT": SENDS})
    attempt = archive.attempt("a@2")

    def end() -> object:
        return archive.record(attempt, End.EXITED, 0)

    def now() -> object:
        return update(archive, now=True)

    one, other = one_after_the_other(archive, second_connection, *((now, end) if is_first else (end, now)))
    one.result()
    if is_first:
        other.result()
        # Nothing had changed, so nothing was sent; the own report is.
        assert told(archive) == [(1, False, False, 0)]
    else:
        with pytest.raises(Conflict, match="another report runs: papers@2/REPORT is ready"):
            other.result()
    assert state(archive) == "ready"
    assert send(archive)["made_by"] is None
