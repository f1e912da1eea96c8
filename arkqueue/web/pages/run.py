"""The pages of a run and of an item. The page of a run has its graph, a table of its tasks, and the
commit. A long list is shown as numbers first, and its items in one state on demand.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.requests import Request

from arkqueue.archives.changed import ChangedFiles, changed_files, lines_of_faults
from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, RunId, TaskId, TaskKind
from arkqueue.names import EVERY_TASK, Name, task_in_run
from arkqueue.queue.many import COMES_BACK
from arkqueue.states import MOVES, SETTLED, Event, RunState, State
from arkqueue.views.archives import removal_of
from arkqueue.views.attention import blocking_in, faulty_at_heads, unhandled_in
from arkqueue.views.explain import explain_first
from arkqueue.views.explanation import Explanation
from arkqueue.views.graph import graph, unmet_pairs
from arkqueue.views.items import ListView, deleted_items, page_of_items
from arkqueue.views.lists import Listed, Numbers, listed, lists_of, numbers_of
from arkqueue.views.remedies import MOST_LATE, Remedy, failures, need_settings
from arkqueue.views.runs import RunDetail
from arkqueue.views.runs import run as show_run
from arkqueue.views.tasks import TaskView, tasks_by_id
from arkqueue.views.waits import tell_why_alone
from arkqueue.web.pages.answer import Shown, asked, asked_id
from arkqueue.web.pages.approving import (
    MOST_JUDGED,
    may_begin_again,
    refusals_for,
    refused_deletion,
    refused_list,
    refused_on_run,
    refused_verbs,
)
from arkqueue.web.pages.drawing import MOST_DRAWN, Picture, drawn
from arkqueue.web.pages.folding import folded
from arkqueue.web.pages.grid import words_of
from arkqueue.web.pages.helping import Button, buttons_of, nearest
from arkqueue.web.pages.run_sentence import number_of, sentence, sentence_of_item, waits_for_release
from arkqueue.web.pages.task_table import TaskTable, table_of
from arkqueue.web.pages.visitor import Visitor
from arkqueue.web.pages.withheld import Withheld, withheld_by

MOST_AT_A_GLANCE = 15
"""The most tasks of a table in which a failure is seen at a glance. For a longer table, the page
has a link to the first failure.
"""
OF_A_REMOVED = ("delete", "purge")
"""The rarely used verbs that are possible on the runs of a removed archive."""
MOST_EXPLAINED = 3
"""The most waiting tasks that are explained to find one that a button helps."""
MOST_FILES = 50
MOST_DELETED = 50
"""The most deleted items that are listed."""
_MAY_BE_SKIPPED = frozenset((*MOVES[Event.SKIP].sources, State.FAILED, State.REJECTED))
HAS_PRIORITY = frozenset((State.WAITING, State.HELD, State.READY))
"""The states of tasks whose priority can be set."""
MOST_ITEMS = 100
"""The most tasks with items that are shown one by one, of the whole run or of one list."""


def run(visitor: Visitor, request: Request, id: RunId) -> Shown:
    """One run. ``?list=``: the name of a task whose list is shown. ``&state=``: only its items in
    this state. ``&after=``: the id of a task after which the shown items begin.
    """
    with visitor.caller.session.snapshot() as moment:  # so that its parts agree
        view, names, first_items = _run(replace(visitor, caller=replace(visitor.caller, session=moment)), request, id)
    session, configuration = visitor.caller.session, visitor.caller.configuration
    names |= _obstacle(visitor, view, names, first_items)
    changes = changed_files(session, configuration, id, MOST_FILES) if not view.baseline else None
    # A backfill has workflow files of another revision. Visitors who have not signed in see no files.
    is_shown = view.faults and not view.backfill and not visitor.is_anybody
    is_shown = is_shown and not (changes and changes.is_unanswered)
    lines = lines_of_faults(session, configuration, id, view.faults) if is_shown else [[] for _ in view.faults]
    # The fault may contain a path of the server.
    if changes and changes.fault and visitor.is_anybody:
        changes = replace(changes, fault="They cannot be read for now.")
    return Shown(
        "run.html", {**names, "changes": changes or ChangedFiles(files=[], total=0, fault=""), "_lines": lines}
    )


def _run(visitor: Visitor, request: Request, id: RunId) -> tuple[RunDetail, dict[str, object], list[int]]:
    """A run, and the part of its page that the database has. And the first items in each state that
    wait, are ready or are deferred, of lists of which the page shows only numbers.
    """
    caller = visitor.caller
    numbers = numbers_of(caller.session, [caller.run(id)])
    lists = lists_of(numbers)
    is_long = sum(of.tasks for of in lists) > MOST_ITEMS or asked(request, "list") in {of.name for of in lists}
    shown = listed(caller.session, [id], numbers=numbers)
    view = show_run(caller.session, id, "" if is_long else None, shown)
    tell_why_alone(caller.session, view.tasks, caller.archives())
    (place,) = caller.session.rows("archive_of_run", id=id)
    archive, removal = place.id, removal_of(caller.session, place.id)
    is_over = removal is not None or view.state is RunState.DELETED
    items = _items(visitor, request, id, view.full_name, lists if is_long else ())
    picture, boxes = _picture(visitor, view, numbers, shown)
    tasks = [task for task in view.tasks if task.kind is not TaskKind.COMMIT]
    on_page = [*tasks, *items["items"]]
    kept = withheld_by(place, brief=visitor.is_anybody) if not is_over else Withheld(place.name)
    table = table_of(visitor, kept, on_page, [*shown.rows, *items["items"]], MOST_LATE)
    firsts: dict[tuple[str, State], int] = {}
    for row in shown.rows if is_long else ():
        if row.item and row.state in (State.WAITING, State.READY, State.DEFERRED):
            firsts.setdefault((row.name, row.state), row.id)
    long = lists if is_long else []
    needs_retry = _needs_retry(view.tasks, long, table.repaired)
    needs_release = any(map(waits_for_release, view.tasks)) or (
        is_long and number_of(lists, State.HELD) > sum(numbers.behind.values())
    )
    last = "undelete" if view.state is RunState.DELETED else "delete"
    unapproved = {} if is_over else refused_on_run(visitor, id)
    unapproved |= refused_deletion(visitor, table.guarded, id if is_long else None, last)
    found = {
        "run": view,
        "_removal": removal,
        "_actor": visitor.looking if is_over else visitor,
        "tasks": tasks,
        "_tasks": _with_words(tasks),
        "sentence": sentence(view, long, numbers),
        "_is_faulty_at_head": bool(view.faults) and id in faulty_at_heads(caller.session, [archive]),
        "_first_failed": first_failed(view, table.unhandled),
        "_needs_retry": needs_retry,
        "_has_failed": _has_failed(view.tasks, long),
        "_needs_settings": _needs_settings(shown, long, table.helps),
        "_helps": table.helps,
        "_needs_release": needs_release,
        "_withheld": kept,
        "_stop": kept.stop if needs_retry or needs_release else None,
        "lists": long,
        "_alarming": _alarming(caller.session, archive, id, long if not is_over else ()),
        **items,
        "_barred": table.refused,
        "_refused_of_list": kept.refused | refused_list(items["items"], table.guarded),
        "_is_on_hold": kept.is_on_hold and (view.counts.held > 0 or view.report == State.HELD),
        "_may_hold": view.planned is not None or may_hold(view.tasks, long),
        "_may_prioritize": view.planned is not None or may_prioritize(view.tasks, long),
        "_rare": [one for one in rare(visitor, view) if one[0] in OF_A_REMOVED or not removal],
        "deleted": deleted_items(caller.session, id, MOST_DELETED + 1) if visitor.may_administer else [],
        "_most_deleted": MOST_DELETED,
        "_again": _starts(view, long, kept, table),
        "_picture": picture,
        "_rows": partial(table.rows, expected=view.expected or None),
        "_rows_of_list": table.rows,
        "_boxes": boxes,
        "_unapproved": unapproved,
        "_refused": kept.refused | unapproved,
    }
    return view, found, [*firsts.values()]


def _alarming(session: Session, archive: ArchiveId, id: RunId, lists: Sequence[ListView]) -> set[str]:
    """The names of the tasks of a run with failures to which the keys `j` and `k` go, if one of its lists
    may have any.
    """
    if not any(of.unwaived for of in lists):
        return set()
    unhandled = unhandled_in(session, [id])
    return {name for _, name in [*unhandled, *blocking_in(session, archive, [id], unhandled).cells]}


def _obstacle(
    visitor: Visitor, view: RunDetail, names: Mapping[str, object], first_items: Sequence[int]
) -> dict[str, object]:
    """The obstacle of a run in which nothing goes on, although no task of the run needs a retry or a
    release. The obstacle is the first waiting task that a button helps, with the sentences of
    `explain`. If no button helps any task, the obstacle is the first waiting task. Ready tasks that
    cannot start are tried first, then tasks that wait for other runs, then the first waiting items of
    long lists.

    If tasks need a retry or a release, but the archive is stopped and refuses both, the result has
    the buttons that end the stop.
    """
    kept: Any = names["_withheld"]
    stands_still = kept.stop is not None or kept.is_paused  # then a deferred task waits, too
    goes_on = (State.RUNNING,) if stands_still else (State.RUNNING, State.DEFERRED)
    lists: Any = names["lists"]
    is_over = (
        view.settled_at is not None
        or view.state is RunState.DELETED
        or view.faults
        or view.planned is not None
        or names["_removal"]
    )
    needs_a_person = names["_needs_retry"] or names["_needs_release"]
    ready = [task for task in view.tasks if task.state is State.READY]
    stuck = [task for task in ready if task.why]  # of the first ones, as the others have no reasons here
    stuck += [task for task in view.tasks if task.state is State.DEFERRED and stands_still]
    is_busy = (
        any(task.state in goes_on for task in view.tasks) or bool(ready and not stuck) or number_of(lists, *goes_on) > 0
    )
    stop: Any = names["_stop"]
    helps = buttons_of(stop.commands, view.full_name) if stop else []
    found: dict[str, object] = {"_obstacle": None, "_remedies": helps}
    if is_over or needs_a_person or is_busy:
        return found
    caller, own = visitor.caller, {task.id for task in view.tasks}
    items = tasks_by_id(caller.session, first_items) if first_items else []
    tell_why_alone(caller.session, items, caller.archives())
    if any(item.state is State.READY and not item.why for item in items):
        return found
    on_others = {edge.target for edge in view.edges if not edge.met and edge.source not in own}
    waiting = [task for task in view.tasks if task.state is State.WAITING and task.kind is TaskKind.ORDINARY]
    waiting += [item for item in items if item.state is State.WAITING]
    stuck += [item for item in items if item.state in (State.READY, State.DEFERRED)]
    waiting.sort(key=lambda one: (one.id not in on_others, not one.item))
    tried = [*stuck, *waiting][:MOST_EXPLAINED]
    by_id = {TaskId(task.id): task for task in tried}

    def helping(task: TaskId, told: Explanation) -> list[Button]:
        return nearest(buttons_of(told.commands, by_id[task].full_name))[0]

    said = explain_first(
        caller.session, [*by_id], lambda *of: bool(helping(*of)), brief=visitor.is_anybody, seen=caller.archives()
    )
    return {"_obstacle": (by_id[said[0]], said[1].reasons), "_remedies": helping(*said)} if said else found


def _has_failed(tasks: Iterable[TaskView], lists: Iterable[ListView] = ()) -> bool:
    """Whether a task has failed that nobody has waived: there is something to retry."""
    return any(task.state is State.FAILED for task in failures(tasks)) or any(
        of.unwaived_in(State.FAILED) for of in lists
    )


def _needs_retry(tasks: Iterable[TaskView], lists: Iterable[ListView], repaired: Collection[int]) -> bool:
    """Whether a task has failed, or was rejected, that nobody has waived, and no later revision has
    repaired. ``lists``: those whose items ``tasks`` leaves out, and of which repaired ones count, too.
    """
    return any(task.id not in repaired for task in failures(tasks)) or any(of.unwaived for of in lists)


def _starts(view: RunDetail, lists: Sequence[ListView], kept: Withheld, table: TaskTable) -> list[str]:
    """The names of the tasks from which a run or item can run again. ``lists``: as in `again`."""
    if "retry-from" in kept.refused:
        return []
    return may_begin_again(again(view.tasks, lists), view.tasks, view.edges, table.guarded)


def _needs_settings(shown: Listed, lists: Sequence[ListView], helps: Mapping[int, Remedy]) -> bool:
    """Whether only other settings help what has failed in a run. ``lists``: the long ones, of which
    ``shown`` has some items, which stand for the others.
    """
    bad = [row for row in shown.rows if row.id in helps]
    names = {row.name for row in bad}
    return need_settings([helps[row.id] for row in bad]) and all(of.name in names for of in lists if of.unwaived)


def _with_words(tasks: Sequence[TaskView]) -> list[tuple[TaskView, str]]:
    """Tasks with the words beside their shapes."""
    return [(task, words_of(task)) for task in tasks]


def _picture(visitor: Visitor, view: RunDetail, numbers: Numbers, shown: Listed) -> tuple[Picture | None, int]:
    """The graph of a run with a box for each list, and the number of boxes of a graph that is too
    large to draw (0 if it is not).
    """
    if view.faults:
        return None, 0  # it has no task, and its COMMIT would look as if all was well
    caller, lists = visitor.caller, lists_of(numbers)
    without_items = view.counts.tasks - sum(of.tasks for of in lists) + len(lists)
    if without_items > MOST_DRAWN:
        return None, without_items
    found = graph(caller.session, [RunId(view.id)], caller.archives(), shown)
    others = numbers_of(caller.session, [*{node.run_id for node in found.nodes if node.outside and node.item}])
    every = {key: of.view(key) for of in (numbers, others) for key in of.counts}
    one = folded(found, every, unmet_pairs(caller.session, found))
    if len(one.graph.nodes) > MOST_DRAWN:
        return None, len(one.graph.nodes)
    is_drawn = len(one.graph.nodes) > 1
    return drawn(one.graph, view.archive, one.lists) if is_drawn else None, 0


def _items(visitor: Visitor, request: Request, id: RunId, name: str, lists: Sequence[ListView]) -> dict[str, Any]:
    """The items of the list, in the state, that an address asks for. ``name``: the run's name."""
    chosen = next((of for of in lists if of.name == asked(request, "list")), None)
    if chosen is None:
        return {"list": None, "state": "", "items": [], "_items": [], "next": None, "_bulk": [], "_has_priority": False}
    state = State(wanted) if (wanted := asked(request, "state")) in [*State] else None
    states = [] if state is None else [state]
    found = page_of_items(visitor.caller.session, id, chosen.name, states, asked_id(request, "after") or 0, MOST_ITEMS)
    tell_why_alone(visitor.caller.session, found.tasks, visitor.caller.archives())
    return {
        "list": chosen,
        "_of_list": f"{name}{task_in_run(chosen.name)}/{EVERY_TASK}",
        "_bulk": of_list(chosen, state, polls=_is_polled(visitor.caller.session, id)),
        "_has_priority": any(chosen.counts.get(one) and state in (None, one) for one in HAS_PRIORITY),
        "state": str(state or ""),
        "items": found.tasks,
        "_items": _with_words(found.tasks),
        "next": found.next,
    }


def item(visitor: Visitor, request: Request, id: RunId, key: str) -> Shown:  # noqa: ARG001  every page gets its request
    """The tasks of one item."""
    caller = visitor.caller
    view = show_run(caller.session, caller.run(id), key)
    tell_why_alone(caller.session, view.tasks, caller.archives())
    (place,) = caller.session.rows("archive_of_run", id=id)
    removal = removal_of(caller.session, place.id)
    is_over = removal is not None or view.state is RunState.DELETED
    kept = withheld_by(place, brief=visitor.is_anybody) if not is_over else Withheld(place.name)
    table = table_of(visitor, kept, view.tasks)
    name = view.full_name + task_in_run(EVERY_TASK, key)
    unapproved = {} if is_over else refused_verbs(view.tasks, table.guarded)
    unapproved |= refused_deletion(visitor, table.guarded)
    states = {task.state for task in view.tasks}
    stop = kept.stop if failures(view.tasks) or states - SETTLED else None
    return Shown(
        "item.html",
        {
            "run": view,
            "item": key,
            "name": name,
            "tasks": view.tasks,
            "_actor": visitor.looking if is_over else visitor,
            "_removal": removal,
            "_tasks": _with_words(view.tasks),
            "sentence": sentence_of_item(view.tasks),
            "_states": states,
            "_has_failed": _has_failed(view.tasks),
            "_needs_retry": _needs_retry(view.tasks, (), table.repaired),
            "_withheld": kept,
            "_stop": stop,
            "_ends_of_stop": buttons_of(stop.commands, name) if stop else [],
            "_may_prioritize": may_prioritize(view.tasks),
            "_is_polled": any(task.polls and task.state is State.DEFERRED for task in view.tasks),
            "_needs_release": any(map(waits_for_release, view.tasks)),
            "_is_on_hold": kept.is_on_hold and State.HELD in states,
            "_needs_settings": need_settings(table.helps.values()),
            "_helps": table.helps,
            "_again": _starts(view, (), kept, table),
            "_barred": table.refused,
            "_unapproved": unapproved,
            "_refused": kept.refused | unapproved,
            "_rows": table.rows,
        },
    )


def deleted(visitor: Visitor, id: RunId, name: Name) -> Shown:
    """A deleted run for a person who may not read its history: its name, and the button that brings
    it back.
    """
    tasks = [row.id for row in visitor.caller.session.rows("tasks_of_run", runs=[id])[:MOST_JUDGED]]
    refused = next(iter(refusals_for(visitor, tasks).values()), None)
    return Shown("deleted.html", {"name": str(name), "archive": {"name": name.archive}, "_refused": refused})


def rare(visitor: Visitor, view: RunDetail) -> list[tuple[str, str]]:
    """The rarely used verbs that are possible on a run now, with the words of their buttons."""
    if view.baseline:
        return []
    may_purge = visitor.may_administer and view.settled_at is not None
    purge = [("purge", "Purge")] if may_purge else []
    if view.state is RunState.DELETED:
        return purge
    is_running, counts = bool(view.counts.running), view.counts
    may_skip = counts.failed or counts.rejected or view.settled_at is None
    can = {
        ("restart", "Restart what runs"): is_running,
        ("refresh", "Poll now"): _is_polled(visitor.caller.session, view.id),
        ("skip", "Waive tasks that failed or have not started"): may_skip,
        ("skip-as-completed", "Count tasks as completed that failed or have not started"): may_skip,
        ("report-now", "Report now"): view.settled_at is None and view.planned is None,
        ("delete", "Delete"): not is_running and view.planned is None,
    }
    return [*(one for one, is_possible in can.items() if is_possible), *purge]


def _is_polled(session: Session, run: int) -> bool:
    """Whether a deferred task of a run is polled."""
    (row,) = session.rows("polls_there", archive=None, run=run)
    return bool(row.is_there)


def of_list(of: ListView, state: State | None, *, polls: bool) -> list[tuple[str, str]]:
    """The verbs that can act on items of a list, or on those in one state, with the words of their
    buttons. ``polls``: whether deferred tasks of the run are polled.
    """
    there = {one for one, number in of.counts.items() if number and state in (None, one)}
    can = {
        ("retry", "Retry what failed"): State.FAILED in there,
        ("retry", "Retry"): state in COMES_BACK and bool(there),
        ("release", "Release"): State.HELD in there,
        ("hold", "Hold"): bool(there & MOVES[Event.HOLD].sources),
        ("refresh", "Poll now"): State.DEFERRED in there and polls,
        ("restart", "Restart"): State.RUNNING in there,
        ("cancel", "Cancel"): bool(there - SETTLED),
        ("skip", "Waive"): bool(there & _MAY_BE_SKIPPED),
        ("skip-as-completed", "Count as completed"): bool(there & _MAY_BE_SKIPPED),
        ("delete", "Delete"): bool(there) and State.RUNNING not in there,
    }
    return [one for one, is_possible in can.items() if is_possible]


def again(tasks: Sequence[TaskView], lists: Sequence[ListView] = ()) -> list[str]:
    """The names of the tasks that can run again in a run or item, with everything behind them:
    those that have ended.
    """
    ended = [task.name for task in tasks if task.kind is TaskKind.ORDINARY and not task.gate and task.state in SETTLED]
    return list(dict.fromkeys([*ended, *(of.name for of in lists if any(of.counts.get(state) for state in SETTLED))]))


def may_hold(tasks: Iterable[TaskView], lists: Sequence[ListView] = ()) -> bool:
    """Whether a task of a run has not started and is not held. Gates cannot be held."""
    states = MOVES[Event.HOLD].sources
    own = (task for task in tasks if task.kind is TaskKind.ORDINARY and not task.gate)
    return any(task.state in states for task in own) or number_of(lists, *states) > 0


def may_prioritize(tasks: Iterable[TaskView], lists: Sequence[ListView] = ()) -> bool:
    """Whether a task of a run, or of an item, has not started. A deferred task has."""
    own = (task for task in tasks if task.kind is TaskKind.ORDINARY)
    return any(task.state in HAS_PRIORITY for task in own) or number_of(lists, *HAS_PRIORITY) > 0


def first_failed(view: RunDetail, unhandled: Collection[int]) -> TaskView | None:
    """The first failure of a run whose table is so long that the failure is not seen at a glance: the
    first unhandled one, if there is one.
    """
    if len(view.tasks) <= MOST_AT_A_GLANCE:
        return None
    bad = [task for task in view.tasks if task.state in (State.FAILED, State.REJECTED) and not task.waived]
    return next((task for task in bad if task.id in unhandled), next(iter(bad), None))
