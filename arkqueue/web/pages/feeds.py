"""The badge (SVG) of an archive, and the feed (Atom) of its ended runs, for other pages and
programs.
"""

from __future__ import annotations

from datetime import datetime

from starlette.requests import Request
from starlette.responses import Response

from arkqueue.model import ArchiveId, BranchId, Trigger
from arkqueue.states import OPEN, RunState
from arkqueue.views.archives import ArchiveView, held_on_branch
from arkqueue.views.attention import faulty_at_head, unhandled_failures
from arkqueue.views.cells import cells_of
from arkqueue.views.runs import runs
from arkqueue.web.access import Caller
from arkqueue.web.hosts import scheme_of
from arkqueue.web.pages.answer import HEADERS, environment

ENTRIES = 30
"""The runs of a feed."""
WIDTH = 6.6
"""The assumed width of a character in a badge, in pixels: the reader's font is not known."""
COLOURS = {"failed": "#b3261e", "completed": "#1f7a44", "processing": "#1f5fbf", "reporting": "#1f5fbf", "held": "#8a5a00"}  # fmt: skip


def badge(caller: Caller, archive: ArchiveView, branch: BranchId, label: str) -> Response:
    """The state of the newest commit of a branch, or the number of failures that need somebody. The
    badge is never greener than the worst part: later commits of an archive that is not read are
    unknown.
    """
    id, unread = ArchiveId(archive.id), archive.why_unread
    held = held_on_branch(caller.session, id, branch) if archive.held else 0
    failed = unhandled_failures(caller.session, id, branch, 0).count
    failed += faulty_at_head(caller.session, branch) is not None
    newest = runs(caller.session, archives=[id], branch=branch, trigger=Trigger.COMMIT, limit=1).runs
    state, words = "", "no run yet"
    if failed:
        state, words = "failed", f"{failed:,} failure{'s' if failed > 1 else ''}"
    elif newest and not newest[0].baseline:
        state, words = str(newest[0].state), f"{newest[0].rev} {newest[0].state}"
    if unread and not failed:
        state, words = "failed", unread
    elif held and state in ("", RunState.COMPLETED):
        state, words = "held", f"{held:,} held"
    left, right = (round(len(text) * WIDTH) + 12 for text in (label, words))
    names = {"label": label, "words": words, "left": left, "width": left + right, "colour": COLOURS.get(state, "#6f7681")}  # fmt: skip
    return _answer("badge.svg", names, "image/svg+xml")


def feed(
    request: Request, caller: Caller, archive: ArchiveId, branch: BranchId, label: str, since: datetime
) -> Response:
    """The newest ended runs. A run that reaches another end later is a new entry. ``since``: the
    time from which on the archive is watched.
    """
    ended = [state for state in RunState if state not in OPEN and state is not RunState.DELETED]
    page = runs(caller.session, archives=[archive], branch=branch, states=ended, limit=ENTRIES)
    entries = [run for run in page.runs if not run.baseline]
    updated = max((run.settled_at or run.created_at for run in entries), default=since)
    bad = {
        id: [cell.task for cell in cells if cell.bad] for id, cells in cells_of(caller.session, entries).runs.items()
    }
    names = {
        "label": label,
        "bad": bad,
        "entries": entries,
        "updated": updated,
        "base": f"{scheme_of(request)}://{request.url.netloc}",
        "path": request.url.path,
    }
    return _answer("feed.xml", names, "application/atom+xml")


def _answer(template: str, names: dict[str, object], kind: str) -> Response:
    text = environment().get_template(template).render(names)
    return Response(text, headers=HEADERS | {"Cache-Control": "no-cache"}, media_type=f"{kind}; charset=utf-8")
