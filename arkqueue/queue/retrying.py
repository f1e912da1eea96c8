"""The verbs that let a task run, or be polled, again by itself: retry and refresh. `redo` runs a
task again with everything behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import Conflict
from arkqueue.model import ArchiveId, RunId, TaskId, TaskKind
from arkqueue.names import run_name
from arkqueue.queue import scratch
from arkqueue.queue.changes import change
from arkqueue.queue.control import REJECTED, in_portions, options
from arkqueue.queue.done import MOST_TASKS, Done, Judged
from arkqueue.queue.graph import Graph
from arkqueue.queue.guards import Approver, hold_again, refusals
from arkqueue.queue.places import on_run, on_task, refuse_deleted, refuse_implicit, task_name_of
from arkqueue.queue.refusals import refuse_stopped
from arkqueue.queue.reopening import (
    NEWEST,
    after_rejection,
    again_from,
    blocked,
    judge_again,
    lost_once,
    outdated,
    refuse_outdated,
    reopen,
    superseded,
    unjudged,
)
from arkqueue.states import MOVES, Event, State

NO_POLL = "has no deferred task with a poll, apart from those that are being polled or about to be"


def retry(
    session: Session,
    task: TaskId,
    by: str,
    *,
    force: bool = False,
    from_start: bool = False,
    approver: Approver | None = None,
) -> None:
    """Run a failed or canceled task again, and judge again the tasks that were skipped because of
    it (design 5.8, 5.11, 5.19). A deferred task runs at once.

    If the task has a poll and its command has ended with 75, it is polled again, with a new
    deadline. Only ``from_start`` runs its command again (design 5.29), and a command with
    ``on_lost: fail`` that was lost.
    """

    def work(graph: Graph, row: Any) -> None:
        retry_some(graph, [row], force=force, from_start=from_start, approver=approver).unless_refused()

    on_task(session, task, "retry", by, work, options(force=force, from_start=from_start))


def retry_some(
    graph: Graph,
    rows: Sequence[Any],
    *,
    force: bool,
    from_start: bool,
    approver: Approver | None,
    is_brief: bool = False,
) -> Done:
    """Retry locked tasks of one name in one run, like `retry`. The result has the refusals. Raises
    if all tasks are refused because of a task that comes back with some of them. ``is_brief``: the
    refusal of a single task, too, may say as little as that of several, which costs less.
    """
    done = Judged(rows, refusals(graph, [row.id for row in rows], approver))
    for row in done.fit:
        if row.kind != TaskKind.REPORT or row.state != State.DEFERRED:
            refuse_implicit(graph, row, "retried")
    if done.fit:
        refuse_stopped(graph, rows[0].archive_id)
    done.judge(lambda row: _why_not(graph, row, force=force))
    done.refuse(blocked(graph, ended) if (ended := _ended(done.fit)) else {})
    if not force and (ended := _ended(done.fit)) and (len(ended) > 1 or is_brief):
        done.refuse(outdated(graph, ended))
    if from_start:
        graph.do("start_over", tasks=[row.id for row in done.fit])
    else:
        done.refuse(lost_once(graph, done.fit))
    due = graph.ids("retry_now", tasks=[row.id for row in done.fit if row.state == State.DEFERRED])
    back, again = _bring_back(graph, ended, force=force) if (ended := _ended(done.fit)) else ([], [])
    graph.follow(entering=[*due, *back], again=again)
    return done.result


def _ended(rows: Sequence[Any]) -> list[Any]:
    return [row for row in rows if row.state != State.DEFERRED]


def _bring_back(graph: Graph, rows: Sequence[Any], *, force: bool) -> tuple[list[int], list[int]]:
    """Take failed and canceled tasks back to waiting. Returns the tasks that come back, and the
    tasks to judge again.
    """
    tasks, first = [row.id for row in rows], rows[0]
    reopened, staying = judge_again(graph, tasks)
    back = [*tasks, *reopened]
    if not force:
        refuse_outdated(graph, first, back, f"arkqueue retry {task_name_of(graph, first.id)}")
    for row in rows:
        scratch.renew(graph, row.run_id, back, task_name_of(graph, row.id), row.item, may_wait=True)
    graph.ids("retry", tasks=tasks, counts=True)
    again = [*back, *staying, *reopen(graph, back, reopened), *unjudged(graph, back)]
    hold_again(graph, back, reopened)
    return back, again


def _why_not(graph: Graph, row: Any, *, force: bool) -> Conflict | None:
    """Why the state of a task forbids a retry."""
    if row.state == State.DEFERRED:
        return None
    if row.state == State.REJECTED:
        return Conflict(task_name_of(graph, row.id), REJECTED, after_rejection(graph, row))
    if row.state not in MOVES[Event.RETRY].sources:
        remedy = "restart it" if row.state == State.RUNNING else ""
        remedy = again_from(graph, row) if row.state == State.COMPLETED else remedy
        fault = f"is {row.state}: a failed, canceled, waived or deferred task can be retried"
        return Conflict(task_name_of(graph, row.id), fault, remedy)
    if row.root_id is None and row.superseded_by is not None and not force:
        return Conflict(task_name_of(graph, row.id), superseded(graph, row), f"use --force, {NEWEST}")
    return None


def refresh(session: Session, task: TaskId, by: str) -> None:
    """Poll a deferred task now (design 5.29). Its counters and its deadline stay as they are."""

    on_task(session, task, "refresh", by, lambda graph, row: refresh_some(graph, [row]))


def refresh_some(graph: Graph, rows: Sequence[Any]) -> None:
    """Poll locked tasks now. Raises if one of them is refused."""
    for row in rows:
        here = task_name_of(graph, row.id)
        if row.polls and row.state == State.READY:
            raise Conflict(here, "is about to be polled, and waits for its turn", f"arkqueue explain {here}")
        if row.polls and row.state == State.RUNNING:
            raise Conflict(here, "is being polled already", f"arkqueue logs {here} -f")
        if not row.polls or row.state != State.DEFERRED:
            remedy = "retry it to run it at once" if row.state == State.DEFERRED else ""
            has_none = " and has no poll" if remedy else ""
            raise Conflict(here, f"is {row.state}{has_none}: only a deferred task with a poll can be polled", remedy)
    refuse_stopped(graph, rows[0].archive_id)
    graph.follow(entering=graph.ids("poll_now", tasks=[row.id for row in rows]))


def refresh_run(session: Session, run: RunId, by: str) -> Done:
    """Poll all deferred tasks of a run now."""
    done, left = Done(), list[int]()

    def begin(graph: Graph, row: Any) -> None:
        refuse_deleted(row)
        left[:] = graph.ids("polled_of_run", run=run)
        if not left:
            raise Conflict(run_name(row), NO_POLL)
        done.tasks = _poll_now(graph, left[:MOST_TASKS]).tasks

    archive = on_run(session, run, "refresh", by, begin)
    in_portions(session, archive, done, left[MOST_TASKS:], _poll_now)
    return done


def refresh_archive(session: Session, archive: ArchiveId, by: str) -> Done:
    """Poll all deferred tasks of an archive now."""
    done, left = Done(), list[int]()

    def begin(graph: Graph) -> None:
        left[:] = graph.ids("polled_of_archive", archive=archive)
        if not left:
            (row,) = graph.rows("archive", archive=archive)
            raise Conflict(f"archive {row.name}", NO_POLL)
        done.tasks = _poll_now(graph, left[:MOST_TASKS]).tasks
        graph.do("remember", by=by, verb="refresh", archive=archive, run=None, task=None, note="")

    change(session, [archive], begin)
    in_portions(session, archive, done, left[MOST_TASKS:], _poll_now)
    return done


def _poll_now(graph: Graph, tasks: Sequence[int]) -> Done:
    for archive in graph.archives:
        refuse_stopped(graph, archive)
    graph.rows("lock_tasks", tasks=list(tasks))
    due = graph.ids("poll_now", tasks=list(tasks))
    graph.follow(entering=due)
    return Done(sorted(due))
