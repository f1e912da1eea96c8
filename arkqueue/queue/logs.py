"""Writes of logs. A write counts only while the attempt is live and belongs to the process that writes (design 6); ``arkqueue.logs`` has the story.

Whether somebody follows a log stands with its attempt. So a log that nobody follows wakes nobody, however much is written.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from arkqueue.db.session import Session
from arkqueue.model import AttemptId, LogAppend, LogCut


def append(session: Session, process: str, appends: Sequence[LogAppend]) -> set[AttemptId]:
    """Store the next chunks of some logs, all in one transaction, and return the attempts that still belong to ``process``.

    Nothing is stored of an attempt that is not returned. A chunk that is stored already is left as it is, so a call may be repeated.
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
    """Have ``log`` woken for so many seconds when some logs grow or end; returns those for which this holds. For the others ask again soon."""
    return {row.id for row in session.rows("follow_logs", attempts=list(attempts), seconds=seconds)}
