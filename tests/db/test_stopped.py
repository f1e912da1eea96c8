"""Tasks of a stopped archive do not start. Its repository may have been replaced by another one,
whose files must not reach the tasks of this ledger.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db.session import Session
from arkqueue.errors import Conflict
from arkqueue.model import AttemptId, End
from arkqueue.plan import Entry
from arkqueue.queue import archives, claim, control, deletion, finish, ledger, schedules
from arkqueue.queue.graph import Graph
from arkqueue.views.explain import explain, explain_name
from arkqueue.views.explanation import Explanation
from arkqueue.views.reasons import Why
from tests.builders import NOTHING, AnArchive, a_revision, a_workflow, an_archive, an_entry
from tests.db.test_races import Connect, InThread, wait_until_blocked
from tests.db.test_schedules import NIGHTLY, make_due
from tests.db.test_schedules import runs as scheduled_runs

WHY = "it is another repository now. Bring the right one back, then: arkqueue sync papers"
CHAIN = {"a": "", "b": "depends: [a]"}


def stop(archive: AnArchive) -> None:
    archives.stop(archive.session, archive.id, WHY)


def go_on(archive: AnArchive) -> None:
    archives.go_on(archive.session, archive.id, WHY)


def nothing(_: AnArchive) -> None:
    """What happens before."""


def claimed(archive: AnArchive) -> list[str]:
    return [f"{one.archive.name}:{one.name}@{one.number}" for one in archive.claim_some(100)]


def why(archive: AnArchive, key: str) -> Explanation:
    return explain(archive.session, archive.task(key))


def test_what_is_ready_is_not_claimed_until_the_archive_goes_on(archive: AnArchive) -> None:
    other = an_archive(archive.session, "other")
    for one in (archive, other):
        one.commit(CHAIN)
    stop(archive)
    assert claimed(archive) == ["other:a@2"]
    claim.withdraw(archive.session)
    assert claimed(archive) == []
    assert archive.states() == {"a@2": "ready", "b@2": "waiting"}
    go_on(archive)
    assert claimed(archive) == ["papers:a@2"]


def test_what_becomes_ready_meanwhile_is_not_claimed_either(archive: AnArchive) -> None:
    """What runs goes on, and its end is recorded: completed, handed back, failed with a retry left, lost."""
    again = {"retried": "retries: {max: 3, delay: 1s}", "asks": "", "lost": "", "handed": ""}
    archive.commit(CHAIN | again)
    archive.claim("a@2")
    attempts = {name: archive.attempt(f"{name}@2") for name in again}
    stop(archive)
    archive.run("a@2")
    archive.record(attempts["handed"], End.STOPPED, None)
    archive.record(attempts["retried"], End.EXITED, 1)
    archive.record(attempts["asks"], End.EXITED, 75)
    archive.sql("update attempt set lease_until = now() - interval '1 s' where id = %s", attempts["lost"])
    archive.sql("update heartbeat set steady_since = now() - interval '1 h', beat_at = clock_timestamp()")
    assert finish.lapse(archive.session) == [attempts["lost"]]
    archive.sql("update task set due_at = clock_timestamp() where state = 'deferred'")
    finish.wake_deferred(archive.session)
    assert archive.states() == {"a@2": "completed", **dict.fromkeys([f"{name}@2" for name in ("b", *again)], "ready")}
    assert claimed(archive) == []
    archives.change_settings(archive.session, archive.id, settings_of(archive), "ann")
    assert claimed(archive) == []
    go_on(archive)
    assert sorted(claimed(archive)) == sorted(f"papers:{name}@2" for name in ("b", *again))


def settings_of(archive: AnArchive) -> ArchiveSettings:
    return ArchiveSettings(**archives.one(archive.session, archive.id).settings)


@pytest.mark.parametrize(
    ("before", "verb"),
    [
        (nothing, lambda a: a.trigger(2)),
        (nothing, lambda a: a.trigger(2, "a", force=True)),
        (lambda a: a.fail("a@2"), lambda a: a.retry("a@2")),
        (lambda a: a.fail("a@2"), lambda a: a.retry("a@2", force=True)),
        (lambda a: a.end("a@2", 75), lambda a: a.retry("a@2")),
        (lambda a: a.claim("a@2"), lambda a: a.restart("a@2")),
        (lambda a: a.fail("a@2"), lambda a: a.skip("a@2", as_completed=True)),
        (lambda a: a.fail("a@2"), lambda a: a.skip("a@2")),
        (nothing, lambda a: a.skip("a@2")),
        (
            lambda a: a.fail("a@2"),
            lambda a: control.skip_until(a.session, a.id, a.branches[""].id, "a", 2, "ann"),
        ),
        (lambda a: a.fail("a@2"), lambda a: deletion.delete_run(a.session, a.run_id(2), "ann")),
    ],
    ids=["trigger", "trigger by force", "retry", "retry by force", "retry of a deferred one", "restart", "skip as completed",
         "waive", "skip", "skip until", "delete"],
)  # fmt: skip
def test_a_verb_that_would_start_something_is_refused_with_the_reason(
    archive: AnArchive, before: Callable[[AnArchive], None], verb: Callable[[AnArchive], None]
) -> None:
    archive.commit(CHAIN)
    archive.commit({"a": "depends: [PREV]"})
    before(archive)
    stop(archive)
    then, deeds = archive.states(), archive.sql("select * from deed")
    with pytest.raises(
        Conflict, match="archive papers: is stopped, so none of its tasks starts: it is another"
    ) as refused:
        verb(archive)
    assert "arkqueue sync papers" in str(refused.value)
    assert (archive.states(), archive.sql("select * from deed")) == (then, deeds)
    go_on(archive)
    verb(archive)


def test_what_starts_nothing_is_done_all_the_same(archive: AnArchive) -> None:
    archive.commit({**CHAIN, "c": ""})
    archive.commit({"a": "depends: [PREV]"})
    a = archive.attempt("a@2")
    archive.fail("c@2")
    archive.record(a, End.STOPPED, None)
    stop(archive)
    archive.skip("b@2")
    archive.skip("c@2")
    archive.cancel("a@2")
    assert archive.states() == {"a@2": "canceled", "b@2": "skipped", "c@2": "failed", "a@3": "ready"}
    assert claimed(archive) == []


def test_a_schedule_that_was_found_due_before_the_stop_fires_after_it(
    archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.commit(NIGHTLY)
    make_due(archive)
    # The moment between finding a schedule due and firing it has no other name.
    fire = schedules._fire

    def late(graph: Graph, due: object) -> None:
        # Another queue manager stopped the archive before this one had locked it.
        graph.do("stop_archive", archive=archive.id, why=WHY)
        fire(graph, due)

    monkeypatch.setattr(schedules, "_fire", late)
    schedules.fire(archive.session)
    monkeypatch.undo()
    assert scheduled_runs(archive) == []
    go_on(archive)
    schedules.fire(archive.session)
    assert len(scheduled_runs(archive)) == 1


def test_nothing_is_appended_to_the_ledger_by_a_look_that_began_before_the_stop(archive: AnArchive) -> None:
    archive.commit(CHAIN)
    stop(archive)
    head = archive.branches[""]
    assert ledger.append(archive.session, head, [an_entry(3, a_workflow({"a": ""}))]) is None
    assert ledger.append(archive.session, head, [an_entry(3, a_workflow({"a": ""}))], dropped=["2"]) is None
    archives.untrack(archive.session, archive.id, head.id)
    assert archive.states() == {"a@2": "ready", "b@2": "waiting"}


def test_stopping_waits_for_what_makes_tasks_ready_just_now(archive: AnArchive, second_connection: Connect) -> None:
    """Else the archive would be among those that take turns again, as that transaction has not seen the stop."""
    archive.commit(CHAIN)
    archive.claim("a@2")
    claim.withdraw(archive.session)
    other, watcher = second_connection(), second_connection()
    with other.transaction():
        Graph(other, [archive.id])
        stopping = InThread(lambda: stop(archive))
        wait_until_blocked(watcher)
        other.execute("insert into ready_archive values (%s, '{process}') on conflict do nothing", [archive.id])
    stopping.result()
    assert not archive.sql("select archive_id from ready_archive")


def test_a_rewind_lets_go_on_what_it_leaves(session: Session) -> None:
    archive = an_archive(session, branches=("main", "topic"))
    archive.commit({"a": ""}, branch="main")
    archive.commit({"t": ""}, branch="topic")
    stop(archive)
    start = archives.Start("main", True, Entry(a_revision(1, branch="main"), NOTHING))
    archives.rewind(session, archive.id, archive.branches["main"].id, start, "", "ann", "branch topic: is another one")
    assert claimed(archive) == []
    assert archives.one(session, archive.id).stopped == "branch topic: is another one"
    archives.go_on(session, archive.id, "branch topic: is another one")
    assert claimed(archive) == ["papers:t@2"]


@pytest.mark.parametrize(
    ("before", "key", "text"),
    [
        (
            nothing,
            "a@2",
            "It is ready, but papers is stopped, so none of its tasks starts: it is another",
        ),
        (nothing, "b@2", "It waits for papers@2/a, which is ready, but papers is stopped"),
        (
            lambda a: a.claim("a@2"),
            "b@2",
            "papers is stopped, so none of its tasks starts: it is another",
        ),
        (lambda a: a.end("a@2", 75), "a@2", "papers is stopped, so none of its tasks starts"),
        (lambda a: a.fail("a@2"), "a@2", "papers is stopped, so none of its tasks starts"),
        (lambda a: a.end("a@2", 65), "a@2", "papers is stopped, so none of its tasks starts"),
        (lambda a: a.fail("a@2"), "b@2", "papers is stopped, so none of its tasks starts"),
        (lambda a: a.cancel("b@2"), "b@2", "papers is stopped, so none of its tasks starts"),
    ],
    ids=[
        "ready",
        "waiting for a ready one",
        "waiting for a running one",
        "deferred",
        "failed",
        "rejected",
        "skipped",
        "canceled",
    ],
)
def test_explain_says_why_nothing_starts(
    archive: AnArchive, before: Callable[[AnArchive], None], key: str, text: str
) -> None:
    archive.commit(CHAIN)
    before(archive)
    assert Why.ARCHIVE_STOPPED not in [reason.kind for reason in why(archive, key).reasons]
    stop(archive)
    told = why(archive, key)
    assert text in told.text
    assert told.text.count("is stopped, so none") == 1
    assert told.commands[:2] == ["arkqueue sync papers", "arkqueue archive rewind papers REV"]
    assert "papers is stopped" in explain_name(archive.session, "papers@2").text or key != "a@2"
    go_on(archive)
    assert Why.ARCHIVE_STOPPED not in [reason.kind for reason in why(archive, key).reasons]


def test_explain_of_what_completed_offers_no_repetition_until_the_stop_ends(archive: AnArchive) -> None:
    archive.commit(CHAIN)
    archive.run("a@2", "b@2")
    again = "arkqueue retry papers@2 --from a"
    assert again in why(archive, "a@2").commands
    stop(archive)
    assert why(archive, "a@2").commands == ["arkqueue logs papers@2/a"]


def test_explain_of_what_runs_says_nothing_of_the_stop(archive: AnArchive) -> None:
    archive.commit(CHAIN)
    attempt: AttemptId = archive.attempt("a@2")
    stop(archive)
    assert [reason.kind for reason in why(archive, "a@2").reasons] in ([Why.RUNNING], [Why.SILENT])
    assert claim.renew(archive.session, "manager-1", [attempt]).asked == {attempt: None}
