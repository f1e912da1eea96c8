"""The page of a backfill: its progress, its failures, its running tasks, and all of its runs."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from arkqueue.views import backfills
from arkqueue.views.archives import removal_of
from arkqueue.views.remedies import runs_that_need_settings
from arkqueue.web.pages.answer import Shown, asked_id
from arkqueue.web.pages.approving import refused_on_backfill
from arkqueue.web.pages.helping import buttons_of
from arkqueue.web.pages.visitor import Visitor
from arkqueue.web.pages.withheld import Withheld, withheld_by

MOST: Final = 50
"""The runs on a page."""


def backfill(visitor: Visitor, request: Request, archive: str, number: int) -> Shown:
    """One backfill, by the name of its archive and its number. ``?after=``: the id of the run after
    which the listed runs begin.
    """
    caller = visitor.caller
    of = caller.archive(archive)
    id = backfills.find_backfill(caller.session, of, archive, number)
    fill = backfills.backfill(caller.session, id)
    after = asked_id(request, "after")
    runs, following = backfills.runs_of_backfill(caller.session, id, after, MOST)
    removal = removal_of(caller.session, of)
    (row,) = caller.session.rows("archive", archive=of)
    kept = withheld_by(row, brief=visitor.is_anybody) if removal is None else Withheld(archive)
    left = fill.waiting + fill.counts.running + fill.counts.held
    stop = kept.stop if left or fill.failed or not fill.is_planned else None
    unapproved = refused_on_backfill(visitor, id, is_planned=fill.is_planned) if removal is None else {}
    return Shown(
        "backfill.html",
        {
            "fill": backfills.in_public(fill) if visitor.is_anybody else fill,
            "runs": runs,
            "next": following,
            "_is_later": after is not None,
            "_is_cut": len(fill.failed) == backfills.MOST_RUNS,
            "_left": left,
            "_actor": visitor if removal is None else visitor.looking,
            "_stop": stop,
            "_ends_of_stop": buttons_of(stop.commands, fill.full_name) if stop else [],
            "_is_on_hold": kept.is_on_hold and fill.counts.held > 0,
            "_unapproved": unapproved,
            "_refused": kept.refused | unapproved,
            "_need_settings": runs_that_need_settings(caller.session, [run.id for run in fill.failed]),
        },
    )
