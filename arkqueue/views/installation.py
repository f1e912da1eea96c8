"""The installation as a whole: its task managers, and the numbers of /metrics and /healthz."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from arkqueue.db.connections import CALL_TIMEOUT
from arkqueue.db.session import Session, rows
from arkqueue.errors import Conflict, NotFound
from arkqueue.model import SILENCE, ArchiveId
from arkqueue.views.naming import task_names
from arkqueue.views.rows import view_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskManagerView:
    """One process that runs tasks. ``alive``: True if it has reported lately. ``running``: the
    number of its attempts whose end is not recorded. There may be more than ``slots``: a slot is
    free as soon as its attempt has ended, but the end is recorded when the archive is not busy.

    ``name``: its name for people: its machine; if a machine has several home folders, the beginning
    of the home folder's id.

    ``fault``: the reason why it can start no tasks now; ``engine_fault``: why it can start no
    containers. ``low_disk``: the disk with less room than ``min_free``, because of which it claims
    nothing. ``drained_at``: the time since which its host is drained, so that it claims nothing.
    ``labels``: the labels that tasks can ask for. ``store``: the place of its scratch folders: its
    host, or a folder that several hosts share. ``account``: the user of its host as which it runs;
    None: its version does not report that.
    """

    process: str
    name: str
    host: str
    hostname: str
    slots: int
    running: int
    alive: bool
    fault: str | None
    engine_fault: str | None
    low_disk: str | None
    account: str | None
    labels: list[str]
    store: str | None
    started_at: datetime
    seen_at: datetime
    stopped_at: datetime | None
    drained_at: datetime | None
    drained_by: str | None
    drain_reason: str | None

    @property
    def busy(self) -> int:
        return min(self.slots, self.running)

    @property
    def free(self) -> int:
        return self.slots - self.busy if self.alive else 0


def task_managers(session: Session) -> list[TaskManagerView]:
    """The task managers that run, or ran within a day."""
    found = session.rows("show_task_managers", silence=SILENCE)
    homes = Counter(hostname for _, hostname in {(row.host, row.hostname) for row in found})
    return [
        view_of(row, TaskManagerView, name=row.hostname if homes[row.hostname] == 1 else row.host[:8]) for row in found
    ]


def running_now(session: Session, archives: Sequence[ArchiveId] | None, most: int) -> dict[str, list[str]]:
    """The names of the running tasks, by the process of their task manager, at most ``most`` in
    all. ``archives`` None: all.
    """
    rows = session.rows("running_now", archives=None if archives is None else list(archives), limit=most)
    names = task_names(session, [row.task_id for row in rows])
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row.process, []).append(names[row.task_id])
    return found


@dataclass(frozen=True, slots=True)
class Depth:
    """The most tasks that were ready at once, and the most that ran at once, within `STEP` seconds."""

    at: datetime
    ready: int
    running: int


STEP = 600
"""Seconds of one part of the last day."""


def queue_depth(session: Session) -> list[Depth]:
    """The queue's depth in the last day, the oldest part first. Parts in which no queue manager ran
    are missing.
    """
    rows = session.rows("queue_depth", step=STEP)
    return [Depth(datetime.fromtimestamp(row.at, UTC), row.ready, row.running) for row in rows]


@dataclass(frozen=True, slots=True)
class PauseOfAll:
    """The pause of the whole installation: since when, by whom, and why."""

    paused_at: datetime
    paused_by: str
    reason: str | None


def pause_of_all(session: Session) -> PauseOfAll | None:
    """The pause of the whole installation; None if it is not paused."""
    rows = session.rows("pause_of_all")
    return view_of(rows[0], PauseOfAll) if rows else None


def host_named(session: Session, name: str) -> str:
    """The host of a task manager that a person names: by its machine, or by the beginning of the id
    of its home folder.

    If a machine has several home folders, but only one running task manager, that one is meant.
    """
    known = task_managers(session)
    hosts = {one.host: one.hostname for one in known}
    found = [host for host, hostname in hosts.items() if name == hostname] or [h for h in hosts if h.startswith(name)]
    if len(found) == 1:
        return found[0]
    if not found:
        names = ", ".join(sorted(set(hosts.values())))
        there = f"These are there: {names}." if names else "No task manager has reported within a day."
        raise NotFound(f"task manager {name}", "does not exist", there)
    latest = {one.host: one for one in sorted(known, key=lambda one: one.started_at) if one.host in found}
    concerned = [host for host, one in latest.items() if one.alive or one.drained_at is not None]
    if len(concerned) == 1:
        return concerned[0]
    ids = ", ".join(f"{host[:8]} ({_doing(latest[host])})" for host in sorted(found))
    fault = "has several home folders" if name == latest[found[0]].hostname else "is the beginning of several ids"
    raise Conflict(f"task manager {name}", fault, f"Name one by its id, which HOME/host-id holds: {ids}.")


def _doing(manager: TaskManagerView) -> str:
    if not manager.alive:
        return "does not run" if manager.drained_at is None else "does not run, drained"
    return f"runs with {manager.slots} slot{'' if manager.slots == 1 else 's'}" + (", drained" if manager.drained_at else "")  # fmt: skip


def no_queue_manager_since(session: Session) -> datetime | None:
    """The time since which no queue manager has reported; None if one has reported recently."""
    found = session.rows("silent_since", silence=SILENCE)
    return found[0].beat_at if found else None


def is_managed(numbers: Any, lease: float) -> bool:
    """True if a queue manager has reported lately. ``numbers``: from `measure`. ``lease``: seconds;
    “lately” is shorter if the lease is short.
    """
    return (numbers.silence_of_queue_managers or 0.0) <= min(lease, SILENCE)


def measure(session: Session, patience: float = CALL_TIMEOUT) -> Any:
    """The numbers of /metrics, as one row. Raises DatabaseUnavailable after ``patience`` seconds."""
    with session.database.statement(timeout=patience) as connection:
        return rows(connection, "measure", silence=SILENCE)[0]


class About(StrEnum):
    """The subject of a fault."""

    QUEUE_MANAGERS = "queue managers"
    TASK_MANAGERS = "task managers"
    ARCHIVES = "archives"
    LOCKS = "locks"
    PAUSE = "pause"
    DRAINED = "drained"
    SCHEDULES = "schedules"
    DELIVERIES = "deliveries"
    UNFIT = "unfit"
    DISK = "disk"


def faults_of(numbers: Any, lease: float) -> tuple[list[str], bool]:
    """The faults of the installation, one sentence each, and whether a queue manager runs.
    ``numbers``: from `measure`.
    """
    return [text for _, text in told_faults(numbers, lease)], is_managed(numbers, lease)


def told_faults(numbers: Any, lease: float) -> list[tuple[About, str]]:
    """The faults of the installation, one sentence each, with their subjects."""
    faults: list[tuple[About, str]] = []
    if not is_managed(numbers, lease):
        faults.append(
            (
                About.QUEUE_MANAGERS,
                "no queue manager is running: no commit is read, and no deferred task resumes (arkqueue manager)",
            )
        )
    if not numbers.task_managers:
        faults.append((About.TASK_MANAGERS, "no task manager is running: no task starts (arkqueue worker)"))
    for count, what in [(numbers.archives_stopped, "stopped"), (numbers.archives_in_trouble, "in trouble")]:
        if count:
            text = f"{'1 archive is' if count == 1 else f'{count} archives are'} {what} (arkqueue archive list)"
            faults.append((About.ARCHIVES, text))
    if numbers.all_paused:
        faults.append((About.PAUSE, "the whole installation is paused: no task starts (arkqueue resume --all)"))
    elif count := numbers.archives_paused:
        what = "1 archive is" if count == 1 else f"{count} archives are"
        their = "its" if count == 1 else "their"
        faults.append((About.ARCHIVES, f"{what} paused: none of {their} tasks starts (arkqueue archive list)"))
    if count := numbers.locks_paused:
        what, names = ("1 lock is", "it") if count == 1 else (f"{count} locks are", "one of them")
        faults.append((About.LOCKS, f"{what} paused: no task that names {names} starts (arkqueue lock list)"))
    if count := numbers.task_managers_drained:
        what = "1 task manager is" if count == 1 else f"{count} task managers are"
        faults.append((About.DRAINED, f"{what} drained: no task starts there (arkqueue resume --worker)"))
    count, since = numbers.fires_left_out
    if count:
        what = "1 fire of a schedule was" if count == 1 else f"{count} fires of schedules were"
        at = f"{datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M} UTC"
        text = f"{what} left out since {at}: the last run waits, is held or failed (arkqueue archive show)"
        faults.append((About.SCHEDULES, text))
    if count := numbers.deliveries_failing:
        waiting = max(count, numbers.deliveries_waiting)
        what = "1 notification waits" if waiting == 1 else f"{waiting} notifications wait"
        of_them = "it has" if waiting == 1 else "1 of them has" if count == 1 else f"{count} of them have"
        text = f"{what}; {of_them} failed more than twice (arkqueue delivery list --waiting)"
        faults.append((About.DELIVERIES, text))
    if count := numbers.deliveries_failed:
        what = "1 notification was" if count == 1 else f"{count} notifications were"
        text = f"{what} not sent within a day, in the last week (arkqueue delivery list --failed)"
        faults.append((About.DELIVERIES, text))
    if count := numbers.task_managers_unfit:
        what = "1 task manager" if count == 1 else f"{count} task managers"
        text = f"{what} cannot start tasks for now, or no containers (arkqueue workers)"
        faults.append((About.UNFIT, text))
    if count := numbers.task_managers_low_on_disk:
        what = "1 task manager claims" if count == 1 else f"{count} task managers claim"
        text = f"{what} no tasks, because a disk there has less free space than min_free (arkqueue workers)"
        faults.append((About.DISK, text))
    return faults
