"""Further runs of a revision of the ledger: by a person, by a schedule, for a submission, or as
part of a backfill (design 5.11, 5.17, 5.18, 5.31).

The definitions of a run were stored with its revision (for a backfill, with the revision that it
names), and are never read again (design 5.2). A run comes right after the existing runs of its
revision.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from arkqueue.archive_settings import read_settings
from arkqueue.db.session import Session
from arkqueue.errors import Conflict, NotFound
from arkqueue.model import Fault, Item, Key, TaskKind, Trigger, Workflow
from arkqueue.names import name_of
from arkqueue.plan import BEGINNING, MOST_ROWS, Draft, Edge, Occurrence, Plan, plan
from arkqueue.plan.ledger import BY_WORKFLOW_AUTHORS
from arkqueue.queue.changes import change
from arkqueue.queue.content import Content, bound, kept_lists, repair_definitions, workflow_of
from arkqueue.queue.graph import Graph
from arkqueue.queue.guards import Approver, refuse_left_out
from arkqueue.queue.refusals import (
    refuse_stopped,
    refuse_unplanned,
)
from arkqueue.queue.refused_runs import (
    check_names,
    refuse_idle_without,
    refuse_incomplete,
    refuse_outdated,
    sources_left_out,
)
from arkqueue.queue.storage import Branch, Reading, occurrence, read, write
from arkqueue.workflow import digest_of

NONE: Mapping[str, tuple[Item, ...]] = MappingProxyType({})
BEHIND = 40
"""Added to the priority numbers of a backfill's tasks, so that tasks of commits go first."""


def trigger(
    session: Session,
    revision: int,
    *,
    names: Collection[str] | None = None,
    without: Collection[str] = (),
    by: str = "",
    force: bool = False,
    approver: Approver | None = None,
) -> int:
    """Make a further run of a revision in the ledger (its id) for a person. Returns the run's id.

    ``names``: run only these tasks. A dependency that is not part of the run stands for the product
    of its nearest earlier occurrence (design 5.18); for dependencies in ``without``, nothing waits.
    A task that a later revision has superseded or completed is refused, unless ``force`` (5.11,
    5.19). The audit log records who triggered the run, and with which options. Raises ``Conflict``
    or ``Invalid``.
    """
    archive = session.rows("archive_of_revision", revision=revision)
    if not archive:
        raise NotFound(f"revision {revision}", "does not exist")

    def by_hand(graph: Graph) -> int:
        proposal = propose(
            graph, revision, Trigger.MANUAL, names=names, without=without, force=force, approver=approver
        )
        run = store(graph, proposal, by)
        repair_definitions(graph, proposal.workflow)
        note = " ".join([*(["--force"] if force else ()), *(f"--without {name}" for name in without), *(names or ())])
        graph.do("remember", by=by, verb="trigger", archive=archive[0].archive_id, run=run, task=None, note=note)
        return run

    return change(
        session,
        [archive[0].archive_id],
        by_hand,
    )


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a backfill that a run is. ``definitions``: the revision from which the run takes
    its workflow files. ``is_first``: True if a person waits for this run, so that a fault becomes a
    refusal.

    ``again``: the command that makes the backfill.
    """

    backfill: int
    definitions: int
    is_first: bool
    again: str

    def ordered(self, planned: Plan, before: Mapping[Key, Occurrence]) -> Plan:
        """The plan, with additional edges that keep the tasks of a backfill in the order of their
        revisions. ``before``: the task that the backfill planned last, for each key.
        """
        present = {edge[:4] for edge in planned.edges}
        order = [Edge(key, one.task, settled=True, declared=False) for key, one in before.items()]
        return replace(planned, edges=(*planned.edges, *(edge for edge in order if edge[:4] not in present)))


@dataclass(frozen=True, slots=True)
class Proposal:
    """A run that can be made of a revision: planned, but not stored."""

    revision: int
    number: int
    run: int
    cause: Trigger
    branch: Branch
    workflow: Workflow
    reading: Reading
    planned: Plan
    guards: Sequence[str]
    """Globs of the tasks that its archive guards (design 5.22)."""
    hold: int | None
    """The audit log entry of the archive's hold, which also holds the run (design 5.21), or `BY_WORKFLOW_AUTHORS`."""
    without: Collection[str]
    part: Part | None = None

    @property
    def is_large(self) -> bool:
        """True if the run is planned in portions: it has items, and more rows than one transaction stores."""
        rows = len(self.planned.nodes) + len(self.planned.edges)
        return rows > MOST_ROWS and any(node.item is not None for node in self.planned.nodes)

    @property
    def beginning(self) -> Plan:
        """The part of a large run that is stored first."""
        known = self.reading.known
        planned = plan(
            self.workflow,
            trigger=self.cause,
            branch=self.branch.name,
            changed=(),
            past=known.past,
            purged=known.purged,
            commits=known.commits,
            names=self.planned.names,
            without=self.without,
            portion=BEGINNING,
        )
        here, present = {node.key for node in planned.nodes}, {edge[:4] for edge in planned.edges}
        # The edges that keep the tasks of a backfill in order are not part of its workflow.
        order = [edge for edge in self.planned.edges if edge.target in here and not isinstance(edge.source, Key)]
        return replace(planned, edges=(*planned.edges, *(edge for edge in order if edge[:4] not in present)))

    @property
    def products(self) -> set[str]:
        """``TASK SOURCE`` for each task that takes the product of a stored task, or waits for its failure (design 5.18)."""
        return {
            f"{edge.target.name} {edge.source}"
            for edge in self.planned.edges
            if edge.product or (edge.failed and not isinstance(edge.source, Key))
        }

    @property
    def cannot_start(self) -> bool:
        """True if every task of the run would be skipped at once, because products that they need will never exist."""
        skipped = {task for task, _ in self.planned.lost}
        needs = [
            (edge.target.name, edge.source.name)
            for edge in self.planned.edges
            if isinstance(edge.source, Key) and edge.kind == "depends" and not edge.settled
        ]
        while more := {target for target, source in needs if source in skipped} - skipped:
            skipped |= more
        return all(node.key.name in skipped for node in self.planned.nodes if node.kind is TaskKind.ORDINARY)


def propose(
    graph: Graph,
    revision: int,
    cause: Trigger,
    *,
    names: Collection[str] | None,
    without: Collection[str] = (),
    force: bool = False,
    approver: Approver | None = None,
    part: Part | None = None,
    lists: Mapping[str, tuple[Item, ...]] = NONE,
    store: str | None = None,
) -> Proposal:
    """Plan a run of a revision, for any cause, inside a transaction of the caller. ``part``: the
    backfill's part, if the run is for one. ``lists``: the run's own lists, by `Foreach.items`.
    ``store``: the store that has its attachments.

    A run that a person or program asks for is refused if one of its tasks would be skipped at once,
    because a product will never exist. The run of a schedule is stored in that case, and has
    failed.
    """
    (row,) = graph.rows("revision_at", revision=revision)
    (files,) = [row] if part is None else graph.rows("revision_at", revision=part.definitions)
    here, there = map(_revision_name, (row, files))
    _refuse_unusable(graph, row, files, here, there)
    workflow = workflow_of(graph, files.tasks, there, revision if part is None else part.definitions)
    workflow = workflow.with_lists(lists)
    workflow = bound(workflow, store) if store else workflow
    check_names(there, workflow, [*(names or ()), *without])
    branch = Branch(row.branch_id, row.archive_id, row.branch, row.main, None)
    place = {"branch": branch.id, "number": row.number}
    reading = read(graph, branch.id, [workflow], row.number, beside=[("last_run", place)], some=True)
    (((last,),),) = reading.others
    known = reading.known
    planned = plan(
        workflow,
        trigger=cause,
        branch=branch.name,
        changed=(),
        past=known.past,
        purged=known.purged,
        commits=known.commits,
        names=names,
        without=without,
    )
    chosen = list(dict.fromkeys(node.key.name for node in planned.nodes if node.kind is TaskKind.ORDINARY))
    is_asked = cause in (Trigger.MANUAL, Trigger.SUBMISSION) and (part is None or part.is_first)
    guards = read_settings(row.settings, row.archive).require_approval
    if is_asked and guards and cause is not Trigger.SUBMISSION:  # a submission's sender does not choose its tasks
        refuse_left_out(there, files, {*without, *sources_left_out(workflow, chosen)}, approver)
    if is_asked:
        refuse_idle_without(here, workflow, chosen, without)
    refuse_incomplete(graph, here, row, workflow, planned, chosen, cause, names, is_asked=is_asked)
    if is_asked and not force:
        refuse_outdated(graph, here, row, last + 1, planned, cause, names, without, part.again if part else None)
    if part is not None:
        before = planned_before(graph, part, branch.id, planned)
        planned = part.ordered(planned, before)
        known.others = list(before.values())
    return Proposal(
        revision=row.id,
        number=row.number,
        run=last + 1,
        cause=cause,
        branch=branch,
        workflow=workflow,
        reading=reading,
        planned=planned,
        guards=guards,
        hold=BY_WORKFLOW_AUTHORS if row.is_foreign and part is None else row.hold_id,
        without=without,
        part=part,
    )


def _refuse_unusable(graph: Graph, row: Any, files: Any, here: str, there: str) -> None:
    """Raise ``Conflict`` if no run of a revision can be made now. ``files``: the revision whose workflow files the run would have; ``there``: its name."""
    refuse_stopped(graph, row.archive_id)
    if row.gone:
        fault = "is no longer on its branch, or its branch or archive is gone"
        raise Conflict(here, fault, "trigger a revision that exists")
    if files.faults:
        remedy = f"see arkqueue show {there}; fix them in a new revision"
        raise Conflict(there, "its workflow files have faults", remedy)
    refuse_unplanned(graph, here, row.branch_id)


def planned_before(graph: Graph, part: Part, branch: int, planned: Plan) -> dict[Key, Occurrence]:
    """The task that a backfill planned last, for each key of a proposed run."""
    keys = [node.key for node in planned.nodes if node.kind is TaskKind.ORDINARY]
    asked = {"names": [key.name for key in keys], "items": [key.item for key in keys]}
    rows = graph.rows("planned_of_backfill", backfill=part.backfill, branch=branch, **asked)
    return {Key(row.name, row.item): occurrence(row) for row in rows}


def _revision_name(row: Any) -> str:
    return str(name_of(row.archive, row.number, branch=row.branch, main=row.main))


def store(graph: Graph, proposal: Proposal, by: str, hold: int | None = None) -> int:
    """Store a proposed run, and follow up. Returns the run's id. ``hold``: the audit log entry that
    holds the run, if its archive is not on hold.
    """
    branch, reading = proposal.branch, proposal.reading
    draft = Draft(branch.id, branch.name, reading.known, reading.ids)
    hold = hold if proposal.hold is None else proposal.hold
    new = draft.add_run(
        proposal.beginning if proposal.is_large else proposal.planned,
        proposal.revision,
        proposal.number,
        proposal.run,
        proposal.cause,
        by,
        hold=hold,
        guards=proposal.guards,
        backfill=proposal.part.backfill if proposal.part else None,
        behind=BEHIND if proposal.part else 0,
        without=proposal.without,
    )
    own = kept_lists(proposal.workflow)
    handed = {name: items for name, items in proposal.workflow.lists.items() if name not in own}
    lists = {digest_of(items): items for items in handed.values()} if draft.planning else {}
    for left in draft.planning:
        left.lists.update((name, digest_of(items)) for name, items in handed.items())
    draft.lists += [(new, digest) for digest in sorted(own | lists.keys())]
    write(graph, branch.archive, [draft], Content(graph.kept, [proposal.workflow], lists))
    # Runs of submissions hold up no later revision (design 5.14).
    is_closing = draft.exclusives and proposal.cause is not Trigger.SUBMISSION
    if is_closing and (gate := graph.ids("next_gate", branch=branch.id, number=proposal.number)):
        graph.do("add_exclusive_edges", gate=gate[0], sources=draft.exclusives)
    graph.follow(entering=draft.gates, then=draft.behind, again=draft.lost)
    return new


def store_failed(graph: Graph, revision: int, cause: Trigger, reason: str, by: str, backfill: int | None = None) -> int:
    """Store a run that could not start, with the reason as its fault; returns the run's id. The run has only COMMIT and REPORT (design 5.18)."""
    (row,) = graph.rows("revision_at", revision=revision)
    branch, nothing = Branch(row.branch_id, row.archive_id, row.branch, row.main, None), Workflow()
    place = {"branch": branch.id, "number": row.number}
    reading = read(graph, branch.id, [nothing], row.number, beside=[("last_run", place)])
    (((last,),),) = reading.others
    planned = plan(nothing, trigger=cause, branch=branch.name, changed=(), past=reading.known.past)
    draft = Draft(branch.id, branch.name, reading.known, reading.ids)
    faults = [Fault("_workflows", 0, 0, reason)]
    new = draft.add_run(planned, row.id, row.number, last + 1, cause, by, faults, backfill=backfill)
    write(graph, branch.archive, [draft], Content(graph.kept, [nothing]))
    graph.follow(entering=draft.gates, then=draft.behind)
    return new
