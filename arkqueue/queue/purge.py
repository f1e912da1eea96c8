"""Purges whole runs: removes them for good, with their attempts and logs (design 5.27;
docs/decisions/0001, point 27).

The archive is locked for one batch of runs at a time. The batch takes these runs out of the graph,
so no reader sees a part of a run. Their attempts and logs, which are large and not visible any
more, are deleted after that, in steps that lock nothing else (`sweep`), and so are the edges inside
a run of many tasks. A purge that is killed leaves whole runs, and the next purge continues.

A run that other runs wait for is kept. Only settled runs are purged, so that no running task loses
anything.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from arkqueue.db import Connection
from arkqueue.db.session import Session, execute, rows
from arkqueue.errors import Conflict
from arkqueue.model import RunId
from arkqueue.names import run_name
from arkqueue.queue import submissions
from arkqueue.queue.graph import Graph, change
from arkqueue.queue.places import task_name_of
from arkqueue.queue.removal import check_reason

MOST_RUNS = 200
"""The most runs that one transaction takes out of the graph."""
MOST_TASKS = 5000
"""The most tasks of these runs, unless they belong to one run."""
MOST_SWEPT = 500
"""The most tasks whose attempts one step deletes."""
MOST_PIECES = 200
"""The most pieces of logs that one step deletes, each of up to 64 KiB."""
MOST_EDGES = 5000
"""The most edges inside large runs that one step deletes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A run that a purge passed over. ``fault``: the reason; ``remedy``: the command that helps."""

    run: str
    fault: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """A run that another purge has removed, and the person of that purge."""

    run: str
    by: str


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
Judge = Callable[[Graph, Sequence[int]], Sequence[int]]
"""Returns those of some runs that are to be purged, judged by their present state."""


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
    done = Purged(gone=_gone(session, missing))
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
    entry = [] if entry is None else entry
    left, is_progress = deque(runs), True
    while left and is_progress:
        kept: list[tuple[int, Kept]] = []
        is_progress = False
        while left:
            batch = [left.popleft() for _ in range(min(MOST_RUNS, len(left)))]
            exported = _exported(session, batch, export) if export else None
            known = next(iter(entry), None)
            work = partial(_purge, runs=batch, by=by, reason=reason, entry=known, exported=exported, judge=judge)
            purged, passed, rest, gone, entry[:] = change(session, [archive], work)
            sweep(session)
            left.extendleft(reversed(rest))
            kept += passed
            is_progress = is_progress or bool(purged)
            is_over = session.is_over
            yield Purged(purged, [why for _, why in kept], len(left) if is_over else 0, gone)
            if is_over:
                return
        left.extend(run for run, _ in kept)


def sweep(session: Session) -> None:
    """Delete the attempts and logs that purges have left, also killed purges. Rows that another
    process is deleting are left to that process.

    A rehearsal leaves all of them.
    """
    if session.is_rehearsal:
        return

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
    after that (`_as_it_is`).
    """
    rows = [row for row in session.rows("to_purge", runs=list(runs)) if not _is_kept(row)]
    if rows:
        export(session, [row.id for row in rows])
    return {row.id: _as_it_is(row) for row in rows}


def _as_it_is(row: Any) -> tuple[Any, ...]:
    """When the last task of a run settled, its deletion, its waivers, and the last entry of the audit log that names it."""
    return row.settled_at, row.deleted_at, row.waived, row.deed


def _purge(
    graph: Graph,
    runs: Sequence[int],
    by: str,
    reason: str,
    entry: int | None,
    exported: Mapping[int, tuple[Any, ...]] | None,
    judge: Judge | None,
) -> tuple[list[str], list[tuple[int, Kept]], list[int], list[Gone], list[int]]:
    """Take the runs of a batch that may be purged out of the graph.

    Returns the names of the purged runs, the kept runs, the runs that are too many for one
    transaction, the runs that another purge removed, and the audit log entry, once there is one.
    """
    entries = [] if entry is None else [entry]
    kept: list[tuple[int, Kept]] = []
    going: list[Any] = []
    rest: list[int] = []
    tasks = 0
    gone = _gone(graph, runs)
    if judge is not None:
        runs = judge(graph, runs)
    for row in graph.rows("to_purge", runs=list(runs)):
        if going and tasks + row.tasks > MOST_TASKS:
            rest.append(row.id)
        elif why := _why_kept(graph, row):
            kept.append((row.id, why))
        elif exported is not None and exported.get(row.id) != _as_it_is(row):
            again = Kept(run=run_name(row), fault="changed while it was exported", remedy="Purge it again.")
            kept.append((row.id, again))
        else:
            going.append(row)
            tasks += row.tasks
    if not going:
        return [], kept, rest, gone, entries
    if not entries:
        entries = graph.ids(
            "remember", by=by, verb="purge", archive=graph.archives[0], run=None, task=None, note=reason
        )
    ids = [row.id for row in going]
    graph.do("purge_starts", runs=ids)
    # Deleting the edges inside a run takes longest. No task leads to them any more.
    is_large = tasks > MOST_TASKS
    graph.do("purge_edges", runs=ids, inside=not is_large)
    graph.do("purge_tasks", runs=ids, edges=is_large)
    graph.do("purge_items", runs=ids)
    graph.do("leave_payloads_of_runs", runs=ids)
    graph.do("purge_scratch", runs=ids)
    graph.do("purge_uploads", runs=ids)
    if lists := {row.digest for row in graph.rows("purge_list_uses", runs=ids)}:
        locked = [row.digest for row in graph.rows("lock_lists_to_purge", digests=sorted(lists))]
        graph.do("purge_lists", digests=locked)
    graph.do("purge_reports", runs=ids)
    graph.do("purge_deliveries", archive=graph.archives[0], runs=ids)
    graph.do("purge_schedules", runs=ids)
    graph.do("purge_notes", runs=ids)
    graph.do("purge_runs", runs=ids, entry=entries[0])
    return [run_name(row) for row in going], kept, rest, gone, entries


def _gone(session: Session | Graph, runs: Sequence[int]) -> list[Gone]:
    return [Gone(run=run_name(row), by=row.by) for row in session.rows("purged_meanwhile", runs=list(runs))]


def _is_kept(row: Any) -> bool:
    return row.unsettled or any(task is not None for task in (row.target, row.receiver, row.skipped, row.blocks))


def _why_kept(graph: Graph, row: Any) -> Kept | None:
    here = run_name(row)
    if row.unsettled:
        return Kept(run=here, fault="is not settled", remedy=f"Wait for its end, or cancel it: arkqueue cancel {here}")
    if row.target is not None:
        other = task_name_of(graph, row.target)
        return Kept(run=here, fault=f"{other} waits for it", remedy=f"arkqueue explain {other}")
    if row.receiver is not None:
        other = task_name_of(graph, row.receiver)
        return Kept(run=here, fault=f"{other} is given its outputs", remedy=f"arkqueue explain {other}")
    if row.skipped is not None:
        other = task_name_of(graph, row.skipped)
        return Kept(run=here, fault=f"{other} was skipped because of it", remedy="Purge that run, too.")
    if row.blocks is not None:
        own = task_name_of(graph, row.blocks)
        return Kept(run=here, fault=f"later runs wait for what {own} waited for", remedy=f"arkqueue explain {own}")
    return None
