"""What persons do by hand: runs of old revisions, and retries (design 5.18, 5.19), restarts, stops and
deletions.
"""

from __future__ import annotations

import pytest

from arkqueue.errors import Conflict, Invalid
from arkqueue.model import End, RunId, TaskId
from arkqueue.queue import control, deletion, holds
from arkqueue.views import runs
from tests.builders import AnArchive
from tests.db.shapes import CHAIN, DIAMOND, STRICT, two


def run_state(archive: AnArchive, number: int, run: int = 1) -> str:
    return str(runs.run(archive.session, RunId(archive.run_id(number, run))).state)


SENT = {"upload": "", "tell": "depends: [upload]"}


def notes(archive: AnArchive) -> list[tuple[str, str]]:
    return [(row["verb"], row["note"]) for row in archive.sql("select verb, note from deed order by id")]


def test_an_older_revision_replaces_the_work_of_a_newer_one_only_by_force(archive: AnArchive) -> None:
    archive.commit(SENT)
    archive.commit(SENT)
    archive.fail("upload@2")
    archive.run("upload@3", "tell@3")
    with pytest.raises(
        Conflict, match="would replace the work of later revisions: papers@3/tell, papers@3/upload"
    ) as no:
        archive.retry("upload@2")
    assert no.value.remedy == "to go back on purpose: arkqueue retry papers@2/upload --force"
    with pytest.raises(Conflict, match="papers@3/upload completed") as no:
        archive.trigger(2, "upload")
    assert no.value.remedy == "to go back on purpose: arkqueue trigger papers --revision 2 --force upload"
    with pytest.raises(Conflict, match="papers@3/tell completed") as no:
        archive.trigger(2, "tell", without=["upload"])
    assert no.value.remedy.endswith(": arkqueue trigger papers --revision 2 --force --without upload tell")
    with pytest.raises(Conflict, match="papers@3/tell completed"):
        archive.skip("upload@2", as_completed=True)
    assert archive.states() == {
        "upload@2": "failed",
        "tell@2": "skipped",
        "upload@3": "completed",
        "tell@3": "completed",
    }
    archive.trigger(2, "upload", by="ann", force=True)
    archive.retry("upload@2", force=True)
    assert (archive.state("upload@2.2"), archive.state("upload@2")) == ("ready", "ready")
    assert notes(archive) == [("trigger", "--force upload"), ("retry", "--force")]


def test_only_a_later_completion_of_the_same_program_is_in_the_way(archive: AnArchive) -> None:
    archive.commit({"upload": "", "all": "depends: [upload]\n# gate"})
    archive.commit({"upload": "", "all": "depends: [upload]\n# gate", "other": ""})
    archive.fail("upload@2", "upload@3")
    archive.run("other@3")
    archive.trigger(2, "upload")
    archive.retry("upload@2")
    archive.run("upload@2", "upload@2.2")
    archive.retry("upload@3")


def test_an_automatic_retry_goes_on_beside_a_later_completion(archive: AnArchive) -> None:
    tasks = {"upload": "retries: 1"}
    archive.commit(tasks)
    archive.commit(tasks)
    archive.fail("upload@2")
    archive.run("upload@3")
    assert archive.state("upload@2") == "deferred"
    archive.retry("upload@2")
    assert archive.state("upload@2") == "ready", "it is only tried sooner"


def test_a_dependency_that_is_not_part_of_a_manual_run_is_its_nearest_occurrence(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "depends: [a]"})
    archive.trigger(2, "b")
    assert archive.state("b@2.2") == "waiting"
    archive.run("a@2")
    assert archive.state("b@2.2") == "ready"
    archive.commit({"b": "depends: [a]", "a": "paths: ['docs/*']"})
    archive.trigger(3, "b")
    assert archive.state("b@3.2") == "ready", "the product of revision 2's a"


def test_a_product_that_failed_is_waited_for_until_its_task_is_mended(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "depends: [a]", "c": "depends: [b]"})
    archive.fail("a@2")
    archive.trigger(2, "c")
    assert archive.states()["c@2.2"] == "waiting", "b was skipped because of a failure"
    archive.retry("a@2")
    archive.run("a@2", "b@2")
    assert archive.state("c@2.2") == "ready"


@pytest.mark.parametrize("end", ["rejected", "canceled", "superseded", "skipped", "waived", "deleted"])
def test_a_task_whose_product_will_not_come_is_skipped_and_its_run_has_failed(archive: AnArchive, end: str) -> None:
    archive.commit({"a": "cancels: [PREV]", "b": "depends: [a]", "c": "depends: [b]"})
    archive.trigger(2, "b")
    archive.trigger(2, "c")
    if end == "rejected":
        archive.end("a@2", 65)
    elif end == "superseded":
        archive.commit({"a": "cancels: [PREV]"})
    elif end in ("waived", "deleted"):
        archive.fail("a@2")
        assert archive.states()["b@2.2"] == "waiting"
        if end == "waived":
            archive.skip("a@2")
        else:
            deletion.delete_run(archive.session, RunId(archive.run_id(2)), "ann")
    else:
        (archive.cancel if end == "canceled" else archive.skip)("a@2")
    assert [archive.state(key) for key in ("b@2.2", "c@2.3")] == ["skipped", "skipped"]
    assert [run_state(archive, 2, run) for run in (2, 3)] == ["failed", "failed"]
    with pytest.raises(Conflict, match="b needs papers@2/a, which"):
        archive.trigger(2, "b")
    archive.trigger(2, "b", without=["a"])
    assert archive.state("b@2.4") == "ready"


def test_what_was_skipped_for_want_of_a_product_comes_back_with_its_source(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "depends: [a]", "c": "depends: [b]"})
    archive.trigger(2, "b", "c")
    archive.cancel("a@2")
    assert [archive.state(key) for key in ("b@2", "b@2.2", "c@2.2")] == ["skipped"] * 3
    archive.retry("a@2")
    assert [archive.state(key) for key in ("b@2", "b@2.2", "c@2.2")] == ["waiting"] * 3
    archive.run("a@2", "b@2", "b@2.2", "c@2", "c@2.2")
    assert (run_state(archive, 2), run_state(archive, 2, 2)) == ("completed", "completed")


def test_of_two_products_that_will_not_come_each_has_to_be_mended(archive: AnArchive) -> None:
    archive.commit({"a": "", "d": "", "b": "on: [manual]\ndepends: [a, d]"})
    archive.trigger(2, "b")
    archive.cancel("a@2")
    archive.cancel("d@2")
    archive.retry("a@2")
    assert archive.state("b@2.2") == "skipped", "because of d now"
    archive.retry("d@2")
    assert archive.state("b@2.2") == "waiting"
    archive.run("a@2", "d@2")
    assert archive.state("b@2.2") == "ready"


def test_a_canceled_task_is_not_retried_without_the_product_that_it_needs(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "on: [manual]\ndepends: [a]"})
    archive.trigger(2, "b")
    archive.cancel("b@2.2")
    archive.cancel("a@2")
    with pytest.raises(Conflict, match="needs papers@2/a, which is canceled"):
        archive.retry("b@2.2")
    archive.retry("a@2")
    archive.retry("b@2.2")
    assert archive.state("b@2.2") == "waiting"


def test_a_product_that_is_waived_as_completed_is_taken(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "depends: [a]"})
    archive.fail("a@2")
    archive.trigger(2, "b")
    archive.skip("a@2", as_completed=True)
    assert [archive.state(key) for key in ("b@2", "b@2.2")] == ["ready", "ready"]


def test_what_only_waits_for_any_end_takes_no_product(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "depends: [{task: a, when: settled}]"})
    archive.trigger(2, "b")
    archive.cancel("a@2")
    assert archive.state("b@2.2") == "ready"


def test_a_commit_run_does_not_go_out_without_the_product_that_its_filters_left_out(archive: AnArchive) -> None:
    tasks = {"pdf": "paths: ['docs/*']", "upload": "depends: [pdf]"}
    archive.commit(tasks, changed=["docs/a"])
    archive.commit(tasks, changed=["src/b"])
    archive.cancel("pdf@2")
    assert (archive.state("upload@3"), run_state(archive, 3)) == ("skipped", "failed")
    archive.commit(tasks, changed=["src/c"])
    assert (archive.state("upload@4"), run_state(archive, 4)) == ("skipped", "failed")
    archive.retry("pdf@2")
    archive.run("pdf@2", "upload@2", "upload@3", "upload@4")


def test_a_canceled_task_holds_up_nobody_with_the_product_that_it_needed(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "on: [manual]\ndepends: [a]"})
    archive.fail("a@2")
    archive.trigger(2, "b")
    archive.cancel("b@2.2")
    archive.commit({"b": "depends: [PREV]"})
    assert archive.state("b@3") == "ready"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("b", "leave out the dependency: --without a"), ("c", "name b too, or leave out the dependency: --without b")],
)
def test_a_dependency_that_has_never_run_is_named(archive: AnArchive, name: str, remedy: str) -> None:
    archive.commit(
        {
            "a": "on: [schedule]\nschedule: '0 3 * * *'",
            "b": "on: [manual]\ndepends: [a]",
            "c": "depends: [b]\non: [manual]",
        }
    )
    with pytest.raises(Conflict, match=r"papers@2: . needs ., which has never run on this branch") as refused:
        archive.trigger(2, name)
    assert refused.value.remedy == remedy


def test_a_list_that_did_not_complete_is_named_and_not_its_gate(archive: AnArchive) -> None:
    """Nobody can name the gate of a list, `fetch:completed`, with `--without`."""
    archive.commit({"fetch": "foreach: [x, y]", "index": "depends: [fetch]"})
    archive.cancel("fetch/y@2")
    archive.run("fetch/x@2")
    with pytest.raises(
        Conflict, match=r"index needs all of papers@2/fetch/\*, and not all of them completed"
    ) as refused:
        archive.trigger(2, "index")
    assert refused.value.remedy == "name fetch too, or leave out the dependency: --without fetch"


def test_an_unknown_task_is_answered_with_the_nearest_name(archive: AnArchive) -> None:
    archive.commit({"indexing": ""})
    with pytest.raises(Invalid, match="did you mean indexing"):
        archive.trigger(2, "indexng")


def test_a_retry_after_later_tasks_have_started_is_refused_unless_forced(archive: AnArchive) -> None:
    two(archive).fail("a@2")
    archive.skip("a@2")
    archive.claim("a@3")
    with pytest.raises(Conflict, match="papers@3/a"):
        archive.retry("a@2")
    archive.retry("a@2", force=True)
    assert archive.state("a@2") == "ready"
    assert archive.state("a@3") == "running"


def test_in_strict_order_a_failed_task_is_retried_as_long_as_nothing_started_behind_it(archive: AnArchive) -> None:
    tasks = STRICT | {"a": "depends: [PREV]", "b": "depends: [PREV]"}
    archive.commit(tasks)
    archive.commit(tasks)
    archive.run("b@2")
    archive.fail("a@2")
    assert archive.states() == {"a@2": "failed", "b@2": "completed", "a@3": "waiting", "b@3": "ready"}
    archive.retry("a@2")
    archive.fail("a@2")
    archive.claim("b@3")
    with pytest.raises(Conflict, match="papers@3/b"):
        archive.retry("a@2")


def test_restart_makes_another_attempt_without_settling(archive: AnArchive) -> None:
    archive.commit(CHAIN)
    archive.claim("a@2")
    archive.restart("a@2")
    archive.end("a@2", None, End.STOPPED)
    assert archive.states() == {"a@2": "ready", "b@2": "waiting"}
    assert archive.claim("a@2").attempt_number == 2


def test_a_cancel_overrules_a_restart_and_not_the_other_way_round(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.claim("a@2")
    archive.restart("a@2")
    archive.cancel("a@2")
    with pytest.raises(Conflict, match="being canceled"):
        archive.restart("a@2")
    archive.end("a@2", None, End.STOPPED)
    assert archive.state("a@2") == "canceled"


def test_implicit_tasks_cannot_be_touched(archive: AnArchive) -> None:
    archive.commit({"a": "exclusive: true"})
    archive.commit({"a": ""})
    for verb in (archive.cancel, archive.retry, archive.skip):
        with pytest.raises(Conflict, match="exists in every run"):
            verb("COMMIT@3")
    again = r"REPORT: exists in every run and cannot be .*\. send a further report: arkqueue report papers@3 --update"
    for verb in (archive.retry, archive.restart):
        with pytest.raises(Conflict, match=again):
            verb("REPORT@3")


def test_cancel_of_a_run_leaves_commit_and_report_alone(archive: AnArchive) -> None:
    archive.commit(DIAMOND)
    control.cancel_run(archive.session, archive.run_id(2), "ann")
    assert set(archive.states().values()) == {"canceled"}
    assert archive.state("COMMIT@2") == archive.state("REPORT@2") == "completed"


def test_what_people_did_is_kept(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.cancel("a@2")
    archive.retry("a@2")
    deeds = archive.sql("select verb, by, task_id, note from deed order by id")
    assert deeds == [{"verb": v, "by": "ann", "task_id": archive.task("a@2"), "note": ""} for v in ("cancel", "retry")]


def test_what_was_forced_is_kept_as_such(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.cancel("a@2")
    archive.retry("a@2", force=True)
    archive.fail("a@2")
    archive.skip("a@2", as_completed=True, force=True)
    deeds = archive.sql("select verb, note from deed order by id")
    assert deeds == [
        {"verb": "cancel", "note": ""},
        {"verb": "retry", "note": "--force"},
        {"verb": "skip", "note": "--as-completed --force"},
    ]


def test_a_deleted_run_does_not_block(archive: AnArchive) -> None:
    two(archive).fail("a@2")
    deletion.delete_run(archive.session, archive.run_id(2), "ann")
    assert archive.state("a@3") == "ready"
    with pytest.raises(Conflict, match="deleted already"):
        deletion.delete_run(archive.session, archive.run_id(2), "ann")


def test_a_run_of_which_a_task_runs_cannot_be_deleted(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "depends: [a]"})
    archive.claim("a@2")
    with pytest.raises(Conflict, match=r"papers@2/a is running\. arkqueue cancel papers@2, and delete it when"):
        deletion.delete_run(archive.session, archive.run_id(2), "ann")
    assert archive.states() == {"a@2": "running", "b@2": "waiting"}


def test_what_is_not_settled_of_a_deleted_run_is_canceled_and_comes_back_as_held(archive: AnArchive) -> None:
    archive.commit({"a": "hold: true", "b": "depends: [a]", "bad": "", "late": "", "gate": "depends: [b]\n# gate"})
    archive.commit({"x": "depends: ['PREV:bad']", "y": "depends: ['PREV:b']"})
    archive.fail("bad@2")
    archive.end("late@2", 75)
    run = RunId(archive.run_id(2))
    deletion.delete_run(archive.session, run, "ann")
    assert archive.states() == {
        "a@2": "canceled", "b@2": "canceled", "bad@2": "failed", "late@2": "canceled", "gate@2": "canceled", "x@3": "ready", "y@3": "ready",
    }  # fmt: skip
    deletion.undelete_run(archive.session, run, "ben")
    assert archive.states() == {
        "a@2": "held", "b@2": "held", "bad@2": "failed", "late@2": "held", "gate@2": "held", "x@3": "ready", "y@3": "ready",
    }  # fmt: skip
    assert archive.sql("select name from task where waived") == []
    with pytest.raises(Conflict, match="is not deleted"):
        deletion.undelete_run(archive.session, run, "ben")
    holds.release_run(archive.session, run, "ben")
    assert archive.states()["a@2"] == "ready"


def test_a_run_whose_commit_waits_is_deleted_and_later_ones_still_come_after_it(archive: AnArchive) -> None:
    archive.commit({"a": "exclusive: true"})
    archive.commit({"b": ""})
    archive.commit({"c": ""})
    deletion.delete_run(archive.session, RunId(archive.run_id(3)), "ann")
    assert archive.states() == {"a@2": "ready", "b@3": "canceled", "c@4": "waiting"}
    archive.run("a@2")
    assert archive.state("c@4") == "ready"


def test_what_was_retried_elsewhere_while_its_run_was_deleted_is_judged_again(archive: AnArchive) -> None:
    """A deleted run is not judged again when the root of its skipped tasks is retried."""
    archive.commit({"a": "", "b": "depends: [a]"})
    archive.trigger(2, "b")
    control.cancel(archive.session, TaskId(archive.task("a@2")), "ann")
    assert archive.states() == {"a@2": "canceled", "b@2": "skipped", "b@2.2": "skipped"}
    deletion.delete_run(archive.session, RunId(archive.run_id(2, 2)), "ann")
    archive.retry("a@2")
    assert archive.states() == {"a@2": "ready", "b@2": "waiting", "b@2.2": "skipped"}
    deletion.undelete_run(archive.session, RunId(archive.run_id(2, 2)), "ann")
    assert archive.states() == {"a@2": "ready", "b@2": "waiting", "b@2.2": "held"}


def test_what_a_deleted_task_skipped_comes_back_with_its_root_although_that_was_deleted_later(
    archive: AnArchive,
) -> None:
    """b@4 was skipped because of the deleted c@3. It is skipped because of a@2 once c@3 is back."""
    archive.commit({"a": ""})
    archive.cancel("a@2")
    archive.commit({"c": "depends: [{task: 'PREV:a', when: failed}]"})
    runs = [RunId(archive.run_id(number)) for number in (3, 2)]
    deletion.delete_run(archive.session, runs[0], "ann")
    archive.commit({"b": "depends: [{task: 'PREV:c', when: failed}]"})
    deletion.delete_run(archive.session, runs[1], "ann")
    for run in runs:
        deletion.undelete_run(archive.session, run, "ann")
    assert archive.states() == {"a@2": "canceled", "c@3": "skipped", "b@4": "skipped"}
    archive.retry("a@2")
    assert archive.states() == {"a@2": "ready", "c@3": "waiting", "b@4": "waiting"}


def test_a_rerun_takes_its_place_right_after_the_original(archive: AnArchive) -> None:
    archive.commit(CHAIN)
    archive.run("a@2", "b@2")
    archive.commit(CHAIN)
    archive.trigger(2)
    sources = archive.sql(
        "select s.number, s.run from edge e join task s on s.id = e.source where e.target = %s and e.crossing",
        archive.task("a@2.2"),
    )
    assert sources == [{"number": 2, "run": 1}]
    archive.commit(CHAIN)
    sources = archive.sql(
        "select s.number, s.run from edge e join task s on s.id = e.source where e.target = %s and e.crossing",
        archive.task("a@4"),
    )
    assert sources == [{"number": 3, "run": 1}]
