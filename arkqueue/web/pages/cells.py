"""The cells of the grid as markup. A page has nearly a thousand, and a template takes four times as
long for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from markupsafe import Markup

from arkqueue.names import page_path
from arkqueue.states import State
from arkqueue.text import shortened
from arkqueue.views.expected import Expected
from arkqueue.web.pages.answer import bar, drawn_state, environment, in_markup, relative
from arkqueue.web.pages.grid import Absence, Cell, Column

LONGEST_HEAD: Final = 24
"""The most characters of a task's name in the head of its column: its beginning and its end,
because names differ there. The whole name is the title.
"""
_NOTHING = Markup()
_LEFT = Markup('<span class="none" title="not part of this run">{}</span>')
_FILTERED = Markup(
    '<span class="out" title="left out by its paths or branches">{}<span class="t">left out</span></span>'
)
_UNDEFINED = "not in the workflow files of this revision"
_NEVER_YET = Markup('<span title="{}">never yet</span>')
_NEVER = Markup(
    '<span class="never s left" title="{}"><svg viewBox="0 0 16 16" role="img" aria-label="{}">'
    '<circle cx="8" cy="8" r="1.3" fill="currentColor"/></svg></span>'
)


def parts_of(
    cells: Sequence[Cell | None],
    absent: Sequence[Absence | None],
    never: Sequence[str],
    stand_ins: Mapping[int, int] = MappingProxyType({}),
) -> Iterator[tuple[Cell | None, Markup]]:
    """The cells of a row as markup. A cell with a button comes with its link; the cells between two
    such cells come together. ``never``: the reason why a column never has a cell in this row;
    empty: only this run does not have the task, for the reason in ``absent``.
    """
    plain: list[str] = []
    for cell, absence, why in zip(cells, absent, never, strict=True):
        if cell is not None and cell.has_button:
            yield None, Markup("".join(plain))
            yield cell, link_of(cell, stand_ins)
            plain = []
        elif cell is None and not why and absence is Absence.UNDEFINED:
            plain.append(f'<td class="cell" title="{_UNDEFINED}"><span class="hidden">{_UNDEFINED}</span></td>')
        else:
            is_filtered = absence is Absence.FILTERED
            inside = (
                _link(cell, stand_ins) if cell is not None else never_drawn(why) if why else left_drawn(is_filtered)
            )
            plain.append(f'<td class="cell">{inside}</td>')
    yield None, Markup("".join(plain))


def heads_of(columns: Sequence[Column]) -> Markup:
    """The heads of columns: a name, the state at the highest revision, and the newest revision that
    completed.
    """
    return Markup("".join([_head(column) for column in columns]))


def _head(column: Column) -> str:
    name, highest = in_markup(column.name), column.highest
    title = f"{name}: the newest workflow files have no such task" if column.gone else name
    is_long = len(column.name) > LONGEST_HEAD
    shown = in_markup(shortened(column.name, LONGEST_HEAD)) if is_long else name
    now: str = drawn_state(highest.state, highest.rev) if highest else _NOTHING
    if column.completed is not None and (
        highest is None or highest.rev != column.completed or highest.state is not State.COMPLETED
    ):
        now = f"{now}{drawn_state(State.COMPLETED, column.completed)}"
    if column.is_new:
        now = f"{now}{_NEVER_YET.format(column.never or 'no run has had this task')}"
    titled = f' title="{title}"' if column.gone or is_long else ""
    return (
        f'<th scope="col" class="cell{" gone" if column.gone else ""}"><span class="task-head"{titled}>'
        f"{shown}</span>"
        f'<span class="task-now">{now}</span></th>'
    )


def menu_of(names: Sequence[str], chosen: Sequence[str]) -> Markup:
    """The boxes with which a person chooses columns."""
    boxes = []
    for name in names:
        checked = " checked" if name in chosen else ""
        plain = in_markup(name)
        boxes.append(f'<label><input type="checkbox" name="columns" value="{plain}"{checked}> {plain}</label>')
    return Markup("".join(boxes))


@cache
def left_drawn(is_filtered: bool = False) -> Markup:
    """The cell of a task that is not part of a run. ``is_filtered``: its filters left it out."""
    macros: Any = environment().get_template("macros.html").module
    return _FILTERED.format(macros.state("left", quiet=True)) if is_filtered else _LEFT.format(macros.state("left"))


def never_drawn(why: str) -> Markup:
    """The cell of a task that no commit runs."""
    return _NEVER.format(why, why)


def link_of(cell: Cell, stand_ins: Mapping[int, int] = MappingProxyType({})) -> Markup:
    """The link of a cell, with the facts that are shown when it has the focus. ``stand_ins``: for
    tasks that no row shows, the tasks whose cells stand for them.
    """
    return Markup(_link(cell, stand_ins))


def _link(cell: Cell, stand_ins: Mapping[int, int]) -> str:
    task = cell.task
    is_counting = task.state is State.RUNNING and task.started_at and not task.stop and not task.item
    ends = _shown(cell.edges, stand_ins) if stand_ins else cell.edges
    edges = f' data-edges="{relative(ends, task.id)}"' if ends else ""
    since = f' data-since="{task.started_at.isoformat()}"' if is_counting and task.started_at else ""
    log = " data-log" if task.attempts else ""
    alarm = ' class="alarm"' if cell.needs else ""
    expected = f' data-expected="{_seconds(cell.expected)}"' if cell.expected is not None else ""
    drawn = _NOTHING if cell.progress is None or cell.usual is None else bar(cell.progress, cell.usual)
    return (
        f'<a id="t{task.id}" href="/{page_path(task.full_name)}"{alarm}{log}{edges}{expected}'
        f' title="{in_markup(cell.says)}">{drawn_state(task.state)}<span class="t"{since}>'
        f"{in_markup(cell.words)}{' · noted' if cell.note and not cell.needs else ''}</span>{drawn}</a>"
    )


def _seconds(when: Expected) -> str:
    """The seconds until an expected start and end; a browser counts them down."""
    now = datetime.now(UTC)
    return f"{max((when.start - now).total_seconds(), 0):.0f} {max((when.end - now).total_seconds(), 0):.0f}"


def _shown(edges: str, stand_ins: Mapping[int, int]) -> str:
    ends = [(edge[0], int(edge[1:])) for edge in edges.split()]
    return " ".join(dict.fromkeys(f"{kind}{stand_ins.get(id, id)}" for kind, id in ends))
