"""The calls that the API is to have and has not yet: they are answered plainly, so that nobody looks for a mistake of their own.

Each leaves this list when it is built. Included by ``app`` before the rooms where the calls will be.
"""

from __future__ import annotations

from fastapi import APIRouter, Request

from arkqueue.web.problems import Refused

router = APIRouter()


def not_yet(request: Request) -> None:
    raise Refused(501, request.url.path, "is not supported yet", "See /docs for what there is.")


for path in (
    "/tasks/{id}/hold", "/tasks/{id}/release", "/runs/{id}/hold", "/runs/{id}/release",
    "/archives/{name}/hold", "/archives/{name}/release",
):  # fmt: skip
    router.add_api_route(path, not_yet, methods=["POST"], include_in_schema=False)
