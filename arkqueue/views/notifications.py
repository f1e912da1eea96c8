"""The outbox as people see it: deliveries, their receivers, and their faults (design 15)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from arkqueue.config.receivers import address_of
from arkqueue.db.session import Session
from arkqueue.errors import NotFound
from arkqueue.model import AUTHOR, MAIL_WINDOW, MOST_MAILS, ArchiveId, Occasion
from arkqueue.names import run_name
from arkqueue.views.rows import view_of

STATES = ("waiting", "sent", "failed", "dropped")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryView:
    """A notification to one receiver. ``address``: the mail address, or the URL, of the receiver, which
    may be the author of a commit. ``name``: its run, or its archive. ``tries``: the number of
    tries; ``due_at``: the earliest time of the next one.

    ``waits_for``: the reason why it is not tried before another one, in words; empty if it waits
    for nothing but its time. ``fault``: the fault of the last try, or the reason why it was
    dropped. ``carried_by``: the delivery whose mail lists this one as well.
    """

    id: int
    archive: str
    name: str
    occasion: Occasion
    receiver: str
    address: str
    made_at: datetime
    state: str
    tries: int
    due_at: datetime | None
    is_being_sent: bool
    waits_for: str
    fault: str
    ended_at: datetime | None
    carried_by: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPage:
    """A page of deliveries, the newest first. ``next``: the cursor of the following page, None at the end."""

    deliveries: list[DeliveryView]
    next: int | None


def deliveries(
    session: Session,
    archives: Sequence[ArchiveId] | None,
    *,
    states: Sequence[str] = (),
    before: int | None = None,
    limit: int = 50,
) -> DeliveryPage:
    """A page of deliveries of some archives (None: all), in some states (none: any)."""
    asked = None if archives is None else list(archives)
    found = session.rows(
        "list_deliveries",
        archives=asked,
        states=list(states) or None,
        before=before,
        limit=limit + 1,
        most_mails=MOST_MAILS,
        window=MAIL_WINDOW,
    )
    return DeliveryPage(
        deliveries=[_view(row) for row in found[:limit]], next=found[limit - 1].id if len(found) > limit else None
    )


def archive_of(session: Session, delivery: int) -> str:
    """The name of the archive of a delivery; raises ``NotFound``."""
    found = session.rows("delivery", delivery=delivery) if delivery < 2**63 else []
    if not found:
        raise NotFound(f"delivery {delivery}", "does not exist")
    name: str = found[0].archive
    return name


def _view(row: Any) -> DeliveryView:
    return view_of(
        row,
        DeliveryView,
        name=row.archive if row.number is None else run_name(row),
        occasion=Occasion(row.occasion),
        address=address_of(row.mailbox) if row.receiver == AUTHOR else row.receiver,
        is_being_sent=bool(row.is_being_sent),
        waits_for=_waits_for(row),
    )


def _waits_for(row: Any) -> str:
    if row.first_id is None:
        return (
            ""
            if row.box_until is None
            else f"for its mailbox, which got {MOST_MAILS} mails within {MAIL_WINDOW / 60:.0f} min"
        )
    first = row.first_id if row.is_same_archive else "one of another archive"
    if row.is_same_run:
        return f"for {first}, an earlier one of its run"
    return f"for {first}, which {'is being sent' if row.is_first_sent else 'its receiver has not answered'}"
