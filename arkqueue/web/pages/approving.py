"""The guarded tasks on which a visitor may not act (design 5.22). A page judges them before it
shows their buttons, so that no button leads to a certain refusal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from arkqueue.model import RunId, TaskKind
from arkqueue.queue.guards import unapproved
from arkqueue.states import State
from arkqueue.views.needs import Need
from arkqueue.web.pages.visitor import Visitor

NEEDS_APPROVAL: Final = frozenset(
    ("release", "cancel", "assume-gone", "restart", "retry", "retry-from", "skip", "skip-as-completed")
)
"""The verbs that are refused on a guarded task without an approver."""
MOST_JUDGED: Final = 1000
"""The most tasks of a run that are judged. Their verdict stands for the others."""
_UNSTARTED: Final = frozenset((State.WAITING, State.READY, State.DEFERRED, State.HELD))
_CONCERNED: Final[Mapping[str, frozenset[State]]] = {
    "release": frozenset((State.HELD,)),
    "retry": frozenset((State.FAILED,)),
    "cancel": _UNSTARTED | {State.RUNNING},
    "restart": frozenset((State.RUNNING,)),
    "skip": _UNSTARTED | {State.FAILED, State.REJECTED},
    "skip-as-completed": _UNSTARTED | {State.FAILED, State.REJECTED},
}
"""The states of the tasks of a run on which a verb acts."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a visitor may not act on a guarded task. ``words``: beside a button; ``sentence``: with
    the remedy.
    """

    words: str
    sentence: str


def refusals_for(visitor: Visitor, tasks: Collection[int]) -> dict[int, Refusal]:
    """The tasks on which a visitor may not act because they are guarded."""
    if not visitor.may_act or not tasks:
        return {}
    found = {}
    for task, why in unapproved(visitor.caller.session, tasks, visitor.caller.approver):
        words = why.fault.partition(", and ")[2] or "takes a token of scope approve"
        found[task] = Refusal(words, f"It {why.fault}: {why.remedy}.")
    return found


def refused_on_run(visitor: Visitor, run: RunId) -> dict[str, Refusal]:
    """The verbs that are refused for every task of a run on which they act."""
    if not visitor.may_act:
        return {}
    rows = visitor.caller.session.rows("open_or_failed_of_run", run=run, limit=MOST_JUDGED)
    refused = refusals_for(visitor, [row.id for row in rows])
    found = {}
    for verb, states in _CONCERNED.items():
        concerned = [
            row.id for row in rows if row.state in states and (row.kind == TaskKind.ORDINARY or verb == "release")
        ]
        if concerned and all(task in refused for task in concerned):
            found[verb] = refused[concerned[0]]
    return found


def refused_needs(visitor: Visitor, needs: Iterable[Need]) -> dict[int, Refusal]:
    """The tasks among needs of any archives whose remedy is refused."""
    by_scope: dict[object, tuple[Visitor, list[int]]] = {}
    for need in needs:
        if need.task is not None and need.verb in NEEDS_APPROVAL:
            there = visitor.at(need.name)
            by_scope.setdefault((there.may_act, there.caller.approver), (there, []))[1].append(need.task)
    return {task: why for there, tasks in by_scope.values() for task, why in refusals_for(there, tasks).items()}
