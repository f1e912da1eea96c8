"""What the buttons of the pages do: the verbs of the API, then back to the page. A refusal is a page with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from arkqueue.archives import registration
from arkqueue.errors import Conflict, Invalid, NotFound
from arkqueue.model import ArchiveId, RunId, TaskId
from arkqueue.names import parse_name
from arkqueue.queue import archives, control, deletion, holds, many, pauses, triggering
from arkqueue.queue.done import Done
from arkqueue.queue.holds import How
from arkqueue.queue.tokens import Scope
from arkqueue.views.find import find_branch, find_run, find_task
from arkqueue.views.tasks import task as show_task
from arkqueue.web.access import Caller
from arkqueue.web.pages.answer import HEADERS, local
from arkqueue.web.pages.visitor import Visitor, check_form

LONGEST_TEXT: Final = 10_000
"""Characters of a reason or a note."""


class Form:
    """A form that a page sent: each field once, as text."""

    def __init__(self, body: bytes) -> None:
        try:
            self._fields = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=50))
        except ValueError as error:
            raise Invalid("the form", "has more than 50 fields", "Open the page again, and send it there.") from error

    def __getitem__(self, name: str) -> str:
        return self._fields.get(name, "").strip()


def act(visitor: Visitor, request: Request, body: bytes) -> Response:
    """Do what a form asks for, and show the page that it came from again."""
    form = Form(body)
    check_form(request, visitor, form["form"])
    if not visitor.caller.token.scope.allows(Scope.OPERATE):
        raise Invalid(
            f"token {visitor.caller.token.name}", "may look, and do nothing", "Sign in with a token of scope operate."
        )
    if len(text := form["text"]) > LONGEST_TEXT:
        raise Invalid("the text", f"has {len(text):,} characters, more than {LONGEST_TEXT:,}", "Write less.")
    name, verb = form["name"], form["verb"]
    went = _act(visitor.caller, name, verb, text)
    return RedirectResponse(went or local(form["back"]), 303, HEADERS)


def _act(caller: Caller, name: str, verb: str, text: str) -> str:
    """Act; answers where to go, where that is another page."""
    if "@" not in name:
        return _on_archive(caller, name, verb, text)
    parsed = parse_name(name)
    caller.archive(parsed.archive)
    if parsed.task is None:
        _on_run(caller, find_run(caller.session, parsed), verb, text)
    else:
        _on_task(caller, find_task(caller.session, parsed), verb, text)
    return ""


def _on_task(caller: Caller, id: TaskId, verb: str, text: str) -> None:
    task = caller.task(id)
    session, by, who = caller.session, caller.by, caller.approver
    run = RunId(show_task(session, task).run_id)
    acts: dict[str, Callable[[], object]] = {
        "retry": lambda: control.retry(session, task, by, force=False, approver=who),
        "cancel": lambda: control.cancel(session, task, by, assume_gone=False, approver=who),
        "restart": lambda: control.restart(session, task, by, approver=who),
        "skip": lambda: control.skip(session, task, by, as_completed=False, force=False, approver=who),
        "skip-as-completed": lambda: control.skip(session, task, by, as_completed=True, force=False, approver=who),
        "hold": lambda: holds.hold(session, task, by, text),
        "release": lambda: holds.release(session, task, by, text, How(False, False, who)),
        "note": lambda: control.note(session, _said(text), by, run=run, task=task),
    }
    _chosen(acts, verb)()


def _on_run(caller: Caller, id: RunId, verb: str, text: str) -> None:
    run = caller.run(id)
    session, by, who = caller.session, caller.by, caller.approver
    acts: dict[str, Callable[[], object]] = {
        "retry": lambda: many.retry_failed(session, run, by, who),
        "cancel": lambda: control.cancel_run(session, run, by, approver=who),
        "hold": lambda: holds.hold_run(session, run, by, text),
        "release": lambda: holds.release_run(session, run, by, text, How(False, False, who)),
        "delete": lambda: deletion.delete_run(session, run, by, who),
        "note": lambda: control.note(session, _said(text), by, run=run),
    }
    _done(_chosen(acts, verb)())


def _on_archive(caller: Caller, name: str, verb: str, text: str) -> str:
    archive = caller.archive(name)
    session, by, who = caller.session, caller.by, caller.approver
    if verb == "trigger":
        return _trigger(caller, name, archive, text)
    acts: dict[str, Callable[[], object]] = {
        "pause": lambda: pauses.pause(session, archive, text, by),
        "resume": lambda: pauses.resume(session, archive, name, by),
        "hold": lambda: holds.hold_archive(session, archive, by, text),
        "unhold": lambda: holds.unhold(session, archive, by, text),
        "release": lambda: holds.release_archive(session, archive, by, text, How(False, False, who)),
        "retry": lambda: many.retry_failed_of_archive(session, archive, by, who),
        "sync": lambda: _sync(caller, archive),
    }
    _done(_chosen(acts, verb)())
    return ""


def _trigger(caller: Caller, name: str, archive: ArchiveId, text: str) -> str:
    branch = find_branch(caller.session, archive, None, name)
    head = caller.session.rows("head_revision", branch=branch)
    if not head:
        raise Conflict(f"archive {name}", "has no revision yet", f"arkqueue sync {name}")
    run = triggering.trigger(
        caller.session,
        int(head[0].id),
        names=text.replace(",", " ").split() or None,
        without=[],
        by=caller.by,
        force=False,
        approver=caller.approver,
    )
    (row,) = caller.session.rows("show_runs", runs=[run])
    return f"/{name}@{row.number}.{row.run}"


def _sync(caller: Caller, archive: ArchiveId) -> None:
    if archives.one(caller.session, archive).stopped is not None:
        registration.take_up(caller.session, caller.configuration, archive)
    archives.sync(caller.session, archive)


def _chosen(acts: dict[str, Callable[[], object]], verb: str) -> Callable[[], object]:
    if verb not in acts:
        raise NotFound(f"the button {verb!r}", "does nothing here", "Open the page again.")
    return acts[verb]


def _done(done: object) -> None:
    """Raise the first refusal where a verb on many did nothing."""
    if isinstance(done, Done):
        done.unless_refused()


def _said(text: str) -> str:
    if not text:
        raise Invalid("the note", "is empty", "Write what the next person should know.")
    return text
