"""What people do to tasks and runs: cancel, restart, retry, refresh, skip, note. One function per verb.

Each returns nothing and raises ``Conflict`` with the reason where the state forbids it, so that the answer to "why not?" is the answer itself. What is guarded
takes an ``approver`` (`guards`), who is asked for in the same transaction. The meaning of each
verb is fixed in docs/decisions/0001, points 5 to 8. Deleting is in ``deletion``.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import Conflict, NotFound
from arkqueue.model import COMMIT, SILENCE, ArchiveId, Key, RunId, TaskId, TaskKind, Trigger
from arkqueue.names import PURGED, item_name, run_name, task_name
from arkqueue.queue import scratch
from arkqueue.queue.done import MOST_TASKS, Done, Refused, portions
from arkqueue.queue.finish import presume_gone
from arkqueue.queue.graph import Graph, change
from arkqueue.queue.guards import Approver, hold_again, refuse_unapproved, unapproved
from arkqueue.queue.refusals import GO_BACK, MOST_NAMED, refuse_overwriting, refuse_stopped, refuse_superseded
from arkqueue.queue.reports import keep
from arkqueue.queue.steps import NOTE, last_first, set_aside
from arkqueue.states import MOVES, SETTLED, Event, State

REJECTED = "was rejected (exit code 65), which is final: its input is wrong, and no retry makes it right"
"""Why what was rejected is not retried."""

NEWEST = "or trigger the task at the newest revision"
"""What helps beside force where a task is superseded."""


def cancel(
    session: Session, task: TaskId, by: str, *, assume_gone: bool = False, approver: Approver | None = None
) -> None:
    """Cancel a task: at once, or by asking its running attempt to stop.

    ``assume_gone``: a person knows that the attempt is gone; refused while its task manager is heard of, which would prove it.
    """

    def work(graph: Graph, row: Any) -> None:
        refuse_unapproved(graph, [row.id], approver)
        refuse_implicit(row, "canceled")
        if row.state in SETTLED:
            raise Conflict(_name(graph, row), f"is {row.state} already")
        if row.state == State.RUNNING:
            ask_to_stop(graph, [row.id], "cancel", by)
            if assume_gone:
                if heard := graph.rows("heard_of", attempt=row.attempt_id, silence=SILENCE):
                    fault = f"its task manager on {heard[0].hostname} was heard of {heard[0].ago:.0f} s ago and proves its end itself"
                    raise Conflict(_name(graph, row), fault, "cancel it without --assume-gone")
                settled = presume_gone(graph, row.attempt_id, by)
                graph.follow(settled)
        else:
            graph.follow(graph.ids("cancel", tasks=[row.id], by=by))

    _on_task(session, task, "cancel", by, work, _options(assume_gone=assume_gone))


def cancel_run(session: Session, run: RunId, by: str, *, approver: Approver | None = None) -> Done:
    """Cancel what is not settled of a run; its COMMIT and REPORT go on.

    A large run takes several transactions (`steps`). What runs is asked to stop, and what could start is held, before anything is canceled; after a crash the rest stays held.
    """
    done = Done()
    archive = archive_of_run(session, run)
    found = [row.id for row in session.rows("cancelable", runs=[run])]
    if is_large := len(found) > MOST_TASKS:
        refuse_unapproved(session, found, approver)

    def act(graph: Graph, tasks: Sequence[int]) -> list[int]:
        locked = graph.rows("lock_tasks", tasks=list(tasks))
        running = [task.id for task in locked if task.state == State.RUNNING]
        ask_to_stop(graph, running, "cancel", by)
        canceled = graph.ids("cancel", tasks=list(tasks), by=by)
        graph.follow(canceled)
        graph.do("forget_set_aside", tasks=canceled)
        return [*canceled, *running]

    def begin(graph: Graph) -> int:
        row = place_of_run(graph, run)
        if row.deleted_at is not None:
            raise Conflict(run_name(row), "was deleted")
        tasks = graph.ids("cancelable", runs=[run])
        if not tasks:
            raise Conflict(run_name(row), "has nothing left to cancel")
        if not is_large:
            refuse_unapproved(graph, tasks, approver)
        graph.do("cancel_run", run=run, by=by)
        note = NOTE if is_large else ""
        (entry,) = graph.ids("remember", by=by, verb="cancel", archive=row.archive_id, run=run, task=None, note=note)
        done.tasks = [] if is_large else act(graph, tasks)
        return entry

    def go_on(graph: Graph, tasks: Sequence[int]) -> Done:
        guarded = [Refused(task, why) for task, why in unapproved(graph, tasks, approver)]
        return Done(act(graph, sorted({*tasks} - {refused.task for refused in guarded})), refused=guarded)

    entry = change(session, [archive], begin)
    if is_large:
        set_aside(session, archive, [run], entry, lambda graph, running: ask_to_stop(graph, running, "cancel", by))
        tasks = last_first(session, run, found)
        done.add(change(session, [archive], partial(go_on, tasks=tasks[:MOST_TASKS])))
        in_portions(session, archive, done, tasks[MOST_TASKS:], go_on)
    return done


def restart(session: Session, task: TaskId, by: str, *, approver: Approver | None = None) -> None:
    """Stop a running attempt and start another, without settling the task. A guarded command runs once for each approval."""

    def work(graph: Graph, row: Any) -> None:
        refuse_unapproved(graph, [row.id], approver)
        if row.state != State.RUNNING:
            refuse_implicit(row, "restarted")
            if row.state == State.REJECTED:
                raise Conflict(_name(graph, row), REJECTED, _after_rejection(graph, row))
            raise Conflict(
                _name(graph, row), f"is {row.state}: only a running task is restarted", "retry it where it has failed"
            )
        if row.stop == "cancel":
            raise Conflict(_name(graph, row), "is being canceled")
        refuse_stopped(graph, row.archive_id)
        ask_to_stop(graph, [row.id], "restart", by)

    _on_task(session, task, "restart", by, work)


def retry(
    session: Session,
    task: TaskId,
    by: str,
    *,
    force: bool = False,
    from_start: bool = False,
    approver: Approver | None = None,
) -> None:
    """Run a failed or canceled task again; what was skipped because of it is judged again (design 5.8, 5.11, 5.19). A deferred one is tried at once.

    A task whose command has ended with 75 and that has a poll is polled again, with a new deadline. ``from_start`` alone runs its command again (design 5.29).
    """

    def work(graph: Graph, row: Any) -> None:
        refuse_unapproved(graph, [row.id], approver)
        if row.kind != TaskKind.REPORT or row.state != State.DEFERRED:
            refuse_implicit(row, "retried")
        refuse_stopped(graph, row.archive_id)
        if from_start:
            graph.do("start_over", tasks=[row.id])
        if row.state == State.DEFERRED:
            graph.follow(entering=graph.ids("retry_now", task=row.id))
            return
        here = _name(graph, row)
        if row.state == State.REJECTED:
            raise Conflict(here, REJECTED, _after_rejection(graph, row))
        if row.state not in MOVES[Event.RETRY].sources:
            remedy = "restart it" if row.state == State.RUNNING else ""
            remedy = _again_from(graph, row) if row.state == State.COMPLETED else remedy
            raise Conflict(here, f"is {row.state}: a failed, canceled, waived or deferred task can be retried", remedy)
        if row.root_id is None and row.superseded_by is not None and not force:
            raise Conflict(here, superseded(graph, row), f"force it, {NEWEST}")
        if why := blocked(graph, row):
            raise why
        reopened, staying = judge_again(graph, [row.id])
        if not force:
            refuse_outdated(graph, row, [row.id, *reopened], f"arkqueue retry {here}")
        scratch.renew(graph, row.run_id, [row.id, *reopened], here, row.item, may_wait=True)
        graph.ids("retry", tasks=[row.id], counts=True)
        back = [row.id, *reopened]
        again = [*back, *staying, *reopen(graph, back, reopened), *unjudged(graph, back)]
        hold_again(graph, back, reopened)
        graph.follow(entering=back, again=again)

    _on_task(session, task, "retry", by, work, _options(force=force, from_start=from_start))


def refresh(session: Session, task: TaskId, by: str) -> None:
    """Poll a deferred task now (design 5.29). Its counters and its deadline stay as they are."""

    def work(graph: Graph, row: Any) -> None:
        if row.polls and row.state == State.READY:
            fault = "is to be polled already, and waits for its turn"
            raise Conflict(_name(graph, row), fault, f"arkqueue explain {_name(graph, row)}")
        if row.polls and row.state == State.RUNNING:
            raise Conflict(_name(graph, row), "is being polled already", f"arkqueue logs {_name(graph, row)} -f")
        if not row.polls or row.state != State.DEFERRED:
            remedy = "retry it to run it at once" if row.state == State.DEFERRED else ""
            fault = (
                f"is {row.state}{' and has no poll' if remedy else ''}: only what is deferred and has a poll is polled"
            )
            raise Conflict(_name(graph, row), fault, remedy)
        refuse_stopped(graph, row.archive_id)
        graph.follow(entering=graph.ids("poll_now", tasks=[row.id]))

    _on_task(session, task, "refresh", by, work)


def refresh_run(session: Session, run: RunId, by: str) -> Done:
    """Poll all deferred tasks of a run now."""
    done, left = Done(), list[int]()

    def begin(graph: Graph, row: Any) -> None:
        if row.deleted_at is not None:
            raise Conflict(run_name(row), "was deleted")
        left[:] = graph.ids("polled_of_run", run=run)
        if not left:
            raise Conflict(run_name(row), "has no deferred task with a poll")
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
            raise Conflict(f"archive {row.name}", "has no deferred task with a poll")
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


def skip(
    session: Session,
    task: TaskId,
    by: str,
    *,
    as_completed: bool = False,
    force: bool = False,
    approver: Approver | None = None,
) -> None:
    """Decide that a task will not run, or that what waits for a failed one may go on (design 5.9).

    ``as_completed``: in its own run too; refused where that would run what later revisions have superseded or gone on from, unless ``force`` (5.11, 5.19).
    """

    def work(graph: Graph, row: Any) -> None:
        refuse_unapproved(graph, [row.id], approver)
        refuse_implicit(row, "skipped")
        if row.state in MOVES[Event.SKIP].sources:
            skipped = graph.ids("skip", tasks=[row.id], by=by, as_completed=as_completed)
            if as_completed:
                stand_alone(graph, skipped)
            graph.follow(skipped)
        elif row.state in (State.FAILED, State.REJECTED):
            _waive(graph, [row], by, as_completed=as_completed, force=force)
        else:
            remedy = "cancel it first" if row.state == State.RUNNING else ""
            raise Conflict(
                _name(graph, row),
                f"is {row.state}: only a failed task, or one that has not started, can be skipped",
                remedy,
            )
        refuse_to_let_go_on(graph, row.archive_id)

    _on_task(session, task, "skip", by, work, _options(as_completed=as_completed, force=force))


def skip_until(
    session: Session, archive: int, branch: int, name: str, until: int, by: str, approver: Approver | None = None
) -> int:
    """Waive every failure of a task up to a revision; returns how many there were."""

    def work(graph: Graph) -> int:
        tasks = graph.ids("to_waive", branch=branch, name=name, until=until)
        refuse_unapproved(graph, tasks, approver)
        if tasks:
            _waive(graph, graph.rows("lock_tasks", tasks=tasks), by)
            refuse_to_let_go_on(graph, archive)
            note = f"{name} until {until}"
            graph.do("remember", by=by, verb="skip", archive=archive, run=None, task=None, note=note)
        return len(tasks)

    return change(session, [archive], work)


def prioritize(session: Session, task: TaskId, priority: int, by: str) -> None:
    """Set the priority of a task that has not started; no output of another task changes it any more (design 5.24)."""

    def work(graph: Graph, row: Any) -> None:
        refuse_implicit(row, "prioritized")
        graph.reordered = graph.ids("prioritize", tasks=[row.id], priority=priority)
        if not graph.reordered:
            raise Conflict(_name(graph, row), f"is {row.state}: a priority orders what has not started")

    _on_task(session, task, "prioritize", by, work, str(priority))


def prioritize_run(session: Session, run: RunId, priority: int, by: str) -> Done:
    """Set the priority of what has not started of a run."""
    done = Done()

    def act(graph: Graph, tasks: Sequence[int]) -> Done:
        graph.rows("lock_tasks", tasks=list(tasks))
        graph.reordered = graph.ids("prioritize", tasks=list(tasks), priority=priority)
        return Done(sorted(graph.reordered))

    def begin(graph: Graph, row: Any) -> None:
        if row.deleted_at is not None:
            raise Conflict(run_name(row), "was deleted")
        left[:] = graph.ids("not_started", runs=[run])
        done.tasks = act(graph, left[:MOST_TASKS]).tasks
        if not done.tasks:
            raise Conflict(run_name(row), "has nothing left that has not started")

    left: list[int] = []
    archive = on_run(session, run, "prioritize", by, begin, str(priority))
    in_portions(session, archive, done, left[MOST_TASKS:], act)
    return done


def in_portions(session: Session, archive: int, done: Done, tasks: Sequence[int], act: Callable[..., Done]) -> None:
    """Act on the further tasks of a large run, so many with each transaction, and add what was done. A rehearsal says how many it has not reached."""
    for n, portion in enumerate(portions(tasks)):
        if session.is_over:
            done.left = len(tasks) - n * MOST_TASKS
            return
        done.add(change(session, [archive], partial(act, tasks=portion)))


def note(session: Session, text: str, by: str, *, run: RunId, task: TaskId | None = None) -> None:
    """Keep what a person has to say of a run, or of a task of it. It changes nothing, so nothing is locked."""
    found = session.rows("place_of_run", run=run)
    if not found:
        raise NotFound(f"run {run}", "there is none")
    session.do("remember", by=by, verb="note", archive=found[0].archive_id, run=run, task=task, note=text)
    session.changed([found[0].archive_id])


def _waive(graph: Graph, rows: Sequence[Any], by: str, *, as_completed: bool = False, force: bool = False) -> None:
    tasks = [row.id for row in rows]
    keep(graph, tasks)
    graph.ids("waive", tasks=tasks, by=by, as_completed=as_completed)
    reopened: list[int] = []
    again = [*tasks, *graph.ids("skipped_because_of", roots=tasks)]
    if as_completed:
        (row,) = rows
        reopened, staying = judge_again(graph, [row.id])
        if reopened and not force:
            refuse_outdated(graph, row, reopened, f"arkqueue skip {_name(graph, row)} --as-completed")
        again = [*tasks, *reopened, *staying, *reopen(graph, reopened, reopened), *unjudged(graph, reopened)]
        hold_again(graph, reopened, reopened)
    graph.follow(entering=reopened, again=again)


def stand_alone(graph: Graph, tasks: Sequence[int]) -> list[int]:
    """Let what waits for all earlier tasks (`PREV:*`) wait for some items themselves, where it waits for them through the gate of their list, which waits for them no more (decision 0001, point 12).

    Returns the items for which something waits so; they are to be followed, or judged again where they had settled before.
    """
    return graph.ids("stand_alone", tasks=list(tasks)) if graph.uses_lists else []


def judge_again(graph: Graph, roots: Sequence[int]) -> tuple[list[int], list[int]]:
    """Which tasks skipped because of ``roots`` may come back, and which stay, as another root still skips them; they get that root."""
    return judge_candidates(graph, roots, graph.ids("skipped_because_of", roots=list(roots)))


def judge_candidates(graph: Graph, roots: Sequence[int], candidates: list[int]) -> tuple[list[int], list[int]]:
    """The same of some of them alone."""
    keep(graph, [*roots, *candidates])
    staying: list[int] = []
    while candidates and (found := graph.rows("staying_skipped", candidates=candidates, roots=list(roots))):
        graph.do("change_root", tasks=[row.id for row in found], roots=[row.root for row in found])
        staying += [row.id for row in found]
        candidates = [c for c in candidates if c not in staying]
    return candidates, staying


def reopen(graph: Graph, sources: Sequence[int], reopened: Sequence[int]) -> list[int]:
    """Take tasks back to waiting and unmeet what leads from ``sources`` inside their runs; returns the tasks that this leads to, and what is to be judged again for the gates that wait again."""
    graph.ids("reopen", tasks=list(reopened))
    if not sources:
        return []
    gates = graph.ids("redo", tasks=gates_again(graph, sources))
    sources = [*sources, *gates]
    graph.rows("lock_ready_targets", sources=sources)
    targets = graph.ids("unmeet", sources=sources)
    graph.do("untick_report", tasks=sources)
    graph.do("uncancel_run", tasks=sources)
    # A gate can have passed without an item that was deleted then, is back, and keeps it from passing now.
    return [*targets, *gates, *(graph.ids("settled_before", tasks=gates) if gates else [])]


def gates_again(graph: Graph, tasks: Sequence[int]) -> list[int]:
    """The gates of lists that wait again as items of theirs come back, with the gates that passed behind them: those behind which nothing has started (design 5.30)."""
    if not graph.uses_lists:
        return []
    found = graph.rows("gates_behind", tasks=list(tasks))
    if ready := [task for row in found for task in row.ready]:
        graph.rows("lock_tasks", tasks=ready)  # so that no claim starts one meanwhile
        found = graph.rows("gates_behind", tasks=list(tasks))
    unstarted = [row.gates for row in found if not graph.rows("started_after", sources=row.gates, most=1)]
    return sorted({gate for gates in unstarted for gate in gates})


def blocked(graph: Graph, row: Any) -> Conflict | None:
    """Why a task cannot come back: another bad task of its run skips it, or the product of one that is lost."""
    here = _name(graph, row)
    if row.root_id is not None:
        root, remedy = _root(graph, row.root_id, row)
        return Conflict(here, f"was skipped because of {root}", remedy)
    if needed := graph.rows("staying_skipped", candidates=[row.id], roots=[]):
        root, remedy = _root(graph, needed[0].root, row)
        needs = "runs only where something failed, and is skipped because of" if needed[0].is_unneeded else "needs"
        return Conflict(here, f"{needs} {root}", remedy)
    return None


def unjudged(graph: Graph, reopened: Sequence[int]) -> list[int]:
    """Settled tasks of other runs that were not judged for what now comes back (docs/decisions/0001, point 18)."""
    return graph.ids("unjudged", tasks=list(reopened)) if reopened else []


def refuse_to_let_go_on(graph: Graph, archive: int) -> None:
    """Raise ``Conflict`` where what was just done has made tasks of a stopped archive ready: a waiver is no reason to start them."""
    if graph.ready:
        refuse_stopped(graph, archive)


def ask_to_stop(graph: Graph, tasks: Sequence[int], stop: str, by: str) -> None:
    """Ask running tasks to stop: to ``cancel`` or ``restart`` them."""
    if tasks and graph.rows("ask_to_stop", tasks=list(tasks), stop=stop, by=by):
        graph.to_wake.add("stop")


def refuse_outdated(graph: Graph, row: Any, again: Sequence[int], command: str) -> None:
    """Refuse to bring tasks back to work, because of ``row``, that are gone, superseded, what later revisions built on, or done by later ones (design 5.11, 5.19).

    ``command``: what the person typed.
    """
    here = _name(graph, row)
    if graph.rows("place_of_task", task=row.id)[0].gone:
        raise Conflict(here, "belongs to a revision, branch or archive that is gone", "force it")
    runs: dict[tuple[int, int], dict[Key, int]] = defaultdict(dict)
    programs: list[tuple[str, str, int, int]] = []
    for task in graph.rows("lock_tasks", tasks=list(again)):
        runs[task.number, task.run][Key(task.name, task.item)] = task.attempts
        if task.program and task.kind == TaskKind.ORDINARY:
            programs.append((task.name, task.item, task.number, task.run))
    for (number, run), attempts in runs.items():
        refuse_superseded(graph, here, row.branch_id, number, run, attempts)
    if later := graph.rows("started_after", sources=list(again), most=MOST_NAMED + 1):
        names = ", ".join(map(task_name, later[:MOST_NAMED]))
        names += " and more" if len(later) > MOST_NAMED else ""
        raise Conflict(
            here, f"tasks of later revisions have started after it: {names}", "force it if they may be out of date"
        )
    refuse_overwriting(graph, here, row.branch_id, programs, GO_BACK.format(f"{command} --force"))


def _root(graph: Graph, task: int, skipped: Any) -> tuple[str, str]:
    """What is to be seen to first, with what became of it, and what helps. ``skipped``: the row of the task that it keeps from running."""
    (row,) = graph.rows("place_of_task", task=task)
    name = task_name(row)
    if row.state == State.COMPLETED:  # it did not fail (design 5.6)
        (place,) = graph.rows("place_of_task", task=skipped.id)
        branch = "" if place.main else f" --branch {shlex.quote(place.branch)}"
        without = "" if row.name == COMMIT else f" --without {row.name}"
        again = f"arkqueue trigger {place.archive}{branch} --revision {place.number} {place.name}{without}"
        return f"{name}, which is completed", f"run it all the same: {again}"
    if row.superseded_by is not None:
        return f"{name}, which {superseded(graph, row)}", f"arkqueue retry {name} --force, {NEWEST}"
    said = f"{name}, which is {row.state}"
    if row.state == State.REJECTED:
        return said, f"arkqueue skip {name} --as-completed"
    return said, f"arkqueue retry {name}" + (" --force, if it may be out of date" if _is_outdated(graph, task) else "")


def _is_outdated(graph: Graph, task: int) -> bool:
    """Whether a retry of a task would be refused unless it is forced."""
    try:
        refuse_outdated(graph, graph.rows("lock_tasks", tasks=[task])[0], [task], "")
    except Conflict:
        return True
    return False


def _after_rejection(graph: Graph, row: Any) -> str:
    """What helps where a task was rejected: another input, or a decision to go on without it, or to run it on the same input all the same."""
    (place,) = graph.rows("place_of_task", task=row.id)
    mended = (
        "mend what was submitted, and submit it under another id"
        if place.trigger == Trigger.SUBMISSION
        else "fix the input in a new commit"
    )
    skip = (
        ""
        if row.waived
        else f"; or let what waits for it go on: arkqueue skip {shlex.quote(task_name(place))} --as-completed"
    )
    return f"{mended}{skip}; or {_again_from(graph, row)}"


def _again_from(graph: Graph, row: Any) -> str:
    """How a task that has ended for good is run again all the same, with what is behind it."""
    (place,) = graph.rows("place_of_task", task=row.id)
    here = item_name(place, row.item) if row.item else run_name(place)
    return f"run it again all the same, with what is behind it: arkqueue retry {shlex.quote(here)} --from {row.name}"


def superseded(graph: Graph, row: Any) -> str:
    """By which task another one is superseded, as a person is told."""
    by = graph.rows("place_of_task", task=row.superseded_by)
    return f"is superseded by {task_name(by[0]) if by else PURGED}"


def refuse_implicit(row: Any, what: str) -> None:
    """Raise ``Conflict`` where a task is one that every run has."""
    if row.kind != TaskKind.ORDINARY:
        is_resent = row.kind == TaskKind.REPORT and what in ("retried", "restarted")
        remedy = "send a further report: arkqueue report RUN --update" if is_resent else ""
        raise Conflict(row.name, f"exists in every run and cannot be {what}", remedy)


def task_name_of(graph: Graph, task: int) -> str:
    """The name of a task in full."""
    return task_name(graph.rows("place_of_task", task=task)[0])


def _name(graph: Graph, row: Any) -> str:
    return task_name_of(graph, row.id)


def _options(**given: bool) -> str:
    """What a person asked for beside the verb, as it is typed, to be remembered with it."""
    return " ".join(f"--{name.replace('_', '-')}" for name, is_given in given.items() if is_given)


def _on_task(
    session: Session, task: int, verb: str, by: str, work: Callable[[Graph, Any], None], note: str = ""
) -> None:
    found = session.rows("place_of_task", task=task)
    if not found:
        raise NotFound(f"task {task}", "there is none")

    def on_graph(graph: Graph) -> None:
        row = locked_task(graph, task)
        work(graph, row)
        graph.do("remember", by=by, verb=verb, archive=row.archive_id, run=row.run_id, task=task, note=note)

    change(session, [found[0].archive_id], on_graph)


def locked_task(graph: Graph, task: int) -> Any:
    """The locked row of a task; raises where its run or item was deleted, or is purged since it was found."""
    if not (locked := graph.rows("lock_tasks", tasks=[task])):
        raise NotFound(f"task {task}", "its run was purged")
    (place,) = graph.rows("place_of_task", task=task)
    if place.run_deleted_at is not None:
        raise Conflict(_name(graph, locked[0]), "belongs to a run that was deleted")
    if place.deleted:
        here = shlex.quote(item_name(place, place.item))
        raise Conflict(_name(graph, locked[0]), "belongs to an item that was deleted", f"arkqueue undelete {here}")
    if graph.uses_lists:
        place_of_run(graph, locked[0].run_id)
    return locked[0]


def place_of_run(graph: Graph, run: int) -> Any:
    """Where a run is, inside the transaction that acts on it; raises where it is purged since it was found."""
    if not (found := graph.rows("place_of_run", run=run)):
        raise NotFound(f"run {run}", "was purged")
    refuse_while_planned(found[0])
    return found[0]


def refuse_while_planned(row: Any) -> None:
    """Raise ``Conflict`` where a run is not planned to its end: nothing of it has started, and not all of its tasks are there. The row is one of ``place_of_run``."""
    if row.planned is not None:
        fault = (
            f"is still being planned ({row.planned:,} of {row.planned_items:,} items), and nothing of it has started"
        )
        raise Conflict(run_name(row), fault, "Try again when it is planned.")


def archive_of_run(session: Session, run: int) -> int:
    """The archive of a run; raises ``NotFound`` where there is no such run."""
    found = session.rows("place_of_run", run=run)
    if not found:
        raise NotFound(f"run {run}", "there is none")
    return int(found[0].archive_id)


def on_run(session: Session, run: int, verb: str, by: str, work: Callable[[Graph, Any], None], note: str = "") -> int:
    """Act on a run in a transaction of its own, and remember it; returns the run's archive."""
    archive = archive_of_run(session, run)

    def on_graph(graph: Graph) -> None:
        row = place_of_run(graph, run)
        work(graph, row)
        graph.do("remember", by=by, verb=verb, archive=row.archive_id, run=run, task=None, note=note)

    change(session, [archive], on_graph)
    return archive
