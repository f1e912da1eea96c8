"""The entries to append to a ledger: revisions with their contents, in portions for one transaction
each. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from arkqueue.model import Revision, TaskDefinition, Workflow
from arkqueue.plan.graph import gates_needed
from arkqueue.plan.items import MOST_BYTES, MOST_ROWS, rows_of_item

MOST_REVISIONS = 100
OVERHEAD = 500
"""The approximate bytes of a task without its texts."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A revision to append, with its parsed workflow files and its tree difference to the previous
    ledger revision. ``parent``: the workflow files of its parent, if that is another one than this
    previous revision and could be read; `WorkflowGuard` asks for it.
    """

    revision: Revision
    workflow: Workflow
    changed: tuple[str, ...] = ()
    parent: Workflow | None = None

    @property
    def rows(self) -> int:
        """The approximate number of tasks and edges of its commit run. A gate of ``PREV:*`` counts
        as many edges as there are tasks.
        """
        tasks = self.workflow.tasks
        edges = sum(len(task.depends) + len(task.cancels) for task in tasks)
        rows = 2 + (2 + gates_needed(self.workflow)) * len(tasks) + edges
        for task in tasks if self.workflow.lists else ():
            rows += len(self.workflow.items_of(task) or ()) * rows_of_item(task)
        return rows

    @property
    def is_large(self) -> bool:
        """True if its commit run is planned in portions: it has items, and more rows than one
        transaction appends.
        """
        return bool(self.workflow.lists) and (self.rows > MOST_ROWS or self.bytes_of_items > MOST_BYTES)

    @property
    def bytes_of_items(self) -> int:
        return sum(len(item.body) for items in self.workflow.lists.values() for item in items)


def portions(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Entries in their order, in one list for each transaction; without entries, one empty list.

    An entry is taken from ``entries`` when it is needed, so that memory holds at most one portion
    and the next entry.
    """
    portion = _Portion()
    for entry in entries:
        if portion.entries and not portion.has_room(entry):
            yield portion.entries
            portion = _Portion()
        portion.add(entry)
    yield portion.entries


class _Portion:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._rows = self._bytes = 0
        self._workflows: set[int] = set()
        """The workflows of the portion, by identity: entries with the same workflow store it once."""

    def has_room(self, entry: Entry) -> bool:
        return (
            # After a stored revision, the gate of a list stands for ten thousand open items. After
            # a revision in the same portion, each item would have to be read.
            not (entry.workflow.lists and gates_needed(entry.workflow))
            and len(self.entries) < MOST_REVISIONS
            and self._rows + entry.rows <= MOST_ROWS
            and self._bytes + self._size(entry) <= MOST_BYTES
        )

    def add(self, entry: Entry) -> None:
        self._rows += entry.rows
        self._bytes += self._size(entry)
        self._workflows.add(id(entry.workflow))
        self.entries.append(entry)

    def _size(self, entry: Entry) -> int:
        size = len(entry.revision.message) + sum(map(len, entry.changed))
        if id(entry.workflow) not in self._workflows:
            size += sum(_size_of(task) for task in entry.workflow.tasks)
            size += sum(len(fault.message) for fault in entry.workflow.faults)
        for items in entry.workflow.lists.values():
            size += sum(OVERHEAD + len(item.body) for item in items)
        return size


def _size_of(task: TaskDefinition) -> int:
    """The approximate bytes of a definition."""
    texts = [task.script or "", *(task.command or ""), *task.env, *task.env.values(), *task.paths, *task.branches]
    return OVERHEAD + sum(map(len, texts))
