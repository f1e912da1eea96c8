"""The knowledge about the tasks of a table, on the pages of a run and of an item: their buttons, and
what their rows say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from markupsafe import Markup

from arkqueue.states import State
from arkqueue.views.attention import last_lines, notes_of, repaired_among, unhandled_among
from arkqueue.views.remedies import Failure, Remedy, remedies, waivers
from arkqueue.views.tasks import TaskView
from arkqueue.web.pages.approving import Refusal, refusals_for
from arkqueue.web.pages.grid import MOST_LINES
from arkqueue.web.pages.task_rows import rows_of
from arkqueue.web.pages.visitor import Visitor
from arkqueue.web.pages.withheld import Withheld

_BAD: Final = (State.FAILED, State.REJECTED)


@dataclass(frozen=True, slots=True)
class TaskTable:
    """``guarded``: the tasks on which the visitor may not act because they are guarded. ``refused``:
    these, and the tasks whose button a stop or hold of the archive refuses. ``helps``: the remedies of
    failures. ``unhandled``: the failures to which the keys `j` and `k` go. Nobody has handled these, or
    tasks wait for them although a later revision has repaired them. ``repaired``: as in
    `repaired_among`. ``rows``: makes the rows (`rows_of`).
    """

    guarded: Mapping[int, Refusal]
    refused: Mapping[int, Refusal]
    helps: Mapping[int, Remedy]
    unhandled: set[int]
    repaired: Mapping[int, bool]
    rows: Callable[..., Iterator[tuple[TaskView, Markup]]]


def table_of(
    visitor: Visitor,
    kept: Withheld,
    tasks: Sequence[TaskView],
    helped: Sequence[Failure] | None = None,
    most: int | None = None,
) -> TaskTable:
    """The table of some tasks of an archive that may be withheld (``kept``). ``helped``: the tasks whose
    remedies are wanted, if not these. ``most``: as in `remedies`.
    """
    session = visitor.caller.session
    guarded, repaired = refusals_for(visitor, [task.id for task in tasks]), repaired_among(session, tasks)
    waited_for = {id for id, is_waited_for in repaired.items() if is_waited_for}
    helps = remedies(session, tasks if helped is None else helped, most) | waivers(waited_for)
    bad = [task for task in tasks if task.state in _BAD]
    notes = notes_of(session, [task.id for task in bad])
    unhandled = unhandled_among(session, tasks) | (waited_for - notes.keys())
    rows: Any = partial(
        rows_of,
        unhandled=unhandled,
        lines=last_lines(session, bad[:MOST_LINES]),
        notes=notes,
        repaired=repaired,
    )
    refused = kept.refused_in_table(session, tasks, helps) | guarded
    return TaskTable(guarded, refused, helps, unhandled, repaired, rows)
