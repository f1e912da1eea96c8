"""How many attempts of an archive run at once (``max_running``, design 5.26): its rows of ``slot``, of which a claim takes one with each task.

A claim takes them beside the archive's lock, so they are locked first and judged by the next statement. The end of an attempt gives its slot back in the
transaction that records it.
"""

from __future__ import annotations

from collections.abc import Sequence

from arkqueue.model import AttemptId
from arkqueue.queue.graph import Graph


def return_slots(graph: Graph, attempts: Sequence[AttemptId]) -> None:
    """Give back the slots of attempts that ended. Where no archive is limited there are none, and nothing is asked."""
    if graph.limited:
        for archive in graph.ids("return_slots", attempts=list(attempts)):
            fit_slots(graph, archive, is_limited=True)


def fit_slots(graph: Graph, archive: int, *, is_limited: bool) -> bool:
    """Let a locked archive have as many slots as its setting says, and one for each attempt that runs; whether it has any, or had."""
    if not graph.rows("lock_slots", archive=archive) and not is_limited:
        return False
    for block in ("drop_slots", "give_slots", "close_slots", "open_slots"):
        graph.do(block, archive=archive)
    graph.to_wake.add("ready")
    return True
