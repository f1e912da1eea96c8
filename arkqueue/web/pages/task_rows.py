"""The rows of a table of tasks as markup. A run may have hundreds of tasks, and a template takes
four times as long for each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from markupsafe import Markup

from arkqueue.durations import took
from arkqueue.names import page_path
from arkqueue.states import State
from arkqueue.text import one_line
from arkqueue.views.tasks import TaskView
from arkqueue.web.pages.answer import clock, drawn_state, in_markup, short

_WITH_COLON: Final = (State.READY, State.DEFERRED, State.FAILED, State.REJECTED)
"""The states whose reasons are sentences of their own."""


def rows_of(
    tasks: Iterable[tuple[TaskView, str]], run: str, unhandled: Collection[int]
) -> Iterator[tuple[TaskView, Markup]]:
    """Each task with the beginning of its row, before the cell of its button. ``run``: the name of
    the run, which the reasons leave out. ``unhandled``: the ids of the failures that nobody has
    handled, to which the keys `j` and `k` go.
    """
    for task, words in tasks:
        yield task, Markup(_row(task, words, f" {run}/", is_unhandled=task.id in unhandled))


def _row(task: TaskView, words: str, within: str, *, is_unhandled: bool) -> str:
    alarm = ' class="alarm"' if is_unhandled else ""
    label = one_line(task.label)
    return (
        f'<tr class="of-task"><td class="name{" of-item" if "/" in label else ""}"><a href="/{page_path(task.full_name)}"{alarm} title="{in_markup(task.label)}">'
        f"<b>{in_markup(short(label))}</b></a></td>"
        f'<td class="cut" title="{in_markup(task.why or "")}">{drawn_state(task.state, reason_of(task, within))}</td>'
        f'<td class="num">{_length(task, words)}</td><td class="soft wide">{in_markup(task.host or "")}</td>'
    )


def reason_of(task: TaskView, within: str = "") -> str:
    """The state of a task, and its reason. ``within``: a text that the reason leaves out."""
    why = one_line((task.why or "").replace(within, " ") if within else task.why or "")
    if not why or why.startswith(task.state):
        return why or str(task.state)
    return f"{task.state}{':' if task.state in _WITH_COLON else ''} {why}"


def _length(task: TaskView, words: str) -> str:
    """The duration of the task, or the time since it began."""
    if task.state is State.RUNNING and task.started_at and not task.stop:
        return clock(task.started_at)
    if task.state in (State.COMPLETED, State.RUNNING):
        return in_markup(words)
    return took(task.started_at, task.ended_at) if task.started_at and task.ended_at else ""
