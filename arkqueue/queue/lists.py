"""Verbs on the items of a list (design 5.33): up to `walk.PORTION` items in each transaction.

``name``: the task that has the list. ``states``: act only on items that are in one of these states
now; empty: in any. Hold, release, cancel and prioritize treat all items alike, and make one audit
log entry that names the list.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import Conflict
from arkqueue.model import RunId
from arkqueue.names import item_name, list_name, run_name
from arkqueue.queue import control, deletion, holds
from arkqueue.queue.done import Done, Refused
from arkqueue.queue.graph import Graph
from arkqueue.queue.guards import Approver, refusals
from arkqueue.queue.many import act_on_run, concerns, may_come_back
from arkqueue.queue.walk import Step, together
from arkqueue.states import State


def act(session: Session, run: RunId, name: str, states: Collection[State], verb: str, step: Step) -> Done:
    """Act on the items of a list.

    A retry without ``states`` acts on the failed items that nobody waived. With ``states`` it also
    acts on canceled, skipped and deferred items.
    """
    fits = may_come_back if verb == "retry" and states else concerns(verb, failed=True)
    rows = session.rows("tasks_to_act_on", run=run, item=None)
    chosen = {row.id for row in rows if row.name == name and row.item and (not states or row.state in states)}
    nothing = f"has no item of {name} to {verb}" + (f" that is {' or '.join(states)}" if states else "")
    if verb == "retry" and State.REJECTED in states:
        nothing += "; rejected items stay rejected"
    return act_on_run(
        session, run, nothing, lambda row: row.id in chosen and fits(row), step, last_first=verb == "cancel"
    )


def hold(session: Session, run: RunId, name: str, states: Collection[State], by: str, note: str) -> Done:
    """Hold the unstarted items of a list."""
    entry = _entry(run, "hold", by, f"{name}/*: {note}" if note else f"{name}/*")

    def step(graph: Graph, rows: Sequence[Any]) -> Done:
        return Done(graph.hold(_ids(rows), entry(graph)))

    return act(session, run, name, states, "hold", together(step))


def release(
    session: Session, run: RunId, name: str, states: Collection[State], by: str, note: str, how: holds.How
) -> Done:
    """Release the held items of a list. If the archive is put on hold between two steps, the other
    items stay held.
    """
    entry = _entry(run, "release", by, f"{name}/*: {note}" if note else f"{name}/*")

    def step(graph: Graph, rows: Sequence[Any]) -> Done:
        (row,) = graph.rows("place_of_run", run=run)
        holds.refuse_on_hold(graph, row.archive_id)
        what = shlex.quote(list_name(run_name(row), name))
        return holds.release_locked(graph, _ids(rows), partial(entry, graph), by, how, what, accepts=False)

    return act(session, run, name, states, "release", together(step))


def cancel(
    session: Session, run: RunId, name: str, states: Collection[State], by: str, approver: Approver | None = None
) -> Done:
    """Cancel the unsettled items of a list."""
    entry = _entry(run, "cancel", by, f"{name}/*")

    def step(graph: Graph, rows: Sequence[Any]) -> Done:
        refused = refusals(graph, _ids(rows), approver)
        kept = {one.task for one in refused}
        if allowed := [task for task in _ids(rows) if task not in kept]:
            entry(graph)
        return Done(control.cancel_some(graph, allowed, by) if allowed else [], refused=refused)

    return act(session, run, name, states, "cancel", together(step))


def prioritize(session: Session, run: RunId, name: str, states: Collection[State], priority: int, by: str) -> Done:
    """Set the priority of the unstarted items of a list."""
    entry = _entry(run, "prioritize", by, f"{name}/*: {priority}")

    def step(graph: Graph, rows: Sequence[Any]) -> Done:
        entry(graph)
        graph.reordered = graph.ids("prioritize", tasks=_ids(rows), priority=priority)
        return Done(list(graph.reordered))

    return act(session, run, name, states, "prioritize", together(step))


def delete(
    session: Session, run: RunId, name: str, states: Collection[State], by: str, approver: Approver | None = None
) -> Done:
    """Delete the items of a list, each with all of its tasks. Refuses items whose key also belongs to
    another list of the run, because the tasks there would be deleted, too.
    """

    def step(graph: Graph, rows: Sequence[Any]) -> Done:
        refused = [_of_other_list(graph, run, row) for row in graph.rows("in_other_lists", tasks=_ids(rows))]
        kept = {one.task for one in refused}
        if fit := [row for row in rows if row.id not in kept]:
            deletion.delete_items(graph, run, [row.item for row in fit], by, approver)
        return Done(_ids(fit), refused=refused)

    return act(session, run, name, states, "delete", together(step))


def _of_other_list(graph: Graph, run: RunId, row: Any) -> Refused:
    """The refusal to delete an item with its list. ``row``: from ``in_other_lists``."""
    here = item_name(graph.rows("place_of_run", run=run)[0], row.item)
    fault = f"has also tasks of another list, such as {row.other}, which a deletion would delete, too"
    return Refused(row.id, Conflict(here, fault, f"To delete them all: arkqueue delete {shlex.quote(here)}"))


def _ids(rows: Sequence[Any]) -> list[int]:
    return [row.id for row in rows]


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
