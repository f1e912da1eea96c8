"""Cancellations, deletions and undeletions of large runs. Their processes are killed in each step,
and a repetition of the command continues the work (design 5.27, 5.33).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from arkqueue.db.session import Session
from arkqueue.errors import Conflict
from arkqueue.model import RunId
from arkqueue.queue import deletion
from arkqueue.views.doctor import examine
from tests.builders import AnArchive, an_archive
from tests.loaded import Forked, fork
from tests.system.queue_manager.killed import kill_in_each_step

TASKS = 10
PROGRAM = """
import sys
from arkqueue.db import Database
from arkqueue.db.session import Session
from arkqueue.queue import control, deletion, done

control.MOST_TASKS = deletion.MOST_TASKS = done.MOST_TASKS = 3
_, uri, module, verb, run = sys.argv
with Database.open(uri, application_name="arkqueue tests") as database:
    getattr({"control": control, "deletion": deletion}[module], verb)(Session(database), int(run), "bob")
"""


@contextmanager
def a_process(session: Session, verb: str, run: RunId, log: Path) -> Iterator[Forked]:
    """A process of its own that cancels, deletes or undeletes a run, a few tasks with each transaction."""
    with session.database.connect() as connection:
        uri = make_conninfo(connection.info.dsn, password=connection.info.password)
    log.touch()
    process = fork(PROGRAM, ["verb", uri, *verb.split("."), str(run)], out=log, err=log, environment=dict(os.environ))
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def a_large_run(session: Session) -> tuple[AnArchive, RunId]:
    """Chains of two tasks."""
    archive = an_archive(session)
    archive.commit({f"t{n}": f"depends: [t{n - 1}]" if n % 2 else "" for n in range(TASKS)})
    return archive, RunId(archive.run_id(2))


@pytest.mark.full
def test_a_deletion_goes_on_after_its_process_was_killed_in_each_step(session: Session, tmp_path: Path) -> None:
    """Nothing of the run can be claimed between the steps, and nothing is canceled and not remembered."""
    archive, run = a_large_run(session)
    canceled: list[int] = []

    def look() -> None:
        states = list(archive.states().values())
        canceled.append(states.count("canceled"))
        (row,) = archive.sql("select deleted_tasks from run where id = %s", run)
        ended = {task["id"] for task in archive.sql("select id from task where state = 'canceled'")}
        assert ended <= {*(row["deleted_tasks"] or ())}
        if canceled[-1]:
            assert "ready" not in states
            assert archive.claim_some(TASKS) == []

    steps = kill_in_each_step(
        session,
        "update on task",
        lambda: a_process(session, "deletion.delete_run", run, tmp_path / "said"),
        lambda: set(archive.states().values()) == {"canceled"},
        look,
    )
    with suppress(Conflict):  # the last process may have ended it
        deletion.delete_run(session, run, "ann")
    assert archive.sql("select deleted_at is not null as is_deleted from run where id = %s", run) == [{"is_deleted": True}]  # fmt: skip
    assert canceled == sorted(canceled)
    assert len({*canceled}) > TASKS // 3
    assert steps > TASKS // 3
    assert set(archive.states().values()) == {"canceled"}
    deletion.undelete_run(session, run, "ann")
    assert set(archive.states().values()) == {"held"}


def test_an_undeletion_goes_on_after_its_process_was_killed_in_each_step(session: Session, tmp_path: Path) -> None:
    archive, run = a_large_run(session)
    deletion.delete_run(session, run, "ann")
    held: list[int] = []

    def look() -> None:
        held.append(list(archive.states().values()).count("held"))
        assert archive.claim_some(TASKS) == []

    kill_in_each_step(
        session,
        "update on task",
        lambda: a_process(session, "deletion.undelete_run", run, tmp_path / "said"),
        lambda: set(archive.states().values()) == {"held"},
        look,
    )
    assert held == sorted(held)
    assert len({*held}) > TASKS // 3
    with suppress(Conflict):  # the last process may have ended it
        deletion.undelete_run(session, run, "ann")
    assert archive.sql("select deleted_tasks, deleted_at from run where id = %s", run) == [
        {"deleted_tasks": None, "deleted_at": None}
    ]


@pytest.mark.full
def test_a_cancellation_goes_on_after_its_process_was_killed_in_each_step(session: Session, tmp_path: Path) -> None:
    """What it has not reached stays held; everything is canceled once."""
    archive, run = a_large_run(session)
    canceled_at: dict[str, str] = {}
    counts: list[int] = []

    def look() -> None:
        rows = archive.sql("select name, settled_at::text as at from task where state = 'canceled'")
        counts.append(len(rows))
        assert {row["name"]: canceled_at.setdefault(row["name"], row["at"]) for row in rows} == {
            row["name"]: row["at"] for row in rows
        }
        if rows:
            assert "ready" not in archive.states().values()
            assert archive.claim_some(TASKS) == []

    kill_in_each_step(
        session,
        "update on task",
        lambda: a_process(session, "control.cancel_run", run, tmp_path / "said"),
        lambda: set(archive.states().values()) == {"canceled"},
        look,
    )
    assert counts == sorted(counts)
    assert len({*counts}) > TASKS // 3
    assert examine(session).findings == []
