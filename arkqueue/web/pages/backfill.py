"""The page of a backfill: its progress, its failures, and its running tasks."""

from __future__ import annotations

from arkqueue.views import backfills
from arkqueue.views.remedies import runs_that_need_settings
from arkqueue.web.pages.answer import Shown
from arkqueue.web.pages.approving import refused_on_backfill
from arkqueue.web.pages.visitor import Visitor


def backfill(visitor: Visitor, archive: str, number: int) -> Shown:
    """One backfill, by the name of its archive and its number."""
    caller = visitor.caller
    id = backfills.find_backfill(caller.session, caller.archive(archive), archive, number)
    fill = backfills.backfill(caller.session, id)
    refused = refused_on_backfill(visitor, id, is_planned=fill.is_planned)
    return Shown(
        "backfill.html",
        {
            "fill": backfills.in_public(fill) if visitor.is_anybody else fill,
            "_refused": refused,
            "_need_settings": runs_that_need_settings(caller.session, [run.id for run in fill.failed]),
        },
    )
