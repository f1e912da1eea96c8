"""Why a run, an item, a list or a backfill does not go on: the reasons of its unsettled and its
failed tasks, each once.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, RunId
from arkqueue.names import Name, list_name, parse_name, run_name
from arkqueue.states import UNSETTLED, State
from arkqueue.views.backfills import backfill, find_backfill
from arkqueue.views.explain_task import ExplainedTask
from arkqueue.views.explanation import (
    MOST_REASONS,
    MOST_TASKS,
    Explanation,
    being_planned,
    ended,
    explanation_of,
    held_together,
    of_whole_list,
    whole_list,
    without_or_again,
)
from arkqueue.views.find import find_archive
from arkqueue.views.naming import task_name
from arkqueue.views.outdated import rows_by_id
from arkqueue.views.reasons import Held, Reason, Why, faults, fires_left_out, kept_scratch


def explain_run(session: Session, run: RunId, name: Name, seen: Sequence[ArchiveId] | None) -> Explanation:
    """Explain why a run does not go on: its faults, or the obstacles of its unsettled tasks, and its
    failed tasks.
    """
    (row,) = session.rows("show_runs", runs=[run])
    if row.deleted_at is not None:
        return _deleted(name)
    if row.faults:
        reason = faults(row.faults, str(name), without_or_again(session, row))
        return explanation_of(str(name), None, [reason, *fires_left_out(session, row, run, is_open=False)])
    if row.planned is not None:
        return explanation_of(str(name), None, [being_planned(row)])
    beside = [r.id for r in session.rows("unsettled_beside", run=run, most=MOST_TASKS + 1)]
    unsettled, more = _first(beside, "unsettled tasks")
    # Before all other tasks are settled, a REPORT that is not held waits for them.
    is_report_told = row.report_state in ((State.HELD,) if unsettled else UNSETTLED)
    report = [row.report_id] if is_report_told else []
    failed = [r.id for r in session.rows("failed_of_run", run=run, most=MOST_TASKS + 1)]
    bad, more_bad = _first(failed, "failed tasks")
    more = " ".join(filter(None, (more, more_bad)))
    if not unsettled:
        text = (
            "Its task is settled."
            if row.tasks == 1
            else f"All of its {row.tasks} tasks are settled."
            if row.tasks
            else f"It has no tasks, and {'waits for its REPORT' if report else 'has ended'}."
        )
        of_failed = _reasons_of(session, bad, seen, more)
        said = any(reason.kind is Why.KEPT_SCRATCH for reason in of_failed)
        kept = [] if said else kept_scratch(session, run, None, str(name))
        of_report = _reasons_of(session, report, seen)
        return explanation_of(str(name), None, [Reason(kind=Why.COMPLETED, text=text), *of_report, *of_failed, *kept])
    return explanation_of(str(name), None, _reasons_of(session, [*unsettled, *report, *bad], seen, more))


def explain_item(session: Session, run: RunId, name: Name, seen: Sequence[ArchiveId] | None) -> Explanation:
    """Explain why an item does not go on: the obstacles of its unsettled tasks, and its failed
    tasks.
    """
    tasks = session.rows("list_tasks", runs=[run], item=name.item, tasks=None)
    if not tasks:
        return _deleted(name)
    telling = [row.id for row in tasks if row.state in (*UNSETTLED, State.FAILED, State.REJECTED)]
    if not telling:
        text = f"All of its {len(tasks)} tasks are settled." if len(tasks) > 1 else "Its task is settled."
        kept = kept_scratch(session, run, name.item, str(name).partition("/")[0])
        return explanation_of(str(name), None, [Reason(kind=Why.COMPLETED, text=text), *kept])
    run_of, key = str(name).partition("/")[0], str(name).rpartition("/")[2]
    reasons = _reasons_of(session, telling, seen, of_item=True)
    return explanation_of(str(name), None, [_released_with(str(name), run_of, key, reason) for reason in reasons])


def explain_list(session: Session, run: RunId, task: str, seen: Sequence[ArchiveId] | None) -> Explanation:
    """The reason why the items of a list do not continue: the things that the unsettled items wait
    for, and the failed items.
    """
    (row,) = session.rows("show_runs", runs=[run])
    name = list_name(run_name(row), task)
    if row.planned is not None:
        return explanation_of(name, None, [being_planned(row)])
    found = [item.id for item in session.rows("telling_of_list", run=run, name=task, most=MOST_TASKS + 1)]
    telling, more = _first(found, "items")
    if not telling:
        return explanation_of(name, None, [Reason(kind=Why.COMPLETED, text="All of its items are settled.")])
    return explanation_of(name, None, _reasons_of(session, telling, seen, more))


def explain_backfill(session: Session, archive: str, number: int, seen: Sequence[ArchiveId] | None) -> Explanation:
    """Explain the runs of a backfill that have failed, and the first run that goes on, or waits."""
    found = backfill(session, find_backfill(session, find_archive(session, archive), archive, number))
    told = [*found.failed, *found.open[:1]]
    if not told:
        text = "All of its runs have ended." if found.is_planned else "It has no run yet that could be explained."
        return explanation_of(found.full_name, None, [Reason(kind=Why.COMPLETED, text=text)])
    parts = [explain_run(session, RunId(run.id), parse_name(run.full_name), seen) for run in told]
    reasons = [
        _released_with(found.full_name, run.full_name, None, reason)
        if reason.text.startswith(f"{run.full_name}/")
        else replace(reason, text=f"{run.full_name}: {reason.text}")
        for run, part in zip(told, parts, strict=True)
        for reason in part.reasons
    ]
    return explanation_of(found.full_name, None, reasons, [wait for part in parts for wait in part.waits_for])


def _released_with(whole: str, run: str, item: str | None, reason: Reason) -> Reason:
    """The reason of a held task, with the release of a backfill or an item that is explained, instead
    of the release of the task's run. ``whole``: the name of the backfill or item; ``item``: the key
    of the item, as in names.
    """
    if not isinstance(reason, Held) or not reason.release:
        return reason
    (name,) = reason.tasks
    own_run, _, task = name.partition("/")
    if own_run != run or (item is not None and task.partition("/")[2] != item):
        return reason
    release, of_run = f"arkqueue release {shlex.quote(whole)}", f"arkqueue release {run}"
    commands = [one for one in reason.commands if one.partition(" --")[0] != of_run]
    if not any(command.startswith(release) for command in commands):
        commands.insert(commands.index(reason.release), release + reason.options)
    return replace(reason, commands=commands)


def _deleted(name: Name) -> Explanation:
    undelete = f"arkqueue undelete {shlex.quote(str(name))}"
    return explanation_of(str(name), None, [Reason(kind=Why.CANCELED, text="It was deleted.", commands=[undelete])])


def _reasons_of(
    session: Session, tasks: Sequence[int], seen: Sequence[ArchiveId] | None, more: str = "", *, of_item: bool = False
) -> list[Reason]:
    """The reasons of several tasks of a run, each once, with the names of its tasks. The failed items
    of a list have one reason, and so have those that one hold holds, except where all of the tasks
    are ``of_item``. ``more``: a sentence on further tasks; empty if there are none.
    """
    reasons: dict[tuple[str, ...], Reason] = {}
    rows = list(rows_by_id(session, tasks).values())
    lists: set[tuple[str, State, int | None]] = set()
    for task in rows:
        is_held = task.state == State.HELD and not task.unmet
        is_alike = task.item and not of_item and (is_held or task.state in (State.FAILED, State.REJECTED))
        alike = task.name, task.state, task.hold_id if is_held else None
        if is_alike and alike in lists:
            continue
        found = ExplainedTask(session, task, seen).explanation().reasons
        if is_alike:
            lists.add(alike)
            found = [(_of_held_items if is_held else _of_failed_items)(session, task, found[0]), *found[1:]]
        for reason in found:
            is_common = reason.kind is Why.NO_QUEUE_MANAGER or reason.text.startswith(f"{task.archive} is ")
            whose = "" if is_common else f"{task_name(task)}: "
            # Two tasks may have failed in the same second, and need a command each.
            reasons.setdefault((reason.text, *reason.commands), replace(reason, text=whose + reason.text))
    told = held_together(list(reasons.values()), rows[0]) if rows else []
    if len(told) > MOST_REASONS:
        more = f"These are the first {MOST_REASONS} reasons; there are more. {more}".rstrip()
    if more:
        list_of_tasks = f"arkqueue show {run_name(rows[0])}"
        told = [*told[:MOST_REASONS], Reason(kind=Why.MORE, text=more, commands=[list_of_tasks])]
    return told


def _first(tasks: Sequence[int], what: str) -> tuple[Sequence[int], str]:
    """The tasks that are explained, and a sentence if they are not all of them."""
    if len(tasks) <= MOST_TASKS:
        return tasks, ""
    return tasks[:MOST_TASKS], f"Only the first {MOST_TASKS} {what} are explained."


def _of_held_items(session: Session, row: Any, reason: Reason) -> Reason:
    """The reason of a held item, for all items of its list that the same hold holds."""
    (count,) = session.rows("held_of_list", run=row.run_id, name=row.name, hold=row.hold_id)
    if not isinstance(reason, Held) or count.n < 2:
        return reason
    of_list = f"arkqueue release {whole_list(row)}{reason.options}"
    return replace(
        reason,
        text=f"{reason.text} It holds {count.n:,} items of {row.name}; this is the first.",
        commands=[of_list if command == reason.release else command for command in reason.commands],
    )


def _of_failed_items(session: Session, row: Any, reason: Reason) -> Reason:
    """The reason of a failed or rejected item, for all items of its list in that state."""
    (count,) = session.rows("failures_of_list", run=row.run_id, name=row.name, state=row.state)
    if count.n < 2:
        return reason
    text = f"{reason.text} {count.n:,} items of {row.name} {ended(State(row.state), count.n)}; this is the first."
    own = f"arkqueue logs {task_name(row)}"
    helps = [command if command == own else of_whole_list(row, command) for command in reason.commands]
    listed = f"arkqueue show {run_name(row)} --items --state {row.state}"
    return replace(reason, text=text, commands=list(dict.fromkeys([*helps[:1], listed, *helps[1:]])))
