"""Limits how many attempts of an archive run at once (``max_running``, design 5.26), by rows of
``slot``: a claim takes one with each task.

A claim takes slots without the archive's lock. So a change of the slots first locks their rows, and
its next statement judges them. The transaction that records the end of an attempt also gives back
its slot.
"""

from __future__ import annotations

from collections.abc import Sequence

from arkqueue.model import AttemptId
from arkqueue.queue.graph import Graph


def return_slots(graph: Graph, attempts: Sequence[AttemptId]) -> None:
    """Give back the slots of attempts that ended. Without a limited archive there are no slots, and
    no statement runs.
    """
    if graph.limited:
        for archive in graph.ids("return_slots", attempts=list(attempts)):
            fit_slots(graph, archive, is_limited=True)


def fit_slots(graph: Graph, archive: int, *, is_limited: bool) -> bool:
    """Give a locked archive as many slots as its setting says, plus those that running attempts
    still occupy. Returns whether it has any slots, or had.
    """
    if not graph.rows("lock_slots", archive=archive) and not is_limited:
        return False
    for block in ("drop_slots", "give_slots", "close_slots", "open_slots"):
        graph.do(block, archive=archive)
    graph.to_wake.add("ready")
    return True
