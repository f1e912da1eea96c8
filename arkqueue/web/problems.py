"""Turns errors into problem documents of RFC 9457: the thing, the fault and the remedy. No client
gets a traceback.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import psycopg
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from arkqueue import errors
from arkqueue.config.values import PLAIN_WORDS
from arkqueue.text import LONGEST, name_visible

log = logging.getLogger("arkqueue")

BUSY = "busy"
"""The mark that distinguishes this 503 from others: the server is well, too many callers want the
same, and the same request may succeed later.
"""
TITLES: dict[int | str, str] = {
    400: "The request cannot be read",
    401: "A token is needed",
    403: "The token does not allow this",
    404: "It does not exist",
    405: "This address does not take the method",
    408: "The request did not arrive completely",
    409: "The present state does not allow this",
    413: "The request is too long",
    415: "The media type is not supported",
    422: "The request has faults",
    423: "Another request is working on it",
    429: "Too many requests",
    500: "An error in arkqueue",
    501: "arkqueue does not support this yet",
    502: "The repository cannot be used",
    503: "The database does not answer",
    BUSY: "Other requests come first",
    507: "There is not enough space",
}
"""The title of a problem of each status. The type of a problem points to its title at /docs."""

_SCHEMA = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "thing", "fault", "remedy"],
    "properties": {
        **{key: {"type": "string"} for key in ("type", "title", "detail", "thing", "fault", "remedy")},
        "status": {"type": "integer"},
        "faults": {
            "type": "array",
            "items": {"type": "object"},
            "description": "the faults of the fields, or of a payload",
        },
        "refused": {
            "type": "array",
            "items": {"type": "object"},
            "description": "if a verb on many did nothing: the reason and the remedy of each refusal after the first",
        },
    },
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    statuses: {
        "description": "A problem document (RFC 9457).",
        "content": {"application/problem+json": {"schema": _SCHEMA}},
    }
    for statuses in ("4XX", "5XX")
}
"""The errors of every call, for the OpenAPI document."""

_STATUS: dict[type[errors.ArkqueueError], int] = {
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.Invalid: 422,
    errors.Forbidden: 403,
    errors.DatabaseUnavailable: 503,
    errors.ArchiveMismatch: 409,
    errors.ArchiveError: 502,
}
RETRY_AFTER = "2"
"""Seconds after which a client tries again, when the database is away or too many requests wait."""


class Refused(errors.ArkqueueError):
    """A request that is refused before its call begins: no token (401), no such path (404), too long
    (413), too often (429).
    """

    def __init__(self, status: int, thing: str, fault: str, remedy: str = "", **headers: str) -> None:
        super().__init__(thing, fault, remedy)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class _Problem(JSONResponse):
    """A problem document. It may repeat a text of the request that is not valid Unicode: JSON can
    contain half of a surrogate pair.
    """

    media_type = "application/problem+json"

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def problem(
    status: int, detail: str, headers: Mapping[str, str] | None = None, kind: int | str = 0, **more: Any
) -> JSONResponse:
    """A problem document. ``kind``: distinguishes it from others of the same status."""
    kind = kind or status
    title = TITLES.get(kind) or HTTPStatus(status).phrase
    body = {"type": f"/docs#problem-{kind}", "title": title, "status": status, "detail": detail, **more}
    return _Problem(body, status, headers)


def of_error(error: errors.ArkqueueError) -> JSONResponse:
    """The problem document of one of our own errors."""
    headers: dict[str, str] = {}
    if isinstance(error, Refused):
        status, headers = error.status, error.headers
    else:
        status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 500)
    kind = BUSY if isinstance(error, errors.Busy) else status
    if status == 503:
        headers["Retry-After"] = RETRY_AFTER
    if kind == 503:
        # A client must not learn where the database is, or what it answered.
        error = errors.DatabaseUnavailable("the database", "does not answer", "Try again; the server's log says more.")
    detail = f"{error.thing}: {error.fault}" + (f". {error.remedy}" if error.remedy else "")
    more = {"faults": [{"message": said} for said in error.faults]} if isinstance(error, errors.InvalidPayload) else {}
    if error.others:
        more["refused"] = [{"reason": f"{why.thing}: {why.fault}", "remedy": why.remedy} for why in error.others]
    return problem(status, detail, headers, kind, thing=error.thing, fault=error.fault, remedy=error.remedy, **more)


def install(app: FastAPI) -> None:
    """Answer every error of an app with a problem document."""
    app.add_exception_handler(errors.ArkqueueError, _own)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(psycopg.DataError, _unstorable)
    app.add_exception_handler(UnicodeEncodeError, _unstorable)
    app.add_exception_handler(ClientDisconnect, _left)
    app.add_exception_handler(Exception, _mistake)


async def _own(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, errors.ArkqueueError)
    answer = of_error(error)
    if answer.status_code in (500, 503):
        log.log(logging.WARNING if isinstance(error, errors.Busy) else logging.ERROR, "%s", error)
    return answer


async def malformed(_: Request, error: Exception) -> JSONResponse:
    """The answer to a request whose parameters or body are invalid."""
    assert isinstance(error, RequestValidationError)
    faults = [{"field": _field(fault["loc"]), "message": said(fault)} for fault in error.errors()[:50]]
    fault = "; ".join(f"{f['field']}: {f['message']}" if f["field"] else f["message"] for f in faults)
    remedy = "See /docs for what is expected."
    return problem(422, f"{fault}. {remedy}", thing="the request", fault=fault, remedy=remedy, faults=faults)


def _field(place: tuple[int | str, ...]) -> str:
    if place and place[0] == "body" and len(place) > 1 and isinstance(place[1], int):
        return f"byte {place[1]}"  # of JSON that cannot be read
    return ".".join(str(part) for part in place[1:])


def said(fault: Any) -> str:
    """A fault of a request in plain words. ``fault``: as pydantic tells it."""
    if plain := PLAIN_WORDS.get(fault.get("type", "")):
        return plain.partition(";")[0].format(**fault.get("ctx", {}))  # what follows is of TOML
    return str(fault["msg"]).removeprefix("Value error, ").rstrip(".")


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return of_error(of_framework(request, error, "See /docs for what there is."))


def of_framework(request: Request, error: HTTPException, remedy: str) -> Refused:
    """An error of the framework, such as an address that nothing answers. ``remedy``: the remedy for
    a wrong address.
    """
    faults = {404: errors.NO_CALL, 405: f"{request.method} is not possible here"}
    if fault := faults.get(error.status_code):
        refused = Refused(error.status_code, request.url.path, fault, remedy)
    else:
        refused = Refused(error.status_code, "the request", str(error.detail).rstrip("."))
    refused.headers = dict(error.headers or {})
    return refused


async def _unstorable(_: Request, error: Exception) -> JSONResponse:
    """The answer to a request with a NUL or half of a surrogate pair in a text, or a number that is
    too large. PostgreSQL and its driver refuse these, so that calls need not check them.
    """
    log.info("refused: %s", error)
    return of_error(unstorable())


async def _left(_: Request, __: Exception) -> JSONResponse:
    """The answer to a client that left before its request was whole. Nobody reads it, and it is no
    mistake.
    """
    return of_error(Refused(400, "the request", "has not come whole"))


async def _mistake(request: Request, error: Exception) -> JSONResponse:
    log.error("%s %s failed", request.method, name_visible(request.url.path[:LONGEST]), exc_info=error)
    return of_error(mistake())


def unstorable() -> Refused:
    """The error for a request with a text or a number that cannot be stored."""
    return Refused(
        422,
        "the request",
        "holds a text or a number that cannot be stored",
        "A text holds no NUL character and no half of a surrogate pair, and a number has at most 18 digits.",
    )


def mistake() -> Refused:
    """The error for a fault of arkqueue itself, without its cause, which is in the log."""
    return Refused(500, "arkqueue", "could not answer because of a mistake of its own", "Its log says more.")
