"""The rows that a transaction adds to a branch, made from entries and the branch's earlier tasks:
rows of the ledger and of the graph (design 2, 5.1). Pure.

    the branch's earlier tasks → Known ─┐
    entries of a repository ────────────┴→ Draft: plans each run, numbers its tasks, judges its edges → rows to write

Ids are taken from their sequences beforehand, so that edges can name tasks which are not stored
yet. Whether an edge is met is known before it is stored: its source was read after the archive was
locked, and no task settles without that lock. A COMMIT that can pass at once is stored as
completed, so that a long chain of revisions needs no further steps. A task that waits for nothing,
cancels nothing and names no lock is stored as ready.

Called by ``queue.ledger`` and ``queue.triggering``, which read before and write after.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from arkqueue.model import (
    COMMIT,
    REPORT,
    Fault,
    Item,
    Key,
    Revision,
    TaskDefinition,
    TaskId,
    TaskKind,
    Trigger,
    Workflow,
)
from arkqueue.plan.edges import EVERYTHING, Occurrence
from arkqueue.plan.entry import Entry
from arkqueue.plan.globs import is_guarded
from arkqueue.plan.graph import Plan, plan, tasks_needed
from arkqueue.plan.items import BEGINNING
from arkqueue.priorities import GREATEST_PRIORITY, USUAL_PRIORITY

IMPLICIT = 2
"""The number of tasks of a run that no file defines, without gates of ``PREV:*``: COMMIT and
REPORT.
"""
BY_ITS_FILE = 0
"""Stands for an audit log entry: the workflow file itself holds the task (``hold: true``)."""
BY_A_GUARD = -1
"""Stands for an audit log entry: the archive's settings hold the task (``require_approval``)."""
BY_WORKFLOW_AUTHORS = -2
"""Stands for an audit log entry: a person other than the archive's ``workflow_authors`` changed the
workflow files, and nobody has accepted them.
"""
HELD_WITHOUT_ENTRY = {
    BY_ITS_FILE: "its workflow file",
    BY_A_GUARD: "its archive (require-approval)",
    BY_WORKFLOW_AUTHORS: "its archive (workflow-authors)",
}
"""What holds a task, in words, where no audit log entry does."""


class NewRevision(NamedTuple):
    id: int
    branch: int
    number: int
    generation: int
    workflow: Workflow
    baseline: bool
    foreign: bool
    name: str
    author: str
    date: datetime
    message: str
    origin: str | None
    previous: str | None
    paths_digest: str | None


class NewRun(NamedTuple):
    id: int
    branch: int
    revision: int
    number: int
    run: int
    report: TaskId | None
    trigger: Trigger
    by: str
    faults: tuple[Fault, ...]
    backfill: int | None


class NewTask(NamedTuple):
    """A task to store. ``entry``: the id of its run's revision. ``unmet``: the number of edges that
    it waits for. ``passed``, ``ready``: it is stored as completed, or as ready.

    ``hold``: the audit log entry because of which it is held, or `BY_ITS_FILE`. None: it is not
    held.
    """

    id: TaskId
    branch: int
    run_id: int
    entry: int
    number: int
    run: int
    name: str
    item: str
    definition: TaskDefinition | None
    position: int
    kind: TaskKind
    program: bool
    cancels: bool
    exclusive: bool
    unmet: int
    passed: bool
    ready: bool
    hold: int | None
    priority: int
    item_id: int | None


class NewItem(NamedTuple):
    """An item of a run. ``body``: as JSON."""

    id: int
    run_id: int
    body: str


class NewEdge(NamedTuple):
    target: TaskId
    source: TaskId
    kind: str
    settled: bool
    crossing: bool
    declared: bool
    product: bool
    failed: bool
    met: bool


class NewPlanning(NamedTuple):
    """The part of a large run that is still to be planned. ``hold`` and ``behind``: as in
    `Draft.add_run`.
    """

    run: int
    branch: int
    names: list[str]
    without: list[str]
    hold: int | None
    behind: int
    items: int
    lists: dict[str, str]
    """The stored lists of a submission, by `Foreach.items`."""


class Place(NamedTuple):
    """A run and its place. ``revision``: the id of its revision."""

    id: int
    revision: int
    number: int
    run: int
    trigger: Trigger
    report: TaskId | None


def _begins(planned: Plan) -> set[Key]:
    """The tasks of a large run, or of a portion of one, that wait, beside their edges, until all of
    the run is stored. All others need another task of the run, and so one of these, to complete
    (``begin_to_let_in``).
    """
    behind = {
        edge.target
        for edge in planned.edges
        if isinstance(edge.source, Key)
        and edge.kind == "depends"
        and not edge.settled
        and edge.source.name != COMMIT
        and not edge.source.name.startswith(EVERYTHING)
    }
    return {node.key for node in planned.nodes if node.kind is TaskKind.ORDINARY} - behind


_Edge = tuple[TaskId, TaskId, str, bool, bool, bool, bool, bool]
"""A `NewEdge` before it is judged whether it is met."""


@dataclass(slots=True)
class Known:
    """The tasks of a branch on which the planned runs may depend, read while the archive is locked.

    ``past``: the nearest earlier occurrence of each key. ``purged``: the keys whose nearest
    occurrence completed and was purged. ``commits``: as in `plan`. ``exclusives``: stored exclusive
    tasks that close the gate to the next revision. ``others``: further tasks to which an edge may
    lead.
    """

    past: dict[Key, Occurrence] = field(default_factory=dict)
    exclusives: Sequence[TaskId] = ()
    purged: frozenset[Key] = frozenset()
    commits: dict[Key, Occurrence] = field(default_factory=dict)
    others: Sequence[Occurrence] = ()


@dataclass(slots=True)
class NewIds:
    """New ids from the sequences, as many as the planned runs may need."""

    revisions: Iterator[int]
    runs: Iterator[int]
    tasks: Iterator[int]
    items: Iterator[int] = field(default_factory=lambda: iter(()))


def ids_needed(workflows: Iterable[Workflow]) -> tuple[int, int, int]:
    """The most runs, tasks and items that runs of these workflows have."""
    of_one: dict[int, int] = {}
    """The tasks of each workflow, by identity: the revisions of an archive share their workflows."""
    runs = tasks = items = 0
    for workflow in workflows:
        if id(workflow) not in of_one:
            of_one[id(workflow)] = IMPLICIT + tasks_needed(workflow)
        runs, tasks = runs + 1, tasks + of_one[id(workflow)]
        items += sum(map(len, workflow.lists.values())) if workflow.lists else 0
    return runs, tasks, items


def generations(revisions: Iterable[Revision], before: int, author: str | None) -> Iterator[int]:
    """The number of commits by tasks that lead to each revision (design 5.15). ``before``: the
    number for the ledger's last one. ``author``: the author of commits by tasks.
    """
    for revision in revisions:
        if revision.origin:
            before = revision.origin.generation
        else:
            before = before + 1 if author and revision.author == author else 0
        yield before


class Draft:
    """Revisions and runs of one branch that are not stored yet. Each is planned behind those that
    were drafted before it.
    """

    def __init__(self, branch: int, name: str, known: Known, ids: NewIds) -> None:
        """``branch``: its id. ``name``: its name, for the globs of ``branches``."""
        self.branch, self.name, self._ids = branch, name, ids
        self._past = dict(known.past)
        self._purged = set(known.purged)
        self._commits = dict(known.commits)
        self.exclusives = list(known.exclusives)
        """The exclusive tasks for which the next commit run waits: those of the run that was
        drafted last.
        """
        # Tasks of `past` come last: only their rows have whether the product exists.
        occurrences = [*known.others, *known.commits.values(), *known.past.values()]
        self._passes = {one.task: one.passes for one in occurrences if one.settled}
        """Settled tasks, and whether they meet an edge from another run that waits for their
        completion.
        """
        self._produced = {one.task: one.produced for one in occurrences}
        self._failed = {one.task: one.failed for one in occurrences}
        self.lost: list[TaskId] = []
        """Settled tasks that skip a drafted one: it needs a product that they will never have
        (design 5.18), or waits for their failure, and they did not fail (5.6).
        """
        self.revisions: list[NewRevision] = []
        self.runs: list[NewRun] = []
        self.tasks: list[tuple[Any, ...]] = []
        self.edges: list[tuple[Any, ...]] = []
        """The fields of `NewTask` and `NewEdge` as plain tuples. There are thousands of them, and
        plain tuples take half the time.
        """
        self.items: list[NewItem] = []
        self.lists: list[tuple[int, str]] = []
        """Runs, with the lists that their workflow files have."""
        self.planning: list[NewPlanning] = []
        """The parts of large runs that are still to be planned."""
        self.names: dict[str, bool] = {}
        """The names of ordinary tasks, and whether a commit run has one."""
        self.ready: list[TaskId] = []
        self.gates: list[TaskId] = []
        """COMMITs and gates of ``PREV:*`` without an unmet edge: they enter first."""
        self.behind: list[TaskId] = []
        """Other tasks without an unmet edge that pass, or cancel something: they enter after the gates."""

    def append(
        self,
        entry: Entry,
        previous: str | None,
        generation: int,
        faults: Sequence[Fault],
        hold: int | None = None,
        guards: Sequence[str] = (),
    ) -> int:
        """Add a revision and its commit run. Returns the revision's id. ``faults``: with faults,
        the run has no other tasks. ``hold``, ``guards``: as in `add_run`.
        """
        foreign = hold == BY_WORKFLOW_AUTHORS
        revision = self._add_revision(entry, previous, generation, is_baseline=False, is_foreign=foreign)
        workflow = Workflow() if faults else entry.workflow
        planned = self._plan(workflow, entry)
        self._add_commit_run(planned, entry, revision, faults, self.exclusives, hold, guards)
        self.lists += [(self.runs[-1].id, digest) for digest in workflow.lists]
        return revision

    def append_baseline(self, entry: Entry, previous: str | None, generation: int, *, is_foreign: bool = False) -> int:
        """Add a baseline revision: its run has a completed COMMIT and no other task (design 2)."""
        revision = self._add_revision(entry, previous, generation, is_baseline=True, is_foreign=is_foreign)
        planned = self._plan(Workflow(), entry)
        commit = tuple(node for node in planned.nodes if node.kind is TaskKind.COMMIT)
        self._add_commit_run(Plan(commit, planned.edges), entry, revision, (), ())
        return revision

    def add_run(
        self,
        planned: Plan,
        revision: int,
        number: int,
        run: int,
        trigger: Trigger,
        by: str,
        faults: Sequence[Fault] = (),
        closing: Sequence[TaskId] = (),
        hold: int | None = None,
        guards: Sequence[str] = (),
        backfill: int | None = None,
        behind: int = 0,
        without: Collection[str] = (),
    ) -> int:
        """Add a planned run, or the beginning of a large one. Returns its id.

        ``closing``: exclusive tasks for which its COMMIT waits. ``hold``: the audit log entry
        because of which its tasks are held (design 5.21); its gates pass. ``guards``: globs; a task
        whose name matches is held whatever its file says (5.22). ``behind``: a number to add to the
        priority numbers of its tasks. ``without``: as in `plan`.
        """
        id = next(self._ids.runs)
        ids = {node.key: TaskId(next(self._ids.tasks)) for node in planned.nodes}
        commit, report = ids[Key(COMMIT)], ids.get(Key(REPORT))
        self.runs.append(NewRun(id, self.branch, revision, number, run, report, trigger, by, tuple(faults), backfill))
        edges = [
            (ids[target], ids[source], kind, settled, False, declared, False, failed)
            if isinstance(source, Key)
            else (ids[target], source, kind, settled, True, declared, product, failed)
            for target, source, kind, settled, declared, product, failed in planned.edges
        ]
        edges += [(commit, source, "exclusive", True, True, False, False, False) for source in closing]
        self.lost += [source for _, source in planned.lost]
        unmet = defaultdict(int, {ids[key]: count for key, count in planned.to_come.items()})
        if planned.tasks_to_come:
            for key in _begins(planned):
                unmet[ids[key]] += 1
            self.planning.append(
                NewPlanning(
                    id, self.branch, list(planned.names), sorted(without), hold, behind, planned.items_to_come, {}
                )
            )
        if all(self._is_met(edge) for edge in edges if edge[0] == commit):
            self._passes[commit], self._failed[commit] = True, False
        self._add_edges(edges, unmet)
        self.exclusives = []
        if faults:
            guards = ()  # the run has nothing that could be approved
        place = Place(id, revision, number, run, trigger, report)
        self._add_tasks(planned, place, ids, unmet, hold, guards, behind)
        return id

    def add_portion(
        self,
        planned: Plan,
        place: Place,
        stored: Mapping[Key, TaskId],
        hold: int | None,
        guards: Sequence[str],
        behind: int,
    ) -> None:
        """Add a portion of a large run. ``stored``: the stored tasks of the run to which edges of
        the portion lead.
        """
        ids = {node.key: TaskId(next(self._ids.tasks)) for node in planned.nodes}
        known = {**stored, **ids}
        edges = [
            (known[target], known[source], kind, settled, False, declared, False, failed)
            if isinstance(source, Key)
            else (known[target], source, kind, settled, True, declared, product, failed)
            for target, source, kind, settled, declared, product, failed in planned.edges
        ]
        unmet = defaultdict(int, {ids[key]: count for key, count in planned.to_come.items()})
        for key in _begins(planned):
            unmet[ids[key]] += 1
        self._add_edges(edges, unmet)
        self._add_tasks(planned, place, ids, unmet, hold, guards, behind)

    def _add_edges(self, edges: Iterable[_Edge], unmet: dict[TaskId, int]) -> None:
        for edge in edges:
            is_met = self._is_met(edge)
            self.edges.append((*edge, is_met))
            if not is_met:
                unmet[edge[0]] += 1
                if edge[-1] and self._failed.get(edge[1]) is False:
                    self.lost.append(edge[1])

    def _add_tasks(
        self,
        planned: Plan,
        place: Place,
        ids: Mapping[Key, TaskId],
        unmet: Mapping[TaskId, int],
        hold: int | None,
        globs: Sequence[str],
        behind: int,
    ) -> None:
        id, revision, number, run, trigger, report = place
        unsettled = planned.tasks_to_come
        items: dict[tuple[str, str], int] = {}
        for key, position, kind, definition, item in planned.nodes:
            item_id = None
            if item is not None:
                item_id = self._item(items, definition, item, id)
            task, program, cancels, locks, exclusive, held_by = ids[key], False, False, False, False, None
            priority, is_empty_report = USUAL_PRIORITY, task == report and (definition is None or definition.is_gate)
            if definition is not None:
                program, cancels, exclusive = not definition.is_gate, bool(definition.cancels), definition.exclusive
                locks = bool(definition.lock)
                if not is_empty_report:
                    priority = min(definition.priority + behind, GREATEST_PRIORITY)
                # A hold of the archive lets REPORT pass (design 5.21).
                held_by = BY_ITS_FILE if definition.hold else hold if program and task != report else None
                # Files that nobody has accepted must have no effect: a gate would cancel other tasks,
                # or stand for a check of the same name.
                if hold == BY_WORKFLOW_AUTHORS and (program or kind is TaskKind.ORDINARY):
                    held_by = hold
                if task != report:
                    self.names[key.name] = self.names.get(key.name, False) or trigger is Trigger.COMMIT
            if (definition or is_empty_report) and is_guarded(globs, key.name, is_empty_report=is_empty_report):
                held_by = BY_A_GUARD
            # REPORT is the last task. It has no edges, and waits for every other task that has not
            # settled (design 5.4).
            waits_for, passed = unsettled if task == report else unmet[task], task in self._passes
            ready = program and not (waits_for or cancels or locks) and held_by is None
            self.tasks.append(
                (
                    task, self.branch, id, revision, number, run, *key, definition, position, kind, program, cancels,
                    exclusive, waits_for, passed, ready, held_by, priority, item_id,
                )
            )  # fmt: skip
            self._past[key] = occurrence = Occurrence(task, kind, passed, passed, place=(number, run))
            if trigger is Trigger.COMMIT:
                self._commits[key] = occurrence
            self._purged.discard(key)
            unsettled += not passed and kind is not TaskKind.GATE
            if ready:
                self.ready.append(task)
            elif not (waits_for or passed) and held_by is None:
                (self.behind if position else self.gates).append(task)
            if exclusive:
                self.exclusives.append(task)

    def _item(self, known: dict[tuple[str, str], int], definition: TaskDefinition | None, item: Item, run: int) -> int:
        """The id of an item of a run. Tasks over lists of the same items share it."""
        assert definition is not None
        assert definition.foreach is not None
        place = definition.foreach.items, item.key
        if (found := known.get(place)) is None:
            found = known[place] = next(self._ids.items)
            self.items.append(NewItem(found, run, item.body))
        return found

    def _add_revision(
        self, entry: Entry, previous: str | None, generation: int, *, is_baseline: bool, is_foreign: bool
    ) -> int:
        id, revision = next(self._ids.revisions), entry.revision
        self.revisions.append(
            NewRevision(
                id, self.branch, revision.number, generation, entry.workflow, is_baseline, is_foreign, revision.id, revision.author,
                revision.date, revision.message, revision.origin.task if revision.origin else None, previous, revision.paths_digest or None,
            )
        )  # fmt: skip
        return id

    def _plan(self, workflow: Workflow, entry: Entry) -> Plan:
        return plan(
            workflow,
            portion=BEGINNING if workflow.lists and entry.is_large else None,
            trigger=Trigger.COMMIT,
            branch=self.name,
            changed=entry.changed,
            past=self._past,
            purged=self._purged,
            commits=self._commits,
        )

    def _add_commit_run(
        self,
        planned: Plan,
        entry: Entry,
        revision: int,
        faults: Sequence[Fault],
        closing: Sequence[TaskId],
        hold: int | None = None,
        guards: Sequence[str] = (),
    ) -> None:
        number, author = entry.revision.number, entry.revision.author
        self.add_run(planned, revision, number, 1, Trigger.COMMIT, author, faults, closing, hold, guards)

    def _is_met(self, edge: _Edge) -> bool:
        _, source, kind, settled, _, _, product, failed = edge
        if product:
            return self._produced.get(source) is True
        if failed:
            return self._failed.get(source) is True
        return kind == "cancels" or (source in self._passes and (settled or self._passes[source]))
