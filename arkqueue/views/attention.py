"""The data that pages show first: tasks that need a person, the outcomes of the last runs, and the
revision at which each task of a branch last completed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from arkqueue.db.session import Session
from arkqueue.model import COMMIT, REPORT, SILENCE, ArchiveId, BranchId
from arkqueue.names import backfill_name
from arkqueue.views.archives import PausedLockView, paused_lock
from arkqueue.views.runs import RunInShort, RunView, runs_in_short, views_of_runs
from arkqueue.views.tasks import TaskView, tasks_by_id

LONGEST_LINE = 400
"""The number of bytes at the end of a log that are searched for its last line."""
TIMES, LONGER = 3.0, 600.0
"""A running task may hang if it takes ``TIMES`` as long as usual, and ``LONGER`` seconds more."""
MOST_REVISIONS = 1000
"""The number of newest revisions that are searched for workflow files without faults."""
MOST_RUNNING = 200
"""The most running tasks whose durations are compared."""
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")


def recent_runs(session: Session, archives: Sequence[ArchiveId], most: int) -> dict[str, list[RunInShort]]:
    """The newest runs of each archive by its name, the newest first, without those of backfills."""
    ids = [row.id for row in session.rows("recent_runs", archives=list(archives), most=most)] if archives else []
    return runs_in_short(session, ids)


def unhandled_failures(session: Session, archives: Sequence[ArchiveId] | None, most: int) -> list[TaskView]:
    """Failed and rejected tasks, the newest first. Left out are tasks that a person waived, or
    noted after they failed, that a later revision has completed, and those of backfills.
    ``archives`` None: all.
    """
    rows = session.rows("unhandled_failures", archives=None if archives is None else list(archives), most=most)
    return tasks_by_id(session, [row.id for row in rows])


@dataclass(frozen=True, slots=True)
class NoteView:
    """A person's note on a failure. A failure with a note does not count as needing a person any
    more.
    """

    by: str
    at: datetime
    text: str


def notes_of(session: Session, failures: Sequence[int]) -> dict[int, NoteView]:
    """The newest note on each of some failed tasks, for those that have one."""
    rows = session.rows("notes_of_failures", tasks=list(failures)) if failures else []
    return {row.task_id: NoteView(row.by, row.at, row.note) for row in rows}


def last_lines(session: Session, tasks: Sequence[TaskView]) -> dict[int, str]:
    """The last line of the newest attempt of each of some tasks, by the task's id: of its error
    output, if it has any.
    """
    attempts = {task.attempt: task.id for task in tasks if task.attempt is not None}
    rows = session.rows("last_said", attempts=list(attempts), bytes=LONGEST_LINE) if attempts else []
    lines = {attempts[row.attempt]: row.data.decode("utf-8", "replace").split("\n") for row in rows}
    said = {id: [_COLOURS.sub("", line).strip() for line in some] for id, some in lines.items()}
    return {id: line for id, some in said.items() if (line := next((one for one in reversed(some) if one), ""))}


@dataclass(frozen=True, slots=True)
class FailuresOfBackfill:
    """A backfill, and the number of its tasks that failed or were rejected, and are not waived."""

    full_name: str
    failed: int


@dataclass(frozen=True, slots=True)
class HeldTogether:
    """The tasks that one hold of an archive, a backfill or an import holds. ``full_name``: the
    archive or the backfill. ``by``, ``reason``: who held them, and why.
    """

    full_name: str
    by: str
    reason: str
    tasks: int


@dataclass(frozen=True, slots=True)
class Hanging:
    """A running task that a person may have to look at. ``seen_at``: the last report of its task
    manager, if that is silent. ``usual``: the usual seconds of such tasks, if this one takes far
    longer.
    """

    task: TaskView
    is_silent: bool
    seen_at: datetime | None
    usual: float | None


@dataclass(frozen=True, slots=True)
class Attention:
    """The things that need a person. ``failures``: as in `unhandled_failures`. ``backfills``: those
    with failures that nobody has waived, the newest first. ``hanging``: hanging tasks, the oldest
    first. ``held``: tasks that wait only for a person's release, the newest first, without those of
    ``together``. ``paused_locks``: those of the whole installation.
    """

    failures: list[TaskView]
    backfills: list[FailuresOfBackfill]
    hanging: list[Hanging]
    held: list[TaskView]
    together: list[HeldTogether]
    paused_locks: list[PausedLockView]


def attention(session: Session, archives: Sequence[ArchiveId] | None, most: int) -> Attention:
    """The tasks and backfills that need a person. ``archives`` None: all. ``most``: the most of
    each kind. A running task hangs if its task manager is silent, or if it takes `TIMES` as long as
    usual and `LONGER` seconds more.
    """
    asked = {"archives": None if archives is None else list(archives), "most": most}
    limits = {"silence": SILENCE, "times": TIMES, "longer": LONGER, "looked_at": MOST_RUNNING}
    failed, backfills, hanging, held, together, paused_locks = session.rows_of(
        ("unhandled_failures", asked),
        ("failures_of_backfills", asked),
        ("hanging_tasks", asked | limits),
        ("held_tasks", asked),
        ("held_together", asked),
        ("paused_everywhere", asked),
    )
    tasks = {task.id: task for task in tasks_by_id(session, [row.id for row in (*failed, *hanging, *held)])}
    return Attention(
        [tasks[row.id] for row in failed if row.id in tasks],
        [FailuresOfBackfill(backfill_name(row.archive, row.number), row.failed) for row in backfills],
        [Hanging(tasks[row.id], row.is_silent, row.seen_at, row.seconds) for row in hanging if row.id in tasks],
        [tasks[row.id] for row in held if row.id in tasks],
        [
            HeldTogether(
                backfill_name(row.archive, row.backfill) if row.backfill else row.archive, row.by, row.note, row.tasks
            )
            for row in together
        ],
        [paused_lock(row) for row in paused_locks],
    )


def faulty_at_head(session: Session, branch: BranchId) -> RunView | None:
    """The newest commit run of a branch, if its workflow files have faults that no later commit has
    fixed.
    """
    rows = session.rows("faulty_at_head", branch=branch)
    return next(iter(views_of_runs(session, [row.id for row in rows])), None) if rows else None


@dataclass(frozen=True, slots=True)
class Defined:
    """A task as a workflow file defines it. ``triggers``: the triggers of its runs; without
    ``commit``, runs of commits do not have it.
    """

    name: str
    path: str
    triggers: list[str]


def newest_definition(session: Session, branch: BranchId) -> list[Defined]:
    """The tasks of a branch's newest workflow files without faults, in the order of the files."""
    rows = session.rows("newest_definition", branch=branch, looked_at=MOST_REVISIONS)
    return [Defined(row.name, row.path, _triggers(row.triggers)) for row in rows if row.name not in (COMMIT, REPORT)]


@lru_cache(maxsize=64)
def _triggers(text: str) -> list[str]:
    """The triggers of a task. Cached, as hundreds of tasks have the same ones."""
    found: list[str] = json.loads(text)
    return found


def completed_places(session: Session, branch: BranchId) -> dict[str, int]:
    """The highest revision at which each task of a branch has completed, by the task's name."""
    return {row.name: row.number for row in session.rows("completed_places", branch=branch)}
