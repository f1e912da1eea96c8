"""The graph of runs as people see it (design 5.3): all declared edges, and those implicit edges
that say something.

- The edge to a run's own COMMIT is left out where the task waits for another task of its run.
  ``PREV:*`` is a node of its own, so that edges do not multiply. It stands for tasks of earlier
  runs, so the edge to COMMIT is shown beside it.
- REPORT is shown only where it has a command.
- A ``cancels`` edge is ``active`` while its victim is being stopped. If the victim has no such
  edge, because the canceling task is in a later run, a ``stopping`` edge is shown as long as the
  task waits for the victim.
- Sources of edges that belong to other runs are nodes too, ``outside``.
- The locks for which tasks of the runs wait are listed beside the graph, with the tasks that have
  each lock and the next one in line, also if that one belongs to another run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import Invalid
from arkqueue.model import ArchiveId, BranchId, RunId, TaskKind
from arkqueue.plan.edges import EVERYTHING
from arkqueue.states import State
from arkqueue.views.lists import Listed, listed
from arkqueue.views.locks import LockView, locks_of_runs
from arkqueue.views.naming import names_of, task_name
from arkqueue.views.rows import view_of
from arkqueue.views.tasks import is_implicit

MOST_RUNS = 200
"""The most runs in one graph; nobody can read a larger one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A task in a graph. ``outside``: True if it belongs to a run that was not asked for. ``waived``:
    True if a person waived its failure.
    """

    id: int
    run_id: int
    full_name: str
    rev: int
    run: int
    name: str
    item: str
    state: State
    gate: bool
    outside: bool
    waived: bool = False

    @property
    def label(self) -> str:
        """Its name inside its run."""
        return f"{self.name}/{self.item}" if self.item else self.name


@dataclass(slots=True, kw_only=True)  # not frozen, as TaskView
class EdgeView:
    """An edge: ``target`` waits for ``source``, or cancels it.

    ``kind``: ``depends`` (met by completion), ``settled`` (met by any end), ``failed`` (met by a
    failure or rejection), ``cancels``, ``exclusive`` (a closed gate), or ``stopping`` (until the
    source is gone). ``declared``: True if a workflow file has it. ``active``: for ``cancels``, True
    while the source is being stopped.
    """

    target: int
    source: int
    target_name: str
    source_name: str
    kind: str
    met: bool
    declared: bool
    active: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphView:
    """Nodes in the order of revisions, runs and files; edges in the order of their targets.
    ``more_locks``: True if there are more locks than are listed, at most 100.
    """

    nodes: list[NodeView]
    edges: list[EdgeView]
    locks: list[LockView]
    more_locks: bool


def graph(
    session: Session,
    runs: Sequence[RunId],
    archives: Sequence[ArchiveId] | None = None,
    shown: Listed | None = None,
) -> GraphView:
    """The graph of some runs; of a long list, it has the first item in each state. ``archives``:
    those whose tasks may be named at a lock of the installation; None: all. ``shown``: the runs'
    tasks from `listed`, if the caller has them.
    """
    shown = shown or listed(session, runs)
    inside = [row.id for row in shown.rows]
    rows, edges = _read(session, runs, session.rows("graph_nodes", tasks=inside), {}, are_all=not shown.lists)
    used = {*inside, *(edge.source for edge in edges)}
    nodes = [_node(row, outside=row.run_id not in runs) for row in rows.values() if row.id in used]
    locks, more = locks_of_runs(session, runs, archives)
    return GraphView(nodes=nodes, edges=edges, locks=locks, more_locks=more)


def unmet_pairs(session: Session, view: GraphView) -> list[tuple[str, str]]:
    """The pairs (target, source) of lists of the runs with an unmet edge between two items. The
    graph may leave these items out.
    """
    items = {node.id: node for node in view.nodes if node.item and not node.outside}
    pairs: dict[tuple[str, str], tuple[int, int]] = {}
    for edge in view.edges:
        if edge.target in items and edge.source in items:
            target, source = items[edge.target].name, items[edge.source].name
            if target != source:
                pairs[target, source] = edge.target, edge.source
    if not pairs:
        return []
    targets, sources = zip(*pairs.values(), strict=True)
    rows = session.rows("unmet_lists", targets=list(targets), sources=list(sources))
    unmet = {(row.target, row.source) for row in rows}
    return [names for names, ids in pairs.items() if ids in unmet]


def edges_of(
    session: Session,
    run: RunId,
    rows: Sequence[Any],
    names: Mapping[int, str],
    item: str | None = None,
    *,
    are_all: bool,
) -> list[EdgeView]:
    """The edges of a run's graph, or of an item in it. ``rows``: its tasks, from ``list_tasks``;
    ``names``: their names. ``are_all``: True if the run has no other tasks.
    """
    return _read(session, [run], rows, names, item, are_all=are_all)[1]


def _read(
    session: Session,
    runs: Sequence[RunId],
    inside: Sequence[Any],
    names: Mapping[int, str],
    item: str | None = None,
    *,
    are_all: bool,
) -> tuple[dict[int, Any], list[EdgeView]]:
    """The rows of all tasks that may be shown, by id, in the order of nodes; and the edges that are
    shown.
    """
    if are_all:
        edges = session.rows("show_edges", runs=list(runs), item=item)
    else:
        edges = session.rows("show_some_edges", tasks=[row.id for row in inside])
    outside = {edge.source for edge in edges} - {row.id for row in inside}
    found = [*inside, *(session.rows("graph_nodes", tasks=sorted(outside)) if outside else ())]
    # Within a run, the rows are already in the order of its files.
    waited_for = {edge.source for edge in edges}
    in_order = sorted(found, key=lambda row: (row.number, row.run))
    rows = {row.id: row for row in in_order if not _is_hidden(row, waited_for)}
    edges = [e for e in edges if e.target in rows and e.source in rows]
    order = {id: place for place, id in enumerate(rows)}
    shown = sorted(_shown(edges, rows), key=lambda e: (order[e.target], order[e.source]))
    ends = {id for e in shown for id in (e.target, e.source)}
    known = {**names, **names_of(rows[id] for id in ends - names.keys())}
    stopping = {(e.target, e.source) for e in edges if e.kind == "stopping" and not e.met}
    return rows, [_edge(e, known, stopping) for e in shown]


def graph_between(
    session: Session, branch: BranchId, first: int, last: int, archives: Sequence[ArchiveId] | None = None
) -> GraphView:
    """The graph of all runs of a branch from one revision to another."""
    runs = [RunId(row.id) for row in session.rows("runs_between", branch=branch, first=first, last=last, limit=MOST_RUNS + 1)]  # fmt: skip
    if len(runs) > MOST_RUNS:
        raise Invalid(f"revisions {first} to {last}", f"are more than {MOST_RUNS} runs", "Ask for fewer revisions.")
    return graph(session, runs, archives)


def _is_hidden(row: Any, waited_for: Collection[int]) -> bool:
    """True for tasks that the graph leaves out. The gates of a list exist even if no task waits for them."""
    return is_implicit(row) and (row.kind != TaskKind.GATE or row.id not in waited_for)


def _shown(edges: Sequence[Any], rows: dict[int, Any]) -> list[Any]:
    commits = {id for id, row in rows.items() if row.kind == TaskKind.COMMIT}
    own = commits | {id for id, row in rows.items() if row.kind == TaskKind.GATE and row.name.startswith(EVERYTHING)}
    waits_inside = {
        e.target for e in edges if not e.crossing and e.kind in ("depends", "exclusive") and e.source not in own
    }
    canceled = {(e.target, e.source) for e in edges if e.kind == "cancels"}
    return [
        e
        for e in edges
        if not (
            e.source in commits
            and e.kind == "depends"
            and not (e.crossing or e.declared)
            and (e.target in waits_inside or e.failed)
        )
        and not (e.kind == "stopping" and (e.met or (e.target, e.source) in canceled))
    ]


def kind_of(edge: Any) -> str:
    """The kind of an edge for people, as in ``EdgeView``."""
    if edge.kind != "depends":
        return str(edge.kind)
    return "failed" if edge.failed else "settled" if edge.settled else "depends"


def _node(row: Any, *, outside: bool) -> NodeView:
    return view_of(row, NodeView, full_name=task_name(row), rev=row.number, state=State(row.state), outside=outside)


def _edge(edge: Any, names: dict[int, str], stopping: Collection[tuple[int, int]]) -> EdgeView:
    return EdgeView(
        target=edge.target,
        source=edge.source,
        target_name=names[edge.target],
        source_name=names[edge.source],
        kind=kind_of(edge),
        met=edge.met,
        declared=edge.declared,
        active=edge.kind == "cancels" and (edge.target, edge.source) in stopping,
    )
