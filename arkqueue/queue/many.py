"""Verbs on the tasks of a run or an archive that judge each task by itself: restart, retry, skip;
and every verb on the tasks of an item or of a list (design 5.33).

Each task has a transaction of its own, the oldest first. A refused task stays unchanged, and the
others go on. Each task sees the changes of the tasks before it. No archive is locked for longer
than by a verb on one task. A command acts for at most `LONGEST` seconds, and returns the number of
tasks that it has not reached. The same command, given again, also after a crash, continues. The
command ends if a person cancels or deletes the run meanwhile, so it does not undo that.

Verbs that treat all tasks alike (cancel, prioritize, hold, release) take many tasks with each
transaction. Such a verb on a run is defined beside the same verb on one task. Such a verb on a list
is defined here: it takes `PORTION` items with each transaction, and makes one audit log entry. An
item has few tasks, so a verb on one item does not need that.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final

from arkqueue.db.session import Session
from arkqueue.errors import Busy, Conflict, Forbidden, NotFound
from arkqueue.model import ArchiveId, RunId, TaskId
from arkqueue.names import backfill_command, item_name, list_name, run_name, task_name
from arkqueue.queue import control, deletion, holds, places
from arkqueue.queue.done import LONGEST, Done, Refused, give_way
from arkqueue.queue.graph import Graph, change
from arkqueue.queue.guards import Approver, refusals
from arkqueue.states import MOVES, SETTLED, Event, State

PORTION = 200
"""The most items of a list of one transaction."""
MOST_NAMED = 10
"""The most tasks of an item whose states a message names when the verb has nothing to act on."""

Act = Callable[[TaskId], object]
"""The action on one task; raises ``Conflict`` or ``Forbidden`` if the task refuses it."""

ActOnSome = Callable[[Graph, Sequence[int]], Done]
"""The action on locked tasks in one transaction. Its result has the refusals of tasks; it raises
``Conflict`` if all tasks of the archive are refused.
"""

COMES_BACK: Final = frozenset((State.CANCELED, State.SKIPPED, State.DEFERRED))
"""The states, beside failed, from which a retry by name takes a task."""


def restart_run(session: Session, run: RunId, by: str, approver: Approver | None) -> Done:
    """Restart the running tasks of a run."""
    return _on_run(
        session,
        run,
        "has no task to restart",
        _runs,
        lambda task: control.restart(session, task, by, approver=approver),
    )


def retry_run(
    session: Session,
    run: RunId,
    by: str,
    *,
    force: bool = False,
    from_start: bool = False,
    approver: Approver | None = None,
) -> Done:
    """Retry the failed, canceled and deferred tasks of a run, without those that were superseded,
    or skipped by a person.
    """
    return _on_run(
        session,
        run,
        "has no task to retry",
        _may_be_retried,
        lambda task: control.retry(session, task, by, force=force, from_start=from_start, approver=approver),
    )


def skip_run(
    session: Session,
    run: RunId,
    by: str,
    *,
    as_completed: bool = False,
    force: bool = False,
    approver: Approver | None = None,
) -> Done:
    """Skip the tasks of a run that failed or have not started."""

    def act(task: TaskId) -> None:
        control.skip(session, task, by, as_completed=as_completed, force=force, approver=approver)

    return _on_run(session, run, "has no task to skip", _may_be_skipped, act)


def retry_failed(
    session: Session,
    run: RunId,
    by: str,
    approver: Approver | None = None,
    *,
    name: str | None = None,
    force: bool = False,
    from_start: bool = False,
) -> Done:
    """Retry exactly the failed tasks of a run that nobody waived. ``name``: only tasks with this
    name, such as the items of a list. Outdated tasks are refused unless ``force`` (design 5.19,
    5.33).
    """
    nothing = "has no failed task that nobody waived" + (f" by the name {name}" if name else "")
    return _on_run(
        session,
        run,
        nothing,
        _has_failed if name is None else lambda row: _has_failed(row) and row.name == name,
        lambda task: control.retry(session, task, by, force=force, from_start=from_start, approver=approver),
        "To take a waiver back, retry the task by its name.",
    )


def act_on_item(session: Session, run: RunId, item: str, verb: str, act: Act, *, failed: bool = False) -> Done:
    """Act on the tasks of an item. ``failed``: only on failed tasks that nobody waived. A
    cancellation takes waiting tasks first, so that they are canceled and not skipped.
    """
    if session.rows("tombstone_of_item", run=run, item=item):
        here = item_name(session.rows("place_of_run", run=run)[0], item)
        raise Conflict(here, "was deleted", f"arkqueue undelete {shlex.quote(here)}")
    concerns = _concerned(verb, failed=failed)
    tasks = session.rows("states_of_item", run=run, item=item)
    states = ", ".join(f"{row.name} is {row.state}" for row in tasks[:MOST_NAMED]) + (", …" if len(tasks) > MOST_NAMED else "")  # fmt: skip
    nothing = f"has no task of the item {item} to {verb}" + (f": {states}" if states else "")
    remedy = ""
    if verb == "retry" and (ended := [row.name for row in tasks if row.state in SETTLED]):
        here = item_name(session.rows("place_of_run", run=run)[0], item)
        remedy = f"To run it again from a task on: arkqueue retry {shlex.quote(here)} --from {ended[0]}"
    return _on_run(
        session,
        run,
        nothing,
        concerns,
        act,
        remedy,
        item=item,
        last_first=verb == "cancel",
    )


def act_on_list(
    session: Session, run: RunId, name: str, states: Collection[State], verb: str, act: Callable[[TaskId, str], object]
) -> Done:
    """Act on the items of a list. ``name``: the task that has the list. ``states``: act only on
    items that are in one of these states now; empty: in any. ``act`` takes a task and the key of
    its item.

    A retry without ``states`` acts on the failed items that nobody waived. With ``states`` it also
    acts on canceled, skipped and deferred items.
    """
    chosen, nothing, concerns = _chosen(session, run, name, states, verb)
    return _on_run(session, run, nothing, concerns, lambda task: act(task, chosen[task]), last_first=verb == "cancel")


def _chosen(
    session: Session, run: RunId, name: str, states: Collection[State], verb: str
) -> tuple[dict[int, str], str, Callable[[Any], bool]]:
    """The items of a list that a verb may concern, by task; the message if there are none; and the
    condition that a task still has to meet when its turn comes.
    """
    concerns = _may_come_back if verb == "retry" and states else _concerned(verb, failed=True)
    rows = session.rows("tasks_to_act_on", run=run, item=None)
    chosen = {row.id: row.item for row in rows if row.name == name and row.item and (not states or row.state in states)}
    nothing = f"has no item of {name} to {verb}" + (f" that is {' or '.join(states)}" if states else "")
    if verb == "retry" and State.REJECTED in states:
        nothing += "; rejected items stay rejected"
    return chosen, nothing, lambda row: row.id in chosen and concerns(row)


def _on_list(session: Session, run: RunId, name: str, states: Collection[State], verb: str, act: ActOnSome) -> Done:
    """Act on the items of a list, up to `PORTION` in each transaction. ``name`` and ``states``: as in
    `act_on_list`.
    """
    _, nothing, concerns = _chosen(session, run, name, states, verb)
    return _on_run(session, run, nothing, concerns, act, last_first=verb == "cancel", walk=_by_portions)


def hold_list(session: Session, run: RunId, name: str, states: Collection[State], by: str, note: str) -> Done:
    """Hold the unstarted items of a list. ``name`` and ``states``: as in `act_on_list`."""
    entry = _entry(run, "hold", by, f"{name}/*: {note}" if note else f"{name}/*")
    return _on_list(session, run, name, states, "hold", lambda graph, tasks: Done(graph.hold(tasks, entry(graph))))


def release_list(
    session: Session, run: RunId, name: str, states: Collection[State], by: str, note: str, how: holds.How
) -> Done:
    """Release the held items of a list. ``name`` and ``states``: as in `act_on_list`. If the archive
    is put on hold between two steps, the other items stay held.
    """
    entry = _entry(run, "release", by, f"{name}/*: {note}" if note else f"{name}/*")

    def act(graph: Graph, tasks: Sequence[int]) -> Done:
        (row,) = graph.rows("place_of_run", run=run)
        holds.refuse_on_hold(graph, row.archive_id)
        what = shlex.quote(list_name(run_name(row), name))
        return holds.release_locked(graph, tasks, partial(entry, graph), by, how, what, accepts=False)

    return _on_list(session, run, name, states, "release", act)


def cancel_list(
    session: Session, run: RunId, name: str, states: Collection[State], by: str, approver: Approver | None = None
) -> Done:
    """Cancel the unsettled items of a list. ``name`` and ``states``: as in `act_on_list`."""
    entry = _entry(run, "cancel", by, f"{name}/*")

    def act(graph: Graph, tasks: Sequence[int]) -> Done:
        refused = refusals(graph, tasks, approver)
        kept = {one.task for one in refused}
        if allowed := [task for task in tasks if task not in kept]:
            entry(graph)
        return Done(control.cancel_some(graph, allowed, by) if allowed else [], refused=refused)

    return _on_list(session, run, name, states, "cancel", act)


def prioritize_list(session: Session, run: RunId, name: str, states: Collection[State], priority: int, by: str) -> Done:
    """Set the priority of the unstarted items of a list. ``name`` and ``states``: as in
    `act_on_list`.
    """
    entry = _entry(run, "prioritize", by, f"{name}/*: {priority}")

    def act(graph: Graph, tasks: Sequence[int]) -> Done:
        entry(graph)
        graph.reordered = graph.ids("prioritize", tasks=list(tasks), priority=priority)
        return Done(list(graph.reordered))

    return _on_list(session, run, name, states, "prioritize", act)


def _entry(run: RunId, verb: str, by: str, note: str) -> Callable[[Graph], int]:
    """The audit log entry for all steps of a verb on a list. The first step that changes something
    makes it; called once in each step.
    """
    kept: list[int] = []

    def entry(graph: Graph) -> int:
        if not kept:
            (row,) = graph.rows("place_of_run", run=run)
            (made,) = graph.ids("remember", by=by, verb=verb, archive=row.archive_id, run=run, task=None, note=note)
            graph.to_keep.append(lambda: kept.append(made))
            return made
        return kept[0]

    return entry


def delete_items(
    session: Session, run: RunId, name: str, states: Collection[State], by: str, approver: Approver | None = None
) -> Done:
    """Delete the items of a list, each with all of its tasks. ``name`` and ``states``: as in
    `act_on_list`.
    """
    return act_on_list(
        session,
        run,
        name,
        states,
        "delete",
        lambda _, item: deletion.delete_item(session, run, item, by, approver),
    )


def _concerned(verb: str, *, failed: bool) -> Callable[[Any], bool]:
    """The tasks of an item or a list on which a verb acts. ``failed``: for retry, only failed tasks that nobody waived."""
    of_verb: dict[str, Callable[[Any], bool]] = {
        "restart": _runs,
        "retry": _has_failed if failed else _may_be_retried,
        "skip": _may_be_skipped,
        "cancel": lambda row: row.state not in SETTLED,
        "hold": lambda row: row.program and row.state in MOVES[Event.HOLD].sources,
        "release": lambda row: row.state == State.HELD,
        "refresh": lambda row: row.polls and row.state == State.DEFERRED,
        "prioritize": lambda row: row.state in (State.WAITING, State.HELD, State.READY),
        "delete": lambda _: True,
    }
    return of_verb[verb]


def retry_failed_of_archive(session: Session, archive: ArchiveId, by: str, approver: Approver | None = None) -> Done:
    """Like `retry_failed`, in all runs of an archive, the oldest first."""
    done, act, until = Done(), _retry(session, by, approver), _until(session)
    for run in session.rows("runs_failed", archive=archive):
        if done.left or time.monotonic() > until:
            done.left += run.tasks
        else:
            done.add(_each(session, run.id, _has_failed, act, until))
    if not (done.tasks or done.refused or done.left):
        (row,) = session.rows("archive", archive=archive)
        raise Conflict(f"archive {row.name}", "has no failed task that nobody waived")
    return done.unless_refused()


def _retry(session: Session, by: str, approver: Approver | None) -> Act:
    return lambda task: control.retry(session, task, by, approver=approver)


def _on_run(
    session: Session,
    run: RunId,
    nothing: str,
    concerns: Callable[[Any], bool],
    act: Callable[..., object],
    remedy: str = "",
    *,
    item: str | None = None,
    last_first: bool = False,
    walk: Callable[..., Done] | None = None,
) -> Done:
    """Act on those tasks of a run, or of one ``item``, for which ``concerns`` is true. ``nothing``,
    ``remedy``: the message if there are none. ``walk``: `_each`, or `_by_portions` for an ``act`` on
    many tasks.
    """
    found = session.rows("place_of_run", run=run)
    if not found:
        raise NotFound(f"run {run}", "does not exist")
    places.refuse_deleted(found[0])
    places.refuse_while_planned(found[0])
    done = (walk or _each)(session, run, concerns, act, _until(session), item=item, last_first=last_first)
    if not (done.tasks or done.skipped or done.refused or done.left):
        if concerns in (_has_failed, _may_be_retried):
            nothing, remedy = _beside_rejected(session, run, item, nothing, remedy)
        raise _nothing(session, found[0], nothing, remedy)
    return done.unless_refused()


def _beside_rejected(session: Session, run: int, item: str | None, nothing: str, remedy: str) -> tuple[str, str]:
    """The message and the remedy if there is nothing to retry. They mention rejected tasks, which
    are final.
    """
    rows = session.rows("tasks_to_act_on", run=run, item=item)
    rejected = [row.id for row in rows if row.state == State.REJECTED and not row.waived]
    if not rejected:
        return nothing, remedy
    (first,) = session.rows("place_of_task", task=rejected[0])
    what = "1 was rejected" if len(rejected) == 1 else f"{len(rejected)} were rejected"
    return f"{nothing}; {what}, which is final", f"arkqueue explain {shlex.quote(task_name(first))}"


def _nothing(session: Session, run: Any, nothing: str, remedy: str) -> Conflict:
    """The refusal of a verb that finds no task to act on in a run. A run of a backfill that could
    not start has to be made again; the remedy says how.
    """
    if not run.has_faults:
        return Conflict(run_name(run), nothing, remedy)
    if run.backfill_id is None:
        return Conflict(run_name(run), nothing, f"It could not start: arkqueue show {run_name(run)}")
    (fill,) = session.rows("backfill", backfill=run.backfill_id)
    again = backfill_command(fill, run.number, run.number)
    return Conflict(
        run_name(run), f"{nothing}, as it could not start", f"Correct its fault, then make it again: {again}"
    )


def _until(session: Session) -> float:
    return min(time.monotonic() + LONGEST, session.until)


def _each(
    session: Session,
    run: int,
    concerns: Callable[[Any], bool],
    act: Act,
    until: float,
    *,
    item: str | None = None,
    last_first: bool = False,
) -> Done:
    """Act on the tasks of a run for which ``concerns`` is true. Each is judged again when its turn
    comes: the actions before may have changed it.
    """
    done = Done()
    candidates = list(filter(concerns, session.rows("tasks_to_act_on", run=run, item=item)))
    for n, candidate in enumerate(reversed(candidates) if last_first else candidates):
        now: Sequence[Any] = session.rows("tasks_to_act_on_now", tasks=[candidate.id])
        is_ended = now and now[0].run_ended_at not in (None, candidate.run_ended_at)
        if is_ended or time.monotonic() > until:
            done.left = len(candidates) - n
            break
        if not now or not concerns(now[0]):
            continue
        try:
            act(TaskId(candidate.id))
        except (Conflict, Forbidden) as why:
            done.refused.append(Refused(candidate.id, why))
        except Busy:
            # The result has the tasks that were done until now; the others stay as they are.
            if not (done.tasks or done.refused):
                raise
            done.left = len(candidates) - n
            break
        else:
            done.tasks.append(candidate.id)
    return done


def _by_portions(
    session: Session,
    run: int,
    concerns: Callable[[Any], bool],
    act: ActOnSome,
    until: float,
    *,
    item: str | None = None,
    last_first: bool = False,
) -> Done:
    """Like `_each`, with up to `PORTION` tasks in each transaction, which are locked and judged again
    in it.
    """
    done = Done()
    candidates = list(filter(concerns, session.rows("tasks_to_act_on", run=run, item=item)))
    if last_first:
        candidates.reverse()
    ended = {None, *(row.run_ended_at for row in candidates)}

    def step(graph: Graph, tasks: Sequence[int]) -> Done:
        graph.rows("lock_tasks", tasks=list(tasks))
        now = graph.rows("tasks_to_act_on_now", tasks=list(tasks))
        if any(row.run_ended_at not in ended for row in now):
            return Done(left=len(tasks))
        fit = {row.id for row in now if concerns(row)}
        found = act(graph, [task for task in tasks if task in fit]) if fit else Done()
        acted = {*found.tasks}
        found.tasks = [task for task in tasks if task in acted]
        return found

    archive = places.archive_of_run(session, run)
    for start in range(0, len(candidates), PORTION):
        left = len(candidates) - start
        if time.monotonic() > until:
            done.left = left
            break
        if start:
            give_way()
        tasks = [row.id for row in candidates[start : start + PORTION]]
        try:
            found = change(session, [archive], partial(step, tasks=tasks))
        except (Busy, Conflict):
            # The result has the tasks that were done until now; the others stay as they are.
            if not (done.tasks or done.skipped or done.refused):
                raise
            done.left = left
            break
        if found.left:  # the run ended meanwhile
            done.left = left
            break
        done.add(found)
    return done


def _runs(row: Any) -> bool:
    return bool(row.state == State.RUNNING)


def _may_be_retried(row: Any) -> bool:
    return row.state in (State.FAILED, State.DEFERRED) or (row.state == State.CANCELED and row.superseded_by is None)


def _may_come_back(row: Any) -> bool:
    """True if a retry of a task by its name may be accepted. Only the task's own name takes a
    waiver back.
    """
    return _has_failed(row) or row.state in COMES_BACK


def _may_be_skipped(row: Any) -> bool:
    return row.state in MOVES[Event.SKIP].sources or (row.state in (State.FAILED, State.REJECTED) and not row.waived)


def _has_failed(row: Any) -> bool:
    return bool(row.state == State.FAILED and not row.waived)
