"""Scratch folders: the host of the folder of each run or item (design 5.37). Task managers make and remove the folders (``workspace.scratch``)."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from arkqueue.db.session import Session
from arkqueue.errors import Conflict
from arkqueue.model import SILENCE, AttemptId, Scratch, Unneeded
from arkqueue.names import item_name, run_name
from arkqueue.queue.changes import change, change_in_turn
from arkqueue.queue.done import MOST_TASKS
from arkqueue.queue.graph import Graph
from arkqueue.queue.reopening import is_outdated

PATIENCE = 0.5
"""Seconds that this module waits for busy archives. Their folders can be removed later."""


def take(session: Session, process: str, store: str, attempt: AttemptId, *, may_begin: bool = True) -> Scratch | None:
    """The scratch folder of an attempt. The first attempt that asks puts it into ``store``, if that
    store ``may_begin`` another folder.

    Returns None if another task manager owns the attempt by now, or if there is no folder yet.
    """
    row = _of(session.rows("scratch_of", attempt=attempt, process=process))
    if row is None:
        return None
    # A further report of a run that is over needs no folder: what was in it is gone.
    is_anew = row.is_report and row.is_removed
    if not may_begin or (row.id is not None and not is_anew):
        return _scratch(row)

    def work(graph: Graph) -> Any:
        if is_anew:
            graph.do("forget_scratch", run=row.run_id, items=[row.item])
        graph.do("add_scratch", run=row.run_id, item=row.item, store=store)
        _bind(graph, row)
        return _of(graph.rows("scratch_of", attempt=attempt, process=process))

    return _scratch(change(session, [row.archive_id], work))


def made(session: Session, scratch: int) -> None:
    """Record that a folder exists. From now on, a missing folder counts as lost."""
    session.do("scratch_made", id=scratch)


def unneeded(session: Session, folders: Sequence[int]) -> Unneeded:
    """Those of some folders (by id) that are to be removed: their run or item is over or purged, or
    this installation never knew them.

    Folders whose run or item is over are first marked as removed, with their archives locked: a
    retry then finds that the folder is gone. Folders of busy archives are left to the next call.
    """
    busy = list[int]()
    gone = set(folders) - {row.id for row in session.rows("known_scratch", ids=list(folders))}
    if over := session.rows("scratch_over", ids=list(folders)):

        def work(graph: Graph) -> list[int]:
            return graph.ids("end_scratch", ids=[row.id for row in over], archives=graph.archives)

        ended, busy = change_in_turn(session, work, archives={row.archive_id for row in over}, patience=PATIENCE)
        gone.update(*ended)
    return Unneeded(gone, bool(busy))


def lose(session: Session, folder: int) -> None:
    """Record that a task manager found a folder missing. Tasks that use the folder may then run on any host."""
    for row in session.rows("place_of_scratch", id=folder):

        def work(graph: Graph, row: Any = row) -> None:
            graph.do("lose_scratch", id=folder)
            _bind(graph, row)

        change(session, [row.archive_id], work)


def leave(graph: Graph, tasks: Sequence[int]) -> None:
    """Let lost tasks run on any host, if they alone used their folders and the folders' host is away."""
    for row in graph.rows("leave_scratch", tasks=list(tasks), silence=SILENCE):
        _bind(graph, row)


def renew(graph: Graph, run: int, tasks: Collection[int], here: str, item: str | None, *, may_wait: bool) -> None:
    """Have removed or unreachable folders of a run made anew, if all tasks that have used them run
    again. ``item``: only this item runs again; None: tasks of the run.

    Raises Conflict if other tasks have used such a folder, too: their files in it are missing.
    ``may_wait``: do not raise if only the folder's host is away.
    """
    lost = {row.item: row.is_removed for row in graph.rows("lost_scratch", run=run, item=item, silence=SILENCE)}
    if not lost:
        return
    users: dict[str, list[Any]] = {key: [] for key in lost}
    for row in graph.rows("tasks_with_scratch", run=run, item=item):
        if row.item in users:
            users[row.item].append(row)
    (place,) = graph.rows("place_of_run", run=run)
    again, anew = {*tasks}, list[str]()
    for key, rows in users.items():
        if not any(row.id in again for row in rows):
            continue
        others = [row for row in rows if row.has_started and row.id not in again]
        if not others:
            anew.append(key)
        elif lost[key] or not may_wait:
            how = "was removed" if lost[key] else "is on a host without a running task manager"
            whose = item_name(place, key) if key else run_name(place)
            fault = f"needs the scratch folder of {whose}, which {how}; {others[0].name} left files in it"
            named = run_name(place) if item is None else whose
            raise Conflict(here, fault, f"Start at its first task: {_from_first(graph, others[0], key, named)}")
    if anew:
        graph.do("forget_scratch", run=run, items=anew)
        for key in anew:
            _bind(graph, _Folder(place.archive_id, place.branch_id, run, place.number, place.run, key))


def _from_first(graph: Graph, first: Any, item: str, named: str) -> str:
    """The command that runs the tasks of a folder again, with the options that it needs. ``item``:
    the folder's item. ``named``: the name of the run or the item that is to run again.
    """
    (part,) = graph.rows("part_behind", task=first.id, item=item or None, most=MOST_TASKS)
    command = f"arkqueue retry {shlex.quote(named)} --from {first.name}{' --from-start' if part.ran_once else ''}"
    is_late = bool(part.ended) and is_outdated(graph, first.id, part.ended)
    return f"{command} --force. It needs --force, because later revisions have gone on" if is_late else command


def begin_again(graph: Graph, run: int, tasks: Collection[int], item: str | None) -> None:
    """Let the folders of a run be made again if they are missing, without anybody having noticed
    yet, and all tasks that have used them run again. ``item``: as in ``renew``.
    """
    graph.do("begin_scratch_again", run=run, tasks=list(tasks), item=item)


def measured(session: Session, sizes: Mapping[int, int]) -> None:
    """Record the sizes of folders, in bytes."""
    session.do("measured_scratch", ids=list(sizes), bytes=list(sizes.values()))


class _Folder(NamedTuple):
    """The owner of a folder: ``run_id``, and the run's place."""

    archive_id: int
    branch_id: int
    run_id: int
    number: int
    run: int
    item: str


def _bind(graph: Graph, folder: Any) -> None:
    """Give the ready tasks of a folder the pool of the folder's present host, or the pool for any host."""
    if folder.item:
        place = {"branch": folder.branch_id, "number": folder.number, "run": folder.run}
        bound = graph.rows("bind_item", item=folder.item, **place)
    else:
        bound = graph.rows("bind_run", run_id=folder.run_id)
    # Whether a task manager lives that can run them decides
    # whether they stand in the lines of their locks.
    graph.reordered += [row.id for row in bound]
    if ready := [row.id for row in bound if row.is_ready]:
        graph.do("offer", archive=folder.archive_id, tasks=ready)
        graph.ready.update(ready)


def _of(rows: list[Any]) -> Any:
    return rows[0] if rows else None


def _scratch(row: Any) -> Scratch | None:
    return None if row is None or row.id is None else Scratch(row.id, row.store, row.is_made, row.is_removed)
