"""The page of a run: its graph, its tasks as a table, and the commit."""

from __future__ import annotations

from starlette.requests import Request

from arkqueue.archives.changed import ChangedFiles, changed_files
from arkqueue.model import RunId, TaskKind
from arkqueue.states import State
from arkqueue.views.graph import graph
from arkqueue.views.runs import RunDetail
from arkqueue.views.runs import run as show_run
from arkqueue.web.pages.answer import Shown
from arkqueue.web.pages.drawing import drawn
from arkqueue.web.pages.grid import words_of
from arkqueue.web.pages.visitor import Visitor

MOST_FILES = 50
MOST_DRAWN = 300
"""Tasks of a graph that is drawn; of more nobody could read it."""


def run(visitor: Visitor, request: Request, id: RunId) -> Shown:  # noqa: ARG001  every page gets its request
    """One run."""
    caller = visitor.caller
    view = show_run(caller.session, caller.run(id))
    picture = graph(caller.session, [id], caller.archives())
    changes = changed_files(caller.session, caller.configuration, id, MOST_FILES) if not view.baseline else None
    return Shown(
        "run.html",
        {
            "run": view,
            "tasks": [(task, words_of(task)) for task in view.tasks if task.kind is not TaskKind.COMMIT],
            "changes": changes or ChangedFiles(files=[], total=0, fault=""),
            "sentence": sentence(view),
            "_picture": drawn(picture, view.archive) if 1 < len(picture.nodes) <= MOST_DRAWN else None,
        },
    )


def sentence(view: RunDetail) -> str:
    """What a colleague would say of a run."""
    if view.faults:
        count = len(view.faults)
        return f"Its workflow files have {count} fault{'s' if count > 1 else ''}, so it has no tasks."
    running = [task.label for task in view.tasks if task.state is State.RUNNING]
    failed = [task.label for task in view.tasks if task.state in (State.FAILED, State.REJECTED) and not task.waived]
    held = [task.label for task in view.tasks if task.state is State.HELD]
    waiting = sum(task.state in (State.WAITING, State.READY, State.DEFERRED) for task in view.tasks)
    said = []
    if failed:
        said.append(f"{_listed(failed)} failed")
    if running:
        said.append(f"{_listed(running)} {'is' if len(running) == 1 else 'are'} running")
    if held:
        said.append(f"{_listed(held)} {'waits' if len(held) == 1 else 'wait'} for a release")
    if waiting:
        said.append(f"{waiting} task{'s' if waiting > 1 else ''} {'wait' if waiting > 1 else 'waits'}")
    if not said:
        return f"It is {view.state}: {view.counts.completed} of {view.counts.tasks} tasks completed."
    return "; ".join(said) + "."


def _listed(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
