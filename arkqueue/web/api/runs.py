"""Runs and tasks over HTTP: lists, graphs, explanations, and the verbs of people."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

from fastapi import Query, Request, Response
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StrictInt

from arkqueue.archives.changed import ChangedFiles, NotFollowed, changed_files, not_followed
from arkqueue.archives.scan import scan
from arkqueue.db.session import Session
from arkqueue.errors import Conflict, Invalid, NotFound
from arkqueue.model import GREATEST_PRIORITY, LEAST_PRIORITY, LONGEST_KEY, ArchiveId, BranchId, RunId, TaskId, Trigger
from arkqueue.names import EVERY_TASK, Name, as_backfill, is_list, list_name, parse_name, task_in_run
from arkqueue.queue import control, deletion, lists, many, redo, retrying, triggering
from arkqueue.queue.done import Done
from arkqueue.queue.proposed import ProposedRun, proposed
from arkqueue.queue.tokens import Scope
from arkqueue.queue.walk import Step, alone
from arkqueue.states import RunState, State
from arkqueue.views import find, items, runs, tasks
from arkqueue.views.explain import explain, explain_name
from arkqueue.views.explanation import Explanation
from arkqueue.views.graph import GraphView, graph, graph_between
from arkqueue.views.items import DeletedItem, ItemPage
from arkqueue.views.prospects import obstacles
from arkqueue.views.reasons import Reason
from arkqueue.views.rows import view_of
from arkqueue.views.runs import RunDetail, RunPage
from arkqueue.views.tasks import AttemptView, TaskDetail, TaskView
from arkqueue.views.waits import tell_why_alone
from arkqueue.web.access import Caller, admit
from arkqueue.web.api.answers import ArchiveAction, RunAction, on_archive, on_run
from arkqueue.web.api.calls import DryRun, calls

router = calls("runs")

LONGEST_NOTE = 10_000
"""The most characters of a note."""

_SHA = re.compile(r"g?([0-9a-fA-F]{4,64})")


class NewRun(BaseModel):
    """A run by hand. ``revision``: of the ledger, or a SHA or the beginning of one; without it, the
    head. ``tasks``: only these. ``without``: dependencies to leave out.
    """

    model_config = ConfigDict(extra="forbid")

    archive: str
    branch: str | None = None
    revision: StrictInt | str | None = None
    tasks: list[str] | None = Field(default=None, min_length=1, max_length=10_000)
    without: list[str] = Field(default_factory=list, max_length=10_000)
    force: bool = False


Item = Annotated[str | None, Field(min_length=1, max_length=LONGEST_KEY)]
"""The key of an item, if a verb on a run is only for the tasks of that item."""


OfList = Annotated[str | None, Field(min_length=1, max_length=100)]
"""The name of a task that has a list, if a verb on a run is only for the items of that list."""
States = Annotated[list[State], Field(max_length=len(State))]
"""The states of the items for which a verb on a list is; empty: any."""


OfItem = Annotated[
    str | None, Query(min_length=1, max_length=LONGEST_KEY, description="of a run, only the tasks of this item")
]
"""Like `Item`, as a query parameter."""


class Verb(StrEnum):
    CANCEL = "cancel"
    RESTART = "restart"
    RETRY = "retry"
    REFRESH = "refresh"
    SKIP = "skip"
    PRIORITIZE = "prioritize"


class Options(BaseModel):
    """The options of an action. ``assume_gone``: of cancel of one task. ``force``: of retry and
    skip. ``as_completed``: of skip. ``failed``: of retry of a run or an archive: only failed tasks
    that are not outdated. ``from_start``: of retry: run the command again, also of a polled task.
    ``from_task``: of retry of a run or an item: the task with this name and everything behind it,
    also completed tasks.

    ``priority``: of prioritize; lower numbers go first. ``item``: of a run, only the tasks of this
    item. ``list``: of a run, only the items of the list of the task with this name; ``states``:
    only items in one of these states. A retry of a list without ``states`` takes failed items.
    """

    model_config = ConfigDict(extra="forbid")

    assume_gone: bool = False
    force: bool = False
    as_completed: bool = False
    failed: bool = False
    from_start: bool = False
    from_task: str | None = None
    priority: StrictInt | None = Field(default=None, ge=LEAST_PRIORITY, le=GREATEST_PRIORITY)
    item: Item = None
    list: OfList = None
    states: States = []

    def check(self, *meant: str) -> None:
        """Raise ``Invalid`` if an option is set that has no meaning here, instead of doing half of
        the request.
        """
        for name in type(self).model_fields:
            if name in self.model_fields_set and getattr(self, name) is not False and name not in meant:
                raise Invalid("the request", f"{name} means nothing here", "See /docs for what is expected.")

    def the_failed(self) -> bool:
        """True if only failed tasks are meant. These cannot be forced."""
        if self.failed and self.force:
            fault = "asks to force what failed"
            raise Invalid("the request", fault, "Name the task or the run that is to be forced, without failed.")
        if self.failed and self.from_start:
            fault = "asks to run the commands of all that failed from the start"
            raise Invalid("the request", fault, "Name the task or the run, without failed.")
        if self.failed and self.from_task is not None:
            fault = "asks for what failed, and for a task and everything behind it"
            raise Invalid("the request", fault, "Leave out failed or from_task.")
        return self.failed

    def the_priority(self) -> int:
        """The priority; raises ``Invalid`` if it is missing."""
        if self.priority is None:
            raise Invalid("the request", "names no priority", "Give priority, a whole number.")
        return self.priority


class DeletionOfItems(BaseModel):
    """The items to delete. ``list`` and ``states``: as in ``Options``."""

    model_config = ConfigDict(extra="forbid")

    list: str = Field(min_length=1, max_length=100)
    states: States = []


class NewNote(BaseModel):
    """A person's note. Characters that cannot be stored are refused."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(min_length=1, max_length=LONGEST_NOTE)


_MEANT: dict[Verb, tuple[str, ...]] = {
    Verb.CANCEL: ("assume_gone",),
    Verb.RESTART: (),
    Verb.RETRY: ("force", "from_start"),
    Verb.REFRESH: (),
    Verb.SKIP: ("as_completed", "force"),
    Verb.PRIORITIZE: ("priority",),
}
"""The options of each verb on a task."""
_OF_RUNS = _MEANT | {
    Verb.CANCEL: ("item", "list", "states"),
    Verb.RESTART: ("item", "list", "states"),
    Verb.REFRESH: ("item", "list", "states"),
    Verb.RETRY: ("force", "failed", "from_start", "from_task", "item", "list", "states"),
    Verb.SKIP: ("as_completed", "force", "item", "list", "states"),
    Verb.PRIORITIZE: ("priority", "item", "list", "states"),
}
"""The options of each verb on a run."""


@dataclass(slots=True, kw_only=True)  # not frozen, as TaskView
class MadeRun(RunDetail):
    """A run that was made by hand. ``note``: the reason why the newest commits may be missing in
    it; empty if they are not.
    """

    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedAndScanned(ProposedRun):
    """A run that would be made, by hand or for a submission. ``note``: as in ``MadeRun``.
    ``obstacles``: the reasons that would keep its tasks from starting now.
    """

    note: str
    obstacles: list[Reason]


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


# Runs


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


@router.post("/runs", status_code=201)
def trigger_run(
    request: Request,
    response: Response,
    new: NewRun,
    dry_run: Annotated[bool, Query(description="say what would run, and make nothing")] = False,
) -> MadeRun | ProposedAndScanned:
    """Make a run by hand, of the named tasks, or of all that run both on commits and by hand. The
    repository is scanned first, so that the newest revisions are in the ledger.
    """
    caller = admit(request, Scope.OPERATE)
    archive = caller.archive(new.archive)
    revision, note = revision_scanned(caller.session, archive, new)
    if dry_run:
        response.status_code = 200
        would_be = proposed(
            caller.session, revision, names=new.tasks, without=new.without, force=new.force, approver=caller.approver
        )
        hindered = obstacles(caller.session, archive, would_be.tasks)
        return view_of(would_be, ProposedAndScanned, note=note, obstacles=hindered)
    run = triggering.trigger(
        caller.session,
        revision,
        names=new.tasks,
        without=new.without,
        by=caller.by,
        force=new.force,
        approver=caller.approver,
    )
    response.headers["Location"] = f"/api/v1/runs/{run}"
    return view_of(runs.run(caller.session, RunId(run)), MadeRun, note=note)


@router.get("/runs/{id}")
def show_run(request: Request, id: int, item: OfItem = None) -> RunDetail:
    """A run with its tasks and edges."""
    caller = admit(request, Scope.READ)
    view = runs.run(caller.session, caller.run(id), item)
    tell_why_alone(caller.session, _waiting(view.tasks), caller.archives())
    return view


def _waiting(tasks: Sequence[TaskView]) -> list[TaskView]:
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
    tell_why_alone(caller.session, _waiting(page.tasks), caller.archives())
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
    options.check(*_OF_RUNS[verb])
    with caller.acting(dry_run, run=run) as caller:
        return on_run(caller, run, do_to_run(caller, verb, run, options), options.item)


def do_to_run(caller: Caller, verb: Verb, run: RunId, options: Options) -> Done:
    """Apply a verb to the tasks of a run."""
    session, by, who = caller.session, caller.by, caller.approver
    force, as_completed, from_start = options.force, options.as_completed, options.from_start
    if options.list is not None:
        find.check_list(caller.session, run, options.list)
        return do_to_list(caller, verb, run, options.list, options.states, options)
    check_states(options.states)
    if options.from_task is not None and not options.the_failed():
        task, item = options.from_task, options.item
        return redo.retry_from(session, run, task, by, item=item, force=force, from_start=from_start, approver=who)
    if options.item is not None:
        return _do_to_item(caller, verb, run, options.item, options)
    match verb:
        case Verb.CANCEL:
            return control.cancel_run(session, run, by, approver=who)
        case Verb.RESTART:
            return many.restart_run(session, run, by, who)
        case Verb.RETRY if options.the_failed():
            return many.retry_failed(session, run, by, who)
        case Verb.RETRY:
            return many.retry_run(session, run, by, force=force, from_start=from_start, approver=who)
        case Verb.REFRESH:
            return retrying.refresh_run(session, run, by)
        case Verb.SKIP:
            return many.skip_run(session, run, by, as_completed=as_completed, force=force, approver=who)
        case Verb.PRIORITIZE:
            return control.prioritize_run(session, run, options.the_priority(), by)


def check_states(states: Sequence[State]) -> None:
    """Raise ``Invalid`` if a call without a list names states."""
    if states:
        raise Invalid("the request", "names states, and no list", "Give list, the name of the task that has it.")


def do_to_list(caller: Caller, verb: Verb, run: RunId, name: str, states: Sequence[State], options: Options) -> Done:
    """Apply a verb to the items of a list. ``states``: only to items in one of these states; a retry without states takes failed items."""
    if options.item is not None or options.from_task is not None:
        raise Invalid("the request", "names a list, and an item or a task to start from", "Leave one of them out.")
    if options.the_failed() and states and set(states) != {State.FAILED}:
        raise Invalid("the request", "asks for what failed, and for other states", "Leave out failed or states.")
    session, by = caller.session, caller.by
    if verb is Verb.PRIORITIZE:
        return lists.prioritize(session, run, name, states, options.the_priority(), by)
    if verb is Verb.CANCEL:
        return lists.cancel(session, run, name, states, by, caller.approver)
    return lists.act(session, run, name, states, verb, _step(caller, verb, options))


def _do_to_item(caller: Caller, verb: Verb, run: RunId, item: str, options: Options) -> Done:
    """Apply a verb to the tasks of an item."""
    failed = options.the_failed()
    return many.act_on_item(caller.session, run, item, verb, _step(caller, verb, options), failed=failed)


def _step(caller: Caller, verb: Verb, options: Options) -> Step:
    """The step that applies a verb to some tasks of a run."""
    session, by, who = caller.session, caller.by, caller.approver
    match verb:
        case Verb.RESTART:
            return many.restarting(by, who)
        case Verb.RETRY:
            return many.retrying(by, who, force=options.force, from_start=options.from_start)
        case Verb.REFRESH:
            return many.refreshing(by)
        case Verb.SKIP:
            return many.skipping(by, who, as_completed=options.as_completed, force=options.force)
        case Verb.CANCEL:
            return alone(lambda task: control.cancel(session, task, by, approver=who))
        case Verb.PRIORITIZE:
            priority = options.the_priority()
            return alone(lambda task: control.prioritize(session, task, priority, by))


@router.post("/archives/{name}/retry")
def retry_archive(request: Request, name: str, options: Options, dry_run: DryRun = False) -> ArchiveAction:
    """Retry the failed tasks of an archive, the oldest runs first. ``failed`` has to be set.
    Outdated tasks are refused.
    """
    caller = admit(request, Scope.OPERATE)
    archive = caller.archive(name)
    options.check("failed")
    if not options.the_failed():
        raise Invalid(
            "the request", "would retry all tasks of an archive", "Set failed: only failed tasks can be retried so."
        )
    with caller.acting(dry_run, archive=archive) as caller:
        done = many.retry_failed_of_archive(caller.session, archive, caller.by, caller.approver)
        return on_archive(caller, archive, done)


@router.post("/archives/{name}/refresh")
def refresh_archive(request: Request, name: str, dry_run: DryRun = False) -> ArchiveAction:
    """Poll all deferred tasks of an archive now."""
    caller = admit(request, Scope.OPERATE)
    archive = caller.archive(name)
    with caller.acting(dry_run, archive=archive) as caller:
        return on_archive(caller, archive, retrying.refresh_archive(caller.session, archive, caller.by))


# Tasks


@router.get("/tasks/{id}")
def show_task(request: Request, id: int) -> TaskDetail:
    """A task with its definition, its attempts and its audit log entries."""
    caller = admit(request, Scope.READ)
    return tasks.task(caller.session, caller.task(id))


@router.get("/tasks/{id}/attempts")
def list_attempts(request: Request, id: int) -> list[AttemptView]:
    """The attempts of a task, the oldest first."""
    caller = admit(request, Scope.READ)
    return tasks.attempts(caller.session, caller.task(id))


@router.get("/tasks/{id}/explain")
def explain_task(request: Request, id: int) -> Explanation:
    """The reasons for a task's state, and the commands that help."""
    caller = admit(request, Scope.READ)
    return explain(caller.session, caller.task(id), seen=caller.archives())


@router.post("/tasks/{id}/note")
def note_task(request: Request, id: int, new: NewNote) -> TaskDetail:
    """Store a note with a task. Its run shows the note, too."""
    caller = admit(request, Scope.OPERATE)
    task = caller.task(id)
    found = tasks.task(caller.session, task)
    control.note(caller.session, new.text, caller.by, run=RunId(found.run_id), task=task)
    return tasks.task(caller.session, task)


@router.post("/tasks/{id}/{verb}")
def act_on_task(
    request: Request,
    id: int,
    verb: Verb,
    options: Options = Options(),  # noqa: B008  frozen by use
    dry_run: DryRun = False,
) -> TaskDetail:
    """Cancel, restart, retry, refresh, skip or prioritize a task. 409 if its state forbids that,
    with the reason.
    """
    caller = admit(request, Scope.OPERATE)
    task = caller.task(id)
    with caller.acting(dry_run, task=task) as caller:
        do_to_task(caller, verb, task, options)
        return tasks.task(caller.session, task)


def do_to_task(caller: Caller, verb: Verb, task: TaskId, options: Options) -> None:
    """Apply a verb to a task. Raises the error that becomes 409 if the task's state forbids it."""
    options.check(*_MEANT[verb])
    session, by, who = caller.session, caller.by, caller.approver
    force, as_completed = options.force, options.as_completed
    acts: dict[Verb, Callable[[], None]] = {
        Verb.CANCEL: lambda: control.cancel(session, task, by, assume_gone=options.assume_gone, approver=who),
        Verb.RESTART: lambda: control.restart(session, task, by, approver=who),
        Verb.RETRY: lambda: retrying.retry(session, task, by, force=force, from_start=options.from_start, approver=who),
        Verb.REFRESH: lambda: retrying.refresh(session, task, by),
        Verb.SKIP: lambda: control.skip(session, task, by, as_completed=as_completed, force=force, approver=who),
        Verb.PRIORITIZE: lambda: control.prioritize(session, task, options.the_priority(), by),
    }
    acts[verb]()


# Names


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


def revision_scanned(session: Session, archive: ArchiveId, new: NewRun) -> tuple[int, str]:
    """Scan the repository, then find the revision as `revision_wanted` does (design 5.31). Also
    returns the reason why the newest commits may be missing. A known revision needs no scan.
    """
    if new.revision is not None:
        with suppress(NotFound):
            return revision_wanted(session, archive, new), ""
    note = scan(session, archive)
    return revision_wanted(session, archive, new), note


def revision_wanted(session: Session, archive: ArchiveId, new: NewRun) -> int:
    """The id of the ledger's entry for which a run is requested."""
    if new.revision is None:
        return head_wanted(session, archive, new.archive, new.branch)[0]
    return find.find_revision(session, archive, Name(new.archive, as_revision(new.revision), new.branch)).id


def head_wanted(session: Session, archive: ArchiveId, name: str, branch: str | None) -> tuple[int, BranchId]:
    """The id of the last entry of a branch's ledger (None: the main branch), and the id of the
    branch. ``name``: the archive's name.
    """
    found = find.find_branch(session, archive, branch, name)
    head = session.rows("head_revision", branch=found)
    if not head:
        raise Conflict(f"archive {name}", "has no revision yet", f"arkqueue sync {name}")
    return int(head[0].id), found


def as_revision(given: int | str) -> str:
    """A caller's revision in the form that names use: a number, or ``g`` and the beginning of a
    SHA.
    """
    text = str(given)
    if text.isascii() and text.isdecimal():
        return text
    if match := _SHA.fullmatch(text):
        return "g" + match[1]
    raise Invalid(f"revision {text!r}", "is neither a number nor a SHA", "Give one of them.")
