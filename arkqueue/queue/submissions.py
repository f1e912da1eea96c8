"""Submissions: a document that a person or a program hands in becomes a run of the tasks with ``on:
submission`` (design 5.31).

    store_payload   in parts, before anything is locked
    submit          the run and the submission, in one transaction that has locked the archive

So if two submissions come with the same id at once, the second finds the run of the first. The
digest of the payload is stored with the id for ever. The caller has validated the payload against
the workflow files of the named revision. If the branch has another head by then, `submit` stores
nothing and says so.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from arkqueue.db import Connection
from arkqueue.db.session import Session, execute, rows
from arkqueue.errors import Conflict
from arkqueue.model import COMMIT, ArchiveId, Attached, Handed, Item, Key, PayloadKind, RunId, TaskId, Trigger
from arkqueue.names import submission_name
from arkqueue.queue import attachments
from arkqueue.queue.changes import change
from arkqueue.queue.graph import Graph
from arkqueue.queue.proposed import ProposedRun, as_proposed
from arkqueue.queue.triggering import propose, store

LONGEST_PART = 2**20
"""The most bytes of a payload in one row, which one transaction stores."""
UNTAKEN = 6 * 3600.0
"""Seconds after which a payload without a run is deleted: the process that stored it is gone."""
MOST_SWEPT, MOST_PARTS = 20, 32
"""The most payloads that one step deletes, and the most parts of them."""


@dataclass(frozen=True, slots=True)
class Payload:
    """The identity of a payload. ``digest``: SHA-256, in hexadecimal digits; ``size``: bytes.
    ``has_attachments``: files were handed in beside it.
    """

    kind: PayloadKind
    size: int
    digest: str
    has_attachments: bool = False


@dataclass(frozen=True, slots=True)
class Upload:
    """The attachments of a new submission. ``id``: the id of their upload. ``store``: the store
    that has them, where the run's tasks run. ``digest``: identifies the set of files. ``files``,
    ``size``: their number, and their bytes together.
    """

    id: int
    store: str
    digest: str
    files: int = 0
    size: int = 0


def found(session: Session | Graph, archive: ArchiveId, sender_id: str | None, payload: Payload, name: str) -> Any:
    """The submission that already has an id; None if there is none. Raises ``Conflict`` if it had
    another payload. ``name``: the archive's name.
    """
    for row in session.rows("submission_named", archive=archive, sender=sender_id) if sender_id is not None else ():
        if (row.digest, row.kind) != (payload.digest, payload.kind):
            raise _other(name, row, "with another payload")
        if (row.attachments is not None) is not payload.has_attachments:
            raise _other(name, row, "without attachments" if payload.has_attachments else "with attachments")
        return row
    return None


def _other(name: str, row: Any, how: str) -> Conflict:
    fault = f"was submitted on {row.made_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC {how}"
    here, remedy = submission_name(name, row.sender_id), "Give a new submission an id of its own."
    if row.deleted_at is not None:
        fault += ", and its run was deleted"
        remedy += f" To bring that run back: arkqueue undelete {shlex.quote(here)}"
    return Conflict(here, fault, remedy)


def store_payload(session: Session, parts: Iterable[bytes]) -> int:
    """Store a payload that belongs to no run yet. Returns its id. Each part has at most
    `LONGEST_PART` bytes.
    """
    (new,) = session.rows("new_payload")
    for position, data in enumerate(parts):
        session.do("add_payload_part", payload=new.id, position=position, data=data)
    return int(new.id)


def leave(session: Session, payload: int) -> None:
    """Let a stored payload of which no run was made be deleted."""
    session.do("leave_payload", payload=payload)


def submit(
    session: Session,
    archive: ArchiveId,
    name: str,
    revision: int,
    payload: Payload,
    stored: int,
    lists: Mapping[str, tuple[Item, ...]],
    *,
    sender_id: str | None,
    by: str,
    is_held: bool = False,
    head_of: int | None = None,
    upload: Upload | None = None,
) -> tuple[int, bool] | None:
    """Make the run of a submission, at a revision in the ledger. Returns the run's id, and whether
    it is new.

    ``stored``: the id of the payload. ``lists``: the run's items, by `Foreach.items`. ``is_held``:
    the run waits for a release. ``head_of``: the branch whose head ``revision`` has to be; None:
    the sender named the revision. If the branch has another head by now, nothing is stored, and the
    result is None. ``upload``: the complete attachments. Raises the errors of `triggering.trigger`.
    """

    def work(graph: Graph) -> tuple[int, bool] | None:
        if before := found(graph, archive, sender_id, payload, name):
            graph.do("leave_payload", payload=stored)
            return before.run_id, False
        if head_of is not None and graph.rows("head", branch=head_of)[0].head_id != revision:
            return None
        proposal = propose(
            graph, revision, Trigger.SUBMISSION, names=None, lists=lists, store=upload.store if upload else None
        )
        if not graph.rows("take_payload", payload=stored):
            raise Conflict(f"archive {name}", "took too long to store the payload", "Submit it again.")
        entry = {"by": by, "archive": archive, "task": None}
        hold = (
            graph.ids("remember", verb="hold", run=None, note="submitted with --hold", **entry)[0] if is_held else None
        )
        run = store(graph, proposal, by, hold)
        if hold is not None:
            graph.do("set_run_of_deed", entry=hold, run=run)
        behind = proposal.reading.known.past.get(Key(COMMIT))
        graph.do(
            "add_submission", archive=archive, sender=sender_id, run=run, commit=behind and behind.task,
            kind=payload.kind, size=payload.size, digest=payload.digest, payload=stored, by=by,
            attachments=upload.digest if upload else None,
        )  # fmt: skip
        if upload is not None:
            attachments.take(graph, upload.id, run)
        told = f"{submission_name(name, sender_id)}: " if sender_id is not None else ""
        files = f"{upload.files:,} file{'s' * (upload.files != 1)} of {upload.size:,} bytes" if upload else ""
        beside = f", and attachments, {files}" if files else ""
        note = f"{told}{payload.size:,} bytes of {payload.kind}, SHA-256 {payload.digest}{beside}"
        graph.do("remember", verb="submit", run=run, note=note, **entry)
        return run, True

    return change(session, [archive], work)


def proposed(
    session: Session, archive: ArchiveId, revision: int, lists: Mapping[str, tuple[Item, ...]], *, is_held: bool = False
) -> ProposedRun:
    """The run that `submit` would make now, with its refusals. Nothing is stored."""

    def look(graph: Graph) -> ProposedRun:
        proposal = propose(graph, revision, Trigger.SUBMISSION, names=None, lists=lists)
        return as_proposed(graph, proposal, is_held=is_held)

    return change(session, [archive], look)


def handed(session: Session, task: TaskId) -> Handed | None:
    """The submission for which a task's run was made; None if it was not made for one."""
    for row in session.rows("submission_of_task", task=task):
        attached = None if row.folder is None else Attached(row.folder, row.is_removed)
        return Handed(PayloadKind(row.kind), row.sender_id, attached)
    return None


def part_for(session: Session, task: TaskId, position: int) -> bytes | None:
    """A part of the payload of a task's run; None after the last part."""
    for row in session.rows("submission_of_task", task=task):
        return part(session, RunId(row.run_id), position)
    return None


def part(session: Session, run: RunId, position: int) -> bytes | None:
    """A part of the payload of a run; None after the last part."""
    found = session.rows("payload_part", binary=True, run=run, position=position)
    return bytes(found[0].data) if found else None


def sweep(session: Session) -> None:
    """Delete payloads without a run, some parts with each step."""

    def step(connection: Connection) -> bool:
        left = [row.id for row in rows(connection, "left_payloads", age=UNTAKEN, most=MOST_SWEPT)]
        if left:
            parts = execute(connection, "delete_payload_parts", {"payloads": left, "most": MOST_PARTS}).rowcount
            if parts < MOST_PARTS:
                execute(connection, "forget_payloads", {"payloads": left})
        return bool(left)

    while session.retrying(step):
        pass
