"""Tables of tasks with lists. A long list is one row with its counts, unless its items are asked
for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from arkqueue.states import ATTENTION

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
            counts = numbers[task["name"]]["counts"] if task["name"] in numbers else None
            rows.append(_of_list(folded[task["name"]], counts))
    return rows


def _of_list(tasks: Sequence[Any], numbers: Mapping[str, int] | None) -> Any:
    """One row for all items of a list, with the state that most needs a person, and their
    ``numbers``. None: ``tasks`` are all of them.
    """
    counts = Counter(task["state"] for task in tasks) if numbers is None else Counter(numbers)
    worst = min(tasks, key=lambda task: ATTENTION.index(task["state"]))
    told = ", ".join(f"{counts[state]} {state}" for state in ATTENTION if counts[state])
    first = next((task["full_name"] for task in tasks if task["state"] in ATTENTION[:2]), "")
    run = worst["full_name"].partition("/")[0]
    return {
        "full_name": f"{run}/{worst['name']}/*",
        "state": worst["state"],
        "started_at": None,
        "ended_at": None,
        "why": f"{counts.total()} items: {told}" + (f" (the first: {first})" if first else ""),
    }
