"""The first things that a page shows: work that needs a person, the outcomes of the last runs, and the revision at which each task of a branch last completed."""

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
from arkqueue.views.runs import RunInShort, RunView, runs_in_short, views_of_runs
from arkqueue.views.tasks import TaskView, tasks_by_id

LONGEST_LINE = 400
"""Bytes of a log that are looked at for its last line."""
TIMES, LONGER = 3.0, 600.0
"""A running task hangs, perhaps, when it takes so many times as long as usual, and so many seconds longer."""
MOST_REVISIONS = 1000
"""The newest revisions of which one may have workflow files without faults."""
MOST_RUNNING = 200
"""Running tasks that are looked at for that."""
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")


def recent_runs(session: Session, archives: Sequence[ArchiveId], most: int) -> dict[str, list[RunInShort]]:
    """The newest runs of each archive by its name, the newest first, but for those of backfills."""
    ids = [row.id for row in session.rows("recent_runs", archives=list(archives), most=most)] if archives else []
    return runs_in_short(session, ids)


def unhandled_failures(session: Session, archives: Sequence[ArchiveId] | None, most: int) -> list[TaskView]:
    """Failed and rejected tasks, the newest first, but for those that somebody waived, or noted since they failed, or a later revision has made good, and those of backfills. ``archives`` None: of all."""
    return _tasks(session, "unhandled_failures", archives, most)


@dataclass(frozen=True, slots=True)
class NoteView:
    """A person's note on a failure. A failure with a note no longer counts among those that need somebody."""

    by: str
    at: datetime
    text: str


def notes_of(session: Session, failures: Sequence[int]) -> dict[int, NoteView]:
    """The newest note at each of some failed tasks that has one."""
    rows = session.rows("notes_of_failures", tasks=list(failures)) if failures else []
    return {row.task_id: NoteView(row.by, row.at, row.note) for row in rows}


def last_lines(session: Session, tasks: Sequence[TaskView]) -> dict[int, str]:
    """The last line that the newest attempt of each of some tasks wrote, to its error output where it wrote there, by the task's id."""
    attempts = {task.attempt: task.id for task in tasks if task.attempt is not None}
    rows = session.rows("last_said", attempts=list(attempts), bytes=LONGEST_LINE) if attempts else []
    lines = {attempts[row.attempt]: row.data.decode("utf-8", "replace").split("\n") for row in rows}
    said = {id: [_COLOURS.sub("", line).strip() for line in some] for id, some in lines.items()}
    return {id: line for id, some in said.items() if (line := next((one for one in reversed(some) if one), ""))}


@dataclass(frozen=True, slots=True)
class FailuresOfBackfill:
    """A backfill, and how many of its tasks failed or were rejected and not waived."""

    full_name: str
    failed: int


def failures_of_backfills(
    session: Session, archives: Sequence[ArchiveId] | None, most: int
) -> list[FailuresOfBackfill]:
    """The backfills with failures that nobody waived, the newest first. ``archives`` None: of all."""
    asked = None if archives is None else list(archives)
    rows = session.rows("failures_of_backfills", archives=asked, most=most)
    return [FailuresOfBackfill(backfill_name(row.archive, row.number), row.failed) for row in rows]


def held_tasks(session: Session, archives: Sequence[ArchiveId] | None, most: int) -> list[TaskView]:
    """Tasks that wait for a person's release alone, the newest first. ``archives`` None: of all."""
    return _tasks(session, "held_tasks", archives, most)


@dataclass(frozen=True, slots=True)
class Hanging:
    """A running task that a person may have to look at. ``seen_at``: when its task manager was heard last, where that is silent; ``usual``: how many seconds such tasks take, where this one takes far longer."""

    task: TaskView
    is_silent: bool
    seen_at: datetime | None
    usual: float | None


def hanging_tasks(session: Session, archives: Sequence[ArchiveId] | None, most: int) -> list[Hanging]:
    """Running tasks whose task manager is silent, or that take `TIMES` as long as usual and `LONGER` seconds more, those that began first first. ``archives`` None: of all."""
    asked = None if archives is None else list(archives)
    rows = session.rows(
        "hanging_tasks", archives=asked, silence=SILENCE, times=TIMES, longer=LONGER, looked_at=MOST_RUNNING, most=most
    )
    tasks = {task.id: task for task in tasks_by_id(session, [row.id for row in rows])}
    return [Hanging(tasks[row.id], row.is_silent, row.seen_at, row.seconds) for row in rows if row.id in tasks]


def faulty_at_head(session: Session, branch: BranchId) -> RunView | None:
    """The newest run of a branch that a commit made, where its workflow files have faults that nobody has fixed yet."""
    rows = session.rows("faulty_at_head", branch=branch)
    return next(iter(views_of_runs(session, [row.id for row in rows])), None) if rows else None


@dataclass(frozen=True, slots=True)
class Defined:
    """A task as a workflow file defines it. ``triggers``: what makes its runs; without ``commit``, no commit's run has it."""

    name: str
    path: str
    triggers: list[str]


def newest_definition(session: Session, branch: BranchId) -> list[Defined]:
    """The tasks of the newest workflow files of a branch without faults, in their order."""
    rows = session.rows("newest_definition", branch=branch, looked_at=MOST_REVISIONS)
    return [Defined(row.name, row.path, _triggers(row.triggers)) for row in rows if row.name not in (COMMIT, REPORT)]


@lru_cache(maxsize=64)
def _triggers(text: str) -> list[str]:
    """The triggers of a task: hundreds of tasks have the same ones."""
    found: list[str] = json.loads(text)
    return found


def completed_places(session: Session, branch: BranchId) -> dict[str, int]:
    """The highest revision at which each task of a branch has completed, by the task's name."""
    return {row.name: row.number for row in session.rows("completed_places", branch=branch)}


def _tasks(session: Session, block: str, archives: Sequence[ArchiveId] | None, most: int) -> list[TaskView]:
    rows = session.rows(block, archives=None if archives is None else list(archives), most=most)
    return tasks_by_id(session, [row.id for row in rows])
