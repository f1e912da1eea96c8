"""One batch of a purge: which of its runs may be purged, and how they are taken out of the graph.
Called by ``purge``.

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
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from arkqueue.db.session import Session
from arkqueue.names import run_name
from arkqueue.queue.changes import TOO_LONG, change, change_in_turn
from arkqueue.queue.done import give_way, portions
from arkqueue.queue.graph import Graph
from arkqueue.queue.places import task_name_of
from arkqueue.states import State

log = logging.getLogger("arkqueue")
T = TypeVar("T")

MOST_TASKS = 1000
"""The most tasks that one transaction deletes."""
MOST_JUDGEMENTS = 5
"""How often a large run is judged, if the archive changes before the lock."""


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


Judge = Callable[[Session | Graph, Sequence[int]], Sequence[int]]
"""Returns those of some runs that are to be purged, judged by their present state."""


class Removed(NamedTuple):
    """The result of a batch. ``gone``: runs that another purge has removed. ``entries``: the audit
    log entry of the purge, once there is one.
    """

    runs: list[str]
    kept: list[tuple[int, Kept]]
    gone: list[Gone]
    entries: list[int]


@dataclass(frozen=True, slots=True)
class Batch:
    """Some runs of one archive that a person, or a rule of the archive, wants to purge. ``entry``: the
    audit log entry of the purge; None: there is none yet. ``exported``: how the exported runs were
    then (`as_it_is`); None: none are exported. ``judge``: called last. ``is_alone``: True if the
    purge is of one run, which the audit log entry then names.
    """

    session: Session
    archive: int
    runs: Sequence[int]
    by: str
    reason: str
    entry: int | None
    exported: Mapping[int, tuple[Any, ...]] | None
    judge: Judge | None
    is_alone: bool

    def purge_at_once(self) -> Removed:
        """Take the runs of a batch that may be purged out of the graph, with their tasks."""

        def work(graph: Graph) -> Removed:
            entries = [] if self.entry is None else [self.entry]
            kept: list[tuple[int, Kept]] = []
            going: list[Any] = []
            gone = gone_of(graph, self.runs)
            chosen = self.runs if self.judge is None else self.judge(graph, self.runs)
            for row in graph.rows("to_purge", runs=list(chosen)):
                if why := _why_kept(graph, row, self.exported):
                    kept.append((row.id, why))
                else:
                    going.append(row)
            if not going:
                return Removed([], kept, gone, entries)
            entries = entries or self._remember(graph)
            ids = [row.id for row in going]
            _remember_starts(graph, graph.rows("starts_in_runs", runs=ids))
            _delete_tasks(graph, ids, graph.ids("tasks_to_purge", runs=ids, most=None), inside=True)
            graph.do("purge_items", runs=ids)
            graph.do("purge_scratch", runs=ids)
            _delete_runs(graph, ids, entries[0])
            return Removed([run_name(row) for row in going], kept, gone, entries)

        return change(self.session, [self.archive], work)

    def purge_in_steps(self) -> Removed:
        """Like `purge_at_once`, for one large run: mark it as being purged, and delete its tasks in
        further transactions. To judge it takes longer than a step; so it is judged before the archive is
        locked, and again if something has changed since. A rehearsal only marks it.
        """
        (run,) = self.runs
        entries = [] if self.entry is None else [self.entry]

        def begin(graph: Graph, before: Any) -> list[int]:
            """Mark the run. Returns the audit log entry; nothing if the run has to be judged again."""
            (now,) = graph.rows("before_purge", run=run) or [None]
            if now is None or (now.entry, now.planned) != (before.entry, None):
                return []
            if graph.rows("changed_before_purge", run=run, archive=self.archive, last=before.last):
                return []
            told = entries or self._remember(graph)
            graph.do("begin_to_purge", run=run, archive=self.archive)
            _delete_runs(graph, [run], told[0])
            return told

        for _ in range(MOST_JUDGEMENTS):
            (before,) = self.session.rows("before_purge", run=run) or [None]
            if before is None:
                return Removed([], [], gone_of(self.session, self.runs), entries)
            chosen = self.runs if self.judge is None else self.judge(self.session, self.runs)
            (row,) = self.session.rows("to_purge", runs=list(chosen)) or [None]
            if row is None:
                return Removed([], [], gone_of(self.session, self.runs), entries)
            if why := _why_kept(self.session, row, self.exported) or _why_not_yet(row, before):
                return Removed([], [(run, why)], [], entries)
            if told := change(self.session, [self.archive], partial(begin, before=before)):
                if not self.session.is_rehearsal:
                    continue_in_steps(self.session, self.archive, run)
                return Removed([run_name(row)], [], [], told)
        again = Kept(run=run_name(row), fault="changed while it was judged", remedy="Purge it again.")
        return Removed([], [(run, again)], [], entries)

    def _remember(self, graph: Graph) -> list[int]:
        """Add the audit log entry of the purge."""
        run = self.runs[0] if self.is_alone else None
        told: dict[str, Any] = {"verb": "purge", "archive": self.archive, "run": run, "task": None}
        return graph.ids("remember", by=self.by, note=self.reason, **told)


def continue_in_steps(session: Session, archive: int, run: int, patience: float | None = None) -> None:
    """Delete the tasks of a run that is being purged in steps, and what belongs to them. Another
    process may do this at the same time. ``patience``: how long to wait for the archive in each
    step; None: without a limit. If the archive is busy for longer, or a step takes too long, the rest
    is left to `sweep`.
    """

    def act(work: Callable[[Graph], T]) -> T:
        """Run a step; raises `BusyArchive` if the archive was busy for too long."""
        give_way(session)
        if patience is None:
            return change(session, [archive], work)
        done, busy = change_in_turn(session, work, archives=[archive], patience=patience)
        if busy:
            raise BusyArchive
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
    except BusyArchive:
        pass
    except TOO_LONG as error:
        log.warning("the purge of run %s continues later: %s", run, error)


class BusyArchive(Exception):
    """The archive was busy for too long. The rest of a purge is left to the next one."""


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


def gone_of(session: Session | Graph, runs: Sequence[int]) -> list[Gone]:
    """The runs among ``runs`` that another purge has removed."""
    return [Gone(run=run_name(row), by=row.by) for row in session.rows("purged_meanwhile", runs=list(runs))]


def is_kept(row: Any) -> bool:
    """Whether a run may not be purged now."""
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
        return _why_waited_for(graph, here, row.target)
    if row.receiver is not None:
        other = task_name_of(graph, row.receiver)
        return Kept(run=here, fault=f"{other} is given its outputs", remedy=f"arkqueue explain {other}")
    if row.skipped is not None:
        other = task_name_of(graph, row.skipped)
        return Kept(run=here, fault=f"{other} was skipped because of it", remedy="Purge that run, too.")
    if row.blocks is not None:
        own = task_name_of(graph, row.blocks)
        return Kept(run=here, fault=f"later runs wait for what {own} waited for", remedy=f"arkqueue explain {own}")
    if exported is not None and exported.get(row.id) != as_it_is(row):
        return Kept(run=here, fault="changed while it was exported", remedy="Purge it again.")
    return None


def _why_waited_for(graph: Graph | Session, here: str, target: int) -> Kept:
    """The reason why a run is kept to which a task of another run has an unmet edge. If that task was
    canceled or skipped, a task behind it waits, or it was skipped because of the run.
    """
    found = {row.id: row for row in graph.rows("waits_behind", task=target)}
    stopped, other = found.pop(target), task_name_of(graph, target)
    if stopped.settled_at is None:
        return Kept(run=here, fault=f"{other} waits for it", remedy=f"arkqueue explain {shlex.quote(other)}")
    for waiting in found:
        last = task_name_of(graph, waiting)
        fault = f"{last} waits for it (through {other}, which was {stopped.state})"
        return Kept(run=here, fault=fault, remedy=f"arkqueue explain {shlex.quote(last)}")
    if stopped.blocks:
        fault = f"later runs would wait for it (through {other}, which was {stopped.state})"
        return Kept(run=here, fault=fault, remedy=f"arkqueue explain {here}")
    how = "because of it" if stopped.state == State.SKIPPED else "while it waited for it"
    return Kept(run=here, fault=f"{other} was {stopped.state} {how}", remedy="Purge that run, too.")


def as_it_is(row: Any) -> tuple[Any, ...]:
    """When the last task of a run settled, its deletion, its waivers, and the last entry of the audit log that names it."""
    return row.settled_at, row.deleted_at, row.waived, row.deed
