"""Claims and leases: how a task manager gets tasks and keeps them, and how the next task manager of
its host adopts running containers.

An attempt belongs to the process that claimed it until its lease is over by the database's clock.
The attempt's id is the fence: every report, renewal and log write names it, and only the attempt
that owns its task changes anything. A lease says only that its task manager is alive. How long a
task takes does not matter.

An attempt that can outlive its task manager (a container) stays reserved for its host after its
lease is over. Until then, the host's next task manager may adopt it: the attempt then belongs to
that process, and the fence refuses the earlier process (design 6).
"""

from __future__ import annotations

import json
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from arkqueue.db import Connection
from arkqueue.db.pipelines import Answer
from arkqueue.db.session import Session, answers, execute, rows
from arkqueue.model import (
    INSTALLATION,
    Adopted,
    ArchiveKind,
    AttemptId,
    AttemptKind,
    Claim,
    Live,
    Pool,
    Registration,
    Renewed,
    Revision,
    Stream,
    TaskId,
    TaskKind,
)
from arkqueue.queue.graph import Graph

LEASE = 90.0
"""Seconds for which an attempt belongs to its task manager after a claim or a renewal."""
MOST_EARLY = 500
"""The most revisions with dates in the future that a task manager is given. They go to a reader
with each call that writes files.
"""
FEW_POOLS = 10
"""The number of pools that an archive may keep in `ready_archive` without a ready task. Deleting
those rows costs more than they cost a claim.
"""
SPARE = 8
"""Archives that a claim considers beyond its slots, because other claims may have locked the tasks
of some.
"""


class Place(NamedTuple):
    """The place of a task among the ready tasks of its archive; lower places are claimed first.
    ``entry``: the id of the revision. ``task``: the id of the task, which orders the items of a
    list.
    """

    priority: int
    entry: int
    run: int
    position: int
    task: int


def register(
    session: Session,
    process: str,
    host: str,
    hostname: str,
    slots: int,
    *,
    fault: str | None = None,
    engine_fault: str | None = None,
    low_disk: str | None = None,
    account: str | None = None,
    labels: Collection[str] = (),
    store: str | None = None,
    scratch_limit: int | None = None,
) -> None:
    """Store that a task manager is alive, with its account, labels and scratch folders.

    ``fault``: why it cannot start any task now; None: it can. ``engine_fault``: why it cannot start
    containers. ``low_disk``: the disk that has too little room for it to claim.
    """
    (registered,) = session.rows(
        "register_manager", process=process, host=host, hostname=hostname, slots=slots, fault=fault,
        engine_fault=engine_fault, low_disk=low_disk, account=account, labels=sorted(labels), store=store,
        scratch_limit=scratch_limit,
    )  # fmt: skip
    if registered.is_news:
        session.changed([INSTALLATION])


def unregister(session: Session, process: str) -> None:
    """Record that a task manager has stopped."""
    session.do("unregister_manager", process=process)
    session.changed([INSTALLATION])


@dataclass(slots=True)
class Recent:
    """The places of the last claimed tasks of an archive, in two lots, so that their lowest place
    is known without a search.
    """

    before: Place | None = None
    """The lowest place of the last complete lot; None before the first lot is complete."""
    lowest: Place | None = None
    """The lowest place of the present lot; None while the lot is empty."""
    given: int = 0
    """The number of places in the present lot."""

    def took(self, place: Place, lot: int) -> None:
        """Note the place of a claimed task. ``lot``: the size of a lot."""
        self.lowest = place if self.lowest is None else min(self.lowest, place)
        self.given += 1
        if self.given == lot:
            self.before, self.lowest, self.given = self.lowest, None, 0

    @property
    def floor(self) -> Place | None:
        """The lowest place of both lots; None before the first lot is complete."""
        return self.before if self.before is None or self.lowest is None else min(self.before, self.lowest)


class Turns:
    """The turns of archives at one task manager, and the floors from which it claims in busy
    archives.

    Both are hints that are lost with the process. ``after``: the archive that had the last turn.

    An old snapshot (of a backup, say) keeps the entries of claimed tasks in the claim's index, and
    each claim would walk over all of them. So a claim looks at a busy archive only from a floor on:
    the lowest of the last places that it gave, at least ``RECENT`` and at most twice as many. A
    task that becomes ready below the floor is found by the next claim without floors, at most
    ``LOOK_AT_ALL`` seconds later.
    """

    RECENT = 100
    MOST_ARCHIVES = 100
    LOOK_AT_ALL = 1.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.after = 0
        self._clock = clock
        self._looked_at_all = clock()
        self._recent: OrderedDict[int, Recent] = OrderedDict()

    def floors(self) -> dict[int, Place]:
        """The place from which the next claim starts in each busy archive; empty if the claim is to
        look at everything.
        """
        if self._clock() - self._looked_at_all >= self.LOOK_AT_ALL:
            self._looked_at_all = self._clock()
            return {}
        return {archive: floor for archive, recent in self._recent.items() if (floor := recent.floor) is not None}

    def took(self, places: Iterable[tuple[int, Place]]) -> None:
        """Note the claimed tasks in their order, each as its archive and place."""
        for archive, place in places:
            self.after = archive
            recent = self._recent.get(archive)
            if recent is None:
                recent = self._recent[archive] = Recent()
            else:
                self._recent.move_to_end(archive)
            recent.took(place, self.RECENT)
        while len(self._recent) > self.MOST_ARCHIVES:
            self._recent.popitem(last=False)


def claim(
    session: Session,
    process: str,
    host: str,
    slots: int,
    lease: float = LEASE,
    pools: Collection[Pool] = tuple(Pool),
    turns: Turns | None = None,
    labels: Collection[str] = (),
    store: str | None = None,
) -> list[Claim]:
    """Take up to ``slots`` ready tasks of some pools, archives in turn, and begin an attempt for
    each.

    Fewer than ``slots`` are returned only if no more tasks were ready. ``labels``: the task
    manager's labels; a task that asks for another label is left to other task managers. ``store``:
    the store of its scratch folders; tasks with a folder in another store are left to others, too.
    ``turns``: the task manager's turns; without them, the archive with the lowest id comes first.
    """
    turns = turns or Turns()
    claims: list[Claim] = []
    is_more = True
    while is_more and len(claims) < slots:
        found, is_more = _claim_once(session, process, host, slots - len(claims), lease, pools, turns, labels, store)
        claims += found
    session.changed({claimed.archive.id for claimed in claims})
    return claims


def _claim_once(
    session: Session,
    process: str,
    host: str,
    slots: int,
    lease: float,
    pools: Collection[Pool],
    turns: Turns,
    labels: Collection[str],
    store: str | None,
) -> tuple[list[Claim], bool]:
    """Claim from all archives once. Returns the claimed tasks, and whether more may be ready."""
    return _claimed(_rows(session.rows_of, parameters(process, host, slots, lease, pools, turns, labels, store)), turns)


@dataclass(frozen=True, slots=True)
class Request:
    """The free slots of a task manager that reports ends. ``turns``: the task manager's own; no other thread may use them meanwhile."""

    host: str
    slots: int
    turns: Turns
    lease: float = LEASE
    pools: Collection[Pool] = tuple(Pool)
    labels: Collection[str] = ()
    store: str | None = None

    def parameters(self, process: str) -> dict[str, Any]:
        return parameters(process, self.host, self.slots, self.lease, self.pools, self.turns, self.labels, self.store)


Claiming = Callable[[], tuple[list[Claim], bool]]
"""Returns the claimed tasks, and whether more may be ready, once the transaction has committed."""


def claim_within(connection: Connection, process: str, request: Request) -> tuple[list[Claim], bool]:
    """Claim inside a transaction, with one statement that sees the tasks which the transaction made
    ready. Also returns whether more may be ready.

    The statement waits for no lock, so the transaction may hold archives locked.
    """
    return _claimed(_rows(partial(answers, connection), request.parameters(process)), request.turns)


def claim_last(graph: Graph, process: str, request: Request) -> Claiming:
    """Like `claim_within`, but the claim shares a round trip with the commit of the transaction,
    unless an archive with ready tasks has a tier or a limit. The claims are known after the commit.
    """
    if graph.in_tiers:
        claimed = claim_within(graph.conn, process, request)
        return lambda: claimed
    asked, found = request.parameters(process), list[Answer]()
    if asked["labels"]:
        _name_pools(partial(answers, graph.conn), asked)
    graph.later(("claim", asked), then=found.append)
    return lambda: _claimed(found[-1].rows(), request.turns)


def _rows(run: Callable[..., list[list[Any]]], asked: dict[str, Any]) -> list[Any]:
    """The rows of a claim. The statement without tiers and limits costs PostgreSQL a third less, so
    the other one runs only if the first finds nothing. ``run``: runs blocks in one round trip.
    """
    if asked["labels"]:
        _name_pools(run, asked)
    (found,) = run(("claim", asked))
    if not found:
        (found,) = run(("claim_in_tiers", asked))
    return found


def _name_pools(run: Callable[..., list[list[Any]]], asked: dict[str, Any]) -> None:
    """Add the pools whose labels the task manager has: the statements of a claim evaluate no
    labels.
    """
    (labeled,) = run(("labeled_pools", {"pools": asked["pools"], "labels": asked["labels"]}))
    asked["pools"] += [row.pool for row in labeled]


def _claimed(found: Sequence[Any], turns: Turns) -> tuple[list[Claim], bool]:
    """The result of a claim; and whether an archive gave all of its share, so that it may have
    more.
    """
    turns.took((row.archive_id, Place(row.priority, row.entry_id, row.run, row.position, row.id)) for row in found)
    given = Counter(row.archive_id for row in found)
    return [_claim(row) for row in found], any(given[row.archive_id] >= row.share for row in found)


def parameters(
    process: str,
    host: str,
    slots: int,
    lease: float = LEASE,
    pools: Collection[Pool] = tuple(Pool),
    turns: Turns | None = None,
    labels: Collection[str] = (),
    store: str | None = None,
) -> dict[str, Any]:
    """The parameters of the blocks ``claim`` and ``claim_in_tiers``.

    The store counts as one more label. Without other labels, the pools that name the store are
    known without a query.
    """
    turns = turns or Turns()
    own = [f"@{store}"] if store else []
    in_store = [] if labels else [f"{pool} {label}" for pool in pools for label in own]
    return {
        "process": process, "host": host, "slots": slots, "lease": lease,
        "pools": [*map(str, pools), *in_store], "labels": [*labels, *own] if labels else [],
        "after": turns.after, "turns": slots + SPARE, "floors": json.dumps(turns.floors()),
    }  # fmt: skip


def withdraw(session: Session) -> None:
    """End the turns of archives without a ready task, and forget pools without a ready task of
    archives with many pools. Archives that are locked are left to the next call.

    Every queue manager calls this each second. Claims cannot do it: they would have to wait for the
    transactions that make tasks ready.
    """

    def work(connection: Connection) -> None:
        # The locks need a statement of their own. The next statement then sees all tasks that
        # became ready before the locks.
        if left_over := rows(connection, "left_over"):
            execute(connection, "withdraw", {"archives": [row.id for row in left_over]})

    def forget(connection: Connection) -> None:
        if many := rows(connection, "many_pools", few=FEW_POOLS):
            execute(connection, "forget_pools", {"archives": [row.id for row in many]})

    session.retrying(work)
    session.retrying(forget)


def _claim(row: Any) -> Claim:
    return Claim(
        task=row.id,
        attempt=row.attempt_id,
        attempt_number=row.attempts,
        name=row.name,
        item=row.item,
        definition=row.definition_id,
        archive=Registration(
            row.archive_id, row.archive, ArchiveKind(row.kind), row.url, row.uuid, row.settings, row.corrections
        ),
        branch=row.branch,
        main=row.main,
        number=row.number,
        run=row.run,
        trigger=row.trigger,
        revision=row.revision,
        author=row.author,
        date=row.date.isoformat(),
        message=row.message,
        previous=row.previous,
        generation=row.generation,
        base=row.base,
        kind=AttemptKind(row.attempt_kind),
        task_kind=TaskKind(row.task_kind),
        item_body=row.item_body or "",
        early=row.early,
    )


def inputs(session: Session, tasks: Sequence[TaskId]) -> dict[TaskId, dict[str, Any]]:
    """The newest outputs of the dependencies of each task, by the dependency's name. A task that polls also gets its own outputs, as ``self``."""
    found: dict[TaskId, dict[str, Any]] = {}
    for row in session.rows("inputs", tasks=list(tasks)):
        found.setdefault(row.target, {})[row.name] = row.outputs
    return found


def definitions(session: Session, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Frozen definitions by id, as ``workflow.from_json`` reads them."""
    return {row.id: row.body for row in session.rows("definitions", ids=list(ids))}


def base(session: Session, attempt: AttemptId) -> Revision | None:
    """The revision that is the base of an attempt, from the ledger; None if it has no base."""
    for row in session.rows("base", attempt=attempt):
        return Revision(row.name, row.number, row.author, row.date, "")
    return None


def early(session: Session, attempt: AttemptId) -> dict[str, int]:
    """When the newest revisions of an attempt's branch were read whose dates were then in the
    future: by revision id, in nanoseconds since 1970.
    """
    rows = session.rows("early", attempt=attempt, most=MOST_EARLY)
    return {row.name: int(row.read_at.timestamp() * 1000) * 10**6 for row in rows}


def installation(session: Session) -> str:
    """The id of this installation, equal for all processes that share its database."""
    # Of two first calls at the same time, one gets no row. Its second query finds the other's id.
    for _ in range(2):
        if rows := session.rows("installation"):
            return str(rows[0].id)
    raise AssertionError("an installation without an id")


def reserve(session: Session, process: str, attempt: AttemptId, image: str, adopt_within: float) -> bool:
    """Record that an attempt runs in a container of ``image``, and so may outlive its task manager. Returns False if the attempt no longer belongs to this task manager."""
    return bool(session.rows("reserve", process=process, attempt=attempt, image=image, adopt_within=adopt_within))


def started(session: Session, attempts: Mapping[AttemptId, float]) -> None:
    """Record when the programs of attempts began, in seconds before now."""
    session.do("started", attempts=list(attempts), ages=list(attempts.values()))
    if session.is_watched:
        session.changed({row.archive_id for row in session.rows("archives_of_attempts", attempts=list(attempts))})


def renew(session: Session, process: str, attempts: Sequence[AttemptId], lease: float = LEASE) -> Renewed:
    """Renew leases. Attempts that the answer does not name are lost."""
    found = session.rows("renew", attempts=list(attempts), process=process, lease=lease)
    return Renewed({row.id: row.stop for row in found}, frozenset(row.id for row in found if not row.is_renewed))


def stops(session: Session, process: str) -> dict[AttemptId, str]:
    """The attempts of a task manager that have been asked to stop."""
    return {row.id: row.stop for row in session.rows("stops", process=process)}


def live_on(session: Session, host: str) -> list[Live]:
    """All live attempts of a host, of any process."""
    return [Live(row.id, row.process, row.outlives) for row in session.rows("live_on", host=host)]


def adopt(
    session: Session,
    process: str,
    host: str,
    attempts: Mapping[AttemptId, str],
    adopt_within: float,
    lease: float = LEASE,
) -> list[Adopted]:
    """Take over attempts whose containers were found on this host, each from the named process.
    Attempts missing in the answer have ended, or belong to another process.

    The ``base`` of each attempt stays the one that it was claimed with.
    """
    found = session.rows(
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
            {Stream.STDOUT: row.log_stdout, Stream.STDERR: row.log_stderr}, row.log_lines,
        )
        for row in found
    ]  # fmt: skip
