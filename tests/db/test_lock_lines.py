"""Lines of locks as people see them (design 5.25): the next task is the one that really gets the lock,
and a task that cannot go says why.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from arkqueue.db.session import Session
from arkqueue.errors import Conflict
from arkqueue.model import INSTALLATION, ArchiveId, AttemptId, End
from arkqueue.queue import claim, locks, pauses
from arkqueue.views import locks as of_locks
from arkqueue.views.explain import explain
from arkqueue.views.graph import graph
from arkqueue.views.locks import LockView
from tests.builders import HOST, PROCESS, AnArchive, an_archive
from tests.db.test_global_locks import pass_on

GLOBAL = "lock: global/printer"


@pytest.fixture
def archives(session: Session) -> tuple[AnArchive, AnArchive, AnArchive]:
    one, other, third = (an_archive(session, name) for name in ("one", "other", "third"))
    other.running = third.running = one.running  # a claim takes tasks of all of them
    return one, other, third


def seen(archive: AnArchive, name: str, *only: AnArchive) -> LockView:
    """A lock as people see it who may see only some archives, or all."""
    asked = [ArchiveId(one.id) for one in only] or None
    (view,) = [one for one in of_locks.locks(archive.session, asked) if one.name == name]
    return view


def line(view: LockView) -> list[tuple[int | None, str, str]]:
    return [(task.place, task.full_name, task.obstacle) for task in view.waiting]


def texts(archive: AnArchive, key: str) -> list[str]:
    return [reason.text for reason in explain(archive.session, archive.task(key)).reasons]


def who_has(archive: AnArchive, name: str) -> list[str]:
    return [task.full_name for task in seen(archive, name).holders]


def test_a_task_of_a_paused_archive_is_passed_over(archives: tuple[AnArchive, AnArchive, AnArchive]) -> None:
    one, other, third = archives
    one.commit({"a": GLOBAL})
    pass_on(one)
    one.claim("a@2")
    for archive in (other, third):
        archive.commit({"x": GLOBAL})
    pauses.pause(one.session, ArchiveId(other.id), "", "ann")
    view = seen(one, "global/printer")
    assert view.next == "third@2/x"
    assert line(view) == [(1, "third@2/x", ""), (None, "other@2/x", "its archive is paused")]
    assert graph(one.session, [run_of(other, "x@2")]).locks[0].next == "third@2/x"
    one.end("a@2")
    pass_on(one)
    assert who_has(one, "global/printer") == ["third@2/x"]


def run_of(archive: AnArchive, key: str) -> Any:
    (row,) = archive.sql("select run_id from task where id = %s", archive.task(key))
    return row["run_id"]


def test_a_task_whose_labels_no_task_manager_has_is_passed_over(archive: AnArchive) -> None:
    claim.register(archive.session, PROCESS, HOST, "here", 4)
    archive.commit({"holder": "lock: tex"})
    archive.claim("holder@2")
    archive.commit({"gpu": "lock: tex\nruns_on: gpu", "plain": "lock: tex"})
    view = seen(archive, "papers/tex")
    assert view.next == "papers@3/plain"
    assert line(view) == [
        (1, "papers@3/plain", ""),
        (None, "papers@3/gpu", "no task manager that claims tasks can run it"),
    ]
    assert texts(archive, "plain@3") == [
        "It waits for the lock papers/tex, which papers@2/holder has; it is next in line."
    ]
    first, second = texts(archive, "gpu@3")
    assert first == "It waits for the lock papers/tex, which papers@2/holder has."
    assert "no running task manager has the label gpu" in second
    archive.end("holder@2")
    assert who_has(archive, "papers/tex") == ["papers@3/plain"]


def test_a_task_that_only_a_drained_task_manager_could_run_is_passed_over(archive: AnArchive) -> None:
    session = archive.session
    claim.register(session, PROCESS, HOST, "here", 4, labels=["gpu"])
    claim.register(session, "another", "b" * 32, "there", 4)
    archive.commit({"gpu": "lock: tex\nruns_on: gpu", "plain": "lock: tex"})
    pauses.drain(session, HOST, "new disks", "ann")
    locks.judge_all(session)
    assert archive.states() == {"gpu@2": "waiting", "plain@2": "ready"}
    first, second = texts(archive, "gpu@2")
    assert first == "It waits for the lock papers/tex, which papers@2/plain has."
    assert "It waits for its locks, but no host can start it for now. here: it was drained" in second


def test_a_head_of_line_that_waits_for_another_lock_says_so(archive: AnArchive) -> None:
    """It keeps its place, so nobody else of its archive is next."""
    archive.commit({"tex": "lock: tex"})
    archive.claim("tex@2")
    archive.commit({"both": "lock: [tex, printer]", "print": "lock: printer"})
    view = seen(archive, "papers/printer")
    assert view.next is None
    assert line(view) == [
        (1, "papers@3/both", "it waits for the lock papers/tex, too"),
        (2, "papers@3/print", ""),
    ]
    assert seen(archive, "papers/tex").next == "papers@3/both"
    assert texts(archive, "print@3") == [
        "It waits for the lock papers/printer, which no task has yet; waiting before it: papers@3/both. papers@3/both waits for the lock papers/tex, too."
    ]
    archive.end("tex@2")
    assert who_has(archive, "papers/printer") == ["papers@3/both"]


def test_where_a_lock_has_room_for_several_the_next_is_the_first_that_can_go(archive: AnArchive) -> None:
    locks.set_capacity(archive.session, ArchiveId(archive.id), "printer", 2, "ann")
    archive.commit({"tex": "lock: tex", "print": "lock: printer"})
    archive.claim()
    archive.commit({"both": "lock: [tex, printer]", "second": "lock: printer", "third": "lock: printer"})
    view = seen(archive, "papers/printer")
    assert view.next == "papers@3/second"
    assert [place for place, _, _ in line(view)] == [1, 2, 3]
    archive.end("print@2")
    assert who_has(archive, "papers/printer") == ["papers@3/second"]


def test_an_archive_whose_head_of_line_waits_for_another_lock_has_no_turn(
    archives: tuple[AnArchive, AnArchive, AnArchive],
) -> None:
    one, other, third = archives
    other.commit({"tex": "lock: tex"})
    one.commit({"a": GLOBAL})
    pass_on(one)
    one.claim()
    other.commit({"both": "lock: [tex, global/printer]", "later": GLOBAL})
    third.commit({"x": GLOBAL})
    view = seen(one, "global/printer")
    assert view.next == "third@2/x"
    assert line(view) == [
        (1, "other@3/both", "it waits for the lock other/tex, too"),
        (2, "third@2/x", ""),
        (3, "other@3/later", ""),
    ]
    one.end("a@2")
    pass_on(one)
    assert who_has(one, "global/printer") == ["third@2/x"]


def test_of_a_paused_lock_nobody_is_next(archive: AnArchive) -> None:
    archive.commit({"a": "lock: tex", "b": "lock: [tex, printer]"})
    locks.pause(archive.session, ArchiveId(archive.id), "tex", "", "ann")
    view = seen(archive, "papers/tex")
    assert view.next is None
    assert line(view) == [(None, "papers@2/a", "the lock is paused"), (None, "papers@2/b", "the lock is paused")]
    view = seen(archive, "papers/printer")
    assert (view.next, line(view)) == (None, [(None, "papers@2/b", "the lock papers/tex is paused")])


def test_who_sees_one_archive_gets_the_numbers_of_tasks_of_the_others(
    archives: tuple[AnArchive, AnArchive, AnArchive],
) -> None:
    one, other, third = archives
    one.commit(dict.fromkeys("ab", GLOBAL))
    other.commit(dict.fromkeys("uvw", GLOBAL))
    third.commit({"x": GLOBAL})
    pass_on(one)
    view = seen(one, "global/printer", third)
    assert (view.elsewhere, view.waiting_elsewhere, view.more) == (1, 4, False)
    assert line(view) == [(1, "third@2/x", "")]
    assert (view.next, view.next_elsewhere) == (None, True), "other@2/u is next, and is not named"
    view = seen(one, "global/printer")
    assert (view.elsewhere, view.waiting_elsewhere, view.next, view.next_elsewhere) == (0, 0, "other@2/u", False)


def test_who_sees_one_archive_sees_its_tasks_however_many_others_wait(
    archives: tuple[AnArchive, AnArchive, AnArchive], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, third = archives
    monkeypatch.setattr(of_locks, "MOST_TASKS", 2)
    one.commit(dict.fromkeys("abcd", GLOBAL))
    other.commit(dict.fromkeys("uvw", GLOBAL))
    third.commit({"x": GLOBAL})
    pass_on(one)
    view = seen(one, "global/printer", third)
    assert ([name for _, name, _ in line(view)], view.waiting_elsewhere, view.more) == (["third@2/x"], 6, False)
    view = seen(one, "global/printer", one)
    assert ([name for _, name, _ in line(view)], view.waiting_elsewhere, view.more) == (["one@2/b", "one@2/c"], 4, True)


def test_many_tasks_that_nothing_can_run_are_not_all_read(archive: AnArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind more of them than are looked at, no task is named as the next one."""
    claim.register(archive.session, PROCESS, HOST, "here", 4)
    archive.commit({"holder": "lock: tex"})
    archive.claim("holder@2")
    archive.commit({f"gpu{n}": "lock: tex\nruns_on: gpu" for n in range(4)} | {"plain": "lock: tex"})
    assert seen(archive, "papers/tex").next == "papers@3/plain"
    monkeypatch.setattr(of_locks, "LOOKED_AT", 4)
    assert (seen(archive, "papers/tex").next, len(seen(archive, "papers/tex").waiting)) == (None, 4)
    assert seen(archive, "papers/tex").more


@pytest.mark.parametrize("seed", range(6))
def test_the_task_that_is_named_as_next_gets_the_lock_when_a_holder_ends(session: Session, seed: int) -> None:
    """Of two archives with three locks each, one of them common, with pauses and labels that nobody has."""
    dice = random.Random(seed)
    claim.register(session, PROCESS, HOST, "here", 99)
    one, other = both = an_archive(session, "one"), an_archive(session, "other")
    for name in ("tex", "printer"):
        for archive in both:
            locks.set_capacity(session, ArchiveId(archive.id), name, dice.choice([1, 2]), "ann")
    locks.set_capacity(session, INSTALLATION, "global/tape", dice.choice([1, 2]), "ann")
    running: dict[int, AttemptId] = {}

    def judge(holder: Any) -> bool:
        """The end of a task with one lock gives this lock to the task that was next, or to nobody."""
        before = seen(one, holder["lock"])
        one.record(running.pop(holder["id"]), End.EXITED, 0)
        pass_on(one)
        had = {task.full_name for task in before.holders}
        found = [task.full_name for task in seen(one, holder["lock"]).holders if task.full_name not in had]
        assert found == ([before.next] if before.next else []), (before, found)
        return before.next is not None

    judged = []
    for _ in range(10):
        for archive in both:
            archive.commit(dict(a_task(dice, n) for n in range(dice.randint(1, 3))))
        if dice.random() < 0.3:
            locks.pause(session, ArchiveId(one.id), "printer", "", "ann")
        if dice.random() < 0.3:
            pauses.pause(session, ArchiveId(other.id), "", "ann")
        for _ in range(4):
            pass_on(one)
            running |= {found.task: found.attempt for found in claim.claim(session, PROCESS, HOST, 99)}
            holders = one.sql(
                "select u.task_id as id, count(*) as n, min(case when u.scope = 0 then '' else a.name || '/' end || u.name) as lock"
                " from lock_use u join archive a on a.id = u.archive_id where u.granted group by u.task_id order by u.task_id"
            )
            for holder in dice.sample(holders, min(2, len(holders))):
                if holder["n"] == 1:
                    judged.append(judge(holder))
                else:
                    one.record(running.pop(holder["id"]), End.EXITED, 0)
                    pass_on(one)
        for archive in both:
            with suppress(Conflict):
                pauses.resume(session, ArchiveId(archive.id), archive.name, "ann")
        with suppress(Conflict):
            locks.resume(session, ArchiveId(one.id), "printer", "one/printer", "ann")
    assert {*judged} == {True, False}


def a_task(dice: random.Random, n: int) -> tuple[str, str]:
    wanted = dice.choice(["tex", "printer", "global/tape", "tex, printer", "tex, global/tape", "printer, global/tape"])
    return f"t{n}", f"lock: [{wanted}]" + ("\nruns_on: gpu" if dice.random() < 0.1 else "")
