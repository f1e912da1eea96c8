"""Locks over HTTP: their holders, their capacities, and their pauses. A lock is named
``ARCHIVE/NAME``, a lock of the whole installation ``global/NAME``.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from arkqueue.errors import Invalid
from arkqueue.model import GLOBAL, INSTALLATION, LONGEST_LOCK, MOST_CAPACITY, ArchiveId
from arkqueue.queue import locks
from arkqueue.queue.tokens import Scope
from arkqueue.views import locks as views
from arkqueue.views.locks import LockView
from arkqueue.web.access import Caller, admit
from arkqueue.web.api.archives import NewPause
from arkqueue.web.api.calls import calls

router: APIRouter = calls("locks", "/locks")


class Capacity(BaseModel):
    """The number of tasks that may have a lock at once; null: any number."""

    model_config = ConfigDict(extra="forbid")

    capacity: Annotated[int, Field(strict=True, ge=1, le=MOST_CAPACITY)] | None


@router.get("")
def list_locks(request: Request, archive: str | None = None) -> list[LockView]:
    """The locks that have a capacity, or that a task has or waits for: those of one archive, with
    the locks of the installation that it uses; or all.
    """
    caller = admit(request, Scope.READ)
    return views.locks(caller.session, caller.archives() if archive is None else [caller.archive(archive)])


@router.put("/{name:path}")
def set_lock(request: Request, name: str, new: Capacity) -> LockView:
    """Set how many tasks may have a lock at once. Running tasks go on."""
    caller = admit(request, Scope.OPERATE)
    archive, lock = _found(caller, name)
    locks.set_capacity(caller.session, archive, lock, new.capacity, caller.by)
    return _shown(caller, archive, lock)


@router.post("/{name:path}/pause")
def pause_lock(request: Request, name: str, pause: NewPause = NewPause()) -> LockView:  # noqa: B008  frozen by use
    """Pause a lock: no task that names it starts. Running tasks go on."""
    caller = admit(request, Scope.OPERATE)
    archive, lock = _found(caller, name)
    locks.pause(caller.session, archive, lock, pause.reason, caller.by)
    return _shown(caller, archive, lock)


@router.post("/{name:path}/resume")
def resume_lock(request: Request, name: str, end: NewPause = NewPause()) -> LockView:  # noqa: B008  frozen by use
    """End the pause of a lock."""
    caller = admit(request, Scope.OPERATE)
    archive, lock = _found(caller, name)
    locks.resume(caller.session, archive, lock, name, caller.by, end.reason)
    return _shown(caller, archive, lock)


def _found(caller: Caller, name: str) -> tuple[ArchiveId, str]:
    """The archive of a lock (or the installation), and its name in workflow files."""
    archive, slash, lock = name.partition("/")
    if not slash or not 1 <= len(lock) <= LONGEST_LOCK or not name.isprintable() or lock != lock.strip():
        fault = "is not the name of a lock"
        raise Invalid(
            repr(name),
            fault,
            "Write ARCHIVE/NAME, for example papers/tex, with the name that its workflow files have, or global/NAME.",
        )
    if archive == GLOBAL:
        caller.require_every_archive("a lock of the whole installation")
        return INSTALLATION, name
    return caller.archive(archive), lock


def _shown(caller: Caller, scope: ArchiveId, lock: str) -> LockView:
    (view,) = views.locks(caller.session, caller.archives() if scope == INSTALLATION else [scope], lock, scope)
    return view
