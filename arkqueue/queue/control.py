"""The verbs with which people act on tasks and runs: cancel, restart, skip, prioritize, note. One
function for each verb. Retry and refresh are in `retrying`.

Each function returns nothing, and raises ``Conflict`` with the reason where the state forbids the
verb. An action on a guarded task needs an ``approver`` (`guards`), who is checked in the same
transaction. docs/decisions/0001, points 5 to 8, define the meaning of each verb. Deletion is in
``deletion``; `reopening` returns tasks to work.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import Conflict, NotFound
from arkqueue.model import SILENCE, RunId, TaskId
from arkqueue.names import run_name
from arkqueue.queue.changes import change
from arkqueue.queue.done import MOST_TASKS, Done, Judged, Refused, give_way, portions
from arkqueue.queue.finish import presume_gone
from arkqueue.queue.graph import Graph
from arkqueue.queue.guards import Approver, hold_again, refusals, refuse_unapproved, unapproved
from arkqueue.queue.places import (
    archive_of_run,
    on_run,
    on_task,
    place_of_run,
    refuse_deleted,
    refuse_implicit,
    task_name_of,
)
from arkqueue.queue.refusals import refuse_stopped
from arkqueue.queue.reopening import (
    after_rejection,
    judge_again,
    refuse_outdated,
    refuse_to_let_go_on,
    reopen,
    stand_alone,
    unjudged,
)
from arkqueue.queue.reports import keep
from arkqueue.queue.steps import NOTE, last_first, set_aside
from arkqueue.states import MOVES, SETTLED, Event, State

REJECTED = "was rejected (exit code 65), which is final: its input is wrong, and no retry makes it right"
"""The reason why a rejected task is not retried."""


def cancel(
    session: Session, task: TaskId, by: str, *, assume_gone: bool = False, approver: Approver | None = None
) -> None:
    """Cancel a task: at once, or by asking its running attempt to stop.

    ``assume_gone``: a person confirms that the attempt is gone. Refused while its task manager
    reports: the task manager itself proves the end then.
    """

    def work(graph: Graph, row: Any) -> None:
        refuse_unapproved(graph, [row.id], approver)
        refuse_implicit(graph, row, "canceled")
        if row.state in SETTLED:
            raise Conflict(task_name_of(graph, row.id), f"is {row.state} already")
        if row.state == State.RUNNING:
            ask_to_stop(graph, [row.id], "cancel", by)
            if assume_gone:
                if heard := graph.rows("heard_of", attempt=row.attempt_id, silence=SILENCE):
                    fault = f"its task manager on {heard[0].hostname} reported {heard[0].ago:.0f} s ago and will prove the end itself"
                    raise Conflict(task_name_of(graph, row.id), fault, "cancel it without --assume-gone")
                settled = presume_gone(graph, row.attempt_id, by)
                graph.follow(settled)
        else:
            graph.follow(graph.ids("cancel", tasks=[row.id], by=by))
        graph.later(("keep_from_undeletion", {"tasks": [row.id]}))

    on_task(session, task, "cancel", by, work, options(assume_gone=assume_gone))


def cancel_run(session: Session, run: RunId, by: str, *, approver: Approver | None = None) -> Done:
    """Cancel the unsettled tasks of a run; its COMMIT and REPORT go on. Guarded tasks on which
    ``approver`` may not act are refused, and the others are canceled.

    A large run takes several transactions (`steps`). Before anything is canceled, running tasks are
    asked to stop, and tasks that could start are held. After a crash, the other tasks stay held.
    """
    done, kept = Done(), dict[int, Refused]()
    archive = archive_of_run(session, run)
    found = [row.id for row in session.rows("cancelable", runs=[run])]
    is_large = len(found) > MOST_TASKS

    def judge(graph: Graph, tasks: Sequence[int]) -> list[int]:
        refused = {one.task: one for one in refusals(graph, tasks, approver)}
        kept.update(refused)
        return [task for task in tasks if task not in refused]

    def begin(graph: Graph) -> int:
        row = place_of_run(graph, run)
        refuse_deleted(row)
        tasks = graph.ids("cancelable", runs=[run])
        if not tasks:
            raise Conflict(run_name(row), "has nothing left to cancel")
        kept.clear()
        allowed = judge(graph, tasks)
        if not allowed:
            Done(refused=[*kept.values()]).unless_refused()
        note = NOTE if is_large else ""
        (entry,) = graph.ids("remember", by=by, verb="cancel", archive=row.archive_id, run=run, task=None, note=note)
        if not is_large:
            done.tasks = cancel_some(graph, allowed, by)
            end(graph)
        elif not kept:
            graph.do("cancel_run", run=run, by=by)
        return entry

    def go_on(graph: Graph, tasks: Sequence[int]) -> Done:
        return Done(cancel_some(graph, judge(graph, tasks), by))

    def end(graph: Graph) -> None:
        """Note the refusals. A refused task that was skipped because of a canceled one is none."""
        done.refused = unsettled(graph, kept.values())
        if not (done.refused or done.left):
            graph.do("cancel_run", run=run, by=by)

    entry = change(session, [archive], begin)
    if is_large:

        def spared(graph: Graph, tasks: Sequence[int]) -> list[int]:
            return [task for task, _ in unapproved(graph, tasks, approver)]

        stop = partial(ask_to_stop, stop="cancel", by=by)
        set_aside(session, archive, [run], entry, stop, spared)
        tasks = last_first(session, run, found)
        done.add(change(session, [archive], partial(go_on, tasks=tasks[:MOST_TASKS])))
        in_portions(session, archive, done, tasks[MOST_TASKS:], go_on)
        if kept:
            change(session, [archive], end)
    return done


def cancel_some(graph: Graph, tasks: Sequence[int], by: str) -> list[int]:
    """Cancel tasks of a run, and ask the running ones to stop. Returns both."""
    locked = graph.rows("lock_tasks", tasks=list(tasks))
    running = [task.id for task in locked if task.state == State.RUNNING]
    ask_to_stop(graph, running, "cancel", by)
    canceled = graph.ids("cancel", tasks=list(tasks), by=by)
    graph.follow(canceled)
    graph.do("forget_set_aside", tasks=canceled)
    graph.later(("keep_from_undeletion", {"tasks": [*canceled, *running]}))
    return [*canceled, *running]


def unsettled(graph: Graph, refused: Collection[Refused]) -> list[Refused]:
    """The refusals of tasks that have not settled, in the order of the tasks."""
    rows = graph.rows("lock_tasks", tasks=[one.task for one in refused]) if refused else []
    settled = {row.id for row in rows if row.state in SETTLED}
    return [one for one in refused if one.task not in settled]


def restart(session: Session, task: TaskId, by: str, *, approver: Approver | None = None) -> None:
    """Stop a running attempt and start another, without settling the task. An approval of a guarded
    command is good for one attempt only, so such a task cannot be restarted without an approver.
    """

    on_task(session, task, "restart", by, lambda graph, row: restart_some(graph, [row], by, approver=approver))


def restart_some(graph: Graph, rows: Sequence[Any], by: str, *, approver: Approver | None) -> None:
    """Restart locked tasks, like `restart`. Raises if one of them is refused."""
    tasks = [row.id for row in rows]
    refuse_unapproved(graph, tasks, approver)
    for row in rows:
        if row.state != State.RUNNING:
            refuse_implicit(graph, row, "restarted")
            if row.state == State.REJECTED:
                raise Conflict(task_name_of(graph, row.id), REJECTED, after_rejection(graph, row))
            fault = f"is {row.state}: only a running task is restarted"
            raise Conflict(task_name_of(graph, row.id), fault, "if it failed, retry it")
        if row.stop == "cancel":
            raise Conflict(task_name_of(graph, row.id), "is being canceled")
    refuse_stopped(graph, rows[0].archive_id)
    ask_to_stop(graph, tasks, "restart", by)


def skip(
    session: Session,
    task: TaskId,
    by: str,
    *,
    as_completed: bool = False,
    force: bool = False,
    approver: Approver | None = None,
) -> None:
    """Decide that a task will not run, or that tasks which wait for a failed task may go on (design
    5.9).

    ``as_completed``: the tasks of its own run may go on, too. Refused if that would run tasks that
    later revisions have superseded or gone on from, unless ``force`` (5.11, 5.19).
    """

    def work(graph: Graph, row: Any) -> None:
        skip_some(graph, [row], by, as_completed=as_completed, force=force, approver=approver).unless_refused()

    on_task(session, task, "skip", by, work, options(as_completed=as_completed, force=force))


def skip_some(
    graph: Graph, rows: Sequence[Any], by: str, *, as_completed: bool, force: bool, approver: Approver | None
) -> Done:
    """Skip locked tasks of one name in one run, like `skip`. The result has the refusals. Raises if
    all tasks are refused because of a task that comes back with some of them.
    """
    done = Judged(rows, refusals(graph, [row.id for row in rows], approver))
    done.judge(lambda row: _why_not_skipped(graph, row))
    unstarted = [row.id for row in done.fit if row.state in MOVES[Event.SKIP].sources]
    if unstarted:
        skipped = graph.ids("skip", tasks=unstarted, by=by, as_completed=as_completed)
        if as_completed:
            stand_alone(graph, skipped)
        graph.follow(skipped)
    if failed := [row for row in done.fit if row.id not in unstarted]:
        _waive(graph, failed, by, as_completed=as_completed, force=force)
    refuse_to_let_go_on(graph, rows[0].archive_id)
    return done.result


def _why_not_skipped(graph: Graph, row: Any) -> Conflict | None:
    """Why the state of a task forbids to skip it."""
    refuse_implicit(graph, row, "skipped")
    if row.state in MOVES[Event.SKIP].sources or row.state in (State.FAILED, State.REJECTED):
        return None
    fault = f"is {row.state}: only a failed task, or one that has not started, can be skipped"
    return Conflict(task_name_of(graph, row.id), fault, "cancel it first" if row.state == State.RUNNING else "")


def skip_until(
    session: Session, archive: int, branch: int, name: str, until: int, by: str, approver: Approver | None = None
) -> Done:
    """Waive every failure of a task up to a revision, a limited number in each transaction. Guarded
    tasks on which ``approver`` may not act are refused, such as those of revisions of which the
    approver is the author.
    """
    left: list[int] = []

    def act(graph: Graph, tasks: Sequence[int]) -> Done:
        refused = refusals(graph, tasks, approver)
        kept = {one.task for one in refused}
        rows = [row for row in graph.rows("lock_tasks", tasks=list(tasks)) if row.id not in kept]
        # Since the first transaction, somebody else may have retried or waived some.
        rows = [row for row in rows if row.state in (State.FAILED, State.REJECTED) and not row.waived]
        if rows:
            _waive(graph, rows, by)
            refuse_to_let_go_on(graph, archive)
        return Done([row.id for row in rows], refused=refused)

    def begin(graph: Graph) -> Done:
        left[:] = graph.ids("to_waive", branch=branch, name=name, until=until)
        first = act(graph, left[:MOST_TASKS])
        if first.tasks or left[MOST_TASKS:]:
            note = f"{name} until {until}"
            graph.do("remember", by=by, verb="skip", archive=archive, run=None, task=None, note=note)
        return first

    done = change(session, [archive], begin)
    in_portions(session, archive, done, left[MOST_TASKS:], act)
    return done.unless_refused()


def prioritize(session: Session, task: TaskId, priority: int, by: str) -> None:
    """Set the priority of a task that has not started. From then on, no output of another task changes the priority (design 5.24)."""

    def work(graph: Graph, row: Any) -> None:
        refuse_implicit(graph, row, "prioritized")
        graph.reordered = graph.ids("prioritize", tasks=[row.id], priority=priority)
        if not graph.reordered:
            raise Conflict(
                task_name_of(graph, row.id), f"is {row.state}: only the priority of an unstarted task can be set"
            )

    on_task(session, task, "prioritize", by, work, str(priority))


def prioritize_run(session: Session, run: RunId, priority: int, by: str) -> Done:
    """Set the priority of the unstarted tasks of a run."""
    done = Done()

    def act(graph: Graph, tasks: Sequence[int]) -> Done:
        graph.rows("lock_tasks", tasks=list(tasks))
        graph.reordered = graph.ids("prioritize", tasks=list(tasks), priority=priority)
        return Done(sorted(graph.reordered))

    def begin(graph: Graph, row: Any) -> None:
        refuse_deleted(row)
        left[:] = graph.ids("not_started", runs=[run])
        done.tasks = act(graph, left[:MOST_TASKS]).tasks
        if not done.tasks:
            raise Conflict(run_name(row), "has no unstarted task")

    left: list[int] = []
    archive = on_run(session, run, "prioritize", by, begin, str(priority))
    in_portions(session, archive, done, left[MOST_TASKS:], act)
    return done


def in_portions(
    session: Session,
    archive: int,
    done: Done,
    tasks: Sequence[int],
    act: Callable[..., Done],
    alone: Collection[int] = (),
) -> None:
    """Act on the remaining tasks of a large run, a limited number in each transaction, and add the
    results. ``alone``: tasks that get a transaction of their own. A rehearsal returns how many tasks
    it has not reached.
    """
    reached = 0
    for portion in portions(tasks, alone):
        if session.is_over:
            done.left = len(tasks) - reached
            return
        give_way(session)
        done.add(change(session, [archive], partial(act, tasks=portion)))
        reached += len(portion)


def note(session: Session, text: str, by: str, *, run: RunId, task: TaskId | None = None) -> None:
    """Store a person's note on a run, or on a task of it. A note changes no state, so nothing is locked."""
    found = session.rows("place_of_run", run=run)
    if not found:
        raise NotFound(f"run {run}", "does not exist")
    session.do("remember", by=by, verb="note", archive=found[0].archive_id, run=run, task=task, note=text)
    session.changed([found[0].archive_id])


def _waive(graph: Graph, rows: Sequence[Any], by: str, *, as_completed: bool = False, force: bool = False) -> None:
    tasks = [row.id for row in rows]
    keep(graph, tasks)
    graph.ids("waive", tasks=tasks, by=by, as_completed=as_completed)
    graph.later(("keep_from_undeletion", {"tasks": tasks}))
    reopened: list[int] = []
    again = [*tasks, *graph.ids("skipped_because_of", roots=tasks)]
    if as_completed:
        reopened, staying = judge_again(graph, tasks)
        if reopened and not force:
            here = task_name_of(graph, rows[0].id)
            refuse_outdated(graph, rows[0], reopened, f"arkqueue skip {here} --as-completed")
        again += [*reopened, *staying, *reopen(graph, reopened, reopened), *unjudged(graph, reopened)]
        hold_again(graph, reopened, reopened)
    graph.follow(entering=reopened, again=again)


def ask_to_stop(graph: Graph, tasks: Sequence[int], stop: str, by: str) -> None:
    """Ask running tasks to stop. ``stop``: ``cancel`` or ``restart``."""
    if tasks and graph.rows("ask_to_stop", tasks=list(tasks), stop=stop, by=by):
        graph.to_wake.add("stop")


def options(**given: bool) -> str:
    """The options that a person gave with a verb, as typed, for the audit log."""
    return " ".join(f"--{name.replace('_', '-')}" for name, is_given in given.items() if is_given)
