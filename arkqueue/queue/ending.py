"""Cancels the unstarted tasks of runs that are gone: their branch was deleted, rewound or
rewritten, or their archive was removed (design 5.16).

    begin     in the transaction that marks the runs as gone. Few tasks are canceled at once.
              Of many, those that would start first are held; a row of ``ending`` names each run.
    aside     the other tasks of these runs that could start are held, as often as needed
    cancel    the tasks are canceled, the oldest run first, and in a large run each task before
              its dependencies; then the rows of ``ending`` are deleted

Each step is a transaction of its own under the archive's lock, for about `MOST_TASKS` tasks. A
queue manager takes the steps, at once and after a crash. A running task goes on. So does a task
that starts before a step reaches it, as if the run had ended after the start. Until all tasks that
could start are held, claims leave out the revisions of these runs (``claim.sql``).

A branch that comes back meanwhile changes nothing: the tasks that were to be canceled are canceled.
But an end applies to one moment. It does not cancel tasks that were planned later, that ran then,
or that a person has retried since (``spared``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Any

from arkqueue.db.session import Session
from arkqueue.model import RunId
from arkqueue.queue.changes import BRIEF, change_in_turn
from arkqueue.queue.done import MOST_TASKS
from arkqueue.queue.graph import Graph
from arkqueue.queue.steps import NOT_DUE, NOTE, each_archive, last_first
from arkqueue.states import State


def begin(graph: Graph, archive: int, runs: Sequence[int], by: str) -> int:
    """Cancel the unstarted tasks of runs that are gone from this transaction on. Of many tasks, the
    queue manager cancels the rest in steps. ``by``: why the runs are gone, for people. Returns the
    number of tasks, with those of the steps.
    """
    tasks = graph.ids("not_started_of_gone", runs=list(runs), most=MOST_TASKS + 1)
    if len(tasks) <= MOST_TASKS:
        graph.rows("lock_tasks", tasks=tasks)
        graph.follow(graph.ids("cancel", tasks=tasks, by=by))
        return len(tasks)
    (number,) = graph.ids("count_not_started_of_gone", runs=list(runs))
    (entry,) = graph.ids("remember", by=by, verb="cancel", archive=archive, run=None, task=None, note=NOTE)
    graph.do("begin_to_end", runs=list(runs), archive=archive, entry=entry)
    _hold(graph, graph.ids("ready_of_runs", runs=list(runs), most=MOST_TASKS), entry)
    graph.to_wake.add("ending")
    return number


def _hold(graph: Graph, tasks: Sequence[int], entry: int) -> None:
    graph.rows("lock_tasks", tasks=list(tasks))
    graph.do("set_aside", tasks=list(tasks), hold=entry, delay=NOT_DUE)


class Ender:
    """Takes the steps. It caches which tasks could start, and in which order the tasks of a run are
    canceled: to read that again would take longer than a step.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._left: dict[tuple[int, int], list[int]] = {}
        """The tasks that are still to be canceled, by run and audit log entry."""
        self._to_hold: dict[int, list[int]] = {}
        """The tasks that could start and are still to be held, by audit log entry."""

    def turn(self, patience: float = BRIEF) -> float | None:
        """Take the next step of each archive. Returns the seconds until there is more to do; None
        if there is nothing more. An archive whose step fails, or that is busy, does not hold up the
        others.
        """
        found = self._session.rows("endings")
        self._left = {key: left for key, left in self._left.items() if key in {(row.run, row.entry) for row in found}}
        self._to_hold = {entry: left for entry, left in self._to_hold.items() if entry in {row.entry for row in found}}
        of_archive = {archive: list(rows) for archive, rows in groupby(found, key=lambda row: row.archive)}
        return each_archive(
            of_archive,
            lambda archive: self._step(archive, of_archive[archive], patience),
            "the cancellation of tasks of gone runs",
        )

    def _step(self, archive: int, rows: Sequence[Any], patience: float) -> bool:
        """Take the next step of an archive. Returns False if the archive was busy."""
        if aside := [row for row in rows if not row.is_aside]:
            entry = aside[0].entry
            runs = [row.run for row in aside if row.entry == entry]
            tasks = self._to_hold.get(entry) or self._could_start(runs, entry)
            work = partial(_aside, tasks=tasks[:MOST_TASKS], runs=runs, entry=entry)
            busy = change_in_turn(self._session, work, archives=[archive], patience=patience)[1]
            self._to_hold[entry] = tasks if busy else tasks[MOST_TASKS:]
            return not busy
        portion: list[int] = []
        ended: list[int] = []
        first = rows[0]
        for row in rows:
            left = self._order(row)
            if row.entry != first.entry or (portion and len(portion) + len(left) > MOST_TASKS):
                break
            portion += left[:MOST_TASKS]
            ended += [] if left[MOST_TASKS:] else [row.run]
        work = partial(_cancel, tasks=portion, ended=ended, by=first.by, entry=first.entry)
        busy = change_in_turn(self._session, work, archives=[archive], patience=patience)[1]
        if not busy and (rest := self._left.get((first.run, first.entry))):
            self._left[first.run, first.entry] = rest[MOST_TASKS:]
        return not busy

    def _could_start(self, runs: Sequence[int], entry: int) -> list[int]:
        found = self._session.rows("could_start", runs=list(runs), within=NOT_DUE / 2)
        tasks = [row.id for row in found if row.state != State.RUNNING]
        left = {row.id for row in self._session.rows("still_to_end", tasks=tasks, entry=entry)} if tasks else ()
        return [task for task in tasks if task in left]

    def _order(self, row: Any) -> list[int]:
        """The tasks of a run that are still to be canceled, in the order of cancellation: the
        REPORT first, and each other task before its dependencies.
        """
        key = row.run, row.entry
        if key not in self._left:
            tasks = [task.id for task in self._session.rows("to_end_of_run", run=row.run, entry=row.entry)]
            is_large = len(tasks) > MOST_TASKS
            others = last_first(self._session, RunId(row.run), tasks) if is_large else tasks
            self._left[key] = (
                [row.report_id, *(t for t in others if t != row.report_id)] if row.report_id in tasks else others
            )
        return self._left[key]


def _aside(graph: Graph, tasks: Sequence[int], runs: Sequence[int], entry: int) -> None:
    if tasks:
        _hold(graph, _lock_left(graph, tasks, entry), entry)
    else:
        graph.do("set_runs_aside", runs=list(runs), entry=entry)


def _lock_left(graph: Graph, tasks: Sequence[int], entry: int) -> list[int]:
    """Lock tasks. Returns those that are still to be canceled, as a person may have retried one
    meanwhile.
    """
    graph.rows("lock_tasks", tasks=list(tasks))
    return graph.ids("still_to_end", tasks=list(tasks), entry=entry)


def _cancel(graph: Graph, tasks: Sequence[int], ended: Sequence[int], by: str, entry: int) -> None:
    canceled = graph.ids("cancel", tasks=_lock_left(graph, tasks, entry), by=by)
    graph.follow(canceled)
    graph.do("forget_set_aside", tasks=canceled)
    graph.do("end_ending", runs=list(ended), entry=entry)
