"""Failures of similar queues elsewhere, as far as no other test shows them. The other lessons are
in the tests of rules, races, claims and schedules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row

from arkqueue.db import Connection
from arkqueue.db.embedded.server import Embedded
from arkqueue.db.session import SQL, Session
from arkqueue.model import AttemptId, BranchId, End, Outcome, Receipt
from arkqueue.queue import archives, claim, finish
from tests.builders import HOST, PROCESS, AnArchive
from tests.postgres import a_database

Connect = Callable[[], Connection]


# Plans

HISTORY = 100_000
"""Settled tasks, each with an edge and an attempt."""
MODES = ("force_custom_plan", "force_generic_plan")
"""How the server plans: for the values of a statement, and for any."""


@pytest.fixture
def history(archive: AnArchive) -> AnArchive:
    """An archive with a long past and a little to do."""
    archive.commit({"a": "", "b": "depends: [a, PREV]"})
    branch = archive.branches[""].id
    archive.sql(
        "insert into revision (id, branch_id, number, name, author, date, message, workflow_id)"
        " select 1000 + n, %s, 1000 + n, 'r' || n, '', now(), '', (select max(id) from workflow) from generate_series(1, %s) n",
        branch, HISTORY // 10,
    )  # fmt: skip
    archive.sql(
        "insert into run (id, archive_id, branch_id, revision_id, number, run, trigger)"
        " select 1000 + n, %s, %s, 1000 + n, 1000 + n, 1, 'commit' from generate_series(1, %s) n",
        archive.id, branch, HISTORY // 10,
    )  # fmt: skip
    archive.sql(
        "insert into task (id, run_id, archive_id, branch_id, number, run, unmet, position, state, settled_at, kind, program, name, attempt_id, attempts)"
        " select 10000 + n, 1001 + n / 10, %s, %s, 1001 + n / 10, 1, 0, n %% 10, 'completed', now(), 'ordinary', true, 't' || n %% 10, 10000 + n, 1"
        " from generate_series(0, %s) n",
        archive.id, branch, HISTORY - 1,
    )  # fmt: skip
    archive.sql(
        "insert into edge (target, source, kind, settled, crossing, declared, met)"
        " select 10000 + n, 10000 + n - 1, 'depends', false, n %% 10 = 0, true, true from generate_series(1, %s) n",
        HISTORY - 1,
    )
    archive.sql(
        'insert into attempt (id, task_id, number, process, host, lease_until, ended_at, "end")'
        " select id, id, 1, 'old', 'old', now(), now(), 'exited' from task where id >= 10000"
    )
    archive.sql("analyze")
    return archive


FIRES: dict[str, dict[str, Any]] = {
    "fired_run": {"run": 1, "branch": 1, "cron": "0 3 * * *", "zone": "UTC", "tasks": ["t1"], "fire_at": "2026-01-01"},
    "show_schedules": {"archives": [1]},
}
"""Statements that look up fires of schedules."""

HOT: dict[str, dict[str, Any]] = {
    "claim": claim.parameters("p", "h", 8),
    "claim_in_tiers": claim.parameters("p", "h", 8),
    "left_over": {},
    "withdraw": {"archives": [1]},
    "renew": {"attempts": [1], "process": "p", "lease": 90.0},
    "stops": {"process": "p"},
    "lapsed": {},
    "due_archives": {},
    "make_due": {"archives": [1], "each": 10},
    "next_due": {},
    "inputs": {"tasks": [10_500]},
    "started": {"attempts": [10_500], "ages": [0.1]},
    "lock_archives": {"archives": []},
    "lock_attempts": {"attempts": [10_500], "badly": [10_500], "archives": [1]},
    "end": {"ends": "[]"},
    "return_slots": {"attempts": [10_500]},
    "lock_tasks": {"tasks": [10_500]},
    "advance": {"settled": [10_500], "again": [10_500], "entering": [10_500], "is_judged": False, "fired": False},
    "judge_blocking": {"tasks": [10_500], "less": []},
    "skip_dependents": {"settled": [10_500], "completed": None},
    "cancelers": {"entering": [10_500], "most": 251},
    "lock_victims": {"firing": [10_500], "here": False, "in_steps": False},
    "cancel_victims": {"firing": [10_500], "here": False},
    "stop_victims": {"firing": [10_500], "here": False},
    "nearest": {"branch": 1, "names": ["t1", "t2"], "items": ["", ""], "every_name": True, "number": 5000, "run": 1},
    "nearest_purged": {"branch": 1, "names": ["t1"], "items": [""], "every_name": True, "number": 5000, "run": 1},
    "next_gate": {"branch": 1, "number": 5000},
    "runs_of_branch": {"branch": 1},
}


@pytest.mark.usefixtures("history")
@pytest.mark.garbles
def test_nothing_that_is_done_for_each_task_reads_through_the_past(second_connection: Connect) -> None:
    """Also with the generic plan that a server makes once it has seen a statement a few times."""
    for mode in MODES:
        assert_indices_are_used(second_connection(), mode, HOT)


def test_a_plan_that_is_kept_from_the_first_minute_does_not_read_through_what_comes(
    postgres: Embedded, template: str
) -> None:
    """The server plans anew only after it has looked at the tables again, and by then there may be much. ``end`` does read until then."""
    blocks = {block: values for block, values in HOT.items() if block != "end"}
    # A database that tests have used was perhaps looked at already, when it was empty.
    with a_database(postgres, template) as uri, psycopg.connect(uri, autocommit=True, row_factory=dict_row) as new:
        assert_indices_are_used(new, "force_generic_plan", blocks)


def test_a_fire_is_found_among_many(archive: AnArchive, second_connection: Connect) -> None:
    archive.sql(
        "insert into schedule_fire (branch_id, cron, zone, tasks, fire_at)"
        " select %s, '0 3 * * *', 'UTC', '{t1}', now() - n * interval '1 hour' from generate_series(1, 20000) n",
        archive.branches[""].id,
    )
    archive.sql("analyze schedule_fire")
    for mode in MODES:
        for block, plan in plans_of(second_connection(), mode, FIRES):
            assert re.search(r"schedule_fire_once.*\n *Index Cond: .*key_of\(", plan), f"{block}:\n{plan}"


def assert_indices_are_used(connection: Connection, mode: str, blocks: dict[str, dict[str, Any]]) -> None:
    for block, plan in plans_of(connection, mode, blocks):
        scans = [line for line in plan.splitlines() if re.search(r"Seq Scan on (task|edge|attempt|run)\b", line)]
        assert not scans, f"{block}:\n{plan}"


def plans_of(connection: Connection, mode: str, blocks: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """The plan of each block, with its name."""
    connection.execute(f"set plan_cache_mode = {mode}".encode())
    for block, values in blocks.items():
        numbered = SQL[block].decode().replace("%%", "%")
        values = {name: value for name, value in values.items() if f"%({name})s" in numbered}
        for place, name in enumerate(values, start=1):
            numbered = numbered.replace(f"%({name})s", f"${place}")
        connection.execute(f"prepare hot as {numbered}".encode())
        arguments = sql.SQL(", ").join(map(sql.Literal, values.values()))
        call = sql.SQL("explain execute hot ({})" if values else "explain execute hot").format(arguments)
        plan = "\n".join(row["QUERY PLAN"] for row in connection.execute(call).fetchall())
        connection.execute("deallocate hot")
        yield block, plan


def test_nothing_of_the_queue_lives_in_a_session_or_in_a_notification() -> None:
    """A pooler gives each transaction another session; a NOTIFY in a transaction makes commits take turns."""
    session = r"\b(pg_(try_)?advisory\w*|temp|temporary|listen|notify(?!')|pg_notify|prepare|declare)\b|(^|;)\s*set\s"
    # What is set for the transaction alone is no state of a session.
    forbidden = session + r"|set_config\((?![^)]*, true\))"
    for block in SQL:
        text = re.sub(r"--.*|%\(\w+\)s", "", SQL[block].decode())
        assert not re.search(forbidden, text, re.IGNORECASE), block


def test_every_id_is_a_bigint_from_the_first_day(archive: AnArchive) -> None:
    """Tables of one row aside, and what others call theirs (``sender_id``)."""
    small = archive.sql(
        "select table_name, column_name from information_schema.columns where table_schema = 'public' and data_type <> 'bigint'"
        " and (column_name = 'id' or column_name ~ '_id$') and table_name not in ('heartbeat', 'installation', 'pause')"
        " and column_name <> 'sender_id'"
    )
    assert small == []
    identities = archive.sql("select sequencename from pg_sequences where data_type <> 'bigint'::regtype")
    assert identities == []


# Triggers and order


def test_a_rerun_of_an_old_revision_does_not_become_the_latest(archive: AnArchive) -> None:
    for _ in range(2):
        archive.commit({"a": ""})
        archive.run(f"a@{archive.numbers['']}")
    archive.trigger(2, force=True)
    archive.fail("a@2.2")
    archive.commit({"a": "depends: [PREV]"})
    assert archive.state("a@4") == "ready"
    assert archive.claim("a@4").base == "3"


def test_base_brings_back_the_paths_whose_revision_was_superseded(archive: AnArchive) -> None:
    """A task that runs for changed paths and was canceled there is told from which revision on it has not seen them."""
    tasks = {"pdf": "paths: [doc/**]\ncancels: [PREV]"}
    archive.commit(tasks, changed=["doc/a"])
    archive.run("pdf@2")
    archive.commit(tasks, changed=["doc/b"])
    archive.commit(tasks, changed=["readme"])
    archive.commit(tasks, changed=["doc/c"])
    assert archive.states() == {"pdf@2": "completed", "pdf@3": "canceled", "pdf@5": "ready"}
    claimed = archive.claim("pdf@5")
    assert (claimed.base, claimed.previous) == ("2", "4")


def test_nothing_is_canceled_by_a_revision_whose_own_task_does_not_come_to_run(archive: AnArchive) -> None:
    archive.commit({"index": "", "pdf": "depends: [index]\ncancels: [PREV]"})
    archive.run("index@2")
    archive.claim("pdf@2")
    archive.commit({"index": "", "pdf": "depends: [index]\ncancels: [PREV]"})
    archive.fail("index@3")
    archive.commit({"pdf": "paths: [drafts/**]\ncancels: [PREV]"}, changed=["readme"])
    assert archive.states() == {"index@2": "completed", "pdf@2": "running", "index@3": "failed", "pdf@3": "skipped"}
    assert claim.stops(archive.session, PROCESS) == {}


# Queue


def test_a_retry_in_the_future_blocks_nothing_but_what_needs_it(archive: AnArchive) -> None:
    archive.commit({"a": "retries: {max: 1, delay: 1h}", "b": "depends: [a]"})
    archive.fail("a@2")
    archive.commit({"a": "", "c": ""})
    assert archive.states() == {"a@2": "deferred", "b@2": "waiting", "a@3": "ready", "c@3": "ready"}
    archive.run("a@3", "c@3")
    assert finish.wake_deferred(archive.session) is not None
    assert archive.state("a@2") == "deferred"


def test_what_waits_holds_no_slot_and_older_revisions_go_first(archive: AnArchive) -> None:
    tasks = {"a": "depends: [PREV]"}
    for _ in range(5):
        archive.commit(tasks)
    for number in range(2, 7):
        (claimed,) = claim.claim(archive.session, PROCESS, HOST, 1)
        assert claimed.number == number
        archive.record(claimed.attempt, End.EXITED, 0)


def test_more_leases_than_one_batch_lapse_with_the_next_turns(archive: AnArchive) -> None:
    archive.commit({f"t{n}": "" for n in range(1100)})
    claimed = claim.claim(archive.session, PROCESS, HOST, 2000)
    assert len(claimed) == 1100
    archive.sql("update attempt set lease_until = lease_until - interval '1 hour'")
    archive.sql(
        "update heartbeat set steady_since = clock_timestamp() - interval '1 hour', beat_at = clock_timestamp()"
    )
    lapsed: list[AttemptId] = []
    while ended := finish.lapse(archive.session):
        lapsed += ended
    assert sorted(lapsed) == sorted(c.attempt for c in claimed)
    assert set(archive.states().values()) == {"ready"}


def test_tasks_of_a_removed_archive_that_run_come_to_their_end(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "depends: [a]", "c": ""})
    attempt = archive.attempt("a@2")
    archives.remove(archive.session, archive.id, "ann")
    assert archive.states() == {"a@2": "running", "b@2": "canceled", "c@2": "running"}
    assert finish.finish(archive.session, PROCESS, [Outcome(attempt, End.EXITED, 0)]) == {attempt: Receipt.RECORDED}
    assert archive.state("a@2") == "completed"


def drop_revision(archive: AnArchive) -> None:
    archive.append("", [], dropped=["2"])


def delete_branch(archive: AnArchive) -> None:
    archives.untrack(archive.session, archive.id, BranchId(archive.branches[""].id))


def remove_archive(archive: AnArchive) -> None:
    archives.remove(archive.session, archive.id, "ann")


@pytest.mark.parametrize(
    ("go", "by"),
    [
        (drop_revision, "a rewrite of the branch"),
        (delete_branch, "the end of its branch (deleted, or tracked no more)"),
        (remove_archive, "the removal of the archive"),
    ],
)
@pytest.mark.parametrize(("end", "code"), [(End.EXITED, 1), (End.EXITED, 75), (End.STOPPED, None), (End.LOST, None)])
def test_what_is_gone_is_not_tried_again_by_itself(
    archive: AnArchive, go: Callable[[AnArchive], None], by: str, end: End, code: int | None
) -> None:
    """Whether a failure or a deferral would bring it back, its task manager hands it back, or it is lost."""
    archive.commit({"a": "retries: 3", "b": "depends: [a]"})
    attempt = archive.attempt("a@2")
    go(archive)
    if end is End.LOST:
        assert finish.expire(archive.session, "its successor", HOST) == [attempt]
    else:
        assert archive.record(attempt, end, code) is Receipt.RECORDED
    assert archive.states() == {"a@2": "canceled", "b@2": "canceled"}
    (task,) = archive.sql("select by, due_at from task where name = 'a'")
    assert task == {"by": by, "due_at": None}
    assert archive.state("REPORT@2") == "completed"


def test_what_is_gone_is_tried_again_where_a_person_wants_it(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.claim("a@2")
    remove_archive(archive)
    archive.restart("a@2")
    archive.end("a@2", None, End.STOPPED)
    archive.fail("a@2")
    archive.retry("a@2", force=True)
    archive.run("a@2")


def test_an_old_snapshot_that_is_held_is_ended_by_the_server(session: Session) -> None:
    """It would make every claim read what had been ready since."""
    with session.database.transaction() as connection:
        (row,) = connection.execute("show idle_in_transaction_session_timeout").fetchall()
    assert row["idle_in_transaction_session_timeout"] == "30s"
