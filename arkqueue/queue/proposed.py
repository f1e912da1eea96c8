"""The preview of a run: the run that `trigger`, a submission or a backfill would make first, with
its refusals. Nothing is stored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import NotFound
from arkqueue.model import TaskKind, Trigger
from arkqueue.names import name_of, run_name, task_in_run
from arkqueue.plan import Draft
from arkqueue.plan.ledger import BY_A_GUARD, BY_ITS_FILE, BY_WORKFLOW_AUTHORS, NewEdge, NewTask
from arkqueue.queue.changes import change
from arkqueue.queue.graph import Graph
from arkqueue.queue.guards import Approver
from arkqueue.queue.lock_fields import as_far_as_known
from arkqueue.queue.triggering import Proposal, propose
from arkqueue.states import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """A dependency of a task in a proposed run. ``state`` None: the dependency would be a task of
    the same run.

    ``is_awaited``: True if the task would wait for the dependency. Otherwise it takes the existing
    product.
    """

    task: str
    state: State | None
    is_awaited: bool


BY_WISH = -3
"""Stands for an audit log entry, which a preview does not make: the sender of a submission wants
the run held.
"""
MOST_STOPPED = 10
"""The number of victims that the answer names for each task of a proposed run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """A task of an earlier run that a task of the proposed run would cancel, or stop if it runs, by
    its ``cancels``.
    """

    task: str
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedTask:
    """A task of a proposed run, one for each item of its list. ``never_ran``: dependencies that
    never ran on this branch; nothing waits for them. ``held``: the reason why it would be held.

    ``stops``: the present victims of its ``cancels``, the newest first; ``more_stopped``: True if
    there are more. ``locks``: their names, with the values of its item; a field that needs the
    output of another task stays in the name. ``runs_on``: as in its workflow file.
    """

    name: str
    item: str
    needs: list[Needed]
    never_ran: list[str]
    held: str | None
    stops: list[Stopped]
    more_stopped: bool
    locks: list[str]
    runs_on: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedRun:
    """A run that would be made. ``full_name``: the run's name, unless another run is made first."""

    full_name: str
    revision: int
    tasks: list[ProposedTask]


def proposed(
    session: Session,
    revision: int,
    *,
    names: Collection[str] | None = None,
    without: Collection[str] = (),
    force: bool = False,
    approver: Approver | None = None,
) -> ProposedRun:
    """The run that `trigger` would make now, with its refusals. Nothing is stored."""
    archive = session.rows("archive_of_revision", revision=revision)
    if not archive:
        raise NotFound(f"revision {revision}", "does not exist")

    def look(graph: Graph) -> ProposedRun:
        proposal = propose(
            graph, revision, Trigger.MANUAL, names=names, without=without, force=force, approver=approver
        )
        return as_proposed(graph, proposal)

    return change(session, [archive[0].archive_id], look)


def _inside(task: Any) -> str:
    """The name of a task inside its run; a gate keeps the name of its row."""
    return f"/{task.name}" if task.kind == TaskKind.GATE else task_in_run(task.name, task.item)


def as_proposed(graph: Graph, proposal: Proposal, *, is_held: bool = False) -> ProposedRun:
    """The run that a proposal would become. ``is_held``: a person wants it held (`submit --hold`)."""
    branch, reading = proposal.branch, proposal.reading
    draft = Draft(branch.id, branch.name, reading.known, reading.ids)
    hold = BY_WISH if is_held and proposal.hold is None else proposal.hold
    guards = proposal.guards
    told = proposal.revision, proposal.number, proposal.run, proposal.cause, ""
    draft.add_run(proposal.planned, *told, hold=hold, guards=guards)
    own = {task.id: task for task in (NewTask(*fields) for fields in draft.tasks)}
    bodies = {item.id: item.body for item in draft.items}
    into: dict[int, list[NewEdge]] = defaultdict(list)
    for edge in (NewEdge(*fields) for fields in draft.edges):
        if edge.kind in ("depends", "exclusive") and edge.declared:
            into[edge.target].append(edge)
    stored = {e.source for edges in into.values() for e in edges if e.source not in own}
    there = {row.id: row for row in graph.rows("task_places", tasks=sorted(stored))}
    (row,) = graph.rows("revision_at", revision=proposal.revision)

    def needed(edge: NewEdge) -> Needed:
        if edge.source in own:
            inside = own[edge.source]
            return Needed(task=_inside(inside)[1:], state=None, is_awaited=not edge.met)
        at = there[edge.source]
        name = run_name(at) + _inside(at)
        return Needed(task=name, state=State(at.state), is_awaited=not edge.met)

    ran = {key.name for key in (*reading.known.past, *reading.known.purged)} | {task.name for task in own.values()}
    ran |= {name.rpartition(":")[0] for name in ran}  # the gate of a list stands for the list
    stopped = _stopped(graph, proposal, own.values())
    tasks = [
        ProposedTask(
            name=task.name,
            item=task.item,
            needs=[needed(edge) for edge in into[task.id]],
            never_ran=[str(d.task) for d in task.definition.depends if not d.previous and d.task not in ran],
            held=_why_held(task.hold),
            stops=stopped[task.id][:MOST_STOPPED],
            more_stopped=len(stopped[task.id]) > MOST_STOPPED,
            locks=[as_far_as_known(name, bodies.get(task.item_id or 0)) for name in task.definition.lock],
            runs_on=list(task.definition.runs_on),
        )
        for task in own.values()
        if task.definition is not None and task.kind is TaskKind.ORDINARY
    ]
    name = name_of(row.archive, proposal.number, proposal.run, branch=row.branch, main=row.main)
    return ProposedRun(full_name=str(name), revision=proposal.number, tasks=tasks)


def _stopped(graph: Graph, proposal: Proposal, tasks: Iterable[NewTask]) -> dict[int, list[Stopped]]:
    """The present victims of the ``cancels`` of a proposed run: for each task at most one more than
    the answer names.
    """
    entries = [
        (task.id, victim.task or task.name, task.item, victim.only_unstarted)
        for task in tasks
        if task.definition is not None
        for victim in task.definition.cancels
        if victim.previous
    ]
    found: dict[int, list[Stopped]] = defaultdict(list)
    if not entries:
        return found
    columns = zip(("cancelers", "names", "items", "unstarted"), map(list, zip(*entries, strict=True)), strict=True)
    place = {"branch": proposal.branch.id, "number": proposal.number, "run": proposal.run, "most": MOST_STOPPED + 1}
    for row in graph.rows("would_be_canceled", **dict(columns), **place):
        found[row.canceler].append(Stopped(task=run_name(row) + _inside(row), state=State(row.state)))
    return found


def _why_held(hold: int | None) -> str | None:
    """The reason why a task would be held, in words. A number that stands for no other reason is
    the audit log entry of the archive's hold.
    """
    causes = {BY_ITS_FILE: "its workflow file (hold: true)", BY_A_GUARD: "require-approval"}
    causes[BY_WISH] = "--hold"
    causes[BY_WORKFLOW_AUTHORS] = "workflow-authors, as its workflow files are not accepted"
    return None if hold is None else causes.get(hold, "the hold of its archive")
