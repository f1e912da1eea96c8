"""The meaning of one edge: whether its source causes its target to be skipped, and which tasks it
connects.
"""

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
    """Whether the edge's source causes its target to be skipped (design 5.6, 5.8, 5.18). ``root``:
    the new root of the source, if it is about to change.
    """
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
    """Whether tasks that wait for a failure of ``source`` are unnecessary, because it ended
    otherwise (design 5.6).
    """
    return source.settled and source.state not in (State.FAILED, State.REJECTED)


def root_behind(source: Task, root: Task | None = None) -> Task:
    """The root of the tasks that are skipped because of a bad task. ``root``: the new root of the
    bad task, if it is about to change. A deleted task does not come back together with its root, so
    it is a root itself, unless the root is deleted, too.
    """
    root = root or source.root or source
    return source if source.is_deleted and not root.is_deleted else root


def lost(source: Task, root: Task | None = None) -> bool:
    """Whether the product of a bad task will not come unless a person retries or undeletes the task
    (design 5.18). A failure that nobody waived may still be repaired.
    """
    root = root_behind(source, root)
    return not source.as_completed and (root.state is not State.FAILED or root.waived or root.is_deleted)


def is_root(task: Task) -> bool:
    """Whether other tasks may be skipped because of this one. It is bad, or it has settled and
    others wait for its failure.
    """
    return task.bad or (task.settled and any(edge.when is When.FAILED for edge in task.out_of))


def is_of_key(one: str, other: str, exactly: bool = False) -> bool:
    """Whether a task supersedes another task of the name that it cancels, by their item keys. Equal
    keys match, and an empty key (a task without a list) matches every key. ``exactly``: only equal
    keys match.
    """
    return one == other or (not exactly and not (one and other))


def connects_items(workflow: Workflow, task: TaskDefinition, item: str, name: str) -> bool:
    """Whether edges between this task and the tasks of a name connect single items, because both
    have the same list (design 5.30).
    """
    return bool(item) and any(other.name == name and other.foreach == task.foreach for other in workflow.tasks)
