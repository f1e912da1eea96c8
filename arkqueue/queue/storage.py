"""Reads the tasks of a branch, and writes new ones, each with one round trip for any number of
revisions and names.

    Content   the ids of stored workflows and definitions; new contents are stored, once for all archives
    read      the earlier tasks of the branch, and ids for new rows
    write     the rows of a ``plan.Draft``

Planning itself happens in memory, between reading and writing (``plan.ledger``). Called by
``ledger`` and ``triggering``, whose transaction has locked the archive.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from arkqueue.db import Connection
from arkqueue.db.session import Block, Kept, Session, answers, rows
from arkqueue.errors import Conflict
from arkqueue.model import COMMIT, REPORT, Cancels, Fault, Item, Key, TaskDefinition, TaskId, TaskKind, Workflow
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
from arkqueue.queue.graph import Graph
from arkqueue.workflow import from_json, to_json

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


def repair_definitions(graph: Graph, workflow: Workflow) -> None:
    """Restore the definitions of a workflow that somebody has changed in the database."""
    # An empty cache knows no ids, so all definitions are serialised.
    definitions = Content(Kept(), [replace(workflow, lists={})]).definitions
    graph.do("repair_definitions", **_rows_of_definitions(list(definitions), list(definitions.values())))


def _rows_of_definitions(digests: Sequence[bytes], definitions: Sequence[tuple[str, str]]) -> dict[str, Any]:
    return {
        "digests": digests,
        "bodies": _array_of_texts([body for body, _ in definitions]),
        "cancels": _array_of_texts([cancels for _, cancels in definitions]),
    }


class Content:
    """The workflows and definitions of planned runs, and the ids of the rows that hold them.
    Revisions mostly repeat the contents of earlier ones, and each content is stored once.

    New contents are serialised and, where possible, stored before the archive is locked: they
    belong to no archive.
    """

    def __init__(
        self, kept: Kept, workflows: Iterable[Workflow], lists: Mapping[str, tuple[Item, ...]] = MappingProxyType({})
    ) -> None:
        """``lists``: further lists to store, by their digests."""
        self._kept = kept
        self._since, self._known, self._stored = kept.since, kept.parsed, kept.ids
        """The cache of this process: ids of stored contents by object identity and by digest, and
        the start time of the database server for which they are valid.
        """
        self._parsed: dict[int, tuple[Workflow | TaskDefinition, bytes]] = {}
        """The digests of the objects that are not known by identity. The object stays alive beside
        its digest, so no other object gets its identity.
        """
        self._workflows: dict[bytes, tuple[str, str, bytes, str | None]] = {}
        self._definitions: dict[bytes, tuple[str, str]] = {}
        self._ids: dict[bytes, int] = {}
        self._all = {id(workflow): workflow for workflow in workflows}
        self._lists = {
            **lists,
            **{digest: one.lists[digest] for one in self._all.values() for digest in kept_lists(one)},
        }
        self._freeze()

    def store(self, conn: Connection, since: datetime | None = None) -> None:
        """Find the ids of stored contents, and store the new ones. ``since``: the start time of the
        database server when the archive was locked.
        """
        if since is not None and since != self._since:
            # The server may run a restored database, in which ids mean something else.
            self._since, self._known, self._stored, self._ids = since, {}, {}, {}
            self._freeze()
        if self._lists:
            self._store_lists(conn)
        if any(wanted := self._unknown()):
            self._learn(answers(conn, ("content_ids", _digests(*wanted)))[0])
        if any(wanted := self._unknown()):
            workflows, definitions = wanted
            new_workflows = [self._workflows[digest] for digest in workflows]
            new_definitions = [self._definitions[digest] for digest in definitions]
            keep = (
                (
                    "keep_workflows",
                    {
                        "digests": workflows,
                        "tasks": _array_of_texts([w[0] for w in new_workflows]),
                        "faults": _array_of_texts([w[1] for w in new_workflows]),
                        "files": [w[2] for w in new_workflows],
                        "schemas": _array_of_texts([w[3] for w in new_workflows]),
                    },
                ),
                (
                    "keep_definitions",
                    _rows_of_definitions(definitions, new_definitions),
                ),
            )
            self._learn(answers(conn, *keep, ("content_ids", _digests(*wanted)))[-1])

    def _store_lists(self, conn: Connection) -> None:
        """Store missing lists, and lock all of them. A purge removes lists without a run, and passes over locked ones."""
        there = {row.digest for row in rows(conn, "lock_lists", digests=sorted(self._lists))}
        for digest in sorted(self._lists.keys() - there):
            items = self._lists[digest]
            keep: list[Block] = [("keep_list", {"digest": digest})]
            keep += [
                ("keep_part_of_list", {"digest": digest, "first": first, "items": json.dumps(part)})
                for first, part in _parts(items)
            ]
            answers(conn, *keep)

    @property
    def definitions(self) -> dict[bytes, tuple[str, str]]:
        """The definitions that the cache does not know by identity: by their digests, the body and the
        `cancels` of the stored row.
        """
        return self._definitions

    @property
    def is_stored(self) -> bool:
        """True if everything is stored. A list always counts as not stored, because a purge may
        have removed it.
        """
        return not (self._lists or any(self._unknown()))

    def id_of(self, parsed: Workflow | TaskDefinition) -> int:
        """The id of the row that holds a workflow or a definition."""
        if known := self._known.get(id(parsed)):
            return known[1]
        digest = self._parsed[id(parsed)][1]
        return self._ids.get(digest) or self._stored[digest]

    def keep(self, names: set[tuple[int, str, bool]]) -> None:
        """Add to the cache the rows that this committed transaction stored or found."""
        if self._kept.since == self._since and (self._ids or self._parsed or not names <= self._kept.names):
            parsed: dict[int, tuple[object, int]] = {
                key: (one, self.id_of(one)) for key, (one, _) in self._parsed.items() if not _is_long(one)
            }
            self._kept.keep(self._ids, parsed, names)

    def _unknown(self) -> tuple[list[bytes], list[bytes]]:
        """The digests of workflows and of definitions whose ids are not known."""
        known = self._ids.keys() | self._stored.keys()
        return sorted(self._workflows.keys() - known), sorted(self._definitions.keys() - known)

    def _learn(self, found: Iterable[Any]) -> None:
        self._ids.update((bytes(row.digest), row.id) for row in found)

    def _freeze(self) -> None:
        """Compute the digests of objects that the cache does not know by identity."""
        for workflow in self._all.values():
            if id(workflow) in self._known or id(workflow) in self._parsed:
                continue
            texts = []
            for definition in workflow.tasks:
                text = _frozen(definition)
                texts.append(text)
                if definition.name != COMMIT and not (
                    definition.name == REPORT and definition.is_gate and not definition.hold
                ):
                    digest = _digest(text)
                    self._parsed[id(definition)] = definition, digest
                    cancels = json.dumps([_victim(definition.name, one) for one in definition.cancels])
                    self._definitions[digest] = text, cancels
            faults = _as_json(workflow.faults)
            schema = None if workflow.schema is None else json.dumps(asdict(workflow.schema))
            digest = _digest("\n".join([*texts, faults, *filter(None, [schema])]))
            self._parsed[id(workflow)] = workflow, digest
            files = files_of(workflow) if workflow.list_files else digest
            self._workflows[digest] = f"[{','.join(texts)}]", faults, files, schema


def files_of(workflow: Workflow) -> bytes:
    """A digest of the workflow files of a revision, by which they are accepted (design 5.22). It
    does not cover list files and schema files.
    """
    bare = [
        # Older versions did not count items. Without this, files that they accepted would have
        # other digests.
        replace(one, foreach=replace(one.foreach, items="" if one.foreach.file else one.foreach.items, count=None))
        if one.foreach
        else one
        for one in workflow.tasks
    ]
    schema = [workflow.schema.path] if workflow.schema else []
    return _digest("\n".join([*map(_frozen, bare), _as_json(workflow.faults), *schema]))


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
        "names": _array([key.name for key in keys]), "items": _array([key.item for key in keys]),
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


def lists_removed(source: Graph | Session, revision: int) -> str:
    """When the lists of a revision's workflow files were purged, and by whom: ``removed on … by
    …``.
    """
    told = source.rows("lists_removed", revision=revision)
    return f"removed on {told[0].told}" if told else "removed"


def workflow_of(source: Graph | Session, tasks: Iterable[Any], here: str, revision: int) -> Workflow:
    """The workflow of stored tasks, with its lists. ``here``: the revision's name, for people.
    ``revision``: its id. Raises ``Conflict`` if a list was purged.
    """
    definitions = tuple(from_json(task) for task in tasks)
    digests = sorted({one.foreach.items for one in definitions if one.foreach and not one.foreach.is_of_run})
    lists: dict[str, tuple[Item, ...]] = {}
    if digests:
        there = {row.digest for row in source.rows("lists_there", digests=digests)}
        if there != set(digests):
            fault = f"the items of its lists were {lists_removed(source, revision)}, with the last run that had them"
            raise Conflict(here, fault, "Commit again: the run of the new revision reads its lists anew.")
        for digest in digests:
            lists[digest] = items_of_list(source, digest)
    return Workflow(definitions, lists=lists)


def bound(workflow: Workflow, store: str) -> Workflow:
    """A workflow whose tasks run only on the host that has ``store``, because their run's
    attachments are there. The host's label stands before the tasks' own labels, as
    `labels_in_scratch` puts the label of a scratch folder.
    """
    label = f"@{store}"
    tasks = (one if one.is_gate else replace(one, runs_on=(label, *one.runs_on)) for one in workflow.tasks)
    return replace(workflow, tasks=tuple(tasks))


def items_of_list(source: Graph | Session, digest: str) -> tuple[Item, ...]:
    """The items of a stored list."""
    return tuple(Item(*item) for row in source.rows("lists", digests=[digest]) for item in row.items)


def kept_lists(workflow: Workflow) -> set[str]:
    """The digests of the lists that belong to a workflow, without the lists of a run
    (``submission``).
    """
    return workflow.lists.keys() - {
        one.foreach.items for one in workflow.tasks if one.foreach and one.foreach.is_of_run
    }


LONGEST_PART = 2**20
"""Characters of items in one row of ``list_part``."""


def _parts(items: Sequence[Item]) -> Iterator[tuple[int, Sequence[Item]]]:
    """The items of a list in short pieces, each with the position of its first item. A long piece
    would hold up other transactions.
    """
    first, size = 0, 0
    for place, item in enumerate(items):
        size += len(item.body)
        if size > LONGEST_PART and place > first:
            yield first, items[first:place]
            first, size = place, len(item.body)
    if items:
        yield first, items[first:]


MOST_ITEMS_KEPT = 1_000
"""The most items of a workflow that the cache keeps in memory."""


def _is_long(parsed: Workflow | TaskDefinition) -> bool:
    return isinstance(parsed, Workflow) and sum(map(len, parsed.lists.values())) > MOST_ITEMS_KEPT


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
        blocks.append(("add_revisions", _columns(NewRevision, revisions, workflow=content.id_of)))
    if runs := [row for draft in drafts for row in draft.runs]:
        blocks.append(("add_runs", here | _columns(NewRun, runs, faults=_as_json)))
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
        blocks.append(("add_items", _columns(NewItem, items)))
    if (items or any(draft.planning for draft in drafts)) and not graph.uses_lists:
        blocks.append(("use_lists", here))
    if edges := [row for draft in drafts for row in draft.edges]:
        blocks.append(("add_edges", _columns(NewEdge, edges)))
    tasks = [row for draft in drafts for row in draft.tasks]
    blocks.append(("add_tasks", here | _columns(NewTask, tasks, definition=content.id_of)))
    if ready := [task for draft in drafts for task in draft.ready]:
        blocks.append(("offer", here | {"tasks": _array(ready)}))
        graph.to_wake.add("ready")
    if heads:
        blocks.append(("set_heads", _columns(Head, heads)))
    graph.later(*blocks)
    graph.to_keep.append(lambda: content.keep(names))


def _new_ids(workflows: Sequence[Workflow], branch: int | None = None) -> Block:
    runs, tasks, items = ids_needed(workflows)
    return "new_ids", {"revisions": runs, "runs": runs, "tasks": tasks, "items": items, "branch": branch}


def _as_ids(rows: Sequence[Any]) -> NewIds:
    (ids,) = rows
    return NewIds(iter(ids.revisions), iter(ids.runs), iter(ids.tasks), iter(ids.items))


def _digests(workflows: Sequence[bytes], definitions: Sequence[bytes]) -> dict[str, Sequence[bytes]]:
    return {"workflows": workflows, "definitions": definitions}


def _columns(kind: type[NamedTuple], rows: Sequence[Any], **of: Callable[[Any], Any]) -> dict[str, Any]:
    """Rows turned into columns by the fields of their kind, as ``unnest`` takes them. ``of``:
    functions whose results replace the values of some columns.
    """
    columns: dict[str, Sequence[Any]] = dict(zip(kind._fields, zip(*rows, strict=True), strict=True))
    columns |= {name: [None if one is None else put(one) for one in columns[name]] for name, put in of.items()}
    return {name: _array(column) for name, column in columns.items()}


def _array(column: Sequence[Any]) -> Any:
    """A column as the text of an array. psycopg would adapt the thousands of values of a list one
    by one.
    """
    one = next((value for value in column if value is not None), None)
    if isinstance(one, str):
        return _array_of_texts(column)
    if isinstance(one, datetime):
        return list(column)
    return "{" + json.dumps(column)[1:-1] + "}"


def _array_of_texts(column: Sequence[str | None]) -> str:
    if None not in column:
        plain = '{"' + '","'.join(column) + '"}'  # type: ignore[arg-type]
        if plain.count('"') == 2 * len(column) and "\\" not in plain and "\0" not in plain:
            return plain
    return "{" + ",".join(_quoted(column)) + "}"


def _quoted(column: Sequence[str | None]) -> Iterator[str]:
    quoted: dict[str | None, str] = {None: "NULL"}  # most columns repeat a few words
    for text in column:
        if text not in quoted:
            assert text is not None
            # PostgreSQL's text holds no NUL.
            escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\0", "\ufffd")
            quoted[text] = f'"{escaped}"'
        yield quoted[text]


def _as_json(faults: Iterable[Fault]) -> str:
    return json.dumps([asdict(fault) for fault in faults])


def _victim(name: str, cancels: Cancels) -> dict[str, Any]:
    return {"name": cancels.task or name, "here": not cancels.previous, "unstarted": cancels.only_unstarted}


def _frozen(definition: TaskDefinition) -> str:
    return json.dumps(to_json(definition), sort_keys=True, separators=(",", ":"))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
