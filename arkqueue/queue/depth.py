"""How deep the queue is, counted once a minute for the plot of the last day. Called by every queue manager; of several, one counts each minute."""

from __future__ import annotations

from arkqueue.db.session import Session

EVERY = 60.0
"""Seconds between two counts."""
KEPT = 25 * 3600.0
"""Seconds for which a count is kept."""


def count(session: Session) -> None:
    """Count what is ready and what runs now, unless this minute is counted already."""
    session.do("count_queue")
    session.do("forget_depths", age=KEPT)
