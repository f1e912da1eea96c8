"""Transactions that change the graph of some archives: they lock the archives, let the caller act on
the graph, and wake the listeners after the commit.

Archives never wait for each other (design 6). A transaction for several archives locks the free
rows (``skip locked``), and each busy archive gets a transaction of its own (``change_in_turn``). So
no transaction holds one archive's row while it waits for another's.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar

from arkqueue.db import Connection, Overdue
from arkqueue.db.pipelines import Call
from arkqueue.db.session import Block, Session
from arkqueue.errors import Busy, DatabaseUnavailable
from arkqueue.queue.graph import Graph

T = TypeVar("T")

TOO_LONG = (Overdue, Busy)
"""Errors of a change that ran too long, or waited too long for a lock. Changes of other archives
may still succeed.
"""
BRIEF = 0.05
"""Seconds that `change_in_turn` waits for one busy archive before it tries the other busy ones again."""


def change(session: Session, archives: Iterable[int], work: Callable[[Graph], T], *ahead: Block) -> T:
    """Run ``work`` on the locked graph of some archives in one transaction, then wake the
    listeners. The transaction is repeated after a deadlock.

    ``ahead``: blocks that run right after the lock, in the same round trip; ``Graph.ahead`` has
    their rows.
    """

    wanted = sorted(set(archives))

    def transaction(graph: Graph, read: list[list[Any]]) -> T:
        if wanted:
            locked, *graph.ahead = read
            graph.has_locked(locked)
        return _done(graph, work)

    blocks: list[Block] = [("lock_archives", {"archives": wanted}), *ahead] if wanted else []
    with session.admitted(wanted):
        return committed(session, transaction, *blocks)


def change_in_turn(
    session: Session,
    work: Callable[[Graph], T],
    *,
    archives: Collection[int] = (),
    attempts: Sequence[int] = (),
    ahead: Sequence[Block] = (),
    patience: float,
) -> tuple[list[T], list[int]]:
    """Run ``work`` on the graphs of some archives, and of the archives of some ``attempts``, so
    that no archive waits for another.

    The first transaction takes all archives that are free. Each busy archive gets its own
    transaction as soon as it is free, within ``patience`` seconds. So ``work`` runs several times,
    each time on other archives (``Graph.archives``). Returns the results, and the archives that
    stayed busy: for these, ``work`` never ran.

    If a transaction of several archives takes too long, each archive gets its own. An archive whose
    own transaction takes too long raises its error after the others are done.

    ``ahead``: blocks that run right after the lock of free archives, in the same round trip;
    ``Graph.ahead`` has their rows. It is empty in the transaction of a busy archive.
    """
    until = time.monotonic() + patience
    results, busy = _change_free(session, work, archives, attempts, ahead)
    while busy and (left := until - time.monotonic()) > 0:
        random.shuffle(busy)  # so that each gets waited for at some time, even if there is patience only for one
        one, *others = busy
        done, busy = _change_within(session, work, one, min(left, BRIEF) if others else left)
        results += done
        if others:
            done, others = _change_free(session, work, others, ahead=ahead)
            results += done
            busy += others
    return results, busy


def _change_free(
    session: Session,
    work: Callable[[Graph], T],
    archives: Collection[int],
    attempts: Sequence[int] = (),
    ahead: Sequence[Block] = (),
) -> tuple[list[T], list[int]]:
    locked: list[int] = []
    busy: list[int] = []

    def transaction(graph: Graph, read: list[list[Any]]) -> list[T]:
        found, *graph.ahead = read
        graph.has_locked([row for row in found if row.is_locked])
        graph.in_tiers = any(row.in_tiers for row in found)
        busy[:] = [row.id for row in found if not row.is_locked]
        locked[:] = graph.archives
        return [_done(graph, work)] if locked else []

    lock = {"archives": list(archives), "attempts": list(attempts)}
    try:
        return committed(session, transaction, ("lock_free_archives", lock), *ahead), busy
    except TOO_LONG:
        if len(locked) < 2:
            raise
    results: list[T] = []
    overdue: DatabaseUnavailable | None = None
    for archive in locked:
        try:
            done, left = _change_within(session, work, archive, BRIEF)
        except TOO_LONG as error:
            overdue = error
        else:
            results, busy = results + done, busy + left
    if overdue is not None:
        raise overdue
    return results, busy


def _change_within(
    session: Session, work: Callable[[Graph], T], archive: int, seconds: float
) -> tuple[list[T], list[int]]:
    def transaction(graph: Graph, _: list[list[Any]]) -> tuple[list[T], list[int]]:
        busy = graph.lock_within(archive, seconds)
        return [] if busy else [_done(graph, work)], busy

    return committed(session, transaction)


def _done(graph: Graph, work: Callable[[Graph], T]) -> T:
    result = work(graph)
    if not graph.is_granted:
        graph.grant()
    if graph.notifies and (graph.moved or graph.made):
        graph.do("have_judged", tasks=list(graph.moved), runs=list(graph.made))
        graph.to_wake.add("notify")
    return result


def committed(session: Session, work: Callable[[Graph, list[list[Any]]], T], *blocks: Block) -> T:
    """Run ``work`` on a graph in one transaction, then wake the listeners. The transaction is
    repeated after a deadlock. ``blocks``: run first; ``work`` gets their rows.
    """

    def transaction(conn: Connection, read: list[list[Any]], last: list[Call]) -> tuple[Graph, T]:
        graph = Graph(conn, (), session.kept)
        graph.last = last
        return graph, work(graph, read)

    graph, result = session.retrying_after(blocks, transaction)
    for keep in graph.to_keep:
        keep()
    if to_wake := graph.to_wake | ({"ready"} if graph.ready else set()):
        session.wake(*to_wake)
    session.changed({*graph.archives, *graph.touched})
    return result
