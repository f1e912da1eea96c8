"""Locks of archives (``lock:``, design 5.25): their capacities and pauses, and granting them.

What is granted to whom is judged at the end of each change of an archive's graph (``Graph.grant``), so each verb here is such a change. A loop judges all lines
again and again, as task managers come and go without one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import Conflict
from arkqueue.model import ArchiveId
from arkqueue.queue.graph import Graph, change, change_in_turn

MOST_ARCHIVES = 100
"""Archives whose lines one transaction judges."""
PATIENCE = 0.5
"""Seconds for which the busy ones among them are waited for; the next call judges what this one left."""


def set_capacity(session: Session, archive: ArchiveId, name: str, capacity: int | None, by: str) -> None:
    """Set how many tasks may have a lock at once; None: any number, so that it only serves to be paused. What runs goes on."""
    note = f"{name} {'unlimited' if capacity is None else capacity}"
    _on_lock(
        session,
        archive,
        "lock set",
        by,
        note,
        lambda graph: graph.do("set_lock", archive=archive, name=name, capacity=capacity),
    )


def pause(session: Session, archive: ArchiveId, name: str, reason: str, by: str) -> None:
    """Let no task that names a lock start until ``resume``; those that were granted it give back what they have. A paused lock gets the new reason."""
    told: dict[str, Any] = {"archive": archive, "name": name, "by": by, "reason": reason}
    _on_lock(
        session, archive, "pause", by, f"--lock {name} {reason}".rstrip(), lambda graph: graph.do("pause_lock", **told)
    )


def resume(session: Session, archive: ArchiveId, name: str, shown: str, by: str) -> None:
    """Take the pause of a lock back. ``shown``: what a person calls it."""

    def work(graph: Graph) -> None:
        if not graph.rows("resume_lock", archive=archive, name=name):
            raise Conflict(f"lock {shown}", "is not paused")

    _on_lock(session, archive, "resume", by, f"--lock {name}", work)


def grant_all(session: Session) -> None:
    """Judge all lines again, as the task managers may be others now."""
    archives = [row.archive_id for row in session.rows("archives_with_locks")]
    for first in range(0, len(archives), MOST_ARCHIVES):
        change_in_turn(session, lambda _: None, archives=archives[first : first + MOST_ARCHIVES], patience=PATIENCE)


def _on_lock(
    session: Session, archive: ArchiveId, verb: str, by: str, note: str, work: Callable[[Graph], object]
) -> None:
    def on_graph(graph: Graph) -> None:
        work(graph)
        graph.do("remember", by=by, verb=verb, archive=archive, run=None, task=None, note=note)

    change(session, [archive], on_graph)
