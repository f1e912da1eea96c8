"""Verbs that end many tasks in several transactions: cancel and delete of a large run, and cancel
of a large backfill (design 5.33).

First, the tasks that could start are held (`set_aside`), a limited number with each transaction,
until no task could start any more. Then each task of a large run ends before the tasks on which it
depends (`last_first`). In another order, a task that waits for any end of another one would start,
and a task that needs success would be skipped in place of being canceled. A large backfill ends run
by run from its oldest run on: when a task ends, what the canceled tasks behind it block is judged
anew, and behind the oldest open run no task is canceled yet.

After a crash, the other tasks stay held, and say why. The same command, given again, continues.
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
from arkqueue.queue.done import portions
from arkqueue.queue.graph import BRIEF, TOO_LONG, Graph, change
from arkqueue.states import State

log = logging.getLogger("arkqueue")

PAUSE_AFTER_ERROR: Final = 10.0
"""Seconds until `each_archive` tries a step again that failed."""
NOT_DUE = 60.0
"""Seconds for which a deferred task is not due while its run is canceled or deleted."""
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
    """Hold the tasks of some runs that could start, and ``stop`` their running tasks. A rehearsal
    skips this, because nothing happens beside it. False if this is not done by ``until``.

    ``hold``: the entry of the audit log. A task cannot start, and is left alone, if it waits inside
    its run for the success of a held task, or of a task that waits in this way itself. ``spared``:
    those of some tasks that are left alone, too.
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
            change(session, [archive], partial(act, tasks=portion))
    return True


def last_first(session: Session, run: RunId, tasks: Sequence[int]) -> list[int]:
    """Tasks of a run, each before what it depends on, and otherwise with what it depends on: of a list, item by item.

    So the steps of an item mostly end in one transaction. Where one of them ended later than what needs it, that would be judged twice.
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
            found[left.pop()] = None  # again: what depends on it comes before it
        else:
            seen.add(task)
            left += [target for target in targets[task] if target not in seen]
    wanted = {*tasks}
    return [task for task in found if task in wanted]


def each_archive(archives: Iterable[int], step: Callable[[int], bool], what: str) -> float | None:
    """Take the next step of each archive; returns the seconds until there is more to do (None: there is nothing). A step that fails holds up no other archive, and is tried again.

    ``step`` returns False if the archive was busy. ``what``: what the steps do, as the beginning of a sentence in the log.
    """
    pauses: list[float] = []
    for archive in archives:
        try:
            is_done = step(archive)
        except DatabaseUnavailable as error:
            if not isinstance(error, TOO_LONG):
                raise
            log.warning("archive %s: %s later: %s", archive, what, error)
            pauses.append(BRIEF)
        except Exception:
            log.exception("archive %s: %s failed, and is tried again", archive, what)
            pauses.append(PAUSE_AFTER_ERROR)
        else:
            pauses.append(0.0 if is_done else BRIEF)
    return min(pauses, default=None)
