"""Runs are planned and stored: the ledger grows, and each new revision's graph with it, in one transaction.

The order of a branch is the order of its ledger, which is filled from the repository by compare-and-set on the branch's head; so nothing is
skipped, planned twice, or planned before its predecessor, however hooks arrive (design 2, 5.1). A person or a schedule adds further runs of a revision
that is in the ledger; their definitions are the ones that were kept with the revision (design 5.2).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from arkqueue.errors import Conflict, Invalid, NotFound
from arkqueue.model import COMMIT, REPORT, Fault, Revision, Trigger, Workflow
from arkqueue.names import name_of, parse_name
from arkqueue.queue import schedules
from arkqueue.queue.door import Queue
from arkqueue.queue.graph import Graph, change
from arkqueue.queue.storage import Branch, Storage
from arkqueue.workflow import from_json

__all__ = [
    "MOST_GENERATIONS",
    "Branch",
    "Entry",
    "append",
    "append_in",
    "cancel_unstarted",
    "refuse_superseded",
    "trigger",
]

MOST_GENERATIONS = 10
"""How many commits by tasks may follow from one another (design 5.15)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A revision that is to be appended, with its parsed workflow files and its tree difference to the previous ledger revision."""

    revision: Revision
    workflow: Workflow
    changed: tuple[str, ...] = ()


def append(
    queue: Queue,
    branch: Branch,
    entries: Sequence[Entry],
    *,
    baseline: Entry | None = None,
    dropped: Collection[str] = (),
    author: str | None = None,
) -> int | None:
    """Append revisions to a branch's ledger and store their commit runs.

    ``baseline``: what the branch starts from, where it is new. ``dropped``: revisions that a rewrite took away; what of theirs has not started is canceled
    (design 5.16). ``author``: who commits for tasks. Returns the new head's id; None where somebody else moved the head, or took the branch or its archive
    from what is watched: read again.
    """

    return change(
        queue,
        [branch.archive],
        lambda graph: append_in(graph, branch, entries, baseline=baseline, dropped=dropped, author=author),
    )


def append_in(
    graph: Graph,
    branch: Branch,
    entries: Sequence[Entry],
    *,
    baseline: Entry | None = None,
    dropped: Collection[str] = (),
    author: str | None = None,
) -> int | None:
    """`append` inside a transaction that goes on."""
    (head,) = graph.rows("head", branch=branch.id)
    if head.head_id != branch.head or head.gone:
        return None
    if dropped:
        revisions = graph.ids("drop_revisions", branch=branch.id, names=list(dropped))
        cancel_unstarted(graph, graph.ids("runs_of_revisions", revisions=revisions), "a rewrite of the branch")
    storage = Storage(graph, branch, expected=len(entries) + 1, closing=head.exclusives)
    previous, generation, last = head.revision, head.generation or 0, head.head_id
    for entry in ([baseline] if baseline else []) + list(entries):
        generation = _generation(entry.revision, generation, author)
        last = storage.add_revision(entry.revision, entry.workflow, previous, generation, is_baseline=entry is baseline)
        if entry is baseline:
            storage.add_baseline_run(entry.revision, last)
        else:
            faults = entry.workflow.faults
            if generation > MOST_GENERATIONS:
                faults = (_endless(graph, entry.revision, generation),)
            storage.add_commit_run(entry.revision, last, entry.workflow, entry.changed, faults)
        previous = entry.revision.id
    gates, others = storage.store()
    if last is None or not graph.rows("set_head", branch=branch.id, head=last, known=branch.head):
        return None
    newest = entries[-1] if entries else baseline
    if newest is not None and (head.scheduled or any(task.schedule for task in newest.workflow.tasks)):
        schedules.refresh(graph, branch.id, branch.name, branch.main, newest.workflow)
    graph.follow(entering=gates, then=others, may_fire=False)
    return int(last)


def _generation(revision: Revision, before: int, author: str | None) -> int:
    if revision.origin:
        return revision.origin.generation
    return before + 1 if author and revision.author == author else 0


def cancel_unstarted(graph: Graph, runs: Sequence[int], by: str) -> None:
    """Cancel what has not started in some runs; what runs goes on."""
    tasks = graph.ids("not_started", runs=list(runs))
    graph.rows("lock_tasks", tasks=tasks)
    graph.follow(graph.ids("cancel", tasks=tasks, by=by))


def trigger(
    queue: Queue,
    revision: int,
    *,
    cause: Trigger = Trigger.MANUAL,
    names: Collection[str] | None = None,
    by: str = "",
    force: bool = False,
    graph: Graph | None = None,
) -> int:
    """Make a further run of a revision in the ledger (its id); returns the run's id.

    ``names``: these tasks alone. A dependency that is not part of the run must have completed at that revision (design 5.18), and nothing may be started that a
    later revision has superseded, unless ``force`` (5.11). Raises ``Conflict`` or ``Invalid``, naming what is in the way.
    """

    def work(graph: Graph) -> int:
        (row,) = graph.rows("revision_at", revision=revision)
        archive = graph.rows("archive", archive=row.archive_id)[0].name
        here = str(name_of(archive, row.number, branch=row.branch, main=row.main))
        if row.gone:
            raise Conflict(
                here,
                "is no longer on its branch, or its branch or archive is gone",
                "trigger a revision that is there",
            )
        if row.faults:
            raise Conflict(
                here, "its workflow files have faults", f"see arkqueue show {here}; mend them in a new revision"
            )
        workflow = Workflow(tuple(from_json(task) for task in row.tasks))
        _check_names(here, workflow, names)
        branch = Branch(row.branch_id, row.archive_id, row.branch, row.main, None)
        storage = Storage(graph, branch)
        run = graph.rows("last_run", branch=row.branch_id, number=row.number)[0][0] + 1
        planned = storage.plan(
            workflow,
            row.number,
            run,
            cause,
            (),
            names,
            completed=[c.name for c in graph.rows("completed_at", branch=row.branch_id, number=row.number)],
        )
        chosen = [node.name for node in planned.nodes if node.definition is not None]
        if left_out := [name for name in names or () if name not in chosen]:
            fault = f"{', '.join(left_out)}: not for {cause} runs, or not for this branch"
            raise Conflict(here, fault, f"see `on` and `branches` of {left_out[0]}")
        if not chosen:
            raise Conflict(
                here, f"no task of this revision runs on {cause}", f"name the tasks, or add `{cause}` to their `on`"
            )
        if planned.missing:
            lacking = ", ".join(sorted({f"{source} (needed by {task})" for task, source in planned.missing}))
            raise Conflict(here, f"not completed at this revision: {lacking}", "add them to the run")
        if not force:
            refuse_superseded(graph, here, row.branch_id, row.number, run, dict.fromkeys(chosen, 0))
        new = storage.add_run(planned, row.id, row.number, run, cause, by, ())
        gates, others = storage.store()
        exclusive = storage.exclusive
        if exclusive and (gate := graph.ids("next_gate", branch=row.branch_id, number=row.number)):
            graph.do("add_exclusive_edges", gate=gate[0], sources=exclusive)
        graph.follow(entering=gates, then=others, may_fire=False)
        return new

    if graph is not None:
        return work(graph)
    archive = queue.rows("archive_of_revision", revision=revision)
    if not archive:
        raise NotFound(f"revision {revision}", "there is none")
    return change(queue, [archive[0].archive_id], work)


def refuse_superseded(graph: Graph, here: str, branch: int, number: int, run: int, attempts: Mapping[str, int]) -> None:
    """Raise ``Conflict`` where a later task that cancels one of these has fired already (design 5.11); ``attempts`` by name."""
    later = graph.rows(
        "superseders", branch=branch, number=number, run=run, names=list(attempts), attempts=list(attempts.values())
    )
    if later:
        row = later[0]
        fault = f"{row.name} is superseded by {row.by} of revision {row.number}"
        raise Conflict(here, fault, "force it, or start it at the newest revision")


def _check_names(here: str, workflow: Workflow, names: Collection[str] | None) -> None:
    known = [d.name for d in workflow.tasks if d.name not in (COMMIT, REPORT)]
    for name in names or ():
        if name not in known:
            near = get_close_matches(name, known, 1)
            remedy = f"did you mean {near[0]}?" if near else f"it has: {', '.join(known) or 'no tasks'}"
            raise Invalid(here, f"has no task {name!r}", remedy)


def _endless(graph: Graph, revision: Revision, generation: int) -> Fault:
    """The fault of a run that would go on a chain of commits by tasks (design 5.15), with the chain."""
    chain = [f"revision {revision.id}"]
    origin = revision.origin.task if revision.origin else None
    while origin and len(chain) < MOST_GENERATIONS + 2:
        chain.append(origin)
        try:
            name = parse_name(origin)
        except Invalid:
            break
        rows = graph.rows("origin_of", archive=name.archive, number=name.revision, branch=name.branch)
        origin = rows[0].origin if rows else None
    message = (
        f"its commit is the {generation}th in a chain of commits by tasks, more than {MOST_GENERATIONS}: "
        + " ← ".join(chain)
    )
    return Fault("_workflows", 0, 0, message + ". Let the task commit only when something changed")
