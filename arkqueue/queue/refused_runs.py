"""Refuses runs that a person asks for: a run that has no task, lacks one, cannot start, or would
overwrite newer work (design 5.11, 5.18, 5.19).

``triggering`` calls this module with the planned run.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from typing import Any

from arkqueue.errors import Conflict, Invalid
from arkqueue.model import COMMIT, REPORT, Foreach, TaskKind, Trigger, Workflow
from arkqueue.names import list_name, run_name, task_name
from arkqueue.plan import Plan, is_for
from arkqueue.queue.graph import Graph
from arkqueue.queue.refusals import GO_BACK, MOST_NAMED, refuse_overwriting, refuse_superseded
from arkqueue.text import similar
from arkqueue.workflow import EMPTY


def check_names(here: str, workflow: Workflow, names: Collection[str] | None) -> None:
    known = [d.name for d in workflow.tasks if d.name not in (COMMIT, REPORT)]
    for name in names or ():
        if name not in known:
            near = similar(name, known, 1)
            remedy = f"did you mean {near[0]}?" if near else f"it has: {', '.join(known[:MOST_NAMED]) or 'no tasks'}"
            raise Invalid(here, f"has no task {name!r}", remedy)


def sources_left_out(workflow: Workflow, chosen: Collection[str]) -> set[str]:
    """The dependencies of the chosen tasks that are not chosen, direct ones and those through other
    tasks that are not chosen. Their earlier products are used.
    """
    depends = {d.name: {str(entry.task) for entry in d.depends if not entry.previous} for d in workflow.tasks}
    reached: set[str] = set()
    left = list(chosen)
    while left:
        new = depends.get(left.pop(), set()) - reached - set(chosen)
        reached |= new
        left += new
    return reached & depends.keys() - {COMMIT}


def refuse_idle_without(here: str, workflow: Workflow, chosen: Collection[str], without: Collection[str]) -> None:
    """Raise ``Conflict`` if leaving out a task changes nothing: it is part of the run, or no task
    of the run depends on it.
    """
    depends = {entry.task for d in workflow.tasks if d.name in chosen for entry in d.depends if not entry.previous}
    for name in without:
        if name in chosen:
            fault = f"{name} is a task of this run, and cannot be left out as well (--without {name})"
            raise Conflict(here, fault, f"do not leave out {name}, or name the tasks that are to run")
        if chosen and name not in depends:
            fault = f"no task of this run depends on {name}, so it cannot be left out (--without {name})"
            raise Conflict(here, fault, f"do not leave out {name}")


def refuse_incomplete(
    graph: Graph,
    here: str,
    row: Any,
    workflow: Workflow,
    planned: Plan,
    chosen: Sequence[str],
    cause: Trigger,
    names: Collection[str] | None,
    *,
    is_asked: bool,
) -> None:
    """Raise ``Conflict`` if a planned run has no task, lacks one that was asked for, or has one
    that cannot start.
    """
    is_submission = cause is Trigger.SUBMISSION
    empty = {} if is_submission else _empty_lists(workflow, chosen, cause, row.branch, names)
    if left_out := [name for name in names or () if name not in chosen and name not in empty]:
        fault = f"{', '.join(left_out)}: not for {cause} runs, or not for this branch"
        of_items = {d.name for d in workflow.tasks if d.foreach is not None and d.foreach.is_of_submission}
        remedy = f"see `on` and `branches` of {left_out[0]}" if left_out[0] not in of_items else _submit(row)
        raise Conflict(here, fault, remedy)
    # An old revision of a backfill may have an empty list. Its run completes at once, and the
    # backfill continues.
    if empty and not chosen and not any(foreach.is_of_run for foreach in empty.values()):
        fault = f"{', '.join(empty)}: the list has no items"
        raise Conflict(here, fault, "add items to the list, or name another task")
    if is_submission and not any(
        is_for(d, cause, row.branch) for d in workflow.tasks if d.name not in (COMMIT, REPORT)
    ):
        raise Conflict(
            here,
            "no task of this revision runs on submissions",
            "write `on: submission` in the tasks that a submission is to run, and commit",
        )
    if not chosen and names is None and is_asked and not is_submission:
        alone = [d.name for d in workflow.tasks if is_for(d, cause, row.branch)]
        # A task of the items of a submission can have no other `on`.
        own = [
            d.foreach is not None and d.foreach.is_of_submission
            for d in workflow.tasks
            if d.name not in (COMMIT, REPORT)
        ]
        remedy = _submit(row) if own and all(own) else "add `manual` to their `on`"
        remedy = f"name what is to run: {', '.join(alone[:MOST_NAMED])}" if alone else remedy
        raise Conflict(here, "no task of this revision runs both on commits and by hand", remedy)
    if not (chosen or empty or is_submission):
        raise Conflict(
            here,
            f"no task of this revision runs on {cause}",
            f"name the tasks, or write `on: [commit, {cause}]` in them, and commit",
        )
    if planned.missing:
        lacking = "; ".join(
            f"{task} needs {source}, which has never run on this branch, or was purged"
            for task, source in planned.missing
        )
        sources = sorted({source for _, source in planned.missing})
        options = " ".join(f"--without {source}" for source in sources)
        may_join = all(is_for(d, cause, row.branch) for d in workflow.tasks if d.name in sources)
        remedy = f"leave out the dependency: {options}"
        remedy = f"name {' and '.join(sources)} too, or {remedy}" if may_join else remedy
        if is_submission:
            remedy = f"have {' and '.join(sources)} run first, or write `optional: true` beside the dependency"
        raise Conflict(here, lacking, remedy)
    if planned.lost and is_asked:
        raise _lost(graph, here, planned.lost[0], is_submission=is_submission)
    if planned.unneeded and is_asked and names is not None:
        raise _unneeded(graph, here, planned.unneeded[0])


def _submit(row: Any) -> str:
    """The remedy for tasks that run only on submissions. ``row``: from ``revision_at``."""
    branch = "" if row.main else f" --branch {shlex.quote(row.branch)}"
    return f"hand in a document: arkqueue submit {shlex.quote(row.archive)} FILE{branch}"


def refuse_outdated(
    graph: Graph,
    here: str,
    row: Any,
    run: int,
    planned: Plan,
    cause: Trigger,
    names: Collection[str] | None,
    without: Collection[str],
    again: str | None,
) -> None:
    """Raise ``Conflict`` if a later run has superseded or completed a task of a planned run.

    ``again``: the command that asks for the run, if it is not `arkqueue trigger`.
    """
    keys = [node.key for node in planned.nodes if node.kind is TaskKind.ORDINARY]
    refuse_superseded(graph, here, row.branch_id, row.number, run, dict.fromkeys(keys, 0), cause)
    programs = [
        (node.key.name, node.key.item, row.number, run)
        for node in planned.nodes
        if node.kind is TaskKind.ORDINARY and node.definition is not None and not node.definition.is_gate
    ]
    on = "" if row.main else f" --branch {shlex.quote(row.branch)}"
    named = "".join([*(f" --without {name}" for name in without), *(f" {name}" for name in names or ())])
    back = f"arkqueue trigger {row.archive}{on} --revision {row.number} --force{named}"
    remedy = GO_BACK.format(again or back)
    if cause is Trigger.SUBMISSION:
        remedy = "submit it at the newest revision: leave out --revision"
    refuse_overwriting(graph, here, row.branch_id, programs, remedy, cause)


def _empty_lists(
    workflow: Workflow, chosen: Collection[str], cause: Trigger, branch: str, names: Collection[str] | None
) -> dict[str, Foreach]:
    """The tasks that would run if their lists had items, with their lists."""
    return {
        d.name: d.foreach
        for d in workflow.tasks
        if d.foreach is not None
        and (d.foreach.items == EMPTY or (d.foreach.is_of_run and not workflow.items_of(d)))
        and d.name not in chosen
        and is_for(d, cause, branch)
        and (names is None or d.name in names)
    }


def _lost(graph: Graph, here: str, lost: tuple[str, int], *, is_submission: bool) -> Conflict:
    """The refusal of a run whose task needs the product of a source that will never have one
    (design 5.18).
    """
    task, source = lost
    (row,) = graph.rows("place_of_task", task=source)
    # Only gates have a colon in their names: the gate of a list is `it:completed`.
    asked, is_gate, _ = row.name.partition(":")
    name = list_name(run_name(row), asked) if is_gate else task_name(row)
    what = (
        "failed and was waived" if row.state == "failed" else f"was {'superseded' if row.superseded_by else row.state}"
    )
    remedy = f"name {asked} too, or leave out the dependency: --without {asked}"
    if is_gate:
        fault = f"{task} needs all of {name}, and not all of them completed"
        return Conflict(here, fault, f"arkqueue explain {shlex.quote(name)}" if is_submission else remedy)
    if is_submission:
        remedy = f"run it again: arkqueue retry {name} --force"
    return Conflict(here, f"{task} needs {name}, which {what}", remedy)


def _unneeded(graph: Graph, here: str, unneeded: tuple[str, int]) -> Conflict:
    """The refusal of a run in which a person names a task that runs only after a failure, although
    its source has not failed (design 5.6).
    """
    task, source = unneeded
    (row,) = graph.rows("place_of_task", task=source)
    name = task_name(row)
    what = "is completed" if row.state == "completed" else f"was {'superseded' if row.superseded_by else row.state}"
    fault = f"{task} runs only when {row.name} failed, and {name} {what}"
    return Conflict(here, fault, f"--without {row.name} runs it all the same")
