"""Archives as people see them: their repositories, their state, and their schedules."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from arkqueue.archive_settings import ArchiveSettings, read_settings
from arkqueue.db.session import Session
from arkqueue.errors import Conflict
from arkqueue.model import ArchiveId, ArchiveKind, BranchId
from arkqueue.names import run_name, without_password
from arkqueue.plan.ledger import BY_A_GUARD, BY_ITS_FILE, BY_WORKFLOW_AUTHORS
from arkqueue.views.locks import command, full_name
from arkqueue.views.outdated import MOST_FIRSTS, SKIP_OUTDATED, outdated_holds, perhaps_outdated
from arkqueue.views.rows import view_of

UNREADABLE = "its settings in the database cannot be read, and are shown as if there were none"
"""The trouble of an archive whose row is garbled."""
_CORRECTION = re.compile(r": arkqueue archive accept [^\s@]+@(\d+)$")
MOST_LOGS = 20_000
"""The most attempts of an archive whose logs are measured."""
MOST_HOLDS = 5
"""The most holds that are shown with an archive."""
_BY = {BY_ITS_FILE: "the workflow file", BY_A_GUARD: "require-approval", BY_WORKFLOW_AUTHORS: "workflow-authors"}
"""Who holds tasks, if no entry of the audit log does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchView:
    """A branch and the head of its ledger. ``rev`` None: it has no revision yet. ``deleted``: True
    if it was deleted, or retired by a rewind.
    """

    name: str
    main: bool
    deleted: bool
    rev: int | None
    revision: str | None
    author: str | None
    date: datetime | None
    message: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleView:
    """A schedule of a set of tasks. ``last_run``: the run that its last fire made, or was counted
    on. ``left_out``: the number of fires that were counted on that run.
    """

    branch: str
    cron: str
    timezone: str
    tasks: list[str]
    next_at: datetime
    fired_at: datetime | None
    last_run: str | None
    left_out: int
    left_out_since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeView:
    """A notice that waits for a scan. ``expected``: True if a scan has ended, and the named
    revision was not there.
    """

    at: datetime
    revision: str | None
    expected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseView:
    """The pause of an archive. ``with_all``: True if the whole installation is paused. ``twice``:
    True if the archive itself is paused as well. ``resume``: the command that ends the pause.
    """

    at: datetime | None
    by: str
    reason: str
    with_all: bool
    twice: bool
    resume: str

    def __str__(self) -> str:
        since = f" since {self.at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if self.at else ""
        by, why = f" by {self.by}" if self.by else "", f": {self.reason}" if self.reason else ""
        return f"paused{' with the whole installation' if self.with_all else ''}{since}{by}{why}" + (
            "; the whole installation is paused, too" if self.twice else ""
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PausedLockView:
    """The pause of a lock (design 5.25): no task starts that names the lock. ``name``: its name in
    commands, ``ARCHIVE/NAME`` or ``global/NAME``. ``resume``: the command that ends the pause.
    """

    name: str
    at: datetime
    by: str
    reason: str
    resume: str

    def __str__(self) -> str:
        by, why = f" by {self.by}" if self.by else "", f": {self.reason}" if self.reason else ""
        return f"paused since {self.at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC{by}{why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldView:
    """The hold of an archive: by whom, since when, and why (empty: no reason was given)."""

    at: datetime
    by: str
    reason: str

    def __str__(self) -> str:
        by = f"by {self.by}" if self.by else f"since {self.at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        return f"on hold {by}{f': {self.reason}' if self.reason else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksHeld:
    """Tasks that one hold holds. ``by``: a person, or arkqueue itself, which holds an import; for a
    workflow file or a guard, in words. ``at`` None: of a workflow file or a guard.

    ``is_whole``: True if the hold is an import, or one of a whole archive or backfill.
    """

    tasks: int
    by: str
    at: datetime | None
    reason: str
    is_whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveView:
    """An archive. ``stopped``: the stop reason; the archive is not read until a person rewinds it.
    ``trouble``: the fault of the last scan, which is repeated. ``remedy``: the command that helps.

    ``paused``: its pause; it is still read. ``paused_locks``: its paused locks, after those of the
    installation that one of its tasks has or waits for. ``hold``: its hold (design 5.21).
    ``held``: the number of its tasks that wait for a release. ``holds``: by whom, since when and
    why; of many holds, those with the most tasks. ``release``: the command that releases these
    tasks, if the archive is read alone; a list of archives does not judge them.
    """

    id: int
    name: str
    kind: ArchiveKind
    url: str
    repository: str
    uuid: str
    folder: str
    settings: ArchiveSettings
    created_at: datetime
    removed_at: datetime | None
    stopped: str | None
    paused: PauseView | None
    paused_locks: list[PausedLockView]
    trouble: str | None
    trouble_since: datetime | None
    hold: HoldView | None
    held: int
    holds: list[TasksHeld]
    release: str
    remedy: str
    read_at: datetime | None
    next_read_at: datetime
    notice: NoticeView | None
    branches: list[BranchView]
    schedules: list[ScheduleView]

    @property
    def corrected(self) -> str:
        """The revision whose correction stopped the archive, as in `correction_of`."""
        return correction_of(self.stopped)

    @property
    def why_unread(self) -> str:
        """Why new commits are not found, in two words; empty if the archive is read."""
        if self.removed_at is not None:
            return ""
        return "stopped" if self.stopped else "cannot be read" if self.trouble else ""


def in_public(view: ArchiveView) -> ArchiveView:
    """An archive for a visitor who has not signed in: without its repository, its settings, the texts
    of faults, which may name paths and servers, and the commands that help. The session of such a
    visitor leaves out persons and reasons (`PublicSession`).
    """
    return replace(
        view,
        url="",
        repository="",
        uuid="",
        folder="",
        settings=ArchiveSettings(),
        stopped="an administrator has to look at it" if view.stopped else None,
        trouble="Its repository cannot be read for now." if view.trouble else None,
        release="",
        remedy="",
        holds=[],
        paused=view.paused and replace(view.paused, resume=""),
        paused_locks=[replace(lock, resume="") for lock in view.paused_locks],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RewoundView(ArchiveView):
    """An archive after a rewind. ``note``: the commit that was taken for the given number, if that
    is not obvious. ``history``: the branch that keeps the ledger so far, with this number of
    ``runs``. ``running``: their running tasks, which go on. ``canceled``: their tasks that had not
    started; of more than 1,000, some are canceled only later.
    """

    note: str
    history: str
    runs: int
    running: int
    canceled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedView(ArchiveView):
    """An archive after a correction was accepted. ``note``: the stored author and date of the
    revision, before and after.
    """

    note: str


def archives(session: Session, names: Sequence[str] | None = None) -> list[ArchiveView]:
    """The watched archives, or only those with one of the names."""
    return _views(session, session.rows("show_archives", archive=None, names=None if names is None else list(names)))


def scheduled(session: Session, names: Sequence[str] | None = None) -> list[ArchiveView]:
    """The watched archives that have schedules, or only those with one of the names."""
    rows = session.rows("scheduled_archives", names=None if names is None else list(names))
    return archives(session, [row.name for row in rows])


@dataclass(slots=True)  # not frozen, as TaskView
class InShort:
    """A watched archive in a long list. ``needs``: True if it may need a person: it is stopped,
    cannot be read, is on hold or paused. ``is_stopped``: True if the queue refuses every verb that
    would start one of its tasks. ``is_withheld``: True if it is stopped, on hold or paused, alone or
    with all archives.
    """

    id: ArchiveId
    needs: bool
    is_stopped: bool
    is_withheld: bool


def in_short(session: Session, names: Sequence[str] | None = None) -> dict[str, InShort]:
    """The watched archives by name, or only those with one of the names, sorted by name."""
    rows = session.rows("archives_in_short", names=None if names is None else list(names))
    return {row.name: InShort(ArchiveId(row.id), row.needs, row.is_stopped, row.is_withheld) for row in rows}


def archive(session: Session, archive: ArchiveId) -> ArchiveView:
    """One archive, removed or not."""
    (found,) = _views(session, session.rows("show_archives", archive=archive, names=None))
    if not found.held:
        return found
    firsts = [row.id for row in session.rows("first_held", archive=archive, most=MOST_FIRSTS)]
    (perhaps,) = session.rows_of(perhaps_outdated(firsts))
    option = SKIP_OUTDATED if outdated_holds(session, [row.id for row in perhaps]) else ""
    return replace(found, release=f"arkqueue release {found.name} --all{option}")


def held_on_branch(session: Session, archive: ArchiveId, branch: BranchId) -> int:
    """The number of tasks of a branch that wait for a release."""
    (row,) = session.rows("held_on_branch", archive=archive, branch=branch)
    return int(row.held)


@dataclass(frozen=True, slots=True)
class RemovalView:
    """The removal of an archive: nothing of it is read, planned or started any more."""

    at: datetime
    by: str

    def __str__(self) -> str:
        by = f" by {self.by}" if self.by else ""
        return f"was removed on {self.at.astimezone(UTC):%Y-%m-%d at %H:%M} UTC{by}"


def removal_of(session: Session, archive: int) -> RemovalView | None:
    """The removal of an archive; None if it is watched."""
    rows = session.rows("removal_of_archive", archive=archive)
    return RemovalView(rows[0].at, rows[0].by) if rows else None


@dataclass(frozen=True, slots=True)
class Contents:
    """The numbers of what an archive has. ``open``, ``running``: its tasks that have not started, and
    those that run. ``log_bytes``: the size of its logs; ``has_more``: only of the newest ones.
    """

    runs: int
    submissions: int
    schedules: int
    open: int
    running: int
    log_bytes: int
    has_more: bool


def contents_of(session: Session, archive: ArchiveId) -> Contents:
    """The numbers of what an archive has."""
    (row,) = session.rows("contents_of_archive", archive=archive, most=MOST_LOGS)
    return Contents(*row)


def _views(session: Session, rows: Sequence[Any]) -> list[ArchiveView]:
    ids = {"archives": [row.id for row in rows]}
    of_held = {"archives": [row.id for row in rows if row.held], "most": MOST_HOLDS}
    of_branches, of_schedules, of_locks, of_holds = session.rows_of(
        ("show_branches", ids), ("show_schedules", ids), ("paused_locks", ids), ("show_holds", of_held)
    )
    branches: dict[int, list[BranchView]] = defaultdict(list)
    for row in of_branches:
        branches[row.archive_id].append(_branch(row))
    schedules: dict[int, list[ScheduleView]] = defaultdict(list)
    for row in of_schedules:
        schedules[row.archive_id].append(_schedule(row))
    locks: dict[int, list[PausedLockView]] = defaultdict(list)
    for row in of_locks:
        locks[row.archive_id].append(paused_lock(row))
    holds: dict[int, list[TasksHeld]] = defaultdict(list)
    for row in of_holds:
        holds[row.archive_id].append(_held(row))
    return [_archive(row, branches[row.id], schedules[row.id], locks[row.id], holds[row.id]) for row in rows]


def _held(row: Any) -> TasksHeld:
    by = _BY.get(row.hold_id, row.by)
    return TasksHeld(tasks=row.tasks, by=by, at=row.at, reason=row.note or "", is_whole=row.is_whole)


def _archive(
    row: Any,
    branches: list[BranchView],
    schedules: list[ScheduleView],
    locks: list[PausedLockView],
    holds: list[TasksHeld],
) -> ArchiveView:
    kind, trouble = ArchiveKind(row.kind), row.trouble
    try:
        settings = read_settings(row.settings, row.name)
    except Conflict:
        # The list then still shows the other archives.
        settings, trouble = ArchiveSettings(), UNREADABLE
    return view_of(
        row,
        ArchiveView,
        kind=kind,
        url=without_password(row.url),
        repository=without_password(row.repository),
        release="",
        settings=settings,
        trouble=trouble,
        remedy="arkqueue doctor" if trouble is UNREADABLE else remedy(row.name, row.stopped, trouble),
        paused=pause_of(row, row.name),
        paused_locks=locks,
        hold=row.hold_at and HoldView(at=row.hold_at, by=row.hold_by, reason=row.hold_note),
        notice=row.notice_at
        and NoticeView(at=row.notice_at, revision=row.notice_revision, expected=bool(row.expected)),
        branches=branches,
        schedules=schedules,
        holds=holds,
    )


def correction_of(stopped: str | None) -> str:
    """The revision of which a person may accept the corrected author or date, if the archive stopped
    for this correction; otherwise an empty text. ``stopped``: the stop reason, which ends with the
    command.
    """
    found = _CORRECTION.search(stopped or "")
    return found[1] if found else ""


def remedies_of_stop(name: str, stopped: str) -> list[str]:
    """The commands that end the stop of an archive, one of which helps."""
    revision = correction_of(stopped)
    accept = [f"arkqueue archive accept {name}@{revision}"] if revision else []
    return [f"arkqueue sync {name}", *accept, remedy(name, stopped, None)]


def remedy(name: str, stopped: str | None, trouble: str | None) -> str:
    """The command for an archive that is stopped or cannot be read; empty if it is neither."""
    if stopped:
        return f"arkqueue archive rewind {name} REV"
    return f"arkqueue sync {name}" if trouble else ""


def pause_of(row: Any, name: str) -> PauseView | None:
    """The pause of an archive; None if it is not paused."""
    if not row.is_paused:
        return None
    return PauseView(
        at=row.paused_at,
        by=row.paused_by or "",
        reason=row.pause_reason,
        with_all=row.paused_with_all,
        twice=row.paused_twice,
        resume="arkqueue resume --all" if row.paused_with_all else f"arkqueue resume {name}",
    )


def paused_lock(row: Any) -> PausedLockView:
    """A paused lock. ``row``: of the block ``paused_locks`` or ``paused_everywhere``."""
    name = full_name(row)
    return PausedLockView(
        name=name,
        at=row.paused_at,
        by=row.paused_by or "",
        reason=row.pause_reason or "",
        resume=command("resume --lock", name),
    )


def _branch(row: Any) -> BranchView:
    return view_of(row, BranchView, deleted=row.deleted_at is not None, rev=row.number)


def _schedule(row: Any) -> ScheduleView:
    last = row.run and run_name(row)
    return view_of(row, ScheduleView, timezone=row.zone, last_run=last, left_out=row.left_out or 0)
