"""Why is this not running? The exact edge, root, lease, victim or limit, and the command that helps
(design 8, rule 9).

A task is explained by `explain_task`; a run, an item, a list or a backfill by `explain_run`. A task
that is not in a ledger yet, or was left out of a run, is explained from its name by
`explain_absent`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from arkqueue.db.session import Session
from arkqueue.errors import NotFound
from arkqueue.model import ArchiveId, TaskId
from arkqueue.names import EVERY_TASK, as_backfill, is_list, parse_name
from arkqueue.views.explain_absent import left_out, not_in_ledger
from arkqueue.views.explain_run import explain_backfill, explain_item, explain_list, explain_run
from arkqueue.views.explain_task import ExplainedTask
from arkqueue.views.explanation import Explanation, stop_first
from arkqueue.views.find import check_list, find_archive, find_item, find_revision, find_run, find_task, resolved
from arkqueue.views.outdated import rows_by_id


def explain(
    session: Session, task: TaskId, *, brief: bool = False, seen: Sequence[ArchiveId] | None = ()
) -> Explanation:
    """Explain a task's state. ``brief``: for a visitor who has not signed in: without the hosts
    that could run it, and their faults (decision 28). This visitor may use no command, so the answer
    names none. ``seen``: the archives whose tasks may be named as holders of a lock, beside those of
    the task's own archive; None: all.
    """
    # One snapshot: a dependency may complete while its edges are read.
    with session.snapshot() as moment:
        return _told(_explain(moment, task, seen, brief=brief), brief=brief)


def explain_first(
    session: Session,
    tasks: Sequence[TaskId],
    is_meant: Callable[[TaskId, Explanation], bool],
    *,
    brief: bool = False,
    seen: Sequence[ArchiveId] | None = (),
) -> tuple[TaskId, Explanation] | None:
    """The first of some tasks whose explanation ``is_meant``, with its explanation; if there is none,
    the first task; None: no task exists any more. A task that waits for the same obstacles as one
    before it is left out, because its explanation names the same remedies. ``brief``, ``seen``: as in
    `explain`.
    """
    first, known = None, set()
    with session.snapshot() as moment:
        rows = rows_by_id(moment, tasks)
        for task in (task for task in tasks if task in rows):
            one = ExplainedTask(moment, rows[task], seen, brief=brief)
            if one.obstacles in known:
                continue
            known.add(one.obstacles)
            found = _told(one.explanation(), brief=brief)
            if is_meant(task, found):
                return task, found
            first = first or (task, found)
    return first


def _explain(session: Session, task: TaskId, seen: Sequence[ArchiveId] | None, *, brief: bool = False) -> Explanation:
    rows = rows_by_id(session, [task])
    if task not in rows:
        raise NotFound(f"task {task}", "does not exist")
    return ExplainedTask(session, rows[task], seen, brief=brief).explanation()


def _told(found: Explanation, *, brief: bool) -> Explanation:
    """An explanation as its reader gets it: without commands, if it is ``brief``."""
    found = stop_first(found)
    if not brief:
        return found
    return replace(found, commands=[], reasons=[replace(reason, commands=[]) for reason in found.reasons])


def explain_name(session: Session, text: str, seen: Sequence[ArchiveId] | None = ()) -> Explanation:
    """Explain the state of a thing by its name: a task, a run, or something that does not exist
    yet. ``seen``: as in `explain`.
    """
    with session.snapshot() as moment:
        return stop_first(_explain_name(moment, text, seen))


def _explain_name(session: Session, text: str, seen: Sequence[ArchiveId] | None) -> Explanation:
    if named := as_backfill(text):
        return explain_backfill(session, *named, seen)
    name = resolved(session, parse_name(text))
    archive = find_archive(session, name.archive)
    try:
        place = find_revision(session, archive, name)
    except NotFound:
        if early := not_in_ledger(session, archive, name):
            return replace(early, full_name=text) if is_list(text) else early
        raise
    if name.task is None:
        return explain_run(session, find_run(session, name), name, seen)
    if name.task == EVERY_TASK and name.item:
        return explain_item(session, find_item(session, name), name, seen)
    if name.task is not None and is_list(text):
        run = find_run(session, replace(name, task=None, item=""))
        check_list(session, run, name.task)
        return explain_list(session, run, name.task, seen)
    try:
        return _explain(session, find_task(session, name), seen)
    except NotFound:
        return left_out(session, place, name)
