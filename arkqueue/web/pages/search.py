"""The search. A name of the command line, or an id of a single revision, leads straight to its
page; any other text is searched as words.

With ``?author=``, and at ``/-/mine``, it is the page for a person who has just committed: the last
revisions of an author, and their failures.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from arkqueue.errors import ArkqueueError
from arkqueue.names import page_path
from arkqueue.states import RunState
from arkqueue.views.attention import last_lines
from arkqueue.views.runs import RunView
from arkqueue.views.search import MOST_LOOKED_AT, Found, runs_with_words, search
from arkqueue.views.tasks import TaskView, cells_of
from arkqueue.web.access import Caller
from arkqueue.web.pages.answer import HEADERS, Shown, asked, local
from arkqueue.web.pages.nearby import is_there
from arkqueue.web.pages.visitor import Visitor

MOST: Final = 20
"""The most results of one kind."""
MOST_FAILED: Final = 3
"""The most failed tasks that are shown of a run."""


_SERVER: Final = re.compile("(https?://[^/]+)?/")
"""The part before a name in the address of a browser."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A run, and its first failed tasks. ``line``: the last output line of the first failed task."""

    run: RunView
    failed: list[TaskView]
    line: str


def look_for(visitor: Visitor, request: Request) -> Shown | Response:
    """The results of ``?q=``. ``?archive=``: the archive in which a plain number is looked up
    first. ``?items=``: only items older than this task. ``?author=``: the last revisions of an
    author.
    """
    caller = visitor.caller
    text, author = asked(request, "q"), asked(request, "author")
    if text and (address := _address(caller, text, asked(request, "archive"))):
        return RedirectResponse(local(f"/{page_path(address)}"), 303, HEADERS)
    covered = caller.archives()
    if author:
        nothing = Found([], [], [], [], [])
        runs = runs_with_words(caller.session, text, covered, MOST, author)
        return _shown(caller, text, author, nothing, runs)
    items = asked(request, "items")
    before = int(items) if items.isdecimal() and len(items) < 19 else None
    found = search(caller.session, text, covered, MOST, before)
    if len(found.exact) == 1 and not text.isdecimal():
        return RedirectResponse(local(f"/{found.exact[0].full_name}"), 303, HEADERS)
    known = {run.id for run in found.exact}
    return _shown(caller, text, "", found, [*found.exact, *(run for run in found.runs if run.id not in known)])


def mine(visitor: Visitor, request: Request) -> Shown:
    """The page for a person who has just committed: the last revisions of the visitor's authors, or
    of ``?author=``, with the line at which each failed.
    """
    caller, author = visitor.caller, asked(request, "author")
    authors = [author] if author else caller.token.authors
    covered = caller.archives()
    runs = {run.id: run for one in authors for run in runs_with_words(caller.session, "", covered, MOST, one)}
    newest = [runs[id] for id in sorted(runs, reverse=True)[:MOST]]
    names = {"author": author, "authors": authors, "hits": _hits(caller, newest)}
    return Shown("mine.html", names)


def _hits(caller: Caller, runs: Sequence[RunView]) -> list[Hit]:
    """Runs with their failed tasks."""
    failed = cells_of(caller.session, [run for run in runs if run.state in (RunState.FAILED, RunState.PROCESSING)])
    bad = {id: [cell.task for cell in cells if cell.bad] for id, cells in failed.runs.items()}
    lines = last_lines(caller.session, [tasks[0] for tasks in bad.values() if tasks])
    return [_hit(run, bad.get(run.id, []), lines) for run in runs]


def _shown(caller: Caller, text: str, author: str, found: Found, runs: Sequence[RunView]) -> Shown:
    hits = _hits(caller, runs)
    is_empty = not hits and found.is_empty
    names = {
        "text": text,
        "author": author,
        "found": found,
        "hits": hits,
        "is_empty": is_empty,
        "_looked_at": MOST_LOOKED_AT,
    }
    return Shown("search.html", names | {"own": caller.token.authors})


def _hit(run: RunView, failed: Sequence[TaskView], lines: Mapping[int, str]) -> Hit:
    return Hit(run, list(failed[:MOST_FAILED]), lines.get(failed[0].id, failed[0].why) if failed else "")


def _address(caller: Caller, text: str, archive: str) -> str:
    """The address that a text means, written as on the command line or copied from a browser; empty
    if it leads to nothing that exists.
    """
    if in_browser := _SERVER.match(text):
        text = text[in_browser.end() :].partition("?")[0].partition("#")[0]
    for name in (text, f"{archive}@{text}" if archive else "", f"{archive}@g{text}" if archive else ""):
        try:
            if name and is_there(caller, name):
                return name
        except ArkqueueError:
            continue
    return ""
