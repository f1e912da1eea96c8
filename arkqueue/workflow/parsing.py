"""Workflow files → tasks, or all their faults at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from arkqueue.model import Fault, SourceFile, Workflow
from arkqueue.workflow.check import check
from arkqueue.workflow.source import read
from arkqueue.workflow.spelling import Speller
from arkqueue.workflow.tasks import FoundTask, tasks_of

MAX_FAULTS: Final = 1000


def parse(files: Sequence[SourceFile]) -> Workflow:
    """The tasks of a revision in the order of files (by path) and lines, or all faults at once and no tasks."""
    faults: list[Fault] = []
    found: list[FoundTask] = []
    speller = Speller()
    unread = []
    for file in sorted(files, key=lambda file: file.path):
        source = read(file)
        if not source.readable:
            unread.append(source.path)
        faults += source.faults
        found += tasks_of(source, faults, speller)
    faults += check(found, unread=unread, speller=speller)
    if faults:
        return Workflow(faults=_shown(faults))
    return Workflow(tasks=tuple(task.definition() for task in found))


def _shown(faults: Sequence[Fault]) -> tuple[Fault, ...]:
    """Sorted, each once, and not without end."""
    ordered = sorted(set(faults))
    if len(ordered) <= MAX_FAULTS:
        return tuple(ordered)
    rest = len(ordered) - MAX_FAULTS
    return (*ordered[:MAX_FAULTS], Fault(ordered[-1].path, 0, 0, f"and {rest} more faults; mend the ones above first"))
