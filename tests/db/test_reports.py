"""Reports of runs (design 5.4, 5.32; decision 18): made when a run has settled, kept unchanged, and
followed by the changes since.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict

import pytest
from jsonschema import Draft202012Validator, ValidationError
from pydantic import TypeAdapter

from arkqueue.db.session import Session
from arkqueue.errors import ArkqueueError, Conflict, NotFound
from arkqueue.model import AttemptId, End, Outcome, RunId
from arkqueue.queue import control, deletion, finish, purge, removal
from arkqueue.queue.reports import Made, update_report
from arkqueue.views import reports as views
from arkqueue.views import runs
from arkqueue.views.reports import Report
from tests.builders import PROCESS, AnArchive, a_workflow
from tests.db.test_races import Connect, InThread, one_after_the_other


def run_of(archive: AnArchive, number: int = 2, run: int = 1) -> RunId:
    return RunId(archive.run_id(number, run))


def numbers(archive: AnArchive, number: int = 2) -> list[int]:
    return [view.number for view in views.reports(archive.session, run_of(archive, number))]


def told(archive: AnArchive, number: int | None = None) -> Report:
    return views.report(archive.session, run_of(archive), number)


def outcomes(report: Report) -> dict[str, str]:
    return {task.name: str(task.state) for task in report.tasks}


def changed(report: Report) -> set[str]:
    return {task.name for task in report.tasks if task.changed}


def is_marked(archive: AnArchive, number: int = 2) -> bool:
    """Whether the run is marked wherever it is listed."""
    page = runs.runs(archive.session, rev=number, states=list(runs.RunState))
    shown = runs.run(archive.session, run_of(archive, number))
    (listed,) = page.runs
    assert listed.changed_since_report == shown.changed_since_report
    return shown.changed_since_report


def written(archive: AnArchive) -> int:
    (row,) = archive.sql("select count(*) as n from report")
    return int(row["n"])


def test_a_run_makes_its_report_when_it_has_settled_and_writes_it_when_something_changes(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "depends: [a]", "c": ""})
    archive.fail("a@2")
    assert numbers(archive) == []
    archive.run("c@2")

    first = told(archive)
    assert (first.number, first.made_by, first.since, first.changes, str(first.state)) == (1, None, None, 3, "failed")
    assert outcomes(first) == {"a": "failed", "b": "skipped", "c": "completed"}
    assert (first.counts.tasks, first.counts.failed, first.counts.skipped, first.counts.completed) == (3, 1, 1, 1)
    assert first.tasks[1].root == "papers@2/a"
    assert written(archive) == 0
    assert not is_marked(archive)

    archive.retry("a@2")

    assert written(archive) == 1
    assert told(archive) == first, "it is kept as it was"
    assert is_marked(archive)
    archive.run("a@2", "b@2")
    assert told(archive) == first
    assert is_marked(archive)
    assert numbers(archive) == [1], "REPORT runs by itself once"


def test_an_update_says_what_has_changed_since_the_last_report(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "depends: [a]", "c": ""})
    archive.fail("a@2")
    archive.run("c@2")
    archive.retry("a@2")
    with pytest.raises(Conflict, match=r"papers@2: 2 of its tasks are not settled.*--update --now"):
        update_report(archive.session, run_of(archive), "ann")
    archive.run("a@2", "b@2")

    assert update_report(archive.session, run_of(archive), "ann") == Made(2, 2)

    second = told(archive)
    assert (second.number, second.made_by, second.since, second.changes) == (2, "ann", 1, 2)
    assert (str(second.state), changed(second)) == ("completed", {"a", "b"})
    assert not is_marked(archive)
    assert outcomes(told(archive, 1)) == {"a": "failed", "b": "skipped", "c": "completed"}
    assert update_report(archive.session, run_of(archive), "bob") == Made(3, 0)
    assert changed(told(archive)) == set()
    assert [task.name for task in told(archive).tasks] == ["a", "b", "c"]
    assert [deed.verb for deed in runs.run(archive.session, run_of(archive)).deeds] == ["retry", "report", "report"]
    with pytest.raises(NotFound, match="report 4 of papers@2: does not exist"):
        told(archive, 4)


def test_what_has_changed_comes_first(archive: AnArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then what did not complete."""
    archive.commit(dict.fromkeys("abcd", ""))
    archive.run("a@2", "b@2")
    archive.fail("c@2")
    archive.fail("d@2")
    assert [task.name for task in told(archive).tasks] == ["c", "d", "a", "b"]
    archive.retry("d@2")
    archive.run("d@2")
    update_report(archive.session, run_of(archive), "ann")
    assert [task.name for task in told(archive).tasks] == ["d", "c", "a", "b"]
    monkeypatch.setattr(views, "MOST_TASKS", 1)
    assert changed(told(archive)) == {"d"}


def test_a_report_now_tells_what_has_not_settled_and_the_run_still_makes_its_own(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": ""})
    archive.run("a@2")
    with pytest.raises(NotFound, match="papers@2: has no report yet"):
        told(archive)

    assert update_report(archive.session, run_of(archive), "ann", now=True) == Made(1, 1)

    assert (outcomes(told(archive)), told(archive).counts.unsettled) == ({"a": "completed", "b": "running"}, 1)
    archive.record(archive.running.pop(archive.task("b@2")).attempt, End.STOPPED, None)
    assert archive.state("b@2") == "ready"
    assert not is_marked(archive), "what has not settled yet has not changed"
    archive.run("b@2")
    assert not is_marked(archive), "its own report is the newest"
    assert numbers(archive) == [2, 1]
    assert (told(archive).made_by, changed(told(archive))) == (None, {"b"})
    assert outcomes(told(archive, 1)) == {"a": "completed", "b": "running"}


def test_what_a_running_attempt_says_later_is_not_in_an_earlier_report(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    attempt = archive.attempt("a@2")
    update_report(archive.session, run_of(archive), "ann", now=True)
    finish.finish(archive.session, PROCESS, [Outcome(attempt, End.EXITED, 1, "bad", {"k": "v"})])
    (then,), (since,) = told(archive, 1).tasks, told(archive, 2).tasks
    assert (then.state, then.exit_code, then.message, then.outputs) == ("running", None, "", None)
    assert (since.state, since.exit_code, since.message, since.outputs) == ("failed", 1, "bad", {"k": "v"})


@pytest.mark.parametrize("how", ["retried and the same", "waived", "waived as completed", "deleted"])
def test_what_counts_as_a_change(archive: AnArchive, how: str) -> None:
    archive.commit({"a": "", "b": "depends: [a]"})
    archive.fail("a@2")
    if how == "retried and the same":
        archive.retry("a@2")
        archive.fail("a@2")
        expected = {"a", "b"}
    elif how == "waived":
        archive.skip("a@2")
        expected = {"a"}
    elif how == "waived as completed":
        archive.skip("a@2", as_completed=True)
        archive.run("b@2")
        expected = {"a", "b"}
    else:
        deletion.delete_run(archive.session, run_of(archive), "ann")
        expected = {"a"}
    assert is_marked(archive)
    if how == "deleted":
        with pytest.raises(Conflict, match="papers@2: was deleted"):
            update_report(archive.session, run_of(archive), "ann")
        deletion.undelete_run(archive.session, run_of(archive), "ann")
        assert not is_marked(archive), "all is as it was"
        return
    update_report(archive.session, run_of(archive), "ann")
    assert changed(told(archive)) == expected
    assert not is_marked(archive)


def test_notes_and_purged_logs_change_nothing(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.fail("a@2")
    update_report(archive.session, run_of(archive), "ann")
    control.note(archive.session, "seen", "ann", run=run_of(archive))
    removal.remove(archive.session, archive.task("a@2"), "ann", "it is private", outputs=True, log=True)
    assert not is_marked(archive)


def test_a_retry_in_another_run_changes_what_was_skipped_because_of_it(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.fail("a@2")
    archive.skip("a@2")
    archive.commit({"a": "paths: [x]", "b": "depends: [a]"})
    assert archive.states()["b@3"] == "skipped"
    first = views.report(archive.session, run_of(archive, 3))
    archive.retry("a@2", force=True)
    assert is_marked(archive, 3)
    assert views.report(archive.session, run_of(archive, 3)) == first
    assert outcomes(first) == {"b": "skipped"}


def test_what_is_removed_of_a_task_is_gone_from_all_its_reports(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": ""})
    attempt = archive.attempt("a@2")
    archive.run("b@2")
    outcome = Outcome(attempt, End.EXITED, 1, "said hunter2", {"password": "hunter2"})
    finish.finish(archive.session, PROCESS, [outcome])
    update_report(archive.session, run_of(archive), "ann")
    assert [str(asdict(told(archive, number))).count("hunter2") for number in (1, 2)] == [2, 2]

    removal.remove(archive.session, archive.task("a@2"), "ann", "it printed a password", log=True, outputs=True)

    for number in (1, 2):
        report = told(archive, number)
        assert "hunter2" not in str(asdict(report))
        (task,) = [task for task in report.tasks if task.name == "a"]
        assert (task.outputs, task.message, task.outputs_left_out) == (None, "", False)
        assert "because it printed a password" in str(task.outputs_removed)
    assert not archive.sql("select from report where tasks::text like '%%hunter2%%'")


def test_a_report_has_bounds_and_says_what_it_leaves_out(archive: AnArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.commit(dict.fromkeys(("a", "b", "c", "d"), ""))
    said = {"a": {"x": "1" * 40}, "b": {"x": "2" * 2000}, "c": {"x": "3" * 40}, "d": {"x": "4" * 40}}
    for name, outputs in said.items():
        archive.end(f"{name}@2", 1 if name == "c" else 0, outputs=outputs, message=f"{name}!" * 20)
    monkeypatch.setattr(views, "MOST_OF_ONE", 1000)
    monkeypatch.setattr(views, "MOST_OF_ALL", 130)
    monkeypatch.setattr(views, "LONGEST_MESSAGE", 10)

    report = told(archive)

    assert {task.name: (task.outputs, task.outputs_left_out) for task in report.tasks} == {
        "c": (said["c"], False), "a": (said["a"], False), "b": (None, True), "d": (None, True),
    }  # fmt: skip
    assert report.tasks[0].name == "c", "those that did not complete first"
    assert {len(task.message) for task in report.tasks} == {10}
    monkeypatch.setattr(views, "MOST_TASKS", 3)
    assert ([task.name for task in told(archive).tasks], told(archive).tasks_left_out) == (["c", "a", "b"], 1)
    assert told(archive).counts.tasks == 4


def test_a_purge_takes_the_reports_with_the_run(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.fail("a@2")
    update_report(archive.session, run_of(archive), "ann")
    run = run_of(archive)
    assert written(archive) == 2
    purge.purge_runs(archive.session, [run], "ann").unless_kept()
    assert written(archive) == 0
    with pytest.raises(NotFound):
        views.report(archive.session, run)
    with pytest.raises(NotFound, match="does not exist"):
        update_report(archive.session, run, "ann")


def test_items_are_in_the_order_of_their_list(archive: AnArchive) -> None:
    archive.commit(a_workflow({"deposit": "foreach: [m9, m10, m1]"}))
    archive.run(*(f"deposit/{key}@2" for key in ("m10", "m9", "m1")))
    order = ["m9", "m10", "m1"]
    assert [task.item for task in told(archive).tasks] == order
    assert [task.item for task in told(archive, 1).tasks] == order


def test_a_baseline_has_no_report(archive: AnArchive) -> None:
    with pytest.raises(Conflict, match="papers@1: has no report"):
        update_report(archive.session, run_of(archive, 1), "ann")
    assert numbers(archive, 1) == []
    assert not is_marked(archive, 1)


def test_a_run_without_tasks_reports_that(archive: AnArchive) -> None:
    archive.commit()
    report = told(archive)
    assert (report.number, str(report.state), report.counts.tasks, report.tasks) == (1, "completed", 0, [])
    assert update_report(archive.session, run_of(archive), "ann") == Made(2, 0)


def test_reports_keep_to_their_published_schema(archive: AnArchive) -> None:
    validator = Draft202012Validator(views.json_schema(), format_checker=Draft202012Validator.FORMAT_CHECKER)
    plain = TypeAdapter(Report)
    archive.commit({"a": "", "b": "depends: [a]", "c": "", "d": "", "e": "hold: true"})
    archive.cancel("d@2")
    archive.end("a@2", 65, outputs={"n": 1, "deep": {"x": [None, "\x1b"]}}, message="\x1b[2J")
    archive.run("c@2")
    update_report(archive.session, run_of(archive), "ann", now=True)
    archive.skip("e@2")
    archive.skip("a@2", as_completed=True)
    archive.run("b@2")
    removal.remove(archive.session, archive.task("a@2"), "ann", "it is private", outputs=True)
    archive.commit()

    found = [views.report(archive.session, run_of(archive, 2), number) for number in (1, 2)]
    found.append(views.report(archive.session, run_of(archive, 3)))

    for report in found:
        validator.validate(json.loads(plain.dump_json(report)))
    with pytest.raises(ValidationError):
        validator.validate({**json.loads(plain.dump_json(found[0])), "version": 2})


# Two at once


def test_a_report_beside_the_last_end_is_of_before_or_after_it(
    session: Session, archive: AnArchive, second_connection: Connect
) -> None:
    """Whoever has the archive first decides; the other one waits for it."""
    for order in ("report first", "end first"):
        number = archive.commit({"a": ""})
        attempt = archive.attempt(f"a@{number}")
        run = run_of(archive, number)

        def end(attempt: AttemptId = attempt) -> object:
            return finish.finish(session, PROCESS, [Outcome(attempt, End.EXITED, 0)])

        def report(run: RunId = run) -> object:
            return update_report(session, run, "ann", now=True)

        first, second = (report, end) if order == "report first" else (end, report)
        race(archive, second_connection, first, second)
        found = views.reports(session, run)
        by = [view.made_by for view in reversed(found)]
        assert by == (["ann", None] if order == "report first" else [None, "ann"]), order
        assert [view.changes for view in reversed(found)] == ([0, 1] if order == "report first" else [1, 0])


def test_two_updates_at_once_are_two_reports_one_after_the_other(
    session: Session, archive: AnArchive, second_connection: Connect
) -> None:
    archive.commit({"a": ""})
    archive.fail("a@2")
    archive.retry("a@2")
    archive.run("a@2")
    run = run_of(archive)
    race(
        archive,
        second_connection,
        lambda: update_report(session, run, "ann"),
        lambda: update_report(session, run, "bob"),
    )
    found = views.reports(session, run)
    assert [(view.number, view.made_by, view.changes) for view in reversed(found)] == [
        (1, None, 1),
        (2, "ann", 1),
        (3, "bob", 0),
    ]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_retry_beside_an_update(
    session: Session, archive: AnArchive, second_connection: Connect, is_first: bool
) -> None:
    archive.commit({"a": ""})
    archive.fail("a@2")
    run = run_of(archive)

    def retry() -> object:
        return archive.retry("a@2")

    def update() -> object:
        return update_report(session, run, "ann")

    refusals = race(archive, second_connection, *((retry, update) if is_first else (update, retry)))
    if is_first:
        assert [str(error) for error in refusals if error] == [
            "papers@2: 1 of its tasks is not settled. Wait for its end, or report its present state: arkqueue report papers@2 --update --now"
        ]
        assert numbers(archive) == [1]
    else:
        assert (refusals, numbers(archive)) == ([None, None], [2, 1])
    assert outcomes(told(archive)) == {"a": "failed"}
    assert is_marked(archive)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_purge_beside_an_update(
    session: Session, archive: AnArchive, second_connection: Connect, is_first: bool
) -> None:
    archive.commit({"a": ""})
    archive.fail("a@2")
    run = run_of(archive)

    def remove() -> object:
        return purge.purge_runs(session, [run], "ann").unless_kept()

    def update() -> object:
        return update_report(session, run, "ann")

    refusals = race(archive, second_connection, *((remove, update) if is_first else (update, remove)))
    assert [type(error) for error in refusals] == [type(None), NotFound if is_first else type(None)]
    assert written(archive) == 0


def race(archive: AnArchive, connect: Connect, *acts: Callable[[], object]) -> list[ArkqueueError | None]:
    """Begin acts at once, in this order; what each raised."""
    return [refusal(thread) for thread in one_after_the_other(archive, connect, *acts)]


def refusal(thread: InThread) -> ArkqueueError | None:
    try:
        thread.result()
    except ArkqueueError as error:
        return error
    return None
