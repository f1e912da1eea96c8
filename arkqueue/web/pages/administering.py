"""The forms of the administration pages. They call the verbs of the API, which check the scopes
(`web.api`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from arkqueue.errors import ArkqueueError, Conflict, Forbidden, Invalid, NotFound
from arkqueue.lock_names import is_global
from arkqueue.model import MOST_CAPACITY
from arkqueue.names import page_path
from arkqueue.queue.tokens import Scope
from arkqueue.views.archives import ArchiveView, contents_of
from arkqueue.views.archives import archive as show_archive
from arkqueue.views.notifications import archive_of
from arkqueue.web.access import admit
from arkqueue.web.api import administration, archives, locks
from arkqueue.web.api.administration import NewToken
from arkqueue.web.api.archives import Correction, NewArchive, NewPause, Rewind, Settings, Waiver
from arkqueue.web.api.deliveries import list_deliveries, resend_delivery
from arkqueue.web.api.locks import Capacity
from arkqueue.web.pages.administration import LONG, adding_page, shown_settings, tokens_page
from arkqueue.web.pages.answer import HEADERS, Shown, answer, local, refused_page
from arkqueue.web.pages.forms import Form, number, valid
from arkqueue.web.pages.preview import preview_of_archive_removal, preview_of_rewind, preview_of_waiver
from arkqueue.web.pages.refusals import filled_again
from arkqueue.web.pages.sessions import end_sessions
from arkqueue.web.pages.visitor import Visitor, check_form

MOST_RESENT: Final = 500
"""The most failed notifications that one form sends again, as on the command line."""


def administer(visitor: Visitor, request: Request, body: bytes) -> Shown | Response:
    """Carry out the action of a form. Then show the page of the form again, or what the action
    made.
    """
    form = Form(body)
    check_form(request, visitor, form["form"])
    act = ACTS.get(request.path_params["act"])
    if act is None:
        raise NotFound(
            f"the form {request.path_params['act']!r}", "does not exist on this page", "Open the page again."
        )
    of = form["name"] or form["lock"]
    if request.path_params["act"] in OF_AN_ARCHIVE and not is_global(of):
        visitor = visitor.at(of)
        request.state.token = visitor.caller.token
    try:
        went = act(visitor, request, form)
    except Forbidden:
        raise
    except ArkqueueError as error:
        if filled := _filled_again(visitor, request, form):
            return refused_page(request, visitor, error, local(form["back"]), filled=filled)
        raise
    return went if isinstance(went, Shown | Response) else RedirectResponse(local(went or form["back"]), 303, HEADERS)


def _filled_again(visitor: Visitor, request: Request, form: Form) -> Callable[[], Shown] | None:
    """The page of a refused form, with its input; None: nobody writes anything in this form."""
    act = request.path_params["act"]
    pages: dict[str, Callable[[], Shown]] = {
        "change-settings": lambda: shown_settings(_archive_of(visitor, form), sent=form),
        "add-archive": lambda: adding_page(visitor, request, form),
        "make-token": lambda: tokens_page(visitor, request, sent=form),
    }
    return pages.get(act) or filled_again(f"/-/act/{act}", form)


def _archive_of(visitor: Visitor, form: Form) -> ArchiveView:
    caller = visitor.caller
    return show_archive(caller.session, caller.archive(form["name"]))


def _set_lock(visitor: Visitor, request: Request, form: Form) -> None:  # noqa: ARG001  all acts are called alike
    thing, text = "the number of tasks at once", form["capacity"]
    capacity = None if text in ("", "unlimited") else number(thing, text)
    if capacity is not None and not 1 <= capacity <= MOST_CAPACITY:
        fault = f"is not a number from 1 to {MOST_CAPACITY:,}"
        raise Invalid(thing, fault, "Leave it empty for any number. To let no task start, pause the lock.")
    locks.set_lock(request, form["name"] or form["lock"], valid(Capacity, capacity=capacity))


def _resend(visitor: Visitor, request: Request, form: Form) -> None:
    """Send a notification again, with the visitor's scope for its archive."""
    id = number("the notification", form["name"])
    archive = archive_of(visitor.caller.session, id)
    if visitor.caller.token.covers(archive):  # else the call answers as if there were no such notification
        request.state.token = visitor.at(archive).caller.token
    resend_delivery(request, id)


def _resend_failed(visitor: Visitor, request: Request, form: Form) -> None:  # noqa: ARG001
    """Send the failed notifications of an archive again, the oldest first."""
    found = list_deliveries(request, form["name"], ["failed"], limit=MOST_RESENT).deliveries
    if not found:
        raise Conflict(f"archive {form['name']}", "has no notification that failed")
    for one in reversed(found):
        resend_delivery(request, one.id)


def _make_token(visitor: Visitor, request: Request, form: Form) -> Shown:
    wanted = valid(NewToken, name=form["name"], scope=form["scope"], archives=form["archives"].split() or None, authors=_lines(form["authors"]))  # fmt: skip
    return tokens_page(visitor, request, administration.create_token(request, wanted))


def _change_settings(visitor: Visitor, request: Request, form: Form) -> Shown | str:  # noqa: ARG001
    """Change the settings that differ from those that the form showed, so that another person's
    changes in the meantime stay.
    """
    try:
        was = json.loads(form["was"])
        changed = {name for name in Settings.model_fields if form[name].split() != str(was[name]).split()}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Invalid(
            "the form", "is out of date, or was changed", "Open the page again, and send the form there."
        ) from error
    wanted = valid(Settings, **{name: _value(name, form[name]) for name in changed})
    is_trial = form["try"] == "yes"
    shown = archives.change_archive(request, form["name"], wanted, dry_run=is_trial)
    return shown_settings(shown, shown.goes, form) if is_trial else ""


def _add_archive(visitor: Visitor, request: Request, form: Form) -> str:  # noqa: ARG001
    given: dict[str, Any] = {name: form[name] for name in ("name", "url", "kind", "start", "image") if form[name]}
    archives.add_archive(request, Response(), valid(NewArchive, **given, process=form["process"] == "yes"))
    return f"/{page_path(form['name'])}"


def _remove_archive(visitor: Visitor, request: Request, form: Form) -> str | Shown | Response:
    """Remove an archive; before that, show the consequences."""
    if form["text"] != form["name"]:
        again = Shown("remove-archive.html", {"name": form["name"], "typed": form["text"], "back": local(form["back"])})
        return answer(request, visitor, again, 422)
    if form["sure"] != "yes":
        caller = admit(request, Scope.ADMIN)
        return preview_of_archive_removal(
            form["name"], contents_of(caller.session, caller.archive(form["name"])), local(form["back"])
        )
    archives.remove_archive(request, form["name"])
    return "/"


def _rewind(visitor: Visitor, request: Request, form: Form) -> Shown | None:  # noqa: ARG001
    """Rewind an archive; before that, show the consequences."""
    wanted = valid(Rewind, revision=form["revision"], branch=form["branch"] or None)
    is_sure = form["sure"] == "yes"
    rewound = archives.rewind_archive(request, form["name"], wanted, dry_run=not is_sure)
    return None if is_sure else preview_of_rewind(form["name"], wanted, rewound, local(form["back"]))


def _accept(visitor: Visitor, request: Request, form: Form) -> None:  # noqa: ARG001
    revision = number("the revision", form["revision"])
    archives.accept_correction(request, form["name"], valid(Correction, revision=revision))


def _waive(visitor: Visitor, request: Request, form: Form) -> Shown | None:  # noqa: ARG001
    """Waive the failures of a task up to a revision; before that, show the consequences."""
    until, name = number("the revision", form["revision"]), form["name"]
    wanted = valid(Waiver, task=form["task"], until=until, branch=form["branch"] or None)
    if form["sure"] == "yes":
        archives.waive_until(request, name, wanted)
        return None
    caller = admit(request, Scope.OPERATE)
    return preview_of_waiver(
        caller, name, wanted, local(form["back"]), lambda rehearsed: archives.waive_failures(rehearsed, name, wanted)
    )


ACTS: Final[dict[str, Callable[[Visitor, Request, Form], Shown | Response | str | None]]] = {
    "set-lock": _set_lock,
    "pause-lock": lambda _, request, form: _done(locks.pause_lock(request, form["name"], _why(form))),
    "resume-lock": lambda _, request, form: _done(locks.resume_lock(request, form["name"])),
    "drain": lambda _, request, form: _done(administration.drain(request, form["name"], _why(form))),
    "resume-worker": lambda _, request, form: _done(administration.resume_worker(request, form["name"])),
    "pause-all": lambda _, request, form: _done(administration.pause_all(request, _why(form))),
    "resume-all": lambda _, request, _form: _done(administration.resume_all(request)),
    "resend": _resend,
    "resend-failed": _resend_failed,
    "end-sessions": end_sessions,
    "make-token": _make_token,
    "revoke-token": lambda _, request, form: _done(administration.revoke_token(request, number("the token", form["name"]))),
    "change-settings": _change_settings,
    "add-archive": _add_archive,
    "remove-archive": _remove_archive,
    "rewind": _rewind,
    "accept": _accept,
    "waive": _waive,
}  # fmt: skip


OF_AN_ARCHIVE: Final = frozenset({"change-settings", "remove-archive", "rewind", "accept", "waive", "set-lock", "pause-lock", "resume-lock", "resend-failed"})  # fmt: skip
"""The forms that concern an archive, or a lock of one: the person's scope for this archive counts.
"""


def _done(_: object) -> None:
    """Nothing else: the page of the form shows the result."""


def _why(form: Form) -> NewPause:
    return valid(NewPause, reason=form["text"])


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _value(name: str, text: str) -> Any:
    """A setting from the text of its field."""
    if name == "keep":
        pairs = [line.partition(" ") for line in _lines(text)]
        states = [state for state, _, _ in pairs]
        if twice := next((state for state in states if states.count(state) > 1), None):
            raise Invalid(f"keep {twice}", "is given twice", "Write one line for each state.")
        return {state: age.strip() for state, _, age in pairs} or None
    if name == "notify":
        words = [line.split() for line in _lines(text)]
        return {receiver: occasions for receiver, *occasions in words} or None
    if name in LONG:
        return _lines(text) or None
    if name in ("process", "approval_not_author"):
        return text == "yes"
    if name in ("tier", "max_running"):
        return number(name.replace("_", "-"), text) if text else None
    return text or None
