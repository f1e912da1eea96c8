"""The page of a backfill: its progress, its failures, its running tasks, and all of its runs."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from arkqueue.views import backfills
from arkqueue.views.remedies import runs_that_need_settings
from arkqueue.web.pages.answer import Shown, asked_id
from arkqueue.web.pages.approving import refused_on_backfill
from arkqueue.web.pages.visitor import Visitor

MOST: Final = 50
"""The runs on a page."""


def backfill(visitor: Visitor, request: Request, archive: str, number: int) -> Shown:
    """One backfill, by the name of its archive and its number. ``?after=``: the id of the run after
    which the listed runs begin.
    """
    caller = visitor.caller
    id = backfills.find_backfill(caller.session, caller.archive(archive), archive, number)
    fill = backfills.backfill(caller.session, id)
    after = asked_id(request, "after")
    runs, following = backfills.runs_of_backfill(caller.session, id, after, MOST)
    refused = refused_on_backfill(visitor, id, is_planned=fill.is_planned)
    return Shown(
        "backfill.html",
        {
            "fill": backfills.in_public(fill) if visitor.is_anybody else fill,
            "runs": runs,
            "next": following,
            "_is_later": after is not None,
            "_is_cut": len(fill.failed) == backfills.MOST_RUNS,
            "_refused": refused,
            "_need_settings": runs_that_need_settings(caller.session, [run.id for run in fill.failed]),
        },
    )
