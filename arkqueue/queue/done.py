"""The result of a verb on many tasks: the tasks that it changed, and its refusals. One transaction
takes a limited number of them (`portions`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import Conflict, Forbidden

MOST_TASKS = 1000
"""The most tasks of one transaction, unless they belong together in one run."""


LONGEST = 60.0
"""Seconds for which one command works, so that its answer comes before the caller gives up."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A task that the verb refused, and the reason."""

    task: int
    why: Conflict | Forbidden


@dataclass(slots=True)
class Done:
    """``tasks``: the tasks on which the verb acted. ``approvals``: those of them that are approval
    steps, which a release approved. ``accepted``: the names of the runs whose workflow files a
    release accepted (``workflow-authors``), the last one of each branch. ``skipped``: tasks that were waived instead of released,
    because their release would have been refused.

    ``left``: the number of tasks that were not reached: the time for one command was over, the
    archive stayed locked, or a person ended the run meanwhile.
    """

    tasks: list[int] = field(default_factory=list)
    approvals: list[int] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    left: int = 0

    def add(self, more: Done) -> None:
        """Add the result of the next step."""
        self.tasks += more.tasks
        self.approvals += more.approvals
        self.accepted += more.accepted
        self.skipped += more.skipped
        self.refused += more.refused
        self.left += more.left

    def unless_refused(self) -> Done:
        """Return this result; if the verb refused everything, raise the first refusal, with the
        others (``ArkqueueError.others``).
        """
        if self.refused and not (self.tasks or self.skipped or self.left):
            why, *others = (refused.why for refused in self.refused)
            more = "1 more task is" if len(others) == 1 else f"{len(others)} more tasks are"
            error = type(why)(why.thing, f"{why.fault}; {more} refused" if others else why.fault, why.remedy)
            error.others = others
            raise error
        return self


class Judged:
    """Locked tasks that a verb judges one after the other. ``rows``: from ``lock_tasks``."""

    def __init__(self, rows: Sequence[Any], refused: Sequence[Refused]) -> None:
        self._rows = rows
        self._whys: dict[int, Conflict | Forbidden] = {one.task: one.why for one in refused}

    @property
    def fit(self) -> list[Any]:
        """The tasks that are not refused until now."""
        return [row for row in self._rows if row.id not in self._whys]

    def judge(self, why_not: Callable[[Any], Conflict | None]) -> None:
        """Refuse those of the fit tasks for which there is a reason."""
        self.refuse({row.id: why for row in self.fit if (why := why_not(row))})

    def refuse(self, whys: Mapping[int, Conflict]) -> None:
        """Refuse some tasks, by their ids."""
        self._whys |= whys

    @property
    def result(self) -> Done:
        """The result of the verb, which has acted on the fit tasks."""
        refused = [Refused(row.id, self._whys[row.id]) for row in self._rows if row.id in self._whys]
        return Done([row.id for row in self.fit], refused=refused)


GIVE_WAY = 0.005
"""Seconds between two transactions of one command, for another transaction that waits for the
archive: PostgreSQL would otherwise often let the next transaction of the command overtake it.
"""


def give_way(session: Session) -> None:
    """Let another transaction that waits for the archive go first. A rehearsal keeps its locks until
    its end, so nobody could go first.
    """
    if not session.is_rehearsal:
        time.sleep(GIVE_WAY)


def portions(tasks: Sequence[int], alone: Collection[int] = ()) -> Iterator[Sequence[int]]:
    """Tasks in portions for one transaction each. ``alone``: tasks that get a transaction of their
    own, because they take as long as many others.
    """
    start = 0
    for place, task in enumerate(tasks):
        if task in alone or place - start == MOST_TASKS:
            if place > start:
                yield tasks[start:place]
            start = place
            if task in alone:
                yield tasks[place : place + 1]
                start = place + 1
    if start < len(tasks):
        yield tasks[start:]
