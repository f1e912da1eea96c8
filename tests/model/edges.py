"""What one edge means: whether its source takes its target down with it, and which tasks it connects."""

from __future__ import annotations

from arkqueue.model import (
    COMMIT,
    REPORT,
    TaskDefinition,
    When,
    Workflow,
)
from arkqueue.states import State
from tests.model.words import Edge, Task


def skips(edge: Edge, root: Task | None = None) -> bool:
    """Whether the edge's source takes its dependent down with it (design 5.6, 5.8, 5.18). ``root``: that of the source, if it is to get another one."""
    if edge.when is When.FAILED:
        return not edge.met and spares(edge.source) and edge.target.name not in (COMMIT, REPORT)
    return (
        not edge.met
        and (not edge.crossing or (edge.product and lost(edge.source, root)))
        and edge.when is When.COMPLETED
        and edge.source.bad
        and edge.target.name not in (COMMIT, REPORT)
    )


def spares(source: Task) -> bool:
    """Whether what waits for a failure of the task is not needed: it ended otherwise (design 5.6)."""
    return source.settled and source.state not in (State.FAILED, State.REJECTED)


def lost(source: Task, root: Task | None = None) -> bool:
    """Whether the product of a bad task will not come, unless a person retries it (design 5.18): a failure that nobody waived may be mended."""
    root = root or source.root or source
    return not source.as_completed and (root.state is not State.FAILED or root.waived or root.is_deleted)


def is_root(task: Task) -> bool:
    """Whether others may be skipped because of it: it is bad, or completed where they wait for its failure."""
    return task.bad or (task.settled and any(edge.when is When.FAILED for edge in task.out_of))


def is_of_key(one: str, other: str, exactly: bool = False) -> bool:
    """Whether a task supersedes another one of the name that it cancels: of an item those of its key, and those without a list; ``exactly``: its key alone."""
    return one == other or (not exactly and not (one and other))


def connects_items(workflow: Workflow, task: TaskDefinition, item: str, name: str) -> bool:
    """Whether an edge between a task and one of a name connects items: both are over the same list (design 5.30)."""
    return bool(item) and any(other.name == name and other.foreach == task.foreach for other in workflow.tasks)
