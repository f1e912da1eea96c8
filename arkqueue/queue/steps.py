"""Verbs that end a large run in several transactions: cancel and delete (design 5.33).

Before the first task ends, what could start is held (`set_aside`), so many tasks with each transaction, until nothing of the run could start any more. Then each task is ended before
what it depends on (`last_first`): a task that waits for any end of another one would start otherwise, and what needs one would be skipped in place of being canceled.

After a crash the rest stays held, and says why. Whoever gives the command again continues it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

from arkqueue.db.session import Session
from arkqueue.model import RunId
from arkqueue.queue.done import portions
from arkqueue.queue.graph import Graph, change
from arkqueue.states import State

LONGEST = 60.0
"""Seconds for which a deferred task is not due while its run is canceled or deleted."""


def set_aside(
    session: Session, archive: int, run: RunId, hold: int, stop: Callable[[Graph, Sequence[int]], None]
) -> None:
    """Hold what could start of a run, and ``stop`` what runs of it. A rehearsal need not: nothing happens beside it.

    ``hold``: the entry of the audit log. What waits inside the run for the success of a task that is held, or that waits so itself, cannot start, and is left alone.
    """

    def act(graph: Graph, tasks: Sequence[int]) -> None:
        locked = graph.rows("lock_tasks", tasks=list(tasks))
        stop(graph, [task.id for task in locked if task.state == State.RUNNING])
        graph.do("set_aside", tasks=list(tasks), hold=hold, delay=LONGEST)

    if session.is_rehearsal:
        return
    while tasks := [row.id for row in session.rows("could_start", run=run, within=LONGEST / 2)]:
        for portion in portions(tasks):
            change(session, [archive], partial(act, tasks=portion))


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
