"""Appends revisions to the ledger, and plans and stores the run of each in the same transaction.

A branch's order is the order of its ledger. The ledger is filled from the repository by
compare-and-set on the branch's head. So no revision is skipped, planned twice, or planned before
its predecessor, however hooks arrive (design 2, 5.1).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import TypedDict, Unpack

from arkqueue.archive_settings import read_settings
from arkqueue.db.session import Block, Session
from arkqueue.errors import Invalid
from arkqueue.model import Revision, Workflow
from arkqueue.names import parse_name
from arkqueue.plan import BEGINNING, Draft, Entry, Known, generations, part_of
from arkqueue.plan.ledger import BY_WORKFLOW_AUTHORS
from arkqueue.queue import ending, schedules
from arkqueue.queue.changes import change
from arkqueue.queue.content import Content, files_of
from arkqueue.queue.graph import Graph
from arkqueue.queue.guards import WorkflowGuard
from arkqueue.queue.storage import Branch, Head, ahead_of, new_ids, read, write

__all__ = [
    "MOST_GENERATIONS",
    "Branch",
    "append",
    "append_in",
    "begin",
    "begin_import",
    "end_import",
]

MOST_GENERATIONS = 10
"""The most commits by tasks that may follow from one another (design 5.15). The runs of further
ones are held.
"""
OURSELVES = "arkqueue"
"""The name in the audit log for holds that arkqueue sets, not a person."""


class News(TypedDict, total=False):
    """Options of `append`.

    ``baseline``: the baseline of a new branch. ``dropped``: the ids of revisions that a rewrite
    took away; their unstarted tasks are canceled (design 5.16). ``author``: the author of commits
    by tasks.
    """

    baseline: Entry | None
    dropped: Collection[str]
    author: str | None


def append(session: Session, branch: Branch, entries: Sequence[Entry], **news: Unpack[News]) -> int | None:
    """Append revisions to a branch's ledger and store their commit runs.

    Returns the new head's id. Returns None if the caller has to read again: another process moved
    the head, began or ended an import, stopped the archive, or removed the archive or the branch;
    or a large run of the branch is still being planned.
    """
    added = _added(entries, news)
    content = Content(session.kept, [entry.workflow for entry in added])
    if not content.is_stored:
        session.retrying(content.store)
    ahead: list[Block] = []
    if not (news.get("dropped") or any(entry.workflow.lists for entry in added)):
        ahead = ahead_of(branch.id, [entry.workflow for entry in added], _first(added), [_head_of(branch)])
    work = partial(append_in, branch=branch, entries=entries, content=content, ahead=ahead, **news)
    return change(session, [branch.archive], work, *ahead)


def append_in(
    graph: Graph,
    branch: Branch,
    entries: Sequence[Entry],
    content: Content | None = None,
    ahead: Sequence[Block] = (),
    **news: Unpack[News],
) -> int | None:
    """Like `append`, inside a transaction of the caller. ``content``: the entries' content, if the
    caller has it already. ``ahead``: as in `read`.
    """
    baseline, dropped, author = news.get("baseline"), news.get("dropped", ()), news.get("author")
    if dropped and not _drop(graph, branch, dropped):
        return None
    added = _added(entries, news)
    assert not any(entry.workflow.lists and entry.is_large for entry in entries[:-1]), "planned before the next one"
    workflows = [entry.workflow for entry in added]
    to_read = [_to_read(entry) for entry in added] if any(workflow.lists for workflow in workflows) else workflows
    reading = read(graph, branch.id, to_read, _first(added), beside=[_head_of(branch)], ahead=ahead)
    ((head,),) = reading.others
    if head.head_id != branch.head or head.import_until != branch.until or head.gone or head.stopped or head.planning:
        return None
    if not added:
        return branch.head
    reading.known.exclusives = head.exclusives
    draft = Draft(branch.id, branch.name, reading.known, reading.ids)
    previous, last = head.revision, 0
    chains: dict[int, int] = {}
    is_imported = False
    links = generations((entry.revision for entry in added), head.generation or 0, author)
    guard = None
    settings = read_settings(head.settings, head.archive)
    if settings.workflow_authors:
        is_clean = not head.is_foreign or head.files == head.accepted
        guard = WorkflowGuard(settings.workflow_authors, head.accepted, is_clean=is_clean)
    for entry, generation in zip(added, links, strict=True):
        foreign = guard is not None and (
            guard.refuses_baseline(entry.workflow) if entry is baseline else guard.refuses(entry, previous)
        )
        if entry is baseline:
            last = draft.append_baseline(entry, previous, generation, is_foreign=foreign)
        else:
            is_endless = generation > MOST_GENERATIONS and not entry.workflow.faults
            endless = _hold_endless(graph, branch, entry.revision, generation) if is_endless else None
            hold = (
                BY_WORKFLOW_AUTHORS if foreign else endless or (None if is_imported else head.import_id) or head.hold_id
            )
            last = draft.append(entry, previous, generation, entry.workflow.faults, hold, settings.require_approval)
            if endless:
                chains[endless] = draft.runs[-1].id
        is_imported = is_imported or entry.revision.id == head.import_until
        previous = entry.revision.id
    head_moves = [Head(branch.id, last, branch.head)]
    write(graph, branch.archive, [draft], content or Content(graph.kept, workflows), head_moves)
    for deed, run in chains.items():
        graph.do("set_run_of_deed", entry=deed, run=run)
    if guard and guard.accepted is not None and (guard.accepted != head.accepted or head.inherits):
        graph.do("accept_workflow", branch=branch.id, files=guard.accepted)
    if is_imported:
        graph.do("end_import", branch=branch.id)
    newest = workflows[-1]
    if head.scheduled or any(task.schedule for task in newest.tasks):
        schedules.refresh(graph, branch.id, branch.name, branch.main, newest)
    graph.follow(entering=draft.gates, then=draft.behind, again=draft.lost)
    return last


def _added(entries: Sequence[Entry], news: News) -> list[Entry]:
    """The entries to append: a new baseline before all others."""
    baseline = news.get("baseline")
    return [baseline, *entries] if baseline else list(entries)


def _first(added: Sequence[Entry]) -> int:
    """The number of the first entry; 0 if there is none."""
    return added[0].revision.number if added else 0


def _head_of(branch: Branch) -> Block:
    return "head", {"branch": branch.id}


def _to_read(entry: Entry) -> Workflow:
    """The workflow for which earlier tasks are read: of a large run, only the part that is planned
    first.
    """
    if not entry.is_large:
        return entry.workflow
    return part_of(entry.workflow, [task.name for task in entry.workflow.tasks], BEGINNING)


def begin(graph: Graph, archive: int, starts: Sequence[tuple[Branch, Entry]]) -> None:
    """Append the baselines of new branches, all together. No other tasks follow from them: a
    baseline has only a completed COMMIT.
    """
    if not starts:
        return
    content = Content(graph.kept, [entry.workflow for _, entry in starts])
    ids = new_ids(graph, [Workflow()] * len(starts))
    # These branches have no accepted workflow files
    # yet, so the main branch's count for all of them.
    (head,) = graph.rows("head", branch=starts[0][0].id)
    authors = read_settings(head.settings, head.archive).workflow_authors
    drafts, heads = [], []
    for branch, entry in starts:
        draft = Draft(branch.id, branch.name, Known(), ids)
        (generation,) = generations([entry.revision], 0, None)
        foreign = bool(authors) and files_of(entry.workflow) != head.accepted
        heads.append(Head(branch.id, draft.append_baseline(entry, None, generation, is_foreign=foreign), branch.head))
        drafts.append(draft)
    write(graph, archive, drafts, content, heads)
    if authors and head.accepted is not None:
        for branch, _ in starts:
            graph.do("accept_workflow", branch=branch.id, files=head.accepted)
    for branch, entry in starts:
        if any(task.schedule for task in entry.workflow.tasks):
            schedules.refresh(graph, branch.id, branch.name, branch.main, entry.workflow)


def _drop(graph: Graph, branch: Branch, dropped: Collection[str]) -> bool:
    """Cancel the unstarted tasks of revisions that a rewrite took away. Returns False if the
    branch's head has moved, or its archive is stopped.
    """
    (head,) = graph.rows("head", branch=branch.id)
    if head.head_id != branch.head or head.import_until != branch.until or head.gone or head.stopped:
        return False
    revisions = graph.ids("drop_revisions", branch=branch.id, names=list(dropped))
    ending.begin(graph, branch.archive, graph.ids("runs_of_revisions", revisions=revisions), "a rewrite of the branch")
    return True


def begin_import(session: Session, branches: Sequence[Branch], limit: int) -> bool:
    """Hold all revisions that are appended to branches of an archive from now on, for each branch
    up to its ``until``: one scan has found more than ``limit`` new revisions (design 5.22).

    The import is stored before its first revision is appended, so a crash lets none through.
    Returns False if another process moved a head: the caller reads again.
    """
    first, archive = branches[0], branches[0].archive

    def work(graph: Graph) -> bool:
        now = {
            row.id: row.head_id for row in graph.rows("lock_for_import", branches=[branch.id for branch in branches])
        }
        if any(now.get(branch.id, -1) != branch.head for branch in branches):
            return False
        if len(branches) > 1:
            on = f" on {len(branches):,} branches"
        else:
            on = f"{f' of branch {first.name}' if first.name else ''}, up to {first.until}"
        note = f"one scan has found more than {limit:,} new revisions{on}: they may be an import (import_limit)"
        hold, untils = _keep(graph, "import", archive, note), [branch.until for branch in branches]
        graph.do("begin_import", hold=hold, branches=[branch.id for branch in branches], untils=untils)
        return True

    return change(session, [archive], work)


def end_import(session: Session, branch: Branch) -> None:
    """Forget an import whose last revision a rewrite took off the branch: all of its other revisions have been appended."""

    def work(graph: Graph) -> None:
        (head,) = graph.rows("head", branch=branch.id)
        if head.head_id == branch.head and head.import_until == branch.until:
            graph.do("end_import", branch=branch.id)

    change(session, [branch.archive], work)


def _keep(graph: Graph, verb: str, archive: int, note: str) -> int:
    """Enter in the audit log what arkqueue itself holds, and why."""
    (entry,) = graph.ids("remember", by=OURSELVES, verb=verb, archive=archive, run=None, task=None, note=note)
    return entry


def _hold_endless(graph: Graph, branch: Branch, revision: Revision, generation: int) -> int:
    """The audit log entry for holding a run that continues a chain of commits by tasks (design
    5.15). It names the chain.
    """
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
    note = (
        f"its commit is the {generation}th in a chain of commits by tasks, more than {MOST_GENERATIONS}: "
        f"{' ← '.join(chain)}. Release it only if it is to commit once more; let the task commit only when something changed"
    )
    return _keep(graph, "hold", branch.archive, note)
