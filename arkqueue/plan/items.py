"""The items of a run's tasks, and the portions in which a large run is planned and stored (design
5.30). Pure.

The first portion has the run without its items. Each other portion has a number of items, with
their tasks of all lists; items are numbered through, one list after the other. An edge between two
tasks belongs to the portion in which the later one is stored. Called by ``graph`` and by
``queue.planning``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from arkqueue.model import Foreach, Item, Key, TaskDefinition, Workflow

MOST_ROWS: Final = 10_000
MOST_BYTES: Final = 8 * 2**20
"""The most bytes that one transaction appends, unless one revision without items, or one item, has
more. So an archive is locked for some tenths of a second.
"""


class Portion(NamedTuple):
    """A part of a large run: its items from ``first`` on, before ``last``. ``last`` 0: the run
    without its items.
    """

    first: int
    last: int


BEGINNING: Final = Portion(0, 0)


class Lists:
    """The items of some tasks of a run, and those that are being planned: all items, or those of
    one portion.
    """

    def __init__(self, workflow: Workflow, chosen: Iterable[TaskDefinition], portion: Portion | None = None) -> None:
        self._portion = portion
        self.come_later = portion == BEGINNING
        """True if all items are in later portions."""
        self.has_rest = portion is None or self.come_later
        """True if the part without items is being planned."""
        self.filled: dict[str, tuple[Item, ...]] = {}
        """The items of each task that has some."""
        self.here: dict[str, Sequence[Item]] = {}
        """The items that are being planned, by the name of their task."""
        self._places: dict[str, dict[str, int]] = {}
        """The positions of keys in their list, by the name of the task."""
        of_lists: dict[Foreach, tuple[int, dict[str, int]]] = {}
        self.count = 0
        """The number of items."""
        for definition in chosen:
            if definition.foreach is None:
                continue
            items = workflow.items_of(definition) or ()
            if definition.foreach not in of_lists:
                places = {item.key: place for place, item in enumerate(items, self.count)}
                of_lists[definition.foreach] = self.count, places
                self.count += len(items)
            begin, self._places[definition.name] = of_lists[definition.foreach]
            if items:
                self.filled[definition.name] = items
            first, last = (0, len(items)) if portion is None else (max(0, end - begin) for end in portion)
            self.here[definition.name] = items[first:last]

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def keys(self, name: str) -> list[Key]:
        """All tasks of a name in the run."""
        return [Key(name, item) for item in self._places[name]] if name in self else [Key(name)]

    def keys_here(self, name: str) -> list[Key]:
        """The tasks of a name that the present portion plans."""
        if name in self:
            return [Key(name, item.key) for item in self.here[name]]
        return [Key(name)] if self.has_rest else []

    def keys_stored(self, name: str) -> list[Key]:
        """The tasks of a name that are stored after the present portion."""
        return self.keys_here(name) if self.has_rest else [key for key in self.keys(name) if not self.is_to_come(key)]

    def has_key(self, key: Key) -> bool:
        return key.item in self._places[key.name]

    def is_here(self, *keys: Key) -> bool:
        """True if a task, or the edge between two tasks, is part of the present portion."""
        if self._portion is None:
            return True
        place = max(self._place(key) for key in keys)
        return place < 0 if self.come_later else self._portion.first <= place < self._portion.last

    def is_to_come(self, key: Key) -> bool:
        """True if a later portion has a task."""
        return self._portion is not None and self._place(key) >= self._portion.last

    def _place(self, key: Key) -> int:
        return self._places[key.name][key.item] if key.item else -1


def next_portion(workflow: Workflow, names: Collection[str], first: int) -> Portion:
    """The portion of items from a position on that one transaction stores. ``names``: those of the
    run's tasks.
    """
    rows_of: Counter[Foreach] = Counter()
    lists: dict[Foreach, tuple[Item, ...]] = {}
    for task in workflow.tasks:
        if task.foreach and task.name in names:
            rows_of[task.foreach] += rows_of_item(task)
            lists[task.foreach] = workflow.items_of(task) or ()
    begin, last, rows, size = 0, first, 0, 0
    for foreach, items in lists.items():
        for item in items[max(0, last - begin) :]:
            rows, size = rows + rows_of[foreach], size + len(item.body)
            if last > first and (rows > MOST_ROWS or size > MOST_BYTES):
                return Portion(first, last)
            last += 1
        begin += len(items)
    return Portion(first, last)


def rows_of_item(task: TaskDefinition) -> int:
    """The approximate number of rows for a task of an item: the task, its edges, and one to each
    gate of the list.
    """
    return 4 + len(task.depends) + len(task.cancels)


def part_of(workflow: Workflow, names: Collection[str], portion: Portion) -> Workflow:
    """The workflow with only the items of a portion, for reading the earlier tasks of the branch.
    The first portion of the run has the sources of ``PREV:*``.
    """
    chosen = [task for task in workflow.tasks if task.name in names]
    here: dict[str, set[Item]] = {digest: set() for digest in workflow.lists}
    found = Lists(workflow, chosen, portion)
    for task in chosen:
        if task.foreach and task.name in found.filled:
            here[task.foreach.items].update(found.here[task.name])
    lists = {digest: tuple(items) for digest, items in here.items()}
    if portion == BEGINNING:
        return replace(workflow, lists=lists)
    tasks = [
        replace(task, depends=tuple(entry for entry in task.depends if entry.task != "*")) for task in workflow.tasks
    ]
    return replace(workflow, tasks=tuple(tasks), lists=lists)
