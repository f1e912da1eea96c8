"""Runs over HTTP: lists, graphs, and the verbs of people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import Query, Request
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from arkqueue.archives.changed import ChangedFiles, NotFollowed, changed_files, not_followed
from arkqueue.errors import Invalid
from arkqueue.model import LONGEST_KEY, Trigger
from arkqueue.queue import control, deletion, lists
from arkqueue.queue.tokens import Scope
from arkqueue.states import RunState, State
from arkqueue.views import find, items, runs
from arkqueue.views.graph import GraphView, graph, graph_between
from arkqueue.views.items import DeletedItem, ItemPage
from arkqueue.views.runs import RunDetail, RunPage
from arkqueue.views.tasks import TaskView
from arkqueue.views.waits import tell_why_alone
from arkqueue.web.access import admit
from arkqueue.web.api.answers import RunAction, on_run
from arkqueue.web.api.calls import DryRun, calls
from arkqueue.web.api.verbs import MEANT_OF_RUNS, NewNote, Options, States, Verb, do_to_run

router = calls("runs")

OfItem = Annotated[
    str | None, Query(min_length=1, max_length=LONGEST_KEY, description="of a run, only the tasks of this item")
]
"""Like `Item`, as a query parameter."""


class DeletionOfItems(BaseModel):
    """The items to delete. ``list`` and ``states``: as in ``Options``."""

    model_config = ConfigDict(extra="forbid")

    list: str = Field(min_length=1, max_length=100)
    states: States = []


@router.get("/runs")
def list_runs(
    request: Request,
    archive: str | None = None,
    branch: str | None = None,
    rev: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
    state: Annotated[list[RunState] | None, Query()] = None,
    trigger: Trigger | None = None,
    since: Annotated[AwareDatetime | None, Query()] = None,
    before: Annotated[int | None, Query(ge=0, lt=2**63, description="the cursor `next` of the page before")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    tasks: Annotated[bool, Query(description="with the tasks of each run")] = False,
    backfills: Annotated[bool | None, Query(description="those of backfills alone, or none of them")] = None,
) -> RunPage:
    """Runs, newest first. Deleted runs are included only if `state` names them, which needs the
    scope `admin`.
    """
    caller = admit(request, Scope.ADMIN if state and RunState.DELETED in state else Scope.READ)
    if archive is None and branch is not None:
        raise Invalid("the request", "names a branch and no archive", "Give archive too.")
    archives = caller.archives() if archive is None else [caller.archive(archive)]
    return runs.runs(
        caller.session,
        archives=archives,
        branch=find.find_branch(caller.session, archives[0], branch, archive or "")
        if branch is not None and archives
        else None,
        rev=rev,
        states=state or (),
        trigger=trigger,
        since=since,
        before=before,
        limit=limit,
        tasks=tasks,
        backfills=backfills,
    )


@router.get("/runs/{id}")
def show_run(request: Request, id: int, item: OfItem = None) -> RunDetail:
    """A run with its tasks and edges."""
    caller = admit(request, Scope.READ)
    view = runs.run(caller.session, caller.run(id), item)
    tell_why_alone(caller.session, waiting(view.tasks), caller.archives())
    return view


def waiting(tasks: Sequence[TaskView]) -> list[TaskView]:
    return [task for task in tasks if task.state is State.WAITING]


@router.get("/runs/{id}/changes")
def changes_of_run(
    request: Request,
    id: int,
    limit: Annotated[int, Query(ge=0, le=10_000, description="at most so many files")] = 100,
) -> ChangedFiles:
    """The files that the revision of a run changes, compared with the revision before it. Reads the
    repository.
    """
    caller = admit(request, Scope.READ)
    return changed_files(caller.session, caller.configuration, caller.run(id), limit)


@router.get("/runs/{id}/not-followed")
def not_followed_of_run(request: Request, id: int) -> NotFollowed:
    """The references of a run's revision that its tasks do not get with the files. Reads the
    repository.
    """
    caller = admit(request, Scope.READ)
    return not_followed(caller.session, caller.configuration, caller.run(id))


@router.get("/runs/{id}/graph")
def graph_of_run(request: Request, id: int) -> GraphView:
    """The graph of one run."""
    caller = admit(request, Scope.READ)
    return graph(caller.session, [caller.run(id)], caller.archives())


@router.get("/graph")
def graph_of_revisions(
    request: Request,
    archive: str,
    first: Annotated[int, Query(ge=0, lt=2**63)],
    last: Annotated[int, Query(ge=0, lt=2**63)],
    branch: str | None = None,
) -> GraphView:
    """The graph of all runs from one revision of a branch to another."""
    caller = admit(request, Scope.READ)
    found = find.find_branch(caller.session, caller.archive(archive), branch, archive)
    return graph_between(caller.session, found, first, last, caller.archives())


@router.post("/runs/{id}/delete")
def delete_run(request: Request, id: int, item: OfItem = None, dry_run: DryRun = False) -> RunDetail:
    """Delete a run, or an item of a run; none of its tasks may be running. Unsettled tasks are
    canceled. The history stays readable with the scope `admin`.
    """
    caller = admit(request, Scope.OPERATE)
    run = caller.run(id, also_deleted=True)
    with caller.acting(dry_run, run=run) as caller:
        if item is None:
            deletion.delete_run(caller.session, run, caller.by, caller.approver)
        else:
            deletion.delete_item(caller.session, run, item, caller.by, caller.approver)
        return runs.run(caller.session, run, item)


@router.post("/runs/{id}/undelete")
def undelete_run(request: Request, id: int, item: OfItem = None, dry_run: DryRun = False) -> RunDetail:
    """Remove a tombstone: the tasks that the deletion canceled come back as held."""
    caller = admit(request, Scope.OPERATE)
    run = caller.run(id, also_deleted=True)
    with caller.acting(dry_run, run=run) as caller:
        if item is None:
            deletion.undelete_run(caller.session, run, caller.by, caller.approver)
        else:
            deletion.undelete_item(caller.session, run, item, caller.by, caller.approver)
        return runs.run(caller.session, run, item)


@router.post("/runs/{id}/delete-items")
def delete_items(request: Request, id: int, which: DeletionOfItems, dry_run: DryRun = False) -> RunAction:
    """Delete the items of a list of a run, or only those in one of some states, each with all of
    its tasks.
    """
    caller = admit(request, Scope.OPERATE)
    run = caller.run(id)
    find.check_list(caller.session, run, which.list)
    with caller.acting(dry_run, run=run) as caller:
        done = lists.delete(caller.session, run, which.list, which.states, caller.by, caller.approver)
        return on_run(caller, run, done.unless_refused())


@router.get("/runs/{id}/items")
def list_items(
    request: Request,
    id: int,
    task: Annotated[str | None, Query(description="of tasks of this name")] = None,
    state: Annotated[list[State], Query(description="in one of these states")] = [],  # noqa: B006  FastAPI copies it
    after: Annotated[int | None, Query(ge=1, description="the cursor of the page before")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> ItemPage:
    """A page of the items of a run, in the order of its files and lists. Of long lists, the run
    itself has only the numbers.
    """
    caller = admit(request, Scope.READ)
    page = items.page_of_items(caller.session, caller.run(id), task, state, after, limit)
    tell_why_alone(caller.session, waiting(page.tasks), caller.archives())
    return page


@router.get("/runs/{id}/deleted-items")
def list_deleted_items(request: Request, id: int) -> list[DeletedItem]:
    """The deleted items of a run, with their tasks."""
    caller = admit(request, Scope.ADMIN)
    return items.deleted_items(caller.session, caller.run(id))


@router.post("/runs/{id}/note")
def note_run(request: Request, id: int, new: NewNote) -> RunDetail:
    """Store a note with a run."""
    caller = admit(request, Scope.OPERATE)
    run = caller.run(id)
    control.note(caller.session, new.text, caller.by, run=run)
    return runs.run(caller.session, run)


@router.post("/runs/{id}/{verb}")
def act_on_run(
    request: Request,
    id: int,
    verb: Verb,
    options: Options = Options(),  # noqa: B008  frozen by use
    dry_run: DryRun = False,
) -> RunAction:
    """Act on the tasks of a run: cancel unsettled tasks, restart running ones, retry failed or deferred ones, refresh (poll now) polled ones, skip tasks that failed or have not started, prioritize tasks that have not started."""
    caller = admit(request, Scope.OPERATE)
    run = caller.run(id)
    options.check(*MEANT_OF_RUNS[verb])
    with caller.acting(dry_run, run=run) as caller:
        return on_run(caller, run, do_to_run(caller, verb, run, options), options.item)
