"""Why a task that waits for no other does not start: no slot, no task manager with its labels or
beside its scratch folder, or a lock that others have. Makes reasons as `reasons` does.
"""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from arkqueue.db.session import Session
from arkqueue.model import INSTALLATION, SILENCE, ArchiveId, End, Pool
from arkqueue.states import State
from arkqueue.views.installation import TaskManagerView, task_managers
from arkqueue.views.locks import also_waits, command, full_name, without_room
from arkqueue.views.naming import task_name, task_names
from arkqueue.views.outdated import at, since
from arkqueue.views.reasons import Reason, Why, counted, from_first_with_scratch, paused, stopped, why_forced

MOST_AHEAD = 1000
"""The most ready tasks that are counted ahead of a task that waits for a slot."""
MOST_OF_A_LINE = 3
"""The most tasks of a lock that are named."""
NOBODY_THERE = "no task manager beside its scratch folder"
"""Stands for the task managers of the host to which a scratch folder binds a task."""


class Around:
    """The pools of several waiting tasks, the locks that they ask for, and the task managers. Each is
    read once, for all of these tasks. ``seen``: the archives whose tasks may be named beside those
    of a task's own archive; None: all.
    """

    def __init__(self, session: Session, tasks: Sequence[int], seen: Sequence[ArchiveId] | None = ()) -> None:
        self.session, self.tasks = session, list(tasks)
        self.seen = None if seen is None else list(seen)
        self._slots: dict[int, bool] = {}

    def has_slot(self, archive: int) -> bool:
        """True if an archive's limit allows one more running task."""
        if archive not in self._slots:
            self._slots[archive] = bool(self.session.rows("free_slots", archive=archive)[0].n)
        return self._slots[archive]

    @cached_property
    def managers(self) -> list[TaskManagerView]:
        return task_managers(self.session)

    @cached_property
    def pools(self) -> dict[int, Any]:
        return {row.task: row for row in self.session.rows("pools", tasks=self.tasks)}

    @cached_property
    def locks(self) -> dict[int, list[Any]]:
        """The locks of each task that asks for some."""
        found: dict[int, list[Any]] = defaultdict(list)
        asked: dict[str, Any] = {"tasks": self.tasks, "seen": self.seen, "named": MOST_OF_A_LINE}
        for row in self.session.rows("locks_of_tasks", most=MOST_AHEAD, silence=SILENCE, **asked):
            found[row.task_id].append(row)
        return found

    def without_room(self, lock: Any, task: int) -> str:
        """The clause on the other locks that have no room for a task in the line of a lock; empty if
        all have.
        """
        block, asked = without_room(lock, [task])
        return also_waits(self.session.rows(block, **asked), "waits")

    @cached_property
    def names(self) -> dict[int, str]:
        """The names of the first tasks that have one of the locks, and of the first in its line."""
        some = [lock for locks in self.locks.values() for lock in locks]
        tasks = [
            task
            for lock in some
            for those in (lock.holders, lock.others, lock.ahead)
            for task in (those or [])[:MOST_OF_A_LINE]
        ]
        return task_names(self.session, tasks)


def asking(
    session: Session,
    row: Any,
    subject: str,
    around: Around | None = None,
    *,
    brief: bool = False,
    seen: Sequence[ArchiveId] | None = (),
) -> list[Reason]:
    """The reason why a task that asks for locks does not get them: a pause, or the tasks that have
    each lock and those before it in the line (design 5.25).

    ``brief``: as in `ready`. ``seen``: as in `Around`, which has it if given.
    """
    if not row.asks or row.state != State.WAITING:
        return []
    around = around or Around(session, [row.id], seen)
    name = task_name(row)
    for reason in stopped(row, f"{subject} waits for its locks, but ", brief=brief) or paused(
        row, f"{subject} waits for its locks, but "
    ):
        return [replace(reason, tasks=[name])]
    found = []
    asked = around.locks.get(row.id, [])
    for lock in asked:
        called = full_name(lock)
        if lock.paused_at is not None:
            found.append(replace(lock_paused(subject, lock, called), tasks=[name]))
        elif lock.capacity is not None and _lacks_room(lock):
            found.append(_locked(around, row, subject, lock, called))
    _, _, labels, store, is_attached = around.pools[row.id]
    managers = around.managers
    alive = [m for m in managers if m.alive]
    there = [m for m in alive if store in (None, m.store)]
    labeled = [m for m in there if {*labels} <= {*m.labels}]
    waits = f"{subject} waits for its locks"
    if alive and not there:
        found.append(_no_store(session, row, waits, store, managers, is_attached=is_attached, brief=brief))
    elif labels and alive and not labeled:
        found.append(_no_label(waits, name, labels, there, store, brief=brief))
    elif labeled and all(_claims_nothing(m) for m in labeled) and not all(lock.stands for lock in asked):
        nowhere = f"{waits}, but no host can start it for now."
        no_host = Reason(kind=Why.NO_FIT_HOST, text=nowhere, tasks=[name])
        found.append(no_host if brief else no_fit_host(f"{waits}, but ", [name], labeled))
    if not found:
        meanwhile = "" if brief else "; meanwhile other tasks may get them"
        text = f"{waits}, but no running task manager can run it{meanwhile}."
        found.append(Reason(kind=Why.NO_TASK_MANAGER, text=text, tasks=[name], commands=["arkqueue worker"]))
    return found


def _lacks_room(lock: Any) -> bool:
    """True if a task waits for this lock, among its locks. A task that does not stand in line waits for
    the lock only while others have all of it.
    """
    holders = len(lock.holders or ())
    if not lock.stands:
        return bool(holders + lock.elsewhere >= lock.capacity)
    return bool(lock.scope == INSTALLATION or holders + len(lock.ahead or ()) >= lock.capacity)


def lock_paused(subject: str, lock: Any, called: str) -> Reason:
    """The reason that a lock is paused. ``called``: its name with the name of its archive."""
    why = f": {lock.pause_reason}" if lock.pause_reason else ""
    by = f" by {lock.paused_by}" if lock.paused_by else ""
    text = f"{subject} waits for the lock {called}, which is paused{since(lock.paused_at)}{by}{why}."
    return Reason(kind=Why.LOCK_PAUSED, text=text, commands=[command("resume --lock", called)])


def _locked(around: Around, row: Any, subject: str, lock: Any, called: str) -> Reason:
    """The reason that a task waits for a lock: the tasks that have it, and those before this task
    in its line. Tasks of other archives are only counted, unless the reader may know their names
    (`Around`).
    """
    names, holders, ahead = around.names, lock.holders or [], lock.ahead or []
    line = f"; waiting before it: {_some_of(ahead, names)}" if ahead else "; it is next in line"
    if lock.scope == INSTALLATION:
        line += " of its archive, and archives take turns" if not ahead else ""
    text = f"{subject} waits for the lock {called}{having(lock, names, lock.others)}{line if lock.stands else ''}."
    if ahead and len(holders) + lock.elsewhere < lock.capacity and (full := around.without_room(lock, ahead[0])):
        text += f" {names[ahead[0]]} {full}."
    tasks = [names[id] for id in [*holders, *lock.others, *ahead] if id in names]
    return Reason(kind=Why.LOCKED, text=text, tasks=tasks, commands=[f"arkqueue lock list {row.archive}"])


def having(lock: Any, names: dict[int, str], others: Sequence[int] = ()) -> str:
    """The clause on the tasks that have a lock. ``names``: the names of holders of the same archive,
    and of ``others``: the first holders of other archives that the reader may know.
    """
    holders = lock.holders or []
    found = [_some_of(holders, names)] if holders else []
    known = [names[task] for task in others if task in names]
    found += [", ".join(known)] if known else []
    if elsewhere := lock.elsewhere - len(known):
        more = "more " if known else ""
        found.append(
            f"{'one more' if known else 'a'} task of another archive"
            if elsewhere == 1
            else f"{elsewhere} {more}tasks of other archives"
        )
    of = f" ({lock.capacity} at once)" if lock.capacity > 1 else ""
    if not found:
        return f"{of}, which no task has yet"
    return f"{of}, which {' and '.join(found)} {'has' if len(holders) + lock.elsewhere == 1 else 'have'}"


def _some_of(tasks: Sequence[int], names: dict[int, str]) -> str:
    known = [names[task] for task in tasks[:MOST_OF_A_LINE] if task in names]
    more = f" and {len(tasks) - len(known)} more" if len(tasks) > len(known) else ""
    return ", ".join(known) + more


def ready(session: Session, row: Any, subject: str, around: Around | None = None, *, brief: bool = False) -> Reason:
    """The reason why a ready task is not claimed yet.

    ``brief``: for a visitor who has not signed in: without the hosts that could run it, without
    remedies, and without the number of tasks ahead.
    """
    name = task_name(row)
    around = around or Around(session, [row.id])
    for reason in stopped(row, f"{subject} is ready, but ", brief=brief) or paused(row, f"{subject} is ready, but "):
        return replace(reason, tasks=[name])
    if row.max_running is not None and not around.has_slot(row.archive_id):
        return replace(at_its_limit(row.archive, row.max_running, f"{subject} is ready, but "), tasks=[name])
    managers = around.managers
    alive = [m for m in managers if m.alive]
    _, pool, labels, store, is_attached = around.pools[row.id]
    if store and not any(m.store == store for m in alive):
        return _no_store(session, row, f"{subject} is ready", store, managers, is_attached=is_attached, brief=brief)
    if not alive:
        more = "." if brief else f"{_last(managers)}.{_handed_back(row)}"
        text = f"{subject} is ready, but no task manager is running{more}"
        command = " ".join(["arkqueue worker", *(f"--label {label}" for label in labels)])
        return Reason(kind=Why.NO_TASK_MANAGER, text=text, tasks=[name], commands=[command])
    there = [m for m in alive if store in (None, m.store)]
    labeled = [m for m in there if {*labels} <= {*m.labels}]
    if not labeled:
        return _no_label(f"{subject} is ready", name, labels, there, store, brief=brief)
    fit = [m for m in labeled if not m.fault and not m.low_disk and m.drained_at is None]
    if pool == Pool.CONTAINER:
        fit = [m for m in fit if not m.engine_fault]
    if not fit and brief:
        return Reason(kind=Why.NO_FIT_HOST, text=f"{subject} is ready, but no host can start it for now.", tasks=[name])
    if not fit:
        return no_fit_host(f"{subject} is ready, but ", [name], labeled)
    slots, free = sum(m.slots for m in fit), sum(m.free for m in fit)
    hosts = f"{counted(len(fit), 'task manager')} with {counted(slots, 'slot')}, {free} free"
    if brief and not free:
        return Reason(kind=Why.NO_SLOT, text=f"{subject} is ready and waits for a slot ({hosts}).", tasks=[name])
    # Tasks in containers are not counted as ahead if every fit task manager can start only
    # processes.
    pools = [pool] if pool == Pool.PROCESS and all(m.engine_fault for m in fit) else list(Pool)
    theirs = sorted({(*m.labels, f"@{m.store}") for m in fit})
    asked: dict[str, Any] = {"pools": [str(one) for one in pools], "labels": json.dumps(theirs)}
    ahead = session.rows("ready_ahead", task=row.id, most=MOST_AHEAD + 1, **asked)[0].n if not brief else 0
    if free > ahead:
        text = f"{subject} is ready and about to be claimed ({hosts}).{_handed_back(row)}"
        return Reason(kind=Why.ABOUT_TO_START, text=text, tasks=[name])
    some = "at least " if ahead > MOST_AHEAD else ""
    line = f"{some}{counted(min(ahead, MOST_AHEAD), 'task')} ahead of it" if ahead else "no task is ahead of it"
    text = f"{subject} is ready and waits for a slot: {line} ({hosts}). More `slots`, or a task manager on another host, would shorten the wait.{_handed_back(row)}"
    return Reason(kind=Why.NO_SLOT, text=text, tasks=[name])


def no_fit_host(state: str, tasks: list[str], labeled: Sequence[TaskManagerView]) -> Reason:
    """The reason that no host can start some tasks for now. ``state``: the beginning of the sentence; ``labeled``: the running task managers with all labels that the tasks want."""
    # A trial shows whether a host can start tasks again; the free space of a disk is read without
    # one.
    tried = (
        ""
        if all(m.low_disk or m.drained_at for m in labeled)
        else "; it tries one task from time to time, at least once a minute"
    )
    faults = "; ".join(
        f"{m.name}: {(_claims_nothing(m) or m.fault or m.engine_fault or '').rstrip('.')}" for m in labeled
    )
    text = f"{state}no host can start {'it' if len(tasks) == 1 else 'them'} for now{tried}. {faults}."
    drained = [f"arkqueue resume --worker {shlex.quote(m.name)}" for m in labeled if m.drained_at is not None]
    return Reason(kind=Why.NO_FIT_HOST, text=text, tasks=tasks, commands=drained)


def at_its_limit(archive: str, max_running: int, but: str = "") -> Reason:
    """The reason that an archive runs no further task at once. ``but``: the beginning of the sentence."""
    text = f"{but}{archive} already runs as many tasks as its limit allows (max_running is {max_running})."
    return Reason(kind=Why.MAX_RUNNING, text=text, commands=[f"arkqueue runs {archive} --state processing"])


def lacking(labels: Sequence[str], alive: Sequence[TaskManagerView], nobody: str = "no running task manager") -> str:
    """A clause that names the labels that no running task manager has; or all labels, if no single
    task manager has all of them. ``nobody``: the task managers, as the subject of the clause.
    """
    unknown = [label for label in labels if not any(label in m.labels for m in alive)]
    if unknown:
        return f"{nobody} has the label {' or '.join(unknown)}"
    return f"{nobody} has all of its labels: {', '.join(labels)}"


def _no_label(
    state: str, name: str, labels: Sequence[str], alive: Sequence[TaskManagerView], store: str | None, *, brief: bool
) -> Reason:
    """The reason that no running task manager has all labels of a task. ``state``: the beginning of
    the sentence: the task is ready, or waits for its locks. ``store``: the store of its scratch
    folder, to which all of ``alive`` belong; None: it has none.
    """
    what = lacking(labels, alive) if store is None else lacking(labels, alive, NOBODY_THERE)
    if brief:
        return Reason(kind=Why.NO_LABEL, text=f"{state}, but {what} (`runs_on`).", tasks=[name])
    there = "; ".join(f"{m.name}: {', '.join(m.labels) or 'none'}" for m in alive)
    start = " ".join(f"--label {label}" for label in labels)
    text = (
        f"{state}, but {what} (`runs_on`). The labels of the running task managers are: {there}. Restart one of them with {start} added to its labels, "
        "or start another one with its own home folder."
        if store is None
        else f"{state}, but {what} (`runs_on`). The labels of the task managers there are: {there}. Restart one of them with {start} added to its labels."
    )
    return Reason(kind=Why.NO_LABEL, text=text, tasks=[name])


def _no_store(
    session: Session,
    row: Any,
    state: str,
    store: str,
    managers: Sequence[TaskManagerView],
    *,
    is_attached: bool,
    brief: bool,
) -> Reason:
    """The reason that no task manager runs on the host that has a task's scratch folder, or its
    run's attachments. ``state``: as in `_no_label`.
    """
    if brief:
        what = "the attachments of its run are" if is_attached else "its scratch folder is"
        text = f"{state}, but {what} on a host that is away."
        return Reason(kind=Why.NO_SCRATCH, text=text, tasks=[task_name(row)])
    last = next((m for m in sorted(managers, key=lambda m: m.seen_at, reverse=True) if m.store == store), None)
    where = f"{last.hostname} ({last.host[:8]})" if last else f"the host {store[:8]}"
    if last and last.store != last.host:
        where = f"a folder that {last.hostname} and others share"
    since = f"its task manager {_left(last)}" if last else "its task manager has not reported for a day"
    start = "Start its task manager again, with the same home folder."
    hosts = {m.host for m in managers if m.store == store}
    if moved := next((m for m in managers if m.alive and m.host in hosts), None):
        since = f"the task manager {moved.name} now keeps such folders elsewhere"
        start = "Start that task manager with its earlier `scratch_folder` and `scratch_shared`."
    if is_attached:
        text = f"{state}, but the attachments of its run are on {where}, and {since}. The task waits for that host. {start}"
        return Reason(kind=Why.NO_SCRATCH, text=text, tasks=[task_name(row)], commands=["arkqueue worker"])
    text = f"{state}, but its scratch folder is on {where}, and {since}. The task waits for that host. {start} Or run the tasks of the folder again from the first one, with a new folder."
    name, commands = task_name(row), list[str]()
    for first in session.rows("first_with_scratch", task=row.id):
        # A task that has not ended cannot be retried, so it is canceled first.
        commands = [f"arkqueue cancel {name}"] if first.id == row.id else []
        commands.append(from_first_with_scratch(session, row, first))
        text += why_forced(commands[-1])
    return Reason(kind=Why.NO_SCRATCH, text=text, tasks=[name], commands=commands)


def _claims_nothing(manager: TaskManagerView) -> str:
    """The clause on why a task manager claims nothing: it is drained, or a disk has too little
    room. Empty if it claims.
    """
    if manager.drained_at is not None:
        why = f", {manager.drain_reason}" if manager.drain_reason else ""
        return f"it was drained{at(manager.drained_at)} by {manager.drained_by}{why}"
    return f"it claims no task until its disk has more free space: {manager.low_disk}" if manager.low_disk else ""


def _last(managers: Sequence[TaskManagerView]) -> str:
    """The newest of the task managers that do not run any more, in brackets; empty if there is
    none.
    """
    if not managers:
        return ""
    last = max(managers, key=lambda manager: manager.stopped_at or manager.seen_at)
    return f" (that of {last.hostname} {_left(last)})"


def _left(manager: TaskManagerView) -> str:
    return f"last reported{at(manager.seen_at)}" if manager.stopped_at is None else f"stopped{at(manager.stopped_at)}"


def _handed_back(row: Any) -> str:
    """The sentence on why the last attempt was handed back: its host could not start it, or was
    shut down.
    """
    if row.end != End.STOPPED or not row.message:
        return ""
    return f" Its attempt {row.attempts} on {row.host}: {' '.join(row.message.split()).rstrip('.')}."
