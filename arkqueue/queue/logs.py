"""Writes logs. A write counts only while the attempt is live and belongs to the process that writes
(design 6); the package ``arkqueue.logs`` describes the whole way of a log.

Whether somebody follows a log is stored with its attempt. So a log that nobody follows wakes no
process, however much is written.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from arkqueue.db.session import Session
from arkqueue.model import AttemptId, LogAppend, LogCut


def append(session: Session, process: str, appends: Sequence[LogAppend]) -> set[AttemptId]:
    """Store the next chunks of some logs, in one transaction. Returns the attempts that still
    belong to ``process``.

    Nothing is stored for other attempts. A chunk that is already stored stays unchanged, so a call
    may be repeated.
    """
    rows = [(each.attempt, chunk) for each in appends for chunk in each.chunks]
    ours = session.rows(
        "append_log",
        process=process,
        attempts=[each.attempt for each in appends],
        bytes=[each.size for each in appends],
        stdouts=[each.stdout for each in appends],
        stderrs=[each.stderr for each in appends],
        ids=[attempt for attempt, _ in rows],
        positions=[chunk.position for _, chunk in rows],
        streams=[str(chunk.stream) for _, chunk in rows],
        times=[chunk.at for _, chunk in rows],
        datas=[chunk.data for _, chunk in rows],
        lines=[chunk.data.count(b"\n") for _, chunk in rows],
        befores=[chunk.before for _, chunk in rows],
    )
    if any(row.followed for row in ours):
        session.wake("log")
    return {row.id for row in ours}


def cut(session: Session, process: str, cuts: Sequence[LogCut]) -> None:
    """Delete the middle of some logs."""
    session.do(
        "cut_log",
        process=process,
        attempts=[each.attempt for each in cuts],
        heads=[each.head for each in cuts],
        tails=[each.tail for each in cuts],
    )


def follow(session: Session, attempts: Collection[AttemptId], seconds: float) -> set[AttemptId]:
    """Have ``log`` woken for ``seconds`` when some logs grow or end. Returns the attempts for which
    this is on. For the others, call again soon.
    """
    return {row.id for row in session.rows("follow_logs", attempts=list(attempts), seconds=seconds)}
