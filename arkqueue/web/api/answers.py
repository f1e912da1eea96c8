"""The answers of verbs on many tasks: the tasks on which the verb acted, and the refusals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arkqueue.model import ArchiveId, RunId
from arkqueue.queue.done import Done
from arkqueue.views import archives, backfills, runs
from arkqueue.views.archives import ArchiveView
from arkqueue.views.backfills import BackfillDetail
from arkqueue.views.naming import task_names
from arkqueue.views.runs import RunDetail
from arkqueue.web.access import Caller


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The refusal of one task: the reason, and the remedy."""

    task: str
    reason: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAction:
    """The result of an action on a run or an item: the tasks on which it acted, and the refusals.
    ``left``: the number of tasks that it did not reach; repeat the call. ``run``: after an action
    on an item, with only the tasks of that item. ``accepted``: as in `ArchiveAction`.
    """

    done: list[str]
    accepted: list[str]
    refused: list[Refusal]
    left: int
    run: RunDetail


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveAction:
    """The result of an action on an archive: the tasks on which it acted, the waived ones
    (``skip_outdated``), and the refusals.

    ``approved``: those of ``done`` that are approval steps, which a release approved. ``accepted``:
    runs whose workflow files the release accepted (`workflow_authors`), the last one of each
    branch. ``left``: the number of tasks that it did not reach; repeat the call.
    """

    done: list[str]
    approved: list[str]
    accepted: list[str]
    skipped: list[str]
    refused: list[Refusal]
    left: int
    archive: ArchiveView


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillAction:
    """The result of an action on a backfill, with the fields of `ArchiveAction`."""

    done: list[str]
    approved: list[str]
    skipped: list[str]
    refused: list[Refusal]
    left: int
    backfill: BackfillDetail


def on_run(caller: Caller, run: RunId, done: Done, item: str | None = None) -> RunAction:
    """The answer of an action on a run, or an item of it."""
    tasks = _named(caller, [*done.tasks, *done.skipped])
    shown = runs.run(caller.session, run, item)
    return RunAction(done=tasks, accepted=done.accepted, refused=refusals(caller, done), left=done.left, run=shown)


def on_archive(caller: Caller, archive: ArchiveId, done: Done) -> ArchiveAction:
    """The answer of an action on an archive."""
    view = archives.archive(caller.session, archive)
    return ArchiveAction(
        done=_named(caller, done.tasks),
        approved=_named(caller, done.approvals),
        accepted=done.accepted,
        skipped=_named(caller, done.skipped),
        refused=refusals(caller, done),
        left=done.left,
        archive=view,
    )


def on_backfill(caller: Caller, backfill: int, done: Done) -> BackfillAction:
    """The answer of an action on a backfill."""
    return BackfillAction(
        done=_named(caller, done.tasks),
        approved=_named(caller, done.approvals),
        skipped=_named(caller, done.skipped),
        refused=refusals(caller, done),
        left=done.left,
        backfill=backfills.backfill(caller.session, backfill),
    )


def _named(caller: Caller, tasks: Sequence[int]) -> list[str]:
    names = task_names(caller.session, tasks)
    return [names[task] for task in tasks]


def refusals(caller: Caller, done: Done) -> list[Refusal]:
    """The refusals of a verb, with the names of the tasks."""
    names = task_names(caller.session, [refused.task for refused in done.refused])
    return [
        Refusal(task=names[refused.task], reason=f"{refused.why.thing}: {refused.why.fault}", remedy=refused.why.remedy)
        for refused in done.refused
    ]
