"""A cell of the grid as markup. A page has nearly a thousand, and a template takes four times as long for each as this."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from markupsafe import Markup, escape

from arkqueue.states import State
from arkqueue.text import one_line
from arkqueue.web.pages.answer import drawn_state, path, relative
from arkqueue.web.pages.grid import Cell

_BAR = Markup(
    '<svg class="bar" viewBox="0 0 60 5" aria-hidden="true"><rect width="60" height="5" rx="2"/>'
    '<rect width="{}" height="5" rx="2"/></svg>'
)
_NOTHING = Markup()


def link_of(cell: Cell, stand_ins: Mapping[int, int] = MappingProxyType({})) -> Markup:
    """The link of a cell, with all that focus on it shows. ``stand_ins``: of tasks that no row shows, those whose cells stand for them."""
    task = cell.task
    is_counting = task.state is State.RUNNING and task.started_at and not task.stop and not task.item
    ends = _shown(cell.edges, stand_ins) if stand_ins else cell.edges
    edges = f' data-edges="{relative(ends, task.id)}"' if ends else ""
    since = f' data-since="{task.started_at.isoformat()}"' if is_counting and task.started_at else ""
    log = " data-log" if task.attempts else ""
    alarm = ' class="alarm"' if cell.needs else ""
    bar = _NOTHING if cell.progress is None else _BAR.format(round(60 * cell.progress, 1))
    return Markup(
        f'<a id="t{task.id}" href="/{escape(path(task.full_name))}"{alarm}{log}{edges}'
        f' title="{escape(one_line(cell.says))}">{drawn_state(task.state)}<span class="t"{since}>'
        f"{escape(one_line(cell.words))}{' · noted' if cell.note else ''}</span>{bar}</a>"
    )


def _shown(edges: str, stand_ins: Mapping[int, int]) -> str:
    ends = [(edge[0], int(edge[1:])) for edge in edges.split()]
    return " ".join(dict.fromkeys(f"{kind}{stand_ins.get(id, id)}" for kind, id in ends))
