"""The page of a task: its state in one sentence with the button that helps, the end of its log, its
attempts and facts.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from starlette.requests import Request

from arkqueue.db.session import Session
from arkqueue.model import AttemptId, AttemptKind, BranchId, Checkout, End, TaskId, TaskKind
from arkqueue.names import EVERY_TASK, task_in_run
from arkqueue.states import State
from arkqueue.text import visible
from arkqueue.verdicts import EX_TEMPFAIL
from arkqueue.views import tasks
from arkqueue.views.attempts import AttemptView, attempts_around
from arkqueue.views.attention import notes_of, repaired_among, unhandled_among
from arkqueue.views.expected import usual_durations
from arkqueue.views.explain import explain
from arkqueue.views.inputs import Inputs, inputs_of, scratch_of
from arkqueue.views.outdated import gone
from arkqueue.views.remedies import need_settings, remedies
from arkqueue.views.tasks import TaskDetail
from arkqueue.web.pages.answer import Shown, asked, wants_json
from arkqueue.web.pages.approving import NEEDS_APPROVAL, refusals_for
from arkqueue.web.pages.definition import frozen_text
from arkqueue.web.pages.helping import Button, buttons_of, nearest
from arkqueue.web.pages.log import log_of, wanted_of
from arkqueue.web.pages.visitor import Visitor
from arkqueue.web.pages.withheld import Withheld, withheld

MOST_ATTEMPTS: Final = 30
"""The most attempts that are listed."""
LONGEST_ITEM: Final = 4000
"""The most characters of an item that are shown."""
HELPS: Final[dict[State, tuple[tuple[str, str], ...]]] = {
    State.FAILED: (("retry", "Retry"), ("skip", "Waive"), ("skip-as-completed", "Count as completed")),
    State.REJECTED: (("skip", "Waive"), ("skip-as-completed", "Count as completed")),
    State.DEFERRED: (("retry", "Try now"), ("cancel", "Cancel")),
    State.HELD: (("release", "Release"), ("cancel", "Cancel")),
    State.WAITING: (("hold", "Hold"), ("cancel", "Cancel")),
    State.READY: (("hold", "Hold"), ("cancel", "Cancel")),
    State.RUNNING: (("cancel", "Cancel"), ("restart", "Restart")),
    State.CANCELED: (("retry", "Run it again"),),
}
"""The verbs of each state, in the order of their buttons. The commands that ``explain`` names come
before them.
"""
HINDERS: Final = frozenset(("hold", "cancel", "restart"))
"""The verbs that keep a task from continuing: none of these is the button that helps."""
STOPS: Final = frozenset(("cancel", "restart"))
"""The verbs that stop a task, which is of no use while it is stopping."""
SELDOM: Final = frozenset(("hold",))
"""The verbs in the menu."""
_LATER: Final = (End.UNREACHABLE, End.WITHHELD)
"""The ends after which a task is tried again later."""
NO_INPUTS: Final = Inputs([], is_all=True)
OF_REPORT: Final = frozenset(("release", "restart"))
"""The actions that REPORT allows. In any state, the page of its run has a button for another
report.
"""


def task(visitor: Visitor, request: Request, id: TaskId) -> Shown:
    """One task. ``?attempt=``: the attempt whose log is shown; `Wanted` says which part of it."""
    caller = visitor.caller
    number = asked(request, "attempt")
    chosen = int(number) if number.isdecimal() and len(number) < 10 else None
    made = attempts_around(caller.session, caller.task(id), chosen, MOST_ATTEMPTS)
    # The JSON of the page has all attempts.
    view = tasks.task(caller.session, id, None if wants_json(request) else made.shown)
    attempt = next((one for one in view.history if one.id == made.chosen), None)
    wanted = wanted_of(request)
    explanation = explain(caller.session, id, brief=visitor.is_anybody, seen=caller.archives())
    buttons, wider = nearest(buttons_of(explanation.commands, view.full_name))
    own = {one.verb for one in buttons if one.name == view.full_name}
    (row,) = tasks.rows_of(caller.session, [id])
    of_run = view.full_name.partition("/")[0]
    over = gone(row)
    unapproved = None if over else refusals_for(visitor, [id]).get(id)
    kept = _withheld(visitor, row) if not over else Withheld(row.archive)
    has_failed = view.state in (State.FAILED, State.REJECTED)
    refused = kept.refused_of(caller.session, [id])[id] if has_failed else kept.refused
    if view.awaits:  # its release is possible, and helps only later
        buttons.sort(key=lambda one: one.verb == "release" and one.name == view.full_name)
    if over:  # The queue refuses every verb that would run it. A waiver lets later revisions go on.
        is_waivable = row.removed_at is None and row.deleted_at is None
        waivers = [one for one in buttons if is_waivable and (one.verb, one.name) == ("skip", view.full_name)]
        buttons, wider = [*_undeletes(row, view, of_run), *waivers], []
    is_late = any(one.verb == "release" and one.name == of_run and one.skip_outdated for one in buttons)
    needs_settings = need_settings(remedies(caller.session, [view]).values())
    # A release that comes too late is one of the run, which has its button.
    no_help = {verb for verb, is_vain in (("retry", needs_settings), ("release", is_late)) if is_vain}
    of_state = [] if over else _of_state(view, own | no_help)
    return Shown(
        "task.html",
        {
            "task": view,
            "explanation": explanation,
            "_is_alarm": has_failed and _is_alarm(caller.session, view),
            "_over": over,
            "_due": _due(caller.session, row, view),
            "_needs_settings": needs_settings,
            "_unapproved": unapproved,
            "_refused": refused | (dict.fromkeys(NEEDS_APPROVAL, unapproved) if unapproved else {}),
            "_withheld": kept,
            "_is_told": over in explanation.text,
            "inputs": inputs_of(caller.session, id)
            if view.definition and view.definition.get("depends")
            else NO_INPUTS,
            "scratch": scratch_of(caller.session, id),
            "attempt": attempt,
            "_attempts": outcomes_of(view, view.history, made.newest),
            "_made": made,
            "log": log_of(caller.session, request.app.state.searches, attempt, wanted) if attempt else None,
            "wanted": wanted,
            "remedies": buttons,
            "wider": wider,
            "helps": [verb for verb in of_state if verb[0] not in SELDOM],
            "seldom": [verb for verb in of_state if verb[0] in SELDOM],
            "hinders": HINDERS,
            "is_again": not over and view.kind is TaskKind.ORDINARY and not view.gate and view.state is State.COMPLETED,
            "again_of": of_run + task_in_run(EVERY_TASK, view.item) if view.item else of_run,
            "removable": _removable(caller.session, id),
            "_facts": facts(view, attempt),
            "_definition": visible(frozen_text(view.definition)) if view.definition else "",
        },
    )


def _is_alarm(session: Session, view: TaskDetail) -> bool:
    """True if the keys `j` and `k` go to a failure. It is unhandled, or a repaired one without a note for
    which tasks still wait.
    """
    if unhandled_among(session, [view]):
        return True
    return any(repaired_among(session, [view]).values()) and not notes_of(session, [view.id])


def _withheld(visitor: Visitor, row: Any) -> Withheld:
    """The stop, hold and pause of the archive of a task. ``row``: from ``rows_of``."""
    is_on_hold = row.archive_held_at is not None
    return withheld(row.archive, row.stopped, is_on_hold=is_on_hold, is_paused=row.is_paused, brief=visitor.is_anybody)


def _of_state(view: TaskDetail, without: Collection[str]) -> list[tuple[str, str]]:
    """The verbs of a task's state that are possible, with the words of their buttons, except for
    those ``without`` which the page does.
    """
    return [
        verb
        for verb in HELPS.get(view.state, ())
        if verb[0] not in without
        and not (view.waived and verb[0] == "skip")
        and (view.kind != TaskKind.REPORT or verb[0] in OF_REPORT)
        and not (view.polls and verb == ("retry", "Try now"))
        and not (view.stop and verb[0] in STOPS)
    ]


def _due(session: Session, row: Any, view: TaskDetail) -> datetime | None:
    """The moment at which a task that runs for longer than usual should have ended; None: it does
    not. The expected end of such a task is always now.
    """
    if view.expected is None or view.started_at is None or view.state is not State.RUNNING:
        return None
    usual = usual_durations(session, BranchId(row.branch_id), [view.name]).get(view.name)
    due = None if usual is None else view.started_at + timedelta(seconds=usual)
    return due if due is not None and due < datetime.now(UTC) else None


def _removable(session: Session, id: TaskId) -> list[str]:
    """The data of a task's attempts that can be removed: its log and its outputs."""
    (row,) = session.rows("removable_of_task", task=id)
    return [what for what, is_there in (("log", row.log), ("outputs", row.outputs)) if is_there]


def outcomes_of(
    view: TaskDetail, attempts: Sequence[AttemptView], newest: AttemptId | None
) -> list[tuple[AttemptView, State, str]]:
    """Some attempts of a task, the newest first, each with the state as which it is drawn, and its
    outcome in a few words. An attempt that was stopped, or is tried again later, has not failed.
    ``newest``: the task's newest attempt.
    """
    found = []
    for one in reversed(attempts):
        is_exit, is_last = one.end == End.EXITED, one.id == newest
        is_later = one.end in _LATER or (is_exit and one.exit_code == EX_TEMPFAIL)
        if one.ended_at is None:
            state = State.RUNNING
        elif is_exit and one.exit_code == 0:
            state = State.COMPLETED
        elif one.end == End.STOPPED:
            state = State.CANCELED
        else:
            state = State.DEFERRED if is_later and not (is_last and view.state is State.FAILED) else State.FAILED
        words = f"exit {one.exit_code}" if is_exit else (one.end or "running").replace("-", " ")
        words = f"poll, {words}" if one.kind is AttemptKind.POLL else words
        found.append((one, state, words))
    return found


def _undeletes(row: Any, view: TaskDetail, run: str) -> list[Button]:
    """The button that brings back the deleted run or item of a task. ``row``: from ``rows_of``."""
    if row.run_deleted_at is not None:
        return [Button("undelete", run, "Undelete its run")]
    if row.deleted:
        return [Button("undelete", run + task_in_run(EVERY_TASK, view.item), "Undelete its item")]
    return []


def facts(view: TaskDetail, attempt: AttemptView | None) -> list[tuple[str, str]]:
    """The facts about a task, besides its log."""
    definition = view.definition or {}
    command = definition.get("command") or definition.get("script") or ""
    item = view.item_text or ""
    found = [
        ("Item", item if len(item) <= LONGEST_ITEM else f"{item[:LONGEST_ITEM]}…"),
        ("Command", command if isinstance(command, str) else " ".join(command)),
        ("Image", (attempt and attempt.image) or definition.get("image") or ""),
        ("Locks", ", ".join(definition.get("lock", ()))),
        ("Priority", str(view.priority)),
        ("Retries by persons", str(view.retry_count or "")),
        (
            "Workflow",
            f"{definition['path']}:{definition['line']}" if "path" in definition and "line" in definition else "",
        ),
        ("Checkout", _checkout(definition)),
        ("Base", (attempt and attempt.base) or ""),
    ]
    if attempt:
        found += [
            ("Ran on", attempt.hostname or attempt.host[:8]),
            ("Used", attempt.used),
            ("Workspace", _workspace(attempt)),
        ]
        outputs = attempt.outputs_removed or (
            json.dumps(attempt.outputs, indent=2, ensure_ascii=False) if attempt.outputs else "none"
        )
        found += [("Outputs", outputs)]
    return [(name, visible(value)) for name, value in found if value]


def _checkout(definition: Mapping[str, Any]) -> str:
    """The files of the archive in the workspace."""
    kind = Checkout(definition.get("checkout", Checkout.TREE))
    words = {
        Checkout.TREE: "all files",
        Checkout.WORKING_COPY: "a working copy",
        Checkout.NONE: "no files",
        Checkout.PATHS: ", ".join(definition.get("checkout_paths", ())),
    }
    return words[kind] if "command" in definition or "script" in definition else ""


def _workspace(attempt: AttemptView) -> str:
    """The place of an attempt's files, while they exist."""
    if attempt.ended_at is not None:
        return ""
    return f"work/{attempt.id}/tree in the home folder of its task manager"
