"""The common parts of all API calls: their routers, and the checks before each call."""

from __future__ import annotations

from typing import Annotated, get_args, get_origin

from fastapi import APIRouter, Depends, Query, Request

from arkqueue.errors import Invalid
from arkqueue.web.access import authenticated, bearer
from arkqueue.web.api.responses import Call
from arkqueue.web.problems import RESPONSES

PREFIX = "/api/v1"


DryRun = Annotated[bool, Query(description="say what would be done and what refused, and do nothing")]
"""The parameter of calls that can be rehearsed."""


def calls(tag: str, prefix: str = "") -> APIRouter:
    """A router with everything that its routes have in common, so that the application can use the
    routes unchanged.

    FastAPI would build each route again when a router is included: 0.2 s at the start of every
    server.
    """
    checks = [Depends(bearer), Depends(authenticated), Depends(_only_known)]
    return APIRouter(tags=[tag], prefix=PREFIX + prefix, dependencies=checks, responses=RESPONSES, route_class=Call)


async def _only_known(request: Request) -> None:
    """Refuse unknown query parameters, repeated ones that a call takes once, and the body of a call
    that takes none. If they were ignored, a misspelt filter would show, or change, more than was
    asked for.
    """
    route: Call = request.scope["route"]
    fields = {field.alias: field.field_info.annotation for field in route.dependant.query_params}
    for name in sorted(request.query_params):
        if name not in fields:
            fault = f"has the parameter {name!r}, which means nothing here"
            raise Invalid("the request", fault, f"There are: {', '.join(fields)}." if fields else "There is none.")
        if len(request.query_params.getlist(name)) > 1 and not _is_list(fields[name]):
            raise Invalid("the request", f"has the parameter {name!r} more than once", "Give it once.")
    if route.reads_body or not _has_body(request):
        return
    if (await request.body()).strip() not in (b"", b"{}", b"null"):
        remedy = f"Send none. There are the parameters {', '.join(fields)}." if fields else "Send none."
        raise Invalid("the request", "has a body, which means nothing here", remedy)


def _has_body(request: Request) -> bool:
    return request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers


def _is_list(annotation: object) -> bool:
    return any(get_origin(part) is list for part in (annotation, *get_args(annotation)))
