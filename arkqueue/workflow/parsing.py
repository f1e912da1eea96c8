"""Turns workflow files into tasks, or into all their faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from arkqueue.model import LONGEST_LIST, MOST_ITEMS, Fault, SourceFile, Workflow
from arkqueue.workflow.check import check
from arkqueue.workflow.list_files import ListFiles, ReadFile
from arkqueue.workflow.nodes import MAX_FAULTS
from arkqueue.workflow.schemas import SchemaFile
from arkqueue.workflow.source import read
from arkqueue.workflow.spelling import Speller
from arkqueue.workflow.tasks import FoundTask, tasks_of

MOST_TASKS: Final = 20_000
"""The most tasks of one revision; a task with a list counts once."""
MOST_VALUES: Final = 400_000
"""The most scalars, lists and mappings in the workflow files of a revision, twenty for each of
`MOST_TASKS`. Checking a value takes 10 µs, and a committer waits for it.
"""
MOST_STEPS: Final = 20
"""The most tasks over lists in a revision, for each item that a list may have."""
LONGEST_MESSAGE: Final = 500
LONGEST_WORD: Final = 200
"""The most characters of a fault's message, and of the word in it. A file could have a word of a
megabyte.
"""


def parse(
    files: Sequence[SourceFile],
    read_file: ReadFile | None = None,
    most_items: int = MOST_ITEMS,
    *,
    count: Callable[[int], None] | None = None,
) -> Workflow:
    """The tasks of a revision in the order of files (by path) and lines; or no tasks, and all its
    faults up to ``MAX_FAULTS``.

    ``read_file``: reads the files with lists, or a schema; None: these files are not checked, and
    lists have no items. ``most_items``: the most items of a list. ``count``: called with the number
    of values of each file before they are checked; its errors are passed on.
    """
    lists, schemas = ListFiles(read_file, most_items), SchemaFile(read_file)
    faults: list[Fault] = []
    found: list[FoundTask] = []
    speller = Speller()
    unread = []
    values = 0
    for file in sorted(files, key=lambda file: file.path):
        if len(faults) > MAX_FAULTS:
            break
        source = read(file)
        values += source.values
        if not source.readable:
            unread.append(source.path)
        faults += source.faults
        fault = _too_many_values(values)
        if not fault:  # otherwise the check would take too long
            if count is not None:
                count(source.values)
            found += tasks_of(source, faults, speller, lists, schemas)
            fault = _too_many(found, most_items)
        if fault:
            return Workflow(
                faults=_shown([*faults, Fault(source.path, 0, 0, fault)]), list_files=(*lists.named, *schemas.named)
            )
    # Otherwise not all tasks are known, and any name may be one of the missing ones.
    if len(faults) <= MAX_FAULTS:
        faults += islice(check(found, unread=unread, speller=speller), MAX_FAULTS + 1)
    if faults:
        return Workflow(faults=_shown(faults), list_files=(*lists.named, *schemas.named))
    items = {
        task.foreach.items: task.items
        for task in found
        if task.items is not None and task.foreach is not None and not task.foreach.is_of_submission
    }
    tasks = tuple(task.definition() for task in found)
    return Workflow(tasks, lists=items, list_files=(*lists.named, *schemas.named), schema=schemas.found)


def _too_many_values(values: int) -> str:
    """The fault of too many values in one revision; empty if there are not."""
    if values <= MOST_VALUES:
        return ""
    return f"with this file there are {values:,} values, more than {MOST_VALUES:,}; write fewer, or name fewer tasks in each 'depends'"


def _too_many(found: Sequence[FoundTask], most_items: int) -> str:
    """The fault of too many tasks in one revision; empty if there are not."""
    if len(found) > MOST_TASKS:
        return f"with this file there are {len(found):,} tasks, more than {MOST_TASKS:,}; define fewer"
    lists = {task.foreach.items: task.items for task in found if task.items and task.foreach}
    tasks, most = sum(len(task.items or ()) for task in found), MOST_STEPS * most_items
    if tasks > most:
        return f"with this file there are {tasks:,} tasks for items, more than {most:,}; define fewer"
    if len(lists) > 1 and sum(len(item.body) for items in lists.values() for item in items) > LONGEST_LIST:
        return f"with this file the items of all lists have more than {LONGEST_LIST >> 20} MiB; make them smaller"
    return ""


def _shown(faults: Sequence[Fault]) -> tuple[Fault, ...]:
    """The faults sorted, each once, shortened, and up to the limit."""
    ordered = [_shortened(fault) for fault in sorted(set(faults))]
    if len(ordered) <= MAX_FAULTS:
        return tuple(ordered)
    return (
        *ordered[:MAX_FAULTS],
        Fault(ordered[-1].path, 0, 0, f"there are more than {MAX_FAULTS} faults; correct the ones above first"),
    )


def _shortened(fault: Fault) -> Fault:
    if len(fault.message) <= LONGEST_MESSAGE and len(fault.word) <= LONGEST_WORD:
        return fault
    return replace(fault, message=_cut(fault.message, LONGEST_MESSAGE), word=_cut(fault.word, LONGEST_WORD))


def _cut(text: str, longest: int) -> str:
    """A text, without its middle if it is too long: its end has the remedy."""
    half = longest // 2
    return text if len(text) <= longest else f"{text[:half]}…{text[-half:]}"
