"""The rules that a committer cannot remove (design 5.22): `require-approval`, and attempts to avoid
an approval.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db.session import Session
from arkqueue.errors import Conflict, Forbidden
from arkqueue.model import ArchiveId, BranchId, PayloadKind, RunId, SourceFile, Workflow
from arkqueue.queue import archives, control, guards, holds, ledger, schedules, submissions
from arkqueue.queue.content import files_of
from arkqueue.queue.guards import Approver
from arkqueue.queue.holds import How
from arkqueue.views.explain import explain
from arkqueue.workflow.parsing import parse
from tests.builders import AnArchive, a_workflow, an_archive, an_entry

GUARDED = ArchiveSettings(process=True, require_approval=("publish", "deploy-*"))
TASKS = {"build": "", "publish": "depends: [build]"}
SOMEBODY, ANN, BOB = Approver(), Approver(("ann",)), Approver(("bob", "bo@example.org"))


@pytest.fixture
def guarded(session: Session) -> AnArchive:
    archive = an_archive(session)
    archives.change_settings(session, archive.id, GUARDED, "ann")
    return archive


def not_by_authors(archive: AnArchive) -> None:
    settings = ArchiveSettings(process=True, require_approval=("publish",), approval_not_author=True)
    archives.change_settings(archive.session, archive.id, settings, "ann")


def test_what_matches_is_held_whatever_the_file_says_and_released_by_an_approver(guarded: AnArchive) -> None:
    guarded.commit(TASKS | {"deploy-test": "hold: false", "deploy": ""})
    assert guarded.states() == {"build@2": "ready", "publish@2": "held", "deploy-test@2": "held", "deploy@2": "ready"}
    assert (
        "by papers (require-approval), until a person releases it; that takes a token of scope approve"
        in explain(guarded.session, guarded.task("publish@2")).text
    )
    for release in (
        lambda: holds.release(guarded.session, guarded.task("publish@2"), "ann"),
        lambda: holds.release(guarded.session, guarded.task("publish@2"), "ann", how=How(force=True)),
        lambda: holds.release_run(guarded.session, RunId(guarded.run_id(2)), "ann", how=How(skip_outdated=True)),
        lambda: holds.release_archive(guarded.session, guarded.id, "ann"),
    ):
        with pytest.raises(Conflict, match="is guarded by require-approval"):
            release()
    assert guarded.state("publish@2") == "held"
    holds.release(guarded.session, guarded.task("publish@2"), "bob", how=How(approver=SOMEBODY))
    guarded.run("build@2", "publish@2")
    assert "bob released it" in explain(guarded.session, guarded.task("publish@2")).text


def test_of_a_release_of_everything_only_the_guarded_stays(guarded: AnArchive) -> None:
    holds.hold_archive(guarded.session, guarded.id, "ann")
    guarded.commit(TASKS)
    holds.unhold(guarded.session, guarded.id, "ann")
    done = holds.release_archive(guarded.session, guarded.id, "ann")
    assert (done.tasks, [refused.task for refused in done.refused]) == (
        [guarded.task("build@2")],
        [guarded.task("publish@2")],
    )


@pytest.mark.parametrize("branch", ["main", "side"])
def test_no_commit_trigger_schedule_or_submission_of_any_branch_gets_around_an_approval(
    session: Session, branch: str
) -> None:
    archive = an_archive(session, branches=("main", "side"))
    archives.change_settings(session, archive.id, GUARDED, "ann")
    fields = 'schedule: "0 3 * * *"\nbranches: [main, side]\non: [commit, manual, schedule, submission]'
    archive.commit({"publish": fields}, branch=branch)
    archive.trigger(2, "publish", branch=branch)
    fire_schedules(archive)
    assert archive.states(branch=branch) == {"publish@2": "held", "publish@2.2": "held", "publish@2.3": "held"}
    assert submitted(archive, branch, 2) == {"publish": "held"}


def fire_schedules(archive: AnArchive) -> None:
    archive.sql("update schedule set next_at = now() - interval '1 minute'")
    schedules.fire(archive.session)


def test_to_leave_it_out_takes_an_approver(guarded: AnArchive) -> None:
    tasks = {"publish": "", "between": "depends: [publish]", "go": "depends: [between]"}
    guarded.commit(tasks)
    holds.release(guarded.session, guarded.task("publish@2"), "bob", how=How(approver=SOMEBODY))
    guarded.run("publish@2", "between@2", "go@2")
    guarded.commit(tasks)
    for names, without in (
        (("go",), ()),
        (("between", "go"), ()),
        (("between",), ("publish",)),
        (("go",), ("between",)),
    ):
        with pytest.raises(Forbidden, match="would leave out publish"):
            guarded.trigger(3, *names, without=without, force=True)
    guarded.trigger(3, "go", force=True, approver=SOMEBODY)
    guarded.trigger(3, "publish", "between", "go", force=True)
    assert guarded.states()["publish@3.3"] == "held"


def test_a_guard_is_asked_for_its_tasks_alone(guarded: AnArchive) -> None:
    guarded.commit(TASKS)
    build, publish = guarded.task("build@2"), guarded.task("publish@2")
    guards.refuse_unapproved(guarded.session, [build], None)
    guards.refuse_unapproved(guarded.session, [build, publish], SOMEBODY)
    with pytest.raises(Forbidden, match=r"papers@2/publish: is guarded"):
        guards.refuse_unapproved(guarded.session, [build, publish], None)
    # Also after its release, and where the guard is taken away while it is held.
    archives.change_settings(guarded.session, guarded.id, ArchiveSettings(process=True), "ann")
    with pytest.raises(Forbidden, match="is guarded"):
        guards.refuse_unapproved(guarded.session, [publish], None)
    archives.change_settings(guarded.session, guarded.id, GUARDED, "ann")
    holds.release(guarded.session, publish, "bob", how=How(approver=SOMEBODY))
    with pytest.raises(Forbidden, match="is guarded"):
        guards.refuse_unapproved(guarded.session, [publish], None)


def test_an_approved_command_is_not_restarted_without_another_approval(guarded: AnArchive) -> None:
    guarded.commit({"publish": ""})
    publish = guarded.task("publish@2")
    holds.release(guarded.session, publish, "bob", how=How(approver=SOMEBODY))
    guarded.claim("publish@2")
    with pytest.raises(Forbidden, match=r"papers@2/publish: is guarded"):
        control.restart(guarded.session, publish, "ann")
    control.restart(guarded.session, publish, "bob", approver=SOMEBODY)


def test_nobody_approves_his_own_work(guarded: AnArchive) -> None:
    not_by_authors(guarded)
    guarded.commit(TASKS, author="Ann <ann@example.org>")
    publish = guarded.task("publish@2")
    told = explain(guarded.session, publish).text
    assert "that takes a token of scope approve that stands for another person than the author" in told
    for persons in (("ann",), ("ANN@example.org",), ("Bob", "Ann  <ann@example.org>")):
        with pytest.raises(Conflict, match="require-approval --not-author, and you are the author of its"):
            holds.release(guarded.session, publish, "ann", how=How(approver=Approver(persons)))
    with pytest.raises(Conflict, match="names no person"):
        holds.release(guarded.session, publish, "ann", how=How(approver=SOMEBODY))
    with pytest.raises(Forbidden, match="you are the author"):
        guards.refuse_unapproved(guarded.session, [publish], ANN)
    holds.release(guarded.session, publish, "bob", how=How(approver=BOB))
    assert guarded.state("publish@2") == "waiting"


def test_who_waives_many_failures_waives_those_of_others(guarded: AnArchive) -> None:
    not_by_authors(guarded)
    for author in ("ann", "bob", "carl"):
        guarded.commit({"publish": ""}, author=author)
        number = guarded.numbers[""]
        holds.release(guarded.session, guarded.task(f"publish@{number}"), "eve", how=How(approver=Approver(("eve",))))
        guarded.fail(f"publish@{number}")
    until = guarded.branches[""].id, "publish", 9, "bob"
    done = control.skip_until(guarded.session, guarded.id, *until, approver=BOB)
    assert done.tasks == [guarded.task("publish@2"), guarded.task("publish@4")]
    assert [(one.task, "author of its" in one.why.fault) for one in done.refused] == [(guarded.task("publish@3"), True)]
    with pytest.raises(Forbidden, match=r"papers@3/publish: .* you are the author of its revision"):
        control.skip_until(guarded.session, guarded.id, *until, approver=BOB)


def test_a_revision_without_an_author_is_approved_by_nobody(guarded: AnArchive) -> None:
    not_by_authors(guarded)
    guarded.commit(TASKS, author="")
    with pytest.raises(Conflict, match="has no author"):
        holds.release(guarded.session, guarded.task("publish@2"), "bob", how=How(approver=BOB))


def test_a_guard_that_is_set_holds_what_has_not_started(session: Session) -> None:
    archive = an_archive(session)
    archive.commit(TASKS)
    archive.commit({"publish": "", "other": ""})
    archive.claim("publish@3")
    archive.commit({"publish": ""})
    archives.change_settings(session, archive.id, GUARDED, "ann")
    assert archive.states() == {
        "build@2": "running", "publish@2": "held", "publish@3": "running", "other@3": "running", "publish@4": "held",
    }  # fmt: skip


def test_what_was_skipped_before_the_guard_came_does_not_come_back_unapproved(session: Session) -> None:
    """Seen by the model: no guard holds what has settled, and a retry of what it needs takes no approver."""
    archive = an_archive(session)
    archive.commit(TASKS)
    archive.fail("build@2")
    assert archive.state("publish@2") == "skipped"
    archives.change_settings(session, archive.id, GUARDED, "ann")
    archive.retry("build@2")
    archive.run("build@2")
    assert archive.state("publish@2") == "held"
    holds.release(session, archive.task("publish@2"), "bob", how=How(approver=SOMEBODY))
    archive.run("publish@2")


def test_a_change_of_settings_takes_no_release_back(guarded: AnArchive) -> None:
    guarded.commit({"check": "", "publish": "depends: [check]"})
    holds.release(guarded.session, guarded.task("publish@2"), "bob", how=How(approver=SOMEBODY))
    for settings in (replace(GUARDED, tier=4), replace(GUARDED, require_approval=("publish", "check"))):
        archives.change_settings(guarded.session, guarded.id, settings, "ann")
        assert guarded.state("publish@2") == "waiting"
    assert guarded.state("check@2") == "held", "it matches from now on"


# Workflow files


AUTHORS = ArchiveSettings(process=True, require_approval=("publish",), workflow_authors=("ann", "*@example.org"))


@pytest.fixture
def watched(session: Session) -> AnArchive:
    """Its head's workflow files are accepted; mallory is none of its authors."""
    archive = an_archive(session)
    archive.commit({"build": "", "publish": "depends: [build]"})
    archives.change_settings(session, archive.id, AUTHORS, "ann")
    archive.run("build@2")
    return archive


RENAMED = {"build": "", "publisch": "depends: [build]"}


def test_who_renames_a_guarded_task_has_his_run_held_and_all_that_follow(watched: AnArchive) -> None:
    watched.commit({"build": "", "publish": "depends: [build]"}, author="mallory")  # the same files: nobody is needed
    assert watched.state("build@3") == "ready"
    watched.commit(RENAMED | {"g": "# gate"}, author="mallory")
    watched.commit(RENAMED, author="ann")  # has not changed them
    watched.commit(RENAMED | {"more": "hold: true"}, author="ann")  # adds to what mallory has changed
    for key in ("build@4", "publisch@4", "g@4", "build@5", "publisch@5", "build@6", "more@6"):
        assert watched.state(key) == "held", key
    told = explain(watched.session, watched.task("build@4"))
    assert "papers (workflow-authors), because somebody else changed its workflow files" in told.text
    for key in ("build@4", "more@6"):
        with pytest.raises(Conflict, match="is guarded by workflow-authors"):
            holds.release(watched.session, watched.task(key), "mallory", how=How(force=True))
        with pytest.raises(Forbidden, match="is guarded by workflow-authors"):
            guards.refuse_unapproved(watched.session, [watched.task(key)], None)
    watched.commit({"build": "", "publish": "depends: [build]"}, author="mallory")  # a revert needs nobody
    assert watched.state("build@7") == "ready"
    watched.commit(RENAMED | {"again": ""}, author="Ann <a@example.org>")  # and an author's own change does not
    assert watched.state("again@8") == "ready"


def test_a_gate_of_files_that_nobody_accepted_cancels_nothing_and_stands_for_no_check(watched: AnArchive) -> None:
    accepted = {
        "build": "",
        "check": "depends: [build]",
        "publish": "depends: [build]",
        "next": 'depends: ["PREV:check"]',
    }
    watched.commit(accepted)
    watched.commit(
        {
            "build": "",
            "check": "# gate",
            "sweep": 'cancels: ["PREV:publish", "PREV:check", "PREV:build"] # gate',
        },
        author="mallory",
    )
    assert {key: watched.state(key) for key in ("build@3", "check@3", "publish@3")} == {
        "build@3": "ready", "check@3": "waiting", "publish@3": "held",
    }  # fmt: skip
    assert {watched.state(key) for key in ("check@4", "sweep@4")} == {"held"}
    watched.commit(accepted)  # a revert
    assert watched.state("next@5") == "waiting", "mallory's gate is no check"
    holds.release_run(watched.session, RunId(watched.run_id(4)), "bob", how=How(approver=SOMEBODY))
    assert {watched.state(key) for key in ("check@4", "sweep@4")} == {"completed"}
    assert watched.state("publish@3") == "canceled"


def test_a_release_of_the_run_accepts_its_files(watched: AnArchive) -> None:
    watched.commit(RENAMED, author="mallory")
    holds.release(watched.session, watched.task("build@3"), "bob", how=How(approver=SOMEBODY))
    watched.commit(RENAMED, author="mallory")
    assert watched.states()["build@4"] == "held", "a task alone accepts nothing"
    done = holds.release_run(watched.session, RunId(watched.run_id(4)), "bob", how=How(approver=SOMEBODY))
    assert done.accepted == ["papers@4"]
    done = holds.release_archive(watched.session, watched.id, "bob", how=How(approver=SOMEBODY, force=True))
    assert done.accepted == [], "the files of papers@3 are older than the accepted ones"
    watched.commit(RENAMED, author="mallory")
    assert watched.states()["build@5"] == "ready"
    watched.trigger(3, "build", force=True)
    assert watched.states()["build@3.2"] == "ready", "they are accepted now"


def test_nobody_accepts_his_own_files_below_somebody_elses_commit(watched: AnArchive) -> None:
    archives.change_settings(watched.session, watched.id, replace(AUTHORS, approval_not_author=True), "ann")
    watched.commit(RENAMED, author="mallory")
    watched.commit(RENAMED, author="carl")  # has changed something else
    of_mallory, of_carl = Approver(("mallory",)), Approver(("carl",))
    for key in ("build@3", "publisch@4"):
        who = r"you are (the author|somebody who changed its workflow files)"
        with pytest.raises(Conflict, match=f"is guarded by workflow-authors and --not-author, and {who}"):
            holds.release(watched.session, watched.task(key), "mallory", how=How(approver=of_mallory))
    holds.release_run(watched.session, RunId(watched.run_id(3)), "carl", how=How(approver=of_carl))
    assert watched.state("build@3") == "ready"


def test_who_changed_the_command_of_a_guarded_task_does_not_approve_it(watched: AnArchive) -> None:
    archives.change_settings(watched.session, watched.id, replace(AUTHORS, approval_not_author=True), "ann")
    for author in ("carl", "bob"):
        watched.commit({"build": "", "publish": "command: evil"}, author=author)
    with pytest.raises(Conflict, match="and you are somebody who changed its workflow files"):
        holds.release(watched.session, watched.task("publish@4"), "carl", how=How(approver=Approver(("carl",))))
    told = explain(watched.session, watched.task("publish@4"))
    assert "Its workflow files are not accepted: somebody else changed them" in told.text
    assert told.commands == ["arkqueue release papers@4"]
    holds.release_run(watched.session, RunId(watched.run_id(4)), "dave", how=How(approver=Approver(("dave",))))
    assert "not accepted" not in explain(watched.session, watched.task("publish@4")).text


def test_who_changed_workflow_files_does_not_approve_them_on_another_branch(session: Session) -> None:
    archive = an_archive(session, branches=("main", "side"))
    archives.change_settings(session, archive.id, replace(AUTHORS, approval_not_author=True), "ann")
    archive.commit(RENAMED, branch="main", author="carl")
    archive.commit(RENAMED, branch="main", author="bob")  # has changed something else
    here = archive.numbers["main"]
    (name,) = archive.sql(
        "select name from revision where branch_id = %s and number = %s", archive.branches["main"].id, here
    )
    entry = an_entry(archive.numbers["side"] + 1, a_workflow(RENAMED), author="bob", branch="side")
    archive.append("side", [replace(entry, revision=replace(entry.revision, id=name["name"], parent="of carl"))])
    archive.commit(RENAMED, branch="side", author="eve")
    for place in (f"build@{archive.numbers['side'] - 1}", f"build@{archive.numbers['side']}"):
        task = archive.task(place, branch="side")
        with pytest.raises(Conflict, match="and you are somebody who changed its workflow files"):
            holds.release(session, task, "carl", how=How(approver=Approver(("carl",))))
        assert not [*guards.unapproved(session, [task], Approver(("dave",)))]


def test_a_release_of_a_run_of_guarded_tasks_alone_accepts_its_files(watched: AnArchive) -> None:
    watched.commit({"publish": "command: other"}, author="carl")
    holds.release_run(watched.session, RunId(watched.run_id(3)), "dave", how=How(approver=SOMEBODY))
    watched.commit({"publish": "command: other", "build": ""}, author="ann")
    assert watched.state("build@4") == "ready"


@pytest.mark.parametrize(("parent", "state"), [(RENAMED, "held"), (None, "held"), (TASKS, "ready"), ({}, "ready")])
def test_what_an_author_changed_is_what_differs_from_the_parent(
    watched: AnArchive, parent: dict[str, str] | None, state: str
) -> None:
    """After a merge or a rewrite, the ledger's previous revision is not the parent."""
    watched.commit(RENAMED, author="mallory")
    watched.commit(TASKS, author="mallory")  # back to what is accepted
    entry = an_entry(5, a_workflow(RENAMED), author="ann")
    files = None if parent is None else a_workflow(parent)
    watched.append("", [replace(entry, revision=replace(entry.revision, parent="another"), parent=files)])
    assert watched.state("build@5") == state
    watched.commit(RENAMED, author="eve")
    assert watched.state("build@6") == state


def test_a_branch_keeps_the_files_with_which_it_began(session: Session) -> None:
    archive = an_archive(session, branches=("main", "side"), tasks=a_workflow(TASKS))
    archives.change_settings(session, archive.id, AUTHORS, "ann", [begun_at("try", TASKS, "mallory")])
    started(archive, "try")
    for branch in ("main", "side"):
        archive.commit(TASKS | {"more": ""}, branch=branch, author="ann")
    archive.commit(TASKS, branch="try", author="mallory")
    assert archive.states(branch="try")["build@8"] == "ready"


def test_a_change_of_settings_is_in_the_audit_log(watched: AnArchive) -> None:
    archives.change_settings(watched.session, watched.id, replace(AUTHORS, require_approval=()), "eve")
    archives.change_settings(watched.session, watched.id, replace(AUTHORS, require_approval=()), "eve")  # nothing
    told = [(row["by"], row["note"]) for row in watched.sql("select by, note from deed where verb = 'set' order by id")]
    assert told[1:] == [("eve", 'require_approval: ["publish"] -> []')]
    assert told[0][1].startswith('require_approval: [] -> ["publish"]; workflow_authors: [] -> ')


def test_a_release_of_an_older_run_leaves_the_newer_files_accepted(watched: AnArchive) -> None:
    good = {"build": "", "publish": "depends: [build]"}
    watched.commit(RENAMED, author="mallory")
    watched.commit(good, author="mallory")  # back to what is accepted
    holds.release_run(watched.session, RunId(watched.run_id(3)), "bob", how=How(approver=SOMEBODY))
    watched.commit(good, author="mallory")
    watched.commit(RENAMED, author="mallory")
    assert (watched.state("build@5"), watched.state("build@6")) == ("ready", "held")


def test_a_list_in_a_file_is_data_and_needs_no_author(session: Session) -> None:
    def over(items: str, commands: str = "'true'", path: str = "volumes.txt") -> Workflow:
        text = f"- name: scan\n  foreach: {{file: {path}}}\n  command: {commands}\n"
        return parse([SourceFile("_workflows/scan.yaml", text.encode())], lambda file: SourceFile(file, items.encode()))

    archive = an_archive(session)
    archive.commit(over("a\nb\n"))
    archives.change_settings(session, archive.id, AUTHORS, "ann")
    archive.commit(over("a\nc\n"), author="mallory")
    assert archive.state("scan/c@3") == "ready"
    archive.commit(over("a\nc\n", commands="rm -r x"), author="mallory")
    archive.commit(over("a\nd\n", path="others.txt"), author="mallory")
    archive.commit({"scan": "foreach: [a, d]"}, author="mallory")
    assert [archive.state(f"scan/a@{number}") for number in (4, 5, 6)] == ["held"] * 3
    archive.commit(over("a\ne\n"), author="mallory")  # a revert needs nobody, whatever the list is now
    assert archive.state("scan/e@7") == "ready"


def test_files_that_an_older_version_accepted_without_counting_items_stay_accepted() -> None:
    counted = a_workflow({"tile": "foreach: [a, b]", "index": ""})
    tile, index = counted.tasks
    assert tile.foreach
    assert tile.foreach.count == 2
    older = replace(counted, tasks=(replace(tile, foreach=replace(tile.foreach, count=None)), index))
    assert files_of(counted) == files_of(older)
    assert files_of(counted) != files_of(a_workflow({"tile": "foreach: [a, b, c]", "index": ""}))


def submitted(archive: AnArchive, branch: str, number: int) -> dict[str, str]:
    """The states of the tasks of a submission to a revision of a branch."""
    payload = submissions.Payload(PayloadKind.JSON, 2, hashlib.sha256(b"[]").hexdigest())
    part = submissions.store_payload(archive.session, [b"[]"])
    at = archive.revisions[branch, number]
    made = submissions.submit(
        archive.session, ArchiveId(archive.id), archive.name, at, payload, part, {}, sender_id=None, by="mallory", head_of=None
    )  # fmt: skip
    assert made is not None
    rows = archive.sql("select name, state from task where run_id = %s and kind = 'ordinary'", made[0])
    return {row["name"]: row["state"] for row in rows}


@pytest.mark.parametrize("branch", ["main", "side"])
def test_no_commit_trigger_schedule_or_submission_of_any_branch_gets_around_the_authors(
    session: Session, branch: str
) -> None:
    archive = an_archive(session, branches=("main", "side"))
    archive.commit({"build": ""}, branch="main")
    archive.commit({"build": ""}, branch="side")
    archives.change_settings(session, archive.id, AUTHORS, "ann")
    nightly = {
        "build": "",
        "nightly": 'schedule: "0 3 * * *"\nbranches: [main, side]\non: [manual, schedule]',
        "deposit": "on: submission",
    }
    archive.commit(nightly, branch=branch, author="mallory")
    archive.trigger(3, "nightly", branch=branch)
    fire_schedules(archive)
    states = archive.states(branch=branch)
    assert {states[key] for key in ("build@3", "nightly@3.2", "nightly@3.3")} == {"held"}
    assert submitted(archive, branch, 3) == {"deposit": "held"}
    archive.trigger(2, "build", branch=branch, force=True)
    assert archive.states(branch=branch)["build@2.2"] == "ready", "these files were accepted"


def begun_at(branch: str, files: dict[str, str], author: str) -> archives.Start:
    """The start of a ledger at revision 7, which has these files."""
    return archives.Start(branch, branch == "", an_entry(7, a_workflow(files), author=author, branch=branch))


def started(archive: AnArchive, branch: str) -> None:
    """Let the builder know a branch whose ledger has begun at revision 7."""
    (row,) = archive.sql(
        "select b.id, b.head_id from branch b where b.archive_id = %s and b.name = %s and b.deleted_at is null", archive.id, branch
    )  # fmt: skip
    archive.branches[branch] = ledger.Branch(row["id"], archive.id, branch, branch == "", row["head_id"])
    archive.numbers[branch], archive.revisions[branch, 7] = 7, row["head_id"]


@pytest.mark.parametrize(("files", "author", "state"), [
    (RENAMED, "mallory", "held"), (RENAMED, "ann", "held"), ({"build": "", "publish": "depends: [build]"}, "mallory", "ready"),
])  # fmt: skip
def test_a_branch_that_is_tracked_from_now_on_begins_with_the_files_of_the_main_branch(
    watched: AnArchive, files: dict[str, str], author: str, state: str
) -> None:
    start = begun_at("try", files, author)
    archives.change_settings(watched.session, watched.id, AUTHORS, "ann", [start])
    started(watched, "try")
    watched.trigger(7, "build", branch="try")
    assert watched.states(branch="try")["build@7.2"] == state
    watched.commit(files, author="mallory", branch="try")
    assert watched.states(branch="try")["build@8"] == state


def test_a_ledger_that_is_begun_anew_accepts_no_files_of_others(watched: AnArchive) -> None:
    watched.commit(RENAMED, author="mallory")
    start = begun_at("", RENAMED, "mallory")
    archives.rewind(watched.session, ArchiveId(watched.id), BranchId(watched.branches[""].id), start, "", "ann")
    started(watched, "")
    watched.trigger(7, "build")
    assert watched.state("build@7.2") == "held"
    holds.release_run(watched.session, RunId(watched.run_id(7, 2)), "bob", how=How(approver=SOMEBODY))
    watched.commit(RENAMED, author="mallory")
    assert watched.state("build@8") == "ready", "they are accepted now"


def test_an_archive_accepts_the_files_with_which_it_is_registered(session: Session) -> None:
    first = archives.Start("", True, an_entry(7, a_workflow(RENAMED), author="mallory"))
    id = archives.register(
        session, name="books", kind="subversion", url="/srv/books", repository="/srv/books", uuid="", folder="",
        settings=AUTHORS, starts=[first],
    )  # fmt: skip
    books = AnArchive(session, id, "books")
    started(books, "")
    books.commit(RENAMED, author="mallory")
    assert books.state("build@8") == "ready"
    books.commit(RENAMED | {"more": ""}, author="mallory")
    assert books.state("more@9") == "held"


def test_several_revisions_of_one_scan_are_judged_one_after_the_other(watched: AnArchive) -> None:
    good, bad = a_workflow({"build": ""}), a_workflow(RENAMED)
    authors = ("ann", "mallory", "ann", "ann")
    entries = [
        an_entry(3 + n, files, author=who)
        for n, (files, who) in enumerate(zip((good, bad, good, bad), authors, strict=True))
    ]
    watched.append("", entries)
    states = watched.states()
    assert [states[f"build@{number}"] for number in range(3, 7)] == ["ready", "held", "ready", "ready"]
