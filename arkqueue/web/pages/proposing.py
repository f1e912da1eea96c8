"""The form of a trigger, and the preview of the run that it would make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from arkqueue.model import COMMIT, REPORT, Trigger
from arkqueue.names import parse_branch, parse_name
from arkqueue.queue.proposed import ProposedRun, proposed
from arkqueue.views.prospects import obstacles
from arkqueue.views.rows import faults_of
from arkqueue.web.access import Caller
from arkqueue.web.api.triggering import NewRun, revision_scanned, revision_wanted
from arkqueue.web.pages.answer import Shown
from arkqueue.web.pages.refusals import overruled
from arkqueue.workflow import from_json

MOST_TASKS: Final = 100
"""The most tasks of a proposed run that are listed."""


def preview_of_run(caller: Caller, new: NewRun, name: str, back: str) -> Shown:
    """The run that a trigger would make. Raises the refusal that the trigger would meet."""
    archive = caller.archive(new.archive)
    revision, note = revision_scanned(caller.session, archive, new)

    def propose(force: bool) -> ProposedRun:
        return proposed(
            caller.session, revision, names=new.tasks, without=new.without, force=force, approver=caller.approver
        )

    run = propose(new.force)
    return Shown(
        "preview-run.html",
        {
            "name": name,
            "proposed": run,
            "obstacles": obstacles(caller.session, archive, run.tasks),
            "most": MOST_TASKS,
            "note": note,
            "chosen": new.tasks or [],
            "without": new.without,
            "force": new.force,
            "overruled": overruled("trigger", lambda: propose(False)) if new.force else None,
            "back": back,
        },
    )


@dataclass(frozen=True, slots=True)
class Choice:
    """A task that a manual run may have. ``on``: its triggers. ``waits``: its dependencies
    according to its file.
    """

    name: str
    on: str
    waits: str
    is_by_hand: bool


def choices(
    caller: Caller,
    name: str,
    chosen: Sequence[str] = (),
    without: Sequence[str] = (),
    between: tuple[str, str] = ("", ""),
) -> Shown:
    """The form of a trigger: the tasks of a revision, to choose from. ``chosen``, ``without``: the
    choice so far. ``between``: the first and the last revision of a backfill.
    """
    new = new_run(name)
    archive = caller.archive(new.archive)
    (row,) = caller.session.rows("workflow_at", revision=revision_wanted(caller.session, archive, new))
    found = []
    for task in map(from_json, row.tasks):
        waits = [
            (f"PREV:{one.task}" if one.task else "PREV") if one.previous else one.task or "" for one in task.depends
        ]
        if task.name not in (COMMIT, REPORT):
            is_by_hand = Trigger.MANUAL in task.on
            found.append(Choice(task.name, ", ".join(task.on), ", ".join(waits), is_by_hand))
    faults = faults_of(row.faults)
    first, last = between
    return Shown("trigger.html", {"name": name, "choices": found, "faults": faults, "chosen": list(chosen), "without": list(without), "first": first, "last": last})  # fmt: skip


def new_run(name: str, tasks: Sequence[str] = (), without: Sequence[str] = (), *, force: bool = False) -> NewRun:
    """The manual run that a form asks for: of the head of an archive or branch, or of a named
    revision.
    """
    chosen = list(tasks) or None
    if "@" not in name:
        archive, branch = parse_branch(name)
        return NewRun(archive=archive, branch=branch, tasks=chosen, without=list(without), force=force)
    parsed = parse_name(name)
    return NewRun(
        archive=parsed.archive,
        branch=parsed.branch,
        revision=parsed.revision,
        tasks=chosen,
        without=list(without),
        force=force,
    )
