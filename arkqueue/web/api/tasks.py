"""Tasks over HTTP: attempts, explanations, and the verbs of people."""

from __future__ import annotations

from fastapi import Request

from arkqueue.model import RunId
from arkqueue.queue import control
from arkqueue.queue.tokens import Scope
from arkqueue.views import attempts, tasks
from arkqueue.views.attempts import AttemptView
from arkqueue.views.explain import explain
from arkqueue.views.explanation import Explanation
from arkqueue.views.tasks import TaskDetail
from arkqueue.web.access import admit
from arkqueue.web.api.calls import DryRun, calls
from arkqueue.web.api.verbs import NewNote, Options, Verb, do_to_task

router = calls("runs")


@router.get("/tasks/{id}")
def show_task(request: Request, id: int) -> TaskDetail:
    """A task with its definition, its attempts and its audit log entries."""
    caller = admit(request, Scope.READ)
    return tasks.task(caller.session, caller.task(id))


@router.get("/tasks/{id}/attempts")
def list_attempts(request: Request, id: int) -> list[AttemptView]:
    """The attempts of a task, the oldest first."""
    caller = admit(request, Scope.READ)
    return attempts.attempts(caller.session, caller.task(id))


@router.get("/tasks/{id}/explain")
def explain_task(request: Request, id: int) -> Explanation:
    """The reasons for a task's state, and the commands that help."""
    caller = admit(request, Scope.READ)
    return explain(caller.session, caller.task(id), seen=caller.archives())


@router.post("/tasks/{id}/note")
def note_task(request: Request, id: int, new: NewNote) -> TaskDetail:
    """Store a note with a task. Its run shows the note, too."""
    caller = admit(request, Scope.OPERATE)
    task = caller.task(id)
    found = tasks.task(caller.session, task)
    control.note(caller.session, new.text, caller.by, run=RunId(found.run_id), task=task)
    return tasks.task(caller.session, task)


@router.post("/tasks/{id}/{verb}")
def act_on_task(
    request: Request,
    id: int,
    verb: Verb,
    options: Options = Options(),  # noqa: B008  frozen by use
    dry_run: DryRun = False,
) -> TaskDetail:
    """Cancel, restart, retry, refresh, skip or prioritize a task. 409 if its state forbids that,
    with the reason.
    """
    caller = admit(request, Scope.OPERATE)
    task = caller.task(id)
    with caller.acting(dry_run, task=task) as caller:
        do_to_task(caller, verb, task, options)
        return tasks.task(caller.session, task)
