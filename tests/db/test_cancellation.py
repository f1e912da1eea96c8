"""Tasks that cancel others (design 5.10, 5.11): which ones, when, and how they come back."""

from __future__ import annotations

import pytest

from arkqueue.errors import Conflict
from arkqueue.model import End
from arkqueue.queue import claim, control, finish
from tests.builders import HOST, PROCESS, AnArchive
from tests.db.shapes import STRICT

PDF = {"pdf": "cancels: [PREV]"}


def test_a_cancel_request_waits_until_the_victim_is_gone(archive: AnArchive) -> None:
    archive.commit(PDF)
    archive.claim("pdf@2")
    archive.commit(PDF)
    assert archive.states() == {"pdf@2": "running", "pdf@3": "waiting"}
    archive.end("pdf@2", None, End.STOPPED)
    assert archive.states() == {"pdf@2": "canceled", "pdf@3": "ready"}


def test_a_victim_that_had_ended_keeps_its_outcome(archive: AnArchive) -> None:
    archive.commit(PDF)
    archive.claim("pdf@2")
    archive.commit(PDF)
    archive.end("pdf@2", 0)
    assert archive.states() == {"pdf@2": "completed", "pdf@3": "ready"}


def test_a_victim_whose_lease_lapses_is_canceled_and_not_rerun(archive: AnArchive) -> None:
    archive.commit(PDF)
    archive.claim("pdf@2")
    archive.commit(PDF)
    finish.expire(archive.session, "another", "host-1")
    assert archive.states() == {"pdf@2": "canceled", "pdf@3": "ready"}


def test_assume_gone_ends_a_victim_at_once(archive: AnArchive) -> None:
    archive.commit(PDF)
    archive.claim("pdf@2")
    archive.commit(PDF)
    archive.cancel("pdf@2", assume_gone=True)
    assert archive.states() == {"pdf@2": "canceled", "pdf@3": "ready"}


def test_nobody_may_assume_gone_what_a_task_manager_that_is_heard_of_runs(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.claim("a@2")
    claim.register(archive.session, PROCESS, HOST, "a-host", 4)
    with pytest.raises(Conflict, match="its task manager on a-host reported"):
        archive.cancel("a@2", assume_gone=True)
    assert archive.state("a@2") == "running"
    archive.sql("update task_manager set seen_at = seen_at - interval '31 s'")
    archive.cancel("a@2", assume_gone=True)
    assert archive.state("a@2") == "canceled"


def test_victims_are_in_all_earlier_revisions(archive: AnArchive) -> None:
    for _ in range(3):
        archive.commit({"pdf": "", "x": ""})
    archive.commit({"pdf": "cancels: [PREV, 'PREV:x']"})
    assert [s for k, s in archive.states().items()] == ["canceled"] * 6 + ["ready"]


def test_a_later_revision_is_never_canceled_by_an_earlier_one(archive: AnArchive) -> None:
    archive.commit({"a": "", "pdf": "depends: [a]\ncancels: [PREV]"})
    archive.commit({"pdf": ""})
    archive.run("a@2")
    assert archive.states() == {"a@2": "completed", "pdf@2": "ready", "pdf@3": "running"}


def test_only_unstarted_leaves_the_running_one_alone(archive: AnArchive) -> None:
    tasks = {"pdf": "cancels: [{task: PREV, only: unstarted}]"}
    archive.commit(tasks)
    archive.claim("pdf@2")
    archive.commit(tasks)
    archive.commit(tasks)
    assert archive.states() == {"pdf@2": "running", "pdf@3": "canceled", "pdf@4": "ready"}


def test_cancels_inside_the_run(archive: AnArchive) -> None:
    archive.commit({"slow": "", "watch": "", "quick": "depends: [watch]\ncancels: [slow]"})
    archive.claim("slow@2")
    archive.run("watch@2")
    assert archive.states() == {"slow@2": "running", "watch@2": "completed", "quick@2": "waiting"}
    archive.end("slow@2", None, End.STOPPED)
    assert archive.state("quick@2") == "ready"


def test_cancellation_fires_again_at_each_entry(archive: AnArchive) -> None:
    archive.commit(PDF)
    archive.commit(PDF)
    archive.end("pdf@3", 75)
    archive.retry("pdf@2", force=True)
    assert archive.states() == {"pdf@2": "ready", "pdf@3": "deferred"}
    archive.sql("update task set due_at = clock_timestamp() where state = 'deferred'")
    finish.wake_deferred(archive.session)
    assert archive.states() == {"pdf@2": "canceled", "pdf@3": "ready"}


def test_a_superseded_task_is_not_retried_unless_forced(archive: AnArchive) -> None:
    archive.commit(PDF)
    archive.commit(PDF)
    with pytest.raises(Conflict, match="superseded by papers@3/pdf"):
        archive.retry("pdf@2")


def test_what_was_skipped_because_of_a_superseded_task_is_told_what_brings_it_back(archive: AnArchive) -> None:
    for _ in range(2):
        archive.commit({"pdf": "cancels: [PREV]", "send": "depends: [pdf]", "tell": "depends: [send]"})
    with pytest.raises(Conflict) as refused:
        archive.retry("tell@2")
    assert refused.value.fault == "was skipped because of papers@2/pdf, which is superseded by papers@3/pdf"
    remedy = "arkqueue retry papers@2/pdf --force, or trigger the task at the newest revision"
    assert refused.value.remedy == remedy
    archive.retry("pdf@2", force=True)
    assert archive.states()["tell@2"] == "waiting"


def test_a_canceled_task_that_needs_a_superseded_one_is_told_what_brings_it_back(archive: AnArchive) -> None:
    archive.commit({"pdf": "", "send": "depends: [pdf]"})
    archive.cancel("send@2")
    archive.commit({"pdf": "cancels: [PREV]"})
    with pytest.raises(Conflict) as refused:
        archive.retry("send@2")
    assert refused.value.fault == "needs papers@2/pdf, which is superseded by papers@3/pdf"
    assert refused.value.remedy.startswith("arkqueue retry papers@2/pdf --force")


def test_what_a_later_revision_superseded_does_not_come_back_as_if_its_need_had_completed(archive: AnArchive) -> None:
    tasks = {"a": "", "pdf": "depends: [a]\ncancels: [PREV]"}
    archive.commit(tasks)
    archive.commit(tasks)
    archive.fail("a@2")
    archive.run("a@3", "pdf@3")
    with pytest.raises(Conflict, match="pdf is superseded by pdf of revision 3"):
        archive.skip("a@2", as_completed=True)
    assert archive.states() == {"a@2": "failed", "pdf@2": "skipped", "a@3": "completed", "pdf@3": "completed"}
    assert archive.sql("select from task where waived") == [], "nothing is half done"
    branch = archive.branches[""].id
    assert len(control.skip_until(archive.session, archive.id, branch, "a", 3, "ann").tasks) == 1
    assert archive.state("pdf@2") == "skipped", "waived for others, not for its own run"
    archive.skip("a@2", as_completed=True, force=True)
    assert archive.state("pdf@2") == "ready"


def test_in_strict_order_nothing_comes_back_behind_what_has_started(archive: AnArchive) -> None:
    tasks = STRICT | {"a": "", "b": "depends: [a]"}
    archive.commit(tasks)
    archive.commit(tasks)
    archive.fail("a@2")
    archive.claim("a@3")
    with pytest.raises(Conflict, match=r"later revisions have started after it: papers@3/a"):
        archive.skip("a@2", as_completed=True)
    archive.skip("a@2", as_completed=True, force=True)
    assert archive.state("b@2") == "ready"


def test_what_was_canceled_does_not_come_back_behind_a_commit_that_passed_it(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    control.cancel(archive.session, archive.task("a@2"), "ann")
    archive.commit({"COMMIT": "depends: [{task: 'PREV:a', when: settled}]", "b": ""})
    archive.claim("b@3")
    with pytest.raises(Conflict, match=r"later revisions have started after it: papers@3/b"):
        archive.retry("a@2")


def test_a_refusal_names_some_of_many_that_have_started(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.fail("a@2")
    archive.commit({"a": ""} | {f"t{n}": "depends: [{task: 'PREV:a', when: settled}]" for n in range(12)})
    for n in range(12):
        archive.claim(f"t{n}@3")
    with pytest.raises(Conflict, match=r"started after it: (papers@3/t\d+, ){9}papers@3/t\d+ and more"):
        archive.retry("a@2")


def test_a_failure_that_nothing_of_its_run_waits_for_is_skipped_as_completed_whatever_came_later(
    archive: AnArchive,
) -> None:
    archive.commit({"a": "cancels: [PREV]"})
    archive.fail("a@2")
    archive.commit({"a": "cancels: [PREV]"})
    archive.run("a@3")
    archive.skip("a@2", as_completed=True)


def test_a_rerun_of_what_was_superseded_is_refused_unless_forced(archive: AnArchive) -> None:
    archive.commit(PDF)
    archive.commit(PDF)
    with pytest.raises(Conflict, match="superseded by pdf of revision 3"):
        archive.trigger(2)
    archive.trigger(2, force=True)
    assert archive.state("pdf@2.2") == "ready"
