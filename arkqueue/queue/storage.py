"""What a change adds to the ledger and the graph, collected and stored with a few statements, however many revisions it brings.

Ids are taken from their sequences beforehand, so that edges can name tasks which are not stored yet. Whether an edge is met is judged by the statement that stores it, from what
its source is then; only a COMMIT that can pass at once is stored as completed, so that a long chain of revisions needs no round for each. Called by ``planning``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from psycopg.types.json import Jsonb

from arkqueue.model import COMMIT, REPORT, Cancels, Fault, Revision, TaskDefinition, TaskId, Trigger, Workflow
from arkqueue.plan import EVERYTHING, Node, Plan, names_needed, plan
from arkqueue.queue.graph import Graph
from arkqueue.states import State
from arkqueue.workflow import to_json


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

    def __init__(self, graph: Graph, branch: Branch, *, expected: int = 1, closing: Sequence[int] = ()) -> None:
        """``expected``: about how many runs will be added. ``closing``: stored exclusive tasks that close the gate to the next revision."""
        self.graph, self.branch = graph, branch
        self._expected = expected
        self.exclusive = list(closing)
        """The exclusive tasks that the next commit run waits for: those of the run that was added last."""
        self._past: dict[str, TaskId] = {}
        self._completed: set[int] = set()
        """Of the tasks in ``_past``, those known to be completed."""
        self._asked: set[str] = set()
        self._knows_all = False
        self._ids_by_digest: dict[bytes, int] = {}
        self._frozen: dict[int, tuple[TaskDefinition, str]] = {}
        self._names: set[str] = set()
        self._new_ids: dict[str, list[int]] = {"revisions": [], "runs": [], "tasks": []}
        graph.to_keep.append(self._keep)
        self._revisions: list[tuple[Any, ...]] = []
        self._runs: list[tuple[Any, ...]] = []
        self._tasks: list[tuple[Any, ...]] = []
        self._edges: list[tuple[Any, ...]] = []

    def add_revision(
        self, revision: Revision, workflow: Workflow, previous: str | None, generation: int, *, is_baseline: bool
    ) -> int:
        """The id of a new entry of the ledger."""
        id = self._new_id("revisions")
        self._revisions.append(
            (
                id, revision.number, revision.id, _text(revision.author), revision.date, _text(revision.message),
                revision.origin and revision.origin.task, generation, self._workflow(workflow), is_baseline, previous,
            )
        )  # fmt: skip
        return id

    def add_baseline_run(self, revision: Revision, id: int) -> None:
        """A completed COMMIT and no other task (design 2)."""
        planned = self.plan(Workflow(), revision.number, 1, Trigger.COMMIT, ())
        self.add_run(
            Plan(tuple(node for node in planned.nodes if node.name == COMMIT), planned.edges),
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
            self._completed |= {row.id for row in found if row.state == State.COMPLETED}
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
        return {row.name for row in self.graph.rows("names", branch=self.branch.id)} - self._asked

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
            (id, revision, number, run, str(cause), _text(by), Jsonb([asdict(f) for f in faults]), ids.get(REPORT))
        )
        edges: list[tuple[int, int, str, bool, bool, bool]] = [
            (
                ids[edge.target], ids[edge.source] if isinstance(edge.source, str) else edge.source,
                edge.kind, edge.settled, not isinstance(edge.source, str), edge.declared,
            )
            for edge in planned.edges
        ]  # fmt: skip
        edges += [(ids[COMMIT], source, "exclusive", True, True, False) for source in closing]
        if all(source in self._completed for target, source, *_ in edges if target == ids[COMMIT]):
            self._completed.add(ids[COMMIT])
        self._edges += [(*edge, edge[1] in self._completed) for edge in edges]
        self._keep_definitions(planned.nodes)
        for node in planned.nodes:
            self._tasks.append(self._task(node, ids, id, number, run))
        self.exclusive = [ids[node.name] for node in planned.nodes if node.exclusive]
        self._past |= ids
        self._asked |= ids.keys()
        self._names |= {name for name in ids if not name.startswith(EVERYTHING)}
        return id

    def _task(self, node: Node, ids: dict[str, TaskId], run_id: int, number: int, run: int) -> tuple[Any, ...]:
        definition = node.definition
        others = 0
        if node.name == REPORT:
            # REPORT waits for every other task that is not settled yet; it has no edges (design 5.4).
            counted = [task for name, task in ids.items() if name != REPORT and not name.startswith(EVERYTHING)]
            others = sum(1 for task in counted if task not in self._completed)
        return (
            ids[node.name], run_id, number, run, node.name, definition and self._ids_by_digest[self._digest_of(definition)],
            node.position, node.gate, bool(definition and definition.cancels), node.exclusive, others,
            ids[node.name] in self._completed,
        )  # fmt: skip

    def store(self) -> tuple[list[int], list[int]]:
        """Store what was collected; returns the tasks that have no unmet edge: gates of a run, which enter at once, and those behind them."""
        graph, branch = self.graph, self.branch
        if self._revisions:
            ids, numbers, names, authors, dates, messages, origins, generations, workflows, baselines, previous = (
                _columns(self._revisions)
            )
            graph.do(
                "add_revisions", branch=branch.id, ids=ids, numbers=numbers, names=names, authors=authors, dates=dates,
                messages=messages, origins=origins, generations=generations, workflows=workflows, baselines=baselines,
                previous=previous,
            )  # fmt: skip
        if not self._runs:
            return [], []
        ids, revisions, numbers, runs, triggers, by, faults, reports = _columns(self._runs)
        graph.do(
            "add_runs", archive=branch.archive, branch=branch.id, ids=ids, revisions=revisions, numbers=numbers, runs=runs,
            triggers=triggers, by=by, faults=faults, reports=reports,
        )  # fmt: skip
        if new := [name for name in sorted(self._names) if (branch.id, name) not in graph.kept.names]:
            graph.do("keep_names", branch=branch.id, names=new)
        targets, sources, kinds, settled, crossing, declared, known = _columns(self._edges, 7)
        (
            ids,
            runs,
            numbers,
            run_numbers,
            names,
            definitions,
            positions,
            gates,
            cancels,
            exclusives,
            others,
            completed,
        ) = _columns(self._tasks)
        rows = graph.rows(
            "add_tasks", archive=branch.archive, branch=branch.id,
            targets=targets, sources=sources, kinds=kinds, settled=settled, crossing=crossing, declared=declared, known=known,
            ids=ids, runs=runs, numbers=numbers, run_numbers=run_numbers, names=names, definitions=definitions,
            positions=positions, gates=gates, cancels=cancels, exclusives=exclusives, others=others, completed=completed,
        )  # fmt: skip
        entering = [row for row in rows if row.enters]
        return [row.id for row in entering if not row.position], [row.id for row in entering if row.position]

    def _new_id(self, kind: str) -> int:
        left = self._new_ids[kind]
        if not left:
            (new,) = self.graph.rows(
                "new_ids",
                **{
                    key: 0 if self._new_ids[key] else self._expected * (8 if key == "tasks" else 1)
                    for key in self._new_ids
                },
            )
            for key, ids in self._new_ids.items():
                ids += reversed(getattr(new, key))
        return left.pop()

    def _workflow(self, workflow: Workflow) -> int:
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
        used = {self._digest_of(node.definition): node.definition for node in nodes if node.definition is not None}
        kept = self.graph.kept.ids
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

    def _keep(self) -> None:
        self.graph.kept.keep(self._ids_by_digest, {(self.branch.id, name) for name in self._names})

    def _digest_of(self, definition: TaskDefinition) -> bytes:
        return _digest(self._freeze(definition))

    def _freeze(self, definition: TaskDefinition) -> str:
        """The canonical text of a definition; revisions repeat theirs, so it is kept by identity."""
        if id(definition) not in self._frozen:
            text = json.dumps(to_json(definition), sort_keys=True, separators=(",", ":"))
            self._frozen[id(definition)] = definition, text
        return self._frozen[id(definition)][1]


def _columns(rows: Sequence[tuple[Any, ...]], width: int = 0) -> list[list[Any]]:
    """Rows turned into columns, as ``unnest`` takes them."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


def _victim(name: str, cancels: Cancels) -> dict[str, Any]:
    return {"name": cancels.task or name, "here": not cancels.previous, "unstarted": cancels.only_unstarted}


def _text(text: str) -> str:
    """PostgreSQL's text holds no NUL."""
    return text.replace("\0", "\ufffd")


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
