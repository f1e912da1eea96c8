"""What a change adds to the ledger and the graph, collected and stored with a few statements, however many revisions it brings.

Ids are taken from their sequences beforehand, so that edges can name tasks which are not stored yet. Whether an edge is met is known before it is stored: its source was looked up after the
archive was locked, and nothing settles without that lock. A COMMIT that can pass at once is stored as completed, so that a long chain of revisions needs no round for each. Called by ``ledger``.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from arkqueue.model import COMMIT, REPORT, Cancels, Fault, Revision, TaskDefinition, TaskId, TaskKind, Trigger, Workflow
from arkqueue.plan import Awaited, Node, Plan, names_needed, plan
from arkqueue.queue.graph import Graph
from arkqueue.workflow import to_json

IMPLICIT = 4
"""The most tasks of a run that no file defines: COMMIT, REPORT and two gates of ``PREV:*``."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch as the caller knows it; ``head`` is the id of the ledger's last entry, which `append` compares."""

    id: int
    archive: int
    name: str
    main: bool
    head: int | None


class Storage:
    """Collects revisions and runs of one branch, in order, until ``store``."""

    def __init__(self, graph: Graph, branch: Branch, expected: Sequence[Workflow], closing: Sequence[int] = ()) -> None:
        """``expected``: the workflows of the runs that will be added. ``closing``: stored exclusive tasks that close the gate to the next revision."""
        self.graph, self.branch = graph, branch
        self._expected = expected
        self.exclusive = list(closing)
        """The exclusive tasks that the next commit run waits for: those of the run that was added last."""
        self._past: dict[str, TaskId] = {}
        self._settled: dict[int, bool] = {}
        """Of the tasks in ``_past``, those that are settled, and whether that meets every edge from them (else those that any settled source meets)."""
        self._awaited: dict[Awaited, list[Awaited]] = {}
        """Of those of them that never began, what they still waited for; by the edge from them: whether that is met by any settled source."""
        self._asked: set[str] = set()
        self._knows_all = False
        self._ids_by_digest: dict[bytes, int] = {}
        self._frozen: dict[int, tuple[TaskDefinition, str]] = {}
        self._names: set[str] = set()
        self._known = graph.kept.parsed
        self._parsed: dict[int, tuple[object, int]] = {}
        self._new_ids: dict[str, Iterator[int]] = {}
        graph.to_keep.append(self._keep)
        self._revisions: list[tuple[Any, ...]] = []
        self._runs: list[tuple[Any, ...]] = []
        self._tasks: list[tuple[Any, ...]] = []
        self._edges: list[tuple[Any, ...]] = []
        self._gates: list[int] = []
        self._behind: list[int] = []
        """Gates and other tasks without an unmet edge."""

    def add_revision(
        self, revision: Revision, workflow: Workflow, previous: str | None, generation: int, *, is_baseline: bool
    ) -> int:
        """The id of a new entry of the ledger."""
        id = self._new_id("revisions")
        self._revisions.append(
            (
                id, revision.number, generation, self._workflow(workflow), is_baseline, revision.id, _text(revision.author),
                revision.date, _text(revision.message), revision.origin and _text(revision.origin.task), previous,
            )
        )  # fmt: skip
        return id

    def add_baseline_run(self, revision: Revision, id: int) -> None:
        """A completed COMMIT and no other task (design 2)."""
        planned = self.plan(Workflow(), revision.number, 1, Trigger.COMMIT, ())
        self.add_run(
            Plan(tuple(node for node in planned.nodes if node.kind is TaskKind.COMMIT), planned.edges),
            id, revision.number, 1, Trigger.COMMIT, revision.author, (),
        )  # fmt: skip

    def add_commit_run(
        self, revision: Revision, id: int, workflow: Workflow, changed: Collection[str], faults: Sequence[Fault]
    ) -> None:
        number = revision.number
        planned = self.plan(Workflow() if faults else workflow, number, 1, Trigger.COMMIT, changed)
        self.add_run(planned, id, number, 1, Trigger.COMMIT, revision.author, faults, self.exclusive)

    def plan(
        self,
        workflow: Workflow,
        number: int,
        run: int,
        cause: Trigger,
        changed: Collection[str],
        names: Collection[str] | None = None,
        completed: Collection[str] = (),
    ) -> Plan:
        """The graph of a run at a place behind everything that was added so far."""
        needed = names_needed(workflow)
        load = self._every_name() if needed is None else needed - self._asked
        if load:
            found = self.graph.rows("nearest", branch=self.branch.id, names=sorted(load), number=number, run=run)
            self._settled |= {row.id: row.passes for row in found if row.settled}
            if over := [row.id for row in found if row.settled and row.waited]:
                self._awaited |= self.graph.still_awaited(over, planned=True)
            # What was planned a moment ago in this transaction is nearer than anything stored.
            self._past = {row.name: TaskId(row.id) for row in found} | self._past
            self._asked |= load
        past = self._past if needed is None else {n: self._past[n] for n in needed if n in self._past}
        return plan(
            workflow,
            trigger=cause,
            branch=self.branch.name,
            changed=changed,
            past=past,
            names=names,
            completed=completed,
        )

    def _every_name(self) -> set[str]:
        """The names of the branch that have not been asked for."""
        if self._knows_all:
            return set()
        self._knows_all = True
        return {COMMIT, *(row.name for row in self.graph.rows("names", branch=self.branch.id))} - self._asked

    def add_run(
        self,
        planned: Plan,
        revision: int,
        number: int,
        run: int,
        cause: Trigger,
        by: str,
        faults: Sequence[Fault],
        closing: Sequence[int] = (),
    ) -> int:
        """The id of a new run; ``closing`` are exclusive tasks that its COMMIT waits for."""
        id = self._new_id("runs")
        ids = {node.name: TaskId(self._new_id("tasks")) for node in planned.nodes}
        self._runs.append(
            (id, revision, number, run, ids.get(REPORT), str(cause), _text(by), json.dumps([asdict(f) for f in faults]))
        )
        edges: list[tuple[Any, ...]] = [
            (ids[target], ids[source], kind, settled, False, declared)
            if isinstance(source, str)
            else (ids[target], source, kind, settled, True, declared)
            for target, source, kind, settled, declared in planned.edges
        ]
        edges += self._handed_on(edges)
        edges += [(ids[COMMIT], source, "exclusive", True, True, False) for source in closing]
        if all(self._is_met(edge) for edge in edges if edge[0] == ids[COMMIT]):
            self._settled[ids[COMMIT]] = True
        unmet: Counter[TaskId] = Counter()
        for edge in edges:
            is_met = self._is_met(edge)
            self._edges.append((*edge, is_met))
            unmet[edge[0]] += not is_met
        if REPORT in ids:
            # It waits for every other task that is not settled yet; it has no edges (design 5.4).
            unmet[ids[REPORT]] = sum(
                node.kind not in (TaskKind.GATE, TaskKind.REPORT) and ids[node.name] not in self._settled
                for node in planned.nodes
            )
        self._keep_definitions(planned.nodes)
        for node in planned.nodes:
            task, definition, passed = ids[node.name], node.definition, ids[node.name] in self._settled
            self._tasks.append(
                (
                    task, id, number, run, node.name, definition and self._id_of(definition), node.position, node.kind,
                    node.program, bool(definition and definition.cancels), node.exclusive, unmet[task], passed,
                )
            )  # fmt: skip
            if not unmet[task] and not passed:
                (self._behind if node.position else self._gates).append(task)
        self.exclusive = [ids[node.name] for node in planned.nodes if node.exclusive]
        self._past |= ids
        self._asked |= ids.keys()
        self._names |= {node.name for node in planned.nodes if node.kind is TaskKind.ORDINARY}
        return id

    def _handed_on(self, edges: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Edges from what met sources still waited for that never began (decision 0001, point 18)."""
        if not self._awaited:
            return []
        known = {edge[:4] for edge in edges}
        handed = {
            (edge[0], one.task, "depends", one.settled)
            for edge in edges
            if edge[2] == "depends" and self._is_met(edge)
            for one in self._awaited.get(Awaited(edge[1], edge[3]), ())
        }
        return [(*edge, True, False) for edge in sorted(handed - known)]

    def _is_met(self, edge: tuple[Any, ...]) -> bool:
        _, source, kind, settled, *_ = edge
        return kind == "cancels" or (source in self._settled and (settled or self._settled[source]))

    def store(self) -> tuple[list[int], list[int]]:
        """Store what was collected; returns the tasks that have no unmet edge: gates of a run, which enter at once, and those behind them."""
        graph, branch = self.graph, self.branch
        if self._revisions:
            columns = "ids numbers generations workflows baselines names authors dates messages origins previous"
            graph.do("add_revisions", branch=branch.id, **_arrays(columns, self._revisions, texts=6))
        if not self._runs:
            return [], []
        columns = "ids revisions numbers runs reports triggers by faults"
        graph.do("add_runs", archive=branch.archive, branch=branch.id, **_arrays(columns, self._runs, texts=3))
        if new := [name for name in sorted(self._names) if (branch.id, name) not in graph.kept.names]:
            graph.do("keep_names", branch=branch.id, names=new)
        if self._edges:
            graph.do("add_edges", **_arrays("targets sources kinds settled crossing declared met", self._edges))
        columns = (
            "ids runs numbers run_numbers names definitions positions kinds programs cancels exclusives unmet passed"
        )
        graph.do("add_tasks", archive=branch.archive, branch=branch.id, **_arrays(columns, self._tasks))
        return self._gates, self._behind

    def _new_id(self, kind: str) -> int:
        if not self._new_ids:
            runs = len(self._expected)
            tasks = sum(len(workflow.tasks) + IMPLICIT for workflow in self._expected)
            (new,) = self.graph.rows("new_ids", revisions=runs, runs=runs, tasks=tasks)
            self._new_ids = {name: iter(ids) for name, ids in new._asdict().items()}
        return next(self._new_ids[kind])

    def _workflow(self, workflow: Workflow) -> int:
        if id(workflow) not in self._known:
            self._parsed[id(workflow)] = workflow, self._keep_workflow(workflow)
        return self._id_of(workflow)

    def _keep_workflow(self, workflow: Workflow) -> int:
        tasks = [self._freeze(definition) for definition in workflow.tasks]
        faults = json.dumps([asdict(fault) for fault in workflow.faults])
        digest = _digest("\n".join([*tasks, faults]))
        if digest in self.graph.kept.ids:
            return self.graph.kept.ids[digest]
        if digest not in self._ids_by_digest:
            self.graph.do("keep_workflow", digest=digest, tasks=f"[{','.join(tasks)}]", faults=faults)
            self._ids_by_digest[digest] = self.graph.ids("workflow_id", digest=digest)[0]
        return self._ids_by_digest[digest]

    def _keep_definitions(self, nodes: Sequence[Node]) -> None:
        kept = self.graph.kept.ids
        used = {
            self._digest_of(node.definition): node.definition
            for node in nodes
            if node.definition is not None and id(node.definition) not in self._known
        }
        self._ids_by_digest |= {digest: kept[digest] for digest in used if digest in kept}
        new = {digest: used[digest] for digest in sorted(used.keys() - self._ids_by_digest.keys())}
        if new:
            self.graph.do(
                "keep_definitions",
                digests=list(new),
                bodies=[self._freeze(definition) for definition in new.values()],
                cancels=[json.dumps([_victim(d.name, c) for c in d.cancels]) for d in new.values()],
            )
            for row in self.graph.rows("definition_ids", digests=list(new)):
                self._ids_by_digest[bytes(row.digest)] = row.id
        self._parsed |= {id(d): (d, self._ids_by_digest[digest]) for digest, d in used.items()}

    def _id_of(self, parsed: Workflow | TaskDefinition) -> int:
        return (self._known.get(id(parsed)) or self._parsed[id(parsed)])[1]

    def _keep(self) -> None:
        kept, names = self.graph.kept, {(self.branch.id, name) for name in self._names}
        if self._ids_by_digest or self._parsed or not names <= kept.names:
            kept.keep(self._ids_by_digest, self._parsed, names)

    def _digest_of(self, definition: TaskDefinition) -> bytes:
        return _digest(self._freeze(definition))

    def _freeze(self, definition: TaskDefinition) -> str:
        """The canonical text of a definition; revisions repeat theirs, so it is kept by identity."""
        if id(definition) not in self._frozen:
            text = json.dumps(to_json(definition), sort_keys=True, separators=(",", ":"))
            self._frozen[id(definition)] = definition, text
        return self._frozen[id(definition)][1]


def _arrays(names: str, rows: Sequence[tuple[Any, ...]], texts: int = 0) -> dict[str, Any]:
    """Rows turned into columns, as ``unnest`` takes them; the last ``texts`` of them may be anything.

    The others are of numbers, truths and plain names, each the text of an array. There are thousands: as lists, psycopg would go through them one by one.
    """
    columns = dict(zip(names.split(), zip(*rows, strict=True), strict=True))
    plain = len(columns) - texts
    return {
        name: "{" + json.dumps(column)[1:-1] + "}" if place < plain else list(column)
        for place, (name, column) in enumerate(columns.items())
    }


def _victim(name: str, cancels: Cancels) -> dict[str, Any]:
    return {"name": cancels.task or name, "here": not cancels.previous, "unstarted": cancels.only_unstarted}


def _text(text: str) -> str:
    """PostgreSQL's text holds no NUL."""
    return text.replace("\0", "\ufffd")


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
