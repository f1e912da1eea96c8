"""Verbs on the items of a list (design 5.33): what shares a transaction, and what a refusal leaves."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db.session import Session
from arkqueue.errors import Conflict, Forbidden
from arkqueue.model import ArchiveId, RunId
from arkqueue.queue import archives, control, deletion, done, holds, lists, many, walk
from arkqueue.queue.done import Done
from arkqueue.queue.graph import Graph
from arkqueue.queue.guards import Approver
from arkqueue.views import runs, tasks
from arkqueue.views.explain import explain, explain_name
from tests.builders import AnArchive, an_archive

LIST = "foreach: [a, b, c, d, e, f, g]"


def a_list(session: Session, **settings: Any) -> AnArchive:
    """An archive whose run has a list of 7 items."""
    archive = an_archive(session)
    archives.change_settings(session, archive.id, ArchiveSettings(process=True, **settings), "ann")
    archive.commit({"fetch": LIST, "store": f"{LIST}\ndepends: [fetch]"})
    return archive


def on_list(archive: AnArchive, verb: str, *, approver: Approver | None = None) -> Done:
    run = RunId(archive.run_id(2))
    match verb:
        case "retry":
            return lists.act(archive.session, run, "store", [], verb, many.retrying("ann", approver))
        case "skip":
            return lists.act(archive.session, run, "store", [], verb, many.skipping("ann", approver))
        case "delete":
            return lists.delete(archive.session, run, "store", [], "ann", approver)
        case "hold":
            return lists.hold(archive.session, run, "store", [], "ann", "the disk is full")
        case "release":
            return lists.release(archive.session, run, "store", [], "ann", "", holds.How(approver=approver))
        case "prioritize":
            return lists.prioritize(archive.session, run, "store", [], 7, "ann")
    return lists.cancel(archive.session, run, "store", [], "ann", approver)


def test_a_verb_on_a_list_acts_on_a_limited_number_of_items_in_each_transaction(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = a_list(session)
    monkeypatch.setattr(walk, "PORTION", 3)
    items = [f"store/{key}@2" for key in "abcdefg"]
    for verb, state in (("hold", "held"), ("release", "waiting"), ("prioritize", "waiting"), ("cancel", "canceled")):
        done = on_list(archive, verb)
        expected = [archive.task(key) for key in items]
        assert done.tasks == (expected[::-1] if verb == "cancel" else expected), "in the order of the list"
        assert (done.refused, done.left) == ([], 0)
        assert {archive.state(key) for key in items} == {state}
        of_store = "select count(*) as n from task where name = 'store' and kind = 'ordinary' group by xmin order by n"
        assert [row["n"] for row in archive.sql(of_store)] == [1, 3, 3], verb
        (entry,) = archive.sql("select task_id, run_id, note from deed where verb = %s", verb)
        assert (entry["task_id"], entry["run_id"]) == (None, archive.run_id(2))
        assert entry["note"].startswith("store/*"), "one entry for the command, which names the list"
    assert archive.sql("select distinct priority from task where name = 'store' and kind = 'ordinary'") == [
        {"priority": 7}
    ]
    assert {archive.state(f"fetch/{key}@2") for key in "abcdefg"} == {"ready"}, "another list of the run"


def test_items_that_are_judged_one_by_one_share_transactions_too(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = a_list(session)
    archive.fail(*(f"fetch/{key}@2" for key in "abcdefg"))
    archive.retry("fetch/a@2")  # only `store/a` is not skipped
    for key in "bcdefg":
        archive.skip(f"fetch/{key}@2", as_completed=True)
    archive.run("fetch/a@2")
    archive.fail(*(f"store/{key}@2" for key in "abcdefg"))
    monkeypatch.setattr(walk, "PORTION", 3)
    for verb, state in (("retry", "ready"), ("skip", "skipped"), ("delete", "skipped")):
        done = on_list(archive, verb)
        assert (done.tasks, done.refused, done.left) == ([archive.task(f"store/{key}@2") for key in "abcdefg"], [], 0)
        of_store = "select count(*) as n, min(state) as state from task where name = 'store' and kind = 'ordinary' group by xmin order by n"
        assert [row["n"] for row in archive.sql(of_store)] == [1, 3, 3], verb
        assert {row["state"] for row in archive.sql(of_store)} == {state}
        entries = archive.sql(
            "select note from deed where verb = %s and (task_id is null or task_id = any(%s))", verb, done.tasks
        )
        assert len(entries) == 7, "an entry for each item"
    with pytest.raises(Conflict, match="has no item of store to skip"):
        on_list(archive, "skip")


def test_a_refused_item_stays_as_it_is_and_the_others_of_its_transaction_go_on(session: Session) -> None:
    """A later revision has done the work of one item."""
    archive = an_archive(session)
    archive.commit({"fetch": LIST})
    archive.fail(*(f"fetch/{key}@2" for key in "abcdefg"))
    archive.commit({"fetch": "foreach: [d]"})
    archive.run("fetch/d@3")
    done = many.retry_failed(session, RunId(archive.run_id(2)), "ann")
    assert done.tasks == [archive.task(f"fetch/{key}@2") for key in "abcefg"]
    assert [one.task for one in done.refused] == [archive.task("fetch/d@2")]
    assert done.refused[0].why.thing == "papers@2/fetch/d"
    assert "would replace the work of later revisions" in done.refused[0].why.fault
    assert archive.state("fetch/d@2") == "failed"


def test_what_may_go_on_is_reached_before_refused_items_are_divided(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task behind the items, which comes back with them, keeps them from being retried. The time for
    the command ends while they are being divided.
    """
    archive = a_list(session)
    archive.fail(*(f"fetch/{key}@2" for key in "abcdefg"))
    monkeypatch.setattr(walk, "PORTION", 4)
    tried: list[list[str]] = []

    def refuse_some(_graph: Graph, rows: Sequence[Any], **_options: Any) -> Done:
        tried.append([row.item for row in rows])
        if any(row.item in "abc" for row in rows):
            raise Conflict("an item", "is refused")
        return Done([row.id for row in rows])

    monkeypatch.setattr(many, "retry_some", refuse_some)
    ways: list[str] = []
    monkeypatch.setattr(walk, "give_way", lambda _: ways.append("a way"))
    done = many.retry_failed(session, RunId(archive.run_id(2)), "ann")
    pieces = ["".join(items) for items in tried]
    assert pieces == ["abcd", "efg", "ab", "cd", "a", "b", "c", "d"]
    assert done.tasks == [archive.task(f"fetch/{key}@2") for key in "defg"]
    assert [one.task for one in done.refused] == [archive.task(f"fetch/{key}@2") for key in "abc"]
    assert len(ways) == len(tried) - 1, "other commands get their turn, also after a refusal"


def test_a_rehearsal_gives_nobody_way(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps its locks, so a pause would only make others wait longer."""
    archive = a_list(session)
    monkeypatch.setattr(walk, "PORTION", 3)
    monkeypatch.setattr(done, "time", SimpleNamespace(sleep=lambda _: pytest.fail("nobody can go first")))
    with session.rehearsal(archive.id) as rehearsal:
        assert len(on_list(replace(archive, session=rehearsal), "hold").tasks) == 7
    assert "held" not in archive.states().values()


def test_a_step_tells_all_items_that_later_revisions_have_completed_at_once(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_archive(session)
    archive.commit({"fetch": LIST})
    archive.fail(*(f"fetch/{key}@2" for key in "abcdefg"))
    archive.commit({"fetch": "foreach: [a, b, c, d, e]"})
    archive.run(*(f"fetch/{key}@3" for key in "abcde"))
    steps: list[str] = []
    change = walk.change
    monkeypatch.setattr(walk, "change", lambda *words: (steps.append("a step"), change(*words))[1])
    done = many.retry_failed(session, RunId(archive.run_id(2)), "ann")
    assert (len(done.tasks), len(done.refused), len(steps)) == (2, 5, 1)
    assert {one.why.fault.partition(":")[0] for one in done.refused} == {"would replace the work of later revisions"}


def test_refusals_alone_do_not_hide_what_the_time_did_not_suffice_for(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = a_list(session, require_approval=("fetch",))
    clock = [0.0]
    monkeypatch.setattr(walk, "PORTION", 3)
    monkeypatch.setattr(walk, "give_way", lambda _: clock.append(walk.LONGEST + 1))
    monkeypatch.setattr(walk, "time", SimpleNamespace(monotonic=lambda: clock[-1]))
    done = lists.act(session, RunId(archive.run_id(2)), "fetch", [], "skip", many.skipping("ann", None))
    assert (done.tasks, len(done.refused), done.left) == ([], 6, 1)


def test_the_deletion_of_a_list_leaves_the_items_of_another_list_alone(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"fetch": "foreach: [a, b]", "store": "foreach: [a, b]\ndepends: [fetch]", "other": "foreach: [b, c]"})  # fmt: skip
    run = RunId(archive.run_id(2))
    done = lists.delete(session, run, "store", [], "ann")
    assert done.tasks == [archive.task("store/a@2")]
    assert [one.task for one in done.refused] == [archive.task("store/b@2")]
    why = done.refused[0].why
    assert str(why) == (
        "papers@2/*/b: has also tasks of another list, such as other, which a deletion would delete, too. "
        "To delete them all: arkqueue delete 'papers@2/*/b'"
    )
    assert archive.state("other/b@2") == "ready"
    deletion.delete_item(session, run, "b", "ann")
    assert archive.state("other/b@2") == "canceled"


def test_of_a_canceled_item_the_retry_of_all_its_steps_is_named(session: Session) -> None:
    """The retry of a later step alone is refused, because an earlier one is canceled, too."""
    archive = an_archive(session)
    archive.commit(
        {"fetch": "foreach: [x, y]", "pack": "foreach: [x, y]\ndepends: [fetch]", "index": "depends: [pack]"}
    )
    for name in ("pack/x@2", "fetch/x@2"):
        archive.cancel(name)
    archive.run("fetch/y@2", "pack/y@2")
    helps = "arkqueue retry 'papers@2/*/x'"
    with pytest.raises(
        Conflict, match=r"pack/x: needs papers@2/fetch/x, which is canceled\. .* item: " + re.escape(helps)
    ):
        archive.retry("pack/x@2")
    for name in ("pack/x@2", "index@2"):
        assert explain(session, archive.task(name)).commands == [helps]
    assert explain(session, archive.task("fetch/x@2")).commands == ["arkqueue retry papers@2/fetch/x"]
    many.act_on_item(session, RunId(archive.run_id(2)), "x", "retry", many.retrying("ann", None))
    archive.run("fetch/x@2", "pack/x@2", "index@2")


def test_the_failed_items_of_a_list_are_explained_together(session: Session) -> None:
    archive = a_list(session)
    archive.fail("fetch/b@2", "fetch/c@2", "fetch/e@2")
    archive.end("fetch/d@2", 65)
    archive.run("fetch/a@2", "fetch/f@2", "fetch/g@2", "store/a@2", "store/f@2", "store/g@2")
    for name in ("papers@2", "papers@2/fetch/*"):
        told = explain_name(session, name)
        assert re.sub(" at .*? UTC", "", told.text.removeprefix("All of its 14 tasks are settled.\n")).splitlines() == [
            "papers@2/fetch/b: It failed in attempt 1 (exit code 1). 3 items of fetch failed; this is the first.",
            "papers@2/fetch/d: It rejected its input (exit code 65) and is never retried. Fix the input, and commit or submit it again.",
        ]
        assert told.commands == [
            "arkqueue logs papers@2/fetch/b", "arkqueue show papers@2 --items --state failed",
            "arkqueue retry 'papers@2/fetch/*'", "arkqueue skip 'papers@2/fetch/*' --state failed",
            "arkqueue logs papers@2/fetch/d", "arkqueue skip papers@2/fetch/d",
        ]  # fmt: skip


def test_failed_items_are_explained_while_others_of_their_run_wait(session: Session) -> None:
    archive = a_list(session)
    holds.hold(session, archive.task("fetch/a@2"), "ann")
    archive.fail("fetch/b@2", "fetch/c@2")
    archive.run("fetch/d@2", "fetch/e@2", "fetch/f@2", "fetch/g@2")
    told = explain_name(session, "papers@2")
    assert "papers@2/fetch/a: It is held by ann" in told.text
    assert "2 items of fetch failed; this is the first." in told.text
    assert "arkqueue retry 'papers@2/fetch/*'" in told.commands


def test_the_name_of_a_list_stays_one_if_its_revision_is_not_there(session: Session) -> None:
    a_list(session)
    assert explain_name(session, "papers@7/fetch/*").full_name == "papers@7/fetch/*"


def test_the_held_items_of_a_list_are_explained_together(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"fetch": "foreach: [a, b, c]\nhold: true", "index": ""})
    archive.run("index@2")
    for name in ("papers@2", "papers@2/fetch/*"):
        told = explain_name(session, name)
        assert told.text.endswith("until a person releases it. It holds 3 items of fetch; this is the first.")
        assert told.commands == ["arkqueue release 'papers@2/fetch/*'"]
    holds.release(session, archive.task("fetch/a@2"), "ann")
    archive.fail("fetch/a@2")
    told = explain_name(session, "papers@2")
    assert "It holds 2 items of fetch" in told.text
    assert "papers@2/fetch/a: It failed" in told.text


def test_a_held_item_is_explained_with_its_own_release(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"fetch": "foreach: [a, b]", "store": "foreach: [a, b]\ndepends: [fetch]", "b": ""})
    holds.hold_run(session, RunId(archive.run_id(2)), "ann")
    told = explain_name(session, "papers@2/*/b")
    own = ["arkqueue release 'papers@2/*/b'", "arkqueue release papers@2/fetch/b", "arkqueue release papers@2/store/b"]
    assert told.commands == own
    assert "arkqueue release papers@2" in explain_name(session, "papers@2/b").commands


def test_a_failed_item_is_explained_with_commands_for_this_item_alone(session: Session) -> None:
    archive = a_list(session)
    archive.fail("fetch/b@2", "fetch/c@2")
    told = explain_name(session, "papers@2/*/c")
    assert "items of fetch" not in told.text
    assert told.commands == [
        "arkqueue logs papers@2/fetch/c", "arkqueue retry papers@2/fetch/c", "arkqueue skip papers@2/fetch/c",
    ]  # fmt: skip


def test_a_stopped_archive_refuses_a_verb_on_many_once(session: Session) -> None:
    archive = a_list(session)
    archive.fail(*(f"fetch/{key}@2" for key in "abcdefg"))
    archives.stop(session, archive.id, "its repository is another one")
    with pytest.raises(Conflict, match="archive papers: is stopped") as refused:
        many.retry_failed(session, RunId(archive.run_id(2)), "ann")
    assert not refused.value.others


def test_a_verb_on_a_list_leaves_guarded_items_alone_and_tells_them(session: Session) -> None:
    archive = a_list(session, require_approval=("store",))
    assert {archive.state(f"store/{key}@2") for key in "abcdefg"} == {"held"}
    for verb in ("release", "cancel"):
        with pytest.raises((Conflict, Forbidden), match=r"store/(a|g): is guarded") as refused:
            on_list(archive, verb)
        assert len(refused.value.others) == 6
    assert not archive.sql("select from deed where verb in ('release', 'cancel')")
    assert len(on_list(archive, "release", approver=Approver()).tasks) == 7


def test_a_hold_of_the_archive_ends_a_release_of_a_list(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = a_list(session)
    on_list(archive, "hold")
    monkeypatch.setattr(walk, "PORTION", 3)
    monkeypatch.setattr(walk, "give_way", lambda _: holds.hold_archive(session, ArchiveId(archive.id), "eve"))
    done = on_list(archive, "release")
    assert (len(done.tasks), done.left) == (3, 4)
    with pytest.raises(Conflict, match="archive papers: is on hold"):
        on_list(archive, "release")


def test_a_cancellation_of_the_run_ends_a_verb_on_its_list(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = a_list(session)
    monkeypatch.setattr(walk, "PORTION", 3)
    monkeypatch.setattr(walk, "give_way", lambda _: control.cancel_run(session, RunId(archive.run_id(2)), "eve"))
    done = on_list(archive, "hold")
    assert (len(done.tasks), done.left) == (3, 4)
    assert {archive.state(f"store/{key}@2") for key in "abcdefg"} == {"canceled"}


def test_items_that_start_before_their_turn_are_not_held(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = a_list(session)
    monkeypatch.setattr(walk, "PORTION", 3)
    monkeypatch.setattr(walk, "give_way", lambda _: archive.claim("fetch/d@2") if not archive.running else None)
    # The claim takes all items that the first step has left.
    done = lists.hold(session, RunId(archive.run_id(2)), "fetch", [], "ann", "")
    assert (len(done.tasks), done.refused, done.left) == (3, [], 0)
    assert [archive.state(f"fetch/{key}@2") for key in "abcdefg"] == ["held"] * 3 + ["running"] * 4


def test_the_tasks_of_a_run_are_read_once_however_many_the_verb_acts_on(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = a_list(session)
    asked = Counter[str]()
    rows = Session.rows

    def counted(of: Session, block: str, /, **told: Any) -> list[Any]:
        asked[block] += 1
        return rows(of, block, **told)

    monkeypatch.setattr(Session, "rows", counted)
    assert len(many.skip_run(session, RunId(archive.run_id(2)), "ann").tasks) == 7, "the others are skipped with them"
    assert asked["tasks_to_act_on"] == 1


def test_a_run_shows_its_newest_audit_log_entries(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = a_list(session)
    on_list(archive, "skip")
    run = RunId(archive.run_id(2))
    assert (len(runs.run(session, run).deeds), runs.run(session, run).earlier_deeds) == (7, False)
    for module in (tasks, runs):
        monkeypatch.setattr(module, "MOST_DEEDS", 3)
    shown = runs.run(session, run)
    assert ([deed.task for deed in shown.deeds], shown.earlier_deeds) == (["store/e", "store/f", "store/g"], True)
