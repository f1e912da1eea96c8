"""Runs a part of a run again, from one of its tasks on: ``retry RUN --from TASK`` (design 5.30;
docs/decisions/0001, point 30).

The *part* is the task and everything behind it: all tasks that depend on it inside the run,
directly or through others. For one item, the part ends with the item. Ended tasks of the part go
back to waiting, and so run again in the order of their edges; tasks that have not started wait
again. A task that a person skipped stays skipped, and so do the tasks that depend on the part
through that task alone. A task that a bad task outside the part still skips stays skipped, too.

Everything is judged before anything changes: a part is refused as a whole. A large part takes
several transactions (`portions`), and the first task itself comes back in the last one. So no task
of the part runs before all of it waits. The items of a long list come back in the last few. They do
not depend on each other, so an item may run before the last items are back. If the command ends
early, the part waits, and the same command, given again, completes it. If some items are back and
run by then, it brings back only the others. If the run was canceled or deleted meanwhile, nothing
waits.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import Conflict, NotFound
from arkqueue.model import RunId, TaskKind
from arkqueue.names import EVERY_TASK, item_name, run_name, task_in_run
from arkqueue.queue import scratch
from arkqueue.queue.changes import change
from arkqueue.queue.control import in_portions
from arkqueue.queue.done import MOST_TASKS, Done, Refused
from arkqueue.queue.graph import Graph
from arkqueue.queue.guards import Approver, hold_again, refuse_unapproved
from arkqueue.queue.places import archive_of_run, place_of_run, refuse_deleted, refuse_implicit, task_name_of
from arkqueue.queue.refusals import MOST_NAMED, refuse_stopped
from arkqueue.queue.reopening import NEWEST, blocked, gates_again, judge_again, refuse_outdated, superseded
from arkqueue.states import SETTLED, State
from arkqueue.text import shortened, similar

LONGEST_SHOWN = 100
"""The most characters of a wrong name that a message repeats."""


@dataclass(slots=True)
class _Part:
    """The part of a run that runs again. ``members``: all its tasks, also those that have not
    started or stay skipped. ``back``: the tasks that go back to waiting, the ``starts`` last.

    ``gates``: the gates of an item's list that wait again with the item, and the tasks that passed
    because of these gates. ``edges``: the edges inside the part, as pairs of source and target.
    """

    members: list[int] = field(default_factory=list)
    back: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    gates: list[int] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)


def retry_from(
    session: Session,
    run: RunId,
    name: str,
    by: str,
    *,
    item: str | None = None,
    force: bool = False,
    from_start: bool = False,
    approver: Approver | None = None,
) -> Done:
    """Run a task of a run again with everything behind it, also completed tasks. If the task has a
    list, either all its items run again, or only ``item``.

    Refused if a task of the part runs; if later revisions have gone on from the part, unless
    ``force`` (design 5.19); and if a command would repeat what it has done (`poll`, `on_lost:
    fail`), unless ``from_start``.
    """
    done, part = Done(), _Part()

    def begin(graph: Graph) -> None:
        place = place_of_run(graph, run)
        here = item_name(place, item) if item else run_name(place)
        _refuse_deleted(graph, place, run, item, here)
        refuse_stopped(graph, place.archive_id)
        part.starts, done.refused = _starts(graph, run, name, item, here)
        part.members, part.edges = _behind(graph, run, part.starts, item)
        ended, reopened = _judged(graph, part, here, name, force=force, from_start=from_start, approver=approver)
        # The gates of a whole run are part of it. The gates of other runs wait again with the tasks
        # that come back there.
        counted = [*ended, *reopened] if item else sorted({*reopened} - {*part.members})
        part.gates, reopened = _gates_and_behind(graph, ended, reopened, counted)
        part.back = [*sorted({*ended, *reopened, *part.gates} - {*part.starts}), *part.starts]
        scratch.renew(graph, run, part.members, here, item, may_wait=False)
        scratch.begin_again(graph, run, part.members, item)
        if from_start:
            graph.do("start_over", tasks=ended)
        note = _note(name, item, force=force, from_start=from_start)
        graph.do("remember", by=by, verb="retry", archive=place.archive_id, run=run, task=None, note=note)
        if len(part.back) > MOST_TASKS:
            _wait_for_the_rest(graph, part, {*part.members} - {*part.back[MOST_TASKS:]})
        done.tasks = _again(graph, part, part.back[:MOST_TASKS])

    def go_on(graph: Graph, tasks: Sequence[int]) -> Done:
        (place,) = graph.rows("place_of_run", run=run) or [None]
        if place is None:
            return Done(left=len(tasks))
        if (place.deleted_at, place.canceled_at) != (None, None):
            graph.follow(again=tasks)  # nothing waits for them any more
            return Done(left=len(tasks))
        # Once the first of the starts is back, everything behind all of them waits: then a task of
        # the part runs because of this command, or is a start that another command brought back.
        is_begun = tasks[0] in starts and tasks[0] != part.starts[0]
        if not is_begun and any(row.state == State.RUNNING for row in graph.rows("lock_tasks", tasks=part.members)):
            return Done(left=len(tasks))
        _wait_for_the_rest(graph, part, {*tasks})
        return Done(_again(graph, part, tasks))

    archive = archive_of_run(session, run)
    change(session, [archive], begin)
    starts = {*part.starts}
    in_portions(session, archive, done, part.back[MOST_TASKS:], go_on)
    if done.left and session.is_rehearsal:
        # The part was judged as a whole, so the tasks that the rehearsal has not reached come back.
        done.tasks += _ordinary(session.rows("lock_tasks", tasks=part.back[-done.left :]))
        done.left = 0
    return done


def _refuse_deleted(graph: Graph, place: Any, run: int, item: str | None, here: str) -> None:
    refuse_deleted(place)
    if item and graph.rows("tombstone_of_item", run=run, item=item):
        raise Conflict(here, "was deleted", f"arkqueue undelete {shlex.quote(here)}")


def _judged(
    graph: Graph, part: _Part, here: str, name: str, *, force: bool, from_start: bool, approver: Approver | None
) -> tuple[list[int], list[int]]:
    """The ended tasks of a part, and the skipped tasks that come back with them. Locks the part.
    Raises ``Conflict`` or ``Forbidden`` if the part must not run again.
    """
    locked = graph.rows("lock_tasks", tasks=part.members)
    _refuse_running(graph, here, locked)
    if not from_start:
        _refuse_second(graph, here, name, part.members)
    if not force:
        _refuse_superseded(graph, locked)
    starts = {*part.starts}
    ended = [row.id for row in locked if row.id in starts or _has_ended(row)]
    refuse_unapproved(graph, ended, approver)
    reopened, _ = judge_again(graph, ended)
    if not force:
        first, again = next(row for row in locked if row.id == part.starts[0]), sorted({*ended, *reopened})
        refuse_outdated(graph, first, again, f"arkqueue retry {shlex.quote(here)} --from {name}", of=here)
    return ended, reopened


def _note(name: str, item: str | None, *, force: bool, from_start: bool) -> str:
    """The options of the command, for the audit log."""
    of_item = [task_in_run(EVERY_TASK, item)[1:]] if item else []
    options = [("--force", force), ("--from-start", from_start)]
    return " ".join([*of_item, f"--from {name}", *(option for option, is_given in options if is_given)])


def _starts(graph: Graph, run: int, name: str, item: str | None, here: str) -> tuple[list[int], list[Refused]]:
    """The tasks to start from, and the refusals of those that another bad task holds back. Tasks that have not started need no retry."""
    rows = graph.rows("named_in_run", run=run, name=name, item=item)
    if not rows:
        known = graph.rows("names_in_run", run=run, item=item)
        near = similar(name, [row.name for row in known], 1)
        has = ", ".join(row.name for row in known[:MOST_NAMED])
        remedy = f"Did you mean {near[0]}?" if near else f"It has: {has}." if known else ""
        raise NotFound(here, f"has no task {shortened(name, LONGEST_SHOWN)!r}", remedy)
    refuse_implicit(graph, rows[0], "retried")
    if item is None and rows[0].item:
        rows = _not_reached(graph, run, name, rows) or rows
    _refuse_running(graph, here, rows)
    ended = [row for row in rows if row.state in SETTLED or row.state == State.DEFERRED]
    if not ended:
        more = f"; and {len(rows) - 1} more" if len(rows) > 1 else ""
        first = task_name_of(graph, rows[0].id)
        verb = "release" if rows[0].state == State.HELD else "explain"
        fault = f"is {rows[0].state}{more}: it has not ended, so there is nothing to retry"
        raise Conflict(first, fault, f"arkqueue {verb} {shlex.quote(first)}")
    refused = {task: Refused(task, why) for task, why in blocked(graph, ended).items()}
    done = Done(tasks=[row.id for row in ended if row.id not in refused], refused=list(refused.values()))
    return done.unless_refused().tasks, done.refused


def _not_reached(graph: Graph, run: int, name: str, rows: Sequence[Any]) -> list[Any]:
    """The items of a list that an earlier, interrupted command has not brought back, if others that
    it brought back run by now. Everything behind these items waits for them.
    """
    if not any(f"{row.note} ".startswith(f"--from {name} ") for row in graph.rows("last_retry_from", run=run)):
        return []
    settled = [row.id for row in rows if row.state in SETTLED]
    left = {*graph.ids("waited_for_in_vain", tasks=settled)}
    members, _ = _behind(graph, run, settled, None)
    states = (
        {row.state for row in graph.rows("lock_tasks", tasks=[*members, *(row.id for row in rows)])} if left else ()
    )
    return [row for row in rows if row.id in left] if State.RUNNING in states else []


def _gates_and_behind(
    graph: Graph, ended: Sequence[int], reopened: list[int], counted: Sequence[int]
) -> tuple[list[int], list[int]]:
    """The gates of lists that wait again with the ``counted`` tasks, and the tasks that come back
    with the part and with these gates. Also returns tasks that were skipped because a gate had not
    failed.
    """
    gates: list[int] = []
    while counted and (more := [gate for gate in gates_again(graph, counted) if gate not in gates]):
        gates += more
        counted, _ = judge_again(graph, [*ended, *gates])
        reopened = sorted({*reopened, *counted})
    return gates, reopened


def _behind(graph: Graph, run: int, starts: Sequence[int], item: str | None) -> tuple[list[int], list[tuple[int, int]]]:
    """The tasks of the part, and the edges inside it. Tasks that a person skipped end the part."""
    targets: dict[int, list[int]] = defaultdict(list)
    for edge in graph.rows("passable_inside", run=run, item=item):
        targets[edge.source].append(edge.target)
    members, edges, left = set(starts), list[tuple[int, int]](), list(starts)
    while left:
        source = left.pop()
        for target in targets[source]:
            edges.append((source, target))
            if target not in members:
                members.add(target)
                left.append(target)
    return sorted(members), edges


def _has_ended(row: Any) -> bool:
    """True if a task runs again by itself. Skipped tasks are evaluated with the task that skipped them."""
    return row.state == State.DEFERRED or (row.state in SETTLED and row.state != State.SKIPPED)


def _refuse_running(graph: Graph, here: str, rows: Sequence[Any]) -> None:
    if running := [row.id for row in rows if row.state == State.RUNNING]:
        fault = f"would run tasks again that are running: {_named(graph, running)}"
        raise Conflict(here, fault, "Wait until they have ended, or cancel them.")


def _refuse_second(graph: Graph, here: str, name: str, tasks: Sequence[int]) -> None:
    """Raise ``Conflict`` if a command that may not run a second time by itself has run, or was
    deferred.
    """
    if second := graph.ids("done_once", tasks=list(tasks), most=MOST_NAMED + 1):
        fault = f"would run commands again that are meant to run once (poll, on_lost: fail): {_named(graph, second)}"
        again = f"arkqueue retry {shlex.quote(here)} --from {name} --from-start"
        raise Conflict(here, fault, f"To do it nevertheless: {again}")


def _refuse_superseded(graph: Graph, rows: Sequence[Any]) -> None:
    """Raise ``Conflict`` if a task was superseded, unless the superseding task runs again with it."""
    members = {row.id for row in rows}
    for row in rows:
        if row.state == State.CANCELED and row.superseded_by is not None and row.superseded_by not in members:
            raise Conflict(task_name_of(graph, row.id), superseded(graph, row), f"use --force, {NEWEST}")


def _named(graph: Graph, tasks: Sequence[int]) -> str:
    names = ", ".join(task_name_of(graph, task) for task in tasks[:MOST_NAMED])
    return names + (" and more" if len(tasks) > MOST_NAMED else "")


def _wait_for_the_rest(graph: Graph, part: _Part, tasks: Collection[int]) -> None:
    """Let tasks wait for the tasks of the part that come back later. So no task of the part runs
    before the tasks to start from.
    """
    back = {*part.back}
    edges = [(source, target) for source, target in part.edges if source in back and target in tasks]
    sources, targets = [source for source, _ in edges], [target for _, target in edges]
    graph.do("unmeet_between", sources=sources, targets=targets)


def _again(graph: Graph, part: _Part, tasks: Sequence[int]) -> list[int]:
    """Take tasks of the part back to waiting; returns those that a workflow file names."""
    rows = graph.rows("lock_tasks", tasks=list(tasks))
    graph.rows("lock_ready_targets", sources=list(tasks))
    back = graph.ids("redo", tasks=list(tasks))
    targets = graph.ids("unmeet", sources=back)
    graph.do("untick_report", tasks=[row.id for row in rows if row.state in SETTLED])
    graph.do("uncancel_run", tasks=back)
    gates, starts = {*part.gates}, {*part.starts}
    held = [task for task in back if task not in gates]
    hold_again(graph, held, [task for task in held if task not in starts])
    # Tasks that a later transaction takes back are judged in that one.
    later = {*part.back} - {*back}
    judged = {*back, *targets, *graph.ids("settled_before", tasks=back)}
    graph.follow(entering=back, again=sorted(judged - later))
    return _ordinary(rows)


def _ordinary(rows: Sequence[Any]) -> list[int]:
    return [row.id for row in rows if row.kind == TaskKind.ORDINARY]
