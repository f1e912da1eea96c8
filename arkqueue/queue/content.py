"""Stored workflows, definitions and lists: each content is stored once, for all archives. Called by
``ledger``, ``triggering`` and ``planning``, and by ``storage``, which writes the rows that name it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from arkqueue.db import Connection
from arkqueue.db.columns import array_of_texts
from arkqueue.db.session import Block, Kept, Session, answers, rows
from arkqueue.errors import Conflict
from arkqueue.model import COMMIT, REPORT, Cancels, Fault, Item, TaskDefinition, Workflow
from arkqueue.queue.graph import Graph
from arkqueue.workflow import from_json, to_json


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
                        "tasks": array_of_texts([w[0] for w in new_workflows]),
                        "faults": array_of_texts([w[1] for w in new_workflows]),
                        "files": [w[2] for w in new_workflows],
                        "schemas": array_of_texts([w[3] for w in new_workflows]),
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
            faults = faults_as_json(workflow.faults)
            schema = None if workflow.schema is None else json.dumps(asdict(workflow.schema))
            digest = _digest("\n".join([*texts, faults, *filter(None, [schema])]))
            self._parsed[id(workflow)] = workflow, digest
            files = files_of(workflow) if workflow.list_files else digest
            self._workflows[digest] = f"[{','.join(texts)}]", faults, files, schema


def repair_definitions(graph: Graph, workflow: Workflow) -> None:
    """Restore the definitions of a workflow that somebody has changed in the database."""
    # An empty cache knows no ids, so all definitions are serialised.
    definitions = Content(Kept(), [replace(workflow, lists={})]).definitions
    graph.do("repair_definitions", **_rows_of_definitions(list(definitions), list(definitions.values())))


def _rows_of_definitions(digests: Sequence[bytes], definitions: Sequence[tuple[str, str]]) -> dict[str, Any]:
    return {
        "digests": digests,
        "bodies": array_of_texts([body for body, _ in definitions]),
        "cancels": array_of_texts([cancels for _, cancels in definitions]),
    }


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
    return _digest("\n".join([*map(_frozen, bare), faults_as_json(workflow.faults), *schema]))


def kept_lists(workflow: Workflow) -> set[str]:
    """The digests of the lists that belong to a workflow, without the lists of a run
    (``submission``).
    """
    return workflow.lists.keys() - {
        one.foreach.items for one in workflow.tasks if one.foreach and one.foreach.is_of_run
    }


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


def items_of_list(source: Graph | Session, digest: str) -> tuple[Item, ...]:
    """The items of a stored list."""
    return tuple(Item(*item) for row in source.rows("lists", digests=[digest]) for item in row.items)


def bound(workflow: Workflow, store: str) -> Workflow:
    """A workflow whose tasks run only on the host that has ``store``, because their run's
    attachments are there. The host's label stands before the tasks' own labels, as
    `labels_in_scratch` puts the label of a scratch folder.
    """
    label = f"@{store}"
    tasks = (one if one.is_gate else replace(one, runs_on=(label, *one.runs_on)) for one in workflow.tasks)
    return replace(workflow, tasks=tuple(tasks))


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


def _digests(workflows: Sequence[bytes], definitions: Sequence[bytes]) -> dict[str, Sequence[bytes]]:
    return {"workflows": workflows, "definitions": definitions}


def _victim(name: str, cancels: Cancels) -> dict[str, Any]:
    return {"name": cancels.task or name, "here": not cancels.previous, "unstarted": cancels.only_unstarted}


def _frozen(definition: TaskDefinition) -> str:
    return json.dumps(to_json(definition), sort_keys=True, separators=(",", ":"))


def faults_as_json(faults: Iterable[Fault]) -> str:
    return json.dumps([asdict(fault) for fault in faults])


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
