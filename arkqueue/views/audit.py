"""The audit log: what people did, and when (design 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, RunId, TaskId
from arkqueue.names import run_name, task_in_run

MOST_DEEDS = 50
"""The most audit log entries that are shown with a run or a task."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry. ``name``: the name of the thing on which the verb acted; empty: the installation."""

    id: int
    at: datetime
    by: str
    verb: str
    name: str
    note: str


def audit_log(
    session: Session,
    archives: Sequence[ArchiveId] | None,
    *,
    by: str = "",
    verb: str = "",
    before: int | None = None,
    most: int = 50,
    hidden: bool = False,
) -> tuple[list[Entry], int | None]:
    """A page of the audit log, the newest entry first, and the cursor of the next page (None: this
    is the last). ``archives``: entries of these archives; None: of all, and of the installation.

    ``by``: a part of the actor's name. ``hidden``: True to include entries on tokens and deleted
    runs.
    """
    asked = None if archives is None else list(archives)
    rows = session.rows("audit_log", archives=asked, by=by, verb=verb, before=before, hidden=hidden, limit=most + 1)
    return [_entry(row) for row in rows[:most]], rows[most - 1].id if len(rows) > most else None


def _entry(row: Any) -> Entry:
    name = row.archive or ""
    if row.number is not None:
        name = run_name(row) + (task_in_run(row.name, row.item) if row.name is not None else "")
    return Entry(row.id, row.at, row.by, row.verb, name, row.note)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeedView:
    """An entry of the audit log. ``task``: the task as in an address (``deposit/13030%2Fm5``); None: the entry is about a whole run or archive.

    ``of``: the archive on all of which the verb acted, or, in the history of a task, the whole run;
    None: the verb acted on the thing that is shown.
    """

    at: datetime
    by: str
    verb: str
    task: str | None
    of: str | None
    note: str


def deeds(session: Session, *, tasks: Sequence[TaskId] = (), runs: Sequence[RunId] = ()) -> list[DeedView]:
    """The newest audit log entries of tasks, or of runs and their tasks, oldest first: up to
    `MOST_DEEDS`, and one more if there are more.
    """
    rows = session.rows("show_deeds", tasks=list(tasks) or None, runs=list(runs) or None, most=MOST_DEEDS + 1)
    return [
        DeedView(at=row.at, by=row.by, verb=row.verb, task=_in_run(row), of=_of_whole(row, runs), note=row.note)
        for row in reversed(rows)
    ]


def _of_whole(row: Any, runs: Sequence[RunId]) -> str | None:
    if row.is_of_archive:
        # The note on a backfill begins with its name.
        return None if row.note.startswith(f"{row.archive}@") else row.archive + " --all" * (row.verb == "release")
    return run_name(row) if row.is_of_run and not runs else None


def _in_run(row: Any) -> str | None:
    return None if row.name is None else task_in_run(row.name, row.item).removeprefix("/")
