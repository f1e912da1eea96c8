"""Things by their names over HTTP: the run or task that a name names, and why it does not run."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from fastapi import Request

from arkqueue.errors import NotFound
from arkqueue.model import RunId
from arkqueue.names import EVERY_TASK, Name, as_backfill, is_list, list_name, parse_name, task_in_run
from arkqueue.queue.tokens import Scope
from arkqueue.views import find, tasks
from arkqueue.views.explain import explain_name
from arkqueue.views.explanation import Explanation
from arkqueue.web.access import Caller, admit
from arkqueue.web.api.calls import calls

router = calls("runs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The thing that a name names. ``task`` None: a run, an ``item`` of it (``RUN/*/KEY``), or a
    ``list`` of it (``RUN/TASK/*``). ``earlier``: the revision of the same number in a ledger from
    before a rewind; None if there is none, or the name says which is meant.
    """

    full_name: str
    run: int
    task: int | None
    item: str | None = None
    list: str | None = None
    earlier: str | None = None


@router.get("/find")
def find_name(request: Request, name: str) -> Found:
    """The run or task with a name: ARCHIVE@REVISION or ARCHIVE@REVISION/TASK, in full
    ARCHIVE:BRANCH@REVISION.RUN/TASK/ITEM. ARCHIVE@REVISION/*/ITEM is an item, and
    ARCHIVE@REVISION/TASK/* a list.
    """
    caller = admit(request, Scope.READ)
    parsed = parse_name(name)
    caller.archive(parsed.archive)
    parsed = find.resolved(caller.session, parsed)
    archive = find.find_archive(caller.session, parsed.archive)
    before = find.earlier_one(caller.session, archive, replace(parsed, run=None, task=None, item=""))
    earlier = str(before) if before else None
    if parsed.task is None:
        run = find.find_run(caller.session, parsed)
        return Found(full_name=find.name_of_run(caller.session, run), run=run, task=None, earlier=earlier)
    if is_list(name):
        run = caller.run(RunId(find.find_run(caller.session, replace(parsed, task=None, item=""))))
        find.check_list(caller.session, run, parsed.task)
        full_name = list_name(find.name_of_run(caller.session, run), parsed.task)
        return Found(full_name=full_name, run=run, task=None, list=parsed.task, earlier=earlier)
    if parsed.task == EVERY_TASK and parsed.item:
        run = find.find_item(caller.session, parsed)
        name = find.name_of_run(caller.session, run) + task_in_run(EVERY_TASK, parsed.item)
        return Found(full_name=name, run=run, task=None, item=parsed.item, earlier=earlier)
    task = tasks.task(caller.session, find.find_task(caller.session, parsed))
    return Found(full_name=task.full_name, run=task.run_id, task=task.id, earlier=earlier)


@router.get("/explain")
def explain_by_name(request: Request, name: str) -> Explanation:
    """The reasons why something is not running, by its name; it need not exist yet."""
    caller = admit(request, Scope.READ)
    parsed = parse_name(name)
    caller.archive(parsed.archive)
    with suppress(NotFound):  # what does not exist is explained, too
        if as_backfill(name) is None:
            _check_not_deleted(caller, find.resolved(caller.session, parsed))
    return explain_name(caller.session, name, caller.archives())


def _check_not_deleted(caller: Caller, name: Name) -> None:
    """Raise ``Forbidden`` if a token without the scope `admin` asks for what was deleted."""
    caller.run(RunId(find.find_run(caller.session, replace(name, task=None, item=""))))
    if name.task is not None and EVERY_TASK not in (name.task, name.item):
        caller.task(find.find_task(caller.session, name))
