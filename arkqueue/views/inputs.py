"""The inputs of a task for its page: the states and outputs of its dependencies (INPUTS), and its
scratch folder. The page shows the first dependencies; the task gets all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from arkqueue.db.session import Session
from arkqueue.model import TaskId
from arkqueue.states import State
from arkqueue.views.naming import task_names
from arkqueue.views.rows import view_of
from arkqueue.views.runs import ScratchView

MOST_INPUTS: Final = 20
"""The most dependencies whose outputs are shown."""
LONGEST_OUTPUTS: Final = 2000
"""The most characters of the outputs of one dependency that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputView:
    """A dependency of a task. ``outputs``: the beginning of its newest outputs, as JSON; empty if
    it has none. ``size``: the characters of all of them.
    """

    task: str
    state: State
    outputs: str
    size: int


@dataclass(frozen=True, slots=True)
class Inputs:
    """The first dependencies of a task. ``is_all``: True if there are no others."""

    found: list[InputView]
    is_all: bool


def inputs_of(session: Session, task: TaskId) -> Inputs:
    """The dependencies of a task with their present states and outputs. An attempt got those of the
    moment when it began.
    """
    rows = session.rows("inputs_of_task", task=task, most=MOST_INPUTS + 1, longest=LONGEST_OUTPUTS)
    names = task_names(session, [row.id for row in rows])
    found = [
        InputView(task=names[row.id], state=State(row.state), outputs=row.outputs or "", size=row.size or 0)
        for row in rows[:MOST_INPUTS]
    ]
    return Inputs(found, len(rows) <= MOST_INPUTS)


def scratch_of(session: Session, task: TaskId) -> ScratchView | None:
    """The scratch folder of a task; None if it has none, or if the folder has not been made yet."""
    for row in session.rows("scratch_of_task", task=task):
        kept = session.rows("kept_scratch", run=row.run_id, item=row.item)
        is_kept = any(there.store == row.store and there.of_items == bool(row.item) for there in kept)
        return view_of(row, ScratchView, kept=int(is_kept and not row.is_removed))
    return None
