"""Holds and releases over HTTP (design 5.21, 5.22). Included by ``app`` before ``runs``, whose ``/tasks/{id}/{verb}`` would take these addresses."""

from __future__ import annotations

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field

from arkqueue.errors import Invalid
from arkqueue.model import RunId
from arkqueue.queue import holds, lists, many
from arkqueue.queue.holds import How
from arkqueue.queue.tokens import Scope
from arkqueue.queue.walk import alone
from arkqueue.views import archives as views
from arkqueue.views import tasks
from arkqueue.views.archives import ArchiveView
from arkqueue.views.find import check_list
from arkqueue.views.tasks import TaskDetail
from arkqueue.web.access import Caller, admit
from arkqueue.web.api.answers import ArchiveAction, RunAction, on_archive, on_run
from arkqueue.web.api.calls import DryRun, calls
from arkqueue.web.api.verbs import LONGEST_NOTE, Item, OfList, States, check_states

router = calls("holds")


class Hold(BaseModel):
    """The reason of a hold, or of its end, for the audit log."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(default="", max_length=LONGEST_NOTE)


class Release(Hold):
    """The options of a release. ``force``: also release outdated tasks (design 5.19).
    ``skip_outdated``: waive these, and release the rest.
    """

    force: bool = False
    skip_outdated: bool = False


class HoldOfRun(Hold):
    """The hold of a run. ``item``: only the tasks of this item. ``list`` and ``states``: only these
    items of a list, as in ``Options``.
    """

    item: Item = None
    list: OfList = None
    states: States = []


class ReleaseOfRun(Release):
    """The release of a run. ``item``, ``list``, ``states``: as in ``HoldOfRun``."""

    item: Item = None
    list: OfList = None
    states: States = []


@router.post("/tasks/{id}/hold")
def hold_task(
    request: Request,
    id: int,
    hold: Hold = Hold(),  # noqa: B008  frozen by use
    dry_run: DryRun = False,
) -> TaskDetail:
    """Hold a task that has not started, until a person releases it."""
    caller = admit(request, Scope.OPERATE)
    task = caller.task(id)
    with caller.acting(dry_run, task=task) as caller:
        holds.hold(caller.session, task, caller.by, hold.reason)
        return tasks.task(caller.session, task)


@router.post("/tasks/{id}/release")
def release_task(
    request: Request,
    id: int,
    release: Release = Release(),  # noqa: B008  frozen by use
    dry_run: DryRun = False,
) -> TaskDetail:
    """Release a held task."""
    caller = admit(request, Scope.OPERATE)
    task = caller.task(id)
    with caller.acting(dry_run, task=task) as caller:
        holds.release(caller.session, task, caller.by, release.reason, how(caller, release))
        return tasks.task(caller.session, task)


@router.post("/runs/{id}/hold")
def hold_run(
    request: Request,
    id: int,
    hold: HoldOfRun = HoldOfRun(),  # noqa: B008  frozen by use
    dry_run: DryRun = False,
) -> RunAction:
    """Hold the unstarted tasks of a run, or of an item or a list of it."""
    caller = admit(request, Scope.OPERATE)
    run = caller.run(id)
    _check(caller, run, hold)
    with caller.acting(dry_run, run=run) as caller:
        if hold.list is not None:
            done = lists.hold(caller.session, run, hold.list, hold.states, caller.by, hold.reason)
            return on_run(caller, run, done)
        if hold.item is None:
            return on_run(caller, run, holds.hold_run(caller.session, run, caller.by, hold.reason))
        act = lambda task: holds.hold(caller.session, task, caller.by, hold.reason)  # noqa: E731
        return on_run(caller, run, many.act_on_item(caller.session, run, hold.item, "hold", alone(act)), hold.item)


@router.post("/runs/{id}/release")
def release_run(
    request: Request,
    id: int,
    release: ReleaseOfRun = ReleaseOfRun(),  # noqa: B008  frozen by use
    dry_run: DryRun = False,
) -> RunAction:
    """Release the held tasks of a run, or of an item or a list of it."""
    caller = admit(request, Scope.OPERATE)
    run = caller.run(id)
    _check(caller, run, release)
    with caller.acting(dry_run, run=run) as caller:
        meant = how(caller, release)
        if release.list is not None:
            session, states = caller.session, release.states
            return on_run(
                caller, run, lists.release(session, run, release.list, states, caller.by, release.reason, meant)
            )
        if release.item is None:
            return on_run(caller, run, holds.release_run(caller.session, run, caller.by, release.reason, meant))
        act = lambda task: holds.release(caller.session, task, caller.by, release.reason, meant)  # noqa: E731
        done = many.act_on_item(caller.session, run, release.item, "release", alone(act))
        return on_run(caller, run, done, release.item)


@router.post("/archives/{name}/hold")
def hold_archive(
    request: Request,
    name: str,
    hold: Hold = Hold(),  # noqa: B008  frozen by use
    dry_run: DryRun = False,
) -> ArchiveAction:
    """Put an archive on hold: its runs that have not begun are held, and so are runs that are
    planned from now on.
    """
    caller = admit(request, Scope.OPERATE)
    archive = caller.archive(name)
    with caller.acting(dry_run, archive=archive) as caller:
        return on_archive(caller, archive, holds.hold_archive(caller.session, archive, caller.by, hold.reason))


@router.post("/archives/{name}/unhold")
def unhold_archive(request: Request, name: str, hold: Hold = Hold()) -> ArchiveView:  # noqa: B008
    """End the hold of an archive. Held tasks stay held until a person releases them."""
    caller = admit(request, Scope.OPERATE)
    archive = caller.archive(name)
    holds.unhold(caller.session, archive, caller.by, hold.reason)
    return views.archive(caller.session, archive)


@router.post("/archives/{name}/release")
def release_archive(
    request: Request,
    name: str,
    release: Release = Release(),  # noqa: B008  frozen by use
    dry_run: DryRun = False,
) -> ArchiveAction:
    """Release all held tasks of an archive, the oldest runs first. Refused while it is on hold."""
    caller = admit(request, Scope.OPERATE)
    archive = caller.archive(name)
    with caller.acting(dry_run, archive=archive) as caller:
        done = holds.release_archive(caller.session, archive, caller.by, release.reason, how(caller, release))
        return on_archive(caller, archive, done)


def _check(caller: Caller, run: RunId, which: HoldOfRun | ReleaseOfRun) -> None:
    """Check what a request names of a run. Raises ``Invalid`` for an item and a list together, and
    for states without a list, and ``NotFound`` for a task without a list.
    """
    if which.list is None:
        check_states(which.states)
        return
    if which.item is not None:
        raise Invalid("the request", "names an item and a list", "Leave one of them out.")
    check_list(caller.session, run, which.list)


def how(caller: Caller, release: Release) -> How:
    """The options of a caller's release."""
    return How(release.force, release.skip_outdated, caller.approver)
