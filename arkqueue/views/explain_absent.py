"""Why a task or a revision is not there: the revision is not in the ledger yet, or the task was left
out of a run.
"""

from __future__ import annotations

import shlex
from dataclasses import replace

from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, Trigger
from arkqueue.names import Name, run_name
from arkqueue.plan import matches_branch
from arkqueue.states import run_state
from arkqueue.views.archives import archive as show_archive
from arkqueue.views.archives import remedies_of_stop
from arkqueue.views.explanation import Explanation, explanation_of, some, without_or_again
from arkqueue.views.find import RETIRED, Place, find_branch, find_run, no_task, own_names
from arkqueue.views.outdated import at, gone, moment, since
from arkqueue.views.reasons import Reason, Why, faults, fires_left_out, nobody_manages
from arkqueue.workflow import EMPTY, from_json

HOW = {
    Trigger.COMMIT: "on commits",
    Trigger.MANUAL: "by hand",
    Trigger.SCHEDULE: "by a schedule",
    Trigger.SUBMISSION: "on submissions",
}
"""How a run of each trigger was made, as a part of a sentence."""


def not_in_ledger(session: Session, archive: ArchiveId, name: Name) -> Explanation | None:
    """Explain why a revision beyond the head is not in the ledger; None if the name is not of such
    a revision.
    """
    view = show_archive(session, archive)
    branch = find_branch(session, archive, name.branch, name.archive)
    head = session.rows("head_revision", branch=branch)
    if head and not name.revision.startswith("g") and int(name.revision) < head[0].number:
        return None
    newest = f"the newest is {head[0].number}" if head else "it has no revision yet"
    if name.branch is not None and name.branch.startswith(RETIRED):
        text = f"Revision {name.revision} is not in this earlier ledger of {view.name}, to which nothing is added any more; {newest}."
        return explanation_of(str(name), None, [Reason(kind=Why.NOT_IN_LEDGER, text=text)])
    read = f", read{at(view.read_at)}" if view.read_at else ""
    look = [f"arkqueue sync {view.name}"]
    reasons = []
    if view.removed_at is not None:
        reasons.append(Reason(kind=Why.ARCHIVE_STOPPED, text=f"{view.name} was removed{at(view.removed_at)}."))
    if view.stopped is not None:
        text = f"{view.name} is stopped, and its repository is not read: {view.stopped}"
        reasons.append(Reason(kind=Why.ARCHIVE_STOPPED, text=text, commands=remedies_of_stop(view.name, view.stopped)))
    elif view.trouble is not None:
        text = f"{view.name} has not been readable{since(view.trouble_since)}: {view.trouble.rstrip('.')}. The next try is{at(view.next_read_at)}."
        reasons.append(Reason(kind=Why.ARCHIVE_TROUBLE, text=text, commands=[view.remedy]))
    text = f"Revision {name.revision} is not in the ledger of {view.name}; {newest}{read}."
    unmanaged = nobody_manages(session)
    if view.notice is not None and view.notice.revision is not None:
        text += f" A notice at {moment(view.notice.at)} named revision {view.notice.revision}{'' if unmanaged else ', and the queue manager looks for it'}."
    reasons.append(Reason(kind=Why.NOT_IN_LEDGER, text=text, commands=[] if view.stopped or unmanaged else look))
    reasons += unmanaged
    return explanation_of(str(name), None, reasons)


def left_out(session: Session, place: Place, name: Name) -> Explanation:
    """Explain why a task is not part of a revision's commit run, or of the named run. Raises
    ``NotFound`` if no file of that revision defines the task.
    """
    (row,) = session.rows("show_runs", runs=[find_run(session, name)])
    (workflow,) = session.rows("workflow_at", revision=place.id)
    run = str(replace(name, task=None, item=""))
    if row.faults:
        return explanation_of(str(name), None, [faults(row.faults, run, without_or_again(session, row))])
    definition = next((from_json(task) for task in workflow.tasks if task["name"] == name.task), None)
    if definition is None or (definition.foreach and name.task in own_names(session, place, row.run)):
        raise no_task(session, place, name)
    branch = next(b.name for b in session.rows("branches_named", archive=place.archive) if b.id == place.branch)
    is_empty = definition.foreach is not None and definition.foreach.items == EMPTY
    if workflow.baseline and row.trigger == Trigger.COMMIT:
        text = f"Revision {place.number} is where the ledger starts: nothing ran there."
    elif row.trigger not in definition.on:
        text = f"It does not run {HOW[row.trigger]} (its on: {', '.join(definition.on)})."
    elif not matches_branch(definition.branches, branch):
        text = f"The branch {branch} does not match its branches: {', '.join(definition.branches)}."
    elif is_empty:
        text = "Its list (foreach) has no items."
    elif row.trigger == Trigger.COMMIT:
        text = f"No file that revision {place.number} changed matches its paths: {', '.join(definition.paths)}."
    else:
        text = (
            f"That run was made {HOW[row.trigger]}, for other tasks only: {some(own_names(session, place, row.run))}."
        )
    commands: list[str] = []
    if row.trigger not in definition.on and (scheduled := _scheduled(session, place, definition.name)):
        text += f" {scheduled.text}"
        commands += scheduled.commands
    if lost := gone(workflow):
        text += f" Nothing will run it: {lost}."
    elif not is_empty and Trigger.MANUAL in definition.on and matches_branch(definition.branches, branch):
        on = f" --branch {shlex.quote(name.branch)}" if name.branch else ""
        commands += [f"arkqueue trigger {name.archive}{on} --revision {name.revision} {name.task}"]
    reason = Reason(kind=Why.LEFT_OUT, text=f"{run} has no task {name.task}. {text}", commands=commands)
    return explanation_of(str(name), None, [reason])


def _scheduled(session: Session, place: Place, task: str) -> Reason | None:
    """The next fire of the schedule of a task that is not for commits, and the state of its last
    run.
    """
    for schedule in session.rows("schedule_of_task", branch=place.branch, name=task):
        text = f"Its schedule {schedule.cron} fires next{at(schedule.next_at)}"
        last = session.rows("show_runs", runs=[schedule.run_id]) if schedule.run_id else []
        if not last:
            return Reason(kind=Why.LEFT_OUT, text=f"{text}.")
        run = run_name(last[0])
        left_out = "".join(
            f" {reason.text}" for reason in fires_left_out(session, last[0], last[0].id, is_open=last[0].unsettled > 0)
        )
        text = f"{text}; its last run {run} is {run_state(last[0])}.{left_out}"
        return Reason(kind=Why.LEFT_OUT, text=text, commands=[f"arkqueue explain {run}"])
    return None
