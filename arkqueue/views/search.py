"""Searches for archives, revisions, authors, tasks and items by a few words (design 8).
``views.find`` resolves exact names.

Words match whole or by their beginning, in messages and authors of all revisions; there is an index
for them (``words_of``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from string import punctuation
from typing import Any
from urllib.parse import unquote

from arkqueue.db.session import Session
from arkqueue.model import ArchiveId
from arkqueue.names import branch_name
from arkqueue.text import visible
from arkqueue.views.runs import RunView, views_of_runs
from arkqueue.views.tasks import TaskView, tasks_by_id

LONGEST = 200
"""The most characters of a searched text that count."""
MOST_LOOKED_AT = 500
"""The most tasks of a list that are compared when the keys of its items begin with the searched
text: the last ones by key. `Found.is_cut` says that a list has more.
"""
_BLANKS = str.maketrans(dict.fromkeys(punctuation, " "))
_SHA = re.compile(r"g?([0-9a-f]{4,64})", re.IGNORECASE)
_NUMBER = re.compile(r"[r#]?(\d{1,18})")


@dataclass(frozen=True, slots=True)
class TaskName:
    """A task's name, and the archive, or branch of one, that has had it."""

    name: str
    place: str


@dataclass(frozen=True, slots=True)
class BranchName:
    """A branch, and the name of its page."""

    name: str
    place: str


@dataclass(frozen=True, slots=True)
class Found:
    """The results of a search, some of each kind. ``branches``: branches of Git archives. ``exact``:
    commit runs of revisions that the text names by a number or by the beginning of an id. ``runs``:
    commit runs by words. ``earlier``: the id of the last revision that was read for ``runs``, if
    there are earlier ones; otherwise None. ``further``: the id of the last task of ``items``, if there
    are older ones; otherwise None. ``is_cut``: True if not all items with such keys were compared.
    """

    archives: list[str]
    branches: list[BranchName]
    exact: list[RunView]
    runs: list[RunView]
    tasks: list[TaskName]
    items: list[TaskView]
    earlier: int | None = None
    further: int | None = None
    is_cut: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.archives or self.branches or self.exact or self.runs or self.tasks or self.items)


def search(
    session: Session, text: str, archives: Sequence[ArchiveId] | None, most: int, before: int | None = None
) -> Found:
    """Search for a text; at most ``most`` results of each kind. ``archives`` None: in all.
    ``before``: only items that are older than this task (`Found.further`).
    """
    asked: dict[str, Any] = {"archives": None if archives is None else list(archives), "limit": most}
    names = [row.name for row in session.rows("archives_like", text=text, **asked)] if text else []
    branches = session.rows("branches_like", text=text, **asked) if text else []
    tasks = session.rows("task_names_like", text=text, **asked) if text else []
    runs, earlier = runs_with_words(session, text, archives, most)
    items, is_cut = _items(session, text, before, asked | {"limit": most + 1}) if text else ([], False)
    return Found(
        archives=names,
        branches=[
            BranchName(row.branch, branch_name(row.archive, None if row.main else row.branch)) for row in branches
        ],
        exact=_named(session, text, archives, most),
        runs=runs,
        earlier=earlier,
        tasks=[TaskName(row.name, branch_name(row.archive, None if row.main else row.branch)) for row in tasks],
        items=tasks_by_id(session, items[:most]),
        further=items[most - 1] if len(items) > most else None,
        is_cut=is_cut,
    )


def _items(session: Session, text: str, before: int | None, asked: dict[str, Any]) -> tuple[list[int], bool]:
    """The tasks of items whose keys begin with a text, the newest first, and whether some were not
    compared. A key may also be written as in an address (``a%2Fb``), and the name of its list may stand
    before it (``tile/a%2Fb``).
    """
    found = _items_with(session, text, None, before, asked)
    if not found[0] and (key := _as_key(text)) not in ("", text):
        found = _items_with(session, key, None, before, asked)
    of_list, _, rest = text.partition("/")
    if not found[0] and (key := _as_key(rest)):
        found = _items_with(session, key, of_list, before, asked)
    return found


def _as_key(text: str) -> str:
    """The key of an item that is written as in an address."""
    return unquote(text).replace("\0", "")


def _items_with(
    session: Session, key: str, task: str | None, before: int | None, asked: dict[str, Any]
) -> tuple[list[int], bool]:
    found = session.rows(
        "tasks_of_items_like", item=key, above=f"{key}\U0010ffff", task=task, before=before, looked_at=MOST_LOOKED_AT, **asked
    )  # fmt: skip
    return [row.id for row in found], bool(found and found[0].is_cut)


def runs_with_words(
    session: Session,
    text: str,
    archives: Sequence[ArchiveId] | None,
    most: int,
    author: str = "",
    before: int | None = None,
) -> tuple[list[RunView], int | None]:
    """The commit runs of the newest revisions that have all words of ``text``, and all words of
    ``author`` in their author; ``before``: only of revisions before this one. And the id of the last
    of these revisions, if there are earlier ones.
    """
    words = query_of(f"{text} {author}")
    if words is None:
        return [], None
    asked: dict[str, Any] = {"archives": None if archives is None else list(archives), "before": before}
    rows = session.rows("runs_with_words", words=words, message=None, author=query_of(author), limit=most + 1, **asked)
    runs = views_of_runs(session, [row.id for row in rows[:most] if row.id is not None])
    return runs, rows[most - 1].revision if len(rows) > most else None


def query_of(text: str) -> str | None:
    """A query for the index from the words of a text; None if the text has no word."""
    words = visible(text[:LONGEST]).translate(_BLANKS).split()
    return " & ".join(f"'{word}':*" for word in words) or None


def _named(session: Session, text: str, archives: Sequence[ArchiveId] | None, most: int) -> list[RunView]:
    number, sha = _NUMBER.fullmatch(text), _SHA.fullmatch(text)
    if not number and not sha:
        return []
    found = session.rows(
        "runs_numbered",
        number=int(number[1]) if number else None,
        prefix=sha[1].lower() if sha else None,
        archives=None if archives is None else list(archives),
        limit=most,
    )
    return views_of_runs(session, [row.id for row in found])
