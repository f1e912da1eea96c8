"""Prints the run that would be made, on stderr, for `trigger`, `submit` and backfills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from arkqueue.cli.items import FEW
from arkqueue.cli.output import say
from arkqueue.names import dependency_in_words, task_in_run
from arkqueue.text import on_one_line, visible

SHOWN = ("locked", "max-running")
"""The kinds of obstacles that end by themselves. Their commands show the tasks that block."""


def say_proposal(proposed: Any, note: str, obstacles: Sequence[Any]) -> None:
    """Print a proposed run, task by task, and the obstacles to starting. ``note``: why the newest
    commits may be missing; empty if they are not.
    """
    if note:
        say(f"arkqueue: {on_one_line(note)}", err=True)
    for line in _lines(proposed, obstacles):
        say(visible(line), err=True)


def _lines(proposed: Any, obstacles: Sequence[Any]) -> Iterator[str]:
    """The lines about the tasks of a run and their obstacles."""
    tasks = proposed["tasks"]
    yield f"{proposed['full_name']}: {len(tasks)} {'task' if len(tasks) == 1 else 'tasks'}"
    told: Counter[str] = Counter()
    for task in tasks:
        told[task["name"]] += 1
        if told[task["name"]] > FEW:
            continue
        waits = [_need(need) for need in task["needs"] if need["is_awaited"]]
        takes = [_need(need) for need in task["needs"] if not need["is_awaited"]]
        words = [f"waits for {', '.join(waits)}"] if waits else []
        words += [f"uses the result of {', '.join(takes)}"] if takes else []
        words += [f"does without {name}, which has never run" for name in task["never_ran"]]
        words += list(_stops(task))
        words += [f"is held by {task['held']} until somebody releases it"] if task["held"] else []
        yield f"  {task_in_run(task['name'], task['item'])[1:]}" + (f" {'; '.join(words)}" if words else "")
    for name, items in told.items():
        if (more := items - FEW) > 0:
            yield f"  {name}: {more:,} more items"
    for reason in obstacles:
        what = "To see them" if reason["kind"] in SHOWN else "To change that"
        help_with = f" {what}: {'; '.join(reason['commands'])}" if reason["commands"] else ""
        yield f"  {reason['text']}{help_with}"


def _stops(task: Any) -> Iterator[str]:
    """The tasks of earlier runs that a task cancels, or stops if they run."""
    for verb, is_running in (("stops", True), ("cancels", False)):
        found = [
            f"{one['task']} ({one['state']})" for one in task["stops"] if (one["state"] == "running") is is_running
        ]
        if found:
            yield f"{verb} {', '.join(found)}"
    if task["more_stopped"]:
        yield "cancels more than these"


def _need(need: Any) -> str:
    named = dependency_in_words(need["task"], is_awaited=need["is_awaited"])
    return named + (f" ({need['state']})" if need["state"] else "")
