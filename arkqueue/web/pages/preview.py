"""What an action would do, shown before it is done: the states that tasks would have, found out by doing it and taking it back; and the run that a trigger would make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from arkqueue.db.session import Session
from arkqueue.model import COMMIT, REPORT, Fault, RunId, TaskId, Trigger
from arkqueue.names import EVERY_TASK, Name, as_backfill, parse_branch, parse_name
from arkqueue.queue.proposed import proposed
from arkqueue.states import State
from arkqueue.views.find import find_item, find_run, find_task
from arkqueue.views.naming import task_names
from arkqueue.views.tasks import task as show_task
from arkqueue.web.access import Caller
from arkqueue.web.api.runs import NewRun, revision_scanned, revision_wanted
from arkqueue.web.pages.answer import Shown
from arkqueue.workflow import from_json

MOST_LOOKED_AT: Final = 20_000
"""Tasks whose states are compared."""
MOST_NAMED: Final = 12
"""Tasks of one consequence that are named; the others are counted."""
MOST_TASKS: Final = 100
"""Tasks of a proposed run that are listed."""
QUESTIONS: Final = {
    "cancel": "Everything of it that is not settled is canceled; what runs is stopped.",
    "restart": "What runs of it is stopped, and begins anew.",
    "skip": "Later runs go on without it. What waits for it in its own run stays skipped.",
    "skip-as-completed": "What waits for it goes on as if it had completed, in its own run, too.",
    "delete": "It is in no list, count or report any more, and the rest of the run goes on without it. It can be undeleted.",
    "release": "What is held of it goes on, approval steps too.",
}
"""The verbs whose consequences are shown first, and what they mean."""
_WORDS: Final = {
    State.CANCELED: "canceled",
    State.SKIPPED: "skipped",
    State.READY: "free to start",
    State.WAITING: "waiting",
    State.HELD: "held",
    State.COMPLETED: "passed",
    State.RUNNING: "running",
}
_BEFORE: Final = {"cancel": "Cancel", "restart": "Restart", "skip": "Waive", "skip-as-completed": "Count as completed", "delete": "Delete", "release": "Release"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Consequence:
    """What would become of some tasks. ``state``: the one that they would have; ``words``: that in words; ``names``: the first of them."""

    state: State
    words: str
    count: int
    names: list[str]


def is_shown_first(name: str, verb: str) -> bool:
    """Whether an action is done only after its consequences were shown: it destroys, or it concerns many."""
    return verb in QUESTIONS and (verb != "release" or "/" not in name.partition("@")[2])


def preview(caller: Caller, name: str, verb: str, back: str, do: Callable[[Caller], object]) -> Shown:
    """What ``do`` would change, and the button that does it. Raises what it would be refused with."""
    run, of = _concerned(caller, name)
    with caller.acting(True, **of) as rehearsed:
        archive = of.get("archive") or _archive(caller, of)
        before = {row.id: row for row in caller.session.rows("states_around", archive=archive, run=run, limit=MOST_LOOKED_AT)}  # fmt: skip
        do(rehearsed)
        after = rehearsed.session.rows("states_of", tasks=list(before))
        found = _consequences(rehearsed.session, before, after)
    return Shown(
        "preview.html",
        {
            "name": name,
            "verb": verb,
            "words": _BEFORE[verb],
            "question": QUESTIONS[verb],
            "consequences": found,
            "is_all": len(before) < MOST_LOOKED_AT,
            "back": back,
            "is_asked_why": verb == "release",
        },
    )


def _concerned(caller: Caller, name: str) -> tuple[int | None, dict[str, int]]:
    """The run that an action is about, if any, and the thing itself, as ``Caller.acting`` wants it."""
    if "@" not in name or as_backfill(name):
        archive = parse_branch(name)[0] if "@" not in name else name.partition("@")[0]
        return None, {"archive": caller.archive(archive)}
    parsed: Name = parse_name(name)
    caller.archive(parsed.archive)
    if parsed.task == EVERY_TASK and parsed.item:
        run = find_item(caller.session, parsed)
    elif parsed.task is None:
        run = find_run(caller.session, parsed)
    else:
        task = caller.task(find_task(caller.session, parsed))
        return show_task(caller.session, TaskId(task)).run_id, {"task": task}
    return run, {"run": caller.run(RunId(run))}


def _archive(caller: Caller, of: dict[str, int]) -> int:
    (kind, id), *_ = of.items()
    return int(caller.session.rows(f"archive_of_{kind}", id=id)[0].id)


def _consequences(session: Session, before: dict[int, Any], after: Sequence[Any]) -> list[Consequence]:
    groups: dict[tuple[State, str], list[int]] = {}
    for row in after:
        old = before[row.id]
        if row.stops and not old.stops:
            groups.setdefault((State.RUNNING, "stopped"), []).append(row.id)
        elif row.state != old.state:
            state = State(row.state)
            groups.setdefault((state, _WORDS.get(state, str(state))), []).append(row.id)
    named = task_names(session, [id for ids in groups.values() for id in ids[:MOST_NAMED]])
    return [
        Consequence(state, words, len(ids), [named[id] for id in ids[:MOST_NAMED]])
        for (state, words), ids in groups.items()
    ]


def preview_of_run(caller: Caller, new: NewRun, name: str, back: str) -> Shown:
    """The run that would be made. Raises what it would be refused with."""
    revision, note = revision_scanned(caller.session, caller.archive(new.archive), new)
    run = proposed(
        caller.session, revision, names=new.tasks, without=new.without, force=new.force, approver=caller.approver
    )
    return Shown(
        "preview-run.html",
        {
            "name": name,
            "proposed": run,
            "more": max(len(run.tasks) - MOST_TASKS, 0),
            "most": MOST_TASKS,
            "note": note,
            "chosen": new.tasks or [],
            "without": new.without,
            "back": back,
        },
    )


@dataclass(frozen=True, slots=True)
class Choice:
    """A task that a run by hand may have. ``on``: what runs it; ``waits``: what its file says that it depends on."""

    name: str
    on: str
    waits: str
    is_by_hand: bool


def choices(caller: Caller, name: str, chosen: Sequence[str] = (), without: Sequence[str] = ()) -> Shown:
    """The form of a trigger: the tasks of a revision, to choose from. ``chosen``, ``without``: what is chosen already."""
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
    faults = [Fault(**fault) for fault in row.faults]
    return Shown("trigger.html", {"name": name, "choices": found, "faults": faults, "chosen": list(chosen), "without": list(without)})  # fmt: skip


def new_run(name: str, tasks: Sequence[str] = (), without: Sequence[str] = ()) -> NewRun:
    """The run by hand that a form asks for, of an archive's or branch's head or of a revision's name."""
    chosen = list(tasks) or None
    if "@" not in name:
        archive, branch = parse_branch(name)
        return NewRun(archive=archive, branch=branch, tasks=chosen, without=list(without))
    parsed = parse_name(name)
    return NewRun(
        archive=parsed.archive, branch=parsed.branch, revision=parsed.revision, tasks=chosen, without=list(without)
    )
