"""Workflows: the workflow files of a revision, and their faults or their tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from arkqueue.model.definitions import TaskDefinition
from arkqueue.model.words import Item
from arkqueue.text import name_visible, on_one_line


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A workflow file as it is in the repository. ``text`` is bytes because it may not be UTF-8.
    ``fault``: the reason why it cannot be read; empty: it can.
    """

    path: str
    text: bytes = b""
    fault: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """A fault in a workflow file, with its place and a suggestion. ``line`` and ``column`` count from
    1; 0 means the whole file.
    """

    path: str
    line: int
    column: int
    message: str
    word: str = ""
    suggestion: str = ""

    @property
    def place(self) -> str:
        """The path, and in a file the line and the column."""
        path = name_visible(self.path)
        return f"{path}:{self.line}:{self.column}" if self.line else path

    def __str__(self) -> str:
        return f"{self.place}: {on_one_line(self.message)}" + (
            f" (did you mean {self.suggestion!r}?)" if self.suggestion else ""
        )


LONGEST_GLOB = 1000
"""The most characters of one glob of a workflow file."""
MOST_GLOBS = 1000
"""The most globs of one field of a workflow file."""


@dataclass(frozen=True, slots=True)
class Workflow:
    """All workflow files of one revision: their tasks in the order of files and lines; or their
    faults, and then no tasks.
    """

    tasks: tuple[TaskDefinition, ...] = ()
    faults: tuple[Fault, ...] = ()
    lists: Mapping[str, tuple[Item, ...]] = field(default_factory=dict)
    """The items of each list, by `Foreach.items`."""
    list_files: tuple[str, ...] = ()
    """The files with lists and with a schema, which were read besides the workflow files."""
    schema: Schema | None = None
    """The schema to which payloads of submissions have to conform; None: any payload is accepted."""

    def items_of(self, definition: TaskDefinition) -> tuple[Item, ...] | None:
        """The items of a task's list; None: it has no list. A list of a submission is empty in a run
        without one.
        """
        if definition.foreach is None:
            return None
        if definition.foreach.is_of_submission:
            return self.lists.get(definition.foreach.items, ())
        return self.lists[definition.foreach.items]

    def with_lists(self, handed: Mapping[str, tuple[Item, ...]]) -> Workflow:
        """The workflow with a run's own lists, by `Foreach.items`. If the list of
        `Foreach.at_each_revision` is among them, tasks with a list from this file get it.
        """
        if not handed:
            return self

        def over(definition: TaskDefinition) -> TaskDefinition:
            if definition.foreach is None or definition.foreach.file is None:
                return definition
            found = definition.foreach.at_each_revision()
            return replace(definition, foreach=found) if found.items in handed else definition

        return replace(self, tasks=tuple(map(over, self.tasks)), lists={**self.lists, **handed})

    @property
    def item_tasks(self) -> int:
        """The number of tasks that a run has for items, beside one for each definition."""
        return sum(len(self.items_of(one) or ()) for one in self.tasks)


@dataclass(frozen=True, slots=True)
class Schema:
    """The JSON Schema to which payloads of submissions have to conform. ``path``: its file in the
    archive. ``content``: the parsed JSON.
    """

    path: str
    content: Any
