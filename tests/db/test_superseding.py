"""A canceler of many tasks cancels them in steps (design 5.10)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db.session import Session
from arkqueue.model import End, RunId
from arkqueue.queue import archives, control, ending, finish, graph, holds, pauses, superseding
from arkqueue.queue.purge import purge_runs
from arkqueue.queue.superseding import Superseder
from arkqueue.views.doctor import examine
from arkqueue.views.explain import explain
from tests.builders import AnArchive, a_workflow, an_archive, an_entry
from tests.db.ends import untrack

ITEMS = "foreach: [a, b, c, d]"
LISTS = {"fetch": ITEMS, "store": f"{ITEMS}\ndepends: [fetch]", "index": "depends: [{task: store, when: settled}]"}
NEWER = {"fetch": f"{ITEMS}\ncancels: [PREV]", "store": f"{ITEMS}\ndepends: [fetch]\ncancels: [PREV]"}
ALL = {"all": "cancels: ['PREV:fetch', 'PREV:store', 'PREV:after']"}


@pytest.fixture
def in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "MOST_VICTIMS", 2)
    monkeypatch.setattr(superseding, "MOST_TASKS", 2)


def steps(session: Session, between: Callable[[], object] = lambda: None) -> int:
    """Take all steps, each with another queue manager, as the last one was killed; returns how many there were."""
    count = 0
    while Superseder(session).turn() is not None:
        count += 1
        between()
        assert examine(session).findings == []
    return count


def found(archive: AnArchive) -> list[Any]:
    return archive.sql(
        "select t.name, t.item, t.number, t.state, t.blocks, t.unmet, t.fired, t.stop, f.name as by, f.item as by_item, r.name as root, r.item as root_item"
        " from task t left join task f on f.id = t.superseded_by left join task r on r.id = t.root_id"
        " where t.archive_id = %s order by t.number, t.run, t.position, t.name, t.item",
        archive.id,
    )


def a_list(session: Session, name: str) -> AnArchive:
    """A list of which one item runs, one is deferred, and one has got further, and a task that waits for something else."""
    archive = an_archive(session, name)
    archive.commit({"before": "priority: 1", **LISTS, "after": "depends: [before]", "other": "priority: 90"})
    archive.sql("update task set priority = 2 where name = 'fetch' and item in ('b', 'c', 'd')")
    for key in ("before@2", "fetch/b@2", "fetch/c@2", "fetch/d@2"):
        archive.claim(key, slots=1)
    end(archive, "fetch/c@2", 75)
    end(archive, "fetch/d@2")
    return archive


def end(archive: AnArchive, key: str, code: int | None = 0, how: End = End.EXITED) -> None:
    """End what runs, and claim nothing."""
    archive.record(archive.running.pop(archive.task(key)).attempt, how, code)


def of_items(archive: AnArchive, name: str, number: int = 2) -> dict[str, str]:
    """The states of a list by the keys of its items."""
    rows = archive.sql("select item, state from task where archive_id = %s and name = %s and number = %s", archive.id, name, number)  # fmt: skip
    return {row["item"]: row["state"] for row in rows}


def at_once_and_in_steps(
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[str], AnArchive],
    *,
    limits: Sequence[tuple[ModuleType, str]] = ((graph, "MOST_VICTIMS"), (superseding, "MOST_TASKS")),
) -> tuple[list[Any], int]:
    """Has the same victims canceled in one transaction, and in steps of one task: both must end alike.
    ``make``: makes an archive of a name, up to the entry of what supersedes. ``limits``: beyond which
    steps are taken. Returns the tasks of an archive, and the number of steps.
    """
    both, taken = [], []
    for most, name in ((1000, "one"), (1, "steps")):
        for module, limit in limits:
            monkeypatch.setattr(module, limit, most)
        archive = make(name)
        taken.append(steps(session))
        both.append(found(archive))
        pauses.pause(session, archive.id, "", "ann")
        assert archive.sql("select * from superseding") == []
    assert both[0] == both[1]
    assert taken[0] == 0
    assert taken[1] > 0
    return both[1], taken[1]


@pytest.mark.parametrize("newer", [NEWER, ALL], ids=["items", "task"])
def test_what_is_superseded_in_steps_ends_as_in_one(
    session: Session, monkeypatch: pytest.MonkeyPatch, newer: dict[str, str]
) -> None:
    def make(name: str) -> AnArchive:
        archive = a_list(session, name)
        archive.commit(newer)
        return archive

    tasks, taken = at_once_and_in_steps(session, monkeypatch, make)
    assert taken > 4, "so few tasks are canceled with each step"
    states = {(row["name"], row["item"], row["number"]): row["state"] for row in tasks}
    assert (states["fetch", "a", 2], states["fetch", "b", 2], states["fetch", "c", 2]) == ("canceled", "running", "canceled")  # fmt: skip
    assert (states["fetch", "d", 2], states["before", "", 2], states["other", "", 2]) == ("completed", "running", "ready")  # fmt: skip


@pytest.mark.usefixtures("in_steps")
@pytest.mark.parametrize("settings", [{}, {"tier": 3}, {"max_running": 50}])
def test_no_claim_takes_what_is_superseded_before_a_step_has_reached_it(
    session: Session, settings: dict[str, Any]
) -> None:
    """Also what would become ready meanwhile. Everything else of the older revision goes on, and what supersedes waits."""
    archive = a_list(session, "papers")
    archives.change_settings(session, archive.id, ArchiveSettings(process=True, **settings), "ann")
    archive.commit(ALL)
    assert archive.state("all@3") == "waiting"
    assert [(claim.name, claim.number) for claim in archive.claim_some(100)] == [("other", 2)]
    end(archive, "before@2")
    assert archive.state("after@2") == "waiting"
    archive.sql("update task set due_at = now() where state = 'deferred'")
    finish.wake_deferred(session)
    assert archive.state("fetch/c@2") == "waiting"
    assert archive.claim_some(100) == []

    def meanwhile() -> None:
        assert [claim.name for claim in archive.claim_some(100) if claim.name in ("fetch", "store", "after")] == []

    assert steps(session, meanwhile) > 4
    assert archive.state("all@3") == "waiting", "an item that ran is asked to stop"
    end(archive, "fetch/b@2", None, End.STOPPED)
    assert archive.state("all@3") in ("ready", "running")
    assert {archive.state(f"fetch/{key}@2") for key in "abc"} == {"canceled"}


@pytest.mark.usefixtures("in_steps")
def test_a_person_who_cancels_what_supersedes_in_steps_changes_nothing_of_it(session: Session) -> None:
    archive = an_archive(session)
    archive.commit(LISTS)
    archive.commit(ALL)
    archive.cancel("all@3")
    assert purge_runs(session, [RunId(archive.run_id(3))], "ann").runs == [], "it is not over"
    assert archive.claim_some(100) == []
    assert steps(session) > 4
    assert {*of_items(archive, "fetch").values(), *of_items(archive, "store").values()} == {"canceled"}
    archive.retry("all@3")
    assert archive.state("all@3") == "ready"


@pytest.mark.usefixtures("in_steps")
def test_what_supersedes_in_steps_and_is_canceled_holds_up_later_runs_until_its_victims_have_stopped(session: Session) -> None:  # fmt: skip
    archive = an_archive(session)
    archive.commit({"fetch": ITEMS})
    archive.claim("fetch/b@2", slots=2)
    archive.commit({"all": "cancels: ['PREV:fetch']"})
    archive.commit({"next": "depends: [{task: 'PREV:all', when: settled}]"})
    archive.cancel("all@3")
    assert archive.state("next@4") == "waiting"
    steps(session)
    assert of_items(archive, "fetch") == dict.fromkeys("cd", "canceled") | dict.fromkeys("ab", "running")
    assert archive.state("next@4") == "waiting"
    end(archive, "fetch/a@2", how=End.STOPPED)
    assert archive.state("next@4") == "waiting"
    end(archive, "fetch/b@2", how=End.STOPPED)
    assert archive.state("next@4") == "ready"


@pytest.mark.usefixtures("in_steps")
def test_what_has_been_superseded_supersedes_nothing_any_more(session: Session) -> None:
    """It enters while a newer task cancels it in steps: its own ``cancels`` do not fire."""
    archive = an_archive(session)
    archive.commit({"old": "", "gate": "priority: 1"})
    archive.claim("gate@2", slots=1)
    archive.commit({"late": "depends: ['PREV:gate']\ncancels: ['PREV:old']", "fetch": ITEMS})
    archive.commit({"all": "cancels: ['PREV:fetch', 'PREV:late']"})
    end(archive, "gate@2")
    assert archive.state("late@3") == "waiting"
    steps(session)
    assert archive.state("late@3") == "canceled"
    assert archive.states()["old@2"] == "ready"
    assert archive.state("all@4") == "ready"


@pytest.mark.usefixtures("in_steps")
def test_what_it_spares_is_spared_in_steps(session: Session) -> None:
    archive = a_list(session, "papers")
    archive.commit({"all": "cancels: [{task: 'PREV:fetch', only: unstarted}, {task: 'PREV:store', only: unstarted}]"})
    assert steps(session) > 2
    assert of_items(archive, "fetch") == {"a": "canceled", "b": "running", "c": "deferred", "d": "completed"}
    assert of_items(archive, "store") == dict.fromkeys("abcd", "canceled")
    assert archive.state("all@3") == "ready"


@pytest.mark.usefixtures("in_steps")
def test_a_task_cancels_a_list_of_its_own_run_in_steps(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"fetch": ITEMS, "first": "priority: 1", "stop": "depends: [first]\ncancels: [fetch]"})
    archive.claim("first@2", slots=1)
    end(archive, "first@2")
    assert archive.claim_some(100) == []
    assert steps(session) > 2
    assert {*of_items(archive, "fetch").values()} == {"canceled"}
    assert archive.state("stop@2") == "ready"


def test_a_long_chain_of_cancellations_is_taken_in_steps(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each canceled task lets a gate pass, which cancels the next one. In one transaction, 5,000 links
    took half a minute, and on a slower machine the end before the first one was never recorded.
    """
    links = 8
    chain = {"first": "priority: 1", "never": ""}
    for number in range(links):
        before = f"x{number - 1}" if number else "first"
        chain[f"x{number}"] = "depends: [never]"
        chain[f"g{number}"] = f"depends: [{{task: {before}, when: settled}}]\ncancels: [x{number}]  # gate"

    def make(name: str) -> AnArchive:
        archive = an_archive(session, name)
        archive.commit(chain)
        archive.claim("first@2", slots=1)
        end(archive, "first@2")
        return archive

    tasks, taken = at_once_and_in_steps(session, monkeypatch, make, limits=[(graph, "MOST_FIRINGS")])
    assert taken >= links // 2
    assert {row["state"] for row in tasks if row["name"].startswith("x")} == {"canceled"}
    assert {row["state"] for row in tasks if row["name"].startswith("g")} == {"completed"}


def test_what_waits_for_an_older_victim_is_superseded_and_not_skipped(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A skipped task would block later revisions until a person acts."""

    def make(name: str) -> AnArchive:
        archive = an_archive(session, name)
        archive.commit({"fetch": ITEMS, "index": "depends: ['PREV:index']"})
        archive.commit({"fetch": f"{ITEMS}\npaths: [elsewhere/]", "index": "depends: [fetch]"})
        archive.commit({"index": "depends: ['PREV:index']", "all": "cancels: ['PREV:fetch', 'PREV:index']"})
        return archive

    tasks, _ = at_once_and_in_steps(session, monkeypatch, make)
    assert {row["state"] for row in tasks if row["name"] in ("fetch", "index") and row["number"] < 4} == {"canceled"}
    assert [row["state"] for row in tasks if (row["name"], row["number"]) == ("index", 4)] == ["ready"]


def test_what_another_task_cancels_first_cancels_nothing_of_its_run(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of these tasks enter together. Across runs, a task that is canceled has fired all the same."""
    behind = "depends: [first]"
    rivals = {
        "stop": f"{behind}\ncancels: [fetch]",
        "fetch": f"{ITEMS}\n{behind}\ncancels: [other, 'PREV:old']",
        "other": behind,
        **{name: f"{behind}\ncancels: [{victim}]" for name, victim in ("xy", "yz", "zx")},  # each cancels the next
    }

    def make(name: str) -> AnArchive:
        archive = an_archive(session, name)
        archive.commit({"old": ""})
        archive.commit({"first": "priority: 1", **rivals})
        archive.claim("first@3", slots=1)
        end(archive, "first@3")
        return archive

    tasks, taken = at_once_and_in_steps(session, monkeypatch, make)
    assert taken > 2
    states = {(row["name"], row["item"]): row["state"] for row in tasks}
    assert (states["stop", ""], states["fetch", "a"], states["other", ""]) == ("ready", "canceled", "ready")
    assert states["old", ""] == "canceled"
    assert [states[name, ""] for name in "xyz"] == ["canceled", "canceled", "ready"]


@pytest.mark.usefixtures("in_steps")
def test_a_step_that_fails_holds_up_that_of_no_other_archive(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = an_archive(session, "one"), an_archive(session, "other")
    for archive in one, other:
        archive.commit(LISTS)
        archive.commit(ALL)
    real = graph.Graph.supersede
    monkeypatch.setattr(graph.Graph, "supersede", lambda of, tasks: 1 / 0 if of.archives == [one.id] else real(of, tasks))  # fmt: skip
    superseder = Superseder(session)
    for _ in range(9):
        assert superseder.turn() is not None
    assert other.state("all@3") == "ready"
    assert one.state("all@3") == "waiting"
    monkeypatch.undo()
    control.cancel(session, one.task("all@3"), "ann")


@pytest.mark.usefixtures("in_steps")
def test_explain_says_of_both_what_is_still_to_come(session: Session) -> None:
    archive = an_archive(session)
    archive.commit(LISTS)
    archive.commit(ALL)
    first, *others = explain(session, archive.task("fetch/a@2")).reasons
    assert {reason.kind for reason in others} <= {"no-queue-manager"}, "nothing else counts any more"
    assert (first.kind, first.tasks) == ("superseded", ["papers@3/all"])
    assert first.text.startswith(
        "It is superseded by papers@3/all. It does not start any more, and is canceled within a moment"
    )
    assert explain(session, archive.task("all@3")).text.startswith(
        "It waits until everything that it supersedes is canceled: 8 tasks are left."
    )
    while archive.state("all@3") == "waiting":
        Superseder(session).turn()
    assert explain(session, archive.task("fetch/a@2")).text.startswith("It was superseded by papers@3/all")


@pytest.mark.usefixtures("in_steps")
def test_no_gate_that_is_superseded_passes_before_a_step_has_reached_it(session: Session) -> None:
    """Else what depends on it would start. The random test found it."""
    archive = an_archive(session)
    archive.commit({"wait": "priority: 1"})
    archive.claim("wait@2", slots=1)
    archive.commit({"gate": "depends: ['PREV:wait'] # gate", "behind": "depends: [gate]", "fetch": ITEMS})
    archive.commit({"all": "depends: ['PREV:wait']\ncancels: ['PREV:gate', 'PREV:fetch']"})
    end(archive, "wait@2")
    assert (archive.state("gate@3"), archive.state("behind@3"), archive.state("all@4")) == ("waiting",) * 3
    steps(session)
    assert (archive.state("gate@3"), archive.state("behind@3")) == ("canceled", "skipped")
    assert archive.state("all@4") == "ready"


def test_what_enters_with_what_supersedes_it_in_steps_has_fired_all_the_same(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The random test found it: else a run by hand would not be refused that it has superseded (design 5.11)."""

    def make(name: str) -> AnArchive:
        archive = an_archive(session, name)
        archive.commit({"fetch": ITEMS})
        newer = {"e": "cancels: [PREV]"}, {"all": "cancels: ['PREV:fetch', 'PREV:e']"}
        archive.append("", [an_entry(number, a_workflow(of)) for number, of in enumerate(newer, 3)])
        return archive

    tasks, _ = at_once_and_in_steps(session, monkeypatch, make)
    assert [row["fired"] for row in tasks if row["name"] == "e"] == [True]


@pytest.mark.usefixtures("in_steps")
def test_the_end_of_a_branch_beside_what_supersedes_in_steps_cancels_all_of_it(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what supersedes. Whichever step comes next, nothing starts, and nothing is left over."""
    monkeypatch.setattr(ending, "MOST_TASKS", 2)
    archive = an_archive(session)
    archive.commit(LISTS)
    archive.commit(ALL)
    untrack(archive)
    ender, superseder = ending.Ender(session), Superseder(session)
    while (ender.turn(), superseder.turn()) != (None, None):
        assert archive.claim_some(100) == []
        assert examine(session).findings == []
    assert {row["state"] for row in found(archive) if row["name"] in ("fetch", "store", "index", "all")} == {"canceled"}
    assert archive.sql("select run_id from superseding union select run_id from ending") == []
    archives.track(session, archive.id, "")
    archive.retry("all@3", force=True)
    assert archive.state("all@3") == "ready"


def test_of_tasks_that_fire_together_the_latest_alone_keeps_the_entry_that_names_the_tasks_of_all(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand tasks that a person releases at once would otherwise look at half a million pairs."""

    def make(name: str) -> AnArchive:
        archive = an_archive(session, name)
        archive.commit({"pdf": "", "other": "", "list": ITEMS})
        archive.claim("pdf@2")
        holds.hold_archive(session, archive.id, "ann")
        newer = {"pdf": "cancels: [PREV]", "tell": "cancels: ['PREV:pdf']", "list": f"{ITEMS}\ncancels: [PREV]"}
        for _ in range(5):
            archive.commit(newer)
        holds.unhold(session, archive.id, "ann")
        holds.release_archive(session, archive.id, "ann")
        kept = archive.sql("select s.name, s.item, s.number from superseding s order by 1, 2")
        of_list = [{"name": "list", "item": item, "number": 7} for item in "abcd"]
        assert kept == ([] if name == "one" else [*of_list, {"name": "pdf", "item": "", "number": 7}])
        return archive

    tasks, _ = at_once_and_in_steps(session, monkeypatch, make)
    states = {(row["name"], row["number"]): row["state"] for row in tasks if not row["item"]}
    assert [states["pdf", number] for number in range(2, 8)] == ["running", *["canceled"] * 4, "waiting"]
    assert [states["tell", number] for number in range(3, 8)] == ["waiting"] * 5, "each waits for the end of pdf@2"
    by = {(row["name"], row["item"], row["number"]): row["by"] for row in tasks}
    assert {by["pdf", "", number] for number in range(3, 7)} == {"tell"}, "the latest, in the order of the run"
