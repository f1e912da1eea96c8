"""Verbs that end many tasks in several transactions: cancel and delete of a large run, and cancel
of a large backfill (design 5.33).

First, the tasks that could start are held (`set_aside`), a limited number with each transaction,
until no task could start any more. Then each task of a large run ends before its dependencies
(`last_first`). In another order, a task that waits for any end of another one would start, and a
task that needs success would be skipped instead of canceled. A large backfill ends run by run from
its oldest run on. When a task ends, the tasks that the canceled tasks behind it block are judged
again, and behind the oldest open run no task is canceled yet.

After a crash, the other tasks stay held, and show the reason. The same command, given again,
continues.
"""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final

from arkqueue.db.session import Session
from arkqueue.errors import DatabaseUnavailable
from arkqueue.model import RunId
from arkqueue.queue.changes import BRIEF, TOO_LONG, change
from arkqueue.queue.done import give_way, portions
from arkqueue.queue.graph import Graph
from arkqueue.states import State

log = logging.getLogger("arkqueue")

PAUSE_AFTER_ERROR: Final = 10.0
"""Seconds until `each_archive` repeats a step that failed."""
NOT_DUE = 60.0
"""Seconds by which a deferred task is put off while its run is canceled or deleted."""
NOTE = "in steps; tasks that it has not reached are held"
"""The note of such a verb in the audit log. Tasks that the verb has not reached show it as the reason of their hold."""


def set_aside(
    session: Session,
    archive: int,
    runs: Sequence[int],
    hold: int,
    stop: Callable[[Graph, Sequence[int]], None],
    spared: Callable[[Graph, Sequence[int]], Collection[int]] = lambda *_: (),
    until: float = math.inf,
) -> bool:
    """Hold the tasks of some runs that could start, and ``stop`` their running tasks. Returns False
    if this is not done by ``until``. A rehearsal skips all of this, because no task starts
    meanwhile.

    ``hold``: the audit log entry. A task that cannot start is left alone: it waits inside its run
    for the success of a held task, or of another task that waits in this way. ``spared``: returns
    those of the given tasks that are left alone, too.
    """
    left_alone = set[int]()

    def act(graph: Graph, tasks: Sequence[int]) -> None:
        locked = graph.rows("lock_tasks", tasks=list(tasks))
        left_alone.update(spared(graph, tasks))
        acting = [task for task in locked if task.id not in left_alone]
        stop(graph, [task.id for task in acting if task.state == State.RUNNING])
        graph.do("set_aside", tasks=[task.id for task in acting], hold=hold, delay=NOT_DUE)

    if session.is_rehearsal:
        return True
    while tasks := [
        row.id for row in session.rows("could_start", runs=list(runs), within=NOT_DUE / 2) if row.id not in left_alone
    ]:
        for portion in portions(tasks):
            if time.monotonic() > until:
                return False
            give_way(session)
            change(session, [archive], partial(act, tasks=portion))
    return True


def last_first(session: Session, run: RunId, tasks: Sequence[int]) -> list[int]:
    """Tasks of a run, each before its dependencies, and otherwise next to them: of a list, item by
    item.

    So the steps of an item mostly end in one transaction. A dependency that ended in a later
    transaction would have its dependents judged twice.
    """
    targets: dict[int, list[int]] = defaultdict(list)
    for edge in session.rows("waits_inside", run=run):
        targets[edge.source].append(edge.target)
    found: dict[int, None] = {}
    seen: set[int] = set()
    left = sorted(tasks, reverse=True)
    while left:
        task = left[-1]
        if task in seen:
            found[left.pop()] = None  # again: its dependents come before it
        else:
            seen.add(task)
            left += [target for target in targets[task] if target not in seen]
    wanted = {*tasks}
    return [task for task in found if task in wanted]


def each_archive(archives: Iterable[int], step: Callable[[int], bool], what: str) -> float | None:
    """Take the next step of each archive. Returns the seconds until there is more to do; None if
    there is nothing. A step that fails does not hold up other archives, and is repeated.

    ``step`` returns False if the archive was busy. ``what``: the purpose of the steps,
    such as “the cancellation of superseded tasks”, for the log.
    """
    pauses: list[float] = []
    for archive in archives:
        try:
            is_done = step(archive)
        except DatabaseUnavailable as error:
            if not isinstance(error, TOO_LONG):
                raise
            log.warning("archive %s: %s continues later: %s", archive, what, error)
            pauses.append(BRIEF)
        except Exception:
            log.exception("archive %s: %s failed, and is repeated later", archive, what)
            pauses.append(PAUSE_AFTER_ERROR)
        else:
            pauses.append(0.0 if is_done else BRIEF)
    return min(pauses, default=None)
