"""The query plans of the statements for each task, in a database with 10⁵ settled tasks and in a
new one. They use indices and never scan a large table.

The verbs run for real. The server reports the plan of each statement right before its execution,
for its values and for any values (a prepared statement gets the latter in the end). `test_lessons`
covers statements that verbs seldom reach.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from psycopg.rows import DictRow, tuple_row

from arkqueue.db import Connection, Database, connections, pipelines
from arkqueue.db import session as sessions
from arkqueue.db.embedded.server import Embedded
from arkqueue.db.pipelines import Answer, Call
from arkqueue.db.session import SQL, Session
from arkqueue.db.statements import Statement
from arkqueue.model import ArchiveId, AttemptId, End, Outcome, TaskId
from arkqueue.queue import archives, claim, control, finish, graph, holds, pauses, purge, retrying, triggering
from arkqueue.views.attention import attention, blocking_in, unhandled_failures
from arkqueue.views.explain import explain
from arkqueue.views.inputs import inputs_of
from arkqueue.views.runs import run, runs, unhandled_runs
from arkqueue.views.waits import waits_of
from benchmarks import history
from benchmarks.lines import Line
from tests.postgres import a_database, made_once

TASKS, ARCHIVES = 100_000, 20
OPEN, TURNS = 5, 5
GREAT = r"Seq Scan on (task|edge|attempt|run|revision|log_chunk)\b"
WALK = r"(Index (Only )?Scan (Backward )?using \w+ on|Bitmap Index Scan on) (task|edge|attempt)\w*\b[^\n]*(?!\n\s+Index Cond)(\n|$)"
"""Through all entries of an index; of a partial one these are few only on an idle day."""
ME = "manager-1"
BUSY, IDLE, FIRST, NEW = "a busy day", "an idle day", "the first day", "a new database"


@dataclass
class Plans:
    """What the server said of the statements of one connection."""

    session: Session
    day: str
    """When the statistics were taken."""
    told: dict[str, list[str]] = field(default_factory=dict)

    def of(self, verb: Callable[[], Any], *, is_hot: bool = False, counts_live: bool = False) -> Any:
        """Run a verb; what it answers. None of its statements may go through a great table; of what is done for each task, nor through a whole index. ``counts_live``: it may count the running attempts, of which there are at most as many as slots."""
        self.told.clear()
        answer = verb()
        assert self.told, "no plan was told"
        for query, plans in self.told.items():
            for plan in plans:
                assert not re.search(GREAT, plan), f"{query}\n{plan}"
                walked = plan.replace("using attempt_live on attempt", "") if counts_live else plan
                assert not is_hot or not re.search(WALK, walked), f"{query}\n{plan}"
                assert "Disabled" not in plan, f"older servers compile this each time: {query}\n{plan}"
        return answer

    def uses(self, index: str, words: str) -> None:
        """Of the last verb, the statement that has these words goes along this index, with any values."""
        plans = [plan for query, told in self.told.items() if words in query for plan in told]
        assert plans, f"no statement has {words!r}"
        for plan in plans:
            assert re.search(rf"(Index (Only )?Scan (Backward )?using|Bitmap Index Scan on) {index}\b", plan), plan


def explained(connection: psycopg.Connection[Any], query: bytes, values: Sequence[Any] | None = None) -> str:
    with psycopg.RawCursor(connection, row_factory=tuple_row) as cursor:
        return "\n".join(line for (line,) in cursor.execute(query, values, prepare=False).fetchall())


def explaining(
    plans: dict[str, list[str]], aside: psycopg.Connection[Any]
) -> Callable[[Connection, Sequence[Call]], list[Answer]]:
    """`pipelines.run` which asks for the plan of each statement before it runs it. ``aside``: a connection without values, as a plan for any values can only be asked for without values."""
    named = {statement.text: statement for statement in SQL.statements.values()}

    def explain_and_run(connection: Connection, calls: Sequence[Call]) -> list[Answer]:
        answers = []
        for call in calls:
            if re.match(rb"\s*(select|insert|update|delete|with)\b", call.text):
                text = _as_in_its_file(named[call.text]) if call.text in named else call.text.decode()
                told = plans.setdefault(text, [])
                told.append(explained(connection, b"explain " + call.text, call.values))
                scans = explained(connection, b"show enable_seqscan")
                aside.execute(f"set enable_seqscan = {scans}".encode())
                told.append(explained(aside, b"explain (generic_plan) " + call.text))
            answers += pipelines.run(connection, [call])
        return answers

    return explain_and_run


def _as_in_its_file(statement: Statement) -> str:
    names = statement.names
    return re.sub(r"\$(\d+)", lambda match: f"%({names[int(match[1]) - 1]})s", statement.text.decode())


@pytest.fixture(scope="session")
def template_with_a_past(postgres: Embedded, template: str) -> str:
    """A database with a long past, to be copied, whose statistics are of the time before."""

    def prepare(connection: psycopg.Connection[Any]) -> None:
        _let_statistics_stay(connection)
        connection.execute("analyze")
        history.make(connection, TASKS, ARCHIVES, is_analyzed=False)

    return made_once(postgres, "template_with_a_past", template, prepare)


def _let_statistics_stay(connection: psycopg.Connection[Any]) -> None:
    for (table,) in connection.execute("select relname from pg_stat_user_tables").fetchall():
        connection.execute(f"alter table {table} set (autovacuum_enabled = off)".encode())


@pytest.fixture(scope="module", params=[BUSY, IDLE, FIRST, NEW])
def plans(request: pytest.FixtureRequest, postgres: Embedded, template: str) -> Iterator[Plans]:
    """A queue with much to do and, unless it is new, a long past, on one connection; its statistics are of the day that is named."""
    day = request.param
    if day != NEW:
        template = request.getfixturevalue("template_with_a_past")
    with (
        # The rows of the past have only the columns that plans depend on.
        a_database(postgres, template, "file_copy", is_checked=day == NEW) as uri,
        psycopg.connect(uri, autocommit=True, connect_timeout=10) as connection,
    ):
        if day == NEW:
            _let_statistics_stay(connection)
        if day == IDLE:
            connection.execute("analyze")
        with Database.open(uri, application_name="arkqueue test", size=1) as database:
            plans = Plans(Session(database), day)
            if day == NEW:
                for number in range(OPEN + 2):  # the first two are left without anything to do, for tests
                    Line.register(plans.session, f"archive-{number}")
            for archive in archives.watched(plans.session)[-OPEN:]:
                Line.of(plans.session, archive.id).append(plans.session, history.PAST, 100)
            if day == BUSY:
                connection.execute("analyze")
            with pytest.MonkeyPatch.context() as patch:
                for module in (sessions, connections, graph):
                    patch.setattr(module, "run", explaining(plans.told, connection))
                yield plans


@pytest.fixture
def line(plans: Plans) -> Line:
    """An archive with a long past."""
    return Line.of(plans.session, archives.watched(plans.session)[0].id)


@pytest.mark.full
def test_a_task_comes_and_goes_without_reading_through_the_past(plans: Plans, line: Line) -> None:
    session = plans.session
    plans.of(lambda: line.append(session, history.PAST, 3), is_hot=True)
    plans.uses("task_key", "from unnest(%(names)s::text[], %(items)s::text[]) n(name, item)")
    claims = plans.of(lambda: claim.claim(session, ME, "host-1", 8), is_hot=True)
    plans.uses("task_ready", "for no key update skip locked")
    plans.of(lambda: claim.inputs(session, [one.task for one in claims]), is_hot=True)
    plans.of(lambda: claim.started(session, {one.attempt: 0.1 for one in claims}), is_hot=True)
    plans.of(lambda: claim.renew(session, ME, [one.attempt for one in claims]), is_hot=True)
    plans.of(lambda: claim.stops(session, ME))
    plans.uses("attempt_live", "t.stop is not null")
    stops = False
    for turn in range(TURNS):
        # `pdf` fails once, so that something is skipped; each looks for what it cancels, and later
        # ones find those that are left running in the first turns.
        left = {one.attempt for one in claims if one.name == "pdf" and turn < 2}
        ends = [
            Outcome(one.attempt, End.EXITED, int(one.name == "pdf" and one.number % 2))
            for one in claims
            if one.attempt not in left
        ]
        plans.of(lambda ends=ends: finish.finish(session, ME, ends), is_hot=True)  # type: ignore[misc]
        plans.uses("edge_source", "select ctid as place")
        plans.uses("task_pkey", "update task t set state = e.state")
        plans.uses("task_pkey", "as held_back")
        looks = [
            plan for query, told in plans.told.items() if "as held_back" in query for plan in told if "jsonb" in plan
        ]
        assert looks
        assert all(re.search(r"(Index (Only )?Scan using|Bitmap Index Scan on) task_open\b", plan) for plan in looks)
        finds = any("select v.id from task v" in query for query in plans.told)
        assert turn or not finds, "what has nothing to cancel is asked for it once"
        if finds:
            plans.uses("task_open", "select v.id from task v")
            stops = True
        plans.uses("attempt_(pkey|live|live_by_process)", "update attempt a set ended_at")
        claims = plans.of(lambda: claim.claim(session, ME, "host-1", 8), is_hot=True)
    assert stops, "nothing was left to be canceled"


@pytest.mark.full
def test_what_is_done_for_each_task_is_not_planned_each_time(plans: Plans) -> None:
    """The server plans a statement for its values until a plan for any values looks no dearer; planning ours would take longer than running them."""
    session = plans.session
    archive = archives.watched(session)[1]
    Line.of(session, archive.id).append(session, history.PAST, 8)

    def one_task() -> None:
        (one,) = claim.claim(session, ME, "host-1", 1)
        claim.inputs(session, [one.task])
        claim.started(session, {one.attempt: 0.1})
        finish.finish(session, ME, [Outcome(one.attempt, End.EXITED, 0)])

    for _ in range(6):  # the server tries five times
        one_task()
    before = plannings(session)
    one_task()
    assert plannings(session) == before
    pauses.pause(session, archive.id, "", "ann")  # other tests claim only what they have planned


def test_what_people_ask_most_is_not_planned_each_time(plans: Plans) -> None:
    session = plans.session
    with session.database.statement() as connection:
        (task,) = connection.execute("select id, run_id from task limit 1").fetchall()
    of_runs = "show_runs", "runs_in_short"

    def ask() -> None:
        for block in of_runs:
            session.rows(block, runs=[task["run_id"]])
        session.rows("show_tasks", tasks=[task["id"]], silence=1.0)

    for _ in range(7):
        ask()
    before = plannings(session)
    ask()
    after = plannings(session)
    for block in (*of_runs, "show_tasks"):
        text = SQL.statements[block].text.decode()
        assert after[text] == before[text], block


def plannings(session: Session) -> dict[str, int]:
    """How often each statement of the connection was planned for its values."""
    with session.database.statement() as connection:
        query = b"select statement, custom_plans from pg_prepared_statements"
        return {row["statement"]: row["custom_plans"] for row in connection.execute(query, prepare=False)}


def test_what_queue_managers_do_again_and_again_does_not_read_through_the_past(plans: Plans) -> None:
    session = plans.session
    plans.of(lambda: finish.lapse(session))
    plans.of(lambda: claim.withdraw(session), is_hot=True)
    plans.of(lambda: finish.wake_deferred(session))
    plans.uses("task_due", "min(due_at)")
    plans.of(lambda: finish.expire(session, ME, "host-2"))
    plans.of(lambda: archives.to_read(session))


# On the first day, and when all is new, it does not matter.
@pytest.mark.parametrize("plans", [BUSY, IDLE], indirect=True, scope="module")
def test_what_a_person_asks_and_does_reads_along_indices(plans: Plans, line: Line) -> None:
    session = plans.session
    plans.of(lambda: line.append(session, history.PAST))
    with session.database.statement() as connection:
        rows = connection.execute(
            "select t.id, t.name, t.run_id from task t where branch_id = %s and number = %s",
            [line.branch.id, line.number],
        ).fetchall()
    tasks = {row["name"]: row["id"] for row in rows}
    id = rows[0]["run_id"]
    (past,) = session.rows("page_of_runs_by_age", archive=line.branch.archive, after=0, age="0 s", limit=1)
    for name in ("index", "pdf", "publish"):
        plans.of(lambda name=name: explain(session, tasks[name]))  # type: ignore[misc]
    plans.of(lambda: run(session, id), is_hot=True, counts_live=True)
    plans.of(lambda: runs(session, archives=[line.branch.archive], tasks=True), is_hot=True)
    plans.uses("run_archive", "from unnest(%(archives)s::bigint[]) of(archive_id)")
    plans.of(lambda: unhandled_failures(session, ArchiveId(line.branch.archive), line.branch.id, 5))
    plans.uses("task_bad", "with bad as materialized")
    plans.of(lambda: blocking_in(session, ArchiveId(line.branch.archive), [id], {}))
    plans.of(lambda: attention(session, None, 50, 5))
    plans.of(lambda: unhandled_runs(session, ArchiveId(line.branch.archive), line.branch.id, words=None, message=None, author=None, task=None, faulty=None, before=None, limit=50))  # fmt: skip
    plans.of(lambda: waits_of(session, [ArchiveId(line.branch.archive)]))
    plans.uses("task_open", "with recursive names(branch_id, name)")
    plans.of(lambda: inputs_of(session, TaskId(tasks["pdf"])))
    plans.of(lambda: holds.hold_run(session, id, "ann"))
    plans.of(lambda: holds.release_run(session, id, "ann"))
    plans.uses("task_pkey", "release_id = %(release)s")
    plans.of(lambda: control.cancel(session, tasks["pdf"], "ann"))
    plans.of(lambda: retrying.retry(session, tasks["pdf"], "ann"))
    plans.of(lambda: control.skip(session, tasks["index"], "ann"))
    plans.of(lambda: triggering.trigger(session, line.branch.head))
    purged = plans.of(lambda: purge.purge_runs(session, [past.id], "ann"))
    assert purged.runs, purged
    told = [plan for query, plans_of in plans.told.items() if "delete from edge" in query for plan in plans_of]
    assert len(told) >= 2, "of all edges of its runs, and of those inside large runs"
    assert not any("<> ALL ((InitPlan" in plan for plan in told), f"compares each with each: {told[-1]}"


def test_tasks_that_stay_skipped_are_not_compared_each_with_each(session: Session) -> None:
    """A list of 10,000 items has as many candidates, in a database without statistics, too."""
    with session.database.transaction() as connection:
        plan = explained(connection, b"explain (generic_plan) " + SQL.statements["staying_skipped"].text)
    assert len(set(re.findall(r"hashed SubPlan (\d+)", plan))) == 3, plan


def test_a_plan_through_a_table_would_be_seen(plans: Plans) -> None:
    with pytest.raises(AssertionError, match="Seq Scan on task"):
        plans.of(lambda: plans.session.database.retrying(_count))


def _count(connection: psycopg.Connection[DictRow]) -> AttemptId:
    sessions.run(connection, [Statement.of("select count(*) from task where by = %(by)s").call({"by": "nobody"})])
    return AttemptId(0)
