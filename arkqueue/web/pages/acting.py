"""The buttons of the pages. Each calls a verb of the API and leads back to the page. A refusal is a
page with its reason, and with a button for each option that the remedy names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from arkqueue.archives import registration
from arkqueue.archives.retention import purge_by_age
from arkqueue.errors import Conflict, Invalid, NotFound
from arkqueue.model import RunId, TaskId
from arkqueue.names import EVERY_TASK, as_backfill, is_list, page_path, parse_branch, parse_name, run_name
from arkqueue.priorities import GREATEST_PRIORITY, LEAST_PRIORITY, USUAL_PRIORITY
from arkqueue.queue import backfill, control, deletion, holds, lists, many, pauses, retrying, triggering
from arkqueue.queue.done import Done
from arkqueue.queue.holds import How
from arkqueue.queue.purge import purge_runs
from arkqueue.queue.removal import remove
from arkqueue.queue.reports import update_report
from arkqueue.queue.tokens import Scope
from arkqueue.queue.walk import alone
from arkqueue.states import State
from arkqueue.views.backfills import find_backfill
from arkqueue.views.find import find_item, find_run, find_task
from arkqueue.views.tasks import task as show_task
from arkqueue.web.access import Caller, admit
from arkqueue.web.api.triggering import revision_scanned
from arkqueue.web.api.verbs import LONGEST_NOTE, Options, Verb, do_to_list, do_to_run, do_to_task
from arkqueue.web.pages import filling
from arkqueue.web.pages.answer import HEADERS, Shown, answer, local, refused_page
from arkqueue.web.pages.forms import Form, Meant, meant
from arkqueue.web.pages.preview import (
    is_shown_first,
    list_run,
    preview,
    preview_of_purge,
    preview_of_removal,
)
from arkqueue.web.pages.proposing import new_run, preview_of_run
from arkqueue.web.pages.refusals import REMOVALS, filled_again, offers, partly, refusal
from arkqueue.web.pages.visitor import Visitor, archive_of, check_form

Act = Callable[[], object]
GONE = ("delete", "purge")
"""The verbs after which a run has no page; the page of its archive is shown instead."""


def act(visitor: Visitor, request: Request, body: bytes) -> Shown | Response:
    """Carry out the action of a form, and show the page of the form again. For an action that
    destroys, or concerns many tasks, first show what it would do.
    """
    form = Form(body)
    check_form(request, visitor, form["form"])
    visitor = visitor.at(archive_of(form["name"]))
    request.state.token = visitor.caller.token
    scope = Scope.ADMIN if form["verb"].startswith("purge") else Scope.OPERATE
    caller = admit(request, scope)
    try:
        if len(text := form["text"]) > LONGEST_NOTE:
            raise Invalid("the text", f"has {len(text):,} characters, more than {LONGEST_NOTE:,}", "Write less.")
        return _acted(caller, request, form)
    except (Conflict, Invalid, NotFound) as error:
        if isinstance(error, Conflict) and (options := offers(error, form["name"], form["verb"])):
            return answer(request, visitor, refusal(error, form, options, filling.page_of(form)), 409)
        if filled := filled_again("/-/act", form):
            return refused_page(request, visitor, error, local(form["back"]), filled=filled)
        raise


def _acted(caller: Caller, request: Request, form: Form) -> Shown | Response:
    name, verb, how, back = form["name"], form["verb"], meant(form), local(form["back"])
    if verb == "trigger" and (form["first"] or form["last"]):
        return filling.fill(caller, request, form)
    if verb == "trigger":
        return _trigger(caller, name, form, [*form.all("task"), *how.text.replace(",", " ").split()])
    if form["sure"] != "yes":
        if verb == "purge":
            return preview_of_purge(caller, name, back)
        if verb in REMOVALS:
            return preview_of_removal(caller, name, verb, how.text, back)
        if is_shown_first(name, verb) or how.is_forced:
            return preview(caller, name, verb, how, back, lambda rehearsed, how: _act(rehearsed, name, verb, how))
    done = _act(caller, name, verb, how)
    if isinstance(done, Done) and done.refused:
        return partly(caller, done, form, back)
    if verb in GONE and "/" not in name:
        back = local(f"/{page_path(name.partition('@')[0])}")
    return RedirectResponse(back, 303, HEADERS)


def _act(caller: Caller, name: str, verb: str, how: Meant) -> object:
    """Carry out the action on a name. Raises the first refusal if a verb on many tasks did nothing."""
    if "@" not in name:
        done = _chosen(_of_archive(caller, parse_branch(name)[0], how), verb)()
    elif fill := as_backfill(name):
        done = _chosen(_of_backfill(caller, *fill, how), verb)()
    else:
        parsed = parse_name(name)
        caller.archive(parsed.archive)
        if is_list(name):
            done = _chosen(_of_list(caller, list_run(caller, parsed), parsed.task or "", how), verb)()
        elif parsed.task == EVERY_TASK and parsed.item:
            done = _chosen(_of_item(caller, find_item(caller.session, parsed), parsed.item, verb, how), verb)()
        elif parsed.task is None:
            done = _chosen(_of_run(caller, find_run(caller.session, parsed), verb, how), verb)()
        else:
            done = _chosen(_of_task(caller, find_task(caller.session, parsed), how), verb)()
    return done.unless_refused() if isinstance(done, Done) else done


def _of_task(caller: Caller, id: TaskId, how: Meant) -> dict[str, Act]:
    task = caller.task(id)
    session, by, text = caller.session, caller.by, how.text
    run = RunId(show_task(session, task).run_id)
    return {
        **{
            one: partial(do_to_task, caller, one, task, Options())
            for one in (Verb.REFRESH, Verb.CANCEL, Verb.RESTART, Verb.SKIP)
        },
        "retry": lambda: do_to_task(caller, Verb.RETRY, task, Options(force=how.force, from_start=how.from_start)),
        "skip-as-completed": lambda: do_to_task(caller, Verb.SKIP, task, Options(as_completed=True, force=how.force)),
        "assume-gone": lambda: do_to_task(caller, Verb.CANCEL, task, Options(assume_gone=True)),
        "prioritize": lambda: do_to_task(caller, Verb.PRIORITIZE, task, _priority(text)),
        "hold": lambda: holds.hold(session, task, by, text),
        "release": lambda: holds.release(session, task, by, text, _how(caller, how)),
        "note": lambda: control.note(session, _said(text), by, run=run, task=task),
        "purge-log": lambda: remove(session, task, by, text, log=True),
        "purge-outputs": lambda: remove(session, task, by, text, outputs=True),
    }


def _of_run(caller: Caller, id: RunId, verb: str, how: Meant) -> dict[str, Act]:
    run = caller.run(id, also_deleted=verb == "undelete")
    session, by, text = caller.session, caller.by, how.text
    return {
        "retry": lambda: (
            many.retry_failed(
                session, run, by, caller.approver, name=how.task, force=how.force, from_start=how.from_start
            )
            if how.task
            else do_to_run(caller, Verb.RETRY, run, _what_failed(how))
        ),
        "retry-from": lambda: do_to_run(caller, Verb.RETRY, run, _again(how)),
        "cancel": lambda: do_to_run(caller, Verb.CANCEL, run, Options()),
        "restart": lambda: do_to_run(caller, Verb.RESTART, run, Options()),
        "refresh": lambda: do_to_run(caller, Verb.REFRESH, run, Options()),
        "skip": lambda: do_to_run(caller, Verb.SKIP, run, Options()),
        "skip-as-completed": lambda: do_to_run(caller, Verb.SKIP, run, Options(as_completed=True, force=how.force)),
        "prioritize": lambda: do_to_run(caller, Verb.PRIORITIZE, run, _priority(text)),
        "hold": lambda: holds.hold_run(session, run, by, text),
        "release": lambda: holds.release_run(session, run, by, text, _how(caller, how)),
        "report": lambda: update_report(session, run, by, approver=caller.approver),
        "report-now": lambda: update_report(session, run, by, now=True, approver=caller.approver),
        "note": lambda: control.note(session, _said(text), by, run=run),
        "delete": lambda: deletion.delete_run(session, run, by, caller.approver),
        "undelete": lambda: deletion.undelete_run(session, run, by, caller.approver),
        "purge": lambda: purge_runs(session, [run], by, text).unless_kept(),
    }


def _of_item(caller: Caller, id: RunId, item: str, verb: str, how: Meant) -> dict[str, Act]:
    run = caller.run(id)
    session, by, text = caller.session, caller.by, how.text

    def each(act: Callable[[TaskId], object]) -> object:
        return many.act_on_item(session, run, item, verb, alone(act))

    return {
        "retry": lambda: do_to_run(caller, Verb.RETRY, run, _what_failed(how, item)),
        "retry-from": lambda: do_to_run(caller, Verb.RETRY, run, _again(how, item)),
        "cancel": lambda: do_to_run(caller, Verb.CANCEL, run, Options(item=item)),
        "restart": lambda: do_to_run(caller, Verb.RESTART, run, Options(item=item)),
        "refresh": lambda: do_to_run(caller, Verb.REFRESH, run, Options(item=item)),
        "skip": lambda: do_to_run(caller, Verb.SKIP, run, Options(item=item)),
        "skip-as-completed": lambda: do_to_run(
            caller, Verb.SKIP, run, Options(as_completed=True, force=how.force, item=item)
        ),
        "prioritize": lambda: do_to_run(caller, Verb.PRIORITIZE, run, _priority(text, item)),
        "hold": lambda: each(lambda task: holds.hold(session, task, by, text)),
        "release": lambda: each(lambda task: holds.release(session, task, by, text, _how(caller, how))),
        "delete": lambda: deletion.delete_item(session, run, item, by, caller.approver),
        "undelete": lambda: deletion.undelete_item(session, run, item, by, caller.approver),
    }


def _of_list(caller: Caller, run: RunId, name: str, how: Meant) -> dict[str, Act]:
    session, by, text = caller.session, caller.by, how.text
    if how.state not in ("", *State):
        raise Invalid("the form", f"names no state of a task: {how.state!r}", "Open the page again.")
    states = [State(how.state)] if how.state else []

    def do(to: Verb, options: Options) -> Act:
        return lambda: do_to_list(caller, to, run, name, states, options)

    return {
        "retry": do(Verb.RETRY, Options(force=how.force, from_start=how.from_start)),
        "refresh": do(Verb.REFRESH, Options()),
        "restart": do(Verb.RESTART, Options()),
        "cancel": do(Verb.CANCEL, Options()),
        "skip": do(Verb.SKIP, Options()),
        "skip-as-completed": do(Verb.SKIP, Options(as_completed=True, force=how.force)),
        "prioritize": lambda: do_to_list(caller, Verb.PRIORITIZE, run, name, states, _priority(text)),
        "hold": lambda: lists.hold(session, run, name, states, by, text),
        "release": lambda: lists.release(session, run, name, states, by, text, _how(caller, how)),
        "delete": lambda: lists.delete(session, run, name, states, by, caller.approver),
    }


def _of_backfill(caller: Caller, name: str, number: int, how: Meant) -> dict[str, Act]:
    session, by, text = caller.session, caller.by, how.text
    id = find_backfill(session, caller.archive(name), name, number)
    return {
        "hold": lambda: backfill.hold(session, id, by, text),
        "release": lambda: backfill.release(session, id, by, text, _how(caller, how)),
        "cancel": lambda: backfill.cancel(session, id, by, caller.approver),
        "prioritize": lambda: backfill.prioritize(session, id, _priority(text).the_priority(), by),
    }


def _of_archive(caller: Caller, name: str, how: Meant) -> dict[str, Act]:
    archive = caller.archive(name)
    session, by, text = caller.session, caller.by, how.text
    return {
        "pause": lambda: pauses.pause(session, archive, text, by),
        "resume": lambda: pauses.resume(session, archive, name, by),
        "hold": lambda: holds.hold_archive(session, archive, by, text),
        "unhold": lambda: holds.unhold(session, archive, by, text),
        "release": lambda: holds.release_archive(session, archive, by, text, _how(caller, how)),
        "retry": lambda: many.retry_failed_of_archive(session, archive, by, caller.approver),
        "refresh": lambda: retrying.refresh_archive(session, archive, by),
        "purge": lambda: purge_by_age(session, archive, by, text),
        "sync": lambda: registration.sync(session, caller.configuration, archive, by),
    }


def _trigger(caller: Caller, name: str, form: Form, tasks: list[str]) -> Shown | Response:
    """Make a manual run; before that, show what the run would be."""
    new = new_run(name, tasks, form.all("without"), force=form["force"] == "yes")
    if form["sure"] != "yes":
        return preview_of_run(caller, new, name, local(form["back"]))
    # The revision that was shown, even if the head has moved since.
    if (shown := form["revision"]).isdecimal() and len(shown) < 19:
        new.revision = int(shown)
    revision, _ = revision_scanned(caller.session, caller.archive(new.archive), new)
    run = triggering.trigger(
        caller.session,
        revision,
        names=new.tasks,
        without=new.without,
        by=caller.by,
        force=new.force,
        approver=caller.approver,
    )
    (row,) = caller.session.rows("show_runs", runs=[run])
    return RedirectResponse(local(f"/{run_name(row)}"), 303, HEADERS)


def _what_failed(how: Meant, item: str | None = None) -> Options:
    """The options for retrying a run or item: its failed tasks. With force, all tasks that can be
    retried, because the failed ones alone would include none that is out of date.
    """
    if how.force or how.from_start:
        return Options(force=how.force, from_start=how.from_start, item=item)
    return Options(failed=True, item=item)


def _again(how: Meant, item: str | None = None) -> Options:
    """The options for running a task, and everything behind it, again."""
    if not 0 < len(how.task) <= 100:
        raise Invalid("the form", "names no task to start again from", "Choose one.")
    return Options(from_task=how.task, force=how.force, from_start=how.from_start, item=item)


def _priority(text: str, item: str | None = None) -> Options:
    if not re.fullmatch("[0-9]{1,4}", text) or not LEAST_PRIORITY <= int(text) <= GREATEST_PRIORITY:
        fault = f"is not a number from {LEAST_PRIORITY} to {GREATEST_PRIORITY:,}"
        raise Invalid("the priority", fault, f"Lower numbers go first; the default is {USUAL_PRIORITY}.")
    return Options(priority=int(text)) if item is None else Options(priority=int(text), item=item)


def _how(caller: Caller, how: Meant) -> How:
    return How(how.force, how.skip_outdated, caller.approver)


def _chosen(acts: dict[str, Act], verb: str) -> Act:
    if verb not in acts:
        raise NotFound(f"the action {verb!r}", "does not exist on this page", "Open the page again.")
    return acts[verb]


def _said(text: str) -> str:
    if not text:
        raise Invalid("the note", "is empty", "Write what the next person should know.")
    return text
