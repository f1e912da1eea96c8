"""The form that hands in a document: a file, or a text that is written in the form. The API's own
call checks the document and makes the run (`web.api.submissions`).

A visitor who may not submit is refused before the file is read. A file goes to the disk as it
arrives. All faults of the document are shown above the filled form. Browsers do not keep the chosen
file, so it has to be chosen again.

The button “Show what would run” checks the document, and leads to a page with the run that would be
made. Nothing is stored. The form of that page carries the document, up to `LONGEST_CARRIED`. A
longer document and attachments have to be chosen again there, and have to be the same.

Attachments come with the form, up to `LONGEST_ATTACHED`. They are then handed to the API's own
calls, which check their names (`web.api.uploads`). More and larger attachments need the command
line, which continues after a connection has broken.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any, Final
from uuid import uuid4

from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import FormData, Headers, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Message

from arkqueue.errors import ArkqueueError, Conflict, Invalid, InvalidPayload, NotFound
from arkqueue.model import LONGEST_PAYLOAD, PayloadKind
from arkqueue.queue.tokens import Scope
from arkqueue.runtime.shares import Shares
from arkqueue.views.submissions import SubmissionView, for_submissions
from arkqueue.web.access import admit
from arkqueue.web.api.submissions import KINDS, MOST_AT_ONCE, submit, too_long, too_many
from arkqueue.web.api.triggering import ProposedAndScanned
from arkqueue.web.api.uploads import (
    TYPES,
    NewAttachment,
    NewUpload,
    Uploads,
    begin_upload,
    continue_attachment,
    end_upload,
)
from arkqueue.web.pages.answer import HEADERS, Shown, answer, asked, refused_page, sign_in_first
from arkqueue.web.pages.forms import valid
from arkqueue.web.pages.proposing import MOST_TASKS
from arkqueue.web.pages.visitor import SignInNeeded, Visitor, check_form, check_site, visitor_of
from arkqueue.web.problems import Refused

LONGEST_TEXT: Final = 1 << 20
"""The most bytes of a text that is written in the form; a longer one has to be a file."""
LONGEST_CARRIED: Final = 700 << 10
"""The most bytes of a file that the page of its preview carries. In base64, the file is shorter
than `LONGEST_TEXT`.
"""
BESIDE: Final = 64 << 10
"""The most bytes of a form besides its document: names of fields, and borders between them."""
LONGEST_ATTACHED: Final = 256 << 20
"""The most bytes of all attachments of a form. Until the form is complete, they are on the disk of
attachments.
"""
LONGEST_FORM: Final = LONGEST_PAYLOAD + LONGEST_ATTACHED + BESIDE
MOST_ATTACHED: Final = 50
"""The most attachments of a form."""
PIECE: Final = 1 << 20
BY_NAME: Final = {"json": PayloadKind.JSON, "yaml": PayloadKind.YAML, "yml": PayloadKind.YAML, "csv": PayloadKind.CSV, "txt": PayloadKind.LINES}  # fmt: skip
"""The formats of documents, by the suffixes of their names."""

_places = Shares(MOST_AT_ONCE)
"""The forms that are received at once: each may have a file on the disk."""


def submit_page(visitor: Visitor, request: Request) -> Shown:
    """The form. ``?branch=``: another branch than the main one."""
    return _shown(visitor, request.path_params["name"], {"branch": asked(request, "branch")}, [])


async def submit_form(request: Request) -> Response:
    """Make a run from the form's document, and show it; or show the form again with the faults."""
    visitor: Visitor | None = None
    name = request.path_params["name"]
    try:
        visitor = (await run_in_threadpool(visitor_of, request)).at(name)
        request.state.token = visitor.caller.token
        check_site(request, visitor)
        await run_in_threadpool(admit(request, Scope.OPERATE).archive, name)
        with _places.place(name, too_many("document", name)):
            counted = Request(request.scope, _Counted(request).receive)
            async with _form(counted, request.app.state.uploads) as form:
                check_form(request, visitor, _text(form, "form"))
                given, faults = _given(form), list[str]()
                try:
                    if form.get("preview"):
                        preview = await _previewed(request, name, form)
                        return await run_in_threadpool(answer, request, visitor, preview)
                    if not form.get("change"):
                        made = await _submitted(request, name, form)
                        if isinstance(made, Response):
                            return made
                        return await run_in_threadpool(answer, request, visitor, made)
                except InvalidPayload as error:
                    faults = error.faults
                except (Invalid, Conflict, NotFound) as error:
                    faults = [f"{error.thing}: {error.fault}. {error.remedy}"]
        shown = await run_in_threadpool(_shown, visitor, name, given, faults)
        return await run_in_threadpool(answer, request, visitor, shown, 422 if faults else 200)
    except SignInNeeded:
        return sign_in_first(request)
    except ArkqueueError as error:
        return await run_in_threadpool(refused_page, request, visitor, error)
    except (HTTPException, MultiPartException) as error:
        fault = f"cannot be read: {getattr(error, 'detail', '') or getattr(error, 'message', '')}".rstrip(".: ")
        refused = Refused(
            400, "the form", fault, f"A text has at most {LONGEST_TEXT >> 20} MiB: choose a file instead."
        )
        return await run_in_threadpool(refused_page, request, visitor, refused)


def _shown(visitor: Visitor, name: str, given: dict[str, str], faults: list[str]) -> Shown:
    caller = visitor.caller
    found = for_submissions(caller.session, caller.archive(name), given.get("branch") or None)
    names: dict[str, Any] = {"archive": name, "given": given, "faults": faults, "tasks": found.tasks, "schema": found.schema}  # fmt: skip
    return Shown(
        "submit.html", names | {"_kinds": [str(kind) for kind in PayloadKind], "_most_attached": LONGEST_ATTACHED >> 20}
    )


@dataclass(frozen=True, slots=True)
class _Document:
    """The document of a form: a file of it, or ``text``, or what the page of a preview has carried. ``size``: in bytes."""

    kind: PayloadKind
    name: str
    size: int
    file: UploadFile | None
    data: bytes

    async def pieces(self) -> AsyncIterator[bytes]:
        if self.file is None:
            yield self.data
            return
        await self.file.seek(0)
        while piece := await self.file.read(PIECE):
            yield piece

    async def digest(self) -> str:
        digest = hashlib.sha256()
        async for piece in self.pieces():
            await run_in_threadpool(digest.update, piece)
        return digest.hexdigest()

    def request(self, like: Request) -> Request:
        """A request that carries the document, as a program would send it."""
        media_type = next(one for one, kinds in KINDS.items() if kinds is self.kind)
        sent = self.pieces()

        async def receive() -> Message:
            piece = await anext(sent, b"")
            return {"type": "http.request", "body": piece, "more_body": bool(piece)}

        headers = [(b"content-type", media_type.encode())]
        return Request(dict(like.scope) | {"headers": headers, "state": dict(like.scope["state"])}, receive)


async def _document(form: FormData) -> _Document:
    """The document of a form. Raises the fault of a form that has none, or two, or another one than was shown."""
    text, carried = _written(form), _carried(form)
    sent = form.get("file")
    file = sent if isinstance(sent, UploadFile) and (sent.filename or sent.size) else None
    if (file is not None) + bool(text) + (carried is not None) != 1:
        fault = "has neither a file nor a text" if file is None and not text else "has a file and a text"
        raise Invalid("the form", fault, "Choose a file, or write a text.")
    if file is not None and (file.size or 0) > LONGEST_PAYLOAD:
        raise too_long()
    ending = str(file.filename).rpartition(".")[2].lower() if file is not None else ""
    chosen = _text(form, "kind")
    kind = PayloadKind(chosen) if chosen in list(PayloadKind) else BY_NAME.get(ending)
    if kind is None and text.lstrip().startswith(("[", "{")):  # a text in any other format is not told from the others
        kind = PayloadKind.JSON
    if kind is None:
        raise Invalid("the form", "does not name the format of the document", "Choose JSON, YAML, CSV or lines.")
    data = text.encode("utf-8", "replace") if carried is None else carried
    document = _Document(kind, str(file.filename) if file else "", (file.size or 0) if file else len(data), file, data)
    if (shown := _text(form, "digest")) and shown != await document.digest():
        raise Invalid("the file", "is not the one that was shown", "Choose that file, or show what would run again.")
    return document


def _carried(form: FormData) -> bytes | None:
    """The file that the page of a preview has carried; None: it has carried none."""
    if not (text := _text(form, "document")):
        return None
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise Invalid("the form", "carries a document that cannot be read", "Open the page again.") from None


def _given(form: FormData) -> dict[str, str]:
    """The fields of a form, with which it is shown again. A file that was carried is shown as a text."""
    given = {field: _text(form, field) for field in ("branch", "revision", "id", "hold", "kind")}
    given["text"] = _written(form)
    if "wanted" in form:  # the revision that was shown may have been the newest one, which nobody has named
        given["revision"] = _text(form, "wanted")
    with suppress(Invalid, UnicodeDecodeError):
        given["text"] = given["text"] or (_carried(form) or b"").decode()
    return given


async def _previewed(request: Request, name: str, form: FormData) -> Shown:
    """The run that would be made of a form's document. The API's call checks the document, and stores nothing."""
    document, attached, id = await _document(form), await _attached(form), _text(form, "id")
    try:
        found = await _call(request, name, form, document, id, attached=bool(attached and id), dry_run=True)
    except ArkqueueError as error:
        raise _of_form(error) from None
    if isinstance(found, SubmissionView):
        return _known(name, document, id, found)
    run: ProposedAndScanned = found
    given = _given(form)
    carried = {"text": given["text"]} if document.file is None else {}
    if document.file is not None and document.size <= LONGEST_CARRIED:
        carried = {"document": base64.b64encode(b"".join([piece async for piece in document.pieces()])).decode()}
    elif document.file is not None:
        carried = {"digest": await document.digest()}
    fields = {"branch": given["branch"], "id": id, "hold": given["hold"], "kind": str(document.kind), "wanted": given["revision"], "revision": str(run.revision)}  # fmt: skip
    if attached:
        fields["attached"] = str(len(attached))
    fields = {field: value for field, value in (fields | carried).items() if value or field == "wanted"}
    names: dict[str, Any] = {
        "archive": name, "proposed": run, "size": document.size, "file": document.name, "kind": document.kind,
        "id": id, "hold": given["hold"] == "yes", "attachments": [{"name": new.name, "size": new.size} for new, _ in attached],
    }  # fmt: skip
    return Shown("preview-submit.html", names | {"_fields": fields, "_is_chosen_again": "digest" in carried, "_most": MOST_TASKS})  # fmt: skip


def _known(name: str, document: _Document, id: str, known: SubmissionView) -> Shown:
    """The page which says that a document was submitted with its id before."""
    if known.run is None:
        raise _purged(id, known)
    names = {"archive": name, "submission": known, "proposed": None, "size": document.size, "file": document.name, "kind": document.kind, "id": id}  # fmt: skip
    return Shown("preview-submit.html", names)


async def _submitted(request: Request, name: str, form: FormData) -> Response | Shown:
    """Hand a form's document to the API's call, as a program would send it. Returns the way to its new
    run, or the page of the run that its id has already.
    """
    document = await _document(form)
    id = _text(form, "id")
    attached = await _attached(form)
    if (shown := _text(form, "attached")) and shown != str(len(attached)):
        fault = f"have to be the {shown} that were shown, and {len(attached)} were chosen"
        raise Invalid("the attachments", fault, "Choose them again.")
    begun = None
    if attached:
        id = id or f"form-{uuid4().hex}"
        try:
            begun = await _send(request, name, id, attached)
        except ArkqueueError as error:
            raise _of_form(error) from None
    answered = Response(status_code=201)
    try:
        made = await _call(request, name, form, document, id, attached=bool(attached), answered=answered)
    except ArkqueueError as error:
        if begun is not None:
            await run_in_threadpool(end_upload, request, begun)
        raise _of_form(error) from None
    # Somebody has ended the upload in the meantime, or sends it, too.
    if not isinstance(made, SubmissionView):
        raise Conflict("the attachments", "are not complete any more", "Choose them, and submit again.")
    if made.run is None or answered.status_code != 201:
        return _known(name, document, id, made)
    return RedirectResponse(f"/{made.run.full_name}", 303, HEADERS)


async def _call(
    request: Request, name: str, form: FormData, document: _Document, id: str, *, attached: bool, dry_run: bool = False,
    answered: Response | None = None,
) -> Any:  # fmt: skip
    """Call the API as a program would, with the fields of a form. An id goes as HTTP headers carry it.
    ``answered`` gets the status of the answer.
    """
    return await submit(
        document.request(request), answered or Response(), name,
        revision=_text(form, "revision") or None, branch=_text(form, "branch") or None, hold=_text(form, "hold") == "yes",
        attachments=attached, dry_run=dry_run, idempotency_key=id.encode().decode("latin-1") if id else None,
    )  # fmt: skip


def _purged(id: str, known: SubmissionView) -> Conflict:
    fault = f"was already submitted, and {known.purged}"
    return Conflict(f"the id {id}", fault, "Give a new submission an id of its own.")


def _of_form(error: ArkqueueError) -> ArkqueueError:
    """An error in the words of the form, which has another name for the id than the API."""
    return Invalid("the id", error.fault, error.remedy) if error.thing == "Idempotency-Key" else error


async def _attached(form: FormData) -> list[tuple[NewAttachment, UploadFile]]:
    """The attachments of a form, with their digests."""
    files = [
        file for file in form.getlist("attachments") if isinstance(file, UploadFile) and (file.filename or file.size)
    ]
    if sum(file.size or 0 for file in files) > LONGEST_ATTACHED:
        raise _too_many_bytes()
    found = []
    for file in files:
        digest = hashlib.sha256()
        while piece := await file.read(PIECE):
            await run_in_threadpool(digest.update, piece)
        new = valid(NewAttachment, name=file.filename or "", size=file.size or 0, digest=digest.hexdigest())
        found.append((new, file))
    return found


async def _send(
    request: Request, name: str, id: str, attached: Sequence[tuple[NewAttachment, UploadFile]]
) -> int | None:
    """Hand the attachments of a form to the API's calls. Returns the upload if this call has begun
    it. None: an earlier upload continues, or its submission was already made.
    """
    answered = Response(status_code=201)
    files = NewUpload(attachments=[new for new, _ in attached])
    key = id.encode().decode("latin-1")
    upload = await run_in_threadpool(begin_upload, request, answered, name, files, idempotency_key=key)
    if upload.id is None:
        return None
    begun = upload.id if answered.status_code != 200 else None
    sent = {new.name: file for new, file in attached}
    try:
        for position, there in enumerate(upload.attachments):
            if not there.is_there:
                await _send_one(request, upload.id, position, sent[there.name], there.received)
    except ArkqueueError:
        if begun is not None:
            await run_in_threadpool(end_upload, request, begun)
        raise
    return begun


async def _send_one(request: Request, upload: int, position: int, file: UploadFile, received: int) -> None:
    """Hand the missing part of one file to the API's call, which answers 202 while it computes the
    digest.
    """
    await file.seek(received)

    async def receive() -> Message:
        piece = await file.read(PIECE)
        return {"type": "http.request", "body": piece, "more_body": bool(piece)}

    while True:
        scope = dict(request.scope) | {
            "headers": [(b"content-type", TYPES[0].encode())],
            "state": dict(request.scope["state"]),
        }
        answer = await continue_attachment(Request(scope, receive), upload, position, received)
        if answer.status_code != 202:
            return
        received = int(answer.headers["upload-offset"])


def _too_many_bytes() -> Refused:
    fault = f"has more than {LONGEST_ATTACHED >> 20} MiB of attachments, or a document of more than {LONGEST_PAYLOAD >> 20} MiB"
    return Refused(413, "the form", fault, "Submit with the command line: arkqueue submit ARCHIVE FILE --attach PATH.")


@asynccontextmanager
async def _form(request: Request, uploads: Uploads) -> AsyncIterator[FormData]:
    """The fields and files of a form. Its files have no names on the disk, so nothing of them
    stays, however this ends.
    """
    length = request.headers.get("content-length", "")
    size = int(length) if length.isdecimal() and len(length) < 19 else LONGEST_FORM
    if size > LONGEST_FORM:
        raise _too_many_bytes()
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        fault = "is not sent as multipart/form-data"
        raise Refused(400, "the form", fault, "Open the page again, and send it there.")
    folder = await run_in_threadpool(uploads.with_room, size if size > _Parser.spool_max_size else 0)
    limits = {"max_files": 1 + MOST_ATTACHED, "max_fields": 20, "max_part_size": LONGEST_TEXT}
    form = await _Parser(folder, request.headers, request.stream(), **limits).parse()
    try:
        yield form
    finally:
        await form.close()


class _Parser(MultiPartParser):
    """Reads a form whose files are kept in a folder, instead of the system's temporary folder,
    which is often small or memory.
    """

    def __init__(self, folder: Path, headers: Headers, stream: AsyncGenerator[bytes, None], **limits: int) -> None:
        super().__init__(headers, stream, **limits)
        self._folder = folder

    def on_headers_finished(self) -> None:
        super().on_headers_finished()
        if (upload := self._current_part.file) is not None:
            upload.file.close()  # it is not on the disk yet
            file = SpooledTemporaryFile(max_size=self.spool_max_size, dir=str(self._folder))  # noqa: SIM115  it is closed with the form
            upload.file = file  # type: ignore[assignment]
            self._files_to_close_on_error[-1] = file


class _Counted:
    """The messages of a request. Raises `Refused` once they are longer than any document with its
    attachments and its form.
    """

    def __init__(self, request: Request) -> None:
        self._request, self._seen = request, 0

    async def receive(self) -> Message:
        message = await self._request.receive()
        self._seen += len(message.get("body", b""))
        if self._seen > LONGEST_FORM:
            raise _too_many_bytes()
        return message


def _text(form: FormData, field: str) -> str:
    value = form.get(field, "")
    return re.sub("\0", "", value).strip() if isinstance(value, str) else ""


def _written(form: FormData) -> str:
    """The text that a person has written, with all of its lines; empty if it is blank. Browsers send
    CR LF at the ends of the lines.
    """
    value = form.get("text", "")
    text = value.replace("\0", "").replace("\r\n", "\n") if isinstance(value, str) else ""
    return text if text.strip() else ""
