"""Walks through the tasks of a run on which a verb acts, a portion of them in each transaction.

Tasks of one name, such as the items of a list, do not depend on each other. Up to `PORTION` of them
share a transaction. Tasks of different names have a transaction each, in the order of the workflow
files, so each sees the changes of those before it. No archive is locked for long.

A refused task stays unchanged, and the others go on. A step tells which tasks it refuses; where it
refuses a whole portion because of some tasks, the portion is divided, after the other portions of
the name, until these are alone. Between two steps, other commands on the archive get their turn. A
command acts for at most `LONGEST` seconds, and returns the number of tasks that
it has not reached. The same command, given again, also after a crash, continues. The command ends
if a person cancels or deletes the run meanwhile, so it does not undo that.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import ArchiveRefuses, Busy, Conflict, Forbidden
from arkqueue.model import RunId, TaskId
from arkqueue.queue.changes import change
from arkqueue.queue.done import LONGEST, Done, Refused, give_way
from arkqueue.queue.graph import Graph
from arkqueue.queue.places import archive_of_run

PORTION = 200
"""The most tasks of one transaction."""

Concerns = Callable[[Any], bool]
"""Whether a verb acts on a task. Takes a row of ``tasks_to_act_on``."""


@dataclass(frozen=True, slots=True)
class Step:
    """One transaction of a verb. ``act``: takes the session, the archive, the condition, and the
    tasks, and returns what it did; ``left`` if a person has ended the run. ``most``: the most tasks.
    """

    act: Callable[[Session, int, Concerns, Sequence[Any]], Done]
    most: int


def alone(act: Callable[[TaskId], object]) -> Step:
    """A step on one task. ``act`` has a transaction of its own, and judges the task itself."""

    def step(session: Session, _archive: int, concerns: Concerns, candidates: Sequence[Any]) -> Done:
        (candidate,) = candidates
        now = session.rows("tasks_to_act_on_now", tasks=[candidate.id])
        if now and _has_ended(now, candidates):
            return Done(left=1)
        if not now or not concerns(now[0]):
            return Done()
        act(TaskId(candidate.id))
        return Done([candidate.id])

    return Step(step, 1)


def together(act: Callable[[Graph, Sequence[Any]], Done]) -> Step:
    """A step on locked tasks of one name. ``act`` takes their rows from ``lock_tasks``, and returns
    what it did. If it raises ``Conflict`` or ``Forbidden``, the tasks are divided.
    """

    def step(session: Session, archive: int, concerns: Concerns, candidates: Sequence[Any]) -> Done:
        tasks = [row.id for row in candidates]

        def on_graph(graph: Graph) -> Done:
            locked = {row.id: row for row in graph.rows("lock_tasks", tasks=tasks)}
            now = graph.rows("tasks_to_act_on_now", tasks=tasks)
            if _has_ended(now, candidates):
                return Done(left=len(tasks))
            fit = {row.id for row in now if concerns(row)}
            found = act(graph, [locked[task] for task in tasks if task in fit]) if fit else Done()
            found.tasks = [task for task in tasks if task in {*found.tasks}]
            return found

        return change(session, [archive], on_graph)

    return Step(step, PORTION)


def _has_ended(now: Sequence[Any], candidates: Sequence[Any]) -> bool:
    """True if a person has canceled or deleted the run since the tasks were listed."""
    known = {None, *(row.run_ended_at for row in candidates)}
    return any(row.run_ended_at not in known for row in now)


def until(session: Session) -> float:
    """The time, by the monotonic clock, at which a command that begins now ends."""
    return min(time.monotonic() + LONGEST, session.until)


def walk(
    session: Session,
    run: RunId,
    concerns: Concerns,
    step: Step,
    end: float,
    *,
    item: str | None = None,
    last_first: bool = False,
) -> Done:
    """Act on the tasks of a run for which ``concerns`` is true. Each is judged again when its turn
    comes. ``end``: from `until`. ``item``: only tasks of this item.
    """
    archive = archive_of_run(session, run)
    done = Done()
    candidates = list(filter(concerns, session.rows("tasks_to_act_on", run=run, item=item)))
    if last_first:
        candidates.reverse()
    left, has_begun = len(candidates), False
    for _, of_name in groupby(candidates, lambda row: row.name):
        waiting = deque(_batched(of_name, step.most))
        while waiting and not done.left:
            some = waiting.popleft()
            if time.monotonic() > end:
                done.left = left
                break
            if has_begun:
                give_way(session)
            has_begun = True
            try:
                found = step.act(session, archive, concerns, some)
            except (Busy, ArchiveRefuses):
                # The result has the tasks that were done until now; the others stay as they are.
                if not (done.tasks or done.skipped or done.refused):
                    raise
                done.left = left
            except (Conflict, Forbidden) as why:
                if len(some) > 1:  # after the other portions, of which more may be accepted
                    waiting += _batched(some, -(-len(some) // 2))
                    continue
                done.refused.append(Refused(some[0].id, why))
            else:
                if found.left:
                    found = Done(left=left)
                done.add(found)
            left -= len(some)
    place = {row.id: n for n, row in enumerate(candidates)}
    done.tasks.sort(key=place.__getitem__)
    done.refused.sort(key=lambda one: place[one.task])
    return done


def _batched(rows: Iterable[Any], most: int) -> Iterator[list[Any]]:
    """Rows in portions of at most ``most``."""
    left = iter(rows)
    while some := list(islice(left, most)):
        yield some
