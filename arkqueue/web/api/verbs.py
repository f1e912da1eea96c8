"""The verbs on the tasks of a run, a list or an item, and on one task, with their options. The API and
the forms of the pages call them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StrictInt

from arkqueue.errors import Invalid
from arkqueue.model import LONGEST_KEY, RunId, TaskId
from arkqueue.priorities import GREATEST_PRIORITY, LEAST_PRIORITY
from arkqueue.queue import control, lists, many, redo, retrying
from arkqueue.queue.done import Done
from arkqueue.queue.walk import Step, alone
from arkqueue.states import State
from arkqueue.views import find
from arkqueue.web.access import Caller

LONGEST_NOTE = 10_000
"""The most characters of a note."""
Item = Annotated[str | None, Field(min_length=1, max_length=LONGEST_KEY)]
"""The key of an item, if a verb on a run is only for the tasks of that item."""

OfList = Annotated[str | None, Field(min_length=1, max_length=100)]
"""The name of a task that has a list, if a verb on a run is only for the items of that list."""

States = Annotated[list[State], Field(max_length=len(State))]
"""The states of the items for which a verb on a list is; empty: any."""


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
        """True if only failed tasks are meant. Nobody can force the retry of all failed tasks."""
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


class NewNote(BaseModel):
    """A person's note. Characters that cannot be stored are refused."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(min_length=1, max_length=LONGEST_NOTE)


MEANT: dict[Verb, tuple[str, ...]] = {
    Verb.CANCEL: ("assume_gone",),
    Verb.RESTART: (),
    Verb.RETRY: ("force", "from_start"),
    Verb.REFRESH: (),
    Verb.SKIP: ("as_completed", "force"),
    Verb.PRIORITIZE: ("priority",),
}
"""The options of each verb on a task."""

MEANT_OF_RUNS = MEANT | {
    Verb.CANCEL: ("item", "list", "states"),
    Verb.RESTART: ("item", "list", "states"),
    Verb.REFRESH: ("item", "list", "states"),
    Verb.RETRY: ("force", "failed", "from_start", "from_task", "item", "list", "states"),
    Verb.SKIP: ("as_completed", "force", "item", "list", "states"),
    Verb.PRIORITIZE: ("priority", "item", "list", "states"),
}
"""The options of each verb on a run."""


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


def do_to_task(caller: Caller, verb: Verb, task: TaskId, options: Options) -> None:
    """Apply a verb to a task. Raises the error that becomes 409 if the task's state forbids it."""
    options.check(*MEANT[verb])
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
