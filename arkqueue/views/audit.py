"""The audit log: what people did, and when (design 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from arkqueue.db.session import Session
from arkqueue.model import ArchiveId
from arkqueue.names import run_name, task_in_run


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
