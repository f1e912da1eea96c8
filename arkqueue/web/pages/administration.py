"""The pages that are not about runs: locks, schedules, task managers, tokens, the audit log, and
the settings of archives.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.errors import Invalid
from arkqueue.model import ArchiveKind
from arkqueue.names import branch_name, page_path
from arkqueue.queue.tokens import Scope
from arkqueue.views.archives import ArchiveView, ScheduleView, scheduled
from arkqueue.views.archives import archive as show_archive
from arkqueue.views.audit import audit_log
from arkqueue.views.installation import TaskManagerView, pause_of_all, running_now, task_managers
from arkqueue.views.locks import locks
from arkqueue.views.notifications import STATES, deliveries
from arkqueue.web.access import admit
from arkqueue.web.api.administration import list_tokens
from arkqueue.web.api.archives import HOST, Settings
from arkqueue.web.pages.answer import Shown, asked, asked_id
from arkqueue.web.pages.archive import removal_shown
from arkqueue.web.pages.forms import Form
from arkqueue.web.pages.helping import STOP_FORMS
from arkqueue.web.pages.visitor import SignInNeeded, Visitor

MOST_RUNNING: Final = 500
"""The most running tasks that the page of the task managers names."""
ENTRIES: Final = 50
"""The entries of the audit log, or notifications, on a page."""
LONG: Final = frozenset({"branches", "follow", "images", "users", "networks", "require_approval", "workflow_authors", "keep", "notify"})  # fmt: skip
"""The settings that have a line for each of their parts."""


SECTIONS: Final = {
    "The repository": ("branches", "follow", "author", "task_url"),
    "Where its tasks run": ("process", "process_user", "image", "images", "users", "networks"),
    "When they start": ("tier", "max_running"),
    "Who decides": ("require_approval", "approval_not_author", "workflow_authors"),
    "What is kept": ("keep", "keep_logs"),
    "Who is told": ("notify",),
}
"""The settings, in the order of the form."""
IN_LINES: Final = {
    "keep": "how long its runs are kept, a state on each line: completed 30d; those of other states for ever",
    "notify": "who is told of its runs, a receiver on each line, and then of what: ann@example.org failed fixed held completed stopped;"
    " without these words: of all but completed; branch=GLOB behind them: of runs on these branches alone. A receiver is an address,"
    " the URL of a webhook, or author.",
}
"""The settings that are lines in the form, and JSON in the API."""


@dataclass(frozen=True, slots=True)
class Field:
    """A setting as a form shows it. ``about``: its meaning. ``is_host``: only a token for all
    archives may change it.
    """

    name: str
    value: str
    about: str
    kind: str
    is_host: bool


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A schedule, and the address of its archive or branch."""

    address: str
    schedule: ScheduleView


@dataclass(frozen=True, slots=True)
class Manager:
    """A task manager. ``running``: its running tasks that the visitor may see."""

    manager: TaskManagerView
    running: list[str]


def locks_page(visitor: Visitor, request: Request) -> Shown:  # noqa: ARG001  every page gets its request
    """The locks, with the tasks that have them and those that come next."""
    caller = visitor.caller
    return Shown("locks.html", {"locks": locks(caller.session, caller.archives())})


def schedules_page(visitor: Visitor, request: Request) -> Shown:  # noqa: ARG001
    """The schedules, the next one first."""
    caller = visitor.caller
    found = [
        Scheduled(branch_name(archive.name, None if schedule.branch in mains(archive) else schedule.branch), schedule)
        for archive in scheduled(caller.session, caller.token.archives)
        for schedule in archive.schedules
    ]
    return Shown("schedules.html", {"schedules": sorted(found, key=lambda one: one.schedule.next_at)})


def mains(archive: ArchiveView) -> set[str]:
    """The name of an archive's main branch, if it has one."""
    return {branch.name for branch in archive.branches if branch.main}


def task_managers_page(visitor: Visitor, request: Request) -> Shown:  # noqa: ARG001
    """The task managers: slots, load, problems."""
    caller = visitor.caller
    known = task_managers(caller.session)
    running = running_now(caller.session, caller.archives(), MOST_RUNNING)
    alive = [one for one in known if one.alive]
    newest = {
        one.host: one for one in reversed(known)
    }  # of the stopped ones, the last one of each host where none is alive
    managers = [Manager(one, running.get(one.process, [])) for one in known if one.alive or newest[one.host] is one]
    return Shown(
        "task-managers.html",
        {
            "managers": managers,
            "slots": sum(one.slots for one in alive),
            "busy": sum(one.busy for one in alive),
            "paused": pause_of_all(caller.session),
        },
    )


def tokens_page(visitor: Visitor, request: Request, made: Any = None, sent: Form | None = None) -> Shown:  # noqa: ARG001
    """All tokens that the visitor may see. ``made``: a token that was just made, with its secret.
    ``sent``: a refused form, which is shown again.
    """
    names = {"tokens": list_tokens(request), "scopes": [str(one) for one in Scope], "made": made, "_sent": sent}
    return Shown("tokens.html", names)


def audit_page(visitor: Visitor, request: Request) -> Shown:
    """The audit log, filtered by ``?by=``, ``?verb=`` and ``?archive=``."""
    caller = visitor.caller
    by, verb, archive = (asked(request, name) for name in ("by", "verb", "archive"))
    entries, following = audit_log(
        caller.session,
        [caller.archive(archive)] if archive else caller.archives(),
        by=by,
        verb=verb,
        before=asked_id(request, "before"),
        most=ENTRIES,
        hidden=caller.token.scope.allows(Scope.ADMIN),
    )
    if visitor.is_anybody:  # these notes contain receivers of notifications
        entries = [replace(entry, note="") if entry.verb in ("set", "resend") else entry for entry in entries]
    names = {"entries": entries, "next": following, "by": by, "verb": verb, "of": archive}
    return Shown("audit-log.html", names)


def notifications_page(visitor: Visitor, request: Request) -> Shown:
    """The notifications, with their receivers and errors, filtered by ``?archive=`` and
    ``?state=``, which may come several times. Receivers are persons, so only a visitor who has
    signed in sees them.
    """
    if visitor.is_anybody:
        raise SignInNeeded
    caller = visitor.caller
    archive = asked(request, "archive")
    states = [state for state in dict.fromkeys(request.query_params.getlist("state")) if state]
    for state in states:
        if state not in STATES:
            raise Invalid(
                "the state", f"is not a state of a notification: {state!r}", f"There are: {', '.join(STATES)}."
            )
    page = deliveries(
        caller.session,
        [caller.archive(archive)] if archive else caller.archives(),
        states=states,
        before=asked_id(request, "before"),
        limit=ENTRIES,
    )
    asked_for = [("archive", archive)] * bool(archive) + [("state", state) for state in states]
    names = {"deliveries": page.deliveries, "next": page.next, "of": archive, "asked": states}
    return Shown("notifications.html", {**names, "_states": STATES, "_query": f"?{urlencode(asked_for)}" * bool(asked_for)})  # fmt: skip


def settings_page(visitor: Visitor, request: Request) -> Shown:
    """The settings of an archive; those of a removed one are only shown. ``?open=``: the form that
    is open at the beginning, if the visitor has it.
    """
    if visitor.is_anybody:
        raise SignInNeeded  # the settings contain receivers
    caller = visitor.caller
    view = show_archive(caller.session, caller.archive(request.path_params["name"]))
    has_correction = view.kind is ArchiveKind.SUBVERSION
    forms = [form for form in STOP_FORMS if form != "accept" or has_correction] if visitor.may_administer else []
    opened = asked(request, "open")
    shown = shown_settings(view, opened=opened if opened in forms else "")
    return Shown(shown.template, {**shown.names, **removal_shown(visitor, view)})


def shown_settings(view: ArchiveView, goes: Any = None, sent: Form | None = None, opened: str = "") -> Shown:
    """The page of an archive's settings. ``goes``: what the rules for keeping, which are being
    tried, would remove. ``sent``: a form that was refused or tried, which is shown again.
    ``opened``: the verb whose form is open.
    """
    fields = fields_of(view.settings)
    was = json.dumps({field.name: field.value for field in fields})
    if sent is not None:
        fields = [replace(field, value=sent[field.name]) for field in fields]
        was = sent["was"] or was
    begins = {names[0]: title for title, names in SECTIONS.items()}
    names = {"archive": view, "fields": fields, "goes": goes, "_sections": begins, "_was": was, "_opened": opened}
    names["_is_sent"] = sent is not None  # its address is not that of the page, which cannot follow changes then
    return Shown("settings.html", {**names, "_here": f"/-/settings/{page_path(view.name)}"})


def adding_page(visitor: Visitor, request: Request, sent: Form | None = None) -> Shown:  # noqa: ARG001
    """The form that registers an archive. ``sent``: a refused form, which is shown again."""
    admit(request, Scope.ADMIN).require_every_archive("registering one, which may be of any repository,")
    return Shown("add-archive.html", {"_sent": sent or Form(b"")})


def fields_of(settings: ArchiveSettings) -> list[Field]:
    """The settings of an archive as a form shows them, section by section. A setting that no
    section names comes last.
    """
    known = dict.fromkeys(name for names in SECTIONS.values() for name in names)
    return [
        Field(
            name,
            _text(getattr(settings, name)),
            IN_LINES.get(name) or Settings.model_fields[name].description or "",
            _kind(name),
            name in HOST,
        )
        for name in [*known, *(name for name in Settings.model_fields if name not in known)]
    ]


def _kind(name: str) -> str:
    if name in LONG:
        return "lines"
    return "yes" if name in ("process", "approval_not_author") else "line"


def _text(value: Any) -> str:
    """A setting as the text of its field."""
    if isinstance(value, Mapping):
        return "\n".join(f"{key} {one if isinstance(one, str) else ' '.join(one)}" for key, one in value.items())
    if isinstance(value, tuple):
        return "\n".join(value)
    if isinstance(value, bool):
        return "yes" if value else ""
    return "" if value is None else str(value)
