"""Attachments over HTTP, by resumable uploads (like tus 1.0): first the list of files, then each
file in any number of pieces (design 5.31; decision 25).

    POST  /archives/{name}/uploads    declares the files; with a known id, shows what has arrived
    HEAD  /uploads/{id}/{position}    where to continue
    PATCH /uploads/{id}/{position}    the next piece, appended at once; after the last one the digest is checked
    POST  /archives/{name}/submissions?attachments=true    the run, once all files have arrived

A piece is written as it arrives, and is on the disk when its answer is sent: if the connection,
this server or its host fails, nothing of it is lost. A call holds no database connection, and no
thread of other calls, meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import anyio
from fastapi import APIRouter, Header, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field, StrictInt
from starlette.requests import ClientDisconnect

from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.errors import Busy, Conflict, Invalid, NotFound
from arkqueue.model import ArchiveId, Attachment
from arkqueue.names import end_upload_command, submission_name
from arkqueue.queue import attachments as queue
from arkqueue.queue.claim import installation
from arkqueue.queue.submissions import Upload
from arkqueue.queue.tokens import Scope
from arkqueue.runtime.home import id_in, known_host_id
from arkqueue.web.access import Caller, admit
from arkqueue.web.api.calls import calls
from arkqueue.web.api.sender import sender_id_of
from arkqueue.web.problems import Refused
from arkqueue.workspace import AttachmentFolders, make_root
from arkqueue.workspace.attachments import Full, Part, Taken, Wrong

T = TypeVar("T")

begin_router: APIRouter = calls("submissions", "/archives/{name}/uploads")
router: APIRouter = calls("submissions", "/uploads")

PIECE = 1 << 20
"""Bytes that are written at once, and held in memory for one call."""
MOST_AT_ONCE = 16
"""The most files that are received at once."""
AT_WORK = 4
"""Threads that write files and compute digests."""
PATIENCE = 10.0
"""Seconds for which one call computes a digest; the next call continues."""
DRAINED = 64 << 20
"""Bytes of a refused piece that the server still reads: some senders read the answer only after
they have sent the piece.
"""
TYPES = ("application/offset+octet-stream", "application/octet-stream")
LONGEST_LIST = 8 << 20
"""The most bytes of a list of files."""


class NewAttachment(BaseModel):
    """A file to upload. ``name``: its path among the others, without `..`. ``digest``: its SHA-256,
    in hexadecimal digits.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=4000)
    size: StrictInt = Field(ge=0, le=2**62)
    digest: str = Field(pattern="^[0-9a-f]{64}$")


class NewUpload(BaseModel):
    """The files of one submission."""

    model_config = ConfigDict(extra="forbid")

    attachments: list[NewAttachment]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentView:
    """A file. ``received``: the bytes that have arrived. ``is_there``: True if it is complete and
    its digest is right.
    """

    name: str
    size: int
    digest: str
    received: int
    is_there: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadView:
    """The attachments of a submission. ``full_name``: the submission's name. ``id``: the upload's
    id; None if the submission was made and needs none any more.

    ``is_submitted``: True if its run exists, or existed. ``attachments``: in the order of their
    positions.
    """

    id: int | None
    full_name: str
    is_submitted: bool
    size: int
    attachments: list[AttachmentView]


@dataclass(frozen=True, slots=True)
class _Place:
    """The path of a file, with its declared size and digest."""

    folder: int
    name: str
    size: int
    digest: str
    is_there: bool


@dataclass(slots=True)
class Uploads:
    """Where this process stores attachments. Any thread may call it."""

    session: Session
    configuration: Configuration
    coming: int = 0
    _folders: AttachmentFolders | None = field(default=None, repr=False)
    _threads: anyio.CapacityLimiter | None = field(default=None, repr=False)

    @property
    def folders(self) -> AttachmentFolders:
        if self._folders is None:
            root = self.configuration.scratch
            self._folders = AttachmentFolders(root, installation(self.session), self.configuration.min_free)
        return self._folders

    def with_room(self, size: int) -> Path:
        """The folder for attachments, also for those without an upload yet. Raises `Refused` if it
        has no room for ``size`` more bytes.
        """
        try:
            return self.folders.with_room(size)
        except Full as full:
            raise _full(full) from None

    def store(self) -> str:
        """The store to which this process writes. Raises Conflict if no task would find the files
        there.
        """
        root = self.configuration.scratch
        if self.configuration.scratch_shared:
            make_root(root)
            return id_in(root, "store-id")
        host = known_host_id(self.configuration.home)
        if host is None or not queue.has_managers(self.session, host):
            fault = f"cannot be accepted by this server: {root} is not shared, and no task manager has its home folder, so no task would find them there"
            remedy = "Run the server with the home folder of a task manager (arkqueue serve, for one), or give both one scratch_folder with scratch_shared = true."
            raise Conflict("attachments", fault, remedy)
        make_root(root)
        return host

    def check(self, row: Any) -> None:
        """Raise Conflict if an upload is at another server."""
        if row.store != self.store():
            raise Conflict(f"upload {row.id}", "was begun at another server, which has its files", "Continue it there.")

    def whole(self, archive: ArchiveId, name: str, sender_id: str) -> Upload | None:
        """The complete attachments of a submission, under their names. None: some are missing.
        Raises Conflict if none were begun.
        """
        here = submission_name(name, sender_id)
        for row in self.session.rows("upload_named", archive=archive, sender=sender_id):
            self.check(row)
            files = self.session.rows("attachments", upload=row.id)
            if not all(file.is_there for file in files):
                return None
            self.folders.seal(row.folder, [file.name for file in files])
            return Upload(row.id, row.store, row.digest, row.files, row.size)
        fault = "has no attachments here: none were begun, or nobody continued them for a day"
        raise Conflict(here, fault, f"Declare them first: POST /api/v1/archives/{name}/uploads.")

    def refuse_begun(self, archive: ArchiveId, name: str, sender_id: str | None) -> None:
        """Raise Conflict if attachments of an id are being uploaded: a submission without them
        would lose them.
        """
        if sender_id and self.session.rows("upload_named", archive=archive, sender=sender_id):
            end = end_upload_command(name, sender_id)
            remedy = f"Submit it with them (--attach, or ?attachments=true), or end their upload: {end}"
            raise Conflict(submission_name(name, sender_id), "has attachments that are being uploaded", remedy)

    async def in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run ``work`` on files, in one of the threads that are only for that."""
        if self._threads is None:
            self._threads = anyio.CapacityLimiter(AT_WORK)
        return await anyio.to_thread.run_sync(work, *arguments, limiter=self._threads)

    @asynccontextmanager
    async def opened(self, place: _Place, position: int) -> AsyncIterator[Part]:
        """A file, open for one call at a time."""
        if self.coming >= MOST_AT_ONCE:
            raise Busy("the attachment", "cannot be accepted: too many are being sent", "Send it again in a moment.")
        self.coming += 1
        try:
            part = await self.in_thread(self.folders.open, place.folder, position)
            try:
                yield part
            finally:
                await asyncio.shield(self.in_thread(part.close))
        except Taken:
            remedy = "Ask again in a moment how much has arrived."
            raise Refused(423, place.name, "is being sent by another call", remedy, Retry_After="2") from None
        except FileNotFoundError:
            raise NotFound(place.name, "its upload is gone", "Begin it again.") from None
        finally:
            self.coming -= 1


def uploads_of(request: Request) -> Uploads:
    found: Uploads = request.app.state.uploads
    return found


# Which files

SenderId = Annotated[str | None, Header(description="the id that the submission is to have")]


def _sender_id(key: str | None) -> str:
    if (sender_id := sender_id_of(key)) is None:
        raise Invalid("the request", "has no id", "Send the header Idempotency-Key.")
    return sender_id


@begin_router.post("", status_code=201)
def begin_upload(
    request: Request,
    response: Response,
    name: str,
    body: NewUpload,
    idempotency_key: SenderId = None,
) -> UploadView:
    """Declare the files of a submission. 201: the upload was begun. 200: the id already has these
    files, and the upload continues. An upload that nobody continues for a day is removed.
    """
    caller = admit(request, Scope.OPERATE)
    archive, sender_id = caller.archive(name), _sender_id(idempotency_key)
    uploads = uploads_of(request)
    store = uploads.store()
    files = [Attachment(file.name, file.size, file.digest) for file in body.attachments]
    configuration = caller.configuration
    begun = queue.begin(
        caller.session, archive, name, sender_id, files, store, caller.by,
        most=configuration.attachments_limit, room=configuration.scratch_limit,
    )  # fmt: skip
    if not begun.is_new:
        response.status_code = 200
    if begun.id is None or begun.folder is None:
        return UploadView(
            id=None, full_name=submission_name(name, sender_id), is_submitted=True, size=0, attachments=[]
        )
    if begun.is_new:
        try:
            uploads.folders.check_room(sum(file.size for file in files))
        except Full as full:
            queue.give_up(caller.session, begun.id)
            raise _full(full) from None
    uploads.folders.make(begun.folder)
    response.headers["Location"] = f"/api/v1/uploads/{begun.id}"
    return _view(caller, uploads, _upload(caller, begun.id))


@begin_router.delete("", status_code=204)
def end_upload_of_id(request: Request, name: str, idempotency_key: SenderId = None) -> None:
    """End the upload of an id that has made no run. Its received bytes are removed soon after, and the
    id is free again.
    """
    caller = admit(request, Scope.OPERATE)
    queue.end(caller.session, caller.archive(name), name, _sender_id(idempotency_key))


@router.get("/{id}")
def show_upload(request: Request, id: int) -> UploadView:
    """The attachments of a submission, with the received bytes of each; until its run is purged."""
    caller = admit(request, Scope.READ)
    return _view(caller, uploads_of(request), _upload(caller, id))


@router.delete("/{id}", status_code=204)
def end_upload(request: Request, id: int) -> None:
    """End an upload that has made no run. Its received bytes are removed soon after."""
    caller = admit(request, Scope.OPERATE)
    row = _upload(caller, id)
    if not queue.give_up(caller.session, row.id):
        raise Conflict(f"upload {id}", "belongs to a run", "Delete or purge the run.")


# A file


@router.head("/{id}/{position}")
def offset_of_attachment(request: Request, id: int, position: int) -> Response:
    """Where to continue a file: ``Upload-Offset`` gives the bytes that have arrived,
    ``Upload-Length`` the size of the file.
    """
    caller = admit(request, Scope.OPERATE)
    uploads = uploads_of(request)
    place = _place(caller, uploads, id, position)
    received = place.size if place.is_there else uploads.folders.received(place.folder, position)
    return _told(200, received, place)


@router.patch(
    "/{id}/{position}",
    status_code=204,
    openapi_extra={"requestBody": {"required": True, "content": {TYPES[0]: {}}}},
    responses={202: {"description": "The file has arrived, and its digest is still being computed: send an empty piece at its end to wait for that."}},
)  # fmt: skip
async def continue_attachment(
    request: Request,
    id: int,
    position: int,
    upload_offset: Annotated[int | None, Header(ge=0, description="where the piece begins: the bytes that have arrived")] = None,
) -> Response:  # fmt: skip
    """Append a piece to a file; a piece may end anywhere. 204: ``Upload-Offset`` gives the bytes
    that are on the disk. After the last piece the digest is checked: if it is wrong, the file is
    refused (422), and has to be sent again from its beginning.
    """
    caller = admit(request, Scope.OPERATE)
    uploads = uploads_of(request)
    place = await run_in_threadpool(_place, caller, uploads, id, position)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in TYPES:
        raise Refused(415, "the request", f"has no Content-Type of a piece of a file: {kind[:100]!r}", f"Send it as {TYPES[0]}.")  # fmt: skip
    if upload_offset is None:
        raise Invalid("the request", "does not say where its piece begins", "Send the header Upload-Offset.")
    if place.is_there:
        if upload_offset != place.size:
            _elsewhere(place, place.size)
        if await anext(request.stream()):
            fault = f"is there already, with its {place.size:,} bytes, and more bytes arrive"
            raise Refused(413, place.name, fault, "If the file has changed, submit it with another id.")
        return _told(204, place.size, place)
    if not await run_in_threadpool(queue.goes_on, caller.session, id):
        raise NotFound(f"upload {id}", "has its run already, or is gone")
    async with uploads.opened(place, position) as part:
        if upload_offset != part.offset:
            _elsewhere(place, part.offset)
        await receive(request, uploads, part, place)
        is_there = part.offset == place.size and await _is_whole(uploads, part, place)
        offset = part.offset
    if is_there:
        await run_in_threadpool(queue.is_there, caller.session, id, position)
    return _told(202 if offset == place.size and not is_there else 204, offset, place)


async def receive(request: Request, uploads: Uploads, part: Part, place: _Place) -> None:
    """Append the bytes that arrive to a file, up to its end or to the end of the connection. A piece
    that is longer than the rest of the file is removed as a whole.
    """
    stream, pending, waiting = request.stream(), list[bytes](), 0
    try:
        try:
            async for piece in stream:
                pending.append(piece)
                waiting += len(piece)
                if part.offset + waiting > place.size:
                    # A sender that is wrong about the length may be wrong about all of the piece.
                    await uploads.in_thread(part.take_back)
                    fault = f"is longer than the {place.size:,} bytes that were announced"
                    raise Refused(413, place.name, fault, "If the file has changed, submit it with another id.")
                if waiting >= PIECE:
                    await uploads.in_thread(_write, part, pending)
                    pending, waiting = [], 0
        except ClientDisconnect:
            pass  # the bytes that arrived count
        if pending:
            await uploads.in_thread(_write, part, pending)
    except (Full, Refused) as refused:
        drained = 0
        try:
            async for piece in stream:
                drained += len(piece)
                if drained > DRAINED:
                    break
        except ClientDisconnect:
            pass
        raise (_full(refused) if isinstance(refused, Full) else refused) from None


def _write(part: Part, pieces: Sequence[bytes]) -> None:
    """Append pieces one by one: joining them would cost more than the system calls that it saves."""
    for piece in pieces:
        part.write(piece)


async def _is_whole(uploads: Uploads, part: Part, place: _Place) -> bool:
    """Check the digest of a complete file. False: the digest is still being computed."""
    try:
        return await uploads.in_thread(part.verify, place.digest, time.monotonic() + PATIENCE)
    except Wrong as wrong:
        fault = f"has the SHA-256 {wrong.found}, but its sender declared {place.digest}: nothing of it is kept"
        raise Invalid(place.name, fault, "Send it again. If the file has changed, submit it with another id.") from None


def _full(full: Full) -> Refused:
    return Refused(507, full.thing, full.fault, f"{full.remedy}.")


def _elsewhere(place: _Place, offset: int) -> NoReturn:
    fault = f"continues at byte {offset:,}"
    raise Refused(409, place.name, fault, "Ask with HEAD where to continue.", Upload_Offset=str(offset))


def _told(status: int, offset: int, place: _Place) -> Response:
    headers = {"Upload-Offset": str(offset), "Upload-Length": str(place.size), "Cache-Control": "no-store", "Tus-Resumable": "1.0.0"}  # fmt: skip
    return Response(status_code=status, headers=headers)


def _place(caller: Caller, uploads: Uploads, id: int, position: int) -> _Place:
    row = _upload(caller, id)
    for file in caller.session.rows("attachment", upload=row.id, position=position) if position < 2**31 else ():
        uploads.check(row)
        return _Place(row.folder, file.name, file.size, file.digest, file.is_there)
    raise NotFound(
        f"attachment {position} of upload {id}", f"does not exist: the upload has {row.files}, numbered from 0"
    )


def _upload(caller: Caller, id: int) -> Any:
    """An upload that this token is for."""
    for row in caller.session.rows("upload", id=id) if id < 2**63 else ():
        if caller.token.covers(row.archive):
            if row.run_id is not None:
                caller.run(row.run_id)
            return row
    raise NotFound(
        f"upload {id}", "does not exist: nobody continued it for a day, it was canceled, or its run was purged"
    )


def _view(caller: Caller, uploads: Uploads, row: Any) -> UploadView:
    shown = []
    for file in caller.session.rows("attachments", upload=row.id):
        received = file.size if file.is_there else uploads.folders.received(row.folder, file.position)
        shown.append(
            AttachmentView(
                name=file.name, size=file.size, digest=file.digest, received=received, is_there=file.is_there
            )
        )
    name = submission_name(row.archive, row.sender_id)
    return UploadView(id=row.id, full_name=name, is_submitted=row.run_id is not None, size=row.size, attachments=shown)
