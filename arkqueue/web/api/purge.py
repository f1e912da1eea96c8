"""Removing for good over HTTP (design 5.27). Included by ``app`` before ``runs``, whose ``/tasks/{id}/{verb}`` would take this address."""

from __future__ import annotations

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field

from arkqueue.errors import Invalid
from arkqueue.queue.removal import LONGEST_REASON, Removed, remove
from arkqueue.queue.tokens import Scope
from arkqueue.web.access import admit
from arkqueue.web.api.calls import calls

router = calls("purge")


class Purge(BaseModel):
    """What is removed of a task, and why; the reason stands in its place."""

    model_config = ConfigDict(extra="forbid")

    log: bool = False
    outputs: bool = False
    reason: str = Field(min_length=1, max_length=LONGEST_REASON)


@router.post("/tasks/{id}/purge")
def purge_task(request: Request, id: int, purge: Purge) -> Removed:
    """Remove the logs or the outputs of a task's ended attempts at once and for good; says what may still hold them."""
    caller = admit(request, Scope.ADMIN)
    task = caller.task(id)
    if not (purge.log or purge.outputs):
        raise Invalid("the request", "removes nothing", "Give log, outputs, or both.")
    return remove(caller.session, task, caller.by, purge.reason, log=purge.log, outputs=purge.outputs)
