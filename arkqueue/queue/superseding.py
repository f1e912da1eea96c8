"""Cancels the victims of tasks with ``cancels`` in steps (design 5.10), if they are more than one
transaction cancels, as the items of a long list are, or stand late in a long chain of cancellations.

    begin    a task's last edge is met: the transaction notes its ``cancels`` in ``superseding``
             (`Graph`); the task has fired, and waits; running victims are asked to stop, and each
             becomes an edge
    cancel   the victims are canceled, the oldest run first, and in a large run each victim before
             its dependencies; as often as needed
    end      the rows of ``superseding`` are deleted, and the task enters again

Each step is a transaction of its own under the archive's lock. A queue manager takes the steps,
also after a crash. From the first transaction on, no claim takes a victim (`claim.sql`), and no
victim enters (`advance`): no gate among them passes, and none of their ``cancels`` fires. No victim
is skipped behind another one (`skip_dependents`), as it would block later revisions then. The steps
go on even if a person cancels the superseding task meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby

from arkqueue.db.session import Session
from arkqueue.model import RunId
from arkqueue.queue.changes import BRIEF, change_in_turn
from arkqueue.queue.graph import MOST_VICTIMS, Graph
from arkqueue.queue.steps import each_archive, last_first

MOST_TASKS = MOST_VICTIMS
"""The most tasks that one step cancels, or lets enter."""


class Superseder:
    """Takes the steps. It caches the order in which the tasks of an archive are canceled: to read
    that again would take longer than a step.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._left: dict[int, list[int]] = {}
        """The tasks that are still to be canceled, by archive."""

    def turn(self, patience: float = BRIEF) -> float | None:
        """Take the next step of each archive. Returns the seconds until there is more to do; None
        if there is nothing.
        """
        found = [row.archive for row in self._session.rows("supersedings")]
        self._left = {archive: left for archive, left in self._left.items() if archive in found}
        return each_archive(found, partial(self._step, patience=patience), "the cancellation of superseded tasks")

    def _step(self, archive: int, patience: float) -> bool:
        """Take the next step of an archive. Returns False if the archive was busy."""
        left = self._left.get(archive) or self._in_order(archive)
        portion = left[:MOST_TASKS]
        work = partial(_cancel, tasks=portion) if portion else _end
        busy = change_in_turn(self._session, work, archives=[archive], patience=patience)[1]
        self._left[archive] = left if busy else left[len(portion) :]
        return not busy

    def _in_order(self, archive: int) -> list[int]:
        found: list[int] = []
        rows = self._session.rows("to_supersede", archive=archive)
        for run, of_run in groupby(rows, key=lambda row: row.run_id):
            tasks = [row.id for row in of_run]
            found += last_first(self._session, RunId(run), tasks) if len(rows) > MOST_TASKS else tasks
        return found


def _cancel(graph: Graph, tasks: Sequence[int]) -> None:
    graph.rows("lock_tasks", tasks=list(tasks))
    graph.follow(graph.supersede(tasks))


def _end(graph: Graph) -> None:
    (archive,) = graph.archives
    graph.follow(entering=graph.ids("end_superseding", archive=archive, most=MOST_TASKS))
