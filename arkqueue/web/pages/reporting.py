"""The page of one report of a run: the states of its tasks when the report was made, as in
``arkqueue report RUN --number N``.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from arkqueue.model import RunId
from arkqueue.names import parse_name, task_in_run
from arkqueue.states import State
from arkqueue.views.find import find_run
from arkqueue.views.reports import ReportedTask, report
from arkqueue.web.pages.answer import Shown, asked
from arkqueue.web.pages.forms import number
from arkqueue.web.pages.visitor import Visitor

MOST_TASKS: Final = 200
"""The most tasks that a page lists; the JSON has all tasks of the report."""


def report_page(visitor: Visitor, request: Request) -> Shown:
    """A report of the run ``?of=``: the one with ``&number=``, or the newest."""
    name = parse_name(asked(request, "of"))
    caller = visitor.at(name.archive).caller
    caller.archive(name.archive)
    run = caller.run(RunId(find_run(caller.session, name)))
    wanted = asked(request, "number")
    found = report(caller.session, run, number("the number of a report", wanted) if wanted else None)
    rows = [
        (found.since is not None and task.changed, found.run + task_in_run(task.name, task.item), task, why(task))
        for task in found.tasks[:MOST_TASKS]
    ]
    return Shown("report.html", {"report": found, "_rows": rows, "_more": found.counts.tasks - len(rows)})


def why(task: ReportedTask) -> str:
    """The reason for a task's state at that time, in a few words."""
    message = task.outputs_removed or task.log_removed or task.message
    because = f"as {task.root} completed" if task.unneeded else f"because of {task.root}" if task.root else ""
    words = [
        message,
        because,
        f"superseded by {task.superseded_by}" if task.superseded_by else "",
        "waived" if task.waived and task.state in (State.FAILED, State.REJECTED) else "",
        f"exit code {task.exit_code}" if task.exit_code and not message else "",
    ]
    return "; ".join(filter(None, words))
