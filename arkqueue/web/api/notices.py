"""Notices: a hook asks for a scan of a repository, and every archive of that repository is scanned
(design 2, 7).

A commit waits for this call, so it costs one statement: the token and the watched repositories are
cached for a moment. A notice is an upsert of one row for each archive, so a burst of notices causes
one scan. Notices that come while others are being stored are stored together. A caller is answered
when its notice is stored.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from typing import Any

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator
from starlette.exceptions import HTTPException

from arkqueue.db.session import Session
from arkqueue.errors import NotFound
from arkqueue.model import ArchiveId, ArchiveKind
from arkqueue.queue import archives
from arkqueue.queue.tokens import Scope
from arkqueue.repository import Identity, is_relative, notice_key, notice_keys
from arkqueue.web.access import Caller, admit, authenticated
from arkqueue.web.api.calls import calls

router = calls("notices")

KEPT = 1.0
"""Seconds for which the watched repositories are cached. An unknown repository reloads the cache at
once.
"""

_HEX = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


class Notice(BaseModel):
    """The contents of a notice: ``revision`` and ``txn`` from Subversion, or ``ref``, ``old`` and
    ``new`` from Git. All of them are hints.
    """

    revision: int | None = Field(default=None, ge=0, lt=2**63)
    txn: str | None = Field(default=None, max_length=200)
    ref: str | None = Field(default=None, max_length=4096)
    old: str | None = None
    new: str | None = None

    @field_validator("old", "new")
    @classmethod
    def _is_id(cls, value: str | None) -> str | None:
        if value is not None and not _HEX.fullmatch(value.lower()):
            raise ValueError("is not a full commit id")
        return value and value.lower()

    @property
    def named(self) -> str | None:
        """The expected revision; None if the notice names none, or a deleted ref."""
        if self.revision is not None:
            return str(self.revision)
        return self.new if self.new and self.new.strip("0") else None


class RepositoryNotice(Notice):
    """A notice that names its repository: by UUID, by URL, or by its path on the server."""

    repository: str = Field(min_length=1, max_length=4096)

    @model_validator(mode="after")
    def _names_a_repository(self) -> RepositoryNotice:
        if "\0" in self.repository:
            raise ValueError("repository: holds a NUL")
        if is_relative(self.repository):
            raise ValueError("repository: a path has to begin with a slash")
        return self


class Watched:
    """Caches the archives of each repository for a moment, and the keys of each repository for
    longer: to compute keys, the disk has to be read. A repository that is not in the cache reloads
    all of it, keys included, because symlinks may have changed.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._keys: dict[tuple[str, ...], frozenset[str]] = {}
        """The keys of each repository, by its registered fields."""
        self._by_key: dict[str, list[tuple[ArchiveId, str]]] = {}
        self._stamp: tuple[int, ...] = ()
        """The stamp of the cached rows, which differs after each change of the archives."""
        self._until = 0.0
        self._lock = threading.Lock()

    async def archives(self, repository: str) -> list[tuple[ArchiveId, str]]:
        """Ids and names of the archives of a repository."""
        key = notice_key(repository)
        if time.monotonic() > self._until:
            await run_in_threadpool(self._refresh)
        if key not in self._by_key:
            await run_in_threadpool(self._load, {})
        return self._by_key.get(key, [])

    def forget(self) -> None:
        self._until = 0.0

    def _refresh(self) -> None:
        """Load the archives again if any has changed. There may be thousands, and a commit waits."""
        (stamp,) = self._session.rows("repositories_stamp")
        if stamp == self._stamp:
            self._until = time.monotonic() + KEPT
        else:
            # The stamp was read before the rows, so that the next refresh finds changes made
            # meanwhile.
            self._load(self._keys, stamp)

    def _load(self, known: dict[tuple[str, ...], frozenset[str]], stamp: tuple[int, ...] = ()) -> None:
        with self._lock:
            keys: dict[tuple[str, ...], frozenset[str]] = {}
            by_key: dict[str, list[tuple[ArchiveId, str]]] = {}
            for id, name, kind, *place in self._session.rows("repositories_watched"):
                registered = (kind, *place)
                keys[registered] = known.get(registered) or notice_keys(Identity(ArchiveKind(kind), *place))
                for key in keys[registered]:
                    by_key.setdefault(key, []).append((ArchiveId(id), name))
            self._keys, self._by_key, self._stamp = keys, by_key, stamp
            self._until = time.monotonic() + KEPT


class Intake:
    """Stores notices, one batch after the other. All its callers share an event loop."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: list[tuple[ArchiveId, str | None]] = []
        self._stored: asyncio.Future[None] | None = None
        """Completes when the waiting notices are stored."""
        self._storing: asyncio.Task[None] | None = None

    async def store(self, notices: list[tuple[ArchiveId, str | None]]) -> None:
        """Store notices. Returns when they are stored."""
        self._waiting += notices
        if self._stored is None:
            self._stored = asyncio.get_running_loop().create_future()
        stored = self._stored
        if self._storing is None or self._storing.done():
            self._storing = asyncio.create_task(self._store())
        await asyncio.shield(stored)

    async def _store(self) -> None:
        while (stored := self._stored) is not None:
            notices, self._waiting, self._stored = self._waiting, [], None
            try:
                await run_in_threadpool(archives.notify_all, self._session, notices)
                stored.set_result(None)
            except Exception as error:
                stored.set_exception(error)


@router.post("/notices", status_code=202, response_class=JSONResponse)
async def notice(request: Request, notice: RepositoryNotice) -> Any:
    """Scan a repository: every archive of it."""
    return await _look(request, notice)


async def notice_directly(request: Request) -> Response:
    """Answers the call that ``notice`` only declares: FastAPI's routing and validation would take
    longer than the call itself.
    """
    await authenticated(request)
    try:
        body = await request.json()
    except json.JSONDecodeError as error:
        raise RequestValidationError([{"loc": ("body", error.pos), "msg": error.msg}]) from error
    except Exception as error:
        raise HTTPException(400, "The body cannot be read.") from error
    try:
        notice = RepositoryNotice.model_validate(body)
    except ValidationError as error:
        raise RequestValidationError([{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors()]) from error
    return await _look(request, notice)


async def _look(request: Request, notice: RepositoryNotice) -> JSONResponse:
    caller = _admit(request)
    watched: Watched = request.app.state.watched
    found = [(id, name) for id, name in await watched.archives(notice.repository) if caller.token.covers(name)]
    if not found:
        fault = "no archive of this repository is watched" + (" for this token" if caller.token.archives else "")
        raise NotFound(f"repository {notice.repository}", fault, "Add one: arkqueue archive add NAME URL")
    await request.app.state.intake.store([(id, notice.named) for id, _ in found])
    return _accepted(notice, [name for _, name in found])


@router.post("/archives/{name}/notices", status_code=202, response_class=JSONResponse)
def notice_of_archive(request: Request, name: str, notice: Notice) -> Any:
    """Scan one archive."""
    caller = _admit(request)
    archive = caller.archive(name)
    if archives.one(caller.session, archive).removed_at is not None:
        raise NotFound(f"archive {name}", "was removed")
    archives.notify(caller.session, [archive], notice.named)
    return _accepted(notice, [name])


def _admit(request: Request) -> Caller:
    caller = admit(request, Scope.HOOK)
    request.app.state.callers.count(caller.token)
    return caller


def _accepted(notice: Notice, names: list[str]) -> JSONResponse:
    return JSONResponse({"archives": names, "revision": notice.named}, 202)
