"""The guarded tasks on which a visitor may not act (design 5.22). A page judges them before it
shows their buttons, so that no button leads to a certain refusal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from arkqueue.model import RunId, TaskKind
from arkqueue.queue.guards import unapproved
from arkqueue.states import SETTLED, State
from arkqueue.views.archives import ArchiveView
from arkqueue.views.graph import EdgeView
from arkqueue.views.needs import Need
from arkqueue.views.tasks import TaskView
from arkqueue.web.pages.grid import Row
from arkqueue.web.pages.visitor import Visitor

NEEDS_APPROVAL: Final = frozenset(
    ("release", "cancel", "assume-gone", "restart", "retry", "retry-from", "skip", "skip-as-completed")
)
"""The verbs that are refused on a guarded task without an approver."""
MOST_JUDGED: Final = 1000
"""The most tasks of a run that are judged. Their verdict stands for the others."""
MOST_OF_ARCHIVE: Final = 100
"""The most held tasks, and failures, of an archive that its page judges. Of more, the buttons for the
whole archive are not judged, because the page would take too long.
"""
_WAITS: Final = frozenset(("depends", "settled", "failed"))
"""The kinds of edges along which tasks run again."""
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


_OF_ARCHIVE: Final = {"release": State.HELD, "retry": State.FAILED}
"""The verbs on a whole archive, with the states on which they act."""


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
    return refused_verbs(rows, refusals_for(visitor, [row.id for row in rows]))


def refused_on_backfill(visitor: Visitor, backfill: int, *, is_planned: bool) -> dict[str, Refusal]:
    """The verbs that are refused for every task of a backfill on which they act. A backfill that is
    still being planned can be canceled, whatever its tasks are.
    """
    if not visitor.may_act:
        return {}
    rows = visitor.caller.session.rows("of_backfill_to_judge", backfill=backfill, limit=MOST_JUDGED)
    refused = refused_verbs(rows, refusals_for(visitor, [row.id for row in rows]))
    return {verb: why for verb, why in refused.items() if verb == "release" or is_planned}


def refused_verbs(tasks: Sequence[Any], refused: Mapping[int, Refusal]) -> dict[str, Refusal]:
    """The verbs that are refused for every one of some tasks on which they act."""
    found = {}
    for verb, states in _CONCERNED.items():
        concerned = [
            task.id for task in tasks if task.state in states and (task.kind == TaskKind.ORDINARY or verb == "release")
        ]
        if why := _why_none(concerned, refused):
            found[verb] = why
    return found


def may_begin_again(
    names: Sequence[str], tasks: Sequence[TaskView], edges: Sequence[EdgeView], refused: Mapping[int, Refusal]
) -> list[str]:
    """The names, of some, from which a run or item may run again: neither a task of that name nor one
    behind it has ended and is guarded. ``tasks``, ``edges``: those of the run or item.
    """
    following: dict[int, list[int]] = defaultdict(list)
    for edge in edges:
        if edge.kind in _WAITS:
            following[edge.target].append(edge.source)
    barred = [task.id for task in tasks if task.id in refused and task.state in SETTLED]
    seen = set(barred)
    while barred:
        new = {*following[barred.pop()]} - seen
        seen |= new
        barred += new
    taken = {task.name for task in tasks if task.id in seen}
    return [name for name in names if name not in taken]


def refused_list(items: Sequence[TaskView], refused: Mapping[int, Refusal]) -> dict[str, Refusal]:
    """The verbs that are refused for a list. ``items``: some of its items. All have the same name and
    revision, so their verdict stands for the others.
    """
    why = _why_none([item.id for item in items], refused)
    return dict.fromkeys([*_CONCERNED, "delete"], why) if why else {}


def refused_deletion(
    visitor: Visitor, barred: Mapping[int, Refusal], run: RunId | None = None, verb: str = "delete"
) -> dict[str, Refusal]:
    """The verb that deletes or undeletes a run or an item, if one of its tasks is guarded. ``barred``: the
    refused ones among its tasks. ``run``: if these are not all of its tasks; one item of each list
    is judged, too.
    """
    if not barred and run is not None and visitor.may_act:
        lists = visitor.caller.session.rows("one_of_each_list", run=run)
        barred = refusals_for(visitor, [row.id for row in lists])
    return {verb: next(iter(barred.values()))} if barred else {}


@dataclass(frozen=True, slots=True)
class OfGrid:
    """The refused buttons of a grid. ``cells``: the tasks whose remedy is refused. ``runs``: the runs
    whose release is refused. ``archive``: the verbs that are refused for the whole archive.
    ``held``: the number of held tasks of the archive whose release is refused, if they were judged.
    """

    cells: Mapping[int, Refusal] = field(default_factory=dict)
    runs: Mapping[int, Refusal] = field(default_factory=dict)
    archive: Mapping[str, Refusal] = field(default_factory=dict)
    held: int = 0

    def releasable(self, held: int) -> int:
        """The number of tasks that a release of the archive would release, of its ``held`` tasks. If
        the whole release is refused, all of them: that button is disabled.
        """
        return held if "release" in self.archive else held - self.held

    @property
    def why(self) -> str:
        """The reason of the first refusal, as the end of a sentence; empty if nothing is refused."""
        first = next((why for of in (self.archive, self.runs, self.cells) for why in of.values()), None)
        return first.sentence.removeprefix("It ") if first else ""


def refused_in_grid(visitor: Visitor, archive: ArchiveView, rows: Sequence[Row]) -> OfGrid:
    """The refused buttons of a grid. An archive without guards costs nothing."""
    settings, session = archive.settings, visitor.caller.session
    if not (settings.require_approval or settings.workflow_authors) or not visitor.may_act:
        return OfGrid()
    cells = [cell.task.id for row in rows for cell in row.cells if cell is not None and cell.has_button]
    runs = [row.run.id for row in rows if row.waits_for_release]
    held, of_archive = session.rows_of(
        ("held_to_judge", {"archive": archive.id, "runs": runs, "limit": MOST_JUDGED}),
        ("of_archive_to_judge", {"archive": archive.id, "limit": MOST_OF_ARCHIVE + 1}),
    )
    whole = {verb: [row.id for row in of_archive if row.state == of] for verb, of in _OF_ARCHIVE.items()}
    whole = {verb: tasks for verb, tasks in whole.items() if len(tasks) <= MOST_OF_ARCHIVE}
    refused = refusals_for(visitor, {*cells, *(row.id for row in held), *chain.from_iterable(whole.values())})
    of_runs = {run: why for run in runs if (why := _why_none([row.id for row in held if row.run_id == run], refused))}
    verbs = {verb: why for verb, tasks in whole.items() if (why := _why_none(tasks, refused))}
    kept = sum(task in refused for task in whole.get("release", ()))
    return OfGrid({cell: refused[cell] for cell in cells if cell in refused}, of_runs, verbs, kept)


def refused_needs(visitor: Visitor, needs: Sequence[Need]) -> list[Refusal | None]:
    """For each of some needs of any archives, why its remedy is refused."""
    by_scope: dict[object, tuple[Visitor, set[int]]] = {}
    for need in needs:
        if need.tasks and need.verb in NEEDS_APPROVAL:
            there = visitor.at(need.name)
            by_scope.setdefault((there.may_act, there.caller.approver), (there, set()))[1].update(need.tasks)
    refused = {task: why for there, tasks in by_scope.values() for task, why in refusals_for(there, tasks).items()}
    return [_why_none(need.tasks, refused) for need in needs]


def _why_none(tasks: Collection[int], refused: Mapping[int, Refusal]) -> Refusal | None:
    """Why a verb acts on none of some tasks; None: it acts on one, or there is none."""
    return next((refused[task] for task in tasks), None) if all(task in refused for task in tasks) else None
