"""Tables of tasks with lists. A long list is one row with its counts, unless its items are asked
for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from arkqueue.failures import bad_in_words
from arkqueue.states import ATTENTION, State

_BAD = (State.FAILED, State.REJECTED)
FEW = 10
"""The most items of a list that are shown one by one without being asked for."""


def shown(tasks: Sequence[Any], states: Sequence[str], *, items: bool, long: Sequence[Any] = ()) -> list[Any]:
    """The tasks of a run as rows of a table. ``states``: only tasks in one of these states.
    ``items``: each item of a list has a row of its own, as with ``states``.

    ``long``: the lists for which the run has numbers instead of all items.
    """
    numbers = {one["name"]: one for one in long}
    if states:
        return [task for task in tasks if task["state"] in states]
    if items:
        return list(tasks)
    lists: dict[str, list[Any]] = {}
    for task in tasks:
        if task["item"]:
            lists.setdefault(task["name"], []).append(task)
    folded = {name: of_list for name, of_list in lists.items() if len(of_list) > FEW or name in numbers}
    rows = []
    for task in tasks:
        if not task["item"] or task["name"] not in folded:
            rows.append(task)
        elif task is folded[task["name"]][0]:
            rows.append(_of_list(folded[task["name"]], numbers.get(task["name"])))
    return rows


def _of_list(tasks: Sequence[Any], numbers: Mapping[str, Any] | None) -> Any:
    """One row for all items of a list, with the state that most needs a person, and their
    ``numbers``. None: ``tasks`` are all of them. The first failure is named if it is not waived.
    """
    if numbers is None:
        counts = Counter(task["state"] for task in tasks)
        waived = Counter(task["state"] for task in tasks if task["state"] in _BAD and task["waived"])
        bad = bad_in_words(counts["failed"], counts["rejected"], waived.total(), waived["rejected"])
    else:
        counts = Counter(numbers["counts"])
        bad = bad_in_words(counts["failed"], counts["rejected"], numbers["waived"], numbers["waived_rejected"])
    worst = min(tasks, key=lambda task: ATTENTION.index(task["state"]))
    others = [f"{counts[state]:,} {state}" for state in ATTENTION if counts[state] and state not in _BAD]
    told = ", ".join([*bad.unwaived, *bad.waived, *others])
    first = next((task["full_name"] for task in tasks if task["state"] in _BAD and not task["waived"]), "")
    run = worst["full_name"].partition("/")[0]
    return {
        "full_name": f"{run}/{worst['name']}/*",
        "state": worst["state"],
        "started_at": None,
        "ended_at": None,
        "why": f"{counts.total():,} items: {told}" + (f" (the first: {first})" if first else ""),
    }
