"""The statements of views read few rows, and along indices."""

from __future__ import annotations

import re
from typing import Any

import pytest
from psycopg import sql

from arkqueue.db import session as of_sessions
from arkqueue.db.session import SQL, Session
from arkqueue.model import ArchiveId, End, Trigger
from arkqueue.views import runs as run_views
from arkqueue.views.cells import cells_of
from arkqueue.views.remedies import MOST_ENTRIES, are_not_permitted
from arkqueue.views.runs import RunState
from tests.builders import AnArchive, an_archive
from tests.counting import counted_rows


def plan_of(session: Session, block: str, *, analyze: bool = False, **parameters: Any) -> str:
    with session.database.transaction() as connection:
        connection.execute("set local enable_seqscan = off")
        rows = connection.execute(
            b"explain (format text, analyze %s) " % (b"on" if analyze else b"off") + SQL[block], parameters
        ).fetchall()
    return "\n".join(row["QUERY PLAN"] for row in rows)


def test_keys_are_found_along_an_index_of_their_bytes_whatever_the_collation_is(session: Session) -> None:
    """An index in the collation of the database sorts `aa` behind `z` in Danish. Only its own index has the order that a query in the collation C asks for."""
    archive = an_archive(session)
    archive.commit({"tile": f"foreach: {[f'a{number:03}' for number in range(300)]}", "index": ""})
    archive.sql("analyze task")
    asked = {"item": "a1", "above": "a1\U0010ffff", "task": None, "before": None, "looked_at": 50}
    asked |= {"archives": None, "limit": 20}
    plan = plan_of(session, "tasks_of_items_like", **asked)
    assert len(re.findall(r"using task_item_key on task", plan)) == 2, plan
    for bound in ("> 'a1'", "< 'a1"):
        assert re.search(rf"Index Cond:.*\(item\)?(::text)? {bound}", plan), plan
    assert "Sort Key: t" not in plan


def test_the_audit_log_is_read_once_for_all_tasks_that_the_settings_keep_from_a_start(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({f"t{number}": "" for number in range(20)})
    for claim_ in archive.claim_some(20):
        archive.record(claim_.attempt, End.NOT_PERMITTED, None)
    tasks = [row["id"] for row in archive.sql("select id from task where name like 't%%'")]

    def note(entries: int) -> None:
        archive.sql(
            "insert into deed (by, verb, archive_id) select 'ann', 'hold', %s from generate_series(1, %s)",
            archive.id,
            entries,
        )

    note(100)
    (known,) = [row["n"] for row in archive.sql("select count(*) as n from deed where archive_id = %s", archive.id)]
    archive.sql("analyze deed")
    plan = plan_of(session, "not_permitted", analyze=True, tasks=tasks, entries=known + 1)
    read = re.findall(r"on deed\S* .*\(actual .*rows=([\d.]+)\S* loops=(\d+)\)", plan)
    assert [(float(rows), int(loops)) for rows, loops in read] == [(known, 1)], plan
    assert are_not_permitted(session, tasks) == {*tasks}
    note(MOST_ENTRIES)
    assert are_not_permitted(session, tasks) == set(), "a change may be among the entries that are not read"


@pytest.mark.parametrize("block", ["list_tasks", "show_tasks"])
def test_tasks_are_read_without_the_dead_entries_of_the_audit_log(session: Session, block: str) -> None:
    """A preview is rolled back, and leaves dead rows behind. A plan may be older than these."""
    archive = an_archive(session)
    archive.commit({f"t{number}": "" for number in range(100)})
    tasks = [row["id"] for row in archive.sql("select id from task")]
    asked = {"runs": [archive.run_id(2)], "item": None, "tasks": tasks, "silence": 1.0}
    statement = SQL.statements[block]
    values = sql.SQL(", ").join(sql.Literal(asked[name]) for name in statement.names)

    with session.database.transaction() as connection:
        connection.execute(b"analyze deed")
        connection.execute(b"set local plan_cache_mode = force_generic_plan")
        connection.execute(f"prepare {block}_then as ".encode() + statement.text)

        def pages_read() -> int:
            asking = sql.SQL("explain (analyze, buffers) execute {}({})").format(
                sql.Identifier(f"{block}_then"), values
            )
            plan = "\n".join(row["QUERY PLAN"] for row in connection.execute(asking).fetchall())
            whole = re.findall(r"Buffers:.*", plan)[0]
            return sum(map(int, re.findall(r"(?:hit|read)=(\d+)", whole)))

        pages_read()
        before = pages_read()
        connection.execute(b"savepoint here")
        connection.execute(b"insert into deed (by, verb) select 'ann', 'hold' from generate_series(1, 20000)")
        connection.execute(b"rollback to here")
        assert pages_read() < before + 20


def test_revisions_are_found_by_the_beginning_of_their_ids_along_an_index_of_their_bytes(session: Session) -> None:
    """In the collation of a Danish database, `aa` stands behind `ag`, so that the ids from `aa` to `aag` would be none."""
    archive = an_archive(session)
    for _ in range(30):
        archive.commit()
    archive.sql("analyze revision")
    asked = {"number": None, "prefix": "aa", "archives": None, "limit": 20, "branches": [1]}
    for block in ("runs_numbered", "revisions_with"):
        plan = plan_of(session, block, **asked)
        assert re.search(r"\(name\)?(::text)? >= 'aa'::text\) AND \(+name\)?(::text)? < 'aag'::text", plan), plan
        assert "revision_name" in plan, plan


def test_few_runs_are_looked_at_for_a_page_of_many_columns(session: Session) -> None:
    """With 500 columns, two runs fill a page of 50: the others would cost 24,000 rows."""
    archive = an_archive(session)
    for _ in range(20):
        archive.commit({f"t{number}": "" for number in range(20)})
    listed = run_views.runs(session, archives=[archive.id], limit=50).runs
    with counted_rows() as many:
        all_of_them = cells_of(session, listed, 30)
    with counted_rows() as few:
        found = cells_of(session, listed, 30, width=20)
    assert [run.id for run in listed][:2] == list(found.runs)
    assert found.runs == all_of_them.runs
    assert found.names == all_of_them.names
    assert sum(few) < sum(many) / 3
    for run in listed[2:4]:  # of which nobody said how wide they are
        assert [len(cells) for cells in cells_of(session, [run], 5).runs.values()] == [20]
    assert len(cells_of(session, listed, 30, chosen=["t3"], width=1).runs) == len(listed)


def test_the_tasks_of_running_attempts_that_are_not_late_are_not_read(session: Session) -> None:
    """Ten thousand tasks may run while somebody looks at the overview."""
    archive = an_archive(session)
    archive.commit({f"t{number}": "" for number in range(20)})
    for number in range(20):
        archive.claim(f"t{number}@2")
    asked = {"archives": None, "silence": 30, "times": 3.0, "longer": 600.0, "looked_at": 200}

    def read() -> int:
        """How many attempts have their tasks looked up."""
        plan = plan_of(session, "hanging_tasks", analyze=True, **asked)
        (looked_up,) = re.findall(r"on task t .*?(?:loops=(\d+)|never executed)", plan)[:1]
        return int(looked_up or 0)

    assert read() == 0
    archive.sql("update attempt set lease_until = now() - interval '1 s' where id = %s", archive.attempt("t7@2"))
    assert read() == 1


def test_settled_runs_are_not_read_when_open_runs_are_sought(session: Session) -> None:
    """Their number grows for ever."""
    archive, other = an_archive(session), an_archive(session, "other")
    archive.commit({"a": ""})
    other.commit({"a": ""})
    archive.sql(
        "insert into run (archive_id, branch_id, revision_id, number, run, trigger)"
        " select archive_id, branch_id, revision_id, number, n, 'schedule' from run, generate_series(3, 3000) n where run.archive_id = %s and number = 2",
        archive.id,
    )  # so many that no plan reads them by chance
    archive.sql("analyze run, task")
    page = {"branch": None, "number": None, "trigger": None, "since": None, "deleted": [False], "backfills": None, "before": None, "limit": 50}  # fmt: skip
    plan = plan_of(session, "page_of_open_runs", analyze=True, archives=[archive.id], **page)
    (rows, loops), *others = re.findall(r"on run .*\(actual .*rows=(\d+)\S* loops=(\d+)\)", plan)
    assert (int(rows) * int(loops), others) == (1, []), plan
    archive.sql("delete from run where run > 2")


def test_the_runs_with_a_rare_trigger_are_found_without_the_others(session: Session) -> None:
    """The runs of commits grow for ever."""
    archive, other = an_archive(session), an_archive(session, "other")
    for one in (archive, other):
        one.commit({"a": ""})
        one.trigger(2, "a")
    triggered = [one.run_id(2, 2) for one in (archive, other)]
    archive.sql(
        "insert into run (archive_id, branch_id, revision_id, number, run, trigger)"
        " select archive_id, branch_id, revision_id, number, n, 'schedule' from run, generate_series(3, 3000) n where run.run = 1 and number = 2"
    )
    archive.sql("analyze run")
    of_one = run_views.runs(session, archives=[ArchiveId(archive.id)], trigger=Trigger.MANUAL)
    assert [run.id for run in of_one.runs] == triggered[:1]
    page = {"branch": None, "number": None, "trigger": "manual", "since": None, "deleted": [False], "backfills": None, "before": None, "limit": 51}  # fmt: skip
    plan = plan_of(session, "page_of_runs_of_archives_with_trigger", analyze=True, archives=[archive.id], **page)
    assert "run_trigger" in plan
    assert "Rows Removed by Filter" not in plan, plan
    assert [run.id for run in run_views.runs(session, trigger=Trigger.MANUAL).runs] == triggered[::-1]
    plan = plan_of(session, "page_of_runs_with_trigger", analyze=True, nearest=1000, **page)
    assert sum(map(int, re.findall(r"Rows Removed by Filter: (\d+)", plan))) <= 1000, plan
    archive.sql("delete from run where run > 2")


def test_a_frequent_author_of_other_archives_is_sought_in_the_runs_of_this_one(session: Session) -> None:
    """The index of words knows no archives: it would find everything that she ever committed."""
    archive, other = an_archive(session), an_archive(session, "other")
    for _ in range(60):
        archive.commit()
    archive.sql(
        "insert into revision (branch_id, number, name, author, date, message, workflow_id, previous, read_at)"
        " select branch_id, n, n::text, author, date, message, workflow_id, name, read_at from revision, generate_series(2, 3000) n where branch_id = %s",
        other.branches[""].id,
    )
    archive.sql("analyze run, revision")
    asked = {"branch": archive.branches[""].id, "words": "'ann':*", "message": None, "author": "'ann':*"}
    asked |= {"before": None}
    plan = plan_of(session, "page_of_matching_runs", analyze=True, **asked, limit=51, nearest=1000)
    read = re.findall(r"on revision r\S* .*\((?:actual .*rows=(\d+)\S* loops=(\d+)|never executed)\)", plan)
    assert sum(int(rows or 0) * int(loops or 0) for rows, loops in read) == 51, plan  # the page has 50
    archive.sql("delete from revision where branch_id = %s and number > 1", other.branches[""].id)


def test_lists_are_read_along_indices(session: Session) -> None:
    archive = an_archive(session)
    archive.commit()
    archive.sql(
        "insert into run (archive_id, branch_id, revision_id, number, run, trigger)"
        " select archive_id, branch_id, revision_id, number, n, 'schedule' from run, generate_series(2, 3000) n where number = 2"
    )
    archive.sql("analyze run")  # of few rows, or of rows that nobody has counted, any way of reading looks the same
    page = {
        "branch": None,
        "number": None,
        "trigger": None,
        "since": None,
        "deleted": [False],
        "backfills": None,
        "before": None,
        "limit": 50,
    }
    assert re.search(r"Index.* run_pkey", plan_of(session, "page_of_runs", **page))
    assert "Seq Scan on task" not in plan_of(session, "page_of_open_runs", archives=None, **page)
    for block, parameters in {
        "show_runs": {"runs": [1]},
        "list_tasks": {"runs": [1], "item": None, "tasks": None},
        "show_tasks": {"tasks": [2], "silence": 30.0},
        "show_attempts": {"tasks": [1], "attempts": [2]},
        "unmet_chain": {"task": 1, "limit": 10},
        "task_before": {"branch": 1, "name": "a", "item": "", "number": 1, "run": 1},
        "show_edges": {"runs": [1], "item": None, "tasks": None},
        "runs_of_revision": {"branch": 1, "number": 1},
        "revisions_with": {"branches": [1], "number": None, "prefix": "abcd"},
    }.items():
        plan = plan_of(session, block, **parameters)
        assert not re.search(r"Seq Scan on (task|run|edge|attempt|revision)\b(?!_)", plan), f"{block}\n{plan}"
    archive.sql("delete from run where run > 1")


def test_a_state_that_no_run_has_is_sought_with_few_statements(
    archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.commit({"a": ""})
    archive.sql(
        "insert into run (archive_id, branch_id, revision_id, number, run, trigger) "
        "select archive_id, branch_id, revision_id, number, g, 'manual' from run, generate_series(2, 1200) g where number = 2"
    )
    asked: list[str] = []
    rows = Session.rows

    def counted(session: Session, block: str, /, **parameters: Any) -> list[Any]:
        asked.append(block)
        return rows(session, block, **parameters)

    monkeypatch.setattr(Session, "rows", counted)
    page = run_views.runs(archive.session, archives=[ArchiveId(archive.id)], states=[RunState.FAILED])
    assert page.runs == []
    assert page.next is not None
    assert asked.count("page_of_runs_of_archives") <= 5
    archive.sql("delete from run where run > 1")


def test_a_snapshot_sends_an_equal_question_once(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    an_archive(session)
    sent: list[int] = []
    run = of_sessions.run
    monkeypatch.setattr(of_sessions, "run", lambda connection, calls: sent.append(len(calls)) or run(connection, calls))
    with session.snapshot() as moment:
        moment.rows("archives_in_short", names=None).clear()
        assert [row.name for row in moment.rows("archives_in_short", names=None)] == ["papers"]
        assert moment.rows("archives_in_short", names=["other"]) == []
        an_archive(session, "other")
        sent.clear()
        assert moment.rows("archives_in_short", names=["other"]) == []
        assert sent == []
