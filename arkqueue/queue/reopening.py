"""Brings tasks back to work: which tasks may come back, which others wait for them again, and which
ones are refused.

A task comes back because a person retries it, waives the task because of which it was skipped,
deletes an item, or undeletes a run or item. The rules are those of docs/decisions/0001, points 5 to
8.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from arkqueue.errors import ArchiveRefuses, Conflict
from arkqueue.model import COMMIT, Key, TaskKind, Trigger
from arkqueue.names import PURGED, item_name, run_name, task_name, undelete_command
from arkqueue.queue.graph import Graph
from arkqueue.queue.guards import hold_again
from arkqueue.queue.places import task_name_of
from arkqueue.queue.refusals import (
    GO_BACK,
    MOST_NAMED,
    completed_after,
    is_superseded,
    overwrites,
    refuse_overwriting,
    refuse_stopped,
    refuse_superseded,
    superseders,
)
from arkqueue.queue.reports import keep
from arkqueue.states import State

NEWEST = "or trigger the task at the newest revision"
"""The remedy for a superseded task, besides force."""


def stand_alone(graph: Graph, tasks: Sequence[int]) -> list[int]:
    """Let tasks that wait for all earlier tasks (`PREV:*`) wait for some items directly, if they
    waited for these through the gate of a list that does not wait for them any more (decision 0001,
    point 12).

    Returns the items with such dependents. The caller follows them up; those that had settled
    before are judged again.
    """
    return graph.ids("stand_alone", tasks=list(tasks)) if graph.uses_lists else []


def judge_again(graph: Graph, roots: Sequence[int]) -> tuple[list[int], list[int]]:
    """The tasks that were skipped because of ``roots``: first those that may come back, then those
    that stay skipped because of another root, which is stored with them.
    """
    return judge_candidates(graph, roots, graph.ids("may_come_back", roots=list(roots)))


def judge_candidates(graph: Graph, roots: Sequence[int], candidates: list[int]) -> tuple[list[int], list[int]]:
    """Like `judge_again`, for some of the skipped tasks only."""
    keep(graph, [*roots, *candidates])
    staying: list[int] = []
    while found := _staying(graph, roots, candidates):
        graph.do("change_root", tasks=list(found), roots=[one.root for one in found.values()])
        staying += found
        candidates = [candidate for candidate in candidates if candidate not in found]
    return candidates, staying


class _Staying(NamedTuple):
    """Why a task stays skipped. ``is_unneeded``: it waits for the failure of a task that ended otherwise."""

    root: int
    is_unneeded: bool


def _staying(graph: Graph, roots: Sequence[int], candidates: Sequence[int]) -> dict[int, _Staying]:
    """The candidates that stay skipped, each with the first of its roots. Each task and each edge is
    read once: the first root takes everything behind it, the next root what is left, and so on.
    """
    rows = graph.rows("staying_skipped", candidates=list(candidates), roots=list(roots)) if candidates else []
    behind = defaultdict(list)
    for row in rows:
        if row.source is not None:
            behind[row.source].append(row)
    found: dict[int, _Staying] = {}
    for first in sorted((row for row in rows if row.source is None), key=lambda row: row.root):
        left = [first]
        while left:
            row = left.pop()
            if row.id not in found:
                found[row.id] = _Staying(first.root, row.is_unneeded)
                left += behind[row.id]
    return found


def reopen(graph: Graph, sources: Sequence[int], reopened: Sequence[int]) -> list[int]:
    """Take tasks back to waiting, and make the edges from ``sources`` inside their runs unmet.

    Returns the tasks to judge again: the targets of these edges, and the tasks that depend on a gate
    which waits again with a source. A task that was skipped because such a gate had not failed waits
    again, too.
    """
    graph.ids("reopen", tasks=list(reopened))
    if not sources:
        return []
    gates = graph.ids("redo", tasks=gates_again(graph, sources))
    sources = [*sources, *gates]
    graph.rows("lock_ready_targets", sources=sources)
    targets = graph.ids("unmeet", sources=sources)
    graph.do("untick_report", tasks=sources)
    graph.do("uncancel_run", tasks=sources)
    if not gates:
        return targets
    # A task of any run may have been skipped because one of these gates had not failed. Which ones
    # is not stored.
    behind, staying = judge_again(graph, gates)
    again = [*behind, *staying, *reopen(graph, behind, behind), *unjudged(graph, behind)] if behind else staying
    hold_again(graph, behind, behind)
    # A gate may have passed without an item that was deleted then. The item is back, and now keeps
    # the gate from passing.
    return [*targets, *gates, *graph.ids("settled_before", tasks=gates), *again]


def gates_again(graph: Graph, tasks: Sequence[int]) -> list[int]:
    """The gates of lists that wait again when their items come back, with the gates that passed
    behind them, if nothing has started behind them (design 5.30).
    """
    if not graph.uses_lists:
        return []
    found = graph.rows("gates_behind", tasks=list(tasks))
    if ready := [task for row in found for task in row.ready]:
        graph.rows("lock_tasks", tasks=ready)  # so that no claim starts one meanwhile
        found = graph.rows("gates_behind", tasks=list(tasks))
    unstarted = [row.gates for row in found if not graph.rows("started_after", sources=row.gates, most=1)]
    return sorted({gate for gates in unstarted for gate in gates})


def blocked(graph: Graph, rows: Sequence[Any]) -> dict[int, Conflict]:
    """The reasons why some of these tasks cannot come back: another bad task of the run, or the
    lost product of an earlier task, still skips them.
    """
    judged = [row.id for row in rows if row.root_id is None]
    needed = _staying(graph, [], judged)
    reasons = {}
    for row in rows:
        if row.root_id is not None:
            root, remedy = _root(graph, row.root_id, row)
            reasons[row.id] = Conflict(task_name_of(graph, row.id), f"was skipped because of {root}", remedy)
        elif one := needed.get(row.id):
            root, remedy = _root(graph, one.root, row)
            needs = "runs only where something failed, and is skipped because of" if one.is_unneeded else "needs"
            reasons[row.id] = Conflict(task_name_of(graph, row.id), f"{needs} {root}", remedy)
    return reasons


def lost_once(graph: Graph, rows: Sequence[Any]) -> dict[int, Conflict]:
    """The reasons why a retry of some tasks may repeat what their lost commands have done
    (``on_lost: fail``).
    """
    lost, reasons = {*graph.ids("lost_once", tasks=[row.id for row in rows])} if rows else (), {}
    for row in rows:
        if row.id in lost:
            here = task_name_of(graph, row.id)
            name = shlex.quote(here)
            remedy = f"If it has not: arkqueue retry {name} --from-start"
            if row.state == State.FAILED:
                remedy += f". If it has: arkqueue skip {name} --as-completed"
            reasons[row.id] = Conflict(here, "was lost, and its command is meant to run once (on_lost: fail): find out whether it has done its work", remedy)  # fmt: skip
    return reasons


def unjudged(graph: Graph, reopened: Sequence[int]) -> list[int]:
    """Settled tasks of other runs that have not been judged for tasks that now come back
    (docs/decisions/0001, point 18).
    """
    return graph.ids("unjudged", tasks=list(reopened)) if reopened else []


def refuse_to_let_go_on(graph: Graph, archive: int) -> None:
    """Raise ``Conflict`` if the verb has made tasks of a stopped archive ready: a waiver does not
    start them.
    """
    if graph.ready:
        try:
            refuse_stopped(graph, archive)
        except ArchiveRefuses as why:  # other tasks, with which nothing goes on, may be skipped
            raise Conflict(why.thing, why.fault, why.remedy) from None


def outdated(graph: Graph, rows: Sequence[Any]) -> dict[int, Conflict]:
    """The reasons why some tasks of one run cannot be retried without force: later revisions have
    superseded them, or completed them (design 5.11, 5.19). Says less than `refuse_outdated`, which
    looks at all tasks that come back, and costs the same for many tasks as for one.
    """
    first, by_key = rows[0], {(row.name, row.item): row for row in rows}
    reasons: dict[int, Conflict] = {}
    attempts = {Key(row.name, row.item): row.attempts for row in rows}
    for later in superseders(graph, first.branch_id, first.number, first.run, attempts, most=len(rows)):
        row = by_key[later.name, later.item]
        reasons.setdefault(row.id, is_superseded(task_name_of(graph, row.id), later))
    keys = [Key(row.name, row.item) for row in rows if row.program and row.kind == TaskKind.ORDINARY]
    places = [(*key, first.number, first.run) for key in keys]
    for later in completed_after(graph, first.branch_id, places, most=len(rows)):
        row = by_key[later.name, later.item]
        here = task_name_of(graph, row.id)
        reasons.setdefault(row.id, overwrites(here, [later], GO_BACK.format(f"arkqueue retry {here} --force")))
    return reasons


def refuse_outdated(graph: Graph, row: Any, again: Sequence[int], command: str, *, of: str = "") -> None:
    """Raise ``Conflict`` if tasks that come back because of ``row`` belong to something that is
    gone, are superseded, or were completed or built on by later revisions (design 5.11, 5.19).

    ``command``: the command that the person typed. ``of``: the run or item of which several tasks
    come back, which the message names; empty: the message names the task.
    """
    here = of or task_name_of(graph, row.id)
    if graph.rows("place_of_task", task=row.id)[0].gone:
        raise Conflict(here, "belongs to a revision, branch or archive that is gone", "use --force")
    runs: dict[tuple[int, int], dict[Key, int]] = defaultdict(dict)
    programs: list[tuple[str, str, int, int]] = []
    for task in graph.rows("lock_tasks", tasks=list(again)):
        runs[task.number, task.run][Key(task.name, task.item)] = task.attempts
        if task.program and task.kind == TaskKind.ORDINARY:
            programs.append((task.name, task.item, task.number, task.run))
    for (number, run), attempts in runs.items():
        refuse_superseded(graph, here, row.branch_id, number, run, attempts)
    if later := graph.rows("started_after", sources=list(again), most=MOST_NAMED + 1):
        names = ", ".join(map(task_name, later[:MOST_NAMED]))
        names += " and more" if len(later) > MOST_NAMED else ""
        remedy = f"if they may be out of date: {command} --force" if command else "use --force"
        raise Conflict(here, f"tasks of later revisions have started after it: {names}", remedy)
    refuse_overwriting(graph, here, row.branch_id, programs, GO_BACK.format(f"{command} --force"))


def _root(graph: Graph, task: int, skipped: Any) -> tuple[str, str]:
    """The task that needs attention first, as a text with its state, and the remedy. ``skipped``:
    the row of the task that it keeps from running.
    """
    (row,) = graph.rows("place_of_task", task=task)
    name = task_name(row)
    if row.run_deleted_at is not None or row.deleted:
        return f"{name}, whose {'item' if row.run_deleted_at is None else 'run'} was deleted", undelete_command(row)
    if row.state == State.COMPLETED:  # it did not fail (design 5.6)
        (place,) = graph.rows("place_of_task", task=skipped.id)
        branch = "" if place.main else f" --branch {shlex.quote(place.branch)}"
        without = "" if row.name == COMMIT else f" --without {row.name}"
        again = f"arkqueue trigger {place.archive}{branch} --revision {place.number} {place.name}{without}"
        return f"{name}, which is completed", f"run it all the same: {again}"
    if row.superseded_by is not None:
        return f"{name}, which {superseded(graph, row)}", f"arkqueue retry {name} --force, {NEWEST}"
    said = f"{name}, which is {row.state}"
    if row.state == skipped.state == State.CANCELED:
        (place,) = graph.rows("place_of_task", task=skipped.id)
        item = item_name(row, row.item)
        if row.item and item == item_name(place, place.item):
            return said, f"to retry both, with the other steps of the item: arkqueue retry {shlex.quote(item)}"
    if row.state == State.REJECTED:
        return said, f"arkqueue skip {name} --as-completed"
    return said, f"arkqueue retry {name}" + (
        " --force, if it may be out of date" if is_outdated(graph, task, [task]) else ""
    )


def is_outdated(graph: Graph, task: int, again: Sequence[int]) -> bool:
    """True if a retry of a task, with which these run again, would be refused without force."""
    try:
        refuse_outdated(graph, graph.rows("lock_tasks", tasks=[task])[0], again, "")
    except Conflict:
        return True
    return False


def after_rejection(graph: Graph, row: Any) -> str:
    """The remedies for a rejected task: another input, a decision to go on without it, or another
    run on the same input.
    """
    (place,) = graph.rows("place_of_task", task=row.id)
    fixed = (
        "fix what was submitted, and submit it under another id"
        if place.trigger == Trigger.SUBMISSION
        else "fix the input in a new commit"
    )
    skip = (
        ""
        if row.waived
        else f"; or let what waits for it go on: arkqueue skip {shlex.quote(task_name(place))} --as-completed"
    )
    return f"{fixed}{skip}; or {again_from(graph, row)}"


def again_from(graph: Graph, row: Any) -> str:
    """The remedy that runs an ended task again, with everything behind it."""
    (place,) = graph.rows("place_of_task", task=row.id)
    here = item_name(place, row.item) if row.item else run_name(place)
    return f"run it again all the same, with what is behind it: arkqueue retry {shlex.quote(here)} --from {row.name}"


def superseded(graph: Graph, row: Any) -> str:
    """The clause that names the task by which another one is superseded."""
    by = graph.rows("place_of_task", task=row.superseded_by)
    return f"is superseded by {task_name(by[0]) if by else PURGED}"
