"""The graph of one run: definitions and what the branch has → nodes and edges (design 5.3–5.7, 5.14, 5.18). Pure.

The caller has locked the branch, so that "the nearest earlier occurrence" of a key is a fact: it arrives as ``past``. Whether an edge is
met already is not asked here; ``plan.ledger`` judges that.

A dependency that is not part of the run stands for the *product* of its nearest earlier occurrence (design 5.6, 5.18): only a completed source will do.

Called by ``plan.ledger`` and ``queue.triggering``; never reads a repository or a clock.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Final, NamedTuple

from arkqueue.model import (
    COMMIT,
    REPORT,
    Cancels,
    Depends,
    Key,
    TaskDefinition,
    TaskId,
    TaskKind,
    Trigger,
    When,
    Workflow,
)
from arkqueue.plan.globs import matches, matches_branch

EVERYTHING: Final = "PREV:*"
"""What the names of the gates of ``PREV:*`` begin with; no task can have such a name."""
LONGEST_EXCEPT: Final = 100
"""Characters of excepted names in the name of a gate; of longer ones it has the beginning and a digest."""


class Occurrence(NamedTuple):
    """A task of an earlier run. ``settled``: it meets an edge from another run that waits for any end of it. ``passes``: also one that needs its completion (design 5.9)."""

    task: TaskId
    kind: TaskKind
    settled: bool = False
    passes: bool = False
    produced: bool | None = None
    """Whether its product is there (design 5.18): it completed, or was waived as completed. False: the product will not come, unless a person retries it."""
    failed: bool | None = None
    """Whether it failed or rejected its input. None: it has not settled."""


class Node(NamedTuple):
    """A task to be. ``definition`` is None for COMMIT, REPORT and the gates of ``PREV:*``; ``position`` orders the tasks of a run."""

    key: Key
    position: int
    kind: TaskKind
    definition: TaskDefinition | None = None


class Edge(NamedTuple):
    """``target`` waits for ``source`` (or cancels it): a task of the same run by its key, or one of an earlier run by its id.

    ``settled``: any end meets the edge; with ``failed`` beside it, a failure or rejection alone (design 5.6).
    """

    target: Key
    source: Key | TaskId
    kind: str = "depends"
    settled: bool = False
    declared: bool = True
    product: bool = False
    failed: bool = False

    @property
    def rank(self) -> tuple[bool, bool]:
        """Of two edges between the same tasks the stricter one counts, then the declared one."""
        return self.product or self.failed, self.declared


@dataclass(frozen=True, slots=True)
class Plan:
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    missing: tuple[tuple[str, str], ...] = ()
    """(task, dependency) pairs of a run that is no commit run: the branch never had the dependency (design 5.18)."""
    lost: tuple[tuple[str, TaskId], ...] = ()
    """(task, source) pairs: the task needs the product of a source that will not have one (design 5.18)."""
    unneeded: tuple[tuple[str, TaskId], ...] = ()
    """(task, source) pairs: the task runs only where a stored source that is not part of the run failed, and that one ended otherwise."""


def gate_name(target: str, entry: Depends) -> str:
    """The name of the gate that an entry ``PREV:*`` of a task goes through: entries that wait for the same have the same gate."""
    name = EVERYTHING + (":commits" if target == COMMIT else "") + (":settled" if entry.when is When.SETTLED else "")
    if not entry.excepted:
        return name
    excepted = ",".join(entry.excepted)
    if len(excepted) > LONGEST_EXCEPT:
        excepted = f"{excepted[:LONGEST_EXCEPT]}~{hashlib.sha256(excepted.encode()).hexdigest()[:12]}"
    return f"{name}:except:{excepted}"


def gates_needed(workflow: Workflow) -> int:
    """The most gates of ``PREV:*`` that a run of a workflow has."""
    return len({gate_name(task.name, entry) for task in workflow.tasks for entry in task.depends if entry.task == "*"})


def asks_for_commit_runs(workflow: Workflow) -> bool:
    """Whether the plan may ask for the nearest occurrences in commit runs: ``PREV:*`` on COMMIT means these (design 5.7)."""
    return any(entry.task == "*" for task in workflow.tasks if task.name == COMMIT for entry in task.depends)


def keys_needed(workflow: Workflow, *, some: bool = False) -> set[Key] | None:
    """The keys whose nearest earlier occurrence the plan may ask for; None: all (``PREV:*``). ``some``: the run may have any of the tasks alone."""
    needed = {Key(COMMIT)}
    may_be_left_out = {d.name for d in workflow.tasks if some or d.paths or d.branches or Trigger.COMMIT not in d.on}
    for definition in workflow.tasks:
        entries: tuple[Depends | Cancels, ...] = (*definition.depends, *definition.cancels)
        for entry in entries:
            if entry.task == "*":
                return None
            if entry.previous or entry.task in may_be_left_out:
                needed.add(Key(entry.task or definition.name))
    return needed


def plan(
    workflow: Workflow,
    *,
    trigger: Trigger,
    branch: str,
    changed: Collection[str],
    past: Mapping[Key, Occurrence],
    purged: Collection[Key] = (),
    commits: Mapping[Key, Occurrence] = MappingProxyType({}),
    names: Collection[str] | None = None,
    without: Collection[str] = (),
) -> Plan:
    """The nodes and edges of a run.

    ``changed``: paths of the tree difference. ``past``: the nearest earlier occurrences, at least of the ``keys_needed``. ``purged``: keys whose
    nearest occurrence completed and was purged; an edge to it would be met (design 5.27). ``commits``: the nearest
    occurrences in commit runs, where the workflow `asks_for_commit_runs`. ``names``: for a run that is no
    commit run, the tasks asked for, of those that ``on`` and ``branches`` allow. None: all of these; of a run by hand only those that commits run, too.
    ``without``: names that nothing of the run waits for where they are not part of it.
    """
    defined = {d.name: d for d in workflow.tasks}
    chosen = {
        Key(d.name): d
        for d in workflow.tasks
        if d.name not in (COMMIT, REPORT) and _wanted(d, trigger, branch, changed, names)
    }
    of_commits = trigger is Trigger.COMMIT
    edges = _Edges(past, commits, purged, defined.keys(), {COMMIT, *(key.name for key in chosen)}, without, of_commits)

    commit = Key(COMMIT)
    if commit in past:
        edges.add(Edge(commit, past[commit].task, declared=False))
    for entry in defined[COMMIT].depends if COMMIT in defined else ():
        edges.depend(commit, entry)
    for key, definition in chosen.items():
        edges.add(Edge(key, commit, declared=False))
        for entry in definition.depends:
            edges.depend(key, entry)
        for victim in definition.cancels:
            edges.cancel(key, victim)
    if any(definition.exclusive for definition in chosen.values()):
        exclusive = [Key(d.name) for d in _in_order(list(chosen.values())) if d.exclusive]
        for earlier, later in pairwise(exclusive):
            edges.add(Edge(later, earlier, "exclusive", settled=True, declared=False))

    nodes = [Node(commit, 0, TaskKind.COMMIT)]
    nodes += [Node(gate, 0, TaskKind.GATE) for gate in edges.gates]
    nodes += [Node(key, i, TaskKind.ORDINARY, chosen[key]) for i, key in enumerate(chosen, 1)]
    nodes += [Node(Key(REPORT), len(chosen) + 1, TaskKind.REPORT)]
    return Plan(tuple(nodes), edges.all(), tuple(edges.missing), tuple(edges.lost), tuple(edges.unneeded))


def edge_to(target: Key, source: Key | TaskId, when: When, *, declared: bool = True, product: bool = False) -> Edge:
    """A ``depends`` edge."""
    settled, failed = when is not When.COMPLETED, when is When.FAILED
    return Edge(target, source, settled=settled, declared=declared, product=product, failed=failed)


class _Edges:
    """Collects the edges of a run, each once, the gates that ``PREV:*`` goes through, and what its tasks depend on in vain.

    ``defined``: the names of its workflow. ``inside``: those that are part of the run. ``of_commits``: it is a commit run. The rest is as in `plan`.
    """

    def __init__(
        self,
        past: Mapping[Key, Occurrence],
        commits: Mapping[Key, Occurrence],
        purged: Collection[Key],
        defined: Collection[str],
        inside: Collection[str],
        without: Collection[str],
        of_commits: bool,
    ) -> None:
        self._past, self._commits, self._purged = past, commits, purged
        self._defined, self._inside, self._without, self._of_commits = defined, inside, without, of_commits
        self.gates: dict[Key, None] = {}
        self.missing: list[tuple[str, str]] = []
        self.lost: list[tuple[str, TaskId]] = []
        self.unneeded: list[tuple[str, TaskId]] = []
        self._edges: dict[tuple[Key, Key | TaskId, str, bool], Edge] = {}

    def add(self, edge: Edge) -> None:
        identity = edge[:4]
        if (known := self._edges.get(identity)) is None or edge.rank > known.rank:
            self._edges[identity] = edge

    def all(self) -> tuple[Edge, ...]:
        return tuple(self._edges.values())

    def depend(self, target: Key, entry: Depends) -> None:
        """Add the edge of one entry of ``depends``."""
        source = Key(entry.task or target.name)
        if entry.task == "*":
            self.add(Edge(target, self._gate(target, entry)))
        elif entry.previous:
            self._depend_on_previous(target, source, entry.when)
        elif source.name in self._inside:
            self.add(edge_to(target, source, entry.when))
        elif source.name not in self._without:
            self._depend_outside(target, source, entry)

    def cancel(self, canceler: Key, victim: Cancels) -> None:
        """Add the edge of one entry of ``cancels``."""
        named = Key(victim.task or canceler.name)
        if victim.previous and named in self._past:
            self.add(Edge(canceler, self._past[named].task, "cancels"))
        elif not victim.previous and named.name in self._inside:
            self.add(Edge(canceler, named, "cancels"))

    def _depend_on_previous(self, target: Key, source: Key, when: When) -> None:
        if source in self._past:
            self.add(edge_to(target, self._past[source].task, when))
        elif when is When.FAILED and source in self._purged:
            self._skip(target)

    def _depend_outside(self, target: Key, source: Key, entry: Depends) -> None:
        """A dependency that is not part of the run stands for the product of its nearest earlier occurrence (design 5.6, 5.18)."""
        is_defined = source.name in self._defined
        if is_defined and (found := self._past.get(source)):
            product = entry.when is When.COMPLETED
            self.add(edge_to(target, found.task, entry.when, product=product))
            if product and found.produced is False:
                self.lost.append((target.name, found.task))
            elif entry.when is When.FAILED and found.failed is False:
                self.unneeded.append((target.name, found.task))
        elif is_defined and not (self._of_commits or entry.optional or source in self._purged):
            self.missing.append((target.name, source.name))
        elif entry.when is When.FAILED:
            self._skip(target)

    def _skip(self, target: Key) -> None:
        """What never ran, or completed and was purged, has not failed. COMMIT never fails, and so this edge skips the target."""
        self.add(edge_to(target, Key(COMMIT), When.FAILED, declared=False))

    def _gate(self, target: Key, entry: Depends) -> Key:
        gate = Key(gate_name(target.name, entry))
        if gate not in self.gates:
            self.gates[gate] = None
            excepted = frozenset(entry.excepted)
            past = self._commits if target.name == COMMIT else self._past
            for key, occurrence in past.items():
                if occurrence.kind in (TaskKind.COMMIT, TaskKind.ORDINARY) and key.name not in excepted:
                    self.add(Edge(gate, occurrence.task, settled=entry.when is When.SETTLED))
        return gate


def _wanted(
    definition: TaskDefinition, trigger: Trigger, branch: str, changed: Collection[str], names: Collection[str] | None
) -> bool:
    if names is not None and definition.name not in names:
        return False
    if names is None and trigger is Trigger.MANUAL and Trigger.COMMIT not in definition.on:
        return False  # a release, say: only who names it means it (design 5.18)
    if not is_for(definition, trigger, branch):
        return False
    return trigger is not Trigger.COMMIT or not definition.paths or any(matches(definition.paths, p) for p in changed)


def is_for(definition: TaskDefinition, trigger: Trigger, branch: str) -> bool:
    """Whether ``on`` and ``branches`` allow a task in a run."""
    return trigger in definition.on and matches_branch(definition.branches, branch)


def _in_order(chosen: list[TaskDefinition]) -> list[TaskDefinition]:
    """Topological order of the ``depends`` edges inside the run, ties in the order of the file."""
    position = {d.name: i for i, d in enumerate(chosen)}
    needs = {d.name: {e.task for e in d.depends if not e.previous and e.task in position} for d in chosen}
    dependents: dict[str, list[str]] = {d.name: [] for d in chosen}
    for name, sources in needs.items():
        for source in sources:
            dependents[str(source)].append(name)
    ready = [position[name] for name, sources in needs.items() if not sources]
    ordered: list[TaskDefinition] = []
    while ready:
        definition = chosen[heapq.heappop(ready)]
        ordered.append(definition)
        for name in dependents[definition.name]:
            needs[name].discard(definition.name)
            if not needs[name]:
                heapq.heappush(ready, position[name])
    return ordered
