"""Backfills over HTTP: runs of old revisions with the head's definitions. Included by ``app``
before ``runs``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StrictInt

from arkqueue.archives.backfills import with_lists
from arkqueue.errors import Invalid
from arkqueue.model import ArchiveId
from arkqueue.names import Name
from arkqueue.queue import backfill
from arkqueue.queue.backfill import Lists
from arkqueue.queue.proposed import ProposedRun
from arkqueue.queue.tokens import Scope
from arkqueue.views import backfills, find
from arkqueue.views.backfills import BackfillDetail, BackfillView
from arkqueue.views.prospects import obstacles
from arkqueue.views.reasons import Reason
from arkqueue.views.rows import view_of
from arkqueue.web.access import Caller, admit
from arkqueue.web.api.answers import BackfillAction, on_backfill
from arkqueue.web.api.calls import DryRun, calls
from arkqueue.web.api.holds import Hold, Release, how
from arkqueue.web.api.triggering import as_revision
from arkqueue.web.api.verbs import Options

router: APIRouter = calls("backfills", "/archives/{name}/backfills")

Number = Annotated[int, Path(ge=0, lt=2**31)]  # a person may type 0, and is told what there is


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedBackfill(BackfillDetail):
    """A backfill that would be made. ``first_run``: the run of its first revision. ``obstacles``:
    the reasons that would keep its tasks from starting now.
    """

    first_run: ProposedRun
    obstacles: list[Reason]


class NewBackfill(BaseModel):
    """A backfill. ``first``, ``last``: revisions of the ledger, or SHAs or their beginnings;
    without ``last``, the revision before the head. ``without``: dependencies to leave out.
    """

    model_config = ConfigDict(extra="forbid")

    branch: str | None = None
    tasks: list[str] = Field(min_length=1, max_length=100)
    first: StrictInt | str
    last: StrictInt | str | None = None
    without: list[str] = Field(default_factory=list, max_length=10_000)
    force: bool = False


@router.get("")
def list_backfills(request: Request, name: str) -> list[BackfillView]:
    """The newest backfills of an archive, at most 100."""
    caller = admit(request, Scope.READ)
    return backfills.backfills(caller.session, caller.archive(name))


@router.post("", status_code=201)
def make_backfill(
    request: Request, response: Response, name: str, new: NewBackfill, dry_run: DryRun = False
) -> BackfillDetail | ProposedBackfill:
    """Run tasks for old revisions, in order, with the head's definitions. The first runs are
    planned at once, the others soon after.
    """
    caller = admit(request, Scope.OPERATE)
    archive = caller.archive(name)
    branch = find.find_branch(caller.session, archive, new.branch, name)
    first = _number(caller, archive, name, new.branch, new.first)
    last = None if new.last is None else _number(caller, archive, name, new.branch, new.last)
    first_run: list[ProposedRun] | None = [] if dry_run else None

    def make(lists: Lists | None) -> BackfillDetail | None:
        with caller.acting(dry_run, archive=archive) as acting:
            id = backfill.begin(
                acting.session, archive, branch, first, last,
                names=new.tasks, without=new.without, by=caller.by, force=new.force, approver=caller.approver, lists=lists, first_run=first_run,
            )  # fmt: skip
            return None if id is None else backfills.backfill(acting.session, id)

    made = with_lists(caller.session, caller.configuration, branch, first, new.tasks, make)
    if first_run:
        response.status_code = 200
        hindered = obstacles(caller.session, archive, first_run[0].tasks)
        return view_of(made, ProposedBackfill, first_run=first_run[0], obstacles=hindered)
    response.headers["Location"] = f"/api/v1/archives/{name}/backfills/{made.full_name.rpartition(':')[2]}"
    return made


@router.get("/{number}")
def show_backfill(request: Request, name: str, number: Number) -> BackfillDetail:
    """A backfill: its progress, and its failed and open runs."""
    caller, id = _found(request, name, number, Scope.READ)
    return backfills.backfill(caller.session, id)


@router.post("/{number}/hold")
def hold_backfill(
    request: Request,
    name: str,
    number: Number,
    hold: Hold = Hold(),  # noqa: B008  frozen by use
    dry_run: DryRun = False,
) -> BackfillAction:
    """Hold the unstarted tasks of a backfill, and runs that are planned for it from now on."""
    caller, id = _found(request, name, number)
    with caller.acting(dry_run, archive=caller.archive(name)) as caller:
        return on_backfill(caller, id, backfill.hold(caller.session, id, caller.by, hold.reason))


@router.post("/{number}/release")
def release_backfill(
    request: Request,
    name: str,
    number: Number,
    release: Release = Release(),  # noqa: B008  frozen by use
    dry_run: DryRun = False,
) -> BackfillAction:
    """Release the held tasks of a backfill, the oldest runs first."""
    caller, id = _found(request, name, number)
    with caller.acting(dry_run, archive=caller.archive(name)) as caller:
        done = backfill.release(caller.session, id, caller.by, release.reason, how(caller, release))
        return on_backfill(caller, id, done)


@router.post("/{number}/cancel")
def cancel_backfill(request: Request, name: str, number: Number, dry_run: DryRun = False) -> BackfillAction:
    """Cancel the unsettled tasks of a backfill, and plan no more runs of it."""
    caller, id = _found(request, name, number)
    with caller.acting(dry_run, archive=caller.archive(name)) as caller:
        return on_backfill(caller, id, backfill.cancel(caller.session, id, caller.by, caller.approver))


@router.post("/{number}/prioritize")
def prioritize_backfill(
    request: Request, name: str, number: Number, options: Options, dry_run: DryRun = False
) -> BackfillAction:
    """Set the priority of the unstarted tasks of a backfill."""
    caller, id = _found(request, name, number)
    priority = options.the_priority()
    with caller.acting(dry_run, archive=caller.archive(name)) as caller:
        return on_backfill(caller, id, backfill.prioritize(caller.session, id, priority, caller.by))


def _found(request: Request, name: str, number: int, scope: Scope = Scope.OPERATE) -> tuple[Caller, int]:
    caller = admit(request, scope)
    return caller, backfills.find_backfill(caller.session, caller.archive(name), name, number)


def _number(caller: Caller, archive: ArchiveId, name: str, branch: str | None, given: int | str) -> int:
    """The number of the first or last revision of a backfill. A given number need not be in the
    ledger; the revisions between the two count.
    """
    text = as_revision(given)
    if text.startswith("g"):
        return find.find_revision(caller.session, archive, Name(name, text, branch)).number
    if len(text) > 18:
        raise Invalid(f"revision {text}", "no ledger has so many revisions")
    return int(text)
