"""Backfills: runs of a task for old revisions, with the definition from a newer revision (an
exception to design 5.2).

A backfill is stored first, with the first of its runs. The queue manager plans the others, some
with each transaction (`plan`), and continues after a crash. Its runs wait for one another, task by
task, in the order of their revisions: each task waits for the end of the one before, however it
ended. A task that needs success writes ``depends: PREV``.

A completion by a backfill does not count as newer work: it raises no highest place of
``completion`` (design 5.19). A backfill is accepted or refused as a whole, before anything is
stored, by its first revision: work that is later than any of its revisions is later than the first
one.

A list in a file is read at each revision of the backfill (design 5.30). The caller reads it,
outside the transaction; `wanted` says which files.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import ArkqueueError, Conflict, DatabaseUnavailable, Forbidden, Invalid, NotFound
from arkqueue.model import CANCELED_BY, ArchiveId, BranchId, Foreach, Item, RunId, Trigger
from arkqueue.names import backfill_command, backfill_name, name_of
from arkqueue.queue import control
from arkqueue.queue.changes import BRIEF, TOO_LONG, change, change_in_turn
from arkqueue.queue.done import LONGEST, MOST_TASKS, Done, Refused
from arkqueue.queue.graph import Graph
from arkqueue.queue.guards import Approver, refusals, unapproved
from arkqueue.queue.holds import (
    MOST_RUNS,
    How,
    in_portions,
    lock_held,
    refuse_held_already,
    refuse_on_hold,
    release_locked,
)
from arkqueue.queue.proposed import ProposedRun, as_proposed
from arkqueue.queue.steps import NOTE, set_aside
from arkqueue.queue.triggering import Part, propose, store, store_failed
from arkqueue.states import State
from arkqueue.workflow import from_json

log = logging.getLogger("arkqueue")

FileLists = Mapping[tuple[str, str | None], tuple[Item, ...]]
"""The items in files of a revision, by the path and the field that identifies an item."""

STEP = 20
"""The most runs that one transaction plans."""
FIRST_STEP = 5
"""The most runs that are planned before the request is answered. The queue manager plans the others."""
PAUSE_AFTER_ERROR = 10.0
"""Seconds until the queue manager tries again to plan a backfill after an error."""


NO_LIST = "No commit changes an old revision. Delete this run to leave its revision out; or commit another `foreach` or `key` for the task, and make the run again"
"""The remedy for a run of a backfill without its list."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Lists that have to be read at a revision (its id) for a run of a backfill. ``definitions``:
    the revision whose workflow files name the lists.
    """

    revision: int
    definitions: int
    files: tuple[tuple[str, str | None], ...]
    """Paths and key fields, as in `FileLists`."""


@dataclass(frozen=True, slots=True)
class Lists:
    """The lists that were read for `Wanted`. ``fault``: the error in the lists, for people; the revision gets a failed run."""

    wanted: Wanted
    found: FileLists
    fault: str = ""


ReadLists = Callable[[Session, ArchiveId, Sequence[Wanted]], Sequence[Lists] | str]
"""Reads the lists of an archive at the first revision and at some further ones. If the lists cannot
be read now, the result is the reason as a text.
"""


def wanted_first(session: Session, branch: BranchId, first: int, names: Collection[str]) -> Wanted | None:
    """The lists that `begin` takes for the first revision of a backfill; None if it needs none, or
    will refuse the backfill.
    """
    for head in session.rows("head_revision", branch=branch):
        found = session.rows("revisions_to_fill", branch=branch, first=first, last=head.number, most=1)
        files = _files(session.rows("revision_at", revision=head.id)[0].tasks, names)
        return Wanted(found[0].id, head.id, files) if found and files else None
    return None


def wanted(session: Session, backfill: int, most: int) -> list[Wanted]:
    """The lists that `plan` takes for the next ``most`` revisions of a backfill."""
    for fill in session.rows("backfill", backfill=backfill):
        files = _files(session.rows("revision_at", revision=fill.revision_id)[0].tasks, fill.tasks)
        if fill.next is None or not files:
            break
        place = {"branch": fill.branch_id, "first": fill.next, "last": fill.last}
        return [
            Wanted(row.id, fill.revision_id, files) for row in session.rows("revisions_to_fill", most=most, **place)
        ]
    return []


def _files(tasks: Sequence[Any], names: Collection[str]) -> tuple[tuple[str, str | None], ...]:
    """The list files of some tasks, as in `FileLists`."""
    lists = (from_json(task).foreach for task in tasks if task["name"] in names)
    return tuple(dict.fromkeys((one.file, one.key) for one in lists if one is not None and one.file is not None))


def begin(
    session: Session,
    archive: ArchiveId,
    branch: BranchId,
    first: int,
    last: int | None,
    *,
    names: Sequence[str],
    without: Collection[str] = (),
    by: str = "",
    force: bool = False,
    approver: Approver | None = None,
    lists: Lists | None = None,
    first_run: list[ProposedRun] | None = None,
) -> int | None:
    """Make a backfill of named tasks over the revisions from ``first`` to ``last`` (numbers), with
    the head's definitions. Returns its id.

    ``last`` None: up to the revision before the head, which has run its own definitions. ``lists``:
    the lists of `wanted_first`; None is returned if other lists are needed by now. ``first_run``:
    for a preview, receives the run of the first revision. Raises the errors of `triggering.trigger`
    for the first revision.
    """

    def work(graph: Graph) -> int | None:
        (head,) = graph.rows("head", branch=branch)
        if head.head_id is None:
            raise Conflict("the branch", "has no revision yet", "commit one first")
        files = graph.rows("revision_at", revision=head.head_id)[0]
        there = str(name_of(files.archive, files.number, branch=files.branch, main=files.main))
        if files.is_foreign:
            fault = "its workflow files are not accepted, so a backfill cannot run them"
            raise Conflict(
                there, fault, f"check the files, and accept them by releasing the run: arkqueue release {there}"
            )
        found = _revisions(graph, branch, there, head.number, first, last)
        if files_named := _files(files.tasks, names):
            (row,) = graph.rows("revisions_to_fill", branch=branch, first=found.first, last=found.last, most=1)
            if lists is None or lists.wanted != Wanted(row.id, head.head_id, files_named):
                return None
        entry = {"archive": archive, "branch": branch, "revision": head.head_id, "first": found.first, "by": by}
        given = {"tasks": list(dict.fromkeys(names)), "without": sorted(without)}
        (new,) = graph.rows("add_backfill", last=found.last, **entry, **given)
        fill = graph.rows("backfill", backfill=new.id)[0]
        run, *_ = _step(graph, fill, [lists] if lists else [], _Asked(force, approver, first_run))
        note = (
            f"{backfill_name(fill.archive, fill.number)}: {backfill_command(fill, fill.first, fill.last, force=force)}"
        )
        graph.do("remember", by=by, verb="trigger", archive=archive, run=run, task=None, note=note)
        return int(new.id)

    return change(session, [archive], work)


def plan(session: Session, read: ReadLists, patience: float = BRIEF) -> float | None:
    """Plan the next runs of each unfinished backfill. Returns the seconds until there is more to
    do; None if there is nothing.

    A backfill that fails, or whose archive is busy, does not hold up the others.
    """
    pause: float | None = None
    for row in session.rows("backfills_to_plan"):
        try:
            asked = wanted(session, row.id, STEP)
            lists = read(session, row.archive_id, asked) if asked else []
            if isinstance(lists, str):
                if lists != row.waits:
                    session.do("let_backfill_wait", backfill=row.id, waits=lists)
                pause = PAUSE_AFTER_ERROR if pause is None else pause
                continue
            work = partial(_go_on, backfill=row.id, lists=lists)
            change_in_turn(session, work, archives=[row.archive_id], patience=patience)
        except DatabaseUnavailable as error:
            if not isinstance(error, TOO_LONG):
                raise
            log.warning("backfill %s: planning continues later: %s", row.id, error)
        except Exception:
            log.exception("backfill %s: planning failed, and is repeated later", row.id)
            pause = PAUSE_AFTER_ERROR if pause is None else pause
            continue
        pause = 0.0
    return pause


def _go_on(graph: Graph, backfill: int, lists: Sequence[Lists]) -> None:
    fill = graph.rows("backfill", backfill=backfill)[0]
    if fill.next is None:
        return
    if fill.is_gone:
        graph.do("go_on_filling", backfill=backfill, next=None, fault="its branch or archive is gone")
    elif not graph.rows("why_stopped", archive=fill.archive_id):
        _step(graph, fill, lists)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The options of a person's request, while the first run is planned."""

    force: bool
    approver: Approver | None
    first_run: list[ProposedRun] | None
    """Receives the first run, for a preview; None without a preview."""


def _step(graph: Graph, fill: Any, lists: Sequence[Lists], asked: _Asked | None = None) -> list[int]:
    """Plan the next runs of a backfill whose lists were read. Returns the runs. ``asked``: given
    in the first step, whose first run may be refused.
    """
    place = {"branch": fill.branch_id, "first": fill.next, "last": fill.last}
    most = FIRST_STEP if asked else STEP
    found = graph.rows("revisions_to_fill", most=most + 1, **place)
    files = _files(graph.rows("revision_at", revision=fill.revision_id)[0].tasks, fill.tasks)
    read = {one.wanted.revision: one for one in lists}
    runs: list[int] = []
    for row in found[:most]:
        if files and row.id not in read:
            break
        runs.append(_plan_run(graph, fill, row.id, read.get(row.id), None if runs else asked))
        if graph.uses_lists and any(
            not row.is_stored for row in graph.rows("planning_of_branch", branch=fill.branch_id)
        ):
            break  # the runs are planned in order
    if fill.priority is not None:
        _prioritize(graph, graph.ids("not_started", runs=runs), fill.priority)
    following = found[len(runs)].number if len(found) > len(runs) else None
    graph.do("go_on_filling", backfill=fill.id, next=following, fault=None)
    if following is not None:
        graph.to_wake.add("backfill")
    return runs


def _plan_run(graph: Graph, fill: Any, revision: int, lists: Lists | None, asked: _Asked | None) -> int:
    """Store the next run of a backfill. A refusal after the first run becomes a failed run with the reason."""
    part = Part(fill.id, fill.revision_id, asked is not None, backfill_command(fill, fill.first, fill.last, force=True))
    given: dict[str, Any] = {"names": fill.tasks, "without": fill.without, "part": part}
    if lists is not None:
        if lists.fault and asked is None:
            reason = f"{lists.fault}. {NO_LIST}"
            return store_failed(graph, revision, Trigger.MANUAL, reason, fill.by, fill.id)
        if lists.fault:
            (row,) = graph.rows("revision_at", revision=revision)
            here = str(name_of(row.archive, row.number, branch=row.branch, main=row.main))
            raise Conflict(here, lists.fault, "give a later revision with --from")
        given["lists"] = {
            Foreach("", key, path).at_each_revision().items: items for (path, key), items in lists.found.items()
        }
    if asked is not None:
        given |= {"force": asked.force, "approver": asked.approver}
        if asked.first_run is not None:
            asked.first_run[:] = [as_proposed(graph, propose(graph, revision, Trigger.MANUAL, **given))]
        proposal = propose(graph, revision, Trigger.MANUAL, **given)
        return store(graph, proposal, fill.by, fill.hold_id)
    try:
        proposal = propose(graph, revision, Trigger.MANUAL, **given)
    except DatabaseUnavailable:
        raise
    except ArkqueueError as error:
        reason = f"{error.fault}. {error.remedy}".rstrip(". ")
        return store_failed(graph, revision, Trigger.MANUAL, reason, fill.by, fill.id)
    return store(graph, proposal, fill.by, fill.hold_id)


# The verbs on a whole backfill. Each step takes a limited number of its runs, and judges each again
# under the lock. The verbs also apply to runs that are planned meanwhile or later.


def hold(session: Session, backfill: int, by: str, reason: str = "") -> Done:
    """Hold the unstarted tasks of a backfill, and its runs that are planned from now on, until a
    person releases them.
    """
    fill = _found(session, backfill)
    if fill.next is None and not session.rows("runs_to_hold_of_backfill", backfill=backfill):
        runs = [row.id for row in session.rows("runs_held_of_backfill", backfill=backfill)]
        refuse_held_already(session, _name(fill), [row.id for row in session.rows("held_of_runs", runs=runs)])
        raise Conflict(_name(fill), "has no unstarted task")

    def begin(graph: Graph) -> int:
        (entry,) = _remember(graph, fill, by, "hold", reason)
        graph.do("hold_backfill", backfill=backfill, hold=entry)
        return entry

    entry = change(session, [fill.archive_id], begin)

    def work(graph: Graph, tasks: Sequence[int]) -> Done:
        graph.rows("lock_tasks", tasks=list(tasks))
        return Done(sorted(graph.hold(tasks, entry)))

    runs = session.rows("runs_to_hold_of_backfill", backfill=backfill)
    return in_portions(session, fill.archive_id, runs, "to_hold", work)


def release(session: Session, backfill: int, by: str, reason: str = "", how: How = How()) -> Done:  # noqa: B008  frozen
    """Release the held tasks of a backfill, the oldest runs first. Runs that are planned from now on are not held because of the backfill."""
    fill = _found(session, backfill)
    held = session.rows("runs_held_of_backfill", backfill=backfill)

    def begin(graph: Graph) -> None:
        refuse_on_hold(graph, fill.archive_id)
        graph.do("hold_backfill", backfill=backfill, hold=None)

    change(session, [fill.archive_id], begin)

    def work(graph: Graph, tasks: Sequence[int]) -> Done:
        refuse_on_hold(graph, fill.archive_id)
        tasks = lock_held(graph, tasks)
        entry = lambda: _remember(graph, fill, by, "release", reason)[0]  # noqa: E731
        return release_locked(graph, tasks, entry, by, how, _name(fill), accepts=False)

    done = in_portions(session, fill.archive_id, held, "held_of_runs", work)
    if not (done.tasks or done.skipped or done.refused or done.left or fill.hold_id is not None):
        raise Conflict(_name(fill), "has no held task")
    return done.unless_refused()


def cancel(session: Session, backfill: int, by: str, approver: Approver | None = None) -> Done:
    """Plan no further runs of a backfill, and cancel its unsettled tasks.

    A large backfill takes several transactions (`steps`). Before anything is canceled, running
    tasks are asked to stop, and tasks that could start are held. After a crash, the other tasks
    stay held.
    """
    fill = _found(session, backfill)
    until = min(session.until, time.monotonic() + LONGEST)
    open_runs: list[Any] = []

    def begin(graph: Graph) -> int:
        # Runs that were planned since the command began are canceled, too.
        open_runs[:] = graph.rows("open_runs_of_backfill", backfill=backfill)
        if _planned_on(graph, backfill):
            graph.do("go_on_filling", backfill=backfill, next=None, fault=f"{CANCELED_BY}{by}")
        elif not open_runs:
            raise Conflict(_name(fill), "has nothing left to cancel")
        return _remember(graph, fill, by, "cancel", NOTE if _is_large(open_runs) else "")[0]

    def work(graph: Graph, tasks: Sequence[int]) -> Done:
        guarded = refusals(graph, tasks, approver)
        locked = graph.rows("lock_tasks", tasks=list(tasks))
        kept = {refused.task for refused in guarded}
        running = [task.id for task in locked if task.state == State.RUNNING and task.id not in kept]
        control.ask_to_stop(graph, running, "cancel", by)
        canceled = graph.ids("cancel", tasks=sorted({*tasks} - kept), by=by)
        graph.do(
            "cancel_runs",
            runs=sorted({task.run_id for task in locked} - {task.run_id for task in locked if task.id in kept}),
            by=by,
        )
        graph.follow(canceled)
        graph.do("forget_set_aside", tasks=canceled)
        return Done([*canceled, *running], refused=control.unsettled(graph, guarded))

    entry = change(session, [fill.archive_id], begin)
    if _is_large(open_runs) and not session.is_rehearsal:
        if not set_aside(
            session,
            fill.archive_id,
            [run.id for run in open_runs],
            entry,
            lambda graph, running: control.ask_to_stop(graph, running, "cancel", by),
            lambda graph, tasks: [task for task, _ in unapproved(graph, tasks, approver)],
            until,
        ):
            return Done(left=sum(run.tasks for run in open_runs))
        open_runs.reverse()
    done = Done()
    for is_of_many, runs in groupby(open_runs, key=lambda run: run.tasks > MOST_TASKS):
        if is_of_many:
            for run in runs:
                done.add(_cancel_large(session, RunId(run.id), by, approver))
        else:
            done.add(in_portions(session, fill.archive_id, list(runs), "cancelable", work, until))
    return done.unless_refused()


def _is_large(runs: Sequence[Any]) -> bool:
    """True if the open runs of a backfill have too many unsettled tasks for one transaction."""
    return len(runs) > MOST_RUNS or sum(run.tasks for run in runs) > MOST_TASKS


def _cancel_large(session: Session, run: RunId, by: str, approver: Approver | None) -> Done:
    """Cancel a large run of a backfill in its own steps, so that none of its tasks starts meanwhile."""
    try:
        return control.cancel_run(session, run, by, approver=approver)
    except (Conflict, Forbidden) as why:
        return Done(refused=[Refused(row.id, why) for row in session.rows("cancelable", runs=[run])[:1]])


def prioritize(session: Session, backfill: int, priority: int, by: str) -> Done:
    """Set the priority of the unstarted tasks of a backfill, and of its runs that are planned from
    now on.
    """
    fill = _found(session, backfill)
    waiting = ("runs_to_hold_of_backfill", "runs_held_of_backfill")
    if fill.next is None and not any(session.rows(block, backfill=backfill) for block in waiting):
        raise Conflict(_name(fill), "has no unstarted task")

    def begin(graph: Graph) -> None:
        graph.do("prioritize_backfill", backfill=backfill, priority=priority)
        _remember(graph, fill, by, "prioritize", str(priority))

    change(session, [fill.archive_id], begin)
    found = session.rows("open_runs_of_backfill", backfill=backfill)
    return in_portions(
        session, fill.archive_id, found, "not_started", lambda graph, tasks: Done(_prioritize(graph, tasks, priority))
    )


def _prioritize(graph: Graph, tasks: Sequence[int], priority: int) -> list[int]:
    graph.rows("lock_tasks", tasks=list(tasks))
    graph.reordered = graph.ids("prioritize", tasks=list(tasks), priority=priority)
    return sorted(graph.reordered)


def _planned_on(graph: Graph, backfill: int) -> bool:
    """True if further runs of a backfill have to be planned. Called under the lock of its archive."""
    return graph.rows("backfill", backfill=backfill)[0].next is not None


def _remember(graph: Graph, fill: Any, by: str, verb: str, note: str) -> list[int]:
    said = f"{_name(fill)}: {note}" if note else _name(fill)
    return graph.ids("remember", by=by, verb=verb, archive=fill.archive_id, run=None, task=None, note=said)


def _found(session: Session, backfill: int) -> Any:
    if not (found := session.rows("backfill", backfill=backfill)):
        raise NotFound(f"backfill {backfill}", "does not exist")
    return found[0]


def _name(fill: Any) -> str:
    return backfill_name(fill.archive, fill.number)


def _revisions(graph: Graph, branch: int, there: str, head: int, first: int, last: int | None) -> Any:
    """The first and the last revision of a backfill."""
    if first > head:
        upto = "on" if last is None else f"to {last}"
        raise Conflict(
            there, f"is the head, and its branch has no revision from {first} {upto}", "give an earlier one with --from"
        )
    if last is not None and last > head:
        raise Conflict(there, f"is the newest revision: there is no revision {last} yet", f"give --to {head} at most, or leave it out")  # fmt: skip
    if last is None:
        last = graph.rows("revision_before", branch=branch, number=head)[0].number
        if last is None or first > last:
            fault = "is the head of its branch, which has run its own definitions"
            raise Conflict(there, fault, f"to run it again: --to {head}")
    if first > last:
        raise Invalid(
            "a backfill",
            f"would begin at revision {first}, which comes after its last one, {last}",
            f"to swap them: --from {last} --to {first}",
        )
    (found,) = graph.rows("revisions_of_branch", branch=branch, first=first, last=last)
    if found.first is None:
        raise Conflict(there, f"its branch has no revision from {first} to {last}")
    if first == 0 < found.first:
        raise Conflict(there, f"is the newest revision, and the oldest one is {found.first}: there is no revision 0", f"give --from {found.first}")  # fmt: skip
    return found
