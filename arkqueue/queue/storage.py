"""Reads the tasks of a branch, and writes new ones, each with one round trip for any number of
revisions and names.

    read      the earlier tasks of the branch, and ids for new rows
    write     the rows of a ``plan.Draft``, with their ``content``

Planning itself happens in memory, between reading and writing (``plan.ledger``). Called by
``ledger`` and ``triggering``, whose transaction has locked the archive.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from arkqueue.db.columns import array, columns
from arkqueue.db.session import Block, answers
from arkqueue.model import COMMIT, Key, TaskId, TaskKind, Workflow
from arkqueue.names import COMMIT_RUN
from arkqueue.plan import (
    Draft,
    Known,
    NewIds,
    Occurrence,
    asks_for_commit_runs,
    gates_of_list,
    ids_needed,
    items_needed,
    keys_needed,
    waits_for_any_end,
)
from arkqueue.plan.ledger import NewEdge, NewItem, NewRevision, NewRun, NewTask
from arkqueue.queue.content import Content, faults_as_json
from arkqueue.queue.graph import Graph

_KINDS = {str(kind): kind for kind in TaskKind}
FURTHEST = 2**31 - 1
"""A run number higher than any run of a revision has."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch as the caller last read it. ``head``: the id of the ledger's last entry. ``until``:
    the last revision of an import that is under way. `append` compares both with the database.
    """

    id: int
    archive: int
    name: str
    main: bool
    head: int | None
    until: str | None = None


class Head(NamedTuple):
    """The move of a branch's head from ``old`` to ``new``."""

    branch: int
    head: int
    known: int | None


@dataclass(frozen=True, slots=True)
class Reading:
    """The rows that were read to plan runs. ``others``: the rows of the caller's further blocks."""

    known: Known
    ids: NewIds
    others: list[list[Any]]


def ahead_of(branch: int, workflows: Sequence[Workflow], number: int, beside: Sequence[Block] = ()) -> list[Block]:
    """The blocks of `read` for an archive and workflows without lists. They can run in the same
    round trip as the archive's lock (`change`).
    """
    return _blocks(branch, workflows, number, FURTHEST, beside)


def read(
    graph: Graph,
    branch: int,
    workflows: Sequence[Workflow],
    number: int,
    run: int = FURTHEST,
    beside: Sequence[Block] = (),
    *,
    some: bool = False,
    ahead: Sequence[Block] = (),
) -> Reading:
    """Read what is needed to plan runs of these workflows after (number, run).

    ``beside``: further blocks of the caller, read in the same round trip. ``some``: a run may have
    any of the tasks alone. ``ahead``: the blocks of `ahead_of`, whose rows are in `Graph.ahead`. If
    there are lists, everything is read again.
    """
    lists = graph.uses_lists or any(workflow.lists for workflow in workflows)
    if ahead and not lists:
        blocks, answered = ahead, graph.ahead
    else:
        blocks = _blocks(branch, workflows, number, run, beside, some=some, graph=graph if lists else None)
        answered = answers(graph.conn, *blocks)
    found, ids, *others = answered
    in_commits = others.pop(0) if any(map(asks_for_commit_runs, workflows)) else []
    (_, nearest), *_ = blocks
    gone = graph.rows("nearest_purged", **nearest) if ids[0].has_purged else []
    purged = frozenset(Key(row.name, row.item) for row in gone)
    past = {key: occurrence(row) for row in found if (key := Key(row.name, row.item)) not in purged}
    if (commit := past.get(Key(COMMIT))) and commit.place[1] > COMMIT_RUN:
        # A submission's COMMIT waits at no gate. Runs after the submission must wait for the same
        # tasks as without it.
        number, last = commit.place
        for row in graph.rows("behind_submission", branch=branch, number=number, run=last):
            past[Key(COMMIT)] = occurrence(row)
    commits = {Key(row.name, row.item): occurrence(row) for row in in_commits}
    return Reading(Known(past, purged=purged, commits=commits), _as_ids(ids), others)


def _blocks(
    branch: int,
    workflows: Sequence[Workflow],
    number: int,
    run: int,
    beside: Sequence[Block],
    *,
    some: bool = False,
    graph: Graph | None = None,
) -> list[Block]:
    """The blocks that `read` asks for. ``graph``: given if there are lists; the further names and
    items of the branch are then read first.
    """
    different = list({id(workflow): workflow for workflow in workflows}.values())
    wanted = [keys_needed(workflow, some=some, lists=graph is not None) for workflow in different]
    keys = {key for keys in wanted for key in keys or {Key(COMMIT)}}
    ever: set[Key] = set()
    if graph is not None:
        for workflow in different:
            keys |= items_needed(workflow, some=some)
        if None in wanted:
            # The workflows before the last one are planned in the same transaction. Their tasks
            # become the nearest occurrences, and nobody can read them yet.
            between = {task.name for workflow in workflows[:-1] for task in workflow.tasks}
            is_told = not any(map(waits_for_any_end, different))
            ever = _keys_ever(graph, branch, number, run, through=lambda name: is_told and name not in between)
            keys |= ever
    nearest = {
        "branch": branch, "number": number, "run": run, "every_name": None in wanted,
        "names": array([key.name for key in keys]), "items": array([key.item for key in keys]),
    }  # fmt: skip
    items = [key for key in ever if key.item]
    place = {
        "branch": branch,
        "number": number,
        "run": run,
        "gates": [gate.name for gate in gates_of_list("")] if graph is not None else [],
        "names": [key.name for key in items],
        "items": [key.item for key in items],
    }
    of_commits: list[Block] = [("nearest_of_commits", place)] if any(map(asks_for_commit_runs, workflows)) else []
    return [("nearest", nearest), _new_ids(workflows, branch), *of_commits, *beside]


def occurrence(row: Any) -> Occurrence:
    """The task of an earlier run that a row of ``nearest`` describes."""
    place = (row.number, row.run)
    return Occurrence(
        TaskId(row.id), _KINDS[row.kind], row.settled, row.passes, row.produced, row.failed, place, row.is_ignored
    )


def _keys_ever(graph: Graph, branch: int, number: int, run: int, *, through: Callable[[str], bool]) -> set[Key]:
    """The sources of ``PREV:*`` in lists: the gates of all names that the branch ever had, and the
    items that have not settled or block others.

    ``through``: True for a name of which the gate of the nearest list is enough. The items, of which
    there may be ten thousand, are then not read.
    """
    names = [str(row.name) for row in graph.rows("names_ever", branch=branch)]
    gates = {gate for name in names for gate in gates_of_list(name)}
    unsettled = graph.rows(
        "unsettled_items",
        branch=branch,
        names=names,
        number=number,
        run=run,
        gate=gates_of_list("")[0].name,
        through=[name for name in names if through(name)],
    )
    return gates | {Key(row.name, row.item) for row in unsettled}


def new_ids(graph: Graph, workflows: Sequence[Workflow]) -> NewIds:
    """New ids for the runs of branches that have no rows yet."""
    return _as_ids(*answers(graph.conn, _new_ids(workflows)))


def write(graph: Graph, archive: int, drafts: Sequence[Draft], content: Content, heads: Sequence[Head] = ()) -> None:
    """Write all rows of drafts, each of another branch of one archive, and move the heads of
    branches.
    """
    content.store(graph.conn, graph.kept.since)
    here = {"archive": archive}
    graph.made.update(row.id for draft in drafts for row in draft.runs)
    blocks: list[Block] = []
    if revisions := [row for draft in drafts for row in draft.revisions]:
        blocks.append(("add_revisions", columns(NewRevision, revisions, workflow=content.id_of)))
    if runs := [row for draft in drafts for row in draft.runs]:
        blocks.append(("add_runs", here | columns(NewRun, runs, faults=faults_as_json)))
    if uses := [use for draft in drafts for use in draft.lists]:
        of, digests = zip(*uses, strict=True)
        blocks.append(("add_list_uses", {"runs": list(of), "digests": list(digests)}))
    for left in (left for draft in drafts for left in draft.planning):
        blocks.append(("begin_planning", here | left._asdict() | {"lists": json.dumps(left.lists)}))
        graph.to_wake.add("planning")
    names = {(draft.branch, name, commits) for draft in drafts for name, commits in draft.names.items()}
    if not names <= graph.kept.names:
        branches, words, commits = zip(*sorted(names), strict=True)
        blocks.append(("keep_names", {"branches": list(branches), "names": list(words), "commits": list(commits)}))
    if items := [row for draft in drafts for row in draft.items]:
        blocks.append(("add_items", columns(NewItem, items)))
    if (items or any(draft.planning for draft in drafts)) and not graph.uses_lists:
        blocks.append(("use_lists", here))
    if edges := [row for draft in drafts for row in draft.edges]:
        blocks.append(("add_edges", columns(NewEdge, edges)))
    tasks = [row for draft in drafts for row in draft.tasks]
    blocks.append(("add_tasks", here | columns(NewTask, tasks, definition=content.id_of)))
    if ready := [task for draft in drafts for task in draft.ready]:
        blocks.append(("offer", here | {"tasks": array(ready)}))
        graph.to_wake.add("ready")
    if heads:
        blocks.append(("set_heads", columns(Head, heads)))
    graph.later(*blocks)
    graph.to_keep.append(lambda: content.keep(names))


def _new_ids(workflows: Sequence[Workflow], branch: int | None = None) -> Block:
    runs, tasks, items = ids_needed(workflows)
    return "new_ids", {"revisions": runs, "runs": runs, "tasks": tasks, "items": items, "branch": branch}


def _as_ids(rows: Sequence[Any]) -> NewIds:
    (ids,) = rows
    return NewIds(iter(ids.revisions), iter(ids.runs), iter(ids.tasks), iter(ids.items))
