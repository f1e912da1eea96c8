"""Why is this task not running? One test for each reason, with the names and the commands that a person
is given.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest

from arkqueue.db.session import Session
from arkqueue.errors import Conflict, NotFound
from arkqueue.model import ArchiveId, End, RunId, TaskId
from arkqueue.queue import archives, claim, control, deletion, finish, redo, retrying
from arkqueue.views import explain_task, not_starting
from arkqueue.views.explain import explain, explain_first, explain_name
from arkqueue.views.explanation import Explanation
from arkqueue.views.outdated import outdated
from arkqueue.views.reasons import Why
from tests.builders import HOST, PROCESS, AnArchive, a_workflow, an_archive, an_entry
from tests.db.explanations import a_task_manager, kinds, why

FOLLOWING = {"index": "depends: [PREV]", "pdf": "depends: [index]\ncancels: [PREV]"}


def test_waits_for_a_running_task(session: Session) -> None:
    archive = an_archive(session)
    archive.commit(FOLLOWING)
    a_task_manager(session)
    archive.claim("index@2")
    told = why(archive, "pdf@2")
    assert kinds(told) == [Why.WAITS_FOR_RUNNING]
    assert "It waits for papers@2/index, which is running since" in told.text
    assert "attempt 1 on machine; its lease lasts until" in told.text
    assert told.commands == ["arkqueue logs papers@2/index -f"]
    assert [(w.task, w.state, w.kind) for w in told.waits_for] == [("papers@2/index", "running", "depends")]


def test_a_failure_names_the_tasks_that_wait_for_it(session: Session) -> None:
    archive = an_archive(session)
    files = {"index": "", "upload": "depends: [index, PREV]", "check": "depends: ['PREV:index', upload]", "end": "depends: ['PREV:*']"}  # fmt: skip
    archive.commit(files)
    archive.commit(files)
    archive.fail("index@2")
    archive.run("index@3")
    assert archive.state("upload@2") == "skipped"
    # `upload` waits through the task that was skipped, `end` through the gate of ``PREV:*``.
    text = why(archive, "index@2").text
    assert "(exit code 1). 3 tasks wait for it: papers@3/upload, papers@3/check, papers@3/end." in text
    archive.skip("index@2")
    assert "for it:" not in why(archive, "index@2").text


def test_a_failure_names_the_tasks_that_wait_for_it_through_superseded_ones(session: Session) -> None:
    archive = an_archive(session)
    files = {"pdf": "cancels: [PREV]", "upload": "depends: [pdf, PREV]", "deposit": "depends: [upload]\nhold: true"}
    archive.commit(files)
    archive.run("pdf@2")
    archive.fail("upload@2")
    archive.commit(files)
    archive.commit(files)
    assert (archive.state("pdf@3"), archive.state("upload@3")) == ("canceled", "skipped")
    assert "A task waits for it: papers@4/upload." in why(archive, "upload@2").text
    assert (
        "It waits (through papers@3/upload, which was skipped) for papers@2/upload, which failed"
        in why(archive, "upload@4").text
    )


@pytest.mark.parametrize(
    "ask", [lambda archive: why(archive, "pdf@2"), lambda archive: explain_name(archive.session, "papers@2/pdf")]
)
def test_what_completes_meanwhile_is_not_waited_for_and_completed(
    session: Session, monkeypatch: pytest.MonkeyPatch, ask: Callable[[AnArchive], Explanation]
) -> None:
    """The chains of a busy archive are so long that something always completes while they are read."""
    archive = an_archive(session)
    archive.commit(FOLLOWING)
    archive.claim("index@2")

    # In between the edges and the tasks at their ends nobody else can come.
    tasks = explain_task.rows_by_id

    def complete_now(*of: Any) -> Any:
        monkeypatch.setattr(explain_task, "rows_by_id", tasks)
        archive.end("index@2")
        return tasks(*of)

    monkeypatch.setattr(explain_task, "rows_by_id", complete_now)
    told = ask(archive)
    assert archive.states()["index@2"] == "completed"
    assert "It waits for papers@2/index, which is running since" in told.text


def test_waits_in_the_place_of_what_never_began(session: Session) -> None:
    archive = an_archive(session)
    tasks = {"upload": "depends: [PREV]"}
    for _ in range(3):
        archive.commit(tasks)
    a_task_manager(session)
    archive.claim("upload@2")
    archive.cancel("upload@3")
    told = why(archive, "upload@4")
    assert kinds(told) == [Why.WAITS_FOR_RUNNING]
    assert (
        "It waits (through papers@3/upload, which was canceled) for papers@2/upload, which is running since"
        in told.text
    )
    assert [(w.task, w.state, w.kind) for w in told.waits_for] == [("papers@3/upload", "canceled", "depends")]


def test_only_what_waited_for_it_is_named_in_whose_place_a_task_waits(session: Session) -> None:
    archive = an_archive(session)
    tasks = {"a": "depends: [PREV]", "z": "", "b": "depends: [z]", "c": "depends: ['PREV:a', 'PREV:b']"}
    for _ in range(3):
        archive.commit(tasks)
    a_task_manager(session)
    archive.claim(slots=100)
    for key in ("a@3", "b@3"):
        archive.cancel(key)
    told = why(archive, "c@4")
    assert kinds(told) == [Why.WAITS_FOR_RUNNING]
    assert "It waits (through papers@3/a, which was canceled) for papers@2/a, which is running" in told.text


def test_what_waits_for_any_end_is_not_told_of_failures_behind_what_never_began(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    a_task_manager(session)
    archive.claim(slots=100)
    archive.commit({"c": "depends: ['PREV:a', 'PREV:b']"})
    archive.commit({"d": "depends: [{task: 'PREV:c', when: settled}]", "e": "depends: ['PREV:c']"})
    archive.cancel("c@3")
    archive.fail("a@2")
    assert kinds(why(archive, "d@4")) == [Why.WAITS_FOR_RUNNING]
    assert kinds(why(archive, "e@4")) == [Why.BLOCKED, Why.WAITS_FOR_RUNNING]
    archive.run("b@2")
    assert archive.states()["d@4"] == "ready"
    told = why(archive, "e@4")
    assert kinds(told) == [Why.BLOCKED]
    assert told.commands == ["arkqueue retry papers@2/a", "arkqueue skip papers@2/a"]


def test_of_two_bad_sources_the_one_that_is_left_is_named(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "", "c": "depends: [a, b]"})
    archive.commit({"c": "depends: [PREV]"})
    archive.fail("a@2", "b@2")
    assert kinds(why(archive, "c@3")) == [Why.BLOCKED, Why.BLOCKED]
    archive.skip("a@2")
    told = why(archive, "c@3")
    assert "It waits (through papers@2/c, which was skipped) for papers@2/b, which failed" in told.text
    assert told.commands == ["arkqueue retry papers@2/b", "arkqueue skip papers@2/b"]
    archive.skip("b@2")
    assert archive.state("c@3") == "ready"


def test_is_blocked_by_a_failure_of_an_earlier_revision_far_away(session: Session) -> None:
    archive = an_archive(session)
    for _ in range(4):
        archive.commit(FOLLOWING)
    archive.fail("index@2")
    told = why(archive, "pdf@5")
    assert kinds(told) == [Why.BLOCKED]
    assert (
        "It waits (through papers@5/index, papers@4/index, papers@3/index) for papers@2/index, which failed"
        in told.text
    )
    assert "(exit code 1)" in told.text
    assert told.reasons[0].tasks == ["papers@2/index"]
    assert told.commands == ["arkqueue retry papers@2/index", "arkqueue skip papers@2/index"]
    assert [w.task for w in told.waits_for] == ["papers@5/index"]


def test_is_blocked_by_what_a_failure_skipped(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]"})
    archive.commit({"c": 'depends: ["PREV:b"]'})
    archive.fail("a@2")
    told = why(archive, "c@3")
    assert kinds(told) == [Why.BLOCKED]
    assert "It waits (through papers@2/b, which was skipped) for papers@2/a, which failed" in told.text
    assert told.commands == ["arkqueue retry papers@2/a", "arkqueue skip papers@2/a"]


def test_is_blocked_by_a_rejection_that_is_never_retried(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.commit({"a": "depends: [PREV]"})
    archive.end("a@2", 65)
    told = why(archive, "a@3")
    assert kinds(told) == [Why.BLOCKED]
    assert told.commands == ["arkqueue skip papers@2/a"]


def test_remedy_names_the_commit_run_whatever_other_runs_there_are(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "other": ""})
    archive.commit({"a": "depends: [PREV]"})
    archive.run("other@2")
    archive.fail("a@2")
    archive.trigger(2, "other")
    assert why(archive, "a@3").commands == ["arkqueue retry papers@2/a", "arkqueue skip papers@2/a"]


def test_waits_for_its_victim_to_be_gone(session: Session) -> None:
    archive = an_archive(session)
    a_task_manager(session)
    archive.commit(FOLLOWING)
    archive.commit(FOLLOWING | {"end": "depends: [pdf]", "further": "depends: [end]"})
    archive.run("index@2")
    archive.claim("pdf@2")
    archive.run("index@3")
    stopping = "is being stopped: machine sends it SIGTERM, and SIGKILL after its grace of 10 s"
    told = why(archive, "pdf@3")
    assert kinds(told) == [Why.STOPPING]
    assert "It supersedes papers@2/pdf and waits until that is gone: papers@2/pdf is running since" in told.text
    assert stopping in told.text
    assert told.commands == ["arkqueue logs papers@2/pdf -f"]
    through = why(archive, "end@3")
    assert (
        "It waits for papers@3/pdf, which supersedes papers@2/pdf and waits until that is gone: papers@2/"
        in through.text
    )
    further = why(archive, "further@3")
    assert "It waits (through papers@3/end) for papers@3/pdf, which supersedes papers@2/pdf" in further.text
    victim = why(archive, "pdf@2")
    assert kinds(victim) == [Why.STOPPING]
    assert stopping in victim.text
    assert victim.commands == ["arkqueue logs papers@2/pdf -f"]


def test_victim_of_a_silent_task_manager_may_be_assumed_gone(session: Session) -> None:
    """As long as the task manager is heard of, the command would be refused and is not given."""
    archive = an_archive(session)
    a_task_manager(session)
    archive.commit(FOLLOWING)
    archive.commit(FOLLOWING)
    archive.run("index@2")
    archive.claim("pdf@2")
    archive.run("index@3")
    archive.sql("update attempt set lease_until = now() - interval '1 minute' where ended_at is null")
    assert why(archive, "pdf@3").commands == why(archive, "pdf@2").commands == []
    archive.sql("update task_manager set seen_at = now() - interval '40 seconds'")
    for task in ("pdf@3", "pdf@2"):
        told = why(archive, task)
        assert "its task manager last reported at" in told.text
        assert told.commands == ["arkqueue cancel papers@2/pdf --assume-gone"]
    archive.cancel("pdf@2", assume_gone=True)
    assert archive.state("pdf@3") == "ready"


def test_is_ready_but_no_task_manager_runs(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    told = why(archive, "a@2")
    assert kinds(told) == [Why.NO_TASK_MANAGER]
    assert told.commands == ["arkqueue worker"]
    a_task_manager(session)
    archive.sql("update task_manager set seen_at = seen_at - interval '1 hour'")
    told = why(archive, "a@2")
    assert kinds(told) == [Why.NO_TASK_MANAGER]
    assert "(that of machine last reported at 2" in told.text
    claim.unregister(session, PROCESS)
    assert "(that of machine stopped at 2" in why(archive, "a@2").text


def test_is_ready_and_others_are_ahead_of_it(session: Session) -> None:
    archive = an_archive(session)
    a_task_manager(session, slots=1)
    archive.commit(dict.fromkeys("abcd", ""))
    archive.claim(slots=1)
    told = why(archive, "d@2")
    assert kinds(told) == [Why.NO_SLOT]
    assert "2 tasks ahead of it (1 task manager with 1 slot, 0 free)" in told.text
    assert told.commands == []
    assert "waits for a slot: no task is ahead of it (1 task manager" in why(archive, "b@2").text


def test_where_more_are_ahead_than_are_counted_it_says_at_least(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(not_starting, "MOST_AHEAD", 2)
    archive = an_archive(session)
    a_task_manager(session, slots=1)
    archive.commit(dict.fromkeys("abcde", ""))
    archive.claim(slots=1)
    assert "slot: 2 tasks ahead of it" in why(archive, "d@2").text
    assert "slot: at least 2 tasks ahead of it" in why(archive, "e@2").text


def test_is_ready_and_about_to_be_claimed(session: Session) -> None:
    archive = an_archive(session)
    a_task_manager(session)
    archive.commit({"a": ""})
    assert kinds(why(archive, "a@2")) == [Why.ABOUT_TO_START]


def test_is_ready_and_the_dead_are_not_counted_who_would_claim_it(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    a_task_manager(session)
    claim.register(session, "its successor", HOST, "machine", 2)
    claim.register(session, "elsewhere", "host-2", "other", 1)
    assert "(3 task managers with 7 slots, 7 free)" in why(archive, "a@2").text
    finish.expire(session, "its successor", HOST)
    assert "(2 task managers with 3 slots, 3 free)" in why(archive, "a@2").text
    archive.sql("update task_manager set seen_at = seen_at - interval '1 h', stopped_at = stopped_at - interval '1 h'")
    assert "(that of other last reported at 2" in why(archive, "a@2").text, "those that were buried had died before"


def test_is_ready_and_whoever_is_heard_again_is_counted(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    a_task_manager(session)
    claim.unregister(session, PROCESS)
    assert kinds(why(archive, "a@2")) == [Why.NO_TASK_MANAGER]
    a_task_manager(session)
    assert kinds(why(archive, "a@2")) == [Why.ABOUT_TO_START]


def test_is_ready_again_because_a_host_could_not_start_it(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]"})
    message = "not started, and handed back: work folder: No space left on device. 0 MiB are free there: make room"
    archive.end("a@2", None, End.STOPPED, message=message)
    assert archive.state("a@2") == "ready"
    for key in ("a@2", "b@2"):
        assert why(archive, key).text.endswith(f". Its attempt 1 on {HOST}: {message}.")
    a_task_manager(session)
    assert why(archive, "a@2").text.endswith(f"4 free). Its attempt 1 on machine: {message}.")


def test_is_ready_but_no_host_can_start_it(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"boxed": "image: busybox", "bare": ""})
    claim.register(
        session, PROCESS, HOST, "machine", 4, engine_fault="Docker engine: its disk is full. Free space on it"
    )
    told = why(archive, "boxed@2")
    assert kinds(told) == [Why.NO_FIT_HOST]
    assert told.text.endswith("machine: Docker engine: its disk is full. Free space on it.")
    assert kinds(why(archive, "bare@2")) == [Why.ABOUT_TO_START]
    archive.commit({**{f"boxed{n}": "image: busybox" for n in range(4)}, "last": ""})
    assert kinds(why(archive, "last@3")) == [Why.ABOUT_TO_START]
    claim.register(session, "other", "host-2", "other", 2)
    assert kinds(why(archive, "last@3")) == [Why.NO_SLOT]
    assert "(1 task manager with 2 slots, 2 free)" in why(archive, "boxed@2").text
    assert "(2 task managers with 6 slots, 6 free)" in why(archive, "bare@2").text
    claim.unregister(session, "other")
    claim.register(session, PROCESS, HOST, "machine", 4, fault="work folder: it is full. Make room")
    for key in ("boxed@2", "bare@2"):
        assert why(archive, key).text.endswith("machine: work folder: it is full. Make room.")


def test_is_deferred_because_it_asked_to_be(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]"})
    archive.end("a@2", 75)
    told = why(archive, "a@2")
    assert kinds(told) == [Why.DEFERRED]
    assert (
        "It is deferred: attempt 1 asked to be run again later (exit code 75). The next attempt is due at 2"
        in told.text
    )
    assert told.commands == ["arkqueue logs papers@2/a", "arkqueue retry papers@2/a"]
    assert kinds(why(archive, "b@2")) == [Why.DEFERRED]


def test_is_deferred_before_an_automatic_retry(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "retries: 2"})
    archive.fail("a@2")
    told = why(archive, "a@2")
    assert kinds(told) == [Why.DEFERRED]
    assert "attempt 1 failed (exit code 1)" in told.text


def test_what_a_queue_manager_would_see_to_is_said_to_wait_for_one(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "", "c": "depends: [a]"})
    archive.end("a@2", 75)
    archive.claim("b@2")
    archive.sql("update attempt set lease_until = now() - interval '1 minute'")
    archive.sql("update heartbeat set beat_at = now() - interval '1 minute'")
    waiting = {"2/a": Why.DEFERRED, "2/c": Why.DEFERRED, "2/b": Why.SILENT, "9/x": Why.NOT_IN_LEDGER}
    for name, kind in waiting.items():
        told = explain_name(session, f"papers@{name}")
        assert kinds(told) == [kind, Why.NO_QUEUE_MANAGER], name
        assert told.commands[-1] == "arkqueue manager"
    archive.sql("update heartbeat set beat_at = now()")
    assert kinds(why(archive, "a@2")) == [Why.DEFERRED]


def test_failure_that_later_revisions_have_gone_on_from_is_retried_with_force_alone(session: Session) -> None:
    archive = an_archive(session)
    files = {"a": "", "b": "depends: [{task: PREV:a, when: settled}]"}
    archive.commit(files)
    archive.fail("a@2")
    archive.commit(files)
    assert why(archive, "a@2").commands[1] == "arkqueue retry papers@2/a"
    archive.run("b@3")
    told = why(archive, "a@2")
    assert "Later revisions have already run (papers@3/b)" in told.text
    assert told.commands[1] == "arkqueue retry papers@2/a --force"


def test_no_command_is_named_that_would_be_refused_as_later_revisions_went_on(session: Session) -> None:
    archive = an_archive(session)
    files = {"a": "", "b": "depends: [a]", "c": "depends: [{task: 'PREV:a', when: settled}]"}
    archive.commit(files)
    control.cancel(session, archive.task("a@2"), "ann")
    assert why(archive, "a@2").commands == ["arkqueue retry papers@2/a"]
    assert why(archive, "b@2").commands == ["arkqueue retry papers@2/a"]
    archive.commit(files)
    archive.run("c@3")
    forced = "arkqueue retry papers@2/a --force"
    assert (why(archive, "a@2").commands, why(archive, "b@2").commands) == ([forced], [forced])
    with pytest.raises(Conflict, match="tasks of later revisions have started after it"):
        retrying.retry(session, archive.task("a@2"), "ann")
    retrying.retry(session, archive.task("a@2"), "ann", force=True)


def test_runs_since_when_and_where(session: Session) -> None:
    archive = an_archive(session)
    a_task_manager(session)
    archive.commit({"a": ""})
    archive.claim("a@2")
    told = why(archive, "a@2")
    assert kinds(told) == [Why.RUNNING]
    assert "attempt 1 on machine" in told.text
    assert told.commands == ["arkqueue logs papers@2/a -f"]


def test_runs_under_a_silent_task_manager(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.claim("a@2")
    archive.sql("update attempt set lease_until = now() - interval '1 minute'")
    told = why(archive, "a@2")
    assert kinds(told) == [Why.SILENT]
    assert told.commands == ["arkqueue cancel papers@2/a --assume-gone"]


def test_gate_is_closed_by_an_exclusive_task(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "exclusive: true"})
    archive.commit({"b": ""})
    archive.claim("a@2")
    told = why(archive, "b@3")
    assert kinds(told) == [Why.GATE]
    assert "The gate to the next revision (through papers@3/COMMIT) is closed by papers@2/a (exclusive)" in told.text
    assert told.commands == ["arkqueue explain papers@2/a"]


def test_gate_is_closed_by_an_exclusive_task_that_waits_itself(session: Session) -> None:
    archive = an_archive(session)
    a_task_manager(session)
    archive.commit({"first": "", "a": "depends: [first]\nexclusive: true"})
    archive.commit({"b": ""})
    archive.claim("first@2")
    told = why(archive, "b@3")
    assert kinds(told) == [Why.WAITS_FOR_RUNNING, Why.GATE]
    assert "papers@2/a (exclusive), which is waiting" in told.text


def test_report_waits_for_the_rest_of_its_run(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    told = why(archive, "REPORT@2")
    assert kinds(told) == [Why.WAITS_FOR_REPORTS]
    assert told.reasons[0].tasks == ["papers@2/a"]


def test_was_superseded_by_whom(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"pdf": "cancels: [PREV]"})
    archive.commit({"pdf": "cancels: [PREV]"})
    told = why(archive, "pdf@2")
    assert kinds(told) == [Why.SUPERSEDED]
    assert told.reasons[0].tasks == ["papers@3/pdf"]


def test_is_superseded_again_and_again(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"pdf": ""})
    archive.run("pdf@2")
    for _ in range(5):
        archive.commit({"pdf": "cancels: [PREV]"})
    told = why(archive, "pdf@7")
    assert Why.STARVING in kinds(told)
    assert "pdf was superseded 4 times in a row; it last completed at revision 2" in told.text
    assert kinds(why(archive, "pdf@4")) == [Why.SUPERSEDED]
    assert kinds(why(archive, "pdf@5")) == [Why.SUPERSEDED, Why.STARVING]


def test_was_canceled_by_a_person(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.cancel("a@2")
    told = why(archive, "a@2")
    assert kinds(told) == [Why.CANCELED]
    assert "canceled by ann" in told.text
    assert told.commands == ["arkqueue retry papers@2/a"]


def test_was_skipped_because_of_its_root(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]", "c": "depends: [b]"})
    archive.fail("a@2")
    told = why(archive, "c@2")
    assert kinds(told) == [Why.SKIPPED]
    assert "It was skipped because papers@2/a failed" in told.text
    assert told.commands == ["arkqueue retry papers@2/a", "arkqueue skip papers@2/a --as-completed"]


def test_was_skipped_because_of_several_items_of_a_list(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"pack": "foreach: [x, y, z, v]", "index": "depends: [pack]"})
    archive.fail("pack/x@2", "pack/y@2")
    archive.run("pack/z@2")
    archive.cancel("pack/v@2")
    archive.end("pack/v@2", end=End.STOPPED)
    told = why(archive, "index@2")
    assert "It was skipped because papers@2/pack/x failed" in told.text
    assert "Of the other items of the list, 1 failed, 1 was canceled." in told.text
    every = "'papers@2/pack/*'"
    assert told.commands == [
        f"arkqueue retry {every}",
        f"arkqueue skip {every} --as-completed --state failed",
        f"arkqueue explain {every}",
    ]
    control.skip(session, archive.task("pack/y@2"), "ann", as_completed=True)
    assert why(archive, "index@2").commands[0] == "arkqueue retry papers@2/pack/x"


def test_was_skipped_because_its_root_was_superseded(session: Session) -> None:
    archive = an_archive(session)
    for _ in range(2):
        archive.commit({"pdf": "cancels: [PREV]", "send": "depends: [pdf]"})
    told = why(archive, "send@2")
    assert "It was skipped because papers@2/pdf was superseded at 2" in told.text
    assert told.commands == ["arkqueue explain papers@2/pdf"]


def test_was_skipped_by_a_person(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.skip("a@2")
    told = why(archive, "a@2")
    assert "It was skipped by ann" in told.text
    assert told.commands == ["arkqueue retry papers@2/a"]


def test_completed_failed_and_rejected_tasks_tell_how_they_ended(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"good": "", "bad": "", "wrong": "", "slow": ""})
    archive.run("good@2")
    archive.fail("bad@2")
    archive.end("wrong@2", 65)
    archive.end("slow@2", 143, End.TIMED_OUT)
    assert kinds(why(archive, "good@2")) == [Why.COMPLETED]
    bad = why(archive, "bad@2")
    assert kinds(bad) == [Why.FAILED]
    assert bad.commands == ["arkqueue logs papers@2/bad", "arkqueue retry papers@2/bad", "arkqueue skip papers@2/bad"]
    assert kinds(why(archive, "wrong@2")) == [Why.REJECTED]
    assert "(timed out)" in why(archive, "slow@2").text
    archive.skip("bad@2")
    told = why(archive, "bad@2")
    assert "It was waived by ann: tasks that wait for it may go on." in told.text
    assert told.commands == ["arkqueue logs papers@2/bad", "arkqueue retry papers@2/bad"]


def test_commands_that_are_given_help(session: Session) -> None:
    """What `explain` says is done, and the blocked task goes on."""
    archive = an_archive(session)
    archive.commit(FOLLOWING)
    archive.commit(FOLLOWING)
    archive.fail("index@2")
    assert why(archive, "index@3").commands[0] == "arkqueue retry papers@2/index"
    archive.retry("index@2")
    assert kinds(why(archive, "index@3")) == [Why.NO_TASK_MANAGER]
    archive.fail("index@2")
    assert why(archive, "index@3").commands[1] == "arkqueue skip papers@2/index"
    archive.skip("index@2")
    assert archive.state("index@3") == "ready"


def test_many_obstacles_are_cut_off(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({f"t{n}": "" for n in range(30)})
    archive.commit({"all": 'depends: ["PREV:*"]'})
    told = why(archive, "all@3")
    first, others = told.reasons
    assert first.text.startswith("It waits (through papers@3/PREV:*) for papers@2/t0, which is ready, but ")
    assert first.text.endswith(
        " It waits for 19 more tasks that are ready: papers@2/t1, papers@2/t2, papers@2/t3, papers@2/t4, papers@2/t5 and 14 more."
    )
    assert len(first.tasks) == 20
    assert others.text == "It also waits for 10 other tasks."


def test_items_that_wait_alike_have_one_reason(session: Session) -> None:
    """Each of 130 items waits for the same lock, or for a slot while others run: the task behind the list says so once."""
    archive = an_archive(session)
    archive.commit({"page": f"foreach: [{', '.join(f'p{n:03}' for n in range(130))}]", "book": "depends: [page]"})
    a_task_manager(session, 2)
    archive.claim("page/p000@2", slots=2)
    told = why(archive, "book@2")
    assert kinds(told) == [Why.GATE, Why.WAITS_FOR_RUNNING, Why.NO_SLOT, Why.WAITS_FOR_RUNNING]
    _, running, ready, others = told.reasons
    assert running.text.endswith(" It waits for 1 more item of page that is running: papers@2/page/p001.")
    assert " for papers@2/page/p002, which is ready and waits for a slot: no task is ahead of it " in ready.text
    assert ready.text.endswith(" papers@2/page/p005, papers@2/page/p006, papers@2/page/p007 and 12 more.")
    assert " It waits for 17 more items of page that are ready: papers@2/page/p003, " in ready.text
    assert others.text == "It also waits for 110 other tasks."
    assert told.commands == ["arkqueue logs papers@2/page/p000 -f"]


def test_failures_that_need_a_command_each_have_a_reason_each(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"page": "foreach: [a, b]"})
    archive.fail("page/a@2", "page/b@2")
    archive.commit({"book": "depends: ['PREV:*']"})
    told = why(archive, "book@3")
    assert kinds(told) == [Why.BLOCKED, Why.BLOCKED]
    assert {"arkqueue retry papers@2/page/a", "arkqueue retry papers@2/page/b"} <= {*told.commands}


def test_a_gate_that_leaves_something_out_says_so(session: Session) -> None:
    archive = an_archive(session)
    tasks = {"COMMIT": "depends: [{task: 'PREV:*', except: [pdf]}]", "index": "", "pdf": ""}
    archive.commit(tasks)
    archive.fail("index@2", "pdf@2")
    archive.commit(tasks)
    told = why(archive, "index@3")
    assert "It waits (through papers@3/COMMIT, papers@3/PREV:* (except pdf)) for papers@2/index" in told.text
    assert "papers@2/pdf" not in told.text
    gate = explain_name(session, "papers@3/PREV:* (except pdf)")
    assert (gate.full_name, gate.state) == ("papers@3/PREV:* (except pdf)", "waiting")
    assert explain_name(session, "papers@3/" + quote("PREV:* (except pdf)")).full_name == gate.full_name
    with pytest.raises(NotFound, match="has no task"):
        explain_name(session, "papers@3/PREV:*")


def test_task_of_a_dropped_revision_gets_no_command_that_is_refused(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"slow": "", "a": "depends: [slow]", "b": "", "c": "depends: [b]", "d": "on: [manual]"})
    archive.fail("b@2")
    archive.append("", [an_entry(3, a_workflow({"b": "depends: [PREV]"}))], dropped=["2"])
    told = why(archive, "a@2")
    assert kinds(told) == [Why.CANCELED]
    assert "Nothing will run it: a rewrite of the branch dropped its revision at" in told.text
    assert told.commands == []
    assert why(archive, "b@2").commands == ["arkqueue logs papers@2/b", "arkqueue skip papers@2/b"]
    assert why(archive, "c@2").commands == []
    assert explain_name(session, "papers@2/d").commands == []
    assert why(archive, "b@3").commands == ["arkqueue skip papers@2/b"]
    with pytest.raises(Conflict, match="gone"):
        archive.retry("a@2")


def test_task_of_a_deleted_branch_gets_no_command_that_is_refused(session: Session) -> None:
    archive = an_archive(session, branches=("main", "topic"))
    archive.commit({"a": ""}, branch="topic")
    topic = archive.branches["topic"]
    archives.untrack(session, ArchiveId(archive.id), topic.id, head=topic.head)
    told = explain(session, archive.task("a@2", branch="topic"))
    assert "Nothing will run it: its branch was deleted at" in told.text
    assert told.commands == []


def test_task_of_a_run_that_is_held_for_its_generation(session: Session) -> None:
    archive = an_archive(session)
    entries = [an_entry(2 + n, a_workflow({"a": ""}), author="robot") for n in range(11)]
    archive.append("", entries, author="robot")
    told = explain_name(session, "papers@12/a")
    assert kinds(told) == [Why.HELD]
    assert "held by arkqueue since" in told.text
    assert "11th in a chain" in told.text
    assert told.commands == ["arkqueue release papers@12", "arkqueue release papers@12/a"]


def test_task_that_was_given_up_because_its_task_managers_died(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "on_lost: fail"})
    for _ in range(4):
        archive.claim("a@2")
        finish.expire(session, "the next one", HOST)
    assert archive.states() == {"a@2": "failed", "b@2": "failed"}
    told = why(archive, "a@2")
    assert (
        " in attempt 4 (lost: its task manager died; given up after 3 reruns). Before a retry, find out why"
        in told.text
    )
    assert told.commands == [f"arkqueue {verb} papers@2/a" for verb in ("logs", "retry", "skip")]
    assert " in attempt 1 (lost: its task manager died; not run again (on_lost: fail))." in why(archive, "b@2").text


def test_task_whose_exit_code_is_not_known(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.end("a@2", None, message="its guard process was killed")
    assert " in attempt 1 (its guard process was killed)." in why(archive, "a@2").text


def test_the_waiver_that_lets_outdated_tasks_go_on_is_named_with_force(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]"})
    archive.fail("a@2")
    waiver = "arkqueue skip papers@2/a --as-completed"
    assert explain_name(session, "papers@2/b").commands == ["arkqueue retry papers@2/a", waiver]
    archive.commit({"b": ""})
    archive.run("b@3")
    assert explain_name(session, "papers@2/b").commands == ["arkqueue retry papers@2/a --force", f"{waiver} --force"]
    told = explain_name(session, "papers@2/a")
    assert "arkqueue retry papers@2/a --force" in told.commands
    assert "skipped because of it would come back too late" in told.text
    for act in (retrying.retry, partial(control.skip, as_completed=True)):
        with pytest.raises(Conflict, match=r"would replace the work of later revisions: papers@3/b completed"):
            act(session, archive.task("a@2"), "ann")


def test_deleted_run_still_explains_itself(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.fail("a@2")
    deletion.delete_run(session, RunId(archive.run_id(2)), "ann")
    assert kinds(why(archive, "a@2")) == [Why.FAILED]


def test_what_is_out_of_date_is_told_from_what_is_not(session: Session) -> None:
    """One look at a branch finds what later revisions have completed, a second one what they have started."""
    archive = an_archive(session)
    tasks = {"done": "", "started": "depends: [{task: PREV, when: settled}]", "open": "", "list": "foreach: [a, b]"}
    for _ in range(2):
        archive.commit(tasks)
    failed = ("done@2", "open@2", "list/a@2", "list/b@2")
    archive.fail(*failed)
    names = {archive.task(name): name for name in (*failed, "started@2")}
    assert outdated(session, names) == {}
    archive.run("done@3", "list/b@3")
    assert {names[id] for id in outdated(session, names)} == {"done@2", "list/b@2"}
    archive.fail("started@2")
    archive.claim("started@3")
    assert {names[id] for id in outdated(session, names)} == {"done@2", "list/b@2", "started@2"}
    assert outdated(session, [archive.task("open@2"), archive.task("list/a@2")]) == {}


def test_a_completed_task_is_run_again_by_a_command_that_is_accepted(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]\non_lost: fail", "c": "depends: [b]", "apart": "on_lost: fail"})
    archive.run("apart@2", "a@2")
    logs, from_a = "arkqueue logs papers@2/a", "arkqueue retry papers@2 --from a"
    assert why(archive, "a@2").commands == [logs, from_a]
    archive.claim("b@2")
    assert why(archive, "a@2").commands == [logs], "what runs is not run again beside itself"
    archive.end("b@2")
    assert why(archive, "a@2").commands == [logs, f"{from_a} --from-start"]
    run = RunId(archive.run_id(2))
    with pytest.raises(Conflict, match=f"{from_a} --from-start"):
        redo.retry_from(session, run, "a", "ann")
    redo.retry_from(session, run, "a", "ann", from_start=True)
    archive.run("a@2", "b@2", "c@2")
    archive.commit({"a": "", "c": ""})
    archive.run("c@3")
    assert why(archive, "a@2").commands == [logs], "it would replace what is newer"
    with pytest.raises(Conflict, match="papers@3/c completed"):
        redo.retry_from(session, run, "a", "ann", from_start=True)


def test_an_item_is_run_again_from_a_task_without_the_other_items(session: Session) -> None:
    archive = an_archive(session)
    both = "foreach: [x, y]"
    archive.commit({"a": both, "b": f"{both}\ndepends: [a]\non_lost: fail"})
    archive.run("a/x@2", "a/y@2", "b/x@2")
    archive.claim("b/y@2")
    assert why(archive, "a/x@2").commands[1:] == ["arkqueue retry 'papers@2/*/x' --from a --from-start"]
    assert why(archive, "a/y@2").commands[1:] == []


def test_of_some_tasks_those_behind_the_same_obstacles_are_explained_once(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"index": "", "pdf": "depends: [index]", "upload": "depends: [pdf]", "check": "", "mail": "depends: [check]"})  # fmt: skip
    archive.fail("check@2")
    archive.commit(
        {"index": "", "pdf": "depends: [index]", "upload": "depends: [pdf]", "mail": "depends: ['PREV:check']"}
    )
    tasks = [TaskId(archive.task(f"{name}@3")) for name in ("pdf", "upload", "mail")]
    tried: list[str] = []

    def is_meant(task: TaskId, told: Explanation) -> bool:
        tried.append(told.full_name)
        assert told.full_name == explain(session, task).full_name
        return bool(told.commands) and "retry" in told.commands[0]

    found = explain_first(session, [TaskId(0), *tasks], is_meant)
    assert found is not None
    assert tried == ["papers@3/pdf", "papers@3/mail"]
    assert (found[0], found[1]) == (tasks[2], explain(session, tasks[2]))
    (first, told) = explain_first(session, tasks, lambda *_: False, brief=True) or (0, None)
    assert (first, told and told.commands) == (tasks[0], [])
    assert explain_first(session, [TaskId(0)], is_meant) is None
