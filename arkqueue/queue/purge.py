"""Purges whole runs: removes them for good, with their attempts and logs (design 5.27;
docs/decisions/0001, point 27).

The archive is locked for one batch of runs at a time, and a large run is a batch of its own
(``purge_batch``). The batch takes these runs out of the graph, so no reader sees a part of a run.
Their attempts and logs, which are large and not visible any more, are deleted after that, in steps
that lock nothing else (`sweep`).

A run that other runs wait for is kept. Only settled runs are purged, so that no running task loses
anything.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from arkqueue.db import Connection
from arkqueue.db.session import Session, execute, rows
from arkqueue.errors import Conflict
from arkqueue.model import RunId
from arkqueue.queue import purge_batch, submissions
from arkqueue.queue.changes import BRIEF
from arkqueue.queue.purge_batch import Batch, Gone, Judge, Kept, as_it_is, continue_in_steps, gone_of, is_kept
from arkqueue.queue.removal import check_reason

MOST_RUNS = 200
"""The most runs of a batch."""
MOST_SWEPT = 500
"""The most tasks whose attempts one step deletes."""
MOST_PIECES = 200
"""The most pieces of logs that one step deletes, each of up to 64 KiB."""
MOST_EDGES = 5000
"""The most edges inside large runs that one step deletes."""


@dataclass(slots=True)
class Purged:
    """The names of the purged runs, and the runs that were passed over. ``gone``: runs that another
    purge has removed, meanwhile or before.
    """

    runs: list[str] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    left: int = 0
    """The number of runs that were not reached within the time of a rehearsal."""
    gone: list[Gone] = field(default_factory=list)

    def unless_kept(self) -> Purged:
        """Return this result; if nothing was purged, raise the reason of the first kept run."""
        if self.kept and not self.runs:
            first, more = self.kept[0], len(self.kept) - 1
            fault = f"{first.fault}, and is kept" + (f"; and {more} more are kept" if more else "")
            raise Conflict(first.run, fault, first.remedy)
        return self


Exporter = Callable[[Session, Sequence[int]], None]
"""Writes runs that are about to be purged."""


def purge_runs(
    session: Session,
    runs: Sequence[RunId],
    by: str,
    reason: str = "",
    export: Exporter | None = None,
    *,
    dry_run: bool = False,
) -> Purged:
    """Remove runs for good, the oldest of each branch first. A settled run on which no other run
    depends is purged; the result names the others. ``dry_run``: the purge is undone at the end.
    """
    check_reason(reason)
    places: dict[int, list[tuple[str, int, int, int]]] = defaultdict(list)
    missing: list[int] = []
    for run in dict.fromkeys(runs):
        found = session.rows("place_of_run", run=run)
        for row in found:
            places[row.archive_id].append((row.branch, row.number, row.run, row.id))
        if not found:
            missing.append(run)
    done = Purged(gone=gone_of(session, missing))
    if not dry_run:
        sweep(session)
    for archive, of_one in places.items():
        last = Purged()
        with session.rehearsal(archive) if dry_run else nullcontext(session) as acting:
            for last in purging(acting, archive, [place[-1] for place in sorted(of_one)], by, reason, export):
                done.runs += last.runs
                done.gone += last.gone
        done.kept += last.kept
        done.left += last.left
    return done


def purging(
    session: Session,
    archive: int,
    runs: Sequence[int],
    by: str,
    reason: str,
    export: Exporter | None = None,
    entry: list[int] | None = None,
    judge: Judge | None = None,
) -> Iterator[Purged]:
    """Purge runs of an archive batch by batch. Yields after each batch the runs that it purged, and
    all runs that were passed over so far.

    If a round purged runs, the kept ones are judged again, as the purged ones may have kept them.
    ``export`` gets each batch before the archive is locked, because logs are long; a run that
    changes meanwhile is kept. ``entry``: gets the audit log entry of the purge, once there is one.
    ``judge``: called once the archive is locked, as a person may have acted on a run since it was
    chosen.
    """
    is_alone = entry is None and len(runs) == 1
    entry = [] if entry is None else entry
    left, is_progress = deque(runs), True
    while left and is_progress:
        kept: list[tuple[int, Kept]] = []
        is_progress = False
        while left:
            batch, is_large = _next_batch(session, left)
            exported = _exported(session, batch, export) if export else None
            of_batch = Batch(session, archive, batch, by, reason, next(iter(entry), None), exported, judge, is_alone)
            purged, passed, gone, entry[:] = of_batch.purge_in_steps() if is_large else of_batch.purge_at_once()
            sweep(session)
            kept += passed
            is_progress = is_progress or bool(purged)
            is_over = session.is_over
            yield Purged(purged, [why for _, why in kept], len(left) if is_over else 0, gone)
            if is_over:
                return
        left.extend(run for run, _ in kept)


def _next_batch(session: Session, left: deque[int]) -> tuple[list[int], bool]:
    """Take the runs of the next transaction from the left ones; or one large run, and True."""
    sizes = {row.run: row.tasks for row in session.rows("sizes_of_runs", runs=[*left][:MOST_RUNS])}
    if sizes.get(left[0], 0) > purge_batch.MOST_TASKS:
        return [left.popleft()], True
    batch, tasks = list[int](), 0
    while left and len(batch) < MOST_RUNS and (not batch or tasks + sizes.get(left[0], 0) <= purge_batch.MOST_TASKS):
        tasks += sizes.get(left[0], 0)
        batch.append(left.popleft())
    return batch, False


def sweep(session: Session) -> None:
    """Continue purges in steps that were killed, and delete the attempts and logs that purges have
    left. Rows that another process is deleting are left to that process, and archives that are busy
    to the next call.

    A rehearsal leaves all of them.
    """
    if session.is_rehearsal:
        return
    for row in session.rows("purgings"):
        continue_in_steps(session, row.archive, row.run, patience=BRIEF)

    def step(connection: Connection) -> bool:
        tasks = [row.id for row in rows(connection, "left_of_purged", most=MOST_SWEPT)]
        if tasks:
            pieces = execute(connection, "delete_logs_of_purged", {"tasks": tasks, "most": MOST_PIECES}).rowcount
            if pieces < MOST_PIECES:
                edges = execute(connection, "delete_edges_of_purged", {"tasks": tasks, "most": MOST_EDGES}).rowcount
                if edges < MOST_EDGES:
                    execute(connection, "delete_attempts_of_purged", {"tasks": tasks})
        return bool(tasks)

    while session.retrying(step):
        pass
    submissions.sweep(session)


def _exported(session: Session, runs: Sequence[int], export: Exporter) -> dict[int, tuple[Any, ...]]:
    """Export the runs of a batch that may be purged. Returns what shows for each whether it changes
    after that (`as_it_is`).
    """
    rows = [row for row in session.rows("to_purge", runs=list(runs)) if not is_kept(row)]
    if rows:
        export(session, [row.id for row in rows])
    return {row.id: as_it_is(row) for row in rows}
