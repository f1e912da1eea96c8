"""The plans of what is done for each task, beside 10⁵ settled ones: along indices, never through a great table.

The verbs run for real; a cursor has the server tell the plan of each statement right before it executes it, as it is for these values and as it is for any (which is what a
prepared statement gets in the end). `test_lessons` looks at statements that no verb reaches so easily.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from psycopg.rows import DictRow, tuple_row

from arkqueue.db import Database
from arkqueue.db.embedded import Embedded
from arkqueue.model import AttemptId, End, Outcome
from arkqueue.queue import Queue, actions, archives, claim, finish, triggering
from arkqueue.views.explain import explain
from arkqueue.views.runs import run, runs
from benchmarks import history
from benchmarks.lines import Line
from tests.conftest import _a_database

TASKS, ARCHIVES = 100_000, 20
BUSY, TURNS = 5, 5
GREAT = r"Seq Scan on (task|edge|attempt|run|revision|log_chunk)\b"
ME = "manager-1"


@dataclass
class Plans:
    """What the server said of the statements of one connection."""

    queue: Queue
    told: dict[str, list[str]] = field(default_factory=dict)

    def of(self, verb: Callable[[], Any]) -> Any:
        """Run a verb; what it answers. None of its statements may go through a great table."""
        self.told.clear()
        answer = verb()
        assert self.told, "no plan was told"
        for query, plans in self.told.items():
            for plan in plans:
                assert not re.search(GREAT, plan), f"{query}\n{plan}"
        return answer

    def uses(self, index: str, words: str) -> None:
        """Of the last verb, the statement that has these words goes along this index, with any values."""
        plans = [plan for query, told in self.told.items() if words in query for plan in told]
        assert plans, f"no statement has {words!r}"
        for plan in plans:
            assert re.search(rf"(Index (Only )?Scan (Backward )?using|Bitmap Index Scan on) {index}\b", plan), plan


def explaining(plans: dict[str, list[str]]) -> type[psycopg.Cursor[Any]]:
    class Explaining(psycopg.Cursor[Any]):
        def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
            text = query.decode() if isinstance(query, bytes) else str(query)
            if isinstance(params, dict) and re.match(r"\s*(select|insert|update|delete|with)\b", text):
                told = plans.setdefault(text, [])
                told.append(self._explained(b"explain " + text.encode(), params))
                for place, name in enumerate(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)), start=1):
                    text = text.replace(f"%({name})s", f"${place}")
                told.append(self._explained(b"explain (generic_plan) " + text.replace("%%", "%").encode(), None))
            return super().execute(query, params, **options)

        def _explained(self, query: bytes, params: Any) -> str:
            with psycopg.Cursor(self.connection, row_factory=tuple_row) as cursor:
                return "\n".join(line for (line,) in cursor.execute(query, params, prepare=False).fetchall())

    return Explaining


@pytest.fixture(scope="module")
def plans(_postgres: Embedded, _template: str) -> Iterator[Plans]:
    """A queue with a long past, on one connection."""
    with _a_database(_postgres, _template) as uri:
        with psycopg.connect(uri, autocommit=True, connect_timeout=10) as connection:
            history.make(connection, TASKS, ARCHIVES)
        with Database.open(uri, application_name="arkqueue test", size=1) as database:
            plans = Plans(Queue(database))
            connection: psycopg.Connection[DictRow]
            # The statistics are of a day on which there was something to do.
            for archive in archives.watched(plans.queue)[-BUSY:]:
                Line.of(plans.queue, archive.id).append(plans.queue, history.PAST, 100)
            with database.statement() as connection:
                connection.execute("analyze")
                connection.cursor_factory = explaining(plans.told)
            yield plans


@pytest.fixture
def line(plans: Plans) -> Line:
    """An archive with a long past."""
    return Line.of(plans.queue, archives.watched(plans.queue)[0].id)


def test_a_task_comes_and_goes_without_reading_through_the_past(plans: Plans, line: Line) -> None:
    queue = plans.queue
    plans.of(lambda: line.append(queue, history.PAST, 3))
    plans.uses("task_pkey", "insert into edge")
    plans.uses("task_key", "from unnest(%(names)s::text[]) n(name)")
    claims = plans.of(lambda: claim.claim(queue, ME, "host-1", 8))
    plans.uses("task_ready", "for no key update skip locked")
    plans.uses("task_key", "for no key update skip locked")  # BASE
    plans.of(lambda: claim.inputs(queue, [one.task for one in claims]))
    plans.of(lambda: claim.started(queue, [one.attempt for one in claims]))
    plans.of(lambda: claim.renew(queue, ME, [one.attempt for one in claims]))
    plans.of(lambda: claim.stops(queue, ME))
    plans.uses("attempt_live(_by_process)?", "t.stop is not null")
    for _ in range(TURNS):
        # `pdf` fails once, so that something is skipped; later ones cancel what is left of earlier ones.
        ends = [Outcome(one.attempt, End.EXITED, int(one.name == "pdf" and one.number % 2)) for one in claims]
        plans.of(lambda ends=ends: finish.finish(queue, ME, ends))  # type: ignore[misc]
        plans.uses("edge_unmet", "update edge e set met = true")
        plans.uses("task_pkey", "update task t set\n    state = e.state")
        plans.uses("attempt_(pkey|live|live_by_process)", "update attempt a set ended_at")
        claims = plans.of(lambda: claim.claim(queue, ME, "host-1", 8))


def test_what_queue_managers_do_again_and_again_does_not_read_through_the_past(plans: Plans) -> None:
    queue = plans.queue
    plans.of(lambda: finish.lapse(queue))
    plans.of(lambda: finish.wake_deferred(queue))
    plans.uses("task_due", "min(due_at)")
    plans.of(lambda: finish.bury(queue, ME, "host-2"))
    plans.of(lambda: archives.to_read(queue))


def test_what_a_person_asks_and_does_reads_along_indices(plans: Plans, line: Line) -> None:
    queue = plans.queue
    plans.of(lambda: line.append(queue, history.PAST))
    with queue.database.statement() as connection:
        rows = connection.execute(
            "select t.id, t.name, t.run_id from task t where branch_id = %s and number = %s",
            [line.branch.id, line.number],
        ).fetchall()
    tasks = {row["name"]: row["id"] for row in rows}
    id = rows[0]["run_id"]
    for name in ("index", "pdf", "publish"):
        plans.of(lambda name=name: explain(queue, tasks[name]))  # type: ignore[misc]
    plans.of(lambda: run(queue, id))
    plans.of(lambda: runs(queue, archives=[line.branch.archive]))
    plans.of(lambda: actions.cancel(queue, tasks["pdf"], "ann"))
    plans.of(lambda: actions.retry(queue, tasks["pdf"], "ann"))
    plans.of(lambda: actions.skip(queue, tasks["index"], "ann"))
    plans.of(lambda: triggering.trigger(queue, line.branch.head))


def test_a_plan_through_a_table_would_be_seen(plans: Plans) -> None:
    with pytest.raises(AssertionError, match="Seq Scan on task"):
        plans.of(lambda: plans.queue.database.retrying(_count))


def _count(connection: psycopg.Connection[DictRow]) -> AttemptId:
    connection.execute("select count(*) from task where by = %(by)s", {"by": "nobody"})
    return AttemptId(0)
