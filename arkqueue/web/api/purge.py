"""Purges over HTTP (design 5.27). Included by ``app`` before ``runs``, whose ``/tasks/{id}/{verb}``
would take this path.
"""

from __future__ import annotations

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field

from arkqueue.archives.retention import PurgedByAge, purge_by_age
from arkqueue.errors import Invalid
from arkqueue.queue.purge import Purged, purge_runs
from arkqueue.queue.removal import LONGEST_REASON, Removed, remove
from arkqueue.queue.tokens import Scope
from arkqueue.web.access import admit
from arkqueue.web.api.calls import DryRun, calls

router = calls("purge")


class Purge(BaseModel):
    """The removal of a task's logs or outputs, and the reason, which takes their place."""

    model_config = ConfigDict(extra="forbid")

    log: bool = False
    outputs: bool = False
    reason: str = Field(min_length=1, max_length=LONGEST_REASON)


class PurgeRun(BaseModel):
    """The reason of a purge of runs. Whoever asks for a purged run is told it."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(default="", max_length=LONGEST_REASON)


@router.post("/runs/{id}/purge")
def purge_run(
    request: Request,
    id: int,
    purge: PurgeRun = PurgeRun(),  # noqa: B008  frozen by use
    dry_run: DryRun = False,
) -> Purged:
    """Remove a settled run for good, with its attempts and logs. 409 names the runs or tasks that
    need it.
    """
    caller = admit(request, Scope.ADMIN)
    run = caller.run(id)
    with caller.acting(dry_run, run=run) as caller:
        return purge_runs(caller.session, [run], caller.by, purge.reason).unless_kept()


@router.post("/archives/{name}/purge")
def purge_archive(
    request: Request,
    name: str,
    purge: PurgeRun = PurgeRun(),  # noqa: B008  frozen by use
    dry_run: DryRun = False,
) -> PurgedByAge:
    """Remove the runs and logs that an archive's rules (`keep`, `keep_logs`) no longer keep. If
    `is_whole` is false, repeat the call: the time for one call was over.
    """
    caller = admit(request, Scope.ADMIN)
    return purge_by_age(caller.session, caller.archive(name), caller.by, purge.reason, dry_run=dry_run)


@router.post("/tasks/{id}/purge")
def purge_task(request: Request, id: int, purge: Purge, dry_run: DryRun = False) -> Removed:
    """Remove the logs or the outputs of a task's ended attempts at once and for good. The answer
    names other places that may still hold them.
    """
    caller = admit(request, Scope.ADMIN)
    task = caller.task(id)
    if not (purge.log or purge.outputs):
        raise Invalid("the request", "removes nothing", "Give log, outputs, or both.")
    with caller.acting(dry_run, task=task) as caller:
        return remove(caller.session, task, caller.by, purge.reason, log=purge.log, outputs=purge.outputs)
