"""Counts the queue's depth once a minute, for the plot of the last day. Every queue manager calls
it; only one of them counts each minute.
"""

from __future__ import annotations

from arkqueue.db.session import Session

EVERY = 60.0
"""Seconds between two counts."""
KEPT = 25 * 3600.0
"""Seconds for which a count is kept."""


def count(session: Session) -> None:
    """Count the ready and the running tasks, unless another queue manager has counted this minute."""
    session.do("count_queue")
    session.do("forget_depths", age=KEPT)
