"""The data that people read: runs and their computed states, tasks, archives, and task managers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from arkqueue.db.session import Session
from arkqueue.errors import NotFound
from arkqueue.model import ArchiveId, BranchId, RunId, Trigger
from arkqueue.queue import archives, claim, control, deletion
from arkqueue.states import State
from arkqueue.views import find, installation
from arkqueue.views import runs as run_views
from arkqueue.views import tasks as task_views
from arkqueue.views.archives import archive as show_archive
from arkqueue.views.archives import archives as show_archives
from arkqueue.views.attempts import attempt
from arkqueue.views.cells import cells_of
from arkqueue.views.runs import RunState
from tests.builders import AnArchive, a_workflow, an_archive, faulty
from tests.db.shapes import short

PageThrough = Callable[..., list[str]]

CHAIN = {"a": "", "b": "depends: [a]", "c": "depends: [b]"}


def state(archive: AnArchive, number: int, run: int = 1) -> RunState:
    return run_views.run(archive.session, RunId(archive.run_id(number, run))).state


def names(page: run_views.RunPage) -> list[str]:
    return [view.full_name for view in page.runs]


# Runs


def test_state_of_a_run_follows_its_tasks(session: Session) -> None:
    archive = an_archive(session)
    archive.commit(CHAIN)
    assert state(archive, 1) is RunState.COMPLETED
    assert state(archive, 2) is RunState.PENDING
    archive.claim("a@2")
    assert state(archive, 2) is RunState.PROCESSING
    archive.run("a@2")
    assert state(archive, 2) is RunState.PROCESSING
    archive.fail("b@2")
    view = run_views.run(session, RunId(archive.run_id(2)))
    assert view.state is RunState.FAILED
    assert (view.counts.completed, view.counts.failed, view.counts.skipped) == (1, 1, 1)
    assert view.settled_at is not None
    archive.skip("b@2")
    assert state(archive, 2) is RunState.COMPLETED


def test_failure_is_no_failed_run_before_all_is_settled(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    archive.fail("a@2")
    assert state(archive, 2) is RunState.PROCESSING
    archive.run("b@2")
    assert state(archive, 2) is RunState.FAILED


def test_rejected_tasks_fail_their_run(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.end("a@2", 65)
    assert state(archive, 2) is RunState.FAILED


def test_faults_fail_a_run_and_are_told(session: Session) -> None:
    archive = an_archive(session)
    archive.commit(faulty())
    view = run_views.run(session, RunId(archive.run_id(2)))
    assert view.state is RunState.FAILED
    assert view.faults == list(faulty().faults)


def test_canceled_run_is_canceled_and_deleted_run_is_deleted(session: Session) -> None:
    archive = an_archive(session)
    archive.commit(CHAIN)
    control.cancel_run(session, RunId(archive.run_id(2)), "ann")
    view = run_views.run(session, RunId(archive.run_id(2)))
    assert (view.state, view.canceled_by) == (RunState.CANCELED, "ann")
    deletion.delete_run(session, RunId(archive.run_id(2)), "bob")
    view = run_views.run(session, RunId(archive.run_id(2)))
    assert (view.state, view.deleted_by) == (RunState.DELETED, "bob")
    assert [task.name for task in view.tasks] == ["COMMIT", "a", "b", "c"]
    assert [(deed.by, deed.verb) for deed in view.deeds] == [("ann", "cancel"), ("bob", "delete")]


def test_run_counts_what_was_superseded(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"pdf": "cancels: [PREV]"})
    archive.commit({"pdf": "cancels: [PREV]"})
    view = run_views.run(session, RunId(archive.run_id(2)))
    assert (view.state, view.counts.canceled, view.counts.superseded) == (RunState.SUPERSEDED, 1, 1)
    assert view.tasks[1].why == "superseded by papers@3/pdf"


def test_run_of_which_a_person_canceled_something_is_canceled(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    archive.cancel("a@2")
    assert state_of(archive) == RunState.PENDING
    archive.run("b@2")
    assert state_of(archive) == RunState.CANCELED
    archive.retry("a@2")
    archive.run("a@2")
    assert state_of(archive) == RunState.COMPLETED


def test_run_whose_tasks_supersede_each_other_completes(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"old": "", "new": "cancels: [old]"})
    archive.run("new@2")
    assert archive.states() == {"old@2": "canceled", "new@2": "completed"}
    assert state_of(archive) == RunState.COMPLETED


def test_gates_begin_no_run(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"gate": "# gate", "a": ""})
    assert archive.state("gate@2") == "completed"
    assert state_of(archive) == RunState.PENDING


def state_of(archive: AnArchive) -> RunState:
    return run_views.run(archive.session, RunId(archive.run_id(2))).state


def test_list_of_runs_has_pages_newest_first(session: Session) -> None:
    archive = an_archive(session)
    for _ in range(6):
        archive.commit({"a": ""})
    first = run_views.runs(session, limit=3)
    assert names(first) == ["papers@7", "papers@6", "papers@5"]
    second = run_views.runs(session, limit=3, before=first.next)
    assert names(second) == ["papers@4", "papers@3", "papers@2"]
    last = run_views.runs(session, limit=3, before=second.next)
    assert (names(last), last.next) == (["papers@1"], None)


def test_list_of_runs_is_filtered(session: Session) -> None:
    papers, books = an_archive(session), an_archive(session, "books", branches=("main", "topic"))
    papers.commit({"a": ""})
    books.commit({"a": ""}, branch="main")
    books.commit({"a": ""}, branch="topic")
    papers.trigger(2)
    of_books = [ArchiveId(books.id)]
    assert names(run_views.runs(session, archives=of_books)) == ["books:topic@2", "books@2", "books:topic@1", "books@1"]
    assert names(run_views.runs(session, archives=[])) == []
    topic = find.find_branch(session, ArchiveId(books.id), "topic", "books")
    assert names(run_views.runs(session, archives=of_books, branch=topic)) == ["books:topic@2", "books:topic@1"]
    assert names(run_views.runs(session, trigger=Trigger.MANUAL)) == ["papers@2.2"]
    assert names(run_views.runs(session, archives=[ArchiveId(papers.id)], rev=2)) == ["papers@2.2", "papers@2"]
    (row,) = papers.sql("select created_at from run where id = %s", papers.run_id(2, 2))
    assert names(run_views.runs(session, since=row["created_at"])) == ["papers@2.2"]


def test_list_of_runs_by_state_looks_on_until_the_page_is_full(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.fail("a@2")
    for _ in range(4):
        archive.commit({})
    archive.commit({"a": ""})
    assert names(run_views.runs(session, states=[RunState.FAILED], limit=1)) == ["papers@2"]
    assert names(run_views.runs(session, states=[RunState.PENDING])) == ["papers@7"]
    done = run_views.runs(session, states=[RunState.COMPLETED], limit=2)
    assert names(done) == ["papers@6", "papers@5"]
    assert names(run_views.runs(session, states=[RunState.COMPLETED], limit=2, before=done.next)) == [
        "papers@4",
        "papers@3",
    ]


def test_list_by_state_stops_looking_and_says_where_to_go_on(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_views, "MOST_LOOKED_AT", 100)
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.fail("a@2")
    for _ in range(120):
        archive.commit({})
    page = run_views.runs(session, states=[RunState.FAILED], limit=10)
    assert page.runs == []
    assert page.next is not None
    assert names(run_views.runs(session, states=[RunState.FAILED], limit=10, before=page.next)) == ["papers@2"]


def test_page_with_tasks_has_them_in_the_order_of_the_files(session: Session) -> None:
    archive = an_archive(session)
    archive.commit(CHAIN)
    assert [view.tasks for view in run_views.runs(session).runs] == [None, None], "nobody asked for them"
    (view, _) = run_views.runs(session, tasks=True).runs
    assert view.tasks is not None
    assert [(t.name, t.state) for t in view.tasks] == [
        ("COMMIT", State.COMPLETED), ("a", State.READY), ("b", State.WAITING), ("c", State.WAITING)
    ]  # fmt: skip


def test_cells_say_what_their_tasks_wait_for_as_all_views_do(session: Session) -> None:
    """Cells have the edges of their tasks at hand, other views ask for what is unmet: both have to find the same."""
    archive = an_archive(session)
    for _ in range(2):
        archive.commit(
            {"a": "depends: [PREV]", "b": "depends: [a]", "c": "depends: [PREV, {task: a, when: settled}, b]\ncancels: [PREV]", "all": "exclusive: true"}
        )  # fmt: skip
    archive.run("a@2")
    listed = run_views.runs(session, archives=[archive.id], tasks=True).runs
    cells = cells_of(session, listed)
    found = {cell.task.full_name: cell.task.why for of in cells.runs.values() for cell in of}
    asked = {task.full_name: task.why for run in listed for task in run.tasks or () if task.full_name in found}
    assert found == asked
    assert {name: asked[f"papers@{name}"] for name in ("2/c", "3/b", "3/c")} == {
        "2/c": "for papers@2/b",
        "3/b": "for papers@3/COMMIT and 1 more",
        "3/c": "for papers@2/c and 3 more",
    }


@pytest.fixture(params=[(40, 50), (1, 1)], ids=["newest runs", "older runs"])
def page_through(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, session: Session) -> PageThrough:
    """Finds runs on the main branch of an archive, page by page."""
    nearest, limit = request.param
    monkeypatch.setattr(run_views, "NEAREST", nearest)

    def find(archive: AnArchive, *, before: int | None = None, **asked: Any) -> list[str]:
        found, branch = list[str](), BranchId(archive.branches[""].id)
        while True:
            page = run_views.matching_runs(session, branch, before=before, limit=limit, **asked)
            found += [short(name) for name in names(page)]
            if (before := page.next) is None:
                return found

    return find


def test_the_runs_of_a_task_are_found_however_old_they_are(session: Session, page_through: PageThrough) -> None:
    archive = an_archive(session)
    for tasks in ({"old": ""}, {"old": "", "both": ""}, {"both": ""}, {"tile": "foreach: [a, b]"}, {"both": ""}):
        archive.commit(tasks)
    archive.run("old@2")
    assert page_through(archive, task="old") == ["3", "2"]
    assert page_through(archive, task="both") == ["6", "4", "3"]
    assert page_through(archive, task="both", before=archive.run_id(4)) == ["3"]
    assert page_through(archive, task="tile") == ["5"]
    assert page_through(archive, task="old", task_state=State.COMPLETED) == ["2"]
    assert page_through(archive, task="both", words="nothing") == page_through(archive, task="none") == []


def test_runs_are_found_by_words_however_old_they_are(session: Session, page_through: PageThrough) -> None:
    archive = an_archive(session, branches=["", "draft"])
    for author in ("ben", "ann", "ben", "ann", "ann"):
        archive.commit(author=author)
        archive.commit(author="ben", branch="draft")
    assert page_through(archive, words="'ben':*") == ["4", "2"]
    assert page_through(archive, words="'ann':*") == ["6", "5", "3", "1"]
    assert page_through(archive, words="'ann':*", before=archive.run_id(5)) == ["3", "1"]
    assert page_through(archive, words="'change':* & '4':*") == ["4"]
    assert page_through(archive, words="'change':* & 'ben':*", author="'ben':*") == ["4", "2"]
    assert page_through(archive, words="'ann':*", states=[RunState.COMPLETED]) == ["6", "5", "3", "1"]
    assert page_through(archive, words="'ann':*", states=[RunState.FAILED]) == []
    assert page_through(archive, words="'change':*", author="'change':*") == page_through(archive, words="'no':*") == []
    archive.sql("update run set deleted_at = now() where id = %s", archive.run_id(2))
    assert page_through(archive, words="'ben':*") == ["4"]


# Tasks


def test_task_tells_its_root_its_attempts_and_what_people_did(session: Session) -> None:
    archive = an_archive(session)
    archive.commit(CHAIN)
    archive.fail("a@2")
    assert task_views.task(session, archive.task("c@2")).why == "because of papers@2/a"
    archive.retry("a@2")
    archive.end("a@2", 0, outputs={"pages": "12"})
    view = task_views.task(session, archive.task("a@2"))
    assert [(a.number, a.end, a.exit_code, a.outputs) for a in view.history] == [
        (1, "exited", 1, None), (2, "exited", 0, {"pages": "12"})
    ]  # fmt: skip
    assert [(d.by, d.verb) for d in view.deeds] == [("ann", "retry")]
    assert view.definition is not None
    assert view.definition["command"] == "true"
    assert attempt(session, claim_id(view)).number == 2


def claim_id(view: task_views.TaskDetail) -> Any:
    return view.attempt


def test_unknown_ids_are_not_found(session: Session) -> None:
    for look in (task_views.task, attempt, run_views.run):
        with pytest.raises(NotFound):
            look(session, 999)  # type: ignore[operator]


# Archives


def test_archive_shows_its_head_its_notice_and_its_schedules(session: Session) -> None:
    archive = an_archive(session)
    archive.commit(a_workflow("- {name: nightly, command: run, schedule: '0 3 * * *'}"))
    archives.notify(session, [ArchiveId(archive.id)], "12")
    (view,) = show_archives(session)
    assert [(b.name, b.main, b.rev) for b in view.branches] == [("", True, 2)]
    assert view.notice is not None
    assert (view.notice.revision, view.notice.expected) == ("12", False)
    assert [(s.cron, s.tasks) for s in view.schedules] == [("0 3 * * *", ["nightly"])]
    assert (view.stopped, view.trouble, view.remedy) == (None, None, "")
    assert view.settings.process


def test_archive_in_trouble_names_the_remedy(session: Session) -> None:
    archive = ArchiveId(an_archive(session).id)
    archives.read_failed(session, archive, "the server does not answer", 5.0)
    view = show_archive(session, archive)
    assert (view.trouble, view.remedy) == ("the server does not answer", "arkqueue sync papers")
    archives.stop(session, archive, "it went back in time")
    view = show_archive(session, archive)
    assert (view.stopped, view.remedy) == ("it went back in time", "arkqueue archive rewind papers REV")


def test_removed_archive_is_not_listed_and_stays_readable(session: Session) -> None:
    archive = an_archive(session)
    archives.remove(session, ArchiveId(archive.id), "ann")
    assert show_archives(session) == []
    assert show_archive(session, find.find_archive(session, "papers")).removed_at is not None
    assert find.find_run(session, "papers@1") == archive.run_id(1)


def test_task_says_shortly_what_it_waits_for_and_what_was_wrong_although_it_completed(session: Session) -> None:
    archive = an_archive(session)
    tasks = {"a": "", "b": "depends: [a, PREV]", "c": "depends: [b]"}
    archive.commit(tasks)
    archive.commit(tasks)
    archive.end("a@2", message="OUTPUT is a fifo: write a regular file")
    shown = [run_views.run(session, RunId(archive.run_id(number))) for number in (2, 3)]
    assert [[task.why for task in run.tasks[1:]] for run in shown] == [
        ["OUTPUT is a fifo: write a regular file", "", "for papers@2/b"],
        ["", "for papers@2/b and 1 more", "for papers@3/b"],
    ]


def test_what_was_done_to_a_run_names_the_tasks(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    archive.cancel("b@2")
    control.cancel_run(session, RunId(archive.run_id(2)), "ann")
    deeds = run_views.run(session, RunId(archive.run_id(2))).deeds
    assert [(deed.verb, deed.task) for deed in deeds] == [("cancel", "b"), ("cancel", None)]


# The installation


def test_ended_attempts_whose_ends_are_not_recorded_yet_take_no_slots(session: Session) -> None:
    """A task manager claims for a slot as soon as its task has ended. The end may wait for a busy archive."""
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    claim.register(session, "manager-1", "host-1", "machine", 1)
    archive.claim_some(2)
    (shown,) = installation.task_managers(session)
    assert (shown.running, shown.busy, shown.free) == (2, 1, 0)


def test_task_managers_are_shown_with_their_slots(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    claim.register(session, "manager-1", "host-1", "machine", 4)
    claim.register(session, "manager-2", "host-2", "other", 2)
    claim.unregister(session, "manager-2")
    archive.claim("a@2")
    first, second = installation.task_managers(session)
    assert (first.hostname, first.alive, first.running, first.busy, first.free) == ("machine", True, 1, 1, 3)
    assert (second.hostname, second.alive, second.free) == ("other", False, 0)
    numbers = installation.measure(session)
    assert (numbers.tasks, numbers.attempts_live, numbers.task_managers, numbers.slots) == (
        {"running": 1},
        1,
        1,
        4,
    )
