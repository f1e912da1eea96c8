"""Checks the token of each request, before anything else in the request (design 7).

A token with archives cannot see others: they are left out of lists, and otherwise not found. A
revoked token is refused within a second by all processes, and at once by the one that revoked it.
"""

from __future__ import annotations

import hashlib
import shlex
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from fastapi import Request
from fastapi.security import HTTPBearer

from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.errors import Forbidden, NotFound
from arkqueue.model import ArchiveId, AttemptId, RunId, TaskId
from arkqueue.names import item_name, run_name, task_name
from arkqueue.queue import tokens
from arkqueue.queue.guards import Approver, unapproved
from arkqueue.queue.tokens import Scope, Token
from arkqueue.views.find import find_archive, purged
from arkqueue.web.problems import Refused
from arkqueue.web.rights import A_PERSON, seen
from arkqueue.web.shared import Shared

bearer = HTTPBearer(auto_error=False, description="A token, made by `arkqueue token create`.")
"""Declares in the OpenAPI document that a token is needed; ``authenticated`` checks it."""

KEPT = 1.0
"""Seconds for which a checked token is cached."""
MOST_KEPT = 1000
MOST_JUDGED = 1000
"""The most tasks of a deleted run that are judged for a message. Their verdict stands for the others."""
RATE, BURST = 1000.0, 5000.0
"""The most notices that each token may post per second, and at once."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A request's token and its rights. ``by``: the actor in the audit log. ``acts``: True if the
    request is to change something.
    """

    token: Token
    by: str
    session: Session
    configuration: Configuration
    acts: bool

    @property
    def approver(self) -> Approver | None:
        """This caller as the approver of guarded tasks (design 5.22); None: the token lacks the scope."""
        return Approver(tuple(self.token.authors)) if self.token.scope.allows(Scope.APPROVE) else None

    @property
    def _unseen(self) -> str:
        """The fault of a thing that does not exist, or that this caller may not see."""
        is_person = self.token.id == A_PERSON
        return f"does not exist, or {'you may not see it' if is_person else 'this token is not for it'}"

    @contextmanager
    def acting(
        self, dry_run: bool, *, archive: int | None = None, run: int | None = None, task: int | None = None
    ) -> Iterator[Caller]:
        """This caller, for a change of an archive, or of a run or task of one, in the ``with`` block.
        With ``dry_run``, the change is undone at the end.
        """
        if not dry_run:
            yield self
            return
        if archive is None:
            block, id = ("archive_of_run", run) if run is not None else ("archive_of_task", task)
            archive = self.session.rows(block, id=id)[0].id
        with self.session.rehearsal(archive) as session:
            yield replace(self, session=session)

    def archive(self, name: str) -> ArchiveId:
        """The archive with a name. Raises NotFound if there is none, or this token is not for it. A
        token for some archives gets no names of others as suggestions.
        """
        if self.token.covers(name):
            try:
                return find_archive(self.session, name)
            except NotFound:
                if self.token.archives is None:
                    raise
        raise NotFound(f"archive {name}", self._unseen)

    def archives(self) -> list[ArchiveId] | None:
        """The archives to which lists are limited; None: all."""
        if (names := seen(self.token)) is None:
            return None
        found = []
        for name in names:
            try:
                found.append(find_archive(self.session, name))
            except NotFound:
                continue
        return found

    def task(self, id: int) -> TaskId:
        self._check("archive_of_task", f"task {id}", id)
        return TaskId(id)

    def run(self, id: int, *, also_deleted: bool = False) -> RunId:
        for row in self.session.rows("purge_of_run", id=id) if id < 2**63 else ():
            if self.token.covers(row.archive):
                raise NotFound(run_name(row), purged(row))
        self._check("archive_of_run", f"run {id}", id, also_deleted=also_deleted)
        return RunId(id)

    def attempt(self, id: int) -> AttemptId:
        self._check("archive_of_attempt", f"attempt {id}", id)
        return AttemptId(id)

    def _check(self, block: str, thing: str, id: int, *, also_deleted: bool = False) -> None:
        """Raise NotFound if this token is not for the thing's archive, and Forbidden for a deleted run
        or item without the scope `admin` (design 5.27).
        """
        found = self.session.rows(block, id=id) if id < 2**63 else []
        if not found or not self.token.covers(found[0].name):
            raise NotFound(thing, self._unseen)
        if also_deleted or self.token.scope.allows(Scope.ADMIN):
            return
        if found[0].deleted_at is not None or found[0].is_item_deleted:
            raise self._deleted(found[0])

    def _deleted(self, found: Any) -> Forbidden:
        """The refusal of a deleted run or item, with its name and the command that undeletes it. The
        scope `admin` helps a reader alone: no token may act on a deleted run.
        """
        (run,) = self.session.rows("place_of_run", run=found.run)
        what, name = ("run", run_name(run)) if found.deleted_at is not None else ("item", item_name(run, found.item))
        tasks = [row.id for row in self.session.rows("tasks_of_run", runs=[found.run])[:MOST_JUDGED]]
        is_guarded = any(unapproved(self.session, tasks, self.approver))
        whoever = " with a token of somebody who may approve its tasks" if is_guarded else ""
        undelete = f"ndelete the {what}{whoever}: arkqueue undelete {shlex.quote(name)}"
        remedy = f"U{undelete}" if self.acts else f"Use a token of scope admin, or u{undelete}"
        if found.task is None:
            return Forbidden(name, "was deleted", remedy)
        (task,) = self.session.rows("place_of_task", task=found.task)
        return Forbidden(
            task_name(task), f"belongs to {'a' if what == 'run' else 'an'} {what} that was deleted", remedy
        )

    def require_every_archive(self, what: str) -> None:
        if self.token.archives is not None:
            fault = f"is for some archives only; {what} concerns every one"
            raise _forbidden(self.token, fault, "Use a token without archives.")


@dataclass(slots=True)
class _Bucket:
    left: float = BURST
    at: float = field(default_factory=time.monotonic)


class Callers:
    """Checks tokens, caches them for a moment, and counts their notices."""

    def __init__(self, session: Session, configuration: Configuration) -> None:
        self._session, self._configuration = session, configuration
        self._kept: dict[bytes, tuple[float, Token]] = {}
        self._asking = Shared[Token]()
        self._buckets: dict[int, _Bucket] = {}
        self._lock = threading.Lock()

    async def authenticate(self, request: Request) -> Token:
        """The token of a request. If it is not cached, another thread asks the database."""
        secret = _secret(request.headers.get("authorization", ""))
        key = hashlib.sha256(secret.encode("latin-1", "replace")).digest()
        kept = self._kept.get(key)
        if kept is not None and kept[0] > time.monotonic():
            return kept[1]
        return await self._asking.get(key, self._ask, key, secret)

    def admit(self, request: Request, *scopes: Scope) -> Caller:
        """The caller of a request, whose token has one of the scopes (none given: any token)."""
        token: Token = request.state.token
        if scopes and not any(token.scope.allows(scope) for scope in scopes):
            fault = f"has the scope {token.scope}; this needs {' or '.join(scopes)}"
            raise _forbidden(token, fault, f"Use another token: arkqueue token create --scope {scopes[0]}")
        acts = request.method not in ("GET", "HEAD")
        return Caller(token, _by(request, token), self._session, self._configuration, acts)

    def forget(self) -> None:
        """Forget all cached tokens."""
        with self._lock:
            self._kept.clear()
            self._asking = Shared()

    def count(self, token: Token) -> None:
        """Count one notice. Raises `Refused` if the token has posted too many."""
        now = time.monotonic()
        with self._lock:
            bucket = self._buckets.setdefault(token.id, _Bucket())
            bucket.left = min(BURST, bucket.left + (now - bucket.at) * RATE)
            bucket.at = now
            if bucket.left < 1:
                fault = f"has posted more than {RATE:.0f} notices a second"
                remedy = "Nothing is lost: repositories are looked at without notices too."
                raise Refused(429, f"token {token.name}", fault, remedy, Retry_After="1")
            bucket.left -= 1

    def _ask(self, key: bytes, secret: str) -> Token:
        token = tokens.check(self._session, secret)
        if token is None:
            fault, remedy = "carries a token that is unknown or revoked", "Ask for another one."
            raise Refused(401, "the request", fault, remedy, WWW_Authenticate='Bearer error="invalid_token"')
        with self._lock:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept[key] = time.monotonic() + KEPT, token
        return token


async def authenticated(request: Request) -> None:
    """The first step of each call, before its body is validated: checks the token. Raises the error
    that becomes 401.
    """
    callers: Callers = request.app.state.callers
    request.state.token = await callers.authenticate(request)


def admit(request: Request, *scopes: Scope) -> Caller:
    """The caller of a request, whose token has one of the scopes. Raises the error that becomes 403."""
    callers: Callers = request.app.state.callers
    return callers.admit(request, *scopes)


def _forbidden(token: Token, fault: str, remedy: str) -> Forbidden:
    """The error for a token whose rights are not sufficient. A person has the rights that the
    configuration gives to their groups.
    """
    if token.id == A_PERSON:
        return Forbidden(token.name, fault, "Ask the administrator: [[openid.grants]] says what a group may do.")
    return Forbidden(f"token {token.name}", fault, remedy)


def _secret(header: str) -> str:
    kind, _, secret = header.partition(" ")
    if kind.lower() != "bearer" or not secret.strip():
        fault, remedy = "carries no token", "Send it as: Authorization: Bearer TOKEN"
        raise Refused(401, "the request", fault, remedy, WWW_Authenticate="Bearer")
    return secret.strip()


def _by(request: Request, token: Token) -> str:
    """The token's name and, if the command line sends it, the name of its user."""
    user = request.headers.get("arkqueue-user", "")
    return f"{user} ({token.name})" if user and user.isprintable() and len(user) <= 100 else token.name
