"""Runs by hand over HTTP, and the revisions that callers name."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

from fastapi import Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StrictInt

from arkqueue.archives.scan import scan
from arkqueue.db.session import Session
from arkqueue.errors import Conflict, Invalid, NotFound
from arkqueue.model import ArchiveId, BranchId, RunId
from arkqueue.names import Name
from arkqueue.queue import triggering
from arkqueue.queue.proposed import ProposedRun, proposed
from arkqueue.queue.tokens import Scope
from arkqueue.views import find, runs
from arkqueue.views.prospects import obstacles
from arkqueue.views.reasons import Reason
from arkqueue.views.rows import view_of
from arkqueue.views.runs import RunDetail
from arkqueue.web.access import admit
from arkqueue.web.api.calls import calls

router = calls("runs")
_SHA = re.compile(r"g?([0-9a-fA-F]{4,64})")


class NewRun(BaseModel):
    """A run by hand. ``revision``: of the ledger, or a SHA or the beginning of one; without it, the
    head. ``tasks``: only these. ``without``: dependencies to leave out.
    """

    model_config = ConfigDict(extra="forbid")

    archive: str
    branch: str | None = None
    revision: StrictInt | str | None = None
    tasks: list[str] | None = Field(default=None, min_length=1, max_length=10_000)
    without: list[str] = Field(default_factory=list, max_length=10_000)
    force: bool = False


@dataclass(slots=True, kw_only=True)  # not frozen, as TaskView
class MadeRun(RunDetail):
    """A run that was made by hand. ``note``: the reason why the newest commits may be missing in
    it; empty if they are not.
    """

    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedAndScanned(ProposedRun):
    """A run that would be made, by hand or for a submission. ``note``: as in ``MadeRun``.
    ``obstacles``: the reasons that would keep its tasks from starting now.
    """

    note: str
    obstacles: list[Reason]


@router.post("/runs", status_code=201)
def trigger_run(
    request: Request,
    response: Response,
    new: NewRun,
    dry_run: Annotated[bool, Query(description="say what would run, and make nothing")] = False,
) -> MadeRun | ProposedAndScanned:
    """Make a run by hand, of the named tasks, or of all that run both on commits and by hand. The
    repository is scanned first, so that the newest revisions are in the ledger.
    """
    caller = admit(request, Scope.OPERATE)
    archive = caller.archive(new.archive)
    revision, note = revision_scanned(caller.session, archive, new)
    if dry_run:
        response.status_code = 200
        would_be = proposed(
            caller.session, revision, names=new.tasks, without=new.without, force=new.force, approver=caller.approver
        )
        hindered = obstacles(caller.session, archive, would_be.tasks)
        return view_of(would_be, ProposedAndScanned, note=note, obstacles=hindered)
    run = triggering.trigger(
        caller.session,
        revision,
        names=new.tasks,
        without=new.without,
        by=caller.by,
        force=new.force,
        approver=caller.approver,
    )
    response.headers["Location"] = f"/api/v1/runs/{run}"
    return view_of(runs.run(caller.session, RunId(run)), MadeRun, note=note)


def revision_scanned(session: Session, archive: ArchiveId, new: NewRun) -> tuple[int, str]:
    """Scan the repository, then find the revision as `revision_wanted` does (design 5.31). Also
    returns the reason why the newest commits may be missing. A known revision needs no scan.
    """
    if new.revision is not None:
        with suppress(NotFound):
            return revision_wanted(session, archive, new), ""
    note = scan(session, archive)
    return revision_wanted(session, archive, new), note


def revision_wanted(session: Session, archive: ArchiveId, new: NewRun) -> int:
    """The id of the ledger's entry for which a run is requested."""
    if new.revision is None:
        return head_wanted(session, archive, new.archive, new.branch)[0]
    return find.find_revision(session, archive, Name(new.archive, as_revision(new.revision), new.branch)).id


def head_wanted(session: Session, archive: ArchiveId, name: str, branch: str | None) -> tuple[int, BranchId]:
    """The id of the last entry of a branch's ledger (None: the main branch), and the id of the
    branch. ``name``: the archive's name.
    """
    found = find.find_branch(session, archive, branch, name)
    head = session.rows("head_revision", branch=found)
    if not head:
        raise Conflict(f"archive {name}", "has no revision yet", f"arkqueue sync {name}")
    return int(head[0].id), found


def as_revision(given: int | str) -> str:
    """A caller's revision in the form that names use: a number, or ``g`` and the beginning of a
    SHA.
    """
    text = str(given)
    if text.isascii() and text.isdecimal():
        return text
    if match := _SHA.fullmatch(text):
        return "g" + match[1]
    raise Invalid(f"revision {text!r}", "is neither a number nor a SHA", "Give one of them.")
