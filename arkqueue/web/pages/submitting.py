"""The form that hands in a document: a file, or text written there. The API's own call judges it and makes the run (`web.api.submissions`).

Who may not submit is refused before the file is read. A file goes to the disk as it comes. Faults of the document are all shown, above the form as it was sent; a browser
keeps no file for that, so it is chosen again.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, Final

from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Message

from arkqueue.errors import ArkqueueError, Busy, Conflict, Invalid, InvalidPayload, NotFound
from arkqueue.model import LONGEST_PAYLOAD, PayloadKind
from arkqueue.queue.tokens import Scope
from arkqueue.views.submissions import for_submissions
from arkqueue.web.access import admit
from arkqueue.web.api.submissions import KINDS, MOST_AT_ONCE, submit, too_long
from arkqueue.web.pages.answer import HEADERS, Shown, answer, asked, refused_page, sign_in_first
from arkqueue.web.pages.visitor import SignInNeeded, Visitor, check_form, check_site, visitor_of
from arkqueue.web.problems import Refused

LONGEST_TEXT: Final = 1 << 20
"""Bytes of a text that is written into the form; what is longer is a file."""
BESIDE: Final = 64 << 10
"""Bytes of a form beside its document: names of fields, and borders between them."""
PIECE: Final = 1 << 20
BY_NAME: Final = {"json": PayloadKind.JSON, "yaml": PayloadKind.YAML, "yml": PayloadKind.YAML, "csv": PayloadKind.CSV, "txt": PayloadKind.LINES}  # fmt: skip
"""What a file is by the end of its name."""

_sent = 0


def submit_page(visitor: Visitor, request: Request) -> Shown:
    """The form; ``?branch=`` another than the main branch."""
    return _shown(visitor, request.path_params["name"], {"branch": asked(request, "branch")}, [])


async def submit_form(request: Request) -> Response:
    """Make a run of what a form hands in, and show it; or show the form again with what is wrong."""
    visitor: Visitor | None = None
    name = request.path_params["name"]
    try:
        visitor = (await run_in_threadpool(visitor_of, request)).at(name)
        request.state.token = visitor.caller.token
        check_site(request, visitor)
        await run_in_threadpool(admit(request, Scope.OPERATE).archive, name)
        with _a_place():
            counted = Request(request.scope, _Counted(request).receive)
            async with counted.form(max_files=1, max_fields=20, max_part_size=LONGEST_TEXT) as form:
                check_form(request, visitor, _text(form, "form"))
                try:
                    return await _submitted(request, name, form)
                except InvalidPayload as error:
                    faults = error.faults
                except (Invalid, Conflict, NotFound) as error:
                    faults = [f"{error.thing}: {error.fault}. {error.remedy}"]
                given = {field: _text(form, field) for field in ("branch", "revision", "id", "hold", "text", "kind")}
        shown = await run_in_threadpool(_shown, visitor, name, given, faults)
        return await run_in_threadpool(answer, request, visitor, shown, 422)
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
    return Shown("submit.html", names | {"_kinds": [str(kind) for kind in PayloadKind]})


async def _submitted(request: Request, name: str, form: FormData) -> Response:
    """Hand a form's document to the API's call, as a program would send it."""
    file, text = form.get("file"), _text(form, "text")
    has_file = isinstance(file, UploadFile) and bool(file.filename or file.size)
    if has_file == bool(text.strip()):
        fault = "has a file and a text" if has_file else "has neither a file nor a text"
        raise Invalid("the form", fault, "Choose a file, or write a text.")
    ending = str(file.filename).rpartition(".")[2].lower() if has_file and isinstance(file, UploadFile) else ""
    chosen = _text(form, "kind")
    kind = PayloadKind(chosen) if chosen in list(PayloadKind) else BY_NAME.get(ending)
    if kind is None:
        raise Invalid("the form", "does not say what the document is written in", "Choose JSON, YAML, CSV or lines.")
    media_type = next(one for one, kinds in KINDS.items() if kinds is kind)

    async def pieces() -> AsyncIterator[bytes]:
        if isinstance(file, UploadFile) and has_file:
            while piece := await file.read(PIECE):
                yield piece
        else:
            yield text.replace("\r\n", "\n").encode("utf-8", "replace")  # browsers send CR LF

    sent = pieces()

    async def receive() -> Message:
        piece = await anext(sent, b"")
        return {"type": "http.request", "body": piece, "more_body": bool(piece)}

    scope = dict(request.scope) | {
        "headers": [(b"content-type", media_type.encode())],
        "state": dict(request.scope["state"]),
    }
    id = _text(form, "id")
    try:
        made = await submit(
            Request(scope, receive), Response(), name,
            revision=_text(form, "revision") or None, branch=_text(form, "branch") or None, hold=_text(form, "hold") == "yes",
            idempotency_key=id.encode().decode("latin-1") if id else None,
        )  # fmt: skip
    except Invalid as error:
        if error.thing == "Idempotency-Key":
            raise Invalid("the id", error.fault, error.remedy) from None
        raise
    assert not isinstance(made, Response)  # that is of attachments, which the form has not
    if made.run is None:
        raise Conflict(f"the id {id}", f"was handled before: {made.purged}", "Give a new submission an id of its own.")
    return RedirectResponse(f"/{made.run.full_name}", 303, HEADERS)


@contextmanager
def _a_place() -> Iterator[None]:
    """So many forms are received at once: each may have a file on the disk."""
    global _sent
    if _sent >= MOST_AT_ONCE:
        raise Busy("the document", "cannot be taken: too many are being submitted", "Submit it again in a moment.")
    _sent += 1
    try:
        yield
    finally:
        _sent -= 1


class _Counted:
    """The messages of a request; raises `Refused` once they are longer than any document with its form."""

    def __init__(self, request: Request) -> None:
        self._request, self._seen = request, 0

    async def receive(self) -> Message:
        message = await self._request.receive()
        self._seen += len(message.get("body", b""))
        if self._seen > LONGEST_PAYLOAD + BESIDE:
            raise too_long()
        return message


def _text(form: FormData, field: str) -> str:
    value = form.get(field, "")
    return re.sub("\0", "", value).strip() if isinstance(value, str) else ""
