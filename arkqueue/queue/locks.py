"""Locks (``lock:``, design 5.25) of an archive or of the installation: sets capacities, pauses
locks, and grants them to tasks.

Each change of an archive's graph ends by judging which tasks get their locks (``Graph.grant``). So
each verb here is such a change. Task managers start and stop without a change of a graph; a loop
therefore judges all lines again when the set of living task managers changes.

Archives take turns at a lock of the installation. A change of one archive's graph never grants a
place there. ``pass_on`` does, in transactions that lock one archive each. It gives a free place to
the next archive whose first task in line could start. It takes a place back from an archive that
has not used it for ``UNUSED`` seconds while another archive wants it. So no transaction holds rows
of two archives, and a transaction that holds an archive's row waits for claims alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from arkqueue.db.session import Session
from arkqueue.errors import Conflict
from arkqueue.model import INSTALLATION, SILENCE, ArchiveId
from arkqueue.queue.changes import change, change_in_turn, committed
from arkqueue.queue.graph import Graph, Line

MOST_ARCHIVES = 100
"""The most archives whose lines one transaction judges."""
PATIENCE = 0.5
"""Seconds to wait for busy archives among them. The next call judges the lines of those that stayed
busy.
"""
BRIEF = 0.1
"""Seconds to wait for a busy archive whose turn it is. After that, the next archive has its turn."""
UNUSED = 10.0
"""Seconds after which a granted task that has not started gives a lock of the installation back to another archive that wants it."""


def set_capacity(session: Session, scope: ArchiveId, name: str, capacity: int | None, by: str) -> None:
    """Set how many tasks may have a lock at once. None: any number; such a lock only serves to be
    paused. Running tasks go on.

    ``scope``: the archive that has the lock, or ``INSTALLATION``.
    """
    note = f"{name} {'unlimited' if capacity is None else capacity}"
    told = {"scope": scope, "name": name, "capacity": capacity}
    _on_lock(session, scope, name, "lock set", by, note, lambda graph: graph.do("set_lock", **told))


def pause(session: Session, scope: ArchiveId, name: str, reason: str, by: str) -> None:
    """Let no task start that names a lock, until ``resume``. Tasks that were granted it and have
    not started give all their locks back. If the lock is paused already, only a pause with a
    reason replaces the person, the time and the reason.
    """
    told = {"scope": scope, "name": name, "by": by, "reason": reason}
    note = f"--lock {name} {reason}".rstrip()
    _on_lock(session, scope, name, "pause", by, note, lambda graph: graph.do("pause_lock", **told))


def resume(session: Session, scope: ArchiveId, name: str, shown: str, by: str, reason: str = "") -> None:
    """End the pause of a lock. ``shown``: the lock's name for people."""

    def work(graph: Graph) -> None:
        if not graph.rows("resume_lock", scope=scope, name=name):
            raise Conflict(f"lock {shown}", "is not paused")

    _on_lock(session, scope, name, "resume", by, f"--lock {name} {reason}".rstrip(), work)


def _on_lock(
    session: Session, scope: ArchiveId, name: str, verb: str, by: str, note: str, work: Callable[[Graph], object]
) -> None:
    archive = None if scope == INSTALLATION else scope

    def on_graph(graph: Graph) -> None:
        work(graph)
        graph.do("remember", by=by, verb=verb, archive=archive, run=None, task=None, note=note)
        # A task that names a paused lock does not stand in the lines of its other locks either.
        graph.judges_all = True

    if archive is not None:
        change(session, [archive], on_graph)
        return
    session.retrying(lambda connection: on_graph(Graph(connection)))
    _judge_again(session, [row.archive_id for row in session.rows("archives_at", name=name)])
    session.wake("locks")
    session.changed([INSTALLATION])


def judge_all(session: Session) -> bool:
    """Judge all lines of all archives again, for the task managers that live now. Returns whether
    some archives were busy, so that their lines were not judged.
    """
    return _judge_again(session, [row.id for row in session.rows("archives_with_locks")])


def _judge_again(session: Session, archives: Sequence[int]) -> bool:
    """Judge all lines of archives again; returns whether some were busy."""

    def work(graph: Graph) -> None:
        graph.judges_all = True

    busy: list[int] = []
    for first in range(0, len(archives), MOST_ARCHIVES):
        busy += change_in_turn(session, work, archives=archives[first : first + MOST_ARCHIVES], patience=PATIENCE)[1]
    return bool(busy)


def labels_that_live(session: Session) -> list[list[str]]:
    """The sets of labels of the task managers that live and claim. When these change, other tasks
    stand in line.
    """
    return [row.labels for row in session.rows("labels_that_live", silence=SILENCE)]


# --- Locks of the installation ---------------------------------------------------------------------------------------


def pass_on(session: Session) -> bool:
    """Let each archive have its turn at the locks of the installation. Returns whether an archive
    was busy, so that the caller should soon call again.
    """
    busy: set[int] = set()
    while True:
        names = [row.name for row in session.rows("names_waited_for")]
        moved = [_pass_on(session, name, busy) for name in names]
        if not any(moved):
            return bool(busy)


def forget_turns(session: Session) -> None:
    """Forget whose turn it was at locks that no task names any more."""
    session.do("forget_turns")


def _pass_on(session: Session, name: str, busy: set[int]) -> bool:
    """Move places of one lock until no archive wants a place that is free or can be taken back.
    Returns whether a place was moved.
    """
    is_moved = False
    while _move_place(session, name, busy):
        is_moved = True
    return is_moved


def _move_place(session: Session, name: str, busy: set[int]) -> bool:
    (places,) = session.rows("places", name=name, patience=UNUSED)
    if places.capacity is None:
        return False
    if places.n > places.capacity:
        return any(_take_back(session, name, archive, busy) for archive in _once(places.granted))
    if places.n < places.capacity:
        return any(_give(session, name, archive, busy) for archive in _wanting(session, name))
    if places.late:
        wanting = _wanting(session, name, as_free=name)
        late = [one for one in _once(places.late) if any(archive != one for archive in wanting)]
        return any(_take_back(session, name, archive, busy) for archive in late)
    return False


def _once(archives: Iterable[int] | None) -> list[int]:
    return list(dict.fromkeys(archives or ()))


def _wanting(session: Session, name: str, as_free: str | None = None) -> list[int]:
    """The archives whose first task in line would fit if it got a place, in the order of their
    turns.
    """
    found = []
    for row in session.rows("archives_waiting", name=name):
        judged = session.rows(
            "judge_lines", scopes=[INSTALLATION], names=[name], archives=[row.archive_id], asking=[], whole=False, locked=None, may_take=True,
            as_free=as_free, less=None, silence=SILENCE,
        )  # fmt: skip
        if any(one.fits and not one.granted for one in judged):
            found.append(row.archive_id)
    return found


def _give(session: Session, name: str, archive: int, busy: set[int]) -> bool:
    def work(graph: Graph) -> bool:
        granted = graph.judge([Line(INSTALLATION, name, archive)], may_take=True)
        if granted:
            graph.do("note_turn", name=name, archive=archive)
        return bool(granted)

    return _in_turn(session, archive, busy, work)


def _take_back(session: Session, name: str, archive: int, busy: set[int]) -> bool:
    def work(graph: Graph) -> bool:
        (before,) = graph.rows("places", name=name, patience=UNUSED)
        graph.judge([Line(INSTALLATION, name, archive)], less=name)
        (after,) = graph.rows("places", name=name, patience=UNUSED)
        # The other archives have their turns before this one gets another place.
        graph.do("note_turn", name=name, archive=archive)
        return bool(after.n < before.n)

    return _in_turn(session, archive, busy, work)


def _in_turn(session: Session, archive: int, busy: set[int], work: Callable[[Graph], bool]) -> bool:
    """Move a place of one archive, in a transaction beside which no other moves places. Returns
    whether a place was moved; False if the archive is busy.
    """

    def transaction(graph: Graph, _: object) -> bool | None:
        graph.rows("lock_turns")
        return None if graph.lock_within(archive, BRIEF) else work(graph)

    moved = committed(session, transaction)
    if moved is None:
        busy.add(archive)
    else:
        busy.discard(archive)
    return bool(moved)
