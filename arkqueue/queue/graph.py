"""Changes of the graph: one transaction that locks, acts, and follows up what its act brings about.

What settles meets edges; what has no unmet edge enters, fires its cancellations, becomes ready or passes; what that settles goes on from there
(docs/decisions/0001, point 3). Every verb of the queue that moves a task goes through ``change`` and ends with ``Graph.follow``.

Locks are taken in one order everywhere (archive, branch, task, attempt; ascending): an archive's row makes the changes of its graph take turns, and only
claims and renewals happen beside it. A row that is judged is locked by an earlier statement, so that the judging statement sees it as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from arkqueue.db import Connection
from arkqueue.queue.door import SQL, Queue, rows

T = TypeVar("T")


class Graph:
    """The graph of some archives, locked, inside one transaction."""

    def __init__(self, conn: Connection, archives: Iterable[int]) -> None:
        self.conn = conn
        self.made_ready = False
        self.asked_to_stop = False
        self.lock(archives)

    def lock(self, archives: Iterable[int]) -> None:
        self.rows("lock_archives", archives=sorted(set(archives)))

    def rows(self, block: str, /, **parameters: Any) -> list[Any]:
        """All rows of a named block."""
        return rows(self.conn, block, **parameters)

    def ids(self, block: str, /, **parameters: Any) -> list[int]:
        """The first column of a named block."""
        return [row[0] for row in self.rows(block, **parameters)]

    def do(self, block: str, /, **parameters: Any) -> int:
        """Run a named block and return how many rows it touched."""
        return self.conn.execute(SQL[block], parameters).rowcount

    def follow(
        self,
        settled: Sequence[int] = (),
        entering: Sequence[int] = (),
        waived: Sequence[int] = (),
        then: Sequence[int] = (),
    ) -> None:
        """Follow up what has just happened.

        ``settled`` tasks got a final state, ``entering`` ones may have no unmet edge any more; of ``waived`` ones, settled before, the edges are judged again.
        ``then`` enter in the second round.
        """
        if waived:
            entering = [*entering, *self._release(waived)]
        while settled or entering or then:
            entering = list(entering)
            if settled:
                entering += self._release(settled)
                entering += [row.id for row in self.rows("tick_reports", settled=settled) if row.enters]
                settled = self.ids("skip_dependents", settled=settled)
            if entering:
                settled = [*settled, *self._fire(entering)]
                for row in self.rows("enter", entering=entering):
                    if row.gate:
                        settled.append(row.id)
                    else:
                        self.made_ready = True
            entering, then = then, ()

    def _release(self, settled: Sequence[int]) -> list[int]:
        return [row.id for row in self.rows("release", settled=settled) if row.enters]

    def _fire(self, entering: Sequence[int]) -> list[int]:
        """Let the entering tasks' ``cancels`` fire: across runs all at once, inside a run one after the other."""
        cancelers = self.rows("cancelers", entering=entering)
        canceled = self._cancel_victims([row.id for row in cancelers if row.across], here=False)
        for row in cancelers:
            if row.here:
                canceled += self._cancel_victims([row.id], here=True)
        return canceled

    def _cancel_victims(self, firing: Sequence[int], *, here: bool) -> list[int]:
        if not firing:
            return []
        self.rows("lock_victims", firing=firing, here=here)
        canceled = self.ids("cancel_victims", firing=firing, here=here)
        fired = self.rows("stop_victims", firing=firing, here=here)
        self.asked_to_stop |= any(row.asked for row in fired)
        return canceled


def change(queue: Queue, archives: Iterable[int], work: Callable[[Graph], T]) -> T:
    """Run ``work`` on the locked graph of some archives in one transaction (again after a deadlock), then wake whom it concerns."""
    graph: list[Graph] = []

    def transaction(conn: Connection) -> T:
        graph[:] = [Graph(conn, archives)]
        return work(graph[0])

    result = queue.retrying(transaction)
    if graph[0].made_ready:
        queue.wake("ready")
    if graph[0].asked_to_stop:
        queue.wake("stop")
    return result
