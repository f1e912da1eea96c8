"""What the buttons of the pages do: the verbs of the API, then back to the page. A refusal is a page with its reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from arkqueue.archives import registration
from arkqueue.errors import Invalid, NotFound
from arkqueue.model import GREATEST_PRIORITY, LEAST_PRIORITY, USUAL_PRIORITY, RunId, TaskId
from arkqueue.names import EVERY_TASK, as_backfill, parse_branch, parse_name, run_name
from arkqueue.queue import backfill, control, deletion, holds, many, pauses, triggering
from arkqueue.queue.done import Done
from arkqueue.queue.holds import How
from arkqueue.queue.reports import update_report
from arkqueue.queue.tokens import Scope
from arkqueue.views.backfills import find_backfill
from arkqueue.views.find import find_item, find_run, find_task
from arkqueue.views.tasks import task as show_task
from arkqueue.web.access import Caller, admit
from arkqueue.web.api.runs import LONGEST_NOTE, Options, Verb, do_to_run, do_to_task, revision_scanned
from arkqueue.web.pages.answer import HEADERS, Shown, local
from arkqueue.web.pages.preview import is_shown_first, new_run, preview, preview_of_run
from arkqueue.web.pages.visitor import Visitor, archive_of, check_form

MOST_FIELDS: Final = 2000
"""Of a form: that of a trigger has one for each task."""


class Form:
    """A form that a page sent: each field once, as text, but for those that may come several times."""

    def __init__(self, body: bytes) -> None:
        try:
            self._all = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MOST_FIELDS)
        except ValueError as error:
            fault = f"has more than {MOST_FIELDS:,} fields"
            raise Invalid("the form", fault, "Use the command line for that many.") from error
        self._fields = dict(self._all)

    def __getitem__(self, name: str) -> str:
        return self._fields.get(name, "").strip()

    def all(self, name: str) -> list[str]:
        """The values of a field that may come several times."""
        return [value.strip() for field, value in self._all if field == name and value.strip()]


def act(visitor: Visitor, request: Request, body: bytes) -> Shown | Response:
    """Do what a form asks for, and show the page that it came from again; of what destroys, or concerns many, first what it would do."""
    form = Form(body)
    check_form(request, visitor, form["form"])
    request.state.token = visitor.at(archive_of(form["name"])).caller.token
    caller = admit(request, Scope.OPERATE)
    if len(text := form["text"]) > LONGEST_NOTE:
        raise Invalid("the text", f"has {len(text):,} characters, more than {LONGEST_NOTE:,}", "Write less.")
    name, verb = form["name"], form["verb"]
    if verb == "trigger":
        return _trigger(caller, name, form, [*form.all("task"), *text.replace(",", " ").split()])
    if form["sure"] != "yes" and is_shown_first(name, verb):
        return preview(caller, name, verb, local(form["back"]), lambda rehearsed: _act(rehearsed, name, verb, text))
    _act(caller, name, verb, text)
    return RedirectResponse(local(form["back"]), 303, HEADERS)


def _act(caller: Caller, name: str, verb: str, text: str) -> None:
    """Do it, to whatever the name names."""
    if "@" not in name:
        _on_archive(caller, parse_branch(name)[0], verb, text)
        return
    if fill := as_backfill(name):
        _on_backfill(caller, *fill, verb, text)
        return
    parsed = parse_name(name)
    caller.archive(parsed.archive)
    if parsed.task == EVERY_TASK and parsed.item:
        _on_item(caller, find_item(caller.session, parsed), parsed.item, verb, text)
    elif parsed.task is None:
        _on_run(caller, find_run(caller.session, parsed), verb, text)
    else:
        _on_task(caller, find_task(caller.session, parsed), verb, text)


def _on_task(caller: Caller, id: TaskId, verb: str, text: str) -> None:
    task = caller.task(id)
    session, by = caller.session, caller.by
    run = RunId(show_task(session, task).run_id)
    acts: dict[str, Callable[[], object]] = {
        **{
            one: partial(do_to_task, caller, one, task, Options())
            for one in (Verb.RETRY, Verb.REFRESH, Verb.CANCEL, Verb.RESTART, Verb.SKIP)
        },
        "skip-as-completed": lambda: do_to_task(caller, Verb.SKIP, task, Options(as_completed=True)),
        "prioritize": lambda: do_to_task(caller, Verb.PRIORITIZE, task, _priority(text)),
        "hold": lambda: holds.hold(session, task, by, text),
        "release": lambda: holds.release(session, task, by, text, _how(caller)),
        "note": lambda: control.note(session, _said(text), by, run=run, task=task),
    }
    _chosen(acts, verb)()


def _on_run(caller: Caller, id: RunId, verb: str, text: str) -> None:
    run = caller.run(id)
    session, by = caller.session, caller.by
    acts: dict[str, Callable[[], object]] = {
        "retry": lambda: do_to_run(caller, Verb.RETRY, run, Options(failed=True)),
        "cancel": lambda: do_to_run(caller, Verb.CANCEL, run, Options()),
        "prioritize": lambda: do_to_run(caller, Verb.PRIORITIZE, run, _priority(text)),
        "hold": lambda: holds.hold_run(session, run, by, text),
        "release": lambda: holds.release_run(session, run, by, text, _how(caller)),
        "report": lambda: update_report(session, run, by, approver=caller.approver),
        "note": lambda: control.note(session, _said(text), by, run=run),
    }
    _done(_chosen(acts, verb)())


def _on_item(caller: Caller, id: RunId, item: str, verb: str, text: str) -> None:
    run = caller.run(id)
    session, by = caller.session, caller.by

    def each(act: Callable[[TaskId], object]) -> object:
        return many.act_on_item(session, run, item, verb, act)

    acts: dict[str, Callable[[], object]] = {
        "retry": lambda: do_to_run(caller, Verb.RETRY, run, Options(failed=True, item=item)),
        "cancel": lambda: do_to_run(caller, Verb.CANCEL, run, Options(item=item)),
        "prioritize": lambda: do_to_run(caller, Verb.PRIORITIZE, run, _priority(text, item)),
        "hold": lambda: each(lambda task: holds.hold(session, task, by, text)),
        "release": lambda: each(lambda task: holds.release(session, task, by, text, _how(caller))),
        "delete": lambda: deletion.delete_item(session, run, item, by, caller.approver),
        "undelete": lambda: deletion.undelete_item(session, run, item, by, caller.approver),
    }
    _done(_chosen(acts, verb)())


def _on_backfill(caller: Caller, name: str, number: int, verb: str, text: str) -> None:
    session, by = caller.session, caller.by
    id = find_backfill(session, caller.archive(name), name, number)
    acts: dict[str, Callable[[], object]] = {
        "hold": lambda: backfill.hold(session, id, by, text),
        "release": lambda: backfill.release(session, id, by, text, _how(caller)),
        "cancel": lambda: backfill.cancel(session, id, by, caller.approver),
    }
    _done(_chosen(acts, verb)())


def _on_archive(caller: Caller, name: str, verb: str, text: str) -> None:
    archive = caller.archive(name)
    session, by = caller.session, caller.by
    acts: dict[str, Callable[[], object]] = {
        "pause": lambda: pauses.pause(session, archive, text, by),
        "resume": lambda: pauses.resume(session, archive, name, by),
        "hold": lambda: holds.hold_archive(session, archive, by, text),
        "unhold": lambda: holds.unhold(session, archive, by, text),
        "release": lambda: holds.release_archive(session, archive, by, text, _how(caller)),
        "sync": lambda: registration.sync(session, caller.configuration, archive),
    }
    _done(_chosen(acts, verb)())


def _trigger(caller: Caller, name: str, form: Form, tasks: list[str]) -> Shown | Response:
    """Make a run by hand; before that, show what it would be."""
    new = new_run(name, tasks, form.all("without"))
    if form["sure"] != "yes":
        return preview_of_run(caller, new, name, local(form["back"]))
    # The revision that was shown, also where the head has moved since.
    if (shown := form["revision"]).isdecimal() and len(shown) < 19:
        new.revision = int(shown)
    revision, _ = revision_scanned(caller.session, caller.archive(new.archive), new)
    run = triggering.trigger(
        caller.session,
        revision,
        names=new.tasks,
        without=new.without,
        by=caller.by,
        force=False,
        approver=caller.approver,
    )
    (row,) = caller.session.rows("show_runs", runs=[run])
    return RedirectResponse(local(f"/{run_name(row)}"), 303, HEADERS)


def _priority(text: str, item: str | None = None) -> Options:
    if not re.fullmatch("[0-9]{1,4}", text) or not LEAST_PRIORITY <= int(text) <= GREATEST_PRIORITY:
        fault = f"is no number from {LEAST_PRIORITY} to {GREATEST_PRIORITY:,}"
        raise Invalid("the priority", fault, f"Lower numbers go first; {USUAL_PRIORITY} is the usual one.")
    return Options(priority=int(text)) if item is None else Options(priority=int(text), item=item)


def _how(caller: Caller) -> How:
    return How(False, False, caller.approver)


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
