"""Verbs on the tasks of a run, an item or an archive that judge each task by itself: restart,
retry, skip; and every verb on the tasks of an item (design 5.33). `walk` says how they go through
the tasks. Verbs that treat all tasks of a run alike (cancel, prioritize, hold, release) are defined
beside the same verb on one task.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from arkqueue.db.session import Session
from arkqueue.errors import Conflict, NotFound
from arkqueue.model import ArchiveId, RunId
from arkqueue.names import backfill_command, item_name, run_name, task_name
from arkqueue.queue import places
from arkqueue.queue.control import options, restart_some, skip_some
from arkqueue.queue.done import Done
from arkqueue.queue.graph import Graph
from arkqueue.queue.guards import Approver
from arkqueue.queue.retrying import refresh_some, retry_some
from arkqueue.queue.walk import Concerns, Step, together, until, walk
from arkqueue.states import MOVES, SETTLED, Event, State

MOST_NAMED = 10
"""The most tasks of an item whose states a message names when the verb has nothing to act on."""

COMES_BACK: Final = frozenset((State.CANCELED, State.SKIPPED, State.DEFERRED))
"""The states, beside failed, from which a retry by name takes a task."""


def restart_run(session: Session, run: RunId, by: str, approver: Approver | None) -> Done:
    """Restart the running tasks of a run."""
    return act_on_run(session, run, "has no task to restart", _runs, restarting(by, approver))


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
    step = retrying(by, approver, force=force, from_start=from_start)
    return act_on_run(session, run, "has no task to retry", _may_be_retried, step)


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
    step = skipping(by, approver, as_completed=as_completed, force=force)
    return act_on_run(session, run, "has no task to skip", _may_be_skipped, step)


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
    return act_on_run(
        session,
        run,
        nothing,
        _has_failed if name is None else lambda row: _has_failed(row) and row.name == name,
        retrying(by, approver, force=force, from_start=from_start),
        "To take a waiver back, retry the task by its name.",
    )


def restarting(by: str, approver: Approver | None) -> Step:
    """The step that restarts tasks."""
    return _remembered("restart", by, "", partial(restart_some, by=by, approver=approver))


def retrying(by: str, approver: Approver | None, *, force: bool = False, from_start: bool = False) -> Step:
    """The step that retries tasks."""
    note = options(force=force, from_start=from_start)
    work = partial(retry_some, force=force, from_start=from_start, approver=approver, is_brief=True)
    return _remembered("retry", by, note, work)


def skipping(by: str, approver: Approver | None, *, as_completed: bool = False, force: bool = False) -> Step:
    """The step that skips tasks."""
    note = options(as_completed=as_completed, force=force)
    work = partial(skip_some, by=by, as_completed=as_completed, force=force, approver=approver)
    return _remembered("skip", by, note, work)


def refreshing(by: str) -> Step:
    """The step that polls tasks."""
    return _remembered("refresh", by, "", refresh_some)


def _remembered(verb: str, by: str, note: str, work: Callable[[Graph, Sequence[Any]], Done | None]) -> Step:
    """A step with an audit log entry for each task. ``work`` may return the refusals of tasks."""

    def act(graph: Graph, rows: Sequence[Any]) -> Done:
        done = work(graph, rows) or Done([row.id for row in rows])
        graph.do("remember_of_tasks", by=by, verb=verb, tasks=done.tasks, note=note)
        return done

    return together(act)


def act_on_item(session: Session, run: RunId, item: str, verb: str, step: Step, *, failed: bool = False) -> Done:
    """Act on the tasks of an item. ``failed``: only on failed tasks that nobody waived. A
    cancellation takes waiting tasks first, so that they are canceled and not skipped.
    """
    if session.rows("tombstone_of_item", run=run, item=item):
        here = item_name(session.rows("place_of_run", run=run)[0], item)
        raise Conflict(here, "was deleted", f"arkqueue undelete {shlex.quote(here)}")
    concerned = concerns(verb, failed=failed)
    tasks = session.rows("states_of_item", run=run, item=item)
    states = ", ".join(f"{row.name} is {row.state}" for row in tasks[:MOST_NAMED]) + (", …" if len(tasks) > MOST_NAMED else "")  # fmt: skip
    nothing = f"has no task of the item {item} to {verb}" + (f": {states}" if states else "")
    remedy = ""
    if verb == "retry" and (ended := [row.name for row in tasks if row.state in SETTLED]):
        here = item_name(session.rows("place_of_run", run=run)[0], item)
        remedy = f"To run it again from a task on: arkqueue retry {shlex.quote(here)} --from {ended[0]}"
    return act_on_run(session, run, nothing, concerned, step, remedy, item=item, last_first=verb == "cancel")


def concerns(verb: str, *, failed: bool) -> Concerns:
    """The tasks of an item or a list on which a verb acts. ``failed``: for retry, only failed tasks that nobody waived."""
    of_verb: dict[str, Concerns] = {
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
    done, step, end = Done(), retrying(by, approver), until(session)
    for run in session.rows("runs_failed", archive=archive):
        if done.left or time.monotonic() > end:
            done.left += run.tasks
        else:
            done.add(walk(session, RunId(run.id), _has_failed, step, end))
    if not (done.tasks or done.refused or done.left):
        (row,) = session.rows("archive", archive=archive)
        raise Conflict(f"archive {row.name}", "has no failed task that nobody waived")
    return done.unless_refused()


def act_on_run(
    session: Session,
    run: RunId,
    nothing: str,
    concerned: Concerns,
    step: Step,
    remedy: str = "",
    *,
    item: str | None = None,
    last_first: bool = False,
) -> Done:
    """Act on those tasks of a run, or of one ``item``, that are ``concerned``. ``nothing``,
    ``remedy``: the message if there are none.
    """
    found = session.rows("place_of_run", run=run)
    if not found:
        raise NotFound(f"run {run}", "does not exist")
    places.refuse_deleted(found[0])
    places.refuse_while_planned(found[0])
    done = walk(session, run, concerned, step, until(session), item=item, last_first=last_first)
    if not (done.tasks or done.skipped or done.refused or done.left):
        if not session.rows("place_of_run", run=run):
            raise NotFound(run_name(found[0]), "was purged")
        if concerned in (_has_failed, _may_be_retried):
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
    here, again = run_name(run), backfill_command(fill, run.number, run.number)
    remedy = f"To leave its revision out: arkqueue delete {here}. To make it again, without its fault: {again}"
    return Conflict(here, f"{nothing}, as it could not start: arkqueue show {here}", remedy)


def _runs(row: Any) -> bool:
    return bool(row.state == State.RUNNING)


def _may_be_retried(row: Any) -> bool:
    return row.state in (State.FAILED, State.DEFERRED) or (row.state == State.CANCELED and row.superseded_by is None)


def may_come_back(row: Any) -> bool:
    """True if a retry of a task by its name may be accepted. Only the task's own name takes a
    waiver back.
    """
    return _has_failed(row) or row.state in COMES_BACK


def _may_be_skipped(row: Any) -> bool:
    return row.state in MOVES[Event.SKIP].sources or (row.state in (State.FAILED, State.REJECTED) and not row.waived)


def _has_failed(row: Any) -> bool:
    return bool(row.state == State.FAILED and not row.waived)
