"""Faults that appear only when all tasks of a revision are checked together: in names, edges
between tasks, and cycles.

The module is pure: tasks in, faults out. Called by ``arkqueue.workflow.parsing`` after all files were
read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import islice
from typing import Final

from arkqueue.model import COMMIT, PREV, REPORT, Fault, Foreach, When
from arkqueue.workflow.format import CancelsEntry, DependsEntry, cancels_entry, depends_entry
from arkqueue.workflow.nodes import Entry, Node
from arkqueue.workflow.spelling import Speller
from arkqueue.workflow.tasks import FoundTask
from arkqueue.workflow.values import shown

EVERY_ONE: Final = f"{PREV}:*"
MAX_NAMES: Final = 10
"""The most names that a fault about unreadable files lists."""
MAX_LABELS: Final = 100
"""The most different sets of labels in a revision."""
MAX_CYCLES: Final = 20
"""The most cycles that are reported. Each costs a walk over the whole graph."""


def check(tasks: Sequence[FoundTask], *, unread: Sequence[str], speller: Speller) -> Iterator[Fault]:
    """The faults between tasks. ``unread``: files that could not be read; they may define a missing
    name.
    """
    yield from _duplicate_names(tasks)
    names = tuple(dict.fromkeys([*(task.name for task in tasks if task.name), COMMIT]))
    known = frozenset(names)
    unknown: dict[str, None] = {}
    lists = {task.name: task.foreach for task in tasks if task.name and task.items is not None}
    gates = frozenset(task.name for task in tasks if task.name and not (task.fields.command or task.fields.script))
    for task in tasks:
        for node, entry in _entries(task, "depends"):
            if isinstance(entry, DependsEntry):
                yield from _depends_fault(task, node, entry)
                if entry.when is When.FAILED:
                    yield from _failed_fault(task, node, entry, gates)
                    yield from _failed_list_fault(task, node, entry, lists)
        for node, name, is_optional in _excepted(task):
            if name in known or is_optional:
                continue
            unknown[name] = None
            if not unread:
                yield task.fault(node, f"depends.except: {_no_such_task(name)}", speller.nearest(name, names))
        yield from _except_faults(task)
        for kind in ("depends", "cancels"):
            yield from _repeated(task, kind)
            for node, entry in _entries(task, kind):
                word = entry.task
                if kind == "cancels" and word == task.name:
                    yield task.fault(node, f"{shown(word)} cancels itself; for its earlier run write PREV", PREV)
                missing = _in_run(word) and word not in known and word != REPORT
                if not missing or (isinstance(entry, DependsEntry) and entry.optional):
                    continue
                unknown[word] = None
                if not unread:
                    yield task.fault(
                        node,
                        f"{kind}: {_no_such_task(word)}",
                        speller.nearest(word, names),
                    )
    if unread and unknown:
        listed = (*(shown(word) for word in islice(unknown, MAX_NAMES)), *(["…"] * (len(unknown) > MAX_NAMES)))
        message = f"before this file can be read, nobody knows whether it has these tasks, which others name: {', '.join(listed)}"
        yield Fault(unread[0], 0, 0, message)
    yield from _many_labels(tasks)
    yield from _cycles(tasks, known)
    yield from _mutual_cancels(tasks)


def _many_labels(tasks: Sequence[FoundTask]) -> Iterator[Fault]:
    """The fault of too many sets of labels. Claims read each set of labels of an archive, so their
    number is limited.
    """
    sets: set[frozenset[str]] = set()
    for task in tasks:
        if task.fields.runs_on:
            sets.add(frozenset(task.fields.runs_on))
        if len(sets) > MAX_LABELS:
            message = f"runs_on: the tasks of a revision name at most {MAX_LABELS} different sets of labels; use fewer"
            yield task.fault(task.name_node, message)
            return


def _entries(task: FoundTask, kind: str) -> Iterator[tuple[Node, DependsEntry | CancelsEntry]]:
    """Each entry in its long form, with the node of the name in it."""
    long = depends_entry if kind == "depends" else cancels_entry
    for node, entry in zip(task.edges.get(kind, ()), getattr(task.fields, kind) or (), strict=True):
        at = node.value["task"].value if isinstance(node.value, dict) else node
        yield at, long(entry) if isinstance(entry, str) else entry


def _excepted(task: FoundTask) -> Iterator[tuple[Node, str, bool]]:
    """Each name after ``except``, with its node, and whether its entry is optional. COMMIT and
    REPORT in ``except`` are separate faults.
    """
    for node, entry in zip(task.edges.get("depends", ()), task.fields.depends or (), strict=True):
        if isinstance(entry, DependsEntry) and entry.excepted and entry.task == EVERY_ONE:
            for at, name in zip(_listed(_except(node).value), entry.excepted, strict=True):
                if name not in (COMMIT, REPORT):
                    yield at, name, entry.optional


def _except_faults(task: FoundTask) -> Iterator[Fault]:
    """Faults of ``except`` that do not depend on the other tasks (design 5.7)."""
    for node, entry in zip(task.edges.get("depends", ()), task.fields.depends or (), strict=True):
        if not isinstance(entry, DependsEntry) or not entry.excepted:
            continue
        written = _except(node)
        if entry.task != EVERY_ONE:
            yield task.fault(written.key, f"depends: 'except' goes with {EVERY_ONE} alone; remove it")
            continue
        seen: set[str] = set()
        for at, name in zip(_listed(written.value), entry.excepted, strict=True):
            if name == REPORT:
                yield task.fault(at, f"depends.except: {EVERY_ONE} does not include {REPORT}; remove it")
            elif name == COMMIT:
                message = f"depends.except: each {COMMIT} waits for the one before it all the same; remove it"
                yield task.fault(at, message)
            elif name in seen:
                yield task.fault(at, f"depends.except: {shown(name)} is named twice; remove one")
            seen.add(name)


def _except(node: Node) -> Entry:
    """The node of ``except`` in the node of an entry."""
    assert isinstance(node.value, dict)
    return node.value["except"]


def _listed(node: Node) -> list[Node]:
    """The entries of a list; a single entry may have been written without brackets."""
    return node.value if isinstance(node.value, list) else [node]


def _no_such_task(name: str) -> str:
    return f"there is no task {shown(name)} in this revision's workflow files; correct the name, or add the task"


def _in_run(word: str) -> bool:
    return word != PREV and not word.startswith(f"{PREV}:")


def _duplicate_names(tasks: Sequence[FoundTask]) -> Iterator[Fault]:
    first: dict[str, FoundTask] = {}
    for task in tasks:
        if task.name is None:
            continue
        other = first.setdefault(task.name, task)
        if other is not task:
            place = f"{other.path}:{other.name_node.line}:{other.name_node.column}"
            yield task.fault(task.name_node, f"there is already a task {shown(task.name)}, at {place}; rename one")


def _depends_fault(task: FoundTask, node: Node, entry: DependsEntry) -> Iterator[Fault]:
    """The fault of an entry that names a task for which no task may wait (design 5.3, 5.4)."""
    word = entry.task
    if word == task.name:
        yield task.fault(node, f"{shown(word)} depends on itself; for its earlier run write PREV", PREV)
    elif word == REPORT:
        yield task.fault(
            node, f"{REPORT} comes after all other tasks of a run, so none of them can wait for it; remove it"
        )
    elif task.name == COMMIT and _in_run(word):
        message = f"{COMMIT} comes before every task of its run, so it can wait for earlier ones only"
        yield task.fault(node, message, f"{PREV}:{word}")


def _failed_fault(task: FoundTask, node: Node, entry: DependsEntry, gates: frozenset[str]) -> Iterator[Fault]:
    """The fault of an entry with ``when: failed``: this task cannot wait for a failure, or the
    named task never fails (design 5.6). ``gates``: tasks without a program.
    """
    word = entry.task
    if task.name == COMMIT:
        message = f"depends.when: {COMMIT} cannot be skipped, so it cannot wait for a failure; write 'when: settled'"
        yield task.fault(node, message)
    elif word == EVERY_ONE:
        message = f"depends.when: {EVERY_ONE} stands for many tasks and cannot wait for a failure; name the task"
        yield task.fault(node, message)
    elif word in (COMMIT, f"{PREV}:{COMMIT}"):
        yield task.fault(node, f"depends.when: {COMMIT} never fails, so {shown(task.name or '')} would never run")
    elif word in gates:
        message = (
            f"depends.when: {shown(word)} has neither command nor script, so it never fails: "
            "it is skipped where what it depends on fails; name a task that runs something"
        )
        yield task.fault(node, message)


def _failed_list_fault(
    task: FoundTask, node: Node, entry: DependsEntry, lists: Mapping[str, Foreach | None]
) -> Iterator[Fault]:
    """The fault of a task that waits for the failure of an item without being an item of the same
    list (design 5.30). ``lists``: the lists of tasks that have one.
    """
    source = task.name or "" if entry.task == PREV else entry.task.removeprefix(f"{PREV}:")
    if source in lists and lists[source] != task.foreach:
        message = f"depends.when: {shown(source)} has a task for each item of its list, and {shown(task.name or '')} is not over the same list"
        yield task.fault(node, f"{message}: give it the same 'foreach' and 'key', or write 'when: settled'")


def _repeated(task: FoundTask, kind: str) -> Iterator[Fault]:
    seen = set()
    for node, entry in _entries(task, kind):
        word = f"{PREV}:{task.name}" if entry.task == PREV else entry.task
        if word in seen:
            yield task.fault(node, f"{kind}: {shown(entry.task)} is named twice; remove one")
        seen.add(word)


def _cycles(tasks: Sequence[FoundTask], known: frozenset[str]) -> Iterator[Fault]:
    """The cycles of ``depends`` edges inside the run. Each is reported at its first task; cycles
    that share an edge are reported one by one.
    """
    places: dict[tuple[str, str], tuple[FoundTask, Node]] = {}
    order: dict[str, int] = {}
    for task in tasks:
        if task.name is None or task.name == COMMIT:
            continue
        order.setdefault(task.name, len(order))
        for node, entry in _entries(task, "depends"):
            if entry.task in known and entry.task not in (task.name, COMMIT):
                places.setdefault((task.name, entry.task), (task, node))
    graph: dict[str, set[str]] = {}
    for waiting, source in places:
        graph.setdefault(waiting, set()).add(source)
    for _ in range(MAX_CYCLES):
        try:
            TopologicalSorter(graph).prepare()
            return
        except CycleError as why:
            # graphlib names each task before the one that waits for it, and the first one twice.
            ring = list(reversed(why.args[1]))[:-1]
        start = min(range(len(ring)), key=lambda place: order[ring[place]])
        ring = [*ring[start:], *ring[:start]]
        task, node = places[ring[0], ring[1]]
        yield task.fault(
            node, f"tasks wait for each other in a circle: {' → '.join([*ring, ring[0]])}; remove one of the edges"
        )
        for waiting, source in zip(ring, [*ring[1:], ring[0]], strict=True):
            graph[waiting].discard(source)


def _mutual_cancels(tasks: Sequence[FoundTask]) -> Iterator[Fault]:
    edges: set[tuple[str, str]] = set()
    for task in tasks:
        for node, entry in _entries(task, "cancels"):
            if task.name and _in_run(entry.task) and entry.task != task.name:
                if (entry.task, task.name) in edges:
                    message = (
                        f"{shown(entry.task)} and {shown(task.name)} cancel each other in the same run; remove one"
                    )
                    yield task.fault(node, message)
                edges.add((task.name, entry.task))
