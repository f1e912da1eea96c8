"""Makes a long history with a few statements: archives whose revisions were all planned, run and
settled, with the rows that the queue itself would have left.

Every run has five rows of ``task``: COMMIT, ``index`` (after the previous one's), ``pdf`` (after
``index``, cancels older ones), ``publish`` (after ``pdf``) and REPORT. Their edges are met. Each
task that ran has an attempt and a line of log. Of twenty revisions, one failed in ``pdf``, so that
its ``publish`` was skipped. Three had their ``pdf`` superseded before it ran. The archives took
turns, so rows of about the same time are close in the tables. The tables are vacuumed and analyzed,
like those of a long-lived server.
"""

from __future__ import annotations

import json
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from arkqueue.workflow import to_json
from benchmarks.lines import a_queue, a_workflow
from benchmarks.servers import AUTHOR, DATE, load
from tests.repositories import SubversionRepository

WORKFLOW_TEXT = (
    "- {name: index, command: './index', depends: [PREV]}\n"
    "- {name: pdf, command: './pdf', depends: [index], cancels: [PREV], checkout: none}\n"
    "- {name: publish, command: './publish', depends: [pdf], checkout: none}\n"
)
PAST = a_workflow(WORKFLOW_TEXT)
TASKS = 5
"""Rows of ``task`` of one run."""

_STATEMENTS = (
    # The ids are computed in advance: revision r (from 1) of archive a (from 0) is entry (r - 1) *
    # archives + a, and so on.
    "create unlogged table past as select g as n, g / {archives} + 1 as r, g %% {archives} as a from generate_series(0, {entries} - 1) g",
    # The next scan is a year away, because the repositories do not exist; see `give_repository`.
    "insert into archive (name, kind, url, repository, uuid, settings, created_at, read_at, next_read_at)"
    " select 'past-' || a, 'subversion', '/srv/past-' || a, '/srv/past-' || a, gen_random_uuid(), %(settings)s,"
    " now() - interval '400 days', now(), now() + interval '1 year' from generate_series(0, {archives} - 1) a",
    "insert into branch (archive_id, name, main) select id, '', true from archive where name like 'past-%%' order by id",
    "insert into workflow (digest, files, tasks, faults) values (sha256('past'), sha256('past'), %(tasks)s, '[]')",
    "insert into definition (digest, body, cancels)"
    " select sha256(convert_to(body::text, 'UTF8')), body, case when body->>'name' = 'pdf' then '[{{\"name\": \"pdf\", \"here\": false, \"unstarted\": false}}]'::jsonb else '[]' end"
    " from jsonb_array_elements(%(tasks)s) body",
    "create unlogged table place as select p.*, b.archive_id, b.id as branch_id, {first} + p.n as id,"
    " now() - interval '1 year' * (1 - p.n::float8 / {entries}) as at,"
    " case when p.r %% 20 = 7 then 'failed' when p.r %% 20 in (3, 11, 15) then 'superseded' else 'good' end as fate"
    " from past p join archive a on a.name = 'past-' || p.a join branch b on b.archive_id = a.id order by p.n",
    "insert into revision (id, branch_id, number, name, author, date, message, workflow_id, previous, read_at)"
    " select id, branch_id, r, r::text, 'author-' || r %% 7, at, 'Revise chapter ' || r %% 40 || ', as discussed with the reviewers',"
    " (select id from workflow where digest = sha256('past')), nullif((r - 1)::text, '0'), at from place order by n",
    "update branch b set head_id = p.id from place p where p.branch_id = b.id and p.r = {revisions}",
    "insert into run (id, archive_id, branch_id, revision_id, number, run, trigger, by, report_id, created_at)"
    " select id, archive_id, branch_id, id, r, 1, 'commit', 'author-' || r %% 7, {first} + n * 5 + 4, at from place order by n",
    "insert into task (id, run_id, archive_id, branch_id, number, run, definition_id, unmet, position, attempts, failures, state, kind, program, cancels,"
    " fired, attempt_id, root_id, superseded_by, ready_at, settled_at, name)"
    " select {first} + p.n * 5 + t.k, p.id, p.archive_id, p.branch_id, p.r, 1, d.id, 0, t.k,"
    " case when ran then 1 else 0 end, case when s.state = 'failed' then 1 else 0 end, s.state::task_state, t.kind::task_kind, t.kind = 'ordinary', t.name = 'pdf',"
    " t.name = 'pdf' and s.state <> 'canceled', case when ran then {first} + p.n * 5 + t.k end,"
    " case when s.state = 'skipped' then {first} + p.n * 5 + 2 end, case when s.state = 'canceled' then {first} + (p.n + {archives}) * 5 + 2 end,"
    " case when ran or t.k in (0, 4) then p.at + t.k * interval '20 s' end, p.at + (t.k + 1) * interval '20 s', t.name"
    " from place p cross join (values (0, 'COMMIT', 'commit'), (1, 'index', 'ordinary'), (2, 'pdf', 'ordinary'), (3, 'publish', 'ordinary'), (4, 'REPORT', 'report')) t(k, name, kind)"
    " cross join lateral (select case when t.k = 2 and p.fate = 'failed' then 'failed' when t.k = 3 and p.fate <> 'good' then 'skipped'"
    " when t.k = 2 and p.fate = 'superseded' then 'canceled' else 'completed' end as state) s"
    " cross join lateral (select t.k in (1, 2, 3) and s.state in ('completed', 'failed') as ran) x"
    " left join definition d on d.body->>'name' = t.name order by p.n, t.k",
    "insert into edge (target, source, kind, settled, crossing, declared, met)"
    " select {first} + p.n * 5 + e.target, {first} + (p.n - e.back * {archives}) * 5 + e.source, e.kind::edge_kind, e.target = 0, e.back = 1, true,"
    # The edge of a skipped task was never met, and stays unmet.
    " not (e.target = 3 and p.fate <> 'good')"
    " from place p cross join (values (0, 0, 1, 'depends'), (1, 0, 0, 'depends'), (1, 1, 1, 'depends'), (2, 1, 0, 'depends'), (2, 2, 1, 'cancels'), (3, 2, 0, 'depends'))"
    " e(target, source, back, kind) where p.r > e.back order by p.n, e.target",
    'insert into attempt (id, task_id, number, process, host, lease_until, claimed_at, started_at, ended_at, exit_code, "end", log_bytes, log_stdout)'
    " select attempt_id, id, 1, 'host-1-1234-' || id / 100000, 'host-1', settled_at + interval '70 s', ready_at, ready_at + interval '4 ms', settled_at,"
    " case when state = 'failed' then 1 else 0 end, 'exited', 60, 60 from task where attempt_id is not null and id >= {first} order by id",
    "insert into log_chunk (attempt_id, position, stream, at, data)"
    " select id, 0, 'stdout', ended_at, convert_to(rpad('attempt ' || id || ' read 20 files', 59, '.') || chr(10), 'UTF8') from attempt where id >= {first}",
    "insert into task_name select b.id, t.name, true from branch b join archive a on a.id = b.archive_id and a.name like 'past-%%'"
    " cross join (values ('index'), ('pdf'), ('publish')) t(name) on conflict do nothing",
    *(
        f"select setval('{sequence}', {{first}} + {{entries}} * 5 + 10)"
        for sequence in ("revision_id", "run_id", "task_id", "attempt_id")
    ),
    "insert into completion (branch_id, name, revision_id, run, highest_number, highest_run)"
    " select distinct on (branch_id, name) branch_id, name, run_id, run, number, run from task where id >= {first} and state = 'completed' and attempt_id is not null"
    " order by branch_id, name, number desc",
    "drop table past, place",
)
FIRST = 1000
"""The first computed id."""


def make(connection: psycopg.Connection[Any], tasks: int, archives: int, *, is_analyzed: bool = True) -> None:
    """Fills a new database with about ``tasks`` settled tasks in ``archives`` archives."""
    revisions = max(2, tasks // archives // TASKS)
    sizes = {"archives": archives, "revisions": revisions, "entries": archives * revisions, "first": FIRST}
    values = {"settings": Jsonb({"process": True}), "tasks": Jsonb([to_json(task) for task in PAST.tasks])}
    connection.execute("set statement_timeout = 0")
    with connection.transaction():
        for statement in _STATEMENTS:
            connection.execute(statement.format(**sizes).encode(), values)
    connection.execute("vacuum analyze" if is_analyzed else "vacuum")


def give_repository(connection: psycopg.Connection[Any], repository: SubversionRepository) -> None:
    """Gives all archives of the history that are not stopped one real repository, which ends at their
    last revision. A server then scans quiet archives.
    """
    (last,) = connection.execute(
        "select max(r.number) from archive a join branch b on b.archive_id = a.id join revision r on r.id = b.head_id"
        " where a.stopped is null"
    ).fetchone() or (0,)
    repository.commit({"notes": "note\n"})
    load(repository, last - 1)
    there = {"path": str(repository.path), "uuid": repository.uuid, "author": AUTHOR, "date": DATE}
    connection.execute(
        "update archive set url = %(path)s, repository = %(path)s, uuid = %(uuid)s where stopped is null", there
    )
    connection.execute(
        "update revision r set author = %(author)s, date = %(date)s from branch b where b.head_id = r.id", there
    )


def archives_of(uri: str, count: int) -> list[int]:
    """Some archives of the history, spread over all of them."""
    with a_queue(uri) as session:
        rows = session.rows("archives_watched")
    found = [row.id for row in rows if row.name.startswith("past-")]
    return found[:: max(1, len(found) // count)][:count]


def told(connection: psycopg.Connection[Any]) -> str:
    """The number of tasks in each state and the size of the database, in JSON."""
    rows = connection.execute("select state::text, count(*) from task group by 1").fetchall()
    (size,) = connection.execute("select pg_size_pretty(pg_database_size(current_database()))").fetchone() or ("",)
    return json.dumps({**dict(rows), "size": size})
