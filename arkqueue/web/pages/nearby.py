"""The things that a visitor may have meant by an address that does not exist: similar names, and
the existing parts of the address.

Only names that the visitor may see are compared. Each place is looked up with the visitor's rights
before it is offered.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote

from arkqueue.errors import ArkqueueError, Invalid, NotFound
from arkqueue.model import RunId
from arkqueue.names import (
    COMMIT_RUN,
    EVERY_TASK,
    Name,
    as_backfill,
    branch_name,
    list_name,
    parse_branch,
    parse_name,
    task_in_run,
)
from arkqueue.text import LONGEST, similar
from arkqueue.views.backfills import find_backfill
from arkqueue.views.find import find_branch, find_item, find_revision, find_run, find_task, in_another_run, own_names
from arkqueue.views.lists import has_list
from arkqueue.web.access import Caller

MOST: Final = 3
"""The most similar names of one kind."""
_ARCHIVE: Final = re.compile(r"(?P<archive>[^@:/]+)(?P<rest>.*)", re.S)


@dataclass(frozen=True, slots=True)
class Nearby:
    """The suggestions for an address that does not exist. ``words``: words to search for.
    ``places``: existing names, the nearest first.
    """

    words: str
    places: list[str]


def nearby(caller: Caller, address: str) -> Nearby:
    """The suggestions for an address, which is percent-encoded, as browsers send it."""
    found = _ARCHIVE.match(address[:LONGEST])
    if not found or found["archive"] == "-":
        return Nearby("", [])
    archive = unquote(found["archive"])
    if archive not in (known := _archives(caller)):
        near = _near(archive, known)
        with_the_rest = [f"{name}{found['rest']}" for name in near] if found["rest"] else []
        return Nearby(archive, _existing(caller, [*with_the_rest, *near]))
    try:
        name = parse_name(address[:LONGEST])
    except Invalid:
        return Nearby(unquote(found["rest"]).strip("@:/ "), _existing(caller, _branches(caller, archive, address)))
    words = name.item.strip(EVERY_TASK) or (name.task or "").strip(EVERY_TASK) or name.revision
    places = _existing(caller, _of_archive(caller, name))
    # If the page exists, and lacks only a requested part, there is nothing to search for.
    return Nearby("" if str(name) in places else words, places)


def _archives(caller: Caller) -> list[str]:
    names = [str(row.name) for row in caller.session.rows("archive_names")]
    return [name for name in names if caller.token.covers(name)]


def _branches(caller: Caller, archive: str, address: str) -> list[str]:
    """The branches of an archive whose names are similar to an address, and the archive."""
    _, _, branch = unquote(re.split("[@/]", address, maxsplit=1)[0]).partition(":")
    names = [row.name for row in caller.session.rows("branches_named", archive=caller.archive(archive)) if row.name]
    return [*(branch_name(archive, near) for near in _near(branch, names)), branch_name(archive, None)]


def _of_archive(caller: Caller, name: Name) -> list[str]:
    """The names similar to that of a run, a task or an item of an existing archive. The nearest
    comes first, and the archive last.
    """
    of_run = replace(name, task=None, item="")
    places: list[str] = []
    with suppress(ArkqueueError):
        if name.task is not None:
            # Only visitors who may read the history of a deleted run see its tasks.
            caller.run(find_run(caller.session, of_run))
            places = [*_tasks(caller, name), str(of_run)]
    branches = _branches(caller, name.archive, branch_name(name.archive, name.branch))
    return [*places, *_revisions(caller, of_run), *branches]


def _tasks(caller: Caller, name: Name) -> list[str]:
    """The task or list of this name in another run of the revision, and the tasks of the run whose
    names are similar to it; for an item, the lists.
    """
    place = find_revision(caller.session, caller.archive(name.archive), name)
    own = own_names(caller.session, place, name.run or COMMIT_RUN)
    elsewhere = in_another_run(caller.session, place, name, own)
    run = str(replace(name, task=None, item=""))
    near = _near(name.task or "", own)
    similar_ones = [list_name(run, task) if name.item else run + task_in_run(task) for task in near]
    return [elsewhere, *similar_ones] if elsewhere else similar_ones


def _revisions(caller: Caller, name: Name) -> list[str]:
    """The revision of a name, if it has another run; otherwise the revisions around its number."""
    with suppress(ArkqueueError):
        find_revision(caller.session, caller.archive(name.archive), name)
        return [str(replace(name, run=None))]
    with suppress(ArkqueueError):
        if not name.revision.isdecimal():
            return []
        branch = find_branch(caller.session, caller.archive(name.archive), name.branch, name.archive)
        rows = caller.session.rows("nearest_revisions", branch=branch, number=int(name.revision))
        return [str(replace(name, revision=str(row.number), run=None)) for row in rows]
    return []


def _near(word: str, names: Sequence[str]) -> list[str]:
    """The names that are similar to a word, in small letters or capitals."""
    by_case: dict[str, str] = {}
    for name in names:
        by_case.setdefault(name.casefold(), name)
    return [by_case[near] for near in similar(word.casefold(), by_case, MOST)]


def _existing(caller: Caller, places: Sequence[str]) -> list[str]:
    """The places that lead to something that the caller may see."""
    found = []
    for place in dict.fromkeys(places):
        with suppress(ArkqueueError):
            if is_there(caller, place):
                found.append(place)
    return found


def is_there(caller: Caller, text: str) -> bool:
    """Whether a name leads to something that the caller may see. Raises ``NotFound`` or ``Invalid``
    if it does not.
    """
    if "@" not in text:
        archive, branch = parse_branch(text)
        id = caller.archive(archive)
        if branch is not None:
            find_branch(caller.session, id, branch, archive)
        return branch_name(archive, branch) == text
    if fill := as_backfill(text):
        find_backfill(caller.session, caller.archive(fill[0]), *fill)
        return True
    name = parse_name(text)
    caller.archive(name.archive)
    if name.task is None:
        find_run(caller.session, name)
    elif name.task == EVERY_TASK and name.item:
        find_item(caller.session, name)
    elif name.item == EVERY_TASK or not _is_task(caller, name):
        run = caller.run(RunId(find_run(caller.session, replace(name, task=None, item=""))))
        return not name.item.strip(EVERY_TASK) and has_list(caller.session, run, name.task)
    return True


def _is_task(caller: Caller, name: Name) -> bool:
    try:
        find_task(caller.session, name)
    except NotFound:
        return False
    return True
