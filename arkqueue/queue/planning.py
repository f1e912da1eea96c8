"""Runs are planned and stored: the ledger grows, and each new revision's graph with it, in one transaction.

The order of a branch is the order of its ledger, which is filled from the repository by compare-and-set on the branch's head; so nothing is
skipped, planned twice, or planned before its predecessor, however hooks arrive (design 2, 5.1). A person or a schedule adds further runs of a revision
that is in the ledger; their definitions are the ones that were kept with the revision (design 5.2).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from typing import Any

from psycopg.types.json import Jsonb

from arkqueue.errors import Conflict, Invalid, NotFound
from arkqueue.model import COMMIT, REPORT, Cancels, Fault, Revision, TaskDefinition, TaskId, Trigger, Workflow
from arkqueue.names import name_of, parse_name
from arkqueue.plan import EVERYTHING, Plan, names_needed, plan
from arkqueue.queue import schedules
from arkqueue.queue.door import Queue
from arkqueue.queue.graph import Graph, change
from arkqueue.workflow import from_json, to_json

MOST_GENERATIONS = 10
"""How many commits by tasks may follow from one another (design 5.15)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A revision that is to be appended, with its parsed workflow files and its tree difference to the previous ledger revision."""

    revision: Revision
    workflow: Workflow
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch as the caller knows it; ``head`` is the id of the ledger's last entry, which `append` compares."""

    id: int
    archive: int
    name: str
    main: bool
    head: int | None


def append(
    queue: Queue,
    branch: Branch,
    entries: Sequence[Entry],
    *,
    baseline: Entry | None = None,
    dropped: Collection[str] = (),
    author: str | None = None,
) -> int | None:
    """Append revisions to a branch's ledger and store their commit runs.

    ``baseline``: what the branch starts from, where it is new. ``dropped``: revisions that a rewrite took away; what of theirs has not started is canceled
    (design 5.16). ``author``: who commits for tasks. Returns the new head's id; None where somebody else moved the head: read again.
    """

    return change(
        queue,
        [branch.archive],
        lambda graph: append_in(graph, branch, entries, baseline=baseline, dropped=dropped, author=author),
    )


def append_in(
    graph: Graph,
    branch: Branch,
    entries: Sequence[Entry],
    *,
    baseline: Entry | None = None,
    dropped: Collection[str] = (),
    author: str | None = None,
) -> int | None:
    """`append` inside a transaction that goes on."""
    (head,) = graph.rows("head", branch=branch.id)
    if head.head_id != branch.head:
        return None
    if dropped:
        revisions = graph.ids("drop_revisions", branch=branch.id, names=list(dropped))
        cancel_unstarted(graph, graph.ids("runs_of_revisions", revisions=revisions), "a rewrite of the branch")
    storage = _Storage(graph, branch)
    previous, generation, last = head.revision, head.generation or 0, head.head_id
    for entry in ([baseline] if baseline else []) + list(entries):
        generation = _generation(entry.revision, generation, author)
        last = storage.add_revision(entry, previous, generation, is_baseline=entry is baseline)
        storage.add_commit_run(entry, last, generation, is_baseline=entry is baseline)
        previous = entry.revision.id
    entering = storage.store()
    if last is None or not graph.rows("set_head", branch=branch.id, head=last, known=branch.head):
        return None
    newest = entries[-1] if entries else baseline
    if newest is not None:
        schedules.refresh(graph, branch.id, branch.name, branch.main, newest.workflow)
    graph.follow(entering=entering)
    return int(last)


def _generation(revision: Revision, before: int, author: str | None) -> int:
    if revision.origin:
        return revision.origin.generation
    return before + 1 if author and revision.author == author else 0


def cancel_unstarted(graph: Graph, runs: Sequence[int], by: str) -> None:
    """Cancel what has not started in some runs; what runs goes on."""
    tasks = graph.ids("not_started", runs=list(runs))
    graph.rows("lock_tasks", tasks=tasks)
    graph.follow(graph.ids("cancel", tasks=tasks, by=by))


def trigger(
    queue: Queue,
    revision: int,
    *,
    cause: Trigger = Trigger.MANUAL,
    names: Collection[str] | None = None,
    by: str = "",
    force: bool = False,
    graph: Graph | None = None,
) -> int:
    """Make a further run of a revision in the ledger (its id); returns the run's id.

    ``names``: these tasks alone. A dependency that is not part of the run must have completed at that revision (design 5.18), and nothing may be started that a
    later revision has superseded, unless ``force`` (5.11). Raises ``Conflict`` or ``Invalid``, naming what is in the way.
    """

    def work(graph: Graph) -> int:
        (row,) = graph.rows("revision_at", revision=revision)
        archive = graph.rows("archive", archive=row.archive_id)[0].name
        here = str(name_of(archive, row.number, branch=row.branch, main=row.main))
        if row.dropped_at is not None or row.deleted_at is not None:
            raise Conflict(here, "is no longer on its branch, or its branch is gone", "trigger a revision that is there")
        if row.faults:
            raise Conflict(
                here, "its workflow files have faults", f"see arkqueue show {here}; mend them in a new revision"
            )
        workflow = Workflow(tuple(from_json(task) for task in row.tasks))
        _check_names(here, workflow, names)
        branch = Branch(row.branch_id, row.archive_id, row.branch, row.main, None)
        storage = _Storage(graph, branch)
        run = graph.rows("last_run", branch=row.branch_id, number=row.number)[0][0] + 1
        planned = storage.plan(
            workflow,
            row.number,
            run,
            cause,
            (),
            names,
            completed=[c.name for c in graph.rows("completed_at", branch=row.branch_id, number=row.number)],
        )
        chosen = [node.name for node in planned.nodes if node.definition is not None]
        if left_out := [name for name in names or () if name not in chosen]:
            fault = f"{', '.join(left_out)}: not for {cause} runs, or not for this branch"
            raise Conflict(here, fault, f"see `on` and `branches` of {left_out[0]}")
        if not chosen:
            raise Conflict(
                here, f"no task of this revision runs on {cause}", f"name the tasks, or add `{cause}` to their `on`"
            )
        if planned.missing:
            lacking = ", ".join(sorted({f"{source} (needed by {task})" for task, source in planned.missing}))
            raise Conflict(here, f"not completed at this revision: {lacking}", "add them to the run")
        if not force:
            refuse_superseded(graph, here, row.branch_id, row.number, run, dict.fromkeys(chosen, 0))
        new = storage.add_run(planned, row.id, row.number, run, cause, by, ())
        entering = storage.store()
        exclusive = storage.exclusive
        if exclusive and (gate := graph.ids("next_gate", branch=row.branch_id, number=row.number)):
            graph.do("add_exclusive_edges", gate=gate[0], sources=exclusive)
        graph.follow(entering=entering)
        return new

    if graph is not None:
        return work(graph)
    archive = queue.rows("archive_of_revision", revision=revision)
    if not archive:
        raise NotFound(f"revision {revision}", "there is none")
    return change(queue, [archive[0].archive_id], work)


def refuse_superseded(graph: Graph, here: str, branch: int, number: int, run: int, attempts: Mapping[str, int]) -> None:
    """Raise ``Conflict`` where a later task that cancels one of these has fired already (design 5.11); ``attempts`` by name."""
    later = graph.rows(
        "superseders", branch=branch, number=number, run=run, names=list(attempts), attempts=list(attempts.values())
    )
    if later:
        row = later[0]
        fault = f"{row.name} is superseded by {row.by} of revision {row.number}"
        raise Conflict(here, fault, "force it, or start it at the newest revision")


def _check_names(here: str, workflow: Workflow, names: Collection[str] | None) -> None:
    known = [d.name for d in workflow.tasks if d.name not in (COMMIT, REPORT)]
    for name in names or ():
        if name not in known:
            near = get_close_matches(name, known, 1)
            remedy = f"did you mean {near[0]}?" if near else f"it has: {', '.join(known) or 'no tasks'}"
            raise Invalid(here, f"has no task {name!r}", remedy)


@dataclass(slots=True)
class _Columns:
    """What is going to be stored, column by column."""

    tasks: list[tuple[Any, ...]] = field(default_factory=list)
    edges: list[tuple[Any, ...]] = field(default_factory=list)


class _Storage:
    """Collects revisions and runs of one branch, and stores their tasks and edges with one statement."""

    def __init__(self, graph: Graph, branch: Branch) -> None:
        self.graph, self.branch = graph, branch
        self.exclusive: list[int] = []
        self._past: dict[str, TaskId] = {}
        self._asked: set[str] = set()
        self._knows_all = False
        self._definitions: dict[str, int] = {}
        self._workflows: dict[bytes, int] = {}
        self._columns = _Columns()

    def add_revision(self, entry: Entry, previous: str | None, generation: int, *, is_baseline: bool) -> int:
        revision = entry.revision
        (row,) = self.graph.rows(
            "add_revision",
            branch=self.branch.id,
            number=revision.number,
            name=revision.id,
            author=_text(revision.author),
            date=revision.date,
            message=_text(revision.message),
            origin=revision.origin and revision.origin.task,
            generation=generation,
            workflow=self._workflow(entry.workflow),
            baseline=is_baseline,
            previous=previous,
        )
        return int(row.id)

    def add_commit_run(self, entry: Entry, revision: int, generation: int, *, is_baseline: bool) -> None:
        faults = () if is_baseline else entry.workflow.faults
        if generation > MOST_GENERATIONS:
            faults = (_endless(self.graph, entry.revision, generation),)
        workflow = Workflow() if is_baseline or faults else entry.workflow
        number = entry.revision.number
        planned = self.plan(workflow, number, 1, Trigger.COMMIT, entry.changed)
        if is_baseline:
            planned = Plan(tuple(node for node in planned.nodes if node.name == COMMIT), planned.edges)
        before = self.exclusive
        self.exclusive = []
        self.add_run(planned, revision, number, 1, Trigger.COMMIT, entry.revision.author, faults, exclusives=before)

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
        needed = names_needed(workflow)
        load = self._every_name() if needed is None else needed - self._asked
        if load:
            found = self.graph.rows("nearest", branch=self.branch.id, names=sorted(load), number=number, run=run)
            # What was planned a moment ago in this transaction is nearer than anything stored.
            self._past = {row.name: row.id for row in found} | self._past
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
        exclusives: Sequence[int] = (),
    ) -> int:
        graph, branch = self.graph, self.branch
        new = map(TaskId, graph.ids("task_ids", n=len(planned.nodes)))
        ids = dict(zip((n.name for n in planned.nodes), new, strict=True))
        (row,) = graph.rows(
            "add_run",
            archive=branch.archive,
            branch=branch.id,
            revision=revision,
            number=number,
            run=run,
            trigger=str(cause),
            by=_text(by),
            faults=Jsonb([asdict(f) for f in faults]),
            report=ids.get(REPORT),
        )
        self._keep_definitions([n.definition for n in planned.nodes if n.definition is not None])
        others = sum(1 for n in planned.nodes if n.name != REPORT and not n.name.startswith(EVERYTHING))
        for node in planned.nodes:
            definition = node.definition
            self._columns.tasks.append(
                (
                    ids[node.name], row.id, number, run, node.name,
                    definition and self._definitions[_canonical(to_json(definition))], node.position, node.gate,
                    bool(definition and definition.cancels), node.exclusive, others if node.name == REPORT else 0,
                )
            )  # fmt: skip
            if node.exclusive:
                self.exclusive.append(ids[node.name])
        for edge in planned.edges:
            inside = isinstance(edge.source, str)
            source: int = ids[edge.source] if isinstance(edge.source, str) else edge.source
            self._columns.edges.append((ids[edge.target], source, edge.kind, edge.settled, not inside, edge.declared))
        if cause is Trigger.COMMIT:
            stored = graph.ids("exclusives_before", branch=branch.id, number=number) if not exclusives else []
            for source in (*exclusives, *stored):
                self._columns.edges.append((ids[COMMIT], source, "exclusive", True, True, False))
        self._past |= ids
        self._asked |= ids.keys()
        graph.do("keep_names", branch=branch.id, names=[n for n in ids if not n.startswith(EVERYTHING)])
        return int(row.id)

    def store(self) -> list[int]:
        """Store what was collected; returns the tasks that have no unmet edge."""
        columns = self._columns
        if not columns.tasks:
            return []
        targets, sources, kinds, settled, crossing, declared = (
            zip(*columns.edges, strict=True) if columns.edges else [()] * 6
        )
        ids, runs, numbers, run_numbers, names, definitions, positions, gates, cancels, exclusives, others = zip(
            *columns.tasks, strict=True
        )
        rows = self.graph.rows(
            "add_tasks",
            archive=self.branch.archive, branch=self.branch.id,
            targets=list(targets), sources=list(sources), kinds=list(kinds), settled=list(settled), crossing=list(crossing),
            declared=list(declared), ids=list(ids), runs=list(runs), numbers=list(numbers), run_numbers=list(run_numbers),
            names=list(names), definitions=list(definitions), positions=list(positions), gates=list(gates), cancels=list(cancels),
            exclusives=list(exclusives), others=list(others),
        )  # fmt: skip
        self._columns = _Columns()
        return [row.id for row in rows if row.enters]

    def _workflow(self, workflow: Workflow) -> int:
        tasks, faults = [to_json(d) for d in workflow.tasks], [asdict(f) for f in workflow.faults]
        digest = _digest(_canonical([tasks, faults]))
        if digest not in self._workflows:
            self.graph.do("keep_workflow", digest=digest, tasks=Jsonb(tasks), faults=Jsonb(faults))
            self._workflows[digest] = self.graph.ids("workflow_id", digest=digest)[0]
        return self._workflows[digest]

    def _keep_definitions(self, definitions: Sequence[TaskDefinition]) -> None:
        new = {_canonical(to_json(d)): d for d in definitions}
        new = {text: d for text, d in new.items() if text not in self._definitions}
        if not new:
            return
        digests = {_digest(text): text for text in sorted(new)}
        self.graph.do(
            "keep_definitions",
            digests=list(digests),
            bodies=[Jsonb(to_json(new[text])) for text in digests.values()],
            cancels=[Jsonb([_victim(new[text].name, c) for c in new[text].cancels]) for text in digests.values()],
        )
        for row in self.graph.rows("definition_ids", digests=list(digests)):
            self._definitions[digests[bytes(row.digest)]] = row.id


def _victim(name: str, cancels: Cancels) -> dict[str, Any]:
    return {"name": cancels.task or name, "here": not cancels.previous, "unstarted": cancels.only_unstarted}


def _endless(graph: Graph, revision: Revision, generation: int) -> Fault:
    """The fault of a run that would go on a chain of commits by tasks (design 5.15), with the chain."""
    chain = [f"revision {revision.id}"]
    origin = revision.origin.task if revision.origin else None
    while origin and len(chain) < MOST_GENERATIONS + 2:
        chain.append(origin)
        try:
            name = parse_name(origin)
        except Invalid:
            break
        rows = graph.rows("origin_of", archive=name.archive, number=name.revision, branch=name.branch)
        origin = rows[0].origin if rows else None
    message = (
        f"its commit is the {generation}th in a chain of commits by tasks, more than {MOST_GENERATIONS}: "
        + " ← ".join(chain)
    )
    return Fault("_workflows", 0, 0, message + ". Let the task commit only when something changed")


def _text(text: str) -> str:
    """PostgreSQL's text holds no NUL."""
    return text.replace("\0", "\ufffd")


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
