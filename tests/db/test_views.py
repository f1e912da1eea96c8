"""The data that people read: archives, runs and their computed states, tasks, graphs, and names."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from psycopg import sql

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db import session as of_sessions
from arkqueue.db.session import SQL, Session
from arkqueue.errors import Invalid, NotFound
from arkqueue.model import ArchiveId, BranchId, End, RunId, Trigger
from arkqueue.queue import archives, claim, control, deletion, locks
from arkqueue.states import State
from arkqueue.views import find, installation
from arkqueue.views import runs as run_views
from arkqueue.views import tasks as task_views
from arkqueue.views.archives import archive as show_archive
from arkqueue.views.archives import archives as show_archives
from arkqueue.views.attempts import attempt
from arkqueue.views.cells import cells_of
from arkqueue.views.graph import EdgeView, GraphView, graph, graph_between
from arkqueue.views.locks import MOST_IN_GRAPH, MOST_LOCKS
from arkqueue.views.remedies import MOST_ENTRIES, are_not_permitted
from arkqueue.views.runs import RunState
from tests.builders import AnArchive, a_list, a_workflow, an_archive, faulty
from tests.counting import counted_rows
from tests.db.test_example import example

PageThrough = Callable[..., list[str]]

CHAIN = {"a": "", "b": "depends: [a]", "c": "depends: [b]"}


def short(name: str) -> str:
    return name.replace("papers@", "")


def arrows(shown: GraphView | list[EdgeView]) -> set[str]:
    marks = {
        "depends": "<--",
        "settled": "<~~",
        "failed": "<-!",
        "cancels": "<!=",
        "exclusive": "<==",
        "stopping": "<..",
    }
    edges = shown.edges if isinstance(shown, GraphView) else shown
    return {f"{short(e.source_name)} {marks[e.kind]} {short(e.target_name)}" for e in edges}


def state(archive: AnArchive, number: int, run: int = 1) -> RunState:
    return run_views.run(archive.session, RunId(archive.run_id(number, run))).state


def names(page: run_views.RunPage) -> list[str]:
    return [view.full_name for view in page.runs]


# Graphs


THE_EIGHT = {
    "1/COMMIT <-- 2/COMMIT",
    "2/COMMIT <-- 2/indexing",
    "2/indexing <-- 2/build-PDF",
    "2/COMMIT <-- 3/COMMIT",
    "3/COMMIT <-- 3/indexing",
    "2/indexing <-- 3/indexing",
    "2/build-PDF <!= 3/build-PDF",
    "3/indexing <-- 3/build-PDF",
}


def test_graph_of_the_example_has_exactly_the_eight_edges_of_the_document(session: Session) -> None:
    archive = example(session)
    shown = graph(session, [RunId(archive.run_id(2)), RunId(archive.run_id(3))])
    assert arrows(shown) == THE_EIGHT
    assert len(shown.edges) == 8
    assert [short(n.full_name) for n in shown.nodes if n.outside] == ["1/COMMIT"]
    assert (
        arrows(graph_between(session, find.find_branch(session, ArchiveId(archive.id), None, "papers"), 2, 3))
        == THE_EIGHT
    )


def test_graph_keeps_its_eight_edges_while_and_after_the_older_task_is_stopped(session: Session) -> None:
    archive = example(session)
    archive.run("indexing@2")
    archive.claim("build-PDF@2")
    archive.run("indexing@3")
    both = [RunId(archive.run_id(2)), RunId(archive.run_id(3))]
    shown = graph(session, both)
    assert arrows(shown) == THE_EIGHT
    assert [e.kind for e in shown.edges if e.active] == ["cancels"]
    archive.end("build-PDF@2", None, End.STOPPED)
    archive.run("build-PDF@3")
    shown = graph(session, both)
    assert arrows(shown) == THE_EIGHT
    assert not any(e.active for e in shown.edges)


def test_victim_of_an_earlier_revision_is_shown_while_it_is_stopped(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"pdf": "cancels: [PREV]"})
    archive.claim("pdf@2")
    archive.commit({"other": ""})
    archive.commit({"pdf": "cancels: [PREV]"})
    archive.commit({"pdf": "cancels: [PREV]"})
    shown = arrows(graph(session, [RunId(archive.run_id(5))]))
    assert {"4/pdf <!= 5/pdf", "2/pdf <.. 5/pdf"} <= shown
    archive.end("pdf@2", None, End.STOPPED)
    assert "2/pdf <.. 5/pdf" not in arrows(graph(session, [RunId(archive.run_id(5))]))


def test_what_never_began_stays_in_the_graph_of_what_waits_for_it(session: Session) -> None:
    archive = an_archive(session)
    for _ in range(3):
        archive.commit({"upload": "depends: [PREV]"})
    archive.claim("upload@2")
    archive.cancel("upload@3")
    declared = {"3/COMMIT <-- 4/COMMIT", "4/COMMIT <-- 4/upload", "3/upload <-- 4/upload"}
    assert arrows(graph(session, [RunId(archive.run_id(4))])) == declared
    archive.run("upload@2")
    assert arrows(graph(session, [RunId(archive.run_id(4))])) == declared


def test_everything_before_is_one_node_and_leaves_the_edge_to_commit(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]"})
    archive.commit({"z": 'depends: ["PREV:*"]', "y": "depends: [{task: z, when: settled}]"})
    assert arrows(graph(session, [RunId(archive.run_id(3))])) == {
        "2/COMMIT <-- 3/COMMIT",
        "3/COMMIT <-- 3/z",
        "3/PREV:* <-- 3/z",
        "2/COMMIT <-- 3/PREV:*",
        "2/a <-- 3/PREV:*",
        "2/b <-- 3/PREV:*",
        "3/z <~~ 3/y",
    }


def test_a_task_behind_a_list_has_no_edge_to_its_commit(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"tile": "foreach: [x]", "atlas": "depends: [tile]"})
    assert arrows(graph(session, [RunId(archive.run_id(2))])) == {
        "1/COMMIT <-- 2/COMMIT",
        "2/COMMIT <-- 2/tile/x",
        "2/tile/x <-- 2/tile:completed",
        "2/tile:completed <-- 2/atlas",
    }


def test_exclusive_tasks_close_the_gate_visibly(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "exclusive: true", "b": "exclusive: true"})
    archive.commit({"c": ""})
    shown = arrows(graph(session, [RunId(archive.run_id(2)), RunId(archive.run_id(3))]))
    assert shown == {
        "1/COMMIT <-- 2/COMMIT",
        "2/COMMIT <-- 2/a",
        "2/a <== 2/b",
        "2/COMMIT <-- 3/COMMIT",
        "2/a <== 3/COMMIT",
        "2/b <== 3/COMMIT",
        "3/COMMIT <-- 3/c",
    }


def test_graph_says_who_has_the_locks_of_its_tasks_and_who_is_next(session: Session) -> None:
    archive, other = an_archive(session), an_archive(session, "other")
    archive.commit({"a": "lock: tex"})
    archive.commit({"a": "lock: [tex, printer]", "b": "lock: global/press", "c": ""})
    other.commit({"x": "lock: global/press"})
    archive.claim("a@2")
    locks.pass_on(session)
    run = RunId(archive.run_id(3))

    def told(archives: list[ArchiveId] | None = None) -> dict[str, tuple[list[str], list[str], int]]:
        shown = graph(session, [run], archives)
        assert not shown.more_locks
        return {
            one.name: (
                [task.full_name for task in one.holders],
                [task.full_name for task in one.waiting],
                one.elsewhere,
            )
            for one in shown.locks
        }

    # The task that has the lock is of another run.
    assert told() == {
        "papers/printer": ([], ["papers@3/a"], 0),
        "papers/tex": (["papers@2/a"], ["papers@3/a"], 0),
        "global/press": (["papers@3/b"], ["other@2/x"], 0),
    }
    archive.end("a@2")
    archive.run("b@3")
    locks.pass_on(session)
    assert told([ArchiveId(archive.id)]) == {
        "papers/printer": (["papers@3/a"], [], 0),
        "papers/tex": (["papers@3/a"], [], 0),
    }
    archive.commit({"b": "lock: global/press"})
    run = RunId(archive.run_id(4))
    assert told([ArchiveId(archive.id)]) == {"global/press": ([], ["papers@4/b"], 1)}
    archive.run("a@3")
    assert graph(session, [RunId(archive.run_id(3))]).locks == []


@pytest.mark.full
def test_graph_of_thousands_of_tasks_with_locks_tells_a_bounded_number_of_them(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({f"t{n}": f"lock: [tex, own{n}]" for n in range(1200)})
    locks.set_capacity(session, ArchiveId(archive.id), "tex", 50, "ann")
    shown = graph(session, [RunId(archive.run_id(2))])
    assert len(shown.locks) == MOST_LOCKS
    assert shown.more_locks
    assert all(one.waiting for one in shown.locks)  # these come first
    assert max(len(one.holders) + len(one.waiting) for one in shown.locks) <= 2 * MOST_IN_GRAPH
    archive.commit(dict.fromkeys("ab", "lock: tex"))
    (tex,) = graph(session, [RunId(archive.run_id(3))]).locks
    assert (len(tex.holders), len(tex.waiting), tex.more) == (MOST_IN_GRAPH, MOST_IN_GRAPH, True)
    assert tex.waiting[0].full_name == "papers@2/t50"


# Runs


def test_state_of_a_run_follows_its_tasks(session: Session) -> None:
    archive = an_archive(session)
    archive.commit(CHAIN)
    assert state(archive, 1) is RunState.COMPLETED
    assert state(archive, 2) is RunState.PENDING
    archive.claim("a@2")
    assert state(archive, 2) is RunState.PROCESSING
    archive.run("a@2")
    assert state(archive, 2) is RunState.PROCESSING
    archive.fail("b@2")
    view = run_views.run(session, RunId(archive.run_id(2)))
    assert view.state is RunState.FAILED
    assert (view.counts.completed, view.counts.failed, view.counts.skipped) == (1, 1, 1)
    assert view.settled_at is not None
    archive.skip("b@2")
    assert state(archive, 2) is RunState.COMPLETED


def test_failure_is_no_failed_run_before_all_is_settled(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    archive.fail("a@2")
    assert state(archive, 2) is RunState.PROCESSING
    archive.run("b@2")
    assert state(archive, 2) is RunState.FAILED


def test_rejected_tasks_fail_their_run(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.end("a@2", 65)
    assert state(archive, 2) is RunState.FAILED


def test_faults_fail_a_run_and_are_told(session: Session) -> None:
    archive = an_archive(session)
    archive.commit(faulty())
    view = run_views.run(session, RunId(archive.run_id(2)))
    assert view.state is RunState.FAILED
    assert view.faults == list(faulty().faults)


def test_canceled_run_is_canceled_and_deleted_run_is_deleted(session: Session) -> None:
    archive = an_archive(session)
    archive.commit(CHAIN)
    control.cancel_run(session, RunId(archive.run_id(2)), "ann")
    view = run_views.run(session, RunId(archive.run_id(2)))
    assert (view.state, view.canceled_by) == (RunState.CANCELED, "ann")
    deletion.delete_run(session, RunId(archive.run_id(2)), "bob")
    view = run_views.run(session, RunId(archive.run_id(2)))
    assert (view.state, view.deleted_by) == (RunState.DELETED, "bob")
    assert [task.name for task in view.tasks] == ["COMMIT", "a", "b", "c"]
    assert [(deed.by, deed.verb) for deed in view.deeds] == [("ann", "cancel"), ("bob", "delete")]


def test_run_counts_what_was_superseded(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"pdf": "cancels: [PREV]"})
    archive.commit({"pdf": "cancels: [PREV]"})
    view = run_views.run(session, RunId(archive.run_id(2)))
    assert (view.state, view.counts.canceled, view.counts.superseded) == (RunState.SUPERSEDED, 1, 1)
    assert view.tasks[1].why == "superseded by papers@3/pdf"


def test_run_of_which_a_person_canceled_something_is_canceled(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    archive.cancel("a@2")
    assert state_of(archive) == RunState.PENDING
    archive.run("b@2")
    assert state_of(archive) == RunState.CANCELED
    archive.retry("a@2")
    archive.run("a@2")
    assert state_of(archive) == RunState.COMPLETED


def test_run_whose_tasks_supersede_each_other_completes(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"old": "", "new": "cancels: [old]"})
    archive.run("new@2")
    assert archive.states() == {"old@2": "canceled", "new@2": "completed"}
    assert state_of(archive) == RunState.COMPLETED


def test_gates_begin_no_run(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"gate": "# gate", "a": ""})
    assert archive.state("gate@2") == "completed"
    assert state_of(archive) == RunState.PENDING


def state_of(archive: AnArchive) -> RunState:
    return run_views.run(archive.session, RunId(archive.run_id(2))).state


def test_list_of_runs_has_pages_newest_first(session: Session) -> None:
    archive = an_archive(session)
    for _ in range(6):
        archive.commit({"a": ""})
    first = run_views.runs(session, limit=3)
    assert names(first) == ["papers@7", "papers@6", "papers@5"]
    second = run_views.runs(session, limit=3, before=first.next)
    assert names(second) == ["papers@4", "papers@3", "papers@2"]
    last = run_views.runs(session, limit=3, before=second.next)
    assert (names(last), last.next) == (["papers@1"], None)


def test_list_of_runs_is_filtered(session: Session) -> None:
    papers, books = an_archive(session), an_archive(session, "books", branches=("main", "topic"))
    papers.commit({"a": ""})
    books.commit({"a": ""}, branch="main")
    books.commit({"a": ""}, branch="topic")
    papers.trigger(2)
    of_books = [ArchiveId(books.id)]
    assert names(run_views.runs(session, archives=of_books)) == ["books:topic@2", "books@2", "books:topic@1", "books@1"]
    assert names(run_views.runs(session, archives=[])) == []
    topic = find.find_branch(session, ArchiveId(books.id), "topic", "books")
    assert names(run_views.runs(session, archives=of_books, branch=topic)) == ["books:topic@2", "books:topic@1"]
    assert names(run_views.runs(session, trigger=Trigger.MANUAL)) == ["papers@2.2"]
    assert names(run_views.runs(session, archives=[ArchiveId(papers.id)], rev=2)) == ["papers@2.2", "papers@2"]
    (row,) = papers.sql("select created_at from run where id = %s", papers.run_id(2, 2))
    assert names(run_views.runs(session, since=row["created_at"])) == ["papers@2.2"]


def test_list_of_runs_by_state_looks_on_until_the_page_is_full(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.fail("a@2")
    for _ in range(4):
        archive.commit({})
    archive.commit({"a": ""})
    assert names(run_views.runs(session, states=[RunState.FAILED], limit=1)) == ["papers@2"]
    assert names(run_views.runs(session, states=[RunState.PENDING])) == ["papers@7"]
    done = run_views.runs(session, states=[RunState.COMPLETED], limit=2)
    assert names(done) == ["papers@6", "papers@5"]
    assert names(run_views.runs(session, states=[RunState.COMPLETED], limit=2, before=done.next)) == [
        "papers@4",
        "papers@3",
    ]


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


def test_list_by_state_stops_looking_and_says_where_to_go_on(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_views, "MOST_LOOKED_AT", 100)
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.fail("a@2")
    for _ in range(120):
        archive.commit({})
    page = run_views.runs(session, states=[RunState.FAILED], limit=10)
    assert page.runs == []
    assert page.next is not None
    assert names(run_views.runs(session, states=[RunState.FAILED], limit=10, before=page.next)) == ["papers@2"]


def test_page_with_tasks_has_them_in_the_order_of_the_files(session: Session) -> None:
    archive = an_archive(session)
    archive.commit(CHAIN)
    assert [view.tasks for view in run_views.runs(session).runs] == [None, None], "nobody asked for them"
    (view, _) = run_views.runs(session, tasks=True).runs
    assert view.tasks is not None
    assert [(t.name, t.state) for t in view.tasks] == [
        ("COMMIT", State.COMPLETED), ("a", State.READY), ("b", State.WAITING), ("c", State.WAITING)
    ]  # fmt: skip


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


def test_cells_say_what_their_tasks_wait_for_as_all_views_do(session: Session) -> None:
    """Cells have the edges of their tasks at hand, other views ask for what is unmet: both have to find the same."""
    archive = an_archive(session)
    for _ in range(2):
        archive.commit(
            {"a": "depends: [PREV]", "b": "depends: [a]", "c": "depends: [PREV, {task: a, when: settled}, b]\ncancels: [PREV]", "all": "exclusive: true"}
        )  # fmt: skip
    archive.run("a@2")
    listed = run_views.runs(session, archives=[archive.id], tasks=True).runs
    cells = cells_of(session, listed)
    found = {cell.task.full_name: cell.task.why for of in cells.runs.values() for cell in of}
    asked = {task.full_name: task.why for run in listed for task in run.tasks or () if task.full_name in found}
    assert found == asked
    assert {name: asked[f"papers@{name}"] for name in ("2/c", "3/b", "3/c")} == {
        "2/c": "for papers@2/b",
        "3/b": "for papers@3/COMMIT and 1 more",
        "3/c": "for papers@2/c and 3 more",
    }


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


@pytest.fixture(params=[(40, 50), (1, 1)], ids=["newest runs", "older runs"])
def page_through(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, session: Session) -> PageThrough:
    """Finds runs on the main branch of an archive, page by page."""
    nearest, limit = request.param
    monkeypatch.setattr(run_views, "NEAREST", nearest)

    def find(archive: AnArchive, *, before: int | None = None, **asked: Any) -> list[str]:
        found, branch = list[str](), BranchId(archive.branches[""].id)
        while True:
            page = run_views.matching_runs(session, branch, before=before, limit=limit, **asked)
            found += [short(name) for name in names(page)]
            if (before := page.next) is None:
                return found

    return find


def test_the_runs_of_a_task_are_found_however_old_they_are(session: Session, page_through: PageThrough) -> None:
    archive = an_archive(session)
    for tasks in ({"old": ""}, {"old": "", "both": ""}, {"both": ""}, {"tile": "foreach: [a, b]"}, {"both": ""}):
        archive.commit(tasks)
    archive.run("old@2")
    assert page_through(archive, task="old") == ["3", "2"]
    assert page_through(archive, task="both") == ["6", "4", "3"]
    assert page_through(archive, task="both", before=archive.run_id(4)) == ["3"]
    assert page_through(archive, task="tile") == ["5"]
    assert page_through(archive, task="old", task_state=State.COMPLETED) == ["2"]
    assert page_through(archive, task="both", words="nothing") == page_through(archive, task="none") == []


def test_runs_are_found_by_words_however_old_they_are(session: Session, page_through: PageThrough) -> None:
    archive = an_archive(session, branches=["", "draft"])
    for author in ("ben", "ann", "ben", "ann", "ann"):
        archive.commit(author=author)
        archive.commit(author="ben", branch="draft")
    assert page_through(archive, words="'ben':*") == ["4", "2"]
    assert page_through(archive, words="'ann':*") == ["6", "5", "3", "1"]
    assert page_through(archive, words="'ann':*", before=archive.run_id(5)) == ["3", "1"]
    assert page_through(archive, words="'change':* & '4':*") == ["4"]
    assert page_through(archive, words="'change':* & 'ben':*", author="'ben':*") == ["4", "2"]
    assert page_through(archive, words="'ann':*", states=[RunState.COMPLETED]) == ["6", "5", "3", "1"]
    assert page_through(archive, words="'ann':*", states=[RunState.FAILED]) == []
    assert page_through(archive, words="'change':*", author="'change':*") == page_through(archive, words="'no':*") == []
    archive.sql("update run set deleted_at = now() where id = %s", archive.run_id(2))
    assert page_through(archive, words="'ben':*") == ["4"]


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
    for _ in range(30):
        archive.commit()
    archive.sql("analyze run")  # of a few rows that nobody has counted, any way of reading looks the same
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


# Tasks


def test_task_tells_its_root_its_attempts_and_what_people_did(session: Session) -> None:
    archive = an_archive(session)
    archive.commit(CHAIN)
    archive.fail("a@2")
    assert task_views.task(session, archive.task("c@2")).why == "because of papers@2/a"
    archive.retry("a@2")
    archive.end("a@2", 0, outputs={"pages": "12"})
    view = task_views.task(session, archive.task("a@2"))
    assert [(a.number, a.end, a.exit_code, a.outputs) for a in view.history] == [
        (1, "exited", 1, None), (2, "exited", 0, {"pages": "12"})
    ]  # fmt: skip
    assert [(d.by, d.verb) for d in view.deeds] == [("ann", "retry")]
    assert view.definition is not None
    assert view.definition["command"] == "true"
    assert attempt(session, claim_id(view)).number == 2


def claim_id(view: task_views.TaskDetail) -> Any:
    return view.attempt


def test_unknown_ids_are_not_found(session: Session) -> None:
    for look in (task_views.task, attempt, run_views.run):
        with pytest.raises(NotFound):
            look(session, 999)  # type: ignore[operator]


# Archives


def test_archive_shows_its_head_its_notice_and_its_schedules(session: Session) -> None:
    archive = an_archive(session)
    archive.commit(a_workflow("- {name: nightly, command: run, schedule: '0 3 * * *'}"))
    archives.notify(session, [ArchiveId(archive.id)], "12")
    (view,) = show_archives(session)
    assert [(b.name, b.main, b.rev) for b in view.branches] == [("", True, 2)]
    assert view.notice is not None
    assert (view.notice.revision, view.notice.expected) == ("12", False)
    assert [(s.cron, s.tasks) for s in view.schedules] == [("0 3 * * *", ["nightly"])]
    assert (view.stopped, view.trouble, view.remedy) == (None, None, "")
    assert view.settings.process


def test_archive_in_trouble_names_the_remedy(session: Session) -> None:
    archive = ArchiveId(an_archive(session).id)
    archives.read_failed(session, archive, "the server does not answer", 5.0)
    view = show_archive(session, archive)
    assert (view.trouble, view.remedy) == ("the server does not answer", "arkqueue sync papers")
    archives.stop(session, archive, "it went back in time")
    view = show_archive(session, archive)
    assert (view.stopped, view.remedy) == ("it went back in time", "arkqueue archive rewind papers REV")


def test_removed_archive_is_not_listed_and_stays_readable(session: Session) -> None:
    archive = an_archive(session)
    archives.remove(session, ArchiveId(archive.id), "ann")
    assert show_archives(session) == []
    assert show_archive(session, find.find_archive(session, "papers")).removed_at is not None
    assert find.find_run(session, "papers@1") == archive.run_id(1)


def test_task_says_shortly_what_it_waits_for_and_what_was_wrong_although_it_completed(session: Session) -> None:
    archive = an_archive(session)
    tasks = {"a": "", "b": "depends: [a, PREV]", "c": "depends: [b]"}
    archive.commit(tasks)
    archive.commit(tasks)
    archive.end("a@2", message="OUTPUT is a fifo: write a regular file")
    shown = [run_views.run(session, RunId(archive.run_id(number))) for number in (2, 3)]
    assert [[task.why for task in run.tasks[1:]] for run in shown] == [
        ["OUTPUT is a fifo: write a regular file", "", "for papers@2/b"],
        ["", "for papers@2/b and 1 more", "for papers@3/b"],
    ]


def test_what_was_done_to_a_run_names_the_tasks(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    archive.cancel("b@2")
    control.cancel_run(session, RunId(archive.run_id(2)), "ann")
    deeds = run_views.run(session, RunId(archive.run_id(2))).deeds
    assert [(deed.verb, deed.task) for deed in deeds] == [("cancel", "b"), ("cancel", None)]


def test_task_that_a_run_does_not_have_is_shown_where_it_is(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "tick": ""})
    archive.trigger(2, "a")
    for name, said in [
        ("papers@2.2/tick", r"papers@2.2 has no task 'tick'\. Another run has it: papers@2/tick\."),
        ("papers@2.2/tock", r"papers@2.2 has no task 'tock'\. It has: a\."),
        ("papers@2/nope", r"papers@2 has no task 'nope'\. It has: a, tick\."),
        ("papers@2.99/tick", r"does not exist: this revision has no run 99"),
    ]:
        with pytest.raises(NotFound, match=said):
            find.find_task(session, name)


def test_removed_archive_has_a_name_of_its_own_once_another_has_its_name(session: Session) -> None:
    first, second, third = (an_archive_after_another(session, baseline) for baseline in (1, 2, 2))
    named = [find.find_run(session, name) for name in ("papers~1@1", "papers~2@2", "papers@2")]
    assert named == [first.run_id(1), second.run_id(2), third.run_id(2)]
    assert [run.full_name for run in run_views.runs(session).runs] == ["papers@2", "papers~2@2", "papers~1@1"]
    assert [archive.name for archive in show_archives(session)] == ["papers"]
    with pytest.raises(NotFound, match=r"The one that was removed has it: papers~1@1\."):
        find.find_run(session, "papers@1")


def an_archive_after_another(session: Session, baseline: int) -> AnArchive:
    for watched in archives.watched(session):
        archives.remove(session, watched.id, "ann")
    return an_archive(session, baseline=baseline)


# Names


def test_name_without_a_run_means_the_commit_run_always(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    archive.trigger(2, "a")
    assert find.find_task(session, "papers@2/a") == archive.task("a@2.1")
    assert find.find_task(session, "papers@2.2/a") == archive.task("a@2.2")
    assert find.find_task(session, "papers@2.1/a") == archive.task("a@2.1")
    assert find.find_task(session, "papers@2/b") == archive.task("b@2.1")
    assert find.find_run(session, "papers@2") == archive.run_id(2, 1)
    assert find.find_run(session, "papers@2.2") == archive.run_id(2, 2)
    assert find.find_run(session, "papers@2.1") == archive.run_id(2, 1)


def test_every_name_that_is_shown_leads_back(session: Session) -> None:
    archive = an_archive(session, "books", branches=("main", "a/b"))
    for branch in ("main", "a/b"):
        archive.commit(CHAIN, branch=branch)
        archive.trigger(2, "a", branch=branch)
    for view in run_views.runs(session, tasks=True).runs:
        assert view.tasks is not None
        assert find.find_run(session, view.full_name) == view.id
        for task in view.tasks:
            assert find.find_task(session, task.full_name) == task.id


def test_prefix_of_a_sha_finds_its_branch(session: Session) -> None:
    archive = an_archive(session, "books", branches=("main", "topic"))
    branches = {name: branch.id for name, branch in archive.branches.items()}
    for branch, number, name in (("main", 1, "abcd1111"), ("topic", 1, "abcd2222"), ("topic", 2, "beef0000")):
        if number == 2:
            archive.commit({}, branch=branch)
        archive.sql(
            "update revision set name = %s, previous = null where branch_id = %s and number = %s",
            name,
            branches[branch],
            number,
        )
    assert find.find_run(session, "books@gabcd") == archive.run_id(1, branch="main")
    assert find.find_run(session, "books@gBEEF") == archive.run_id(2, branch="topic")
    assert find.find_run(session, "books:topic@gabcd") == archive.run_id(1, branch="topic")
    archive.sql("update revision set name = 'beef0001' where branch_id = %s and number = 1", branches["topic"])
    with pytest.raises(Invalid, match="several"):
        find.find_run(session, "books@gbeef")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("paper@2", "Did you mean papers"),
        ("papers@9", "the newest is 2"),
        ("papers@0", "The nearest: 1"),
        ("papers@2/indx", "Did you mean index"),
        ("papers@2.7", "The newest is 1"),
        ("papers:main@2", "has no branch 'main'"),
        ("papers@gabcdef", "is not in the ledger"),
        ("papers@2/index/item", "papers@2/index has no item 'item'. See what it has: arkqueue show papers@2 --items"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(session: Session, name: str, message: str) -> None:
    archive = an_archive(session)
    archive.commit({"index": ""})
    with pytest.raises(NotFound, match=message):
        (find.find_task if "/" in name else find.find_run)(session, name)


def test_archive_without_a_main_branch_says_what_helps(session: Session) -> None:
    archive = an_archive(session, "books", branches=("main", "topic"))
    archive.sql("update branch set main = false")
    for name in ("books@1", "books@2"):
        with pytest.raises(NotFound, match=r"has no main branch\. Name one of its branches: main, topic"):
            find.find_run(session, name)
    archives.register(
        session,
        name="new",
        kind="git",
        url="/new",
        repository="/new",
        uuid="",
        folder="",
        settings=ArchiveSettings(),
        starts=[],
    )
    for name in ("new@1", "new@gabcd"):
        with pytest.raises(
            NotFound, match=r"no branch of it is tracked\. Track one: arkqueue archive set new --branch GLOB"
        ):
            find.find_run(session, name)


def test_run_is_no_task(session: Session) -> None:
    an_archive(session)
    with pytest.raises(Invalid, match="papers@1/TASK"):
        find.find_task(session, "papers@1")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("papers@2/*/b%2Fc", "papers@2/*/b%2Fc: is the name of an item, and here a task is wanted. Name a task of it: arkqueue show papers@2 --items"),
        ("papers@2/check/*", "papers@2/check/*: is the name of a list, and here a task is wanted. Write papers@2/check/KEY: arkqueue show papers@2 --items"),
        ("papers@2/*", "papers@2/*: lacks the key of an item. Write papers@2/*/KEY, or papers@2 for the whole run."),
        ("papers@2/check/b/c", "write %2F for a slash in the key of an item: papers@2/check/b%2Fc"),
        ("papers@2/*/b/c", "write %2F for a slash in the key of an item: papers@2/*/b%2Fc"),
    ],
)  # fmt: skip
def test_what_names_an_item_is_told_from_a_task(session: Session, name: str, message: str) -> None:
    a_list(session)
    with pytest.raises(Invalid, match=re.escape(message)):
        find.find_task(session, name)


# The installation


def test_ended_attempts_whose_ends_are_not_recorded_yet_take_no_slots(session: Session) -> None:
    """A task manager claims for a slot as soon as its task has ended. The end may wait for a busy archive."""
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    claim.register(session, "manager-1", "host-1", "machine", 1)
    archive.claim_some(2)
    (shown,) = installation.task_managers(session)
    assert (shown.running, shown.busy, shown.free) == (2, 1, 0)


def test_task_managers_are_shown_with_their_slots(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    claim.register(session, "manager-1", "host-1", "machine", 4)
    claim.register(session, "manager-2", "host-2", "other", 2)
    claim.unregister(session, "manager-2")
    archive.claim("a@2")
    first, second = installation.task_managers(session)
    assert (first.hostname, first.alive, first.running, first.busy, first.free) == ("machine", True, 1, 1, 3)
    assert (second.hostname, second.alive, second.free) == ("other", False, 0)
    numbers = installation.measure(session)
    assert (numbers.tasks, numbers.attempts_live, numbers.task_managers, numbers.slots) == (
        {"running": 1},
        1,
        1,
        4,
    )


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
