"""Scratch folders: where the folder of a run or of an item is (design 5.37). What is in it is the task managers' business (``workspace.scratch``)."""

from __future__ import annotations

from typing import Any

from arkqueue.db.session import Session
from arkqueue.model import AttemptId, Scratch
from arkqueue.queue.graph import Graph, change


def take(session: Session, process: str, store: str, attempt: AttemptId) -> Scratch | None:
    """The scratch folder that an attempt of ours is to have; the first attempt that asks puts it into ``store``. None: the attempt is not ours any more."""
    row = _of(session.rows("scratch_of", attempt=attempt, process=process))
    if row is None or row.id is not None:
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


def _of(rows: list[Any]) -> Any:
    return rows[0] if rows else None


def _scratch(row: Any) -> Scratch | None:
    return None if row is None else Scratch(row.id, row.store, row.is_made, row.is_removed)
