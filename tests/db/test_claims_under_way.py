"""A claim waits for no other transaction, so it may commit during a change of the graph. A task
that was ready when the change began may then be running when the change acts on it (design 6).

Each change locks the tasks that it judges, so that it waits for the claim, and then finds the task
running.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from arkqueue.db import Connection
from arkqueue.db.session import SQL, Session
from arkqueue.errors import Conflict
from arkqueue.model import BranchId, RunId
from arkqueue.queue import archives, control
from arkqueue.queue.claim import parameters
from tests.builders import HOST, PROCESS, AnArchive, an_archive
from tests.db.test_races import InThread, wait_until_blocked

Connect = Callable[[], Connection]


def cancel(archive: AnArchive) -> None:
    archive.cancel("a@2")


def cancel_run(archive: AnArchive) -> None:
    control.cancel_run(archive.session, RunId(archive.run_id(2)), "ann")


def skip(archive: AnArchive) -> None:
    archive.skip("a@2")


def rewrite(archive: AnArchive) -> None:
    archive.append("", [], dropped=["2"])


def delete_branch(archive: AnArchive) -> None:
    archives.untrack(archive.session, archive.id, BranchId(archive.branches[""].id))


def remove_archive(archive: AnArchive) -> None:
    archives.remove(archive.session, archive.id, "ann")


def while_a_claim_is_under_way(archive: AnArchive, connect: Connect, change: Callable[[AnArchive], None]) -> InThread:
    """Begin a change while everything ready is being claimed, and commit the claim when the change waits for it."""
    claimer, watcher = connect(), connect()
    with claimer.transaction():
        claim = parameters(PROCESS, HOST, 9)
        assert [row["name"] for row in claimer.execute(SQL["claim"], claim).fetchall()] == ["a"]
        changing = InThread(lambda: change(archive))
        wait_until_blocked(watcher)
    return changing


@pytest.mark.parametrize("change", [cancel, cancel_run])
def test_a_person_stops_what_was_claimed_meanwhile(
    session: Session, second_connection: Connect, change: Callable[[AnArchive], None]
) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]"})
    while_a_claim_is_under_way(archive, second_connection, change).result()
    (task,) = archive.sql("select state, stop, by from task where name = 'a'")
    assert task == {"state": "running", "stop": "cancel", "by": "ann"}


def test_what_was_claimed_meanwhile_is_not_skipped(session: Session, second_connection: Connect) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]"})
    skipping = while_a_claim_is_under_way(archive, second_connection, skip)
    with pytest.raises(Conflict, match="cancel it first"):
        skipping.result()
    assert archive.states() == {"a@2": "running", "b@2": "waiting"}


@pytest.mark.parametrize("change", [rewrite, delete_branch, remove_archive])
def test_what_was_claimed_before_it_was_gone_goes_on(
    session: Session, second_connection: Connect, change: Callable[[AnArchive], None]
) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]"})
    while_a_claim_is_under_way(archive, second_connection, change).result()
    assert archive.states() == {"a@2": "running", "b@2": "canceled"}
    assert archive.sql("select stop from task where name = 'a'") == [{"stop": None}]


def test_a_retry_does_not_take_back_what_was_claimed_meanwhile(session: Session, second_connection: Connect) -> None:
    """Its edge stays met, or it would wait again after a lost lease for what it had been let go by (design 5.8)."""
    archive = an_archive(session)
    archive.commit({"root": "", "a": "depends: [{task: root, when: settled}]"})
    archive.fail("root@2")
    while_a_claim_is_under_way(archive, second_connection, lambda archive: archive.retry("root@2")).result()
    assert archive.states() == {"root@2": "ready", "a@2": "running"}
    assert archive.sql("select unmet from task where name = 'a'") == [{"unmet": 0}]
    assert (
        archive.sql("select met from edge where target = %s and kind = 'depends'", archive.task("a@2"))
        == [{"met": True}] * 2
    )
