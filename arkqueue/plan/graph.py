"""Plans the graph of one run from definitions and the earlier tasks of the branch (design 5.3–5.7,
5.14, 5.18). Pure: never reads a repository or a clock.

The caller has locked the branch, so the nearest earlier occurrence of a key cannot change; the
caller passes these as ``past``. This module does not judge whether an edge is met; ``plan.ledger``
does. Called by ``plan.ledger`` and ``queue.triggering``.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

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
from arkqueue.plan.edges import Edge, Edges, Occurrence, gate_name, gates_of_list
from arkqueue.plan.globs import matches_any, matches_branch
from arkqueue.plan.items import Lists, Portion


class Node(NamedTuple):
    """A task to be stored. ``definition``: None for COMMIT, a REPORT that neither has a command
    nor is held, and the gates of ``PREV:*``. ``position``: the order of tasks in a run.
    """

    key: Key
    position: int
    kind: TaskKind
    definition: TaskDefinition | None = None
    item: Item | None = None
    """The item, for a task with a list."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A run, or a portion of one.

    ``to_come``: in a portion, the number of edges into each of its tasks that other portions add.
    ``tasks_to_come``: in the first portion, the number of tasks of all items. ``items_to_come``:
    the number of items, counted as in `Portion`.
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
    """The names of the run's tasks, without COMMIT and REPORT."""
    to_come: Mapping[Key, int] = field(default_factory=dict)
    tasks_to_come: int = 0
    items_to_come: int = 0


def gates_needed(workflow: Workflow) -> int:
    """The most gates of ``PREV:*`` that a run of a workflow has."""
    return len({gate_name(task.name, entry) for task in workflow.tasks for entry in task.depends if entry.task == "*"})


def asks_for_commit_runs(workflow: Workflow) -> bool:
    """True if the plan may need the nearest occurrences in commit runs: ``PREV:*`` on COMMIT takes
    these (design 5.7).
    """
    return any(entry.task == "*" for task in workflow.tasks if task.name == COMMIT for entry in task.depends)


def waits_for_any_end(workflow: Workflow) -> bool:
    """True if a ``PREV:*`` does not ask for completion. Then the gates of lists are not enough: a
    gate passes once all items have settled, even if an item that never began still blocks tasks
    that wait for its end.
    """
    return any(
        entry.task == "*" and entry.when is not When.COMPLETED for task in workflow.tasks for entry in task.depends
    )


def tasks_needed(workflow: Workflow) -> int:
    """The most tasks of a run of a workflow, without COMMIT and REPORT."""
    lists = sum(task.foreach is not None for task in workflow.tasks)
    return len(workflow.tasks) + gates_needed(workflow) + workflow.item_tasks + 2 * lists


def keys_needed(workflow: Workflow, *, some: bool = False, lists: bool = False) -> set[Key] | None:
    """The keys whose nearest earlier occurrence the plan may need. None: all keys (``PREV:*``), and
    keys of items.

    ``some``: True if the run may have any of the tasks alone. ``lists``: True if a task of the
    branch may have had a list.
    """
    names = _names_needed(workflow, some=some)
    if names is None:
        return None
    needed = set(map(Key, names))
    if lists:
        needed |= {gate for name in names for gate in gates_of_list(name)}
    return needed


def items_needed(workflow: Workflow, *, some: bool = False) -> set[Key]:
    """The keys of items whose nearest earlier occurrence the plan may need."""
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

    ``changed``: paths of the tree difference. ``past``: the nearest earlier occurrences, at least
    those of `keys_needed`. ``purged``: keys whose nearest occurrence completed and was purged; an
    edge to it would be met (design 5.27). ``commits``: the nearest occurrences in commit runs, if
    the workflow `asks_for_commit_runs`. ``names``: for a run that is not a commit run, the
    requested tasks, among those that ``on`` and ``branches`` allow. None: all of these; for a run
    by hand, only those that commits run, too. ``without``: names for which no task of the run
    waits, unless they are part of it. ``portion``: plan only this portion; ``names`` are then those
    of the whole run.
    """

    @cache  # many tasks may have the same `paths`
    def touches(globs: tuple[str, ...]) -> bool:
        return matches_any(globs, changed)

    defined = {d.name: d for d in workflow.tasks}
    chosen = {
        Key(d.name): d
        for d in workflow.tasks
        if d.name not in (COMMIT, REPORT) and _wanted(d, trigger, branch, touches, names)
    }
    of_commits = trigger is Trigger.COMMIT
    lists = Lists(workflow, chosen.values(), portion)
    edges = Edges(past, commits, purged, defined, {COMMIT, *(key.name for key in chosen)}, without, of_commits, lists)

    commit = Key(COMMIT)
    # A submission waits for no gate and no commit (design 5.14).
    if lists.has_rest and trigger is not Trigger.SUBMISSION:
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


def _add_exclusive(edges: Edges, lists: Lists, chosen: Collection[TaskDefinition]) -> dict[Key, int]:
    """Add the edges that order the exclusive tasks of a run. Returns the number of such edges into
    each task that other portions add.
    """
    to_come: dict[Key, int] = defaultdict(int)
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
    edges: Edges, lists: Lists, chosen: Mapping[Key, TaskDefinition], defined: Mapping[str, TaskDefinition]
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
        is_defined = report is not None and (report.hold or not report.is_gate)
        nodes.append(Node(Key(REPORT), len(chosen) + 1, TaskKind.REPORT, report if is_defined else None))
    return tuple(nodes)


def _wanted(
    definition: TaskDefinition,
    trigger: Trigger,
    branch: str,
    touches: Callable[[tuple[str, ...]], bool],
    names: Collection[str] | None,
) -> bool:
    """``touches``: whether globs match a path that the revision changes."""
    if names is not None and definition.name not in names:
        return False
    if names is None and trigger is Trigger.MANUAL and Trigger.COMMIT not in definition.on:
        return False  # such as a release: a run by hand has it only if a person names it (design 5.18)
    if not is_for(definition, trigger, branch):
        return False
    if trigger is not Trigger.COMMIT or not definition.paths or names is not None:
        return True
    return touches(definition.paths)


def is_for(definition: TaskDefinition, trigger: Trigger, branch: str) -> bool:
    """True if ``on`` and ``branches`` allow a task in a run."""
    return trigger in definition.on and matches_branch(definition.branches, branch)


def _in_order(chosen: list[TaskDefinition]) -> list[TaskDefinition]:
    """The tasks in topological order of the ``depends`` edges inside the run; ties in the order of
    the files.
    """
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
