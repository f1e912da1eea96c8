"""Scratch folders: where the folder of a run or of an item is (design 5.37). What is in it is the task managers' business (``workspace.scratch``)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import Conflict
from arkqueue.model import SILENCE, AttemptId, Scratch
from arkqueue.names import item_name, run_name
from arkqueue.queue.graph import Graph, change, change_in_turn

PATIENCE = 0.5
"""Seconds that busy archives are waited for: their folders can be removed later."""


def take(session: Session, process: str, store: str, attempt: AttemptId, *, may_begin: bool = True) -> Scratch | None:
    """The scratch folder that an attempt of ours is to have; the first attempt that asks puts it into ``store``, if that ``may_begin`` another one.

    None: the attempt is not ours any more, or there is no folder yet.
    """
    row = _of(session.rows("scratch_of", attempt=attempt, process=process))
    if row is None or row.id is not None or not may_begin:
        return _scratch(row)

    def work(graph: Graph) -> Any:
        graph.do("add_scratch", run=row.run_id, item=row.item, store=store)
        if row.item:
            place = {"branch": row.branch_id, "number": row.number, "run": row.run}
            bound = graph.rows("bind_item", item=row.item, **place)
        else:
            bound = graph.rows("bind_run", run_id=row.run_id)
        if ready := [one.id for one in bound if one.is_ready]:
            graph.do("offer", archive=row.archive_id, tasks=ready)
            graph.ready.update(ready)
        return _of(graph.rows("scratch_of", attempt=attempt, process=process))

    return _scratch(change(session, [row.archive_id], work))


def made(session: Session, scratch: int) -> None:
    """Note that a folder is there: from now on, one that is missing is lost."""
    session.do("scratch_made", id=scratch)


def unneeded(session: Session, folders: Sequence[int]) -> set[int]:
    """Those of some folders, by their ids, that are to be removed: their run or item is over, purged, or was never known here.

    Those that are over are said to be removed first, with their archives locked: what takes the run up again finds that the folder is gone. What is busy is left to the next call.
    """
    gone = set(folders) - {row.id for row in session.rows("known_scratch", ids=list(folders))}
    if over := session.rows("scratch_over", ids=list(folders)):

        def work(graph: Graph) -> list[int]:
            return graph.ids("end_scratch", ids=[row.id for row in over], archives=graph.archives)

        ended, _ = change_in_turn(session, work, archives={row.archive_id for row in over}, patience=PATIENCE)
        gone.update(*ended)
    return gone


def begin_anew(graph: Graph, run: int, here: str, tasks: Sequence[int]) -> None:
    """Let tasks that run again begin with new folders where theirs are gone, or on a host that is (design 5.30, 5.37). Raises ``Conflict`` where a removed one has what an earlier task made."""
    gone = graph.rows("folders_gone", run=run, tasks=list(tasks), silence=SILENCE)
    for folder in gone:
        if folder.is_removed and folder.first is not None:
            place = graph.rows("place_of_run", run=run)[0]
            whole = item_name(place, folder.item) if folder.item else run_name(place)
            fault = "needs its scratch folder, which was removed when all that used it was over"
            raise Conflict(
                here, fault, f"go on at the first task of it: arkqueue retry {shlex.quote(whole)} --from {folder.first}"
            )
    if anew := [folder.id for folder in gone if folder.first is None]:
        graph.do("forget_scratch", ids=anew)
        bound = graph.rows("bind_run", run_id=run)
        if ready := [one.id for one in bound if one.is_ready]:
            (place,) = graph.rows("place_of_run", run=run)
            graph.do("offer", archive=place.archive_id, tasks=ready)
            graph.ready.update(ready)


def measured(session: Session, sizes: Mapping[int, int]) -> None:
    """Note how many bytes folders take."""
    session.do("measured_scratch", ids=list(sizes), bytes=list(sizes.values()))


def _of(rows: list[Any]) -> Any:
    return rows[0] if rows else None


def _scratch(row: Any) -> Scratch | None:
    return None if row is None or row.id is None else Scratch(row.id, row.store, row.is_made, row.is_removed)
