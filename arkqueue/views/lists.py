"""The tasks of runs that may have ten thousand items (design 5.30): of a long list, its numbers and
the first item in each state. `items` has pages of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from arkqueue.db.session import Session
from arkqueue.model import RunId
from arkqueue.states import State
from arkqueue.views.items import ListView, list_view
from arkqueue.views.naming import names_within
from arkqueue.views.tasks import TaskView, views_of

MOST_SHOWN: Final = 100
"""The most items of a list that are shown with their run. Of a longer list, the first item in each
state is shown.
"""


@dataclass(frozen=True, slots=True)
class Listed:
    """The rows of ``list_tasks`` of some runs. ``lists``: the long lists of each run; of these,
    ``rows`` has the first item in each state.
    """

    rows: list[Any]
    lists: dict[int, list[ListView]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Numbers:
    """The lists of runs, in the order of their files, by run id and task name: the number of items
    in each state, the number of waived failures, and the first item in each state.
    ``waived_rejected``: how many of the waived ones were rejected. ``behind``: the number of held
    items that wait for other tasks, too.
    """

    counts: dict[tuple[int, str], Counter[State]]
    first: dict[tuple[int, str], list[int]]
    waived: Counter[tuple[int, str]]
    waived_rejected: Counter[tuple[int, str]]
    behind: Counter[tuple[int, str]]

    def view(self, key: tuple[int, str]) -> ListView:
        """The list of a run and a name."""
        return list_view(key[1], self.counts[key], self.waived[key], self.waived_rejected[key])


def numbers_of(session: Session, runs: Sequence[int]) -> Numbers:
    """Count the items of runs. Reads each item once."""
    counts: dict[tuple[int, str], Counter[State]] = defaultdict(Counter)
    first: dict[tuple[int, str], list[int]] = defaultdict(list)
    waived: Counter[tuple[int, str]] = Counter()
    waived_rejected: Counter[tuple[int, str]] = Counter()
    behind: Counter[tuple[int, str]] = Counter()
    for row in session.rows("count_items", runs=list(runs)) if runs else ():
        counts[row.run_id, row.name][State(row.state)] = row.n
        first[row.run_id, row.name].append(row.first)
        if row.state in (State.FAILED, State.REJECTED):
            waived[row.run_id, row.name] += row.waived
        if row.state == State.REJECTED:
            waived_rejected[row.run_id, row.name] = row.waived
        behind[row.run_id, row.name] += row.behind
    return Numbers(counts, first, waived, waived_rejected, behind)


def lists_of(numbers: Numbers) -> list[ListView]:
    """All lists, also the short ones."""
    return [numbers.view(key) for key in numbers.counts]


def has_list(session: Session, run: RunId, name: str) -> bool:
    """True if the task of a run has a list."""
    (row,) = session.rows("has_list", run=run, name=name)
    return bool(row.is_there)


def listed(session: Session, runs: Sequence[int], item: str | None = None, numbers: Numbers | None = None) -> Listed:
    """The tasks that are shown with their runs. ``item``: only the tasks of this item, however long
    the lists are. ``numbers``: from `numbers_of`, if the caller has them.
    """
    if numbers is None or item is not None:
        numbers = numbers_of(session, runs if item is None else ())
    first = numbers.first
    long = {key: counts for key, counts in numbers.counts.items() if counts.total() > MOST_SHOWN}
    if not long:
        return Listed(session.rows("list_tasks", runs=list(runs), item=item, tasks=None) if runs else [])
    lists: dict[int, list[ListView]] = defaultdict(list)
    for key in long:
        lists[key[0]].append(numbers.view(key))
    shown = [task for key in long for task in first[key]]
    names = [f"{run} {name}" for run, name in long]
    rows = session.rows("list_some_tasks", runs=list(runs), long=names, first=shown)
    return Listed(rows, lists)


def tasks_of(session: Session, runs: Sequence[Any]) -> tuple[dict[int, list[TaskView]], dict[int, list[ListView]]]:
    """The tasks of runs in the order of the files, COMMIT first, without REPORT and gates of
    ``PREV:*``, which arkqueue adds; and their long lists.
    """
    found: dict[int, list[TaskView]] = defaultdict(list)
    shown = listed(session, [run.id for run in runs])
    for view in views_of(session, shown.rows, runs, names_within(shown.rows, runs)):
        found[view.run_id].append(view)
    return found, shown.lists
