"""The obstacles of a proposed run, in the words of ``explain``: a pause, a limit, a lock, or no
task manager that can run a task.

The previews of `trigger`, of a submission and of a backfill call it, on the command line and on the
pages. They show dependencies and holds with each task (`queue.proposed`), and refuse a run of a
stopped archive.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Protocol

from arkqueue.db.session import Session
from arkqueue.lock_names import MARK, is_global
from arkqueue.model import INSTALLATION, ArchiveId
from arkqueue.views.archives import archive as show_archive
from arkqueue.views.installation import task_managers
from arkqueue.views.locks import command
from arkqueue.views.naming import task_names
from arkqueue.views.not_starting import at_its_limit, having, lacking, lock_paused, no_fit_host
from arkqueue.views.reasons import Reason, Why, archive_paused

MOST_LOCKS = 20
"""The most locks that are named: each item of a list may ask for a lock of its own."""


class Prospect(Protocol):
    """A task that a proposed run would have."""

    @property
    def name(self) -> str: ...
    @property
    def locks(self) -> list[str]: ...
    @property
    def runs_on(self) -> list[str]: ...


def obstacles(session: Session, archive: ArchiveId, tasks: Sequence[Prospect]) -> list[Reason]:
    """The obstacles that would keep some tasks from starting now, besides their dependencies and
    holds. All items of a list share one reason.
    """
    if not tasks:
        return []
    view = show_archive(session, archive)
    found = []
    if view.paused is not None:
        found.append(archive_paused(view.name, view.paused))
    limit = view.settings.max_running
    if limit is not None and not session.rows("free_slots", archive=archive)[0].n:
        found.append(at_its_limit(view.name, limit))
    return [*found, *_locks(session, archive, view.name, tasks), *_hosts(session, tasks)]


def _locks(session: Session, archive: ArchiveId, shown: str, tasks: Sequence[Prospect]) -> list[Reason]:
    """The locks that tasks would have to wait for, and the locks whose names are not known yet.
    ``shown``: the archive's name.
    """
    wanted = dict.fromkeys((lock, task.name) for task in tasks for lock in task.locks)
    unknown = {lock: task for lock, task in wanted if MARK in lock}
    scopes = {lock: INSTALLATION if is_global(lock) else archive for lock, _ in wanted if lock not in unknown}
    asked: dict[str, Any] = {"scopes": list(scopes.values()), "names": list(scopes)}
    rows = {row.name: row for row in (session.rows("obstructing_locks", archive=archive, **asked) if scopes else ())}
    names = task_names(session, [holder for row in rows.values() for holder in row.holders or ()])
    found = []
    for lock, task in wanted:
        if lock not in rows:
            continue
        row, called = rows[lock], lock if is_global(lock) else f"{shown}/{lock}"
        if row.paused_at is not None:
            found.append(lock_paused(task, row, called))
        else:
            text = f"{task} waits for the lock {called}{having(row, names)}."
            found.append(Reason(kind=Why.LOCKED, text=text, commands=[command("lock list", shown)]))
    if more := max(len(found) - MOST_LOCKS, 0):
        locks = "1 more lock" if more == 1 else f"{more} more locks"
        text = f"Tasks of this run wait for {locks}."
        found[MOST_LOCKS:] = [Reason(kind=Why.LOCKED, text=text, commands=[command("lock list", shown)])]
    for lock, task in unknown.items():
        text = f"{task} may have to wait for the lock {lock}: its name is known only when the task asks for it."
        found.append(Reason(kind=Why.LOCKED, text=text))
    return found


def _hosts(session: Session, tasks: Sequence[Prospect]) -> list[Reason]:
    """The reasons that no task manager can start some tasks now, one for each set of labels."""
    managers = task_managers(session)
    alive = [manager for manager in managers if manager.alive]
    by_labels: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, labels in {task.name: tuple(task.runs_on) for task in tasks}.items():
        by_labels[labels].append(name)
    if not alive:
        commands = [_worker(labels) for labels in by_labels]
        return [Reason(kind=Why.NO_TASK_MANAGER, text="No task manager is running: no task starts.", commands=commands)]
    found = []
    for labels, names in by_labels.items():
        labeled = [manager for manager in alive if {*labels} <= {*manager.labels}]
        state = f"{', '.join(names)} cannot start: "
        if not labeled:
            text = f"{state}{lacking(labels, alive)} (`runs_on`)."
            found.append(Reason(kind=Why.NO_LABEL, text=text, tasks=names, commands=[_worker(labels)]))
        elif not any(not (m.fault or m.low_disk or m.drained_at) for m in labeled):
            found.append(no_fit_host(state, names, labeled))
    return found


def _worker(labels: Sequence[str]) -> str:
    return " ".join(["arkqueue worker", *(f"--label {label}" for label in labels)])
