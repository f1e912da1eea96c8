"""The edges of one run: what its tasks and gates wait for, in the run and in earlier ones (design
5.3–5.7, 5.18, 5.30). Pure. Called by ``graph``.

A dependency that is not part of the run stands for the *product* of its nearest earlier occurrence
(design 5.6, 5.18): only a completed source meets such an edge.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from arkqueue.model import COMMIT, Cancels, Depends, Key, TaskDefinition, TaskId, TaskKind, When
from arkqueue.plan.items import Lists

EVERYTHING: Final = "PREV:*"
"""The beginning of the names of the gates of ``PREV:*``. No task can have such a name."""
LONGEST_EXCEPT: Final = 100
"""The most characters of excepted names in the name of a gate. If they are longer, the gate's name
has their beginning and a digest.
"""


class Occurrence(NamedTuple):
    """A task of an earlier run. ``settled``: it meets an edge from another run that waits for any
    end. ``passes``: it also meets an edge that needs completion (design 5.9).
    """

    task: TaskId
    kind: TaskKind
    settled: bool = False
    passes: bool = False
    produced: bool | None = None
    """True if its product exists (design 5.18): it completed, or was waived as completed. False:
    the product will never exist, unless a person retries the task.
    """
    failed: bool | None = None
    """True if it failed or rejected its input. None: it has not settled."""
    place: tuple[int, int] = (0, 0)
    """The place of its run: number and run."""
    ignored: bool = False
    """True if no gate of its list waits for it: its item was deleted, or it was waived as
    completed.
    """


class Edge(NamedTuple):
    """An edge: ``target`` waits for ``source``, or cancels it. A task of the same run is named by
    its key, a task of an earlier run by its id.

    ``settled``: any end meets the edge. With ``failed`` as well, only a failure or rejection meets
    it (design 5.6).
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
        """The rank of this edge among edges between the same tasks: the stricter one counts, then
        the declared one.
        """
        return self.product or self.failed, self.declared


def gate_name(target: str, entry: Depends) -> str:
    """The name of the gate for an entry ``PREV:*`` of a task. Entries that wait for the same tasks
    have the same gate.
    """
    name = EVERYTHING + (":commits" if target == COMMIT else "") + (":settled" if entry.when is When.SETTLED else "")
    if not entry.excepted:
        return name
    excepted = ",".join(entry.excepted)
    if len(excepted) > LONGEST_EXCEPT:
        excepted = f"{excepted[:LONGEST_EXCEPT]}~{hashlib.sha256(excepted.encode()).hexdigest()[:12]}"
    return f"{name}:except:{excepted}"


@lru_cache(maxsize=10_000)
def gate_of_list(name: str, when: When) -> Key:
    """The gate of a task that has a list. It passes when all items have completed, or settled
    (design 5.30). No task can have such a name.
    """
    return Key(f"{name}:{When.SETTLED if when is When.SETTLED else When.COMPLETED}")


def gates_of_list(name: str) -> tuple[Key, Key]:
    return gate_of_list(name, When.COMPLETED), gate_of_list(name, When.SETTLED)


def edge_to(target: Key, source: Key | TaskId, when: When, *, declared: bool = True, product: bool = False) -> Edge:
    """A ``depends`` edge."""
    settled, failed = when is not When.COMPLETED, when is When.FAILED
    return Edge(target, source, settled=settled, declared=declared, product=product, failed=failed)


class Edges:
    """Collects the edges of a run, each once, the gates of ``PREV:*``, and the dependencies that
    cannot be met.

    ``defined``: the tasks of the workflow. ``inside``: the names of those that are part of the run.
    ``of_commits``: True for a commit run. ``lists``: the keys of the items of its tasks. The other
    parameters are those of `plan`.
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
        """The node for a dependency on a name of the run: an item, the gate of a list, or the task.
        None: an empty list, which passes.
        """
        if name not in self._lists:
            return Key(name)
        if self._by_item(target, name):
            return Key(name, target.item)
        return gate_of_list(name, when) if name in self._lists.filled else None

    def _by_item(self, target: Key, name: str) -> bool:
        """True if an edge between two tasks connects them item by item: both are over the same list
        (design 5.30).
        """
        if not target.item or name not in self._defined:
            return False
        return self._defined[name].foreach == self._defined[target.name].foreach

    def close(self, name: str) -> None:
        """Add the edges into the gates of a list."""
        for when, gate in zip((When.COMPLETED, When.SETTLED), gates_of_list(name), strict=True):
            for key in self._lists.keys_here(name):
                self.add(edge_to(gate, key, when, declared=False))

    def add_gates(self, target: Key, entries: Iterable[Depends]) -> None:
        """Add the gates of ``PREV:*`` for which items in other portions wait."""
        for entry in entries:
            if entry.task == "*":
                self._gate(target, entry)

    def _nearest(self, target: Key, name: str, when: When) -> Occurrence | None:
        """The nearest earlier occurrence of a name. If items are connected: with the same key, or
        without a list. Otherwise: without a list, or the gate of a list.
        """
        of_list = Key(name, target.item) if self._by_item(target, name) else gate_of_list(name, when)
        return self._newest(Key(name), of_list)

    def _newest(self, one: Key, other: Key) -> Occurrence | None:
        """The later of the nearest earlier occurrences of two keys; None if there is none."""
        found, also = self._past.get(one), self._past.get(other)
        if found is None or also is None:
            return found or also
        return max(found, also, key=lambda occurrence: occurrence.place)

    def cancel(self, canceler: Key, victim: Cancels) -> None:
        """Add the edge of one entry of ``cancels``."""
        name = victim.task or canceler.name
        if victim.previous:
            # A canceler without an item supersedes a whole list. One edge to a gate of the list
            # stands for all.
            of_list = Key(name, canceler.item) if canceler.item else gate_of_list(name, When.SETTLED)
            if nearest := self._newest(Key(name), of_list):
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
        """Add the edge of a dependency that is not part of the run. It stands for the product of
        its nearest earlier occurrence (design 5.6, 5.18).
        """
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
        """Skip the target: its source has not failed, because it never ran, or completed and was
        purged. The edge comes from COMMIT, which never fails.
        """
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
                    # The gate of an item's own list blocks as long as the item, if the entry asks
                    # for completion and the gate waits for the item. Then no edge to the item is
                    # needed. A gate that has passed waits for no item: one that runs again needs an
                    # edge (design 5.30).
                    is_told = entry.when is When.COMPLETED and not occurrence.ignored
                    through = nearest.get(key.name) if is_told else None
                    if (
                        through
                        and through.kind is TaskKind.GATE
                        and not through.passes
                        and through.place == occurrence.place
                    ):
                        continue
                    self.add(Edge(gate, occurrence.task, settled=entry.when is When.SETTLED))
        return gate


def _nearest_of_all(past: Mapping[Key, Occurrence], when: When) -> dict[str, Occurrence]:
    """The nearest earlier occurrence of each name; of a list, its gate."""
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
