"""The gateway of a task manager that reaches PostgreSQL. Each call is a verb of ``queue``. The
gateway runs no SQL itself, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from arkqueue.db.session import Session
from arkqueue.gateway.protocol import Opener, Topic
from arkqueue.model import (
    Adopted,
    ArchiveId,
    AttemptId,
    Claim,
    Finished,
    Handed,
    Live,
    LogAppend,
    LogCut,
    Outcome,
    Pool,
    Receipt,
    Renewed,
    Revision,
    Scratch,
    TaskId,
    Unneeded,
)
from arkqueue.queue import archives, attachments, claim, finish, logs, scratch, submissions
from arkqueue.queue.reports import give
from arkqueue.runtime.wakeup import Bell
from arkqueue.views.naming import attempt_names
from arkqueue.views.reports import as_json, report

VITAL = 6
"""The connections that keep attempts alive: one each for claims, renewals, requests to stop and
logs, and two for the recorder.
"""


def gateways(session: Session, slots: int, labels: Sequence[str] = (), scratch_limit: int | None = None) -> Opener:
    """Opens gateways with connections that nobody else can take: ``slots`` for preparing attempts,
    and ``VITAL`` for keeping them alive.

    ``labels``: the labels of the task manager, which tasks can require. ``scratch_limit``: the
    bytes that its scratch folders may take.
    """
    return partial(
        SqlGateway, session.share(slots), vital=session.share(VITAL), labels=tuple(labels), scratch_limit=scratch_limit
    )


@dataclass(frozen=True, slots=True)
class SqlGateway:
    """A ``Gateway`` on a session. The session needs wake-ups if bells are used. ``vital``: another
    session for claims, renewals, ends and logs.
    """

    session: Session
    process: str
    host: str
    store: str = ""
    """The store of this task manager's scratch folders: the id of a folder that task managers
    share, or, if this is empty, that of its host.
    """
    vital: Session | None = None
    labels: tuple[str, ...] = ()
    scratch_limit: int | None = None
    turns: claim.Turns = field(default_factory=claim.Turns, repr=False)

    @property
    def _vital(self) -> Session:
        return self.vital or self.session

    @property
    def _store(self) -> str:
        return self.store or self.host

    def register(
        self, hostname: str, slots: int, account: str, fault: str | None, engine_fault: str | None, low_disk: str | None
    ) -> None:
        told = {"fault": fault, "engine_fault": engine_fault, "low_disk": low_disk, "account": account}
        claim.register(
            self._vital,
            self.process,
            self.host,
            hostname,
            slots,
            labels=self.labels,
            store=self._store,
            scratch_limit=self.scratch_limit,
            **told,
        )

    def unregister(self) -> None:
        claim.unregister(self._vital, self.process)

    def expire(self, gone: Collection[AttemptId] = ()) -> list[str]:
        return attempt_names(self.session, finish.expire(self.session, self.process, self.host, gone))

    def claim(self, slots: int, lease: float, pools: Collection[Pool] = tuple(Pool)) -> list[Claim]:
        return claim.claim(
            self._vital, self.process, self.host, slots, lease, pools, self.turns, self.labels, self._store
        )

    def live(self) -> list[Live]:
        return claim.live_on(self.session, self.host)

    def adopt(self, attempts: Mapping[AttemptId, str], adopt_within: float, lease: float) -> list[Adopted]:
        return claim.adopt(self.session, self.process, self.host, attempts, adopt_within, lease)

    def hand_back(self, attempts: Sequence[AttemptId], reason: str) -> bool:
        return finish.hand_back(self._vital, self.process, attempts, reason)

    def definitions(self, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
        return claim.definitions(self.session, ids)

    def inputs(self, tasks: Sequence[TaskId]) -> dict[TaskId, dict[str, Any]]:
        return claim.inputs(self.session, tasks)

    def submission(self, task: TaskId) -> Handed | None:
        return submissions.handed(self.session, task)

    def payload_part(self, task: TaskId, position: int) -> bytes | None:
        return submissions.part_for(self.session, task, position)

    def report(self, task: TaskId) -> dict[str, Any]:
        return as_json(report(self.session, *give(self.session, task)))

    def base(self, attempt: AttemptId) -> Revision | None:
        return claim.base(self.session, attempt)

    def early(self, attempt: AttemptId) -> dict[str, int]:
        return claim.early(self.session, attempt)

    def installation(self) -> str:
        return claim.installation(self.session)

    def doubt(self, archive: int) -> None:
        archives.notify(self.session, [ArchiveId(archive)])

    def scratch(self, attempt: AttemptId, *, may_begin: bool) -> Scratch | None:
        return scratch.take(self.session, self.process, self._store, attempt, may_begin=may_begin)

    def scratch_made(self, folder: int) -> None:
        scratch.made(self.session, folder)

    def scratch_lost(self, folder: int) -> None:
        scratch.lose(self.session, folder)

    def scratch_unneeded(self, folders: Sequence[int]) -> Unneeded:
        return scratch.unneeded(self.session, folders)

    def attachments_unneeded(self, folders: Sequence[int]) -> Unneeded:
        return attachments.unneeded(self.session, folders)

    def scratch_measured(self, sizes: Mapping[int, int]) -> None:
        scratch.measured(self.session, sizes)

    def reserve(self, attempt: AttemptId, image: str, adopt_within: float) -> bool:
        return claim.reserve(self.session, self.process, attempt, image, adopt_within)

    def started(self, ages: Mapping[AttemptId, float]) -> None:
        claim.started(self._vital, ages)

    def finish(self, outcomes: Sequence[Outcome], patience: float = finish.PATIENCE) -> dict[AttemptId, Receipt]:
        return finish.finish(self._vital, self.process, outcomes, patience)

    def finish_and_claim(
        self, outcomes: Sequence[Outcome], slots: int, lease: float, pools: Collection[Pool] = tuple(Pool)
    ) -> Finished:
        request = claim.Request(self.host, slots, self.turns, lease, pools, self.labels, self._store)
        return finish.finish_and_claim(self._vital, self.process, outcomes, request, patience=0.0)

    def renew(self, attempts: Sequence[AttemptId], lease: float) -> Renewed:
        return claim.renew(self._vital, self.process, attempts, lease)

    def stops(self) -> dict[AttemptId, str]:
        return claim.stops(self._vital, self.process)

    def bell(self, topic: Topic) -> Bell:
        assert self.session.wakeups is not None, "a task manager waits to be woken"
        return self.session.wakeups.bell(topic)

    def append_log(self, appends: Sequence[LogAppend]) -> set[AttemptId]:
        return logs.append(self._vital, self.process, appends)

    def cut_log(self, cuts: Sequence[LogCut]) -> None:
        logs.cut(self._vital, self.process, cuts)
