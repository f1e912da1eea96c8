"""Evaluates the names of locks that have fields (design 5.25) when their tasks ask for the locks. A
task whose field has no value fails without an attempt.

Called by ``Graph.follow``. It reads no more than a task manager reads for the same tasks
(``inputs``): each edge and each output once, however many fields name them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from arkqueue.lock_names import MARK, NotAName, evaluated, meant, needs, paths
from arkqueue.model import LONGEST_LOCK

if TYPE_CHECKING:
    from arkqueue.queue.graph import Graph

Values = dict[tuple[int, str], str | None]
"""Outputs by attempt and key. None: the value is neither a text nor a number."""


def name_locks(graph: Graph, asking: Sequence[int]) -> list[int]:
    """Evaluate the lock names with fields of the tasks that ask, into ``graph.named``. Returns the
    tasks that failed because a field has no value.
    """
    rows = graph.rows("locks_with_fields", tasks=asking) if asking else []
    if not rows:
        return []
    wanted = [need for row in rows for name in row.locks for path in paths(name) for need in needs(path)]
    sources: dict[int, dict[str, int | None]] = {}
    for row in graph.rows(
        "sources_for_locks", tasks=[row.id for row in rows], names=list({need.task for need in wanted})
    ):
        sources.setdefault(row.task, {})[row.name] = row.attempt
    attempts = list({attempt for of in sources.values() for attempt in of.values() if attempt is not None})
    told = {"attempts": attempts, "keys": list({need.output for need in wanted}), "most": LONGEST_LOCK + 1}
    values: Values = {(row.attempt, row.key): row.value for row in graph.rows("outputs_for_locks", **told)}
    faults: dict[int, str] = {}
    for row in rows:
        of = sources.get(row.id, {})
        try:
            graph.named[row.id] = list(dict.fromkeys(_evaluated(name, of, values, row.item) for name in row.locks))
        except NotAName as why:
            faults[row.id] = str(why)
    graph.asking = [task for task in graph.asking if task not in faults]
    return graph.ids("fail_unnamed", tasks=list(faults), faults=list(faults.values())) if faults else []


def as_far_as_known(name: str, item: str | None) -> str:
    """The name of a lock before its task asks for it: evaluated if it has only fields of the item,
    and their values make a valid name. ``item``: as JSON.
    """
    if MARK not in name or paths(name):
        return name
    try:
        return _evaluated(name, {}, {}, item)
    except NotAName:
        return name  # the task will fail when it asks for the lock, and say why


def _evaluated(name: str, sources: dict[str, int | None], values: Values, item: str | None) -> str:
    def value(path: str) -> str:
        need = meant(path, sources)
        if need is None:
            raise NotAName(f"the lock {name} needs {path}, but no dependency of the task has run that could provide it")
        found = values.get((sources[need.task] or 0, need.output), "")
        if found is None:
            raise NotAName(
                f"the lock {name} needs the output {need.output} of {need.task}, which is neither a text nor a number"
            )
        if not found:
            raise NotAName(f"the lock {name} needs the output {need.output} of {need.task}, which is missing or empty")
        return found

    def of_item(field: str) -> str:
        found = (json.loads(item or "null", parse_float=Decimal) or {}).get(field)
        if isinstance(found, bool) or not isinstance(found, str | int | Decimal) or found == "":
            raise NotAName(
                f"the lock {name} needs the field {field} of the item, which is neither a text nor a number, or empty"
            )
        return str(found)

    return evaluated(name, value, of_item)
