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
from arkqueue.db.session import SQL, Kept, Session, rows
from arkqueue.plan import Awaited, followed_back

T = TypeVar("T")


class Graph:
    """The graph of some archives, locked, inside one transaction."""

    def __init__(
        self, conn: Connection, archives: Iterable[int], kept: Kept | None = None, attempts: Sequence[int] = ()
    ) -> None:
        self.conn = conn
        self.kept = kept or Kept()
        """What is known to be stored; nothing where no archive is locked yet."""
        self.to_keep: list[Callable[[], None]] = []
        """What may be remembered once this is committed."""
        self.to_wake: set[str] = set()
        """Whom what was done concerns, by topic; they are woken after the commit."""
        self.lock(archives, attempts)

    def lock(self, archives: Iterable[int], attempts: Sequence[int] = ()) -> None:
        """Lock some archives, and those of some attempts."""
        locked = self.rows("lock_archives", archives=list(set(archives)), attempts=list(attempts))
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
    ) -> None:
        """Follow up what has just happened.

        ``settled`` tasks got a final state, ``entering`` ones may have no unmet edge any more; of ``waived`` ones, settled before, the edges are judged again.
        ``then`` enter after all of that, in the second round. ``may_skip``: a settled one may not have completed.
        """
        while settled or entering or waived or then:
            if not (settled or entering or waived):
                entering, then = then, ()
            if judged := [*(settled if may_skip else ()), *waived]:
                self._hand_on(judged)
            rows = self._advance(settled, entering, waived)
            skipped = self.ids("skip_dependents", settled=list(settled)) if settled and may_skip else []
            canceled: list[int] = []
            if held := [row for row in rows if row.held_back]:
                canceled = self._fire([row.id for row in held if row.cancels])
                rows += self._advance((), [row.id for row in held], (), fired=True)
            settled = [*skipped, *canceled, *(row.id for row in rows if row.settles)]
            may_skip = bool(skipped or canceled)
            entering, then, waived = then, (), ()

    def still_awaited(self, tasks: Sequence[int], *, planned: bool = False) -> dict[Awaited, list[Awaited]]:
        """What tasks still waited for across runs that were canceled or skipped before they began, as `followed_back` says it.

        ``planned``: for tasks to be; else only of tasks that others depend on.
        """
        return followed_back(self.rows("still_awaited", tasks=tasks, planned=planned))

    def _hand_on(self, settled: Sequence[int]) -> None:
        """What depends on tasks across runs takes over what they waited for, where they never began (decision 0001, point 18)."""
        if handed := [(*passed, *one) for passed, found in self.still_awaited(settled).items() for one in found]:
            tasks, by, sources, kinds = map(list, zip(*handed, strict=True))
            self.do("hand_on", tasks=tasks, by=by, sources=sources, settled=kinds)

    def _advance(
        self, settled: Sequence[int], entering: Sequence[int], waived: Sequence[int], *, fired: bool = False
    ) -> list[Any]:
        # No tasks are told as null: that an id is one of none implies anything, and so any partial index would do.
        told = {"settled": settled, "entering": entering, "waived": waived}
        rows = self.rows("advance", fired=fired, **{name: list(tasks) or None for name, tasks in told.items()})
        if any(row.is_ready for row in rows):
            self.to_wake.add("ready")
        return rows

    def _fire(self, entering: Sequence[int]) -> list[int]:
        """Let the entering tasks' ``cancels`` fire: across runs all at once, inside a run one after the other."""
        cancelers = self.rows("cancelers", entering=entering)
        canceled = self._cancel_victims([row.id for row in cancelers if row.across], here=False)
        if inside := [row.id for row in cancelers if row.here]:
            # Also one that has nothing to cancel has fired before another one of its run cancels it.
            self.do("fire", firing=[row.id for row in cancelers])
            for canceler in inside:
                canceled += self._cancel_victims([canceler], here=True)
        return canceled

    def _cancel_victims(self, firing: Sequence[int], *, here: bool) -> list[int]:
        if not firing:
            return []
        if not self.rows("lock_victims", firing=firing, here=here):
            return []  # `advance` notes that they fired
        # What stops comes first: a canceler that another one cancels fires all the same, as they fire together.
        fired = self.rows("stop_victims", firing=firing, here=here)
        if any(row.asked for row in fired):
            self.to_wake.add("stop")
        return self.ids("cancel_victims", firing=firing, here=here)


def change(session: Session, archives: Iterable[int], work: Callable[[Graph], T], *, attempts: Sequence[int] = ()) -> T:
    """Run ``work`` on the locked graph of some archives in one transaction (again after a deadlock), then wake whom it concerns.

    ``attempts``: name theirs, too.
    """
    graph: list[Graph] = []

    def transaction(conn: Connection) -> T:
        graph[:] = [Graph(conn, archives, session.kept, attempts)]
        return work(graph[0])

    result = session.retrying(transaction)
    for keep in graph[0].to_keep:
        keep()
    if graph[0].to_wake:
        session.wake(*graph[0].to_wake)
    return result
