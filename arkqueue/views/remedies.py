"""The remedy of a failure. The overview, the grid, and the pages of runs, items and tasks offer it, so
all of them decide here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from arkqueue.db.session import Block, Session
from arkqueue.model import TaskKind
from arkqueue.states import State
from arkqueue.views.outdated import COME_BACK_LATE, MOST_FIRSTS, Late, outdated

RETRY: Final = "retry"
WAIVE: Final = "skip"
SETTINGS: Final = "archive set"
"""The verb for a task that the settings of its archive keep from a start."""
MOST_LATE: Final = 20
"""The most failures of a page of which it finds out whether later revisions have continued."""
MOST_ENTRIES: Final = 10_000
"""The newest entries of the audit log of an archive among which a change of its settings is found."""
_TO_EXPLAIN: Final = ("with_removed_scratch", "with_removed_attachments", "lost_once")


class Failure(Protocol):
    """The fields of a task that are needed here; ``views.tasks.TaskView`` has them."""

    @property
    def id(self) -> int: ...
    @property
    def kind(self) -> TaskKind: ...
    @property
    def state(self) -> State: ...
    @property
    def waived(self) -> bool: ...


F = TypeVar("F", bound=Failure)


@dataclass(frozen=True, slots=True)
class Remedy:
    """The remedy of a failure. ``verb``: `RETRY`; `WAIVE`, if the task was rejected, or nothing will
    run it any more; `SETTINGS`; empty if a person has to read the explanation of the task first. Its
    scratch folder or its attachments were removed, or its lost command may have done its work.

    ``late``: why a retry without --force would be refused, if this was judged.
    """

    verb: str
    late: Late | None = None

    @property
    def force(self) -> bool:
        """Whether the retry needs --force."""
        return self.verb == RETRY and self.late is not None


def remedies(session: Session, tasks: Iterable[Failure], most: int | None = None) -> dict[int, Remedy]:
    """The remedies of the failures among some tasks, by id; waived ones need none. ``most``: the most
    failures, the first ones, of which the answer says whether a retry comes too late; None: all.
    """
    bad = failures(tasks)
    return remedies_of(session, bad, session.rows_of(*questions(bad)), most) if bad else {}


def failures(tasks: Iterable[F]) -> list[F]:
    """The failures, among some tasks, that nobody waived."""
    return [task for task in tasks if task.state in (State.FAILED, State.REJECTED) and not task.waived]


def waivers(waited_for: Iterable[int]) -> dict[int, Remedy]:
    """The remedies of failures that a later revision has repaired, and for which tasks wait all the
    same: nothing but a waiver ends such a wait.
    """
    return dict.fromkeys(waited_for, Remedy(WAIVE))


def questions(bad: Sequence[Failure]) -> list[Block]:
    """The questions on some failures, for a caller that asks others in the same round trip."""
    failed = [task.id for task in bad if task.state == State.FAILED]
    return [
        ("gone_among", {"tasks": [task.id for task in bad]}),
        ("not_permitted", {"tasks": failed, "entries": MOST_ENTRIES}),
        ("come_back_late", {"tasks": failed, "most": MOST_FIRSTS}),
        *((block, {"tasks": failed}) for block in _TO_EXPLAIN),
    ]


def remedies_of(
    session: Session, bad: Sequence[Failure], answers: Sequence[Sequence[Any]], most: int | None = None
) -> dict[int, Remedy]:
    """The remedies of some failures, from the answers to their `questions`. ``most``: as in
    `remedies`.
    """
    gone, kept, behind, *to_explain = ({row.id for row in rows} for rows in answers)
    judged = [task.id for task in bad if task.state == State.FAILED][:most]
    late = dict.fromkeys(behind.intersection(judged), COME_BACK_LATE) | outdated(session, judged)
    gone |= {id for id, one in late.items() if one.is_gone}
    to_read = set[int]().union(*to_explain) - gone

    def verb(task: Failure) -> str:
        if task.kind == TaskKind.REPORT or task.id in to_read:
            return ""
        if task.state == State.REJECTED or task.id in gone:
            return WAIVE
        return SETTINGS if task.id in kept else RETRY

    return {task.id: Remedy(verb(task), late.get(task.id)) for task in bad}


def need_settings(found: Collection[Remedy]) -> bool:
    """Whether only other settings of the archive help all of some failures."""
    return bool(found) and all(one.verb == SETTINGS for one in found)


def runs_that_need_settings(session: Session, runs: Sequence[int]) -> set[int]:
    """The runs, among some, whose failures only other settings of their archive help. The first
    `MOST_LATE` failures of a run stand for the others.
    """
    rows = session.rows("failures_of_runs", runs=list(runs), most=MOST_LATE) if runs else []
    helps = remedies(session, rows, MOST_LATE)
    return {row.run_id for row in rows} - {row.run_id for row in rows if helps[row.id].verb != SETTINGS}


def are_not_permitted(session: Session, tasks: Sequence[int]) -> set[int]:
    """The failed tasks, among some, that the settings of their archive keep from a start."""
    return {row.id for row in session.rows("not_permitted", tasks=list(tasks), entries=MOST_ENTRIES)}
