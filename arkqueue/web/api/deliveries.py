"""Notifications over HTTP: list deliveries, and send one again."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query, Request, Response

from arkqueue.errors import NotFound
from arkqueue.queue import notifications
from arkqueue.queue.tokens import Scope
from arkqueue.views import notifications as views
from arkqueue.views.notifications import DeliveryPage
from arkqueue.web.access import admit
from arkqueue.web.api.calls import calls

router = calls("notifications", "/deliveries")

DeliveryState = Literal["waiting", "sent", "failed", "dropped"]


@router.get("")
def list_deliveries(
    request: Request,
    archive: str | None = None,
    state: Annotated[list[DeliveryState] | None, Query()] = None,
    before: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> DeliveryPage:
    """Deliveries, the newest first: those of an archive, or of all archives of the token."""
    caller = admit(request, Scope.READ)
    archives = caller.archives() if archive is None else [caller.archive(archive)]
    return views.deliveries(caller.session, archives, states=state or (), before=before, limit=limit)


@router.post("/{id}/resend", status_code=202, response_class=Response)
def resend_delivery(request: Request, id: int) -> None:
    """Send a delivery again; if it waits for its next try, try at once."""
    caller = admit(request, Scope.OPERATE)
    if not caller.token.covers(views.archive_of(caller.session, id)):
        raise NotFound(f"delivery {id}", "does not exist")
    notifications.resend(caller.session, id, caller.by)
