"""Claims and leases: how a task manager gets tasks and keeps them, and how the next one of its host adopts what outlived it.

An attempt belongs to the process that claimed it until its lease is over by the database's clock. The id of the attempt is the fence: every report,
renewal and log write names it, and only the attempt that owns its task changes anything. Leases say who is alive; how long a task takes says nothing.

What can outlive its task manager (a container) stays reserved for its host after its lease is over; until then the host's next task manager may adopt it:
it becomes the attempt's process, and the fence then refuses the earlier one (design 6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from arkqueue.db.session import Session
from arkqueue.model import Adopted, ArchiveKind, AttemptId, Claim, Live, Registration, Stream, TaskId

LEASE = 90.0
"""Seconds that an attempt belongs to its task manager after a claim or a renewal."""


def register(
    session: Session,
    process: str,
    host: str,
    hostname: str,
    slots: int,
    *,
    fault: str | None = None,
    engine_fault: str | None = None,
) -> None:
    """Say that a task manager is here, and why it can start no tasks for now, or no containers (None: it can)."""
    told = {"fault": fault, "engine_fault": engine_fault}
    session.do("register_manager", process=process, host=host, hostname=hostname, slots=slots, **told)


def unregister(session: Session, process: str) -> None:
    """Say that a task manager has stopped."""
    session.do("unregister_manager", process=process)


def claim(
    session: Session,
    process: str,
    host: str,
    slots: int,
    lease: float = LEASE,
    floor: int = 0,
    in_container: bool | None = None,
) -> list[Claim]:
    """Take up to ``slots`` ready tasks, archives in turn, and begin an attempt for each.

    ``floor``: look at tickets from here on only. Tickets grow, so that what was claimed lies below; while an old snapshot keeps the dead entries of the claim's index
    alive, this saves walking over them. A ticket may come late, so whoever gives a floor also looks without one now and then.
    ``in_container``: True, only tasks that run in containers; False, only others.
    """
    rows = session.rows(
        "claim", process=process, host=host, slots=slots, lease=lease, floor=floor, in_container=in_container
    )
    return [_claim(row) for row in rows]


def _claim(row: Any) -> Claim:
    return Claim(
        task=row.id,
        ticket=row.ticket,
        attempt=row.attempt_id,
        attempt_number=row.attempts,
        name=row.name,
        item=row.item,
        definition=row.definition_id,
        archive=Registration(row.archive_id, row.archive, ArchiveKind(row.kind), row.url, row.uuid, row.settings),
        branch=row.branch,
        main=row.main,
        number=row.number,
        run=row.run,
        trigger=row.trigger,
        revision=row.revision,
        previous=row.previous,
        generation=row.generation,
        base=row.base,
    )


def inputs(session: Session, tasks: Sequence[TaskId]) -> dict[TaskId, dict[str, Any]]:
    """The newest outputs of what each task depends on, by the dependency's name."""
    found: dict[TaskId, dict[str, Any]] = {}
    for row in session.rows("inputs", tasks=list(tasks)):
        found.setdefault(row.target, {})[row.name] = row.outputs
    return found


def definitions(session: Session, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Frozen definitions by id, as ``workflow.from_json`` reads them."""
    return {row.id: row.body for row in session.rows("definitions", ids=list(ids))}


def installation(session: Session) -> str:
    """The id of this installation, the same for all that share its database."""
    for _ in range(2):  # who asks at the same moment as the first sees nothing, and then what that one made
        if rows := session.rows("installation"):
            return str(rows[0].id)
    raise AssertionError("an installation without an id")


def reserve(session: Session, process: str, attempt: AttemptId, image: str, adopt_within: float) -> bool:
    """Say that an attempt is about to outlive its task manager, in a container of ``image``; False where it is not ours any more."""
    return bool(session.rows("reserve", process=process, attempt=attempt, image=image, adopt_within=adopt_within))


def started(session: Session, attempts: Mapping[AttemptId, float]) -> None:
    """Note that the programs of attempts have begun, so many seconds ago."""
    session.do("started", attempts=list(attempts), ages=list(attempts.values()))


def renew(
    session: Session, process: str, attempts: Sequence[AttemptId], lease: float = LEASE
) -> dict[AttemptId, str | None]:
    """Renew leases. What is returned is still ours, with what it was asked for (None, ``cancel``, ``restart``); what is missing is lost."""
    return {row.id: row.stop for row in session.rows("renew", attempts=list(attempts), process=process, lease=lease)}


def stops(session: Session, process: str) -> dict[AttemptId, str]:
    """Which of a task manager's attempts have been asked to stop."""
    return {row.id: row.stop for row in session.rows("stops", process=process)}


def live_on(session: Session, host: str) -> list[Live]:
    """All live attempts of a host, whichever process has them."""
    return [Live(row.id, row.process, row.outlives) for row in session.rows("live_on", host=host)]


def adopt(
    session: Session,
    process: str,
    host: str,
    attempts: Mapping[AttemptId, str],
    adopt_within: float,
    lease: float = LEASE,
) -> list[Adopted]:
    """Take over attempts whose containers were found on this host, each from the process that is named; what is missing has ended or is another's.

    ``base`` of their claims is as it was when they were claimed.
    """
    rows = session.rows(
        "adopt",
        process=process,
        host=host,
        attempts=list(attempts),
        processes=list(attempts.values()),
        lease=lease,
        adopt_within=adopt_within,
    )
    return [
        Adopted(
            _claim(row), row.stop, row.age, row.log_bytes,
            {Stream.STDOUT: row.log_stdout, Stream.STDERR: row.log_stderr},
        )
        for row in rows
    ]  # fmt: skip
