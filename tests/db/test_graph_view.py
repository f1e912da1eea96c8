"""The graphs that people see: tasks, and the edges between them."""

from __future__ import annotations

import pytest

from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, End, RunId
from arkqueue.queue import locks
from arkqueue.views import find
from arkqueue.views.graph import EdgeView, GraphView, graph, graph_between
from arkqueue.views.locks import MOST_IN_GRAPH, MOST_LOCKS
from tests.builders import an_archive
from tests.db.shapes import short
from tests.db.test_example import example


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
