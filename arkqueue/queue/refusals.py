"""Refuses tasks and runs that no verb may start: they belong to a stopped archive, come after a run
that is still being planned, or would replace the work of a later revision (design 5.11, 5.19).

Called by the verbs that make a run or start tasks again, inside their transactions. Each function
raises and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from arkqueue.errors import ArchiveRefuses, Busy, Conflict
from arkqueue.model import Key, Trigger
from arkqueue.names import run_name, task_name
from arkqueue.queue.graph import Graph

MOST_NAMED = 10
"""The most tasks that a refusal names."""


GO_BACK = "to go back on purpose: {}"
"""The remedy if an older revision would replace the work of a newer one; takes the command."""


def refuse_overwriting(
    graph: Graph,
    here: str,
    branch: int,
    tasks: Sequence[tuple[str, str, int, int]],
    remedy: str,
    cause: Trigger | None = None,
) -> None:
    """Raise ``Conflict`` if one of these tasks has completed at a later place: an older revision
    never replaces the work of a newer one, unless a person forces it (design 5.19).

    ``tasks``: the name, item, number and run of each. ``remedy``: the remedy for the message.
    ``cause``: the trigger of a run that is not stored yet.
    """
    if later := completed_after(graph, branch, tasks, cause, most=MOST_NAMED + 1):
        raise overwrites(here, later, remedy)


def completed_after(
    graph: Graph,
    branch: int,
    tasks: Sequence[tuple[str, str, int, int]],
    cause: Trigger | None = None,
    *,
    most: int,
) -> list[Any]:
    """The completions of some tasks at later places, the latest first. As in `refuse_overwriting`."""
    if not tasks:
        return []
    names, items, numbers, runs = (list(column) for column in zip(*tasks, strict=True))
    told = {"names": names, "items": items, "numbers": numbers, "runs": runs, "cause": cause and str(cause)}
    return graph.rows("completed_after", branch=branch, most=most, **told)


def overwrites(here: str, later: Sequence[Any], remedy: str) -> Conflict:
    """The refusal of tasks that would replace the work of these ``later`` completions."""
    named = ", ".join(map(task_name, later[:MOST_NAMED])) + (" and more" if len(later) > MOST_NAMED else "")
    return Conflict(here, f"would replace the work of later revisions: {named} completed", remedy)


def refuse_unplanned(graph: Graph, here: str, branch: int) -> None:
    """Raise ``Busy`` while a large run of a branch is being planned: later runs come after it."""
    for found in graph.rows("planning_of_branch", branch=branch):
        if found.is_stored:
            continue
        (row,) = graph.rows("place_of_run", run=found.run)
        name = run_name(row)
        fault = f"{name} is still being planned, and no other run of its branch is planned meanwhile"
        raise Busy(here, fault, f"Try again when it is planned: arkqueue show {name}")


def refuse_stopped(graph: Graph, archive: int) -> None:
    """Raise ``ArchiveRefuses`` if an archive is stopped: its repository may be another one, and no
    task may get files from that.
    """
    for row in graph.rows("why_stopped", archive=archive):
        raise ArchiveRefuses(f"archive {row.name}", f"is stopped, so none of its tasks starts: {row.stopped}")


def refuse_superseded(
    graph: Graph,
    here: str,
    branch: int,
    number: int,
    run: int,
    attempts: Mapping[Key, int],
    cause: Trigger | None = None,
) -> None:
    """Raise ``Conflict`` if a later task that cancels one of these has fired (design 5.11).
    ``attempts``: by key. ``cause``: the trigger of a run that is not stored yet.
    """
    for row in superseders(graph, branch, number, run, attempts, cause, most=1):
        raise is_superseded(here, row)


def superseders(
    graph: Graph,
    branch: int,
    number: int,
    run: int,
    attempts: Mapping[Key, int],
    cause: Trigger | None = None,
    *,
    most: int,
) -> list[Any]:
    """The later tasks that cancel some of these. As in `refuse_superseded`."""
    names, items = [key.name for key in attempts], [key.item for key in attempts]
    told = {"names": names, "items": items, "attempts": list(attempts.values()), "cause": cause and str(cause)}
    return graph.rows("superseders", branch=branch, number=number, run=run, most=most, **told)


def is_superseded(here: str, row: Any) -> Conflict:
    """The refusal of a task that a row of ``superseders`` supersedes."""
    fault = f"{row.name} is superseded by {row.later} of revision {row.number}"
    return Conflict(here, fault, "use --force, or start it at the newest revision")
