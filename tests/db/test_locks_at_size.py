"""Locks before which 20,000 tasks stand (design 5.25): a task that sits on a lock gives it back, and
the turn comes back to it, without anybody reading through the others.
"""

from __future__ import annotations

from typing import Any

import pytest

from arkqueue.db import Connection
from arkqueue.model import ArchiveId
from arkqueue.queue import claim, control, locks, pauses
from arkqueue.queue.graph import Graph
from arkqueue.views.explain import explain
from arkqueue.views.locks import LOOKED_AT, MOST_TASKS
from arkqueue.views.locks import locks as list_locks
from tests.builders import HOST, PROCESS, AnArchive
from tests.db.test_global_locks import Connect, archives, counting, pass_on

__all__ = ["archives"]

MANY = 20_000
FEW = 2000
"""The most rows and index entries that may be read of tasks and their lines, where each is asked for
what stands first.
"""
pytestmark = pytest.mark.full


def multiply(archive: AnArchive, key: str) -> None:
    """Puts so many copies behind a task on which no other depends, each in the lines of its locks."""
    task, name = archive.task(key), key.partition("@")[0]
    archive.sql(
        "insert into definition (digest, body) select sha256(convert_to(d.digest::text || n, 'UTF8')), d.body || jsonb_build_object('name', (d.body->>'name') || '-' || n)"
        " from definition d join task t on t.definition_id = d.id, generate_series(1, %s) n where t.id = %s",
        MANY, task,
    )  # fmt: skip
    archive.sql(
        "insert into task (run_id, archive_id, branch_id, number, run, definition_id, unmet, position, state, kind, program, pool, priority, entry_id, ready_at, name, asks, in_line)"
        " select t.run_id, t.archive_id, t.branch_id, t.number, t.run, d.id, t.unmet, t.position, t.state, t.kind, t.program, t.pool, t.priority, t.entry_id, t.ready_at,"
        "  d.body->>'name', t.asks, t.in_line"
        " from task t, definition d where t.id = %s and d.body->>'name' like %s order by d.id",
        task, f"{name}-%",
    )  # fmt: skip
    # The insertions below give each copy the rows of its model.
    copy = "task t join task c on c.run_id = t.run_id and c.name like t.name || '-%%'"
    archive.sql(f"insert into task_name select c.branch_id, c.name, true from {copy} where t.id = %s", task)
    archive.sql(
        "insert into lock_use (task_id, name, archive_id, scope, granted, priority, entry_id, run, position)"
        f" select c.id, u.name, u.archive_id, u.scope, u.granted, u.priority, u.entry_id, u.run, u.position from {copy} join lock_use u on u.task_id = t.id where t.id = %s",
        task,
    )  # fmt: skip
    archive.sql(
        "insert into edge (target, source, kind, settled, crossing, declared, met)"
        f" select c.id, e.source, e.kind, e.settled, e.crossing, e.declared, e.met from {copy} join edge e on e.target = t.id where t.id = %s",
        task,
    )  # fmt: skip
    archive.sql("update task r set unmet = r.unmet + %s from task t where t.id = %s and r.run_id = t.run_id and r.kind = 'report'", MANY, task)  # fmt: skip
    archive.sql("analyze")


def wait_ten_seconds(archive: AnArchive, key: str) -> None:
    archive.sql("update task set ready_at = ready_at - interval '10 s' where id = %s", archive.task(key))


def claimed(archive: AnArchive, slots: int) -> list[str]:
    found = claim.claim(archive.session, PROCESS, HOST, slots)
    archive.running |= {one.task: one for one in found}
    return [f"{one.archive.name}/{one.name}" for one in found]


def test_a_priority_of_90_behind_20_000_gives_a_lock_of_the_installation_back(
    archives: tuple[AnArchive, AnArchive], second_connection: Connect
) -> None:
    """Its archive claims the others first, which name no lock. The turn comes back to it when the other archive's task has ended."""
    one, other = archives
    one.commit({"sits": "lock: global/printer"})
    pass_on(one)
    control.prioritize(one.session, one.task("sits@2"), 90, "ann")
    one.commit({"plain": ""})
    multiply(one, "plain@3")
    assert claimed(one, 3) == ["one/plain", "one/plain-1", "one/plain-2"]
    other.commit({"x": "lock: global/printer"})
    wait_ten_seconds(one, "sits@2")
    connection = second_connection()
    assert reads_of_pass_on(connection, "global/printer") < FEW
    pass_on(one)
    assert (one.state("sits@2"), other.state("x@2")) == ("waiting", "ready")
    (view,) = list_locks(one.session, None)
    assert view.next == "one@2/sits"
    assert "other/x" in claimed(one, 2)
    other.end("x@2")
    pass_on(one)
    assert one.state("sits@2") == "ready"


def reads_of_pass_on(connection: Connection, name: str) -> int:
    """What is read to find whose turn it is, of tasks and their lines."""
    with counting(connection) as read:
        graph = Graph(connection)
        graph.rows("names_waited_for")
        graph.rows("places", name=name, patience=10.0)
        graph.rows("archives_waiting", name=name)
        return read()


def test_a_priority_of_90_has_its_turn_beside_20_000_that_wait_in_another_archive(
    archives: tuple[AnArchive, AnArchive], second_connection: Connect
) -> None:
    """Archives take turns at a lock of the installation, whatever the priorities of their tasks; also after it was given back."""
    one, other = archives
    other.commit({"x": "lock: global/printer"})
    pass_on(one)
    claimed(one, 1)
    other.commit({"y": "lock: global/printer"})
    multiply(other, "y@3")
    one.commit({"sits": "lock: global/printer"})
    control.prioritize(one.session, one.task("sits@2"), 90, "ann")
    (view,) = list_locks(one.session, None)
    assert (view.next, len(view.waiting), view.more) == ("one@2/sits", MOST_TASKS, True)
    (view,) = list_locks(one.session, [ArchiveId(one.id)])
    assert (view.next, view.elsewhere, view.waiting_elsewhere, view.more) == ("one@2/sits", 1, 10_000, False)
    other.end("x@2")
    pass_on(one)
    assert (one.state("sits@2"), other.state("y@3")) == ("ready", "waiting")
    connection = second_connection()
    assert reads_of_pass_on(connection, "global/printer") < FEW
    assert reads_of_list(connection, 0, "global/printer") < 20 * LOOKED_AT
    wait_ten_seconds(one, "sits@2")
    pass_on(one)
    assert (one.state("sits@2"), other.state("y@3")) == ("waiting", "ready")
    other.run("y@3")
    pass_on(one)
    assert one.state("sits@2") == "ready"
    one.run("sits@2")
    pass_on(one)
    assert other.state("y-1@3") == "ready"


@pytest.mark.parametrize("lock", ["tex", "global/printer"])
def test_a_priority_of_90_gives_a_lock_back_to_the_first_of_20_000_of_its_archive(
    archives: tuple[AnArchive, AnArchive], second_connection: Connect, lock: str
) -> None:
    """They are before it in the order of claims, and want the lock."""
    one, _ = archives
    one.commit({"sits": f"lock: {lock}", "begin": ""})
    pass_on(one)
    control.prioritize(one.session, one.task("sits@2"), 90, "ann")
    # What enters is judged; the others wait in the line already.
    locks.pause(one.session, scope := ArchiveId(0 if lock != "tex" else one.id), lock, "", "ann")
    one.commit({"x": f"lock: {lock}"})
    multiply(one, "x@3")
    locks.resume(one.session, scope, lock, lock, "ann")
    pass_on(one)
    assert (one.state("x@3"), one.state("x-1@3"), one.state("sits@2")) == ("ready", "waiting", "waiting")
    (view,) = list_locks(one.session, None)
    assert (view.next, view.more) == ("one@3/x-1", True)
    assert reads_of_list(second_connection(), scope, lock) < 20 * LOOKED_AT
    one.run("x@3")
    pass_on(one)
    assert (one.state("x-1@3"), one.state("sits@2")) == ("ready", "waiting")
    (told,) = explain(one.session, one.task("sits@2")).reasons
    assert "waiting before it: one@3/x-2, one@3/x-3, one@3/x-4 and 997 more" in told.text
    pauses.pause(one.session, ArchiveId(one.id), "", "ann")
    assert (one.state("x-1@3"), one.state("sits@2")) == ("waiting", "waiting")


def test_behind_20_000_that_nothing_can_run_a_list_of_locks_reads_few(
    archives: tuple[AnArchive, AnArchive], second_connection: Connect
) -> None:
    one, _ = archives
    claim.register(one.session, PROCESS, HOST, "here", 4)
    one.commit({"holder": "lock: tex"})
    claimed(one, 1)
    one.commit({"gpu": "lock: tex\nruns_on: gpu"})
    multiply(one, "gpu@3")
    one.commit({"plain": "lock: [tex, printer]"})
    assert reads_of_list(second_connection(), one.id, "tex") < 20 * LOOKED_AT
    view = next(view for view in list_locks(one.session, None) if view.name == "one/tex")
    assert (view.next, len(view.waiting), view.more) == (None, MOST_TASKS, True)
    one.end("holder@2")
    assert one.state("plain@4") == "ready"


def reads_of_list(connection: Connection, scope: int, name: str) -> int:
    """What is read of tasks and their lines to list one lock."""
    at: dict[str, Any] = {"scope": scope, "name": name, "archives": None, "looked_at": LOOKED_AT, "silence": 60.0}
    with counting(connection) as read:
        graph = Graph(connection)
        rows = graph.rows("lock_tasks_of", most=MOST_TASKS, **at)
        first = [row.id for row in rows if row.kind == "standing"][:1]
        graph.rows("locks_without_room", tasks=first, may_take=True, as_free=name, less=None, **at)
        return read()
