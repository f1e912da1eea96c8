"""Attempts as people see them: the executions of a task or of its poll."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import NotFound
from arkqueue.model import AttemptId, AttemptKind, TaskId
from arkqueue.usage import usage_in_words
from arkqueue.views.rows import view_of


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """One execution of a task, or of its poll. ``end`` None: it goes on. ``base``: the revision id
    that was its BASE. ``log_bytes``: the bytes that it wrote.

    ``processor_seconds``: the processor time, user and system. ``peak_memory_bytes``: the memory of
    the largest process of the attempt's tree, or of its container; the guard itself has 10 MiB, so
    no process shows less. Both are None while the attempt runs, and if nothing measured them.
    ``usage_sampled``: True if both were read while the attempt ran, as for a container, so that it
    used at least as much.

    ``image``: the digest of its container's image; None: it was a process. ``log_removed``,
    ``outputs_removed``: the sentence shown in place of a removed log or removed outputs.
    """

    id: int
    task: int
    kind: AttemptKind
    number: int
    process: str
    host: str
    hostname: str | None
    lease_until: datetime
    claimed_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    exit_code: int | None
    end: str | None
    message: str
    outputs: dict[str, Any] | None
    base: str | None
    log_bytes: int
    image: str | None
    processor_seconds: float | None
    peak_memory_bytes: int | None
    usage_sampled: bool | None
    log_removed: str | None
    outputs_removed: str | None

    @property
    def used(self) -> str:
        """Its resources in words; empty if they are not known."""
        return usage_in_words(self.processor_seconds, self.peak_memory_bytes, self.usage_sampled)


@dataclass(frozen=True, slots=True)
class AttemptsAround:
    """Some attempts of a task that may have thousands, as it is polled for weeks. ``count``: the number
    of all. ``newest``: the id of the newest one, ``chosen`` of the one that was asked for, or else of
    the newest one; None: there is none. ``shown``: the ids of those to list, the oldest first.
    ``earlier`` and ``later``: the numbers of attempts before and behind these; None: there are none.
    """

    count: int
    newest: AttemptId | None
    chosen: AttemptId | None
    shown: Sequence[AttemptId]
    earlier: int | None
    later: int | None


def attempts(session: Session, task: TaskId, only: Sequence[AttemptId] | None = None) -> list[AttemptView]:
    """The attempts of a task, the oldest first. ``only``: these; None: all."""
    asked = {"tasks": [task], "attempts": None} if only is None else {"tasks": None, "attempts": list(only)}
    return [_attempt(row) for row in session.rows("show_attempts", **asked)]


def attempts_around(session: Session, task: TaskId, number: int | None, most: int) -> AttemptsAround:
    """The newest attempts of a task, or those around the one with this number."""
    rows = session.rows("attempts_around", task=task, number=number, most=most)
    shown = [at for at, row in enumerate(rows) if row.is_shown]
    behind = rows[shown[-1] + 1 :][: most // 2] if rows else []
    return AttemptsAround(
        count=rows[-1].count if rows else 0,
        newest=AttemptId(rows[-1].id) if rows else None,
        chosen=next((AttemptId(row.id) for row in rows if row.is_chosen), None),
        shown=[AttemptId(rows[at].id) for at in shown],
        earlier=rows[0].number if rows and not rows[0].is_shown else None,
        later=behind[-1].number if behind else None,
    )


def attempt(session: Session, attempt: AttemptId) -> AttemptView:
    """One attempt."""
    found = session.rows("show_attempts", tasks=None, attempts=[attempt])
    if not found:
        raise NotFound(f"attempt {attempt}", "does not exist")
    return _attempt(found[0])


def _attempt(row: Any) -> AttemptView:
    return view_of(row, AttemptView, task=row.task_id, kind=AttemptKind(row.kind))
