"""A submission, from its payload in a file to its run (design 5.31).

    known id → its run
    attachments that are not all there → nothing, once the payload is judged
    else scan the repository → judge the payload by the revision's tasks → store it → make the run

Called by the API for a person or a program, who waits meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from arkqueue.archives.scan import scan
from arkqueue.db.session import Session
from arkqueue.errors import Busy, Conflict, InvalidPayload
from arkqueue.model import ArchiveId, BranchId, Item, RunId, Trigger
from arkqueue.plan import is_for
from arkqueue.queue import submissions
from arkqueue.queue.proposed import ProposedRun
from arkqueue.queue.submissions import LONGEST_PART, Payload, Upload
from arkqueue.repository.reader import payloads
from arkqueue.runtime.shares import Shares
from arkqueue.workflow import from_json
from arkqueue.workflow.nodes import MAX_FAULTS
from arkqueue.workflow.parsing import MOST_STEPS
from arkqueue.workflow.payload import SCHEMA

MOST_JUDGED = 8
"""The most payloads that are judged at once, half of them of one archive."""
PATIENCE = 30.0
"""The most seconds that a caller waits until its payload is judged."""
TRIES = 5
"""How often a payload is judged again because the branch has got another head in the meantime."""

_places = Shares(MOST_JUDGED)


@dataclass(frozen=True, slots=True)
class Submitted:
    """The result of `submit`. ``run``: the run that was made, or (not ``is_new``) that existed
    already and may be purged by now. None: attachments are missing, and the payload has no faults.
    ``note``: why the newest commits may be missing, for a person.
    """

    run: RunId | None
    is_new: bool
    note: str = ""


def submit(
    session: Session,
    archive: ArchiveId,
    name: str,
    wanted: Callable[[], tuple[int, BranchId | None]],
    file: Path,
    payload: Payload,
    *,
    sender_id: str | None,
    by: str,
    is_held: bool,
    most_items: int,
    attached: Callable[[], Upload | None] | None = None,
) -> Submitted:
    """Make the run of a submission whose payload is in a file.

    ``name``: the archive's name. ``most_items``: the most items of a list. ``wanted``: finds the
    entry of the ledger, and the branch whose head it has to be (None: it need not be a head).
    ``attached``: finds the attachments, if the submission has some; it returns None while not all
    of them are there. Raises ``InvalidPayload`` with all faults of the payload, and the errors of
    `queue.submissions.submit`. After an error nothing is planned, and the id stays free.
    """
    if before := submissions.found(session, archive, sender_id, payload, name):
        return Submitted(RunId(before.run_id), is_new=False)
    note = scan(session, archive)
    stored: int | None = None
    is_over = False
    try:
        for _ in range(TRIES):
            revision, head_of = wanted()
            lists = _judge(session, name, revision, file, payload, most_items)
            try:
                upload = attached() if attached else None
            except Conflict:
                # Another call may have made the run with these attachments in the meantime.
                if before := submissions.found(session, archive, sender_id, payload, name):
                    return Submitted(RunId(before.run_id), is_new=False)
                raise
            if attached and upload is None:
                return Submitted(None, is_new=False, note=note)
            if stored is None:
                stored = submissions.store_payload(session, _parts(file))
            made = submissions.submit(
                session, archive, name, revision, payload, stored, lists,
                sender_id=sender_id, by=by, is_held=is_held, head_of=head_of, upload=upload,
            )  # fmt: skip
            if made is not None:
                is_over = True
                return Submitted(RunId(made[0]), made[1], note)
        raise Conflict(
            f"archive {name}", "gets so many commits that its head is always another one", "Submit it again."
        )
    finally:
        if stored is not None and not is_over:
            submissions.leave(session, stored)


def preview(
    session: Session,
    archive: ArchiveId,
    name: str,
    wanted: Callable[[], tuple[int, BranchId | None]],
    file: Path,
    payload: Payload,
    *,
    sender_id: str | None,
    is_held: bool,
    most_items: int,
) -> Submitted | tuple[ProposedRun, str]:
    """The run that `submit` would make, with its note; or the run that the id already has. Raises
    the errors of `submit`. Nothing is stored, and attachments are not needed.
    """
    if before := submissions.found(session, archive, sender_id, payload, name):
        return Submitted(RunId(before.run_id), is_new=False)
    note = scan(session, archive)
    revision, _ = wanted()
    lists = _judge(session, name, revision, file, payload, most_items)
    return submissions.proposed(session, archive, revision, lists, is_held=is_held), note


def _judge(
    session: Session, name: str, revision: int, file: Path, payload: Payload, most_items: int
) -> dict[str, tuple[Item, ...]]:
    """The items of a payload for the tasks of a revision of an archive. Raises ``InvalidPayload`` with all
    faults.
    """
    (row,) = session.rows("revision_at", revision=revision)
    chosen = [one for one in map(from_json, row.tasks) if is_for(one, Trigger.SUBMISSION, row.branch)]
    wanted = [one.foreach for one in chosen if one.foreach is not None and one.foreach.is_of_submission]
    fault = f"cannot be validated yet: too many payloads of the archive {name}, or of all archives, are being validated"
    with _places.place(name, Busy("the payload", fault, "Try again in a moment."), PATIENCE):
        lists, faults = payloads.judge(file, payload.kind, [foreach.key for foreach in wanted], most_items, row.schema)
    if faults:
        path, remedy = row.schema["path"] if row.schema else "", ""
        if any(fault.path == SCHEMA for fault in faults):
            remedy = (
                f"A committer of the archive {name} has to correct the schema {path}. Then submit the payload again."
            )
        told = [str(replace(fault, path=path) if fault.path == SCHEMA else fault) for fault in faults]
        raise InvalidPayload("the payload", told, are_all=len(faults) < MAX_FAULTS, remedy=remedy)
    tasks, most = sum(len(lists[foreach.items]) for foreach in wanted), MOST_STEPS * most_items
    if tasks > most:
        raise InvalidPayload("the payload", [f"its items would have {tasks:,} tasks, more than {most:,}; give fewer"])
    return lists


def _parts(file: Path) -> Iterator[bytes]:
    with file.open("rb") as stream:
        while data := stream.read(LONGEST_PART):
            yield data
