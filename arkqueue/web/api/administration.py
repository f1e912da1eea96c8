"""The installation over HTTP: tokens, task managers, health and metrics."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, ConfigDict, Field

from arkqueue.archives.registration import check_name
from arkqueue.errors import DatabaseUnavailable, Forbidden, NotFound
from arkqueue.queue import pauses, sign_ins, tokens
from arkqueue.queue.tokens import Scope, Token
from arkqueue.states import UNSETTLED, State
from arkqueue.views.doctor import Diagnosis, examine
from arkqueue.views.find import find_archive
from arkqueue.views.installation import TaskManagerView, faults_of, host_named, measure, task_managers
from arkqueue.views.status import Status, status
from arkqueue.web.access import admit
from arkqueue.web.api.archives import NewPause
from arkqueue.web.api.calls import calls
from arkqueue.web.openid_check import with_openid
from arkqueue.web.public_check import with_public

PATIENCE = 5.0
"""Seconds after which /healthz reports that the database does not answer: its callers do not wait
long.
"""

router = calls("installation")
open_router = APIRouter(tags=["installation"])
"""The calls that need no token."""


class NewToken(BaseModel):
    """A token to make. Without archives, it is for all."""

    model_config = ConfigDict(extra="forbid")

    name: str
    scope: Scope
    archives: list[str] | None = Field(default=None, min_length=1, max_length=1000)
    authors: list[str] = Field(default_factory=list, max_length=100, description="the persons that it stands for")


class MadeToken(BaseModel):
    """A new token with its secret, which is shown only once."""

    id: int
    name: str
    scope: Scope
    archives: list[str] | None
    created_at: datetime
    token: str


class SignInLink(BaseModel):
    """A link that signs a browser in: the path after the server's address, and the seconds for
    which it is valid.
    """

    path: str
    seconds: int


@router.get("/whoami")
def whoami(request: Request) -> Token:
    """The token of this request."""
    return admit(request).token


@router.get("/tokens")
def list_tokens(request: Request) -> list[Token]:
    """All tokens, without their secrets, which are not stored."""
    caller = admit(request, Scope.ADMIN)
    return [token for token in tokens.tokens(caller.session) if _is_within(token, caller.token)]


@router.post("/tokens", status_code=201)
def create_token(request: Request, new: NewToken) -> MadeToken:
    """Make a token, with no more rights than the token of this request."""
    caller = admit(request, Scope.ADMIN)
    for archive in new.archives or ():
        check_name(archive)
    if caller.token.archives is not None and not set(new.archives or ["*"]) <= set(caller.token.archives):
        fault = f"is for {', '.join(caller.token.archives)} only"
        raise Forbidden(f"token {caller.token.name}", fault, "Name archives among these.")
    for archive in new.archives or ():
        find_archive(caller.session, archive)
    made, secret = tokens.create(
        caller.session, name=new.name, scope=new.scope, archives=new.archives, authors=new.authors, by=caller.by
    )
    return MadeToken(
        id=made.id, name=made.name, scope=made.scope, archives=made.archives, created_at=made.created_at, token=secret
    )


@router.delete("/tokens/{id}", status_code=204, response_class=Response)
def revoke_token(request: Request, id: int) -> None:
    """Revoke a token."""
    caller = admit(request, Scope.ADMIN)
    if id >= 2**63 or not _is_within(tokens.one(caller.session, id), caller.token):
        raise NotFound(f"token {id}", "does not exist")
    tokens.revoke(caller.session, id, caller.by)
    request.app.state.callers.forget()


def _is_within(token: Token, admin: Token) -> bool:
    return admin.archives is None or (token.archives is not None and set(token.archives) <= set(admin.archives))


@router.post("/sign-in-links", status_code=201)
def create_sign_in_link(request: Request) -> SignInLink:
    """Make a link that signs one browser in to the pages, once, with the rights of this token. It
    is valid for ten minutes.
    """
    caller = admit(request, Scope.READ)
    return SignInLink(path=f"/-/sign-in?code={sign_ins.code(caller.session, caller.token)}", seconds=int(sign_ins.LINK))


@router.get("/status")
def show_status(request: Request, archive: str | None = None) -> Status:
    """The archives, runs and tasks that need a person, the faults of the installation, and the
    numbers of running and waiting tasks. Each archive has a few lines of each kind, and one that
    counts the others. ``archive``: list the needs of this archive alone, up to 500 of each kind. A
    token for some archives gets the needs of these archives alone.
    """
    caller = admit(request, Scope.READ)
    lease = caller.configuration.lease
    if archive is not None:
        return status(caller.session, [archive], [caller.archive(archive)], lease, is_whole=True)
    return status(caller.session, caller.token.archives, caller.archives(), lease)


@router.get("/task-managers")
def list_task_managers(request: Request) -> list[TaskManagerView]:
    """The task managers that run, or ran within a day."""
    return task_managers(admit(request, Scope.READ).session)


@router.post("/task-managers/{name}/drain")
def drain(request: Request, name: str, pause: NewPause = NewPause()) -> list[TaskManagerView]:  # noqa: B008  frozen by use
    """Let the task managers of a host claim nothing, later started ones included. The host is given
    by its name, or by the beginning of its id.
    """
    caller = admit(request, Scope.OPERATE)
    caller.require_every_archive("draining a task manager")
    host = host_named(caller.session, name)
    pauses.drain(caller.session, host, pause.reason, caller.by)
    return [one for one in task_managers(caller.session) if one.host == host]


@router.post("/task-managers/{name}/resume")
def resume_worker(request: Request, name: str, end: NewPause = NewPause()) -> list[TaskManagerView]:  # noqa: B008  frozen by use
    """Let the task managers of a host claim again."""
    caller = admit(request, Scope.OPERATE)
    caller.require_every_archive("draining a task manager")
    host = host_named(caller.session, name)
    pauses.resume_worker(caller.session, host, name, caller.by, end.reason)
    return [one for one in task_managers(caller.session) if one.host == host]


@router.post("/pause", status_code=204, response_class=Response)
def pause_all(request: Request, pause: NewPause = NewPause()) -> None:  # noqa: B008  frozen by use
    """Let no task of any archive start."""
    caller = admit(request, Scope.OPERATE)
    caller.require_every_archive("a pause of the installation")
    pauses.pause_all(caller.session, pause.reason, caller.by)


@router.post("/resume", status_code=204, response_class=Response)
def resume_all(request: Request, end: NewPause = NewPause()) -> None:  # noqa: B008  frozen by use
    """End the pause of the installation. Archives that are paused themselves stay paused."""
    caller = admit(request, Scope.OPERATE)
    caller.require_every_archive("a pause of the installation")
    pauses.resume_all(caller.session, caller.by, end.reason)


@router.get("/doctor")
def doctor(request: Request, archive: str | None = None) -> Diagnosis:
    """Check the database for rows that break arkqueue's rules: of one archive, or of all archives
    and of rows without one. Without an archive, also check the names of public archives, and whether
    persons can sign in with their provider.
    """
    caller = admit(request, Scope.ADMIN)
    if archive is None:
        caller.require_every_archive("/doctor")
        found = with_public(examine(caller.session), caller.session, caller.configuration)
        return with_openid(found, caller.session, caller.configuration)
    return examine(caller.session, caller.archive(archive))


@open_router.head("/healthz", include_in_schema=False)
@open_router.get("/healthz")
def health(request: Request) -> JSONResponse:
    """Whether this server can do its work; 503 with the faults if it cannot."""
    session = request.app.state.session
    try:
        numbers = measure(session, PATIENCE)
    except DatabaseUnavailable:
        return JSONResponse({"status": "failing", "faults": ["the database does not answer"]}, 503)
    faults, managed = faults_of(numbers, request.app.state.configuration.lease)
    return JSONResponse({"status": "degraded" if faults else "ok", "faults": faults, "queue_manager": managed})


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(request: Request) -> PlainTextResponse:
    """Metrics for Prometheus."""
    caller = admit(request, Scope.READ)
    caller.require_every_archive("/metrics")
    n = measure(caller.session)
    gauges: list[tuple[str, str, str, dict[str, Any]]] = [
        ("tasks", "gauge", "Tasks that are not settled, by state.",
         {f'{{state="{s}"}}': n.tasks.get(s, 0) for s in State if s in UNSETTLED}),
        ("tasks_planned_total", "counter", "Tasks that were ever planned.", {"": n.tasks_planned}),
        ("attempts_total", "counter", "Attempts that were ever started.", {"": n.attempts_begun}),
        ("attempts_live", "gauge", "Attempts that are running.", {"": n.attempts_live}),
        ("attempts_lapsed", "gauge", "Running attempts whose lease is over.", {"": n.attempts_lapsed}),
        ("archives", "gauge", "Watched archives.", {"": n.archives}),
        ("archives_in_trouble", "gauge", "Archives whose last scan failed.", {"": n.archives_in_trouble}),
        ("archives_stopped", "gauge", "Archives that are not read until they are rewound.", {"": n.archives_stopped}),
        ("archives_paused", "gauge", "Archives whose tasks do not start until a person resumes them.", {"": n.archives_paused}),
        ("locks_paused", "gauge", "Locks that a person has paused, so that no task that names one of them starts.", {"": n.locks_paused}),
        ("deliveries_failing", "gauge", "Notifications that failed more than twice, and are tried again.", {"": n.deliveries_failing}),
        ("deliveries_failed", "gauge", "Notifications that were given up in the last week.", {"": n.deliveries_failed}),
        ("fires_left_out", "gauge", "Fires of schedules that made no run, because the last run waits, is held or failed.", {"": n.fires_left_out[0]}),
        ("oldest_notice_seconds", "gauge", "Age of the oldest waiting notice.", {"": n.oldest_notice or 0}),
        ("oldest_ready_seconds", "gauge", "Time since the oldest ready task became ready.", {"": n.oldest_ready or 0}),
        ("queue_manager_silence_seconds", "gauge", "Time since a queue manager last reported.", {"": n.silence_of_queue_managers}),
        ("task_managers", "gauge", "Task managers that are running.", {"": n.task_managers}),
        ("task_managers_unfit", "gauge", "Task managers that can start no tasks now, or none in containers.",
         {"": n.task_managers_unfit}),
        ("task_managers_low_on_disk", "gauge", "Task managers that claim nothing, because a disk has less room than min_free.",
         {"": n.task_managers_low_on_disk}),
        ("task_managers_drained", "gauge", "Task managers that claim nothing until a person ends the drain.", {"": n.task_managers_drained}),
        ("slots", "gauge", "Tasks that can run at once.", {"": n.slots}),
    ]  # fmt: skip
    lines: list[str] = []
    for name, kind, text, values in gauges:
        lines += [f"# HELP arkqueue_{name} {text}", f"# TYPE arkqueue_{name} {kind}"]
        lines += [f"arkqueue_{name}{labels} {value}" for labels, value in values.items()]
    return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4; charset=utf-8")
