"""Submissions over HTTP: send a payload and get a run; show the state of a submission by the
sender's own id (design 5.31).

A payload is written to a file as it arrives, so that only one piece of it is in memory. It is
validated when it is complete.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from arkqueue.archives import submission as submitting
from arkqueue.db.session import Session
from arkqueue.errors import Busy, Invalid
from arkqueue.model import LONGEST_PAYLOAD, ArchiveId, BranchId, PayloadKind, RunId
from arkqueue.names import Name
from arkqueue.queue import submissions as queue
from arkqueue.queue.submissions import Payload, Upload
from arkqueue.queue.tokens import Scope
from arkqueue.runtime.shares import Shares
from arkqueue.states import RunState
from arkqueue.views import find, submissions
from arkqueue.views.outdated import moment
from arkqueue.views.prospects import obstacles
from arkqueue.views.rows import view_of
from arkqueue.views.submissions import SubmissionView
from arkqueue.web.access import Caller, admit
from arkqueue.web.api.calls import DryRun, calls
from arkqueue.web.api.sender import sender_id_of
from arkqueue.web.api.triggering import ProposedAndScanned, as_revision, head_wanted
from arkqueue.web.api.uploads import Uploads, uploads_of
from arkqueue.web.problems import Refused
from arkqueue.workflow.payload import FILE

router: APIRouter = calls("submissions", "/archives/{name}/submissions")

KINDS = {
    "application/json": PayloadKind.JSON,
    "application/yaml": PayloadKind.YAML,
    "text/csv": PayloadKind.CSV,
    "text/plain": PayloadKind.LINES,
}
"""The kind of a payload by its media type."""
NO_SNIFFING = {"X-Content-Type-Options": "nosniff"}
MOST_AT_ONCE = 24
"""The most payloads that are received at once, half of them for one archive. Each has a file until
its run is made, and may have a thread that waits until it is validated.
"""
FOLDER = "submitting"
"""The name of the folder of these files, in the home folder."""
ABANDONED = 24 * 3600.0
"""Seconds after which such a file is removed: the process that wrote it is gone."""

_places = Shares(MOST_AT_ONCE)


@dataclass(frozen=True, slots=True)
class _Received:
    file: Path
    payload: Payload


@router.post("", status_code=201, response_model=SubmissionView | ProposedAndScanned, openapi_extra={"requestBody": {"required": True, "content": {kind: {} for kind in KINDS}}})  # fmt: skip
async def submit(
    request: Request,
    response: Response,
    name: str,
    revision: Annotated[str | None, Query(description="of the ledger, or a SHA or a prefix of one; else the head")] = None,
    branch: Annotated[str | None, Query(description="another than the main branch")] = None,
    hold: Annotated[bool, Query(description="its tasks wait for a release")] = False,
    attachments: Annotated[bool, Query(description="it has the attachments that were begun with its id")] = False,
    dry_run: DryRun = False,
    idempotency_key: Annotated[str | None, Header(description="the sender's own id: the same one makes no second run")] = None,
) -> SubmissionView | ProposedAndScanned | Response:  # fmt: skip
    """Make a run of the tasks with `on: submission`. The body is the payload: JSON, YAML, CSV with
    a header, or lines of text. 201: a run was made. 200: the id already has a run, or had one. 202:
    with `attachments`, the payload has no faults, but attachments are missing: nothing was made;
    send the payload again when all have arrived.
    """
    caller = admit(request, Scope.OPERATE)
    kind = _kind(request)
    sender_id = sender_id_of(idempotency_key)
    if attachments and sender_id is None:
        raise Invalid("the request", "has attachments and no id", "Send the header Idempotency-Key of its uploads.")
    uploads = uploads_of(request)
    await run_in_threadpool(caller.archive, name)
    async with _received(request, name, caller.configuration.home / FOLDER, kind) as received:
        received = replace(received, payload=replace(received.payload, has_attachments=attachments))
        if dry_run:
            response.status_code = 200
            return await run_in_threadpool(_preview, caller, name, received, sender_id, revision, branch, is_held=hold)
        made = await run_in_threadpool(
            _submit, caller, uploads, name, received, sender_id, revision, branch, is_held=hold
        )
    if made is None:
        return Response(status_code=202)
    shown, is_new = made
    if not is_new:
        response.status_code = 200
    if shown.run is not None:
        response.headers["Location"] = f"/api/v1/runs/{shown.run.id}"
    return shown


@router.get("/{id:path}")
def show_submission(request: Request, name: str, id: str) -> SubmissionView:
    """The state of a submission, by its sender's own id, also after its run was purged."""
    caller = admit(request, Scope.READ)
    shown = submissions.submission(caller.session, caller.archive(name), name, id)
    return _seen(caller, shown)


payloads: APIRouter = calls("submissions", "/runs")


@payloads.get("/{id}/payload", response_class=StreamingResponse)
def payload_of_run(request: Request, id: int) -> StreamingResponse:
    """The submitted document of a run, byte for byte."""
    caller = admit(request, Scope.READ)
    return payload_as_file(caller.session, caller.run(id))


def payload_as_file(session: Session, run: RunId) -> StreamingResponse:
    """The payload of a run as a file to save. Raises the error for a run without a submission."""
    shown = submissions.submission_of(session, run, "")
    media_type = next(name for name, kind in KINDS.items() if kind is shown.kind)
    name = f"submission.{FILE[shown.kind]}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Content-Length": str(shown.size)}
    return StreamingResponse(_parts(session, run), media_type=media_type, headers=headers | NO_SNIFFING)


def _parts(session: Session, run: RunId) -> Iterator[bytes]:
    position = 0
    while (part := queue.part(session, run, position)) is not None:
        yield part
        position += 1


def _submit(
    caller: Caller,
    uploads: Uploads,
    name: str,
    received: _Received,
    sender_id: str | None,
    revision: str | None,
    branch: str | None,
    *,
    is_held: bool,
) -> tuple[SubmissionView, bool] | None:
    """The submission, and whether it is new; None if attachments are missing."""
    session = caller.session
    archive = caller.archive(name)
    attached: Callable[[], Upload | None] | None = None
    if received.payload.has_attachments:
        assert sender_id is not None
        attached = partial(uploads.whole, archive, name, sender_id)
    else:
        uploads.refuse_begun(archive, name, sender_id)

    wanted = partial(_wanted, session, archive, name, revision, branch)
    made = submitting.submit(
        session, archive, name, wanted, received.file, received.payload, sender_id=sender_id, by=caller.by, is_held=is_held, most_items=caller.configuration.items_limit,
        attached=attached,
    )  # fmt: skip
    if made.run is None:
        return None
    shown = _seen(caller, submissions.submission_of(session, made.run, name, made.note))
    return (shown if made.is_new else _with_date(shown)), made.is_new


def _preview(
    caller: Caller,
    name: str,
    received: _Received,
    sender_id: str | None,
    revision: str | None,
    branch: str | None,
    *,
    is_held: bool,
) -> SubmissionView | ProposedAndScanned:
    """The run that a submission would make, or the submission that already has its id."""
    session = caller.session
    archive = caller.archive(name)
    found = submitting.preview(
        session, archive, name, partial(_wanted, session, archive, name, revision, branch), received.file, received.payload,
        sender_id=sender_id, is_held=is_held, most_items=caller.configuration.items_limit,
    )  # fmt: skip
    if isinstance(found, submitting.Submitted):
        assert found.run is not None
        return _with_date(_seen(caller, submissions.submission_of(session, found.run, name)))
    run, note = found
    return view_of(run, ProposedAndScanned, note=note, obstacles=obstacles(session, archive, run.tasks))


def _wanted(
    session: Session, archive: ArchiveId, name: str, revision: str | None, branch: str | None
) -> tuple[int, BranchId | None]:
    """The entry of the ledger for a submission, and the branch whose head it must be (None: the
    sender named the revision).
    """
    if revision is None:
        return head_wanted(session, archive, name, branch)
    return find.find_revision(session, archive, Name(name, as_revision(revision), branch)).id, None


def _seen(caller: Caller, shown: SubmissionView) -> SubmissionView:
    """The part of a submission that a caller may see: a deleted run is not visible to everybody."""
    if shown.run is not None:
        caller.run(shown.run.id)
    return shown


def _with_date(shown: SubmissionView) -> SubmissionView:
    """A submission that was there before, with a note that says so if its run still exists."""
    if shown.run is None or shown.run.state is RunState.DELETED:
        return shown
    return replace(shown, note=f"{shown.full_name} was submitted on {moment(shown.made_at)}: no second run was made")


def _kind(request: Request) -> PayloadKind:
    given = request.headers.get("content-type", "")
    kind = KINDS.get(given.partition(";")[0].strip().lower())
    if kind is None:
        fault = f"has the Content-Type {given[:100]!r}, which no payload has" if given else "has no Content-Type"
        raise Invalid("the request", fault, f"Send it with one of: {', '.join(KINDS)}.")
    return kind


@asynccontextmanager
async def _received(request: Request, archive: str, folder: Path, kind: PayloadKind) -> AsyncIterator[_Received]:
    """The payload of a request, in a file that exists inside the ``with`` block."""
    with _places.place(archive, too_many("payload", archive)):
        file = await run_in_threadpool(_open, folder)
        try:
            digest, size = hashlib.sha256(), 0
            async for piece in request.stream():
                size += len(piece)
                if size > LONGEST_PAYLOAD:
                    raise too_long()
                await run_in_threadpool(_keep, file, digest, piece)
            await run_in_threadpool(file.flush)
            yield _Received(Path(file.name), Payload(kind, size, digest.hexdigest()))
        finally:
            await asyncio.shield(run_in_threadpool(file.close))


def too_many(thing: str, archive: str) -> Busy:
    fault = f"cannot be accepted: too many are being submitted to the archive {archive}, or to all archives"
    return Busy(f"the {thing}", fault, "Submit it again in a moment.")


def too_long() -> Refused:
    fault = f"is longer than {LONGEST_PAYLOAD >> 20} MiB"
    return Refused(413, "the payload", fault, "Hand it in as several, or put what it has into files of the archive.")


def _open(folder: Path) -> Any:
    """A new file for one payload. Removes files that killed processes left in the folder."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in os.scandir(folder):
        with suppress(FileNotFoundError):  # the file of another request, which is done
            if left.stat().st_mtime < time.time() - ABANDONED:
                os.unlink(left.path)
    return tempfile.NamedTemporaryFile(dir=folder)


def _keep(file: Any, digest: Any, piece: bytes) -> None:
    file.write(piece)
    digest.update(piece)
