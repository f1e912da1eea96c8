"""Purges whole runs: removes them for good, with their attempts and logs (design 5.27;
docs/decisions/0001, point 27).

The archive is locked for one batch of runs at a time. The batch takes these runs out of the graph,
so no reader sees a part of a run. Their attempts and logs, which are large and not visible any
more, are deleted after that, in steps that lock nothing else (`sweep`).

A run with more than `MOST_TASKS` tasks is purged in several transactions:

    judge     without a lock: whether the run may be purged. The first transaction checks that
              nothing has changed since
    begin     the row of the run is deleted, and ``purging`` names the run. From now on, the run is
              purged for everybody: no plan, verb or view looks at its tasks
    remember  what has started because of tasks of earlier runs is stored, in portions
    delete    the tasks and their edges from and to other runs, `MOST_TASKS` at a time
    end       the items and scratch folders, and then the row of ``purging``. `sweep` deletes the
              edges inside the run, with its attempts and logs

A purge that is killed leaves whole runs and such begun ones, and the next purge continues.

A run that other runs wait for is kept. Only settled runs are purged, so that no running task loses
anything.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from arkqueue.db import Connection
from arkqueue.db.session import Session, execute, rows
from arkqueue.errors import Conflict
from arkqueue.model import RunId
from arkqueue.names import run_name
from arkqueue.queue import submissions
from arkqueue.queue.done import give_way, portions
from arkqueue.queue.graph import BRIEF, TOO_LONG, Graph, change, change_in_turn
from arkqueue.queue.places import task_name_of
from arkqueue.queue.removal import check_reason

log = logging.getLogger("arkqueue")
T = TypeVar("T")

MOST_RUNS = 200
"""The most runs that one transaction takes out of the graph."""
MOST_TASKS = 1000
"""The most tasks that one transaction deletes."""
MOST_JUDGEMENTS = 5
"""How often a large run is judged, if the archive changes before the lock."""
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
Judge = Callable[[Session | Graph, Sequence[int]], Sequence[int]]
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
            batch, is_large = _next_batch(session, left)
            exported = _exported(session, batch, export) if export else None
            known = next(iter(entry), None)
            purge = (
                partial(_purge_in_steps, session, archive) if is_large else partial(_purge_at_once, session, archive)
            )
            purged, passed, gone, entry[:] = purge(batch, by, reason, known, exported, judge)
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
    if sizes.get(left[0], 0) > MOST_TASKS:
        return [left.popleft()], True
    batch, tasks = list[int](), 0
    while left and len(batch) < MOST_RUNS and (not batch or tasks + sizes.get(left[0], 0) <= MOST_TASKS):
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
        _go_on(session, row.archive, row.run, patience=BRIEF)

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


_Result = tuple[list[str], list[tuple[int, Kept]], list[Gone], list[int]]
"""The names of the purged runs, the kept runs, the runs that another purge removed, and the audit
log entry, once there is one."""


def _purge_at_once(
    session: Session,
    archive: int,
    runs: Sequence[int],
    by: str,
    reason: str,
    entry: int | None,
    exported: Mapping[int, tuple[Any, ...]] | None,
    judge: Judge | None,
) -> _Result:
    """Take the runs of a batch that may be purged out of the graph, with their tasks."""

    def work(graph: Graph) -> _Result:
        entries = [] if entry is None else [entry]
        kept: list[tuple[int, Kept]] = []
        going: list[Any] = []
        gone = _gone(graph, runs)
        chosen = runs if judge is None else judge(graph, runs)
        for row in graph.rows("to_purge", runs=list(chosen)):
            if why := _why_kept(graph, row, exported):
                kept.append((row.id, why))
            else:
                going.append(row)
        if not going:
            return [], kept, gone, entries
        entries = entries or _remember(graph, by, reason)
        ids = [row.id for row in going]
        _remember_starts(graph, graph.rows("starts_in_runs", runs=ids))
        _delete_tasks(graph, ids, graph.ids("tasks_to_purge", runs=ids, most=None), inside=True)
        graph.do("purge_items", runs=ids)
        graph.do("purge_scratch", runs=ids)
        _delete_runs(graph, ids, entries[0])
        return [run_name(row) for row in going], kept, gone, entries

    return change(session, [archive], work)


def _purge_in_steps(
    session: Session,
    archive: int,
    runs: Sequence[int],
    by: str,
    reason: str,
    entry: int | None,
    exported: Mapping[int, tuple[Any, ...]] | None,
    judge: Judge | None,
) -> _Result:
    """Like `_purge_at_once`, for one large run: mark it as being purged, and delete its tasks in
    further transactions. To judge it takes longer than a step; so it is judged before the archive is
    locked, and again if something has changed since. A rehearsal only marks it.
    """
    (run,) = runs
    entries = [] if entry is None else [entry]

    def begin(graph: Graph, before: Any) -> list[int]:
        """Mark the run. Returns the audit log entry; nothing if the run has to be judged again."""
        (now,) = graph.rows("before_purge", run=run) or [None]
        if now is None or (now.entry, now.planned) != (before.entry, None):
            return []
        if graph.rows("changed_before_purge", run=run, archive=archive, last=before.last):
            return []
        told = entries or _remember(graph, by, reason)
        graph.do("begin_to_purge", run=run, archive=archive)
        _delete_runs(graph, [run], told[0])
        return told

    for _ in range(MOST_JUDGEMENTS):
        (before,) = session.rows("before_purge", run=run) or [None]
        if before is None:
            return [], [], _gone(session, runs), entries
        (row,) = session.rows("to_purge", runs=list(runs if judge is None else judge(session, runs))) or [None]
        if row is None:
            return [], [], _gone(session, runs), entries
        if why := _why_kept(session, row, exported) or _why_not_yet(row, before):
            return [], [(run, why)], [], entries
        if told := change(session, [archive], partial(begin, before=before)):
            if not session.is_rehearsal:
                _go_on(session, archive, run)
            return [run_name(row)], [], [], told
    return (
        [],
        [(run, Kept(run=run_name(row), fault="changed while it was judged", remedy="Purge it again."))],
        [],
        entries,
    )


def _go_on(session: Session, archive: int, run: int, patience: float | None = None) -> None:
    """Delete the tasks of a run that is being purged in steps, and what belongs to them. Another
    process may do this at the same time. ``patience``: how long to wait for the archive in each
    step; None: without a limit. If the archive is busy for longer, or a step takes too long, the rest
    is left to `sweep`.
    """

    def act(work: Callable[[Graph], T]) -> T:
        """Run a step; raises `_BusyArchive` if the archive was busy for too long."""
        give_way()
        if patience is None:
            return change(session, [archive], work)
        done, busy = change_in_turn(session, work, archives=[archive], patience=patience)
        if busy:
            raise _BusyArchive
        return done[0]

    def delete(graph: Graph) -> bool:
        tasks = graph.ids("tasks_to_purge", runs=[run], most=MOST_TASKS)
        graph.follow(entering=_delete_tasks(graph, [run], tasks, inside=False))
        return bool(tasks)

    def end(graph: Graph) -> None:
        if not graph.ids("tasks_to_purge", runs=[run], most=1):
            graph.do("end_purging", run=run)

    (found,) = session.rows("purging", run=run) or [None]
    if found is None:
        return
    try:
        if not found.has_starts:
            for portion in portions(session.rows("starts_in_runs", runs=[run])):
                act(partial(_remember_starts, starts=portion))
            session.do("has_starts", run=run)
        while act(delete):
            pass
        while session.do("purge_some_items", runs=[run], most=MOST_TASKS):
            pass
        act(end)
    except _BusyArchive:
        pass
    except TOO_LONG as error:
        log.warning("the purge of run %s continues later: %s", run, error)


class _BusyArchive(Exception):
    """The archive was busy for too long. The rest of a purge is left to the next one."""


def _remember(graph: Graph, by: str, reason: str) -> list[int]:
    """The audit log entry of a purge."""
    told: dict[str, Any] = {"by": by, "verb": "purge", "archive": graph.archives[0], "run": None, "task": None}
    return graph.ids("remember", note=reason, **told)


def _remember_starts(graph: Graph, starts: Sequence[Any]) -> None:
    if starts:
        tasks, numbers, runs, names, items = (list(column) for column in zip(*starts, strict=True))
        graph.do("remember_starts", tasks=tasks, numbers=numbers, runs=runs, names=names, items=items)


def _delete_tasks(graph: Graph, runs: Sequence[int], tasks: Sequence[int], *, inside: bool) -> list[int]:
    """Delete tasks of runs, with their edges from and to other runs. ``inside``: also the edges inside
    the runs; `sweep` deletes the others. Returns waiting tasks that wait for nothing any more.
    """
    if not tasks:
        return []
    found = graph.rows("purge_edges", runs=list(runs), tasks=list(tasks), inside=inside)
    graph.do("purge_tasks", tasks=list(tasks), edges=not inside)
    return [row.id for row in found if row.is_free]


def _delete_runs(graph: Graph, runs: list[int], entry: int) -> None:
    """Delete the rows of runs, and the few rows that belong to each."""
    graph.do("leave_payloads_of_runs", runs=runs)
    graph.do("purge_uploads", runs=runs)
    if lists := {row.digest for row in graph.rows("purge_list_uses", runs=runs)}:
        locked = [row.digest for row in graph.rows("lock_lists_to_purge", digests=sorted(lists))]
        graph.do("purge_lists", digests=locked)
    graph.do("purge_reports", runs=runs)
    graph.do("purge_deliveries", archive=graph.archives[0], runs=runs)
    graph.do("purge_schedules", runs=runs)
    graph.do("purge_notes", runs=runs)
    graph.do("purge_runs", runs=runs, entry=entry)


def _gone(session: Session | Graph, runs: Sequence[int]) -> list[Gone]:
    return [Gone(run=run_name(row), by=row.by) for row in session.rows("purged_meanwhile", runs=list(runs))]


def _is_kept(row: Any) -> bool:
    return row.unsettled or any(task is not None for task in (row.target, row.receiver, row.skipped, row.blocks))


def _why_not_yet(row: Any, before: Any) -> Kept | None:
    """The reason why a large run is not purged now: the tasks of a later run are being stored, and
    may come to depend on it.
    """
    if before.planned is None:
        return None
    return Kept(
        run=run_name(row),
        fault="a run of its branch is still being planned",
        remedy="Purge it again when that is planned.",
    )


def _why_kept(graph: Graph | Session, row: Any, exported: Mapping[int, tuple[Any, ...]] | None = None) -> Kept | None:
    """The reason why a run is kept. ``exported``: how the exported runs were then."""
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
    if exported is not None and exported.get(row.id) != _as_it_is(row):
        return Kept(run=here, fault="changed while it was exported", remedy="Purge it again.")
    return None
