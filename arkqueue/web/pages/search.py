"""The search. A name of the command line, or an id of a single revision, leads straight to its
page; any other text is searched as words.

With ``?author=``, and at ``/-/mine``, it is the page for a person who has just committed: the last
revisions of an author, and their failures.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from arkqueue.errors import ArkqueueError
from arkqueue.model import RunId
from arkqueue.names import COMMIT_RUN, branch_name, page_path, parse_name, task_in_run
from arkqueue.states import RunState
from arkqueue.views.attention import faulty_at_heads, last_lines, notes_of, unhandled_in
from arkqueue.views.cells import cells_of
from arkqueue.views.find import find_revision, find_run, own_names
from arkqueue.views.runs import RunView
from arkqueue.views.search import MOST_LOOKED_AT, Found, runs_with_words, search
from arkqueue.views.tasks import TaskView
from arkqueue.web.access import Caller
from arkqueue.web.pages.answer import HEADERS, Shown, asked, asked_id, local
from arkqueue.web.pages.nearby import is_there, nearby
from arkqueue.web.pages.task_rows import noted, reason_of
from arkqueue.web.pages.visitor import Visitor
from arkqueue.web.rights import A_PERSON

MOST: Final = 20
"""The most results of one kind."""
MOST_FAILED: Final = 3
"""The most failed tasks that are shown of a run."""


_SERVER: Final = re.compile("(https?://[^/]+)?/")
"""The part before a name in the address of a browser."""


_WITH_BRANCH: Final = re.compile(r"(?:(?P<archive>[^:@/]+):)?(?P<branch>[^:@]+)(?P<rest>@.*)?", re.S)
"""A branch, of an archive or of the one whose page is shown, and perhaps a revision of it. A person
writes a slash in its name as it is.
"""


_NUMBERED: Final = re.compile(r"(?:(?P<of>\S+)\s+)?[r#]?(?P<rest>\d.*)", re.S)
"""A revision as people write it: ``papers 12``, ``r12``, ``#12/pdf``."""


_BY_ID: Final = re.compile(r"(?P<of>\S+)\s+g?(?P<id>[0-9a-f]{4,40})", re.I)
"""A Git revision of an archive: ``papers 5126590f``."""


_COPIED: Final = re.compile(r"^commit\s+(?=[0-9a-f]{7,64}$)", re.I)
"""The word before the id of a commit in the output of ``git log``."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A run, and its first failed tasks. ``lines``: for each of them, the last line of its output, or
    its reason. ``notes``: for each of them, the note on it, or an empty text. ``more``: the number of
    its other failures. ``unhandled``: the names of its tasks with failures that nobody has handled.
    ``is_faulty``: its workflow files have faults, and it is the newest commit of its branch.
    """

    run: RunView
    failed: list[TaskView]
    lines: list[str]
    notes: list[str]
    more: int
    unhandled: list[str]
    is_faulty: bool


def look_for(visitor: Visitor, request: Request) -> Shown | Response:
    """The results of ``?q=``. ``?archive=``: the archive in which a plain number is looked up
    first. ``?items=``: only items older than this task. ``?before=``: only revisions before this one,
    by its id in the database. ``?author=``: the last revisions of an author.
    """
    caller = visitor.caller
    text, author = asked(request, "q"), asked(request, "author")
    text, archive = _COPIED.sub("", text), asked(request, "archive")
    tasks = list[str]()
    if text:
        address = _address(caller, text, archive)
        tasks = [] if address else _tasks_of_run(caller, text, archive)
        if address or len(tasks) == 1:
            return RedirectResponse(local(f"/{page_path(address or tasks[0])}"), 303, HEADERS)
    covered = caller.archives()
    before = asked_id(request, "before")
    if author or before is not None:
        runs, earlier = runs_with_words(caller.session, text, covered, MOST, author, before)
        return _shown(caller, text, author, Found([], [], [], [], [], [], earlier), runs, is_later=before is not None)
    found = search(caller.session, text, covered, MOST, asked_id(request, "items"))
    if len(found.exact) == 1 and not text.isdecimal():
        return RedirectResponse(local(f"/{found.exact[0].full_name}"), 303, HEADERS)
    known = {run.id for run in found.exact}
    return _shown(caller, text, "", found, [*found.exact, *(run for run in found.runs if run.id not in known)], tasks)


def mine(visitor: Visitor, request: Request) -> Shown:
    """The page for a person who has just committed: the last revisions of the visitor's authors, or
    of ``?author=``, with the line at which each failed.
    """
    caller, author = visitor.caller, asked(request, "author")
    authors = [author] if author else caller.token.authors
    covered = caller.archives()
    found = [runs_with_words(caller.session, "", covered, MOST, one) for one in authors]
    runs = {run.id: run for some, _ in found for run in some}
    newest = [runs[id] for id in sorted(runs, reverse=True)[:MOST]]
    is_cut = len(runs) > MOST or any(earlier is not None for _, earlier in found)
    names = {"author": author, "authors": authors, "hits": _hits(caller, newest), "_is_cut": is_cut}
    return Shown("mine.html", names | {"_is_person": caller.token.id == A_PERSON})


def _hits(caller: Caller, runs: Sequence[RunView]) -> list[Hit]:
    """Runs with their failed tasks."""
    may_have_failed = [run for run in runs if run.state in (RunState.FAILED, RunState.PROCESSING)]
    unhandled = unhandled_in(caller.session, [run.id for run in may_have_failed])
    failed = cells_of(caller.session, may_have_failed, unhandled=unhandled)
    bad = {id: [cell for cell in cells if cell.bad] for id, cells in failed.runs.items()}
    shown = {id: [cell.task for cell in cells[:MOST_FAILED]] for id, cells in bad.items()}
    lines = last_lines(caller.session, [*chain.from_iterable(shown.values())])
    notes = notes_of(caller.session, [task.id for task in chain.from_iterable(shown.values())])
    names: dict[int, list[str]] = defaultdict(list)
    for id, name in sorted(unhandled):
        names[id].append(name)
    is_any_faulty = any(run.faults for run in runs)
    at_heads = faulty_at_heads(caller.session, caller.archives()) if is_any_faulty else set()
    return [
        Hit(
            run,
            of := shown.get(run.id, []),
            [lines.get(task.id, task.why) for task in of],
            [noted(note) if (note := notes.get(task.id)) else "" for task in of],
            sum(cell.bad for cell in bad.get(run.id, [])) - len(of),
            names[run.id],
            run.id in at_heads,
        )
        for run in runs
    ]


def _shown(
    caller: Caller,
    text: str,
    author: str,
    found: Found,
    runs: Sequence[RunView],
    tasks: Sequence[str] = (),
    *,
    is_later: bool = False,
) -> Shown:
    """The page of results. ``tasks``: the names of tasks of the run that the text names. ``is_later``:
    the page has earlier revisions than the first page.
    """
    hits = _hits(caller, runs)
    is_empty = not hits and not tasks and found.is_empty
    names = {
        "text": text,
        "author": author,
        "found": found,
        "tasks": tasks,
        "hits": hits,
        "is_empty": is_empty,
        "_is_later": is_later,
        "_near": _near(caller, text) if is_empty and not author else [],
        "_looked_at": MOST_LOOKED_AT,
        "_reason": reason_of,
    }
    return Shown("search.html", names | {"own": caller.token.authors})


def _near(caller: Caller, text: str) -> list[str]:
    """The existing names that are similar to a text."""
    try:
        return nearby(caller, quote(text, safe="/:@%*")).places
    except ArkqueueError:
        return []


def _address(caller: Caller, text: str, archive: str) -> str:
    """The address that a text means, written as on the command line or copied from a browser; empty
    if it leads to nothing that exists.
    """
    for name in _names(text, archive):
        try:
            if is_there(caller, name):
                return name
        except ArkqueueError:
            continue
    return ""


def _names(text: str, archive: str) -> list[str]:
    """The names that a text may mean. ``archive``: the archive whose page is shown."""
    if in_browser := _SERVER.match(text):
        text = text[in_browser.end() :].partition("?")[0].partition("#")[0]
    names = [text] if text else []
    if archive:
        names += [f"{archive}@{text}", f"{archive}@g{text}"]
    if (found := _NUMBERED.fullmatch(text)) and (of := found["of"] or archive):
        names.append(f"{of}@{found['rest']}")
    if found := _BY_ID.fullmatch(text):
        names.append(f"{found['of']}@g{found['id'].lower()}")
    if (found := _WITH_BRANCH.fullmatch(text)) and (of := found["archive"] or archive):
        names.append(f"{branch_name(of, unquote(found['branch']))}{found['rest'] or ''}")
    return names


def _tasks_of_run(caller: Caller, text: str, archive: str) -> list[str]:
    """The tasks of the run of a text like ``papers@12/up`` whose names contain its end: first those
    that begin with it.
    """
    for one in _names(text, archive):
        try:
            name = parse_name(one)
            if name.task is None or name.item:
                continue
            of_run = replace(name, task=None)
            caller.archive(name.archive)
            caller.run(RunId(find_run(caller.session, of_run)))
            place = find_revision(caller.session, caller.archive(name.archive), of_run)
        except ArkqueueError:
            continue
        begin = name.task.casefold()
        own = own_names(caller.session, place, name.run or COMMIT_RUN)
        like = sorted(
            (one for one in own if begin in one.casefold()), key=lambda one: (not one.casefold().startswith(begin), one)
        )
        return [f"{of_run}{task_in_run(one)}" for one in like[:MOST]]
    return []
