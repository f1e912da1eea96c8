"""The database for a visitor who has not signed in: what happens in public archives, without the
persons who acted and the reasons that they gave.

The views of such a visitor read through `PublicSession`, which empties these columns in the rows of
every statement. So no sentence, page or JSON document that is made of a row can contain them. The
authors and messages of revisions are public.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from arkqueue.db.session import Block, Session
from arkqueue.model import ASSUMED_GONE, End

PERSONS = frozenset(
    ("by", "archive_held_by", "canceled_by", "deleted_by", "drained_by", "held_by", "hold_by", "made_by", "paused_by",
     "released_by", "submitter")
)  # fmt: skip
"""The columns that name a person who acted."""
REASONS = frozenset(
    ("archive_held_note", "drain_reason", "held_note", "hold_note", "note", "pause_reason", "reason", "released_note")
)
"""The columns with the reason that a person gave, or the text of a note."""
CLOSED = frozenset(("show_deeds", "audit_log"))
"""The statements that return audit log entries. A visitor who has not signed in gets no rows."""
REMOVED = frozenset(("log_removed", "outputs_removed", "removed"))
"""The columns with the sentence in place of what was removed, which ends with a person and a reason."""


class PublicSession(Session):
    """A session for the visitors who have not signed in."""

    __slots__ = ()

    def rows(self, block: str, /, *, binary: bool = False, **parameters: Any) -> list[Any]:
        return without_persons(block, super().rows(block, binary=binary, **parameters))

    def rows_of(self, *blocks: Block) -> list[list[Any]]:
        found = super().rows_of(*blocks)
        return [without_persons(block, rows) for (block, _), rows in zip(blocks, found, strict=True)]


def in_public(session: Session) -> Session:
    """The session for the visitors who have not signed in."""
    return PublicSession(session.database, session.wakeups, session.kept, session.admission)


def without_persons(block: str, rows: list[Any]) -> list[Any]:
    """The rows of a named block without persons and reasons. A column that is NULL stays NULL."""
    if block in CLOSED:
        return []
    if not rows:
        return rows
    known = {*rows[0]._fields}
    hidden, removed = (PERSONS | REASONS) & known, REMOVED & known
    is_attempt = {"end", "message"} <= known
    if not (hidden or removed or is_attempt):
        return rows
    return [_without(row, hidden, removed, is_attempt=is_attempt) for row in rows]


def _without(row: Any, hidden: Set[str], removed: Set[str], *, is_attempt: bool) -> Any:
    changed = {name: "" for name in hidden if getattr(row, name) is not None}
    for name in removed:
        if (said := getattr(row, name)) is not None:
            changed[name] = said.partition(" UTC by ")[0] + " UTC"
    if is_attempt and row.end == End.LOST and (row.message or "").startswith(ASSUMED_GONE):
        changed["message"] = ASSUMED_GONE
    return row._replace(**changed)
