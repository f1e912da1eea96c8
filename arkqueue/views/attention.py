"""The data that pages show first: tasks that need a person, the outcomes of the last runs, and the
revision at which each task of a branch last completed.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, Generic, TypeVar

from arkqueue.db.session import Session
from arkqueue.model import COMMIT, REPORT, SILENCE, ArchiveId, BranchId
from arkqueue.names import backfill_name, branch_name, list_name, run_name
from arkqueue.states import State
from arkqueue.views.archives import PausedLockView, paused_lock
from arkqueue.views.outdated import MOST_FIRSTS
from arkqueue.views.runs import RunInShort, RunView, runs_in_short, views_of_runs
from arkqueue.views.tasks import TaskView, tasks_by_id

LONGEST_LINE = 400
"""The number of bytes at the end of a part of a log that are searched for its last line."""
MOST_PARTS = 4
"""The number of parts at the end of a log that are searched for its last line."""
TIMES, LONGER = 3.0, 600.0
"""A running task may hang if it takes ``TIMES`` as long as usual, and ``LONGER`` seconds more."""
MOST_REVISIONS = 1000
"""The number of newest revisions that are searched for workflow files without faults."""
MOST_RUNNING = 200
"""The most running tasks whose durations are compared."""
MOST_FAILED_RUNS = 101
"""The most runs of one archive that are told to have unhandled failures."""
MOST_HOLDS = 200
"""The most backfills with failures, holds of many tasks, and interrupted retries, that are read."""
MOST_BLOCKING = 10_000
"""The most skipped tasks that still block others of which the failures are looked for."""
MOST_JUDGED = 200
"""The most failures of a page that are judged whether a later revision has repaired them."""
MOST_WALKED = 2000
"""The most canceled tasks that still block others of which the failures are looked for. It is also the
number of earlier tasks and failures that are followed at least, from one to the next.
"""
T = TypeVar("T")
S = TypeVar("S")
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
_ECHO = re.compile(r"(?:g?make(?:\[\d+\])?: (?:\*\*\*|Leaving directory|Target )|ninja: build stopped)")
"""The beginning of a line in which a build program repeats that one of its commands failed. The
command itself has written what was wrong before this line.
"""


def recent_runs(session: Session, archives: Sequence[ArchiveId], most: int) -> dict[str, list[RunInShort]]:
    """The newest runs of each archive by its name, the newest first, without those of backfills."""
    ids = [row.id for row in session.rows("recent_runs", archives=list(archives), most=most)] if archives else []
    return runs_in_short(session, ids)


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed or rejected task. Of a list: the first such item, for all ``items``."""

    task: TaskView
    items: int

    @property
    def name(self) -> str:
        """The name of the task, or of the list if there are several items."""
        return (
            self.task.full_name if self.items == 1 else list_name(self.task.full_name.partition("/")[0], self.task.name)
        )


REPAIRED = "repaired by a later revision"
"""The words for a failure after which a later revision has completed the task."""


@dataclass(frozen=True, slots=True)
class Unhandled:
    """The unhandled failures of a branch: failed and rejected tasks. Left out are tasks that a person
    waived, or noted after they failed, that a later revision has completed, and those of backfills.

    ``newest``: the newest ones. ``count``: the number of all. ``cells``: those of the runs of a page: the
    id of the first one by the id of the run and the task's name. ``is_earlier``: True if runs before the page have any.
    ``later``: the nearest runs after the page that have any, the nearest first.
    """

    newest: list[Failure]
    count: int
    cells: dict[tuple[int, str], int]
    is_earlier: bool
    later: Sequence[int]


def unhandled_failures(
    session: Session, archive: ArchiveId, branch: BranchId, most: int, runs: Collection[int] = (), width: int = 0
) -> Unhandled:
    """The unhandled failures of a branch of an archive. ``most``: the most of ``newest``. ``runs``: the
    runs of a page; ``later`` has one run more than ``width``, if there are so many.
    """
    shown = set(runs)
    page: dict[str, Any] = {"runs": [*shown], "first": min(shown, default=None), "last": max(shown, default=None)}
    rows = session.rows("unhandled_of_branch", archives=[archive], branch=branch, most=most, width=width, **page)
    if not rows:
        return Unhandled([], 0, {}, is_earlier=False, later=[])
    items = {row.id: row.items for row in rows[:most]}
    newest = [Failure(task, items[task.id]) for task in tasks_by_id(session, list(items))]
    cells = {(row.run_id, row.name): row.id for row in rows if row.run_id in shown}
    return Unhandled(newest, rows[0].total, cells, rows[0].is_earlier, rows[0].later)


def unhandled_among(session: Session, tasks: Iterable[TaskView]) -> set[int]:
    """The ids of the unhandled failures among some tasks: as in `Unhandled`, and those of backfills
    that nobody waived or noted.
    """
    bad = [task.id for task in tasks if task.state in (State.FAILED, State.REJECTED) and not task.waived]
    return {row.id for row in session.rows("unhandled_among", tasks=bad)} if bad else set()


def repaired_among(session: Session, tasks: Iterable[TaskView]) -> dict[int, bool]:
    """The failures among some tasks that a later revision has repaired, and nobody has waived, by id:
    whether a task waits for the failure all the same. Only a person ends such a wait, with a waiver.
    """
    bad = [task.id for task in tasks if task.state in (State.FAILED, State.REJECTED) and not task.waived]
    repaired = [row.id for row in session.rows("repaired_among", tasks=bad)] if bad else []
    waited_for = waited_for_among(session, repaired)
    return {id: id in waited_for for id in repaired}


@dataclass(frozen=True, slots=True)
class Blocking:
    """Failures of some runs that a later revision has repaired, and for which tasks wait all the same.
    ``tasks``: their ids. ``cells``: of those without a note, the id of the first one by the id of the run
    and the name of the task.
    """

    tasks: Collection[int] = ()
    cells: Mapping[tuple[int, str], int] = field(default_factory=dict)


def blocking_in(
    session: Session, archive: ArchiveId, runs: Sequence[int], unhandled: Collection[tuple[int, str]]
) -> Blocking:
    """The repaired failures for which tasks wait, of some runs of an archive. ``unhandled``: the runs and
    names with unhandled failures, which are left out.
    """
    if not runs:
        return Blocking()
    named: dict[str, Any] = {"of": [run for run, _ in unhandled], "names": [name for _, name in unhandled]}
    rows = session.rows("blocking_in_runs", archive=archive, runs=list(runs), most=MOST_JUDGED, **named)
    cells: dict[tuple[int, str], int] = {}
    for row in rows:
        if not row.is_noted:
            cells.setdefault((row.run_id, row.name), row.id)
    return Blocking({row.id for row in rows}, cells)


def waited_for_among(session: Session, failures: Collection[int]) -> set[int]:
    """The failures, among some, for which a task waits. A waiver of any other failure starts nothing."""
    return {row.id for row in session.rows("waited_for", tasks=[*failures])} if failures else set()


def unhandled_in(session: Session, runs: Collection[int]) -> dict[tuple[int, str], int]:
    """Like `unhandled_among`, for some runs: the id of the first one by the id of the run and the
    name of the task.
    """
    rows = session.rows("unhandled_in_runs", runs=list(runs)) if runs else []
    return {(row.run_id, row.name): row.id for row in rows}


@dataclass(frozen=True, slots=True)
class FailuresOfBranch:
    """A branch, named like its page, and the number of its unhandled failures."""

    name: str
    branch: str
    count: int


def failures_elsewhere(session: Session, archive: ArchiveId, branch: BranchId, most: int) -> list[FailuresOfBranch]:
    """The other branches of an archive that have unhandled failures."""
    (row,) = session.rows("archive", archive=archive)
    rows = session.rows("unhandled_of_other_branches", archives=[archive], branch=branch, limit=most)
    return [
        FailuresOfBranch(branch_name(row.name, None if one.main else one.branch), one.branch, one.count) for one in rows
    ]


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


def failing_backfills(session: Session, archive: ArchiveId) -> dict[str, tuple[BranchId, int]]:
    """The branch and the number of unhandled failures of each backfill of an archive that has any, by its
    name, the newest backfill first. A run that could not start counts as one failure.
    """
    rows = session.rows("failures_of_backfills", archives=[archive], most=MOST_HOLDS)
    return {
        backfill_name(row.archive, row.number): (
            BranchId(row.branch_id),
            row.failed + row.rejected + row.unsent + row.unstarted,
        )
        for row in rows
    }


def last_lines(session: Session, tasks: Sequence[TaskView]) -> dict[int, str]:
    """The last line of the newest attempt of each of some tasks, by the task's id: of its error
    output, if it has any. If the last lines only repeat that a command failed, the line before them.
    """
    attempts = {task.attempt: task.id for task in tasks if task.attempt is not None}
    rows = session.rows("last_said", attempts=list(attempts), bytes=LONGEST_LINE, parts=MOST_PARTS) if attempts else []
    lines = {attempts[row.attempt]: row.data.decode("utf-8", "replace").split("\n") for row in rows}
    return {id: line for id, some in lines.items() if (line := _last(some))}


def _last(lines: Sequence[str]) -> str:
    """The last line of some, as `last_lines` says; empty if all are empty."""
    written = [line for line in (_COLOURS.sub("", one).strip() for one in reversed(lines)) if line]
    return next((line for line in written if not _ECHO.match(line)), written[0] if written else "")


@dataclass(frozen=True, slots=True)
class FailuresOfBackfill:
    """A backfill with failures. ``failed``, ``rejected``: the numbers of its tasks that are not
    waived; ``unsent``: that of such REPORTs. ``unstarted``: the number of its runs that could not
    start.
    """

    full_name: str
    failed: int
    rejected: int
    unsent: int
    unstarted: int


@dataclass(frozen=True, slots=True)
class Held:
    """A held task. ``is_run``: True if `workflow_authors` holds its run, which is released as a whole;
    the task then stands for all tasks of the run. Of a list: the first item that one hold holds, for
    all ``items``.
    """

    task: TaskView
    is_run: bool
    items: int = 1

    @property
    def name(self) -> str:
        """The name of what a person releases: the task, the list or the run."""
        run = self.task.full_name.partition("/")[0]
        return run if self.is_run else list_name(run, self.task.name) if self.items > 1 else self.task.full_name


@dataclass(frozen=True, slots=True)
class HeldTogether:
    """The tasks that one hold of an archive, a backfill or an import holds. ``full_name``: the
    archive or the backfill. ``by``, ``reason``: who held them, and why. ``may_be_guarded``: if the
    archive guards tasks, the id of one task for each name and each author of a revision. ``firsts``:
    the first task of each branch and name, at most `MOST_FIRSTS`, by which the hold is judged.
    ``ending``: ``cancel`` if the cancellation of a backfill holds the tasks, because it has not
    reached them yet; empty for other holds.
    """

    full_name: str
    by: str
    reason: str
    tasks: int
    may_be_guarded: Sequence[int]
    firsts: Sequence[int]
    ending: str = ""


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
class Stranded:
    """The first of the ``tasks`` ready tasks of one pool that no running task manager can run.
    ``store``: the id of the host that the pool needs, and its ``hostname``, if these are known; None:
    the pool needs ``labels``.
    """

    task: TaskView
    tasks: int
    labels: list[str]
    store: str | None
    hostname: str | None


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A ``retry RUN --from TASK`` that ended before it had brought back all of its tasks. ``run``: the
    name of the run; ``note``: the options of the command, from the audit log.
    """

    run: str
    note: str


@dataclass(frozen=True, slots=True)
class Several(Generic[T]):
    """The things of one archive that need a person for one reason. ``shown``: the first of them, or
    none; ``count``: the number of all.
    """

    archive: str
    shown: list[T]
    count: int


@dataclass(frozen=True, slots=True)
class Attention:
    """The things that need a person. ``faulty``: runs at the heads of branches whose workflow files
    have faults. ``failures``: as in `Unhandled`. ``failed_runs``: by archive, the ids of the newest
    runs with such failures. ``backfills``: those with failures that nobody has waived. ``hanging``:
    hanging tasks, the oldest first. ``held``: tasks that wait only for a person's release, without
    those of ``together``. ``paused_locks``: the paused locks of the installation; of some archives,
    only the locks that one of their tasks has or waits for. Other things have the newest first.
    ``interrupted``: retries of a part of a run that have not reached all of their tasks.
    ``stranded``: ready tasks that no running task manager can run. ``blocking``: failures that a later
    revision has repaired, and behind which tasks still wait, the oldest first.
    """

    faulty: list[Several[RunView]]
    failures: list[Several[Failure]]
    failed_runs: dict[str, list[int]]
    backfills: list[Several[FailuresOfBackfill]]
    hanging: list[Several[Hanging]]
    held: list[Several[Held]]
    together: list[Several[HeldTogether]]
    paused_locks: list[PausedLockView]
    interrupted: list[Several[Interrupted]]
    stranded: list[Several[Stranded]]
    blocking: list[Several[TaskView]]


def attention(
    session: Session, archives: Sequence[ArchiveId] | None, most: int, each: int, waited_for: Collection[int] = ()
) -> Attention:
    """The tasks, runs and backfills that need a person. ``archives`` None: all. ``most``: about the
    most of each kind that are shown; ``each``: the most of one archive. ``waited_for``: failures for
    which tasks are known to wait. A running task hangs if its task manager is silent, or if it takes
    `TIMES` as long as usual and `LONGER` seconds more.
    """
    asked = {"archives": None if archives is None else list(archives)}
    limits = {"silence": SILENCE, "times": TIMES, "longer": LONGER, "looked_at": MOST_RUNNING}
    blocking_limits = {"looked_at": MOST_BLOCKING, "walked": MOST_WALKED}
    rows = session.rows_of(
        ("faulty_at_heads", asked),
        ("unhandled_of_archives", asked | {"each": each, "runs": MOST_FAILED_RUNS}),
        ("failures_of_backfills", asked | {"most": MOST_HOLDS}),
        ("hanging_tasks", asked | limits),
        ("held_tasks", asked | {"each": each}),
        ("held_together", asked | {"most": MOST_HOLDS, "firsts": MOST_FIRSTS}),
        ("paused_everywhere", asked),
        ("interrupted_retries", asked | {"most": MOST_HOLDS}),
        ("stranded_tasks", asked | {"most": MOST_HOLDS, "silence": SILENCE}),
        ("still_blocking", asked | {"tasks": [*waited_for], "each": each, **blocking_limits}),
    )
    faulty, backfills, hanging, together, interrupted, stranded = (
        _in_shares(_by_archive(rows[at]), most, each) for at in (0, 2, 3, 5, 7, 8)
    )
    blocking = _in_shares([Several(row.archive, row.ids, row.count) for row in rows[9]], most, each)
    failed = _in_shares(
        [Several(row.archive, list(zip(row.ids, row.items, strict=True)), row.count) for row in rows[1]], most, each
    )
    held = _in_shares(
        [Several(row.archive, list(zip(row.ids, row.are_runs, row.items, strict=True)), row.count) for row in rows[4]],
        most,
        each,
    )
    ids = (
        [id for one in failed for id, _ in one.shown]
        + [id for one in held for id, *_ in one.shown]
        + [row.id for some in (hanging, stranded) for one in some for row in one.shown]
        + [id for one in blocking for id in one.shown]
    )
    tasks = {task.id: task for task in tasks_by_id(session, ids)}
    runs = {run.id: run for run in views_of_runs(session, [row.id for one in faulty for row in one.shown])}
    return Attention(
        _each(faulty, lambda row: runs.get(row.id)),
        _each(failed, lambda pair: Failure(tasks[pair[0]], pair[1]) if pair[0] in tasks else None),
        {row.archive: row.runs for row in rows[1]},
        _each(
            backfills,
            lambda row: FailuresOfBackfill(
                backfill_name(row.archive, row.number), row.failed, row.rejected, row.unsent, row.unstarted
            ),
        ),
        _each(hanging, lambda row: _hanging(row, tasks.get(row.id))),
        _each(held, lambda row: Held(tasks[row[0]], *row[1:]) if row[0] in tasks else None),
        _each(together, _held_together),
        [paused_lock(row) for row in rows[6]],
        _each(interrupted, lambda row: Interrupted(run_name(row), row.note)),
        _each(stranded, lambda row: _stranded(row, tasks.get(row.id))),
        _each(blocking, tasks.get),
    )


def _by_archive(rows: Sequence[Any]) -> list[Several[Any]]:
    of: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        of[row.archive].append(row)
    return [Several(archive, some, len(some)) for archive, some in of.items()]


def _in_shares(found: Sequence[Several[T]], most: int, each: int) -> list[Several[T]]:
    """Some things of many archives, of which about ``most`` are shown: the same number for each
    archive, at most ``each``; none for the archives after the first ``most``.
    """
    share = max(min(each, most // max(len(found), 1)), 1)
    return [Several(one.archive, one.shown[: share if at < most else 0], one.count) for at, one in enumerate(found)]


def _each(found: Sequence[Several[T]], view: Callable[[T], S | None]) -> list[Several[S]]:
    """The views of what is shown, without what has gone meanwhile (None)."""
    return [Several(one.archive, [seen for row in one.shown if (seen := view(row))], one.count) for one in found]


def _hanging(row: Any, task: TaskView | None) -> Hanging | None:
    return None if task is None else Hanging(task, row.is_silent, row.seen_at, row.seconds)


def _stranded(row: Any, task: TaskView | None) -> Stranded | None:
    labels = [label for label in row.labels.split(",") if not label.startswith("@")]
    return None if task is None else Stranded(task, row.n, labels, row.store, row.hostname)


def _held_together(row: Any) -> HeldTogether:
    name = backfill_name(row.archive, row.backfill) if row.backfill else row.archive
    return HeldTogether(name, row.by, row.note, row.tasks, row.may_be_guarded, row.firsts, row.ending or "")


def faulty_at_head(session: Session, branch: BranchId) -> RunView | None:
    """The newest commit run of a branch, if its workflow files have faults that no later commit has
    fixed.
    """
    rows = session.rows("faulty_at_head", branch=branch)
    return next(iter(views_of_runs(session, [row.id for row in rows])), None) if rows else None


def faulty_at_heads(session: Session, archives: Sequence[ArchiveId] | None) -> set[int]:
    """The runs of the newest commits of branches whose workflow files have faults. ``archives`` None:
    all.
    """
    rows = session.rows("faulty_at_heads", archives=None if archives is None else list(archives))
    return {row.id for row in rows}


@dataclass(slots=True)  # not frozen, as TaskView
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
