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
from arkqueue.queue.door import SQL, Kept, Queue, rows

T = TypeVar("T")


class Graph:
    """The graph of some archives, locked, inside one transaction."""

    def __init__(self, conn: Connection, archives: Iterable[int], kept: Kept | None = None) -> None:
        self.conn = conn
        self.kept = kept or Kept()
        """What is known to be stored; nothing where no archive is locked yet."""
        self.to_keep: list[Callable[[], None]] = []
        """What may be remembered once this is committed."""
        self.made_ready = False
        self.asked_to_stop = False
        self.lock(archives)

    def lock(self, archives: Iterable[int]) -> None:
        locked = self.rows("lock_archives", archives=sorted(set(archives)))
        # Another server may be a restored one, and what was kept of the last one may mean something else there.
        self.kept = self.kept.of(locked[0].server_since) if locked else Kept()

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
        *,
        may_skip: bool = True,
        may_fire: bool = True,
    ) -> None:
        """Follow up what has just happened.

        ``settled`` tasks got a final state, ``entering`` ones may have no unmet edge any more; of ``waived`` ones, settled before, the edges are judged again.
        ``then`` enter in the second round. ``may_skip``: a settled one may not have completed; ``may_fire``: one that enters may have ``cancels``.
        """
        then_may_fire = may_fire
        if waived:
            entering = [*entering, *(row.id for row in self._released(waived))]
        while settled or entering or then:
            entering = list(entering)
            if settled:
                released = self._released(settled)
                may_fire = may_fire or any(row.cancels for row in released)
                entering += [row.id for row in released]
                entering += [row.id for row in self.rows("tick_reports", settled=settled) if row.enters]
                settled = self.ids("skip_dependents", settled=settled) if may_skip else []
                may_skip = bool(settled)
            if entering:
                canceled = self._fire(entering) if may_fire else []
                may_skip = may_skip or bool(canceled)
                settled = [*settled, *canceled]
                for row in self.rows("enter", entering=entering):
                    if row.gate:
                        settled.append(row.id)
                    else:
                        self.made_ready = True
            # Of what is released it is told whether it cancels.
            entering, then, may_fire = then, (), then_may_fire and bool(then)

    def _released(self, settled: Sequence[int]) -> list[Any]:
        return [row for row in self.rows("release", settled=settled) if row.enters]

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
        if not self.rows("lock_victims", firing=firing, here=here):
            self.do("fire", firing=firing)
            return []
        # What stops comes first: a canceler that another one cancels fires all the same, as they fire together.
        fired = self.rows("stop_victims", firing=firing, here=here)
        self.asked_to_stop |= any(row.asked for row in fired)
        return self.ids("cancel_victims", firing=firing, here=here)


def change(queue: Queue, archives: Iterable[int], work: Callable[[Graph], T]) -> T:
    """Run ``work`` on the locked graph of some archives in one transaction (again after a deadlock), then wake whom it concerns."""
    graph: list[Graph] = []

    def transaction(conn: Connection) -> T:
        graph[:] = [Graph(conn, archives, queue.kept)]
        return work(graph[0])

    result = queue.retrying(transaction)
    for keep in graph[0].to_keep:
        keep()
    if graph[0].made_ready:
        queue.wake("ready")
    if graph[0].asked_to_stop:
        queue.wake("stop")
    return result
