"""Further runs of a revision that is in the ledger: by a person, or by a schedule (design 5.11, 5.17, 5.18).

Their definitions are the ones that were kept with the revision and are never read again (design 5.2). A run takes its place right after those that the revision has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches

from arkqueue.db.session import Session
from arkqueue.errors import Conflict, Invalid, NotFound
from arkqueue.model import COMMIT, REPORT, Trigger, Workflow
from arkqueue.names import name_of
from arkqueue.plan import Draft, is_for, plan
from arkqueue.queue.graph import Graph, change
from arkqueue.queue.storage import Branch, Content, read, write
from arkqueue.workflow import from_json


def trigger(
    session: Session, revision: int, *, names: Collection[str] | None = None, by: str = "", force: bool = False
) -> int:
    """Make a further run of a revision in the ledger (its id) for a person; returns the run's id.

    ``names``: these tasks alone. A dependency that is not part of the run must have completed at that revision (design 5.18), and nothing may be started that a
    later revision has superseded, unless ``force`` (5.11). Raises ``Conflict`` or ``Invalid``, naming what is in the way.
    """
    archive = session.rows("archive_of_revision", revision=revision)
    if not archive:
        raise NotFound(f"revision {revision}", "there is none")
    return change(
        session,
        [archive[0].archive_id],
        lambda graph: trigger_in(graph, revision, Trigger.MANUAL, names=names, by=by, force=force),
    )


def trigger_in(
    graph: Graph, revision: int, cause: Trigger, *, names: Collection[str] | None, by: str, force: bool = False
) -> int:
    """`trigger`, whatever the cause, inside a transaction that goes on."""
    (row,) = graph.rows("revision_at", revision=revision)
    refuse_stopped(graph, row.archive_id)
    here = str(name_of(row.archive, row.number, branch=row.branch, main=row.main))
    if row.gone:
        raise Conflict(
            here,
            "is no longer on its branch, or its branch or archive is gone",
            "trigger a revision that is there",
        )
    if row.faults:
        raise Conflict(here, "its workflow files have faults", f"see arkqueue show {here}; mend them in a new revision")
    workflow = Workflow(tuple(from_json(task) for task in row.tasks))
    _check_names(here, workflow, names)
    branch = Branch(row.branch_id, row.archive_id, row.branch, row.main, None)
    place = {"branch": branch.id, "number": row.number}
    beside = [("last_run", place), ("completed_at", place)]
    reading = read(graph, branch.id, [workflow], row.number, beside=beside)
    ((last,),), completed = reading.others
    run = last + 1
    planned = plan(
        workflow,
        trigger=cause,
        branch=branch.name,
        changed=(),
        past=reading.known.past,
        names=names,
        completed=[task.name for task in completed],
    )
    chosen = [node.key.name for node in planned.nodes if node.definition is not None]
    if left_out := [name for name in names or () if name not in chosen]:
        fault = f"{', '.join(left_out)}: not for {cause} runs, or not for this branch"
        raise Conflict(here, fault, f"see `on` and `branches` of {left_out[0]}")
    if not chosen:
        raise Conflict(
            here, f"no task of this revision runs on {cause}", f"name the tasks, or add `{cause}` to their `on`"
        )
    if planned.missing:
        lacking = ", ".join(sorted({f"{source} (needed by {task})" for task, source in planned.missing}))
        sources = {source for _, source in planned.missing}
        alone = [d.name for d in workflow.tasks if d.name in sources and not is_for(d, cause, row.branch)]
        remedy = (
            f"see arkqueue explain {here}/{alone[0]}, which is not for {cause} runs" if alone else "add them to the run"
        )
        raise Conflict(here, f"not completed at this revision: {lacking}", remedy)
    if not force:
        refuse_superseded(graph, here, row.branch_id, row.number, run, dict.fromkeys(chosen, 0))
    draft = Draft(branch.id, branch.name, reading.known, reading.ids)
    new = draft.add_run(planned, row.id, row.number, run, cause, by)
    write(graph, branch.archive, [draft], Content(graph.kept, [workflow]))
    if draft.exclusives and (gate := graph.ids("next_gate", branch=branch.id, number=row.number)):
        graph.do("add_exclusive_edges", gate=gate[0], sources=draft.exclusives)
    graph.follow(entering=draft.gates, then=draft.behind)
    return new


def refuse_stopped(graph: Graph, archive: int) -> None:
    """Raise ``Conflict`` where an archive is stopped: its repository may be another one, whose files no task of its ledger may get."""
    for row in graph.rows("why_stopped", archive=archive):
        raise Conflict(f"archive {row.name}", f"is stopped, and nothing of it starts: {row.stopped}")


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
