"""Makes backfills from the form of a trigger: tasks over old revisions, which are shown before any
of them is planned.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from arkqueue.errors import Invalid
from arkqueue.names import parse_branch
from arkqueue.web.access import Caller
from arkqueue.web.api.backfills import NewBackfill, make_backfill
from arkqueue.web.pages.answer import HEADERS, Shown, local
from arkqueue.web.pages.forms import Form, valid
from arkqueue.web.pages.proposing import MOST_TASKS
from arkqueue.web.pages.refusals import overruled

SHOWN: Final = ("task", "without", "first", "last")
"""The fields of the form of a trigger, which are shown again."""


def page_of(form: Form) -> str:
    """The page of a form: where its person comes from; of the form of a trigger, this form with its
    choices.
    """
    if form["verb"] != "trigger":
        return local(form["back"])
    chosen = [(field, value) for field, value in form.fields() if field in SHOWN]
    return f"/-/trigger?{urlencode([('of', form['name']), *chosen])}"


def fill(caller: Caller, request: Request, form: Form) -> Shown | Response:
    """Make a backfill; before that, show what the backfill would be."""
    if "@" in form["name"]:
        raise Invalid("a backfill", "takes the workflow files of the newest revision", "Open the form of the archive.")
    archive, branch = parse_branch(form["name"])
    if not form["first"]:
        raise Invalid("a backfill", "has a last revision and no first one", "Write the first one, too.")
    if not (tasks := form.all("task")):
        raise Invalid("a backfill", "names no task", "Choose the tasks that are to run at these revisions.")
    new = valid(
        NewBackfill,
        branch=branch,
        tasks=tasks,
        first=form["first"],
        last=form["last"] or None,
        without=form.all("without"),
        force=form["force"] == "yes",
    )
    caller.archive(archive)
    is_sure = form["sure"] == "yes"
    made = make_backfill(request, Response(), archive, new, dry_run=not is_sure)
    if is_sure:
        return RedirectResponse(local(f"/{made.full_name}"), 303, HEADERS)
    plain = new.model_copy(update={"force": False})
    fields = form.fields("form", "sure", "name", "verb", "back", "last")
    return Shown(
        "preview-fill.html",
        {
            "name": form["name"],
            "fill": made,
            "overruled": overruled("backfill", lambda: make_backfill(request, Response(), archive, plain, dry_run=True))
            if new.force
            else None,
            "most": MOST_TASKS,
            "back": local(form["back"]),
            "_again": urlencode([(field, value) for field, value in form.fields("force") if field in SHOWN]),
            # Revisions that arrive in the meantime were not shown, and are left out.
            "_fields": [*fields, ("last", str(made.last))],
        },
    )
