"""The run that the next commit of a branch will make, from the workflow files of the newest
revision. The commit may change these files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from arkqueue.db.session import Session
from arkqueue.model import COMMIT, REPORT, Fault, TaskDefinition, Trigger
from arkqueue.states import State
from arkqueue.views.graph import EdgeView, GraphView, NodeView
from arkqueue.views.rows import faults_of
from arkqueue.workflow import from_json


@dataclass(frozen=True, slots=True)
class Coming:
    """The graph of such a run. ``places``: the file and line of each node, by its id. ``items``:
    the number of items of each node with a list; None: the list was purged (``removed`` says when
    and by whom). ``faults``: the faults of the workflow files, with which the run has no tasks.
    ``is_filtered``: True if some tasks depend on the changed paths or the branch.
    """

    graph: GraphView
    places: dict[int, str] = field(default_factory=dict)
    items: dict[int, int | None] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    is_filtered: bool = False
    removed: str = ""


def coming(session: Session, revision: int) -> Coming:
    """The run that the next commit would make, if it changed no workflow file."""
    rows = session.rows("workflow_at", revision=revision)
    found = [from_json(task) for task in rows[0].tasks] if rows else []
    faults = faults_of(rows[0].faults) if rows else []
    tasks = [one for one in found if Trigger.COMMIT in one.on and one.name not in (COMMIT, REPORT)]
    ids = {one.name: number for number, one in enumerate(tasks, 1)}
    nodes = [_node(one, ids[one.name]) for one in tasks]
    edges = [
        EdgeView(
            target=ids[one.name], source=ids[source], target_name=one.name, source_name=source,
            kind=kind, met=False, declared=True, active=False,
        )
        for one in tasks
        for source, kind in _sources(one)
        if source in ids
    ]  # fmt: skip
    items = {ids[name]: count for name, count in _counts(session, tasks).items()}
    return Coming(
        GraphView(nodes=nodes, edges=edges, locks=[], more_locks=False),
        {ids[one.name]: f"{one.path.rpartition('/')[2]}:{one.line}" for one in tasks},
        items,
        faults,
        any(one.paths or one.branches for one in tasks),
        _removed(session, revision) if None in items.values() else "",
    )


def _counts(session: Session, tasks: Sequence[TaskDefinition]) -> dict[str, int | None]:
    """The number of items of each list, by the task's name. Definitions that an older version
    stored have no number; their items are counted.
    """
    lists = {one.name: one.foreach for one in tasks if one.foreach is not None}
    unknown = {one.items for one in lists.values() if one.count is None}
    rows = session.rows("count_lists", digests=sorted(unknown)) if unknown else []
    counted = {row.digest: int(row.n) for row in rows}
    return {name: counted.get(one.items) if one.count is None else one.count for name, one in lists.items()}


def _removed(session: Session, revision: int) -> str:
    """When the lists of a revision's workflow files were purged, and by whom."""
    told = session.rows("lists_removed", revision=revision)
    return f"removed on {told[0].told}" if told else "removed"


def _sources(task: TaskDefinition) -> list[tuple[str, str]]:
    depends = [(one.task, "depends") for one in task.depends if one.task is not None and not one.previous]
    return depends + [(one.task, "cancels") for one in task.cancels if one.task is not None and not one.previous]


def _node(task: TaskDefinition, id: int) -> NodeView:
    return NodeView(
        id=id, run_id=0, full_name=task.name, rev=0, run=1, name=task.name, item="", state=State.WAITING,
        gate=not (task.command or task.script), outside=False,
    )  # fmt: skip
