"""The rows of a table of tasks as markup. A run may have hundreds of tasks, and a template takes
four times as long for each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup

from arkqueue.durations import took
from arkqueue.names import page_path
from arkqueue.states import State
from arkqueue.text import one_line
from arkqueue.views.attention import REPAIRED, NoteView
from arkqueue.views.expected import Expected
from arkqueue.views.tasks import TaskView
from arkqueue.web.pages.answer import bar, clock, coded, drawn_state, in_markup, short, until

_WITH_COLON: Final = (State.READY, State.DEFERRED, State.FAILED, State.REJECTED)
"""The states whose reasons are sentences of their own."""
LONGEST_NOTE: Final = 100
"""The most characters of a note that the row of a failure shows."""


def rows_of(
    tasks: Iterable[tuple[TaskView, str]],
    run: str,
    unhandled: Collection[int],
    lines: Mapping[int, str],
    notes: Mapping[int, NoteView],
    repaired: Mapping[int, bool],
    expected: Mapping[str, Expected] | None = None,
) -> Iterator[tuple[TaskView, Markup]]:
    """Each task with the beginning of its row, before the cell of its button. ``run``: the name of
    the run, which the reasons leave out. ``unhandled``: the ids of the failures that nobody has
    handled, to which the keys `j` and `k` go. ``lines``: the last lines of the logs of failures, by
    id (`last_lines`). ``notes``: the notes on failures, by id (`notes_of`). ``repaired``: the failures
    that a later revision has repaired (`repaired_among`). ``expected``: the expected start and end of
    tasks, by name; None: the table has no column for the end.
    """
    for task, words in tasks:
        end = ""
        if expected is not None:
            end = (
                f'<td class="num soft until" data-label="expected end">{_end(task, expected.get(task.full_name))}</td>'
            )
        drawn = _bar(task, expected.get(task.full_name)) if expected else ""
        reason = reason_of(task, f" {run}/") + (f": {line}" if (line := lines.get(task.id)) else "")
        if note := notes.get(task.id):
            reason += f" · {noted(note)}"
        if (is_waited_for := repaired.get(task.id)) is not None:
            reason += f" · {REPAIRED}{', but other tasks wait for it' if is_waited_for else ''}"
        yield task, Markup(_row(task, words, reason, drawn, is_unhandled=task.id in unhandled) + end)


def noted(note: NoteView) -> str:
    """A note on a failure, as the end of a reason. Visitors who have not signed in do not see its text."""
    return f"noted by {note.by}: {one_line(note.text, LONGEST_NOTE)}" if note.by else "noted"


def _row(task: TaskView, words: str, reason: str, drawn: str, *, is_unhandled: bool) -> str:
    alarm = ' class="alarm"' if is_unhandled else ""
    said = coded(one_line(reason)) if "`" in reason else reason
    label = one_line(task.label)
    return (
        f'<tr class="of-task"><td class="name{" of-item" if "/" in label else ""}"><a href="/{page_path(task.full_name)}"{alarm} title="{in_markup(task.label)}">'
        f"<b>{in_markup(short(label))}</b></a></td>"
        f'<td class="cut" title="{in_markup(reason)}">{drawn_state(task.state, said)}</td>'
        f'<td class="num">{drawn}{_length(task, words)}</td><td class="soft wide">{in_markup(task.host or "")}</td>'
    )


def _bar(task: TaskView, when: Expected | None) -> str:
    """The progress of a running task."""
    if when is None or task.state is not State.RUNNING or task.stop or task.started_at is None:
        return ""
    usual = max((when.end - when.start).total_seconds(), 1)
    return f"{bar(min((datetime.now(UTC) - when.start).total_seconds() / usual, 1), usual)} "


def _end(task: TaskView, when: Expected | None) -> str:
    """The expected end of a task."""
    if when is None:
        return ""
    return until(when.end, "later than usual" if task.state is State.RUNNING else "any moment")


def reason_of(task: TaskView, within: str = "") -> str:
    """The state of a task, and its reason. ``within``: a text that the reason leaves out."""
    why = one_line((task.why or "").replace(within, " ") if within else task.why or "")
    if not why or why.startswith((task.state, "superseded")):
        return why or str(task.state)
    return f"{task.state}{':' if task.state in _WITH_COLON else ''} {why}"


def _length(task: TaskView, words: str) -> str:
    """The duration of the task, or the time since it began."""
    if task.state is State.RUNNING and task.started_at and not task.stop:
        return clock(task.started_at)
    if task.state in (State.COMPLETED, State.RUNNING):
        return in_markup(words)
    return took(task.started_at, task.ended_at) if task.started_at and task.ended_at else ""
