"""Whether a retry or a release comes too late: later revisions have gone on (design 5.19), or nothing
will run the task any more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from arkqueue.db.session import Block, Session
from arkqueue.model import TaskKind
from arkqueue.names import task_name
from arkqueue.views.find import RETIRED
from arkqueue.views.tasks import rows_of

SKIP_OUTDATED: Final = " --skip-outdated"
"""The option of a release of many tasks that waives the outdated ones."""

MOST_FIRSTS: Final = 20
"""The most tasks of one hold, or held ones of an archive, that are judged. They stand for the
others.
"""


@dataclass(frozen=True, slots=True)
class Late:
    """Why a plain retry or release of a task is refused. ``why``: the clause for a person.
    ``is_gone``: True if nothing will run the task any more, so a forced retry makes no sense either.
    """

    why: str
    is_gone: bool = False


HAVE_RUN: Final = Late("later revisions have already run")
COME_BACK_LATE: Final = Late("later revisions have done the work of tasks that would come back with it")


def gone(row: Any) -> str:
    """The clause on why nothing will run a task any more; empty if it may run."""
    if row.run_deleted_at is not None:
        return f"its run was deleted{at(row.run_deleted_at)}"
    if row.deleted:
        return "its item was deleted"
    if row.removed_at is not None:
        return f"{row.archive} was removed{at(row.removed_at)}"
    if row.dropped_at is not None:
        return f"a rewrite of the branch dropped its revision{at(row.dropped_at)}"
    if row.branch.startswith(RETIRED):
        return f"the ledger was rewound{at(row.deleted_at)} to start anew"
    if row.deleted_at is not None:
        return f"its branch was deleted{at(row.deleted_at)}"
    return ""


def outdated(session: Session, tasks: Iterable[int]) -> dict[int, Late]:
    """The tasks whose retry needs --force, with the reason: tasks of later revisions have started
    after them or have done their work (design 5.19), or nothing will run them any more.
    """
    rows = rows_by_id(session, tasks)
    late = {id: Late(why, is_gone=True) for id, row in rows.items() if (why := gone(row))}
    branches: dict[int, list[Any]] = defaultdict(list)
    for row in rows.values():
        branches[row.branch_id].append(row)
    # The tasks of a page may be in dozens of archives: each question takes one round trip for all.
    completions = session.rows_of(*(_asked_after(some, len(some)) for some in branches.values()))
    done = {
        (branch, row.name, row.item, row.after_number, row.after_run)
        for branch, found in zip(branches, completions, strict=True)
        for row in found
    }
    for row in rows.values():
        if (row.branch_id, row.name, row.item, row.number, row.run) in done:
            late.setdefault(row.id, HAVE_RUN)
    rest = [id for id in rows if id not in late]
    # Mostly nothing has started; one query for all tasks shows that.
    if rest and _started_after(session, rest):
        each = session.rows_of(*(("started_after", {"sources": [id], "most": 1}) for id in rest))
        late |= {id: HAVE_RUN for id, started in zip(rest, each, strict=True) if started}
    return late


def later(session: Session, row: Any) -> list[Any]:
    """Tasks of later revisions that depend on a task and have started, or have done its work."""
    return _started_after(session, [row.id]) or _completed_after(session, [row], 1)


def outdated_holds(session: Session, tasks: Iterable[int]) -> dict[int, Late]:
    """The held tasks, of some, with the reason, whose release needs --force or --skip-outdated, as
    ``queue.holds.release_locked`` judges them. ``tasks``: those that `perhaps_outdated` finds; mostly
    there are none. Skipped tasks that would come back are judged in the same way.
    """
    rows = rows_by_id(session, tasks)
    if not rows:
        return {}
    found_late = outdated(session, rows)
    late = {id: one for id, one in found_late.items() if one.is_gone or rows[id].kind == TaskKind.ORDINARY}
    rest = [row for id, row in rows.items() if id not in late]
    found = session.rows_of(*(_asked_for_superseders(row) for row in rest)) if rest else []
    for row, superseders in zip(rest, found, strict=True):
        if superseders:
            late[row.id] = Late(_superseded(superseders[0]))
    return late


def come_back_late(session: Session, row: Any) -> bool:
    """Whether tasks of a task's run that were skipped because of it would come back too late: then its
    retry, and its waiver as completed, need --force (``queue.reopening.refuse_outdated``).
    """
    behind = session.rows("come_back_with", task=row.id, run=row.run_id, most=MOST_FIRSTS)
    return bool(behind and outdated_holds(session, [task.id for task in behind]))


def late_release(session: Session, row: Any) -> str:
    """The clause on why the release of a held task needs --force; empty if it does not."""
    if not session.rows_of(perhaps_outdated([row.id]))[0]:
        return ""
    if why := gone(row):
        return why
    superseders, started = session.rows_of(
        _asked_for_superseders(row), ("started_after", {"sources": [row.id], "most": 1})
    )
    for one in superseders:
        return _superseded(one)
    after = started or (_completed_after(session, [row], 1) if row.kind == TaskKind.ORDINARY else [])
    return f"{HAVE_RUN.why} ({task_name(after[0])})" if after else ""


def _superseded(by: Any) -> str:
    return f"it is superseded by {by.later} of revision {by.number}"


def perhaps_outdated(tasks: Iterable[int]) -> Block:
    """The question which held tasks, of some, may be outdated. It reads only indexes."""
    return "perhaps_outdated", {"tasks": sorted(tasks)}


def _asked_for_superseders(row: Any) -> Block:
    """The question which later task has superseded a held task."""
    asked = {"names": [row.name], "items": [row.item], "attempts": [row.attempts], "cause": None, "most": 1}
    return "superseders", asked | {"branch": row.branch_id, "number": row.number, "run": row.run}


def _started_after(session: Session, tasks: Sequence[int]) -> list[Any]:
    return session.rows("started_after", sources=list(tasks), most=1)


def _completed_after(session: Session, tasks: Sequence[Any], most: int) -> list[Any]:
    (found,) = session.rows_of(_asked_after(tasks, most))
    return found


def _asked_after(tasks: Sequence[Any], most: int) -> Block:
    """The question whose work, among that of some tasks of a branch, was done by tasks of later
    revisions.
    """
    asked: dict[str, Any] = {
        "branch": tasks[0].branch_id,
        "names": [row.name for row in tasks],
        "items": [row.item for row in tasks],
        "numbers": [row.number for row in tasks],
        "runs": [row.run for row in tasks],
        "cause": None,
        "most": most,
    }
    return "completed_after", asked


def rows_by_id(session: Session, tasks: Iterable[int]) -> dict[int, Any]:
    """The rows of ``show_tasks`` of some tasks, by their ids."""
    wanted = sorted(tasks)
    return {row.id: row for row in rows_of(session, wanted)} if wanted else {}


def at(time: datetime | None) -> str:
    return f" at {moment(time)}" if time else ""


def since(time: datetime | None) -> str:
    return f" since {moment(time)}" if time else ""


def moment(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
