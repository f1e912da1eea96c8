"""The graph of one run: definitions and what the branch has → nodes and edges (design 5.3–5.7, 5.14, 5.18). Pure.

The caller has locked the branch, so that "the nearest earlier occurrence" of a key is a fact: it arrives as ``past``. Whether an edge is
met already is not asked here; ``plan.ledger`` judges that.

A dependency that is not part of the run stands for the *product* of its nearest earlier occurrence (design 5.6, 5.18): only a completed source will do.

Called by ``plan.ledger`` and ``queue.triggering``; never reads a repository or a clock.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Final, NamedTuple

from arkqueue.model import (
    COMMIT,
    REPORT,
    Cancels,
    Depends,
    Item,
    Key,
    TaskDefinition,
    TaskId,
    TaskKind,
    Trigger,
    When,
    Workflow,
)
from arkqueue.plan.globs import matches, matches_branch
from arkqueue.plan.items import Lists, Portion

EVERYTHING: Final = "PREV:*"
"""The beginning of the names of the gates of ``PREV:*``. No task can have such a name."""
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
    place: tuple[int, int] = (0, 0)
    """The number and run of its run."""
    ignored: bool = False
    """Whether no gate of its list waits for it: its item was deleted, or it was waived as completed."""


class Node(NamedTuple):
    """A task to be. ``definition`` is None for COMMIT, a REPORT without a command and the gates of ``PREV:*``; ``position`` orders the tasks of a run."""

    key: Key
    position: int
    kind: TaskKind
    definition: TaskDefinition | None = None
    item: Item | None = None
    """The item, for a task with a list."""


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
        """The edge that counts of two edges between the same tasks: the stricter one, then the declared one."""
        return self.product or self.failed, self.declared


@dataclass(frozen=True, slots=True)
class Plan:
    """A run, or a portion of one.

    ``to_come``: of a portion, how many edges other portions have that its tasks wait for. ``tasks_to_come``: of the first one, the tasks of all items. ``items_to_come``: the items, as `Portion` counts them.
    """

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    missing: tuple[tuple[str, str], ...] = ()
    """(task, dependency) pairs: the branch never had the dependency (design 5.18). Empty for commit runs."""
    lost: tuple[tuple[str, TaskId], ...] = ()
    """(task, source) pairs: the task needs a product that its source will never have (design 5.18)."""
    unneeded: tuple[tuple[str, TaskId], ...] = ()
    """(task, source) pairs: the task runs only if the source fails, and this source, a stored task of another run, ended otherwise."""
    names: tuple[str, ...] = ()
    """Of the tasks that are part of the run, COMMIT and REPORT left aside."""
    to_come: Mapping[Key, int] = field(default_factory=dict)
    tasks_to_come: int = 0
    items_to_come: int = 0


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


def waits_for_any_end(workflow: Workflow) -> bool:
    """Whether a ``PREV:*`` asks for more or less than completion: the gate of a list passes once all have settled, also while one of them that never began blocks what waits for its end."""
    return any(
        entry.task == "*" and entry.when is not When.COMPLETED for task in workflow.tasks for entry in task.depends
    )


def gate_of_list(name: str, when: When) -> Key:
    """The gate of a task that has a list: it passes when all of its items have completed, or settled (design 5.30). No task can have such a name."""
    return Key(f"{name}:{When.SETTLED if when is When.SETTLED else When.COMPLETED}")


def gates_of_list(name: str) -> tuple[Key, Key]:
    return gate_of_list(name, When.COMPLETED), gate_of_list(name, When.SETTLED)


def tasks_needed(workflow: Workflow) -> int:
    """The most tasks that a run of a workflow has, COMMIT and REPORT apart."""
    lists = sum(task.foreach is not None for task in workflow.tasks)
    return len(workflow.tasks) + gates_needed(workflow) + workflow.item_tasks + 2 * lists


def keys_needed(workflow: Workflow, *, some: bool = False, lists: bool = False) -> set[Key] | None:
    """The keys whose nearest earlier occurrence the plan may ask for; None: all (``PREV:*``), and those of items beside them.

    ``some``: the run may have any of the tasks alone. ``lists``: whether a task of the branch may have had a list.
    """
    names = _names_needed(workflow, some=some)
    if names is None:
        return None
    needed = set(map(Key, names))
    if lists:
        needed |= {gate for name in names for gate in gates_of_list(name)}
    return needed


def items_needed(workflow: Workflow, *, some: bool = False) -> set[Key]:
    """The keys of items whose nearest earlier occurrence the plan may ask for."""
    if not workflow.lists:
        return set()
    names = _names_needed(workflow, some=some) or {one.name for one in workflow.tasks}
    items = {item.key for one in workflow.tasks for item in workflow.items_of(one) or ()}
    return {Key(name, item) for name in names if name != COMMIT for item in items}


def _names_needed(workflow: Workflow, *, some: bool) -> set[str] | None:
    needed = {COMMIT}
    may_be_left_out = {d.name for d in workflow.tasks if some or d.paths or d.branches or Trigger.COMMIT not in d.on}
    for definition in workflow.tasks:
        entries: tuple[Depends | Cancels, ...] = (*definition.depends, *definition.cancels)
        for entry in entries:
            if entry.task == "*":
                return None
            if entry.previous or entry.task in may_be_left_out:
                needed.add(entry.task or definition.name)
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
    portion: Portion | None = None,
) -> Plan:
    """The nodes and edges of a run.

    ``changed``: paths of the tree difference. ``past``: the nearest earlier occurrences, at least of the ``keys_needed``. ``purged``: keys whose
    nearest occurrence completed and was purged; an edge to it would be met (design 5.27). ``commits``: the nearest
    occurrences in commit runs, where the workflow `asks_for_commit_runs`. ``names``: for a run that is no
    commit run, the tasks asked for, of those that ``on`` and ``branches`` allow. None: all of these; of a run by hand only those that commits run, too.
    ``without``: names that nothing of the run waits for where they are not part of it. ``portion``: plan this portion alone; ``names`` are those of its whole run then.
    """
    defined = {d.name: d for d in workflow.tasks}
    chosen = {
        Key(d.name): d
        for d in workflow.tasks
        if d.name not in (COMMIT, REPORT) and _wanted(d, trigger, branch, changed, names)
    }
    of_commits = trigger is Trigger.COMMIT
    lists = Lists(workflow, chosen.values(), portion)
    edges = _Edges(past, commits, purged, defined, {COMMIT, *(key.name for key in chosen)}, without, of_commits, lists)

    commit = Key(COMMIT)
    if lists.has_rest and trigger is not Trigger.SUBMISSION:  # which waits at no gate, and for no commit (design 5.14)
        if commit in past:
            edges.add(Edge(commit, past[commit].task, declared=False))
        for entry in defined[COMMIT].depends if COMMIT in defined else ():
            edges.depend(commit, entry)
    for name, definition in chosen.items():
        for key in lists.keys_here(name.name):
            edges.add(Edge(key, commit, declared=False))
            for entry in definition.depends:
                edges.depend(key, entry)
        for victim in definition.cancels:
            for key in lists.keys_here(name.name) if victim.previous else lists.keys_stored(name.name):
                edges.cancel(key, victim)
        if definition.foreach and lists.come_later:
            edges.add_gates(name, definition.depends)
    for listed in lists.here:
        edges.close(listed)
    to_come = _add_exclusive(edges, lists, chosen.values())
    nodes = _nodes(edges, lists, chosen, defined)
    tasks_to_come = 0
    if lists.come_later:
        for listed, of_list in lists.filled.items():
            tasks_to_come += len(of_list)
            to_come.update(dict.fromkeys(gates_of_list(listed), len(of_list)))
    items = lists.count if lists.come_later else 0
    told = tuple(edges.missing), tuple(edges.lost), tuple(edges.unneeded)
    return Plan(nodes, edges.all(), *told, tuple(key.name for key in chosen), to_come, tasks_to_come, items)


def _add_exclusive(edges: _Edges, lists: Lists, chosen: Collection[TaskDefinition]) -> Counter[Key]:
    """Add the edges that keep the exclusive tasks of a run one after another; the answer counts those that other portions have."""
    to_come: Counter[Key] = Counter()
    if not any(definition.exclusive for definition in chosen):
        return to_come
    ordered = [definition for definition in _in_order(list(chosen)) if definition.exclusive]
    exclusive = [key for definition in ordered for key in lists.keys(definition.name)]
    for earlier, later in pairwise(exclusive):
        if lists.is_here(earlier, later):
            edges.add(Edge(later, earlier, "exclusive", settled=True, declared=False))
        elif lists.is_here(later) and lists.is_to_come(earlier):
            to_come[later] += 1
    return to_come


def _nodes(
    edges: _Edges, lists: Lists, chosen: Mapping[Key, TaskDefinition], defined: Mapping[str, TaskDefinition]
) -> tuple[Node, ...]:
    """The tasks of a run, or of a portion of one, with its gates."""
    nodes: list[Node] = []
    if lists.has_rest:
        nodes.append(Node(Key(COMMIT), 0, TaskKind.COMMIT))
        nodes += [Node(gate, 0, TaskKind.GATE) for gate in edges.gates]
        nodes += [Node(gate, 0, TaskKind.GATE) for name in lists.filled for gate in gates_of_list(name)]
    for i, (key, definition) in enumerate(chosen.items(), 1):
        if definition.foreach is None and lists.has_rest:
            nodes.append(Node(key, i, TaskKind.ORDINARY, definition))
        for item in lists.here.get(key.name, ()):
            nodes.append(Node(Key(key.name, item.key), i, TaskKind.ORDINARY, definition, item))
    if lists.has_rest:
        report = defined.get(REPORT)
        has_command = report is not None and not report.is_gate
        nodes.append(Node(Key(REPORT), len(chosen) + 1, TaskKind.REPORT, report if has_command else None))
    return tuple(nodes)


def edge_to(target: Key, source: Key | TaskId, when: When, *, declared: bool = True, product: bool = False) -> Edge:
    """A ``depends`` edge."""
    settled, failed = when is not When.COMPLETED, when is When.FAILED
    return Edge(target, source, settled=settled, declared=declared, product=product, failed=failed)


class _Edges:
    """Collects the edges of a run, each once, the gates that ``PREV:*`` goes through, and what its tasks depend on in vain.

    ``defined``: the tasks of its workflow. ``inside``: the names of those that are part of the run. ``of_commits``: it is a commit run. ``lists``: the keys of
    the items of its tasks. The rest is as in `plan`.
    """

    def __init__(
        self,
        past: Mapping[Key, Occurrence],
        commits: Mapping[Key, Occurrence],
        purged: Collection[Key],
        defined: Mapping[str, TaskDefinition],
        inside: Collection[str],
        without: Collection[str],
        of_commits: bool,
        lists: Lists,
    ) -> None:
        self._lists = lists
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
        name = entry.task or target.name
        if entry.task == "*":
            self.add(Edge(target, self._gate(target, entry)))
        elif entry.previous:
            self._depend_on_previous(target, name, entry.when)
        elif name in self._inside:
            if (source := self._inside_source(target, name, entry.when)) is not None:
                self.add(edge_to(target, source, entry.when))
        elif name not in self._without:
            self._depend_outside(target, name, entry)

    def _inside_source(self, target: Key, name: str, when: When) -> Key | None:
        """The node that a task of the run waits for when it depends on a name of the run: an item,
        the gate of a list, or the task. None: an empty list, which passes.
        """
        if name not in self._lists:
            return Key(name)
        if self._by_item(target, name):
            return Key(name, target.item)
        return gate_of_list(name, when) if name in self._lists.filled else None

    def _by_item(self, target: Key, name: str) -> bool:
        """Whether the edge of a task to one of a name connects items: both are over the same list (design 5.30)."""
        if not target.item or name not in self._defined:
            return False
        return self._defined[name].foreach == self._defined[target.name].foreach

    def close(self, name: str) -> None:
        """Add the edges of the gates of a list."""
        for when, gate in zip((When.COMPLETED, When.SETTLED), gates_of_list(name), strict=True):
            for key in self._lists.keys_here(name):
                self.add(edge_to(gate, key, when, declared=False))

    def add_gates(self, target: Key, entries: Iterable[Depends]) -> None:
        """Add the gates of ``PREV:*`` that items wait for which other portions have."""
        for entry in entries:
            if entry.task == "*":
                self._gate(target, entry)

    def _nearest(self, target: Key, name: str, when: When) -> Occurrence | None:
        """The nearest earlier occurrence of a name: with the same key or without a list, where items are connected; else without a list, or through the gate of one."""
        of_list = Key(name, target.item) if self._by_item(target, name) else gate_of_list(name, when)
        found = [self._past[key] for key in (Key(name), of_list) if key in self._past]
        return max(found, key=lambda one: one.place) if found else None

    def cancel(self, canceler: Key, victim: Cancels) -> None:
        """Add the edge of one entry of ``cancels``."""
        name = victim.task or canceler.name
        if victim.previous:
            # Who has no item supersedes all of a list; one edge to a gate of it says so.
            keys = [Key(name), Key(name, canceler.item) if canceler.item else gate_of_list(name, When.SETTLED)]
            if found := [self._past[key] for key in keys if key in self._past]:
                nearest = max(found, key=lambda one: one.place)
                self.add(Edge(canceler, nearest.task, "cancels"))
        elif name in self._inside:
            keys = self._lists.keys(name)
            if canceler.item and name in self._lists:
                key = Key(name, canceler.item)
                keys = [key] if self._lists.has_key(key) else []
            for key in keys:
                if self._lists.is_here(canceler, key):
                    self.add(Edge(canceler, key, "cancels"))

    def _depend_on_previous(self, target: Key, name: str, when: When) -> None:
        if found := self._nearest(target, name, when):
            if when is When.FAILED and found.kind is TaskKind.GATE:
                self._skip(target)  # the gate of a list does not fail
            else:
                self.add(edge_to(target, found.task, when))
        elif when is When.FAILED and (Key(name) in self._purged or self._has_purged_item(target, name)):
            self._skip(target)

    def _has_purged_item(self, target: Key, name: str) -> bool:
        return self._by_item(target, name) and Key(name, target.item) in self._purged

    def _depend_outside(self, target: Key, name: str, entry: Depends) -> None:
        """A dependency that is not part of the run stands for the product of its nearest earlier occurrence (design 5.6, 5.18)."""
        source = Key(name, target.item) if self._by_item(target, name) else Key(name)
        is_defined = name in self._defined
        if is_defined and (found := self._nearest(target, name, entry.when)):
            if entry.when is When.FAILED and found.kind is TaskKind.GATE:
                self._skip(target)  # the gate of a list does not fail
                return
            product = entry.when is When.COMPLETED
            self.add(edge_to(target, found.task, entry.when, product=product))
            if product and found.produced is False:
                self.lost.append((target.name, found.task))
            elif entry.when is When.FAILED and found.failed is False:
                self.unneeded.append((target.name, found.task))
        elif is_defined and not (self._of_commits or entry.optional or source in self._purged):
            self.missing.append((target.name, name))
        elif entry.when is When.FAILED:
            self._skip(target)

    def _skip(self, target: Key) -> None:
        """Skip the target: its source never ran, or completed and was purged, so it has not failed. The edge comes from COMMIT, which never fails."""
        self.add(edge_to(target, Key(COMMIT), When.FAILED, declared=False))

    def _gate(self, target: Key, entry: Depends) -> Key:
        gate = Key(gate_name(target.name, entry))
        if gate not in self.gates and self._lists.has_rest:
            self.gates[gate] = None
            excepted = frozenset(entry.excepted)
            past = self._commits if target.name == COMMIT else self._past
            nearest = _nearest_of_all(past, entry.when)
            for name, occurrence in nearest.items():
                if name not in excepted:
                    self.add(Edge(gate, occurrence.task, settled=entry.when is When.SETTLED))
            for key, occurrence in past.items():
                if key.item and not occurrence.settled and key.name not in excepted:
                    # The gate of its own list blocks as long as it does, where that asks for completion, and knows of it.
                    is_told = entry.when is When.COMPLETED and not occurrence.ignored
                    through = nearest.get(key.name) if is_told else None
                    if through and through.kind is TaskKind.GATE and through.place == occurrence.place:
                        continue
                    self.add(Edge(gate, occurrence.task, settled=entry.when is When.SETTLED))
        return gate


def _nearest_of_all(past: Mapping[Key, Occurrence], when: When) -> dict[str, Occurrence]:
    """The nearest earlier occurrence of each name, of lists through their gates."""
    nearest: dict[str, Occurrence] = {}
    for key, occurrence in past.items():
        name = key.name
        if occurrence.kind is TaskKind.GATE:
            name = key.name.rpartition(":")[0]
            if key.name.startswith(EVERYTHING) or Key(key.name) != gate_of_list(name, when):
                continue
        elif key.item or occurrence.kind not in (TaskKind.COMMIT, TaskKind.ORDINARY):
            continue
        if name not in nearest or nearest[name].place < occurrence.place:
            nearest[name] = occurrence
    return nearest


def _wanted(
    definition: TaskDefinition, trigger: Trigger, branch: str, changed: Collection[str], names: Collection[str] | None
) -> bool:
    if names is not None and definition.name not in names:
        return False
    if names is None and trigger is Trigger.MANUAL and Trigger.COMMIT not in definition.on:
        return False  # a release, say: only who names it means it (design 5.18)
    if not is_for(definition, trigger, branch):
        return False
    if trigger is not Trigger.COMMIT or not definition.paths or names is not None:
        return True
    return any(matches(definition.paths, path) for path in changed)


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
