"""Holds and releases: tasks that wait for a person before they start (design 5.21, 5.22).

A hold is sticky. It is stored with each task that it holds (``task.hold_id``), so the end of its
cause releases nothing: only a release does. In an archive on hold (``archive.hold_id``), all runs
and items that have not begun are held, and new runs are stored as held (``ledger.append``,
``triggering.store``). A run or an item has begun when one of its tasks has had an attempt; it then
goes on to its end. In a run that has begun, the items that have not begun are held.

COMMIT, REPORT and gates execute nothing, and are not held, unless a workflow file says ``hold:
true`` for a gate, or a person names it.

Holds and releases of an archive take a limited number of runs with each transaction
(``MOST_TASKS``), oldest first, and judge each again under its lock. So a hold that comes while an
archive is being released ends the release. After a crash, the same command, given again, continues.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import ArchiveRefuses, Conflict, NotFound
from arkqueue.model import ArchiveId, RunId, TaskId
from arkqueue.names import run_name
from arkqueue.plan.ledger import BY_ITS_FILE, HELD_WITHOUT_ENTRY
from arkqueue.queue.changes import change
from arkqueue.queue.control import in_portions as tasks_in_portions
from arkqueue.queue.done import LONGEST, MOST_TASKS, Done, Refused, give_way, portions
from arkqueue.queue.graph import Graph
from arkqueue.queue.guards import Approver, unapproved
from arkqueue.queue.places import (
    archive_of_run,
    locked_task,
    place_of_run,
    refuse_deleted,
    refuse_implicit,
    task_name_of,
)
from arkqueue.queue.refusals import refuse_stopped
from arkqueue.queue.reopening import refuse_outdated
from arkqueue.states import MOVES, SETTLED, Event, State

MOST_RUNS = 500
"""The most runs of one such transaction."""
MOST_HOLDERS = 3
"""The most holds that a message names."""


# Hold


def hold(session: Session, task: TaskId, by: str, reason: str = "") -> None:
    """Hold a task that has not started."""

    def work(graph: Graph) -> None:
        row = locked_task(graph, task)
        refuse_implicit(graph, row, "held")
        if row.state not in MOVES[Event.HOLD].sources:
            here = task_name_of(graph, task)
            if row.state == State.HELD:
                refuse_held_already(graph, here, [task])
            raise Conflict(here, _not_held(row.state), _instead(row.state, here))
        graph.hold([task], _remember(graph, by, "hold", row, reason))

    change(session, [_archive_of_task(session, task)], work)


def hold_run(session: Session, run: RunId, by: str, reason: str = "") -> Done:
    """Hold the unstarted tasks of a run; running and deferred tasks go on.

    A large run takes several transactions (`portions`). Ready tasks are held first. A task that
    starts before the command reaches it goes on, as if the command had come after its start.
    """
    done, left, entry = Done(), list[int](), list[int]()

    def begin(graph: Graph) -> None:
        row = _run(graph, run)
        tasks = graph.ids("to_hold", runs=[run])
        left[:], entry[:] = tasks[MOST_TASKS:], [_keep(graph, by, "hold", row.archive_id, run, reason)]
        done.tasks = act(graph, tasks[:MOST_TASKS]).tasks
        if not (done.tasks or left):
            refuse_held_already(graph, run_name(row), graph.ids("held_of_runs", runs=[run]))
            raise Conflict(run_name(row), "has no unstarted task")

    def act(graph: Graph, tasks: Sequence[int]) -> Done:
        graph.rows("lock_tasks", tasks=list(tasks))
        return Done(sorted(graph.hold(tasks, entry[0])))

    archive = archive_of_run(session, run)
    change(session, [archive], begin)
    tasks_in_portions(session, archive, done, left, act)
    return done


def hold_archive(session: Session, archive: ArchiveId, by: str, reason: str = "") -> Done:
    """Put an archive on hold: its runs and items that have not begun are held, and so are runs that
    are planned before `unhold`.

    If the command was killed midway, the same command, given again, holds the rest.
    """

    def begin(graph: Graph) -> int:
        (found,) = graph.rows("archive", archive=archive)
        if found.removed_at is not None:
            fault = "was removed: it gets no more runs, and none of its tasks starts"
            raise Conflict(f"archive {found.name}", fault, "To watch it again, add it again.")
        for row in graph.rows("hold_of_archive", archive=archive):
            return int(row.hold_id)
        entry = _keep(graph, by, "hold", archive, None, reason)
        graph.do("set_hold", archive=archive, hold=entry)
        return entry

    was = session.rows("hold_of_archive", archive=archive)
    change(session, [archive], begin)

    def work(graph: Graph, tasks: Sequence[int]) -> Done:
        found = graph.rows("hold_of_archive", archive=archive)
        if not found:
            return Done()  # another command has ended the hold meanwhile
        graph.rows("lock_tasks", tasks=list(tasks))
        return Done(sorted(graph.hold(tasks, found[0].hold_id, unbegun=True)))

    done = in_portions(session, archive, session.rows("runs_not_begun", archive=archive), "to_hold", work)
    if was and not (done.tasks or done.left):
        fault = f"is on hold already ({said(was[0])}, since {_at(was[0].at)})"
        raise Conflict(f"archive {was[0].name}", fault, f"To end the hold: arkqueue unhold {was[0].name}")
    return done


def refuse_held_already(source: Session | Graph, here: str, tasks: Sequence[int]) -> None:
    """Raise ``Conflict`` if some tasks of a run, a backfill or one task, ``here``, are held. The
    message says by whom, since when and why.
    """
    holders = source.rows("holders", tasks=list(tasks)) if tasks else []
    if not holders:
        return
    by = " and ".join(map(_by_whom, holders[:MOST_HOLDERS])) + (" and others" if len(holders) > MOST_HOLDERS else "")
    count = f" ({len(tasks)} tasks)" if len(tasks) > 1 else ""
    raise Conflict(here, f"is held already{count}, {by}", f"To let it start: arkqueue release {shlex.quote(here)}")


def _by_whom(holder: Any) -> str:
    if what := HELD_WITHOUT_ENTRY.get(holder.hold_id):
        return f"by {what}" + (" (hold: true)" if holder.hold_id == BY_ITS_FILE else "")
    return f"by {holder.by} since {_at(holder.at)}" + (f" ({' '.join(holder.note.split())})" if holder.note else "")


def _at(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def unhold(session: Session, archive: ArchiveId, by: str, reason: str = "") -> None:
    """End the hold of an archive: runs that are planned from now on are not held. Held tasks stay held."""

    def work(graph: Graph) -> None:
        if not graph.rows("hold_of_archive", archive=archive):
            (row,) = graph.rows("archive", archive=archive)
            raise Conflict(
                f"archive {row.name}", "is not on hold", f"To release its held tasks: arkqueue release {row.name} --all"
            )
        graph.do("set_hold", archive=archive, hold=None)
        _keep(graph, by, "unhold", archive, None, reason)

    change(session, [archive], work)


# Release


@dataclass(frozen=True, slots=True)
class How:
    """The options of a release.

    An outdated task (design 5.19) is refused, unless ``force`` is given; ``skip_outdated`` waives
    it and releases the rest. A guarded task (5.22) needs an ``approver``.
    """

    force: bool = False
    skip_outdated: bool = False
    approver: Approver | None = None


def release(session: Session, task: TaskId, by: str, reason: str = "", how: How = How()) -> Done:
    """Release a held task. It enters like any other task, and its ``cancels`` fire."""

    def work(graph: Graph) -> Done:
        row = locked_task(graph, task)
        if row.state != State.HELD:
            raise Conflict(task_name_of(graph, task), f"is {row.state}: only a held task is released")
        refuse_on_hold(graph, row.archive_id)
        entry = partial(_remember, graph, by, "release", row, reason)
        return release_locked(graph, [task], entry, by, how, task_name_of(graph, task), accepts=False)

    return change(session, [_archive_of_task(session, task)], work).unless_refused()


def release_run(session: Session, run: RunId, by: str, reason: str = "", how: How = How()) -> Done:
    """Release the held tasks of a run in one transaction. A large run takes several (`portions`);
    if its archive is put on hold between them, the release ends, and the other tasks stay held.
    """
    done, left, kept = Done(), list[int](), list[int]()

    def begin(graph: Graph) -> None:
        row = _run(graph, run)
        refuse_on_hold(graph, row.archive_id)
        tasks = graph.ids("held_of_runs", runs=[run])
        if not tasks:
            raise Conflict(run_name(row), "has no held task")
        left[:], done.tasks, done.approvals, done.skipped, done.refused = tasks[MOST_TASKS:], [], [], [], []
        done.accepted = []
        done.add(act(graph, tasks[:MOST_TASKS]))

    def act(graph: Graph, tasks: Sequence[int]) -> Done:
        row = _run(graph, run)

        def entry() -> int:
            """The one audit log entry for all steps, made by the first step that releases a task."""
            if not kept:
                made = _keep(graph, by, "release", row.archive_id, run, reason)
                graph.to_keep.append(lambda: kept.append(made))
                return made
            return kept[0]

        return release_locked(graph, lock_held(graph, tasks), entry, by, how, run_name(row))

    def go_on(graph: Graph, tasks: Sequence[int]) -> Done:
        try:
            refuse_on_hold(graph, archive)
            return act(graph, tasks)
        except (Conflict, NotFound):
            return Done(left=len(tasks))

    archive = archive_of_run(session, run)
    change(session, [archive], begin)
    tasks_in_portions(session, archive, done, left, go_on)
    return done.unless_refused()


def lock_held(graph: Graph, tasks: Sequence[int]) -> list[int]:
    """Lock tasks. Returns those that are still held: an earlier step may have canceled or skipped
    some.
    """
    held = {task.id for task in graph.rows("lock_tasks", tasks=list(tasks)) if task.state == State.HELD}
    return [task for task in tasks if task in held]


def release_archive(session: Session, archive: ArchiveId, by: str, reason: str = "", how: How = How()) -> Done:
    """Release all held tasks of an archive, the oldest runs first. The result names the tasks that stay held."""

    def work(graph: Graph, tasks: Sequence[int]) -> Done:
        refuse_on_hold(graph, archive)
        entry = partial(_keep, graph, by, "release", archive, None, reason)
        return release_locked(graph, lock_held(graph, tasks), entry, by, how, f"{row.name} --all")

    (row,) = session.rows("archive", archive=archive)
    change(session, [archive], lambda graph: refuse_on_hold(graph, archive))
    done = in_portions(session, archive, session.rows("runs_held", archive=archive), "held_of_runs", work)
    if not (done.tasks or done.skipped or done.refused or done.left):
        raise Conflict(f"archive {row.name}", "has no held task")
    return done.unless_refused()


def release_locked(
    graph: Graph, tasks: Sequence[int], entry: Callable[[], int], by: str, how: How, what: str, *, accepts: bool = True
) -> Done:
    """Release held, locked tasks in one step. ``entry`` returns the audit log entry, which it makes
    once a task can be released.

    ``what``: the tasks as the command names them. ``accepts``: True if whole runs are released,
    which accepts their workflow files if these are guarded.
    """
    guarded = [Refused(task, why) for task, why in unapproved(graph, tasks, how.approver)]
    tasks = [task for task in tasks if task not in {refused.task for refused in guarded}]
    done = Done(refused=[] if how.force else list(_outdated(graph, tasks, what)))
    outdated = {refused.task for refused in done.refused}
    if how.skip_outdated and outdated:
        skipped = graph.ids("skip", tasks=sorted(outdated), by=by, as_completed=False)
        note = f"as out of date: release {what} --skip-outdated"
        graph.do("remember_of_tasks", by=by, verb="skip", tasks=skipped, note=note)
        done.skipped, done.refused = skipped, []
        graph.follow(skipped)
    if fit := [task for task in tasks if task not in outdated]:
        # Tasks that depend on a skipped task were skipped with it.
        foreign = graph.ids("runs_of_foreign", tasks=fit) if accepts else []
        done.approvals = graph.ids("approval_steps", tasks=fit)
        done.tasks = sorted(graph.ids("release", tasks=fit, release=entry()))
        if foreign:
            accepted = graph.ids("accept_workflows_of", runs=foreign)
            done.accepted = [run_name(place_of_run(graph, run)) for run in accepted]
        graph.follow(entering=done.tasks)
    elif done.skipped:
        entry()
    done.refused += guarded
    return done


def _outdated(graph: Graph, tasks: Sequence[int], what: str) -> Iterator[Refused]:
    """The tasks that would replace the work of later revisions, that later revisions have
    superseded, or after which tasks of later revisions have started (design 5.19). ``what``: the
    tasks as the command names them.
    """
    perhaps = graph.ids("perhaps_outdated", tasks=list(tasks))
    for row in graph.rows("lock_tasks", tasks=perhaps) if perhaps else ():
        try:
            refuse_outdated(graph, row, [row.id], f"arkqueue release {what}")
        except Conflict as why:
            waived = Conflict(why.thing, why.fault, f"{why.remedy}, or waive it: --skip-outdated")
            yield Refused(row.id, waived)


def refuse_on_hold(graph: Graph, archive: int) -> None:
    """Raise ``ArchiveRefuses`` if an archive is on hold or stopped: its held tasks cannot be released."""
    refuse_stopped(graph, archive)
    for row in graph.rows("hold_of_archive", archive=archive):
        raise ArchiveRefuses(f"archive {row.name}", f"is on hold ({said(row)})", f"arkqueue unhold {row.name}")


def said(hold: Any) -> str:
    """Who put an archive on hold, and why. ``hold``: a row of ``hold_of_archive``."""
    return f"by {hold.by}: {hold.note}" if hold.note else f"by {hold.by}"


# Shared by hold and release


def in_portions(
    session: Session,
    archive: int,
    runs: Sequence[Any],
    chosen: str,
    work: Callable[[Graph, Sequence[int]], Done],
    until: float | None = None,
) -> Done:
    """Act on tasks of runs, a limited number with each transaction. ``runs``: rows with the id of
    each run and the number of tasks to act on. ``until``: the time at which the command has to end.

    ``chosen``: the named block that selects the tasks of some runs. It runs under the lock, except
    for a run with more tasks than one transaction takes; so ``work`` locks and judges the tasks.
    """
    done = Done()
    until = min(session.until, time.monotonic() + LONGEST if until is None else until)
    for portion in _portions(runs):
        parts: Iterable[Sequence[int] | None] = [None]
        if len(portion) == 1 and (large := [row.id for row in session.rows(chosen, runs=portion)])[MOST_TASKS:]:
            parts = portions(large)
        for part in parts:
            if time.monotonic() > until:
                done.left = sum(run.tasks for run in runs) - len(done.tasks) - len(done.skipped) - len(done.refused)
                return done
            give_way(session)
            done.add(change(session, [archive], partial(_on_tasks, runs=portion, chosen=chosen, part=part, work=work)))
    return done


def _on_tasks(
    graph: Graph,
    runs: Sequence[int],
    chosen: str,
    part: Sequence[int] | None,
    work: Callable[[Graph, Sequence[int]], Done],
) -> Done:
    return work(graph, graph.ids(chosen, runs=list(runs)) if part is None else part)


def _portions(runs: Sequence[Any]) -> Iterator[list[int]]:
    """The ids of runs, in portions for one transaction each."""
    portion: list[int] = []
    tasks = 0
    for run in runs:
        if portion and (tasks + run.tasks > MOST_TASKS or len(portion) == MOST_RUNS):
            yield portion
            portion, tasks = [], 0
        portion.append(run.id)
        tasks += run.tasks
    if portion:
        yield portion


def _run(graph: Graph, run: RunId) -> Any:
    row = place_of_run(graph, run)
    refuse_deleted(row)
    return row


def _archive_of_task(session: Session, task: TaskId) -> int:
    found = session.rows("place_of_task", task=task)
    if not found:
        raise NotFound(f"task {task}", "does not exist")
    return int(found[0].archive_id)


def _remember(graph: Graph, by: str, verb: str, row: Any, reason: str) -> int:
    (entry,) = graph.ids("remember", by=by, verb=verb, archive=row.archive_id, run=row.run_id, task=row.id, note=reason)
    return entry


def _keep(graph: Graph, by: str, verb: str, archive: int, run: RunId | None, reason: str) -> int:
    (entry,) = graph.ids("remember", by=by, verb=verb, archive=archive, run=run, task=None, note=reason)
    return entry


def _not_held(state: str) -> str:
    if state in SETTLED:
        return f"is {state} already"
    return f"is {state}: it has started, and goes on to its end"


def _instead(state: str, name: str) -> str:
    return f"arkqueue cancel {name}" if state in (State.RUNNING, State.DEFERRED) else ""
